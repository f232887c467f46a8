#include "lib/daemon/config.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace cantle::daemon {
namespace {

constexpr std::array<std::string_view, 8> kPrograms = {"mdserver", "partd", "replpush", "splitter",
                                                       "routegen", "zkctl", "partc",    "cantle-local"};
// May stand at the top of the file although not every program has them.
constexpr std::array<std::string_view, 12> kSharedKeys = {"coord",  "cluster",    "log-level", "output",
                                                          "json",   "token-file", "id",        "data-dir",
                                                          "listen", "socket",     "advertise", "drain-seconds"};

template <size_t N>
bool among(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool set_in_environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr && *value != '\0';
}

bool on_command_line(const CLI::Option& option, const std::vector<std::string>& arguments) {
  for (const auto& argument : arguments) {
    if (argument == "--") return false;
    for (const auto& name : option.get_lnames())
      if (argument == "--" + name || argument.rfind("--" + name + "=", 0) == 0) return true;
    for (const auto& name : option.get_snames())
      if (argument.rfind("-" + name, 0) == 0) return true;
  }
  return false;
}

std::string value_of(const CLI::Option& option) {
  if (option.count() == 0) return option.get_default_str() == "[]" ? "" : option.get_default_str();
  std::string text;
  for (const auto& result : option.results()) text += (text.empty() ? "" : ",") + result;
  return text;
}

}  // namespace

std::string variable_of(std::string_view option) {
  std::string name = "CANTLE_";
  for (const char c : option) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
  auto all = CLI::ConfigTOML::from_config(input);
  std::vector<CLI::ConfigItem> kept;
  for (auto& item : all)
    if (keep(item)) kept.push_back(std::move(item));
  return kept;
}

// Whether CLI11 should see the item; what it then does not know it refuses.
bool ConfigFile::keep(CLI::ConfigItem& item) const {
  if (item.name == "++" || item.name == "--") return false;  // begin and end of a section
  if (!item.parents.empty()) {
    const auto section = item.parents.front();
    if (section == program_)
      item.parents.erase(item.parents.begin());
    else if (among(kPrograms, section))
      return false;
  }
  if (!item.parents.empty()) return true;
  const auto* option = app_.get_option_no_throw("--" + item.name);
  if (option == nullptr) return !among(kSharedKeys, item.name);
  if (!option->get_envname().empty() && set_in_environment(option->get_envname())) return false;
  taken_.insert(item.name);
  return true;
}

void print_config(const CLI::App& app, const ConfigFile& file, const std::vector<std::string>& arguments,
                  Format format) {
  const auto* config = app.get_config_ptr();
  const auto path = config != nullptr ? value_of(*config) : "";
  Printer out(format, {"setting", "value", "from"});
  for (const auto* option : app.get_options()) {
    const auto& names = option->get_lnames();
    if (names.empty() || !option->get_configurable()) continue;
    const auto& name = names.front();
    std::string from = "default";
    if (on_command_line(*option, arguments))
      from = "command line";
    else if (!option->get_envname().empty() && set_in_environment(option->get_envname()))
      from = "environment " + option->get_envname();
    else if (file.taken().contains(name))
      from = "file " + path;
    out.row({name, value_of(*option), from});
  }
}

}  // namespace cantle::daemon

#include "lib/daemon/app.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/daemon/config.h"

namespace cantle::daemon {
namespace {

constexpr rlim_t kDescriptorsWanted = 65536;

std::string base_name(const char* path) {
  const std::string text = path == nullptr ? "cantle" : path;
  return text.substr(text.rfind('/') + 1);
}

void prepare_process() {
  // A peer that closes is an error of that one write, never the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const auto wanted = std::min<rlim_t>(files.rlim_max, kDescriptorsWanted);
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = wanted;
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

// Errors go to people, or to the journal, which wants a severity in front.
void say(const std::string& program, const base::Error& error) {
  if (std::getenv("JOURNAL_STREAM") != nullptr || std::getenv("NOTIFY_SOCKET") != nullptr)
    return base::log(base::Level::fatal, "exit",
                     {{"program", program}, {"code", base::code_name(error.code)}, {"error", error.text}});
  const auto line = program + ": " + error.text + " (" + std::string(base::code_name(error.code)) + ")\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

void allow_globals_anywhere(CLI::App& app) {
  for (auto* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    sub->fallthrough();
    allow_globals_anywhere(*sub);
  }
}

void give_variables(CLI::App& app) {
  for (auto* option : app.get_options())
    if (option->get_configurable() && !option->get_lnames().empty())
      option->envname(variable_of(option->get_lnames().front()));
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  for (const auto& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-h" || argument == "--version" || argument == "-V") return true;
  }
  return false;
}

void list_crash_points() {
  for (const auto name : base::crash_points()) print_line(name);
}

std::string verbs_of(const CLI::App& app) {
  std::string list;
  for (const auto* sub : app.get_subcommands([](const CLI::App* s) { return !s->get_name().empty(); }))
    list += (list.empty() ? "" : ", ") + sub->get_name();
  return list;
}

// The word that stands where a verb should, and which verbs there are. Empty: something else is wrong.
std::string wrong_verb(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& word = arguments[i];
    if (word.starts_with('-')) {
      const auto* option = app.get_option_no_throw(word);
      if (option != nullptr && option->get_items_expected_max() > 0) ++i;  // its value
      continue;
    }
    const auto named = at->get_subcommands([&](const CLI::App* s) { return s->get_name() == word; });
    const auto* sub = named.empty() ? nullptr : named.front();
    if (sub == nullptr)
      return at->get_require_subcommand_min() > 0 ? "there is no verb '" + word + "'; verbs: " + verbs_of(*at) : "";
    at = sub;
  }
  return at->get_require_subcommand_min() > 0 ? "a verb is required: " + verbs_of(*at) : "";
}

// What went wrong with the command line, or with the file.
base::Error parse_failure(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& arguments,
                          const ConfigFile& file, const GlobalFlags& flags) {
  static constexpr std::string_view kUnknownKey = "INI was not able to parse ";
  std::string text = error.what();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::FileError))
    return {base::Code::identity, "configuration " + text};  // which names the file
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError))
    if (const auto verb = wrong_verb(app, arguments); !verb.empty()) return {base::Code::usage, verb + "; try --help"};
  bool in_file = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ConfigError);
  // CLI11 does not say whence a bad value came; the file wins only where the command line said nothing.
  for (const auto& name : file.taken()) in_file = in_file || text.find("--" + name) != std::string::npos;
  if (!in_file) return {base::Code::usage, text + "; try --help"};
  if (text.rfind(kUnknownKey, 0) == 0) text = "no setting is called " + text.substr(kUnknownKey.size());
  return {base::Code::identity, "configuration " + flags.config + ": " + text};
}

base::Status apply(GlobalFlags& flags) {
  base::Level level{};
  if (!base::parse_level(flags.log_level, &level))
    return base::fail(base::Code::usage,
                      "log level '" + flags.log_level + "': one of panic, fatal, error, warn, notice, info, debug");
  base::set_log_level(level);
  TRY_ASSIGN(flags.format, parse_format(flags.json ? "json" : flags.output));
  return base::ok();
}

}  // namespace

int run(CLI::App& app, int argc, char** argv, GlobalFlags& flags, const Body& body) {
  prepare_process();
  const auto program = base_name(argc > 0 ? argv[0] : nullptr);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const auto refuse = [&](const base::Error& error) {
    say(program, error);
    return exit_status(error);
  };

  app.name(program);
  app.set_version_flag("-V,--version", program + " " + CANTLE_VERSION);
  bool crash_points = false;
  auto* list = app.add_flag("--list-crash-points", crash_points, "Print the crash points that this build has");
  list->configurable(false);
  if (base::crash_points().empty()) list->group("");  // there are none: not in the help
  auto* config_verb = app.add_subcommand("config", "Print the settings in force, and whence each came");
  allow_globals_anywhere(app);
  give_variables(app);
  app.allow_config_extras(CLI::config_extras_mode::error);
  const auto file = std::make_shared<ConfigFile>(app, program);
  app.config_formatter(file);
  if (auto* config = app.get_config_ptr(); config != nullptr) {
    config->configurable(false);
    if (asks_for_help(arguments)) {
      app.set_config();  // a broken file does not stand between a person and the help
      app.add_option("-c,--config", flags.config, "Configuration file")->configurable(false)->capture_default_str();
    } else if (std::getenv("CANTLE_CONFIG") != nullptr)
      config->required(flags.config != kDefaultConfig);
  }

  try {
    if (arguments.size() == 1 && arguments[0] == "--list-crash-points") {
      list_crash_points();
      return kExitDone;
    }
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help and version
    return refuse(parse_failure(error, app, arguments, *file, flags));
  }
  if (auto* config = app.get_config_ptr(); config != nullptr && config->count() > 0)
    flags.config = config->as<std::string>();
  if (crash_points) {
    list_crash_points();
    return kExitDone;
  }
  if (const auto status = apply(flags); !status) return refuse(status.error());
  if (config_verb->parsed()) {
    print_config(app, *file, arguments, flags.format);
    return kExitDone;
  }
  const auto result = body();
  return result ? *result : refuse(result.error());
}

}  // namespace cantle::daemon

// Config: the configuration file and the environment behind the command line. Internal to lib/daemon; includes CLI11.
//
// CLI11 2.1 lets the file win over the environment. Here an item of the file is taken out when its variable is
// set, so that CLI11, which asks the environment next, finds the option empty.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/daemon/output.h"

namespace cantle::daemon {

// "data-dir" → "CANTLE_DATA_DIR".
std::string variable_of(std::string_view option);

class ConfigFile final : public CLI::ConfigTOML {
 public:
  ConfigFile(CLI::App& app, std::string program) : app_(app), program_(std::move(program)) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

  // Options that got their value from the file.
  const std::set<std::string>& taken() const { return taken_; }

 private:
  bool keep(CLI::ConfigItem& item) const;

  CLI::App& app_;
  std::string program_;
  mutable std::set<std::string> taken_;
};

// The verb `config`: every setting, its value, and whence it came.
void print_config(const CLI::App& app, const ConfigFile& file, const std::vector<std::string>& arguments,
                  Format format);

}  // namespace cantle::daemon

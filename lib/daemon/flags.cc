#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <iterator>

#include "lib/daemon/app.h"
#include "lib/daemon/config.h"

namespace cantle::daemon {
namespace {

constexpr size_t kTokenMax = 4096;

std::string config_from_environment() {
  const char* path = std::getenv("CANTLE_CONFIG");
  return path != nullptr && *path != '\0' ? path : kDefaultConfig;
}

}  // namespace

void add_global_flags(CLI::App& app, GlobalFlags& flags) {
  app.fallthrough();
  flags.config = config_from_environment();
  app.set_config("-c,--config", flags.config, "Configuration file");
  app.add_option("--coord", flags.coord, "Coordination service: zk://h1:p,h2:p,h3:p[/chroot] or file:///dir");
  app.add_option("--cluster", flags.cluster, "Name of the cluster")->capture_default_str();
  app.add_option("--token-file", flags.token_file, "File with the cluster's shared secret");
  app.add_option("--log-level", flags.log_level, "panic, fatal, error, warn, notice, info or debug")
      ->capture_default_str();
  app.add_option("-o,--output", flags.output, "table, json, tsv or name")
      ->check(CLI::IsMember({"table", "json", "tsv", "name"}))
      ->capture_default_str();
  app.add_flag("--json", flags.json, "The same as -o json");
}

void add_daemon_flags(CLI::App& app, DaemonFlags& flags) {
  app.add_option("--id", flags.id, "Name of this server: [a-z0-9][a-z0-9_.-]*");
  app.add_option("--data-dir", flags.data_dir, "Data directory");
  app.add_option("--listen", flags.listen, "host:port to listen on, numeric; several with commas")->delimiter(',');
  app.add_option("--advertise", flags.advertise, "host:port at which others reach this server");
  app.add_option("--socket", flags.socket, "Path of the Unix socket");
  app.add_option("--drain-seconds", flags.drain_seconds, "How long a stop waits for what is in hand")
      ->capture_default_str();
}

base::Result<std::string> need_coord(const GlobalFlags& flags) {
  if (flags.coord.starts_with("zk://") || flags.coord.starts_with("file://")) return flags.coord;
  if (!flags.coord.empty())
    return base::fail(base::Code::usage,
                      "coordination service '" + flags.coord + "': zk://h1:p,h2:p,h3:p[/chroot] or file:///dir");
  return base::fail(
      base::Code::usage,
      "no coordination service: give --coord URL, or CANTLE_COORD, or `coord = \"…\"` in " + flags.config);
}

base::Result<std::string> read_token(const GlobalFlags& flags) {
  if (flags.token_file.empty()) return std::string();
  std::ifstream in(flags.token_file, std::ios::binary);
  std::string token{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    return base::fail(base::Code::identity, "cannot read the token file " + flags.token_file);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty() || token.size() > kTokenMax)
    return base::fail(base::Code::identity,
                      "the token in " + flags.token_file + " must have 1 to " + std::to_string(kTokenMax) + " bytes");
  return token;
}

base::Result<std::vector<std::string>> expand_dash(const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (const auto& argument : arguments) {
    if (argument != "-") {
      all.push_back(argument);
      continue;
    }
    for (std::string line; std::getline(std::cin, line);)
      if (!line.empty()) all.push_back(line);
    if (std::cin.bad()) return base::fail(base::errno_error("reading stdin", errno));
  }
  return all;
}

}  // namespace cantle::daemon

// mdserver: stores METADATA files, carries metadata changes, answers lookups. Flags here, the rest in daemon.h.
#include <CLI/CLI.hpp>

#include "cmd/mdserver/daemon.h"
#include "lib/model/ids.h"

namespace {

using namespace cantle;

base::Result<int> serve(const daemon::GlobalFlags& flags, mdserver::Config config) {
  TRY_ASSIGN(config.coord, daemon::need_coord(flags));
  TRY_ASSIGN(config.token, daemon::read_token(flags));
  config.cluster = flags.cluster;
  if (auto valid = coord::validate_cluster_name(config.cluster); !valid)
    return base::fail(base::Code::usage, valid.error().text);
  if (auto valid = model::validate_server_id(config.own.id); !valid)
    return base::fail(base::Code::usage, "--id: " + valid.error().text);
  if (config.own.data_dir.empty()) return base::fail(base::Code::usage, "--data-dir is required");
  mdserver::Daemon daemon(std::move(config));
  TRY(daemon.run());
  return daemon::kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Stores and changes the metadata of tables.");
  app.footer(
      "Example:\n  mdserver run --id m1 --data-dir /var/lib/cantle/m1 --coord zk://h1:2181,h2:2181,h3:2181/cantle");
  daemon::GlobalFlags flags;
  mdserver::Config config;
  daemon::add_global_flags(app, flags);
  daemon::add_daemon_flags(app, config.own);
  app.add_option("--rack", config.rack, "Where this server stands");
  app.add_option("--session-ms", config.session_ms, "Session timeout asked of the coordination service")
      ->check(CLI::Range(500, 60000))
      ->capture_default_str();
  auto* run = app.add_subcommand("run", "Serve until told to stop");
  app.require_subcommand(1);
  return daemon::run(app, argc, argv, flags, [&]() -> base::Result<int> {
    if (run->parsed()) return serve(flags, config);
    return base::fail(base::Code::usage, "a verb is required (mdserver --help)");
  });
}

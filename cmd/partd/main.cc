// partd: holds partition replicas. Flags here; `run` is service.h, the verbs on a data directory are offline.h.
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>

#include "cmd/partd/offline.h"
#include "cmd/partd/service.h"
#include "lib/coord/layout.h"
#include "lib/daemon/supervisor.h"

namespace {

using namespace cantle;

base::Status check(partd::Config& config, const daemon::GlobalFlags& flags) {
  TRY_ASSIGN(config.coord, daemon::need_coord(flags));
  TRY_ASSIGN(config.token, daemon::read_token(flags));
  config.cluster = flags.cluster;
  if (auto valid = coord::validate_cluster_name(config.cluster); !valid)
    return base::fail(base::Code::usage, valid.error().text);
  if (auto valid = model::validate_server_id(config.own.id); !valid)
    return base::fail(base::Code::usage, "--id: " + valid.error().text);
  if (config.own.data_dir.empty()) return base::fail(base::Code::usage, "--data-dir is required");
  if (::mkdir(config.own.data_dir.c_str(), 0750) != 0 && errno != EEXIST)
    return base::fail(base::errno_error("data directory " + config.own.data_dir, errno));
  return base::ok();
}

base::Result<int> serve(const daemon::GlobalFlags& flags, partd::Config config) {
  TRY(check(config, flags));
  io::Loop loop;
  partd::Service service(loop, config);
  TRY(service.open());
  daemon::Supervisor life(loop, {.name = "partd " + config.own.id,
                                 .drain = [&](auto done) { service.drain(std::move(done)); },
                                 .reload = nullptr,
                                 .status = [&] { return service.status_line(); },
                                 .healthy = [&] { return service.healthy(); },
                                 .drain_limit = std::chrono::seconds(config.own.drain_seconds)});
  service.start([&] { life.ready(); }, [&](base::Error error) { life.fail(std::move(error)); });
  TRY(life.run());
  return daemon::kExitDone;
}

void add_run_flags(CLI::App& app, partd::Config& config) {
  app.add_option("--rack", config.rack, "Where this server stands: no two replicas of a partition in one rack");
  app.add_option("--weight", config.weight, "Its share of the data, against the others'")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--overlay-mib", config.overlay_mib, "Memory for records not yet in the index")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--retention-hours", config.retention_hours,
                 "How long the journal is kept for replicas that have not confirmed")
      ->check(CLI::Range(0, 8760))
      ->capture_default_str();
  app.add_option("--retention-mib", config.retention_mib, "And how much of it; 0: a tenth of the disk, 64 GiB at most")
      ->capture_default_str();
  app.add_option("--index-dir", config.index_dir, "Directory of the index; default: index in the data directory");
  app.add_option("--pusher", config.pusher, "Unix socket of the replpush beside it, to be woken there too");
  app.add_option("--read-threads", config.read_threads, "Threads for reads that wait for the disk")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--session-ms", config.session_ms, "Session timeout asked of the coordination service")
      ->check(CLI::Range(500, 60000))
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Hold partition replicas: journal, index, client requests.");
  app.footer("Example:\n  partd run --id p1 --data-dir /var/lib/cantle/p1 --coord zk://h1:2181,h2:2181,h3:2181/cantle");
  daemon::GlobalFlags flags;
  partd::Config config;
  partd::Offline offline;
  daemon::add_global_flags(app, flags);
  daemon::add_daemon_flags(app, config.own);
  add_run_flags(app, config);
  app.require_subcommand(1);
  auto* run = app.add_subcommand("run", "Serve until told to stop");
  run->footer("example: partd run --id p1 --data-dir /var/lib/cantle/p1 --coord file:///var/lib/cantle/coord");
  const auto verb = [&](const char* name, const char* says, const char* example) {
    auto* sub = app.add_subcommand(name, says);
    sub->footer(std::string("example: ") + example);
    return sub;
  };
  auto* hash =
      verb("hash", "Count and hash the records of each copy in the index", "partd hash --data-dir /var/lib/cantle/p1");
  auto* verify = verb("verify", "Check journal, root blocks and index of a data directory",
                      "partd verify --data-dir /var/lib/cantle/p1");
  auto* dump = verb("dump-journal", "List the blocks of the journal",
                    "partd dump-journal --data-dir /var/lib/cantle/p1 --records");
  auto* snapshot = verb("snapshot", "Write a copy of one partition's records to stdout",
                        "partd snapshot --data-dir /var/lib/cantle/p1 --partition 3f2a >FILE");
  auto* report = verb("report", "Say how far the logs of quorum tables go on a stopped server, for zkctl quorum",
                      "partd report --data-dir /var/lib/cantle/p1 --partition 3f2a >FILE");
  auto* restore = verb("restore", "Put the records of a snapshot on stdin back into a partition of a stopped server",
                       "partd restore --data-dir /var/lib/cantle/p1 --partition 3f2a <FILE");
  for (auto* sub : {hash, dump, report, snapshot, restore})
    sub->add_option("--partition", offline.partition, "At least four digits of a partition's id");
  dump->add_flag("--records", offline.records, "Their records too, a line each");
  snapshot->get_option("--partition")->required();
  restore->get_option("--partition")->required();
  snapshot->add_option("--after", offline.after, "Resume behind this key (%XX for unprintable bytes)");
  return daemon::run(app, argc, argv, flags, [&]() -> base::Result<int> {
    if (run->parsed()) return serve(flags, config);
    if (config.own.data_dir.empty()) return base::fail(base::Code::usage, "--data-dir is required");
    offline.data_dir = config.own.data_dir;
    offline.index_dir = config.index_dir;
    offline.format = flags.format;
    if (hash->parsed()) return partd::hash(offline);
    if (verify->parsed()) return partd::verify(offline);
    if (dump->parsed()) return partd::dump_journal(offline);
    if (report->parsed()) return partd::report(offline);
    if (snapshot->parsed()) return partd::snapshot(offline);
    if (restore->parsed()) return partd::restore(offline);
    return base::fail(base::Code::usage, "a verb is required (partd --help)");
  });
}

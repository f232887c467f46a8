// replpush: moves data in bulk from one server to others, and proves what may be dropped.
#include <CLI/CLI.hpp>

#include "cmd/replpush/verbs.h"
#include "lib/daemon/sockets.h"
#include "lib/daemon/supervisor.h"
#include "lib/io/loop.h"
#include "lib/rpc/server.h"

namespace {

using namespace cantle;
using namespace cantle::replpush;

struct Flags {
  daemon::GlobalFlags global;
  daemon::DaemonFlags own;
  Config config;
  ToolFlags tool;
};

base::Result<Config> config_of(const Flags& flags) {
  Config config = flags.config;
  if (flags.own.data_dir.empty())
    return base::fail(base::Code::usage, "--data-dir is needed: the one of the partition server");
  if (!flags.own.id.empty()) TRY(model::validate_server_id(flags.own.id));
  config.id = {flags.own.id};
  config.data_dir = flags.own.data_dir;
  config.coord = flags.global.coord;
  config.cluster = flags.global.cluster;
  TRY_ASSIGN(config.token, daemon::read_token(flags.global));
  if (config.partd.empty() && config.coord.empty())
    return base::fail(base::Code::usage, "--partd or --coord is needed, to find the partition server");
  if (config.partd.empty() && config.id.name.empty())
    return base::fail(base::Code::usage,
                      "--id is needed, to find the partition server through the coordination service");
  return config;
}

base::Result<int> serve(const Flags& flags) {
  if (flags.own.id.empty()) return base::fail(base::Code::usage, "--id is needed: the one of the partition server");
  TRY_ASSIGN(const auto config, config_of(flags));
  io::Loop loop;
  Service service(loop, config);
  rpc::Identity identity;
  identity.token = config.token;
  identity.role = "replpush";
  identity.id = config.id.name;
  rpc::Server server(loop, identity);
  service.add_methods(server);
  TRY(daemon::listen_all(server, flags.own, "replpush", 0));
  daemon::Life about;
  about.name = "replpush " + config.id.name;
  about.drain = [&](std::function<void()> done) {
    server.stop_accepting();
    service.stop(std::move(done));
  };
  about.status = [&] { return service.status_line(); };
  about.drain_limit = std::chrono::seconds(flags.own.drain_seconds);
  daemon::Supervisor life(loop, std::move(about));
  service.start([&] { life.ready(); }, [&](base::Error e) { life.fail(std::move(e)); });
  TRY(life.run());
  return daemon::kExitDone;
}

std::string socket_of(const Flags& flags) {
  if (!flags.own.socket.empty()) return flags.own.socket;
  return "/run/cantle/replpush-" + flags.own.id + ".sock";
}

CLI::App* add_verb(CLI::App& app, Flags& f, const char* name, const char* says, const char* example) {
  auto* sub = app.add_subcommand(name, says);
  sub->add_option("which", f.tool.which,
                  "A table, a server, at least four digits of a partition or assignment id, or all");
  sub->footer(std::string("example: ") + example);
  return sub;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Bring other servers what they lack of the partitions of this one, and prove what may be dropped.");
  Flags f;
  daemon::add_global_flags(app, f.global);
  daemon::add_daemon_flags(app, f.own);
  app.add_option("--partd", f.config.partd,
                 "Unix socket of the partition server; default: looked up in the coordination service");
  app.add_option("--index-dir", f.config.index_dir,
                 "The partition server's index directory, if not in the data directory");
  app.require_subcommand(1);
  auto* run = app.add_subcommand("run", "Serve until told to stop");
  run->footer("example: replpush run --id p1 --data-dir /var/lib/cantle/p1 --coord zk://z1:2181,z2:2181,z3:2181");
  auto* once = app.add_subcommand("once", "Push until every target has everything, then end");
  once->add_option("--timeout", f.tool.timeout, "How long to try (250ms, 5s, 2m)")->capture_default_str();
  once->footer(
      "Where a replpush runs already, asks it, and waits for it. Exit status 75: not everything is through.\n"
      "example: replpush once --id p1 --data-dir /var/lib/cantle/p1 --timeout 5m");
  auto* list =
      add_verb(app, f, "list", "List the work in hand: a line for each target, and for each copy to be dropped",
               "replpush list --id p1 --waiting");
  list->add_flag("--waiting", f.tool.waiting, "Only what is not through");
  auto* hold = add_verb(app, f, "hold", "Push nothing there until it is released; kept across restarts",
                        "replpush hold p3 --id p1");
  auto* release = add_verb(app, f, "release", "End a hold; without a name, all of them", "replpush release p3 --id p1");
  auto* requeue = add_verb(app, f, "requeue", "Forget how far the targets are, and begin from the beginning",
                           "replpush requeue 3f2a --id p1");
  auto* wake = add_verb(app, f, "wake", "Try again now what waits for its next attempt", "replpush wake --id p1");
  requeue->get_option("which")->required();
  return daemon::run(app, argc, argv, f.global, [&]() -> base::Result<int> {
    f.tool.socket = socket_of(f);
    if (f.tool.which == "all") f.tool.which.clear();
    if (run->parsed()) return serve(f);
    if (f.own.socket.empty() && f.own.id.empty())
      return base::fail(base::Code::usage, "--socket or --id is needed, to find the replpush that runs");
    if (list->parsed()) return replpush::list(f.global, f.tool);
    if (once->parsed()) {
      TRY_ASSIGN(const auto config, config_of(f));
      return replpush::once(f.global, config, f.tool);
    }
    for (auto* sub : {hold, release, requeue, wake})
      if (sub->parsed()) return ask(f.global, f.tool, sub->get_name());
    return base::fail(base::Code::usage, "a verb is required");
  });
}

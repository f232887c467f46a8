// App: what every program of this project does before and after its own work: flags that all share, the
// configuration file, the log level, the exit status.
//
//   int main(int argc, char** argv) {
//     CLI::App app("Moves data between servers.");
//     daemon::GlobalFlags flags;
//     daemon::DaemonFlags own;
//     daemon::add_global_flags(app, flags);
//     daemon::add_daemon_flags(app, own);
//     auto* run = app.add_subcommand("run", "Serve until told to stop");
//     return daemon::run(app, argc, argv, flags, [&]() -> base::Result<int> { ... return 0; });
//   }
//
// run() adds --version, --list-crash-points and the verb `config`, parses, sets the log level, ignores
// SIGPIPE, raises the descriptor limit, calls `body`, prints its error on stderr and returns the exit status.
//
// Precedence: command line, environment, configuration file, default. The variable of --data-dir is
// CANTLE_DATA_DIR. The file (CLI11's TOML subset) has the same names as the flags: at the top for every
// program, in [partd] for partd alone; a key that nobody knows is an error (exit 78).
// Flags given to the app (not to a subcommand) can stand before or after the subcommand.
//
// CLI11 is included by main.cc files only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/output.h"

namespace CLI {
class App;
}

namespace cantle::daemon {

constexpr const char* kDefaultConfig = "/etc/cantle/cantle.conf";

struct GlobalFlags {
  std::string config = kDefaultConfig;
  std::string coord;  // URL; a verb that needs it says so through need_coord()
  std::string cluster = "cantle";
  std::string log_level = "info";
  std::string output = "table";
  bool json = false;
  Format format = Format::table;  // of --output and --json
  std::string token_file;         // holds the cluster's shared secret; empty: none
};

struct DaemonFlags {
  std::string id;
  std::string data_dir;
  std::vector<std::string> listen;  // host:port
  std::string advertise;            // host:port that others use; default: the first that was bound
  std::string socket;               // Unix socket path; default: /run/cantle/<role>-<id>.sock
  uint32_t drain_seconds = 30;
};

void add_global_flags(CLI::App& app, GlobalFlags& flags);
void add_daemon_flags(CLI::App& app, DaemonFlags& flags);

// A verb's own exit status, or an error that is printed and mapped (exit.h).
using Body = std::function<base::Result<int>()>;
int run(CLI::App& app, int argc, char** argv, GlobalFlags& flags, const Body& body);

// The URL, or `usage` with what to do.
base::Result<std::string> need_coord(const GlobalFlags& flags);
// The secret in token_file, without the newline; empty when there is none. identity: cannot be read.
base::Result<std::string> read_token(const GlobalFlags& flags);
// Ids given as arguments; "-" stands for the lines of stdin.
base::Result<std::vector<std::string>> expand_dash(const std::vector<std::string>& arguments);

}  // namespace cantle::daemon

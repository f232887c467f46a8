// Sockets: where a daemon listens: what the service manager passed (LISTEN_FDS), else --listen and --socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/daemon/app.h"
#include "lib/io/address.h"

namespace cantle::rpc {
class Server;
}

namespace cantle::daemon {

struct PassedSocket {
  int fd = -1;
  std::string name;  // LISTEN_FDNAMES; "unknown" where nothing was said
};
// Takes the sockets passed by the service manager, close-on-exec, and removes the variables: a second call
// returns none. Empty when there are none for this process.
std::vector<PassedSocket> take_passed_sockets();

constexpr uint16_t kPortMdserver = 7400;
constexpr uint16_t kPortPartd = 7410;

struct Listening {
  std::string tcp;    // what others connect to, host:port: --advertise, else the first bound; empty: none
  std::string local;  // path of the Unix socket; empty: none
};
// Listens on the passed sockets, or on flags.listen (default 127.0.0.1:`default_port`; 0: no TCP) and the
// Unix socket flags.socket (default /run/cantle/<role>-<id>.sock).
base::Result<Listening> listen_all(rpc::Server& server, const DaemonFlags& flags, const std::string& role,
                                   uint16_t default_port);

}  // namespace cantle::daemon

// Supervisor: the life of a daemon once its parts stand: readiness, signals, drain, the watchdog.
//
//   daemon::Supervisor life(loop, {
//       .name = "partd p1",
//       .drain = [&](auto done) { server.drain(25s, done); },
//       .reload = [&] { return service.reload(); },
//       .status = [&] { return service.status_line(); },
//       .healthy = [&] { return engine.progressing(); }});
//   service.start([&] { life.ready(); }, [&](base::Error e) { life.fail(e); });
//   TRY(life.run());                         // until SIGTERM, SIGINT or fail()
//
// SIGTERM and SIGINT drain: STOPPING, drain(done), at most drain_limit; a second one ends at once.
// SIGHUP: RELOADING, reload(), READY again. WATCHDOG every WATCHDOG_USEC/2, only while the loop turns and
// healthy() says so. STATUS once a second where it changed.
// Threads: the loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lib/base/result.h"
#include "lib/base/time.h"

namespace cantle::io {
class Loop;
}

namespace cantle::daemon {

constexpr base::Duration kDrainLimit = std::chrono::seconds(30);

struct Life {
  std::string name = {};
  std::function<void(std::function<void()> done)> drain = {};  // null: stops at once
  std::function<base::Status()> reload = {};                   // null: SIGHUP is ignored
  std::function<std::string()> status = {};                    // one line
  std::function<bool()> healthy = {};                          // null: yes
  base::Duration drain_limit = kDrainLimit;
};

class Supervisor {
 public:
  Supervisor(io::Loop& loop, Life life);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void ready();                  // serving: READY=1; more calls do nothing
  void fail(base::Error error);  // run() returns it; nothing is drained
  void stop();                   // as SIGTERM
  bool stopping() const;
  base::Status run();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

// One datagram to $NOTIFY_SOCKET: "READY=1\nSTATUS=…". False: nobody to tell.
bool notify_manager(const std::string& message);

}  // namespace cantle::daemon

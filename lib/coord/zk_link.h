// Link: one ZooKeeper client handle on the loop: the library's single-threaded client says what it waits
// for (interest) and is told when it may go on (process).
//
// Invariants
//   * The library's socket is never watched while the library runs: it may close and reopen it.
//   * The owner hears of the session only between calls of the library, where it may restart or stop.
//   * Requests handed over through handle() are followed by kick().
// Threads: the loop's. Ownership: the owner and the loop outlive it. Destroying it ends the session if
// it is connected, and answers every outstanding request with ZCLOSING; not from inside a callback of
// the library.
#pragma once

#include <zookeeper/zookeeper.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/base/time.h"
#include "lib/io/timer.h"

struct uv_poll_s;

namespace cantle::io {
class Loop;
}

namespace cantle::coord::zk {

// What the library last logged, in this process: why there is no connection. May be empty.
std::string library_said();

class LinkOwner {
 public:
  virtual void link_connected() = 0;
  virtual void link_lost() = 0;
  virtual void link_expired() = 0;                    // the handle is dead: start() again
  virtual void link_watch_fired(uint64_t watch) = 0;  // inside the library: no call into it

 protected:
  ~LinkOwner() = default;
};

class Link {
 public:
  Link(io::Loop& loop, LinkOwner& owner);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Ends what was before. `resume`: the session to go on with, or null. False: the library refused the list.
  bool start(const std::string& addresses, base::Duration timeout, const clientid_t* resume);
  // Without telling the server, when it is not connected.
  void stop();
  zhandle_t* handle() const { return handle_; }  // null between stop() and start()
  bool connected() const;
  void kick();  // soon: requests were handed over

  // For the library's watch context.
  static void on_watch(zhandle_t*, int type, int state, const char* path, void* context);

 private:
  enum class Change : uint8_t { connected, lost, expired };
  static void on_session(zhandle_t*, int type, int state, const char* path, void* context);
  void note(int state);
  void pump();
  void ready(int status, int events);
  void process(int events);
  void tell_owner();
  void drop_poll();
  void watch_socket(int fd, int interest);

  io::Loop& loop_;
  LinkOwner& owner_;
  zhandle_t* handle_ = nullptr;
  uv_poll_s* poll_ = nullptr;
  int poll_fd_ = -1;
  bool in_library_ = false;
  bool kicked_ = false;
  std::vector<Change> changes_;  // seen inside the library, not yet told
  io::Timer timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::coord::zk

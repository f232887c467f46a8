// Listener: accepts connections on one address and survives what there is too much of.
//
//   io::Listener listener(loop, [this](std::unique_ptr<io::Conn> conn) { ... });
//   TRY(listener.listen(address));
//
// Unix sockets: "PATH.lock" is held with flock, so that a stale socket is told from a live one and no two
// processes share a path; mode 0660; removed at the end, unless somebody else's stands there by now.
//
// Invariants (R40)
//   * Out of descriptors: it gives up one it kept in reserve to tell one waiting peer "no" by closing, then
//     leaves the others waiting for kAcceptPause; no busy loop, at most one log line a second.
//   * No room, or descriptors running short: what comes is closed at once, kAcceptsPerTurn a pause.
// Ownership: connections handed out are the callback's. In the callback close() is allowed, destroying the
// Listener is not. Destroy it before the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/io/address.h"
#include "lib/io/conn.h"

namespace cantle::io {

constexpr int kBacklog = 511;
constexpr int kAcceptsPerTurn = 64;
constexpr base::Duration kAcceptPause = std::chrono::milliseconds(200);
// Descriptors that connections leave for files and the coordination service: this many, or a quarter of a small limit.
// Those over a Unix socket may go into half of them, so that an operator gets in.
constexpr int kReservedDescriptors = 40;
constexpr int kReservedDescriptorsMin = 8;

class Listener {
 public:
  using Accept = std::function<void(std::unique_ptr<Conn>)>;
  Listener(Loop& loop, Accept accept);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // conflict: the address is in use; invalid, denied, io_error: as they say.
  base::Status listen(const Address& address);
  // A socket passed by the service manager; listening or not yet.
  base::Status listen_fd(int fd);
  void close();  // stops accepting

  // Asked before each connection is handed out; false: it is closed.
  void set_room(std::function<bool()> room);
  Address address() const;  // with the port that the kernel chose for port 0
  uint64_t accepted() const;
  uint64_t refused() const;  // closed for want of room
  uint64_t starved() const;  // times that descriptors or memory ran out

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace cantle::io

// Conn: one stream connection, TCP or Unix: bytes in, coalesced bytes out, backpressure.
//
//   auto conn = io::Conn::connect(loop, address, handler);   // or one from a Listener
//   conn->write(bytes);           // appended; sent with everything else of this turn in one system call
//
// Invariants
//   * Bytes are sent in the order of write() and write_shared(); what waits goes with one system call, one at a time.
//   * on_closed is called exactly once, unless the owner destroys the Conn first; nothing is called after it.
//   * A connection that keeps sending gets kBytesPerTurn a turn, so that others get theirs.
// Ownership: the owner may destroy the Conn in any callback, that Conn's own included. The handler outlives it.
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/io/address.h"

namespace cantle::io {

class Conn;
class Loop;

class ConnHandler {
 public:
  virtual void on_connected(Conn&) {}
  virtual void on_bytes(Conn& conn, std::string_view bytes) = 0;  // the view ends with the call
  // The peer will send no more; it may still read. Default: the connection ends.
  virtual void on_eof(Conn& conn);
  virtual void on_drained(Conn&) {}  // output fell to kOutputLow after it had passed kOutputHigh
  virtual void on_closed(Conn& conn, const base::Error& why) = 0;

 protected:
  ~ConnHandler() = default;
};

constexpr size_t kOutputHigh = size_t{1} << 20;  // bytes waiting: time to stop reading
constexpr size_t kOutputLow = size_t{256} << 10;
constexpr size_t kBytesPerTurn = size_t{256} << 10;
constexpr base::Duration kKeepaliveIdle = std::chrono::seconds(10);
constexpr base::Duration kKeepaliveInterval = std::chrono::seconds(3);
constexpr int kKeepaliveCount = 3;
constexpr base::Duration kUserTimeout = std::chrono::seconds(20);  // unacknowledged data ends a connection
constexpr base::Duration kLinger = std::chrono::seconds(1);        // finish(): how long the peer may go on sending

class Conn {
 public:
  // Never fails at once: on_connected or on_closed follows from the loop.
  static std::unique_ptr<Conn> connect(Loop& loop, const Address& address, ConnHandler& handler);
  // Takes over an accepted socket. Reading starts with start().
  Conn(Loop& loop, Address::Kind kind, int fd);
  ~Conn();
  Conn(const Conn&) = delete;
  Conn& operator=(const Conn&) = delete;

  void start(ConnHandler& handler);
  void write(std::string_view bytes);
  // A large message that is kept elsewhere and does not change: sent from there, behind what was written before.
  void write_shared(std::shared_ptr<const std::string> bytes);
  // The buffer that is sent next: append to it, then call wrote(). Saves a copy of what is encoded in place.
  std::string& output();
  void wrote();
  // Sends now what would be sent at the end of the turn: for a peer who can go on while others are served. May close.
  void send_now();
  size_t unsent() const;  // bytes written and not yet taken by the kernel
  // Buffers keep the size they grew to, for the next large message. An owner gives them back when it is quiet.
  void trim();
  size_t held() const;  // bytes of memory in them

  // Stops and resumes on_bytes; the kernel's window then holds the peer back.
  void pause();
  void resume();
  bool paused() const;

  // Sends what is written, tells the peer that no more comes, discards what it still sends for at most
  // kLinger (so that it can read the answer before a reset reaches it), then on_closed(cancelled).
  void finish();
  bool finishing() const;

  Address::Kind kind() const;
  const std::string& peer() const;  // "127.0.0.1:4711", "unix:pid=12,uid=0"
  uint64_t bytes_in() const;
  uint64_t bytes_out() const;

 private:
  struct Core;
  explicit Conn(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace cantle::io

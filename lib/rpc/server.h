// Server: answers MessagePack-RPC on any number of addresses.
//
//   rpc::Server server(loop, {.role = "partd", .id = "p1"});
//   server.handle("get", [&](const rpc::Call& call, rpc::Responder responder) {
//     auto request = wire::decode<GetRequest>(call.params);
//     if (!request) return responder.fail(request.error());
//     engine.get(*request, [responder](Result<GetReply> r) { ... responder.ok(wire::encode(*r)); });
//   });
//   TRY(server.listen(address));
//
// Invariants
//   * Every request gets exactly one answer, in any order: the first of ok() and fail() counts, and a request
//     whose last Responder is dropped without one is answered FAULTED.
//   * A malformed frame is answered MALFORMED and ends that connection only. An unknown method, or params that
//     are not one map, is answered INVALID.
//   * Reading from a connection stops while it has inflight_max requests or kOutputHigh bytes of answers waiting.
//   * Nothing is allocated on the word of a peer; half a frame ends its connection after frame_timeout.
// Ownership: destroy it before the loop; Responders may outlive it and then do nothing.
// Threads: the loop's. A Responder may travel through another thread, but is used, copied and dropped on the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/io/address.h"
#include "lib/rpc/identity.h"

namespace cantle::io {
class Loop;
}

namespace cantle::rpc {

struct Session;

struct ServerLimits {
  size_t connections = 1000;               // fewer where descriptors run short (io/listener.h)
  size_t inflight = 1024;                  // requests of one connection not yet answered
  size_t output = size_t{64} << 20;        // answers of one connection waiting: it does not read; closed
  size_t input_total = size_t{128} << 20;  // bytes of unfinished frames, all connections together
  base::Duration frame_timeout = std::chrono::seconds(30);  // for a frame to arrive, plus a second for each 64 KiB
  base::Duration eof_grace = std::chrono::seconds(3);       // for answers, once a peer has shut down its sending side
};
constexpr size_t kCallsPerTurn = 256;  // of one connection

struct Counters {
  uint64_t accepted = 0, refused = 0, closed = 0;
  uint64_t requests = 0, notifications = 0, answers = 0, errors = 0;
  uint64_t malformed = 0, unknown_methods = 0, denied = 0, timeouts = 0, slow_readers = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
};

// Who sent it.
struct Caller {
  uint64_t connection = 0;  // a number that no other connection of this server has had
  bool local = false;       // over a Unix socket
  bool greeted = false;     // `hello` succeeded
  std::string peer;         // for logs
  std::string from;         // what hello said: "p1"
};

struct Call {
  std::string_view method;
  std::string_view params;  // the encoded map, empty for none; ends with the handler
  const Caller& caller;
};

class Responder {
 public:
  Responder() = default;  // answers nobody
  // `result` is an encoded map; empty stands for an empty one.
  void ok(std::string_view result = {}) const;
  void fail(const base::Error& error) const;
  // False when the answer would reach nobody: answered, or the connection is gone.
  bool alive() const;

 private:
  friend class Server;
  friend struct Session;
  struct Pending;
  explicit Responder(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}
  std::shared_ptr<Pending> pending_;
};

class Server {
 public:
  using Handler = std::function<void(const Call&, Responder)>;
  using NotifyHandler = std::function<void(const Call&)>;

  explicit Server(io::Loop& loop, Identity identity = {}, ServerLimits limits = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  base::Status listen(const io::Address& address);
  base::Status listen_fd(int fd);              // from the service manager
  std::vector<io::Address> addresses() const;  // as bound

  void handle(std::string method, Handler handler);
  void handle_notify(std::string method, NotifyHandler handler);  // unknown notifications are ignored
  // Called when a connection is gone: for what was kept for it.
  void on_gone(std::function<void(uint64_t connection)> fn);
  void set_identity(Identity identity);

  // Sends a notification to every connection / to one; false when it is gone.
  bool notify(uint64_t connection, std::string_view method, std::string_view params);

  // Stops accepting and reading, answers what is in hand, closes; then, or when `limit` has passed, done().
  void drain(base::Duration limit, std::function<void()> done);
  void stop_accepting();

  size_t connections() const;
  size_t inflight() const;
  Counters counters() const;

 private:
  friend struct Session;
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace cantle::rpc

// Peer: a client's connection to one server: pipelined, reconnecting, with a deadline on every call.
//
//   rpc::Peer peer(loop, address, {.identity = us});
//   peer.call("put", wire::encode(request), 2s, [](base::Result<std::string_view> result) { ... });
//
// What the answer says
//   value            the encoded result map; the view ends with the callback
//   unavailable      it did not happen: not connected, or not a byte of it was handed to the kernel
//   outcome_unknown  it was sent, and the connection broke or the deadline passed
//   any other code   what the server said
//
// Invariants
//   * done is called exactly once, from the loop, never from inside call(); not at all when the Peer is destroyed.
//   * Connects at the first call and stays connected; after a failure waits with jittered backoff (kBackoffMin
//     … kBackoffMax) and fails calls at once meanwhile, so that a caller can turn to another server.
//   * At most inflight_max calls and output_max bytes wait; over that: overloaded.
// Ownership: destroy it before the loop; it may be destroyed in a callback of its own.
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/io/address.h"
#include "lib/rpc/identity.h"

namespace cantle::io {
class Loop;
}

namespace cantle::rpc {

constexpr base::Duration kConnectTimeout = std::chrono::seconds(3);
constexpr base::Duration kBackoffMin = std::chrono::milliseconds(50);
constexpr base::Duration kBackoffMax = std::chrono::seconds(2);

struct PeerOptions {
  Identity identity = {};  // with a cluster or a token: says hello first, and no call is sent before the answer
  base::Duration connect_timeout = kConnectTimeout;
  base::Duration backoff_min = kBackoffMin, backoff_max = kBackoffMax;
  bool stay_connected = false;  // connects without a call, and again after each backoff
  size_t inflight_max = 8192;
  size_t output_max = size_t{64} << 20;
};

class Peer {
 public:
  using Done = std::function<void(base::Result<std::string_view>)>;
  using Notify = std::function<void(std::string_view method, std::string_view params)>;

  Peer(io::Loop& loop, io::Address address, PeerOptions options = {});
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void call(std::string_view method, std::string_view params, base::Duration timeout, Done done);
  // The params end with the bytes of `tail`, which are sent from where they lie.
  using Tail = std::shared_ptr<const std::string>;
  void call(std::string_view method, std::string_view params, Tail tail, base::Duration timeout, Done done);
  // Best effort: connects if need be; dropped if it cannot be sent.
  void notify(std::string_view method, std::string_view params);
  void on_notify(Notify fn);  // from the server
  void on_state(std::function<void(bool connected)> fn);

  void connect();  // without a call; ends a backoff
  // Another address for the next connection; the present one ends, its calls as if it had broken.
  void move_to(io::Address address);
  bool connected() const;
  const io::Address& address() const;
  size_t inflight() const;  // calls not answered yet
  size_t unsent() const;    // bytes waiting in this process

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

// For tools: one call on a loop of its own, waits for the answer.
base::Result<std::string> call_sync(const io::Address& address, std::string_view method, std::string_view params,
                                    base::Duration timeout, PeerOptions options = {});
// The same over a peer that is there, turning its loop.
base::Result<std::string> call_sync(io::Loop& loop, Peer& peer, std::string_view method, std::string_view params,
                                    base::Duration timeout);

}  // namespace cantle::rpc

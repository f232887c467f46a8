// Session: the coordination service, as one process sees it (design/coordination.md).
//
// One small interface over two backends: `zk://h1:p,h2:p,h3:p[/chroot]` (ZooKeeper) and
// `file:///dir` (embedded). Both pass test/conformance.
//
// Use
//   auto session = coord::open(loop, {.url = url, .session_timeout = 4s});   // connects in background
//   session->on_event([](Event e) { ... });
//   session->get("/c/x", watch, [](Result<Node> r) { ... });
//
// Rules for every user
//   * A watch is a hint, fired at most once: sync and read again before any decision (S33).
//   * A change that ends with `outcome_unknown` may have been applied: never treat it as failed (S27).
//   * After Event::expired all ephemerals of the old session are gone; the backend has begun a new
//     session by itself: on Event::connected with a new session_id(), re-create and re-read.
//
// Errors: not_found; exists; not_empty; conflict (version or check mismatch); outcome_unknown (a change
// whose reply was lost); unavailable (a read that could not be done; a change known not to have been
// sent); invalid (path, or over kValueMax / kMultiBytesMax); denied.
//
// Threads: the loop's only. Callbacks come from the loop, never from inside the call itself; each
// exactly once; the destructor drops those still waiting uncalled.
// Ownership: the session does not own the loop and must be destroyed before it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"

namespace cantle::io {
class Loop;
}

namespace cantle::coord {

constexpr size_t kValueMax = 1000000;       // bytes of one znode
constexpr size_t kMultiBytesMax = 1000000;  // bytes of one multi, paths included (jute.maxbuffer less slack)
constexpr size_t kMultiOpsMax = 1000;
constexpr int32_t kAnyVersion = -1;

struct Stat {
  int32_t version = 0;           // +1 at each set
  int32_t cversion = 0;          // +1 at each change of the children
  int64_t czxid = 0, mzxid = 0;  // transaction that created / last changed it; grows over the whole tree
  uint64_t ephemeral_owner = 0;  // session id, 0 for a persistent znode
};
struct Node {
  std::string value;
  Stat stat;
};
struct Children {
  std::vector<std::string> names;  // sorted
  Stat stat;
};

enum class CreateMode : uint8_t { persistent, ephemeral, persistent_sequential, ephemeral_sequential };

// Parts of a multi: all or nothing, in order.
struct OpCreate {
  std::string path, value;
  CreateMode mode = CreateMode::persistent;
};
struct OpSet {
  std::string path, value;
  int32_t version = kAnyVersion;
};
struct OpRemove {
  std::string path;
  int32_t version = kAnyVersion;
};
struct OpCheck {
  std::string path;
  int32_t version = kAnyVersion;  // kAnyVersion: it exists
};
struct Op {
  enum class Kind : uint8_t { create, set, remove, check } kind;
  std::string path, value;
  CreateMode mode = CreateMode::persistent;
  int32_t version = kAnyVersion;

  Op(OpCreate c) : kind(Kind::create), path(std::move(c.path)), value(std::move(c.value)), mode(c.mode) {}
  Op(OpSet s) : kind(Kind::set), path(std::move(s.path)), value(std::move(s.value)), version(s.version) {}
  Op(OpRemove r) : kind(Kind::remove), path(std::move(r.path)), version(r.version) {}
  Op(OpCheck c) : kind(Kind::check), path(std::move(c.path)), version(c.version) {}
};
struct OpResult {
  std::string path;  // create: the path made, with its sequence number
  Stat stat;         // set
};
// A refused multi: error code of the first failing op; `detail` is its index in decimal.

enum class Event : uint8_t { connected, disconnected, expired };

// Called once, on the first change after the read that set it: the znode's value, its creation or
// removal (get, exists), its set of children (children). Also once when the session expires.
using Watch = std::function<void()>;
template <class T>
using Done = std::function<void(base::Result<T>)>;

class Session {
 public:
  virtual ~Session() = default;

  // A null watch sets none. A read that fails sets none either, save exists() of a znode that is not there.
  // Requests of one session take effect in the order they were made.
  virtual void get(std::string path, Watch watch, Done<Node> done) = 0;
  virtual void exists(std::string path, Watch watch, Done<Stat> done) = 0;  // not_found if it does not
  virtual void children(std::string path, Watch watch, Done<Children> done) = 0;
  // The path created (with the sequence number).
  virtual void create(std::string path, std::string value, CreateMode mode, Done<std::string> done) = 0;
  virtual void set(std::string path, std::string value, int32_t version, Done<Stat> done) = 0;
  virtual void remove(std::string path, int32_t version, Done<base::Nothing> done) = 0;
  virtual void multi(std::vector<Op> ops, Done<std::vector<OpResult>> done) = 0;
  // Reads after it see everything committed before it.
  virtual void sync(std::string path, Done<base::Nothing> done) = 0;

  // One handler; it stays. Not called for what happened before it was set: ask connected().
  virtual void on_event(std::function<void(Event)> handler) = 0;
  virtual bool connected() const = 0;
  virtual uint64_t session_id() const = 0;  // 0 before the first connection
  // When the last answered request (or ping) was *sent*: leases run from here, on our own clock,
  // because in a partition nobody tells a session that it expired.
  virtual base::Instant last_confirmed() const = 0;
  virtual base::Duration timeout() const = 0;  // as granted by the service
};

struct Options {
  std::string url;
  base::Duration session_timeout = std::chrono::seconds(4);
  // How long a request may wait for its answer; 0: twice the session timeout. Then a read ends with
  // `unavailable`, a change with `unavailable` or `outcome_unknown`.
  base::Duration operation_timeout{0};
  bool must_exist = false;  // file://: not_found where nobody made one, instead of making it
};
// invalid for a URL that is neither zk:// nor file://, or a directory that cannot be used.
base::Result<std::unique_ptr<Session>> open(io::Loop& loop, const Options& options);

}  // namespace cantle::coord

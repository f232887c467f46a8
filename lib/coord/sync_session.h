// SyncSession: the coordination service for tools, one call after another.
//
//   TRY_ASSIGN(auto coord, SyncSession::open(loop, {.url = url}));   // waits for the connection
//   TRY_ASSIGN(auto node, coord->get("/cantle/format"));
//
// Each call turns the loop until its answer is there; the session's own deadlines bound it. A tool that
// needs the asynchronous interface for a while (a watch, a Registration) uses session().
// Threads: the loop's. Not from inside a callback of the loop. Ownership: does not own the loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/coord/coord.h"

namespace cantle::coord {

class SyncSession {
 public:
  // unavailable: no connection within `patience`.
  static base::Result<std::unique_ptr<SyncSession>> open(io::Loop& loop, const Options& options,
                                                         base::Duration patience = std::chrono::seconds(10));

  base::Result<Node> get(const std::string& path);
  base::Result<Stat> exists(const std::string& path);
  base::Result<std::vector<std::string>> children(const std::string& path);
  base::Result<std::string> create(const std::string& path, const std::string& value,
                                   CreateMode mode = CreateMode::persistent);
  base::Result<Stat> set(const std::string& path, const std::string& value, int32_t version);
  base::Status remove(const std::string& path, int32_t version = kAnyVersion);
  base::Result<std::vector<OpResult>> multi(std::vector<Op> ops);
  base::Status sync(const std::string& path);

  // The same with a definite answer also when a reply is lost: see settle.h. The value must be unique to the attempt,
  // or what is the same to the caller. Plain znodes only.
  base::Result<std::string> settled_create(const std::string& path, const std::string& value);
  base::Result<Stat> settled_set(const std::string& path, const std::string& value, int32_t version);
  base::Status settled_remove(const std::string& path, int32_t version);
  base::Result<std::string> settled_append(const std::string& prefix, const std::string& value);
  // `witness`: an OpSet at a real version or an OpCreate, whose value is unique to the attempt.
  base::Result<std::vector<OpResult>> settled_multi(std::vector<Op> ops, size_t witness);

  // Children of a directory that may not be there: none then.
  base::Result<std::vector<std::string>> children_or_none(const std::string& path);
  // Waits until `done` says so, with the loop turning; false at the deadline.
  bool wait(base::Duration limit, const std::function<bool()>& done);

  Session& session() { return *session_; }
  io::Loop& loop() { return loop_; }

 private:
  SyncSession(io::Loop& loop, std::unique_ptr<Session> session) : loop_(loop), session_(std::move(session)) {}
  template <class T, class Call>
  base::Result<T> call(Call begin);

  io::Loop& loop_;
  std::unique_ptr<Session> session_;
};

}  // namespace cantle::coord

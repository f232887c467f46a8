#include "lib/coord/sync_session.h"

#include <optional>

#include "lib/base/check.h"
#include "lib/coord/settle.h"
#include "lib/coord/zk_link.h"
#include "lib/io/loop.h"

namespace cantle::coord {

using base::Code;
using base::fail;

namespace {
constexpr base::Duration kForever = std::chrono::hours(24);  // every request has a deadline of its own
}

base::Result<std::unique_ptr<SyncSession>> SyncSession::open(io::Loop& loop, const Options& options,
                                                             base::Duration patience) {
  TRY_ASSIGN(auto session, coord::open(loop, options));
  std::unique_ptr<SyncSession> sync(new SyncSession(loop, std::move(session)));
  if (!sync->wait(patience, [&] { return sync->session_->connected(); }))
    return fail(Code::unavailable, "no connection to the coordination service at " + options.url +
                                       (options.url.starts_with("zk://") ? ": " + zk::library_said() : std::string()));
  return sync;
}

bool SyncSession::wait(base::Duration limit, const std::function<bool()>& done) { return loop_.run_for(limit, done); }

template <class T, class Call>
base::Result<T> SyncSession::call(Call begin) {
  // Shared with the callback, which may come after an abandoned wait.
  auto answer = std::make_shared<std::optional<base::Result<T>>>();
  begin([answer](base::Result<T> result) { *answer = std::move(result); });
  CHECK(loop_.run_for(kForever, [&] { return answer->has_value(); }));
  return std::move(**answer);
}

base::Result<Node> SyncSession::get(const std::string& path) {
  return call<Node>([&](auto done) { session_->get(path, nullptr, std::move(done)); });
}

base::Result<Stat> SyncSession::exists(const std::string& path) {
  return call<Stat>([&](auto done) { session_->exists(path, nullptr, std::move(done)); });
}

base::Result<std::vector<std::string>> SyncSession::children(const std::string& path) {
  TRY_ASSIGN(auto list, call<Children>([&](auto done) { session_->children(path, nullptr, std::move(done)); }));
  return std::move(list.names);
}

base::Result<std::vector<std::string>> SyncSession::children_or_none(const std::string& path) {
  auto list = children(path);
  if (!list && list.error().code == Code::not_found) return std::vector<std::string>{};
  return list;
}

base::Result<std::string> SyncSession::create(const std::string& path, const std::string& value, CreateMode mode) {
  return call<std::string>([&](auto done) { session_->create(path, value, mode, std::move(done)); });
}

base::Result<Stat> SyncSession::set(const std::string& path, const std::string& value, int32_t version) {
  return call<Stat>([&](auto done) { session_->set(path, value, version, std::move(done)); });
}

base::Status SyncSession::remove(const std::string& path, int32_t version) {
  return call<base::Nothing>([&](auto done) { session_->remove(path, version, std::move(done)); });
}

base::Result<std::vector<OpResult>> SyncSession::multi(std::vector<Op> ops) {
  return call<std::vector<OpResult>>([&](auto done) { session_->multi(std::move(ops), std::move(done)); });
}

base::Status SyncSession::sync(const std::string& path) {
  return call<base::Nothing>([&](auto done) { session_->sync(path, std::move(done)); });
}

base::Result<std::string> SyncSession::settled_create(const std::string& path, const std::string& value) {
  LoopTimers timers(loop_);
  Settler settle(*session_, timers);
  return call<std::string>([&](auto done) { settle.create(path, value, CreateMode::persistent, std::move(done)); });
}

base::Result<Stat> SyncSession::settled_set(const std::string& path, const std::string& value, int32_t version) {
  LoopTimers timers(loop_);
  Settler settle(*session_, timers);
  return call<Stat>([&](auto done) { settle.set(path, value, version, recognise_value(value), std::move(done)); });
}

base::Status SyncSession::settled_remove(const std::string& path, int32_t version) {
  LoopTimers timers(loop_);
  Settler settle(*session_, timers);
  return call<base::Nothing>([&](auto done) { settle.remove(path, version, std::move(done)); });
}

base::Result<std::string> SyncSession::settled_append(const std::string& prefix, const std::string& value) {
  LoopTimers timers(loop_);
  Settler settle(*session_, timers);
  return call<std::string>([&](auto done) { settle.append(prefix, value, std::move(done)); });
}

base::Result<std::vector<OpResult>> SyncSession::settled_multi(std::vector<Op> ops, size_t witness) {
  LoopTimers timers(loop_);
  Settler settle(*session_, timers);
  auto mine = recognise_value(ops[witness].value);
  return call<std::vector<OpResult>>(
      [&](auto done) { settle.multi(std::move(ops), witness, std::move(mine), std::move(done)); });
}

}  // namespace cantle::coord

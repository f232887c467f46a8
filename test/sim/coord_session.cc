// The client side: one process's session.
#include <algorithm>

#include "test/sim/coord.h"

namespace cantle::sim {

using base::Code;
using coord::Event;

namespace {
constexpr Duration kReconnectMin = 5ms, kReconnectMax = 200ms;

base::Error lost_read() { return {Code::unavailable, "connection to the coordination service lost"}; }
base::Error lost_change() { return {Code::outcome_unknown, "connection to the coordination service lost"}; }
}  // namespace

CoordSession::CoordSession(CoordService& service, Process& process) : service_(service), process_(process) {
  process_.after(delay(), [this, here = here_] {
    if (*here) try_connect();
  });
  process_.after(timeout() / 3, [this, here = here_] {
    if (*here) ping();
  });
}

CoordSession::~CoordSession() {
  *here_ = false;
  if (auto it = service_.sessions_.find(id_); it != service_.sessions_.end()) it->second.client = nullptr;
  const bool closes = process_.alive() || service_.faults_.close_at_death;
  if (id_ != 0 && closes && service_.reachable(process_.host()))
    service_.scheduler_.after(delay(), [service = &service_, id = id_] { service->end_session(id); });
}

Duration CoordSession::delay() {
  return service_.scheduler_.between(service_.faults_.delay_min, service_.faults_.delay_max);
}

void CoordSession::emit(Event event) {
  process_.deliver([this, here = here_, event] {
    if (*here && handler_) handler_(event);
  });
}

void CoordSession::try_connect() {
  if (connected_) return;
  if (service_.reachable(process_.host())) return connect();
  process_.after(service_.scheduler_.between(kReconnectMin, kReconnectMax), [this, here = here_] {
    if (*here) try_connect();
  });
}

void CoordSession::connect() {
  const bool fresh = id_ == 0;
  const bool lost = !fresh && !service_.live(id_);
  if (fresh || lost) {
    if (lost) service_.sessions_[id_].client = nullptr;
    id_ = service_.make_session(this);
  }
  service_.sessions_[id_].heard = service_.scheduler_.now();
  follower_ = service_.scheduler_.random().below(CoordService::kFollowers);
  service_.catch_up(follower_, seen_);
  connected_ = true;
  ++connection_;
  last_arrival_ = last_reply_ = {};
  last_confirmed_ = process_.now();
  service_.scheduler_.note("connected", process_.name(), id_);
  if (lost) {
    emit(Event::expired);
    fire_all();
  } else {
    fire_changed();
  }
  emit(Event::connected);
}

void CoordSession::lose_connection() {
  if (!connected_) return;
  connected_ = false;
  ++connection_;
  service_.scheduler_.note("disconnected", process_.name(), id_);
  auto waiting = std::move(waiting_);
  waiting_.clear();
  for (auto& [number, failed] : waiting)
    process_.post([here = here_, f = std::move(failed)] {
      if (*here) f(base::Error{});
    });
  process_.post([this, here = here_] {
    if (*here && handler_) handler_(Event::disconnected);
  });
  process_.after(service_.scheduler_.between(kReconnectMin, kReconnectMax), [this, here = here_] {
    if (*here) try_connect();
  });
}

void CoordSession::ping() {
  if (connected_) {
    if (service_.reachable(process_.host()) && service_.live(id_)) {
      service_.sessions_[id_].heard = service_.scheduler_.now();
      last_confirmed_ = process_.now();
    } else {
      lose_connection();
    }
  }
  process_.after(timeout() / 3, [this, here = here_] {
    if (*here) ping();
  });
}

void CoordSession::request(std::function<Fn()> at_service, Failed failed) {
  auto& scheduler = service_.scheduler_;
  if (!connected_) {
    process_.post([here = here_, f = std::move(failed)] {
      if (*here) f(lost_read());
    });
    return;
  }
  const uint64_t number = next_request_++;
  waiting_[number] = std::move(failed);
  last_arrival_ = std::max(last_arrival_, scheduler.now() + delay());
  scheduler.at(last_arrival_, [this, here = here_, number, connection = connection_, sent = process_.now(),
                               work = std::move(at_service)] {
    if (!*here || connection != connection_) return;
    if (!service_.reachable(process_.host()) || !service_.live(id_)) return lose_connection();
    service_.sessions_[id_].heard = service_.scheduler_.now();
    reply(number, connection, sent, work());
  });
}

void CoordSession::reply(uint64_t number, uint64_t connection, Instant sent, Fn fn) {
  auto& scheduler = service_.scheduler_;
  last_reply_ = std::max(last_reply_, scheduler.now() + delay());
  scheduler.at(last_reply_, [this, here = here_, number, connection, sent, f = std::move(fn)] {
    if (!*here || connection != connection_) return;
    if (!service_.reachable(process_.host())) return lose_connection();
    waiting_.erase(number);
    last_confirmed_ = std::max(last_confirmed_, sent);
    process_.deliver([here, f] {
      if (*here) f();
    });
  });
}

template <class T>
void CoordSession::read(std::string path, coord::Watch watch, WatchKind kind, coord::Done<T> done,
                        std::function<T(const Tree&, const std::string&, const Znode&)> value) {
  if (!process_.alive()) return;
  const bool lose = service_.faults_.lose_read > 0 && service_.scheduler_.random().chance(service_.faults_.lose_read);
  auto shared_done = std::make_shared<coord::Done<T>>(std::move(done));
  request(
      [this, path = std::move(path), watch = std::move(watch), kind, shared_done, value = std::move(value),
       lose]() -> Fn {
        if (lose) {
          service_.scheduler_.after(0ns, [this, here = here_] {
            if (*here) lose_connection();
          });
        }
        const auto& follower = service_.followers_[follower_];
        seen_ = std::max(seen_, follower.zxid);
        const auto it = follower.tree.find(path);
        const ZnodePtr node = it == follower.tree.end() ? nullptr : it->second;
        // A read that fails sets no watch, save exists() of a znode that is not there.
        if (watch && (node || std::is_same_v<T, coord::Stat>)) watches_[{kind, path}].push_back({watch, node});
        if (!node) return [shared_done, path] { (*shared_done)(base::fail(Code::not_found, path)); };
        return [shared_done, v = value(follower.tree, path, *node)] { (*shared_done)(v); };
      },
      [shared_done](const base::Error&) { (*shared_done)(base::fail(lost_read())); });
}

void CoordSession::get(std::string path, coord::Watch watch, coord::Done<coord::Node> done) {
  read<coord::Node>(std::move(path), std::move(watch), WatchKind::data, std::move(done),
                    [](const Tree&, const std::string&, const Znode& n) {
                      return coord::Node{n.value, n.stat};
                    });
}

void CoordSession::exists(std::string path, coord::Watch watch, coord::Done<coord::Stat> done) {
  read<coord::Stat>(std::move(path), std::move(watch), WatchKind::data, std::move(done),
                    [](const Tree&, const std::string&, const Znode& n) { return n.stat; });
}

void CoordSession::children(std::string path, coord::Watch watch, coord::Done<coord::Children> done) {
  read<coord::Children>(std::move(path), std::move(watch), WatchKind::children, std::move(done),
                        [](const Tree& tree, const std::string& p, const Znode& n) {
                          return coord::Children{children_of(tree, p), n.stat};
                        });
}

void CoordSession::change(std::vector<coord::Op> ops, ChangeDone done) {
  if (!process_.effect()) return;
  auto& scheduler = service_.scheduler_;
  auto& random = scheduler.random();
  const auto& faults = service_.faults_;
  const auto hit = [&](double p) { return p > 0 && connected_ && random.chance(p); };
  const auto break_now = [this, here = here_] {
    if (*here) lose_connection();
  };
  // Refused before it was sent (unavailable), or lost on the way there or back.
  const Failed failed = [done](const base::Error& why) {
    done(base::fail(why.code == Code::unavailable ? why : lost_change()));
  };
  const bool late = hit(faults.late_change);
  if (late || hit(faults.lose_request)) {
    waiting_[next_request_++] = failed;
    scheduler.after(delay(), break_now);
    // Late: nobody hears of it for now, and yet it will be done: the change that a fence is for.
    if (late)
      scheduler.after(scheduler.between(1ms, faults.late_max), [service = &service_, id = id_, ops = std::move(ops)] {
        if (service->live(id)) (void)service->change(ops, id);
      });
    return;
  }
  const bool lose_reply = hit(faults.lose_reply);
  request(
      [this, ops = std::move(ops), done, lose_reply, break_now]() -> Fn {
        auto result = service_.change(ops, id_);
        service_.catch_up(follower_, service_.zxid_);
        seen_ = std::max(seen_, service_.zxid_);
        if (lose_reply) break_now();
        return [done, r = std::move(result)] { done(r); };
      },
      failed);
}

void CoordSession::create(std::string path, std::string value, coord::CreateMode mode, coord::Done<std::string> done) {
  std::vector<coord::Op> ops;
  ops.emplace_back(coord::OpCreate{std::move(path), std::move(value), mode});
  change(std::move(ops), [done = std::move(done)](auto r) {
    if (!r) return done(base::fail(std::move(r).error()));
    done(r->at(0).path);
  });
}

void CoordSession::set(std::string path, std::string value, int32_t version, coord::Done<coord::Stat> done) {
  std::vector<coord::Op> ops;
  ops.emplace_back(coord::OpSet{std::move(path), std::move(value), version});
  change(std::move(ops), [done = std::move(done)](auto r) {
    if (!r) return done(base::fail(std::move(r).error()));
    done(r->at(0).stat);
  });
}

void CoordSession::remove(std::string path, int32_t version, coord::Done<base::Nothing> done) {
  std::vector<coord::Op> ops;
  ops.emplace_back(coord::OpRemove{std::move(path), version});
  change(std::move(ops), [done = std::move(done)](auto r) {
    if (!r) return done(base::fail(std::move(r).error()));
    done(base::Nothing{});
  });
}

void CoordSession::multi(std::vector<coord::Op> ops, coord::Done<std::vector<coord::OpResult>> done) {
  if (ops.size() > coord::kMultiOpsMax) {
    process_.post([here = here_, done = std::move(done)] {
      if (*here) done(base::fail(Code::invalid, "too many operations in one multi"));
    });
    return;
  }
  change(std::move(ops), std::move(done));
}

void CoordSession::sync(std::string, coord::Done<base::Nothing> done) {
  if (!process_.alive()) return;
  request(
      [this, done]() -> Fn {
        service_.catch_up(follower_, service_.zxid_);
        seen_ = std::max(seen_, service_.zxid_);
        return [done] { done(base::Nothing{}); };
      },
      [done](const base::Error&) { done(base::fail(lost_read())); });
}

bool CoordSession::changed(WatchKind kind, const ZnodePtr& then, const ZnodePtr& now) {
  if (!then || !now) return then != now;
  if (then->stat.czxid != now->stat.czxid) return true;
  return kind == WatchKind::data ? then->stat.version != now->stat.version : then->stat.cversion != now->stat.cversion;
}

void CoordSession::applied(const TreeTxn& txn) {
  if (!connected_ || watches_.empty()) return;
  for (const auto& change : txn.changes) {
    if (!change.touched) fire({WatchKind::data, change.path});
    if (change.touched || !change.now) fire({WatchKind::children, change.path});
  }
}

void CoordSession::fire(const WatchKey& key) {
  auto it = watches_.find(key);
  if (it == watches_.end()) return;
  auto entries = std::move(it->second);
  watches_.erase(it);
  auto& scheduler = service_.scheduler_;
  const auto& faults = service_.faults_;
  for (auto& entry : entries) {
    if (faults.lose_watch > 0 && scheduler.random().chance(faults.lose_watch)) continue;
    Instant when = last_reply_ = std::max(last_reply_, scheduler.now() + delay());
    if (faults.delay_watch > 0 && scheduler.random().chance(faults.delay_watch))
      when = when + scheduler.between(0ns, faults.late_max);
    scheduler.at(when, [this, here = here_, fn = std::move(entry.fn)] {
      if (!*here) return;
      process_.deliver([here, fn] {
        if (*here) fn();
      });
    });
  }
}

void CoordSession::fire_changed() {
  const auto& tree = service_.followers_[follower_].tree;
  std::vector<WatchKey> keys;
  for (auto& [key, entries] : watches_) {
    const auto it = tree.find(key.second);
    const ZnodePtr now = it == tree.end() ? nullptr : it->second;
    for (auto& entry : entries)
      if (changed(key.first, entry.seen, now)) {
        keys.push_back(key);
        break;
      }
  }
  for (const auto& key : keys) fire(key);
}

void CoordSession::fire_all() {
  std::vector<WatchKey> keys;
  for (auto& [key, entries] : watches_) keys.push_back(key);
  for (const auto& key : keys) fire(key);
}

}  // namespace cantle::sim

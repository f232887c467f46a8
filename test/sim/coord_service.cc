// The service side: the leader, its followers, sessions and the service's own faults.
#include <algorithm>

#include "lib/base/check.h"
#include "test/sim/coord.h"

namespace cantle::sim {

CoordService::CoordService(Scheduler& scheduler) : scheduler_(scheduler) {
  leader_["/"] = std::make_shared<const Znode>();
  for (auto& follower : followers_) follower.tree = leader_, follower.zxid = zxid_;
}

CoordService::~CoordService() = default;

const std::string* CoordService::value(const std::string& path) const {
  const auto it = leader_.find(path);
  return it == leader_.end() ? nullptr : &it->second->value;
}

void CoordService::set_now(const std::string& path, std::string value) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (!leader_.contains(parent)) CHECK(change({coord::OpCreate{parent, ""}}, 0).has_value());
  }
  if (leader_.contains(path))
    CHECK(change({coord::OpSet{path, std::move(value)}}, 0).has_value());
  else
    CHECK(change({coord::OpCreate{path, std::move(value)}}, 0).has_value());
}

void CoordService::change_now(const std::vector<coord::Op>& ops) { CHECK(change(ops, 0).has_value()); }

void CoordService::put(const std::string& path, std::string value) {
  set_now(path, std::move(value));
  for (size_t i = 0; i < kFollowers; ++i) catch_up(i, zxid_);
}

std::unique_ptr<coord::Session> CoordService::open(Process& process) {
  return std::make_unique<CoordSession>(*this, process);
}

bool CoordService::reachable(const std::string& host) const {
  return scheduler_.now() >= outage_until_ && !cut_.contains(host) && !cut_.contains("*");
}

bool CoordService::live(uint64_t id) const {
  const auto it = sessions_.find(id);
  return it != sessions_.end() && it->second.live;
}

uint64_t CoordService::make_session(CoordSession* client) {
  const uint64_t id = next_session_++;
  sessions_[id] = {client->process_.host(), true, client, scheduler_.now()};
  scheduler_.after(faults_.session_timeout, [this, id] { check_session(id); });
  return id;
}

void CoordService::check_session(uint64_t id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end() || !it->second.live) return;
  // A service that was away gives everybody a full timeout to come back.
  const Instant heard = std::max(it->second.heard, outage_until_);
  if (scheduler_.now() - heard >= faults_.session_timeout) return end_session(id);
  scheduler_.at(heard + faults_.session_timeout, [this, id] { check_session(id); });
}

void CoordService::end_session(uint64_t id) {
  auto it = sessions_.find(id);
  if (it == sessions_.end() || !it->second.live) return;
  it->second.live = false;
  scheduler_.note("session_end", it->second.host, id);
  std::vector<coord::Op> removes;
  for (auto& [path, node] : leader_)
    if (node->stat.ephemeral_owner == id) removes.emplace_back(coord::OpRemove{path});
  if (!removes.empty()) CHECK(change(removes, 0).has_value());
}

base::Result<std::vector<coord::OpResult>> CoordService::change(const std::vector<coord::Op>& ops, uint64_t session) {
  TreeTxn txn;
  auto result = perform(leader_, ops, session, zxid_ + 1, &txn);
  scheduler_.note("change", session, ops.empty() ? "" : ops[0].path, ops.size(),
                  result ? 0 : static_cast<int>(result.error().code));
  if (result) commit(std::move(txn));
  return result;
}

void CoordService::commit(TreeTxn txn) {
  zxid_ = txn.zxid;
  for (size_t i = 0; i < kFollowers; ++i) {
    auto& follower = followers_[i];
    Duration lag = scheduler_.between(faults_.lag_min, faults_.lag_max);
    if (faults_.lag_spike > 0 && scheduler_.random().chance(faults_.lag_spike))
      lag = scheduler_.between(lag, faults_.late_max);
    follower.last_ready = std::max(follower.last_ready, scheduler_.now() + lag);
    follower.log.push_back(txn);
    scheduler_.at(follower.last_ready, [this, i, zxid = txn.zxid] { catch_up(i, zxid); });
  }
  if (on_commit_) on_commit_(txn);
}

void CoordService::catch_up(size_t index, int64_t zxid) {
  auto& follower = followers_[index];
  while (!follower.log.empty() && follower.log.front().zxid <= zxid) {
    const TreeTxn txn = std::move(follower.log.front());
    follower.log.pop_front();
    apply_txn(follower.tree, txn);
    follower.zxid = txn.zxid;
    for (auto& [id, session] : sessions_)
      if (session.live && session.client && session.client->follower_ == index) session.client->applied(txn);
  }
}

void CoordService::outage(Duration d) {
  outage_until_ = std::max(outage_until_, scheduler_.now() + d);
  scheduler_.note("coord_outage", d.count());
  for (auto& [id, session] : sessions_)
    if (session.client)
      scheduler_.after(0ns, [c = session.client, here = session.client->here_] {
        if (*here) c->lose_connection();
      });
}

void CoordService::cut(const std::string& host) {
  scheduler_.note("coord_cut", host);
  cut_.insert(host);
}

void CoordService::heal() {
  cut_.clear();
  outage_until_ = std::min(outage_until_, scheduler_.now());
}

void CoordService::expire(const std::string& host) {
  std::vector<uint64_t> theirs;
  for (auto& [id, session] : sessions_)
    if (session.live && session.host == host) theirs.push_back(id);
  for (const uint64_t id : theirs) {
    end_session(id);
    auto& session = sessions_[id];
    if (session.client)
      scheduler_.after(1ms, [c = session.client, here = session.client->here_] {
        if (*here) c->lose_connection();
      });
  }
}

int CoordService::remember() {
  remembered_.push_back(leader_);
  return static_cast<int>(remembered_.size()) - 1;
}

void CoordService::restore(int remembered) {
  scheduler_.note("coord_restore", remembered);
  leader_ = remembered_.at(static_cast<size_t>(remembered));
  ++zxid_;
  for (auto& follower : followers_) {
    follower.tree = leader_;
    follower.zxid = zxid_;
    follower.log.clear();
  }
  // Whoever was connected begins anew; ephemerals of the past go with their sessions.
  for (auto& [id, session] : sessions_) {
    session.live = true;
    end_session(id);
    if (session.client) session.client->seen_ = 0;
  }
  outage(100ms);
}

}  // namespace cantle::sim

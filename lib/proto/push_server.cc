#include "lib/proto/push_server.h"

#include "lib/proto/push_impl.h"

namespace cantle::proto {

using namespace push;

PushServer::PushServer(Self self) : impl_(std::make_unique<Impl>(std::move(self))) {}
PushServer::~PushServer() = default;

Effects PushServer::step(const Now& now, const Input& input) {
  Effects out;
  step(now, input, &out);
  return out;
}

void PushServer::step(const Now& now, const Input& input, Effects* out) {
  impl_->now = now;
  impl_->out = out;
  impl_->clocks.tick(now.at, now.wall);
  std::visit([&](const auto& in) { impl_->on(in); }, input);
  impl_->out = nullptr;
}

PushServer::Impl::Impl(Self s) : self(std::move(s)), hlc(self.number, self.incarnation, self.newest) {
  for (const auto& held : self.held) {
    Copy& c = add(held);
    if (held.aside) c.role = Role::old;  // it was positively told so before
    c.track.begin(held.end);
    if (!held.whole && !held.aside) c.heal = self.incarnation.value;
  }
}

// --- tables and copies -------------------------------------------------------------------------------------

Table* PushServer::Impl::table(std::string_view name) const {
  auto it = by_name.find(name);
  return it == by_name.end() ? nullptr : it->second;
}
Table* PushServer::Impl::table(const TableUuid& uuid) const {
  auto it = tables.find(uuid);
  return it == tables.end() ? nullptr : it->second.get();
}
Copy* PushServer::Impl::live(const PartitionId& partition) const {
  auto it = live_by_partition.find(partition);
  return it == live_by_partition.end() ? nullptr : copy(it->second);
}
Copy* PushServer::Impl::copy(const AssignmentId& own) const {
  auto it = copies.find(own);
  return it == copies.end() ? nullptr : it->second.get();
}
Copy& PushServer::Impl::add(Held held) {
  auto c = std::make_unique<Copy>();
  c->held = std::move(held);
  Copy& ref = *c;
  if (!ref.held.aside) live_by_partition[ref.held.partition] = ref.held.assignment;
  copies[ref.held.assignment] = std::move(c);
  return ref;
}
void PushServer::Impl::remove(const AssignmentId& own) {
  auto it = copies.find(own);
  if (it == copies.end()) return;
  auto l = live_by_partition.find(it->second->held.partition);
  if (l != live_by_partition.end() && l->second == own) live_by_partition.erase(l);
  for (auto& [uuid, t] : tables) std::erase_if(t->serves, [&](const auto& s) { return s.copy == it->second.get(); });
  copies.erase(it);
}

void PushServer::Impl::fetch(Table& t, TxnSeq at_least) {
  if (at_least <= t.fetch_at_least && now.at < t.fetch_next) return;
  t.fetch_at_least = at_least;
  t.fetch_next = now.at + kAskEvery;
  emit(FetchMap{t.name, at_least});
}

std::shared_ptr<const Plan> PushServer::Impl::plan_for(const Table& t, const model::Partition& p, Copy& c, Side side) {
  auto& plan = c.plans[static_cast<size_t>(side)];
  if (!plan) plan = make_plan(*t.map, self.server, {{&p, side}});
  return plan;
}

// --- who is there --------------------------------------------------------------------------------------------

void PushServer::Impl::on(const LiveRead& in) {
  live_known = true;
  live_servers.clear();
  for (const auto& [server, incarnation] : in.live) {
    live_servers.insert(server);
    hear(server, incarnation);
  }
  for (auto& [uuid, t] : tables)
    if (t->map && !t->map->dropped) look_after(*t);
}

void PushServer::Impl::on(const LinkChanged& in) {
  links[in.server].up = in.up;
  if (!in.up) return;
  for (auto& [id, b] : batches)
    if (b.closed && !b.waiting.empty())
      if (Table* t = table(b.table)) send_missing(*t, b);
}

// A link that works is believed before the coordination service, which may be away (S35).
bool PushServer::Impl::within_reach(const ServerId& server) const {
  if (auto it = links.find(server); it != links.end() && it->second.up) return *it->second.up;
  return !live_known || live_servers.contains(server);
}

uint64_t PushServer::Impl::within_reach(const Plan& plan) const {
  uint64_t mask = plan.own;
  for (size_t i = 0; i < plan.targets.size(); i++)
    if (within_reach(plan.targets[i].server)) mask |= uint64_t{1} << i;
  return mask;
}

std::string PushServer::Impl::read_only() const {
  if (!store.read_only.empty()) return store.read_only;
  if (draining) return "draining";
  bool peers = false;
  for (const auto& server : partners) peers = peers || within_reach(server);
  if (!peers) return {};
  if (clocks.distrusted(now.at, true)) {
    const auto off = clocks.median(now.at);
    return off ? "the clock is " + std::to_string(-*off) + " ms off its peers' median"
               : "the clock jumped and no peer was heard since";
  }
  if (const auto ahead = hlc.ahead_ms(now.wall); ahead > kSkewMaxMs)
    return "the newest version here is " + std::to_string(ahead) + " ms ahead of the clock";
  return {};
}

// --- time ------------------------------------------------------------------------------------------------------

void PushServer::Impl::on(const Tick&) {
  for (auto& [uuid, t] : tables) {
    if (!t->map) continue;
    if (t->arrange_at && now.at >= *t->arrange_at) {
      t->arrange_at.reset();
      if (t->map->dropped)
        drop_table(*t);
      else if (!arrange(*t, false))
        return;
    }
    if (t->map->dropped) continue;
    look_after(*t);
  }
  tick_batches();
  send_beacons();
  publish_marks();
  const bool refused = !read_only().empty();
  if (refused != std::exchange(was_read_only, refused))
    say(refused ? base::Level::error : base::Level::notice, refused ? "read-only" : "writable",
        refused ? read_only() : "takes writes again");
}

void PushServer::Impl::send_beacons() {
  for (const auto& server : partners) {
    Link& link = links[server];
    if (now.at - link.said < kBeaconEvery || !within_reach(server)) continue;
    link.said = now.at;
    emit(SendBeacon{server});
  }
}

}  // namespace cantle::proto

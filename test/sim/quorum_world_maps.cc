// QuorumWorld: METADATA, who hears of it, and who drives what it says is under way.
#include "lib/base/check.h"
#include "lib/coord/governments.h"
#include "lib/coord/ring.h"
#include "lib/meta/config_ops.h"
#include "lib/proto/quorum_recovery.h"
#include "test/sim/quorum_node.h"
#include "test/sim/quorum_world.h"

namespace cantle::sim {

using base::Code;
namespace driver = proto::driver;

namespace {
constexpr Duration kToldWithin = 300ms, kToldSoon = 20ms, kToldLate = 1500ms, kDriveEvery = 150ms;
constexpr size_t kLeavesMax = 5;
}  // namespace

base::Status QuorumWorld::commit(size_t p, const model::Operation& operation) {
  const std::vector<model::Operation> list{operation};
  const auto* before = maps_[p].get();
  auto next = model::apply(
      before, list,
      {model::TxnId::draw(random_), model::ChangeId::draw(random_), before == nullptr ? "" : std::string(32, 'h')});
  if (!next) return base::fail(next.error());
  if (before != nullptr) TRY(check_governments(p, operation));
  const auto was = maps_[p] == nullptr ? model::Metadata{} : *maps_[p];
  maps_[p] = std::make_shared<const model::Metadata>(std::move(*next));
  scheduler.note("metadata", p, maps_[p]->txnseq.value, model::to_string(operation));
  for (const auto& e : maps_[p]->ended)
    if (find_ended(past_[p], e.id) == nullptr) past_[p].ended.push_back(e);
  make_governments(p, was);
  note_merge(p, was, operation);
  for (auto& host : hosts) tell(*host, p);
  return base::ok();
}

// What a metadata server's multi checks and makes (lib/meta/config_ops.h), at one instant of the world.
base::Status QuorumWorld::check_governments(size_t p, const model::Operation& operation) const {
  const std::vector<model::Operation> list{operation};
  for (const auto& check : meta::government_checks(layout, distribution(p), *maps_[p], list)) {
    const auto node = coord.tree().find(check.path);
    if (node == coord.tree().end() || node->second->stat.version != check.version)
      return base::fail(Code::conflict, "the government has changed");
  }
  return base::ok();
}

void QuorumWorld::make_governments(size_t p, const model::Metadata& before) {
  for (const auto& at : maps_[p]->partitions) {
    if (before.partitions.get(at.region) != nullptr) continue;
    const auto first = meta::first_government(*maps_[p], at.region, "m1");
    coord.set_now(layout.government(distribution(p), at.region), coord::government_text(*first));
    coord.set_now(layout.quorums(distribution(p), at.region), "");
  }
}

void QuorumWorld::note_merge(size_t p, const model::Metadata& before, const model::Operation& operation) {
  const auto* op = std::get_if<model::ops::FinalizeMerge>(&operation);
  if (op == nullptr) return;
  ledger.merged(p,
                {op->cuts->low.at, op->cuts->high.at, before.find(op->low)->interval, before.find(op->high)->interval});
}

model::AttemptId QuorumWorld::replace(size_t p, const model::PartitionId& which, const model::ServerId& from,
                                      const model::ServerId& to, bool dead) {
  const auto& at = *maps_[p]->find(which);
  const auto op = model::draw_replace(at, *find_assignment(at, from), to, dead, random_);
  return commit(p, op) ? op.attempt : model::AttemptId{};
}

// As a metadata server does (lib/meta/chores.cc).
void QuorumWorld::sweep_ended(size_t p) {
  const auto map = maps_[p];
  for (const auto& e : map->ended) {
    const bool all = std::all_of(e.parent_assignments.begin(), e.parent_assignments.end(), [&](const auto& a) {
      const auto it = observed_.find({map->table, a.server});
      return it != observed_.end() && it->second >= e.at;
    });
    if (all && !model::being_filled(*map, e.interval)) (void)commit(p, model::ops::SweepEnded{e.id, e.attempt});
  }
}

void QuorumWorld::observed(const QuorumHost& host, const std::string& table, model::TxnSeq txnseq) {
  for (const auto& map : maps_) {
    if (map->name != table) continue;
    auto& at = observed_[{map->table, host.id}];
    at = std::max(at, txnseq);
  }
}

std::optional<model::Government> QuorumWorld::government(size_t p, const model::Region& region) const {
  const auto* text = coord.value(layout.government(distribution(p), region));
  const auto found = coord::parse_government(text == nullptr ? "" : *text);
  return found ? std::optional(*found) : std::nullopt;
}

bool QuorumWorld::recover(size_t p, const model::PartitionId& which) {
  const auto* at = maps_[p]->find(which);
  const auto now = at == nullptr ? std::nullopt : government(p, at->region);
  if (!now) return false;
  auto view = proto::view_of(*maps_[p], *at);
  view.cluster = cluster;
  view.government = *now;
  const auto path = layout.government(distribution(p), at->region);
  view.version = coord.tree().find(path)->second->stat.version;
  const model::CopyReport* best = nullptr;
  for (const auto& host : hosts)
    if (const auto copy = host->process.alive() && host->node ? host->node->report(which) : std::nullopt)
      view.copies.push_back(*copy);
  for (const auto& copy : view.copies) {
    const auto* voter = model::find_voter(now->voters, copy.assignment);
    if (voter != nullptr && copy.whole && model::find_voter(view.assigned, copy.assignment) != nullptr &&
        (best == nullptr || model::token_of(copy.end) > model::token_of(best->end)))
      best = &copy;
  }
  if (best == nullptr) return false;
  for (auto& copy : view.copies)
    if (&copy != best) copy.state = "offline";
  const auto plan = proto::plan_recovery(view, {best->server}, model::AttemptId::draw(random_));
  if (!plan || plan->loss.kind != model::LossKind::none) return false;
  for (const auto& host : hosts)
    if (host->id != best->server) kill(*host);
  coord.change_now({coord::OpSet{path, coord::government_text(proto::government_of(*plan))},
                    coord::OpCreate{layout.ring_prefix(distribution(p)), coord::ring_line(at->region),
                                    coord::CreateMode::persistent_sequential}});
  recovered_.insert(which);
  scheduler.note("recovered", p, to_string(which), best->server.name, plan->epoch.value);
  return true;
}

model::Voters QuorumWorld::voters(size_t p) const {
  model::Voters all;
  for (const auto* a : model::should_vote(partition(p))) all.push_back({a->slot, a->server, a->id});
  return all;
}

void QuorumWorld::plan_move() {
  scheduler.after(50ms + some(600ms), [this] {
    if (!striking_) return;
    move();
    plan_move();
  });
}

// Somewhere a replacement is begun, or the one that is under way cancelled, now and then.
void QuorumWorld::move() {
  const size_t p = random_.below(maps_.size());
  if (random_.chance(0.1)) (void)commit(p, model::ops::SetOption{"pipeline", random_.chance(0.5) ? "star" : "chain"});
  const auto& all = maps_[p]->partitions;
  const auto& at = all.size() == 1 ? all.front() : all[random_.below(all.size())];
  if (being_reshaped(at)) return;
  if (!at.moves.empty()) {
    if (random_.chance(0.15)) cancel(at.moves.front().attempt);
    return;
  }
  const auto* led = leader(at.id);
  const auto& from = at.assignments[random_.below(at.assignments.size())].server;
  const auto& to = hosts[random_.below(hosts.size())]->id;
  if (find_assignment(at, to) != nullptr) return;
  const bool leads = led != nullptr && random_.chance(0.3) && find_assignment(at, led->id) != nullptr;
  (void)commit(p,
               model::draw_replace(at, *find_assignment(at, leads ? led->id : from), to, random_.chance(0.3), random_));
}

// Whoever is left has all that was acknowledged, if nothing else is lost before another is in its place.
void QuorumWorld::lose() {
  lost_ = hosts[random_.below(hosts.size())].get();
  wipe(*lost_);
  scheduler.note("lost", lost_->id.name);
  replace_lost();
}

// As an operator does: "routegen node replace", for as long as something names it.
void QuorumWorld::replace_lost() {
  bool named = false;
  for (size_t p = 0; p < maps_.size(); ++p) named = replace_lost_in(p) || named;
  if (!named) return start(*std::exchange(lost_, nullptr));
  scheduler.after(100ms + some(300ms), [this] { replace_lost(); });
}

bool QuorumWorld::replace_lost_in(size_t p) {
  const auto map = maps_[p];
  const auto is_lost = [&](const model::Assignment& a) { return a.server == lost_->id; };
  const auto any_lost = [&](const std::vector<model::Assignment>& all) {
    return std::any_of(all.begin(), all.end(), is_lost);
  };
  bool named = false;
  for (const auto& at : map->partitions) {
    const auto* a = find_assignment(at, lost_->id);
    const bool to_come = at.split && (any_lost(at.split->low.assignments) || any_lost(at.split->high.assignments));
    if (a == nullptr && !to_come) continue;
    named = true;
    for (const auto& move : at.moves)
      if (a != nullptr && move.to == a->id) cancel(move.attempt);
    if (const auto* move = a == nullptr ? nullptr : model::cancelled_move(at, a->id))
      (void)commit(p, model::draw_replace(at, *move, random_));
    if (a == nullptr || !at.moves.empty() || being_reshaped(at)) continue;
    const auto& to = *hosts[random_.below(hosts.size())];
    if (&to != lost_ && find_assignment(at, to.id) == nullptr)
      (void)commit(p, model::draw_replace(at, *a, to.id, true, random_));
  }
  return named;
}

// At the worst of times: with the one that loses its vote on its side, and everybody else on the other; and whether the
// swap was made it may never hear.
void QuorumWorld::swapping(const QuorumHost& host, size_t p, const model::Region& region, const model::Government& to) {
  if (on_swap) on_swap(host, to);
  if (!striking_ || !chaos_.moves || !random_.chance(0.3)) return;
  const auto now = government(p, region);
  if (!now || now->voters == to.voters) return;
  const auto stays = [&](const QuorumHost& other) {
    const auto votes = [&](const model::Voters& voters) {
      return std::any_of(voters.begin(), voters.end(), [&](const model::Voter& v) { return v.server == other.id; });
    };
    return &other == &host || (votes(now->voters) && !votes(to.voters));
  };
  for (const auto& one : hosts)
    for (const auto& other : hosts)
      if (stays(*one) && !stays(*other)) network.cut_both(one->id.name, other->id.name);
  const auto name = host.id.name;
  if (random_.chance(0.7)) scheduler.after(some(3ms), [this, name] { coord.cut(name); });
  if (random_.chance(0.6))
    scheduler.after(some(1500ms), [this, at = find_host(name), life = host.process.life()] {
      if (striking_ && at->process.life() == life) kill(*at);
    });
  scheduler.after(500ms + some(2s), [this, at = find_host(name)] {
    network.heal(), coord.heal();
    if (striking_) start(*at);
  });
}

QuorumHost* QuorumWorld::find_host(const std::string& name) {
  for (auto& host : hosts)
    if (host->id.name == name) return host.get();
  return nullptr;
}

// The map as it is now, some time later: another may have come by then.
void QuorumWorld::tell(QuorumHost& host, size_t p) {
  const auto late = chaos_.splits && random_.chance(0.3) ? kToldLate : kToldWithin;
  const bool very = chaos_.late_maps && random_.chance(0.4);
  const auto wait = some(very ? kToldLate : random_.chance(0.2) ? late : kToldSoon);
  scheduler.after(wait, [this, &host, p, map = maps_[p], life = host.process.life()] {
    if (!host.hears_maps || !host.process.alive() || host.process.life() != life) return;
    if (host.node) host.node->map_came(p, map);
  });
}

// --- the driver --------------------------------------------------------------------------------------

void QuorumWorld::plan_drive() {
  driven_ = true;
  scheduler.after(some(kDriveEvery), [this] {
    drive(random_.below(maps_.size()));
    plan_drive();
  });
}

// Each is one that knows nothing of what another has done (S40).
void QuorumWorld::drive(size_t p) {
  if (drivers_held_) return;
  if (random_.chance(0.2)) sweep_ended(p);
  const auto map = maps_[p];
  for (const auto& [attempt, kind] : proto::operations_of(*map))
    drive_one(p, attempt, DriverPtr(proto::make_driver(kind, attempt)));
}

void QuorumWorld::drive_one(size_t p, const model::AttemptId& attempt, const DriverPtr& it) {
  if (cancelled_.contains(attempt))
    drive_on(p, attempt, it, it->step(driver::AbortAsked{scheduler.now(), "cancelled"}));
  drive_on(p, attempt, it, it->step(driver::Begin{scheduler.now()}));
}

void QuorumWorld::drive_on(size_t p, const model::AttemptId& attempt, const DriverPtr& it,
                           const driver::Effects& effects) {
  for (const auto& effect : effects) {
    if (const auto* l = std::get_if<driver::Look>(&effect)) look(p, attempt, it, l->number);
    if (const auto* s = std::get_if<driver::Submit>(&effect))
      scheduler.after(some(kToldSoon), [this, p, operation = s->operation] { (void)commit(p, operation); });
  }
}

// What it decides from is read in some order; METADATA first.
void QuorumWorld::look(size_t p, const model::AttemptId& attempt, const DriverPtr& it, uint64_t number) {
  const auto about = proto::governed_by(*maps_[p], attempt);
  if (about.empty()) return;
  const auto path = layout.government(distribution(p), about.front().second);
  operator_session_->sync(path, [this, p, attempt, it, number, about](const base::Status& synced) {
    if (!synced) return;
    proto::World seen{maps_[p], {}, {}};
    coord::read_governments(*operator_session_, layout, distribution(p), about,
                            [this, p, attempt, it, number, about, seen](auto read) mutable {
                              if (!read || read->size() < about.size()) return;
                              for (auto& [id, r] : *read) seen.governments[id] = {r.government, r.version};
                              drive_on(p, attempt, it, it->step(driver::Looked{scheduler.now(), number, seen}));
                            });
  });
}

// --- splits ------------------------------------------------------------------------------------------

void QuorumWorld::plan_split() {
  scheduler.after(50ms + some(900ms), [this] {
    if (!striking_) return;
    split_somewhere();
    plan_split();
  });
}

// Somewhere a split is begun, or the one that is under way aborted, now and then.
void QuorumWorld::split_somewhere() {
  const size_t p = random_.below(maps_.size());
  const auto map = maps_[p];
  const auto& at = map->partitions[random_.below(map->partitions.size())];
  if (being_reshaped(at)) {
    if (at.split && random_.chance(0.3)) cancel(at.split->attempt);
    return;
  }
  std::vector<std::string> points{"n0", "n1", "s", "v"};
  for (size_t i = 0; i < chaos_.keys; ++i) points.push_back("k" + std::to_string(i));
  std::erase_if(points, [&](const auto& key) { return !at.interval.contains(key) || key == at.interval.begin; });
  if (points.empty() || map->partitions.size() >= kLeavesMax) return;
  split(p, at.id, points[random_.below(points.size())]);
}

void QuorumWorld::split(size_t p, const model::PartitionId& which, const std::string& point) {
  if (const auto* at = maps_[p]->find(which)) (void)commit(p, model::draw_split(*at, point, {}, {}, random_));
  if (!driven_) plan_drive();
}

// --- merges ------------------------------------------------------------------------------------------

void QuorumWorld::plan_merge() {
  scheduler.after(50ms + some(600ms), [this] {
    if (!striking_) return;
    merge_somewhere();
    plan_merge();
  });
}

// Somewhere two are begun to be merged, or that is aborted, now and then.
void QuorumWorld::merge_somewhere() {
  const size_t p = random_.below(maps_.size());
  const auto map = maps_[p];
  const auto& low = map->partitions[random_.below(map->partitions.size())];
  if (low.merge) {
    if (random_.chance(0.3)) cancel(low.merge->attempt);
    return;
  }
  if (!low.interval.end.empty()) merge(p, low.id, map->find(low.interval.end)->id);
}

void QuorumWorld::merge(size_t p, const model::PartitionId& low, const model::PartitionId& high) {
  const auto *a = maps_[p]->find(low), *b = maps_[p]->find(high);
  if (a != nullptr && b != nullptr) (void)commit(p, model::draw_merge(*a, *b, random_));
  if (!driven_) plan_drive();
}

// A metadata server does it, if it can be reached.
void QuorumWorld::ask_abort(const QuorumHost& from, size_t p, const model::Operation& abort) {
  scheduler.note("ask_abort", from.id.name, model::operation_name(abort));
  if (!aborts_are_heard || !coord.reachable(from.id.name)) return;
  scheduler.after(some(kToldWithin), [this, p, abort] { (void)commit(p, abort); });
}

}  // namespace cantle::sim

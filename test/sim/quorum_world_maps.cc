// QuorumWorld: METADATA, who hears of it, and who drives what it says is under way.
#include "lib/base/check.h"
#include "lib/coord/governments.h"
#include "test/sim/quorum_node.h"
#include "test/sim/quorum_world.h"

namespace cantle::sim {

using base::Code;
namespace driver = proto::driver;

namespace {
constexpr Duration kToldWithin = 300ms, kToldSoon = 20ms, kDriveEvery = 150ms;
}

base::Status QuorumWorld::commit(size_t p, const model::Operation& operation) {
  const std::vector<model::Operation> list{operation};
  const auto* before = maps_[p].get();
  auto next = model::apply(
      before, list,
      {model::TxnId::draw(random_), model::ChangeId::draw(random_), before == nullptr ? "" : std::string(32, 'h')});
  if (!next) return base::fail(next.error());
  maps_[p] = std::make_shared<const model::Metadata>(std::move(*next));
  scheduler.note("metadata", p, maps_[p]->txnseq.value, model::to_string(operation));
  for (auto& host : hosts) tell(*host, p);
  return base::ok();
}

model::AttemptId QuorumWorld::replace(size_t p, const model::ServerId& from, const model::ServerId& to, bool dead) {
  const auto op = model::draw_replace(partition(p), *find_assignment(partition(p), from), to, dead, random_);
  return commit(p, op) ? op.attempt : model::AttemptId{};
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
  const auto& at = partition(p);
  if (!at.moves.empty()) {
    if (random_.chance(0.15)) cancel(at.moves.front().attempt);
    return;
  }
  const auto* led = leader(p);
  const auto& from = at.assignments[random_.below(at.assignments.size())].server;
  const auto& to = hosts[random_.below(hosts.size())]->id;
  if (find_assignment(at, to) != nullptr) return;
  replace(p, led != nullptr && random_.chance(0.3) && holds(*led, p) ? led->id : from, to, random_.chance(0.3));
}

// At the worst of times: with the one that loses its vote on its side, and everybody else on the other; and whether the
// swap was made it may never hear.
void QuorumWorld::swapping(const QuorumHost& host, size_t p, const model::Government& to) {
  if (!striking_ || !chaos_.moves || !random_.chance(0.3)) return;
  const auto* text = coord.value(layout.government(distribution(p), partition(p).region));
  const auto now = coord::parse_government(text == nullptr ? "" : *text);
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
  const auto wait = some(random_.chance(0.2) ? kToldWithin : kToldSoon);
  scheduler.after(wait, [this, &host, p, map = maps_[p], life = host.process.life()] {
    if (host.process.alive() && host.process.life() == life && host.node) host.node->map_came(p, map);
  });
}

// --- the driver --------------------------------------------------------------------------------------

void QuorumWorld::plan_drive() {
  scheduler.after(some(kDriveEvery), [this] {
    drive(random_.below(maps_.size()));
    plan_drive();
  });
}

// Each is one that knows nothing of what another has done (S40).
void QuorumWorld::drive(size_t p) {
  const auto& moves = partition(p).moves;
  if (moves.empty()) return;
  auto it = std::make_shared<proto::ReplaceDriver>(moves.front().attempt);
  if (cancelled_.contains(moves.front().attempt)) {
    auto effects = it->step(driver::AbortAsked{scheduler.now(), "cancelled"});
    drive_on(p, it, effects);
  }
  drive_on(p, it, it->step(driver::Begin{scheduler.now()}));
}

void QuorumWorld::drive_on(size_t p, std::shared_ptr<proto::ReplaceDriver> it, const driver::Effects& effects) {
  for (const auto& effect : effects) {
    if (const auto* l = std::get_if<driver::Look>(&effect)) look(p, it, l->number);
    if (const auto* s = std::get_if<driver::Submit>(&effect))
      scheduler.after(some(kToldSoon), [this, p, operation = s->operation] { (void)commit(p, operation); });
  }
}

// What it decides from is read in some order; METADATA first.
void QuorumWorld::look(size_t p, std::shared_ptr<proto::ReplaceDriver> it, uint64_t number) {
  const auto path = layout.government(distribution(p), partition(p).region);
  operator_session_->sync(path, [this, p, it, number, path](const base::Status& synced) {
    if (!synced) return;
    proto::World seen{maps_[p], {}, {}};
    coord::read_government(*operator_session_, path, [this, p, it, number, seen](auto read) mutable {
      if (!read || !*read) return;
      seen.governments[partition_id(p)] = {(*read)->government, (*read)->version};
      drive_on(p, it, it->step(driver::Looked{scheduler.now(), number, std::move(seen)}));
    });
  });
}

}  // namespace cantle::sim

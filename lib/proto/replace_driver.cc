#include "lib/proto/replace_driver.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto {

using driver::Outcome;
using model::ServerId;

namespace {

struct Found {
  const model::Partition* partition = nullptr;
  const model::Move* move = nullptr;
};
Found moving(const model::Metadata& map, const model::AttemptId& attempt) {
  const auto* p = map.partitions.by_attempt(attempt);
  if (p == nullptr) return {};
  for (const auto& m : p->moves)
    if (m.attempt == attempt) return {p, &m};
  return {};
}

}  // namespace

std::vector<ServerId> move_barrier_waits_for(const model::Partition& partition, const model::Move& move,
                                             const World& world) {
  const auto* to = find_assignment(partition, move.to);
  std::set<ServerId> live_missing, missing;
  std::set<uint32_t> slots, passed;
  for (const auto& a : partition.assignments) {
    if (to != nullptr && a.id == to->id) continue;
    if (move.from_dead && a.id == move.from) continue;  // nothing is expected of it, alive or not
    slots.insert(a.slot);
    auto it = world.observed.find(a.server);
    if (it != world.observed.end() && it->second >= move.since) {
      passed.insert(a.slot);
      continue;
    }
    missing.insert(a.server);
    if (world.live.contains(a.server)) live_missing.insert(a.server);
  }
  const auto& who = passed.size() >= majority_of(slots.size()) ? live_missing : missing;
  return {who.begin(), who.end()};
}

DriverBase::Decision ReplaceDriver::decide(const World& world) {
  const auto [partition, move] = moving(*world.map, attempt_);
  if (partition == nullptr) return decide_ended(*world.map);
  seen_ = *move;
  // Too late where the replacement of a dead one has taken over: the old one may lack what was written since.
  if (abort_reason() != nullptr && !model::given_up(*partition, move->from))
    return submit(model::ops::CancelMove{partition->id, attempt_});
  const auto* to = find_assignment(*partition, move->to);
  if (to == nullptr) return wait("METADATA names no assignment for this replacement", {});
  switch (to->state) {
    case model::AssignmentState::proposed: {
      auto who = move_barrier_waits_for(*partition, *move, world);
      if (!who.empty()) return wait("servers of the partition have not observed the replacement", std::move(who));
      if (partition->assignments.size() < 2) return wait("nobody is left to fill from", {});
      return submit(model::ops::Initialize{partition->id, attempt_});
    }
    case model::AssignmentState::initializing: return wait("the new replica is being filled", {to->server});
    case model::AssignmentState::available:
    case model::AssignmentState::leaving: return submit(model::ops::FinalizeMove{partition->id, attempt_});
  }
  return wait("the new replica is in an unknown state", {to->server});
}

DriverBase::Decision ReplaceDriver::decide_ended(const model::Metadata& map) const {
  if (!seen_) return end(Outcome::failed, "METADATA names no such replacement: it was finished or cancelled before");
  // A split may have ended the partition since: then its record says whose tenure it was.
  auto known = [&](const model::AssignmentId& id) {
    if (map.partitions.by_assignment(id) != nullptr) return true;
    for (const auto& e : map.ended)
      for (const auto& a : e.parent_assignments)
        if (a.id == id) return true;
    return false;
  };
  if (known(seen_->to)) return end(Outcome::done);
  if (known(seen_->from))
    return end(Outcome::aborted, abort_reason() != nullptr ? *abort_reason() : "the replacement was cancelled");
  return end(Outcome::failed, "METADATA has forgotten both the old and the new replica");
}

}  // namespace cantle::proto

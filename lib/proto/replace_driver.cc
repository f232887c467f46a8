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
  if (world.map->replication == model::Replication::quorum) return decide_quorum(world, *partition, *move);
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

// There is no barrier: no write goes by the map, and the voters are the government's.
DriverBase::Decision ReplaceDriver::decide_quorum(const World& world, const model::Partition& partition,
                                                  const model::Move& move) const {
  const auto* to = find_assignment(partition, move.to);
  const auto* from = find_assignment(partition, move.from);
  if (to == nullptr || from == nullptr) return wait("METADATA names no assignment for this replacement", {});
  const bool cancelled = move.cancelled.value != 0;
  if (abort_reason() != nullptr && !cancelled && !model::given_up(partition, move.from))
    return submit(model::ops::CancelMove{partition.id, attempt_});
  if (to->state == model::AssignmentState::proposed)
    return partition.assignments.size() < 2 ? wait("nobody is left to fill from", {})
                                            : submit(model::ops::Initialize{partition.id, attempt_});
  const auto seen = world.governments.find(partition.id);
  if (seen == world.governments.end()) return wait("the partition has no government", {});
  const auto& government = seen->second.government;
  const bool old_votes = find_voter(government.voters, from->id) != nullptr;
  const bool new_votes = find_voter(government.voters, to->id) != nullptr;
  if (cancelled) {
    // Of an older map it may have been swapped yet (see Government).
    const bool undone = old_votes && !new_votes && government.txnseq >= move.cancelled;
    if (undone || MUTANT("cancel_without_leader")) return submit(model::ops::CancelMove{partition.id, attempt_, true});
    return wait(
        "whoever leads has to give the vote back to the replaced replica; should that be gone for good, zkctl "
        "node dead takes the replacement up again",
        {from->server});
  }
  const bool settled = government.txnseq >= move.since;
  if ((old_votes || !new_votes || !settled) && !MUTANT("finalize_without_swap"))
    return wait(government.leader.none() ? "nobody leads the partition: only its leader gives the new replica a vote"
                                         : "the new replica is being filled; then it gets the vote of the old one",
                {to->server});
  if (to->state == model::AssignmentState::initializing) return submit(model::ops::MarkAvailable{to->id, to->server});
  return submit(model::ops::FinalizeMove{partition.id, attempt_});
}

DriverBase::Decision ReplaceDriver::decide_ended(const model::Metadata& map) const {
  if (!seen_) return end(Outcome::failed, "METADATA names no such replacement: it was finished or cancelled before");
  if (const auto* p = map.partitions.by_assignment(seen_->to))
    for (const auto& m : p->moves)
      if (m.to == seen_->to)
        return end(Outcome::aborted, "it was cancelled, and is taken up again as " + to_string(m.attempt));
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

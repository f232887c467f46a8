#include "lib/proto/merge_driver.h"

#include <algorithm>
#include <set>

#include "lib/base/testing.h"

namespace cantle::proto {

using driver::Outcome;
using model::ServerId;

namespace {

const model::Partition* merging(const model::Metadata& map, const model::AttemptId& attempt) {
  const auto* p = map.partitions.by_attempt(attempt);
  return p != nullptr && p->merge && p->merge->attempt == attempt ? p : nullptr;
}

// The report of the attempt's cut; null: there is none.
const model::CutReport* cut_of(const World& world, const model::PartitionId& partition,
                               const model::AttemptId& attempt) {
  const auto seen = world.governments.find(partition);
  if (seen == world.governments.end()) return nullptr;
  const auto& cut = seen->second.government.cut;
  return cut && (cut->attempt == attempt || MUTANT("cut_of_any_attempt")) ? &*cut : nullptr;
}

bool holds(const model::CutReport* cut, const ServerId& server) {
  return cut != nullptr && std::find(cut->holders.begin(), cut->holders.end(), server) != cut->holders.end();
}

}  // namespace

std::vector<model::AssignmentId> holders_of_both(const model::Merge& merge, const World& world) {
  const auto* low = cut_of(world, merge.low, merge.attempt);
  const auto* high = cut_of(world, merge.high, merge.attempt);
  std::vector<model::AssignmentId> out;
  for (const auto& a : merge.target.assignments) {
    const bool has = MUTANT("merge_without_both_cuts") ? holds(low, a.server) || holds(high, a.server)
                                                       : holds(low, a.server) && holds(high, a.server);
    if (has) out.push_back(a.id);
  }
  return out;
}

std::vector<model::AssignmentId> observed_merge(const model::Merge& merge, const World& world) {
  std::vector<model::AssignmentId> out;
  for (const auto& a : merge.target.assignments) {
    const auto it = world.observed.find(a.server);
    const bool observed = it != world.observed.end() && it->second >= merge.since;
    if (observed || MUTANT("merge_skip_barrier")) out.push_back(a.id);
  }
  return out;
}

std::vector<ServerId> merge_barrier_waits_for(const model::Merge& merge, const World& world) {
  const auto ready = observed_merge(merge, world);
  const bool enough = ready.size() >= majority_of(merge.target.assignments.size());
  std::vector<ServerId> who;
  for (const auto& a : merge.target.assignments)
    if (std::find(ready.begin(), ready.end(), a.id) == ready.end() && (!enough || world.live.contains(a.server)))
      who.push_back(a.server);
  return who;
}

DriverBase::Decision MergeDriver::decide(const World& world) {
  const auto* p = merging(*world.map, attempt_);
  if (p == nullptr) return decide_ended(*world.map);
  const auto& merge = *p->merge;
  seen_ = merge;
  if (abort_reason() != nullptr) return submit(model::ops::AbortMerge{attempt_, merge.low, merge.high});
  if (world.map->replication == model::Replication::quorum) return decide_quorum(merge, world);
  if (auto who = merge_barrier_waits_for(merge, world); !who.empty())
    return wait("servers of the two have not observed the merge", std::move(who));
  return submit(model::ops::FinalizeMerge{attempt_, merge.low, merge.high, observed_merge(merge, world), {}});
}

DriverBase::Decision MergeDriver::decide_quorum(const model::Merge& merge, const World& world) const {
  std::vector<ServerId> leaders;
  bool leaderless = false;
  model::ops::FinalCuts cuts;
  for (const auto* id : {&merge.low, &merge.high}) {
    const auto seen = world.governments.find(*id);
    if (seen == world.governments.end()) return wait("a government cannot be read");
    const auto& government = seen->second.government;
    if (const auto* cut = cut_of(world, *id, attempt_)) {
      (id == &merge.low ? cuts.low : cuts.high) = {cut->at, government.epoch, seen->second.version};
      continue;
    }
    const auto* leader = model::find_voter(government.voters, government.leader);
    if (leader == nullptr)
      leaderless = true;
    else
      leaders.push_back(leader->server);
  }
  if (leaderless) return wait_briefly("one of the two has no leader", std::move(leaders));
  if (!leaders.empty()) return wait_briefly("not both leaders have cut their logs yet", std::move(leaders));
  auto ready = holders_of_both(merge, world);
  if (ready.size() < majority_of(merge.target.assignments.size())) {
    std::vector<ServerId> who;
    for (const auto& a : merge.target.assignments)
      if (std::find(ready.begin(), ready.end(), a.id) == ready.end()) who.push_back(a.server);
    return wait_briefly("no majority has both cuts yet", std::move(who));
  }
  return submit(model::ops::FinalizeMerge{attempt_, merge.low, merge.high, std::move(ready), cuts});
}

DriverBase::Decision MergeDriver::decide_ended(const model::Metadata& map) const {
  for (const auto& e : map.ended)
    if (e.attempt == attempt_) return end(Outcome::done);
  // `ended` is pruned once everybody knows. Then the target tells: finalized, it is a partition (or has been: what came
  // of it names it as parent, or it has ended in its turn); aborted, nobody ever heard of it.
  if (seen_) {
    const auto& id = seen_->target.id;
    const bool known =
        map.find(id) != nullptr ||
        std::any_of(map.partitions.begin(), map.partitions.end(), [&](const auto& p) { return p.parent == id; }) ||
        model::find_ended(map, id) != nullptr;
    if (known) return end(Outcome::done);
    // Merged again as the higher one, it would have left no trace.
    if (map.find(seen_->low) != nullptr || map.find(seen_->high) != nullptr)
      return end(Outcome::aborted, abort_reason() != nullptr ? *abort_reason() : "the merge was aborted");
  }
  return end(Outcome::failed, "METADATA names no such merge: it was finished or aborted before");
}

}  // namespace cantle::proto

#include "lib/proto/split_driver.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto {

using driver::Outcome;
using model::Assignment;
using model::ServerId;

namespace {

bool has_observed(const World& world, const ServerId& server, model::TxnSeq since) {
  auto it = world.observed.find(server);
  return it != world.observed.end() && it->second >= since;
}

const model::Partition* splitting(const model::Metadata& map, const model::AttemptId& attempt) {
  const auto* p = map.partitions.by_attempt(attempt);
  return p != nullptr && p->split && p->split->attempt == attempt ? p : nullptr;
}

size_t slots_of(const std::vector<Assignment>& assignments) {
  std::set<uint32_t> slots;
  for (const auto& a : assignments) slots.insert(a.slot);
  return slots.size();
}

bool majority_ready(const model::Child& child, const std::vector<model::AssignmentId>& ready) {
  std::set<uint32_t> slots;
  for (const auto& a : child.assignments)
    if (std::find(ready.begin(), ready.end(), a.id) != ready.end()) slots.insert(a.slot);
  return slots.size() >= majority_of(slots_of(child.assignments));
}

void add_unready(const model::Child& child, const std::vector<model::AssignmentId>& ready, std::set<ServerId>* who) {
  for (const auto& a : child.assignments)
    if (std::find(ready.begin(), ready.end(), a.id) == ready.end()) who->insert(a.server);
}

}  // namespace

std::vector<ServerId> split_barrier_waits_for(const model::Partition& parent, const World& world) {
  std::set<ServerId> live_missing, missing;
  std::set<uint32_t> slots, passed;
  for (const auto& a : parent.assignments) {
    slots.insert(a.slot);
    if (has_observed(world, a.server, parent.split->since)) {
      passed.insert(a.slot);
      continue;
    }
    missing.insert(a.server);
    if (world.live.contains(a.server)) live_missing.insert(a.server);
  }
  // The dead are not waited for, as long as a majority has observed: at start they read the current map first.
  const bool enough = passed.size() >= majority_of(slots.size()) || MUTANT("split_barrier_without_majority");
  const auto& who = enough ? live_missing : missing;
  if (MUTANT("split_skip_barrier")) return {};
  return {who.begin(), who.end()};
}

std::vector<model::AssignmentId> ready_of(const model::Partition& parent, const model::Child& child,
                                          const World& world) {
  std::vector<model::AssignmentId> ready;
  for (const auto& a : child.assignments) {
    // What continues a copy is as whole as that copy is.
    const auto* source = a.source.none() ? nullptr : find_assignment(parent, a.source);
    const bool here = source != nullptr && source->state == model::AssignmentState::available &&
                      has_observed(world, a.server, parent.split->since);
    if (here || a.state == model::AssignmentState::available) ready.push_back(a.id);
  }
  return ready;
}

std::vector<model::AssignmentId> holders_of(const model::Partition& parent, const model::Child& child,
                                            const World& world) {
  std::vector<model::AssignmentId> out;
  const auto seen = world.governments.find(parent.id);
  if (seen == world.governments.end() || !seen->second.government.cut) return out;
  const auto& cut = *seen->second.government.cut;
  if (cut.attempt != parent.split->attempt && !MUTANT("cut_of_any_attempt")) return out;
  for (const auto& a : child.assignments)
    if (std::find(cut.holders.begin(), cut.holders.end(), a.server) != cut.holders.end() || MUTANT("cut_on_few"))
      out.push_back(a.id);
  return out;
}

DriverBase::Decision SplitDriver::decide(const World& world) {
  const model::Partition* parent = splitting(*world.map, attempt_);
  if (parent == nullptr) return decide_ended(*world.map);
  const model::Split& split = *parent->split;
  seen_ = split;
  if (abort_reason() != nullptr) return submit(model::ops::AbortSplit{parent->id, attempt_});

  if (world.map->replication == model::Replication::quorum) return decide_quorum(*parent, world);
  if (split.phase == model::SplitPhase::barrier) {
    auto who = split_barrier_waits_for(*parent, world);
    if (!who.empty()) return wait("servers of the parent have not observed the split", std::move(who));
    return submit(model::ops::Initialize{parent->id, attempt_});
  }
  auto low = ready_of(*parent, split.low, world), high = ready_of(*parent, split.high, world);
  if ((majority_ready(split.low, low) && majority_ready(split.high, high)) || MUTANT("finalize_without_majority")) {
    low.insert(low.end(), high.begin(), high.end());
    return submit(model::ops::FinalizeSplit{parent->id, attempt_, std::move(low)});
  }
  std::set<ServerId> who;
  if (!majority_ready(split.low, low)) add_unready(split.low, low, &who);
  if (!majority_ready(split.high, high)) add_unready(split.high, high, &who);
  return wait("children are being filled", {who.begin(), who.end()});
}

DriverBase::Decision SplitDriver::decide_quorum(const model::Partition& parent, const World& world) const {
  const auto& split = *parent.split;
  if (split.phase == model::SplitPhase::barrier) return submit(model::ops::Initialize{parent.id, attempt_});
  const auto seen = world.governments.find(parent.id);
  if (seen == world.governments.end()) return wait("the parent's government cannot be read");
  const auto& government = seen->second.government;
  const auto* leader = model::find_voter(government.voters, government.leader);
  const auto& cut = government.cut;
  if (!cut || (cut->attempt != attempt_ && !MUTANT("cut_of_any_attempt")))
    return leader != nullptr ? wait_briefly("the parent's leader has not cut its log yet", {leader->server})
                             : wait_briefly("the parent has no leader");
  model::ops::FinalizeSplit finalize{parent.id, attempt_, {}};
  std::set<ServerId> without;
  for (const auto* child : {&split.low, &split.high}) {
    const auto has = holders_of(parent, *child, world);
    if (!majority_ready(*child, has)) add_unready(*child, has, &without);
    finalize.ready.insert(finalize.ready.end(), has.begin(), has.end());
  }
  if (!without.empty())
    return wait_briefly("no majority of a child's servers has the cut yet", {without.begin(), without.end()});
  finalize.cut = model::ops::FinalCut{cut->at, government.epoch, seen->second.version};
  return submit(std::move(finalize));
}

DriverBase::Decision SplitDriver::decide_ended(const model::Metadata& map) const {
  for (const auto& e : map.ended)
    if (e.attempt == attempt_) return end(Outcome::done);
  // `ended` is pruned once everybody knows. Then the children tell: finalized, they are partitions (or have been:
  // their own splits leave them as parents); aborted, nobody ever heard of them.
  if (seen_) {
    auto known = [&](const model::PartitionId& id) {
      if (map.find(id) != nullptr) return true;
      return std::any_of(map.partitions.begin(), map.partitions.end(), [&](const auto& p) { return p.parent == id; }) ||
             std::any_of(map.ended.begin(), map.ended.end(), [&](const auto& e) { return e.id == id; });
    };
    if (known(seen_->low.id) || known(seen_->high.id)) return end(Outcome::done);
    return end(Outcome::aborted, abort_reason() != nullptr ? *abort_reason() : "the split was aborted");
  }
  return end(Outcome::failed, "METADATA names no such split: it was finished or aborted before");
}

}  // namespace cantle::proto

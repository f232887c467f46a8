#include <algorithm>

#include "lib/base/testing.h"
#include "lib/model/apply_parts.h"

namespace cantle::model::detail {
namespace {

base::Status expect_whole(const Partition& p) {
  if (being_reshaped(p) || !p.moves.empty())
    return conflict("reshaping", "partition " + to_string(p.id) + " is being reshaped already");
  for (const auto& a : p.assignments)
    if (a.state != AssignmentState::available)
      return conflict(
          "filling", "the replica of partition " + to_string(p.id) + " on " + a.server.name + " is still being filled");
  return base::ok();
}

base::Status expect_neighbours(const Partition& low, const Partition& high) {
  if (low.interval.end.empty() || low.interval.end != high.interval.begin)
    return refused("merge", "partition " + to_string(high.id) + " does not begin where " + to_string(low.id) + " ends");
  for (const auto& a : low.assignments)
    if (find_assignment(high, a.server) == nullptr)
      return conflict("servers", "server " + a.server.name + " holds partition " + to_string(low.id) + " and not " +
                                     to_string(high.id) + ": only what stands on the same servers can be merged");
  return base::ok();
}

base::Result<Child> make_target(Draft& draft, const Partition& low, const ops::NewChild& spec) {
  if (spec.assignments.size() != low.assignments.size())
    return refused("slot", "the target has " + std::to_string(spec.assignments.size()) +
                               " assignments, the table has " + std::to_string(draft.file.replicas) + " replicas");
  if (draft.file.next_region.value >= kRegionMax) return refused("region", "the table has used up its region numbers");
  Child target{.id = spec.id, .region = draft.file.next_region, .assignments = {}};
  draft.file.next_region = draft.file.next_region.next();
  for (uint32_t slot = 0; slot < spec.assignments.size(); slot++) {
    const auto& a = spec.assignments[slot];
    const auto* source = find_assignment(low, a.server);
    if (source == nullptr)
      return conflict("servers", "server " + a.server.name + " does not hold partition " + to_string(low.id) +
                                     ": what two are merged into stands where they stand");
    target.assignments.push_back({.server = a.server,
                                  .id = a.id,
                                  .slot = slot,
                                  .state = AssignmentState::proposed,
                                  .source = source->id,
                                  .since = draft.file.txnseq});
  }
  return target;
}

struct Pair {
  Partition low, high;
};
base::Result<Pair> expect_merge(const Draft& draft, const PartitionId& low, const PartitionId& high,
                                const AttemptId& attempt) {
  Pair p;
  TRY_ASSIGN(p.low, draft.partition(low));
  TRY_ASSIGN(p.high, draft.partition(high));
  const auto& merge = p.low.merge;
  if (!merge || merge->attempt != attempt || merge->low != low || merge->high != high || p.high.merge != merge)
    return conflict(
        "attempt", "partitions " + to_string(low) + " and " + to_string(high) + " have no merge " + to_string(attempt));
  return p;
}

base::Status expect_ready(const Child& target, const std::vector<AssignmentId>& ready) {
  const auto is = [](const AssignmentId& id) { return [&id](const Assignment& a) { return a.id == id; }; };
  for (const auto& id : ready)
    if (std::none_of(target.assignments.begin(), target.assignments.end(), is(id)))
      return conflict("ready", "assignment " + to_string(id) + " is not one of partition " + to_string(target.id));
  const auto n =
      static_cast<size_t>(std::count_if(target.assignments.begin(), target.assignments.end(), [&](const Assignment& a) {
        return std::find(ready.begin(), ready.end(), a.id) != ready.end();
      }));
  if (n < target.assignments.size() / 2 + 1 && !MUTANT("finalize_without_majority"))
    return conflict("ready", std::to_string(n) + " of " + std::to_string(target.assignments.size()) +
                                 " assignments of " + to_string(target.id) + " are ready");
  return base::ok();
}

void take_out(Draft& draft, const Partition& p, const ops::FinalCut* cut) {
  auto e = make_ended(draft, p, p.merge->attempt);
  e.into = p.merge->target.id;
  if (cut != nullptr) e.cut = CutEnd{cut->at, cut->epoch};
  draft.ended(std::move(e));
}

}  // namespace

base::Status apply(Draft& draft, const ops::MergePartitions& op) {
  TRY_ASSIGN(auto low, draft.partition(op.low));
  TRY_ASSIGN(auto high, draft.partition(op.high));
  if (op.attempt.none()) return refused("ids", "a merge needs an attempt id");
  TRY(expect_neighbours(low, high));
  TRY(expect_whole(low));
  TRY(expect_whole(high));
  TRY_ASSIGN(auto target, make_target(draft, low, op.target));
  low.merge = Merge{op.attempt, low.id, high.id, std::move(target), draft.file.txnseq};
  high.merge = low.merge;
  low.state = high.state = PartitionState::merging;
  draft.changed(std::move(low));
  draft.changed(std::move(high));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::FinalizeMerge& op) {
  TRY_ASSIGN(auto pair, expect_merge(draft, op.low, op.high, op.attempt));
  const auto& [low, high] = pair;
  const auto& merge = *low.merge;
  const bool quorum = draft.file.replication == Replication::quorum;
  if (quorum != op.cuts.has_value() || (quorum && (op.cuts->low.at.lsn.value == 0 || op.cuts->high.at.lsn.value == 0)))
    return refused("cut", quorum ? "a merge in a quorum table ends with two cuts" : "a push table has no cuts");
  TRY(expect_ready(merge.target, op.ready));

  Partition target{.id = merge.target.id,
                   .region = merge.target.region,
                   .interval = {low.interval.begin, high.interval.end},
                   .state = PartitionState::active,
                   .min_txnseq = draft.file.txnseq,
                   .parent = low.id,
                   .parent_region = low.region,
                   .assignments = merge.target.assignments,
                   .split = std::nullopt,
                   .moves = {},
                   .merge = {},
                   .parent_high = high.id};
  for (auto& a : target.assignments) {
    a.state = AssignmentState::available;
    a.since = draft.file.txnseq;
  }
  // Both out, the target in, in one transaction: no file has a hole or an overlap (S41).
  take_out(draft, low, quorum ? &op.cuts->low : nullptr);
  take_out(draft, high, quorum ? &op.cuts->high : nullptr);
  draft.changed(std::move(target));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::AbortMerge& op) {
  TRY_ASSIGN(auto pair, expect_merge(draft, op.low, op.high, op.attempt));
  for (auto* p : {&pair.low, &pair.high}) {
    p->merge.reset();
    p->state = PartitionState::active;
    draft.changed(std::move(*p));
  }
  return base::ok();
}

}  // namespace cantle::model::detail

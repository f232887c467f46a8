#include <algorithm>

#include "lib/base/testing.h"
#include "lib/model/apply_parts.h"

namespace cantle::model::detail {
namespace {

base::Result<Child> make_child(Draft& draft, const Partition& parent, const ops::NewChild& spec) {
  if (spec.assignments.size() != draft.file.replicas)
    return refused("slot", "a child of " + to_string(parent.id) + " has " + std::to_string(spec.assignments.size()) +
                               " assignments, the table has " + std::to_string(draft.file.replicas) + " replicas");
  if (draft.file.next_region.value >= kRegionMax) return refused("region", "the table has used up its region numbers");
  Child child{.id = spec.id, .region = draft.file.next_region, .assignments = {}};
  draft.file.next_region = draft.file.next_region.next();
  for (uint32_t slot = 0; slot < spec.assignments.size(); slot++) {
    const auto& a = spec.assignments[slot];
    const auto* source = find_assignment(parent, a.server);
    child.assignments.push_back({.server = a.server,
                                 .id = a.id,
                                 .slot = slot,
                                 .state = AssignmentState::proposed,
                                 .source = source != nullptr ? source->id : AssignmentId{},
                                 .since = draft.file.txnseq});
  }
  return child;
}

base::Status expect_attempt(const Partition& p, const AttemptId& attempt) {
  if (!p.split || p.split->attempt != attempt)
    return conflict("attempt", "partition " + to_string(p.id) + " has no split " + to_string(attempt));
  return base::ok();
}

bool contains(const std::vector<AssignmentId>& ids, const AssignmentId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// A child on a server of the parent has what the parent's copy there has; one elsewhere says so itself.
bool filled(const Partition& parent, const Assignment& a) {
  if (a.state == AssignmentState::available) return true;
  const auto* source = a.source.none() ? nullptr : find_assignment(parent, a.source);
  return source != nullptr && source->state == AssignmentState::available;
}

base::Result<size_t> count_ready(const Partition& parent, const Child& child, const std::vector<AssignmentId>& ready) {
  size_t n = 0;
  for (const auto& a : child.assignments) {
    if (!contains(ready, a.id)) continue;
    if (!filled(parent, a)) return conflict("ready", "assignment " + to_string(a.id) + " has not been filled");
    n++;
  }
  return n;
}

Partition make_partition(const Draft& draft, const Partition& parent, const Child& child, Interval interval,
                         const std::vector<AssignmentId>& ready) {
  Partition p{.id = child.id,
              .region = child.region,
              .interval = std::move(interval),
              .state = PartitionState::active,
              .min_txnseq = draft.file.txnseq,
              .parent = parent.id,
              .parent_region = parent.region,
              .assignments = child.assignments,
              .split = std::nullopt,
              .moves = {}};
  for (auto& a : p.assignments) {
    const bool has_everything =
        a.state == AssignmentState::available || contains(ready, a.id) || draft.file.replication == Replication::quorum;
    a.state = has_everything ? AssignmentState::available : AssignmentState::initializing;
    a.since = draft.file.txnseq;
  }
  return p;
}

}  // namespace

EndedPartition make_ended(const Draft& draft, const Partition& p, const AttemptId& attempt) {
  return {.id = p.id,
          .region = p.region,
          .interval = p.interval,
          .attempt = attempt,
          .point = {},
          .low = {},
          .high = {},
          .at = draft.file.txnseq,
          .parent_assignments = p.assignments};
}

base::Status apply(Draft& draft, const ops::SplitPartition& op) {
  TRY_ASSIGN(auto p, draft.partition(op.partition));
  if (being_reshaped(p) || !p.moves.empty())
    return conflict("reshaping", "partition " + to_string(p.id) + " is being reshaped already");
  if (op.attempt.none()) return refused("ids", "a split needs an attempt id");
  if (op.point <= p.interval.begin || !p.interval.contains(op.point))
    return refused("split", "the split point " + base::escape(op.point) + " is not inside " + to_string(p.interval));
  Split split{.attempt = op.attempt,
              .point = op.point,
              .low = {},
              .high = {},
              .phase = SplitPhase::barrier,
              .since = draft.file.txnseq};
  TRY_ASSIGN(split.low, make_child(draft, p, op.low));
  TRY_ASSIGN(split.high, make_child(draft, p, op.high));
  if (draft.file.replication == Replication::quorum)
    for (const auto* child : {&split.low, &split.high})
      for (const auto& a : child->assignments)
        if (a.source.none())
          return refused("servers", "server " + a.server.name +
                                        " does not hold the partition: the children of a quorum table stand where the "
                                        "parent stands (move it first)");
  p.split = std::move(split);
  p.state = PartitionState::splitting;
  draft.changed(std::move(p));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::FinalizeSplit& op) {
  TRY_ASSIGN(auto parent, draft.partition(op.partition));
  TRY(expect_attempt(parent, op.attempt));
  const auto& split = *parent.split;
  if (split.phase != SplitPhase::filling)
    return conflict("phase", "split " + to_string(op.attempt) + " has not passed its barrier");
  const bool quorum = draft.file.replication == Replication::quorum;
  if (quorum != op.cut.has_value() || (quorum && op.cut->at.lsn.value == 0))
    return refused("cut", quorum ? "the split of a quorum table ends with a cut" : "a push table has no cut");
  for (const auto* child : {&split.low, &split.high}) {
    TRY_ASSIGN(const auto ready, count_ready(parent, *child, op.ready));
    if (ready < child->assignments.size() / 2 + 1 && !MUTANT("finalize_without_majority"))
      return conflict("ready", std::to_string(ready) + " of " + std::to_string(child->assignments.size()) +
                                   " assignments of " + to_string(child->id) + " are ready");
  }
  for (const auto& id : op.ready)
    if (std::none_of(split.low.assignments.begin(), split.low.assignments.end(), [&](auto& a) { return a.id == id; }) &&
        std::none_of(split.high.assignments.begin(), split.high.assignments.end(), [&](auto& a) { return a.id == id; }))
      return conflict("ready", "assignment " + to_string(id) + " is not one of split " + to_string(op.attempt));

  // Parent out, children in, in one transaction: no file has a hole or an overlap (S41).
  EndedPartition ended = make_ended(draft, parent, op.attempt);
  ended.point = split.point;
  ended.low = split.low.id;
  ended.high = split.high.id;
  if (quorum) ended.cut = CutEnd{op.cut->at, op.cut->epoch};
  draft.ended(std::move(ended));
  draft.changed(make_partition(draft, parent, split.low, {parent.interval.begin, split.point}, op.ready));
  draft.changed(make_partition(draft, parent, split.high, {split.point, parent.interval.end}, op.ready));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::AbortSplit& op) {
  TRY_ASSIGN(auto p, draft.partition(op.partition));
  TRY(expect_attempt(p, op.attempt));
  p.split.reset();
  p.state = PartitionState::active;
  draft.changed(std::move(p));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::SweepEnded& op) {
  auto& ended = draft.file.ended;
  const auto at = std::find_if(ended.begin(), ended.end(),
                               [&](const auto& e) { return e.id == op.partition && e.attempt == op.attempt; });
  if (at == ended.end()) return conflict("ended", "no ended partition " + to_string(op.partition));
  if (being_filled(draft.file, at->interval))
    return conflict("needed", "a replica of what partition " + to_string(op.partition) + " became is being filled");
  ended.erase(at);
  return base::ok();
}

}  // namespace cantle::model::detail

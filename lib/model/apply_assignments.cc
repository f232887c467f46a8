#include <algorithm>

#include "lib/model/apply_parts.h"

namespace cantle::model::detail {
namespace {

std::vector<Assignment>::iterator iterator_of(Partition& p, const AssignmentId& id) {
  return std::find_if(p.assignments.begin(), p.assignments.end(), [&](const Assignment& a) { return a.id == id; });
}

void enter(Draft& draft, Assignment& a, AssignmentState state) {
  a.state = state;
  a.since = draft.file.txnseq;
}

base::Result<size_t> expect_move(const Partition& p, const AttemptId& attempt) {
  for (size_t i = 0; i < p.moves.size(); i++)
    if (p.moves[i].attempt == attempt) return i;
  return conflict("attempt", "partition " + to_string(p.id) + " has no move " + to_string(attempt));
}

void initialize_split(Draft& draft, Split& split) {
  split.phase = SplitPhase::filling;
  for (auto* child : {&split.low, &split.high})
    for (auto& a : child->assignments)
      if (a.source.none()) enter(draft, a, AssignmentState::initializing);
}

// An assignment of a partition proper; true: something changed.
base::Result<bool> mark(Draft& draft, Partition& p, Assignment& a) {
  if (a.state == AssignmentState::available) return false;
  if (a.state != AssignmentState::initializing)
    return conflict("state", "assignment " + to_string(a.id) + " is not INITIALIZING");
  enter(draft, a, AssignmentState::available);
  for (const auto& move : p.moves) {
    if (move.to != a.id) continue;
    const auto from = iterator_of(p, move.from);
    if (from->state == AssignmentState::available) enter(draft, *from, AssignmentState::leaving);
  }
  return true;
}

// In a quorum table, a move that was cancelled and is not undone yet goes on, as its source is gone and cannot get its
// vote back (S60). Under another attempt: what somebody decides who saw the one before is refused.
base::Status take_up_again(Draft& draft, Partition p, const ops::Replace& op) {
  auto& move = p.moves.front();
  auto& to = *iterator_of(p, move.to);
  if (op.to.id != move.to || op.to.server != to.server)
    return conflict("cancelled", "the replacement of assignment " + to_string(op.from) + " by " + to.server.name +
                                     " was cancelled, and is not undone yet: only " + to.server.name +
                                     " can take its place now");
  move = {.attempt = op.attempt, .from = op.from, .to = move.to, .from_dead = true, .since = draft.file.txnseq};
  enter(draft, to, AssignmentState::initializing);
  if (auto& from = *iterator_of(p, op.from); from.state == AssignmentState::leaving)
    enter(draft, from, AssignmentState::available);
  draft.changed(std::move(p));
  return base::ok();
}

}  // namespace

base::Status apply(Draft& draft, const ops::Initialize& op) {
  TRY_ASSIGN(auto p, draft.partition(op.partition));
  if (p.split && p.split->attempt == op.attempt) {
    if (p.split->phase != SplitPhase::barrier)
      return conflict("phase", "split " + to_string(op.attempt) + " has passed its barrier already");
    initialize_split(draft, *p.split);
  } else {
    TRY_ASSIGN(const auto i, expect_move(p, op.attempt));
    auto& to = *iterator_of(p, p.moves[i].to);
    if (to.state != AssignmentState::proposed)
      return conflict("phase", "move " + to_string(op.attempt) + " has passed its barrier already");
    enter(draft, to, AssignmentState::initializing);
  }
  draft.changed(std::move(p));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::Replace& op) {
  TRY_ASSIGN(auto p, draft.partition(op.partition));
  if (op.attempt.none()) return refused("ids", "a move needs an attempt id");
  if (op.from_dead && cancelled_move(p, op.from) != nullptr) return take_up_again(draft, std::move(p), op);
  if (being_reshaped(p) || !p.moves.empty())
    return conflict("reshaping", "partition " + to_string(p.id) + " is being reshaped already");
  const auto from = iterator_of(p, op.from);
  if (from == p.assignments.end())
    return conflict("assignment", "partition " + to_string(p.id) + " has no assignment " + to_string(op.from));
  // Repair goes before: the one that is replaced may be needed for what is being filled (lib/proto/push_fill.h).
  if (!op.from_dead && from->state == AssignmentState::available && being_filled(p))
    return conflict("filling", "a replica of partition " + to_string(p.id) + " is still being filled");
  if (find_assignment(p, op.to.server) != nullptr)  // S55
    return refused("server-twice", op.to.server.name + " has partition " + to_string(p.id) + " already");
  p.moves.push_back(
      {.attempt = op.attempt, .from = op.from, .to = op.to.id, .from_dead = op.from_dead, .since = draft.file.txnseq});
  p.assignments.insert(from + 1, {.server = op.to.server,
                                  .id = op.to.id,
                                  .slot = from->slot,
                                  .state = AssignmentState::proposed,
                                  .source = op.from,
                                  .since = draft.file.txnseq});
  draft.changed(std::move(p));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::MarkAvailable& op) {
  const auto* found = draft.file.partitions.by_assignment(op.assignment);
  if (found == nullptr) return conflict("assignment", "no assignment " + to_string(op.assignment));
  Partition p = *found;
  const auto expect_server = [&](const Assignment& a) -> base::Status {
    if (a.server != op.server)
      return refused("assignment",
                     "assignment " + to_string(a.id) + " is on " + a.server.name + ", not " + op.server.name);
    return base::ok();
  };
  if (const auto a = iterator_of(p, op.assignment); a != p.assignments.end()) {
    TRY(expect_server(*a));
    TRY_ASSIGN(const bool changed, mark(draft, p, *a));
    if (changed) draft.changed(std::move(p));
    return base::ok();
  }
  if (p.split)
    for (auto* child : {&p.split->low, &p.split->high})
      for (auto& a : child->assignments) {
        if (a.id != op.assignment) continue;
        TRY(expect_server(a));
        if (a.state == AssignmentState::available) return base::ok();
        if (a.state != AssignmentState::initializing)
          return conflict("state", "assignment " + to_string(a.id) + " is not INITIALIZING");
        enter(draft, a, AssignmentState::available);
        draft.changed(std::move(p));
        return base::ok();
      }
  return conflict("assignment", "no assignment " + to_string(op.assignment));
}

base::Status apply(Draft& draft, const ops::FinalizeMove& op) {
  TRY_ASSIGN(auto p, draft.partition(op.partition));
  TRY_ASSIGN(const auto i, expect_move(p, op.attempt));
  if (iterator_of(p, p.moves[i].to)->state != AssignmentState::available)
    return conflict("ready", "the target of move " + to_string(op.attempt) + " has not been filled");
  if (p.moves[i].cancelled.value != 0) return conflict("cancelled", "move " + to_string(op.attempt) + " was cancelled");
  p.assignments.erase(iterator_of(p, p.moves[i].from));
  p.moves.erase(p.moves.begin() + static_cast<std::ptrdiff_t>(i));
  draft.changed(std::move(p));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::CancelMove& op) {
  TRY_ASSIGN(auto p, draft.partition(op.partition));
  TRY_ASSIGN(const auto i, expect_move(p, op.attempt));
  const auto move = p.moves[i];
  // A cancelled move of a quorum table may become AVAILABLE yet, by a driver that has not seen that: its source votes.
  if (move.cancelled.value == 0 && given_up(p, move.from))
    return conflict("taken-over", "writes have not waited for the source of move " + to_string(op.attempt) +
                                      " since its replacement is AVAILABLE: it can only be finished");
  if (draft.file.replication == Replication::quorum) {
    if (op.undone && move.cancelled.value == 0)
      return conflict("cancelled", "move " + to_string(op.attempt) + " was not cancelled");
    // Nobody gives a vote to what is PROPOSED.
    if (!op.undone && iterator_of(p, move.to)->state != AssignmentState::proposed) {
      if (move.cancelled.value != 0) return base::ok();
      p.moves[i].cancelled = draft.file.txnseq;
      draft.changed(std::move(p));
      return base::ok();
    }
  }
  p.assignments.erase(iterator_of(p, move.to));
  if (auto& from = *iterator_of(p, move.from); from.state == AssignmentState::leaving)
    enter(draft, from, AssignmentState::available);
  p.moves.erase(p.moves.begin() + static_cast<std::ptrdiff_t>(i));
  draft.changed(std::move(p));
  return base::ok();
}

base::Status apply(Draft& draft, const ops::RemoveDead& op) {
  const auto holds = [&](const std::vector<Assignment>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Assignment& a) { return a.server == op.server; });
  };
  for (const auto& p : draft.file.partitions)
    if (holds(p.assignments) || (p.split && (holds(p.split->low.assignments) || holds(p.split->high.assignments))))
      return conflict("assigned",
                      op.server.name + " still has partition " + to_string(p.id) + ": replace it there first");
  for (auto& e : draft.file.ended)
    std::erase_if(e.parent_assignments, [&](const Assignment& a) { return a.server == op.server; });
  return base::ok();
}

}  // namespace cantle::model::detail

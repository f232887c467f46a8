#include "lib/model/metadata.h"

#include <algorithm>

namespace cantle::model {

const Partition* Metadata::find(std::string_view routing_key) const {
  const auto it = partitions.at_or_before(routing_key);
  return it != partitions.end() && it->interval.contains(routing_key) ? &*it : nullptr;
}

const Partition* Metadata::find(const PartitionId& id) const { return partitions.find(id); }

const EndedPartition* find_ended(const Metadata& metadata, const PartitionId& id) {
  for (const auto& e : metadata.ended)
    if (e.id == id) return &e;
  return nullptr;
}

EndedTenure find_ended(const Metadata& metadata, const AssignmentId& id) {
  for (const auto& e : metadata.ended)
    for (const auto& a : e.parent_assignments)
      if (a.id == id) return {&e, &a};
  return {};
}

const EndedPartition* find_parent(const Metadata& metadata, const PartitionId& child) {
  for (const auto& e : metadata.ended)
    if (!e.was_merged() && (e.low == child || e.high == child)) return &e;
  return nullptr;
}

std::vector<const EndedPartition*> find_merged(const Metadata& metadata, const PartitionId& target) {
  std::vector<const EndedPartition*> out;
  for (const auto& e : metadata.ended)
    if (e.was_merged() && e.into == target) out.push_back(&e);
  std::sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->interval.begin < b->interval.begin; });
  return out;
}

std::vector<AssignmentId> merged_tenures(const Metadata& metadata, const PartitionId& target, const Assignment& a) {
  std::vector<AssignmentId> out;
  if (!a.source.none()) out.push_back(a.source);
  for (const auto* e : find_merged(metadata, target))
    for (const auto& old : e->parent_assignments)
      if (old.server == a.server && old.id != a.source) out.push_back(old.id);
  return out;
}

const Partition* find_neighbour(const Metadata& metadata, const Partition& merging) {
  if (!merging.merge) return nullptr;
  return metadata.find(merging.merge->low == merging.id ? merging.merge->high : merging.merge->low);
}

bool being_filled(const Metadata& metadata, const Interval& interval) {
  auto it = metadata.partitions.at_or_before(interval.begin);
  for (; it != metadata.partitions.end(); ++it) {
    if (it->interval.intersect(interval).empty()) break;
    if (being_filled(*it)) return true;
  }
  return false;
}

std::vector<const Assignment*> should_vote(const Partition& partition) {
  std::vector<const Assignment*> voters;
  for (const auto& a : partition.assignments) {
    const auto move =
        std::find_if(partition.moves.begin(), partition.moves.end(), [&](const Move& m) { return m.to == a.id; });
    if (move == partition.moves.end())
      voters.push_back(&a);
    else if (a.state != AssignmentState::proposed && move->cancelled.value == 0)
      voters.back() = &a;  // it stands behind the one that it replaces
  }
  return voters;
}

const Assignment* find_assignment(const Partition& partition, const ServerId& server) {
  for (const auto& a : partition.assignments)
    if (a.server == server) return &a;
  return nullptr;
}

const Assignment* find_assignment(const Partition& partition, const AssignmentId& id) {
  for (const auto& a : partition.assignments)
    if (a.id == id) return &a;
  return nullptr;
}

bool being_filled(const Partition& partition) {
  return std::any_of(partition.assignments.begin(), partition.assignments.end(),
                     [](const auto& a) { return a.state == AssignmentState::initializing; });
}

const Move* cancelled_move(const Partition& partition, const AssignmentId& from) {
  for (const auto& move : partition.moves)
    if (move.from == from && move.cancelled.value != 0) return &move;
  return nullptr;
}

bool taken_up_again(const Partition& partition, const Move& move) {
  const auto* to = find_assignment(partition, move.to);
  return to != nullptr && to->state == AssignmentState::initializing && to->since == move.since;
}

bool given_up(const Partition& partition, const AssignmentId& id) {
  return std::any_of(partition.moves.begin(), partition.moves.end(), [&](const auto& move) {
    if (move.from != id || !move.from_dead) return false;
    const auto* to = find_assignment(partition, move.to);
    return to != nullptr && to->state == AssignmentState::available;
  });
}

}  // namespace cantle::model

#include "lib/model/metadata.h"

#include <algorithm>

namespace cantle::model {

const Partition* Metadata::find(std::string_view routing_key) const {
  auto it = std::upper_bound(partitions.begin(), partitions.end(), routing_key,
                             [](std::string_view key, const Partition& p) { return key < p.interval.begin; });
  if (it == partitions.begin()) return nullptr;
  --it;
  return it->interval.contains(routing_key) ? &*it : nullptr;
}

const Partition* Metadata::find(const PartitionId& id) const {
  for (const auto& p : partitions)
    if (p.id == id) return &p;
  return nullptr;
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

}  // namespace cantle::model

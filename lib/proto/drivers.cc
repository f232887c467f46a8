#include "lib/proto/drivers.h"

#include "lib/proto/merge_driver.h"
#include "lib/proto/replace_driver.h"
#include "lib/proto/split_driver.h"

namespace cantle::proto {

std::string_view op_name(OpKind kind) {
  switch (kind) {
    case OpKind::split: return "split";
    case OpKind::merge: return "merge";
    case OpKind::replace: return "replace";
  }
  return "?";
}

std::map<model::AttemptId, OpKind> operations_of(const model::Metadata& map) {
  std::map<model::AttemptId, OpKind> out;
  if (map.dropped) return out;
  for (const auto& p : map.partitions) {
    if (p.split) out[p.split->attempt] = OpKind::split;
    if (p.merge) out[p.merge->attempt] = OpKind::merge;
    for (const auto& m : p.moves) out[m.attempt] = OpKind::replace;
  }
  return out;
}

std::unique_ptr<DriverBase> make_driver(OpKind kind, const model::AttemptId& attempt) {
  switch (kind) {
    case OpKind::split: return std::make_unique<SplitDriver>(attempt);
    case OpKind::merge: return std::make_unique<MergeDriver>(attempt);
    case OpKind::replace: return std::make_unique<ReplaceDriver>(attempt);
  }
  return nullptr;
}

std::vector<const model::Partition*> partitions_of(const model::Metadata& map, const model::AttemptId& attempt) {
  const auto* p = map.partitions.by_attempt(attempt);
  if (p == nullptr) return {};
  if (!p->merge) return {p};
  return {p, find_neighbour(map, *p)};
}

std::vector<std::pair<model::PartitionId, model::Region>> governed_by(const model::Metadata& map,
                                                                      const model::AttemptId& attempt) {
  std::vector<std::pair<model::PartitionId, model::Region>> out;
  if (map.replication != model::Replication::quorum) return out;
  for (const auto* p : partitions_of(map, attempt)) out.emplace_back(p->id, p->region);
  return out;
}

}  // namespace cantle::proto

// Drivers: which operations METADATA has in progress, and who drives which (lib/proto/driver.h).
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "lib/proto/driver.h"

namespace cantle::proto {

enum class OpKind : uint8_t { split = 1, merge, replace };
std::string_view op_name(OpKind kind);  // "split": what the task and people call it

// All that are in progress; none in a dropped table.
std::map<model::AttemptId, OpKind> operations_of(const model::Metadata& map);
std::unique_ptr<DriverBase> make_driver(OpKind kind, const model::AttemptId& attempt);
// The partitions that the attempt is about: two for a merge, none where METADATA does not know it (any more).
std::vector<const model::Partition*> partitions_of(const model::Metadata& map, const model::AttemptId& attempt);
// Of a quorum table, with their regions: whose governments a World has.
std::vector<std::pair<model::PartitionId, model::Region>> governed_by(const model::Metadata& map,
                                                                      const model::AttemptId& attempt);

}  // namespace cantle::proto

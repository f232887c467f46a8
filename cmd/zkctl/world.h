// World: what is going on in the tables: operations in progress, and what their drivers wait for. For wait, status,
// explain and the verbs that begin operations.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cmd/zkctl/tool.h"
#include "lib/proto/drivers.h"

namespace cantle::zkctl {

using MapPtr = client::MdClient::MapPtr;

// A split, a merge or a replacement that METADATA records. Of a merge: the lower one of the two.
struct OpEntry {
  std::string table;
  model::AttemptId attempt;
  model::PartitionId partition;
  model::Region region;
  proto::OpKind kind = proto::OpKind::split;
  std::string what;    // "split", "merge", "replace"
  std::string detail;  // "at \"m\"", "with region 3 into region 7", "p2 -> p4"
  std::string phase;
  model::TxnSeq since;
  std::string driver;  // who holds the task; empty: nobody
};
std::vector<OpEntry> operations_of(const model::Metadata& map);
// Of all tables that are not dropped, with their drivers.
base::Result<std::vector<OpEntry>> all_operations(Tool& tool, base::Duration timeout);

// What a driver of operations of this table would see now.
base::Result<proto::World> world_of(Tool& tool, const std::string& table, base::Duration timeout);
// What its driver would say in this world: the next step, or what it waits for and for whom.
std::string next_step(const OpEntry& op, const proto::World& world);

}  // namespace cantle::zkctl

// Which two neighbours are to be merged.
#pragma once

#include <string>

#include "cmd/splitter/cluster.h"
#include "cmd/splitter/moves.h"
#include "cmd/splitter/point.h"
#include "lib/model/operation.h"

namespace cantle::splitter {

struct MergeFlags : FollowFlags {
  std::string table, low, high;
};

// The merge as it would be committed: checked as far as it can be checked before. Refusals
//   conflict   one of the two is being reshaped or filled, too few of their servers are there
//   invalid    they are not neighbours
struct MergePlan {
  std::string table;
  model::TxnId base;
  model::TxnSeq base_txnseq;
  model::Interval interval;  // of the target
  model::ops::MergePartitions merge;
  // Where they stand on different servers: the partition that was named second is moved first, to those of the other.
  model::PartitionId moved;
  std::vector<model::ServerId> servers;
  std::vector<Move> moves;
};
base::Result<MergePlan> make_merge(Cluster& cluster, const MergeFlags& flags);

}  // namespace cantle::splitter

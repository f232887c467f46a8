// Which two neighbours are to be merged.
#pragma once

#include <string>

#include "cmd/splitter/cluster.h"
#include "cmd/splitter/point.h"
#include "lib/model/operation.h"

namespace cantle::splitter {

struct MergeFlags : FollowFlags {
  std::string table, low, high;
};

// The merge as it would be committed: checked as far as it can be checked before. Refusals
//   conflict   one of the two is being reshaped or filled, they stand on different servers, too few of these are there
//   invalid    they are not neighbours
struct MergePlan {
  std::string table;
  model::TxnId base;
  model::TxnSeq base_txnseq;
  model::Interval interval;  // of the target
  model::ops::MergePartitions merge;
};
base::Result<MergePlan> make_merge(Cluster& cluster, const MergeFlags& flags);

}  // namespace cantle::splitter

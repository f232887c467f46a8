// Merge: what a merge of two neighbours does to rows, in one place for memory, for the index's transaction and for
// replay (S45), as divide.h has it for a divide. No record moves: the target has the extents of both.
//
// Threads: any; no state but the transaction's.
#pragma once

#include <set>
#include <string>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/cut.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/store/divide.h"
#include "lib/store/index.h"
#include "lib/store/rows.h"

namespace cantle::store {

// One of the two that are merged.
struct MergeParent {
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::LogPoint at;        // its last block
  uint64_t log_time_ms = 0;  // there, of a quorum table's
  CANTLE_FIELDS(partition, assignment, at, log_time_ms)
};

// Payload of a merge block.
struct MergeNote {
  model::AttemptId attempt;
  MergeParent low, high;
  DivideChild target;
  uint64_t begins = 0;  // of the target's log: journal sequence, as of QuorumRow
  CANTLE_FIELDS(attempt, low, high, target, begins)
  model::LogPoint start() const { return model::merged_point(low.at, high.at); }  // the target's log begins behind it
};

struct MergedRows {
  TenureRow low, high;  // ended
  TenureRow target;
};
MergedRows merge_rows(const TenureRow& low, const TenureRow& high, const MergeNote& note, model::Epoch now);
// The live rows of both become the target's; pieces change owners. Fine if it was done before.
// `touched` gets the extents whose pieces changed.
base::Status merge_index(WriteTxn& txn, const MergeNote& note, model::Epoch now, std::set<model::ExtentId>& touched);

std::string encode_note(const MergeNote& note);
base::Result<MergeNote> decode_merge_note(std::string_view payload);

}  // namespace cantle::store

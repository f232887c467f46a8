// Apply: carries one sealed half of the overlay into the index, slice by slice, on the apply lane.
//
// Each slice is one transaction of adjacent keys, and behind the records, of series. The last one also carries what the
// half means as a whole: the divides and merges that lie in it, how far each partition has been applied, and how far
// the journal has. A crash in between leaves records in the index whose positions are not: replay meets them again, and
// the newest version wins; a window of a series is joined with what is there.
//
// Threads: step() on the apply lane; everything else before and after.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/store/data_dir.h"
#include "lib/store/divide.h"
#include "lib/store/index.h"
#include "lib/store/merge.h"
#include "lib/store/overlay.h"
#include "lib/store/rows.h"
#include "lib/store/series_table.h"

namespace cantle::store {

using Reshape = std::variant<DivideNote, MergeNote>;
// The partitions whose rows it makes, and the tenures that it makes them of.
std::vector<model::PartitionId> made_by(const Reshape& reshape);
std::vector<TenureId> ended_by(const Reshape& reshape);

// The last block of a log in a half. Which log: of a quorum table's tenure that ended blocks may have come into the
// half behind its end, and the next tenure of the partition is there by the time that this is applied.
struct AppliedPoint {
  model::LogPoint at;
  uint64_t begins = 0;  // QuorumRow::begins
};
bool is_of(const AppliedPoint& point, const TenureRow& row);

// What the blocks in a half say besides their records.
struct Pending {
  std::map<model::PartitionId, AppliedPoint> points;
  std::vector<Reshape> reshapes;                 // in the order of the journal: one may go on from another
  std::map<model::PartitionId, QuorumRow> rows;  // of quorum logs that changed
  SeriesTable series;                            // of quorum tables' records
  JournalPosition from;                          // the first of them; not set while there is none
  JournalPosition upto;                          // every durable block before this is in this half or an earlier one
  bool empty() const { return points.empty() && reshapes.empty(); }
};

struct ApplyLimits {
  uint64_t bytes = 0;
  uint32_t records = 0;
};

class ApplyJob {
 public:
  ApplyJob(std::shared_ptr<Index> index, std::shared_ptr<Half> half, Pending pending, Identity identity,
           model::Version highest, ApplyLimits limits);
  // One transaction. no_space: nothing happened, step() again later. True: that was the last.
  base::Result<bool> step();

  const Pending& pending() const { return pending_; }
  uint64_t records() const { return records_; }                                     // applied so far
  const std::map<model::ExtentId, ExtentRow>& changed() const { return changed_; }  // after the last step

 private:
  struct Place {
    size_t extent = 0;                // of extents_
    std::string key;                  // the last one done there
    std::optional<SeriesKey> series;  // the last one done
  };
  struct Slice;
  base::Status apply_extent(WriteTxn& txn, Slice& slice);
  base::Status apply_series(WriteTxn& txn, Slice& slice);
  base::Status finish(WriteTxn& txn, std::set<model::ExtentId>& touched);

  std::shared_ptr<Index> index_;
  std::shared_ptr<Half> half_;
  Pending pending_;
  Identity identity_;
  model::Version highest_;
  ApplyLimits limits_;
  std::vector<model::ExtentId> extents_;
  Place place_;
  uint64_t records_ = 0;
  std::map<model::ExtentId, ExtentRow> changed_;
};

}  // namespace cantle::store

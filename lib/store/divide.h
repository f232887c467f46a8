// Divide: what a divide does to rows, in one place for memory, for the index's transaction and for replay (S45).
// Also the payloads of the local blocks that carry rows: divide and root image.
//
// Threads: any; no state but the transaction's.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/quorum.h"
#include "lib/model/record.h"
#include "lib/store/index.h"
#include "lib/store/rows.h"

namespace cantle::store {

struct DivideChild {
  model::PartitionId partition;
  model::Region region;
  model::AssignmentId assignment;  // none: not on this server
  CANTLE_FIELDS(partition, region, assignment)
};

// Of a quorum table's log at the cut: what the children's begin with.
struct DivideLog {
  std::vector<model::EpochStart> epochs;
  uint64_t log_time_ms = 0;
  uint64_t begins = 0;  // journal sequence, as of QuorumRow
  CANTLE_FIELDS(epochs, log_time_ms, begins)
};

// Payload of a divide block.
struct DivideNote {
  model::AttemptId attempt;
  model::PartitionId parent;
  model::AssignmentId assignment;  // the parent's tenure
  model::LogPoint at;              // its last block
  std::string point;
  DivideChild low, high;
  std::optional<DivideLog> log;  // of a push table's: nothing
  CANTLE_FIELDS(attempt, parent, assignment, at, point, low, high, log)
};

struct DividedRows {
  TenureRow parent;  // aside with what is left, or ended
  std::optional<TenureRow> low, high;
};
DividedRows divide_rows(const TenureRow& parent, const DivideNote& note, model::Epoch now);
// The parent's live row becomes the children's; pieces change owners. Fine if it was done before.
// `touched` gets the extents whose pieces changed.
base::Status divide_index(WriteTxn& txn, const DivideNote& note, model::Epoch now, std::set<model::ExtentId>& touched);

// Payload of a root_image block: the root slot about to be overwritten, and, now and then, all tenures, from which a
// lost index is rebuilt. A list too long for one block comes in parts.
struct RootImage {
  std::string slot;
  bool has_tenures = false;
  uint32_t part = 0, parts = 1;
  std::vector<TenureRow> tenures;
  CANTLE_FIELDS(slot, has_tenures, part, parts, tenures)
};
constexpr size_t kImageTenures = 2000;                // in one block
constexpr size_t kImageBytes = model::kBlockMax / 2;  // and of their rows, unless one alone has more

std::string encode_note(const DivideNote& note);
base::Result<DivideNote> decode_note(std::string_view payload);
std::string encode_image(const RootImage& image);
base::Result<RootImage> decode_image(std::string_view payload);

}  // namespace cantle::store

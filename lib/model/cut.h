// The cut of a split or a merge in a quorum table's log (design/reshape.md): the block behind which the parent's log
// holds nothing of clients. An uncut takes it back. Both take one LSN; their payload is the attempt's id.
//
// CutTable is what is kept of them beside a log, so that whoever has the log knows at once whether it ends in a cut.
//   table.note(mark, commit);    // each cut and uncut, as it is appended
//   table.truncate(keep);        // the log ends there now
//   if (auto cut = table.open()) …
//
// Invariants
//   * Ascending by LSN. Of what is committed only the last is kept: it is never cut away.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"

namespace cantle::model {

struct CutMark {
  LogPoint at;  // of its block
  AttemptId attempt;
  bool open = true;  // a cut; an uncut otherwise
  CANTLE_FIELDS(at, attempt, open)
  friend bool operator==(const CutMark&, const CutMark&) = default;
};

constexpr bool is_cut_mark(BlockKind kind) { return kind == BlockKind::cut || kind == BlockKind::uncut; }
std::string cut_payload(const AttemptId& attempt);
base::Result<AttemptId> attempt_of_cut(std::string_view payload);  // malformed
// Of a block that is one; `payload` of another is not looked at.
std::optional<CutMark> cut_mark(const BlockHeader& header, std::string_view payload);
// Where the log of a merge's target begins: behind both cuts. The same everywhere, and no block's.
LogPoint merged_point(const LogPoint& low, const LogPoint& high);

class CutTable {
 public:
  CutTable() = default;
  explicit CutTable(std::vector<CutMark> marks) : marks_(std::move(marks)) {}
  void note(const CutMark& mark, Lsn commit);
  void truncate(Lsn keep);
  // The cut that the log ends in: nothing of clients stands behind it.
  std::optional<CutMark> open() const;
  const std::vector<CutMark>& marks() const { return marks_; }

 private:
  std::vector<CutMark> marks_;
};

// A committed cut, as the parent's leader reports it in the government.
struct CutReport {
  AttemptId attempt;
  LogPoint at;
  // The servers of the voters that have the cut on disk, as far as the leader knows; in order. Of a split: a majority
  // of each child's. Of a merge: all of them, as it takes both cuts on one server to make the target.
  std::vector<ServerId> holders = {};
  CANTLE_FIELDS(attempt, at, holders)
  friend bool operator==(const CutReport&, const CutReport&) = default;
};

}  // namespace cantle::model

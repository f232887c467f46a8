// MergeDriver drives one merge of two neighbours from MERGE to FINALIZE_MERGE (design/reshape.md, "Merge").
//
// The target stands where both stand, so there is nothing to copy.
//
// Of a quorum table: both leaders cut on MERGE, and there is no barrier. FINALIZE_MERGE when both governments report
// the cut of this attempt, and a majority of the target's servers is among the holders of both: not only a majority
// each, as the one may be on {1, 2} and the other on {2, 3}, and then 1 and 3 could elect each other in the target
// without what was acknowledged. The operation names the versions of both governments in which it was so.
//
// Of a push table: there is nothing to cut. FINALIZE_MERGE once every live server, and in any case a majority, has
// observed the MERGE: each joins its own logs where they end on seeing it, and one that hears of it late does so then,
// with what it took meanwhile. The dead are not waited for: at start they read the current map first.
//
// AbortAsked before FINALIZE_MERGE is committed: ABORT_MERGE. It needs no server (S60).
//
// Target, assignments and attempt are read from METADATA and never computed again (S39); who has the cuts is read from
// the governments each time and never remembered (S40).
#pragma once

#include <optional>

#include "lib/proto/driver.h"

namespace cantle::proto {

class MergeDriver final : public DriverBase {
 public:
  explicit MergeDriver(model::AttemptId attempt) : attempt_(attempt) {}
  const model::AttemptId& attempt() const { return attempt_; }

 protected:
  Decision decide(const World& world) override;

 private:
  Decision decide_quorum(const model::Merge& merge, const World& world) const;
  Decision decide_ended(const model::Metadata& map) const;

  model::AttemptId attempt_;
  std::optional<model::Merge> seen_;  // to tell finalized from aborted when METADATA has forgotten the attempt
};

// Of a push table: whom the barrier waits for, none when it has passed; and who has passed it.
std::vector<model::ServerId> merge_barrier_waits_for(const model::Merge& merge, const World& world);
std::vector<model::AssignmentId> observed_merge(const model::Merge& merge, const World& world);
// For `status` and `explain` too: the target's assignments whose servers have both cuts, by what the governments
// report.
std::vector<model::AssignmentId> holders_of_both(const model::Merge& merge, const World& world);

}  // namespace cantle::proto

// SplitDriver drives one split from SPLIT to FINALIZE_SPLIT (design/reshape.md, "Split").
//
// Of a push table:
// 1. Barrier: every live server assigned to the parent, and in any case a majority of the parent's slots,
//    has published an `observed` at or past the SPLIT: INITIALIZE. From then on no write under an older map
//    can be acknowledged at majority, so what a majority of the parent has pushed is everything (S43).
// 2. A majority of each child's slots is ready: FINALIZE_SPLIT. A child assignment with a source has its data
//    where it stands and is ready when its server has observed the split; one without is ready when its server
//    had it marked AVAILABLE.
// Of a quorum table there is no barrier, as one log takes all writes: INITIALIZE at once, upon which the parent's
// leader cuts; FINALIZE_SPLIT when the parent's government reports the cut of this attempt on a majority of each
// child's servers, and only while it still does: the operation names the version of the government in which it did.
// That the parent has committed it is not enough: after a recovery without a majority one voter of one did.
//
// 3. AbortAsked before FINALIZE is committed: ABORT_SPLIT. It needs no server of the children (S60).
//
// Point, child ids, assignments and attempt are read from METADATA and never computed again (S39); readiness is
// read from METADATA and `observed` each time and never remembered (S40).
#pragma once

#include <optional>

#include "lib/proto/driver.h"

namespace cantle::proto {

class SplitDriver final : public DriverBase {
 public:
  explicit SplitDriver(model::AttemptId attempt) : attempt_(attempt) {}
  const model::AttemptId& attempt() const { return attempt_; }

 protected:
  Decision decide(const World& world) override;

 private:
  Decision decide_quorum(const model::Partition& parent, const World& world) const;
  Decision decide_ended(const model::Metadata& map) const;

  model::AttemptId attempt_;
  std::optional<model::Split> seen_;  // to tell finalized from aborted when METADATA has forgotten the attempt
};

// The parts of the decision, for `status` and `explain` too.
// Who holds up the barrier of a split of `parent`; empty: it has passed.
std::vector<model::ServerId> split_barrier_waits_for(const model::Partition& parent, const World& world);
// Child assignments that have everything.
std::vector<model::AssignmentId> ready_of(const model::Partition& parent, const model::Child& child,
                                          const World& world);

// Of a quorum table: child assignments whose servers have the cut, as the parent's government reports it.
std::vector<model::AssignmentId> holders_of(const model::Partition& parent, const model::Child& child,
                                            const World& world);

}  // namespace cantle::proto

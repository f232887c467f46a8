// ReplaceDriver drives the replacement of one replica from REPLACE to FINALIZE_MOVE (design/reshape.md, "Move").
//
// 1. Barrier: every live server assigned to the partition, and in any case a majority of the old slots, has
//    published an `observed` at or past the REPLACE: INITIALIZE. A dead source is not waited for: then a majority
//    of the *other* slots is needed, which leaves too few for anybody to reach a majority under an older map.
// 2. The new assignment's server fills itself from what the live replicas push and has it marked AVAILABLE.
// 3. AVAILABLE: FINALIZE_MOVE removes the old one.
// 4. AbortAsked before FINALIZE_MOVE is committed: CANCEL_MOVE, which needs neither side alive (S60).
// Of a quorum table: INITIALIZE at once; the leader brings the new one level and swaps the government's voter; the
// government says so: MARK_AVAILABLE, FINALIZE_MOVE. Cancelled, the leader swaps back, if it had swapped, and says by
// its government's txnseq that it will not any more; then CANCEL_MOVE removes the new one. That needs a leader, and the
// old one if it had swapped; where that is gone, REPLACE takes the move up again as another attempt.
#pragma once

#include <optional>

#include "lib/proto/driver.h"

namespace cantle::proto {

class ReplaceDriver final : public DriverBase {
 public:
  explicit ReplaceDriver(model::AttemptId attempt) : attempt_(attempt) {}
  const model::AttemptId& attempt() const { return attempt_; }

 protected:
  Decision decide(const World& world) override;

 private:
  Decision decide_quorum(const World& world, const model::Partition& partition, const model::Move& move) const;
  Decision decide_ended(const model::Metadata& map) const;

  model::AttemptId attempt_;
  std::optional<model::Move> seen_;
};

// Who holds up the barrier of `move`; empty: it has passed.
std::vector<model::ServerId> move_barrier_waits_for(const model::Partition& partition, const model::Move& move,
                                                    const World& world);

}  // namespace cantle::proto

// Cut: what the leader of a quorum table's partition does about a split, or about a merge with its neighbour
// (design/reshape.md, "Split", 3, and "Merge"; the rules are explored in test/models/cut_test.cc).
//
// METADATA shows that the split may end (INITIALIZE is committed), or the merge, a majority of each child's servers or
// of the target's takes blocks now, and the coordination service has just answered: a cut goes into the log. From then
// on writes wait, and linearizable reads, once it is committed (Leader, QuorumReplica::may_read). The committed cut is
// reported in the government, by which FINALIZE_SPLIT is allowed, or, when the neighbour's is reported, too,
// FINALIZE_MERGE; if METADATA shows that the attempt was aborted, the report is taken back, and then an uncut goes into
// the log. Whoever leads with a log that ends in a cut does all this, whoever put it there.
//
// The report also names who has the cut. A child's voters are all of its servers, and the parent's are fewer after a
// recovery without a majority (quorum_recovery.h): a cut that those have committed is reported when a majority of each
// child's servers has it. A merge's target is made of two, and two majorities may have but one server in common: there
// each further one is named, too. Who has the cut keeps it, because it is committed: a report never names fewer than
// the last one did.
//
// Use
//   cut.seen(state);                                   // of the installed map: a hint
//   auto report = cut.think(now, leader, log, reported, out);   // often; null: this replica does not lead
//   cut.read(now, number, state);                      // the answer to ReadReshape
// `report`, if there is one, is what the government should say.
//
// Invariants
//   * A cut is appended only on a read, after a sync, that was asked for within the last kCutFresh and says that the
//     attempt may be cut.
//   * An uncut comes only after a read, after a sync, that was asked for while the log ended in the cut and says that
//     the attempt is over without having ended the partition; and after the government reports no cut (S27). Neither
//     time nor silence leads to one.
//   * Reported is a cut that is committed, while the log ends in it.
//   * After kAbortAfter in which a log ends in the cut, ABORT_SPLIT or ABORT_MERGE is asked for, again and again.
//   * A report names a server only when its log has the cut, durable (S27: one that has not starts empty), and a
//     majority of each child's servers, or of the target's (SimQuorum, a_cut_that_one_voter_of_one_has_ends_nothing).
#pragma once

#include <optional>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/metadata.h"
#include "lib/proto/quorum_leader.h"

namespace cantle::proto::quorum {

constexpr base::Duration kCutFresh = std::chrono::milliseconds(200);
constexpr base::Duration kReadReshapeEvery = std::chrono::milliseconds(100);
constexpr base::Duration kReadReshapeMost = std::chrono::seconds(1);  // then it is asked for again
constexpr base::Duration kAbortAfter = std::chrono::seconds(1);

// What a map says of the split or merge of one partition.
struct ReshapeSeen {
  bool there = false;                                  // the map has the partition
  model::AttemptId attempt;                            // of its split or merge; none: there is none
  bool may_cut = false;                                // of a split: INITIALIZE is committed
  std::vector<std::vector<model::ServerId>> children;  // the servers of each, or of the target
  std::optional<MergePair> merge = {};                 // it is a merge, of these two
  friend bool operator==(const ReshapeSeen&, const ReshapeSeen&) = default;
};

ReshapeSeen reshape_of(const model::Metadata& map, const model::PartitionId& partition);

class Cut {
 public:
  void seen(const ReshapeSeen& state) { seen_ = state; }
  void read(base::Instant now, uint64_t number, const base::Result<ReshapeSeen>& state);
  // What the government should say; nothing: leave it as it is. `reported`: what it says.
  using Report = std::optional<model::CutReport>;
  std::optional<Report> think(base::Instant now, Leader* leader, const Log& log, const Report& reported, Effects& out);
  base::Instant next_tick() const { return next_; }

 private:
  struct Read {
    uint64_t number = 0;
    base::Instant sent;
    bool out = false;
  };
  struct Answer {
    ReshapeSeen state;
    base::Instant sent, came;
  };
  void ask(base::Instant now, Effects& out);
  void consider_cut(base::Instant now, Leader& leader, Effects& out);
  std::optional<Report> care(base::Instant now, Leader& leader, const model::CutMark& cut, bool committed,
                             const Report& reported, Effects& out);
  const ReshapeSeen* known(const model::AttemptId& attempt) const;
  std::optional<Report> report(const Leader& leader, const model::CutMark& cut, const Report& reported) const;

  ReshapeSeen seen_;
  Read read_;
  std::optional<Answer> answer_;  // the newest
  model::Epoch epoch_;            // of the leadership that all below is of
  model::AttemptId open_;         // the log ends in its cut
  model::AttemptId over_;         // and METADATA says that it is over
  base::Instant ask_at_{}, abort_at_{};
  base::Instant next_ = base::Instant{base::Duration::max()};
};

}  // namespace cantle::proto::quorum

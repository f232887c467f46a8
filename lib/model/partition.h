// Partition and what hangs on it: assignments, a split or a merge in progress, moves, what is left of it once it ended.
//
// Pure values, parts of Metadata (lib/model/metadata.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/bytes.h"
#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"

namespace cantle::model {

enum class Keyspace : uint8_t { range = 1, hash = 2 };
enum class Replication : uint8_t { push = 1, quorum = 2 };

enum class PartitionState : uint8_t { creating = 1, active = 2, splitting = 3, merging = 4 };
// What a state allows (coordination.md, "Region states"), written down once. During a split of a push
// table the parent answers reads, and writes go to the parent and to the children.
constexpr bool readable(PartitionState s) { return s != PartitionState::creating; }
constexpr bool writable(PartitionState s) { return s != PartitionState::creating; }

enum class AssignmentState : uint8_t {
  proposed = 1,      // told, takes writes, not yet filled
  initializing = 2,  // being filled (the barrier has passed)
  available = 3,     // has everything, answers reads
  leaving = 4,       // replaced; answers reads until the move is final
};
constexpr bool answers_reads(AssignmentState s) {
  return s == AssignmentState::available || s == AssignmentState::leaving;
}

struct Assignment {
  ServerId server;
  AssignmentId id;
  uint32_t slot = 0;
  AssignmentState state = AssignmentState::proposed;
  AssignmentId source;  // the tenure it continues or replaces: for a split's child on a server of the parent, the
                        // parent's assignment there (nothing has to be copied); for a merge's target, the lower
                        // one's there (beside the higher one's there); for a replacement, the replaced one
  TxnSeq since;         // txnseq at which it got this state
  CANTLE_FIELDS(server, id, slot, state, source, since)
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

struct Child {
  PartitionId id;
  Region region;
  std::vector<Assignment> assignments;  // one a slot, fixed by SPLIT or MERGE
  CANTLE_FIELDS(id, region, assignments)
  friend bool operator==(const Child&, const Child&) = default;
};

enum class SplitPhase : uint8_t {
  barrier = 1,  // SPLIT is committed; writers begin to include the children
  filling = 2,  // the barrier has passed (INITIALIZE); children on other servers are being filled
};

// Everything a split needs, fixed in the transaction that begins it (S39).
struct Split {
  AttemptId attempt;
  std::string point;  // low = [begin, point), high = [point, end)
  Child low, high;
  SplitPhase phase = SplitPhase::barrier;
  TxnSeq since;  // txnseq of SPLIT: the barrier is `observed` at or past this
  CANTLE_FIELDS(attempt, point, low, high, phase, since)
  friend bool operator==(const Split&, const Split&) = default;
};

// Everything a merge needs, fixed in the transaction that begins it. Both of the neighbours have the same one. The
// target stands on the servers of both, which are the same: no record moves. In push tables its barrier is `observed`
// at or past `since`.
struct Merge {
  AttemptId attempt;
  PartitionId low, high;  // low.end == high.begin
  Child target;
  TxnSeq since;  // txnseq of MERGE
  CANTLE_FIELDS(attempt, low, high, target, since)
  friend bool operator==(const Merge&, const Merge&) = default;
};

// A replica slot being moved: REPLACE and, later, moves. The assignments carry the details.
struct Move {
  AttemptId attempt;
  AssignmentId from, to;
  bool from_dead = false;  // REPLACE: nothing is expected of the source
  TxnSeq since;
  // In quorum tables: the txnseq at which it was cancelled; 0: it was not. It is over when the leader has said, in a
  // government of that map or a newer one, that the old one votes and the new one does not.
  TxnSeq cancelled{};
  CANTLE_FIELDS(attempt, from, to, from_dead, since, cancelled)
  friend bool operator==(const Move&, const Move&) = default;
};

struct Partition {
  PartitionId id;
  Region region;
  Interval interval;
  PartitionState state = PartitionState::active;
  TxnSeq min_txnseq;   // txnseq of the last change of this entry: callers with an older map are sent back
  PartitionId parent;  // the partition it was split from, the lower one of those it was merged from; none for the first
  Region parent_region;
  std::vector<Assignment> assignments;  // in slot order; a replacement stands behind the replaced
  std::optional<Split> split;
  std::vector<Move> moves;
  std::optional<Merge> merge = {};
  PartitionId parent_high = {};  // the higher one of those it was merged from; none: it was not
  CANTLE_FIELDS(id, region, interval, state, min_txnseq, parent, parent_region, assignments, split, moves, merge,
                parent_high)

  bool made_by_merge() const { return !parent_high.none(); }
  friend bool operator==(const Partition&, const Partition&) = default;
};

// Where the log of a quorum table's parent ended: its children's begin behind it, or the one that it was merged into.
struct CutEnd {
  LogPoint at;
  Epoch epoch;  // of the parent's last government: the children's are above it
  CANTLE_FIELDS(at, epoch)
  friend bool operator==(const CutEnd&, const CutEnd&) = default;
};

// What is left of a partition after FINALIZE_SPLIT or FINALIZE_MERGE: a server that was away learns from it that its
// copy of the parent is to be divided, or joined with its neighbour's, and a replica that is being filled what the
// parent's copies can give it. Kept
// until every server in `parent_assignments` has published an `observed` at or past `at`, or holds nothing of this
// table any more, and no such replica is left (being_filled() in lib/model/metadata.h).
struct EndedPartition {
  PartitionId id;
  Region region;
  Interval interval;
  AttemptId attempt;
  std::string point;      // of a split
  PartitionId low, high;  // the children of a split
  TxnSeq at;              // txnseq of FINALIZE_SPLIT or FINALIZE_MERGE
  std::vector<Assignment> parent_assignments;
  std::optional<CutEnd> cut = {};  // of a quorum table's
  PartitionId into = {};           // of a merge: the target; none: it was split
  CANTLE_FIELDS(id, region, interval, attempt, point, low, high, at, parent_assignments, cut, into)

  bool was_merged() const { return !into.none(); }
  friend bool operator==(const EndedPartition&, const EndedPartition&) = default;
};

// Of a quorum table: who should vote, one for each slot. Where one is being replaced: the new one, from INITIALIZING on
// (whoever leads lets it vote only when it has everything that is committed), unless that was cancelled.
std::vector<const Assignment*> should_vote(const Partition& partition);
const Assignment* find_assignment(const Partition& partition, const ServerId& server);
const Assignment* find_assignment(const Partition& partition, const AssignmentId& id);
// Not active: it is being split or merged.
inline bool being_reshaped(const Partition& p) { return p.state != PartitionState::active || p.split || p.merge; }
// A replica of it is being filled.
bool being_filled(const Partition& partition);
// The move that replaces it, if that was cancelled and is not over yet. Null: none is.
const Move* cancelled_move(const Partition& partition, const AssignmentId& from);
// A move that was cancelled goes on, since its source is gone (S60); until the new one is AVAILABLE.
bool taken_up_again(const Partition& partition, const Move& move);
// Its server was called dead, and what takes its place is AVAILABLE: no write waits for it any more, be it alive or
// not, so that no majority read may count it.
bool given_up(const Partition& partition, const AssignmentId& id);

}  // namespace cantle::model

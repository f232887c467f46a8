// Operation: what can happen to a table's METADATA, and apply(), which makes it happen.
//
// A transaction is an ordered list of operations, all or nothing. Each names what it expects by id
// (partition, attempt, assignment), so that it can be replayed on a newer base: on another base it
// either means the same or is refused. Everything random is drawn by the requester and stands in the
// operation, so apply() is a pure function and every metadata server computes the same bytes.
//
// Use
//   ApplyContext ctx{.txnid = …, .change = …, .base_hash = …};
//   TRY_ASSIGN(auto next, apply(&base, operations, ctx));     // base null: the first must be CreateTable
//
// Errors of apply(); `detail` is the name of the rule
//   conflict   the precondition does not hold (any more): look again, decide again
//   invalid    it can hold on no base (a split point outside the interval, a server named twice), or the
//              result breaks a rule of validate()
//
// What changes an entry sets its min_txnseq to the new txnseq.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/result.h"
#include "lib/model/metadata.h"

namespace cantle::model {

// A replica to be: its slot is its place in the list.
struct NewAssignment {
  ServerId server;
  AssignmentId id;
  CANTLE_FIELDS(server, id)
  friend bool operator==(const NewAssignment&, const NewAssignment&) = default;
};

namespace ops {

struct NewPartition {
  PartitionId id;
  Interval interval;
  std::vector<NewAssignment> assignments;
  CANTLE_FIELDS(id, interval, assignments)
  friend bool operator==(const NewPartition&, const NewPartition&) = default;
};

// The table's first file. Its partitions begin active, their assignments AVAILABLE: there is nothing to copy.
struct CreateTable {
  std::string name;
  TableUuid table;
  Keyspace keyspace = Keyspace::range;
  Replication replication = Replication::push;
  uint32_t replicas = 3;
  std::map<std::string, std::string> options;
  std::vector<NewPartition> partitions;  // in key order, covering the keyspace
  CANTLE_FIELDS(name, table, keyspace, replication, replicas, options, partitions)
  friend bool operator==(const CreateTable&, const CreateTable&) = default;
};

// The last one. Refused without accept_loss: the data goes to the trash without proof.
struct DropTable {
  bool accept_loss = false;
  CANTLE_FIELDS(accept_loss)
  friend bool operator==(const DropTable&, const DropTable&) = default;
};

// See lib/model/table_config.h for the options there are.
struct SetOption {
  std::string name;
  std::optional<std::string> value;  // nullopt: back to the default
  CANTLE_FIELDS(name, value)
  friend bool operator==(const SetOption&, const SetOption&) = default;
};

struct NewChild {
  PartitionId id;
  std::vector<NewAssignment> assignments;
  CANTLE_FIELDS(id, assignments)
  friend bool operator==(const NewChild&, const NewChild&) = default;
};
// Expects: the partition active, with no split and no move. Begins at phase `barrier` (S39). A child assignment on
// a server that holds the parent gets the parent's assignment there as its source. The children of a quorum table stand
// on the parent's servers, all of them.
struct SplitPartition {
  PartitionId partition;
  AttemptId attempt;
  std::string point;
  NewChild low, high;
  CANTLE_FIELDS(partition, attempt, point, low, high)
  friend bool operator==(const SplitPartition&, const SplitPartition&) = default;
};

// Of a split or a move: the barrier has passed. Expects it before the barrier. What has to be filled becomes
// INITIALIZING. (Of a merge nothing has to be filled: its target stands where both stand.)
struct Initialize {
  PartitionId partition;
  AttemptId attempt;
  CANTLE_FIELDS(partition, attempt)
  friend bool operator==(const Initialize&, const Initialize&) = default;
};

// Expects phase `filling`, and in `ready` a majority of each child's assignments. Of those one with a source needs
// that source AVAILABLE, one without must itself be AVAILABLE. These, and what is AVAILABLE anyway, enter AVAILABLE,
// all others INITIALIZING.
// Parent out, children in, in one transaction (S41); the parent is remembered in `ended`.
//
// Of a quorum table it names the cut, and the parent's government in which its leader reported that the cut is
// committed; whoever commits it checks that the government's node has that version still. All assignments of the
// children enter AVAILABLE then: their governments count them from the beginning, and who has nothing yet votes with an
// empty log.
struct FinalCut {
  LogPoint at;
  Epoch epoch;  // of that government: the children's are above it
  int32_t government_version = 0;
  CANTLE_FIELDS(at, epoch, government_version)
  friend bool operator==(const FinalCut&, const FinalCut&) = default;
};
struct FinalizeSplit {
  PartitionId partition;
  AttemptId attempt;
  std::vector<AssignmentId> ready;
  std::optional<FinalCut> cut = {};
  CANTLE_FIELDS(partition, attempt, ready, cut)
  friend bool operator==(const FinalizeSplit&, const FinalizeSplit&) = default;
};

struct AbortSplit {
  PartitionId partition;
  AttemptId attempt;
  CANTLE_FIELDS(partition, attempt)
  friend bool operator==(const AbortSplit&, const AbortSplit&) = default;
};

// Makes one partition of two. Expects that `high` begins where `low` ends, both
// active with no split, move or merge, all their assignments AVAILABLE, both and the target's assignments on the same
// servers.
struct MergePartitions {
  AttemptId attempt;
  PartitionId low, high;
  NewChild target;
  CANTLE_FIELDS(attempt, low, high, target)
  friend bool operator==(const MergePartitions&, const MergePartitions&) = default;
};

// Expects in `ready` a majority of the target's assignments, and in a quorum table both cuts. Both out, the target in,
// in one transaction; both are remembered in `ended`. All of the target's assignments enter AVAILABLE.
//
// Of a quorum table those who are ready have both cuts on disk: a cut alone is on a majority, but two of these may
// share a single server. Whoever commits it checks that both governments' nodes have those versions still. Its
// government counts all of the target's from the beginning, and who has not both cuts votes with an empty log.
//
// Of a push table those who are ready have observed the MERGE: they hold both, and join them on seeing this. What one
// has not sent to another yet it sends from its logs of the two (lib/proto/mover.h).
struct FinalCuts {
  FinalCut low, high;
  CANTLE_FIELDS(low, high)
  friend bool operator==(const FinalCuts&, const FinalCuts&) = default;
};
struct FinalizeMerge {
  AttemptId attempt;
  PartitionId low, high;
  std::vector<AssignmentId> ready;
  std::optional<FinalCuts> cuts = {};
  CANTLE_FIELDS(attempt, low, high, ready, cuts)
  friend bool operator==(const FinalizeMerge&, const FinalizeMerge&) = default;
};

struct AbortMerge {
  AttemptId attempt;
  PartitionId low, high;
  CANTLE_FIELDS(attempt, low, high)
  friend bool operator==(const AbortMerge&, const AbortMerge&) = default;
};

// Begins to replace assignment `from` by a new one, PROPOSED in the same slot. Expects the partition active, no split
// and no other move in it, `from` AVAILABLE or INITIALIZING, `to.server` with no assignment in it (S55); and, unless
// `from` is dead or itself being filled, no replica that is being filled.
// Of a dead one whose move was cancelled and is not over, with that move's target: the move goes on, as this attempt.
struct Replace {
  PartitionId partition;
  AttemptId attempt;
  AssignmentId from;
  NewAssignment to;
  bool from_dead = false;  // nothing is expected of the source
  CANTLE_FIELDS(partition, attempt, from, to, from_dead)
  friend bool operator==(const Replace&, const Replace&) = default;
};

// The assignment has been filled. Expects it INITIALIZING: in a move (the replaced one becomes LEAVING if it was
// AVAILABLE), as a child of a split, or left so by a FINALIZE_SPLIT. Already AVAILABLE is success and changes nothing,
// since the server asks again when it lost the answer.
struct MarkAvailable {
  AssignmentId assignment;
  ServerId server;  // must be its server
  CANTLE_FIELDS(assignment, server)
  friend bool operator==(const MarkAvailable&, const MarkAvailable&) = default;
};

// Removes the source of a move whose target is AVAILABLE. In a quorum table the requester has seen that the source does
// not vote.
struct FinalizeMove {
  PartitionId partition;
  AttemptId attempt;
  CANTLE_FIELDS(partition, attempt)
  friend bool operator==(const FinalizeMove&, const FinalizeMove&) = default;
};

// Back to exactly what was. Refused once the replacement of a dead one is AVAILABLE (given_up() in partition.h).
// In a quorum table the new one may have a vote from INITIALIZING on. Then this only says that the move is cancelled,
// for whoever leads to act on; with `undone` it removes the new one: the requester has seen the government that says
// so.
struct CancelMove {
  PartitionId partition;
  AttemptId attempt;
  bool undone = false;
  CANTLE_FIELDS(partition, attempt, undone)
  friend bool operator==(const CancelMove&, const CancelMove&) = default;
};

// A server is gone for good: ended partitions do not wait for it any more. Expects that it holds no assignment of a
// partition or of a child (REPLACE comes first).
struct RemoveDead {
  ServerId server;
  CANTLE_FIELDS(server)
  friend bool operator==(const RemoveDead&, const RemoveDead&) = default;
};

// Forgets an ended partition. The requester has seen that every server in it observed its end. Expects that no replica
// is being filled that may need to know of it (being_filled() in lib/model/metadata.h).
struct SweepEnded {
  PartitionId partition;
  AttemptId attempt;
  CANTLE_FIELDS(partition, attempt)
  friend bool operator==(const SweepEnded&, const SweepEnded&) = default;
};

}  // namespace ops

using Operation = std::variant<ops::CreateTable, ops::DropTable, ops::SetOption, ops::SplitPartition, ops::Initialize,
                               ops::FinalizeSplit, ops::AbortSplit, ops::Replace, ops::MarkAvailable, ops::FinalizeMove,
                               ops::CancelMove, ops::RemoveDead, ops::SweepEnded, ops::MergePartitions,
                               ops::FinalizeMerge, ops::AbortMerge>;

// "SPLIT", "FINALIZE_MOVE" … ; also what an operation is called on the wire.
std::string_view operation_name(const Operation& operation);
// One line for logs and `explain`: "SPLIT partition=… attempt=… at=m".
std::string to_string(const Operation& operation);

constexpr size_t kOperationsMax = 1000;  // in one transaction
constexpr uint32_t kReplicasMax = 9;
constexpr uint32_t kQuorumReplicasMax = 7;  // of a quorum table; an odd number
constexpr size_t kPartitionsAtCreation = 16384;

struct ApplyContext {
  TxnId txnid;  // of the new file
  ChangeId change;
  std::string base_hash;  // root hash of the base; empty for CREATE_TABLE
};

// The next file, validated (lib/model/validate.h). Its txnseq is the base's + 1.
base::Result<Metadata> apply(const Metadata* base, std::span<const Operation> operations, const ApplyContext& context);

// Draw the ids of a new operation. `low` and `high` empty: the servers of the parent, slot for slot.
ops::SplitPartition draw_split(const Partition& parent, std::string point, const std::vector<ServerId>& low,
                               const std::vector<ServerId>& high, base::Random& random);
// The target's slots are those of `low`.
ops::MergePartitions draw_merge(const Partition& low, const Partition& high, base::Random& random);
ops::Replace draw_replace(const Partition& partition, const Assignment& from, const ServerId& to, bool from_dead,
                          base::Random& random);
// To take up a cancelled move again.
ops::Replace draw_replace(const Partition& partition, const Move& cancelled, base::Random& random);

// Servers whose work changes with this step: those of changed partitions before and after, for map.changed.
std::vector<ServerId> servers_of_change(const Metadata* before, const Metadata& after);

}  // namespace cantle::model

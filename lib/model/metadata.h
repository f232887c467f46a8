// Metadata: the whole map of one table at one transaction (the METADATA file), and its nouns.
//
// Pure values. lib/model/operation.h changes them, lib/model/validate.h checks invariants 1 to 3,
// lib/wire/metadata_codec.h turns them into leaves and back.
//
// Invariants of a committed file (checked by validate())
//   * `partitions` is in key order and covers the keyspace exactly: no hole, no overlap (S41).
//   * No server twice in one partition; a slot holds one AVAILABLE or LEAVING assignment and at most
//     one PROPOSED or INITIALIZING that replaces it.
//   * Ids (partitions, regions, assignments, attempts) are unique in the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/bytes.h"
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
constexpr bool answers_reads(AssignmentState s) { return s == AssignmentState::available || s == AssignmentState::leaving; }

struct Assignment {
  ServerId server;
  AssignmentId id;
  uint32_t slot = 0;
  AssignmentState state = AssignmentState::proposed;
  AssignmentId source;  // the tenure it continues or replaces: for a split's child on a server of the parent, the
                        // parent's assignment there (nothing has to be copied); for a replacement, the replaced one
  TxnSeq since;         // txnseq at which it got this state
  CANTLE_FIELDS(server, id, slot, state, source, since)
  friend bool operator==(const Assignment&, const Assignment&) = default;
};

struct Child {
  PartitionId id;
  Region region;
  std::vector<Assignment> assignments;  // one a slot, fixed by SPLIT
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

// A replica slot being moved: REPLACE and, later, moves. The assignments carry the details.
struct Move {
  AttemptId attempt;
  AssignmentId from, to;
  bool from_dead = false;  // REPLACE: nothing is expected of the source
  TxnSeq since;
  CANTLE_FIELDS(attempt, from, to, from_dead, since)
  friend bool operator==(const Move&, const Move&) = default;
};

struct Partition {
  PartitionId id;
  Region region;
  Interval interval;
  PartitionState state = PartitionState::active;
  TxnSeq min_txnseq;  // txnseq of the last change of this entry: callers with an older map are sent back
  PartitionId parent;  // the partition it was split from; none for the first
  std::vector<Assignment> assignments;  // in slot order; a replacement stands behind the replaced
  std::optional<Split> split;
  std::vector<Move> moves;
  CANTLE_FIELDS(id, region, interval, state, min_txnseq, parent, assignments, split, moves)
  friend bool operator==(const Partition&, const Partition&) = default;
};

// What is left of a partition after FINALIZE_SPLIT: a server that was away learns from it that its
// copy of the parent is to be divided. Kept until every server in `parent_assignments` has published
// an `observed` at or past `at`, or holds nothing of this table any more.
struct EndedPartition {
  PartitionId id;
  Region region;
  Interval interval;
  AttemptId attempt;
  std::string point;
  PartitionId low, high;
  TxnSeq at;  // txnseq of FINALIZE_SPLIT
  std::vector<Assignment> parent_assignments;
  CANTLE_FIELDS(id, region, interval, attempt, point, low, high, at, parent_assignments)
  friend bool operator==(const EndedPartition&, const EndedPartition&) = default;
};

constexpr size_t kChangeIdsMax = 256;  // change ids kept in a file
constexpr uint32_t kFormatMin = 1, kFormatMax = 1;

struct Metadata {
  uint32_t format = kFormatMax;
  TableUuid table;
  std::string name;
  Keyspace keyspace = Keyspace::range;
  Replication replication = Replication::push;
  uint32_t replicas = 3;  // k
  TxnId txnid, prev_txnid;
  std::string prev_hash;  // SHA-256 of the predecessor's root, 32 bytes; empty for the first
  TxnSeq txnseq;
  bool dropped = false;
  Region next_region;  // the lowest region number never used
  std::vector<ChangeId> changes;  // of the last kChangeIdsMax transactions, newest last
  std::map<std::string, std::string> options;
  std::vector<Partition> partitions;  // in key order
  std::vector<EndedPartition> ended;  // in order of `at`
  CANTLE_FIELDS(format, table, name, keyspace, replication, replicas, txnid, prev_txnid, prev_hash, txnseq, dropped,
                next_region, changes, options, partitions, ended)
  friend bool operator==(const Metadata&, const Metadata&) = default;

  // The partition whose interval holds `routing_key`; null only for a file that fails validation.
  const Partition* find(std::string_view routing_key) const;
  const Partition* find(const PartitionId& id) const;
};

const Assignment* find_assignment(const Partition& partition, const ServerId& server);
const Assignment* find_assignment(const Partition& partition, const AssignmentId& id);

}  // namespace cantle::model

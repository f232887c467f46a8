// Recovery of a quorum table's partition whose majority is gone for good: what is asked of the replicas that are left,
// and the plan that an operator makes of it (lib/proto/quorum_recovery.h decides, `zkctl quorum recover` does it).
//
// Limits: a list of a type with a kListMax is refused by the codec where it is longer (lib/wire/codec.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/quorum.h"

namespace cantle::model {

constexpr size_t kCopyReportsMax = 64;

// How far one copy of a partition goes. Of a server that answers: now; from a data directory: as it lies there.
struct CopyReport {
  static constexpr size_t kListMax = kCopyReportsMax;
  ServerId server;
  Incarnation incarnation;
  TableUuid table;
  PartitionId partition;
  Region region;
  AssignmentId assignment;
  std::string state;  // leader, follower, voter, faulted, idle (it takes no part), aside (an older tenure), offline
  LogPoint end;       // of its log, durable
  Lsn commit;         // known to be committed there
  Epoch promised;     // by its newest seal
  Epoch highest;      // of any block or seal that was ever in its log
  std::vector<EpochStart> epochs;
  bool whole = true;  // false: a block of it cannot be read, or may be missing
  CANTLE_FIELDS(server, incarnation, table, partition, region, assignment, state, end, commit, promised, highest,
                epochs, whole)
  friend bool operator==(const CopyReport&, const CopyReport&) = default;
};

// quorum.report: what a server has of a partition of a quorum table, older tenures among it. Changes nothing.
struct QuorumReportRequest {
  PartitionId partition;
  CANTLE_FIELDS(partition)
};
struct QuorumReportReply {
  ServerId server;
  ClusterUuid cluster;
  std::vector<CopyReport> copies;  // none: it has none
  CANTLE_FIELDS(server, cluster, copies)
  friend bool operator==(const QuorumReportReply&, const QuorumReportReply&) = default;
};

// What is known of the loss before it happens. `none`: the copies that were seen share one with every majority, and the
// best of them stays. `possible`: what the others acknowledged behind `end` is gone, and nobody can say how much that
// is. `certain`: so much of it was told to be committed.
enum class LossKind : uint8_t { none = 1, possible, certain };
struct Loss {
  LossKind kind = LossKind::possible;
  LogPoint end;               // of the best log that stays
  uint64_t committed = 0;     // LSNs known to have been committed that no copy which stays has
  uint64_t unknown_fate = 0;  // further LSNs that were seen in copies that do not stay, committed or not
  friend bool operator==(const Loss&, const Loss&) = default;
};

// regions/<n>/recovered: the last recovery of the partition.
struct Recovered {
  AttemptId plan;
  Epoch epoch;  // of the government that it wrote
  Voters voters;
  Loss loss;
  uint64_t at_ms = 0;
  std::string by;
  friend bool operator==(const Recovered&, const Recovered&) = default;
};

// A plan names all that it was made of: it is applied to exactly that, or not at all.
struct RecoveryPlan {
  AttemptId id;
  ClusterUuid cluster;
  std::string table;
  TableUuid table_uuid;
  PartitionId partition;
  Region region;
  TxnSeq txnseq;                 // of the map that the voters are of
  int32_t version = 0;           // of the government that it replaces
  Epoch replaces;                // that one's epoch
  std::vector<CopyReport> stay;  // those that vote from then on: where their logs ended, what they had promised
  std::vector<ServerId> gone;    // voters and assigned servers that were not heard of
  Epoch epoch;                   // the new one, above every promise
  Voters voters;                 // those of `stay`
  Loss loss;
  friend bool operator==(const RecoveryPlan&, const RecoveryPlan&) = default;
};

}  // namespace cantle::model

// What a partd and its replpush tell each other over the partd's Unix socket (design/replication.md, "replpush").
//
//   mover.view   who the server is, the maps it has installed, what it holds, where the servers are, itself among
//                them: one moment
//   drop         replpush has proved that a copy is no longer needed (S54): DropRequest in client_messages.h
//
// and, from the partd to the replpush's socket, the notifications `map.changed` (MapChanged) and `wake` {}.
//
// A map is shown in a MoverView only after the writes that the server began under older maps have ended: replpush
// measures the log end after it has the map, and `bulk.end` rests on that order (S43).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/version.h"

namespace cantle::model {

struct MoverViewRequest {
  std::map<std::string, uint64_t> have;  // table name → txnseq of the map the asker holds; such a map is not sent again
  CANTLE_FIELDS(have)
};

struct TableView {
  std::string name;
  TableUuid uuid;
  TxnSeq txnseq;
  std::string map;  // as RouteReply::map; empty: the asker has it
  CANTLE_FIELDS(name, uuid, txnseq, map)
};

// A stamper's low water, as it told this server (PushWrite::settled): every record of the partition that it stamped
// in that incarnation at or below `version` is durable on every assignment that METADATA named at `txnseq`.
struct SettledMark {
  Version version;
  TxnSeq txnseq;
  CANTLE_FIELDS(version, txnseq)
};

// One copy that the server holds.
struct HeldPartition {
  std::string table;
  TableUuid table_uuid;
  PartitionId partition;
  Region region;
  AssignmentId assignment;  // the tenure it is held under
  Interval interval;        // what of it is held; of an ended parent, what went to children that are not here
  // The server was positively told (UNLOAD, the end of a split, a replacement) that it should not keep this copy:
  // push the rest, prove, drop. Never inferred from an entry that is missing.
  bool unload = false;
  std::vector<SettledMark> settled;
  bool hollow = false;       // some of it came in a snapshot: its log does not have all of it
  bool catching_up = false;  // since a start: it serves nothing before the others have brought what it missed
  CANTLE_FIELDS(table, table_uuid, partition, region, assignment, interval, unload, settled, hollow, catching_up)
};

struct PeerView {
  ServerId server;
  std::string tcp;  // host:port
  Incarnation incarnation;
  ServerNumber number;  // 0: not known; tells whose records carry it in their versions
  bool live = false;    // registered under nodes/active, as far as this server knows
  CANTLE_FIELDS(server, tcp, incarnation, number, live)
};

struct MoverView {
  ServerId self;
  ClusterUuid cluster;
  ServerNumber number;
  Incarnation incarnation;
  std::vector<TableView> tables;
  std::vector<HeldPartition> held;
  std::vector<PeerView> peers;
  CANTLE_FIELDS(self, cluster, number, incarnation, tables, held, peers)
};

// --- Over the replpush's own socket ------------------------------------------------------------------
// list: the streams whose ids follow `after`, and every proof.
struct PushListRequest {
  std::string after;   // PushStreamRow::id of the last row in hand; empty: from the first
  uint32_t limit = 0;  // rows; 0: kPushRowsMax
  CANTLE_FIELDS(after, limit)
};
constexpr uint32_t kPushRowsMax = 1000;

struct PushStreamRow {
  std::string id;  // hex of the own and of the target assignment
  std::string table;
  PartitionId source, partition;  // whose log is read; where the target belongs
  ServerId server;
  AssignmentId own, target;
  std::string state, why;
  bool caught_up = false;
  Lsn confirmed, end;
  bool snapshot = false;  // one is under way
  uint64_t sent_bytes = 0;
  uint64_t retry_in_ms = 0;
  CANTLE_FIELDS(id, table, source, partition, server, own, target, state, why, caught_up, confirmed, end, snapshot,
                sent_bytes, retry_in_ms)
};
struct PushProofRow {
  std::string table;
  PartitionId partition;
  AssignmentId assignment;
  std::string state, why;
  uint64_t proved = 0;
  CANTLE_FIELDS(table, partition, assignment, state, why, proved)
};
struct PushList {
  std::vector<PushStreamRow> streams;
  std::vector<PushProofRow> proofs;  // of copies that are to be dropped; with the first rows only
  std::vector<std::string> holds;    // what operators hold; "" stands for all
  bool more = false;
  bool all_done = false;  // everything is through, nothing is to be proved
  std::string paused;     // why nothing moves at all; empty: it does
  CANTLE_FIELDS(streams, proofs, holds, more, all_done, paused)
};
// hold, release, requeue, wake: empty for all; else a table, a server, or at least four digits of a partition or
// assignment id.
struct PushAsk {
  std::string which;
  CANTLE_FIELDS(which)
};
struct PushAsked {
  uint64_t streams = 0;  // that it concerned
  CANTLE_FIELDS(streams)
};

}  // namespace cantle::model

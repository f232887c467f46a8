// What a partd and its replpush tell each other over the partd's Unix socket (design/replication.md, "replpush").
//
//   mover.view   who the server is, the maps it has installed, what it holds, where its peers are: one moment
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
  CANTLE_FIELDS(table, table_uuid, partition, region, assignment, interval, unload, settled)
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

}  // namespace cantle::model

// Messages between clients and partd: the one-map `params` of a request and its result, as plain structs.
//
// lib/wire/codec.h turns them into MessagePack and back; cantle-protocol(7) documents every field.
// Requests carry the txnseq of the caller's map (0: it has none): below the partition's min_txnseq the
// answer is STALE_ROUTE with the current one; above what the server knows, it fetches the map first.
// A push table's record key is its routing key in a range table.
//
// A write to a quorum table may say which of its client's it is (lib/model/series.h), so that it takes effect once
// however often it is sent: `client` and `series`, both or neither; `series_low`, the lowest number that the client
// still waits for, at most kSeriesWindow - 1 below `series`, so that what is waited for is never forgotten; `age_ms`
// since the request was first sent, 0 when it is. 0: not said. Push tables pass them over.
//
// Units: *_ms are milliseconds; deadline_ms counts from the arrival of the request (0: the server's
// default, kDeadlineDefaultMs), and is never more than kDeadlineMaxMs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/metadata.h"
#include "lib/model/record.h"
#include "lib/model/version.h"

namespace cantle::model {

// How many replica slots must have confirmed a write, or answered a read. The last three are reads' of quorum tables,
// where majority and all mean linearizable, and one means any; a write there is on a majority, whichever of one and
// majority was asked for.
enum class Level : uint8_t {
  one = 1,
  majority = 2,
  all = 3,
  linearizable = 4,  // the leader's, under its lease
  session = 5,       // any replica's that has all that this client saw: `session` in the request
  any = 6,           // any replica's, with its lag in the answer
};
constexpr bool is_push_level(Level level) { return level <= Level::all; }
constexpr bool is_linearizable(Level level) {
  return level == Level::linearizable || level == Level::majority || level == Level::all;
}
std::string_view to_string(Level level);

constexpr uint32_t kDeadlineDefaultMs = 5000;
constexpr uint32_t kDeadlineMaxMs = 30000;
constexpr uint32_t kScanRecordsMax = 10000;            // records in one answer
constexpr uint32_t kScanBytesMax = uint32_t{1} << 20;  // keys and values in one answer; at least one record fits
constexpr uint32_t kSamplePointsMax = 1024;
constexpr size_t kBatchBytesMax = kBlockMax - (size_t{64} << 10);  // encoded records of one batch

// --- get ------------------------------------------------------------------------------------------
struct GetRequest {
  std::string table, key;
  TxnSeq txnseq;
  Level level = Level::one;
  bool hop = true;  // pass it on to the right server, at most once
  uint32_t deadline_ms = 0;
  std::optional<uint64_t> session;  // level session: the highest LSN of the partition that this client was told
  CANTLE_FIELDS(table, key, txnseq, level, hop, deadline_ms, session)
};
// A key that is not there is the error NOT_FOUND.
struct GetReply {
  std::string value;
  Version version;
  std::optional<uint64_t> lsn{};     // quorum tables: what was read is the partition as of here, or later
  std::optional<uint64_t> lag_ms{};  // levels session and any: since the leader last said how far it is
  CANTLE_FIELDS(value, version, lsn, lag_ms)
};

// --- put, delete, batch ---------------------------------------------------------------------------
// `version`: of an OUTCOME_UNKNOWN answer (its `detail`, in hex) to repeat the same write; 20 bytes.
// `after`: the newest version that this client wrote or read; the new one is stamped above it, whichever server takes
// it and whatever its clock says. 20 bytes.
struct PutRequest {
  std::string table, key, value;
  TxnSeq txnseq;
  Level level = Level::majority;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<Version> version, after;
  std::optional<uint64_t> client{}, series{}, series_low{}, age_ms{};
  CANTLE_FIELDS(table, key, value, txnseq, level, hop, deadline_ms, version, after, client, series, series_low, age_ms)
};
struct DeleteRequest {
  std::string table, key;
  TxnSeq txnseq;
  Level level = Level::majority;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<Version> version, after;
  std::optional<uint64_t> client{}, series{}, series_low{}, age_ms{};
  CANTLE_FIELDS(table, key, txnseq, level, hop, deadline_ms, version, after, client, series, series_low, age_ms)
};
struct BatchOp {
  Op op = Op::put;
  std::string key, value;
  CANTLE_FIELDS(op, key, value)
};
// All of it or nothing, with one version, in one partition. A key named twice: INVALID.
struct BatchRequest {
  std::string table;
  std::vector<BatchOp> ops;  // 1 to kBatchRecordsMax
  TxnSeq txnseq;
  Level level = Level::majority;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<Version> version, after;
  std::optional<uint64_t> client{}, series{}, series_low{}, age_ms{};
  CANTLE_FIELDS(table, ops, txnseq, level, hop, deadline_ms, version, after, client, series, series_low, age_ms)
};
struct WriteReply {
  Version version;
  Lsn lsn;                          // in the log of the server that took it; in a quorum table, in the partition's
  Epoch epoch;                      // that server's incarnation; in a quorum table, that of the leader who wrote it
  TxnSeq txnseq;                    // of the map it acted on
  std::optional<int64_t> result{};  // incr: the new value; append: the new length
  std::optional<bool> repeat{};     // true: it was written before, and this is what was answered then
  CANTLE_FIELDS(version, lsn, epoch, txnseq, result, repeat)
};

// --- cas, append, incr: quorum tables --------------------------------------------------------------
// What a cas expects of the key: exactly one of the three.
struct Expect {
  std::optional<Version> version;    // of the newest record; 20 bytes
  std::optional<std::string> value;  // at most kValueMax
  bool absent = false;               // not there, or deleted
  CANTLE_FIELDS(version, value, absent)
};
// Puts or deletes the key if it is as expected: else CONDITION_FAILED, with the version that it has in `detail`, in
// hex; empty: it is not there.
struct CasRequest {
  std::string table, key, value;
  Op op = Op::put;
  Expect expect;
  TxnSeq txnseq;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<uint64_t> client{}, series{}, series_low{}, age_ms{};
  CANTLE_FIELDS(table, key, value, op, expect, txnseq, hop, deadline_ms, client, series, series_low, age_ms)
};
// Adds bytes at the end of the value; a key that is not there has an empty one. TOO_LARGE: it would be over kValueMax.
struct AppendRequest {
  std::string table, key, value;
  TxnSeq txnseq;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<uint64_t> client{}, series{}, series_low{}, age_ms{};
  CANTLE_FIELDS(table, key, value, txnseq, hop, deadline_ms, client, series, series_low, age_ms)
};
// Adds to the value, a signed 64-bit number in decimal; a key that is not there has 0. INVALID: it is no such number,
// or would be none.
struct IncrRequest {
  std::string table, key;
  int64_t by = 1;
  TxnSeq txnseq;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<uint64_t> client{}, series{}, series_low{}, age_ms{};
  CANTLE_FIELDS(table, key, by, txnseq, hop, deadline_ms, client, series, series_low, age_ms)
};

// The writes of a request, as views into what came: put, delete and batch are `write`.
enum class WriteKind : uint8_t { write, cas, append, incr };
struct WriteOp {
  Op op = Op::put;
  std::string_view key, value;  // append: what is added
};
struct ExpectView {
  std::optional<Version> version;
  std::optional<std::string_view> value;
  bool absent = false;
};

// --- scan -----------------------------------------------------------------------------------------
// Records of [begin, end) in key order, or from the end downwards. An answer covers at most one
// partition; go on with its cursor until there is none. The cursor names the last key and the LSN it
// partition; go on with its cursor until there is none. The cursor names the last key and the LSN it
// was read at, never a partition, so it survives splits and moves (S47).
//
// A consistent scan of a quorum table sees one state of each partition, as of the `lsn` of the answers: at level
// linearizable, with all that was acknowledged before the first of them was asked for. The server that gave that keeps
// it for kScanKeptIdle from page to page, kScanKeptMost in all; the cursor names it, and it alone goes on:
// SNAPSHOT_TOO_OLD once it does not have it any more.
constexpr base::Duration kScanKeptIdle = std::chrono::seconds(10), kScanKeptMost = std::chrono::seconds(50);
struct ScanRequest {
  std::string table, begin, end;
  bool reverse = false;
  uint32_t limit = 0;  // records in the answer; 0: kScanRecordsMax
  uint32_t bytes = 0;  // of keys and values in the answer; 0: kScanBytesMax; one record always fits
  std::string cursor;  // of the answer before; empty: start
  Level level = Level::one;
  bool keys_only = false;
  TxnSeq txnseq;
  bool hop = true;
  uint32_t deadline_ms = 0;
  std::optional<uint64_t> session;  // as in GetRequest
  bool consistent = false;
  CANTLE_FIELDS(table, begin, end, reverse, limit, bytes, cursor, level, keys_only, txnseq, hop, deadline_ms, session,
                consistent)
};
struct ScanRecord {
  std::string key, value;
  Version version;
  CANTLE_FIELDS(key, value, version)
};
struct ScanReply {
  std::vector<ScanRecord> records;
  std::string cursor;  // empty: nothing is left
  Lsn lsn;             // the answer shows the partition as of this LSN of the answering server
  TxnSeq txnseq;
  std::optional<uint64_t> lag_ms{};  // as in GetReply
  CANTLE_FIELDS(records, cursor, lsn, txnseq, lag_ms)
};

// What a cursor says. Forward: go on at `bound`, inclusive. Reverse: go on below `bound` (empty: from the
// end of the keyspace). It is bytes to others; whoever routes by itself may look.
struct ScanCursor {
  bool reverse = false;
  std::string bound;
  Lsn lsn;
  // Of a consistent scan in the middle of a partition: the state that it goes on in, and the server that keeps it.
  uint64_t kept = 0;
  ServerId server{};
  friend bool operator==(const ScanCursor&, const ScanCursor&) = default;
};
std::string encode_cursor(const ScanCursor& cursor);
base::Result<ScanCursor> decode_cursor(std::string_view bytes);  // invalid: not one of ours
// The routing key whose partition answers next: the first key of a forward scan; the upper bound of a
// reverse one, with `below` set (the partition that holds the keys just below it).
struct ScanStart {
  std::string bound;
  bool below = false;
};
base::Result<ScanStart> scan_start(const ScanRequest& request);
// The partition of `map` that answers next.
const Partition* scan_partition(const Metadata& map, const ScanStart& start);

// --- route ----------------------------------------------------------------------------------------
struct RouteRequest {
  std::string table;
  std::optional<std::string> key;  // of this key alone
  bool full = false;               // the whole map in `map`: the newest one whose older writes have ended here
  TxnSeq txnseq;
  uint32_t deadline_ms = 0;
  CANTLE_FIELDS(table, key, full, txnseq, deadline_ms)
};
struct RouteServer {
  ServerId server;
  uint32_t slot = 0;
  AssignmentState state = AssignmentState::proposed;
  std::string tcp, unix_path;  // empty: not known
  bool live = false;           // registered now, as far as this server knows
  CANTLE_FIELDS(server, slot, state, tcp, unix_path, live)
};
struct RoutePartition {
  PartitionId id;
  Region region;
  Interval interval;
  PartitionState state = PartitionState::active;
  TxnSeq min_txnseq;
  std::vector<RouteServer> servers;
  CANTLE_FIELDS(id, region, interval, state, min_txnseq, servers)
};
struct RouteReply {
  std::string table;
  TableUuid table_uuid;
  TxnSeq txnseq;
  std::vector<RoutePartition> partitions;  // one with `key`; none with `full`
  std::string map;                         // full: the METADATA as lib/wire/metadata_codec.h encodes a whole map
  CANTLE_FIELDS(table, table_uuid, txnseq, partitions, map)
};

// --- status ---------------------------------------------------------------------------------------
struct StatusRequest {
  std::string table;  // empty: all
  CANTLE_FIELDS(table)
};
// How a leader sees another replica.
struct StatusReplica {
  ServerId server;
  std::string state;  // waiting, opening, finding, cutting, trailing, joined, outside, faulted
  Lsn acked;          // durable there, and known to be the leader's
  std::string why;    // it is not joined
  CANTLE_FIELDS(server, state, acked, why)
};
// Of a quorum table's replica.
struct StatusQuorum {
  Epoch epoch;            // of the government that it acts under
  ServerId leader;        // empty: it knows of none
  Lsn commit;             // known to be committed; of its log's `end`
  std::string doing;      // what its election is at: leads, follows, suspects, seals, votes, …
  uint64_t since_ms = 0;  // a leader's: how long it has led
  uint64_t lease_ms = 0;  // a leader's: how long its reads are good without another answer; 0: they are not
  uint64_t heard_ms = 0;  // not a leader's: since the leader last said how far the log is
  std::vector<StatusReplica> replicas;  // a leader's: the others
  std::string run;    // seek, synchronize, join, faulted, shutdown (design/replication.md, "resynchronisation")
  Epoch promised;     // it obeys no government below
  bool whole = true;  // false: a block of its log cannot be read, or may be missing
  CANTLE_FIELDS(epoch, leader, commit, doing, since_ms, lease_ms, heard_ms, replicas, run, promised, whole)
};
struct StatusPartition {
  PartitionId id;
  Region region;
  AssignmentId assignment;
  Interval interval;
  std::string role;   // proposed, initializing, available, leaving; child (of a split), kept (an old tenure), late (of
                      // an ended parent), unknown
  std::string state;  // serving, catching_up, filling, creating, dividing, kept
  LogPoint end;       // durable end of its log
  Lsn applied;        // in the index
  std::optional<StatusQuorum> quorum{};
  CANTLE_FIELDS(id, region, assignment, interval, role, state, end, applied, quorum)
};
struct StatusTable {
  std::string name;
  TableUuid uuid;
  TxnSeq txnseq;    // of the installed map
  TxnSeq observed;  // writes under maps older than this have ended
  std::vector<StatusPartition> partitions;
  CANTLE_FIELDS(name, uuid, txnseq, observed, partitions)
};
struct StatusPeer {
  ServerId server;
  bool live = false, linked = false;
  Incarnation incarnation;
  std::optional<int64_t> clock_offset_ms;  // its clock minus ours
  CANTLE_FIELDS(server, live, linked, incarnation, clock_offset_ms)
};
struct StatusCount {
  std::string name;
  uint64_t value = 0;
  CANTLE_FIELDS(name, value)
};
struct StatusReply {
  ServerId server;
  std::string role = "partd", software, cluster;
  ClusterUuid cluster_uuid;
  Incarnation incarnation;
  ServerNumber number;
  bool ready = false;
  std::string read_only;   // the reason; empty: takes writes
  std::string coord;       // connected | disconnected
  std::string pusher;      // attached | awaited (just started) | missing: the replpush beside it
  uint64_t pusher_ms = 0;  // since it last asked, or since the start if it never did
  uint64_t uptime_ms = 0;
  std::optional<int64_t> clock_offset_ms;  // median of the peers' clocks minus ours
  std::vector<StatusTable> tables;
  std::vector<StatusPeer> peers;
  std::vector<StatusCount> counts;  // journal, overlay, index, requests: names in cantle-protocol(7)
  CANTLE_FIELDS(server, role, software, cluster, cluster_uuid, incarnation, number, ready, read_only, coord, pusher,
                pusher_ms, uptime_ms, clock_offset_ms, tables, peers, counts)
};

// --- hash -----------------------------------------------------------------------------------------
// Content hashes of what this server holds, as of `applied`, which is everything durable when it asked.
struct HashRequest {
  std::string table;
  PartitionId partition;  // none: every one held here
  uint32_t deadline_ms = 0;
  CANTLE_FIELDS(table, partition, deadline_ms)
};
struct HashPartition {
  PartitionId id;
  Region region;
  AssignmentId assignment;
  Interval interval;
  uint64_t records = 0, tombstones = 0;  // live records, and deletes that are remembered
  uint64_t bytes = 0;                    // keys and values of live records
  std::string hash;                      // 16 bytes: sum modulo 2^128 of hash(key, version, value) over both
  Lsn applied;
  bool serving = false;  // answers reads
  // Of a quorum table's copy, `applied` is a place in the one log that all have: what stands there is the same. Whether
  // it is the leader's, who has all that is committed; a push table's: not said.
  std::optional<bool> leads{};
  CANTLE_FIELDS(id, region, assignment, interval, records, tombstones, bytes, hash, applied, serving, leads)
};
struct HashReply {
  TxnSeq txnseq;
  std::vector<HashPartition> partitions;
  CANTLE_FIELDS(txnseq, partitions)
};

// --- sample ---------------------------------------------------------------------------------------
// Quantiles by bytes of a partition held here: where to split it.
struct SampleRequest {
  std::string table;
  PartitionId partition;
  uint32_t points = 1;  // keys wanted, evenly spaced by bytes; at most kSamplePointsMax
  uint32_t deadline_ms = 0;
  CANTLE_FIELDS(table, partition, points, deadline_ms)
};
struct SamplePoint {
  std::string key;
  uint64_t bytes_below = 0;
  CANTLE_FIELDS(key, bytes_below)
};
struct SampleReply {
  std::vector<SamplePoint> points;  // ascending, distinct, never the first or the last key; may be fewer than asked
  std::string first, last;          // keys; empty: no records
  uint64_t bytes = 0, records = 0;
  CANTLE_FIELDS(points, first, last, bytes, records)
};

// --- drop, drain ----------------------------------------------------------------------------------
// drop: a mover asks partd to put a proved copy into trash. Refused with CONFLICT unless the newest map agrees
// that this server should not keep it, nothing that concerns it changed since `txnseq`, and its log ends where
// it was proved to (S54); the proof is then made again.
struct DropRequest {
  std::string table;
  TableUuid table_uuid;
  PartitionId partition;
  AssignmentId assignment;  // the tenure that was proved
  TxnSeq txnseq;            // of the map under which it was proved
  LogPoint proved_to;       // everything in its log up to here is elsewhere
  CANTLE_FIELDS(table, table_uuid, partition, assignment, txnseq, proved_to)
};
struct DropReply {
  bool dropped = false;  // false: it was not there any more
  CANTLE_FIELDS(dropped)
};
// drain: refuse client writes (READ_ONLY, reason "draining") so that the server can be stopped without an
// unknown outcome; with on = false takes them again.
struct DrainRequest {
  bool on = true;
  CANTLE_FIELDS(on)
};
struct DrainReply {
  uint64_t writes_left = 0;  // not answered yet
  CANTLE_FIELDS(writes_left)
};

}  // namespace cantle::model

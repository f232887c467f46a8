// Messages between servers about push tables: plain structs, for machines, shells and simulator.
//
// lib/wire/codec.h turns them into the one-map `params` of a MessagePack-RPC request or its result.
// Every message between servers names the sender's incarnation, the txnseq it acts on and the tenure
// (assignment) it speaks to; a receiver refuses what is below the partition's min_txnseq (stale_route)
// or addressed to another tenure (unavailable), and fetches the map first where txnseq is above its own.
//
// `records` is a block payload: the concatenated MessagePack records (lib/wire/block.h), so that the
// receiver frames the bytes it got instead of encoding again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/version.h"

namespace cantle::model {

struct Envelope {
  std::string table;
  TableUuid table_uuid;
  PartitionId partition;  // the receiver's partition: a child, when a parent's data goes to a child's server
  TxnSeq txnseq;
  ServerId from;
  Incarnation incarnation;       // of the sender
  AssignmentId from_assignment;  // the sender's tenure: of the same partition, or of the parent it comes from
  AssignmentId to_assignment;
  CANTLE_FIELDS(table, table_uuid, partition, txnseq, from, incarnation, from_assignment, to_assignment)
};

// push.write: the writing server sends live records. Answered when durable in the receiver's journal.
struct PushWrite {
  Envelope envelope;
  std::string records;
  uint32_t count = 0;
  uint64_t wall_ms = 0;  // sender's clock
  // Low water of the sender for this partition: every record *it stamped* (its number and incarnation)
  // with a version at or below this is durable on every assignment of the partition as of envelope.txnseq.
  // The receiver need not offer those to anybody.
  Version settled;
  CANTLE_FIELDS(envelope, records, count, wall_ms, settled)
};
struct PushWriteReply {
  Lsn lsn;               // in the receiver's log, of the last record
  uint64_t wall_ms = 0;  // receiver's clock: peers compare clocks on these
  CANTLE_FIELDS(lsn, wall_ms)
};

// beacon: once a second between servers that share partitions and have nothing else to say.
struct Beacon {
  ServerId from;
  Incarnation incarnation;
  uint64_t wall_ms = 0;
  CANTLE_FIELDS(from, incarnation, wall_ms)
};

// push.read: newest version of a key, or that there is none. Only AVAILABLE and LEAVING assignments
// answer; one that has not caught up answers CATCHING_UP and is left out.
struct PushRead {
  Envelope envelope;
  std::string key;
  CANTLE_FIELDS(envelope, key)
};
struct PushReadReply {
  bool found = false;  // a record or a tombstone
  bool deleted = false;
  Version version;
  std::string value;
  CANTLE_FIELDS(found, deleted, version, value)
};

// push.scan: what push.read is for one key, for the next keys of [from, to), tombstones among them: a scan at more
// than one replica merges such pages.
struct PushScan {
  Envelope envelope;
  Interval range;
  bool reverse = false;
  uint32_t limit = 0;  // entries
  uint32_t bytes = 0;  // of keys and values; one entry always fits
  CANTLE_FIELDS(envelope, range, reverse, limit, bytes)
};
struct PushScanEntry {
  std::string key, value;
  Version version;
  bool deleted = false;
  CANTLE_FIELDS(key, value, version, deleted)
};
struct PushScanReply {
  std::vector<PushScanEntry> entries;  // in the order of the scan
  bool more = false;                   // a limit ended it: it has everything of the range up to `resume` only
  std::string resume;                  // forward: the next key to look at; reverse: everything at or above it is in
  Lsn lsn;
  CANTLE_FIELDS(entries, more, resume, lsn)
};

// What a mover says of its own server's stamps to a target that it pushes to: every record that this server stamped in
// this life, of the target's interval, with a version from `from` on and below `before`, is durable at the target. The
// target hands it on to the other movers, which then need not offer those records.
struct Delivered {
  Version from, before;  // of one stamper and one incarnation
  bool all = false;      // the sender has nothing more to send for now
  CANTLE_FIELDS(from, before, all)
  bool operator==(const Delivered&) const = default;
};

// bulk.begin: a mover opens (or reopens) its stream to one target assignment.
enum class BulkKind : uint8_t { log = 1, snapshot = 2 };
struct BulkBegin {
  Envelope envelope;
  BulkKind kind = BulkKind::log;
  Interval interval;      // what the target should have of this
  uint64_t snapshot = 0;  // snapshot: a number drawn by the sender; the same number resumes
  CANTLE_FIELDS(envelope, kind, interval, snapshot)
};
struct BulkBeginReply {
  Incarnation incarnation;  // of the receiver
  std::string filled_to;    // snapshot with the same number: resume behind this key
  bool filled_all = false;
  // Not 0: records may be missing in the receiver's copy (a damaged journal, a rebuilt index). Everything is to be
  // offered to it from the start, once for this number, whatever it had confirmed before.
  uint64_t heal = 0;
  CANTLE_FIELDS(incarnation, filled_to, filled_all, heal)
};

// bulk.block: log: records in the sender's order, applied where newer, journaled, answered when durable.
// snapshot: records in key order up to `through_key` inclusive, written straight into the extent,
// answered when that transaction is durable; `last` says that the interval is complete.
struct BulkBlock {
  Envelope envelope;
  BulkKind kind = BulkKind::log;
  std::string records;
  uint32_t count = 0;
  uint64_t snapshot = 0;
  std::string through_key;
  bool last = false;
  std::optional<Delivered> delivered;  // log
  CANTLE_FIELDS(envelope, kind, records, count, snapshot, through_key, last, delivered)
};
struct BulkBlockReply {
  Lsn lsn;                           // log: of the last record in the receiver's log
  std::vector<Delivered> delivered;  // log: what all movers have said
  CANTLE_FIELDS(lsn, delivered)
};

// digest: (key, version) pairs; the answer says which of them the receiver lacks: it has neither that
// version nor a newer one of the key, durable. Also the proof before a drop; without entries it asks for `delivered`.
struct DigestEntry {
  std::string key;
  Version version;
  CANTLE_FIELDS(key, version)
};
struct Digest {
  Envelope envelope;
  std::vector<DigestEntry> entries;
  std::optional<Delivered> delivered;
  CANTLE_FIELDS(envelope, entries, delivered)
};
struct DigestReply {
  std::vector<uint32_t> lacking;     // indexes into entries, ascending
  std::vector<Delivered> delivered;  // what all movers have said
  CANTLE_FIELDS(lacking, delivered)
};
constexpr size_t kDigestEntriesMax = 4096;

// bulk.end: the sender has delivered everything that its log held of the interval up to `through`, and
// when it measured `through`, its writes under maps older than envelope.txnseq had ended. A target counts
// these: it is filled when a majority of the source slots said so at or past the barrier's txnseq, and a
// restarted server is caught up with that replica.
struct BulkEnd {
  Envelope envelope;
  LogPoint through;     // in the sender's log of the source partition
  uint64_t healed = 0;  // everything up to there was offered since the receiver asked with this `heal`
  CANTLE_FIELDS(envelope, through, healed)
};

// epochs: a starting server asks each live replica for its log end.
struct Epochs {
  Envelope envelope;
  CANTLE_FIELDS(envelope)
};
struct EpochsReply {
  Incarnation incarnation;
  LogPoint end;
  CANTLE_FIELDS(incarnation, end)
};

// map.changed: a notification; the receiver fetches the map.
struct MapChanged {
  std::string table;
  TxnSeq txnseq;
  CANTLE_FIELDS(table, txnseq)
};

}  // namespace cantle::model

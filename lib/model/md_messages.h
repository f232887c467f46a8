// Messages of the metadata servers: plain structs, for machines, shells, clients and the simulator.
//
// lib/wire/codec.h turns them into the one-map `params` of a MessagePack-RPC request or its result;
// `ops` is what wire::encode_operations makes of a list of model::Operation. Hashes are SHA-256, 32
// bytes. `nodes` are parts of METADATA files (root, inner parts, leaves), each named by its hash.
// lib/client/md_client.h is the way to use them.
//
// Every answer to a lookup carries the txnseq it was made from and `age_ms`, the time since the
// coordination service last confirmed that this is the current one (S32). A server that is not
// current, or that was cut off for longer than its session and is not asked for `stale_ok`, answers
// UNAVAILABLE with age_ms=… in `detail`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/partition.h"

namespace cantle::model {

// --- changes ------------------------------------------------------------------------------------

// md.change. `change` names the request for ever: sent again, even to another server, it is applied once.
struct MdChange {
  std::string table;
  TxnId base;  // none: on whatever is current (`base: latest`); else only on exactly this one
  ChangeId change;
  TxnSeq since;  // of the requester's map when it drew `change`: 256 transactions later nobody knows the outcome
  std::string ops;
  std::vector<ServerId> metadata_servers;  // CREATE_TABLE: empty for all live ones
  uint32_t deadline_ms = 0;                // 0: kMdChangeDeadline
  bool gather = false;                     // MARK_AVAILABLE: may wait 100 ms for company
  CANTLE_FIELDS(table, base, change, since, ops, metadata_servers, deadline_ms, gather)
};
struct MdChangeReply {
  TableUuid table_uuid;
  TxnId txnid;           // of the transaction that has the change in it; none when it was found in the chain
  TxnSeq txnseq;         // current when answered, at or past the change
  bool already = false;  // it was in the chain before this request
  CANTLE_FIELDS(table_uuid, txnid, txnseq, already)
};

// md.store: a proposer wants this server to have a file durable. The receiver applies `ops` to its own
// base and compares the hash; without the base it fetches what it lacks from the proposer.
struct MdStore {
  std::string table;
  TableUuid table_uuid;
  TxnId base;  // none: the table is being created
  TxnSeq base_txnseq;
  ChangeId change;
  std::string ops;
  TxnId txnid;
  std::string hash;  // of the new file's root
  ServerId proposer;
  Incarnation incarnation;  // of the proposer
  CANTLE_FIELDS(table, table_uuid, base, base_txnseq, change, ops, txnid, hash, proposer, incarnation)
};
struct MdStoreReply {
  TxnId txnid;
  CANTLE_FIELDS(txnid)
};

// md.abort: this file will not become current. A hint: the receiver deletes it once it knows that itself.
struct MdAbort {
  std::string table;
  TableUuid table_uuid;
  TxnId txnid;
  CANTLE_FIELDS(table, table_uuid, txnid)
};

// md.outcome: what became of a change?
enum class ChangeOutcome : uint8_t {
  committed = 1,
  absent = 2,     // not in the chain at `txnseq`, and nobody here works on it; a try elsewhere may still be under way
  working = 3,    // this server is at it
  forgotten = 4,  // more than 256 transactions ago: nobody can tell
};
struct MdOutcome {
  std::string table;
  ChangeId change;
  TxnSeq since;  // as in MdChange
  // The requester gives it up: unless this server is at it already, it will refuse the change when it comes late (S25).
  // Without that, `absent` says nothing about a request that still lies in a buffer.
  bool give_up = false;
  CANTLE_FIELDS(table, change, since, give_up)
};
struct MdOutcomeReply {
  ChangeOutcome outcome = ChangeOutcome::absent;
  TxnSeq txnseq;  // current
  CANTLE_FIELDS(outcome, txnseq)
};

// --- lookups ------------------------------------------------------------------------------------

// md.find: entries by key, by partition, by server; exactly one is given.
struct MdFind {
  std::string table;
  bool by_key = false;
  std::string key;  // routing key
  PartitionId partition;
  ServerId server;
  TxnSeq min_txnseq;
  bool stale_ok = false;
  CANTLE_FIELDS(table, by_key, key, partition, server, min_txnseq, stale_ok)
};
struct MdFindReply {
  TableUuid table_uuid;
  TxnSeq txnseq;
  uint64_t age_ms = 0;
  bool stale = false;  // longer without confirmation than a session lasts
  std::vector<Partition> partitions;
  CANTLE_FIELDS(table_uuid, txnseq, age_ms, stale, partitions)
};

// md.get: the whole map. The answer holds the root and those other nodes that the file named by
// `have_txnid` does not share, as far as they fit into a frame; md.fetch brings the rest.
struct MdGet {
  std::string table;
  TxnId have_txnid;  // none: nothing
  TxnSeq min_txnseq;
  bool stale_ok = false;
  CANTLE_FIELDS(table, have_txnid, min_txnseq, stale_ok)
};
struct MdGetReply {
  TableUuid table_uuid;
  TxnId txnid;
  TxnSeq txnseq;
  std::string hash;
  uint64_t age_ms = 0;
  bool stale = false;
  bool unchanged = false;          // have_txnid is current
  std::vector<std::string> nodes;  // the root first
  CANTLE_FIELDS(table_uuid, txnid, txnseq, hash, age_ms, stale, unchanged, nodes)
};

// md.fetch: nodes by hash, of any file that the server keeps. Those it does not have are empty strings;
// at most kMdFetchNodes, and at least one, or as many as fit into kMdFetchBytes (the rest are not in the answer).
struct MdFetch {
  std::string table;
  TableUuid table_uuid;
  std::vector<std::string> hashes;
  CANTLE_FIELDS(table, table_uuid, hashes)
};
struct MdFetchReply {
  std::vector<std::string> nodes;  // in the order asked, perhaps fewer
  CANTLE_FIELDS(nodes)
};
constexpr size_t kMdFetchNodes = 256;
constexpr size_t kMdFetchBytes = size_t{4} << 20;

// md.discover: what should this partition server do? Covers all that it is assigned and all that it says it holds.
enum class Verdict : uint8_t {
  load = 1,     // assigned, not yet AVAILABLE: begin it and take writes
  serve = 2,    // assigned, AVAILABLE or LEAVING
  unload = 3,   // not assigned any more: prove that `targets` have the data, then drop
  unknown = 4,  // nothing is known of it: keep, serve nothing, alarm
  divide = 5,   // a split ended it: divide the copy between `targets`' partitions, then ask again
};
struct Held {
  PartitionId partition;
  AssignmentId assignment;
  CANTLE_FIELDS(partition, assignment)
  friend auto operator<=>(const Held&, const Held&) = default;
};
struct MdDiscover {
  std::string table;
  TableUuid table_uuid;  // of the data held; none: nothing held
  ServerId server;
  std::vector<Held> held;
  bool stale_ok = false;
  CANTLE_FIELDS(table, table_uuid, server, held, stale_ok)
};
struct DiscoverTarget {
  PartitionId partition;
  Interval interval;
  Assignment assignment;
  CANTLE_FIELDS(partition, interval, assignment)
  friend bool operator==(const DiscoverTarget&, const DiscoverTarget&) = default;
};
struct DiscoverItem {
  Held held;  // for LOAD and SERVE the assignment as METADATA has it
  Verdict verdict = Verdict::unknown;
  Region region;
  Interval interval;
  PartitionState state = PartitionState::active;
  AssignmentState assignment_state = AssignmentState::proposed;
  std::vector<DiscoverTarget> targets;  // UNLOAD, DIVIDE: who should have the data
  CANTLE_FIELDS(held, verdict, region, interval, state, assignment_state, targets)
  friend bool operator==(const DiscoverItem&, const DiscoverItem&) = default;
};
struct MdDiscoverReply {
  TableUuid table_uuid;
  TxnSeq txnseq;
  uint64_t age_ms = 0;
  bool stale = false;
  bool dropped = false;  // the table is gone: all UNLOAD without targets, to the trash without proof
  std::vector<DiscoverItem> items;
  CANTLE_FIELDS(table_uuid, txnseq, age_ms, stale, dropped, items)
};

// --- membership, status -------------------------------------------------------------------------

// md.join: sent to the server that shall join; md.leave: to any server of the table.
struct MdJoin {
  std::string table;
  CANTLE_FIELDS(table)
};
struct MdLeave {
  std::string table;
  ServerId server;
  CANTLE_FIELDS(table, server)
};
struct MdMembersReply {
  std::vector<ServerId> metadata_servers;
  TxnSeq txnseq;
  CANTLE_FIELDS(metadata_servers, txnseq)
};

struct MdTableStatus {
  std::string name;
  TableUuid table_uuid;
  bool member = false;     // in metadata_servers
  bool current = false;    // the local file is the current one
  bool regressed = false;  // refuses: the coordination service shows less than it did (S36)
  bool dropped = false;
  TxnId txnid;
  TxnSeq txnseq;        // of the local file
  TxnSeq coord_txnseq;  // as last read
  uint64_t age_ms = 0;
  uint64_t partitions = 0;
  uint32_t files = 0;                          // METADATA files kept
  uint32_t working = 0;                        // changes under way or waiting
  std::string alarm;                           // empty: none
  std::map<std::string, std::string> driving;  // attempt -> what it waits for
  CANTLE_FIELDS(name, table_uuid, member, current, regressed, dropped, txnid, txnseq, coord_txnseq, age_ms, partitions,
                files, working, alarm, driving)
};
struct MdStatusReply {
  ServerId server;
  std::string role;  // "mdserver"
  std::string cluster;
  ClusterUuid cluster_uuid;
  Incarnation incarnation;
  std::string version;
  bool coord_connected = false;
  bool reserve = false;  // space for 16 files is held back
  std::vector<MdTableStatus> tables;
  CANTLE_FIELDS(server, role, cluster, cluster_uuid, incarnation, version, coord_connected, reserve, tables)
};

}  // namespace cantle::model

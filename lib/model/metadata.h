// Metadata: the whole map of one table at one transaction (the METADATA file), and its nouns.
//
// Pure values. lib/model/operation.h changes them, lib/model/validate.h checks invariants 1 to 3,
// lib/wire/metadata_codec.h turns them into leaves and back. A copy is cheap (partitions.h).
//
// Invariants of a committed file (checked by validate())
//   * `partitions` is in key order and covers the keyspace exactly: no hole, no overlap (S41).
//   * No server twice in one partition; a slot holds one AVAILABLE or LEAVING assignment and at most
//     one PROPOSED or INITIALIZING that replaces it.
//   * Ids (partitions, regions, assignments, attempts) are unique in the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/model/partitions.h"

namespace cantle::model {

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
  Region next_region;             // the lowest region number never used
  std::vector<ChangeId> changes;  // of the last kChangeIdsMax transactions, newest last
  std::map<std::string, std::string> options;
  Partitions partitions;              // in key order
  std::vector<EndedPartition> ended;  // in order of (at, region)
  friend bool operator==(const Metadata&, const Metadata&) = default;

  // The partition whose interval holds `routing_key`; null only for a file that fails validation.
  const Partition* find(std::string_view routing_key) const;
  const Partition* find(const PartitionId& id) const;
};

const EndedPartition* find_ended(const Metadata& metadata, const PartitionId& id);
// A tenure of a partition that has ended; nulls: none, or forgotten.
struct EndedTenure {
  const EndedPartition* partition = nullptr;
  const Assignment* assignment = nullptr;
};
EndedTenure find_ended(const Metadata& metadata, const AssignmentId& id);
// The one that was split into `child` and others; null: none, or forgotten.
const EndedPartition* find_parent(const Metadata& metadata, const PartitionId& child);
// Those that were merged into `target`, the lower one first; fewer than two: it was not made so, or this was forgotten.
std::vector<const EndedPartition*> find_merged(const Metadata& metadata, const PartitionId& target);
// Of a merge's target: the tenures of those it was merged from on the same server, the lower one first. Without the
// second where METADATA has forgotten it.
std::vector<AssignmentId> merged_tenures(const Metadata& metadata, const PartitionId& target, const Assignment& a);
// A merge's other one of the two, while it is going on.
const Partition* find_neighbour(const Metadata& metadata, const Partition& merging);
// A partition that meets the interval has a replica that is being filled: what the interval belonged to before may be
// needed for it (lib/proto/push_fill.h).
bool being_filled(const Metadata& metadata, const Interval& interval);

}  // namespace cantle::model

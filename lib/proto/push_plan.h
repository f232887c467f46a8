// Plan: whom a write goes to and what has to confirm it (design/replication.md, "Push tables: Write").
//
// Use
//   auto plan = make_plan(map, self, {{partition, Side::whole}});   // one partition, not being split
//   acked |= bit of each target that confirmed; plan.reached(acked) → the highest level reached
//
// Groups: the slots of the partition; while it is being split, also the slots of the child that covers the keys
// (Side::low, high), or of both (Side::both: the block holds keys of either).
//
// Invariants
//   * A slot counts when all of its `needs` confirmed: both assignments while one replaces the other; the new one
//     alone, and only once it is AVAILABLE, where the old one's server is dead.
//   * A child's assignment on a server of the parent is that server's parent assignment: one send, one
//     confirmation, counted in both groups.
//   * While two are merged nothing is counted twice: the target's slots are on the servers of both, so that a majority
//     of the one is a majority of the target.
//   * Nothing reaches any level without the own assignment.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/client_messages.h"
#include "lib/model/metadata.h"

namespace cantle::proto::push {

enum class Side : uint8_t { whole = 0, low = 1, high = 2, both = 3 };

struct Target {
  model::ServerId server;
  model::PartitionId partition;  // as the receiver knows it
  model::AssignmentId assignment;
  model::AssignmentId continues;        // the tenure on the same server that this one came from by a split or a
                                        // merge (the lower one's); none
  model::AssignmentId continues_high;   // by a merge: the higher one's, while METADATA remembers it
  model::AssignmentId own;              // ours, of the partition (or of the parent) that the target belongs to
  std::optional<model::Interval> only;  // the target takes this part of the records only
  model::TxnSeq since;
  Side side = Side::whole;  // whole: concerns every key of the log
};

struct Plan {
  struct Slot {
    uint64_t needs = 0;  // bits of targets
    bool counts = true;
  };
  using Group = std::vector<Slot>;

  model::TxnSeq txnseq;         // of the map it was made from
  std::vector<Target> targets;  // own assignments among them; at most 64
  uint64_t own = 0;             // bits of the own ones
  std::vector<Group> groups;

  // The highest level that these confirmations reach; nothing if not even `one`.
  std::optional<model::Level> reached(uint64_t acked) const;
  // Index of the target with this assignment; -1 if it is none of them.
  int find(const model::AssignmentId& assignment) const;
};

constexpr size_t kTargetsMax = 64;

struct Scope {
  const model::Partition* partition = nullptr;
  Side side = Side::whole;
};
// Null if this server has no assignment in one of the partitions. Several scopes: a block that lies in all of them.
std::shared_ptr<const Plan> make_plan(const model::Metadata& map, const model::ServerId& self,
                                      const std::vector<Scope>& scopes);

// The assignment came out of a split or a merge on a server that held the parent: its `source` is the parent's tenure
// there.
bool continues_here(const model::Partition& partition, const model::Assignment& assignment);

// Slots of k that must have been heard so that every write that reached a majority is among them.
constexpr size_t read_quorum(size_t k) { return (k + 1) / 2; }
constexpr size_t write_majority(size_t k) { return k / 2 + 1; }

}  // namespace cantle::proto::push

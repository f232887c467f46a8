// Quorum tables: who leads a partition, what is said about it, and by whom (design/replication.md, "Quorum tables: who
// leads").
//
// A Government stands in the region's node and changes by compare-and-swap alone. Votes stand beside it while there is
// an election. The messages are for beacons (one stream a pair of servers, whatever the number of partitions), for the
// question whether others miss the leader, too, and for a leader that resigns.
//
// Limits: a list of a type with a kListMax is refused by the codec where it is longer (lib/wire/codec.h).
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/time.h"
#include "lib/model/block.h"
#include "lib/model/cut.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/messages.h"

namespace cantle::model {

constexpr size_t kVotersMax = 16;
// Epochs that have a block in one log: one for each election that was followed by a write, since the table is there.
constexpr size_t kEpochStartsMax = 65536;
// Partitions that one beacon or answer names. One that would name more is not taken, so it grants and promises nothing.
constexpr size_t kBeaconPartitionsMax = 65536;

// An assignment that counts in a partition's majorities.
struct Voter {
  static constexpr size_t kListMax = kVotersMax;
  uint32_t slot = 0;
  ServerId server;
  AssignmentId assignment;
  CANTLE_FIELDS(slot, server, assignment)
  friend bool operator==(const Voter&, const Voter&) = default;
};
using Voters = std::vector<Voter>;

constexpr size_t majority(size_t voters) { return voters / 2 + 1; }
inline const Voter* find_voter(const Voters& voters, const AssignmentId& assignment) {
  const auto it =
      std::find_if(voters.begin(), voters.end(), [&](const Voter& v) { return v.assignment == assignment; });
  return it == voters.end() ? nullptr : &*it;
}
// Of a voter set, `holds` is true for a majority. An empty set has none.
template <class Holds>
bool majority_of(const Voters& voters, Holds holds) {
  return static_cast<size_t>(std::count_if(voters.begin(), voters.end(), holds)) >= majority(voters.size());
}
// The latest instant up to which a majority of the set reaches, where `until(voter)` says it of each.
template <class Until>
base::Instant majority_until(const Voters& voters, Until until) {
  std::vector<base::Instant> each;
  each.reserve(voters.size());
  for (const auto& v : voters) each.push_back(until(v));
  if (each.empty()) return {};
  std::sort(each.begin(), each.end(), std::greater<>());
  return each[majority(each.size()) - 1];
}

// Who rules a partition. A new partition's is epoch 1 without a leader; epoch 0 is never written.
struct Government {
  Epoch epoch;
  AssignmentId leader;  // one of the voters; none: nobody leads
  Voters voters;
  std::string writer;  // token of the swap that wrote it, "server/incarnation/number": tells an unknown outcome
  // Of the map that the voters were taken from. A leader with an older one changes nothing about them: it does not know
  // why they are who they are.
  TxnSeq txnseq{};
  // Of a split: the cut in which the log ends is committed. FINALIZE_SPLIT needs it, at this version of the government.
  std::optional<CutReport> cut = {};
  CANTLE_FIELDS(epoch, leader, voters, writer, txnseq, cut)
  friend bool operator==(const Government&, const Government&) = default;
};

// How far a log goes, for elections: the last log block's epoch and its last LSN. A seal never counts.
struct LogToken {
  Epoch epoch;
  Lsn lsn;
  CANTLE_FIELDS(epoch, lsn)
  auto operator<=>(const LogToken&) const = default;
};
inline LogToken token_of(const LogPoint& point) { return {point.epoch, point.lsn}; }

// quorums/<epoch>-<lsn>:<server>, ephemeral: a voter that has sealed, and what it has.
struct Vote {
  Epoch promise;
  LogToken token;
  AssignmentId assignment;
  ServerId server;
  uint32_t slot = 0;
  bool can_lead = false;
  Incarnation incarnation;
  CANTLE_FIELDS(promise, token, assignment, server, slot, can_lead, incarnation)
  friend bool operator==(const Vote&, const Vote&) = default;
};

// One for each epoch that has a block in the log.
struct EpochStart {
  static constexpr size_t kListMax = kEpochStartsMax;
  Epoch epoch;
  Lsn first;
  CANTLE_FIELDS(epoch, first)
  friend bool operator==(const EpochStart&, const EpochStart&) = default;
};

// An epoch of one partition, where a message is about many.
struct PartitionEpoch {
  static constexpr size_t kListMax = kBeaconPartitionsMax;
  PartitionId partition;
  Epoch epoch;
  CANTLE_FIELDS(partition, epoch)
  auto operator<=>(const PartitionEpoch&) const = default;
};
// A leader that no longer leads: its lease of that epoch and of all before is over.
struct Released {
  static constexpr size_t kListMax = kBeaconPartitionsMax;
  PartitionId partition;
  Epoch epoch;
  AssignmentId successor;  // a hand-over's: it alone seals at once
  CANTLE_FIELDS(partition, epoch, successor)
  friend bool operator==(const Released&, const Released&) = default;
};

// quorum.beacon: ten a second between servers that share a quorum partition. To answer is to promise not to seal
// against the asker as a leader for kPromise (lib/proto/beacons.h).
struct QuorumBeacon {
  ServerId from;
  Incarnation incarnation;
  uint64_t stamp = 0;  // grows with each of this life
  uint64_t wall_ms = 0;
  std::vector<Released> released;  // until answered
  CANTLE_FIELDS(from, incarnation, stamp, wall_ms, released)
  friend bool operator==(const QuorumBeacon&, const QuorumBeacon&) = default;
};
struct QuorumBeaconReply {
  ServerId from;
  Incarnation incarnation;
  Incarnation asker;   // the asker's life that sent it
  uint64_t stamp = 0;  // of the beacon
  uint64_t wall_ms = 0;
  std::vector<PartitionEpoch> refused;  // led by the asker as far as is known here, where more is promised: no grant
  CANTLE_FIELDS(from, incarnation, asker, stamp, wall_ms, refused)
  friend bool operator==(const QuorumBeaconReply&, const QuorumBeaconReply&) = default;
};

// quorum.suspect: a voter that misses the leader asks the others before it disturbs anybody (S21).
struct QuorumSuspect {
  Envelope envelope;
  Epoch epoch;  // of the government whose leader is missed
  AssignmentId leader;
  ServerId server;  // the leader's
  CANTLE_FIELDS(envelope, epoch, leader, server)
};
struct QuorumSuspectReply {
  bool suspects = false;
  Epoch epoch;  // the highest of a government that the answerer has seen
  CANTLE_FIELDS(suspects, epoch)
  friend bool operator==(const QuorumSuspectReply&, const QuorumSuspectReply&) = default;
};

// quorum.release: at once, what the next beacon would say.
struct QuorumRelease {
  Envelope envelope;
  Epoch epoch;
  AssignmentId successor;
  CANTLE_FIELDS(envelope, epoch, successor)
};

}  // namespace cantle::model

// Mover plan: who should be told what, as a pure function of a held copy and the map.
//
//   for (auto& t : targets_of(held, map, self)) …       one stream each
//
// Invariants
//   * A copy that the server should keep is pushed to every other assignment of the partition that takes data, and,
//     while the partition is being split and the barrier has passed, to the children's assignments that have no source.
//   * A copy that it was told to unload is pushed to every assignment whose partition meets what is held: the
//     replacement's peers, or the children of an ended parent and theirs.
//   * A copy that is to be unloaded is pushed to this server's own later tenure of the same keys as well: with one
//     replica nobody else may have them. That tenure is another copy with records and a log of its own. No copy is
//     pushed to, or proved against, itself; one that is kept is not pushed to its own server.
//   * A merge's target has a log of its own: no position of another one is a position in it, on either side of the
//     server; what has been confirmed of the two that it goes on from is known of these (joined_target()).
//   * Nothing is pushed to an assignment that is only PROPOSED (before its barrier a bulk.end would say
//     nothing, S43), or for a copy that the map does not name and nobody said to unload.
#pragma once

#include <string>
#include <vector>

#include "lib/proto/mover_types.h"

namespace cantle::proto::mover {

struct Target {
  StreamId id;
  std::string table;
  model::TableUuid table_uuid;
  model::PartitionId source;     // whose log is read
  model::PartitionId partition;  // the target's
  model::ServerId server;
  model::Interval interval;
  bool whole = true;  // all of the target's partition, which is not being split
  model::AssignmentState state = model::AssignmentState::available;
  bool joined = false;                  // the log ended in a merge, and has a target that is held
  bool hollow = false;                  // the log that is read does not have all that the copy has
  model::TxnSeq since, min_txnseq;      // of the target's assignment and of its partition's entry
  bool catching_up = false;             // the source is: the target probably has what comes in there, and more
  std::vector<model::ServerId> others;  // servers that push to this target as well
  std::vector<MarkKey> marks;           // where its position may stand: its own first, then those it goes on from
  bool operator==(const Target&) const = default;
};

std::vector<Target> targets_of(const model::HeldPartition& held, const model::Metadata& map,
                               const model::ServerId& self);

// The target of a stream that has not been told how far it is: what there is to be sent of a log that the source's goes
// on from. `marks` names what the target's server had confirmed of that log, under its tenure of that partition.
Target joined_target(const Target& target, const JoinedLog& log, const model::Metadata& map,
                     const model::ServerId& self);

// Whether other tenures, on whichever servers, are responsible for every key of what is held: otherwise it may not be
// dropped, whoever confirmed what (invariant 7).
bool covered(const model::HeldPartition& held, const model::Metadata& map);

// Of the marks found for a target: the furthest. A snapshot under way goes on only into the same assignment.
Mark choose_mark(const Target& target, const std::vector<std::pair<MarkKey, Mark>>& found);

}  // namespace cantle::proto::mover

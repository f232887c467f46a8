// Recovery of a quorum table's partition whose majority is gone for good: what would be lost, who may go on, and
// whether what was planned may still be done. Pure: `zkctl quorum` asks the servers and the coordination service.
//
//   const RecoveryView view{…};                       // all that was seen of the partition
//   const auto state = assess(view);                  // who is there, whether a majority can lead, the best log
//   TRY_ASSIGN(const auto plan, plan_recovery(view, {{"p1"}}, id));      // refused while a majority can lead
//   …the operator reads plan.loss, and confirms…
//   TRY(still_holds(plan, view));                     // conflict: something has changed
//   swap the government at plan.version to government_of(plan), and write Recovered beside it, in one multi
//   recovery_verdict(plan, government, reports)       // has a leader of the new lineage begun?
//
// The new government has an epoch above every promise that anybody can have made, nobody leads it, and its voters are
// the copies that stay. They elect by themselves: each sees a government without a leader, seals, votes, and the best
// log leads (election.h). Nothing of the old lineage that comes back can count again: its epochs are lower, and it is
// no voter until that leader has fed it all of the new log, and gives it a slot of METADATA that has no voter.
//
// Invariants
//   * No plan while a majority of the voters can elect, or while a server that may still lead is registered.
//   * No plan onto a copy that is not whole, not METADATA's, or not answering.
//   * A plan holds only for the government version, and for the very log ends, that it was made of.
//   * LossKind::none is said only when the copies seen share a voter with every majority, and none of them has a better
//     log than the best that stays.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/metadata.h"
#include "lib/model/recovery.h"

namespace cantle::proto {

struct RecoveryView {
  model::ClusterUuid cluster;
  std::string table;
  model::TableUuid table_uuid;
  model::PartitionId partition;
  model::Region region;
  model::TxnSeq txnseq;  // of the map that last changed the partition, which is what its voters are of
  model::Government government;
  int32_t version = 0;
  model::Voters assigned;                 // METADATA's assignments of the partition
  std::vector<model::CopyReport> copies;  // of servers that answered, and, with state offline, from data directories
  std::set<model::ServerId> silent;       // registered, and without an answer
};

// What the map says of it; the rest is still to be seen.
RecoveryView view_of(const model::Metadata& map, const model::Partition& partition);

struct CopyState {
  model::CopyReport report;
  bool voter = false;                 // of the government
  bool assigned = false;              // METADATA names it
  bool online = false, able = false;  // able: online, whole, takes part: it can vote and lead
  bool best = false;                  // no copy that was seen has a better log
};
struct RecoveryState {
  std::vector<CopyState> copies;         // by server, then assignment
  std::vector<model::ServerId> missing;  // voters, or assigned, of which no copy was seen
  size_t able = 0, needed = 0;           // voters that can elect; a majority
  bool majority() const { return able >= needed; }
};
RecoveryState assess(const RecoveryView& view);

// The last LSN that two logs have in common, told by where their epochs begin and end: an epoch has one leader, so that
// two logs with a block of one epoch are the same up to the shorter end of it.
model::Lsn last_common(const model::CopyReport& a, const model::CopyReport& b);

model::Loss loss_of(const RecoveryView& view, const std::vector<model::CopyReport>& stay);

// `stay` empty: all that can. conflict: a majority can elect, a server that is registered does not answer, or the map
// is older than the government's; not_found, invalid: one of `stay` cannot.
base::Result<model::RecoveryPlan> plan_recovery(const RecoveryView& view, const std::vector<model::ServerId>& stay,
                                                const model::AttemptId& id);
// conflict: what was seen is not what is there.
base::Status still_holds(const model::RecoveryPlan& plan, const RecoveryView& view);
model::Government government_of(const model::RecoveryPlan& plan);

enum class RecoveryVerdict : uint8_t { waiting, serving, elsewhere };  // elsewhere: another lineage; never expected
// After it was applied. serving: a leader of a later epoch serves, and its log goes on where the plan said.
RecoveryVerdict recovery_verdict(const model::RecoveryPlan& plan, const model::Government& government,
                                 const std::vector<model::CopyReport>& reports);

// What the loss comes to, in sentences.
std::vector<std::string> in_words(const model::RecoveryPlan& plan);

}  // namespace cantle::proto

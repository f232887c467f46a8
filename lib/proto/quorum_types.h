// What the machines of a quorum table's replica (quorum_follower.h, quorum_leader.h) ask for.
//
// Bytes stay with the shell: it keeps the requests of clients (RequestId), the messages of other servers that wait for
// an answer (CallId), the records gathered into one block (BatchId), and the blocks that the leader may have to send
// again, by the LSN of their last record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/block.h"
#include "lib/model/pipe.h"
#include "lib/model/quorum_snapshot.h"

namespace cantle::proto::quorum {

using RequestId = uint64_t;
using CallId = uint64_t;
using BatchId = uint64_t;  // drawn by the machine

// What a client's request comes to when its turn in the log has come (quorum_judge.h).
struct Judged {
  uint32_t records = 0;  // which stand at the end of the batch's payload now
  size_t bytes = 0;      // of them
  // Without records: it is answered when this is committed. `may_happen`: with what another one under way comes to.
  model::Lsn after;
  bool may_happen = false;
};
// The shell's; asked in the order of the log, in the middle of a call of the machine.
class Gatherer {
 public:
  virtual ~Gatherer() = default;
  // Judges the request, and puts its records, the first of which gets this LSN, into the batch's payload.
  virtual Judged gather(RequestId request, BatchId batch, model::Epoch epoch, model::Lsn first) = 0;
};

// How a block gets to the replicas: from one to the next, or from the leader to each.
enum class Pipeline : uint8_t { chain, star };

// Of a partition, as a map says. A government is brought to this by whoever leads, one voter at a time.
struct Members {
  model::Voters voters;         // who should vote, one for each slot
  std::vector<model::Hop> fed;  // every replica that is to have the log
  model::TxnSeq txnseq;         // of the map
  // The government is to say that it is of a map of that transaction or a newer one, also where its voters are these.
  model::TxnSeq acknowledge;
  Pipeline pipeline = Pipeline::chain;
  bool operator==(const Members&) const = default;
};

// --- the own log ---------------------------------------------------------------------------------
// Build the batch's block at the end of the log, which must be right before `first`; answered at once with built(). A
// batch into which nothing was gathered has no records of clients: an epoch start.
struct Build {
  BatchId batch = 0;
  model::BlockKind kind = model::BlockKind::data;
  model::Epoch epoch;
  model::Lsn first, commit;
  model::AttemptId attempt{};  // of a cut and an uncut: the payload (model::cut_payload)
};
// Append the block of this pipe.block as it is; answered with take_failed(), or it becomes durable.
struct Take {
  CallId call = 0;
  bool urgent = true;  // or others make the majority: it may be synced with what comes soon
};
struct Truncate {
  model::LogPoint keep;
};  // now, what comes later stands behind it; answered with truncated() once it is durable
struct Commit {
  model::Lsn lsn;
};  // what is durable up to here may be read

// --- other replicas ------------------------------------------------------------------------------
struct SendOpen {
  model::Hop to;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::Lsn commit;
};  // answered with opened()
struct SendCut {
  model::Hop to;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::LogPoint end, keep;
};  // answered with opened()
// A block that the leader built, by the LSN of its last record.
struct SendBlock {
  model::Hop to;
  std::vector<model::Hop> route;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::Lsn commit, last;
  size_t urgent = 1;  // of those that it is sent to, so many are to sync at once
};
struct ForgetBlocks {
  model::Lsn through;
};  // those are sent no more
struct SendCommit {
  model::Hop to;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::Lsn commit;
  model::LogPoint agreed;
  bool quiet = false;
};
// Blocks from the journal, from the one that begins at `from` on, at most so many bytes of them (one always);
// answered with old_sent().
struct SendOld {
  model::Hop to;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::Lsn commit, from;
  size_t bytes = 0;
};
struct FindPoint {
  model::Hop peer;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::Lsn lsn;
};  // of the own block that ends there; answered with point_found()

struct AnswerOpen {
  CallId call = 0;
  base::Result<model::PipeOpenReply> reply;
};  // to a pipe.open or pipe.cut
struct SendAck {
  model::Hop to;
  model::Epoch epoch;
  uint64_t generation = 0;
  model::Epoch refused;
  bool gap = false;
  std::string error;
  model::LogPoint durable;
  model::Lsn commit;
};
struct Forward {
  CallId call = 0;
  model::Hop to;
  std::vector<model::Hop> route;
  uint64_t urgent = 0;
};  // the pipe.block, as it came
struct Release {
  CallId call = 0;
};  // its bytes are needed no more

// --- a snapshot in the place of the own copy (quorum_rebuild.h) -----------------------------------
// quorum.outside: that replica needs one.
struct SendOutside {
  model::Hop to;
  model::Epoch epoch;
};
// The part behind that place, asked for and put into the store; answered with snapshot_pulled(), once it is durable.
struct PullSnapshot {
  model::Hop from;
  uint64_t number = 0;
  model::SnapshotPlace place;
};
// The blocks of the gap, asked for and put into the store; answered with mended().
struct FetchBlocks {
  model::Hop from;
  uint64_t number = 0;
  model::LogGap gap;
};
// What that replica's log has and this one, whose end and epochs these are, has not; answered with lent().
struct BorrowBlocks {
  model::Hop from;
  uint64_t number = 0;
  model::Epoch promise;
  model::LogPoint end;
  std::vector<model::EpochStart> epochs;
};
// The answer. The shell keeps each block like that of a pipe.block, until it is taken or released.
struct LentBlock {
  CallId call = 0;
  model::BlockHeader header;  // its checksums are right
  model::AttemptId attempt{};
};
struct Lent {
  model::LogPoint end, keep;  // model::QuorumLendReply
  std::vector<LentBlock> blocks;
};
struct InstallSnapshot {};  // answered with snapshot_installed()
struct MarkWhole {};        // nothing is missing from the log any more; answered with marked_whole()

// --- clients -------------------------------------------------------------------------------------
struct Written {
  model::Epoch epoch;
  model::Lsn last;  // of the request's records; without any, of what it was judged by
};
struct Reply {
  RequestId request = 0;
  base::Result<Written> result;
};

// --- a split or a merge (quorum_cut.h) ------------------------------------------------------------------------
// What METADATA says of the partition, after a sync begun now; answered with reshape_read().
struct ReadReshape {
  uint64_t number = 0;
};
// The two of a merge.
struct MergePair {
  model::PartitionId low, high;
  friend bool operator==(const MergePair&, const MergePair&) = default;
};
// Have ABORT_SPLIT or ABORT_MERGE committed: nothing came of it, and clients wait.
struct AskAbort {
  model::AttemptId attempt;
  std::optional<MergePair> merge{};  // it is one
};

// --- whoever decides about leaders -----------------------------------------------------------------
struct Serving {
  model::Epoch epoch;
};  // the epoch start is committed: what the log holds is what there is
struct MetPromise {
  model::Epoch promise;
};  // a replica promised a higher epoch than that of this leader
struct CannotLead {
  std::string why;
};  // its own disk refuses
struct Accepted {
  model::Hop leader;
  model::Epoch epoch;
};  // a leader's pipe was opened here
struct Faulted {
  std::string why;
};  // an operator should look
struct Say {
  base::Level level = base::Level::warn;
  std::string what, text;
};

using Effect = std::variant<Build, Take, Truncate, Commit, SendOpen, SendCut, SendBlock, ForgetBlocks, SendCommit,
                            SendOld, FindPoint, AnswerOpen, SendAck, Forward, Release, SendOutside, PullSnapshot,
                            FetchBlocks, BorrowBlocks, InstallSnapshot, MarkWhole, Reply, Serving, MetPromise,
                            CannotLead, Accepted, ReadReshape, AskAbort, Faulted, Say>;
using Effects = std::vector<Effect>;

}  // namespace cantle::proto::quorum

// The mover's nouns, inputs and effects (lib/proto/mover.h says what they are for).
//
// Payloads are shared, so that a block that must be sent again is not read again and not copied.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/block.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/local.h"
#include "lib/model/messages.h"
#include "lib/model/metadata.h"

namespace cantle::proto::mover {

// --- Limits ------------------------------------------------------------------------------------
constexpr size_t kReadBytes = size_t{1} << 20;       // asked of one read of the log or of the index
constexpr size_t kStreamBytesMax = size_t{8} << 20;  // read and not confirmed, a stream
constexpr size_t kMoverBytesMax = size_t{64} << 20;  // the same, all streams
constexpr size_t kItemsMax = 1024;                   // batches under way, a stream; most of them wait for others
constexpr size_t kSnapshotBytes = size_t{3} << 20;   // a chunk of a snapshot; one is under way, one is read ahead
constexpr size_t kActiveMax = 32;                    // streams that move data at once
constexpr size_t kActivePerServerMax = 8;
constexpr base::Duration kGrace = std::chrono::seconds(1);  // that live sends get before the mover steps in
constexpr base::Duration kQuiet =
    std::chrono::milliseconds(500);  // that a log must be, whose server is catching up, before it is pushed
constexpr base::Duration kQuietWaitMost = std::chrono::seconds(10);
constexpr base::Duration kRetryFirst = std::chrono::milliseconds(100);  // doubled at each failure, with jitter
constexpr base::Duration kRetryMost = std::chrono::seconds(10);
constexpr base::Duration kAnswerWithin = std::chrono::seconds(30);    // then the stream is opened anew
constexpr base::Duration kEndQuick = std::chrono::milliseconds(250);  // between bulk.ends to one who may wait for them
constexpr base::Duration kEndSlow = std::chrono::seconds(10);         // and to others
constexpr base::Duration kMayWait = std::chrono::seconds(60);         // so long a restarted server may be catching up
constexpr base::Duration kDeferFirst =
    std::chrono::milliseconds(200);  // before records are offered again that their stamper may send
constexpr base::Duration kDeferMost = std::chrono::seconds(2);
constexpr base::Duration kAwaitMost =
    std::chrono::milliseconds(60);  // without news of the stampers' movers; then the target is asked record by record
constexpr base::Duration kAskAgain =
    std::chrono::milliseconds(10);                // what they have said, while nothing else goes there
constexpr int kDeferStalls = 3;                   // offers without progress, then they are sent after all
constexpr size_t kDirectBytes = size_t{8} << 20;  // sent unoffered after a target lacked nearly all it was offered
constexpr base::Duration kRecordEvery =
    std::chrono::milliseconds(200);  // positions while they move; at once when they rest
constexpr base::Duration kRecordLiveEvery = std::chrono::seconds(2);  // positions that live sends move
constexpr base::Duration kSlowFirst = std::chrono::milliseconds(20);  // after OVERLOADED, if the target does not say
constexpr base::Duration kSlowMost = std::chrono::seconds(1);
constexpr base::Duration kGapWaitMost =
    std::chrono::seconds(30);  // for the index to apply the log past a damaged place
constexpr base::Duration kProofRetry = std::chrono::seconds(1);
constexpr int kProofTries = 5;                                     // of one question
constexpr base::Duration kForgetAfter = std::chrono::minutes(10);  // marks that nothing needs

// --- Nouns -------------------------------------------------------------------------------------
using Bytes = std::shared_ptr<const std::string>;

// One stream: from the log of a copy held here to one target assignment.
struct StreamId {
  model::AssignmentId own, target;
  auto operator<=>(const StreamId&) const = default;
};

// What is kept of a stream across restarts: the position, and a snapshot under way.
struct Mark {
  model::LogPoint at;             // everything up to here is confirmed durable at the target
  uint64_t snapshot = 0;          // number of the snapshot under way; 0: none
  model::LogPoint snapshot_from;  // s0: the log goes on from here once the snapshot is complete
  bool operator==(const Mark&) const = default;
};
// Where a mark is kept. Marks of a split's parent are looked up for its children.
struct MarkKey {
  model::AssignmentId own;
  model::ServerId server;
  model::AssignmentId target;
  auto operator<=>(const MarkKey&) const = default;
};

struct View {
  model::ServerId self;
  model::ServerNumber number;
  model::Incarnation incarnation;
  std::map<std::string, std::shared_ptr<const model::Metadata>> maps;  // by table name
  std::vector<model::HeldPartition> held;
  std::vector<model::PeerView> peers;
};

// A log that ended in a merge; the target's goes on from it and another one.
struct JoinedLog {
  model::PartitionId partition;
  model::AssignmentId assignment;
  bool operator==(const JoinedLog&) const = default;
};
// State of a log held here, or joined with another into one that is.
struct LogState {
  model::LogPoint end;  // durable
  model::Lsn oldest;    // first LSN that the journal still has; end + 1 if none
  // A merge's target, as long as the journal has the merge, and where there is anything in the two: the two, and where
  // this log begins.
  std::vector<JoinedLog> joined = {};
  model::LogPoint begins = {};
  bool operator==(const LogState&) const = default;
};

struct Records {
  Bytes bytes;  // a block payload
  uint32_t count = 0;
};
// A record stamped by another server (or to be treated like one).
struct Foreign {
  model::DigestEntry entry;
  std::string record;  // as it stands in a payload
};
// Records of one stamper and one incarnation that were passed over: its own mover brings them.
struct Awaited {
  model::Version oldest, newest;
  uint32_t count = 0;
};
struct LogBatch {
  model::LogPoint through;  // of the last block read, whatever of it lay in the interval
  Records own;              // stamped by this server
  std::vector<Foreign> foreign;
  std::vector<Awaited> awaited;
  // Of what this server stamped in its present life: the oldest, and the oldest of the last block and of the one before
  // it that have any.
  model::Version own_oldest, last_oldest, before_oldest;
  model::Lsn gap;  // end of the last damaged place that was passed over; 0: there was none
};

// --- Inputs ------------------------------------------------------------------------------------
struct Tick {
  base::Instant now;
};
struct ViewSeen {
  base::Instant now;
  View view;
};
// The partd cannot be asked, or is another process than the one that showed the view: everything pauses.
struct ViewLost {
  base::Instant now;
  std::string why;
};
// All logs asked for, and those that were joined into one of them, after everything that Measure named was done.
// `measure`: number of the last Measure it answers.
struct LogsSeen {
  base::Instant now;
  uint64_t measure = 0;
  std::map<model::PartitionId, LogState> logs;
};
// What live sends had confirmed: everything up to `to`.
struct LiveSeen {
  base::Instant now;
  StreamId stream;
  model::LogPoint to;
};
struct MarkLoaded {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  std::vector<std::pair<MarkKey, Mark>> found;
};

// Once, at the start: every mark that is kept, so that those nobody needs any more can be forgotten.
struct MarksListed {
  base::Instant now;
  std::vector<MarkKey> keys;
};

enum class ReadEnd : uint8_t {
  batch = 1,
  retired,        // the journal does not reach back so far
  not_contained,  // the position is not in this log; `restart` is the last point before it that is
  failed,
};
struct LogRead {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  ReadEnd end = ReadEnd::batch;
  LogBatch batch;
  model::LogPoint restart;
  std::string error;
};
struct SnapshotOpened {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  base::Result<model::LogPoint> from;
};
struct SnapshotChunk {
  Records records;
  std::string through_key;
  bool last = false;
};
struct SnapshotRead {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  base::Result<SnapshotChunk> chunk;
};

struct Began {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  base::Result<model::BulkBeginReply> reply;
};
struct Confirmed {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  base::Status status;
  std::vector<model::Delivered> delivered = {};
};
struct Digested {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  base::Result<model::DigestReply> reply;
};
struct EndTold {
  base::Instant now;
  StreamId stream;
  uint64_t ticket = 0;
  base::Status status;
};

struct ProofChunk {
  std::vector<model::DigestEntry> entries;  // in key order
  std::string through_key;
  bool last = false;
  model::Lsn applied;  // of the index it was read from
};
struct ProofRead {
  base::Instant now;
  model::AssignmentId own;
  uint64_t ticket = 0;
  base::Result<ProofChunk> chunk;
};
struct Proved {
  base::Instant now;
  model::AssignmentId own;
  uint64_t ticket = 0;
  base::Result<model::DigestReply> reply;
};
struct Dropped {
  base::Instant now;
  model::AssignmentId own;
  uint64_t ticket = 0;
  base::Status status;
};

// What an operator says. `which`: empty for all; else a table, a server, or (a prefix of) a partition or assignment id.
enum class Verb : uint8_t { hold = 1, release, requeue, wake };
struct Asked {
  base::Instant now;
  Verb verb = Verb::wake;
  std::string which;
};

using Input =
    std::variant<Tick, ViewSeen, ViewLost, LogsSeen, LiveSeen, MarksListed, MarkLoaded, LogRead, SnapshotOpened,
                 SnapshotRead, Began, Confirmed, Digested, EndTold, ProofRead, Proved, Dropped, Asked>;

// --- Effects -----------------------------------------------------------------------------------
struct LoadMark {
  StreamId stream;
  uint64_t ticket = 0;
  std::vector<MarkKey> keys;
};                   // all of them that there are
struct RecordMark {  // durable, soon
  MarkKey key;
  model::PartitionId partition, target_partition;
  Mark mark;
};
struct ForgetMark {
  MarkKey key;
};
struct Measure {
  uint64_t number = 0;
  std::vector<model::PartitionId> partitions;
};  // log ends, from now on
struct RefreshView {};
struct ReadLog {
  StreamId stream;
  uint64_t ticket = 0;
  model::PartitionId partition;
  model::LogPoint after;
  model::Interval interval;
  size_t bytes = 0;
  bool offer_own = false;  // what this server stamped comes among the `foreign`, too: the target probably has it
  std::vector<model::ServerNumber> await;  // whose stamps come among the `awaited`
  model::Incarnation incarnation;          // of this server
  model::Lsn until;                        // not beyond; 0: no bound
};
struct OpenSnapshot {
  StreamId stream;
  uint64_t ticket = 0;
  model::PartitionId partition;
};
struct ReadSnapshot {
  StreamId stream;
  uint64_t ticket = 0;
  model::PartitionId partition;
  model::Interval interval;
  std::string after_key;  // empty: from the beginning
  size_t bytes = 0;
};
struct SendBegin {
  StreamId stream;
  uint64_t ticket = 0;
  model::ServerId to;
  model::BulkBegin message;
};
// The message without its records: they are in `records`.
struct SendBlock {
  StreamId stream;
  uint64_t ticket = 0;
  model::ServerId to;
  model::BulkBlock message;
  Bytes records;
};
struct SendDigest {
  StreamId stream;
  uint64_t ticket = 0;
  model::ServerId to;
  model::Digest message;
};
struct SendEnd {
  StreamId stream;
  uint64_t ticket = 0;
  model::ServerId to;
  model::BulkEnd message;
};
struct ReadProof {
  model::AssignmentId own;
  uint64_t ticket = 0;
  model::PartitionId partition;
  model::Interval interval;
  std::string after_key;
  size_t entries = 0;
};
struct AskProof {
  model::AssignmentId own;
  uint64_t ticket = 0;
  model::ServerId to;
  model::Digest message;
};
struct Drop {
  model::AssignmentId own;
  uint64_t ticket = 0;
  std::string table;
  model::TableUuid table_uuid;
  model::PartitionId partition;
  model::TxnSeq txnseq;
  model::LogPoint end;
};
struct Note {
  bool warn = false;
  std::string event;
  std::string partition, server, text;
};  // worth a line in the log

using Effect = std::variant<LoadMark, RecordMark, ForgetMark, Measure, RefreshView, ReadLog, OpenSnapshot, ReadSnapshot,
                            SendBegin, SendBlock, SendDigest, SendEnd, ReadProof, AskProof, Drop, Note>;
using Effects = std::vector<Effect>;

}  // namespace cantle::proto::mover

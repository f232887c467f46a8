// What the machine of a push server (lib/proto/push_server.h) is told, and what it asks for.
//
// Bytes stay with the shell: it keeps the requests of clients (RequestId), the messages of other servers that
// wait for an answer (CallId) and the records gathered into one block (BatchId); the machine only names them.
//
// Units: Instant steady clock, WallMs wall clock; sizes in bytes of encoded records.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/client_messages.h"
#include "lib/model/local.h"
#include "lib/model/messages.h"
#include "lib/model/metadata.h"

namespace cantle::proto::push {

using RequestId = uint64_t;  // a client's write: drawn by the shell, never again
using CallId = uint64_t;     // a push.write, bulk.block or drop: likewise
using BatchId = uint64_t;    // drawn by the machine

struct Now {
  base::Instant at;
  base::WallMs wall = 0;
};

// A copy as the store found or made it. Of one partition at most one tenure is live, others are aside.
struct Held {
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::Region region;
  model::TableUuid table;
  model::Interval interval;
  bool aside = false;
  model::Lsn end;     // durable end of its log
  bool whole = true;  // false: records may be missing, it has to be compared with every replica (store.md, damage)
};
// A copy that was begun as the child of a split on a server that does not hold the parent.
struct ChildOf {
  model::PartitionId child, parent;
  model::AttemptId attempt;
  bool operator==(const ChildOf&) const = default;
};

struct Self {
  model::ServerId server;
  model::ServerNumber number;
  model::Incarnation incarnation;
  model::Version newest;  // no version in the own journal, index or root block is above it
  // This data directory is new although the cluster knows the server's name: whatever METADATA assigns to it is lost
  // (S6).
  bool fresh_under_known_name = false;
  std::vector<Held> held;
  std::map<model::TableUuid, model::TxnSeq> seen;  // as Remember had it written
  std::vector<ChildOf> children;                   // likewise
};

// What the shell read out of a message's records (all of them within the limits).
struct RecordsSeen {
  uint32_t count = 0;
  model::Version newest;
  std::string_view first_key, last_key;  // least and greatest
  bool one_stamper = true;               // all versions name one server number and incarnation
};

// --- inputs: what happened -----------------------------------------------------------------------
// A map, newer than the installed one or the same, whose hash was found in TableConfig.
struct MapRead {
  std::string table;
  std::shared_ptr<const model::Metadata> map;
};
struct LiveRead {
  std::map<model::ServerId, model::Incarnation> live;
};  // partition servers under nodes/active
struct LinkChanged {
  model::ServerId server;
  bool up = false;
};

struct WriteAsked {
  RequestId request = 0;
  std::string_view table;
  std::span<const std::string_view> keys;
  size_t bytes = 0;  // an upper bound of the encoded records
  model::TxnSeq txnseq;
  model::Level level = model::Level::majority;
  base::Instant deadline;
  bool hop = false;
  std::optional<model::Version> version;  // a repeat of an unknown outcome
  std::optional<model::Version> after;    // stamp it above this one: the client's own write before it
};
struct Flush {};  // the turn's requests are all there: blocks may be closed
// The gathered block is durable and has these LSNs, or it is known not to be in the log.
struct Appended {
  BatchId batch = 0;
  base::Result<model::LogPoint> end;
};
struct SendAnswered {
  BatchId batch = 0;
  model::AssignmentId to;
  base::Result<model::PushWriteReply> answer;
};

struct WriteArrived {
  CallId call = 0;
  const model::PushWrite* message = nullptr;  // valid during step()
  RecordsSeen seen;
};
struct BulkArrived {  // kind log
  CallId call = 0;
  const model::BulkBlock* message = nullptr;
  RecordsSeen seen;
};
struct DeliveryTold {  // by a bulk.block or a digest
  model::Envelope envelope;
  model::Delivered delivered;
};
struct ReceivedAppended {  // what AppendReceived asked for
  CallId call = 0;
  base::Result<model::LogPoint> end;
};
struct TableDropped {
  model::TableUuid table;
};  // it stands under /dropped/
struct BulkEndArrived {
  const model::BulkEnd* message = nullptr;
};  // after admit() said ok
struct BeaconArrived {
  model::Beacon beacon;
};
struct EpochsAnswered {
  model::PartitionId partition;
  model::AssignmentId of;
  base::Result<model::EpochsReply> answer;
};

struct Created {
  model::PartitionId partition;
  base::Status status;
};  // durable
struct Divided {
  model::PartitionId parent;
  base::Status status;
};  // durable
struct Merged {
  model::PartitionId target;
  base::Status status;
};  // durable
struct SetAsideDone {
  model::AssignmentId assignment;
  base::Status status;
};
struct Dropped {
  model::AssignmentId assignment;
  base::Status status;
};
struct DropAsked {
  CallId call = 0;
  const model::DropRequest* message = nullptr;
  std::optional<model::LogPoint> end;  // of the copy's log now; nothing: it takes no more appends
};
// replpush recorded that `target` confirmed the log of `own` to here.
struct PushedTo {
  model::AssignmentId own, target;
  model::Lsn lsn;
};
struct StoreState {
  std::string read_only;    // the reason; empty: it takes writes
  bool overloaded = false;  // the overlay is full
};
struct VersionSeen {
  model::Version newest;
};  // taken past the journal (a snapshot's chunk), or from the store
struct DrainAsked {
  bool on = true;
};
struct Indexed {
  model::TableUuid table;
  model::TxnSeq txnseq;
};  // as Index asked
struct Tick {};

using Input = std::variant<MapRead, LiveRead, LinkChanged, WriteAsked, Flush, Appended, SendAnswered, WriteArrived,
                           BulkArrived, ReceivedAppended, DeliveryTold, BulkEndArrived, BeaconArrived, EpochsAnswered,
                           Created, Divided, Merged, SetAsideDone, Dropped, DropAsked, PushedTo, StoreState,
                           VersionSeen, DrainAsked, Indexed, TableDropped, Tick>;

// --- effects: what to do, in order -----------------------------------------------------------------
// Encode the request's records with this version at the end of the batch's payload.
struct Gather {
  RequestId request = 0;
  BatchId batch = 0;
  model::Version version;
};
// Append the batch's payload to the partition's log as one block; answered with Appended. `newest`: stamped
// here just now, so newer than everything the store has. Where the store refuses it at once, none of the batch's
// Sends is performed, and Appended says the store's error: nothing has happened then.
struct Append {
  BatchId batch = 0;
  model::PartitionId log;
  uint32_t count = 0;
  bool newest = true;
};
// push.write of the batch's payload (only what lies in `only`, if that is said); answered with SendAnswered.
struct Send {
  BatchId batch = 0;
  model::ServerId to;
  model::Envelope envelope;
  model::Version settled;
  std::optional<model::Interval> only;
  base::Duration timeout{};
};
struct Forget {
  BatchId batch = 0;
};  // its payload is needed no more
// The answer to a client's write. outcome_unknown carries the version in `detail`, in hex.
struct Reply {
  RequestId request = 0;
  base::Result<model::WriteReply> result;
};
// Pass the client's request on, with hop = false and this txnseq.
struct Forward {
  RequestId request = 0;
  model::ServerId to;
  model::TxnSeq txnseq;
};
struct FetchMap {
  std::string table;
  model::TxnSeq at_least;
};

// Append the records of the message to the partition's log, under its own LSNs; answered with ReceivedAppended.
struct AppendReceived {
  CallId call = 0;
  model::PartitionId log;
};
struct Answer {  // to a push.write or bulk.block; to a drop: 1 dropped, 0 it was not there any more
  CallId call = 0;
  base::Result<model::Lsn> result;
};

struct Create {  // a new, empty copy in an extent of its own; answered with Created
  Held copy;
  std::string table;
};
struct Child {
  model::PartitionId partition;
  model::AssignmentId assignment;  // none: this server does not hold it; its half stays with the parent, aside
  model::Region region;
  bool operator==(const Child&) const = default;
};
// The parent's log ends here and the children's begin (reshape.md, Split 3); answered with Divided.
struct Divide {
  model::PartitionId parent;
  model::AttemptId attempt;
  std::string point;
  Child low, high;
};
// The logs of both end here and the target's begins behind them (reshape.md, Merge); answered with Merged.
struct Merge {
  model::PartitionId low, high;
  model::AttemptId attempt;
  Child target;
};
// No more appends to this copy: the map says that it is not to be here. Kept until it is proved and dropped;
// answered with SetAsideDone.
struct SetAside {
  model::PartitionId partition;
  model::AssignmentId assignment;
};
// Into the trash; answered with Dropped. `why` for the log: "proved", "table dropped", "split aborted".
struct Drop {
  model::PartitionId partition;
  model::AssignmentId assignment;
  std::string why;
};
struct MarkAvailable {  // md.change; asked again until the map shows it
  std::string table;
  model::PartitionId partition;
  model::AssignmentId assignment;
};
// Every replica was compared with: what was damaged is passed over from now on, and counted as lost.
struct MarkWhole {
  model::PartitionId partition;
  model::AssignmentId assignment;
};
struct Index {
  model::TableUuid table;
  model::TxnSeq txnseq;
};  // answered with Indexed, once the index has all that was called back before
struct PublishObserved {
  std::string table;
  model::TxnSeq txnseq;
};  // observed/<server>
struct MapShown {
  std::string table;
  model::TxnSeq txnseq;
};  // settled() moved: tell replpush
// Durably, before anything later is done: Self::seen and Self::children at the next start (S36).
struct Remember {
  std::map<model::TableUuid, model::TxnSeq> seen;
  std::vector<ChildOf> children;
};
struct AskEpochs {
  model::ServerId to;
  model::Envelope envelope;
};  // answered with EpochsAnswered
struct SendBeacon {
  model::ServerId to;
};
struct SetLive {  // live sends have confirmed the log of `own` to here, without a gap
  model::AssignmentId own, target;
  model::LogPoint point;
};
struct ForgetLive {
  model::AssignmentId own, target;
};
struct Say {
  base::Level level = base::Level::warn;
  std::string what, text;
};  // a line in the log
struct Exit {
  std::string text;
};  // status 78: wrong identity

using Effect = std::variant<Gather, Append, Send, Forget, Reply, Forward, FetchMap, AppendReceived, Answer, Create,
                            Divide, Merge, SetAside, Drop, MarkAvailable, MarkWhole, Index, PublishObserved, MapShown,
                            Remember, AskEpochs, SendBeacon, SetLive, ForgetLive, Say, Exit>;
using Effects = std::vector<Effect>;

}  // namespace cantle::proto::push

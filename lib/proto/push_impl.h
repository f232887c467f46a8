// The inside of PushServer: tables, copies, batches. Included by push_*.cc alone.
//
//   push_server.cc   the door and time
//   push_answer.cc   questions: where, admit, read plans, status
//   push_maps.cc     a map is installed: which copies to begin, divide, set aside, drop; observed
//   push_merge.cc    the end of a merge
//   push_care.cc     copies between maps: catching up, being filled, created, dropped
//   push_writes.cc   clients' writes: gathering, levels, resending
//   push_recount.cc  writes under way when a map changes their partition
//   push_receive.cc  messages of other servers
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/base/check.h"
#include "lib/proto/hlc.h"
#include "lib/proto/push_fill.h"
#include "lib/proto/push_plan.h"
#include "lib/proto/push_server.h"
#include "lib/proto/push_track.h"

namespace cantle::proto {
namespace push {

using base::Code;
using model::AssignmentId;
using model::PartitionId;
using model::ServerId;
using model::TableUuid;
using model::TxnSeq;

constexpr uint32_t kSendsToOneMax = 1024;  // a server that does not answer holds up no more than these (S26)
constexpr size_t kRequestsInBatchMax = 16384;
constexpr base::Duration kResendSoon = std::chrono::milliseconds(5);
constexpr base::Duration kClockAnswerWithin = std::chrono::seconds(1);

struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};

// Something that the installed map asked of the store: until it is done the map is not shown.
struct HeldBack {
  TableUuid table;
  TxnSeq tag;
  bool failed = false;  // to be asked for again
};

// What the map says of a copy that is here.
enum class Role : uint8_t {
  serving,  // an assignment of a partition of the map, in whatever state
  child,    // of a split, on a server that does not hold the parent
  old,      // positively told: another tenure has its place, the partition is elsewhere or has ended
  unknown,  // the map does not explain it: kept, serves nothing
};

struct Copy {
  Held held;
  Role role = Role::unknown;
  bool creating = false, dropping = false;
  bool told = false;                                                // an unknown copy was complained about
  model::AssignmentState state = model::AssignmentState::proposed;  // serving, child

  // Catching up after a start: no local reads until every live replica has delivered what it had.
  bool caught_up = true;
  base::Instant catch_up_until, ask_next;
  std::map<AssignmentId, model::EpochsReply> epochs;
  std::map<AssignmentId, model::LogPoint> ends;  // bulk.end of each source tenure
  std::set<AssignmentId> filling_ends;           // likewise, of those that were being filled themselves
  // Not 0: records may be missing here. Everybody is asked to offer everything; those that have are in `healed`.
  uint64_t heal = 0;
  std::set<AssignmentId> healed;
  base::Instant mark_next;                  // MARK_AVAILABLE is asked again then
  std::vector<model::Delivered> delivered;  // one a stamper, as its mover said in this life of ours

  LogTrack track;
  std::shared_ptr<const Plan> plans[4];  // by Side, of the installed map; made when needed
  BatchId open[4][2] = {};               // gathering, by Side and by whether stamped here; 0: none
};

struct Table {
  std::string name;
  TableUuid uuid;
  std::shared_ptr<const model::Metadata> map;
  std::map<TxnSeq, std::shared_ptr<const model::Metadata>> maps;  // from the settled one on
  std::map<TxnSeq, uint32_t> under_way;  // appends, by the map they began under; divides and creations one below theirs
  TxnSeq settled, published;
  TxnSeq indexing, indexed;  // what ended under this map or before is in the index: asked for, and done
  base::Instant fetch_next;
  TxnSeq fetch_at_least;
  std::optional<base::Instant> arrange_at;  // something failed: look at the copies again
  // Of merges that wait for one of the two to be made here: the two and the target. Nothing else is done about them.
  std::set<PartitionId> joining;

  // What this server serves of the table, in key order: for the hot paths.
  struct Serve {
    const model::Partition* partition = nullptr;
    Copy* copy = nullptr;
  };
  std::vector<Serve> serves;

  const Serve* serve(std::string_view key) const {
    auto it = std::upper_bound(serves.begin(), serves.end(), key,
                               [](std::string_view k, const Serve& s) { return k < s.partition->interval.begin; });
    if (it == serves.begin()) return nullptr;
    --it;
    return it->partition->interval.contains(key) ? &*it : nullptr;
  }
};

struct Waiting {
  RequestId request = 0;
  model::Level level = model::Level::majority;
  base::Instant deadline;
  model::Version version;
  uint32_t last = 0;  // its last record is the batch's n-th, from 1
};

// Records of one log that become one block.
struct Batch {
  BatchId id = 0;
  TableUuid table;
  PartitionId log;
  AssignmentId own;  // tenure of that log
  Side side = Side::whole;
  model::AttemptId split;  // under which `side` was chosen
  bool newest = true;
  uint32_t count = 0;
  size_t bytes = 0;
  model::Version low, high;  // versions in it
  std::vector<Waiting> waiting;
  base::Instant earliest;  // of the deadlines of `waiting`

  bool closed = false;
  std::vector<PartitionId> scope;  // the partitions its keys lie in
  std::shared_ptr<const Plan> plan;
  uint64_t acked = 0, sent = 0;                       // bits of the plan's targets; sent: not answered yet
  std::vector<std::pair<AssignmentId, int>> aliases;  // older tenures that speak for a target of this plan
  uint32_t strays = 0;                                // sends under way to who is no target any more
  std::optional<model::LogPoint> end;                 // where it stands in the log, durable
  bool failed = false;                                // it is not in the log
  bool payload = true;                                // the shell still has it
  TxnSeq tag;                                         // of the map the append began under
  base::Instant sent_at, resend_at;
  base::Duration resend_after = kResendEvery;
};

// A message whose records are being appended.
struct Receiving {
  TableUuid table;
  AssignmentId own;
  TxnSeq tag;
  LogTrack::Entry entry;
};

struct Link {
  std::optional<bool> up;
  uint32_t under_way = 0;  // sends not answered
  base::Instant said;      // when something was last sent
};

inline bool came_with_the_table(const model::Assignment& a) { return a.source.none() && a.since.value == 1; }

}  // namespace push

struct PushServer::Impl {
  explicit Impl(push::Self s);

  void on(const push::MapRead& in);
  void on(const push::TableDropped& in);
  void on(const push::LiveRead& in);
  void on(const push::LinkChanged& in);
  void on(const push::WriteAsked& in);
  void on(const push::Flush& in);
  void on(const push::Appended& in);
  void on(const push::SendAnswered& in);
  void on(const push::WriteArrived& in);
  void on(const push::BulkArrived& in);
  void on(const push::ReceivedAppended& in);
  void on(const push::DeliveryTold& in);
  void on(const push::BulkEndArrived& in);
  void on(const push::BeaconArrived& in);
  void on(const push::EpochsAnswered& in);
  void on(const push::Created& in);
  void on(const push::Divided& in);
  void on(const push::Merged& in);
  void on(const push::SetAsideDone& in);
  void on(const push::Dropped& in);
  void on(const push::DropAsked& in);
  void on(const push::PushedTo& in);
  void on(const push::StoreState& in) { store = in; }
  void on(const push::VersionSeen& in) { hlc.observe(in.newest); }
  void on(const push::DrainAsked& in) { draining = in.on; }
  void on(const push::Indexed& in);
  void on(const push::Tick& in);

  template <class E>
  void emit(E effect) {
    out->emplace_back(std::in_place_type<E>, std::move(effect));
  }
  void say(base::Level level, std::string what, std::string text) {
    emit(push::Say{level, std::move(what), std::move(text)});
  }
  void reply_error(push::RequestId request, base::Error error) {
    emit(push::Reply{request, tl::unexpected<base::Error>(std::move(error))});
  }
  void answer_error(push::CallId call, base::Error error) {
    emit(push::Answer{call, tl::unexpected<base::Error>(std::move(error))});
  }

  // push_server.cc
  push::Table* table(std::string_view name) const;
  push::Table* table(const model::TableUuid& uuid) const;
  push::Copy* live(const model::PartitionId& partition) const;
  push::Copy* copy(const model::AssignmentId& own) const;
  push::Copy& add(push::Held held);
  void remove(const model::AssignmentId& own);
  void fetch(push::Table& t, model::TxnSeq at_least);
  std::shared_ptr<const push::Plan> plan_for(const push::Table& t, const model::Partition& p, push::Copy& c,
                                             push::Side side);
  bool within_reach(const model::ServerId& server) const;
  uint64_t within_reach(const push::Plan& plan) const;  // bits of the own targets and of those within reach
  std::string read_only() const;
  void send_beacons();

  // push_answer.cc
  void locate(push::Where& w, const push::Table& t, const push::Table::Serve* s, const model::Partition* p,
              model::TxnSeq txnseq, bool hop) const;
  bool find_table(push::Where& w, std::string_view name, model::TxnSeq txnseq, const push::Table** t) const;

  // push_maps.cc
  push::Table& table_for(const push::MapRead& in);
  void drop_table(push::Table& t);
  bool arrange(push::Table& t, bool first);
  void reshape_ended(push::Table& t);
  push::Child child_here(const push::Table& t, const model::PartitionId& child, const push::Copy& parent) const;
  void divide(push::Table& t, push::Copy& parent, const model::EndedPartition& e);
  void inherit(push::Table& t, push::Copy& parent, const push::Child& child, push::Side side, model::Interval interval);
  void set_aside(push::Table& t, push::Copy& c);
  bool begin_copies(push::Table& t, bool first);
  bool begin_copy(push::Table& t, const model::PartitionId& id, model::Region region, const model::Interval& interval,
                  const model::Assignment& a, const model::Partition* p, bool first);
  bool make_copy(push::Table& t, const model::PartitionId& id, model::Region region, const model::Interval& interval,
                 const model::AssignmentId& own);
  bool goes_on_from_unmade(const push::Table& t, const model::Assignment& a) const;
  push::Copy* older_tenure(const push::PartitionId& id) const;
  bool lost(const push::Table& t, const model::Assignment& a, const model::Partition* p, bool first) const;
  void explain_copies(push::Table& t);
  void explain(push::Table& t, push::Copy& c);
  bool child_in_split(const push::Table& t, push::Copy& c) const;
  bool aborted(const push::Table& t, const push::Copy& c) const;
  void rebuild(push::Table& t);
  std::vector<push::Target> others(const push::Plan& plan) const;
  void find_partners();
  model::TxnSeq hold_back(push::Table& t);
  void end_under_way(push::Table& t, model::TxnSeq tag);
  void settle(push::Table& t);
  void publish(push::Table& t);
  bool wants_observed(const push::Table& t) const;
  model::TxnSeq ended_here(const push::Table& t) const;
  void remember_seen(const push::Table& t);
  void remember();

  // push_merge.cc
  void merge_ended(push::Table& t, const model::EndedPartition& e);
  bool never_made(const push::Table& t, const model::Assignment& a) const;
  void merge(push::Table& t, push::Copy& low, push::Copy& high, const model::EndedPartition& e);

  // push_care.cc
  void start_catch_up(push::Copy& c);
  void catch_up(push::Table& t, push::Copy& c, const model::Partition& p);
  void fill(push::Table& t, push::Copy& c);
  model::PartitionId filled_from(const push::Copy& c) const;
  bool filled(const push::Table& t, const push::Copy& c) const;
  void mark_whole(push::Copy& c, const model::Partition& p);
  void look_after(push::Table& t);
  void drop(push::Copy& c, std::string why);

  // push_writes.cc
  std::optional<base::Error> refuse_write(const push::WriteAsked& in) const;
  void elsewhere(push::Table& t, const push::WriteAsked& in);
  const model::ServerId* forward_to(const model::Partition& p) const;
  void gather(push::Table& t, const model::Partition& p, push::Copy& c, push::Side side,
              const std::shared_ptr<const push::Plan>& plan, const push::WriteAsked& in);
  void close_open(const model::TableUuid& uuid);
  void close(push::Batch& b);
  void send_missing(push::Table& t, push::Batch& b);
  model::Version settled_for(const model::AssignmentId& own) const;
  model::Envelope envelope(const push::Table& t, const model::PartitionId& partition, const model::AssignmentId& from,
                           const model::AssignmentId& to) const;
  void append_failed(push::Batch& b, const base::Error& why);
  int target_of(const push::Batch& b, const model::AssignmentId& to) const;
  void refused(push::Batch& b, const base::Error& error);
  void answer_reached(push::Batch& b);
  base::Error unknown(const push::Waiting& w, std::string_view why) const;
  void give_up(push::Batch& b, std::string_view why);
  void retire(push::Batch& b);  // may end its life
  void tick_batches();
  void expire(push::Batch& b);
  void track_entry(const model::AssignmentId& own, const push::LogTrack::Entry& entry);
  void track_ack(const push::Batch& b, const model::AssignmentId& by, const model::AssignmentId& as);
  void publish_marks();

  // push_recount.cc
  void recount(push::Table& t);
  bool concerned(const push::Table& t, const push::Batch& b) const;
  void recount(push::Table& t, push::Batch& b);
  bool expand(const push::Table& t, const push::Batch& b, const model::PartitionId& id,
              std::vector<push::Scope>& scopes) const;
  void adopt(push::Batch& b, const std::shared_ptr<const push::Plan>& plan);

  // push_receive.cc
  void receive(push::CallId call, const model::Envelope& e, const push::RecordsSeen& seen, push::Purpose purpose,
               push::LogTrack::Entry::Kind kind);
  std::optional<base::Error> refuse_records(const push::Copy& c, const push::RecordsSeen& seen) const;
  void hear(const model::ServerId& from, model::Incarnation incarnation);
  void restarted(const model::ServerId& server);
  model::Incarnation peer_incarnation(const model::ServerId& server) const;
  push::Admission admit(const model::Envelope& e, push::Purpose purpose) const;

  push::Now now;
  push::Effects* out = nullptr;
  push::Self self;
  Hlc hlc;
  PeerClocks clocks;
  push::StoreState store;
  bool draining = false, was_read_only = false;

  std::map<model::TableUuid, std::unique_ptr<push::Table>> tables;
  std::unordered_map<std::string, push::Table*, push::NameHash, std::equal_to<>> by_name;
  std::map<model::AssignmentId, std::unique_ptr<push::Copy>> copies;
  std::map<model::PartitionId, model::AssignmentId> live_by_partition;    // the copies that take appends
  std::map<model::AssignmentId, std::vector<model::AssignmentId>> heirs;  // a divided tenure's children
  std::map<model::PartitionId, push::HeldBack> creating, dividing;
  std::map<model::PartitionId, push::HeldBack> merging;  // by target
  std::map<model::AssignmentId, push::HeldBack> setting_aside, dropping;
  std::map<model::AssignmentId, push::CallId> drops;
  std::map<model::AssignmentId, model::TableUuid> unmade;  // copies that the store could not make yet

  bool live_known = false;
  std::set<model::ServerId> live_servers, partners;
  std::map<model::ServerId, push::Link> links;
  std::map<model::ServerId, model::Incarnation> incarnations;

  push::BatchId last_batch = 0;
  std::map<push::BatchId, push::Batch> batches;
  std::vector<push::BatchId> open_batches;
  size_t waiting_batches = 0, waiting_bytes = 0, waiting_requests = 0;
  std::map<push::CallId, push::Receiving> receiving;
};

}  // namespace cantle::proto

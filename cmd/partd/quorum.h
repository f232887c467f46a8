// Quorum: the shell around the replicas of quorum tables: what proto::QuorumTables and each proto::QuorumReplica ask
// for, done with the store, the links and the coordination service. One a process, beside the push tables' machine.
//
//   quorum.cc          the parts, time, copies
//   quorum_effects.cc  what a replica asked for
//   quorum_peers.cc    pipe.*, quorum.*: messages of other servers
//   quorum_client.cc   writes and reads
//
// Use
//   Quorum quorum(parts, self, hooks);
//   quorum.map_came(name, map); quorum.coord_event(e); quorum.link_changed(server, up);
//   if (quorum.tables().installed(table)) quorum.write(…) / get(…) / scan(…)
//   quorum.hand_over(deadline, done);    // before the process ends
//
// Invariants
//   * A replica's effects are performed in order; what they lead to at once is queued, never stepped inside.
//   * A linearizable read is answered only if the lease still holds after it was read, by the clock then (S7).
//   * A request that needs a leader is answered NOT_LEADER only with a leader's name, or when none was found in time.
//   * Writes are judged in the order of the log, when they get there (lib/proto/quorum_judge.h).
//   * A request's bytes are used during its own step only; what must wait is copied.
// Threads: the loop's; the store has threads of its own.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "cmd/partd/links.h"
#include "lib/coord/governments.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/model/client_messages.h"
#include "lib/model/operation.h"
#include "lib/proto/quorum_judge.h"
#include "lib/proto/quorum_replica.h"
#include "lib/proto/quorum_tables.h"
#include "lib/rpc/server.h"
#include "lib/store/engine.h"
#include "lib/wire/client_request.h"

namespace cantle::partd {

constexpr base::Duration kTurnMost = std::chrono::milliseconds(20);  // between two looks at beacons and replicas
constexpr base::Duration kTurnLeast = std::chrono::milliseconds(1);
constexpr int kNewsShare = 3;  // to one part of the time in which every replica is looked at for news, of beacons
constexpr base::Duration kBeaconTimeout = std::chrono::milliseconds(1000);
constexpr base::Duration kSuspectTimeout = std::chrono::milliseconds(400);
constexpr base::Duration kDrainLook = std::chrono::milliseconds(2);
constexpr base::Duration kDrainMost = std::chrono::seconds(1);  // of a hand-over's time is kept for handing over
// Requests that came while nobody leads wait here for whoever will, and no longer than this.
constexpr base::Duration kLeaderWait = std::chrono::milliseconds(1500);
constexpr size_t kHeldMax = 4096;
// Of blocks that replicas miss: reads of the journal under way, and bytes that wait for a link before another begins.
constexpr size_t kOldReadsMax = 16;
constexpr size_t kOldUnsentMax = size_t{2} << 20;
constexpr base::Duration kOldLook = std::chrono::milliseconds(1);
constexpr size_t kOpensMost = 64;  // of pipes to one server, not answered yet
constexpr size_t kHeldBytesMax = size_t{32} << 20;
constexpr base::Instant kNever{base::Duration::max()};
constexpr size_t kQuorumRequestsMax = 65536;  // of clients, not answered yet

struct QuorumParts {
  io::Loop& loop;
  store::Engine& engine;
  coord::Session& session;
  const coord::Layout& layout;
  Links& links;
  model::Incarnation incarnation;
};

struct QuorumHooks {
  std::function<void(const base::Error&)> fail;
  std::function<void(const std::map<model::TableUuid, model::TxnSeq>&)> remember;
  std::function<void(const std::string& table, model::TxnSeq txnseq)> observed;
  // Passes a client's request on; the answer goes to the responder.
  std::function<void(const model::ServerId& to, std::string_view method, std::string_view params, model::TxnSeq txnseq,
                     base::Duration timeout, rpc::Responder responder)>
      forward;
  std::function<void(std::string_view params, rpc::Responder responder)> scan;  // a scan that waited, once more
  std::function<bool()> get_on_loop;  // false: this turn waits for the disk, read on a thread
  std::function<bool(const model::ServerId&)> live;
  // The table's map as it is after a sync begun now.
  std::function<void(const std::string& table,
                     std::function<void(base::Result<std::shared_ptr<const model::Metadata>>)> done)>
      read_map;
  // Has the operation committed; what came of it is seen in the map.
  std::function<void(const std::string& table, model::Operation operation)> change;
};

class Quorum {
 public:
  Quorum(const QuorumParts& parts, proto::quorum_tables::Self self, QuorumHooks hooks);
  ~Quorum();
  Quorum(const Quorum&) = delete;
  Quorum& operator=(const Quorum&) = delete;

  void map_came(const std::string& name, std::shared_ptr<const model::Metadata> map);
  void table_dropped(const model::TableUuid& table);
  void coord_event(coord::Event event);
  void link_changed(const model::ServerId& server, bool up);
  void add_handlers(rpc::Server& server);

  // --- clients ---
  // The caller has made sure that the map is at least as new as the request's.
  void write(wire::WriteRequest& request, std::string_view method, rpc::Responder responder);
  void get(const wire::GetView& request, std::string_view params, rpc::Responder responder);
  // Where a scan may read now. `may_answer`, where it is set, says whether what was read may be answered.
  struct ScanPlace {
    model::PartitionId log;
    model::Interval interval;
    model::TxnSeq txnseq;
    std::function<base::Status()> may_answer;
    std::optional<uint64_t> lag_ms;
  };
  void scan(const model::ScanRequest& request, const model::ScanStart& start, std::string_view params,
            rpc::Responder responder, const std::function<void(const ScanPlace&, rpc::Responder)>& here);

  // --- questions ---
  const proto::QuorumTables& tables() const { return tables_; }
  struct ReplicaStatus {
    proto::quorum_tables::CopyStatus copy;
    std::optional<proto::quorum::ReplicaStatus> replica;  // nothing: it takes no part
  };
  std::vector<ReplicaStatus> replicas() const;
  // For the answer to `status`.
  std::optional<model::StatusQuorum> status_of(const model::PartitionId& partition) const;
  size_t leading() const;
  // Under a lease, now; nothing: no replica of that partition takes part here.
  std::optional<bool> leads(const model::PartitionId& partition) const;
  bool idle() const { return tables_.idle(); }

  // Blocks in memory that its leaders may have to send again.
  size_t kept_bytes() const { return kept_room_.bytes; }
  // Gives every partition that it leads to the replica that is most level with it; then, or at the deadline, done().
  void hand_over(base::Instant deadline, std::function<void()> done);

 private:
  using Out = proto::quorum::ReplicaEffects;
  struct Built {
    model::BlockHeader header;
    std::string payload;
  };
  using BatchKey = std::pair<model::Epoch, proto::quorum::BatchId>;
  struct Replica final : proto::quorum::Gatherer {
    Replica(Quorum& to, proto::quorum::CommittedState state) : quorum(to), judge(std::move(state)) {}
    proto::quorum::Judged gather(proto::quorum::RequestId request, proto::quorum::BatchId batch, model::Epoch epoch,
                                 model::Lsn first) override {
      return quorum.gather(*this, request, {epoch, batch}, first);
    }
    Quorum& quorum;
    proto::quorum::Judge judge;
    model::PartitionId partition;
    model::AssignmentId assignment;
    model::TableUuid table;
    model::Region region;
    std::string name, distribution;
    std::unique_ptr<proto::QuorumReplica> machine;
    std::map<BatchKey, std::string> batches;
    std::map<model::Lsn, Built> kept;  // by last LSN
    bool flush_planned = false;
    base::Instant due = kNever;  // as it stands in due_
    size_t held = 0;             // requests that wait for a leader
  };
  struct Held {
    model::PartitionId partition;
    base::Instant until;
    std::string method, params;
    rpc::Responder responder;
    base::Error error;  // if none is found
  };
  struct Request {
    rpc::Responder responder;
    std::string_view method;
    model::TxnSeq txnseq;
    base::Duration timeout{};
    bool hop = false;
    std::string params;  // copied when it has to wait
    // What it came to, once it was judged; the answer, when all that this rests on is committed.
    std::variant<std::monostate, model::WriteOutcome, base::Error> verdict;
    bool repeat = false;
  };
  struct Block {
    model::PipeBlock message;  // its `block` is left empty
    model::BlockHeader header;
    std::string payload;
  };

  // quorum.cc
  void perform(proto::quorum_tables::Effects effects);
  void perform(proto::quorum_tables::Create& e);
  void perform(proto::quorum_tables::Begin& e);
  void perform(proto::quorum_tables::Tell& e);
  void perform(proto::quorum_tables::ShowReshape& e);
  void perform(proto::quorum_tables::End& e);
  void perform(proto::quorum_tables::Divide& e);
  void perform(proto::quorum_tables::Merge& e);
  void perform(proto::quorum_tables::SetAside& e);
  void perform(proto::quorum_tables::Drop& e);
  void perform(proto::quorum_tables::Settle& e);
  void perform(proto::quorum_tables::PublishObserved& e);
  void perform(proto::quorum_tables::Remember& e);
  void perform(proto::quorum_tables::Say& e);
  void perform(proto::quorum_tables::Exit& e);
  std::string_view run_state(const Replica& r, const proto::quorum::ReplicaStatus& status) const;
  Replica* find(const model::PartitionId& partition);
  const Replica* find(const model::PartitionId& partition) const;
  Replica* find(const model::AssignmentId& assignment);
  void run(Replica& r, const std::function<void(Out&)>& fn);
  // The same, if the replica is still there.
  void run(const model::AssignmentId& assignment, const std::function<void(Replica&, Out&)>& fn);
  // Those of `which`, one after the other; what one leads to may end another.
  void run_each(const std::function<bool(const Replica&)>& which, const std::function<void(Replica&, Out&)>& fn);
  void turn();
  void plan_turn();
  void look_around_soon();
  void wake_at(Replica& r, base::Instant next);
  void tick_due();
  void news();
  void listen(const std::string& distribution);
  void rung(const std::string& distribution, const coord::Ring& ring);
  bool may_stand(const std::string& distribution, model::Region region, const model::LogToken& vote);
  base::Instant at() { return loop_.now(); }
  proto::beacon::Now now() { return {loop_.now(), loop_.wall_ms()}; }
  void hand_over_more();

  // quorum_peers.cc
  template <class Message>
  std::shared_ptr<Message> decode(const rpc::Call& call, const rpc::Responder* responder);
  Replica* admit(const model::Envelope& envelope, const rpc::Responder* responder);
  void serve_beacon(const rpc::Call& call, rpc::Responder responder);
  void serve_suspect(const rpc::Call& call, rpc::Responder responder);
  void serve_release(const rpc::Call& call);
  void serve_open(const rpc::Call& call, rpc::Responder responder);
  void serve_cut(const rpc::Call& call, rpc::Responder responder);
  void serve_block(const rpc::Call& call);
  void serve_commit(const rpc::Call& call);
  void serve_ack(const rpc::Call& call);
  void serve_outside(const rpc::Call& call);
  void serve_blocks(const rpc::Call& call, rpc::Responder responder);
  void serve_lend(const rpc::Call& call, rpc::Responder responder);
  void serve_snapshot(const rpc::Call& call, rpc::Responder responder);

  // quorum_client.cc
  proto::quorum::Judged gather(Replica& r, proto::quorum::RequestId request, const BatchKey& batch, model::Lsn first);
  void begin_judging(Replica& r);
  void flush_soon(Replica& r);
  void elsewhere(const model::Partition& p, std::string_view method, std::string_view params, model::TxnSeq txnseq,
                 bool hop, base::Duration timeout, rpc::Responder responder);
  // Not the leader: passes it on to who is, names him, or has the request wait until somebody leads.
  void not_leader(const model::PartitionId& partition, const base::Error& error, std::string_view method,
                  std::string_view params, model::TxnSeq txnseq, bool hop, base::Duration timeout,
                  const rpc::Responder& responder);
  bool leader_known(const Replica& r) const;
  void release_held(const model::PartitionId& partition);
  void expire_held();
  void again(Held held);
  void refuse_read(const model::PartitionId& partition, const base::Error& error, std::string_view method,
                   std::string_view params, model::TxnSeq txnseq, bool hop, base::Duration timeout,
                   const rpc::Responder& responder);
  base::Status may_read(const Replica& r, base::Instant now) const;
  // What is seen here, as the children of a split will count it, too.
  model::Lsn visible(const Replica& r) const;
  // May this replica answer at that level? A lag: it is not the leader that says so.
  base::Result<std::optional<uint64_t>> may_answer(const Replica& r, model::Level level, uint64_t session);
  struct Answering {
    model::AssignmentId replica;
    bool linearizable = false;
    model::Lsn lsn;  // seen before it was read
    std::optional<uint64_t> lag_ms;
    rpc::Responder responder;
  };
  template <class Record>  // as one of the store's reads gives it
  void answer_get(const Answering& a, const base::Result<std::optional<Record>>& found);

  // quorum_effects.cc
  model::Envelope envelope(const Replica& r, const model::AssignmentId& to) const;
  void send_block(const model::ServerId& to, const model::PipeBlock& message, const model::BlockHeader& header,
                  std::string_view payload);
  template <class Message>
  void call_pipe(Replica& r, std::string_view method, const model::Hop& to, model::Epoch epoch, uint64_t generation,
                 const Message& message, const std::function<void()>& answered);
  void perform(Replica& r, proto::election::ReadGovernment& e);
  void perform(Replica& r, proto::election::SwapGovernment& e);
  void perform(Replica& r, proto::election::Seal& e);
  void perform(Replica& r, proto::election::PutVote& e);
  void perform(Replica& r, proto::election::RemoveVote& e);
  void perform(Replica& r, proto::election::ReadVotes& e);
  void perform(Replica& r, proto::election::AskSuspect& e);
  void perform(Replica& r, proto::election::SendRelease& e);
  void perform(Replica& r, proto::quorum::Build& e);
  void durable(const model::AssignmentId& id, const model::LogPoint& point);
  void perform(Replica& r, proto::quorum::Take& e);
  void perform(Replica& r, proto::quorum::Truncate& e);
  void perform(Replica& r, proto::quorum::Commit& e);
  void perform(Replica& r, proto::quorum::SendOpen& e);
  void open_pipes(const model::ServerId& server);
  void perform(Replica& r, proto::quorum::SendCut& e);
  void perform(Replica& r, proto::quorum::SendBlock& e);
  void perform(Replica& r, proto::quorum::ForgetBlocks& e);
  void perform(Replica& r, proto::quorum::SendCommit& e);
  void perform(Replica& r, proto::quorum::SendOld& e);
  void read_old();
  void read_old(const Replica& r, const proto::quorum::SendOld& e);
  void perform(Replica& r, proto::quorum::FindPoint& e);
  void perform(Replica& r, proto::quorum::AnswerOpen& e);
  void perform(Replica& r, proto::quorum::SendAck& e);
  void perform(Replica& r, proto::quorum::Forward& e);
  void perform(Replica& r, proto::quorum::Release& e);
  void perform(Replica& r, proto::quorum::SendOutside& e);
  void perform(Replica& r, proto::quorum::PullSnapshot& e);
  void perform(Replica& r, proto::quorum::InstallSnapshot& e);
  void perform(Replica& r, proto::quorum::FetchBlocks& e);
  void perform(Replica& r, proto::quorum::BorrowBlocks& e);
  void perform(Replica& r, proto::quorum::MarkWhole& e);
  void perform(Replica& r, proto::quorum::Reply& e);
  void perform(Replica& r, proto::quorum::ReadReshape& e);
  void perform(Replica& r, proto::quorum::AskAbort& e);
  void perform(Replica& r, proto::quorum::Faulted& e);
  void perform(Replica& r, proto::quorum::Say& e);

  io::Loop& loop_;
  store::Engine& engine_;
  coord::Session& session_;
  const coord::Layout& layout_;
  Links& links_;
  model::ServerId self_;
  model::Incarnation incarnation_;
  QuorumHooks hooks_;
  proto::QuorumTables tables_;
  proto::Beacons beacons_;
  coord::Governments governments_;
  std::set<std::string> listening_;    // distributions
  proto::quorum::KeptRoom kept_room_;  // of all replicas
  std::unordered_map<model::PartitionId, std::unique_ptr<Replica>> replicas_;
  std::unordered_map<model::AssignmentId, Replica*> by_assignment_;
  std::map<std::pair<std::string, model::Region>, model::AssignmentId> by_region_;  // of a distribution
  std::deque<std::pair<model::AssignmentId, proto::quorum::ReplicaEffect>> effects_;
  bool performing_ = false;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, Request> requests_;
  std::deque<Held> held_;
  size_t held_bytes_ = 0;
  std::unordered_map<uint64_t, Block> blocks_;
  std::unordered_map<uint64_t, rpc::Responder> opens_;
  const wire::WriteRequest* current_ = nullptr;  // the request whose step this is
  uint64_t current_id_ = 0;
  std::string answer_;
  std::deque<std::pair<model::AssignmentId, proto::quorum::SendOld>> old_;  // not begun
  size_t old_reading_ = 0;
  struct Opening {
    std::deque<std::pair<model::AssignmentId, proto::quorum::SendOpen>> waiting;
    size_t out = 0;
  };
  std::map<model::ServerId, Opening> opening_;  // pipes to it
  io::Timer timer_, hand_over_timer_, old_timer_;
  bool draining_ = false;
  base::Instant hand_over_until_{};
  std::function<void()> handed_over_;
  base::Instant planned_{}, next_news_{};
  bool look_around_planned_ = false;
  std::set<std::pair<base::Instant, model::AssignmentId>> due_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::partd

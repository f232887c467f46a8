// QuorumNode: one life of a partition server of QuorumWorld: the shell around its replicas, as partd will be.
#pragma once

#include <any>
#include <deque>
#include <variant>

#include "lib/coord/governments.h"
#include "lib/model/recovery.h"
#include "lib/proto/quorum_judge.h"
#include "lib/proto/quorum_replica.h"
#include "lib/proto/quorum_tables.h"
#include "lib/store/data_dir.h"
#include "test/sim/quorum_world.h"

namespace cantle::sim {

constexpr const char* kCrossing = "crossing";  // of a batch that lies in two partitions

class QuorumNode {
 public:
  QuorumNode(QuorumWorld& world, QuorumHost& host);
  ~QuorumNode();

  // By number: of a table that has one partition.
  proto::QuorumReplica* replica(size_t partition) {
    const auto* r = at(partition);
    return r == nullptr ? nullptr : r->machine.get();
  }
  proto::QuorumReplica* replica(const model::PartitionId& partition) {
    const auto* r = find(partition);
    return r == nullptr ? nullptr : r->machine.get();
  }
  template <class Fn>
  void each_replica(Fn fn) const {
    for (const auto& [id, r] : live_) fn(id, *r->machine);
  }
  // It has no log of that partition, and has not been filled yet.
  bool lags(const model::PartitionId& partition) const;
  store::Engine& engine() { return *engine_; }
  // As an operator who has lost its majority asks for it (quorum.report). Nothing: no replica of it takes part here.
  std::optional<model::CopyReport> report(const model::PartitionId& partition);
  void link_lost(const model::ServerId& server);
  void map_came(size_t partition, QuorumWorld::MapPtr map);
  void resign(size_t partition, const model::AssignmentId& successor) { hand_over(at(partition), successor); }
  void resign(const model::PartitionId& partition, const model::AssignmentId& successor) {
    hand_over(find(partition), successor);
  }

 private:
  struct Bytes {
    model::BlockHeader header;
    std::string payload;
  };
  using BytesPtr = std::shared_ptr<const Bytes>;
  // pipe.block, its block as a value.
  struct BlockMessage {
    model::PipeBlock message;
    BytesPtr bytes;
  };
  struct Replica final : proto::quorum::Gatherer {
    explicit Replica(QuorumNode& to) : node(to), judge(to.committed_state(*this)) {}
    proto::quorum::Judged gather(proto::quorum::RequestId request, proto::quorum::BatchId batch, model::Epoch epoch,
                                 model::Lsn first) override {
      return node.gather(*this, request, {epoch, batch}, first);
    }
    QuorumNode& node;
    proto::quorum::Judge judge;
    size_t partition = 0;
    model::PartitionId id;
    model::AssignmentId assignment;
    model::Region region;
    std::unique_ptr<proto::QuorumReplica> machine;
    std::map<std::pair<model::Epoch, proto::quorum::BatchId>, std::string> batches;
    std::map<model::Lsn, BytesPtr> kept;  // by last LSN
    bool flush_planned = false;
    bool ended = false;  // it takes no further part
  };
  struct Request {
    QuorumWrite write;
    Network::Reply reply;
    // What it came to, once it was judged; the answer, when all that this rests on is committed.
    std::variant<std::monostate, base::Error, model::WriteOutcome> verdict{};
    bool repeat = false;
  };
  using Out = proto::quorum::ReplicaEffects;

  void open();
  void perform(proto::quorum_tables::Effects effects);
  void perform(proto::quorum_tables::Create& e);
  void perform(proto::quorum_tables::Begin& e);
  void perform(proto::quorum_tables::Tell& e);
  void perform(proto::quorum_tables::ShowReshape& e);
  void perform(proto::quorum_tables::Divide& e);
  void perform(proto::quorum_tables::Merge& e);
  void perform(proto::quorum_tables::SetAside& e);
  void perform(proto::quorum_tables::End& e);
  void perform(proto::quorum_tables::Drop& e);
  void perform(proto::quorum_tables::Settle& e);
  void perform(proto::quorum_tables::PublishObserved& e) { world_.observed(host_, e.table, e.txnseq); }
  void perform(proto::quorum_tables::Remember& e) { host_.seen = e.seen; }
  void perform(proto::quorum_tables::Say& e);
  void perform(proto::quorum_tables::Exit& e) { fatal(e.text); }
  void turn();
  void run(Replica& r, const std::function<void(Out&)>& fn);
  void hand_over(Replica* r, const model::AssignmentId& successor);
  Replica* route(size_t partition, const std::string& key, const Network::Reply& reply);
  void serve(const std::any& request, Network::Reply reply);
  proto::quorum::Judged gather(Replica& r, proto::quorum::RequestId request,
                               std::pair<model::Epoch, proto::quorum::BatchId> batch, model::Lsn first);
  proto::quorum::CommittedState committed_state(const Replica& r);
  void write(Replica& r, const QuorumWrite& m, Network::Reply reply);
  base::Status may_read(const Replica& r);
  void begin_judging(Replica& r);
  void get(Replica& r, const QuorumGet& m, Network::Reply reply);
  Instant at() { return host_.process.now(); }
  proto::beacon::Now now() { return {at(), host_.process.wall_ms()}; }
  model::Envelope envelope(const Replica& r, const model::AssignmentId& to) const;
  Replica* find(const model::PartitionId& id);
  Replica* at(size_t partition);
  std::string distribution(const Replica& r) const { return QuorumWorld::distribution(r.partition); }
  void fatal(const std::string& why);
  template <class Message>
  void call(Replica& r, const model::Hop& to, model::Epoch epoch, uint64_t generation, Message message);
  void check_durable(const Replica& r, const model::LogPoint& point);
  void check_promise(const Replica& r, model::Epoch epoch);
  void send_block(const model::ServerId& to, BlockMessage message);
  void news();

  void perform(Replica& r, proto::election::ReadGovernment& e);
  void perform(Replica& r, proto::election::SwapGovernment& e);
  void perform(Replica& r, proto::election::Seal& e);
  void perform(Replica& r, proto::election::PutVote& e);
  void perform(Replica& r, proto::election::RemoveVote& e);
  void perform(Replica& r, proto::election::ReadVotes& e);
  void perform(Replica& r, proto::election::AskSuspect& e);
  void perform(Replica& r, proto::election::SendRelease& e);
  void perform(Replica& r, proto::quorum::Build& e);
  void durable(Replica& r, const model::LogPoint& point);
  void perform(Replica& r, proto::quorum::Take& e);
  void perform(Replica& r, proto::quorum::Truncate& e);
  void perform(Replica& r, proto::quorum::Commit& e);
  void perform(Replica& r, proto::quorum::SendOpen& e);
  void perform(Replica& r, proto::quorum::SendCut& e);
  void perform(Replica& r, proto::quorum::SendBlock& e);
  void perform(Replica& r, proto::quorum::ForgetBlocks& e);
  void perform(Replica& r, proto::quorum::SendCommit& e);
  void perform(Replica& r, proto::quorum::SendOld& e);
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

  QuorumWorld& world_;
  QuorumHost& host_;
  SimDisk disk_;
  SimExecutor executor_;
  store::MemIndexFactory indexes_;
  std::unique_ptr<store::DataDir> dir_;
  std::unique_ptr<store::LivePage> page_;
  std::unique_ptr<store::Engine> engine_;
  std::unique_ptr<proto::Beacons> beacons_;
  std::unique_ptr<coord::Session> session_;
  std::unique_ptr<coord::Governments> governments_;
  std::optional<proto::QuorumTables> tables_;
  proto::quorum::KeptRoom kept_room_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // what is ended stays, for answers that are on their way
  std::map<model::PartitionId, Replica*> live_;
  std::deque<std::pair<Replica*, proto::quorum::ReplicaEffect>> effects_;
  bool performing_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, BlockMessage> blocks_;
  std::map<uint64_t, std::pair<model::Epoch, Network::Reply>> opens_;
  Instant engine_tick_{};
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace cantle::sim

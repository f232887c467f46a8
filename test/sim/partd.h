// PartdNode: the shell of a partd in the simulated world: one life of the process on one host.
//
// The same parts as cmd/partd: PushServer decides, Engine stores, a coord::Session watches, the network carries.
// The shell keeps requests, payloads and answers by number and performs effects in order. Effects that come back at
// once (an append that is refused) are queued as inputs and never step the machine inside a step.
//
// Ownership: does not own the host; destroyed on the event after the process died.
#pragma once

#include <deque>
#include <memory>
#include <set>

#include "lib/coord/layout.h"
#include "lib/proto/push_server.h"
#include "lib/store/data_dir.h"
#include "test/sim/cluster.h"

namespace cantle::sim {

struct Ping {};  // is there somebody: what a transport's connection attempt finds out

// mover.view, with maps as values instead of encoded.
struct ViewAsk {};
struct ViewAnswer {
  model::MoverView view;  // `map` of its tables is empty
  std::map<std::string, MapPtr> maps;
};
struct Wake {};  // to replpush

class PartdNode {
 public:
  PartdNode(Cluster& cluster, Host& host);
  ~PartdNode();
  PartdNode(const PartdNode&) = delete;

  store::Engine* engine() { return engine_.get(); }
  proto::PushServer* machine() { return machine_.get(); }
  bool serving() const { return machine_ != nullptr; }
  size_t unanswered() const { return requests_.size(); }
  model::Incarnation incarnation() const { return dir_ ? dir_->identity().incarnation : model::Incarnation{}; }

 private:
  friend struct PartdEffects;
  struct Request {
    std::any message;  // PutRequest, DeleteRequest or BatchRequest
    Network::Reply reply;
  };
  struct Call {
    std::any message;  // PushWrite, BulkBlock or DropRequest
    Network::Reply reply;
  };

  // partd.cc: start, coordination, maps
  void open_dir();
  void open_store();
  void on_coord(coord::Event event);
  void learn_self();
  void learn_again();
  void arrive(coord::NodeInfo info, std::optional<int32_t> version);
  bool named_in_maps() const;
  void begin(model::ServerNumber number, bool known_name);
  void register_active();
  void read_live();
  void read_tables();
  void read_config(const std::string& table);
  void fetch_map(const std::string& table);
  void map_came(const std::string& table, MapPtr map);
  void reconcile();
  void tick();
  void check_links();
  void read_positions();
  void tell_store_state();
  void link_result(const model::ServerId& server, bool up);
  void fatal(const std::string& why);

  // partd.cc: the machine
  proto::push::Now now();
  void input(proto::push::Input in);
  void pump();

  // partd_effects.cc
  void perform(proto::push::Gather& e);
  void perform(proto::push::Append& e);
  void perform(proto::push::Send& e);
  void perform(proto::push::Forget& e);
  void perform(proto::push::Reply& e);
  void perform(proto::push::Forward& e);
  void perform(proto::push::FetchMap& e);
  void perform(proto::push::AppendReceived& e);
  void perform(proto::push::Answer& e);
  void perform(proto::push::Create& e);
  void perform(proto::push::Divide& e);
  void perform(proto::push::Merge& e);
  void perform(proto::push::SetAside& e);
  void perform(proto::push::Drop& e);
  void perform(proto::push::MarkAvailable& e);
  void perform(proto::push::Index& e);
  void perform(proto::push::PublishObserved& e);
  void perform(proto::push::MapShown& e);
  void perform(proto::push::Remember& e);
  void remember();
  void perform(proto::push::AskEpochs& e);
  void perform(proto::push::SendBeacon& e);
  void perform(proto::push::SetLive& e);
  void perform(proto::push::ForgetLive& e);
  void perform(proto::push::MarkWhole& e);
  void perform(proto::push::Say& e);
  void perform(proto::push::Exit& e);
  void publish_observed(const std::string& table);

  // partd_serve.cc
  void serve(const std::string& from, const std::any& request, Network::Reply reply);
  void client_write(std::any message, const std::string& table, std::vector<std::string_view> keys, size_t bytes,
                    model::TxnSeq txnseq, model::Level level, bool hop, uint32_t deadline_ms,
                    std::optional<model::Version> version, Network::Reply reply);
  void get(const model::GetRequest& m, Network::Reply reply, int tries);
  void get_many(const model::GetRequest& m, const proto::push::ReadPlan& plan, Network::Reply reply);
  void scan(const model::ScanRequest& m, Network::Reply reply, int tries);
  void admitted(const model::Envelope& envelope, proto::push::Purpose purpose, Network::Reply reply,
                std::function<void(const model::PartitionId&)> act, int tries = 0);
  void wait_for_map(const std::string& table, std::function<void(bool)> then);
  void push_read(const model::PushRead& m, Network::Reply reply);
  void bulk_begin(const model::BulkBegin& m, Network::Reply reply);
  void bulk_block(const model::BulkBlock& m, Network::Reply reply);
  void digest(const model::Digest& m, Network::Reply reply);
  ViewAnswer view();

  Cluster& cluster_;
  Host& host_;
  Process& process_;
  SimDisk disk_;
  SimExecutor executor_;
  store::MemIndexFactory indexes_;
  std::unique_ptr<store::DataDir> dir_;
  std::unique_ptr<store::LivePage> page_;
  std::unique_ptr<store::Engine> engine_;
  std::unique_ptr<proto::PushServer> machine_;
  std::unique_ptr<coord::Session> session_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);

  std::deque<proto::push::Input> inputs_;
  std::deque<std::string> kept_;  // strings that queued inputs point into
  bool pumping_ = false, flush_planned_ = false, learning_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Request> requests_;
  std::map<uint64_t, Call> calls_;
  std::map<uint64_t, std::shared_ptr<std::string>> batches_;
  std::set<uint64_t> refused_;  // batches whose append the store did not take

  std::map<model::ServerId, model::Incarnation> live_;
  std::set<std::string> tables_, fetching_, again_;
  std::map<std::string, model::TxnSeq> observed_;  // to be published
  std::set<std::string> publishing_;
  std::map<std::string, std::vector<std::function<void(bool)>>> waiting_;  // for a newer map
  std::map<model::ServerId, bool> links_;
  std::set<model::ServerId> pinging_;
  bool read_only_ = false, told_overloaded_ = false;
  model::PartitionId asked_;  // whether it takes appends
  std::string told_read_only_;
  proto::push::Remember remember_;
  bool unremembered_ = false;  // the disk was full
  Instant read_positions_at_{};
};

}  // namespace cantle::sim

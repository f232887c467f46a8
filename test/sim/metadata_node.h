// MdNode: one life of a metadata server in the simulated world: the same Service, FileStore and machines as in
// cmd/mdserver, over the simulated network, coordination service and index.
//
// MdHost survives the lives: what is on its disk, its clock, its incarnations.
#pragma once

#include <memory>
#include <string>

#include "lib/coord/registration.h"
#include "lib/meta/node_watch.h"
#include "lib/meta/service.h"
#include "lib/store/mem_index.h"
#include "test/sim/coord.h"
#include "test/sim/executor.h"
#include "test/sim/network.h"

namespace cantle::sim {

class MdNode;

struct MdHost {
  MdHost(Scheduler& scheduler, const std::string& name);
  ~MdHost();

  model::ServerId id;
  store::MemIndexFiles disk;
  Process process;
  uint64_t starts = 0;
  std::unique_ptr<MdNode> node;

  // The file is listed on the disk, as a crash at this moment would leave it.
  bool durable(const model::TableUuid& table, model::TxnSeq txnseq, const model::TxnId& txnid) const;
};

// What the nodes share.
struct MdCluster {
  Scheduler& scheduler;
  Network& network;
  CoordService& coord;
  coord::Layout layout;
  SimExecutor::Times times;
};

class SimTimers final : public coord::Timers {
 public:
  explicit SimTimers(Process& process) : process_(process) {}
  Instant now() override { return process_.now(); }
  void after(Duration delay, std::function<void()> fn) override { process_.after(delay, std::move(fn)); }

 private:
  Process& process_;
};

class MdNode final : public meta::Host {
 public:
  MdNode(MdCluster& cluster, MdHost& host);
  ~MdNode() override;

  meta::Service* service() { return service_.get(); }

  const model::ServerId& self() const override { return host_.id; }
  model::Incarnation incarnation() const override { return {host_.starts}; }
  coord::Timers& timers() override { return timers_; }
  base::WallMs wall_ms() override { return host_.process.wall_ms(); }
  base::Random& random() override { return host_.process.random(); }
  coord::Session& session() override { return *session_; }
  const coord::Layout& layout() const override { return cluster_.layout; }
  meta::FileStore& files() override { return *files_; }
  const meta::NodesView& nodes() const override { return nodes_->view(); }
  void refresh_nodes(std::function<void(bool)> done) override { nodes_->refresh(std::move(done)); }
  void store(const model::ServerId& to, const model::MdStore& request, Duration timeout,
             Done<model::MdStoreReply> done) override;
  void fetch(const model::ServerId& to, const model::MdFetch& request, Duration timeout,
             Done<model::MdFetchReply> done) override;
  void abort(const model::ServerId& to, const model::MdAbort& request) override;
  void tell_changed(const model::ServerId& partd, const model::MapChanged& message) override;

 private:
  void serve(const std::any& request, Network::Reply reply);

  MdCluster& cluster_;
  MdHost& host_;
  SimTimers timers_;
  SimExecutor executor_;
  std::unique_ptr<store::Index> index_;
  std::unique_ptr<meta::FileStore> files_;
  std::unique_ptr<coord::Session> session_;
  std::unique_ptr<coord::Registration> registration_;
  std::unique_ptr<meta::NodeWatch> nodes_;
  std::unique_ptr<meta::Service> service_;
};

inline std::string md_address(const model::ServerId& server) { return server.name + "/mdserver"; }

}  // namespace cantle::sim

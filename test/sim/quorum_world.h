// QuorumWorld: quorum tables as a whole under faults, from one seed: partition servers with the real machines and the
// real store, a coordination service, clients that put and get.
//
// A run: set up; for a while clients work and faults strike; then the faults stop, and within a bound every partition
// has a leader that takes writes; then all replicas hold the same.
//
// Checked all the time
//   * no two servers hold a valid lease for a partition at one instant of the world (S7)
//   * what two replicas call committed is one history (S1, S2, S14)
// and at the end
//   * each key's history is linearizable; what was acknowledged is there (S16, S18)
//   * logs and contents of all replicas are the same
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/coord/layout.h"
#include "lib/model/quorum.h"
#include "lib/proto/quorum_leader.h"
#include "lib/store/engine.h"
#include "lib/store/mem_index.h"
#include "test/sim/coord.h"
#include "test/sim/disk.h"
#include "test/sim/executor.h"
#include "test/sim/network.h"
#include "test/sim/seeds.h"
#include "test/support/linear.h"

namespace cantle::sim {

struct QuorumChaos {
  bool kill = false, power = false, crash_at_effect = false, pause = false, cut = false, lossy = false;
  bool coord_faults = false, coord_outage = false, fail_sync = false, slow_disk = false, resign = false;
  size_t servers = 3, partitions = 1, clients = 3, keys = 5;
  proto::quorum::Pipeline pipeline = proto::quorum::Pipeline::chain;
  Duration lasts = 6s;

  static QuorumChaos draw(base::Random& random);
};

class QuorumNode;

// What survives a server's lives.
struct QuorumHost {
  QuorumHost(Scheduler& scheduler, const std::string& name);
  ~QuorumHost();

  model::ServerId id;
  std::shared_ptr<HostClock> clock;
  Medium medium;
  store::MemIndexFiles index;
  Process process;
  uint64_t starts = 0;
  std::unique_ptr<QuorumNode> node;
};

// A client's request and its answer.
struct QuorumPut {
  size_t partition = 0;
  std::string key, value;
  bool del = false;
  Duration within{};
};
struct QuorumGet {
  size_t partition = 0;
  std::string key;
};
struct QuorumValue {
  std::optional<std::string> value;
};

class QuorumWorld {
 public:
  QuorumWorld(uint64_t seed, const QuorumChaos& chaos);
  ~QuorumWorld();
  QuorumWorld(const QuorumWorld&) = delete;

  Verdict run();

  // For scenarios.
  void set_up();
  void start_clients();
  void stop_faults();
  void finish();
  Verdict verdict() { return {scheduler.trace_hash(), scheduler.events(), violation_}; }
  bool wait(const std::function<bool()>& done, Duration limit) {
    return scheduler.run_until(done, scheduler.now() + limit);
  }
  void start(QuorumHost& host);
  void kill(QuorumHost& host) { host.process.kill(); }
  void power_cut(QuorumHost& host);
  QuorumHost* leader(size_t partition);  // one that serves under a valid lease
  void violation(const std::string& text);
  const std::string& violated() const { return violation_; }
  std::string describe() const;

  // From the nodes.
  static constexpr const char* kDistribution = "1_q";
  static model::Region region(size_t partition) { return {static_cast<uint32_t>(partition + 1)}; }
  const model::Voters& voters(size_t partition) const { return voters_[partition]; }
  const model::PartitionId& partition_id(size_t partition) const { return ids_[partition]; }
  std::optional<size_t> find(const model::PartitionId& id) const;
  void committed(const QuorumHost& host, size_t partition, const model::LogPoint& point);
  const QuorumChaos& chaos() const { return chaos_; }

  Scheduler scheduler;
  Network network;
  CoordService coord;
  SimExecutor::Times times;
  store::EngineConfig engine;
  coord::Layout layout{"c"};
  model::ClusterUuid cluster;
  model::TableUuid table;
  std::vector<std::unique_ptr<QuorumHost>> hosts;

 private:
  struct Client {
    Client(Scheduler& s, const std::string& name) : process(s, name, "client") {}
    Process process;
    std::string at;  // the server that it asks
    uint64_t number = 0, puts = 0;
  };
  void plan(Client& client);
  void act(Client& client);
  void ended(Client& client, size_t operation, const Network::Answer& answer);
  void check_history();
  void check();
  bool leased(QuorumHost& host, size_t partition);
  void plan_strike();
  void strike();
  void compare(size_t partition);
  Duration some(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }

  QuorumChaos chaos_;
  base::SeededRandom random_;
  std::vector<model::PartitionId> ids_;
  std::vector<model::Voters> voters_;
  std::vector<std::map<model::Lsn, uint32_t>> history_;  // checksum of the block that ends there, once committed
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<linear::Operation> operations_;
  bool striking_ = false, asking_ = false;
  std::string violation_;
};

Verdict run_quorum_world(uint64_t seed);

}  // namespace cantle::sim

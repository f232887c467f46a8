// ElectionWorld: servers with one or two quorum partitions, each a real Beacons and real Elections over the simulated
// network, coordination service and clocks, and a toy log: what is durable survives, an append is acknowledged when it
// is durable, a leader commits what a majority of voters has if it is of its own epoch.
//
// Use
//   ElectionWorld w(seed, {…});
//   w.set_up();               // a leader with a lease everywhere
//   w.run(15s);               // faults
//   w.finish();               // they stop: a leader with a lease, and commits, within a bound
//   w.verdict()
//
// Checked, at every event
//   * one leader an epoch at most
//   * a leader's log has everything that was committed (S1, S2, S14, S18), and no two histories are committed
//   * no two servers hold a valid lease for one partition at the same instant of the world, each by its own clock (S7)
//   * nobody commits anything new while another serves: has committed its epoch start and holds a valid lease
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/coord/layout.h"
#include "lib/proto/beacons.h"
#include "lib/proto/election.h"
#include "test/sim/coord.h"
#include "test/sim/network.h"
#include "test/sim/seeds.h"

namespace cantle::sim {

struct ElectionOptions {
  size_t servers = 3;
  size_t partitions = 1;
  Duration session_timeout = 2s;
};

struct ToyEntry {
  uint64_t epoch = 0, id = 0;
  bool operator==(const ToyEntry&) const = default;
};
using ToyLog = std::vector<ToyEntry>;

class ElectionNode;

// What survives a server's lives.
struct ElectionHost {
  struct Copy {  // as it is on the disk
    model::Epoch promised;
    ToyLog log;
  };
  ElectionHost(Scheduler& scheduler, const std::string& name);
  ~ElectionHost();

  model::ServerId id;
  Process process;
  uint64_t starts = 0;
  std::vector<Copy> copies;  // by partition
  Instant disk_stands_until;
  std::unique_ptr<ElectionNode> node;
};

class ElectionWorld {
 public:
  ElectionWorld(uint64_t seed, ElectionOptions options);
  ~ElectionWorld();
  ElectionWorld(const ElectionWorld&) = delete;

  void set_up();
  void draw_faults();
  void disturb();  // from now on, until stop_faults()
  void stop_faults();
  void finish();
  Verdict verdict();
  void run(Duration d) { scheduler_.run_for(d); }
  bool wait(const std::function<bool()>& done, Duration limit) {
    return scheduler_.run_until(done, scheduler_.now() + limit);
  }

  Scheduler& scheduler() { return scheduler_; }
  Network& network() { return network_; }
  CoordService& coord() { return coord_; }
  base::Random& random() { return random_; }
  size_t partitions() const { return options_.partitions; }
  std::vector<std::unique_ptr<ElectionHost>>& hosts() { return hosts_; }
  ElectionHost* leader(size_t partition);  // one with a valid lease; null: nobody
  std::optional<model::Epoch> leads(const ElectionHost& host, size_t partition) const;
  size_t committed(size_t partition) const { return histories_[partition].size(); }
  uint64_t leaderships(size_t partition) const { return led_[partition].size(); }
  model::Epoch epoch(size_t partition) const;
  // `other` has everything that the leader `host` has, durable.
  bool level(const ElectionHost& host, size_t partition, const ElectionHost& other) const;
  void resign(ElectionHost& host, size_t partition, const ElectionHost* successor);
  void start(ElectionHost& host);
  void kill(ElectionHost& host) { host.process.kill(); }
  Duration some(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }
  void violation(const std::string& text);
  const std::string& violated() const { return violation_; }

  // From the nodes.
  const coord::Layout& layout() const { return layout_; }
  static constexpr const char* kDistribution = "1_t";
  static model::Region region(size_t partition) { return {static_cast<uint32_t>(partition + 1)}; }
  model::PartitionId partition_id(size_t partition) const { return partitions_[partition]; }
  std::optional<size_t> partition_of(const model::PartitionId& id) const;
  const model::Voters& voters(size_t partition) const { return voters_[partition]; }
  void began_to_lead(const ElectionHost& host, size_t partition, model::Epoch epoch, const ToyLog& log);
  void committed(const ElectionHost& host, size_t partition, model::Epoch epoch, const ToyLog& log, size_t length);
  uint64_t next_entry() { return ++entries_; }

 private:
  void check();
  bool leased(ElectionHost& host, size_t partition);
  void disturb_once();

  Scheduler scheduler_;
  Network network_;
  CoordService coord_;
  coord::Layout layout_{"c"};
  ElectionOptions options_;
  base::SeededRandom random_;
  std::vector<std::unique_ptr<ElectionHost>> hosts_;
  std::vector<model::PartitionId> partitions_;
  std::vector<model::Voters> voters_;
  std::vector<ToyLog> histories_;
  std::vector<std::map<model::Epoch, std::string>> led_;
  uint64_t entries_ = 0;
  bool disturbing_ = false;
  std::string violation_;
};

}  // namespace cantle::sim

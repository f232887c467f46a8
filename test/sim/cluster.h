// Cluster: what the nodes of a simulated cluster share: hosts with their disks and processes, the network,
// the coordination service, the metadata hosts, and those who watch.
//
// A Host survives its processes: medium, index files and clock stay. A node (PartdNode, PushNode) is one life
// of one process: made at its start, destroyed on the event after its death.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/model/ids.h"
#include "lib/store/engine.h"
#include "lib/store/mem_index.h"
#include "test/sim/coord.h"
#include "test/sim/disk.h"
#include "test/sim/executor.h"
#include "test/sim/maps.h"
#include "test/sim/network.h"

namespace cantle::sim {

class PartdNode;
class PushNode;

struct Host {
  Host(Scheduler& scheduler, const std::string& name);
  ~Host();

  model::ServerId id;
  std::shared_ptr<HostClock> clock;
  Medium medium;
  store::MemIndexFiles index, positions;
  Process partd, push;
  std::unique_ptr<PartdNode> partd_node;
  std::unique_ptr<PushNode> push_node;
  bool gone = false;   // never comes back: its disk is lost, or an operator gave it up
  bool wiped = false;  // its disk was taken away: it must not answer while METADATA says that it holds something (S6)
  Instant wiped_at{};
  model::ServerNumber number;  // of the arrival event that the present data directory made; 0: none yet
  // What its copies held when the process died: key → version, by table. What a dead server has durable.
  std::map<std::string, std::map<std::string, model::Version>> last_held;
  uint64_t starts = 0;
  std::string exit_text;  // why it exited with status 78, if it did
};

// Told what happens, to check it. Default: nobody cares.
struct Write;
struct Watchers {
  std::function<void(const Write&)> told;
  std::function<void(Host&, const store::TenureId&, const std::string& why)> dropping;  // before it is done
  std::function<void(Host&)> partd_dying;                                               // its node is still there
  std::function<void(Host&, const store::RecoveryReport&)> recovered;
  std::function<void(const std::string&)> violation;
};

struct Cluster {
  explicit Cluster(uint64_t seed);
  ~Cluster();

  Scheduler scheduler;
  Network network;
  CoordService coord;
  MapService maps;
  SimExecutor::Times times;
  store::EngineConfig engine;
  model::ClusterUuid uuid;
  std::map<std::string, std::unique_ptr<Host>> hosts;
  Watchers watchers;

  Host& add_host(const std::string& name);
  Host& host(const std::string& name) { return *hosts.at(name); }
  // The host whose data directory has this number; null once another directory has taken its place.
  Host* with_number(model::ServerNumber number);
  model::ServerNumber arrive() { return {++arrivals_}; }
  void wipe(Host& host);  // an empty disk under the old name; its processes are dead
  Host* find(const model::ServerId& id) {
    const auto it = hosts.find(id.name);
    return it == hosts.end() ? nullptr : it->second.get();
  }
  void start_partd(Host& host);
  void start_push(Host& host);
  void kill_partd(Host& host);
  void kill_push(Host& host);
  void power_cut(Host& host);  // both processes, and what was not synced

 private:
  uint32_t arrivals_ = 0;
};

}  // namespace cantle::sim

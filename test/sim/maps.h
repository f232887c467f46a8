// MapService: METADATA for simulations of the data path. A change is applied by model::apply and committed
// in one atomic step at whichever metadata host was asked; what may go wrong is the way there and back,
// and the age of what a reader learns. The commit protocol itself has simulations of its own (metadata_*).
//
// Use
//   MapService maps(scheduler, network, coord, {"m1", "m2", "m3"});
//   maps.create_table("t", {…});
//   maps.current("t");                    // the committed map
//   network.call(p, maps.address(p), MapAsk{"t"}, …)   => MapAnswer
//   network.call(p, maps.address(p), ChangeAsk{…}, …)  => ChangeAnswer, conflict, invalid
//
// Invariants
//   * TableConfig in the coordination service and current() always name the same file.
//   * A change id is applied once, however often it is asked.
//   * Every file passed validate() and names its predecessor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/coord/layout.h"
#include "lib/model/metadata.h"
#include "lib/model/operation.h"
#include "test/sim/coord.h"
#include "test/sim/network.h"

namespace cantle::sim {

using MapPtr = std::shared_ptr<const model::Metadata>;

struct MapAsk {
  std::string table;
};
struct MapAnswer {
  MapPtr map;
};
struct ChangeAsk {
  std::string table;
  model::ChangeId change;
  std::vector<model::Operation> ops;
};
struct ChangeAnswer {
  model::TxnSeq txnseq;
  bool already = false;
};

class MapService {
 public:
  MapService(Scheduler& scheduler, Network& network, CoordService& coord, const std::vector<std::string>& hosts);

  const coord::Layout& layout() const { return layout_; }
  MapPtr create_table(const std::string& name, std::vector<model::ops::NewPartition> partitions, uint32_t replicas);
  MapPtr current(const std::string& table) const;
  std::vector<std::string> tables() const;
  static std::string config_path(const coord::Layout& layout, const std::string& table);
  // One of the metadata hosts, at random.
  std::string address(Process& asker) const;
  // Commits as if somebody had asked; for set-ups.
  base::Result<ChangeAnswer> change(const ChangeAsk& ask);
  // The file of that txnseq becomes current again, as after a coordination service restored from the past (S36).
  void go_back(const std::string& table, model::TxnSeq to);
  void on_commit(std::function<void(const model::Metadata* before, const model::Metadata& after)> fn) {
    on_commit_ = std::move(fn);
  }
  // The hash that TableConfig has for a file: stands for the SHA-256 of its root.
  static std::string hash_of(const model::Metadata& map);
  Process& process(const std::string& host) { return *processes_.at(host); }

 private:
  void serve(Process& process);
  void write_config(const model::Metadata& map);

  Scheduler& scheduler_;
  Network& network_;
  CoordService& coord_;
  coord::Layout layout_{"c"};
  std::vector<std::string> hosts_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
  std::map<std::string, MapPtr> current_;
  std::map<std::string, std::map<model::TxnSeq, MapPtr>> files_;
  std::function<void(const model::Metadata*, const model::Metadata&)> on_commit_;
};

}  // namespace cantle::sim

// Chores: what the first live metadata server of a table does besides answering (service.h).
//
//   * drives operations whose task nobody has held for kUndrivenFor (reshape.md, "Driver")
//   * SWEEP_ENDED once every server that held the parent has observed its end
//   * brings region nodes up to METADATA where TableConfig says `regions_behind`
//   * removes nodes of regions that ended or were aborted a day ago
//   * removes rings of the bell that everybody has heard
//   * removes TableConfig and all under it once every assigned server has observed that the table was dropped, or is
//   dead
//
// Whoever does a chore twice, or two at a time, does no harm: each is conditional or repeats what is so already.
// Threads: the loop's. Ownership: the host outlives it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "lib/meta/op_runner.h"
#include "lib/meta/table_agent.h"

namespace cantle::meta {

constexpr base::Duration kUndrivenFor = std::chrono::seconds(5);
constexpr base::Duration kDriveEvery = std::chrono::seconds(1);
constexpr base::Duration kMaybeOurs = std::chrono::seconds(30);  // and the time for which a session can be cut off
constexpr base::Duration kSweepEndedEvery = std::chrono::seconds(3);
constexpr base::Duration kRegionsEvery = std::chrono::minutes(10);
constexpr base::Duration kRegionsKept = std::chrono::hours(24);
constexpr size_t kDrivenAtOnce = 64;  // operations of one table
constexpr size_t kRegionsRemovedAtOnce = 100;
constexpr base::Duration kRingsKept = std::chrono::minutes(1);
constexpr size_t kRingsRemovedAtOnce = 500;

class Chores {
 public:
  explicit Chores(Host& host) : host_(host) {}
  ~Chores() { *alive_ = false; }
  Chores(const Chores&) = delete;
  Chores& operator=(const Chores&) = delete;

  void tick(TableAgent& agent);
  void forget(const std::string& table) { tables_.erase(table); }
  // What is being driven for a table, and what it waits for.
  std::map<std::string, std::string> driving(const std::string& table) const;

 private:
  struct Watched {  // an operation that is in METADATA
    proto::OpKind kind = proto::OpKind::split;
    base::Instant alone_since;  // since when no task was seen
    bool asking = false, alone = false;
    // Until then our session may have a task that nobody drives under: a runner ended, and its removal may be lost, or
    // its creation come later than everything that we have read since. That nobody else can drive meanwhile does not
    // depend on whether we are still a member, or have the current map.
    base::Instant maybe_ours_until;
    bool in_metadata = true;
    std::unique_ptr<OpRunner> runner;
  };
  struct Table {
    TableAgent* agent = nullptr;  // while the table is in tables_: forget() comes before it dies
    std::map<model::AttemptId, Watched> operations;
    base::Instant next_drive, next_sweep, next_regions, next_rings;
    bool sweeping = false, reconciling = false, removing = false, listing = false, hearing = false;
    std::map<model::Region, base::Instant> unused_since;  // regions that METADATA does not know
    std::string heard;                                    // the last ring there was at the look before
  };
  // Region nodes that are being written, and which of them are there.
  struct Writing {
    std::shared_ptr<const model::Metadata> map;
    std::vector<std::pair<model::Region, coord::RegionNode>> nodes;
    std::set<std::string> there;
    std::string writer;
  };

  void drive(TableAgent& agent, Table& table, const model::Metadata& map);
  void maybe_ours(Watched& op);
  void give_back(TableAgent& agent, Table& table);
  void look_for_task(TableAgent& agent, Table& table, const model::AttemptId& attempt);
  void sweep_ended(TableAgent& agent, Table& table, const model::Metadata& map);
  void reconcile(TableAgent& agent, Table& table, std::shared_ptr<const model::Metadata> map);
  void write_regions(const std::string& name, std::shared_ptr<Writing> writing, size_t at, size_t batch,
                     std::function<void(bool)> done);
  void sweep_regions(TableAgent& agent, Table& table, std::shared_ptr<const model::Metadata> map);
  void sweep_rings(TableAgent& agent, Table& table);
  void remove_dropped(TableAgent& agent, Table& table, std::shared_ptr<const model::Metadata> map);
  void remove_table(TableAgent& agent);
  void remove_last(const std::string& distribution, std::function<void()> done);
  // Removes what is under `path`, then `path`; children first.
  void remove_tree(const std::string& path, std::function<void(base::Status)> done);
  Table* find(const std::string& name);
  base::Instant now() { return host_.timers().now(); }

  Host& host_;
  std::map<std::string, Table> tables_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta

// Checks: the promises of push tables, looked at from outside, with everything in view that no server has.
//
// Looked at when it could break
//   * told        what was acknowledged at majority is durable on a majority (1), and no set of servers that
//                 could answer a read at majority misses it (2)
//   * committed   (2) again for everything acknowledged so far, under the new map; the chain has no fork
//   * dropping    each record of a copy that is dropped as proved is on a majority of those that answer (S54)
//   * sweep       versions of a key in one copy never go back; no record that nobody wrote; the index never
//                 passes the durable journal; no server has two live copies of a key
// and at the end
//   * every replica of every partition holds the same, and all that was acknowledged, and nothing else
//   * no copy is left where none should be
//
// Threads: one.
#pragma once

#include <map>
#include <string>

#include "test/sim/cluster.h"
#include "test/sim/history.h"

namespace cantle::sim {

class Checks {
 public:
  Checks(Cluster& cluster, const History& history) : cluster_(cluster), history_(history) {}

  const std::string& violation() const { return violation_; }  // the first; empty: none
  void fail(const std::string& text);

  void told(const Write& write);
  void committed(const model::Metadata* before, const model::Metadata& after);
  void recovered(const Host& host, const store::RecoveryReport& report);
  void dropping(Host& host, const store::TenureId& id, const std::string& why);
  void dying(Host& host);
  void sweep();
  void end();
  void set_damage_expected(bool on) { damage_ = on; }

  // Newest version of the key that is durable on the host; none if there is none.
  model::Version held(Host& host, const std::string& table, const std::string& key) const;

 private:
  void barrier_passed(const model::Metadata& after, const model::Partition& partition);
  void merge_barrier_passed(const model::Metadata& before, const model::Partition& target);
  void child_made(const model::Partition& partition);
  struct Stored {
    bool deleted = false;
    model::Version version;
    std::string value;
    friend bool operator==(const Stored&, const Stored&) = default;
  };
  using Content = std::map<std::string, Stored>;
  std::string table_name(const model::TableUuid& uuid) const;
  std::string answers_lack(const MapPtr& map, const std::string& key, const model::Version& version) const;
  Content content(store::Engine& engine, const model::PartitionId& partition) const;
  void check_table(const std::string& table);
  void check_leftovers();

  Cluster& cluster_;
  const History& history_;
  std::string violation_;
  bool damage_ = false;
  // host → assignment → key → newest version seen.
  std::map<std::string, std::map<model::AssignmentId, std::map<std::string, model::Version>>> newest_;
};

}  // namespace cantle::sim

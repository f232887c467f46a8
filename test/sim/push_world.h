// PushWorld: a whole cluster of push tables under faults, from one seed: partition servers, movers, metadata
// hosts, operators and clients, with everything going wrong that the seed drew, and the promises checked.
//
// A run: set up; for a while clients work, operators reshape and faults strike at random, all at the same
// time; then the faults stop, and within a bound everything must come to rest: operations ended, every
// replica filled, every mover done, nobody waiting; then writes at level `all` must go through; then the
// contents are compared (checks.h).
//
// Which kinds of faults a run has is drawn first, and not all at once: a rare combination of two is met
// more often so than by a little of everything.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "test/sim/checks.h"
#include "test/sim/client.h"
#include "test/sim/operator.h"
#include "test/sim/seeds.h"

namespace cantle::sim {

struct Chaos {
  bool kill = false, power = false, crash_at_effect = false, pause = false;
  bool cut = false, lossy = false, coord_faults = false, coord_outage = false;
  bool clocks = false, fail_sync = false, full = false, slow_disk = false;
  bool split = true, merge = false, replace = false, lose_server = false, wipe = false, abort = false,
       operators_die = false, tables = false;
  bool flip = false, small_retention = false;
  size_t servers = 4, clients = 2;
  uint32_t replicas = 3;
  Duration lasts = 5s;
  Duration every_min = 40ms, every_max = 500ms;  // between two strikes

  static Chaos draw(base::Random& random);
  static Chaos draw_merges(base::Random& random);  // of a table of some partitions, which are merged, too
  std::string text() const;
};

class PushWorld {
 public:
  explicit PushWorld(uint64_t seed, bool merges = false);  // everything drawn
  PushWorld(uint64_t seed, const Chaos& chaos, const Load& load);
  ~PushWorld();

  Verdict run();

  // For scenarios: the parts, and steps of a run.
  Cluster& cluster() { return cluster_; }
  History& history() { return history_; }
  Checks& checks() { return checks_; }
  Load& load() { return load_; }
  Client& client(size_t n = 0) { return *clients_.at(n); }
  Operator& oper(size_t n = 0) { return *operators_.at(n); }
  Host& host(const std::string& name) { return cluster_.host(name); }
  void set_up();
  bool wait(const std::function<bool()>& done, Duration within);
  bool come_to_rest(Duration within);
  std::string restless() const;  // what is still going on; empty: nothing
  void stop_faults();
  void finish();  // rest, probe, compare
  Verdict verdict() const;
  std::string describe() const;  // maps, copies and movers, for a person who looks for the cause

 private:
  void strike();
  void plan_strike();
  std::vector<Fn> strikes();
  Host& any_host();
  Host* any_alive();
  void revive(Host& host, Duration after);
  void revive_push(Host& host, Duration after);
  void random_split();
  void random_merge();
  std::vector<model::ops::NewPartition> first_partitions(const std::vector<model::ServerId>& servers);
  void random_replace(bool from_dead, Host* lost);
  void replace_all(Host& lost);
  void chores();
  void flip();
  void random_cut();
  void random_table();
  void lose(Host& host);
  void sweep_planned();
  void probe();

  Cluster cluster_;
  History history_;
  Checks checks_{cluster_, history_};
  Chaos chaos_;
  Load load_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Operator>> operators_;
  bool calm_ = false;
  size_t lost_ = 0;
  Host* damaged_ = nullptr;  // the last that a bit flipped on
};

Verdict run_push_world(uint64_t seed);
Verdict run_push_merges(uint64_t seed);

}  // namespace cantle::sim

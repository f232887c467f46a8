// Push tables as a whole, under every fault (push_world.h).
#include <gtest/gtest.h>

#include "test/sim/partd.h"
#include "test/sim/push_world.h"

namespace cantle::sim {
namespace {

const Simulation push("push", run_push_world);

TEST(SimPush, every_promise_is_kept_whatever_goes_wrong) { run_seeds("push", 1000, run_push_world); }

const Simulation push_merges("push_merges", run_push_merges);

TEST(SimPush, every_promise_is_kept_while_neighbours_are_merged) { run_seeds("push_merges", 500, run_push_merges); }

// A table of one partition whose replicas are replaced, with clients at work.
class Replacing : public PushWorld {
 public:
  Replacing(uint64_t seed, const Chaos& chaos, const Load& load) : PushWorld(seed, chaos, load) {
    set_up();
    if (!come_to_rest(40s)) checks().fail("the cluster does not come up: " + restless());
    for (size_t i = 0; i < chaos.clients; ++i) client(i).start();
  }
  const model::Partition& partition() { return cluster().maps.current("t")->partitions.front(); }
  bool assigned(const char* name) { return model::find_assignment(partition(), model::ServerId{name}) != nullptr; }
  bool replaced(const char* old, const char* by, Duration limit) {
    return wait([&] { return assigned(by) && !assigned(old) && partition().moves.empty(); }, limit);
  }
  void lose(const char* name) {  // for good
    Host& h = host(name);
    h.gone = true;
    cluster().kill_partd(h);
    cluster().kill_push(h);
  }
};

// S53, S54: p1's copy goes to p4 and is dropped; p4 is lost for good, and p1 takes its place. What others had sent to
// p1's first tenure says nothing of the second.
Verdict run_there_and_back(uint64_t seed) {
  Chaos chaos;
  chaos.split = false;
  Load load;
  load.keys = 10 + seed % 20;
  Replacing w(seed, chaos, load);
  auto& cluster = w.cluster();
  cluster.scheduler.run_for(std::chrono::milliseconds(500 + 100 * (seed % 10)));
  w.load().keys /= 3;  // the others are written no more: only what is sent from the beginning brings them
  w.oper().replace("t", w.partition().region, "p1", "p4", false);
  w.replaced("p1", "p4", 30s);
  w.wait([&] { return w.host("p1").partd_node->machine()->copies().empty(); }, 30s);
  w.lose("p4");
  w.oper().replace("t", w.partition().region, "p4", "p1", true);
  w.replaced("p4", "p1", 40s);
  if (!w.assigned("p1") || w.assigned("p4")) w.checks().fail("p1 has not taken the place of p4");
  w.stop_faults();
  w.finish();
  return w.verdict();
}
const Simulation there_and_back("push_there_and_back", run_there_and_back);

TEST(SimPush, s53_a_server_that_had_a_copy_before_is_filled_anew) {
  run_seeds("push there and back", narrow(20), run_there_and_back);
}

// S54: p1 is cut off from p2 and p3 and takes writes at level one; p4, which takes its place, is filled by a snapshot,
// and p1 is lost for good. What came in the snapshot is in no log: when p5 takes p4's place only the proof can tell
// that p2 and p3 lack it.
Verdict run_in_no_log(uint64_t seed) {
  Chaos chaos;
  chaos.split = false;
  chaos.servers = 5;
  chaos.small_retention = true;
  Load load;
  load.keys = 10 + seed % 20;
  Replacing w(seed, chaos, load);
  auto& cluster = w.cluster();
  cluster.scheduler.run_for(std::chrono::milliseconds(100 + 50 * (seed % 10)));
  for (const char* other : {"p2", "p3"}) cluster.network.cut_both("p1", other);
  for (size_t i = 0; i < 1 + seed % 4; ++i) w.client().put("p1", "t", "alone" + std::to_string(i), model::Level::one);
  for (size_t i = 0; i < 30; ++i) {  // what came before goes out of p1's journal
    cluster.scheduler.run_for(20ms);
    w.client().put("p1", "t", "more", model::Level::one, nullptr, 9000);
  }
  cluster.scheduler.run_for(std::chrono::milliseconds(500 + 100 * (seed % 20)));
  w.oper().replace("t", w.partition().region, "p1", "p4", true);
  if (!w.replaced("p1", "p4", 40s)) w.checks().fail("p4 has not taken the place of p1");
  cluster.scheduler.run_for(std::chrono::milliseconds(100 * (seed % 7)));
  w.lose("p1");
  cluster.network.heal();
  cluster.scheduler.run_for(std::chrono::milliseconds(100 * (seed % 11)));
  w.oper().replace("t", w.partition().region, "p4", "p5", false);
  if (!w.replaced("p4", "p5", 40s)) w.checks().fail("p5 has not taken the place of p4");
  w.stop_faults();
  w.finish();
  return w.verdict();
}
const Simulation in_no_log("push_in_no_log", run_in_no_log);

TEST(SimPush, s54_what_is_in_no_log_goes_on_when_its_copy_goes) {
  run_seeds("push in no log", narrow(20), run_in_no_log);
}

}  // namespace
}  // namespace cantle::sim

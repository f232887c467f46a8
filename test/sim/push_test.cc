// Push tables as a whole, under every fault (push_world.h).
#include <gtest/gtest.h>

#include "test/sim/partd.h"
#include "test/sim/push_world.h"

namespace cantle::sim {
namespace {

const Simulation push("push", run_push_world);

TEST(SimPush, every_promise_is_kept_whatever_goes_wrong) { run_seeds("push", 1000, run_push_world); }

// S53, S54: p1's copy goes to p4 and is dropped; p4 is lost for good, and p1 takes its place. What others had sent to
// p1's first tenure says nothing of the second.
Verdict run_there_and_back(uint64_t seed) {
  Chaos chaos;
  chaos.split = false;
  Load load;
  load.keys = 10 + seed % 20;
  PushWorld w(seed, chaos, load);
  auto& cluster = w.cluster();
  w.set_up();
  if (!w.come_to_rest(40s)) w.checks().fail("the cluster does not come up: " + w.restless());
  for (size_t i = 0; i < chaos.clients; ++i) w.client(i).start();
  const auto partition = [&]() -> const model::Partition& { return cluster.maps.current("t")->partitions.front(); };
  const auto assigned = [&](const char* name) {
    return model::find_assignment(partition(), model::ServerId{name}) != nullptr;
  };
  cluster.scheduler.run_for(std::chrono::milliseconds(500 + 100 * (seed % 10)));
  w.load().keys /= 3;  // the others are written no more: only what is sent from the beginning brings them
  w.oper().replace("t", partition().region, "p1", "p4", false);
  w.wait([&] { return assigned("p4") && !assigned("p1") && partition().moves.empty(); }, 30s);
  w.wait([&] { return w.host("p1").partd_node->machine()->copies().empty(); }, 30s);
  Host& p4 = w.host("p4");
  p4.gone = true;
  cluster.kill_partd(p4);
  cluster.kill_push(p4);
  w.oper().replace("t", partition().region, "p4", "p1", true);
  w.wait([&] { return assigned("p1") && !assigned("p4") && partition().moves.empty(); }, 40s);
  if (!assigned("p1") || assigned("p4")) w.checks().fail("p1 has not taken the place of p4");
  w.stop_faults();
  w.finish();
  return w.verdict();
}
const Simulation there_and_back("push_there_and_back", run_there_and_back);

TEST(SimPush, s53_a_server_that_had_a_copy_before_is_filled_anew) {
  run_seeds("push there and back", 20, run_there_and_back);
}

}  // namespace
}  // namespace cantle::sim

// Quorum tables as a whole, under every fault (quorum_world.h).
#include <gtest/gtest.h>

#include <algorithm>

#include "test/sim/quorum_world.h"

namespace cantle::sim {

Verdict run_quorum_world(uint64_t seed) {
  base::SeededRandom random(seed * 31 + 7);
  QuorumWorld w(seed, QuorumChaos::draw(random));
  return w.run();
}

namespace {

// Little of the log is kept, so that who was away for a moment, or is new, needs a snapshot.
Verdict run_forgetful_world(uint64_t seed) {
  base::SeededRandom random(seed * 37 + 5);
  auto chaos = QuorumChaos::draw(random);
  chaos.forgets = chaos.kill = chaos.cut = true;
  chaos.servers = std::max<size_t>(3, chaos.servers);
  chaos.clients += 3;
  chaos.lasts = 8s;
  chaos.partitions = 1;
  QuorumWorld w(seed, chaos);
  return w.run();
}

// Bits flip, and what is damaged is mended from the others.
Verdict run_damaged_world(uint64_t seed) {
  base::SeededRandom random(seed * 41 + 3);
  auto chaos = QuorumChaos::draw(random);
  chaos.flip = chaos.kill = chaos.cut = true;
  chaos.power = false;
  chaos.servers = 3;
  chaos.partitions = 1;
  QuorumWorld w(seed, chaos);
  return w.run();
}

const Simulation quorum("quorum", run_quorum_world);
const Simulation damaged("quorum_damaged", run_damaged_world);
const Simulation forgetful("quorum_forgets", run_forgetful_world);

TEST(SimQuorum, every_promise_is_kept_whatever_goes_wrong) { run_seeds("quorum", 300, run_quorum_world); }

TEST(SimQuorum, copies_are_rebuilt_by_snapshots_whatever_goes_wrong) {
  run_seeds("quorum that forgets", 150, run_forgetful_world);
}

TEST(SimQuorum, r16_damaged_logs_are_mended_and_not_believed) { run_seeds("quorum, damaged", 150, run_damaged_world); }

}  // namespace
}  // namespace cantle::sim

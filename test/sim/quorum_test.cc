// Quorum tables as a whole, under every fault (quorum_world.h).
#include <gtest/gtest.h>

#include "test/sim/quorum_world.h"

namespace cantle::sim {

Verdict run_quorum_world(uint64_t seed) {
  base::SeededRandom random(seed * 31 + 7);
  QuorumWorld w(seed, QuorumChaos::draw(random));
  return w.run();
}

namespace {

const Simulation quorum("quorum", run_quorum_world);

TEST(SimQuorum, every_promise_is_kept_whatever_goes_wrong) { run_seeds("quorum", 300, run_quorum_world); }

}  // namespace
}  // namespace cantle::sim

// Elections and leases under every fault (election_world.h).
#include <gtest/gtest.h>

#include "test/sim/election_world.h"

namespace cantle::sim {
namespace {

ElectionOptions options_of(uint64_t seed) {
  constexpr size_t kServers[] = {3, 3, 5, 3, 7, 3, 5, 1};
  ElectionOptions options;
  options.servers = kServers[seed % 8];
  options.partitions = seed % 3 == 0 ? 2 : 1;
  return options;
}

Verdict run_election(uint64_t seed) {
  ElectionWorld w(seed, options_of(seed));
  w.set_up();
  w.draw_faults();
  w.disturb();
  w.run(20s);
  w.finish();
  return w.verdict();
}
const Simulation election("election", run_election);

TEST(SimElection, one_leader_an_epoch_one_lease_at_a_time_and_nothing_committed_is_lost) {
  run_seeds("election", 300, run_election);
}

}  // namespace
}  // namespace cantle::sim

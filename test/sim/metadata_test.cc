// METADATA under every fault: many seeds, all invariants (metadata_world.h).
#include <gtest/gtest.h>

#include "test/sim/metadata_world.h"

namespace cantle::sim {
namespace {

Verdict run_metadata(uint64_t seed) {
  MdOptions options;
  options.servers = 3 + seed % 3;
  options.members = 1 + seed % options.servers;
  MdWorld w(seed, options);
  w.set_up();
  w.run(20s);
  w.finish();
  return w.verdict();
}
const Simulation metadata("metadata", run_metadata);

TEST(SimMetadata, racing_changes_joins_and_crashes_leave_one_chain_and_every_promise_is_kept) {
  run_seeds("metadata", 300, run_metadata);
}

}  // namespace
}  // namespace cantle::sim

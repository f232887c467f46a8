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

// S36: the coordination service comes back with an older state. Whoever has seen a newer map refuses what it now says,
// after a restart too.
Verdict run_regression(uint64_t seed) {
  MdOptions options;
  options.members = options.servers;
  options.membership = false;
  MdWorld w(seed, options);
  base::SeededRandom random(seed * 31 + 7);
  const auto some = [&](uint64_t most_ms) { return std::chrono::milliseconds(random.below(most_ms)); };
  w.set_up();
  w.run(some(4000));
  const int then = w.coord().remember();
  w.scheduler().run_for(some(6000));
  w.calm();
  if (!w.violated().empty()) return w.verdict();
  const auto last = w.current()->txnseq;
  w.expect_regression();
  w.coord().restore(then);
  w.scheduler().run_for(4s);
  for (const auto& server : w.config().metadata_servers) {
    auto& host = w.host(server.name);
    if (random.chance(0.5)) {
      w.kill(host);
      w.scheduler().run_for(some(2000));
      w.start(host);
      w.scheduler().run_for(4s);
    }
    const auto got = w.ask(server.name, model::MdGet{"t", {}, {}, true});
    if (got && std::any_cast<const model::MdGetReply&>(*got).txnseq < last)
      w.violation(server.name + " shows a map from the past");
  }
  return w.verdict();
}
const Simulation regression("metadata_regression", run_regression);

TEST(SimMetadata, sim_s36_whenever_the_service_comes_back_from_the_past_nobody_shows_it) {
  run_seeds("metadata s36", 100, run_regression);
}

TEST(SimMetadata, racing_changes_joins_and_crashes_leave_one_chain_and_every_promise_is_kept) {
  run_seeds("metadata", 300, run_metadata);
}

}  // namespace
}  // namespace cantle::sim

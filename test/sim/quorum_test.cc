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

Verdict run_quorum_splits(uint64_t seed) {
  base::SeededRandom random(seed * 37 + 5);
  QuorumWorld w(seed, QuorumChaos::draw_splits(random));
  return w.run();
}

Verdict run_quorum_merges(uint64_t seed) {
  base::SeededRandom random(seed * 43 + 9);
  QuorumWorld w(seed, QuorumChaos::draw_merges(random));
  return w.run();
}

Verdict run_quorum_splits_and_moves(uint64_t seed) {
  base::SeededRandom random(seed * 47 + 13);
  QuorumWorld w(seed, QuorumChaos::draw_splits_and_moves(random));
  return w.run();
}

Verdict run_quorum_everything(uint64_t seed) {
  base::SeededRandom random(seed * 53 + 17);
  QuorumWorld w(seed, QuorumChaos::draw_everything(random));
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
const Simulation splits("quorum_splits", run_quorum_splits);
const Simulation merges("quorum_merges", run_quorum_merges);
const Simulation splits_and_moves("quorum_splits_and_moves", run_quorum_splits_and_moves);
const Simulation everything("quorum_everything", run_quorum_everything);

// Nothing goes wrong but that servers hear late of what became of a partition: a former leader goes on with its lease.
Verdict run_late_maps(uint64_t seed) {
  QuorumChaos c;
  c.splits = c.late_maps = true;
  c.clients = 6;
  c.keys = 2;
  c.lasts = 8s;
  QuorumWorld w(seed, c);
  return w.run();
}
const Simulation late("quorum_split_late", run_late_maps);

TEST(SimQuorum, who_has_not_heard_of_a_split_answers_nothing_that_is_old) {
  run_seeds("quorum_split_late", narrow(50), run_late_maps);
}

TEST(SimQuorum, nothing_is_lost_by_splits_whatever_goes_wrong) { run_seeds("quorum_splits", 300, run_quorum_splits); }
TEST(SimQuorum, nothing_is_lost_by_merges_whatever_goes_wrong) { run_seeds("quorum_merges", 300, run_quorum_merges); }
TEST(SimQuorum, nothing_is_lost_by_splits_and_moves_whatever_goes_wrong) {
  run_seeds("quorum_splits_and_moves", 300, run_quorum_splits_and_moves);
}
TEST(SimQuorum, nothing_is_lost_with_everything_at_once) { run_seeds("quorum_everything", 300, run_quorum_everything); }
const Simulation damaged("quorum_damaged", run_damaged_world);
const Simulation forgetful("quorum_forgets", run_forgetful_world);

TEST(SimQuorum, every_promise_is_kept_whatever_goes_wrong) { run_seeds("quorum", 300, run_quorum_world); }

TEST(SimQuorum, copies_are_rebuilt_by_snapshots_whatever_goes_wrong) {
  run_seeds("quorum that forgets", 150, run_forgetful_world);
}

TEST(SimQuorum, r16_damaged_logs_are_mended_and_not_believed) { run_seeds("quorum, damaged", 150, run_damaged_world); }

}  // namespace
}  // namespace cantle::sim

// Scenarios of servers, their disks and the coordination service (design/scenarios.md).
#include "lib/coord/layout.h"
#include "test/sim/scenario.h"

namespace cantle::sim {
namespace {

using model::Level;

// S6: a new disk under an old name holds nothing, and says so instead of being taken for a replica.
TEST(SimPush, s06_an_amnesiac_under_an_old_name_does_not_start) {
  Scenario s(6);
  s.fill(20);
  s.kill("p2");
  Host& p2 = s.world.host("p2");
  s.world.cluster().wipe(p2);
  s.start("p2");
  s.run(3s);
  EXPECT_NE(p2.exit_text, "") << "it runs, and others count on it";
  EXPECT_FALSE(p2.partd.alive());
  s.settle();
}

// S6: a new disk under an old name to which METADATA gives nothing is a new server. That the others have seen later
// lives of the old directory must not hold against it.
TEST(SimPush, s06_an_empty_disk_under_a_free_name_is_a_new_server) {
  Scenario s(66);
  s.fill(20);
  Host& p4 = s.world.host("p4");
  s.world.oper().replace("t", s.map()->partitions[0].region, "p3", "p4", false);
  const auto has = [&](const char* name) {
    return model::find_assignment(s.map()->partitions[0], model::ServerId{name}) != nullptr;
  };
  EXPECT_TRUE(s.world.wait([&] { return has("p4") && !has("p3"); }, 30s));
  for (int i = 0; i < 4; ++i) {  // lives that the others hear of
    s.kill("p4");
    s.start("p4");
    s.run(2s);
  }
  s.world.oper().replace("t", s.map()->partitions[0].region, "p4", "p3", false);
  EXPECT_TRUE(s.world.wait([&] { return has("p3") && !has("p4"); }, 30s));
  s.run(3s);
  s.kill("p4");
  const auto before = p4.number;
  s.world.cluster().wipe(p4);
  s.start("p4");
  s.run(3s);
  EXPECT_EQ(p4.exit_text, "");
  EXPECT_TRUE(p4.partd.alive());
  EXPECT_GT(p4.number, before);
  s.world.oper().replace("t", s.map()->partitions[0].region, "p3", "p4", false);
  EXPECT_TRUE(s.world.wait([&] { return has("p4") && !has("p3"); }, 30s)) << "p4 is not filled";
  EXPECT_TRUE(s.write("p4", "k001", Level::all).has_value());
  s.settle();
}

// S26: a disk that hangs: its server is alive and acknowledges nothing; the others go on.
TEST(SimPush, s26_a_hanging_disk_holds_up_nobody_else) {
  Scenario s(26);
  s.fill(5);
  s.world.host("p2").partd.pause(20s);
  for (size_t i = 0; i < 10; ++i) {
    const Instant asked = s.world.cluster().scheduler.now();
    EXPECT_TRUE(s.write(i % 2 ? "p1" : "p3", Scenario::name(i)).has_value());
    EXPECT_LT(s.world.cluster().scheduler.now() - asked, 1s);
  }
  s.settle();
}

// S32: a client with a map from before a split is sent back, whoever gave it to it.
TEST(SimPush, s32_an_old_map_is_refused_by_whoever_has_the_data) {
  Scenario s(32);
  s.fill(10);
  const auto old = s.map()->txnseq;
  s.split("k005");
  ASSERT_TRUE(s.world.wait([&] { return !s.splitting(); }, 20s));
  ASSERT_TRUE(s.world.come_to_rest(30s));
  model::PutRequest put;
  put.table = "t";
  put.key = "k002";
  put.value = History::value(
      s.world.history().begin("t", {"k002"}, false, Level::majority, "p1", s.world.cluster().scheduler.now()).number,
      0);
  put.txnseq = old;
  put.hop = false;
  std::optional<Network::Answer> got;
  s.world.cluster().network.call(s.world.client().process(), "p1/partd", put, 5s,
                                 [&](Network::Answer r) { got = std::move(r); });
  s.world.wait([&] { return got.has_value(); }, 10s);
  ASSERT_TRUE(got && !got->has_value());
  EXPECT_EQ(got->error().code, base::Code::stale_route);
  EXPECT_EQ(got->error().txnseq, s.map()->txnseq.value);
  s.settle();
}

// S33: watches that never fire cost time, not correctness.
TEST(SimPush, s33_without_watches_a_split_ends_all_the_same) {
  Scenario s(33, 6);
  s.fill(10);
  s.world.cluster().coord.faults().lose_watch = 1;
  s.split("k005", {"p4", "p5", "p6"}, {});
  EXPECT_TRUE(s.world.wait([&] { return !s.splitting(); }, 60s)) << s.world.restless();
  s.settle();
}

// S34: after its session expired a server is there again under its incarnation, owned by the new session.
TEST(SimPush, s34_an_expired_server_registers_again) {
  Scenario s(34);
  const auto path = s.world.cluster().maps.layout().active({"p1"});
  ASSERT_NE(s.world.cluster().coord.value(path), nullptr);
  for (int i = 0; i < 5; ++i) {
    s.world.cluster().coord.faults().lose_reply = 0.3;
    s.world.cluster().coord.expire("p1");
    EXPECT_EQ(s.world.cluster().coord.value(path), nullptr);
    ASSERT_TRUE(s.world.wait([&] { return s.world.cluster().coord.value(path) != nullptr; }, 5s));
    s.run(1s);
    const auto active = coord::parse_active(*s.world.cluster().coord.value(path));
    ASSERT_TRUE(active.has_value());
    EXPECT_EQ(active->incarnation, s.world.host("p1").partd_node->incarnation());
  }
  s.settle();
}

// S35: the coordination service is away for long: writes and reads go on.
TEST(SimPush, s35_an_outage_of_the_coordination_service_stops_no_writes) {
  Scenario s(35);
  s.fill(5);
  s.world.cluster().coord.outage(20s);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_TRUE(s.write("p" + std::to_string(1 + i % 4), Scenario::name(i % 7)).has_value());
    EXPECT_TRUE(s.read("p" + std::to_string(1 + i % 4), Scenario::name(i % 5)).has_value());
    s.run(300ms);
  }
  s.settle();
}

// S36: the coordination service comes back with a map from before the split: nobody takes it.
TEST(SimPush, s36_a_map_from_the_past_is_refused) {
  Scenario s(36);
  s.fill(10);
  const auto old = s.map()->txnseq;
  s.split("k005");
  ASSERT_TRUE(s.world.wait([&] { return !s.splitting(); }, 20s));
  ASSERT_TRUE(s.world.come_to_rest(30s));
  const auto now = s.map()->txnseq;
  s.world.cluster().maps.go_back("t", old);
  s.run(5s);
  for (const char* host : {"p1", "p2", "p3"}) {
    EXPECT_EQ(s.machine(host).installed("t")->txnseq, now);
    EXPECT_EQ(s.engine(host).tenures().size(), 2u);
  }
  // Nor after a restart: the highest it has seen is on the disk.
  s.kill("p1");
  s.start("p1");
  s.run(5s);
  EXPECT_EQ(s.engine("p1").tenures().size(), 2u);
  const auto installed = s.machine("p1").installed("t");
  EXPECT_TRUE(!installed || installed->txnseq == now);
  s.world.cluster().maps.go_back("t", now);
  s.settle();
}

// S61: a sync that fails is final: nothing it covered is acknowledged, the server exits, and starts from its disk.
TEST(SimPush, s61_a_failed_sync_is_never_retried) {
  Scenario s(61);
  s.fill(10);
  Host& p1 = s.world.host("p1");
  p1.medium.faults().fail_sync = 1;
  const auto r = s.write("p1", "k001", Level::one);
  EXPECT_FALSE(r.has_value());
  EXPECT_FALSE(p1.partd.alive());
  p1.medium.faults().fail_sync = 0;
  s.start("p1");
  s.settle();
}

// S62: a bit flips in a synced block in the middle of the journal: what lies behind it is not cut off as a torn tail.
TEST(SimPush, s62_damage_in_the_middle_is_not_a_torn_tail) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Scenario s(seed);
    s.fill(30, 300);
    s.kill("p1");
    ASSERT_TRUE(s.world.host("p1").medium.flip_bit("journal/0"));
    s.world.checks().set_damage_expected(true);
    s.start("p1");
    s.settle();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

// S62: the end of a log is what is damaged, and its server's mover has it to send: it goes on behind it.
TEST(SimPush, s62_a_damaged_end_of_a_log_holds_up_nobody) {
  Scenario s(62, 3);
  s.fill(10);
  s.split("k005");
  EXPECT_TRUE(s.world.wait([&] { return s.map()->partitions.size() == 2; }, 30s));
  ASSERT_TRUE(s.world.come_to_rest(30s));
  s.world.cluster().kill_push(s.world.host("p1"));
  for (const char* other : {"p2", "p3"}) s.world.cluster().network.cut_both("p1", other);
  for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(s.write("p1", Scenario::name(i), Level::one).has_value());
  s.kill("p1");
  ASSERT_TRUE(s.world.host("p1").medium.flip_text("journal/0", "k004"));  // the low child's last; others' come after
  s.world.checks().set_damage_expected(true);
  s.world.cluster().network.heal();
  s.start("p1");
  s.settle();
}

// S62: each server has said that it observed the split, METADATA has forgotten the parent, and the block is damaged
// that made p1's parent the children's: what nobody explains any more is in the index.
TEST(SimPush, s62_a_divide_that_is_damaged_once_nobody_knows_the_parent) {
  Scenario s(6250, 3);
  s.kill("p1");
  s.world.cluster().engine.overlay_age = s.world.cluster().engine.checkpoint_interval = 20s;  // the index is behind
  s.start("p1");
  ASSERT_TRUE(s.world.come_to_rest(10s));
  s.fill(10);
  s.split("k005, where it is divided");
  const auto forgotten = [&] { return s.map()->partitions.size() == 2 && s.map()->ended.empty(); };
  ASSERT_TRUE(s.world.wait(forgotten, 30s));
  s.kill("p1");
  ASSERT_TRUE(s.world.host("p1").medium.flip_text("journal/0", "k005, where it is divided"));
  s.world.checks().set_damage_expected(true);
  s.start("p1");
  s.run(1s);
  for (size_t i = 0; i < 10; ++i) EXPECT_FALSE(s.held("p1", Scenario::name(i)).none()) << i;
  s.settle();
}

// S62, of the next two: p1 alone has `key` besides p2 at most, has applied it, and its block in p1's journal is
// damaged.
void damage_what_is_applied(Scenario& s, const std::string& key) {
  s.run(3s);  // it is in the index
  s.kill("p1");
  s.world.checks().set_damage_expected(true);
  ASSERT_TRUE(s.world.host("p1").medium.flip_text("journal/0", key));
  s.start("p1");
  s.run(5s);
}

// S62: what stood in a damaged place of the journal is in the index all the same. The others are brought it from there,
// and the copy can be proved and given up.
TEST(SimPush, s62_what_only_the_index_has_comes_to_the_others) {
  for (const bool moves : {false, true}) {
    Scenario s(620, 5);
    s.fill(10);
    s.world.cluster().kill_push(s.world.host("p1"));
    for (const char* other : {"p2", "p3"}) s.world.cluster().network.cut_both("p1", other);
    const auto alone = s.write("p1", "k005", Level::one);
    ASSERT_TRUE(alone.has_value());
    for (size_t i = 6; i < 10; ++i) EXPECT_TRUE(s.write("p1", Scenario::name(i), Level::one).has_value());
    damage_what_is_applied(s, "k005");
    s.world.cluster().network.heal();
    if (moves) s.world.oper().replace("t", s.map()->partitions[0].region, "p1", "p4", false);
    s.settle();
    EXPECT_EQ(model::find_assignment(s.map()->partitions[0], model::ServerId{"p1"}) == nullptr, moves);
    for (const char* other : {"p2", "p3", moves ? "p4" : "p1"}) EXPECT_GE(s.held(other, "k005"), alone->version);
  }
}

// S62, S53: of a write that p1 and p2 acknowledged p3 knows nothing; p1's journal is damaged there, p2 is lost for
// good. Who takes p2's place is filled by p1's index, and not by a log that passes over it.
TEST(SimPush, s62_a_copy_with_a_damaged_log_fills_another_with_all_it_has) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Scenario s(6200 + seed, 4);
    s.fill(10);
    for (const char* other : {"p1", "p2"}) s.world.cluster().network.cut_both("p3", other);
    const auto written = s.write(seed % 2 ? "p2" : "p1", "k005");
    ASSERT_TRUE(written.has_value());
    for (size_t i = 6; i < 10; ++i) EXPECT_TRUE(s.write("p2", Scenario::name(i)).has_value());
    damage_what_is_applied(s, "k005");
    s.world.host("p2").gone = true;
    s.kill("p2");
    s.world.cluster().network.heal();
    s.world.oper().replace("t", s.map()->partitions[0].region, "p2", "p4", true);
    const auto filled = [&] {
      const auto* a = model::find_assignment(s.map()->partitions[0], model::ServerId{"p4"});
      return a != nullptr && model::answers_reads(a->state);
    };
    ASSERT_TRUE(s.world.wait(filled, 60s)) << s.world.restless();
    EXPECT_GE(s.held("p4", "k005"), written->version) << "it answers reads, and lacks what was acknowledged";
    s.settle();
  }
}

// S63: index and journal part ways at every step of an apply; the journal is the truth.
TEST(SimPush, s63_index_and_journal_agree_after_a_crash_at_any_step) {
  for (uint64_t n = 1; n <= 60; ++n) {
    Scenario s(300 + n, 3);
    s.fill(6);
    s.world.host("p1").partd.arm_crash(n);
    for (size_t i = 0; i < 12 && s.world.host("p1").partd.alive(); ++i) {
      s.write("p1", Scenario::name(i), Level::one, 200);
      s.run(100ms);
    }
    if (n % 2) s.world.cluster().power_cut(s.world.host("p1"));
    s.run(300ms);
    s.settle();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "the server died at effect " << n;
      return;
    }
  }
}

// S64: segments come and go, and the power fails: no segment that was in use is without a name.
TEST(SimPush, s64_a_segment_keeps_its_name_when_the_power_fails) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario s(400 + seed, 3);
    for (size_t i = 0; i < 25; ++i)
      EXPECT_TRUE(s.write("p1", Scenario::name(i % 5), Level::majority, 9000).has_value());
    for (const char* h : {"p1", "p2", "p3"}) s.world.cluster().power_cut(s.world.host(h));
    s.run(100ms);
    s.settle();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

// S65: a full disk: read-only, with the reason; and back by itself when there is room.
TEST(SimPush, s65_a_full_disk_turns_the_server_read_only_and_back) {
  Scenario s(65);
  s.fill(10);
  Host& p1 = s.world.host("p1");
  const uint64_t before = p1.medium.faults().bytes_max;
  p1.medium.faults().bytes_max = 0;
  s.run(2s);
  const auto refused = s.write("p1", "k001", Level::one);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, base::Code::read_only) << to_string(refused.error());
  EXPECT_TRUE(s.read("p1", "k001", Level::one).has_value()) << "reads go on";
  p1.medium.faults().bytes_max = before;
  s.run(3s);
  EXPECT_TRUE(s.write("p1", "k001", Level::one).has_value()) << "and it is back by itself";
  s.settle();
}

// R33: a clock that is far from its peers' makes its server read-only; versions never go back.
TEST(SimPush, r33_a_clock_far_off_takes_no_writes) {
  Scenario s(66);
  s.fill(5);
  s.run(3s);
  s.world.host("p1").clock->wall_offset_ms = 20000;
  s.run(3s);
  const auto r = s.write("p1", "k001");
  EXPECT_FALSE(r.has_value());
  s.world.host("p1").clock->wall_offset_ms = 0;
  s.run(3s);
  EXPECT_TRUE(s.write("p1", "k001").has_value());
  s.settle();
}

}  // namespace
}  // namespace cantle::sim

// Scenarios of splits, replacements and their operators (design/scenarios.md), as schedules that force the situation.
#include "test/sim/scenario.h"

namespace cantle::sim {
namespace {

using model::Level;

// S43: a record that lands in the parent while its range is being copied to the children is in the children.
TEST(SimPush, s43_a_write_between_copy_and_cut_is_in_the_child) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Scenario s(seed, 6);
    s.fill(30, 800);
    s.world.cluster().network.faults().slow = 0.5;  // the copy takes a while
    // Writers that do not wait: one every millisecond or two, from before the split until after it.
    size_t asked = 0, during = 0;
    bool writing = true;
    std::function<void()> more = [&] {
      if (!writing) return;
      const bool splitting = s.splitting();
      s.world.client().put("p" + std::to_string(1 + asked % 6), "t", Scenario::name(asked % 30), Level::majority,
                           [&during, splitting](const auto& r) { during += splitting && r ? 1 : 0; });
      ++asked;
      s.world.cluster().scheduler.after(1500us, more);
    };
    more();
    s.split("k015", {"p4", "p5", "p6"}, {"p4", "p5", "p6"});
    EXPECT_TRUE(s.world.wait([&] { return !s.splitting(); }, 60s)) << s.world.restless();
    writing = false;
    EXPECT_GT(during, 10u) << "hardly anything was written while the split went on";
    EXPECT_EQ(s.map()->partitions.size(), 2u);
    s.settle();
  }
}

// S43: a writer that does not know of the split while its barrier should have passed: it is cut off, and what it
// takes is not acknowledged at majority past the children.
TEST(SimPush, s43_a_cut_off_writer_with_an_old_map_reaches_no_majority) {
  Scenario s(2, 6);
  s.fill(20);
  auto& world = s.world;
  // p1 hears of nothing but its clients, and is no longer registered.
  world.cluster().coord.cut("p1");
  for (const char* other : {"p2", "p3", "p4", "p5", "p6", "m1", "m2", "m3"})
    world.cluster().network.cut_both("p1", other);
  s.run(4s);
  s.split("k010", {"p4", "p5", "p6"}, {"p4", "p5", "p6"});
  std::optional<base::Result<model::WriteReply>> told;
  world.client().put("p1", "t", "k003", Level::majority, [&](const auto& r) { told = r; });
  EXPECT_TRUE(world.wait([&] { return !s.splitting(); }, 30s)) << "the dead are not waited for";
  world.wait([&] { return told.has_value(); }, 10s);
  EXPECT_FALSE(told && told->has_value());
  s.no_violation();
  s.settle();
}

// S39: whoever goes on with a split uses the key and the children of the first transaction.
TEST(SimPush, s39_another_driver_goes_on_with_the_same_children) {
  Scenario s(3, 6);
  s.fill(20);
  s.world.cluster().network.faults().slow = 0.5;
  s.split("k010", {"p4", "p5", "p6"}, {"p1", "p2", "p3"});
  const auto split = *s.map()->partitions[0].split;
  s.world.oper(0).kill();
  s.world.oper(1).kill();
  s.run(1s);
  s.world.oper(1).start();
  ASSERT_TRUE(s.world.wait([&] { return !s.splitting(); }, 30s));
  ASSERT_EQ(s.map()->partitions.size(), 2u);
  EXPECT_EQ(s.map()->partitions[0].id, split.low.id);
  EXPECT_EQ(s.map()->partitions[1].id, split.high.id);
  EXPECT_EQ(s.map()->partitions[0].interval.end, split.point);
  s.settle();
}

// S38, S42: the driver dies at each of its effects; another one finishes, and the parent serves meanwhile.
TEST(SimPush, s38_a_driver_may_die_at_every_step) {
  for (uint64_t n = 1; n <= 30; ++n) {
    Scenario s(100 + n, 5);
    s.fill(12);
    s.world.oper(1).kill();
    s.world.oper(0).process().arm_crash(n);
    s.world.oper(0).split("t", s.map()->partitions[0].region, "k006", {{"p4"}, {"p5"}, {"p3"}}, {});
    s.run(2s);
    EXPECT_TRUE(s.write("p1", "k001").has_value());
    EXPECT_TRUE(s.write("p2", "k009").has_value());
    if (!s.world.oper(0).alive()) s.world.oper(0).kill();
    s.world.oper(1).start();
    s.settle();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "the driver died at effect " << n;
      return;
    }
  }
}

// S42: the split is begun, the server that drives it and one of the parent's die: the parent serves; ABORT_SPLIT
// needs none of the dead.
TEST(SimPush, s42_a_half_split_is_served_by_the_parent_and_can_be_aborted) {
  Scenario s(5, 6);
  s.fill(20);
  s.kill("p4");
  s.kill("p5");  // a majority of the low child's servers: it can never be filled
  s.split("k010", {"p4", "p5", "p6"}, {});
  s.run(3s);
  EXPECT_TRUE(s.splitting());
  s.kill("p3");
  EXPECT_TRUE(s.write("p1", "k001").has_value() || s.splitting());
  s.start("p3");
  const auto attempt = s.map()->partitions[0].split->attempt;
  s.world.oper(0).abort(attempt);
  s.world.oper(1).abort(attempt);
  EXPECT_TRUE(s.world.wait([&] { return !s.splitting(); }, 10s));
  EXPECT_EQ(s.map()->partitions.size(), 1u);
  s.settle();
}

// S40: a child's server is filled, forgets that it said so (it restarts), and says so again.
TEST(SimPush, s40_readiness_is_asked_for_and_not_remembered) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario s(seed, 6);
    s.fill(20);
    // The answer of the metadata servers does not come back: MARK_AVAILABLE is committed, or not.
    s.world.cluster().network.cut("m1", "p4");
    s.world.cluster().network.cut("m2", "p4");
    s.split("k010", {"p4", "p5", "p6"}, {});
    s.run(2s);
    s.kill("p4");
    s.world.cluster().network.heal();
    s.start("p4");
    EXPECT_TRUE(s.world.wait([&] { return !s.splitting(); }, 40s)) << s.world.restless();
    s.settle();
  }
}

// S45: a server dies at each effect while it divides: redone or not begun, never half.
TEST(SimPush, s45_a_crash_inside_a_local_split_leaves_it_whole) {
  for (uint64_t n = 1; n <= 40; ++n) {
    Scenario s(200 + n, 3);
    s.fill(12);
    s.split("k006");
    s.world.host("p2").partd.arm_crash(n);
    s.world.wait([&] { return !s.world.host("p2").partd.alive(); }, 3s);
    if (n % 2 == 0) s.world.cluster().power_cut(s.world.host("p2"));
    s.run(300ms);
    s.settle();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "the server died at effect " << n;
      return;
    }
    EXPECT_EQ(s.map()->partitions.size(), 2u);
  }
}

// S47: a scan that began before a split and ends after it gives each key once.
TEST(SimPush, s47_a_scan_goes_on_by_key_across_a_split) {
  for (const bool reverse : {false, true}) {
    Scenario s(7, 6);
    s.fill(40);
    std::vector<std::string> keys;
    std::string cursor;
    size_t answers = 0;
    do {
      model::ScanRequest ask;
      ask.table = "t";
      ask.reverse = reverse;
      ask.cursor = cursor;
      ask.limit = 5;
      std::optional<Network::Answer> got;
      const std::string to = "p" + std::to_string(1 + answers % 6) + "/partd";
      s.world.cluster().network.call(s.world.client().process(), to, ask, 5s,
                                     [&](Network::Answer r) { got = std::move(r); });
      s.world.wait([&] { return got.has_value(); }, 10s);
      ASSERT_TRUE(got && got->has_value()) << (got ? to_string(got->error()) : "no answer");
      const auto reply = std::any_cast<model::ScanReply>(**got);
      for (const auto& r : reply.records) keys.push_back(r.key);
      cursor = reply.cursor;
      if (++answers == 3) {
        s.split("k017", {"p4", "p5", "p6"}, {"p1", "p5", "p3"});
        EXPECT_TRUE(s.world.wait([&] { return !s.splitting(); }, 30s));
      }
    } while (!cursor.empty() && answers < 60);
    ASSERT_EQ(keys.size(), 40u);
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(keys[i], Scenario::name(reverse ? 39 - i : i));
    s.settle();
  }
}

// S53: while a replica is being replaced the source dies for good, and then a server that fills.
TEST(SimPush, s53_a_failure_during_a_replacement_loses_nothing) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Scenario s(seed, 5);
    s.fill(20, 500);
    s.world.cluster().network.faults().slow = 0.4;
    s.world.oper().replace("t", s.map()->partitions[0].region, "p1", "p4", false);
    s.world.wait([&] { return !s.map()->partitions[0].moves.empty(); }, 5s);
    s.run(std::chrono::milliseconds(20 * seed));
    s.kill("p1");
    s.write("p2", "k003");
    s.kill("p2");
    s.run(500ms);
    s.start("p2");
    s.world.cluster().network.faults() = {};
    s.run(2s);
    s.start("p1");
    s.settle();
    EXPECT_EQ(model::find_assignment(s.map()->partitions[0], model::ServerId{"p1"}), nullptr);
  }
}

// S53: a split has ended with two complete replicas of a child; the third (p4) has heard only one of the parent's
// servers, and forgets that it did, when one of the two is lost for good. The parent's copy that is in nobody's way any
// more fills it, and then it fills the one that takes the lost one's place.
TEST(SimPush, s53_a_server_lost_before_a_childs_third_replica_is_filled_costs_nothing) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Scenario s(530 + seed, 5);
    s.fill(20);
    auto& network = s.world.cluster().network;
    network.cut_both("p1", "p4");
    network.cut_both("p2", "p4");
    s.split("k010", {"p1", "p2", "p4"}, {"p1", "p2", "p3"});
    EXPECT_TRUE(s.world.wait([&] { return s.map()->partitions.size() == 2; }, 30s)) << s.world.restless();
    s.run(5s);
    const auto low = [&]() -> const model::Partition& { return s.map()->partitions[0]; };
    const auto state = [&](const char* name) {
      const auto* a = model::find_assignment(low(), model::ServerId{name});
      return a == nullptr ? std::nullopt : std::optional(a->state);
    };
    EXPECT_EQ(state("p4"), model::AssignmentState::initializing);
    EXPECT_EQ(s.engine("p3").tenures().size(), 2u) << "p3 gave up its half of the parent";
    EXPECT_EQ(s.map()->ended.size(), 1u) << "and METADATA forgot of whom the parent was";
    s.kill("p4");
    if (seed % 2 == 0) s.kill("p3");
    Host& p2 = s.world.host("p2");
    p2.gone = true;
    s.kill("p2");
    network.heal();
    s.start("p4");
    if (seed % 2 == 0) s.start("p3");
    for (size_t i = 0; i < 2; ++i) s.world.oper().replace("t", s.map()->partitions[i].region, "p2", "p5", true);
    EXPECT_TRUE(s.world.wait([&] { return !state("p2") && state("p5") == model::AssignmentState::available; }, 60s))
        << s.world.restless();
    EXPECT_EQ(state("p4"), model::AssignmentState::available);
    s.settle();
    EXPECT_TRUE(s.map()->ended.empty());
    EXPECT_EQ(s.engine("p3").tenures().size(), 1u);
  }
}

// S54: the replaced server alone has a record (level one), and cannot push it: it must not drop.
TEST(SimPush, s54_nothing_is_dropped_before_the_proof) {
  Scenario s(8, 4);
  s.fill(10);
  for (const char* other : {"p2", "p3", "p4"}) s.world.cluster().network.cut_both("p1", other);
  const auto alone = s.write("p1", "k005", Level::one);
  ASSERT_TRUE(alone.has_value()) << to_string(alone.error());
  s.world.oper().replace("t", s.map()->partitions[0].region, "p1", "p4", true);
  s.world.wait([&] { return !model::find_assignment(s.map()->partitions[0], model::ServerId{"p1"}); }, 30s);
  s.run(5s);
  EXPECT_FALSE(s.engine("p1").tenures().empty()) << "p1 dropped what only it has";
  s.world.cluster().network.heal();
  s.settle();
  EXPECT_GE(s.held("p2", "k005"), alone->version);
  EXPECT_TRUE(s.engine("p1").tenures().empty());
}

// S54, with one replica: what p1 should give up under its old tenure came back to p1 under a new one, and nobody else
// has it. The old copy is proved against the new one, and only then dropped.
TEST(SimPush, s54_an_old_copy_is_proved_against_the_same_servers_new_one) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Scenario s(seed, 3, 1);
    s.fill(20);
    s.split("k010", {"p2"}, {"p3"});
    EXPECT_TRUE(s.world.wait([&] { return s.map()->partitions.size() == 2; }, 30s));
    s.world.cluster().kill_push(s.world.host("p1"));
    s.world.oper().replace("t", s.map()->partitions[0].region, "p2", "p1", false);
    const auto back = [&] { return model::find_assignment(s.map()->partitions[0], model::ServerId{"p1"}) != nullptr; };
    EXPECT_TRUE(s.world.wait([&] { return back() && s.map()->partitions[0].moves.empty(); }, 30s));
    s.run(1s);
    EXPECT_EQ(s.engine("p1").tenures().size(), 2u) << "the old copy is gone, and nobody proved anything";
    s.world.cluster().start_push(s.world.host("p1"));
    s.settle();
    EXPECT_EQ(s.engine("p1").tenures().size(), 1u);
    EXPECT_FALSE(s.held("p1", "k003").none());
  }
}

// S54: p4 was filled by a snapshot, so that its log does not have what came with it, and p1, which had a record alone,
// is lost. When p4 is replaced its log is through everywhere at once; only the proof shows that the others lack it.
TEST(SimPush, s54_what_is_in_no_log_is_proved_like_the_rest) {
  Chaos chaos = Scenario::quiet(5, 3);
  chaos.small_retention = true;
  Scenario s(54, chaos);
  s.fill(10);
  for (const char* other : {"p2", "p3"}) s.world.cluster().network.cut_both("p1", other);
  const auto alone = s.write("p1", "k005", Level::one);
  ASSERT_TRUE(alone.has_value());
  for (size_t i = 0; i < 60; ++i) EXPECT_TRUE(s.write("p1", "k006", Level::one, 9000).has_value());
  s.run(3s);  // what was first of it is out of p1's journal
  s.world.oper().replace("t", s.map()->partitions[0].region, "p1", "p4", true);
  const auto on = [&](const char* name) {
    return model::find_assignment(s.map()->partitions[0], model::ServerId{name}) != nullptr;
  };
  ASSERT_TRUE(s.world.wait([&] { return !on("p1") && s.held("p4", "k005") >= alone->version; }, 30s));
  ASSERT_TRUE(s.engine("p4").tenures().front().hollow);
  s.world.host("p1").gone = true;
  s.kill("p1");
  s.world.cluster().network.heal();
  s.world.oper().replace("t", s.map()->partitions[0].region, "p4", "p5", false);
  ASSERT_TRUE(s.world.wait([&] { return !on("p4"); }, 30s));
  s.settle();
  EXPECT_TRUE(s.engine("p4").tenures().empty());
  for (const char* name : {"p2", "p3", "p5"}) EXPECT_GE(s.held(name, "k005"), alone->version);
}

// S55: a replica is not moved to where one is.
TEST(SimPush, s55_a_server_never_gets_a_second_replica) {
  Scenario s(9, 4);
  const auto before = s.map()->txnseq;
  s.world.oper().replace("t", s.map()->partitions[0].region, "p1", "p2", false);
  s.run(2s);
  EXPECT_EQ(s.map()->txnseq, before);
  s.settle();
}

// S60: what was begun with servers that died is undone with those that live.
TEST(SimPush, s60_a_replacement_is_cancelled_without_the_dead) {
  Scenario s(10, 5);
  s.fill(10);
  s.kill("p4");
  s.world.oper().replace("t", s.map()->partitions[0].region, "p1", "p4", false);
  s.world.wait([&] { return !s.map()->partitions[0].moves.empty(); }, 5s);
  s.run(2s);
  ASSERT_FALSE(s.map()->partitions[0].moves.empty());
  const auto attempt = s.map()->partitions[0].moves[0].attempt;
  s.world.oper(0).abort(attempt);
  s.world.oper(1).abort(attempt);
  EXPECT_TRUE(s.world.wait([&] { return s.map()->partitions[0].moves.empty(); }, 10s));
  EXPECT_NE(model::find_assignment(s.map()->partitions[0], model::ServerId{"p1"}), nullptr);
  s.settle();
}

// S25: requests that come out of the network late and twice change nothing.
TEST(SimPush, s25_late_and_doubled_messages_change_nothing) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Scenario s(seed, 4);
    auto& faults = s.world.cluster().network.faults();
    faults.duplicate = 0.5;
    faults.late = 0.1;
    for (size_t i = 0; i < 40; ++i) s.write("p" + std::to_string(1 + i % 4), Scenario::name(i % 4));
    s.split("k002");
    s.run(2s);
    for (size_t i = 0; i < 10; ++i) s.write("p" + std::to_string(1 + i % 4), Scenario::name(i % 4));
    s.settle();
  }
}

}  // namespace
}  // namespace cantle::sim

// A voter with the longest log that cannot lead, and whose blocks are wanted by who can (design/replication.md,
// "Electing").
#include "test/sim/quorum_scenario.h"

namespace cantle::sim {
namespace {

class QuorumLends : public QuorumScenario {
 protected:
  // Of the two that are left one has resigned, and has what the other lacks: nobody waits until it may lead again.
  void only_left(QuorumHost& resigned, QuorumHost& shorter) {
    ASSERT_TRUE(world.wait([&] { return !elected(resigned); }, 5s)) << world.describe();
    world.network.heal();
    ASSERT_TRUE(world.wait([&] { return world.leader(0) == &shorter; }, 2500ms)) << world.describe();
    EXPECT_GE(shorter.borrowed, 1U);
  }
};

TEST_F(QuorumLends, who_is_highest_and_has_resigned_lends_what_it_has) {
  auto [with, without] = followers();
  cut_off(*without);
  ASSERT_TRUE(sent(*leader, put("k9", "on two")).has_value());
  ASSERT_LT(end_of(*without), end_of(*leader));
  world.power_cut(*with);
  only_left(*leader, *without);
  EXPECT_EQ(read(*without, "k9"), "on two");
}

// What comes is more than is lent at once.
TEST_F(QuorumLends, all_of_it_comes_block_by_block) {
  auto [with, without] = followers();
  cut_off(*without);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(sent(*leader, put("k9", std::to_string(i) + std::string(900, '.'))).has_value());
  world.power_cut(*with);
  only_left(*leader, *without);
  EXPECT_EQ(read(*without, "k9"), "19" + std::string(900, '.'));
  EXPECT_GE(without->borrowed, 5U);
}

// It has something else at that LSN, of an older epoch: nobody was told of that, and it goes.
TEST_F(QuorumLends, what_was_written_before_by_another_leader_is_cut_first) {
  Answer lost;
  ASSERT_NO_FATAL_FAILURE(has_alone(put("k9", "lost"), &lost));
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(sent(*next, put("k9", "kept")).has_value());
  for (const auto& host : world.hosts)
    if (host.get() != leader && host.get() != next) world.power_cut(*host);
  only_left(*next, *leader);
  EXPECT_EQ(read(*leader, "k9"), "kept");
  EXPECT_FALSE(told_yes(lost));
}

// Whoever lends or borrows dies meanwhile; nothing of what was acknowledged is lost, whenever that is.
TEST_F(QuorumLends, death_on_the_way_loses_nothing) {
  for (int turn = 0; turn < 6; ++turn) {
    world.scheduler.run_for(6s);  // whoever has resigned may lead again
    ASSERT_NE(leader = any_leader(), nullptr);
    auto [with, without] = followers();
    ASSERT_TRUE(world.wait([&, a = with, b = without] { return shows_all(*a) && shows_all(*b); }, 10s));
    cut_off(*without);
    const auto value = "turn " + std::to_string(turn);
    ASSERT_TRUE(sent(*leader, put("k9", value)).has_value());
    world.power_cut(*with);
    ASSERT_TRUE(world.wait([&] { return !elected(*leader); }, 5s));
    world.network.heal();
    const auto asked = without->borrowed;
    ASSERT_TRUE(world.wait([&, b = without] { return b->borrowed > asked; }, 3s)) << world.describe();
    world.scheduler.run_for(base::Duration(turn * 30us));
    world.power_cut(turn % 2 == 0 ? *without : *leader);
    world.scheduler.run_for(10ms);
    for (const auto& host : world.hosts)
      if (!host->process.alive()) world.start(*host);
    auto* next = any_leader();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(read(*next, "k9"), value);
  }
}

}  // namespace
}  // namespace cantle::sim

// Scenarios of who is a replica of a quorum table's partition, each forced in a small quiet world
// (design/scenarios.md).
#include "test/sim/quorum_scenario.h"

namespace cantle::sim {
namespace {

// p4 stands by.
class QuorumMembers : public QuorumScenario {
 protected:
  QuorumMembers() : QuorumScenario(with_spare()) {}
  static QuorumChaos with_spare() {
    auto c = quiet();
    c.moves = true;
    c.pipeline = proto::quorum::Pipeline::star;  // who is cut off holds up nobody else
    c.spares = 1;
    return c;
  }
  QuorumHost& spare() { return *world.hosts[3]; }
  void begin_replacing(const QuorumHost& from, bool dead = false) {
    ASSERT_FALSE(world.replace(0, from.id, spare().id, dead).none());
  }
  bool replaced() { return world.partition(0).moves.empty() && votes(spare()); }
  // At the instant at which it is sent: the swap that gives p4 a vote.
  void at_the_swap(std::function<void(const QuorumHost& by)> fn) {
    world.on_swap = [this, fn = std::move(fn)](const QuorumHost& by, const model::Government& to) {
      const bool gives = std::any_of(to.voters.begin(), to.voters.end(),
                                     [&](const model::Voter& v) { return v.server == spare().id; });
      if (!gives) return;
      ++swaps;
      const auto once = std::exchange(world.on_swap, nullptr);
      fn(by);
    };
  }
  int swaps = 0;
};

// A replica loses its disk and comes back under its name. It has the log of nobody: with it and the one that has not
// the write nobody is elected; with the other one there is a majority, and the write is there.
TEST_F(QuorumMembers, sim_s06_who_lost_its_disk_has_no_vote_under_its_old_name) {
  auto [with, without] = followers();
  cut_pair(*leader, *without);
  cut_pair(*with, *without);
  ASSERT_TRUE(sent(*leader, put("k9", "on two")).has_value());
  world.kill(*leader);
  world.wipe(*with);
  world.scheduler.run_for(10ms);
  world.network.heal();
  world.start(*with);
  EXPECT_FALSE(world.wait([&] { return world.leader(0) != nullptr; }, 8s)) << "one that lost its log has elected";
  EXPECT_TRUE(!with->process.alive() || with->node->replica(0) == nullptr);
  world.start(*leader);
  auto* next = any_leader();
  EXPECT_EQ(next, leader);
  EXPECT_EQ(read(*next, "k9"), "on two");
  // It is replaced, as any that is gone for good.
  begin_replacing(*with, true);
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 10s)) << world.describe();
}

// A leader reaches none of the others, and asks that one of them lose its vote; that does not come through. With the
// one that would be in the other's place it has a majority of its own making: it acknowledges nothing by that.
// Meanwhile the others elect.
TEST_F(QuorumMembers, sim_s09_nothing_is_acknowledged_by_a_removal_that_was_only_asked_for) {
  auto [stays, leaves] = followers();
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  Answer answer;
  bool asked = false;
  const auto write = put("k9", "by those who do not count");
  at_the_swap([&, stays = stays, leaves = leaves](const QuorumHost& by) {
    asked = true;
    ASSERT_EQ(&by, leader);
    world.coord.cut(by.id.name);
    for (const auto* one : {stays, leaves}) cut_pair(by, *one), cut_pair(spare(), *one);
    send(by, write, &answer);
  });
  begin_replacing(*leaves);
  ASSERT_TRUE(world.wait([&] { return asked; }, 5s)) << world.describe();
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  EXPECT_FALSE(told_yes(answer));
  ASSERT_TRUE(sent(*next, put("k9", "kept")).has_value());
  EXPECT_TRUE(votes(*leaves));
  EXPECT_FALSE(votes(spare()));
  world.network.heal();
  world.coord.heal();
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) == end_of(*next) && replaced(); }, 15s)) << world.describe();
  EXPECT_EQ(read(*leader, "k9"), "kept");
  EXPECT_FALSE(told_yes(answer));
}

// The coordination service stands still with a swap on its way. The leader goes on with the voters that are written;
// and with none of those, but the one that would be one, it commits nothing.
TEST_F(QuorumMembers, sim_s10_while_a_configuration_is_not_committed_nothing_is_acknowledged_under_it) {
  auto [stays, leaves] = followers();
  world.kill(*leaves);
  bool asked = false;
  at_the_swap([&](const QuorumHost&) {
    asked = true;
    world.coord.outage(4s);
  });
  begin_replacing(*leaves, true);
  ASSERT_TRUE(world.wait([&] { return asked; }, 5s)) << world.describe();
  EXPECT_TRUE(sent(*leader, put("k9", "by the voters")).has_value());
  EXPECT_FALSE(votes(spare()));
  cut_off(*stays);
  Answer answer;
  send(*leader, put("k9", "by one voter"), &answer);
  world.scheduler.run_for(2s);
  EXPECT_FALSE(told_yes(answer));
  world.power_cut(*leader);
  world.power_cut(spare());
  world.scheduler.run_for(10ms);
  world.network.heal();
  world.start(*leaves);
  auto* next = any_leader();
  EXPECT_EQ(next, stays);
  EXPECT_EQ(read(*next, "k9"), "by the voters");
  world.start(*leader);
  world.start(spare());
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 15s)) << world.describe();
}

// Writes are under way when the voters change. Old majority and new majority share nobody who has them: they are
// acknowledged by neither alone, whatever the leader has heard of the swap.
TEST_F(QuorumMembers, sim_s13_what_is_under_way_when_voters_change_is_on_a_majority_of_either) {
  auto [stays, leaves] = followers();
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  Answer before, after;
  bool asked = false;
  const auto one = put("k9", "under way"), another = put("k8", "and one behind it");
  at_the_swap([&, stays = stays](const QuorumHost& by) {
    asked = true;
    cut_pair(by, *stays);
    cut_pair(by, spare());
    send(by, one, &before);
  });
  begin_replacing(*leaves);
  ASSERT_TRUE(world.wait([&] { return asked && votes(spare()); }, 5s)) << world.describe();
  world.coord.cut(leader->id.name);  // the answer
  send(*leader, another, &after);
  world.scheduler.run_for(1500ms);
  world.kill(*leader);
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  EXPECT_FALSE(told_yes(before) && read(*next, "k9") != "under way");
  EXPECT_FALSE(told_yes(after) && read(*next, "k8") != "and one behind it");
  world.network.heal();
  world.coord.heal();
  world.start(*leader);
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 15s)) << world.describe();
}

// A follower is gone, and another one, which is well, is to be replaced. It goes when what comes in its place is level,
// and not as surplus before that: there are as many voters as the table should have, and a majority that lives.
TEST_F(QuorumMembers, sim_s19_a_live_replica_goes_only_when_another_has_what_it_has) {
  auto [well, gone] = followers();
  world.kill(*gone);
  world.scheduler.run_for(10ms);
  for (const auto& host : world.hosts)
    if (host.get() != &spare()) cut_pair(spare(), *host);
  at_the_swap([](const QuorumHost&) {});
  begin_replacing(*well);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(sent(*leader, put("k9", std::to_string(i))).has_value());
    world.scheduler.run_for(300ms);
  }
  EXPECT_EQ(swaps, 0);
  EXPECT_TRUE(votes(*well));
  EXPECT_NE(model::find_assignment(world.partition(0), well->id), nullptr) << "METADATA has dropped a live replica";
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 10s)) << world.describe();
  EXPECT_EQ(model::find_assignment(world.partition(0), well->id), nullptr);
  EXPECT_TRUE(sent(*leader, put("k9", "with the new one")).has_value());
}

// A replacement that does not come on, and a fault of another replica meanwhile: it holds up nothing, as who is
// replaced votes until it is replaced.
TEST_F(QuorumMembers, sim_s20_who_is_replaced_votes_until_there_is_another) {
  auto [other, leaves] = followers();
  for (const auto& host : world.hosts)
    if (host.get() != &spare()) cut_pair(spare(), *host);
  begin_replacing(*leaves);
  world.scheduler.run_for(2s);
  world.kill(*other);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(sent(*leader, put("k9", std::to_string(i))).has_value());
  EXPECT_EQ(world.leader(0), leader);
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 10s)) << world.describe();
  EXPECT_TRUE(sent(*leader, put("k9", "by the leader and the new one")).has_value());
}

// S61: p4 has the vote of one that was replaced, and neither that one nor the next leader has heard of it. That leader
// does not know why the voters are who they are: it leaves them.
TEST_F(QuorumMembers, sim_s61_a_leader_with_an_older_map_does_not_swap_voters_back) {
  auto [stays, leaves] = followers();
  stays->hears_maps = leaves->hears_maps = false;
  begin_replacing(*leaves);
  ASSERT_TRUE(world.wait([&] { return votes(spare()); }, 10s)) << world.describe();
  EXPECT_FALSE(votes(*leaves));
  for (int i = 0; i < 20 && world.leader(0) != stays; ++i) {
    auto* now = any_leader();
    world.kill(*now);
    world.scheduler.run_for(3s);
    world.start(*now);
    world.scheduler.run_for(3s);
  }
  ASSERT_EQ(any_leader(), stays) << world.describe();
  EXPECT_TRUE(sent(*stays, put("k9", "by who has the older map")).has_value());
  world.scheduler.run_for(5s);
  EXPECT_TRUE(votes(spare()));
  EXPECT_FALSE(votes(*leaves));
  stays->hears_maps = leaves->hears_maps = true;
  for (auto* host : {stays, leaves}) world.kill(*host), world.scheduler.run_for(10ms), world.start(*host);
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 15s)) << world.describe();
}

// A replacement is cancelled while the copy is being made that it asks for, and asked for once more at once: of one
// partition two are wanted on a server, one after the other, and the second waits for the end of the first.
TEST_F(QuorumMembers, what_is_asked_for_anew_while_it_is_being_made_waits_for_that) {
  auto [stays, leaves] = followers();
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  const auto usual = world.times;
  world.times.task_min = world.times.task_max = 400ms;
  const auto first = world.replace(0, leaves->id, spare().id, false);
  ASSERT_FALSE(first.none());
  const auto asked = [&] { return model::find_assignment(world.partition(0), spare().id); };
  world.scheduler.run_for(100ms);
  ASSERT_NE(asked(), nullptr);
  const auto before = asked()->id;
  world.cancel(first);
  ASSERT_TRUE(world.wait([&] { return asked() == nullptr; }, 5s)) << world.describe();
  const auto second = world.replace(0, leaves->id, spare().id, false);
  ASSERT_FALSE(second.none());
  ASSERT_NE(asked()->id, before);
  world.scheduler.run_for(200ms);
  world.times = usual;
  ASSERT_TRUE(world.wait([&] { return replaced(); }, 10s)) << world.describe();
  EXPECT_TRUE(sent(*leader, put("k9", "with the new one")).has_value());
  world.kill(*stays);
  EXPECT_TRUE(sent(*leader, put("k9", "by the leader and the new one")).has_value());
}

}  // namespace
}  // namespace cantle::sim

// Scenarios of quorum tables' merges, each forced in a small quiet world (design/reshape.md, "Merge").
#include <gtest/gtest.h>

#include "test/sim/quorum_scenario.h"

namespace cantle::sim {
namespace {

using base::Code;

// [, m) and [m, ), each led by somebody.
class QuorumMergeScenario : public QuorumScenario {
 protected:
  static QuorumChaos two() {
    auto c = quiet();
    c.points = {"m"};
    return c;
  }
  QuorumMergeScenario() : QuorumScenario(two()) {}
  void SetUp() override {
    QuorumScenario::SetUp();
    low = map()->find("a")->id;
    high = map()->find("x")->id;
  }
  QuorumWorld::MapPtr map() const { return world.map(0); }
  bool is_merging() const { return map()->find(low) != nullptr && map()->find(low)->merge.has_value(); }
  bool is_merged() const { return map()->partitions.size() == 1; }
  bool served() { return world.at_rest(0); }
  void begin_merge() {
    world.merge(0, low, high);
    ASSERT_TRUE(is_merging());
  }
  std::optional<model::CutReport> reported(const model::PartitionId& id) {
    const auto region = map()->find(id)->region;
    const auto* text = world.coord.value(world.layout.government(QuorumWorld::distribution(0), region));
    return coord::parse_government(*text)->cut;
  }
  bool cut_by(const model::PartitionId& id, size_t holders) {
    const auto cut = reported(id);
    return cut && cut->holders.size() >= holders;
  }
  // Up to where both cuts are on all, and nobody drives on.
  void cut_and_hold() {
    world.hold_drivers(true);
    begin_merge();
    ASSERT_TRUE(world.wait([&] { return cut_by(low, 3) && cut_by(high, 3); }, 900ms)) << world.describe();
  }
  QuorumHost* leader_of(const std::string& key) { return world.leader(map()->find(key)->id); }
  base::Result<QuorumWritten> sent_to_leader(const std::string& key, const QuorumWrite& write) {
    QuorumHost* to = nullptr;
    EXPECT_TRUE(world.wait([&] { return (to = leader_of(key)) != nullptr; }, 10s)) << world.describe();
    return to != nullptr ? sent(*to, write) : base::fail(Code::unavailable, "nobody leads");
  }
  QuorumHost* one_that_leads_neither() {
    for (const auto& host : world.hosts)
      if (host.get() != world.leader(low) && host.get() != world.leader(high)) return host.get();
    return nullptr;
  }
  model::PartitionId low, high;
};

TEST_F(QuorumMergeScenario, two_neighbours_become_one_that_goes_on_from_both) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(sent_to_leader("a", incr("a", 1)));
  ASSERT_TRUE(sent_to_leader("x", incr("x", 7)));
  begin_merge();
  ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 5s)) << world.describe();
  const auto a = sent_to_leader("a", incr("a", 1)), x = sent_to_leader("x", incr("x", 1));
  ASSERT_TRUE(a && x);
  EXPECT_EQ(a->outcome.value, 6);
  EXPECT_EQ(x->outcome.value, 8);
  EXPECT_EQ(x->outcome.lsn, a->outcome.lsn.next());
}

// S23: the answers were lost with the two; the target looks up whose writes they were.
TEST_F(QuorumMergeScenario, sim_s23_what_either_did_is_not_done_again_by_the_target) {
  const auto in_low = incr("a", 3), in_high = incr("x", 7);
  const auto first_low = sent_to_leader("a", in_low), first_high = sent_to_leader("x", in_high);
  ASSERT_TRUE(first_low && first_high);
  begin_merge();
  ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 5s)) << world.describe();
  for (const auto& [key, write, first] :
       {std::tuple("a", &in_low, &first_low), std::tuple("x", &in_high, &first_high)}) {
    const auto again = sent_to_leader(key, *write);
    ASSERT_TRUE(again);
    EXPECT_TRUE(again->repeat);
    EXPECT_EQ(again->outcome, (*first)->outcome);
  }
}

// S43: writes that come after a cut are neither's any more; sent again, they are the target's, once.
TEST_F(QuorumMergeScenario, sim_s43_a_write_behind_either_cut_waits_and_is_the_targets) {
  cut_and_hold();
  for (const auto& key : {"a", "x"}) {
    auto* at = leader_of(key);
    EXPECT_EQ(at, nullptr);  // neither is read, either
  }
  const auto write_low = incr("a", 7), write_high = incr("x", 9);
  Answer low_answer, high_answer;
  const auto leads = [&](const model::PartitionId& id) -> QuorumHost& {
    for (const auto& host : world.hosts)
      if (host->node->replica(id)->serving()) return *host;
    return *world.hosts.front();
  };
  send(leads(low), write_low, &low_answer);
  send(leads(high), write_high, &high_answer);
  world.scheduler.run_for(50ms);
  EXPECT_FALSE(low_answer || high_answer);
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return low_answer && high_answer; }, 3s));
  for (const auto& answer : {low_answer, high_answer}) {
    ASSERT_FALSE(answer->has_value());
    EXPECT_EQ(answer->error().code, Code::stale_route);
  }
  ASSERT_TRUE(world.wait([&] { return served(); }, 5s)) << world.describe();
  const auto a = sent_to_leader("a", write_low), x = sent_to_leader("x", write_high);
  ASSERT_TRUE(a && x);
  EXPECT_FALSE(a->repeat || x->repeat);
  EXPECT_EQ(a->outcome.value, 7);
  EXPECT_EQ(x->outcome.value, 9);
}

// S38, S40, S42: whoever drives dies after some step; another reads in METADATA what was done.
TEST_F(QuorumMergeScenario, sim_s38_a_driver_that_dies_at_any_step_leaves_nothing_behind) {
  for (const Duration later : {0ms, 40ms, 80ms, 120ms, 200ms}) {
    low = map()->find("a")->id;
    high = map()->find("x")->id;
    begin_merge();
    world.scheduler.run_for(later);
    world.hold_drivers(true);
    world.scheduler.run_for(500ms);
    world.hold_drivers(false);
    ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 8s)) << base::to_ms(later) << world.describe();
    world.split(0, map()->find("a")->id, "m");
    ASSERT_TRUE(world.wait([&] { return map()->partitions.size() == 2 && served(); }, 8s)) << world.describe();
  }
}

// S39: what was fixed by MERGE is what comes out, whoever goes on.
TEST_F(QuorumMergeScenario, sim_s39_the_target_is_that_of_the_first_transaction) {
  cut_and_hold();
  const auto merge = *map()->find(low)->merge;
  world.aborts_are_heard = false;
  world.kill(*leader);
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_merged(); }, 15s)) << world.describe();
  EXPECT_EQ(map()->find("x")->id, merge.target.id);
  EXPECT_EQ(map()->find("a")->id, merge.target.id);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(map()->find("a")->assignments[i].id, merge.target.assignments[i].id);
}

// S42: a leader dies with a cut. The next one has it, is parked from its first moment, and the merge ends.
TEST_F(QuorumMergeScenario, sim_s42_a_leader_that_finds_the_cut_in_its_log_is_parked) {
  cut_and_hold();
  world.aborts_are_heard = false;
  world.kill(*leader);
  QuorumHost* next = nullptr;
  ASSERT_TRUE(world.wait(
      [&] {
        for (const auto& host : world.hosts) {
          const auto* r = host->process.alive() && host->node ? host->node->replica(low) : nullptr;
          if (r != nullptr && r->serving()) next = host.get();
        }
        return next != nullptr;
      },
      10s))
      << world.describe();
  EXPECT_TRUE(next->node->replica(low)->parked());
  Answer answer;
  const auto write = incr("a", 1);
  send(*next, write, &answer);
  world.scheduler.run_for(500ms);
  EXPECT_FALSE(answer && answer->has_value());
  world.aborts_are_heard = true;
  world.hold_drivers(false);
  world.start(*leader);
  ASSERT_TRUE(world.wait([&] { return served(); }, 15s)) << world.describe();
  const auto again = sent_to_leader("a", write);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->outcome.value, 1);
}

// Nobody drives: one of the leaders has the merge aborted after a second, both take their cuts back, and what waited
// goes on.
TEST_F(QuorumMergeScenario, a_merge_that_nothing_comes_of_is_aborted_and_writes_go_on_in_both) {
  auto* low_leader = world.leader(low);
  auto* high_leader = world.leader(high);
  cut_and_hold();
  std::vector<std::pair<QuorumHost*, QuorumWrite>> writes{{low_leader, incr("a", 7)}, {high_leader, incr("x", 9)}};
  std::vector<Answer> answers(2);
  for (size_t i = 0; i < 2; ++i) {
    auto& [to, write] = writes[i];
    write.within_ms = 5000;
    world.network.call(client, to->id.name + "/partd", write, 5s, [&answers, i](const Network::Answer& a) {
      if (a) answers[i] = std::any_cast<const QuorumWritten&>(*a);
    });
  }
  ASSERT_TRUE(world.wait([&] { return !is_merging(); }, 3s)) << world.describe();
  ASSERT_TRUE(world.wait([&] { return answers[0] && answers[1]; }, 3s)) << world.describe();
  EXPECT_EQ((*answers[0])->outcome.value, 7);
  EXPECT_EQ((*answers[1])->outcome.value, 9);
  EXPECT_FALSE(reported(low));
  EXPECT_FALSE(reported(high));
  world.hold_drivers(false);
  begin_merge();
  ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 5s)) << world.describe();
}

// S35: the coordination service goes away with the cuts in the logs. Neither time nor silence takes them back.
TEST_F(QuorumMergeScenario, sim_s35_without_the_coordination_service_the_cuts_stand_and_nothing_is_cut) {
  cut_and_hold();
  world.coord.outage(4s);
  world.scheduler.run_for(3500ms);
  EXPECT_FALSE(world.leader(low));
  EXPECT_FALSE(world.leader(high));
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return served(); }, 15s)) << world.describe();
}

// S45: a server dies while it joins its copies, again and again; what it finds is both, or the one.
TEST_F(QuorumMergeScenario, sim_s45_a_crash_inside_a_merge_leaves_two_copies_or_one) {
  for (const auto& key : {"a1", "a2", "x1", "x2"}) ASSERT_TRUE(sent_to_leader(key, put(key, key)));
  cut_and_hold();
  QuorumHost* victim = one_that_leads_neither();
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_merged(); }, 5s));
  for (uint64_t effects = 1; effects < 12; ++effects) {
    victim->process.arm_crash(effects);
    world.wait([&] { return !victim->process.alive(); }, 300ms);
    world.start(*victim);
  }
  victim->process.arm_crash(0);
  world.start(*victim);
  ASSERT_TRUE(world.wait([&] { return served(); }, 10s)) << world.describe();
  const auto target = map()->find("a")->id;
  ASSERT_TRUE(world.wait([&] { return victim->node && victim->node->replica(target) != nullptr; }, 5s));
  EXPECT_FALSE(victim->node->lags(target));
}

// A server that was away through the merge with both cuts joins its copies when it is back.
TEST_F(QuorumMergeScenario, sim_s42_who_was_away_with_both_cuts_joins_its_copies_when_it_is_back) {
  ASSERT_TRUE(sent_to_leader("x1", put("x1", "1")));
  cut_and_hold();
  QuorumHost* away = one_that_leads_neither();
  world.kill(*away);
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 10s)) << world.describe();
  ASSERT_TRUE(sent_to_leader("x1", put("x1", "2")));
  world.start(*away);
  const auto target = map()->find("x1")->id;
  ASSERT_TRUE(world.wait([&] { return away->node && away->node->replica(target) != nullptr; }, 5s));
  EXPECT_FALSE(away->node->lags(target));
  EXPECT_EQ(away->rebuilt, 0U);
}

// One that has not both sets both aside, is an empty voter, and is filled by a snapshot.
TEST_F(QuorumMergeScenario, sim_s42_who_has_not_both_cuts_is_filled_anew) {
  ASSERT_TRUE(sent_to_leader("a1", put("a1", "1")));
  ASSERT_TRUE(sent_to_leader("x1", put("x1", "1")));
  QuorumHost* away = one_that_leads_neither();
  world.kill(*away);
  begin_merge();
  ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 10s)) << world.describe();
  ASSERT_TRUE(sent_to_leader("x1", put("x1", "2")));
  world.start(*away);
  const auto target = map()->find("x1")->id;
  const auto level = [&] {
    const auto log = away->node ? away->node->engine().quorum_log(target) : std::nullopt;
    return log && log->end.lsn.value != 0 && log->end == leader_of("x1")->node->engine().quorum_log(target)->end;
  };
  ASSERT_TRUE(world.wait(level, 10s)) << world.describe();
  EXPECT_TRUE(world.wait([&] { return away->rebuilt >= 1; }, 1s));  // told once that is in the journal, too
}

// R16: what is damaged before a cut nobody can mend once the two are one. What is made of it is filled anew, and is not
// taken for whole because a leader has spoken to it.
TEST_F(QuorumMergeScenario, r16_what_is_made_of_a_damaged_log_is_filled_anew) {
  ASSERT_TRUE(sent_to_leader("a1", put("a1", "the damaged value")));
  ASSERT_TRUE(sent_to_leader("x1", put("x1", "1")));
  cut_and_hold();
  QuorumHost* damaged = one_that_leads_neither();
  world.kill(*damaged);
  world.scheduler.run_for(1ms);
  ASSERT_TRUE(damaged->medium.flip_text("journal/0", "the damaged value"));
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_merged() && served(); }, 10s)) << world.describe();
  world.start(*damaged);
  const auto target = map()->find("a1")->id;
  ASSERT_TRUE(world.wait([&] { return damaged->rebuilt >= 1; }, 10s)) << world.describe();
  const auto value = [&]() -> std::string {
    if (!damaged->node) return "";
    const auto found = damaged->node->engine().get(target, "a1");
    return found && *found ? std::string((*found)->value) : "";
  };
  ASSERT_TRUE(world.wait([&] { return value() == "the damaged value"; }, 10s)) << world.describe();
}

}  // namespace
}  // namespace cantle::sim

// Scenarios of quorum tables' splits, each forced in a small quiet world (design/scenarios.md, C).
#include <gtest/gtest.h>

#include "test/sim/quorum_scenario.h"

namespace cantle::sim {
namespace {

using base::Code;

class QuorumSplitScenario : public QuorumScenario {
 protected:
  using QuorumScenario::QuorumScenario;
  void SetUp() override {
    QuorumScenario::SetUp();
    root = world.partition_id(0);
  }
  QuorumWorld::MapPtr map() const { return world.map(0); }
  const model::Partition* parent() const { return map()->find(root); }
  void begin_split(const std::string& point) {
    world.split(0, root, point);
    ASSERT_TRUE(world.wait([&] { return parent() != nullptr && parent()->split.has_value(); }, 2s));
  }
  std::optional<model::CutReport> reported() {
    const auto* text = world.coord.value(world.layout.government(QuorumWorld::distribution(0), parent()->region));
    return coord::parse_government(*text)->cut;
  }
  bool is_split() const { return map()->partitions.size() == 2; }
  bool served() { return world.at_rest(0); }
  // Up to where the cut is committed and reported, and nobody drives on.
  void cut_and_hold(const std::string& point) {
    begin_split(point);
    ASSERT_TRUE(world.wait([&] { return parent()->split->phase == model::SplitPhase::filling; }, 2s));
    world.hold_drivers(true);
    ASSERT_TRUE(world.wait([&] { return reported().has_value(); }, 1s)) << world.describe();
  }
  model::PartitionId root;
  base::Result<QuorumWritten> sent_to_leader(const std::string& key, const QuorumWrite& write) {
    QuorumHost* to = nullptr;
    EXPECT_TRUE(world.wait([&] { return (to = world.leader(map()->find(key)->id)) != nullptr; }, 10s))
        << world.describe();
    return to != nullptr ? sent(*to, write) : base::fail(Code::unavailable, "nobody leads");
  }
};

TEST_F(QuorumSplitScenario, a_partition_is_split_and_both_children_go_on_from_it) {
  ASSERT_TRUE(sent(*leader, incr("a", 5)).has_value());
  ASSERT_TRUE(sent(*leader, incr("x", 7)).has_value());
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 5s)) << world.describe();
  const auto low = sent_to_leader("a", incr("a", 1)), high = sent_to_leader("x", incr("x", 1));
  ASSERT_TRUE(low && high);
  EXPECT_EQ(low->outcome.value, 6);
  EXPECT_EQ(high->outcome.value, 8);
}

// A replica that was away for the whole of a split, and reaches nobody when it is back, has what it had of the parent,
// and of the children nothing: it does not say of what it never had that it is not there.
TEST_F(QuorumSplitScenario, who_has_nothing_of_a_child_yet_answers_nothing_at_any_level) {
  auto& late = *followers().first;
  world.kill(late);
  ASSERT_TRUE(sent(*leader, incr("x", 7)).has_value());
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 5s)) << world.describe();
  cut_off(late);
  world.start(late);
  const auto child = map()->find("x")->id;
  EXPECT_FALSE(world.wait([&] { return get(late, "x", true).has_value(); }, 3s));
  const auto* copy = late.node->replica(child);
  EXPECT_TRUE(copy == nullptr ||
              copy->may_read_any(late.node->engine().visible(child)).error().code == Code::catching_up);
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return get(late, "x", true).has_value(); }, 10s)) << world.describe();
  EXPECT_EQ(get(late, "x", true)->value, "7");
}

// S23: the answer was lost with the parent; its children look up whose write it was.
TEST_F(QuorumSplitScenario, sim_s23_what_the_parent_did_is_not_done_again_by_a_child) {
  const auto write = incr("x", 7);
  const auto first = sent(*leader, write);
  ASSERT_TRUE(first);
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 5s)) << world.describe();
  const auto again = sent_to_leader("x", write);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->repeat);
  EXPECT_EQ(again->outcome, first->outcome);
}

// S43: a write that comes after the cut is not the parent's any more; sent again, it is a child's, once.
TEST_F(QuorumSplitScenario, sim_s43_a_write_behind_the_cut_waits_and_is_the_childs) {
  cut_and_hold("m");
  const auto write = incr("x", 7);
  Answer answer;
  send(*leader, write, &answer);
  world.scheduler.run_for(100ms);
  EXPECT_FALSE(answer);
  EXPECT_FALSE(leader->node->replica(root)->may_read(leader->process.now()));
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return answer.has_value(); }, 3s));
  ASSERT_FALSE(answer->has_value());
  EXPECT_EQ(answer->error().code, Code::stale_route);
  ASSERT_TRUE(world.wait([&] { return served(); }, 5s)) << world.describe();
  const auto again = sent_to_leader("x", write);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->repeat);
  EXPECT_EQ(again->outcome.value, 7);
}

// S38, S40, S42: whoever drives dies after some step; another reads in METADATA what was done.
TEST_F(QuorumSplitScenario, sim_s38_a_driver_that_dies_at_any_step_leaves_nothing_behind) {
  for (const Duration later : {0ms, 60ms, 120ms, 180ms}) {
    const auto leaves = map()->partitions.size();
    const auto p = map()->partitions[0];
    world.split(0, p.id, "a" + std::to_string(9 - leaves));
    world.scheduler.run_for(later);
    world.hold_drivers(true);
    world.scheduler.run_for(500ms);
    world.hold_drivers(false);
    ASSERT_TRUE(world.wait([&] { return map()->partitions.size() == leaves + 1 && served(); }, 8s))
        << base::to_ms(later) << world.describe();
  }
}

// S39: what was fixed by SPLIT is what comes out, whoever goes on.
TEST_F(QuorumSplitScenario, sim_s39_point_and_children_are_those_of_the_first_transaction) {
  cut_and_hold("m");
  const auto split = *parent()->split;
  world.kill(*leader);
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_split(); }, 15s)) << world.describe();
  EXPECT_EQ(map()->find("a")->id, split.low.id);
  EXPECT_EQ(map()->find("m")->id, split.high.id);
  EXPECT_EQ(map()->find("m")->interval.begin, "m");
}

// S42: the parent's leader dies with the cut. The next one has it, is parked from its first moment, and the split ends.
TEST_F(QuorumSplitScenario, sim_s42_a_leader_that_finds_the_cut_in_its_log_is_parked) {
  cut_and_hold("m");
  const auto id = root;
  world.aborts_are_heard = false;
  world.kill(*leader);
  QuorumHost* next = nullptr;
  ASSERT_TRUE(world.wait(
      [&] {
        for (const auto& host : world.hosts) {
          const auto* r = host->process.alive() && host->node ? host->node->replica(id) : nullptr;
          if (r != nullptr && r->serving()) next = host.get();
        }
        return next != nullptr;
      },
      10s))
      << world.describe();
  Answer answer;
  const auto write = incr("a", 1);
  send(*next, write, &answer);
  world.scheduler.run_for(500ms);
  EXPECT_FALSE(answer && answer->has_value());
  EXPECT_TRUE(next->node->replica(id)->parked());
  world.aborts_are_heard = true;
  world.hold_drivers(false);
  world.start(*leader);
  ASSERT_TRUE(world.wait([&] { return map()->find(id) == nullptr || !parent()->split; }, 10s)) << world.describe();
  ASSERT_TRUE(world.wait([&] { return served(); }, 10s)) << world.describe();
  const auto again = sent_to_leader("a", write);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->outcome.value, 1);
}

// Nobody drives: the leader has the split aborted after a second, takes the cut back, and what waited goes on.
TEST_F(QuorumSplitScenario, a_split_that_nothing_comes_of_is_aborted_and_writes_go_on) {
  cut_and_hold("m");
  const auto write = incr("x", 7);
  auto patient = write;
  patient.within_ms = 5000;
  Answer answer;
  world.network.call(client, leader->id.name + "/partd", patient, 5s, [&](const Network::Answer& a) {
    if (a) answer = std::any_cast<const QuorumWritten&>(*a);
  });
  ASSERT_TRUE(world.wait([&] { return !parent()->split; }, 3s)) << world.describe();
  ASSERT_TRUE(world.wait([&] { return answer.has_value(); }, 3s)) << world.describe();
  EXPECT_EQ((*answer)->outcome.value, 7);
  EXPECT_FALSE(reported());
  world.hold_drivers(false);
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 5s)) << world.describe();
}

// S35: the coordination service goes away with the cut in the log. Neither time nor silence takes it back.
TEST_F(QuorumSplitScenario, sim_s35_without_the_coordination_service_a_cut_stands_and_nothing_is_cut) {
  cut_and_hold("m");
  world.coord.outage(4s);
  world.scheduler.run_for(3500ms);
  EXPECT_FALSE(world.leader(root));
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return served(); }, 15s)) << world.describe();
  // And without it nothing is cut: who cannot finish does not begin.
  world.coord.outage(1s);
  const auto ends = [&] {
    uint64_t cuts = 0;
    for (const auto& host : world.hosts)
      host->node->each_replica([&](const auto&, const auto& r) { cuts += r.status().cut ? 1 : 0; });
    return cuts;
  };
  world.scheduler.run_for(900ms);
  EXPECT_EQ(ends(), 0U);
}

// S45: a server dies while it divides, again and again; what it finds is one copy, or two.
TEST_F(QuorumSplitScenario, sim_s45_a_crash_inside_a_divide_leaves_a_copy_or_two) {
  for (const auto& key : {"a1", "a2", "x1", "x2"}) ASSERT_TRUE(sent(*leader, put(key, key)));
  QuorumHost* victim = nullptr;
  for (const auto& host : world.hosts)
    if (host.get() != leader) victim = host.get();
  cut_and_hold("m");
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_split(); }, 5s));
  for (uint64_t effects = 1; effects < 12; ++effects) {
    victim->process.arm_crash(effects);
    world.wait([&] { return !victim->process.alive(); }, 300ms);
    world.start(*victim);
  }
  victim->process.arm_crash(0);
  world.start(*victim);
  ASSERT_TRUE(world.wait([&] { return served(); }, 10s)) << world.describe();
}

// S46: a replica that was away before the cut, with something written in between. Its log ends at a place of the
// parent's, which the children's logs do not have: they do not go on from there, it is filled, and misses nothing.
TEST_F(QuorumSplitScenario, sim_s46_who_lacks_the_end_of_the_parent_does_not_go_on_in_the_middle_of_a_child) {
  ASSERT_TRUE(sent(*leader, put("a1", "before")));
  auto* away = followers().first;
  ASSERT_TRUE(world.wait([&] { return end_of(*away) == end_of(*leader); }, 2s));
  world.kill(*away);
  ASSERT_TRUE(sent(*leader, put("a2", "in between")));
  ASSERT_TRUE(sent(*leader, put("x2", "in between")));
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 10s)) << world.describe();
  ASSERT_TRUE(sent_to_leader("a3", put("a3", "after")));
  world.start(*away);
  for (const auto& key : {"a1", "a2", "a3", "x2"}) {
    const auto id = map()->find(key)->id;
    // By what its log says: a read plans something itself.
    ASSERT_TRUE(world.wait(
        [&] {
          const auto* led = world.leader(id);
          if (led == nullptr || !away->node || away->node->replica(id) == nullptr) return false;
          const auto log = away->node->engine().quorum_log(id);
          return log && !away->node->lags(id) && log->visible == led->node->engine().quorum_log(id)->end.lsn;
        },
        8s))
        << key << world.violated() << world.describe();
    const auto found = away->node->engine().get(id, key);
    EXPECT_TRUE(found && *found && !(*found)->deleted) << key;
  }
}

// Little of the log is kept.
class QuorumSplitForgets : public QuorumSplitScenario {
 protected:
  QuorumSplitForgets() : QuorumSplitScenario(forgetful()) {}
};

// S43: a snapshot is asked for of a log that ends in a cut, and brings that, too. Whoever led with it without would go
// on behind the cut, with what no child will have.
TEST_F(QuorumSplitForgets, sim_s43_who_leads_after_a_rebuild_knows_that_its_log_is_cut) {
  auto* away = followers().first;
  ASSERT_TRUE(sent(*leader, put("x1", "1")));
  ASSERT_TRUE(world.wait([&] { return shows_all(*away); }, 2s));
  const auto end = end_of(*away);
  world.kill(*away);
  ASSERT_NO_FATAL_FAILURE(write_until_forgotten(end));
  world.aborts_are_heard = false;
  cut_and_hold("m");
  world.scheduler.run_for(3s);  // the index has the cut, so that the snapshot is of what ends in it
  world.start(*away);
  const auto level = [&] { return away->rebuilt > 0 && end_of(*away) == end_of(*leader); };
  ASSERT_TRUE(world.wait(level, 5s)) << world.describe();
  world.scheduler.run_for(300ms);
  leader->node->resign(root, assignment_of(*away).id);
  Answer answer;
  const auto leads = [&] {
    const auto* r = away->node ? away->node->replica(root) : nullptr;
    return r != nullptr && r->serving();
  };
  ASSERT_TRUE(world.wait(leads, 5s)) << world.describe();
  send(*away, put("x1", "behind the cut"), &answer);
  world.scheduler.run_for(500ms);
  EXPECT_FALSE(told_yes(answer));
  world.aborts_are_heard = true;
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return world.at_rest(0); }, 15s)) << world.describe();
}

// The one that confirmed the cut is gone, and the other needs a snapshot: with it there is a majority again.
TEST_F(QuorumSplitForgets, who_is_rebuilt_behind_a_cut_makes_the_majority_that_ends_it) {
  auto [away, gone] = followers();
  ASSERT_TRUE(sent(*leader, put("x1", "1")));
  ASSERT_TRUE(world.wait([&, away = away] { return shows_all(*away); }, 2s));
  const auto end = end_of(*away);
  world.kill(*away);
  ASSERT_NO_FATAL_FAILURE(write_until_forgotten(end));
  world.aborts_are_heard = false;
  cut_and_hold("m");
  world.scheduler.run_for(3s);
  world.kill(*gone);
  world.start(*away);
  ASSERT_TRUE(world.wait([&, away = away] { return away->rebuilt > 0; }, 5s)) << world.describe();
  world.aborts_are_heard = true;
  world.hold_drivers(false);
  // Ended or taken back: it goes on without the third.
  const auto goes_on = [&, away = away] {
    const auto& id = map()->find("x1")->id;
    const auto* has = away->node->replica(id);
    auto* to = world.leader(id);
    return served() && to != nullptr && has != nullptr && has->log().end() == to->node->replica(id)->log().end();
  };
  ASSERT_TRUE(world.wait(goes_on, 15s)) << world.describe();
  const auto more = sent_to_leader("x1", put("x1", "2"));
  EXPECT_TRUE(more) << to_string(more.error()) << world.describe();
  world.start(*gone);
}

// A server that was away through the split has the cut, or has not. With it, it divides when it is back.
TEST_F(QuorumSplitScenario, sim_s42_who_was_away_divides_when_it_is_back) {
  ASSERT_TRUE(sent(*leader, put("x1", "1")));
  QuorumHost* away = nullptr;
  for (const auto& host : world.hosts)
    if (host.get() != leader) away = host.get();
  cut_and_hold("m");
  world.scheduler.run_for(50ms);  // it has the cut
  world.kill(*away);
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 10s)) << world.describe();
  ASSERT_TRUE(sent_to_leader("x1", put("x1", "2")));
  world.start(*away);
  const auto high = map()->find("x1")->id;
  ASSERT_TRUE(world.wait([&] { return away->node && away->node->replica(high) != nullptr; }, 5s));
  EXPECT_FALSE(away->node->lags(high));
}

// One voter of one commits alone, since its partition was recovered. The children have three: its cut ends nothing
// while the other two have only been believed to have it.
TEST_F(QuorumSplitScenario, a_cut_that_one_voter_of_one_has_ends_nothing) {
  ASSERT_TRUE(sent(*leader, incr("a", 5)));
  ASSERT_TRUE(world.recover(0, root));
  QuorumHost* alone = nullptr;
  const auto elected = [&] {  // one that led before does not know it for a moment
    const auto* text = world.coord.value(world.layout.government(QuorumWorld::distribution(0), parent()->region));
    return coord::parse_government(*text)->leader != model::AssignmentId{};
  };
  ASSERT_TRUE(world.wait([&] { return elected() && (alone = world.leader(root)) != nullptr; }, 15s))
      << world.describe();
  ASSERT_TRUE(sent(*alone, incr("a", 1)));
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return parent()->split->phase == model::SplitPhase::filling; }, 2s));
  for (const auto& host : world.hosts) world.start(*host);
  const auto joined = [&] {
    const auto peers = alone->node->replica(root)->status().peers;
    return std::all_of(peers.begin(), peers.end(),
                       [](const auto& p) { return p.state == proto::quorum::Leader::PeerState::joined; });
  };
  ASSERT_TRUE(world.wait(joined, 5s)) << world.describe();
  cut_off(*alone);
  ASSERT_TRUE(world.wait([&] { return alone->node->replica(root)->cut().has_value(); }, 500ms)) << world.describe();
  world.scheduler.run_for(400ms);
  EXPECT_FALSE(is_split());
  world.kill(*alone);
  world.network.heal();
  world.scheduler.run_for(3s);
  world.start(*alone);
  ASSERT_TRUE(world.wait([&] { return served(); }, 15s)) << world.describe();
  const auto again = sent_to_leader("a", incr("a", 1));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->outcome.value, 7);
}

// R16: what is damaged is in the journal alone, if nobody sees to it that the index has it.
class QuorumJournalSplitScenario : public QuorumSplitScenario {
 protected:
  QuorumJournalSplitScenario() { world.engine.overlay_age = world.engine.checkpoint_interval = 20s; }
};

// Once each server has said that it has observed the split, METADATA forgets the parent, and nothing says any more of
// whose log the children were made. Should the block be damaged then that says it here, the index has to know.
TEST_F(QuorumJournalSplitScenario, r16_a_divide_that_is_damaged_once_nobody_knows_the_parent) {
  ASSERT_TRUE(sent(*leader, incr("a", 5)));
  begin_split("m, where it is divided");
  ASSERT_TRUE(world.wait([&] { return is_split() && served() && map()->ended.empty(); }, 10s)) << world.describe();
  auto& damaged = *followers().first;
  world.kill(damaged);
  world.scheduler.run_for(1ms);
  ASSERT_TRUE(damaged.medium.flip_text("journal/0", "m, where it is divided"));
  world.start(damaged);
  const auto has_all = [&] {
    return damaged.node && std::all_of(map()->partitions.begin(), map()->partitions.end(), [&](const auto& p) {
             const auto log = damaged.node->engine().quorum_log(p.id);
             return log && log->whole;
           });
  };
  ASSERT_TRUE(world.wait(has_all, 10s)) << world.describe();
  const auto again = sent_to_leader("a", incr("a", 1));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->outcome.value, 6);
}

// R16, with one that never had the cut, and the third away: what is found damaged had the cut, and was counted for it.
class QuorumDamagedSplitScenario : public QuorumSplitScenario {
 protected:
  QuorumDamagedSplitScenario() { world.engine.overlay_age = 2s; }  // what is damaged is in the journal alone
  void SetUp() override {
    QuorumSplitScenario::SetUp();
    std::tie(damaged, away) = followers();
    ASSERT_TRUE(sent(*leader, incr("a", 5)));
    ASSERT_TRUE(sent(*leader, put("x1", "the damaged value")));
    world.kill(*away);
    cut_and_hold("m");
    world.scheduler.run_for(20ms);
    world.kill(*damaged);
    world.scheduler.run_for(1ms);
  }
  void end_and_lose_the_third() {
    world.hold_drivers(false);
    ASSERT_TRUE(world.wait([&] { return is_split(); }, 1s)) << world.describe();
    world.kill(*leader);
    world.start(*away);
    world.start(*damaged);
    world.scheduler.run_for(6s);
    for (const auto& p : map()->partitions) EXPECT_EQ(world.leader(p.id), nullptr) << world.describe();
    world.start(*leader);
    ASSERT_TRUE(world.wait([&] { return served(); }, 15s)) << world.describe();
    const auto again = sent_to_leader("a", incr("a", 1));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->outcome.value, 6);
    const auto votes = [&] {
      return std::all_of(map()->partitions.begin(), map()->partitions.end(), [&](const auto& p) {
        const auto log = damaged->node->engine().quorum_log(p.id);
        return log && log->whole && log->end.lsn.value != 0;
      });
    };
    ASSERT_TRUE(world.wait(votes, 10s)) << world.describe();
  }
  QuorumHost *damaged = nullptr, *away = nullptr;
};

TEST_F(QuorumDamagedSplitScenario, r16_who_counted_for_a_cut_and_is_damaged_before_it_does_not_vote_empty) {
  ASSERT_TRUE(damaged->medium.flip_text("journal/0", "the damaged value"));
  ASSERT_NO_FATAL_FAILURE(end_and_lose_the_third());
}

TEST_F(QuorumDamagedSplitScenario, r16_whose_cut_itself_is_damaged_does_not_vote_empty) {
  ASSERT_TRUE(damaged->medium.flip_text("journal/0", model::cut_payload(reported()->attempt)));
  ASSERT_NO_FATAL_FAILURE(end_and_lose_the_third());
}

// It dies again and again while it begins the children: they are as doubtful in each of its lives.
TEST_F(QuorumDamagedSplitScenario, r16_who_is_damaged_does_not_vote_empty_in_any_later_life) {
  ASSERT_TRUE(damaged->medium.flip_text("journal/0", "the damaged value"));
  world.hold_drivers(false);
  ASSERT_TRUE(world.wait([&] { return is_split(); }, 1s)) << world.describe();
  world.kill(*leader);
  world.start(*damaged);
  for (uint64_t effects = 1; effects < 12; ++effects) {
    damaged->process.arm_crash(effects);
    world.wait([&] { return !damaged->process.alive(); }, 300ms);
    world.start(*damaged);
  }
  damaged->process.arm_crash(0);
  world.start(*damaged);
  ASSERT_NO_FATAL_FAILURE(end_and_lose_the_third());
}

// Servers that have no replica stand by.
class QuorumSplitMoveScenario : public QuorumSplitScenario {
 protected:
  static QuorumChaos with_spare() {
    auto c = quiet();
    c.spares = 1;
    return c;
  }
  QuorumSplitMoveScenario() : QuorumSplitScenario(with_spare()) {}
  void replace_everywhere(const QuorumHost& from, const QuorumHost& to) {
    for (size_t i = 0; i < map()->partitions.size(); ++i) {
      const auto id = map()->partitions[i].id;
      ASSERT_FALSE(world.replace(0, id, from.id, to.id, true).none());
      ASSERT_TRUE(world.wait([&] { return map()->find(id)->moves.empty(); }, 10s)) << world.describe();
      EXPECT_EQ(find_assignment(*map()->find(id), from.id), nullptr);
    }
  }
};

// Invariant 7: what it waits for is whole on others now, and it should not have it.
TEST_F(QuorumSplitMoveScenario, a_parent_aside_is_given_up_when_its_children_went_elsewhere) {
  ASSERT_TRUE(sent(*leader, put("x1", "1")));
  QuorumHost* away = nullptr;
  for (const auto& host : world.hosts)
    if (host.get() != leader && world.holds(*host, 0)) away = host.get();
  auto& spare = *world.hosts.back();
  world.kill(*away);
  begin_split("m");
  ASSERT_TRUE(world.wait([&] { return is_split() && served(); }, 10s)) << world.describe();
  cut_off(*away);
  world.start(*away);
  const auto lags = [&] {
    return std::all_of(map()->partitions.begin(), map()->partitions.end(),
                       [&](const auto& p) { return away->node && away->node->lags(p.id); });
  };
  ASSERT_TRUE(world.wait(lags, 3s)) << world.describe();
  ASSERT_NO_FATAL_FAILURE(replace_everywhere(*away, spare));
  EXPECT_TRUE(world.wait([&] { return away->node->engine().tenures().empty(); }, 5s));
}

}  // namespace
}  // namespace cantle::sim

// Scenarios of quorum tables' writes, each forced in a small quiet world (design/scenarios.md).
#include <tuple>

#include "lib/store/journal_format.h"
#include "test/sim/quorum_scenario.h"

namespace cantle::sim {
namespace {

using base::Code;

// The answer is lost with the leader; what is sent again to the next one gets it, and is not done again.
TEST_F(QuorumScenario, sim_s23_what_is_sent_again_after_a_failover_is_done_once) {
  ASSERT_TRUE(sent(*leader, incr("n9", 5)).has_value());
  const auto write = incr("n9", 7);
  Answer lost;
  world.network.cut(leader->id.name, "c0");  // the answer
  send(*leader, write, &lost);
  ASSERT_TRUE(shows(*leader, "n9", "12", 2s));
  world.kill(*leader);
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  world.network.heal();
  const auto first = sent(*next, write), second = sent(*next, write);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_TRUE(first->repeat && second->repeat);
  EXPECT_EQ(first->outcome.value, 12);
  EXPECT_EQ(first->outcome, second->outcome);
  EXPECT_EQ(read(*next, "n9"), "12");
  EXPECT_FALSE(lost && lost->has_value());
}

// A repeat of what is under way is answered with it, and not before.
TEST_F(QuorumScenario, sim_s23_a_repeat_of_what_is_under_way_waits_for_it) {
  const auto write = incr("n9", 3);
  cut_off(*leader);
  Answer one, two;
  const auto before = end_of(*leader);
  send(*leader, write, &one);
  send(*leader, write, &two);
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 100ms));
  world.scheduler.run_for(50ms);
  EXPECT_FALSE(one || two);
  EXPECT_EQ(end_of(*leader).value, before.value + 1);
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return one && two; }, 3s));
  ASSERT_TRUE(one->has_value() && two->has_value());
  EXPECT_EQ((*one)->outcome, (*two)->outcome);
  EXPECT_NE((*one)->repeat, (*two)->repeat);
  EXPECT_EQ(read(*leader, "n9"), "3");
}

// A condition is judged by what is under way, and the refusal waits for it: here it is lost, and so it was never told.
TEST_F(QuorumScenario, sim_s24_a_refusal_tells_of_nothing_that_may_be_lost) {
  const auto first = put("k9", "lost"), second = add("k9", "mine");
  Answer one, two;
  ASSERT_NO_FATAL_FAILURE(has_alone(first, &one));
  send(*leader, second, &two);
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(world.wait([&] { return one && two; }, 5s));
  EXPECT_EQ(one->error().code, Code::outcome_unknown);
  ASSERT_FALSE(two->has_value());
  EXPECT_NE(two->error().code, Code::condition_failed);
  EXPECT_NE(two->error().code, Code::outcome_unknown);  // it put nothing into the log
  world.network.heal();
  ASSERT_TRUE(sent(*next, second).has_value());
  EXPECT_EQ(read(*next, "k9"), "mine");
  // What was cut from the log is gone with whoever judged by it: that series is new.
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) == end_of(*next); }, 5s)) << world.describe();
  const auto again = sent(*next, first);
  ASSERT_TRUE(again.has_value());
  EXPECT_FALSE(again->repeat);
}

// A leader that lost its leadership and has it again judges by nothing that was cut meanwhile.
TEST_F(QuorumScenario, who_leads_again_judges_by_what_is_in_the_log_now) {
  const auto lost = incr("n9", 100);
  Answer one;
  ASSERT_NO_FATAL_FAILURE(has_alone(lost, &one));
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  world.network.heal();
  ASSERT_TRUE(sent(*next, incr("n9", 1)).has_value());
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) == end_of(*next); }, 5s)) << world.describe();
  world.scheduler.run_for(6s);  // who resigned rests
  for (const auto& voter : world.voters(0))
    if (voter.server == leader->id) next->node->resign(0, voter.assignment);
  ASSERT_TRUE(world.wait([&] { return world.leader(0) == leader; }, 10s)) << world.describe();
  const auto more = sent(*leader, incr("n9", 1));
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->outcome.value, 2);
}

// A copy that comes when its client has long had the answer, and written other things, changes nothing.
TEST_F(QuorumScenario, sim_s25_a_late_copy_changes_nothing) {
  const auto late = put("k9", "old");
  const auto first = sent(*leader, late);
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(sent(*leader, put("k9", "new")).has_value());
  const auto again = sent(*leader, late);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->repeat);
  EXPECT_EQ(again->outcome, first->outcome);
  // 64 numbers on it is no longer remembered, and refused for that.
  for (uint64_t i = 0; i < model::kSeriesWindow; ++i) ASSERT_TRUE(sent(*leader, put("k8", "x")).has_value());
  const auto much_later = sent(*leader, late);
  ASSERT_FALSE(much_later.has_value());
  EXPECT_EQ(much_later.error().code, Code::series_old);
  EXPECT_EQ(read(*leader, "k9"), "new");
}

// What a server remembers of series survives it, and is the same on the one that comes after it.
TEST_F(QuorumScenario, series_survive_all_servers) {
  const auto write = incr("n9", 4);
  const auto first = sent(*leader, write);
  ASSERT_TRUE(first.has_value());
  for (const auto& host : world.hosts) world.power_cut(*host);
  world.scheduler.run_for(10ms);
  for (const auto& host : world.hosts) world.start(*host);
  ASSERT_TRUE(world.wait([&] { return world.leader(0) != nullptr; }, 15s)) << world.describe();
  const auto again = sent(*world.leader(0), write);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->repeat);
  EXPECT_EQ(again->outcome, first->outcome);
}

// Voters promised more, and nobody could be elected: the leader's government is renewed, and what it had in its log
// when it heard of that is answered by it, not called unknown.
TEST_F(QuorumScenario, what_is_under_way_when_a_leader_renews_its_government_is_answered) {
  const auto epoch = *leader->node->replica(0)->election().leads();
  cut_off(*leader);
  ASSERT_TRUE(world.wait(
      [&] {
        return std::all_of(world.hosts.begin(), world.hosts.end(), [&](const auto& host) {
          return host.get() == leader || host->node->replica(0)->election().promise() > epoch;
        });
      },
      1s))
      << world.describe();
  world.coord.outage(300ms);
  const auto before = end_of(*leader);
  Answer one;
  send(*leader, incr("n9", 3), &one);
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 50ms));
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return one.has_value(); }, 3s));
  ASSERT_TRUE(one->has_value()) << to_string(one->error());
  EXPECT_EQ((*one)->outcome.value, 3);
  EXPECT_TRUE(world.wait([&] { return world.leader(0) == leader; }, 1s)) << world.describe();
  EXPECT_GT(*leader->node->replica(0)->election().leads(), epoch);
}

// S24: a write waits at a leader that has not served yet, and whose log has another that nobody was told of. When its
// epoch start is committed, and that with it, the one that waited is judged by it.
TEST_F(QuorumScenario, sim_s24_what_waited_for_a_leader_is_judged_by_what_it_found_in_its_log) {
  ASSERT_TRUE(sent(*leader, incr("n9", 5)).has_value());
  auto [a, b] = followers();
  ASSERT_TRUE(world.wait([&, a = a, b = b] { return shows_all(*a) && shows_all(*b); }, 1s));
  const auto known = incr("n9", 7), waits = incr("n9", 1);
  Answer lost, answer;
  const auto before = end_of(*a);
  world.network.cut_both(leader->id.name, b->id.name);
  send(*leader, known, &lost);
  const auto durable = [&, a = a] { return a->node->engine().quorum_log(world.partition_id(0))->durable.lsn; };
  ASSERT_TRUE(world.wait([&] { return durable() > before; }, 100ms));
  world.kill(*leader);  // before anybody heard that it is committed
  const auto leads = [&, a = a] { return a->node->replica(0)->election().leads().has_value(); };
  ASSERT_TRUE(world.wait(leads, 10s)) << world.describe();
  ASSERT_FALSE(a->node->replica(0)->serving());
  world.network.cut_both(a->id.name, b->id.name);
  send(*a, waits, &answer);
  world.scheduler.run_for(50ms);
  EXPECT_FALSE(answer);
  EXPECT_EQ(read(*a, "n9"), "5");
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return answer.has_value(); }, 3s));
  ASSERT_TRUE(answer->has_value()) << to_string(answer->error());
  EXPECT_EQ((*answer)->outcome.value, 13);
  EXPECT_EQ(read(*a, "n9"), "13");
}

// Little of the log is kept.
class QuorumForgets : public QuorumScenario {
 protected:
  QuorumForgets() : QuorumScenario(forgetful()) {}
  bool level(const QuorumHost& host) {
    const auto mine = host.node ? host.node->engine().quorum_log(world.partition_id(0)) : std::nullopt;
    return mine && mine->visible == end_of(*world.leader(0));
  }
};

// S22, S23: a replica that was away for longer than the log goes back gets a snapshot, and the log behind it: it has
// every record, and remembers what was done for whom.
TEST_F(QuorumForgets, sim_s22_s23_who_was_away_too_long_is_rebuilt_and_knows_what_was_done) {
  const auto write = incr("n9", 5);
  const auto first = sent(*leader, write);
  ASSERT_TRUE(first.has_value());
  QuorumHost* away = nullptr;
  for (const auto& host : world.hosts)
    if (host.get() != leader) away = host.get();
  const auto end = end_of(*away);
  world.kill(*away);
  ASSERT_NO_FATAL_FAILURE(write_until_forgotten(end));
  world.start(*away);
  ASSERT_TRUE(world.wait([&] { return away->rebuilt == 1 && level(*away); }, 10s)) << world.describe();
  EXPECT_EQ(read(*away, "n9"), "5");
  ASSERT_TRUE(world.wait([&] { return world.leader(0) != nullptr; }, 5s));
  const auto assignment = [&] {
    for (const auto& v : world.voters(0))
      if (v.server == away->id) return v.assignment;
    return model::AssignmentId{};
  }();
  world.leader(0)->node->resign(0, assignment);
  ASSERT_TRUE(world.wait([&] { return world.leader(0) == away; }, 15s)) << world.describe();
  const auto again = sent(*away, write);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->repeat);
  EXPECT_EQ(again->outcome, first->outcome);
  EXPECT_EQ(read(*away, "n9"), "5");
}

// S17: a record is deleted while a replica that has it is away, and the log forgets the delete. What is in its old copy
// does not come alive again when it is back, nor when it leads.
TEST_F(QuorumForgets, sim_s17_what_was_deleted_stays_deleted_where_the_delete_never_came) {
  auto* away = followers().first;
  ASSERT_TRUE(sent(*leader, put("k9", "deleted")).has_value());
  ASSERT_TRUE(world.wait([&] { return level(*away); }, 2s));
  ASSERT_EQ(read(*away, "k9"), "deleted");
  const auto end = end_of(*away);
  world.kill(*away);
  ASSERT_TRUE(sent(*leader, del("k9")).has_value());
  ASSERT_NO_FATAL_FAILURE(write_until_forgotten(end));
  world.start(*away);
  ASSERT_TRUE(world.wait([&] { return away->rebuilt == 1 && level(*away); }, 10s)) << world.describe();
  EXPECT_EQ(read(*away, "k9"), std::nullopt);
  world.leader(0)->node->resign(0, assignment_of(*away).id);
  ASSERT_TRUE(world.wait([&] { return world.leader(0) == away; }, 15s)) << world.describe();
  const auto answer = get(*away, "k9");
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->value, std::nullopt);
}

// It dies in the middle of it, now and then; what came stays, and the old copy is the copy until the end.
TEST_F(QuorumForgets, a_rebuild_is_gone_on_with_in_another_life) {
  QuorumHost* away = nullptr;
  for (const auto& host : world.hosts)
    if (host.get() != leader) away = host.get();
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  ASSERT_TRUE(world.wait([&] { return level(*away); }, 2s));
  const auto end = end_of(*away);
  world.kill(*away);
  ASSERT_NO_FATAL_FAILURE(write_until_forgotten(end));
  world.start(*away);
  const auto place = [&] { return away->node->engine().refilled(world.partition_id(0)); };
  for (int life = 0; life < 3 && away->rebuilt == 0; ++life) {
    ASSERT_TRUE(world.wait([&] { return away->rebuilt > 0 || (away->node && place().snapshot != 0); }, 10s));
    if (away->rebuilt > 0) break;
    EXPECT_EQ(end_of(*away), end);
    world.kill(*away);
    world.start(*away);
  }
  ASSERT_TRUE(world.wait([&] { return away->rebuilt == 1 && level(*away); }, 15s)) << world.describe();
  EXPECT_EQ(read(*away, "k9"), "old");
}

// It dies with all of a snapshot, before that has taken the copy's place.
class QuorumRebuilds : public QuorumForgets {
 protected:
  void SetUp() override {
    QuorumForgets::SetUp();
    std::tie(away, other) = followers();
    ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
    ASSERT_TRUE(world.wait([&] { return level(*away); }, 2s));
    const auto end = end_of(*away);
    world.kill(*away);
    ASSERT_NO_FATAL_FAILURE(write_until_forgotten(end));
    world.start(*away);
    ASSERT_TRUE(world.wait([&] { return away->node && away->node->engine().refilled(world.partition_id(0)).all; }, 10s))
        << world.describe();
    world.kill(*away);
    ASSERT_EQ(away->rebuilt, 0U);
    world.scheduler.run_for(1ms);
  }
  QuorumHost *away = nullptr, *other = nullptr;
};

// S7, S11: a replica seals, and then a snapshot takes its copy's place. In its next life it still obeys nobody whom it
// has sealed against: another was elected by its promise.
TEST_F(QuorumRebuilds, sim_s11_a_snapshot_does_not_make_a_replica_forget_what_it_promised) {
  leader->process.pause(2500ms);
  world.coord.cut(leader->id.name);
  cut_pair(*leader, *other);
  world.start(*away);
  ASSERT_TRUE(world.wait([&] { return elected(*other); }, 2s)) << world.describe();
  ASSERT_TRUE(world.wait([&] { return away->rebuilt == 1; }, 1s)) << world.describe();
  cut_pair(*away, *other);
  world.coord.cut(away->id.name);
  world.kill(*away);
  world.scheduler.run_for(1ms);
  world.start(*away);
  Answer answer;
  ASSERT_TRUE(world.wait([&] { return !leader->process.paused(); }, 3s));
  send(*leader, put("k9", "by one that was replaced"), &answer);
  world.scheduler.run_for(2s);
  EXPECT_FALSE(told_yes(answer));
}

// R16: a block of a follower's log is damaged while it is down. It does not believe where its log ends, nor what it
// promised; a snapshot takes the copy's place, and once it has what was committed it votes again.
TEST_F(QuorumScenario, r16_what_a_damaged_log_lacks_comes_from_another) {
  auto* damaged = followers().second;
  const auto write = incr("n9", 5);
  const auto first = sent(*leader, write);
  ASSERT_TRUE(first.has_value());
  ASSERT_TRUE(sent(*leader, put("k9", "the damaged value")).has_value());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(sent(*leader, put("k8", "later")).has_value());
  ASSERT_NO_FATAL_FAILURE(restart_damaged(*damaged, "the damaged value"));
  const auto log = [&] { return damaged->node->engine().quorum_log(world.partition_id(0)); };
  ASSERT_TRUE(world.wait([&] { return damaged->node && log().has_value(); }, 2s));
  EXPECT_FALSE(log()->whole);
  EXPECT_TRUE(log()->known);
  ASSERT_TRUE(world.wait([&] { return log()->whole; }, 2s)) << world.describe();
  EXPECT_EQ(damaged->mended, 1U);
  EXPECT_EQ(damaged->rebuilt, 0U);
  ASSERT_TRUE(shows(*damaged, "k9", "the damaged value", 5s));
  EXPECT_EQ(read(*damaged, "n9"), "5");
}

// It was counted for what it had been given. So it has it, though it dies before it is in its index, and nobody is
// there to give it again (seed 17995 of quorum_everything).
TEST_F(QuorumScenario, r16_what_was_mended_is_there_when_its_server_dies_at_once) {
  auto* damaged = followers().second;
  for (const auto* value : {"the damaged value", "later", "latest"})
    ASSERT_TRUE(sent(*leader, put("k9", value)).has_value());
  ASSERT_NO_FATAL_FAILURE(restart_damaged(*damaged, "the damaged value"));
  const auto log = [&] { return damaged->node->engine().quorum_log(world.partition_id(0)); };
  ASSERT_TRUE(world.wait([&] { return damaged->node && log().has_value() && log()->whole; }, 2s));
  EXPECT_EQ(damaged->mended, 1U);
  world.kill(*damaged);
  for (const auto& host : world.hosts)
    if (host.get() != damaged) cut_pair(*host, *damaged);
  world.scheduler.run_for(1ms);
  world.start(*damaged);
  ASSERT_TRUE(world.wait([&] { return damaged->node && log().has_value(); }, 2s));
  EXPECT_TRUE(log()->whole);
}

// Its seal is what is damaged. Another was elected by it, of which nothing has come here: who led before that is not
// obeyed all the same.
TEST_F(QuorumScenario, r16_one_whose_seal_may_be_lost_obeys_nobody_before_it_has_sealed_again) {
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  auto [a, b] = followers();
  ASSERT_TRUE(world.wait([&, a = a, b = b] { return shows_all(*a) && shows_all(*b); }, 1s));
  leader->process.pause(2500ms);
  world.coord.cut(leader->id.name);
  ASSERT_TRUE(world.wait([&, a = a, b = b] { return elected(*a) || elected(*b); }, 2s)) << world.describe();
  auto* winner = elected(*a) ? a : b;
  auto* damaged = winner == a ? b : a;
  const auto log = [&] { return damaged->node->engine().quorum_log(world.partition_id(0)); };
  ASSERT_GT(log()->promised, log()->end.epoch);
  const auto end = damaged->node->engine().status().head;  // the seal stands before it
  for (const auto* one : {leader, damaged}) cut_pair(*winner, *one);
  world.coord.cut(damaged->id.name);
  world.kill(*damaged);
  world.scheduler.run_for(1ms);
  spoil(*damaged, store::segment_path(end.segment), end.offset - store::framed_size(0) + 4);
  world.start(*damaged);
  ASSERT_TRUE(world.wait([&] { return damaged->node && log().has_value(); }, 2s));
  EXPECT_FALSE(log()->whole);
  Answer answer;
  ASSERT_TRUE(world.wait([&] { return !leader->process.paused(); }, 3s));
  send(*leader, put("k9", "by one that was replaced"), &answer);
  world.scheduler.run_for(2s);
  EXPECT_FALSE(told_yes(answer));
}

// Nobody can lead before its log is mended, and nobody leads who could mend it: they give each other what they lack.
TEST_F(QuorumScenario, r16_no_replica_is_whole_and_together_they_have_everything) {
  const std::vector<std::string> values = {"the first value", "the second value", "the third value"};
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(sent(*leader, put("k" + std::to_string(7 + i), values[i])).has_value());
    ASSERT_TRUE(sent(*leader, put("between", std::to_string(i))).has_value());
  }
  for (const auto& host : world.hosts) ASSERT_TRUE(world.wait([&] { return end_of(*host) == end_of(*leader); }, 2s));
  for (const auto& host : world.hosts) world.kill(*host);
  world.scheduler.run_for(1ms);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(world.hosts[i]->medium.flip_text("journal/0", values[i]));
  for (const auto& host : world.hosts) world.start(*host);
  ASSERT_TRUE(world.wait([&] { return world.leader(0) != nullptr && world.leader(0)->node; }, 5s)) << world.describe();
  for (const auto& host : world.hosts) {
    EXPECT_EQ(host->rebuilt, 0U);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(shows(*host, "k" + std::to_string(7 + i), values[i], 5s));
    EXPECT_EQ(host->mended, 1U);
  }
}

}  // namespace
}  // namespace cantle::sim

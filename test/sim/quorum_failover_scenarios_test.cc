// Scenarios of quorum tables' leaders, logs and disks, each forced in a small quiet world (design/scenarios.md).
#include "test/sim/quorum_scenario.h"

namespace cantle::sim {
namespace {

using base::Code;

class QuorumFailover : public QuorumScenario {
 protected:
  model::Lsn durable_end(const QuorumHost& host) {
    return host.node->engine().quorum_log(world.partition_id(0))->durable.lsn;
  }
  model::Epoch promised(const QuorumHost& host) {
    return host.node->engine().quorum_log(world.partition_id(0))->promised;
  }
};

// KIP-101, 1. A follower has the write and not its commit notice; it restarts, the leader dies, and it leads. Nothing
// is cut by what a replica alone knows to be committed.
TEST_F(QuorumFailover, sim_s01_a_follower_that_restarts_cuts_nothing_that_was_acknowledged) {
  auto [with, without] = followers();
  world.network.cut_both(leader->id.name, without->id.name);
  ASSERT_TRUE(sent(*leader, put("k9", "acknowledged")).has_value());
  world.power_cut(*with);
  world.kill(*leader);
  world.scheduler.run_for(10ms);
  world.network.heal();
  world.start(*with);
  auto* next = any_leader();
  EXPECT_EQ(next, with);
  EXPECT_EQ(read(*next, "k9"), "acknowledged");
}

// KIP-101, 2. Two lineages with different writes at one LSN: whoever comes back with the older one loses it.
TEST_F(QuorumFailover, sim_s02_of_two_lineages_the_older_one_is_cut) {
  Answer lost;
  ASSERT_NO_FATAL_FAILURE(has_alone(put("k9", "lost"), &lost));
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(sent(*next, put("k9", "kept")).has_value());
  all_lose_power();
  world.network.heal();
  // Only these two: a majority, and each has something at that LSN.
  world.start(*leader);
  world.start(*next);
  auto* now = any_leader();
  EXPECT_EQ(now, next);
  EXPECT_EQ(read(*next, "k9"), "kept");
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) == end_of(*next); }, 5s)) << world.describe();
  EXPECT_NE(read(*leader, "k9"), "lost");
  EXPECT_FALSE(lost && lost->has_value());
}

// KIP-966. Replicas go one by one; the last one acknowledges nothing, whoever is in its pipe, and does not lead alone
// when it comes back.
TEST_F(QuorumFailover, sim_s04_the_last_replica_standing_commits_nothing) {
  auto [a, b] = followers();
  world.kill(*a);
  ASSERT_TRUE(sent(*leader, put("k9", "by two")).has_value());
  world.kill(*b);
  Answer answer;
  send(*leader, put("k9", "by one"), &answer);
  ASSERT_TRUE(world.wait([&] { return answer.has_value(); }, 5s));
  EXPECT_FALSE(answer->has_value());
  world.power_cut(*leader);
  world.scheduler.run_for(10ms);
  world.start(*leader);
  EXPECT_FALSE(world.wait([&] { return world.leader(0) != nullptr; }, 8s)) << "one of three leads";
  world.start(*b);
  auto* next = any_leader();
  ASSERT_NE(next, nullptr);
  const auto value = read(*next, "k9");
  EXPECT_TRUE(value == "by two" || value == "by one");
}

// An acknowledgement is a sync: the power of everybody fails right behind it.
TEST_F(QuorumFailover, sim_s05_what_was_acknowledged_is_on_the_platters_of_a_majority) {
  for (int round = 0; round < 5; ++round) {
    const auto value = "v" + std::to_string(round);
    auto* to = any_leader();
    ASSERT_NE(to, nullptr);
    ASSERT_TRUE(sent(*to, put("k9", value)).has_value());
    all_lose_power();
    all([&](QuorumHost& h) { world.start(h); });
    auto* next = any_leader();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(read(*next, "k9"), value);
  }
}

// A leader stalls past its lease, another takes over and is written to; what the first one is asked on waking is not
// answered by what it has.
TEST_F(QuorumFailover, sim_s07_a_leader_that_slept_past_its_lease_answers_no_read) {
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  leader->process.pause(4s);
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(sent(*next, put("k9", "new")).has_value());
  std::vector<Network::Answer> answers;
  // On their way when it wakes.
  for (int i = 0; i < 3; ++i)
    world.network.call(client, leader->id.name + "/partd", QuorumGet{0, "k9"}, 10s,
                       [&](const Network::Answer& a) { answers.push_back(a); });
  ASSERT_TRUE(world.wait([&] { return answers.size() == 3; }, 12s));
  EXPECT_FALSE(leader->process.paused());
  for (const auto& a : answers) {
    if (a) {
      EXPECT_EQ(std::any_cast<const QuorumValue&>(*a).value, "new");
    }
  }
}

// The machine stood still, and its clock jumps when it goes on: every promise to it has run out, whatever it believes.
TEST_F(QuorumFailover, sim_s08_a_long_gap_between_two_turns_ends_the_lease) {
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  cut_off(*leader);  // nobody renews it, and nobody tells it anything
  leader->process.pause(1500ms);
  ASSERT_TRUE(world.wait([&] { return !leader->process.paused(); }, 3s));
  const auto answer = get(*leader, "k9");
  ASSERT_FALSE(answer.has_value());
  EXPECT_NE(answer.error().code, Code::not_found);
  world.network.heal();
}

// A voter that has sealed acknowledges nothing of the old leader any more, however late that comes.
TEST_F(QuorumFailover, sim_s11_who_has_sealed_takes_no_late_write) {
  cut_off(*leader);
  Answer late;
  const auto before = end_of(*leader);
  send(*leader, put("k9", "late"), &late);
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 100ms));
  auto [a, b] = followers();
  // Both have promised; nobody has been elected yet, perhaps.
  ASSERT_TRUE(world.wait(
      [&, a = a, b = b] { return promised(*a) > promised(*leader) && promised(*b) > promised(*leader); }, 5s));
  world.network.heal();
  auto* next = any_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(world.wait([&] { return late.has_value(); }, 5s));
  if (next != leader) {
    EXPECT_FALSE(late->has_value());
  }
}

// Raft, figure 8. A write of the first leader comes to a majority under a later epoch of its own, whose start does not;
// another history has an epoch between the two. It is not committed by the number of its copies: the other one wins.
TEST_F(QuorumFailover, sim_s14_copies_of_an_older_epoch_do_not_count_before_the_epoch_start) {
  ASSERT_TRUE(sent(*leader, put("k9", "old")).has_value());
  auto [a, b] = followers();
  ASSERT_TRUE(
      world.wait([&, a = a, b = b] { return end_of(*a) == end_of(*leader) && end_of(*b) == end_of(*leader); }, 1s));
  cut_off(*leader);
  Answer answer;
  const auto before = end_of(*leader);
  send(*leader, put("k9", "of the first epoch"), &answer);
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 100ms));
  const auto copied = end_of(*leader);
  // The second leader's epoch start is on it alone.
  ASSERT_TRUE(world.wait([&, a = a, b = b] { return elected(*a) || elected(*b); }, 15s));
  auto* second = elected(*a) ? a : b;
  auto* third = second == a ? b : a;
  cut_off(*second);
  ASSERT_TRUE(world.wait([&] { return durable_end(*second) > before; }, 1s));
  EXPECT_EQ(end_of(*third), before);
  world.power_cut(*second);
  world.scheduler.run_for(10ms);
  world.network.heal();
  // The first one leads again, and gives the third what it has of the old epoch; what comes behind it never gets there.
  ASSERT_TRUE(world.wait([&] { return end_of(*third) >= copied; }, 20s)) << world.violated() << world.describe();
  ASSERT_EQ(end_of(*third), copied) << "the epoch start came with it";
  ASSERT_TRUE(elected(*leader));
  world.network.cut(leader->id.name, third->id.name);
  const auto& first = *leader->node->replica(0);
  const auto acked = [&] {
    const auto peers = first.status().peers;
    return std::any_of(peers.begin(), peers.end(),
                       [&](const auto& peer) { return peer.hop.server == third->id && peer.acked.lsn >= copied; });
  };
  ASSERT_TRUE(world.wait(acked, 500ms)) << world.describe();
  world.scheduler.run_for(1ms);
  EXPECT_LT(first.log().commit(), copied) << "committed by copies of an older epoch";
  EXPECT_EQ(end_of(*third), copied);
  for (auto* host : {leader, third}) world.power_cut(*host);
  world.scheduler.run_for(10ms);
  world.network.heal();
  world.start(*second);
  world.start(*third);
  auto* next = any_leader();
  EXPECT_EQ(next, second);
  EXPECT_EQ(read(*next, "k9"), "old");
  world.start(*leader);
  ASSERT_TRUE(world.wait([&] { return ready(*leader) && end_of(*leader) == end_of(*next); }, 10s)) << world.describe();
  EXPECT_FALSE(answer && answer->has_value());
}

// One survivor has what was under way, the other has not: after the promotion both have the same.
TEST_F(QuorumFailover, sim_s15_whoever_is_promoted_brings_the_survivors_to_one_log) {
  auto [with, without] = followers();
  world.network.cut_both(leader->id.name, without->id.name);
  Answer answer;
  const auto before = end_of(*with);
  send(*leader, put("k9", "x"), &answer);
  ASSERT_TRUE(world.wait([&, with = with] { return end_of(*with) > before; }, 500ms));
  world.kill(*leader);
  world.network.heal();
  auto* next = any_leader();
  EXPECT_EQ(next, with);
  EXPECT_EQ(read(*next, "k9"), "x");
  // By what the log says: a read plans something itself.
  const auto visible = [&](const QuorumHost& h) { return h.node->engine().quorum_log(world.partition_id(0))->visible; };
  ASSERT_TRUE(world.wait([&, with = with, without = without] { return visible(*without) == end_of(*with); }, 5s))
      << world.describe();
  EXPECT_EQ(read(*without, "k9"), "x");
  EXPECT_EQ(end_of(*without), end_of(*with));
}

// A leader that reaches nobody has a write in its log: nobody reads it there, before and after the lease is over.
TEST_F(QuorumFailover, sim_s16_what_is_not_committed_is_never_read) {
  ASSERT_TRUE(sent(*leader, put("k9", "committed")).has_value());
  cut_off(*leader);
  Answer answer;
  const auto before = end_of(*leader);
  send(*leader, put("k9", "dirty"), &answer);
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 100ms));
  for (int i = 0; i < 20; ++i) {
    const auto seen = get(*leader, "k9");
    if (seen) {
      EXPECT_EQ(seen->value, "committed");
    }
    EXPECT_EQ(read(*leader, "k9"), "committed");
    world.scheduler.run_for(50ms);
  }
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(sent(*next, put("k9", "newer")).has_value());
  world.network.heal();
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) == end_of(*next); }, 5s)) << world.describe();
  EXPECT_NE(read(*leader, "k9"), "dirty");
}

// Two of three have the write. The third one, first to be heard of, does not lead: of every majority somebody has it.
TEST_F(QuorumFailover, sim_s18_the_one_without_the_write_is_not_promoted) {
  auto [with, without] = followers();
  world.network.cut_both(leader->id.name, without->id.name);
  ASSERT_TRUE(sent(*leader, put("k9", "on two")).has_value());
  with->process.pause(3s);
  world.kill(*leader);
  world.network.heal();
  EXPECT_FALSE(world.wait([&, without = without] { return world.leader(0) == without; }, 2500ms));
  auto* next = any_leader();
  EXPECT_EQ(next, with);
  EXPECT_EQ(read(*next, "k9"), "on two");
}

// A follower that does not hear the leader, and is heard itself: nobody is elected, and writes go on.
TEST_F(QuorumFailover, sim_s21_a_follower_that_hears_nothing_disturbs_nobody) {
  auto [deaf, other] = followers();
  const auto epoch = world.leader(0)->node->replica(0)->status().epoch;
  world.network.cut(leader->id.name, deaf->id.name);
  for (int i = 0; i < 20; ++i) {
    const auto written = sent(*leader, put("k9", std::to_string(i)));
    EXPECT_TRUE(written.has_value()) << base::to_string(written.error());
    world.scheduler.run_for(300ms);
  }
  EXPECT_EQ(world.leader(0), leader);
  EXPECT_EQ(leader->node->replica(0)->status().epoch, epoch);
}

// Heartbeats are fine, and the disk stands still.
TEST_F(QuorumFailover, sim_s26_a_leader_whose_disk_stands_still_gives_up) {
  ASSERT_TRUE(sent(*leader, put("k9", "before")).has_value());
  const auto before = end_of(*leader);
  world.times.slow = 1;  // what its disk is given now takes up to a minute
  world.times.slow_max = 60s;
  Answer answer;
  send(*leader, put("k9", "under way"), &answer);
  ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 100ms));
  world.scheduler.run_for(30us);  // nobody else has it yet
  world.times.slow = 0;
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  EXPECT_TRUE(leader->process.alive());
  ASSERT_TRUE(sent(*next, put("k9", "after")).has_value());
  EXPECT_FALSE(answer && answer->has_value());
  world.kill(*leader);  // who waits for it to end?
  world.scheduler.run_for(10ms);
}

// It had nothing to do for long, and nobody looked at it meanwhile: what it is given then takes its time, and that is
// not the time in which it did nothing.
TEST_F(QuorumFailover, sim_s26_a_disk_that_was_idle_for_long_does_not_stand_still) {
  ASSERT_TRUE(sent(*leader, put("k9", "before")).has_value());
  const auto epoch = leader->node->replica(0)->election().leads();
  for (auto idle = 900ms; idle <= 1100ms; idle += 15ms) {  // a look comes every second
    world.scheduler.run_for(idle);
    world.times.task_min = world.times.task_max = 90ms;
    EXPECT_TRUE(sent(*leader, put("k9", "after " + std::to_string(idle.count()))).has_value());
    world.times = {};
    EXPECT_EQ(leader->node->replica(0)->election().leads(), epoch);
  }
}

// No watch fires, and reads lag: elections go on by looking.
TEST_F(QuorumFailover, sim_s33_without_watches_somebody_is_elected_all_the_same) {
  world.coord.faults().lose_watch = 1;
  world.coord.faults().lag_spike = 0.3;
  for (int i = 0; i < 3; ++i) {
    auto* was = any_leader();
    ASSERT_NE(was, nullptr);
    world.kill(*was);
    ASSERT_TRUE(world.wait([&] { return world.leader(0) != nullptr && world.leader(0) != was; }, 15s));
    world.start(*was);
    ASSERT_TRUE(world.wait([&] { return ready(*was); }, 10s));
  }
}

// Sessions expire in the middle of an election: the votes are cast again, as of the new sessions.
TEST_F(QuorumFailover, sim_s34_votes_of_an_expired_session_are_cast_again) {
  world.kill(*leader);
  auto [a, b] = followers();
  const auto before = promised(*a);
  ASSERT_TRUE(world.wait([&, a = a, b = b] { return promised(*a) > before || promised(*b) > before; }, 5s));
  for (int i = 0; i < 4; ++i) {
    world.coord.expire(a->id.name);
    world.coord.expire(b->id.name);
    world.scheduler.run_for(40ms);
  }
  auto* next = any_leader();
  ASSERT_NE(next, nullptr);
  // And a leader's session is not its leadership.
  world.coord.expire(next->id.name);
  ASSERT_TRUE(sent(*next, put("k9", "x")).has_value());
  world.scheduler.run_for(1s);
  EXPECT_EQ(world.leader(0), next);
}

// The coordination service is away for 20 s: no write waits for it, no read is refused.
TEST_F(QuorumFailover, sim_s35_an_outage_interrupts_neither_reads_nor_writes) {
  const auto epoch = leader->node->replica(0)->status().epoch;
  world.coord.outage(20s);
  for (int i = 0; i < 60; ++i) {
    const auto written = sent(*leader, put("k9", std::to_string(i)));
    EXPECT_TRUE(written.has_value()) << base::to_string(written.error());
    const auto seen = get(*leader, "k9");
    ASSERT_TRUE(seen.has_value()) << base::to_string(seen.error());
    EXPECT_EQ(seen->value, std::to_string(i));
    world.scheduler.run_for(300ms);
  }
  world.scheduler.run_for(3s);
  EXPECT_EQ(world.leader(0), leader);
  EXPECT_EQ(leader->node->replica(0)->status().epoch, epoch);
}

// The service comes back from the past, where another one led: nobody obeys that government, the leader of now goes on.
TEST_F(QuorumFailover, sim_s36_a_government_from_the_past_is_not_obeyed) {
  const int past = world.coord.remember();
  for (const auto& v : world.voters(0))
    if (v.server == followers().first->id) leader->node->resign(0, v.assignment);
  auto* next = new_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(sent(*next, put("k9", "now")).has_value());
  const int now = world.coord.remember();
  world.coord.restore(past);
  for (int i = 0; i < 10; ++i) {
    const auto written = sent(*next, put("k9", "now" + std::to_string(i)));
    EXPECT_TRUE(written.has_value()) << base::to_string(written.error());
    EXPECT_EQ(world.leader(0), next);
    world.scheduler.run_for(1s);
  }
  world.coord.restore(now);  // the operator has put it right
}

// A sync fails: nothing that it was to cover is acknowledged, and it is not tried again.
TEST_F(QuorumFailover, sim_s61_a_failed_sync_is_never_acknowledged) {
  auto [a, b] = followers();
  world.kill(*b);  // both of the others are needed
  ASSERT_TRUE(sent(*leader, put("k9", "before")).has_value());
  a->medium.faults().fail_sync = 1;
  Answer answer;
  send(*leader, put("k9", "not on two platters"), &answer);
  world.scheduler.run_for(2s);
  EXPECT_FALSE(answer && answer->has_value());
  EXPECT_FALSE(a->process.alive());  // it starts again from what is on the platter
  a->medium.faults().fail_sync = 0;
  world.start(*a);
  auto* next = any_leader();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(sent(*next, put("k9", "after")).has_value());
}

// Death at any effect of a leader or a follower: index and journal agree, and so do the replicas.
TEST_F(QuorumFailover, sim_s63_death_at_any_effect_leaves_a_log_that_goes_on) {
  for (uint64_t n = 1; n <= 30; n += 3) {
    auto* victim = n % 2 == 0 ? any_leader() : followers().first;
    ASSERT_NE(victim, nullptr);
    victim->process.arm_crash(n);
    for (int i = 0; i < 4 && victim->process.alive(); ++i) {
      auto* to = world.leader(0);
      Answer answer;
      if (to != nullptr) send(*to, put("k" + std::to_string(5 + i), std::to_string(n)), &answer);
      world.scheduler.run_for(1200ms);
    }
    victim->process.arm_crash(0);
    if (!victim->process.alive()) world.power_cut(*victim);
    world.scheduler.run_for(10ms);
    world.start(*victim);
    ASSERT_TRUE(world.wait([&] { return ready(*victim) && world.leader(0) != nullptr; }, 15s)) << world.describe();
  }
}

// Blocks go to a segment that has just got its name, and are acknowledged; then the power of everybody fails. A name is
// on the platter before anything is written under it.
TEST_F(QuorumFailover, sim_s64_what_was_acknowledged_in_a_new_segment_is_there_after_a_power_cut) {
  const auto segments = [](const QuorumHost& h) {
    const auto all = h.medium.paths();
    return std::count_if(all.begin(), all.end(), [](const auto& path) { return path.ends_with(".seg"); });
  };
  for (int round = 0; round < 6; ++round) {
    auto* to = any_leader();
    ASSERT_NE(to, nullptr);
    const auto before = segments(*to);
    std::string last;
    // Into the segment that was made while the one before it was filled.
    for (int i = 0; i < 200 && segments(*to) < before + 2; ++i) {
      last = std::to_string(round) + "." + std::to_string(i) + std::string(3000, 'x');
      ASSERT_TRUE(sent(*to, put("k9", last)).has_value());
    }
    ASSERT_GE(segments(*to), before + 2);
    all_lose_power();
    all([&](QuorumHost& h) { world.start(h); });
    auto* next = any_leader();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(read(*next, "k9"), last) << "round " << round;
  }
}

// No room at a follower: it is left behind, and comes back by itself; at a leader: another takes its place.
TEST_F(QuorumFailover, sim_s65_a_full_disk_holds_up_nobody_else) {
  auto [a, b] = followers();
  const std::string big(2000, 'x');
  a->medium.faults().bytes_max = 1;
  for (int i = 0; i < 50; ++i) {
    const auto written = sent(*leader, put("k" + std::to_string(5 + i % 5), big));
    EXPECT_TRUE(written.has_value()) << base::to_string(written.error());
  }
  a->medium.faults().bytes_max = 64 << 20;
  world.start(*a);
  ASSERT_TRUE(world.wait([&, a = a] { return ready(*a) && end_of(*a) == end_of(*leader); }, 15s)) << world.describe();
}

}  // namespace
}  // namespace cantle::sim

#include "lib/proto/beacons.h"

#include <gtest/gtest.h>

namespace cantle::proto {
namespace {

using namespace std::chrono_literals;
using base::Duration;
using base::Instant;
using model::Epoch;
using model::Incarnation;
using model::ServerId;

constexpr Duration kLess = beacon::drift(beacon::kPromise);  // 1.5 ms

model::PartitionId partition(uint8_t n) {
  model::PartitionId id;
  id.bytes[15] = n;
  return id;
}
model::AssignmentId assignment(uint8_t n) {
  model::AssignmentId id;
  id.bytes[15] = n;
  return id;
}
const model::PartitionId kP = partition(1);

// a and b, and a third voter that is not there. One clock for both.
struct Pair {
  Instant now{1000s};
  Beacons a{{"a"}, {10}, now}, b{{"b"}, {20}, now};
  model::Voters voters{{0, {"a"}, assignment(1)}, {1, {"b"}, assignment(2)}, {2, {"c"}, assignment(3)}};

  Pair() { a.set_peers({{"a"}, {"b"}}), b.set_peers({{"a"}, {"b"}}); }
  beacon::Now at() const { return {now, static_cast<base::WallMs>(base::to_ms(now.since_boot))}; }
  void pass(Duration d) {  // in turns, so that there is no gap
    for (; d > 0ms; d -= 10ms) {
      now = now + std::min<Duration>(d, 10ms);
      (void)a.heard(at(), {{"nobody"}, {1}, 1, 0, {}});
      (void)b.heard(at(), {{"nobody"}, {1}, 1, 0, {}});
    }
  }
  model::QuorumBeacon send() {
    for (;; pass(10ms)) {
      const auto sent = a.turn(at());
      if (sent.empty()) continue;
      EXPECT_EQ(sent.size(), 1U);  // not to itself
      return sent.front().beacon;
    }
  }
  model::QuorumBeaconReply answer(const model::QuorumBeacon& beacon) { return *b.heard(at(), beacon); }
  void exchange() { a.answered(at(), answer(send())); }
  // b obeys a as the leader of kP.
  void obey(Epoch epoch) {
    EXPECT_TRUE(b.accept({"a"}, {10}, kP, epoch));
    b.set_floor(kP, epoch);
    a.accepted_by({"b"}, {20}, kP, epoch);
  }
  Instant lease(Epoch epoch) const { return a.lease_until(kP, epoch, {&voters}); }
};

TEST(Beacons, go_to_every_peer_ten_times_a_second) {
  Pair w;
  size_t sent = 0;
  for (int i = 0; i < 200; ++i, w.now = w.now + 50ms) sent += w.a.turn(w.at()).size();
  EXPECT_GE(sent, 100U);
  EXPECT_LE(sent, 101U);
  sent = 0;  // a turn that is due just before
  for (int i = 0; i < 200; ++i, w.now = w.now + 49999us) sent += w.a.turn(w.at()).size();
  EXPECT_GE(sent, 99U);
}

// S7: a has not heard that b promised more, and b's copy went with that promise. a must not take b's answers for
// grants.
TEST(Beacons, s7_what_was_promised_with_a_copy_that_is_gone_is_refused_as_before) {
  Pair w;
  w.obey({3});
  w.exchange();
  EXPECT_GT(w.lease({3}), w.now);
  w.b.set_floor(kP, {4});
  w.b.forget(kP);
  const auto reply = w.answer(w.send());
  EXPECT_EQ(reply.refused, (std::vector<model::PartitionEpoch>{{kP, {4}}}));
  w.a.answered(w.at(), reply);
  w.pass(beacon::kPromise);
  w.exchange();
  EXPECT_LE(w.lease({3}), w.now);
}

// What is refused is known as it comes to be: by a floor that rises, by an epoch that is accepted, by a release.
TEST(Beacons, refusals_come_and_go_with_what_is_accepted) {
  Pair w;
  const auto refused = [&] { return w.answer(w.send()).refused.size(); };
  w.b.set_floor(kP, {5});
  EXPECT_EQ(refused(), 0U);  // a was accepted nowhere
  EXPECT_TRUE(w.b.accept({"a"}, {10}, kP, {4}));
  EXPECT_EQ(refused(), 1U);
  EXPECT_TRUE(w.b.accept({"a"}, {10}, kP, {5}));
  EXPECT_EQ(refused(), 0U);
  w.b.set_floor(kP, {7});
  EXPECT_EQ(refused(), 1U);
  w.b.released(w.at(), {"a"}, {10}, {kP, {5}, {}});
  EXPECT_EQ(refused(), 0U);
}

TEST(Beacons, a_lease_is_counted_from_the_sending_less_drift) {
  Pair w;
  w.obey({3});
  const auto beacon = w.send();
  const auto sent = w.now;
  w.pass(40ms);
  const auto reply = w.answer(beacon);
  w.pass(60ms);
  w.a.answered(w.at(), reply);
  EXPECT_EQ(w.lease({3}), sent + 500ms - kLess);
  EXPECT_EQ(w.b.promised_until({"a"}, kP), sent + 40ms + 500ms);
}

TEST(Beacons, no_grant_counts_without_acceptance_at_that_epoch_in_that_life) {
  Pair w;
  w.exchange();
  EXPECT_EQ(w.lease({3}), Instant{});
  w.obey({3});
  EXPECT_GT(w.lease({3}), w.now);
  EXPECT_EQ(w.lease({2}), Instant{});
  EXPECT_EQ(w.lease({4}), Instant{});
  EXPECT_EQ(w.a.lease_until(partition(2), {3}, {&w.voters}), Instant{});
  // b starts again: what it accepted before is nothing.
  w.a.answered(w.at(), {{"b"}, {21}, {10}, 999, 0, {}});
  EXPECT_EQ(w.lease({3}), Instant{});
  w.a.accepted_by({"b"}, {20}, kP, {3});  // late, of the life before
  w.exchange();
  EXPECT_EQ(w.lease({3}), Instant{});
}

TEST(Beacons, a_majority_of_each_voter_set_is_needed) {
  Pair w;
  w.obey({3});
  w.exchange();
  const model::Voters other{{0, {"a"}, assignment(1)}, {1, {"c"}, assignment(3)}, {2, {"d"}, assignment(4)}};
  EXPECT_GT(w.lease({3}), w.now);
  EXPECT_EQ(w.a.lease_until(kP, {3}, {&w.voters, &other}), Instant{});
  EXPECT_EQ(w.a.lease_until(kP, {3}, {}), Instant{});
  const model::Voters alone{{0, {"a"}, assignment(1)}};
  EXPECT_GT(w.a.lease_until(kP, {3}, {&alone}), w.now + 24h);
}

TEST(Beacons, who_promised_more_is_named_and_grants_no_more_there) {
  Pair w;
  w.obey({3});
  w.exchange();
  const auto before = w.lease({3});
  w.pass(50ms);
  w.b.set_floor(kP, {4});
  const auto reply = w.answer(w.send());
  EXPECT_EQ(reply.refused, (std::vector<model::PartitionEpoch>{{kP, {4}}}));
  w.a.answered(w.at(), reply);
  EXPECT_EQ(w.lease({3}), before);  // what was granted runs out by itself
  EXPECT_EQ(w.a.refused_at(kP), Epoch{4});
  EXPECT_TRUE(w.a.take_news());
  w.exchange();
  EXPECT_EQ(w.lease({3}), before);
  // Renewed at what was met, it is granted again.
  w.obey({4});
  w.exchange();
  EXPECT_GT(w.lease({4}), before);
  EXPECT_EQ(w.a.refused_at(kP), Epoch{});
}

TEST(Beacons, a_refusal_of_one_partition_is_none_of_another) {
  Pair w;
  w.obey({3});
  w.b.accept({"a"}, {10}, partition(2), {7});
  w.a.accepted_by({"b"}, {20}, partition(2), {7});
  w.b.set_floor(kP, {4});
  w.exchange();
  EXPECT_EQ(w.lease({3}), Instant{});
  EXPECT_GT(w.a.lease_until(partition(2), {7}, {&w.voters}), w.now);
}

TEST(Beacons, a_late_answer_grants_nothing_new) {
  Pair w;
  w.obey({3});
  const auto first = w.answer(w.send());
  w.pass(100ms);
  const auto sent_at = w.now;
  w.b.set_floor(kP, {4});
  const auto second = w.answer(w.send());
  w.a.answered(w.at(), second);
  EXPECT_EQ(w.lease({3}), Instant{});
  w.a.answered(w.at(), first);
  EXPECT_EQ(w.lease({3}), Instant{}) << base::to_ms(sent_at.since_boot);
  EXPECT_EQ(w.a.refused_at(kP), Epoch{4});
}

TEST(Beacons, an_answer_to_another_life_grants_nothing) {
  Pair w;
  w.obey({3});
  auto reply = w.answer(w.send());
  reply.asker = {9};
  w.a.answered(w.at(), reply);
  EXPECT_EQ(w.lease({3}), Instant{});
  EXPECT_EQ(w.a.contact_at(w.now, w.voters), Instant{});
}

TEST(Beacons, s8_a_long_gap_between_two_turns_ends_every_lease) {
  Pair w;
  w.obey({3});
  w.exchange();
  const auto before = w.send();
  const auto late = w.answer(before);
  w.now = w.now + 310ms;
  EXPECT_GT(w.lease({3}), w.now);  // by the clock
  (void)w.a.turn(w.at());
  EXPECT_EQ(w.lease({3}), Instant{});
  EXPECT_EQ(w.a.gap_at(), w.now);
  w.a.answered(w.at(), late);  // of what was sent before
  EXPECT_EQ(w.lease({3}), Instant{});
  w.exchange();
  EXPECT_GT(w.lease({3}), w.now);
}

TEST(Beacons, s8_a_wall_clock_that_ran_ahead_says_that_the_other_one_stood) {
  Pair w;
  w.obey({3});
  w.exchange();
  w.now = w.now + 20ms;
  auto at = w.at();
  at.wall += 5000;
  (void)w.a.turn(at);
  EXPECT_EQ(w.lease({3}), Instant{});
}

TEST(Beacons, a_server_that_starts_seals_nothing_for_as_long_as_it_may_have_promised) {
  const Beacons b({"b"}, {1}, Instant{70s});
  EXPECT_EQ(b.may_seal_from(), Instant{70s} + 500ms + kLess);
}

TEST(Beacons, promises_hold_where_the_other_was_accepted_and_to_its_lives_before) {
  Pair w;
  w.exchange();
  EXPECT_EQ(w.b.promised_until({"a"}, kP), Instant{});  // no lease counts it
  w.obey({3});
  EXPECT_EQ(w.b.promised_until({"a"}, kP), w.now + 500ms);
  const auto until = w.now + 500ms;
  // a starts again: its beacons do not hold up those who elect another.
  w.pass(100ms);
  ASSERT_TRUE(w.b.heard(w.at(), {{"a"}, {11}, 1, 0, {}}));
  EXPECT_EQ(w.b.promised_until({"a"}, kP), until);
  EXPECT_TRUE(w.b.take_news());
}

TEST(Beacons, an_older_life_is_not_heard) {
  Pair w;
  ASSERT_TRUE(w.b.heard(w.at(), {{"a"}, {11}, 1, 0, {}}));
  EXPECT_FALSE(w.b.heard(w.at(), {{"a"}, {10}, 50, 0, {}}));
  EXPECT_FALSE(w.b.accept({"a"}, {10}, kP, {3}));
  EXPECT_EQ(w.b.heard(ServerId{"a"})->incarnation, Incarnation{11});
}

TEST(Beacons, a_repeated_beacon_is_no_sign_of_life) {
  Pair w;
  const auto beacon = w.send();
  (void)w.answer(beacon);
  const auto first = w.now;
  w.pass(200ms);
  (void)w.answer(beacon);
  EXPECT_EQ(w.b.heard(ServerId{"a"})->at, first);
}

TEST(Beacons, a_release_ends_the_lease_and_is_told_until_it_is_answered) {
  Pair w;
  w.obey({3});
  w.exchange();
  w.a.release(w.now, {kP, {3}, assignment(2)});
  EXPECT_EQ(w.lease({3}), Instant{});
  auto beacon = w.send();  // lost
  ASSERT_EQ(beacon.released.size(), 1U);
  beacon = w.send();
  EXPECT_EQ(beacon.released, (std::vector<model::Released>{{kP, {3}, assignment(2)}}));
  const auto reply = w.answer(beacon);
  EXPECT_EQ(w.b.promised_until({"a"}, kP), Instant{});  // what was promised is void there
  ASSERT_NE(w.b.released_by({"a"}, kP), nullptr);
  EXPECT_EQ(w.b.hand_over(kP, {3})->released.successor, assignment(2));
  EXPECT_EQ(w.b.hand_over(kP, {2}), nullptr);
  w.a.answered(w.at(), reply);
  EXPECT_TRUE(w.send().released.empty());
}

// Everybody who had heard of it lost power, and nobody would have missed a leader whose server they hear.
TEST(Beacons, a_release_is_told_again_to_a_new_life) {
  Pair w;
  w.a.release(w.now, {kP, {3}, {}});
  w.exchange();
  EXPECT_TRUE(w.send().released.empty());
  w.a.answered(w.at(), {{"b"}, {21}, {10}, 999, 0, {}});  // to an earlier beacon, so it has heard it, or not
  w.a.answered(w.at(), {{"b"}, {22}, {10}, 0, 0, {}});
  EXPECT_EQ(w.send().released.size(), 1U);
  w.a.governed(kP, {4});
  EXPECT_TRUE(w.send().released.empty());
}

// A beacon says nothing of what the life before had heard; the new one answers it, and has heard nothing.
TEST(Beacons, a_new_life_that_answers_a_beacon_meant_for_the_one_before_is_told_the_release) {
  Pair w;
  w.a.release(w.now, {kP, {3}, {}});
  w.exchange();
  const auto without = w.send();
  ASSERT_TRUE(without.released.empty());
  w.a.answered(w.at(), {{"b"}, {21}, {10}, without.stamp, 0, {}});
  const auto with = w.send();
  EXPECT_EQ(with.released.size(), 1U);
  w.a.answered(w.at(), {{"b"}, {21}, {10}, with.stamp, 0, {}});
  EXPECT_TRUE(w.send().released.empty());
}

TEST(Beacons, an_older_release_does_not_undo_what_was_accepted_since) {
  Pair w;
  w.obey({5});
  w.exchange();
  w.b.released(w.at(), {"a"}, {10}, {kP, {4}, {}});
  EXPECT_GT(w.b.promised_until({"a"}, kP), w.now);
  w.b.released(w.at(), {"a"}, {10}, {kP, {5}, {}});
  EXPECT_EQ(w.b.promised_until({"a"}, kP), Instant{});
}

TEST(Beacons, contact_is_with_a_majority_both_ways) {
  Pair w;
  EXPECT_EQ(w.a.contact_at(w.now, w.voters), Instant{});
  EXPECT_FALSE(w.a.both_ways(w.now, w.voters));
  w.exchange();
  EXPECT_EQ(w.a.contact_at(w.now, w.voters), w.now);
  EXPECT_FALSE(w.a.both_ways(w.now, w.voters));  // it answers, and is not heard
  (void)w.a.heard(w.at(), {{"b"}, {20}, 1, 0, {}});
  EXPECT_TRUE(w.a.both_ways(w.now, w.voters));
  w.pass(610ms);
  EXPECT_FALSE(w.a.both_ways(w.now, w.voters));
}

}  // namespace
}  // namespace cantle::proto

#include "lib/proto/election.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cantle::proto {
namespace {

using namespace election;
using namespace std::chrono_literals;
using base::Code;
using base::Duration;
using base::Instant;
using model::AssignmentId;
using model::Epoch;
using model::Government;
using model::LogToken;
using model::ServerId;
using model::Vote;

AssignmentId assignment(size_t n) {
  AssignmentId id;
  id.bytes[15] = static_cast<uint8_t>(n);
  return id;
}

// The replica of p1, one of k voters p0 …; the test is everybody else.
struct Rig {
  explicit Rig(size_t k = 3, Epoch promised = {4}, LogToken token = {{5}, {100}}, bool whole = true)
      : voters(voters_of(k)) {
    partition.bytes[0] = 9;
    beacons.emplace(ServerId{"p1"}, model::Incarnation{1}, now);
    std::set<ServerId> peers;
    for (const auto& v : voters) peers.insert(v.server);
    beacons->set_peers(std::move(peers));
    election.emplace(Self{partition, assignment(2), {"p1"}, {1}, promised, token, whole}, *beacons);
    pass(2s);  // the time in which it would seal nothing
  }
  static model::Voters voters_of(size_t k) {
    model::Voters all;
    for (size_t i = 0; i < k; ++i)
      all.push_back({static_cast<uint32_t>(i), {"p" + std::to_string(i)}, assignment(i + 1)});
    return all;
  }

  Instant now{1000s};
  model::PartitionId partition;
  model::Voters voters;
  std::optional<Beacons> beacons;
  std::optional<Election> election;
  Effects out;                   // not taken yet
  std::set<std::string> silent;  // of the others
  std::map<std::string, uint64_t> lives;
  uint64_t stamp = 0;

  beacon::Now at() const { return {now, static_cast<base::WallMs>(base::to_ms(now.since_boot))}; }
  void step(const Input& input) {
    for (auto& e : election->step(now, input)) out.push_back(std::move(e));
  }
  // The others beacon and answer, unless they are silent; what the replica asks for is kept in `out`.
  void pass(Duration d) {
    for (const auto end = now + d; now < end;) {
      now = std::min(end, now + 50ms);
      ++stamp;
      for (const auto& v : voters)
        if (v.server.name != "p1" && !silent.contains(v.server.name))
          (void)beacons->heard(at(), {v.server, {1 + lives[v.server.name]}, stamp, at().wall, {}});
      for (const auto& sent : beacons->turn(at()))
        if (!silent.contains(sent.to.name))
          beacons->answered(at(), {sent.to, {1 + lives[sent.to.name]}, {1}, sent.beacon.stamp, at().wall, {}});
      step(Tick{});
    }
  }
  template <class E>
  std::optional<E> take() {
    for (auto it = out.begin(); it != out.end(); ++it)
      if (const auto* e = std::get_if<E>(&*it)) {
        const E found = *e;
        out.erase(it);
        return found;
      }
    return std::nullopt;
  }
  template <class E>
  size_t count() const {
    return static_cast<size_t>(
        std::count_if(out.begin(), out.end(), [](const auto& e) { return std::holds_alternative<E>(e); }));
  }

  Government government(uint64_t epoch, size_t leader) const {
    return {{epoch}, leader == 0 ? AssignmentId{} : assignment(leader), voters, "p9/1/1"};
  }
  void read(const Government& g, int32_t version) {
    std::optional<ReadGovernment> asked, last;
    while ((asked = take<ReadGovernment>())) last = asked;
    ASSERT_TRUE(last) << election->doing();
    step(GovernmentRead{last->number, VersionedGovernment{g, version}});
  }
  void read_fails() {
    std::optional<ReadGovernment> asked, last;
    while ((asked = take<ReadGovernment>())) last = asked;
    ASSERT_TRUE(last);
    step(GovernmentRead{last->number, base::fail(Code::unavailable, "away")});
  }
  // Follows p0 at epoch 5, whose lease it is part of.
  void follow() {
    read(government(5, 1), 7);
    step(LeaderMet{{5}, assignment(1), {"p0"}, {1 + lives["p0"]}});
    pass(100ms);
    drop_reads();
    out.clear();
  }
  void drop_reads() {
    while (count<ReadGovernment>() > 0) read(election->government() ? *election->government() : government(5, 1), 7);
  }
  // p0 falls silent, and the others say the same.
  void miss_leader() {
    silent.insert("p0");
    pass(700ms);
    while (const auto ask = take<AskSuspect>())
      if (ask->to.server.name != "p0") step(SuspectAnswered{ask->to.assignment, ask->number, {{true, {5}}}});
  }
  // … and this replica has sealed epoch 6.
  void seal() {
    miss_leader();
    read(government(5, 1), 7);
    const auto asked = take<Seal>();
    ASSERT_TRUE(asked) << election->doing();
    EXPECT_EQ(asked->promised, Epoch{6});
    step(Sealed{{6}, LogToken{{5}, {100}}});
  }
  Vote vote(size_t n, LogToken token, bool can_lead = true, uint64_t promise = 6) const {
    return {{promise}, token, assignment(n), {"p" + std::to_string(n - 1)}, static_cast<uint32_t>(n - 1),
            can_lead,  {1}};
  }
  // The bell says so.
  void votes(const std::vector<Vote>& all) {
    for (const auto& vote : all) step(VoteHeard{vote});
  }
  // A look at all of them.
  void read_votes(std::vector<Vote> all) {
    std::optional<ReadVotes> asked, last;
    for (int i = 0; i < 12 && !last; ++i, pass(100ms))
      while ((asked = take<ReadVotes>())) last = asked;
    ASSERT_TRUE(last) << election->doing();
    step(VotesRead{last->number, std::move(all)});
  }
  // It leads at epoch 6.
  void lead() {
    follow();
    seal();
    votes({vote(3, {{5}, {90}})});
    const auto swap = take<SwapGovernment>();
    ASSERT_TRUE(swap);
    step(Swapped{swap->number, SwapResult::done, 8});
    ASSERT_TRUE(take<Lead>());
    out.clear();
  }
};

// --- who may lead ------------------------------------------------------------------------------------------------

std::vector<uint32_t> slots(const std::vector<Vote>& votes) {
  std::vector<uint32_t> all;
  for (const auto& v : votes) all.push_back(v.slot);
  return all;
}

TEST(Candidates, the_longest_log_leads_and_then_the_lowest_slot) {
  const Rig r(5);
  EXPECT_EQ(slots(candidates(r.voters, {r.vote(3, {{5}, {9}}), r.vote(1, {{5}, {9}}), r.vote(2, {{5}, {10}})}, {6})),
            (std::vector<uint32_t>{1}));  // the others have less than one of a majority of five
  EXPECT_EQ(slots(candidates(
                r.voters,
                {r.vote(3, {{5}, {9}}), r.vote(1, {{5}, {9}}), r.vote(2, {{5}, {10}}), r.vote(4, {{4}, {99}})}, {6})),
            (std::vector<uint32_t>{1, 0, 2}));
  // Of equal ones another goes first in each partition.
  EXPECT_EQ(slots(candidates(r.voters, {r.vote(3, {{5}, {9}}), r.vote(1, {{5}, {9}}), r.vote(2, {{5}, {9}})}, {6}, 2)),
            (std::vector<uint32_t>{2, 0, 1}));
}

TEST(Candidates, s18_nobody_without_a_majority_of_the_configured_voters) {
  const Rig r(5);
  EXPECT_TRUE(candidates(r.voters, {r.vote(1, {{5}, {9}}), r.vote(2, {{5}, {9}})}, {6}).empty());
  EXPECT_TRUE(candidates({}, {r.vote(1, {{5}, {9}})}, {6}).empty());
}

TEST(Candidates, s18_one_that_is_highest_and_cannot_lead_lets_those_with_a_majority_go_ahead_and_no_others) {
  const Rig r(3);
  const auto first = r.vote(1, {{5}, {10}}, false);
  EXPECT_EQ(slots(candidates(r.voters, {first, r.vote(2, {{5}, {8}}), r.vote(3, {{5}, {7}})}, {6})),
            (std::vector<uint32_t>{1}));
  EXPECT_TRUE(candidates(r.voters, {first, r.vote(2, {{5}, {8}})}, {6}).empty());
}

TEST(Candidates, votes_of_another_promise_another_tenure_or_an_older_life_do_not_count) {
  const Rig r(3);
  const auto good = r.vote(2, {{5}, {8}});
  EXPECT_TRUE(candidates(r.voters, {good, r.vote(1, {{5}, {8}}, true, 5)}, {6}).empty());
  EXPECT_TRUE(candidates(r.voters, {good, r.vote(7, {{5}, {8}})}, {6}).empty());
  auto elsewhere = r.vote(1, {{5}, {8}});
  elsewhere.server = {"p7"};
  EXPECT_TRUE(candidates(r.voters, {good, elsewhere}, {6}).empty());
  auto older = r.vote(1, {{5}, {900}}), newer = r.vote(1, {{5}, {7}});
  newer.incarnation = {2};
  EXPECT_EQ(slots(candidates(r.voters, {good, older, newer}, {6})), (std::vector<uint32_t>{1}));
  EXPECT_EQ(slots(candidates(r.voters, {good, newer, older}, {6})), (std::vector<uint32_t>{1}));
}

// --- missing a leader --------------------------------------------------------------------------------------------

TEST(Election, s21_who_misses_the_leader_asks_the_others_first) {
  Rig r;
  r.follow();
  r.silent.insert("p0");
  r.pass(550ms);
  EXPECT_EQ(r.count<AskSuspect>(), 0U);
  r.pass(150ms);
  const auto ask = r.take<AskSuspect>();
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->epoch, Epoch{5});
  EXPECT_EQ(ask->server, ServerId{"p0"});
  r.step(SuspectAnswered{assignment(3), ask->number, {{false, {5}}}});
  r.pass(5s);
  EXPECT_EQ(r.count<Seal>(), 0U);
  EXPECT_EQ(r.election->doing(), "asks whether the others miss the leader");
  // It is heard again.
  r.silent.clear();
  r.pass(100ms);
  EXPECT_EQ(r.election->doing(), "follows");
}

TEST(Election, who_is_told_no_asks_less_often_until_another_asks_too) {
  Rig r;
  r.follow();
  r.silent.insert("p0");
  r.pass(20s);
  EXPECT_LE(r.count<AskSuspect>(), 2 * 13U);
  EXPECT_GE(r.count<AskSuspect>(), 2 * 10U);
  r.out.clear();
  r.pass(50ms);
  model::QuorumSuspect q;
  q.epoch = {5};
  q.leader = assignment(1);
  EXPECT_TRUE(r.election->answer(r.now, q).suspects);
  r.pass(50ms);
  EXPECT_EQ(r.count<AskSuspect>(), 2U);
}

TEST(Election, a_voter_without_a_majority_looks_less_often_and_at_the_bell) {
  Rig r;
  r.follow();
  r.seal();
  size_t looks = 0;
  for (int i = 0; i < 600; ++i) {
    r.pass(50ms);
    while (const auto asked = r.take<ReadVotes>()) r.step(VotesRead{asked->number, std::vector<Vote>{}}), ++looks;
    while (const auto asked = r.take<ReadGovernment>())
      r.step(GovernmentRead{asked->number, VersionedGovernment{r.government(5, 1), 7}}), ++looks;
  }
  EXPECT_LE(looks, 60U);
  EXPECT_GE(looks, 40U);
  r.step(Rung{});
  EXPECT_EQ(r.count<ReadVotes>() + r.count<ReadGovernment>(), 2U);
}

TEST(Election, an_old_yes_does_not_count) {
  Rig r(5);
  r.follow();
  r.silent.insert("p0");
  r.pass(700ms);
  const auto ask = r.take<AskSuspect>();
  r.step(SuspectAnswered{assignment(3), ask->number, {{true, {5}}}});
  r.pass(700ms);
  r.step(SuspectAnswered{assignment(4), ask->number, {{true, {5}}}});
  EXPECT_EQ(r.election->doing(), "asks whether the others miss the leader");
  r.step(SuspectAnswered{assignment(3), ask->number, {{true, {5}}}});
  EXPECT_EQ(r.election->doing(), "reads the government");
}

// R16: a seal may be among what is lost. It was one above some government that there was: no more than one above this
// one.
TEST(Election, r16_who_does_not_know_what_it_promised_obeys_nobody_before_it_has_promised_enough) {
  Rig r(3, {4}, {{5}, {100}}, false);
  EXPECT_FALSE(r.election->admits({5}));
  EXPECT_FALSE(r.election->admits({9}));
  r.step(LeaderMet{{5}, assignment(1), {"p0"}, {1}});
  EXPECT_FALSE(r.take<Seal>()) << "it has read no government in this life";
  r.read(r.government(5, 1), 7);
  r.pass(100ms);
  const auto seal = r.take<Seal>();
  ASSERT_TRUE(seal);
  EXPECT_EQ(seal->promised.value, 6U);
  EXPECT_FALSE(r.election->admits({5}));
  EXPECT_FALSE(r.election->admits({6})) << "it is not durable";
  EXPECT_FALSE(r.election->doubted());
  r.step(Sealed{{6}, LogToken{{5}, {100}}});
  EXPECT_EQ(r.election->doubted(), Epoch{6});
  EXPECT_FALSE(r.election->admits({5})) << "whoever leads at 5 has to renew";
  EXPECT_TRUE(r.election->admits({6}));
  EXPECT_FALSE(r.take<PutVote>()) << "nobody was missed";
}

TEST(Election, r16_a_seal_in_doubt_that_failed_is_tried_again) {
  Rig r(3, {4}, {{5}, {100}}, false);
  r.read(r.government(5, 1), 7);
  r.pass(100ms);
  ASSERT_TRUE(r.take<Seal>());
  r.step(Sealed{{6}, base::fail(Code::unavailable, "busy")});
  EXPECT_FALSE(r.election->admits({9}));
  EXPECT_FALSE(r.take<Seal>()) << "not at once";
  r.pass(3s);
  EXPECT_TRUE(r.take<Seal>());
}

// R16: what it confirmed last may be lost, too: where its log ends says nothing.
TEST(Election, r16_whose_log_is_not_whole_does_not_vote_until_it_is) {
  Rig r(3, {4}, {{5}, {100}}, false);
  r.silent = {"p0"};
  r.read(r.government(5, 1), 7);
  r.pass(100ms);
  ASSERT_TRUE(r.take<Seal>());
  r.step(Sealed{{6}, LogToken{{5}, {100}}});
  for (int i = 0; i < 10; i++) {
    r.pass(500ms);
    if (r.count<ReadGovernment>() > 0) r.read(r.government(5, 1), 7);
  }
  EXPECT_FALSE(r.take<PutVote>());
  EXPECT_FALSE(r.take<SwapGovernment>());
  r.step(LogState{{{5}, {100}}, true, true});
  std::optional<PutVote> vote;
  for (int i = 0; i < 20 && !vote; i++) {
    r.pass(500ms);
    if (r.count<ReadGovernment>() > 0) r.read(r.government(5, 1), 7);
    if (const auto ask = r.take<AskSuspect>())
      r.step(SuspectAnswered{ask->to.assignment, ask->number, model::QuorumSuspectReply{true, {5}}});
    vote = r.take<PutVote>();
  }
  EXPECT_TRUE(vote);
}

TEST(Election, what_it_answers_to_who_misses_the_leader) {
  Rig r;
  r.follow();
  const auto question = [&](uint64_t epoch, const char* server) {
    model::QuorumSuspect q;
    q.epoch = {epoch};
    q.leader = assignment(1);
    q.server = {server};
    return r.election->answer(r.now, q);
  };
  EXPECT_EQ(question(5, "p0"), (model::QuorumSuspectReply{false, {5}}));
  EXPECT_EQ(question(4, "p0"), (model::QuorumSuspectReply{false, {5}}));
  EXPECT_EQ(question(6, "p2"), (model::QuorumSuspectReply{false, {5}}));  // not known, and heard
  EXPECT_EQ(question(6, "p9"), (model::QuorumSuspectReply{true, {5}}));
  r.silent.insert("p0");
  r.pass(700ms);
  EXPECT_EQ(question(5, "p0"), (model::QuorumSuspectReply{true, {5}}));
  EXPECT_EQ(question(4, "p0"), (model::QuorumSuspectReply{false, {5}}));
}

TEST(Election, a_new_life_of_the_leaders_server_is_suspicion_at_once) {
  Rig r;
  r.follow();
  r.lives["p0"] = 1;
  r.pass(50ms);
  EXPECT_EQ(r.election->doing(), "reads the government");
  r.read(r.government(5, 1), 7);
  EXPECT_EQ(r.election->doing(), "waits until its promise has run out");  // of the life before
  r.pass(500ms);
  EXPECT_EQ(r.count<Seal>(), 1U);
}

TEST(Election, a_release_is_suspicion_at_once_and_voids_the_promise) {
  Rig r;
  r.follow();
  r.beacons->released(r.at(), {"p0"}, {1}, {r.partition, {5}, {}});
  r.step(Tick{});
  r.read(r.government(5, 1), 7);
  EXPECT_EQ(r.count<Seal>(), 1U);
}

TEST(Election, a_release_of_an_older_epoch_is_none) {
  Rig r;
  r.follow();
  r.beacons->released(r.at(), {"p0"}, {1}, {r.partition, {4}, {}});
  r.step(Tick{});
  EXPECT_EQ(r.election->doing(), "follows");
}

// --- sealing -----------------------------------------------------------------------------------------------------

TEST(Election, s35_without_an_answer_of_the_coordination_service_nothing_is_sealed) {
  Rig r;
  r.follow();
  r.miss_leader();
  for (int i = 0; i < 20; ++i) {
    r.read_fails();
    r.pass(1s);
    while (const auto ask = r.take<AskSuspect>())
      r.step(SuspectAnswered{ask->to.assignment, ask->number, {{true, {5}}}});
  }
  EXPECT_EQ(r.count<Seal>(), 0U);
  r.silent.clear();
  r.pass(100ms);
  EXPECT_EQ(r.election->doing(), "follows");
  EXPECT_TRUE(r.election->admits({5}));
}

// A recovery, or a swap of voters: who leads does not wait with that.
TEST(Election, a_bell_that_names_the_partition_is_followed_by_a_look_at_once) {
  Rig r;
  r.follow();
  r.step(Rung{});
  EXPECT_EQ(r.count<ReadGovernment>(), 0U);
  r.step(Rung{true});
  EXPECT_EQ(r.count<ReadGovernment>(), 1U);
}

TEST(Election, s33_a_read_that_began_before_the_suspicion_does_not_count) {
  Rig r;
  r.follow();
  r.step(Rung{});
  EXPECT_EQ(r.count<ReadGovernment>(), 0U);  // it follows: it looks for whom, with its thousand neighbours, later
  r.pass(kRungCalm);
  const auto old = r.take<ReadGovernment>();
  ASSERT_TRUE(old);
  r.miss_leader();
  r.step(GovernmentRead{old->number, VersionedGovernment{r.government(5, 1), 7}});
  EXPECT_EQ(r.count<Seal>(), 0U);
  r.read(r.government(5, 1), 7);
  EXPECT_EQ(r.count<Seal>(), 1U);
}

TEST(Election, s7_it_seals_when_what_it_promised_the_leader_is_over) {
  Rig r;
  r.follow();
  r.miss_leader();
  // A beacon that was long under way; the answer is a promise.
  ASSERT_TRUE(r.beacons->heard(r.at(), {{"p0"}, {1}, 1, 0, {}}));
  r.read(r.government(5, 1), 7);
  EXPECT_EQ(r.count<Seal>(), 0U);
  r.pass(450ms);
  EXPECT_EQ(r.count<Seal>(), 0U);
  EXPECT_EQ(r.election->next_look(r.now), r.now + 50ms + kSealTurn);  // p0 would go before it
  r.pass(50ms + kSealTurn);
  EXPECT_EQ(r.count<Seal>(), 1U);
}

TEST(Election, s7_a_server_that_starts_seals_nothing_while_it_may_have_promised) {
  Rig r;
  Beacons fresh({"p1"}, {2}, r.now);
  Election election(Self{r.partition, assignment(2), {"p1"}, {2}, {4}, {{5}, {100}}, true}, fresh);
  uint64_t number = 0;
  bool sealed = false;
  const auto tick = [&](const Input& input) {
    for (const auto& e : election.step(r.now, input)) {
      if (const auto* read = std::get_if<ReadGovernment>(&e)) number = read->number;
      sealed = sealed || std::holds_alternative<Seal>(e);
    }
  };
  tick(Tick{});
  for (const auto end = r.now + 501ms; r.now < end; r.now = r.now + 25ms) {
    tick(GovernmentRead{number, VersionedGovernment{r.government(5, 0), 7}});  // nobody leads
    tick(Tick{});
    EXPECT_FALSE(sealed) << base::to_ms(r.now - (end - 501ms));
  }
  tick(Tick{});
  EXPECT_TRUE(sealed);
}

TEST(Election, from_the_seal_on_older_governments_are_refused) {
  Rig r;
  r.follow();
  EXPECT_TRUE(r.election->admits({5}));
  EXPECT_FALSE(r.election->admits({4}));
  r.miss_leader();
  r.read(r.government(5, 1), 7);
  ASSERT_TRUE(r.take<Seal>());  // not durable yet
  EXPECT_FALSE(r.election->admits({5}));
  EXPECT_EQ(r.election->floor(), Epoch{6});
  const auto reply = r.beacons->heard(r.at(), {{"p0"}, {1}, 99999, 0, {}});
  EXPECT_EQ(reply->refused, (std::vector<model::PartitionEpoch>{{r.partition, {6}}}));
  EXPECT_EQ(r.count<PutVote>(), 0U);
}

TEST(Election, what_stood_in_the_log_is_obeyed_after_a_restart_too) {
  const Rig r(3, {2}, {{5}, {100}});
  EXPECT_FALSE(r.election->admits({4}));  // of a leader that others deposed
  EXPECT_TRUE(r.election->admits({5}));
  const Rig sealed(3, {8}, {{5}, {100}});
  EXPECT_FALSE(sealed.election->admits({7}));
}

TEST(Election, s36_a_government_from_the_past_is_not_used) {
  Rig r(3, {9}, {{5}, {100}});
  r.read(r.government(5, 0), 3);
  EXPECT_EQ(r.election->government(), nullptr);
  EXPECT_EQ(r.count<Say>(), 1U);
  EXPECT_EQ(r.count<Seal>(), 0U);
}

// --- voting and being elected ------------------------------------------------------------------------------------

TEST(Election, it_votes_with_what_its_log_has_when_the_seal_is_durable) {
  Rig r;
  r.follow();
  r.miss_leader();
  r.read(r.government(5, 1), 7);
  ASSERT_TRUE(r.take<Seal>());
  r.step(Sealed{{6}, LogToken{{5}, {123}}});
  const auto put = r.take<PutVote>();
  ASSERT_TRUE(put);
  EXPECT_EQ(put->vote, (Vote{{6}, {{5}, {123}}, assignment(2), {"p1"}, 1, true, {1}}));
}

TEST(Election, a_seal_that_fails_is_followed_by_no_vote) {
  Rig r;
  r.follow();
  r.miss_leader();
  r.read(r.government(5, 1), 7);
  r.step(Sealed{{6}, base::fail(Code::io_error, "no")});
  r.pass(500ms);
  EXPECT_EQ(r.count<PutVote>(), 0U);
  EXPECT_FALSE(r.election->admits({5}));  // it may be there all the same
}

// A server that stops takes no more writes, and whoever led there is missed: it asked thousands of times a second.
TEST(Election, a_seal_that_failed_is_not_tried_again_at_once) {
  Rig r;
  r.follow();
  r.miss_leader();
  r.read(r.government(5, 1), 7);
  ASSERT_TRUE(r.take<Seal>());
  r.step(Sealed{{6}, base::fail(Code::unavailable, "this copy takes no more writes")});
  r.pass(500ms);
  EXPECT_EQ(r.count<Seal>(), 0U);
  for (int i = 0; i < 10 && r.count<Seal>() == 0; i++) {
    r.pass(300ms);
    if (r.count<ReadGovernment>() > 0) r.read(r.government(5, 1), 7);
  }
  EXPECT_EQ(r.count<Seal>(), 1U);
}

TEST(Election, with_a_majoritys_votes_the_best_swaps_the_government) {
  Rig r;
  r.follow();
  r.seal();
  r.votes({});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
  r.votes({r.vote(3, {{5}, {99}})});
  const auto swap = r.take<SwapGovernment>();
  ASSERT_TRUE(swap);
  EXPECT_EQ(swap->version, 7);
  EXPECT_EQ(swap->to.epoch, Epoch{6});
  EXPECT_EQ(swap->to.leader, assignment(2));
  EXPECT_EQ(swap->to.voters, r.voters);
  EXPECT_TRUE(swap->to.writer.starts_with("p1/1/"));
  EXPECT_FALSE(r.election->leads());
  r.step(Swapped{swap->number, SwapResult::done, 8});
  EXPECT_EQ(r.take<Lead>()->epoch, Epoch{6});
  EXPECT_EQ(r.election->leads(), Epoch{6});
}

TEST(Election, votes_are_read_as_well_as_heard) {
  Rig r;
  r.follow();
  r.seal();
  r.read_votes({});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
  r.read_votes({r.vote(3, {{5}, {99}})});
  EXPECT_EQ(r.count<SwapGovernment>(), 1U);
}

TEST(Election, a_vote_that_was_heard_before_its_own_is_needed_is_not_forgotten) {
  Rig r;
  r.follow();
  r.votes({r.vote(3, {{5}, {99}})});
  r.seal();
  EXPECT_EQ(r.count<SwapGovernment>(), 1U);
  Rig other;  // one of an election that is over
  other.follow();
  other.votes({other.vote(3, {{5}, {99}}, true, 5)});
  other.seal();
  EXPECT_EQ(other.count<SwapGovernment>(), 0U);
}

TEST(Election, a_vote_that_was_heard_while_votes_were_read_counts) {
  Rig r;
  r.follow();
  r.seal();
  std::optional<ReadVotes> asked;
  for (int i = 0; i < 10 && !asked; ++i, r.pass(50ms)) asked = r.take<ReadVotes>();
  ASSERT_TRUE(asked);
  r.votes({r.vote(3, {{5}, {101}})});  // it is better
  r.step(VotesRead{asked->number, std::vector<Vote>{r.vote(1, {{5}, {90}})}});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
  r.pass(kTurnThere);
  EXPECT_EQ(r.count<SwapGovernment>(), 1U);
}

TEST(Election, an_older_life_and_who_is_no_voter_are_not_heard) {
  Rig r;
  r.follow();
  r.seal();
  auto newer = r.vote(3, {{5}, {101}}), older = r.vote(3, {{5}, {90}});
  newer.incarnation = {4};
  older.incarnation = {3};
  r.votes({newer, older, r.vote(9, {{5}, {90}})});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
}

// So that thousands need not be asked at each turn.
TEST(Election, it_says_when_it_is_to_be_looked_at) {
  Rig r(5);
  r.follow();
  r.pass(50ms);
  EXPECT_EQ(r.election->next_look(r.now), r.now + kCalmTick);
  r.seal();
  r.votes({r.vote(3, {{5}, {101}}), r.vote(4, {{5}, {90}}), r.vote(5, {{5}, {90}})});
  const auto voted = r.now;
  while (r.now + 100ms < voted + kTurnThere) r.pass(50ms);
  ASSERT_EQ(r.count<SwapGovernment>(), 0U);
  EXPECT_EQ(r.election->next_look(r.now), std::min(r.now + kTick, voted + kTurnThere));
}

// p0 would go before p1, is there, and its vote is on its way: two that swap at once would refuse each other.
TEST(Election, who_would_go_first_and_is_there_is_waited_for) {
  for (const bool comes : {true, false}) {
    Rig r;
    r.read(r.government(5, 0), 7);
    r.pass(100ms);
    r.read(r.government(5, 0), 7);
    const auto asked = r.take<Seal>();
    ASSERT_TRUE(asked) << r.election->doing();
    r.step(Sealed{{6}, LogToken{{5}, {100}}});
    r.votes({r.vote(3, {{5}, {100}})});
    r.pass(kFirstVote - 50ms);
    EXPECT_EQ(r.count<SwapGovernment>(), 0U) << r.election->doing();
    if (comes) r.votes({r.vote(1, {{5}, {100}})});
    r.pass(kTurn);
    EXPECT_EQ(r.count<SwapGovernment>(), comes ? 0U : 1U) << r.election->doing();
  }
}

// Once a majority is known no vote more is of use, until somebody should have acted on it.
TEST(Election, who_knows_of_a_majority_reads_no_votes_meanwhile) {
  Rig r;
  r.follow();
  r.seal();
  EXPECT_TRUE(r.election->wants_votes(r.now));
  r.votes({r.vote(3, {{5}, {101}})});
  EXPECT_FALSE(r.election->wants_votes(r.now));
  r.pass(kTurnThere - 50ms);
  EXPECT_EQ(r.count<ReadVotes>(), 0U);
}

// That a leader fell silent is told once, and who stood still does not count that against it.
TEST(Election, who_stood_still_looks_again_when_it_may_miss_the_leader) {
  Rig r;
  r.follow();
  r.silent.insert("p0");
  r.now = r.now + beacon::kSilent;
  r.pass(50ms);
  EXPECT_EQ(r.election->next_look(r.now), r.now + beacon::kSilent + 1ms);
}

TEST(Election, the_second_acts_when_the_first_has_not_within_its_turn) {
  Rig r;
  r.follow();
  r.seal();
  r.votes({r.vote(3, {{5}, {101}})});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);  // p2 is better, and has votes of two
  r.votes({r.vote(3, {{5}, {101}}), r.vote(1, {{5}, {100}})});
  r.pass(kTurnThere);  // p2 is heard, and has much to do, perhaps
  r.votes({r.vote(3, {{5}, {101}}), r.vote(1, {{5}, {100}})});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
  r.pass(kTurn);  // the third: p0 has the lower slot, and is not heard
  EXPECT_EQ(r.count<SwapGovernment>(), 1U);
}

TEST(Election, the_second_waits_no_longer_for_a_first_that_is_gone) {
  Rig r(5);
  r.follow();
  r.seal();
  r.votes({r.vote(3, {{5}, {101}}), r.vote(4, {{5}, {90}}), r.vote(5, {{5}, {90}})});
  r.silent.insert("p2");
  r.pass(kHeardLately + 100ms);
  EXPECT_EQ(r.count<SwapGovernment>(), 1U);
}

TEST(Election, where_those_with_more_cannot_lead_the_best_of_the_others_gets_what_it_lacks) {
  Rig r(5);
  r.follow();
  r.seal();
  const std::vector<Vote> longer{r.vote(5, {{5}, {110}}, false), r.vote(4, {{5}, {120}}, false)};
  r.votes(longer);
  EXPECT_EQ(r.count<Borrow>(), 0U);
  r.pass(250ms);
  EXPECT_EQ(r.count<Borrow>(), 0U) << "one of them may say next that it can";
  r.pass(100ms);
  const auto borrow = r.take<Borrow>();
  ASSERT_TRUE(borrow);
  EXPECT_EQ(borrow->promise, Epoch{6});
  EXPECT_EQ(borrow->from, (model::Voters{r.voters[3], r.voters[4]}));
  r.pass(300ms);
  EXPECT_GE(r.count<Borrow>(), 2U);
  r.step(LogState{{{5}, {110}}, true, true});
  EXPECT_EQ(r.count<SwapGovernment>(), 0U) << "two of five";
  r.step(LogState{{{5}, {120}}, true, true});
  EXPECT_EQ(r.count<SwapGovernment>(), 1U);
}

TEST(Election, who_is_not_the_best_of_those_that_can_lead_waits_for_its_turn_to_borrow) {
  Rig r(5);
  r.follow();
  r.seal();
  const std::vector<Vote> votes{r.vote(3, {{5}, {105}}), r.vote(4, {{5}, {120}}, false)};
  r.votes(votes);
  r.pass(500ms);
  EXPECT_EQ(r.count<Borrow>(), 0U);
  r.pass(200ms);
  EXPECT_GE(r.count<Borrow>(), 1U);
  r.out.clear();
  r.step(LogState{{{5}, {100}}, false, true});
  r.pass(2s);
  EXPECT_EQ(r.count<Borrow>(), 0U) << "it cannot lead";
}

TEST(Election, votes_are_made_anew_when_the_session_expired) {
  Rig r;
  r.follow();
  r.seal();
  const auto put = r.take<PutVote>();
  r.step(VotePut{put->number, base::ok()});
  r.pass(200ms);
  EXPECT_EQ(r.count<PutVote>(), 0U);
  r.step(VotesLost{});
  EXPECT_EQ(r.take<PutVote>()->vote, put->vote);
}

// quorum_everything, seed 498: the answer to a removal was lost with its connection, the vote was put again on the next
// one, and the removal was done then. The others waited for a vote that its owner thought was there.
TEST(Election, a_vote_that_was_taken_away_late_is_put_again) {
  Rig r;
  r.follow();
  r.seal();
  const auto put = r.take<PutVote>();
  std::optional<ReadVotes> before;
  for (int i = 0; i < 12 && !before; ++i, r.pass(100ms)) before = r.take<ReadVotes>();
  ASSERT_TRUE(before);
  r.step(VotePut{put->number, base::ok()});
  r.step(VotesRead{before->number, std::vector<Vote>{}});
  r.pass(200ms);
  EXPECT_EQ(r.count<PutVote>(), 0U) << "that look may be older than the vote";
  r.read_votes({put->vote});
  EXPECT_EQ(r.count<PutVote>(), 0U);
  r.read_votes({});
  EXPECT_EQ(r.take<PutVote>()->vote, put->vote);
}

TEST(Election, a_vote_that_could_not_be_made_is_tried_again) {
  Rig r;
  r.follow();
  r.seal();
  r.step(VotePut{r.take<PutVote>()->number, base::fail(Code::outcome_unknown, "lost")});
  EXPECT_EQ(r.count<PutVote>(), 0U);
  r.pass(250ms);
  EXPECT_EQ(r.count<PutVote>(), 1U);
}

TEST(Election, when_another_was_elected_the_vote_is_taken_away) {
  Rig r;
  r.follow();
  r.seal();
  r.step(VotePut{r.take<PutVote>()->number, base::ok()});
  r.step(LeaderMet{{6}, assignment(3), {"p2"}, {1}});
  EXPECT_FALSE(r.take<RemoveVote>()) << "there is time";
  r.pass(kVoteLinger);
  EXPECT_EQ(r.take<RemoveVote>()->token, (LogToken{{5}, {100}}));
  EXPECT_EQ(r.take<Follow>()->leader, ServerId{"p2"});
  EXPECT_EQ(r.election->doing(), "follows");
}

// Among thousands it may wait for long, and what takes it away may come before it.
TEST(Election, a_vote_that_is_put_when_nobody_waits_for_it_any_more_is_taken_away) {
  Rig r;
  r.follow();
  r.seal();
  const auto put = r.take<PutVote>()->number;
  r.step(LeaderMet{{6}, assignment(3), {"p2"}, {1}});
  r.pass(kAnswerMost);
  r.step(VotePut{r.take<RemoveVote>()->number, base::ok()});
  r.pass(kVoteLinger);
  EXPECT_EQ(r.count<RemoveVote>(), 0U);
  r.step(VotePut{put, base::ok()});
  EXPECT_EQ(r.take<RemoveVote>()->token, (LogToken{{5}, {100}}));
}

TEST(Election, who_cannot_lead_says_so_and_does_not) {
  Rig r;
  r.follow();
  r.step(LogState{{{5}, {100}}, false, true});
  r.seal();
  EXPECT_FALSE(r.take<PutVote>()->vote.can_lead);
  r.votes({r.vote(3, {{5}, {90}})});
  r.pass(2s);
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
  Rig alone;  // beacons of nobody
  alone.follow();
  alone.seal();
  alone.silent.insert("p2");
  alone.pass(700ms);
  EXPECT_FALSE(alone.election->can_lead(alone.now));
}

TEST(Election, one_voter_alone_elects_itself) {
  Rig r(1);
  r.voters = {{0, {"p1"}, assignment(2)}};
  r.read({{1}, {}, r.voters, "m1"}, 0);
  EXPECT_EQ(r.election->government(), nullptr);  // its log knows epoch 5
  Rig fresh(1, {}, {});
  fresh.voters = {{0, {"p1"}, assignment(2)}};
  fresh.read({{1}, {}, fresh.voters, "m1"}, 0);
  fresh.read({{1}, {}, fresh.voters, "m1"}, 0);  // within the suspicion
  EXPECT_EQ(fresh.take<Seal>()->promised, Epoch{2});
  fresh.step(Sealed{{2}, LogToken{}});
  const auto swap = fresh.take<SwapGovernment>();
  ASSERT_TRUE(swap);
  fresh.step(Swapped{swap->number, SwapResult::done, 1});
  EXPECT_GT(fresh.election->lease_until(), fresh.now);
}

// --- swaps whose outcome is not known ----------------------------------------------------------------------------

TEST(Election, s27_an_unknown_swap_is_found_out_by_its_writer) {
  Rig r;
  r.follow();
  r.seal();
  r.votes({r.vote(3, {{5}, {90}})});
  const auto swap = r.take<SwapGovernment>();
  ASSERT_TRUE(swap);
  r.step(Swapped{swap->number, SwapResult::unknown, 0});
  EXPECT_FALSE(r.election->leads());
  r.read(swap->to, 8);
  EXPECT_EQ(r.election->leads(), Epoch{6});
}

TEST(Election, s27_an_unknown_swap_may_be_made_after_the_read_that_did_not_show_it) {
  Rig r;
  r.follow();
  r.seal();
  r.votes({r.vote(3, {{5}, {90}})});
  const auto first = r.take<SwapGovernment>();
  r.step(Swapped{first->number, SwapResult::unknown, 0});
  r.read(r.government(5, 1), 7);
  r.pass(100ms);
  const auto second = r.take<SwapGovernment>();
  ASSERT_TRUE(second);
  r.step(Swapped{second->number, SwapResult::conflict, 0});
  r.read(first->to, 8);
  EXPECT_EQ(r.election->leads(), Epoch{6});
}

TEST(Election, a_swap_that_stays_unknown_is_given_up_and_said_to_be) {
  Rig r;
  r.follow();
  r.seal();
  r.votes({r.vote(3, {{5}, {90}})});
  const auto swap = r.take<SwapGovernment>();
  r.step(Swapped{swap->number, SwapResult::unknown, 0});
  r.pass(2100ms);
  EXPECT_EQ(r.beacons->released_by({"p1"}, r.partition)->released.epoch, Epoch{6});
  r.read(swap->to, 8);
  EXPECT_FALSE(r.election->leads());
  // It takes part in the next election like any voter.
  r.pass(50ms);
  r.read(swap->to, 8);
  EXPECT_EQ(r.take<Seal>()->promised, Epoch{7});
}

TEST(Election, a_conflict_is_looked_into_before_the_next_swap) {
  Rig r;
  r.follow();
  r.seal();
  r.votes({r.vote(3, {{5}, {90}})});
  r.step(Swapped{r.take<SwapGovernment>()->number, SwapResult::conflict, 0});
  r.pass(300ms);
  EXPECT_EQ(r.count<SwapGovernment>(), 0U);
  r.read(r.government(5, 0), 8);  // the leader took itself out
  r.pass(100ms);
  EXPECT_EQ(r.take<SwapGovernment>()->version, 8);
}

// --- leading -----------------------------------------------------------------------------------------------------

TEST(Election, s6_a_server_that_starts_and_is_named_by_the_government_does_not_lead) {
  Rig r;
  r.read(r.government(5, 2), 7);
  EXPECT_FALSE(r.election->leads());
  EXPECT_EQ(r.beacons->released_by({"p1"}, r.partition)->released.epoch, Epoch{5});  // nobody would miss it
  r.read(r.government(5, 2), 7);
  EXPECT_EQ(r.take<Seal>()->promised, Epoch{6});
}

TEST(Election, a_leader_that_meets_a_promise_renews_its_government) {
  Rig r;
  r.lead();
  r.step(PromiseMet{{7}});
  r.pass(100ms);
  const auto swap = r.take<SwapGovernment>();
  ASSERT_TRUE(swap);
  EXPECT_EQ(swap->to.epoch, Epoch{7});
  EXPECT_EQ(swap->to.leader, assignment(2));
  EXPECT_EQ(r.election->leads(), Epoch{6});  // and goes on meanwhile
  r.step(Swapped{swap->number, SwapResult::done, 9});
  const auto lead = r.take<Lead>();
  ASSERT_TRUE(lead);
  EXPECT_TRUE(lead->renewed);
  EXPECT_EQ(r.election->leads(), Epoch{7});
}

TEST(Election, a_leader_learns_of_a_promise_from_an_answer_to_its_beacons) {
  Rig r;
  r.lead();
  const auto sent = r.beacons->turn(r.at());
  r.beacons->answered(r.at(), {{"p2"}, {1}, {1}, 1000, 0, {{r.partition, {8}}}});
  r.step(Tick{});
  r.pass(100ms);
  EXPECT_EQ(r.take<SwapGovernment>()->to.epoch, Epoch{8});
}

TEST(Election, a_leader_that_was_deposed_stops) {
  Rig r;
  r.lead();
  r.step(PromiseMet{{7}});
  r.pass(100ms);
  r.step(Swapped{r.take<SwapGovernment>()->number, SwapResult::conflict, 0});
  r.read(r.government(7, 3), 9);
  EXPECT_TRUE(r.take<Stop>());
  EXPECT_FALSE(r.election->leads());
  EXPECT_EQ(r.count<SendRelease>(), 0U);
  Rig met;
  met.lead();
  met.step(LeaderMet{{7}, assignment(3), {"p2"}, {1}});
  EXPECT_TRUE(met.take<Stop>());
}

TEST(Election, s21_a_leader_without_a_majoritys_answers_resigns_and_says_so) {
  Rig r;
  r.lead();
  r.silent = {"p0", "p2"};
  r.pass(950ms);
  EXPECT_TRUE(r.election->leads());
  r.pass(150ms);
  EXPECT_FALSE(r.election->leads());
  EXPECT_TRUE(r.take<Stop>());
  EXPECT_EQ(r.count<SendRelease>(), 2U);
  EXPECT_EQ(r.take<SendRelease>()->epoch, Epoch{6});
  const auto swap = r.take<SwapGovernment>();
  ASSERT_TRUE(swap);
  EXPECT_EQ(swap->to.epoch, Epoch{6});
  EXPECT_TRUE(swap->to.leader.none());
  // It does not lead for a while.
  r.silent.clear();
  r.pass(4700ms);
  EXPECT_FALSE(r.election->can_lead(r.now));
  r.pass(300ms);
  EXPECT_TRUE(r.election->can_lead(r.now));
}

TEST(Election, s26_a_leader_whose_disk_stands_still_resigns) {
  Rig r;
  r.lead();
  r.step(LogState{{{6}, {101}}, true, false});
  EXPECT_TRUE(r.take<Stop>());
  EXPECT_FALSE(r.election->can_lead(r.now));
}

TEST(Election, s7_a_leader_that_stood_still_asks_around_before_it_resigns) {
  Rig r;
  r.lead();
  r.now = r.now + 3s;
  (void)r.beacons->turn(r.at());
  r.step(Tick{});
  EXPECT_TRUE(r.election->leads());
  EXPECT_LE(r.election->lease_until(), r.now);
  r.pass(900ms);
  EXPECT_TRUE(r.election->leads());
}

TEST(Election, a_leader_that_nobody_follows_resigns) {
  Rig r;
  r.lead();  // beacons are answered; nobody accepted it
  r.pass(4900ms);
  EXPECT_TRUE(r.election->leads());
  r.pass(200ms);
  EXPECT_FALSE(r.election->leads());
}

TEST(Election, s35_a_leader_goes_on_while_the_coordination_service_is_away) {
  Rig r;
  r.lead();
  for (int i = 0; i < 30; ++i) {
    for (const auto& v : r.voters)
      if (v.server.name != "p1") r.beacons->accepted_by(v.server, {1}, r.partition, {6});
    r.pass(1s);
    if (r.count<ReadGovernment>() > 0) r.read_fails();
  }
  EXPECT_EQ(r.election->leads(), Epoch{6});
  EXPECT_GT(r.election->lease_until(), r.now);
}

TEST(Election, what_was_resigned_is_not_taken_up_again_by_a_renewal_that_comes_late) {
  Rig r;
  r.lead();
  r.step(PromiseMet{{7}});
  r.pass(100ms);
  const auto renewal = r.take<SwapGovernment>();
  ASSERT_TRUE(renewal);
  r.step(ResignAsked{{}, "asked"});
  EXPECT_EQ(r.beacons->released_by({"p1"}, r.partition)->released.epoch, Epoch{7});
  r.pass(600ms);
  r.read(renewal->to, 9);
  EXPECT_FALSE(r.election->leads());
}

// --- handing over ------------------------------------------------------------------------------------------------

TEST(Election, only_the_successor_of_a_hand_over_seals_at_once) {
  Rig chosen;
  chosen.follow();
  chosen.beacons->released(chosen.at(), {"p0"}, {1}, {chosen.partition, {5}, assignment(2)});
  chosen.step(Tick{});
  chosen.read(chosen.government(5, 1), 7);
  EXPECT_EQ(chosen.count<Seal>(), 1U);

  Rig other;
  other.follow();
  other.beacons->released(other.at(), {"p0"}, {1}, {other.partition, {5}, assignment(3)});
  other.step(Tick{});
  EXPECT_EQ(other.election->doing(), "waits for the leader's successor");
  other.votes({other.vote(3, {{5}, {100}})});
  other.read(other.government(5, 1), 7);
  EXPECT_EQ(other.count<Seal>(), 1U);
  other.step(Sealed{{6}, LogToken{{5}, {100}}});
  // Its own slot is lower, and yet the successor goes first.
  other.votes({other.vote(3, {{5}, {100}})});
  EXPECT_EQ(other.count<SwapGovernment>(), 0U);
  other.pass(kTurnThere);
  EXPECT_EQ(other.count<SwapGovernment>(), 1U);
}

TEST(Election, a_successor_that_does_nothing_is_not_waited_for) {
  Rig r;
  r.follow();
  r.beacons->released(r.at(), {"p0"}, {1}, {r.partition, {5}, assignment(3)});
  r.pass(550ms);
  EXPECT_EQ(r.count<ReadGovernment>(), 0U);
  r.pass(100ms);
  r.read(r.government(5, 1), 7);
  EXPECT_EQ(r.count<Seal>(), 1U);
}

// --- who is no voter ---------------------------------------------------------------------------------------------

TEST(Election, who_is_no_voter_follows_and_never_seals) {
  Rig r;
  auto g = r.government(5, 1);
  g.voters[1] = {1, {"p7"}, assignment(9)};
  r.read(g, 7);
  EXPECT_EQ(r.take<Follow>()->leader, ServerId{"p0"});
  r.silent.insert("p0");
  r.pass(5s);
  EXPECT_EQ(r.count<AskSuspect>(), 0U);
  EXPECT_EQ(r.count<Seal>(), 0U);
}

}  // namespace
}  // namespace cantle::proto

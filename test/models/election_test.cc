// Elections of a quorum table (design/replication.md, "Quorum tables: who leads"): seal, vote, the swap of the
// government, epoch start, commit, renewal; replicas die and lose what they had not synced. Voters A, B and C; D is a
// learner where the voters change, and one change adds it, swaps it in, or removes one of four. A block is one entry of
// a log, and a sync covers all of it.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kReplicas = 4, kLogMax = 6, kVoters = 3;
constexpr uint8_t kFirstVoters = 0b111;

enum class Broken : uint8_t {
  nothing,
  no_seal,               // a vote without a promise: the position it names may be old when it is counted
  any_promise,           // votes of other elections are counted, too
  seal_counts_as_log,    // a promise makes a short log look new
  leads_on_after_start,  // a leader that died goes on in its old epoch, and blocks are told apart by epoch and LSN
                         // alone
  no_joint_majority,     // until a leader knows that its change is made, the old voters are enough to commit
  no_joint_lease,        // … and for its lease
  unknown_is_not_made,   // … and it thinks that a change was not made when it has only not heard of it
  changed_by_others,     // a metadata transaction changes the voters, and the leader is not told
  changes_before_epoch_start,
  learner_not_level,
};

struct Replica {
  uint8_t promise, leads, serves, committed;
  uint8_t length, durable, log[kLogMax];  // an entry: epoch * 16 + number of the write, 0 for an epoch start
  uint8_t voted, token;                   // the promise and the position of its vote
  // A leader:
  uint8_t acked[kReplicas];  // how much of its log each has durable
  uint8_t voters, joint;     // the set that it knows, and the one of a change whose outcome it does not
};
struct State {
  uint8_t epoch, leader, voters;  // the government
  uint8_t swap;                   // of its voters, under way
  uint8_t writes, deaths, changes;
  uint8_t history_n, history[kLogMax];  // what was ever committed
  Replica replicas[kReplicas];
};
struct Bounds {
  uint8_t epochs, writes, deaths, changes;
  size_t states;
};

uint8_t epoch_of(uint8_t entry) { return entry >> 4; }
uint8_t entry_of(uint8_t epoch, uint8_t write) { return static_cast<uint8_t>(epoch * 16 + write); }

struct Model {
  Broken broken;
  Bounds bounds;
  using Out = Explorer<State>::Out;

  static void step_down(Replica& r) {
    r.leads = r.serves = r.voters = r.joint = 0;
    std::fill(std::begin(r.acked), std::end(r.acked), uint8_t{0});
  }
  static void lead(State& s, int i) {
    auto& r = s.replicas[i];
    step_down(r);
    r.leads = r.promise = s.epoch;
    r.voters = s.voters;
    s.swap = 0;  // it was for another version of the government
    r.log[r.length++] = entry_of(s.epoch, 0);
  }
  static bool has(unsigned set, int i) { return (set >> i & 1) != 0; }
  static bool majority(unsigned replicas, unsigned voters) {
    return std::popcount(replicas & voters) > std::popcount(voters) / 2;
  }
  static bool both_majorities(unsigned replicas, const Replica& leader) {
    return majority(replicas, leader.voters) && (leader.joint == 0 || majority(replicas, leader.joint));
  }
  static bool leads_now(const State& s, int i) { return s.leader == i + 1 && s.epoch == s.replicas[i].leads; }

  uint8_t position(const Replica& r) const {
    const uint8_t epoch = r.length == 0 ? uint8_t{0} : epoch_of(r.log[r.length - 1]);
    return static_cast<uint8_t>((broken == Broken::seal_counts_as_log ? r.promise : epoch) * 16 + r.length);
  }

  void write(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    if (r.serves != 0 && here.writes < bounds.writes && r.length < kLogMax) {
      State s = here;
      auto& next = s.replicas[i];
      next.log[next.length++] = entry_of(r.leads, ++s.writes);
      out.go(s, name_of(i) + " appends write " + std::to_string(s.writes));
    }
    if (r.durable < r.length) {
      State s = here;
      s.replicas[i].durable = s.replicas[i].acked[i] = r.length;
      out.go(s, name_of(i) + " syncs");
    }
  }

  // One block, or the cut of what the leader does not have; answered, or the answer is lost.
  void send(const State& here, int i, int j, Out& out) const {
    const uint8_t epoch = here.replicas[i].leads;
    if (here.replicas[j].promise > epoch || here.replicas[j].leads >= epoch) return;
    State s = here;
    const auto& from = s.replicas[i];
    auto& to = s.replicas[j];
    to.promise = epoch;
    if (to.leads != 0) step_down(to);
    const auto same = [&](uint8_t a, uint8_t b) {
      return broken == Broken::leads_on_after_start ? epoch_of(a) == epoch_of(b) : a == b;
    };
    uint8_t common = 0;
    while (common < from.length && common < to.length && same(from.log[common], to.log[common])) common++;
    for (; to.length > common; to.length--) to.log[to.length - 1] = 0;
    if (common < from.length) to.log[to.length++] = from.log[common];
    to.durable = to.length;
    const auto action = name_of(i) + " to " + name_of(j) + ": its log is " + std::to_string(to.length) + " long";
    out.go(s, action + ", the answer is lost");
    s.replicas[i].acked[j] = to.length;
    out.go(s, action);
  }

  void commit(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    for (uint8_t n = r.length; n > r.committed && epoch_of(r.log[n - 1]) == r.leads; n--) {
      unsigned have = 0;
      for (int j = 0; j < kReplicas; ++j)
        if (r.acked[j] >= n) have |= 1U << j;
      const bool enough = broken == Broken::no_joint_majority ? majority(have, r.voters) : both_majorities(have, r);
      if (!has(have, i) || !enough) continue;
      const auto action = name_of(i) + " commits up to " + std::to_string(n);
      if (!std::equal(r.log, r.log + std::min(n, here.history_n), here.history))
        return out.violation(action, "two histories are committed");
      State s = here;
      std::copy(r.log, r.log + n, s.history);
      s.history_n = std::max(s.history_n, n);
      s.replicas[i].committed = n;
      s.replicas[i].serves = 1;
      if (r.serves == 0 && s.epoch == r.leads &&
          (r.length < here.history_n || !std::equal(here.history, here.history + here.history_n, r.log)))
        return out.violation(action, "a leader serves without a committed entry");
      return out.go(s, action);
    }
  }

  // A voter promised more than this leader's epoch, and no election followed.
  void renew(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    const bool promised_more = std::any_of(here.replicas, here.replicas + kReplicas,
                                           [&](const Replica& other) { return other.promise == here.epoch + 1; });
    if (!leads_now(here, i) || !promised_more || here.epoch == bounds.epochs || r.length == kLogMax) return;
    State s = here;
    s.epoch++;
    lead(s, i);
    out.go(s, name_of(i) + " renews its government at epoch " + std::to_string(s.epoch));
  }

  void elect(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    const auto next = static_cast<uint8_t>(here.epoch + 1);
    if (here.epoch == bounds.epochs || !has(here.voters, i)) return;
    const bool seals = broken != Broken::no_seal;
    if (seals && r.promise < next) {
      State s = here;
      s.replicas[i].promise = next;
      step_down(s.replicas[i]);
      out.go(s, name_of(i) + " seals " + std::to_string(next));
    }
    if ((seals ? r.promise == next : r.leads == 0) && r.voted != next) {
      State s = here;
      s.replicas[i].voted = next;
      s.replicas[i].token = position(r);
      out.go(s, name_of(i) + " votes for " + std::to_string(next));
    }
    const auto counts = [&](const Replica& v) {
      return broken == Broken::any_promise ? v.voted != 0 : v.voted == next;
    };
    unsigned below = 0;
    for (int j = 0; j < kReplicas; ++j)
      if (counts(here.replicas[j]) && here.replicas[j].token <= r.token) below |= 1U << j;
    const bool promised = r.promise == next || broken == Broken::no_seal || broken == Broken::any_promise;
    if (!counts(r) || !promised || !majority(below, here.voters) || r.length == kLogMax) return;
    State s = here;
    s.epoch++;
    s.leader = static_cast<uint8_t>(i + 1);
    lead(s, i);
    out.go(s, name_of(i) + " is elected for epoch " + std::to_string(s.epoch));
  }

  void die(const State& here, int i, Out& out) const {
    if (here.deaths == bounds.deaths) return;
    State s = here;
    s.deaths++;
    auto& r = s.replicas[i];
    const uint8_t led = r.leads;
    for (; r.length > r.durable; r.length--) r.log[r.length - 1] = 0;
    r.committed = std::min(r.committed, r.length);
    step_down(r);
    if (broken == Broken::leads_on_after_start && led != 0 && s.leader == i + 1 && s.epoch == led) {
      r.leads = led;
      r.serves = 1;
      r.voters = s.voters;
      r.acked[i] = r.length;
    }
    out.go(s, name_of(i) + " dies and starts again");
  }

  // The leader, with an addition, a removal or a swap; the compare-and-swap of the government is sent.
  void change_voters(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    const bool started = r.serves != 0 || broken == Broken::changes_before_epoch_start;
    if (here.changes == bounds.changes || r.joint != 0 || !started || !leads_now(here, i) || r.voters != here.voters)
      return;
    for (unsigned target = 1; target < 1U << kReplicas; ++target) {
      if (!is_one_change(r.voters, target) || !has(target, i)) continue;
      const auto level = [&](int j) { return has(r.voters, j) || !has(target, j) || r.acked[j] >= r.committed; };
      bool all_level = true;
      for (int j = 0; j < kReplicas; ++j) all_level = all_level && level(j);
      if (!all_level && broken != Broken::learner_not_level) continue;
      State s = here;
      s.changes++;
      s.swap = s.replicas[i].joint = static_cast<uint8_t>(target);
      out.go(s, name_of(i) + " wants the voters to be " + names_of(target));
    }
  }
  static bool is_one_change(unsigned from, unsigned to) {
    return std::popcount(to) >= kVoters && std::popcount(to & ~from) <= 1 && std::popcount(from & ~to) <= 1 &&
           from != to;
  }
  static std::string names_of(unsigned set) {
    std::string names;
    for (int i = 0; i < kReplicas; ++i)
      if (has(set, i)) names += name_of(i);
    return names;
  }

  void learn_outcome(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    if (r.joint == 0 || !leads_now(here, i)) return;
    State s = here;
    s.replicas[i].joint = 0;
    if (here.voters == r.joint) {
      s.replicas[i].voters = r.joint;
      return out.go(s, name_of(i) + " learns that they are");
    }
    if (broken != Broken::unknown_is_not_made) s.swap = 0;
    out.go(s, name_of(i) + (s.swap == 0 ? " moves the version on: the change cannot be made any more"
                                        : " heard nothing, and thinks that the change is not made"));
  }

  void government(const State& here, Out& out) const {
    if (here.swap != 0) {
      State s = here;
      s.voters = here.swap;
      s.swap = 0;
      out.go(s, "the voters are " + names_of(s.voters));
    }
    if (broken != Broken::changed_by_others || here.changes == bounds.changes) return;
    for (unsigned target = 1; target < 1U << kReplicas; ++target) {
      if (!is_one_change(here.voters, target) || !has(target, here.leader - 1)) continue;
      const auto& learner = here.replicas[kVoters];
      if (learner.durable < here.history_n || !std::equal(here.history, here.history + here.history_n, learner.log))
        continue;
      State s = here;
      s.changes++;
      s.voters = static_cast<uint8_t>(target);
      out.go(s, "a metadata transaction makes the voters " + names_of(target));
    }
  }

  // A voter seals when its promise is over: until then it may be counted for a lease (lease_test.cc has the clocks).
  bool may_have_lease(const State& s, int i) const {
    const auto& r = s.replicas[i];
    unsigned unsealed = 0;
    for (int j = 0; j < kReplicas; ++j)
      if (s.replicas[j].promise <= r.leads) unsealed |= 1U << j;
    return r.serves != 0 &&
           (broken == Broken::no_joint_lease ? majority(unsealed, r.voters) : both_majorities(unsealed, r));
  }
  void check_leases(const State& here, Out& out) const {
    for (int i = 0; i < kReplicas; ++i)
      for (int j = 0; j < kReplicas; ++j)
        if (here.replicas[j].serves != 0 && here.replicas[j].leads > here.replicas[i].leads && may_have_lease(here, i))
          out.violation(name_of(i) + " answers a read", name_of(j) + " serves while the lease may be valid");
  }

  void operator()(const State& here, Out& out) const {
    if (bounds.changes != 0) {
      check_leases(here, out);
      government(here, out);
    }
    const int replicas = bounds.changes == 0 ? kVoters : kReplicas;
    for (int i = 0; i < replicas; ++i) {
      if (here.replicas[i].leads != 0) {
        write(here, i, out);
        for (int j = 0; j < replicas; ++j)
          if (j != i) send(here, i, j, out);
        commit(here, i, out);
        renew(here, i, out);
        change_voters(here, i, out);
        learn_outcome(here, i, out);
      }
      elect(here, i, out);
      die(here, i, out);
    }
  }
};

State first_government(int leader) {
  State s{};
  s.epoch = 1;
  s.leader = static_cast<uint8_t>(leader + 1);
  s.voters = kFirstVoters;
  for (auto& r : s.replicas) r.promise = 1;
  Model::lead(s, leader);
  return s;
}

// C led epoch 1, and committed its start with A; A, elected for epoch 2 by both, does not know that it did.
State second_government() {
  State s = first_government(2);
  s.history[s.history_n++] = entry_of(1, 0);
  s.replicas[2].committed = 1;
  s.epoch = 2;
  s.leader = 1;
  for (auto* r : {&s.replicas[0], &s.replicas[2]}) {
    Model::step_down(*r);
    r->promise = r->voted = 2;
    r->log[0] = entry_of(1, 0);
    r->length = r->durable = 1;
    r->token = entry_of(1, 1);
  }
  Model::lead(s, 0);
  return s;
}

Found explore(Broken broken, const Bounds& bounds) {
  const State initial = bounds.changes == 0 ? first_government(0) : second_government();
  return Explorer<State>(Model{broken, bounds}).run(initial, bounds.states);
}

bool more() {
  const char* how = std::getenv("MODELS");
  return how != nullptr && std::string_view(how) == "long";
}

TEST(ElectionModel, what_was_committed_stays_and_every_leader_has_it) {
  const auto found = explore(Broken::nothing, more() ? Bounds{3, 2, 1, 0, 20'000'000} : Bounds{3, 1, 1, 0, 4'000'000});
  EXPECT_EQ(found.violation, "") << text_of(found);
  EXPECT_TRUE(found.exhausted) << text_of(found);
}

TEST(ElectionModel, each_rule_is_needed) {
  for (const auto broken :
       {Broken::no_seal, Broken::any_promise, Broken::seal_counts_as_log, Broken::leads_on_after_start}) {
    const auto found = explore(broken, {3, 2, 1, 0, 3'000'000});
    EXPECT_NE(found.violation, "") << static_cast<int>(broken) << ": " << text_of(found);
  }
}

TEST(ElectionModel, the_second_government_comes_about) {
  const Model model{Broken::nothing, {2, 0, 0, 0, 0}};
  EXPECT_TRUE(Explorer<State>::leads_to(model, first_government(2), second_government(), 1'000'000));
}

TEST(ElectionModel, nothing_is_lost_while_the_voters_change) {
  const auto all_bounds = more() ? std::vector<Bounds>{{3, 2, 0, 1, 25'000'000}, {3, 1, 1, 2, 25'000'000}}
                                 : std::vector<Bounds>{{3, 1, 0, 1, 4'000'000}, {3, 0, 1, 2, 4'000'000}};
  for (const auto& bounds : all_bounds) {
    const auto found = explore(Broken::nothing, bounds);
    EXPECT_EQ(found.violation, "") << text_of(found);
    EXPECT_TRUE(found.exhausted) << text_of(found);
  }
}

TEST(ElectionModel, each_rule_of_a_change_of_voters_is_needed) {
  for (const auto broken : {Broken::no_joint_majority, Broken::no_joint_lease, Broken::unknown_is_not_made,
                            Broken::changed_by_others, Broken::changes_before_epoch_start, Broken::learner_not_level}) {
    const auto found = explore(broken, {3, 1, 0, 1, 2'000'000});
    EXPECT_NE(found.violation, "") << static_cast<int>(broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

// Elections of a quorum table (design/replication.md, "Quorum tables: who leads"): seal, vote, the swap of the
// government, epoch start, commit, renewal; replicas die and lose what they had not synced. Three voters. A block is
// one entry of a log, and a sync covers all of it.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kReplicas = 3, kLogMax = 7;

enum class Broken : uint8_t {
  nothing,
  no_seal,               // a vote without a promise: the position it names may be old when it is counted
  any_promise,           // votes of other elections are counted, too
  seal_counts_as_log,    // a promise makes a short log look new
  leads_on_after_start,  // a leader that died goes on in its old epoch, and blocks are told apart by epoch and LSN
                         // alone
};

struct Replica {
  uint8_t promise, leads, serves, committed;
  uint8_t length, durable, log[kLogMax];  // an entry: epoch * 16 + number of the write, 0 for an epoch start
  uint8_t voted, token;                   // the promise and the position of its vote
  uint8_t acked[kReplicas];               // a leader: how much of its log each has durable
};
struct State {
  uint8_t epoch, leader;  // the government
  uint8_t writes, deaths;
  uint8_t history_n, history[kLogMax];  // what was ever committed
  Replica replicas[kReplicas];
};
struct Bounds {
  uint8_t epochs, writes, deaths;
  size_t states;
};

uint8_t epoch_of(uint8_t entry) { return entry >> 4; }
uint8_t entry_of(uint8_t epoch, uint8_t write) { return static_cast<uint8_t>(epoch * 16 + write); }

struct Model {
  Broken broken;
  Bounds bounds;
  using Out = Explorer<State>::Out;

  static void step_down(Replica& r) {
    r.leads = r.serves = 0;
    std::fill(std::begin(r.acked), std::end(r.acked), uint8_t{0});
  }
  static void lead(State& s, int i) {
    auto& r = s.replicas[i];
    step_down(r);
    r.leads = r.promise = s.epoch;
    r.log[r.length++] = entry_of(s.epoch, 0);
  }
  static bool majority(unsigned replicas) { return std::popcount(replicas) > kReplicas / 2; }

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
      if ((have >> i & 1) == 0 || !majority(have)) continue;
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
    const bool leads_now = here.leader == i + 1 && here.epoch == r.leads;
    const bool promised_more = std::any_of(here.replicas, here.replicas + kReplicas,
                                           [&](const Replica& other) { return other.promise == here.epoch + 1; });
    if (!leads_now || !promised_more || here.epoch == bounds.epochs || r.length == kLogMax) return;
    State s = here;
    s.epoch++;
    lead(s, i);
    out.go(s, name_of(i) + " renews its government at epoch " + std::to_string(s.epoch));
  }

  void elect(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    const auto next = static_cast<uint8_t>(here.epoch + 1);
    if (here.epoch == bounds.epochs) return;
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
    if (!counts(r) || !promised || !majority(below) || r.length == kLogMax) return;
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
      r.acked[i] = r.length;
    }
    out.go(s, name_of(i) + " dies and starts again");
  }

  void operator()(const State& here, Out& out) const {
    for (int i = 0; i < kReplicas; ++i) {
      if (here.replicas[i].leads != 0) {
        write(here, i, out);
        for (int j = 0; j < kReplicas; ++j)
          if (j != i) send(here, i, j, out);
        commit(here, i, out);
        renew(here, i, out);
      }
      elect(here, i, out);
      die(here, i, out);
    }
  }
};

// A leads epoch 1, and has written its epoch start.
Found explore(Broken broken, const Bounds& bounds) {
  State s{};
  s.epoch = s.leader = 1;
  for (auto& r : s.replicas) r.promise = 1;
  Model::lead(s, 0);
  return Explorer<State>(Model{broken, bounds}).run(s, bounds.states);
}

TEST(ElectionModel, what_was_committed_stays_and_every_leader_has_it) {
  const char* how = std::getenv("MODELS");
  const bool more = how != nullptr && std::string_view(how) == "long";
  const auto found = explore(Broken::nothing, more ? Bounds{3, 2, 1, 20'000'000} : Bounds{3, 1, 1, 4'000'000});
  EXPECT_EQ(found.violation, "") << text_of(found);
  EXPECT_TRUE(found.exhausted) << text_of(found);
}

TEST(ElectionModel, each_rule_is_needed) {
  for (const auto broken :
       {Broken::no_seal, Broken::any_promise, Broken::seal_counts_as_log, Broken::leads_on_after_start}) {
    const auto found = explore(broken, {3, 2, 1, 3'000'000});
    EXPECT_NE(found.violation, "") << static_cast<int>(broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

// The leader's lease (design/replication.md, "Quorum tables: reads"): a follower that answers a beacon promises not to
// seal for a while, and the leader counts that from the beacon's sending. A leads; can another one serve while A still
// believes in its lease? Time goes in whole steps, without drift; messages are late, lost and overtake each other.
#include <gtest/gtest.h>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kVoters = 3;
constexpr uint8_t kPromise = 2, kEnd = 4;  // steps
constexpr size_t kUnderWay = 2;            // messages at once
constexpr size_t kStatesMax = 8'000'000;

enum class Broken : uint8_t { nothing, restart_forgets, answers_after_sealing, counts_from_receipt, seals_at_once };

enum Kind : uint8_t { kNone, kBeacon, kAnswer };
struct Message {
  uint8_t kind, voter, sent;
  auto operator<=>(const Message&) const = default;
};
struct Voter {
  uint8_t sealed, promised_until, restarted;
  uint8_t lease_until;  // as A heard of this voter's promise
};
struct State {
  uint8_t now, other_serves;
  Voter voters[kVoters];  // A first
  Message under_way[kUnderWay];
};

struct Model {
  Broken broken;

  static void put(State& s, size_t slot, const Message& m) {
    s.under_way[slot] = m;
    std::sort(std::begin(s.under_way), std::end(s.under_way));  // the order in which they were sent means nothing
  }

  void deliver(const State& here, size_t slot, Explorer<State>::Out& out) const {
    const Message m = here.under_way[slot];
    State lost = here;
    put(lost, slot, {});
    out.go(lost, "a message is lost");
    State s = here;
    auto& v = s.voters[m.voter];
    const std::string who = name_of(m.voter), when = "at " + std::to_string(s.now) + " ";
    if (m.kind == kAnswer) {
      const int from = broken == Broken::counts_from_receipt ? s.now : m.sent;
      v.lease_until = std::max<uint8_t>(v.lease_until, static_cast<uint8_t>(from + kPromise));
      put(s, slot, {});
      return out.go(s, when + "A hears " + who + ": a lease until " + std::to_string(v.lease_until));
    }
    if (v.sealed != 0 && broken != Broken::answers_after_sealing) return;
    v.promised_until = std::max<uint8_t>(v.promised_until, static_cast<uint8_t>(s.now + kPromise));
    put(s, slot, {kAnswer, m.voter, m.sent});
    out.go(s, when + who + " answers, and promises until " + std::to_string(v.promised_until));
  }

  void operator()(const State& here, Explorer<State>::Out& out) const {
    const std::string when = "at " + std::to_string(here.now) + " ";
    const uint8_t lease = std::max(here.voters[1].lease_until, here.voters[2].lease_until);
    if (here.other_serves != 0 && here.voters[0].sealed == 0 && here.now < lease)
      return out.violation(when + "A answers a read", "another leader serves while A's lease is valid");
    if (here.now < kEnd) {
      State s = here;
      s.now++;
      out.go(s, "it is " + std::to_string(s.now));
    }
    for (uint8_t v = 1; v < kVoters; ++v) {
      if (here.voters[0].sealed == 0 && here.under_way[0].kind == kNone) {
        State s = here;
        put(s, 0, {kBeacon, v, s.now});
        out.go(s, when + "A sends a beacon to " + name_of(v));
      }
      if (here.voters[v].restarted == 0) {  // what it promised it cannot know
        State s = here;
        auto& voter = s.voters[v];
        voter.restarted = 1;
        voter.promised_until = broken == Broken::restart_forgets
                                   ? uint8_t{0}
                                   : std::max<uint8_t>(voter.promised_until, static_cast<uint8_t>(s.now + kPromise));
        out.go(s, when + name_of(v) + " starts again");
      }
    }
    for (size_t slot = 0; slot < kUnderWay; ++slot)
      if (here.under_way[slot].kind != kNone) deliver(here, slot, out);
    int sealed = 0;
    for (int v = 0; v < kVoters; ++v) {
      const auto& voter = here.voters[v];
      sealed += voter.sealed;
      if (voter.sealed != 0 || (here.now < voter.promised_until && broken != Broken::seals_at_once)) continue;
      State s = here;
      s.voters[v].sealed = 1;
      out.go(s, when + name_of(v) + " seals and votes");
    }
    if (here.other_serves == 0 && sealed > kVoters / 2) {
      State s = here;
      s.other_serves = 1;
      out.go(s, when + "another leader is elected and serves");
    }
  }
};

Found explore(Broken broken) { return Explorer<State>(Model{broken}).run(State{}, kStatesMax); }

TEST(LeaseModel, nobody_else_serves_while_the_lease_is_valid) {
  const auto found = explore(Broken::nothing);
  EXPECT_EQ(found.violation, "") << text_of(found);
  EXPECT_TRUE(found.exhausted);
}

TEST(LeaseModel, each_rule_is_needed) {
  for (const auto broken :
       {Broken::restart_forgets, Broken::answers_after_sealing, Broken::counts_from_receipt, Broken::seals_at_once}) {
    const auto found = explore(broken);
    EXPECT_NE(found.violation, "") << static_cast<int>(broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

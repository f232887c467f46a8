// The compare-and-swap of METADATA (design/metadata.md; S27, S28): a change is stored as a file on a majority, and
// TableConfig swapped to it. Two metadata servers get the same change, the second as a retry by a client that heard
// nothing; a third commits another one at any time. The replies of the coordination service are lost, and a swap may be
// carried out long after its sender gave up.
#include <gtest/gtest.h>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kServers = 3, kProposers = 2, kChainMax = 3;
constexpr uint8_t kOther = 7;  // transaction of the change that somebody else makes
constexpr size_t kStatesMax = 1'000'000;

enum class Broken : uint8_t {
  nothing,
  does_not_look_first,
  no_fence,
  own_change_is_a_conflict,
  sweeps_what_is_not_current
};

enum Phase : uint8_t { kIdle, kRead, kStored, kSent, kUnknown, kRefused, kSaidDone, kSaidFailed };
struct Proposer {
  uint8_t phase, version, txn;  // what it read; its own transaction
};
struct Swap {
  uint8_t under_way, version, txn;
};
struct Made {
  uint8_t is_ours, txn;
};
struct State {
  uint8_t version, txn;  // TableConfig
  uint8_t made_n, next_txn, other_done, told_wrong;
  Made made[kChainMax];     // the chain of changes that are committed
  uint8_t files[kServers];  // a bit for each transaction
  Proposer proposers[kProposers];
  Swap swaps[kProposers];
};

uint8_t bit(uint8_t txn) { return static_cast<uint8_t>(1U << txn); }
int ours_made(const State& s) {
  return static_cast<int>(std::count_if(s.made, s.made + s.made_n, [](const Made& m) { return m.is_ours != 0; }));
}
bool in_chain(const State& s, uint8_t txn) {
  return std::any_of(s.made, s.made + s.made_n, [&](const Made& m) { return m.txn == txn; });
}
void commit(State& s, bool ours, uint8_t txn) {
  s.version++;
  s.txn = txn;
  s.made[s.made_n++] = {static_cast<uint8_t>(ours), txn};
}

struct Model {
  Broken broken;

  void check(const State& s, const std::string& action, Explorer<State>::Out& out) const {
    int have = 0;
    for (const auto files : s.files) have += (files & bit(s.txn)) != 0;
    if (have <= kServers / 2) return out.violation(action, "the current file is not on a majority");
    if (ours_made(s) > 1) return out.violation(action, "the change was made twice");
    if (s.told_wrong != 0) return out.violation(action, "a change that is committed was called a conflict");
    for (const auto& p : s.proposers)
      if (p.phase == kSaidFailed && in_chain(s, p.txn))
        return out.violation(action, "a change was called failed, and its transaction is committed");
    out.go(s, action);
  }

  static void forget(State& s, uint8_t txn) {
    for (auto& files : s.files) files &= static_cast<uint8_t>(~bit(txn));
  }

  void propose(const State& here, int n, Explorer<State>::Out& out) const {
    const auto who = "m" + std::to_string(n + 1);
    State s = here;
    auto& p = s.proposers[n];
    const bool made = ours_made(here) > 0;
    const auto done = [&](const std::string& action) {
      p.phase = kSaidDone;
      check(s, who + action, out);
    };
    const auto failed = [&](const std::string& action) {
      p.phase = kSaidFailed;
      forget(s, p.txn);
      check(s, who + action, out);
    };
    switch (p.phase) {
      case kIdle:
        if (n > 0 && here.proposers[0].phase == kIdle) return;  // the retry comes second
        if (made && broken == Broken::own_change_is_a_conflict) {
          p.phase = kSaidFailed;
          s.told_wrong = 1;
          return check(s, who + " finds a map that the change does not fit any more: conflict", out);
        }
        if (made && broken != Broken::does_not_look_first) return done(" finds the change in the chain: done");
        p = {kRead, s.version, s.next_txn++};
        return check(s, who + " reads version " + std::to_string(p.version), out);
      case kRead:
        p.phase = kStored;
        for (const int left_out : {0, 2, kServers}) {
          State t = s;
          for (int i = 0; i < kServers; ++i)
            if (i != left_out) t.files[i] |= bit(p.txn);
          check(t, who + " has t" + std::to_string(p.txn) + " stored by a majority", out);
        }
        return;
      case kStored:
        p.phase = kSent;
        s.swaps[n] = {1, p.version, p.txn};
        return check(s, who + " sends the swap", out);
      case kSent: p.phase = kUnknown; return check(s, who + " loses its connection", out);
      case kUnknown:
        if (made) return done(" finds the change in the chain: done");
        // Only when the version has moved on can its swap not come any more: the proposer sees to that itself.
        if (here.version != p.version || broken == Broken::no_fence) return failed(" calls it failed and cleans up");
        s.version++;
        return check(s, who + " moves the version on", out);
      case kRefused:
        if (made) return done(" was refused, and finds the change in the chain: done");
        return failed(" was refused: conflict");
      default: return;
    }
  }

  void carry_out(const State& here, int n, Explorer<State>::Out& out) const {
    const Swap swap = here.swaps[n];
    if (swap.under_way == 0) return;
    State s = here;
    s.swaps[n] = {};
    const bool fits = swap.version == s.version;
    if (fits) commit(s, true, swap.txn);
    const std::string action =
        "the swap of m" + std::to_string(n + 1) + " is " + (fits ? "carried out" : "refused: another version");
    auto& p = s.proposers[n];
    if (p.phase != kSent) return check(s, action, out);
    p.phase = kUnknown;
    check(s, action + ", the reply is lost", out);
    p.phase = fits ? kSaidDone : kRefused;
    check(s, action, out);
  }

  void operator()(const State& here, Explorer<State>::Out& out) const {
    for (int n = 0; n < kProposers; ++n) {
      propose(here, n, out);
      carry_out(here, n, out);
    }
    if (here.other_done == 0) {
      State s = here;
      s.other_done = 1;
      for (auto& files : s.files) files |= bit(kOther);
      commit(s, false, kOther);
      check(s, "m3 commits another change", out);
    }
    if (broken != Broken::sweeps_what_is_not_current) return;
    for (int i = 0; i < kServers; ++i)
      for (uint8_t txn = 1; txn < here.next_txn; ++txn) {
        if ((here.files[i] & bit(txn)) == 0 || txn == here.txn || in_chain(here, txn)) continue;
        State s = here;
        s.files[i] &= static_cast<uint8_t>(~bit(txn));
        check(s, "server " + std::to_string(i) + " sweeps t" + std::to_string(txn), out);
      }
  }
};

Found explore(Broken broken) {
  State initial{};
  initial.next_txn = 1;
  for (auto& files : initial.files) files = bit(0);
  return Explorer<State>(Model{broken}).run(initial, kStatesMax);
}

TEST(MetadataModel, a_change_is_made_once_and_nothing_is_said_that_is_not_so) {
  const auto found = explore(Broken::nothing);
  EXPECT_EQ(found.violation, "") << text_of(found);
  EXPECT_TRUE(found.exhausted);
}

TEST(MetadataModel, each_rule_is_needed) {
  for (const auto broken : {Broken::does_not_look_first, Broken::no_fence, Broken::own_change_is_a_conflict,
                            Broken::sweeps_what_is_not_current}) {
    const auto found = explore(broken);
    EXPECT_NE(found.violation, "") << static_cast<int>(broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

// METADATA and the government while a replica of a quorum table is replaced (design/replication.md, "Quorum tables: who
// leads"; reshape.md, "Move"): METADATA says who should vote, the government who does, and METADATA takes out only who
// does not. A is replaced by D; that is made final, or cancelled and undone. Whoever leads knows some map, an old one
// perhaps, and its swap may arrive long after it was sent; the driver decides from a government that it read before.
// election_test.cc has what a swap of voters is in the log.
#include <gtest/gtest.h>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kLeaders = 2;  // B and C, which stay; one of them at a time

enum class Broken : uint8_t {
  nothing,
  swap_by_any_map,       // a leader does what its map says, whatever map the government is of
  final_unseen,          // METADATA is made final without a look at the government
  undone_when_it_looks,  // … and undone as soon as the old one votes, be it by the older map
  swap_at_any_version,   // a swap that comes late is made
};
enum Move : uint8_t { kUnderWay = 1, kCancelled = 2, kFinal = 3, kUndone = 4 };  // METADATA, and what a server knows

struct Swap {
  uint8_t sent, version, new_votes, map;
};
struct State {
  uint8_t move;                          // METADATA
  uint8_t version, new_votes, map;       // the government: D votes instead of A, by that map
  uint8_t knows[kLeaders];               // the map
  uint8_t leads;                         // which of them
  Swap swaps[kLeaders];                  // on their way
  uint8_t seen, saw_new_votes, saw_map;  // the driver: what it has read, if it has
};

// The map's transactions: 1 the replacement, 2 its end by FINALIZE_MOVE or its cancellation, 3 the end of that.
uint8_t txnseq_of(uint8_t move) { return move == kUnderWay ? 1 : move == kUndone ? 3 : 2; }
bool wants_new(uint8_t move) { return move == kUnderWay || move == kFinal; }

struct Model {
  Broken broken;
  using Out = Explorer<State>::Out;

  // Who METADATA has taken out is dropped by its server, with its log.
  static void go(const State& s, const std::string& action, Out& out) {
    if (s.move == kFinal && s.new_votes == 0) return out.violation(action, "A votes, and METADATA has taken it out");
    if (s.move == kUndone && s.new_votes != 0) return out.violation(action, "D votes, and METADATA has taken it out");
    out.go(s, action);
  }

  void lead(const State& here, Out& out) const {
    const int i = here.leads;
    State s = here;
    s.leads = static_cast<uint8_t>(1 - i);
    go(s, name_of(2 - i) + " leads", out);
    const uint8_t map = here.knows[i];
    if (map == 0 || here.swaps[i].sent != 0) return;
    const auto seq = txnseq_of(map);
    const bool wants = wants_new(map), changes = wants != (here.new_votes != 0);
    // Of a cancelled move it says which map it knows, also where it swaps nobody.
    if (!changes && !(map == kCancelled && here.map < seq)) return;
    if (seq < here.map && broken != Broken::swap_by_any_map) return;
    s = here;
    s.swaps[i] = {1, here.version, static_cast<uint8_t>(wants), seq};
    go(s, name_of(i + 1) + " sends a swap", out);
  }
  void arrive(const State& here, int i, Out& out) const {
    if (here.swaps[i].sent == 0) return;
    State s = here;
    const Swap swap = s.swaps[i];
    s.swaps[i] = {};
    go(s, "a swap of " + name_of(i + 1) + " is lost, or was for another version", out);
    if ((swap.version != here.version && broken != Broken::swap_at_any_version) || here.version == 6) return;
    s.version++;
    s.new_votes = swap.new_votes;
    s.map = swap.map;
    go(s, "a swap of " + name_of(i + 1) + " is made: " + (swap.new_votes != 0 ? "D" : "A") + " votes", out);
  }
  static void learn(const State& here, int i, Out& out) {
    if (here.knows[i] == here.move) return;
    State s = here;
    s.knows[i] = here.move;
    go(s, name_of(i + 1) + " reads METADATA", out);
  }

  void drive(const State& here, Out& out) const {
    State s = here;
    s.seen = 1;
    s.saw_new_votes = here.new_votes;
    s.saw_map = here.map;
    go(s, "the driver reads the government", out);
    s = here;
    s.seen = s.saw_new_votes = s.saw_map = 0;
    const auto commit = [&](Move move, const std::string& what) {
      s.move = move;
      go(s, what + " is committed", out);
    };
    if (here.move == kUnderWay) commit(kCancelled, "CANCEL_MOVE");
    const bool final = here.seen != 0 && here.saw_new_votes != 0;
    if (here.move == kUnderWay && (final || broken == Broken::final_unseen)) commit(kFinal, "FINALIZE_MOVE");
    const bool by_that_map = here.saw_map >= txnseq_of(kCancelled) || broken == Broken::undone_when_it_looks;
    if (here.move == kCancelled && here.seen != 0 && here.saw_new_votes == 0 && by_that_map)
      commit(kUndone, "the second CANCEL_MOVE");
  }

  void operator()(const State& here, Out& out) const {
    lead(here, out);
    drive(here, out);
    for (int i = 0; i < kLeaders; ++i) {
      arrive(here, i, out);
      learn(here, i, out);
    }
  }
};

Found explore(Broken broken) {
  State initial{};
  initial.move = kUnderWay;
  return Explorer<State>(Model{broken}).run(initial, 4'000'000);
}

TEST(VotersModel, who_metadata_takes_out_never_votes_again) {
  const auto found = explore(Broken::nothing);
  EXPECT_EQ(found.violation, "") << text_of(found);
  EXPECT_TRUE(found.exhausted) << text_of(found);
}

TEST(VotersModel, each_rule_is_needed) {
  const std::string a = "A votes, and METADATA has taken it out", d = "D votes, and METADATA has taken it out";
  const std::pair<Broken, std::string> cases[] = {{Broken::swap_by_any_map, d},
                                                  {Broken::final_unseen, a},
                                                  {Broken::undone_when_it_looks, d},
                                                  {Broken::swap_at_any_version, d}};
  for (const auto& [broken, what] : cases) {
    const auto found = explore(broken);
    EXPECT_EQ(found.violation, what) << static_cast<int>(broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

// A merge of two partitions of a quorum table (design/reshape.md, "Merge"): both leaders cut their logs and report who
// has the cut; FINALIZE_MERGE is committed when a majority is in both reports; who has both cuts becomes a voter of the
// target with the data of both, who has not becomes one without a log. ABORT_MERGE, seen in METADATA, lets the leaders
// take their reports and then their cuts back. Three servers, which have both partitions and the target. Of each log
// only the cut is here, and that it is committed, which is how it is reported: cut_test.cc has the rest. That a server
// has the cut is told to the leader late, or not at all.
#include <gtest/gtest.h>

#include <bit>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kServers = 3;
constexpr uint8_t kAll = 7, kWrites = 1, kVersions = 3;

enum class Broken : uint8_t {
  nothing,
  each_majority_alone,   // both cuts are committed: no server need have both
  holders_who_have_not,  // a report names who has not confirmed the cut
  one_cut_is_enough,     // who has one of the cuts makes the target of what it has
  votes_before_merge,    // who has both cuts takes part in the target before its copies are one
  uncut_by_silence,      // a cut is taken back without the attempt's end in METADATA
};

enum Status : uint8_t { kUnderWay, kAborted, kFinalized };
enum Role : uint8_t { kAway, kEmpty, kHalf, kWhole };

struct Part {
  uint8_t wrote;         // acknowledged
  uint8_t open, at_cut;  // the attempt whose cut the log ends in, and what was acknowledged before it
  uint8_t has;           // the servers whose log has the cut
  uint8_t reported, holders, version;
};
struct Seen {
  uint8_t reported, holders, version;
};
struct State {
  uint8_t attempt, status;
  Part part[2];
  Seen seen[2];  // by the driver
  uint8_t roles[kServers];
};

bool majority(uint8_t servers) { return std::popcount(servers) * 2 > kServers; }
std::string servers_text(uint8_t servers) {
  std::string text;
  for (int i = 0; i < kServers; ++i)
    if ((servers >> i & 1) != 0) text += static_cast<char>('A' + i);
  return text;
}

struct Model {
  Broken broken;
  uint8_t attempts;
  using Out = Explorer<State>::Out;

  bool is_over(const State& s, const Part& p) const { return p.open < s.attempt || s.status == kAborted; }

  void lead(const State& here, int i, Out& out) const {
    const std::string name = i == 0 ? "low's leader" : "high's leader";
    const auto& p = here.part[i];
    const auto go = [&](const Part& next, const std::string& what) {
      State s = here;
      s.part[i] = next;
      out.go(s, name + " " + what);
    };
    if (p.open == 0) {
      if (p.wrote < kWrites) {
        Part next = p;
        next.wrote++;
        go(next, "acknowledges a write");
      }
      for (uint8_t has = 1; has <= kAll && here.status != kFinalized; ++has) {
        if (!majority(has)) continue;
        Part next = p;
        next.open = here.attempt;
        next.at_cut = p.wrote;
        next.has = has;
        go(next, "has cut its log on " + servers_text(has));
      }
      return;
    }
    for (int j = 0; j < kServers; ++j) {
      Part next = p;
      next.has = static_cast<uint8_t>(next.has | 1U << j);
      if (next.has != p.has) go(next, "sends the cut to " + servers_text(static_cast<uint8_t>(1U << j)));
    }
    if (p.version == kVersions) return;
    for (uint8_t holders = 1; holders <= kAll; ++holders) {
      const bool true_of_them = (holders & ~p.has) == 0 || broken == Broken::holders_who_have_not;
      if (!majority(holders) || !true_of_them || (p.reported == p.open && (p.holders & ~holders) != 0)) continue;
      Part next = p;
      next.reported = p.open;
      next.holders = holders;
      next.version++;
      if (here.status != kFinalized) go(next, "reports that " + servers_text(holders) + " have the cut");
    }
    const bool over = here.status != kFinalized && (is_over(here, p) || broken == Broken::uncut_by_silence);
    if (over && p.reported != 0) {
      Part next = p;
      next.reported = next.holders = 0;
      next.version++;
      go(next, "takes its report back");
    }
    if (over && (p.reported == 0 || broken == Broken::uncut_by_silence)) {
      State s = here;
      s.part[i].open = s.part[i].has = 0;
      out.go(s, name + " takes its cut back");
    }
  }

  void metadata(const State& here, Out& out) const {
    State s = here;
    if (here.status == kUnderWay) {
      s.status = kAborted;
      out.go(s, "ABORT_MERGE is committed");
    } else if (here.status == kAborted && here.attempt < attempts) {
      s.status = kUnderWay;
      s.attempt++;
      out.go(s, "MERGE is committed, attempt " + std::to_string(s.attempt));
    }
    for (int i = 0; i < 2; ++i) {
      s = here;
      s.seen[i] = {here.part[i].reported, here.part[i].holders, here.part[i].version};
      if (here.status == kUnderWay) out.go(s, "the driver reads a report");
    }
    if (here.status == kUnderWay) finalize(here, out);
  }

  void finalize(const State& here, Out& out) const {
    State s = here;
    uint8_t both = kAll;
    for (int i = 0; i < 2; ++i) {
      const auto& seen = here.seen[i];
      if (seen.reported != here.attempt || seen.version != here.part[i].version) return;
      both &= seen.holders;
    }
    if (!majority(both) && broken != Broken::each_majority_alone) return;
    s.status = kFinalized;
    const std::string action = "FINALIZE_MERGE is committed";
    for (const auto& p : here.part)
      if (p.open != here.attempt || p.at_cut != p.wrote)
        return out.violation(action, "an acknowledged write is not in the target");
    out.go(s, action);
  }

  // A server sees it.
  void end(const State& here, int i, Out& out) const {
    if (here.status != kFinalized) return;
    const auto bit = static_cast<uint8_t>(1U << i);
    const int cuts = ((here.part[0].has & bit) != 0 ? 1 : 0) + ((here.part[1].has & bit) != 0 ? 1 : 0);
    const auto becomes = [&](Role role, const std::string& what) {
      State s = here;
      s.roles[i] = role;
      out.go(s, servers_text(bit) + " takes part in the target " + what);
    };
    if (here.roles[i] == kAway) {
      if (cuts == 2) becomes(kWhole, "with both logs");
      if (cuts == 1) becomes(broken == Broken::one_cut_is_enough ? kHalf : kEmpty, "and had one cut");
      if (cuts == 0) becomes(kEmpty, "and had no cut");
      if (broken == Broken::votes_before_merge) becomes(kEmpty, "before its copies are one");
    }
    if (here.roles[i] != kAway && here.roles[i] != kWhole) {
      // It may be elected by a majority whose logs do not end behind its own; half of the data may end as far as all.
      uint8_t may = bit;
      for (int j = 0; j < kServers; ++j)
        if (here.roles[j] != kAway && (here.roles[j] <= here.roles[i] || here.roles[i] == kHalf))
          may = static_cast<uint8_t>(may | 1U << j);
      if (majority(may))
        out.violation(servers_text(bit) + " is elected", "the target's leader has not the data of both");
    }
    // A leader with the data fills those that have none.
    if (here.roles[i] == kWhole)
      for (int j = 0; j < kServers; ++j)
        if (here.roles[j] == kEmpty) {
          State s = here;
          s.roles[j] = kWhole;
          out.go(s, servers_text(static_cast<uint8_t>(1U << j)) + " is filled");
        }
  }

  void operator()(const State& here, Out& out) const {
    metadata(here, out);
    for (int i = 0; i < 2; ++i) lead(here, i, out);
    for (int i = 0; i < kServers; ++i) end(here, i, out);
  }
};

Found explore(Broken broken, uint8_t attempts) {
  State s{};
  s.attempt = 1;
  return Explorer<State>(Model{broken, attempts}).run(s, 30'000'000);
}

TEST(MergeModel, what_was_acknowledged_in_either_is_in_the_target_whoever_leads_it) {
  const auto found = explore(Broken::nothing, 2);
  EXPECT_EQ(found.violation, "") << text_of(found);
  EXPECT_TRUE(found.exhausted) << text_of(found);
}

TEST(MergeModel, each_rule_is_needed) {
  const std::string empty = "the target's leader has not the data of both";
  struct Case {
    Broken broken;
    std::string what;
  };
  for (const auto& c : std::vector<Case>{{Broken::each_majority_alone, empty},
                                         {Broken::holders_who_have_not, empty},
                                         {Broken::one_cut_is_enough, empty},
                                         {Broken::votes_before_merge, empty},
                                         {Broken::uncut_by_silence, "an acknowledged write is not in the target"}}) {
    const auto found = explore(c.broken, 1);
    EXPECT_EQ(found.violation, c.what) << static_cast<int>(c.broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

// The cut of a split in a quorum table (design/reshape.md, "Split", 3 to 5): the leader of the parent appends a cut and
// parks writes, and reads once the cut is committed; FINALIZE_SPLIT makes the children; ABORT_SPLIT, seen in METADATA,
// lets a leader append an uncut. Three replicas of the parent, with elections at any time, or one that alone votes
// since a recovery; a child either on the same servers, where any two elect, or on one other, a learner of the parent
// until then. What is in a log is durable here, and who seals has voted: election_test.cc has the rest. The parent's
// replicas go on after FINALIZE as if they had not heard of it.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "test/models/explore.h"

namespace cantle::models {
namespace {

constexpr int kReplicas = 3, kMajority = 2;
constexpr int kLogMax = 8;  // a log that is full takes no more
constexpr uint8_t kWritesMax = 3;

enum class Broken : uint8_t {
  nothing,
  finalize_uncommitted,  // a majority has the cut, but no leader said that it is committed
  child_not_level,       // the child need not have the parent's log through the cut
  cut_of_any_attempt,    // a cut that was committed for an attempt given up since
  uncommitted_to_child,  // the child is sent what is not committed, and applies it
  writes_not_parked,
  reads_not_parked,
  new_leader_not_parked,  // only who appended the cut is parked
  uncut_by_silence,       // an uncut without the attempt's end in METADATA
};

enum Kind : uint8_t { kEpochStart = 0, kCut = 8, kUncut = 12 };  // 1 and up: writes; a cut and an uncut: + attempt
enum Split : uint8_t { kNone, kUnderWay, kAborted, kFinalized };

struct Replica {
  uint8_t promise, leads, serves, committed;
  uint8_t length, log[kLogMax];  // an entry: epoch * 16 + kind
  uint8_t acked[kReplicas];      // a leader: how much of its log each has
};
struct Child {  // on another server
  uint8_t length, log[kLogMax];
  uint8_t applied;  // writes
};
struct State {
  uint8_t epoch;           // of the parent's government
  uint8_t attempt, split;  // METADATA
  uint8_t reported;        // the cut of the newest attempt that a leader said was committed
  uint8_t writes, acknowledged;
  uint8_t child_has, child_wrote;  // once it is there: writes of the parent; whether it acknowledged one of its own
  Replica replicas[kReplicas];
  Child child;
};
struct Bounds {
  uint8_t epochs = 2, writes = 2, attempts = 1;
  bool remote = true;             // the child is on another server
  bool reads = true;              // of the parent's leader
  bool third_government = false;  // is where it begins
  int voters = kReplicas;         // of the parent: the first ones
  size_t states = 25'000'000;
};

uint8_t epoch_of(uint8_t entry) { return entry >> 4; }
uint8_t kind_of(uint8_t entry) { return entry & 15; }
uint8_t entry_of(uint8_t epoch, int kind) { return static_cast<uint8_t>(epoch * 16 + kind); }
bool is_write(uint8_t entry) { return kind_of(entry) >= 1 && kind_of(entry) <= kWritesMax; }
bool is_cut(uint8_t entry) { return kind_of(entry) > kCut && kind_of(entry) < kUncut; }
bool is_uncut(uint8_t entry) { return kind_of(entry) > kUncut; }
uint8_t attempt_of(uint8_t cut) { return kind_of(cut) & 3; }

template <class Log>
int index_of(const Log& r, uint8_t entry) {
  const auto* at = std::find(r.log, r.log + r.length, entry);
  return at == r.log + r.length ? -1 : static_cast<int>(at - r.log);
}
// The cut that parks who has this log.
int open_cut(const Replica& r) {
  int i = r.length - 1;
  while (i >= 0 && !is_cut(r.log[i]) && !is_uncut(r.log[i])) i--;
  return i >= 0 && is_cut(r.log[i]) ? i : -1;
}
uint8_t writes_in(const uint8_t* log, int n) {
  unsigned writes = 0;
  for (int i = 0; i < n; ++i)
    if (is_write(log[i])) writes |= 1U << kind_of(log[i]);
  return static_cast<uint8_t>(writes);
}

struct Model {
  Broken broken;
  Bounds bounds;
  int majority() const { return bounds.voters / 2 + 1; }
  using Out = Explorer<State>::Out;

  static void step_down(Replica& r) {
    r.leads = r.serves = 0;
    std::fill(std::begin(r.acked), std::end(r.acked), uint8_t{0});
  }
  static void append(State& s, int i, int kind) {
    auto& r = s.replicas[i];
    r.log[r.length++] = entry_of(r.leads, kind);
    r.acked[i] = r.length;
  }
  static void lead(State& s, int i) {
    step_down(s.replicas[i]);
    s.replicas[i].leads = s.replicas[i].promise = s.epoch;
    append(s, i, kEpochStart);
  }
  static int position(const Replica& r) { return (r.length == 0 ? 0 : epoch_of(r.log[r.length - 1])) * 16 + r.length; }

  bool is_parked(const Replica& r) const {
    const int cut = open_cut(r);
    if (broken == Broken::new_leader_not_parked && cut >= 0 && epoch_of(r.log[cut]) != r.leads) return false;
    return cut >= 0;
  }

  void write_and_cut(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    if (r.serves == 0 || r.length == kLogMax) return;
    const auto appends = [&](int kind, const std::string& what) {
      State s = here;
      if (kind <= kWritesMax) s.writes++;
      append(s, i, kind);
      out.go(s, name_of(i) + " appends " + what);
    };
    const bool parked = is_parked(r);
    if (here.writes < bounds.writes && (!parked || broken == Broken::writes_not_parked))
      appends(here.writes + 1, "write " + std::to_string(here.writes + 1));
    for (uint8_t attempt = 1; attempt <= here.attempt && !parked; ++attempt) {
      const auto is_its_cut = [&](uint8_t entry) { return is_cut(entry) && attempt_of(entry) == attempt; };
      if (std::none_of(r.log, r.log + r.length, is_its_cut))
        appends(kCut + attempt, "the cut of attempt " + std::to_string(attempt));
    }
    if (!parked) return;
    const uint8_t attempt = attempt_of(r.log[open_cut(r)]);
    if (attempt < here.attempt || here.split == kAborted)
      appends(kUncut + attempt, "an uncut: it reads that the attempt was aborted");
    else if (broken == Broken::uncut_by_silence)
      appends(kUncut + attempt, "an uncut: it heard nothing of the attempt");
  }

  // One block, or the cutting back of what the leader does not have.
  void send(const State& here, int i, int j, Out& out) const {
    const uint8_t epoch = here.replicas[i].leads;
    if (here.replicas[j].promise > epoch || here.replicas[j].leads >= epoch) return;
    State s = here;
    const auto& from = s.replicas[i];
    auto& to = s.replicas[j];
    to.promise = epoch;
    if (to.leads != 0) step_down(to);
    take(to, from, from.length);
    s.replicas[i].acked[j] = to.length;
    out.go(s, name_of(i) + " to " + name_of(j) + ": its log is " + std::to_string(to.length) + " long");
  }
  template <class Log>
  static void take(Log& to, const Replica& from, uint8_t end) {
    uint8_t common = 0;
    while (common < from.length && common < to.length && from.log[common] == to.log[common]) common++;
    for (; to.length > common; to.length--) to.log[to.length - 1] = 0;
    if (common < end) to.log[to.length++] = from.log[common];
  }

  void commit(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    for (uint8_t n = r.length; n > r.committed && epoch_of(r.log[n - 1]) == r.leads; n--) {
      if (std::count_if(r.acked, r.acked + bounds.voters, [&](uint8_t acked) { return acked >= n; }) < majority())
        continue;
      const auto action = name_of(i) + " commits up to " + std::to_string(n);
      State s = here;
      s.acknowledged |= writes_in(r.log, n);
      s.replicas[i].committed = n;
      s.replicas[i].serves = 1;
      const int cut = open_cut(r);
      if (cut >= 0 && cut < n && attempt_of(r.log[cut]) >= attempt_of(s.reported)) s.reported = r.log[cut];
      if (s.split == kFinalized && (s.acknowledged & ~here.acknowledged & ~s.child_has) != 0)
        return out.violation(action, "the parent acknowledges a write that the child does not have");
      return out.go(s, action);
    }
  }

  // Under its lease, which a majority that has not sealed may have granted.
  void read(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    const auto unsealed = std::count_if(here.replicas, here.replicas + bounds.voters,
                                        [&](const Replica& other) { return other.promise <= r.leads; });
    const bool parked = is_parked(r) && open_cut(r) < r.committed && broken != Broken::reads_not_parked;
    if (bounds.reads && r.serves != 0 && unsealed >= majority() && !parked && here.child_wrote != 0)
      out.violation(name_of(i) + " answers a read", "the child has acknowledged a newer write");
  }

  void feed_child(const State& here, int i, Out& out) const {
    const auto& r = here.replicas[i];
    if (!bounds.remote || here.split != kUnderWay) return;
    State s = here;
    take(s.child, r, broken == Broken::uncommitted_to_child ? r.length : r.committed);
    s.child.applied |= writes_in(s.child.log, s.child.length);
    out.go(s, name_of(i) + " feeds the child: its log is " + std::to_string(s.child.length) + " long");
  }

  void elect(const State& here, int i, Out& out) const {
    const auto next = static_cast<uint8_t>(here.epoch + 1);
    const auto& r = here.replicas[i];
    if (here.epoch == bounds.epochs || i >= bounds.voters) return;
    if (r.promise < next) {
      State s = here;
      s.replicas[i].promise = next;
      step_down(s.replicas[i]);
      out.go(s, name_of(i) + " seals " + std::to_string(next));
    }
    const auto below = std::count_if(here.replicas, here.replicas + bounds.voters, [&](const Replica& other) {
      return other.promise == next && position(other) <= position(r);
    });
    if (r.promise != next || below < majority() || r.length == kLogMax) return;
    State s = here;
    s.epoch++;
    lead(s, i);
    out.go(s, name_of(i) + " is elected for epoch " + std::to_string(s.epoch));
  }

  void metadata(const State& here, Out& out) const {
    State s = here;
    if (here.split == kUnderWay) {
      s.split = kAborted;
      out.go(s, "ABORT_SPLIT is committed");
      for (uint8_t epoch = 1; epoch <= here.epoch; ++epoch)
        for (uint8_t attempt = 1; attempt <= here.attempt; ++attempt)
          finalize(here, entry_of(epoch, kCut + attempt), out);
    } else if (here.split != kFinalized && here.attempt < bounds.attempts) {
      s.split = kUnderWay;
      s.attempt++;
      s.child = {};  // of that attempt
      out.go(s, "SPLIT is committed, attempt " + std::to_string(s.attempt));
    } else if (here.split == kFinalized && here.child_wrote == 0) {
      s.child_wrote = 1;
      out.go(s, "the child acknowledges a write of its own");
    }
  }

  void finalize(const State& here, uint8_t cut, Out& out) const {
    if (attempt_of(cut) != here.attempt && broken != Broken::cut_of_any_attempt) return;
    if (here.reported != cut && broken != Broken::finalize_uncommitted) return;
    const auto has = [&](const auto& r) { return index_of(r, cut) >= 0; };
    const auto* holder = std::find_if(here.replicas, here.replicas + kReplicas, has);
    const bool elects_with_it = std::count_if(here.replicas, here.replicas + kReplicas, has) >= kMajority;
    const bool level = bounds.remote ? has(here.child) : elects_with_it;
    if (!level && broken != Broken::child_not_level) return;
    State s = here;
    s.split = kFinalized;
    s.child_has = bounds.remote     ? here.child.applied
                  : !elects_with_it ? uint8_t{0}  // two that have nothing may
                                    : writes_in(holder->log, index_of(*holder, cut));
    const std::string action = "FINALIZE_SPLIT is committed";
    if ((here.acknowledged & ~s.child_has) != 0)
      return out.violation(action, "an acknowledged write is not in the child");
    if (bounds.remote && (s.child_has & ~here.acknowledged) != 0)
      return out.violation(action, "the child applied what was never committed");
    out.go(s, action);
  }

  void operator()(const State& here, Out& out) const {
    metadata(here, out);
    for (int i = 0; i < kReplicas; ++i) {
      if (here.replicas[i].leads != 0) {
        write_and_cut(here, i, out);
        for (int j = 0; j < kReplicas; ++j)
          if (j != i) send(here, i, j, out);
        commit(here, i, out);
        read(here, i, out);
        feed_child(here, i, out);
      }
      elect(here, i, out);
    }
  }
};

// A leads epoch 1.
State first_government() {
  State s{};
  s.epoch = 1;
  for (auto& r : s.replicas) r.promise = 1;
  Model::lead(s, 0);
  return s;
}

// A leads epoch 3, and has the cut that it appended in epoch 1; epoch 2 was that of B, who wrote no more than its
// start.
State third_government() {
  State s = first_government();
  s.attempt = 1;
  s.split = kUnderWay;
  for (auto& r : s.replicas) {
    r.length = 1;
    r.log[0] = entry_of(1, kEpochStart);
  }
  s.replicas[0].committed = 1;
  Model::append(s, 0, kCut + 1);
  s.epoch = 2;
  Model::lead(s, 1);
  s.epoch = s.replicas[2].promise = 3;
  Model::lead(s, 0);
  return s;
}

Found explore(Broken broken, const Bounds& bounds) {
  const State initial = bounds.third_government ? third_government() : first_government();
  return Explorer<State>(Model{broken, bounds}).run(initial, bounds.states);
}

TEST(CutModel, the_third_government_comes_about) {
  const Model model{Broken::nothing, {.epochs = 3, .writes = 0, .remote = false, .reads = false}};
  EXPECT_TRUE(Explorer<State>::leads_to(model, first_government(), third_government(), 1'000'000));
}

TEST(CutModel, what_was_acknowledged_is_in_the_child_and_no_read_is_stale) {
  const char* how = std::getenv("MODELS");
  const bool more = how != nullptr && std::string_view(how) == "long";
  const auto all_bounds =
      more ? std::vector<Bounds>{{.epochs = 3},
                                 {.attempts = 2},
                                 {.epochs = 3, .writes = 1, .attempts = 2, .remote = false},
                                 {.epochs = 3, .remote = false, .voters = 1},
                                 {.epochs = 5, .attempts = 2, .third_government = true}}
           : std::vector<Bounds>{{},
                                 {.epochs = 3, .writes = 1},
                                 {.epochs = 3, .remote = false},
                                 {.remote = false, .voters = 1},
                                 {.epochs = 4, .writes = 1, .attempts = 2, .third_government = true}};
  for (const auto& bounds : all_bounds) {
    const auto found = explore(Broken::nothing, bounds);
    EXPECT_EQ(found.violation, "") << text_of(found);
    EXPECT_TRUE(found.exhausted) << text_of(found);
  }
}

TEST(CutModel, each_rule_is_needed) {
  const std::string lost = "an acknowledged write is not in the child";
  const std::string goes_on = "the parent acknowledges a write that the child does not have";
  const std::string stale = "the child has acknowledged a newer write";
  const Bounds writes_only{.reads = false};
  struct Case {
    Broken broken;
    Bounds bounds;
    std::string what;
  };
  for (const auto& c : std::vector<Case>{
           {Broken::finalize_uncommitted,
            {.epochs = 4, .remote = false, .reads = false, .third_government = true},
            goes_on},
           {Broken::child_not_level, writes_only, lost},
           {Broken::child_not_level, {.remote = false, .reads = false, .voters = 1}, lost},
           {Broken::cut_of_any_attempt, {.attempts = 2, .reads = false}, lost},
           {Broken::uncommitted_to_child, writes_only, "the child applied what was never committed"},
           {Broken::writes_not_parked, writes_only, lost},
           {Broken::reads_not_parked, {}, stale},
           {Broken::new_leader_not_parked, writes_only, lost},
           {Broken::uncut_by_silence, writes_only, lost},
           {Broken::uncut_by_silence, {}, stale},
       }) {
    const auto found = explore(c.broken, c.bounds);
    EXPECT_EQ(found.violation, c.what) << static_cast<int>(c.broken) << ": " << text_of(found);
  }
}

}  // namespace
}  // namespace cantle::models

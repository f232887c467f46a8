// The checker against random histories: of a store that keeps its promises, with an answer changed, and against a
// checker that tries every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "test/support/linear.h"
#include "test/support/random_history.h"

namespace cantle::linear {
namespace {

using K = Verdict::Kind;
using State = std::optional<std::string>;

// --- every order of everything, without a thought ---
class EveryOrder {
 public:
  explicit EveryOrder(const std::vector<Operation>& h) {
    for (const auto& o : h)
      if (o.outcome != Outcome::fail) ops_.push_back(o);
  }
  bool explains() { return from(0, State()); }

 private:
  bool from(uint32_t happened, const State& state) {
    bool all = true;
    for (size_t i = 0; i < ops_.size(); ++i)
      if ((happened >> i & 1) == 0 && ops_[i].outcome == Outcome::ok) all = false;
    if (all) return true;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if ((happened >> i & 1) != 0 || !may_be_next(i, happened)) continue;
      State next = state;
      if (happens(ops_[i], &next) && from(happened | 1u << i, next)) return true;
    }
    return false;
  }
  bool may_be_next(size_t i, uint32_t happened) const {
    for (size_t j = 0; j < ops_.size(); ++j)
      if ((happened >> j & 1) == 0 && ops_[j].outcome == Outcome::ok && ops_[j].end < ops_[i].begin) return false;
    return true;
  }
  static bool happens(const Operation& o, State* s) {
    const bool known = o.outcome == Outcome::ok;
    switch (o.op) {
      case Kind::get: return !known || *s == o.result;
      case Kind::put: *s = o.input; return true;
      case Kind::del: s->reset(); return true;
      case Kind::append:
        *s = s->value_or("") + o.input;
        return !known || !o.result || *o.result == std::to_string((*s)->size());
      case Kind::cas:
        if (known && o.refused) return *s != o.expected;
        if (*s != o.expected) return false;
        *s = o.input;
        return true;
      case Kind::incr: {
        const std::string old = s->value_or("0");
        if (old.empty() || old.find_first_not_of("0123456789") != std::string::npos) return false;
        *s = std::to_string(std::stoll(old) + std::stoll(o.input));
        return !known || !o.result || *s == o.result;
      }
    }
    return false;
  }
  std::vector<Operation> ops_;
};

// Answers that might be: of a few values, at instants that often meet.
Operation any_operation(base::Random& random, const std::vector<Kind>& kinds) {
  static const std::vector<State> kValues = {std::nullopt, "1", "2", "11", "12", "3"};
  const auto value = [&] { return kValues[random.below(kValues.size())]; };
  Operation o{.key = "k", .process = random.below(100)};
  o.op = kinds[random.below(kinds.size())];
  o.begin = static_cast<int64_t>(random.below(14));
  o.end = o.begin + static_cast<int64_t>(random.below(6));
  o.outcome = random.chance(0.6) ? Outcome::ok : random.chance(0.8) ? Outcome::unknown : Outcome::fail;
  o.input = o.op == Kind::del || o.op == Kind::get ? "" : std::to_string(1 + random.below(2));
  if (o.op == Kind::put && random.chance(0.3)) o.input = "11";
  if (o.op == Kind::cas) {
    o.expected = value();
    o.refused = o.outcome == Outcome::ok && random.chance(0.4);
  }
  if (o.op == Kind::get) o.result = value();
  if (o.op == Kind::incr && random.chance(0.8)) o.result = value();
  if (o.op == Kind::append && random.chance(0.3)) o.result = std::to_string(1 + random.below(3));
  return o;
}

const std::vector<std::vector<Kind>> kMixes = {
    {Kind::get, Kind::put},
    {Kind::get, Kind::put, Kind::del},
    {Kind::get, Kind::put, Kind::cas},
    {Kind::get, Kind::put, Kind::del, Kind::cas},
    {Kind::get, Kind::incr},
    {Kind::get, Kind::get, Kind::append},
    {Kind::get, Kind::get, Kind::append, Kind::put, Kind::cas, Kind::del},
    {Kind::get, Kind::put, Kind::del, Kind::cas, Kind::incr, Kind::append},
};

std::string text_of(const std::vector<Operation>& h) {
  std::string text;
  for (const auto& o : h) text += to_string(o) + "\n";
  return text;
}

void compare(const std::vector<Operation>& h, uint64_t seed, size_t* right, size_t* wrong) {
  const bool explained = EveryOrder(h).explains();
  const auto v = check(h);
  ASSERT_EQ(v.kind, explained ? K::linearizable : K::violated) << "seed " << seed << "\n" << text_of(h) << v.text;
  ++*(explained ? right : wrong);
}

TEST(LinearRandom, says_what_every_order_says_of_any_answers) {
  size_t right = 0, wrong = 0;
  for (uint64_t seed = 1; seed <= 40'000; ++seed) {
    base::SeededRandom random(seed);
    const auto& mix = kMixes[seed % kMixes.size()];
    std::vector<Operation> h;
    for (uint64_t n = 2 + random.below(6); n > 0; --n) h.push_back(any_operation(random, mix));
    compare(h, seed, &right, &wrong);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(right, 4000u);
  EXPECT_GT(wrong, 4000u);
  std::printf("  %zu linearizable, %zu not\n", right, wrong);
}

// Histories of a good store, mostly with one answer changed.
TEST(LinearRandom, says_what_every_order_says_of_answers_that_are_nearly_right) {
  size_t right = 0, wrong = 0;
  for (uint64_t seed = 1; seed <= 40'000; ++seed) {
    base::SeededRandom random(seed);
    auto h = random_history(random, {.operations = 2 + random.below(4),
                                     .processes = 1 + random.below(3),
                                     .kinds = kMixes[seed % kMixes.size()],
                                     .values = 1 + random.below(3),
                                     .unknown = 0.2,
                                     .fail = 0.05,
                                     .lengths = random.chance(0.5)});
    if (h.size() > 7) h.resize(7);  // what began last; whatever it did, nobody left saw it
    for (auto& o : h)
      if ((o.op == Kind::get || o.op == Kind::incr || (o.op == Kind::append && o.result)) && random.chance(0.2))
        o.result = std::to_string(random.below(3));
    compare(h, seed, &right, &wrong);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(right, 4000u);
  EXPECT_GT(wrong, 4000u);
  std::printf("  %zu linearizable, %zu not\n", right, wrong);
}

// The prefix that is named cannot be explained, and the one before it can.
TEST(LinearRandom, the_prefix_is_the_shortest) {
  size_t failures = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    base::SeededRandom random(seed);
    std::vector<Operation> h;
    for (uint64_t n = 2 + random.below(6); n > 0; --n) h.push_back(any_operation(random, kMixes[seed % kMixes.size()]));
    const auto v = check(h);
    if (v.kind != K::violated) continue;
    ++failures;
    std::vector<int64_t> ends;
    for (const auto& o : h)
      if (o.outcome == Outcome::ok) ends.push_back(o.end);
    std::sort(ends.begin(), ends.end());
    const int64_t end = ends[v.prefix - 1];
    for (const int64_t until : {end, end - 1}) {
      auto prefix = h;
      for (auto& o : prefix)
        if (o.begin > until)
          o.outcome = Outcome::fail;
        else if (o.outcome == Outcome::ok && o.end > until)
          o.outcome = o.refused ? Outcome::fail : Outcome::unknown;
      ASSERT_EQ(EveryOrder(prefix).explains(), until != end) << "seed " << seed << "\n" << text_of(h) << v.text;
    }
  }
  EXPECT_GT(failures, 1000u);
}

struct Load {
  const char* what;
  HistoryOptions options;
};
const Load kLoads[] = {
    {"reads and writes", {.kinds = {Kind::get, Kind::put}}},
    {"few values", {.kinds = {Kind::get, Kind::put, Kind::del}, .values = 3}},
    {"swaps", {.kinds = {Kind::get, Kind::put, Kind::cas, Kind::cas, Kind::del}}},
    {"counter", {.kinds = {Kind::get, Kind::incr, Kind::incr}}},
    {"appends", {.kinds = {Kind::get, Kind::append}}},
    {"appends and their lengths", {.kinds = {Kind::get, Kind::append}, .lengths = true}},
    {"appends and puts", {.kinds = {Kind::get, Kind::append, Kind::append, Kind::put}}},
    {"everything", {.kinds = {Kind::get, Kind::put, Kind::del, Kind::cas, Kind::incr, Kind::append}, .values = 4}},
};

TEST(LinearRandom, a_store_that_keeps_its_promises_is_never_accused) {
  for (uint64_t seed = 1; seed <= 400; ++seed)
    for (const auto& load : kLoads) {
      base::SeededRandom random(seed);
      auto options = load.options;
      options.operations = 200;
      options.processes = 1 + random.below(8);
      options.keys = 1 + random.below(4);
      options.unknown = seed % 2 == 0 ? 0.05 : 0;
      options.fail = 0.05;
      const auto v = check(random_history(random, options));
      ASSERT_EQ(v.kind, K::linearizable) << load.what << ", seed " << seed << "\n" << v.text;
    }
}

// A read of an answer from elsewhere in the same history, three answers in four: caught unless that was possible, too.
TEST(LinearRandom, a_changed_answer_is_mostly_caught) {
  for (const auto& load : kLoads) {
    if (load.options.values != 0) continue;
    int caught = 0, changed = 0, undecided = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      base::SeededRandom random(seed);
      auto options = load.options;
      options.operations = 200;
      options.unknown = 0.02;
      auto h = random_history(random, options);
      std::vector<size_t> gets;
      for (size_t i = 0; i < h.size(); ++i)
        if (h[i].op == Kind::get && h[i].outcome == Outcome::ok) gets.push_back(i);
      auto& one = h[gets[random.below(gets.size())]];
      const auto& other = h[gets[random.below(gets.size())]];
      if (one.result == other.result) continue;
      one.result = other.result;
      ++changed;
      const auto v = check(h);
      caught += v.kind == K::violated;
      undecided += v.kind == K::undecided;
    }
    std::printf("  %s: %d of %d caught\n", load.what, caught, changed);
    EXPECT_GT(changed, 100) << load.what;
    EXPECT_GT(caught * 10, changed * 8) << load.what;
    EXPECT_EQ(undecided, 0) << load.what;
  }
}

// --- speed ---
double seconds(const std::vector<Operation>& h, K expected, uint64_t* states) {
  const auto begun = std::chrono::steady_clock::now();
  const auto v = check(h);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_EQ(v.kind, expected) << v.text;
  *states = v.states;
  return took;
}

TEST(LinearRandom, ten_thousand_operations_of_sixteen_processes_are_fast) {
  for (const size_t keys : {100, 1})
    for (const double unknown : {0.0, 0.01})
      for (const auto& load : kLoads) {
        const auto& kinds = load.options.kinds;
        // One value that grows by thousands of parts: what takes its time is the bytes, not the search.
        if (keys == 1 && std::count(kinds.begin(), kinds.end(), Kind::append) > 0) continue;
        base::SeededRandom random(7);
        auto options = load.options;
        options.operations = 10'000;
        options.processes = 16;
        options.keys = keys;
        options.unknown = unknown;
        const auto h = random_history(random, options);
        uint64_t states = 0;
        const double took = seconds(h, K::linearizable, &states);
        std::printf("  %5zu operations, %3zu keys, %3.0f%% unknown, %-17s %7.1f ms, %8llu states\n", h.size(), keys,
                    unknown * 100, load.what, took * 1e3, static_cast<unsigned long long>(states));
        EXPECT_LT(took, 20) << load.what;  // more than a hundred times what it takes
      }
}

}  // namespace
}  // namespace cantle::linear

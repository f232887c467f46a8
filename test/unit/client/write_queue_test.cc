#include "lib/client/write_queue.h"

#include <gtest/gtest.h>

#include "lib/base/random.h"
#include "lib/client/stats.h"

namespace cantle::client {
namespace {

using namespace std::chrono_literals;

uint64_t by_first(std::string_view key) { return static_cast<uint64_t>(key[0]); }
uint64_t all_one(std::string_view) { return 0; }

Entry write(std::string key, std::string value) { return {.key = std::move(key), .value = std::move(value)}; }
std::string text(const WriteQueue::Group& group) {
  std::string t;
  for (const auto& w : group.writes) t += w.key + "=" + w.value + " ";
  return t;
}

TEST(WriteQueue, the_records_of_a_key_go_one_after_the_other) {
  WriteQueue q;
  for (const char* v : {"1", "2", "3"}) q.add(write("a", v), all_one);
  q.add(write("b", "1"), all_one);
  auto first = q.next({});
  ASSERT_TRUE(first);
  EXPECT_EQ(text(*first), "a=1 b=1 ");
  EXPECT_FALSE(q.next({}));  // a is out
  q.done(std::move(*first), all_one);
  auto second = q.next({});
  EXPECT_EQ(text(*second), "a=2 ");
  // Refused as a group, sent again alone: still before a=3.
  q.apart(std::move(*second));
  second = q.next({});
  EXPECT_EQ(text(*second), "a=2 ");
  q.done(std::move(*second), all_one);
  EXPECT_EQ(text(*q.next({})), "a=3 ");
}

TEST(WriteQueue, a_group_lies_in_one_partition_and_partitions_take_turns) {
  WriteQueue q;
  for (const char* k : {"a1", "b1", "a2", "b2", "a3"}) q.add(write(k, ""), by_first);
  const WriteQueue::Limits two{.records = 2};
  EXPECT_EQ(text(*q.next(two)), "a1= a2= ");
  EXPECT_EQ(text(*q.next(two)), "b1= b2= ");
  EXPECT_EQ(text(*q.next(two)), "a3= ");
  EXPECT_EQ(q.out(), 5u);
  EXPECT_EQ(q.waiting(), 0u);
}

TEST(WriteQueue, a_group_is_bounded_in_bytes_but_one_record_always_fits) {
  WriteQueue q;
  for (const char* k : {"a", "b", "c"}) q.add(write(k, std::string(10, 'x')), all_one);
  const WriteQueue::Limits small{.records = 10, .bytes = 22};
  EXPECT_EQ(q.next(small)->writes.size(), 2u);
  q.add(write("d", std::string(100, 'x')), all_one);
  EXPECT_EQ(q.next(small)->writes.size(), 1u);
  EXPECT_EQ(text(*q.next(small)).substr(0, 2), "d=");
}

TEST(WriteQueue, a_new_map_regroups_what_waits) {
  WriteQueue q;
  for (const char* k : {"a", "b"}) q.add(write(k, ""), all_one);
  q.reroute(by_first);
  EXPECT_EQ(q.next({})->writes.size(), 1u);
  EXPECT_EQ(q.next({})->writes.size(), 1u);
}

TEST(WriteQueue, whatever_happens_each_key_ends_with_its_last_record) {
  base::SeededRandom random(11);
  WriteQueue q;
  std::map<std::string, std::string> want, have;
  std::vector<WriteQueue::Group> out;
  size_t added = 0;
  while (added < 5000 || q.waiting() + q.out() > 0) {
    switch (random.below(4)) {
      case 0:
        if (added == 5000) break;
        {
          std::string key(1, static_cast<char>('a' + random.below(26)));
          want[key] = std::to_string(++added);
          q.add(write(key, want[key]), by_first);
        }
        break;
      case 1:
        if (auto g = q.next({.records = 1 + random.below(5)})) out.push_back(std::move(*g));
        break;
      case 2:
        if (random.chance(0.1)) q.reroute(random.chance(0.5) ? by_first : all_one);
        break;
      default: {
        if (out.empty()) break;
        const size_t i = random.below(out.size());
        auto group = std::move(out[i]);
        out.erase(out.begin() + static_cast<long>(i));
        if (random.chance(0.2)) {
          q.apart(std::move(group));
        } else {
          for (const auto& w : group.writes) have[w.key] = w.value;
          q.done(std::move(group), all_one);
        }
      }
    }
  }
  EXPECT_EQ(have, want);
}

// --- figures ------------------------------------------------------------------------------------------

TEST(Histogram, quantiles_are_within_a_thirtysecond) {
  Histogram h;
  for (int64_t i = 1; i <= 100000; ++i) h.add(base::Duration(i * 1000));
  const auto near = [](base::Duration d, double us) {
    return std::abs(static_cast<double>(d.count()) / 1000 / us - 1) < 1.0 / 32;
  };
  EXPECT_TRUE(near(h.quantile(0.5), 50000)) << h.quantile(0.5).count();
  EXPECT_TRUE(near(h.quantile(0.99), 99000));
  EXPECT_TRUE(near(h.quantile(0.001), 100));
  EXPECT_EQ(h.quantile(1), 100ms);
  EXPECT_EQ(h.max(), 100ms);
  EXPECT_EQ(Histogram().quantile(0.5), 0ns);
}

TEST(GapMeter, measures_between_answers_and_leaves_out_our_own_pauses) {
  const base::Instant t0{10s};
  std::vector<base::Duration> gaps;
  GapMeter m([&](base::Instant, base::Duration gap) { gaps.push_back(gap); });
  m.sent(t0);
  m.sent(t0 + 1ms);  // a second one waits too: the gap runs since the first
  m.acknowledged(t0 + 2ms);
  m.acknowledged(t0 + 7ms);
  m.idle();
  m.sent(t0 + 5s);
  m.acknowledged(t0 + 5s + 1ms);
  EXPECT_EQ(m.longest(), 5ms);
  EXPECT_EQ(m.longest_end(), t0 + 7ms);
  EXPECT_EQ(gaps, (std::vector<base::Duration>{2ms, 5ms, 1ms}));
}

TEST(Pacer, lets_through_the_rate_and_forgets_most_of_a_pause) {
  base::Instant now{0s};
  Pacer p(1000, now);
  uint64_t sent = 0;
  for (int ms = 0; ms < 1000; ++ms, now = now + 1ms) {
    const uint64_t n = p.allowed(now);
    p.spend(n);
    sent += n;
  }
  EXPECT_NEAR(static_cast<double>(sent), 1000, 2);
  EXPECT_GT(p.next(), now - 2ms);
  now = now + 60s;
  EXPECT_LE(p.allowed(now), 101u);
  EXPECT_EQ(Pacer(0, now).allowed(now), UINT64_MAX);
}

}  // namespace
}  // namespace cantle::client

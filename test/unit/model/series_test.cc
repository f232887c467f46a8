#include "lib/model/series.h"

#include <gtest/gtest.h>

#include <map>

#include "lib/base/random.h"

namespace cantle::model {
namespace {

using base::Code;

RecordView record(std::string_view value, ResultKind kind) {
  RecordView r;
  r.key = "k";
  r.value = value;
  r.version = quorum_version({3}, {70});
  r.client = 5;
  r.series = 9;
  r.flags = result_flags(kind);
  return r;
}
SeriesEntry entry(uint64_t number, uint64_t lsn, uint64_t time_ms = 0) {
  return {number, {{1}, {lsn}, ResultKind::place, 0}, time_ms};
}

TEST(Series, a_record_tells_its_result) {
  EXPECT_EQ(outcome_of(record("v", ResultKind::place)).value(), (WriteOutcome{{3}, {70}, ResultKind::place, 0}));
  EXPECT_EQ(outcome_of(record("-12", ResultKind::number)).value(), (WriteOutcome{{3}, {70}, ResultKind::number, -12}));
  EXPECT_EQ(outcome_of(record("abcde", ResultKind::length)).value(), (WriteOutcome{{3}, {70}, ResultKind::length, 5}));
}

TEST(Series, a_record_that_does_not_bear_out_its_flags_is_malformed) {
  const auto bad = [](RecordView r) {
    const auto got = outcome_of(r);
    return !got && got.error().code == Code::malformed;
  };
  EXPECT_TRUE(bad(record("12a", ResultKind::number)));
  EXPECT_TRUE(bad(record("", ResultKind::number)));
  EXPECT_TRUE(bad(record("9223372036854775808", ResultKind::number)));
  EXPECT_TRUE(bad(record("x", static_cast<ResultKind>(3))));
  EXPECT_TRUE(bad(record("x", static_cast<ResultKind>(4))));
  for (const auto kind : {ResultKind::number, ResultKind::length}) {
    auto r = record("", kind);
    r.op = Op::del;
    EXPECT_TRUE(bad(r));
  }
  auto half = record("x", ResultKind::place);
  half.client = 0;
  EXPECT_TRUE(bad(half));
  half = record("x", ResultKind::place);
  half.series = 0;
  EXPECT_TRUE(bad(half));
}

TEST(Series, a_number_is_decimal_and_nothing_else) {
  EXPECT_EQ(parse_number("0").value(), 0);
  EXPECT_EQ(parse_number("-9223372036854775808").value(), INT64_MIN);
  EXPECT_EQ(parse_number("9223372036854775807").value(), INT64_MAX);
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1\n", "0x1", "1.0", "9223372036854775808", "eleven"})
    EXPECT_EQ(parse_number(text).error().code, Code::invalid) << text;
}

TEST(Series, a_window_holds_the_highest_number_and_those_right_below) {
  SeriesWindow w;
  EXPECT_EQ(w.find(1), nullptr);
  for (uint64_t n = 1; n <= 100; n++) w.add(entry(n, 10 + n));
  EXPECT_EQ(w.entries().size(), kSeriesWindow);
  EXPECT_EQ(w.high(), 100U);
  EXPECT_EQ(w.find(36), nullptr);
  ASSERT_NE(w.find(37), nullptr);
  EXPECT_EQ(w.find(37)->outcome.lsn.value, 47U);
  EXPECT_TRUE(below_window(36, 100));
  EXPECT_FALSE(below_window(37, 100));
  EXPECT_FALSE(below_window(1, 64));
  EXPECT_TRUE(below_window(1, 65));
  EXPECT_FALSE(below_window(1, 0));
  EXPECT_TRUE(below_window(UINT64_MAX - 64, UINT64_MAX));
  w.add(entry(3, 999));  // too late
  EXPECT_EQ(w.find(3), nullptr);
  w.add(entry(1000, 999));
  EXPECT_EQ(w.entries().size(), 1U);
}

TEST(Series, of_one_number_the_entry_with_the_highest_lsn_stays) {
  SeriesWindow w;
  w.add(entry(7, 20));
  w.add(entry(7, 10));
  EXPECT_EQ(w.find(7)->outcome.lsn.value, 20U);
  w.add(entry(7, 30));
  EXPECT_EQ(w.find(7)->outcome.lsn.value, 30U);
  EXPECT_EQ(w.entries().size(), 1U);
}

// Two partitions that were one are merged again: what was written before is in both, at times that have parted.
TEST(Series, of_the_same_record_the_later_time_stays) {
  auto early = entry(5, 10), late = early;
  late.time_ms = early.time_ms + 7;
  SeriesWindow a, b;
  a.add(early);
  b.add(late);
  for (auto [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    one.merge(other);
    ASSERT_EQ(one.entries().size(), 1U);
    EXPECT_EQ(one.entries()[0], late);
  }
}

TEST(Series, a_window_moves_into_a_time_that_is_ahead) {
  SeriesWindow w;
  w.add(entry(5, 10));
  const auto before = w.entries()[0];
  w.shift(kSeriesExpiryMs);
  EXPECT_EQ(w.entries()[0].time_ms, before.time_ms + kSeriesExpiryMs);
  w.expire(before.time_ms + 2 * kSeriesExpiryMs - 1);
  EXPECT_FALSE(w.empty());
  w.expire(before.time_ms + 2 * kSeriesExpiryMs);
  EXPECT_TRUE(w.empty());
}

TEST(Series, entries_expire_by_log_time) {
  SeriesWindow w;
  w.add(entry(1, 10, 0));
  w.add(entry(2, 11, 5));
  w.expire(kSeriesExpiryMs - 1);
  EXPECT_EQ(w.entries().size(), 2U);
  w.expire(kSeriesExpiryMs);
  EXPECT_EQ(w.find(1), nullptr);
  EXPECT_NE(w.find(2), nullptr);
  w.expire(kSeriesExpiryMs + 5);
  EXPECT_TRUE(w.empty());
}

// A client that begins again after everything of it was forgotten.
TEST(Series, a_number_used_anew_is_not_below_the_window_of_what_has_expired) {
  const auto old_one = entry(1000, 10, 0), again = entry(5, 20, kSeriesExpiryMs);
  SeriesWindow w;
  w.add(old_one);
  w.add(again);
  EXPECT_EQ(w.entries(), (std::vector<SeriesEntry>{again}));
  w.add(old_one);  // as a replay does
  EXPECT_EQ(w.entries(), (std::vector<SeriesEntry>{again}));
}

// What recovery counts on: whatever was applied already may be applied again.
TEST(Series, in_any_order_and_with_repeats_the_same_window_comes_out) {
  for (uint64_t seed = 1; seed <= 200; seed++) {
    base::SeededRandom random(seed);
    std::vector<SeriesEntry> entries;
    for (uint64_t i = 0; i < 150; i++) entries.push_back(entry(1 + random.below(120), 1 + i));
    SeriesWindow in_order;
    for (const auto& e : entries) in_order.add(e);
    SeriesWindow parts[3], mixed;
    for (int round = 0; round < 2; round++)
      for (size_t i = entries.size(); i > 0; i--) {
        parts[random.below(3)].add(entries[i - 1]);
        std::swap(entries[i - 1], entries[random.below(i)]);
      }
    for (const auto& e : entries) parts[random.below(3)].add(e);
    for (const int i : {2, 0, 1, 0}) mixed.merge(parts[i]);
    ASSERT_EQ(mixed, in_order) << seed;
    // And it is what a map would say.
    std::map<uint64_t, SeriesEntry> all;
    for (const auto& e : entries) {
      auto [it, fresh] = all.emplace(e.number, e);
      if (!fresh && e.outcome.lsn > it->second.outcome.lsn) it->second = e;
    }
    const auto high = all.rbegin()->first;
    for (const auto& [n, e] : all) {
      const auto* found = mixed.find(n);
      ASSERT_EQ(found != nullptr, n + kSeriesWindow > high) << seed;
      if (found != nullptr) {
        ASSERT_EQ(*found, e);
      }
    }
  }
}

// A window as its rules say it, looking at every entry each time.
void add_plainly(std::map<uint64_t, SeriesEntry>& all, const SeriesEntry& e) {
  const auto expired = [](const SeriesEntry& x, uint64_t now) { return x.time_ms + kSeriesExpiryMs <= now; };
  uint64_t newest = e.time_ms;
  for (const auto& [n, x] : all) newest = std::max(newest, x.time_ms);
  std::erase_if(all, [&](const auto& x) { return expired(x.second, newest); });
  if (expired(e, newest) || below_window(e.number, all.empty() ? 0 : all.rbegin()->first)) return;
  const auto [it, fresh] = all.emplace(e.number, e);
  if (!fresh && e.outcome.lsn > it->second.outcome.lsn) it->second = e;
  std::erase_if(all, [&](const auto& x) { return below_window(x.first, all.rbegin()->first); });
}

TEST(Series, what_is_not_looked_at_for_each_entry_makes_no_difference) {
  for (uint64_t seed = 1; seed <= 300; seed++) {
    base::SeededRandom random(seed);
    SeriesWindow w;
    std::map<uint64_t, SeriesEntry> plain;
    for (uint64_t i = 0; i < 400; i++) {
      // Mostly ascending, sometimes anything; now and then everything is far newer.
      const uint64_t number = random.chance(0.8) ? 1 + i / 2 + random.below(10) : 1 + random.below(300);
      const uint64_t time = i * kSeriesExpiryMs / 200 + random.below(kSeriesExpiryMs);
      const auto e = entry(number, 1 + random.below(1000), random.chance(0.01) ? time + kSeriesExpiryMs : time);
      w.add(e);
      add_plainly(plain, e);
      if (random.chance(0.02)) {
        const uint64_t now = i * kSeriesExpiryMs / 200 + kSeriesExpiryMs;
        w.expire(now);
        std::erase_if(plain, [&](const auto& x) { return x.second.time_ms + kSeriesExpiryMs <= now; });
      }
      std::vector<SeriesEntry> want;
      for (const auto& [n, x] : plain) want.push_back(x);
      ASSERT_EQ(w.entries(), want) << "seed " << seed << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace cantle::model

// Records that were read (lib/store/record_cache.h): never another than was last given, in bounded memory, and what the
// engine makes of them.
#include "lib/store/record_cache.h"

#include <gtest/gtest.h>

#include <map>

#include "lib/base/random.h"
#include "test/unit/store/engine_fixture.h"

namespace cantle::store {
namespace {

Found found(std::string_view value, uint64_t n) { return {false, model::quorum_version({1}, {n}), value, 0}; }

TEST(RecordCache, has_what_it_was_given_last_or_nothing) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    base::SeededRandom random(seed);
    const uint64_t most = 1 + random.below(20000);
    RecordCache cache(most, 64);
    std::map<std::pair<uint32_t, std::string>, std::string> given;
    uint64_t hits = 0;
    for (uint64_t i = 1; i <= 20000; i++) {
      const model::ExtentId extent{static_cast<uint32_t>(1 + random.below(2))};
      const auto key = "key" + std::to_string(random.below(400));
      auto& value = given[{extent.value, key}];
      switch (random.below(4)) {
        case 0:  // as a writer does: the next reader gives what is there then
          cache.erase(extent, key);
          value = std::string(random.below(200), 'v') + std::to_string(i);
          break;
        case 1: cache.add(extent, key, found(value, i)); break;
        default:
          if (const auto is = cache.find(extent, key)) {
            hits++;
            ASSERT_EQ(is->value, value) << "seed " << seed;
          }
      }
      if (random.chance(0.2)) cache.let_go();
      if (random.chance(0.0005)) cache.clear();
      ASSERT_LE(cache.bytes(), most);
    }
    if (most > 10000) {
      EXPECT_GT(hits, 500U) << "seed " << seed;
    }
    EXPECT_EQ(cache.hits(), hits);
    cache.clear();
    EXPECT_EQ(cache.bytes(), 0U);
    EXPECT_EQ(cache.records(), 0U);
  }
}

TEST(RecordCache, a_view_holds_until_it_is_let_go) {
  RecordCache cache;
  const std::string value(3000, 'v');
  cache.add({1}, "k", found(value, 1));
  const auto view = cache.find({1}, "k");
  ASSERT_TRUE(view);
  EXPECT_TRUE(cache.viewed());
  cache.erase({1}, "k");
  cache.clear();
  EXPECT_EQ(view->value, value);
  cache.let_go();
  EXPECT_FALSE(cache.viewed());
  EXPECT_FALSE(cache.find({1}, "k"));
}

TEST(RecordCache, a_hundred_thousand_small_records_are_nearly_all_kept) {
  RecordCache cache;
  const auto key = [](uint64_t n) { return "user:" + std::to_string(10000000 + n); };
  const std::string value(100, 'v');
  for (int round = 0; round < 2; round++)
    for (uint64_t n = 0; n < 100000; n++) cache.add({7}, key(n), found(value, n + 1));
  EXPECT_GT(cache.records(), 90000U);
}

// Once through a partition that is larger by far does not empty it of what is asked for all the time.
TEST(RecordCache, who_reads_everything_once_does_not_push_out_what_is_asked_for) {
  RecordCache cache(uint64_t{1} << 30, 16);
  for (const char* key : {"a", "b", "c", "d"}) cache.add({1}, key, found("hot", 1));
  uint64_t hits = 0;
  for (uint64_t n = 0; n < 10000; n++) {
    cache.add({1}, "cold" + std::to_string(n), found("cold", n + 1));
    for (const char* key : {"a", "b", "c", "d"}) hits += cache.find({1}, key) ? 1 : 0;
  }
  EXPECT_GT(hits, 20000U);
}

TEST(RecordCache, tombstones_and_large_values_are_not_kept) {
  RecordCache cache;
  cache.add({1}, "gone", {true, model::quorum_version({1}, {1}), "", 0});
  cache.add({1}, "large", found(std::string(kCachedMost, 'v'), 1));
  EXPECT_EQ(cache.records(), 0U);
}

TEST(RecordCache, the_engine_answers_from_it_what_is_newest) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto write = [&](const model::Record& r) {
    ASSERT_TRUE(s.append(1, {r}));
    s.run();
  };
  const auto hits = [&] { return s.engine->status().cache_hits; };
  write(put("a", "first", 10));
  s.settle();
  EXPECT_EQ(s.get(1, "a"), "first");  // from the index
  EXPECT_EQ(hits(), 0U);
  EXPECT_EQ(s.get(1, "a"), "first");
  EXPECT_EQ(hits(), 1U);
  write(put("a", "second", 20));
  EXPECT_EQ(s.get(1, "a"), "second");  // from the overlay
  s.settle();
  EXPECT_EQ(s.get(1, "a"), "second");
  EXPECT_EQ(s.get(1, "a"), "second");
  EXPECT_EQ(hits(), 2U);
  write(put("a", "older", 15));  // over a newer one, which stays what is read
  EXPECT_EQ(s.get(1, "a"), "second");
  s.settle();
  EXPECT_EQ(s.get(1, "a"), "second");
  write(del("a", 30));
  s.settle();
  EXPECT_EQ(s.get(1, "a"), "deleted");
  EXPECT_EQ(s.get(1, "a"), "deleted");
}

TEST(RecordCache, it_is_not_asked_while_a_snapshot_goes_past_the_overlay) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.append(1, {put("a", "ours", 10)}));
  s.settle();
  EXPECT_EQ(s.get(1, "a"), "ours");
  bool done = false;
  ASSERT_TRUE(s.engine->ingest(tenure(1, 1), {1, payload_of({put("a", "theirs", 50)}), "z", true},
                               [&](const base::Status& status) { done = status.has_value(); }));
  for (int i = 0; i < 1000 && !done; i++) {  // whatever is read meanwhile
    auto now = s.engine->get(partition(1), "a");
    ASSERT_TRUE(now && *now);
    for (int n = 0; n < 3; n++) s.lanes->step();
  }
  ASSERT_TRUE(done);
  EXPECT_EQ(s.get(1, "a"), "theirs");
  EXPECT_EQ(s.get(1, "a"), "theirs");
  EXPECT_EQ(s.engine->status().cache_hits, 1U);
}

}  // namespace
}  // namespace cantle::store

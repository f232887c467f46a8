// Pins: one state of a partition for the pages of a scan, whatever is written, applied and divided meanwhile.
#include <gtest/gtest.h>

#include "lib/base/random.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;

struct Pinning : QuorumStore {
  Pinning() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
    EXPECT_TRUE(begin_epoch(1));
    run();
  }
  void put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(build(1, key, value));
    run();
    ASSERT_TRUE(commit(log().durable.lsn.value));
  }
  base::Result<Engine::Pin> pin(uint8_t p = 1) {
    std::optional<base::Result<Engine::Pin>> got;
    engine->pin(partition(p), [&](base::Result<Engine::Pin> r) { got.emplace(std::move(r)); });
    for (int i = 0; i < 100 && !got; i++) run();
    EXPECT_TRUE(got.has_value());
    return std::move(*got);
  }
  base::Result<Engine::ScanRows> page(const Engine::Pin& of, const ScanRange& range) {
    base::Result<Engine::ScanRows> rows = base::fail(Code::cancelled, "not called back");
    engine->scan_async(of, range, [&](base::Result<Engine::ScanRows> r) { rows = std::move(r); });
    run();
    return rows;
  }
  // All of it in pages of so many.
  Rows read(const Engine::Pin& of, uint32_t records, bool reverse = false) {
    Rows all;
    ScanRange range;
    range.reverse = reverse;
    range.records_max = records;
    for (;;) {
      const auto rows = page(of, range);
      EXPECT_TRUE(rows) << base::to_string(rows.error());
      if (!rows) return all;
      EXPECT_EQ(rows->end.at, of.at());
      for (const auto& r : rows->rows) EXPECT_TRUE(all.emplace(r.key, r.record.value).second) << r.key;
      if (!rows->end.more) return all;
      (reverse ? range.to : range.from) = rows->end.resume;
    }
  }
};

TEST(Pin, shows_the_state_that_it_was_taken_in_whatever_is_written_and_applied_later) {
  Pinning s;
  for (int i = 0; i < 20; i++) s.put("k" + std::to_string(10 + i), "old");
  const auto pin = s.pin();
  ASSERT_TRUE(pin);
  EXPECT_EQ(pin->at(), s.log().visible);
  const auto before = s.all(1);
  EXPECT_EQ(s.read(*pin, 7), before);
  for (int i = 0; i < 20; i += 2) s.put("k" + std::to_string(10 + i), "new");
  s.put("k105", "new");
  EXPECT_EQ(s.read(*pin, 7), before);
  EXPECT_EQ(s.read(*pin, 7, true), before);
  s.settle();  // all of it in the index now
  EXPECT_EQ(s.read(*pin, 3), before);
  EXPECT_EQ(s.read(*pin, 3, true), before);
  EXPECT_NE(s.all(1), before);
}

TEST(Pin, does_not_depend_on_what_of_it_was_in_memory) {
  // What is durable is drained first; what is written until the state is taken stays in memory, and is in it.
  base::SystemRandom random;
  const uint64_t seed = random.u64();
  SCOPED_TRACE(seed);
  base::SeededRandom dice(seed);
  Pinning s;
  std::vector<std::pair<Engine::Pin, Rows>> pins;
  for (int i = 0; i < 400; i++) {
    s.put("k" + std::to_string(dice.u64() % 60), std::to_string(i));
    if (dice.u64() % 40 == 0) s.settle();
    if (dice.u64() % 50 == 0 && pins.size() < kPinsMax) {
      auto pin = s.pin();
      ASSERT_TRUE(pin);
      pins.emplace_back(std::move(*pin), s.all(1));
    }
    if (dice.u64() % 100 != 0) continue;
    for (const auto& [pin, rows] : pins) {
      EXPECT_EQ(s.read(pin, 1 + static_cast<uint32_t>(dice.u64() % 30), dice.u64() % 2 == 0), rows);
    }
  }
  for (const auto& [pin, rows] : pins) EXPECT_EQ(s.read(pin, 10), rows);
}

TEST(Pin, there_are_so_many_and_not_one_more_until_one_is_let_go) {
  Pinning s;
  s.put("a", "1");
  std::vector<Engine::Pin> pins;
  for (size_t i = 0; i < kPinsMax; i++) {
    auto pin = s.pin();
    ASSERT_TRUE(pin);
    pins.push_back(std::move(*pin));
  }
  const auto more = s.pin();
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::overloaded);
  EXPECT_GT(more.error().retry_after_ms, 0U);
  pins.pop_back();
  EXPECT_TRUE(s.pin());
  EXPECT_EQ(s.pin(9).error().code, Code::not_found);  // and what failed holds none
  EXPECT_TRUE(s.pin());
}

TEST(Pin, gives_one_page_at_a_time) {
  Pinning s;
  s.put("a", "1");
  const auto pin = s.pin();
  ASSERT_TRUE(pin);
  std::vector<Code> codes;
  bool first = false;
  s.engine->scan_async(*pin, {}, [&](auto rows) { first = rows.has_value(); });
  s.engine->scan_async(*pin, {}, [&](auto rows) { codes.push_back(rows ? Code::malformed : rows.error().code); });
  s.run();
  EXPECT_TRUE(first);
  EXPECT_EQ(codes, std::vector<Code>{Code::conflict});
  EXPECT_EQ(s.read(*pin, 1).size(), 1U);
}

}  // namespace
}  // namespace cantle::store

#include "lib/proto/quorum_read.h"

#include <gtest/gtest.h>

namespace cantle::proto {
namespace {

model::Version v(uint64_t n) { return model::Version::make(n, 0, {1}, {1}); }
model::PushReadReply value(uint64_t n, std::string text) { return {true, false, v(n), std::move(text)}; }
model::PushScanEntry entry(std::string key, uint64_t n, bool deleted = false) {
  return {std::move(key), deleted ? "" : "v" + std::to_string(n), v(n), deleted};
}
std::string keys(const QuorumScan::Page& page) {
  std::string text;
  for (const auto& r : page.records) text += r.key + "=" + r.value + " ";
  return text + (page.more ? "..." + page.resume : ".");
}

TEST(QuorumGet, the_newest_of_enough_slots_wins) {
  QuorumGet read(2);
  read.answered(0, value(5, "old"));
  EXPECT_FALSE(read.done());
  read.answered(0, value(5, "old"));  // the same slot again
  EXPECT_FALSE(read.done());
  read.answered(1, value(9, "new"));
  ASSERT_TRUE(read.done());
  EXPECT_EQ(read.result()->value, "new");
}

TEST(QuorumGet, a_newer_tombstone_hides_an_older_value) {
  QuorumGet read(2);
  read.answered(0, value(5, "old"));
  read.answered(2, {true, true, v(6), ""});
  EXPECT_EQ(read.result().error().code, base::Code::not_found);
  QuorumGet none(1);
  none.answered(0, {});
  EXPECT_EQ(none.result().error().code, base::Code::not_found);
}

TEST(QuorumScan, merges_by_key_and_newest_version) {
  QuorumScan scan(2, false, 100, 1000);
  scan.answered(0, {{entry("a", 1), entry("b", 9, true), entry("c", 3)}, false, "", {}});
  scan.answered(1, {{entry("b", 4), entry("c", 5), entry("d", 1)}, false, "", {}});
  EXPECT_EQ(keys(scan.result()), "a=v1 c=v5 d=v1 .");
}

TEST(QuorumScan, goes_no_further_than_every_page_is_complete) {
  QuorumScan scan(2, false, 100, 1000);
  scan.answered(0, {{entry("a", 1), entry("b", 1), entry("c", 1)}, true, "d", {}});
  scan.answered(1, {{entry("a", 2), entry("e", 2), entry("f", 2)}, true, "g", {}});
  EXPECT_EQ(keys(scan.result()), "a=v2 b=v1 c=v1 ...d");  // "e" may have a newer version on the first
}

TEST(QuorumScan, cut_by_its_limit_it_goes_on_where_it_stopped) {
  QuorumScan scan(1, false, 2, 1000);
  scan.answered(0, {{entry("a", 1), entry("b", 1), entry("c", 1)}, false, "", {}});
  EXPECT_EQ(keys(scan.result()), "a=v1 b=v1 ...c");
}

TEST(QuorumScan, backwards_it_goes_on_below) {
  QuorumScan scan(2, true, 2, 1000);
  scan.answered(0, {{entry("d", 1), entry("c", 1), entry("b", 1)}, true, "b", {}});
  scan.answered(1, {{entry("d", 2), entry("a", 2)}, false, "", {}});
  EXPECT_EQ(keys(scan.result()), "d=v2 c=v1 ...c");
  QuorumScan whole(2, true, 9, 1000);
  whole.answered(0, {{entry("d", 1), entry("c", 1)}, true, "c", {}});
  whole.answered(1, {{entry("d", 2), entry("b", 2)}, true, "b", {}});
  EXPECT_EQ(keys(whole.result()), "d=v2 c=v1 ...c");  // whether the first has "b" is not known
}

}  // namespace
}  // namespace cantle::proto

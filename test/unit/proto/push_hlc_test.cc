#include <gtest/gtest.h>

#include "lib/proto/hlc.h"

namespace cantle::proto {
namespace {

using model::ServerId;
using model::Version;
using namespace std::chrono_literals;

TEST(Hlc, stamps_the_clock_and_counts_within_a_millisecond) {
  Hlc hlc({4}, {9}, {});
  const auto a = hlc.stamp(1000), b = hlc.stamp(1000), c = hlc.stamp(1001);
  EXPECT_EQ(a, Version::make(1000, 0, {4}, {9}));
  EXPECT_EQ(b, Version::make(1000, 1, {4}, {9}));
  EXPECT_EQ(c, Version::make(1001, 0, {4}, {9}));
}

TEST(Hlc, never_stamps_at_or_below_what_it_has_seen) {
  Hlc hlc({4}, {9}, Version::make(5000, 7, {1}, {1}));
  EXPECT_EQ(hlc.stamp(1000), Version::make(5000, 8, {4}, {9}));
  hlc.observe(Version::make(5000, 0xffff, {9}, {1}));
  EXPECT_EQ(hlc.stamp(1000), Version::make(5001, 0, {4}, {9}));  // the counter is used up: the next millisecond
  EXPECT_EQ(hlc.ahead_ms(1000), 4001u);
}

TEST(PeerClocks, one_of_two_peers_that_is_off_is_not_the_median) {
  PeerClocks clocks;
  const base::Instant t{100s};
  clocks.tick(t, 1'000'000);
  clocks.heard(ServerId{"b"}, 1'000'000 + 3'600'000, t, 1'000'000);
  clocks.heard(ServerId{"c"}, 1'000'000 - 3, t, 1'000'000);
  EXPECT_EQ(clocks.median(t), -3);
  EXPECT_FALSE(clocks.distrusted(t, true));
}

TEST(PeerClocks, old_samples_say_nothing) {
  PeerClocks clocks;
  const base::Instant t{100s};
  clocks.heard(ServerId{"b"}, 9'000'000, t, 1'000'000);
  EXPECT_TRUE(clocks.distrusted(t, true));
  EXPECT_FALSE(clocks.distrusted(t + 11s, true));
  EXPECT_EQ(clocks.offset(ServerId{"b"}, t + 11s), std::nullopt);
}

TEST(PeerClocks, a_jump_is_seen_against_the_steady_clock) {
  PeerClocks clocks;
  clocks.tick(base::Instant{100s}, 1'000'000);
  clocks.tick(base::Instant{160s}, 1'060'100);  // a minute is a minute
  EXPECT_FALSE(clocks.distrusted(base::Instant{160s}, true));
  clocks.tick(base::Instant{161s}, 8'061'100);
  EXPECT_TRUE(clocks.distrusted(base::Instant{161s}, true));
  EXPECT_FALSE(clocks.distrusted(base::Instant{161s}, false));  // nobody to ask
  clocks.heard(ServerId{"b"}, 8'061'200, base::Instant{161s}, 8'061'100);
  EXPECT_FALSE(clocks.distrusted(base::Instant{161s}, true));
}

}  // namespace
}  // namespace cantle::proto

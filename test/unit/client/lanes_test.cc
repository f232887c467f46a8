#include "lib/client/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace cantle::client {
namespace {

class LanesTest : public testing::Test {
 protected:
  base::SeededRandom random{7};
  Lanes lanes{random};
};

TEST_F(LanesTest, numbers_ascend_from_one_under_one_id) {
  const auto first = lanes.draw(), second = lanes.draw();
  EXPECT_NE(first.client, 0u);
  EXPECT_EQ(first.client, second.client);
  EXPECT_EQ(first.series, 1u);
  EXPECT_EQ(second.series, 2u);
  lanes.ended(first);
  lanes.ended(second);
  EXPECT_EQ(lanes.draw().series, 3u);  // never again, ended or not
}

TEST_F(LanesTest, the_lowest_that_is_waited_for_moves_when_it_ends) {
  const auto one = lanes.draw(), two = lanes.draw(), three = lanes.draw();
  EXPECT_EQ(lanes.low(three), 1u);
  lanes.ended(two);
  EXPECT_EQ(lanes.low(three), 1u);
  lanes.ended(one);
  EXPECT_EQ(lanes.low(three), 3u);
  lanes.ended(three);
  const auto four = lanes.draw();
  EXPECT_EQ(lanes.low(four), 4u);
}

TEST_F(LanesTest, a_window_that_is_full_opens_another_lane_and_goes_on_when_its_lowest_ends) {
  std::vector<Lanes::Number> drawn;
  for (uint64_t i = 0; i < model::kSeriesWindow; ++i) drawn.push_back(lanes.draw());
  EXPECT_EQ(lanes.size(), 1u);
  const auto other = lanes.draw();
  EXPECT_EQ(lanes.size(), 2u);
  EXPECT_NE(other.client, drawn[0].client);
  EXPECT_EQ(other.series, 1u);
  lanes.ended(drawn[1]);
  EXPECT_EQ(lanes.draw().client, other.client);  // 1 is still waited for
  lanes.ended(drawn[0]);
  const auto next = lanes.draw();
  EXPECT_EQ(next.client, drawn[0].client);
  EXPECT_EQ(next.series, model::kSeriesWindow + 1);
  EXPECT_EQ(lanes.low(next), 3u);
}

TEST_F(LanesTest, no_number_is_drawn_twice_and_windows_and_the_count_of_lanes_are_kept) {
  std::vector<Lanes::Number> under_way;
  std::map<uint64_t, uint64_t> last;  // client → series
  size_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    if (under_way.size() < 300 && random.chance(0.52)) {
      const auto n = lanes.draw();
      ASSERT_EQ(n.series, ++last[n.client]);
      ASSERT_LT(n.series - lanes.low(n), model::kSeriesWindow);
      under_way.push_back(n);
    } else if (!under_way.empty()) {
      const size_t at = random.chance(0.9) ? random.below(std::min<size_t>(8, under_way.size()))  // mostly in order
                                           : random.below(under_way.size());
      const auto n = under_way[at];
      under_way.erase(under_way.begin() + static_cast<long>(at));
      lanes.ended(n);
    }
    most = std::max(most, under_way.size());
    ASSERT_LE(lanes.size(), most);
    std::map<uint64_t, uint64_t> lowest;  // client → series
    for (const auto& n : under_way) {
      auto& low = lowest.try_emplace(n.client, n.series).first->second;
      low = std::min(low, n.series);
    }
    for (const auto& n : under_way) ASSERT_EQ(lanes.low(n), lowest[n.client]);
  }
  EXPECT_GT(lanes.size(), 1u);
}

}  // namespace
}  // namespace cantle::client

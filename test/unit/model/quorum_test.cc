#include "lib/model/quorum.h"

#include <gtest/gtest.h>

namespace cantle::model {
namespace {

using namespace std::chrono_literals;

Voters voters_of(size_t count) {
  Voters voters;
  for (size_t i = 0; i < count; ++i) {
    Voter v{static_cast<uint32_t>(i), {"p" + std::to_string(i)}, {}};
    v.assignment.bytes[15] = static_cast<uint8_t>(i + 1);
    voters.push_back(v);
  }
  return voters;
}

TEST(Quorum, tokens_are_compared_by_epoch_first) {
  EXPECT_LT((LogToken{{1}, {900}}), (LogToken{{2}, {5}}));
  EXPECT_LT((LogToken{{2}, {4}}), (LogToken{{2}, {5}}));
}

TEST(Quorum, a_majority_is_more_than_half_and_an_empty_set_has_none) {
  for (const auto& [voters, needed] : {std::pair<size_t, size_t>{1, 1}, {2, 2}, {3, 2}, {4, 3}, {5, 3}, {7, 4}}) {
    EXPECT_EQ(majority(voters), needed);
    const auto set = voters_of(voters);
    size_t left = needed;
    EXPECT_TRUE(majority_of(set, [&](const Voter&) { return left > 0 && left-- > 0; }));
    left = needed - 1;
    EXPECT_FALSE(majority_of(set, [&](const Voter&) { return left > 0 && left-- > 0; }));
  }
  EXPECT_FALSE(majority_of({}, [](const Voter&) { return true; }));
}

TEST(Quorum, a_majority_reaches_as_far_as_the_least_of_its_best) {
  const auto until = [](const Voter& v) { return base::Instant{v.slot * 1s}; };
  EXPECT_EQ(majority_until(voters_of(1), until), base::Instant{0s});
  EXPECT_EQ(majority_until(voters_of(3), until), base::Instant{1s});
  EXPECT_EQ(majority_until(voters_of(5), until), base::Instant{2s});
  EXPECT_EQ(majority_until({}, until), base::Instant{});
}

}  // namespace
}  // namespace cantle::model

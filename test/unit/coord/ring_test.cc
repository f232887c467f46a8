#include "lib/coord/ring.h"

#include <gtest/gtest.h>

namespace cantle::coord {
namespace {

model::Vote vote() {
  model::AssignmentId a;
  a.bytes[15] = 9;
  return {{8}, {{7}, {1234}}, a, {"p1"}, 2, true, {12000000003}};
}

TEST(Ring, carries_votes_and_names_governments) {
  auto other = vote();
  other.can_lead = false;
  EXPECT_EQ(ring_line({70000}, vote()), "vote: 70000 8 7-1234 00000000000000000000000000000009 p1 2 yes 12000000003\n");
  EXPECT_EQ(ring_line({5}), "government: 5\n");
  const Ring ring{{{{70000}, vote()}, {{1}, other}}, {{5}, {6}}};
  EXPECT_EQ(parse_ring(ring_line({70000}, vote()) + ring_line({5}) + ring_line({1}, other) + ring_line({6})).value(),
            ring);
  EXPECT_FALSE(ring.any());
}

TEST(Ring, that_says_nothing_is_for_anybody) { EXPECT_TRUE(parse_ring("").value().any()); }

TEST(Ring, what_is_no_ring_is_refused) {
  const auto good = ring_line({1}, vote());
  for (const auto& bad : {std::string("x"), std::string("government: 4294967296\n"), std::string("government: \n"),
                          std::string("vote: 1\n"), good.substr(0, good.size() - 14),
                          good.substr(0, good.size() - 1) + " 1\n", std::string("\n") + good})
    EXPECT_FALSE(parse_ring(bad)) << bad;
}

}  // namespace
}  // namespace cantle::coord

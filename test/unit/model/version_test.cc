#include "lib/model/version.h"

#include <gtest/gtest.h>

namespace cantle::model {
namespace {

TEST(Version, of_a_quorum_table_grows_along_the_log_whatever_the_epoch) {
  EXPECT_EQ(to_string(quorum_version({0x0102}, {0x0a0b})),
            "0000000000000a0b"
            "00000000"
            "0000000000000102");
  EXPECT_LT(quorum_version({9}, {5}), quorum_version({2}, {6}));  // a merge's target may be of an older epoch
  EXPECT_LT(quorum_version({2}, {6}), quorum_version({3}, {6}));
  EXPECT_LT(quorum_version({1}, {255}), quorum_version({1}, {256}));
  EXPECT_FALSE(quorum_version({1}, {1}).none());
}

}  // namespace
}  // namespace cantle::model

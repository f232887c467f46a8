#include "lib/coord/path.h"

#include <gtest/gtest.h>

namespace cantle::coord {
namespace {

TEST(Path, good_and_bad_ones) {
  for (const char* good : {"/", "/a", "/a/b-c/d_0000000001", "/a b"}) EXPECT_TRUE(validate_path(good)) << good;
  for (const char* bad : {"", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\nb"})
    EXPECT_FALSE(validate_path(bad)) << bad;
  EXPECT_TRUE(validate_path("/" + std::string(kPathMax - 1, 'x')));
  EXPECT_FALSE(validate_path("/" + std::string(kPathMax, 'x')));
}

TEST(Path, parents_and_names) {
  EXPECT_EQ(parent_of("/a/b"), "/a");
  EXPECT_EQ(parent_of("/a"), "/");
  EXPECT_EQ(parent_of("/"), "");
  EXPECT_EQ(name_of("/a/b"), "b");
  EXPECT_EQ(join_path("/", "a"), "/a");
  EXPECT_EQ(join_path("/a", "b"), "/a/b");
}

TEST(Path, oversized_changes_are_refused_before_they_are_sent) {
  EXPECT_TRUE(validate_change("/a", std::string(kValueMax, 'x')));
  EXPECT_FALSE(validate_change("/a", std::string(kValueMax + 1, 'x')));
  EXPECT_FALSE(validate_multi({}));
  EXPECT_FALSE(validate_multi(std::vector<Op>(kMultiOpsMax + 1, OpCheck{"/a"})));
  const std::string half(kMultiBytesMax / 2, 'x');
  EXPECT_FALSE(validate_multi({OpSet{"/a", half}, OpSet{"/b", half}}));
  EXPECT_TRUE(validate_multi({OpSet{"/a", half}, OpSet{"/b", half.substr(200)}}));
}

}  // namespace
}  // namespace cantle::coord

#include "lib/daemon/duration.h"

#include <gtest/gtest.h>

namespace cantle::daemon {
namespace {

using std::chrono::milliseconds;

TEST(Duration, is_a_number_with_a_unit_and_seconds_without_one) {
  EXPECT_EQ(*parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(*parse_duration("5"), milliseconds(5000));
  EXPECT_EQ(*parse_duration("0.5s"), milliseconds(500));
  EXPECT_EQ(*parse_duration("2m"), milliseconds(120000));
  EXPECT_EQ(*parse_duration("1h"), milliseconds(3600000));
  EXPECT_EQ(*parse_duration("0"), milliseconds(0));
}

TEST(Duration, anything_else_is_refused_with_what_it_may_be) {
  for (const auto* text : {"", "s", "-1s", "nan", "inf", "1e99h", "5 s", "5d", "0x5", "5s5"}) {
    const auto refused = parse_duration(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, base::Code::usage);
    EXPECT_NE(refused.error().text.find("250ms, 5s, 2m, 1h"), std::string::npos);
  }
}

}  // namespace
}  // namespace cantle::daemon

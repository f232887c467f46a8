#include <gtest/gtest.h>

#include "lib/model/client_messages.h"

namespace cantle::model {
namespace {

TEST(ScanCursor, is_read_as_it_was_written) {
  for (const bool reverse : {false, true})
    for (const auto& c :
         {ScanCursor{reverse, "k", {7}}, ScanCursor{reverse, std::string("\0\xff", 2), {1}, 99, {"p1"}},
          ScanCursor{reverse, std::string(kKeyMax + 1, 'x'), {1}, ~uint64_t{0}, {std::string(63, 'a')}}}) {
      const auto again = decode_cursor(encode_cursor(c));
      ASSERT_TRUE(again) << again.error().text;
      EXPECT_EQ(*again, c);
    }
}

TEST(ScanCursor, what_no_scan_gave_is_refused) {
  const auto plain = encode_cursor({false, "k", {7}}), kept = encode_cursor({false, "k", {7}, 5, {"p1"}});
  EXPECT_NE(plain, kept);
  for (size_t n = 0; n < plain.size(); n++) EXPECT_FALSE(decode_cursor(plain.substr(0, n))) << n;
  for (size_t n = 0; n < kept.size(); n++) EXPECT_FALSE(decode_cursor(kept.substr(0, n))) << n;
  EXPECT_FALSE(decode_cursor(plain + std::string(kKeyMax + 1, 'x')));
  auto other = kept;
  other[0] = 9;  // a format to come
  EXPECT_FALSE(decode_cursor(other));
  other = kept;
  other[18] = 'P';  // no server's name
  EXPECT_FALSE(decode_cursor(other));
  other = kept;
  other[17] = '\x40';  // longer than any
  EXPECT_FALSE(decode_cursor(other));
  EXPECT_FALSE(decode_cursor(encode_cursor({false, "k", {7}, 0, {}}).replace(0, 1, "\4")));
}

}  // namespace
}  // namespace cantle::model

#include "lib/base/bytes.h"

#include <gtest/gtest.h>

namespace cantle::base {
namespace {

TEST(Bytes, crc32c_has_the_published_check_value) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c("6789", crc32c("12345")), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  // Long ones go in lanes: any cut gives the same.
  std::string bytes;
  for (uint32_t i = 0; i < 5000; i++) bytes += static_cast<char>(i * 2654435761U >> 24);
  uint32_t one_by_one = 0;
  for (size_t n = 0; n < bytes.size(); n++) {
    EXPECT_EQ(crc32c(std::string_view(bytes).substr(0, n)), one_by_one) << n;
    one_by_one = crc32c(std::string_view(bytes).substr(n, 1), one_by_one);
  }
}

TEST(Bytes, escape_round_trips_every_byte) {
  std::string all;
  for (int i = 0; i < 256; i++) all += static_cast<char>(i);
  EXPECT_EQ(unescape(escape(all)).value(), all);
  EXPECT_EQ(escape("a b%"), "a%20b%25");
  EXPECT_FALSE(unescape("%4").has_value());
  EXPECT_EQ(unescape("%41").value(), "A");
  EXPECT_FALSE(unescape("%zz").has_value());
}

TEST(Bytes, hash128_sums_in_any_order_and_takes_back) {
  Hash128 a, b;
  for (const char* s : {"x", "y", "z"}) a += hash128(s);
  for (const char* s : {"z", "x", "y"}) b += hash128(s);
  EXPECT_EQ(a, b);
  a -= hash128("y");
  b -= hash128("z");
  EXPECT_NE(a, b);
  b += hash128("z");
  b -= hash128("y");
  EXPECT_EQ(a, b);
}

TEST(Bytes, hash128_carries_between_the_halves) {
  Hash128 a{UINT64_MAX, 0};
  a += Hash128{1, 0};
  EXPECT_EQ(a, (Hash128{0, 1}));
  a -= Hash128{1, 0};
  EXPECT_EQ(a, (Hash128{UINT64_MAX, 0}));
}

TEST(Bytes, integers_are_big_endian) {
  std::string out;
  put_u32_be(out, 0x01020304);
  put_u64_be(out, 0x05060708090a0b0c);
  EXPECT_EQ(to_hex(std::string_view(out)), "0102030405060708090a0b0c");
  EXPECT_EQ(get_u32_be(out.data()), 0x01020304U);
  EXPECT_EQ(get_u64_be(out.data() + 4), 0x05060708090a0b0cU);
}

TEST(Bytes, sha256_has_the_published_value_for_abc) {
  const auto h = sha256("abc");
  EXPECT_EQ(to_hex(std::string_view(reinterpret_cast<const char*>(h.data()), h.size())),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace cantle::base

// The Writer and the Reader against msgpack-cxx, and the Reader against what is no MessagePack.
#include "lib/wire/msgpack.h"

#include <gtest/gtest.h>

#include <functional>
#include <msgpack.hpp>

#include "lib/base/bytes.h"
#include "lib/base/random.h"

namespace cantle::wire {
namespace {

std::string packed(const std::function<void(msgpack::packer<msgpack::sbuffer>&)>& fill) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> packer(buffer);
  fill(packer);
  return {buffer.data(), buffer.size()};
}

template <class Fill>
std::string written(Fill fill) {
  std::string out;
  Writer w(out);
  fill(w);
  return out;
}

// Numbers at which the encoding changes, and their neighbours.
std::vector<uint64_t> edges() {
  std::vector<uint64_t> all = {0};
  for (int bits = 1; bits <= 64; ++bits) {
    const uint64_t power = bits == 64 ? 0 : uint64_t{1} << bits;
    for (const uint64_t n : {power - 1, power, power + 1}) all.push_back(n);
  }
  return all;
}

TEST(MsgPack, writes_integers_as_the_library_does) {
  for (const auto n : edges()) {
    EXPECT_EQ(written([&](Writer& w) { w.uint(n); }), packed([&](auto& p) { p.pack(n); })) << n;
    const auto negative = static_cast<int64_t>(~n);
    EXPECT_EQ(written([&](Writer& w) { w.sint(negative); }), packed([&](auto& p) { p.pack(negative); })) << negative;
  }
}

TEST(MsgPack, writes_lengths_as_the_library_does) {
  for (const size_t n : {0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000}) {
    const std::string text(n, 'x');
    EXPECT_EQ(written([&](Writer& w) { w.str(text); }), packed([&](auto& p) { p.pack(text); })) << n;
    EXPECT_EQ(written([&](Writer& w) { w.bin(text); }), packed([&](auto& p) {
                p.pack_bin(static_cast<uint32_t>(n));
                p.pack_bin_body(text.data(), static_cast<uint32_t>(n));
              }))
        << n;
    EXPECT_EQ(written([&](Writer& w) { w.array(n); }),
              packed([&](auto& p) { p.pack_array(static_cast<uint32_t>(n)); }));
    EXPECT_EQ(written([&](Writer& w) { w.map(n); }), packed([&](auto& p) { p.pack_map(static_cast<uint32_t>(n)); }));
  }
}

TEST(MsgPack, reads_every_integer_form) {
  for (const auto n : edges()) {
    const auto bytes = packed([&](auto& p) { p.pack(n); });
    uint64_t back = 0;
    Reader r(bytes);
    ASSERT_TRUE(r.uint(&back)) << n;
    EXPECT_EQ(back, n);
    EXPECT_TRUE(r.done());

    const auto negative = static_cast<int64_t>(~n);
    const auto signed_bytes = packed([&](auto& p) { p.pack(negative); });
    int64_t signed_back = 0;
    Reader s(signed_bytes);
    ASSERT_TRUE(s.sint(&signed_back)) << negative;
    EXPECT_EQ(signed_back, negative);
  }
  // Forms longer than needed, and a positive number in a signed form.
  uint64_t back = 0;
  EXPECT_TRUE(Reader(std::string_view("\xcf\0\0\0\0\0\0\0\x05", 9)).uint(&back));
  EXPECT_EQ(back, 5u);
  EXPECT_TRUE(Reader(std::string_view("\xd3\0\0\0\0\0\0\0\x06", 9)).uint(&back));
  EXPECT_EQ(back, 6u);
}

TEST(MsgPack, a_value_of_another_type_is_not_taken_and_does_not_move) {
  const auto bytes = written([](Writer& w) { w.str("text"); });
  Reader r(bytes);
  uint64_t n = 0;
  int64_t s = 0;
  bool b = false;
  uint32_t count = 0;
  EXPECT_FALSE(r.uint(&n) || r.sint(&s) || r.boolean(&b) || r.array(&count) || r.map(&count) || r.nil());
  std::string_view text;
  EXPECT_TRUE(r.text(&text));
  EXPECT_EQ(text, "text");
}

TEST(MsgPack, floats_of_both_widths) {
  double back = 0;
  EXPECT_TRUE(Reader(packed([](auto& p) { p.pack(1.5f); })).real(&back));
  EXPECT_EQ(back, 1.5);
  EXPECT_TRUE(Reader(packed([](auto& p) { p.pack(-2.25); })).real(&back));
  EXPECT_EQ(back, -2.25);
  EXPECT_TRUE(Reader(written([](Writer& w) { w.real(1e300); })).real(&back));
  EXPECT_EQ(back, 1e300);
}

TEST(MsgPack, counts_and_lengths_beyond_the_input_are_refused) {
  uint32_t count = 0;
  std::string_view text;
  EXPECT_FALSE(Reader(std::string_view("\xdd\xff\xff\xff\xff", 5)).array(&count));
  EXPECT_FALSE(Reader(std::string_view("\xdf\xff\xff\xff\xff", 5)).map(&count));
  EXPECT_FALSE(Reader(std::string_view("\xc6\xff\xff\xff\xff", 5)).text(&text));
  EXPECT_FALSE(Reader(std::string_view("\xdb\x7f\xff\xff\xff"
                                       "abc",
                                       8))
                   .text(&text));
  EXPECT_FALSE(Reader(std::string_view("\xdd\xff\xff\xff\xff", 5)).skip());
  EXPECT_FALSE(Reader(std::string_view("\xc1", 1)).skip());
  EXPECT_FALSE(Reader(std::string_view("\x82\x01", 2)).skip());
}

TEST(MsgPack, skip_passes_over_one_value_of_any_kind) {
  const auto bytes = packed([](auto& p) {
    p.pack_map(2);
    p.pack(std::string("a"));
    p.pack(std::vector<int>{1, -2, 300});
    p.pack(std::string("b"));
    p.pack_ext(5, 42);
    p.pack_ext_body("12345", 5);
  });
  std::string whole = bytes + std::string(1, 7);
  Reader reader(whole);
  std::string_view passed;
  ASSERT_TRUE(reader.skip(&passed));
  EXPECT_EQ(passed, bytes);
  uint64_t n = 0;
  EXPECT_TRUE(reader.uint(&n));
  EXPECT_EQ(n, 7u);
}

TEST(MsgPack, skip_stops_at_the_depth_limit) {
  EXPECT_TRUE(Reader(std::string(kDepthMax, '\x91') + "\x01").skip());
  EXPECT_FALSE(Reader(std::string(kDepthMax + 1, '\x91') + "\x01").skip());
}

// Whatever one of them takes as a value, the other takes too, and as long.
TEST(MsgPack, skip_agrees_with_the_library_on_random_bytes) {
  base::SeededRandom random(7);
  int good = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string bytes(1 + random.below(12), '\0');
    for (auto& c : bytes) c = static_cast<char>(random.u64());
    std::string_view passed;
    const bool ours = Reader(bytes).skip(&passed);
    size_t off = 0;
    bool theirs = true;
    try {
      msgpack::object_handle handle;
      msgpack::unpack(handle, bytes.data(), bytes.size(), off, nullptr, nullptr,
                      msgpack::unpack_limit(1 << 17, 1 << 17, 1 << 20, 1 << 20, 1 << 20, 64));
    } catch (const msgpack::unpack_error&) {
      theirs = false;
    }
    ASSERT_EQ(ours, theirs) << base::to_hex(bytes);
    if (ours) {
      ASSERT_EQ(passed.size(), off);
      ++good;
    }
  }
  EXPECT_GT(good, 1000);
}

}  // namespace
}  // namespace cantle::wire

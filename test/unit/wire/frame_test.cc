// Finding the end of a message, whole or a byte at a time, and refusing what is none.
#include "lib/wire/frame.h"

#include <gtest/gtest.h>

#include "lib/base/random.h"
#include "lib/wire/codec.h"

namespace cantle::wire {
namespace {

using base::Code;

std::string request(uint32_t msgid = 7, std::string_view method = "put", std::string_view params = "\x81\xa1k\x05") {
  std::string out;
  append_request(out, msgid, method, params);
  return out;
}

TEST(Frame, a_request_is_taken_apart) {
  const auto bytes = request() + "next";
  FrameScanner scanner;
  Frame frame;
  ASSERT_EQ(scanner.scan(bytes, &frame), Scan::complete);
  EXPECT_EQ(frame.type, Frame::Type::request);
  EXPECT_EQ(frame.msgid, 7u);
  EXPECT_EQ(frame.method, "put");
  EXPECT_EQ(frame.params, "\x81\xa1k\x05");
  EXPECT_TRUE(frame.params_ok);
  EXPECT_EQ(frame.size, bytes.size() - 4);
}

TEST(Frame, responses_and_notifications_are_taken_apart) {
  FrameScanner scanner;
  Frame frame;
  std::string result, error, notification;
  append_result(result, 1, "\x81\x01\x02");
  ASSERT_EQ(scanner.scan(result, &frame), Scan::complete);
  EXPECT_TRUE(frame.error.empty());
  EXPECT_EQ(frame.result, "\x81\x01\x02");

  scanner.reset();
  append_error(error, 2, {Code::not_found, "no such key"});
  ASSERT_EQ(scanner.scan(error, &frame), Scan::complete);
  EXPECT_EQ(decode_error(frame.error), (base::Error{Code::not_found, "no such key"}));
  EXPECT_EQ(frame.result, "\xc0");

  scanner.reset();
  append_notification(notification, "map.changed", {});
  ASSERT_EQ(scanner.scan(notification, &frame), Scan::complete);
  EXPECT_EQ(frame.type, Frame::Type::notification);
  EXPECT_EQ(frame.method, "map.changed");
  EXPECT_EQ(frame.params, "\x80");
}

TEST(Frame, a_byte_at_a_time_gives_the_same) {
  const auto bytes =
      request(1u << 31, "batch", encode(std::map<std::string, std::string>{{"k", std::string(500, 'v')}}));
  FrameScanner scanner;
  Frame frame;
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_EQ(scanner.scan(std::string_view(bytes).substr(0, n), &frame), Scan::incomplete) << n;
    ASSERT_LE(scanner.size_at_least(), bytes.size());
  }
  ASSERT_EQ(scanner.scan(bytes, &frame), Scan::complete);
  EXPECT_EQ(frame.size, bytes.size());
  EXPECT_EQ(frame.msgid, 1u << 31);
}

TEST(Frame, the_buffer_may_move_between_scans) {
  const auto bytes = request(3, "get", encode(std::vector<std::string>(20, "element")).insert(0, "\x81\xa1l"));
  FrameScanner scanner;
  Frame frame;
  for (size_t n = 1; n < bytes.size(); n += 3) {
    const std::string copy = bytes.substr(0, n);
    ASSERT_EQ(scanner.scan(copy, &frame), Scan::incomplete);
  }
  ASSERT_EQ(scanner.scan(bytes, &frame), Scan::complete);
  EXPECT_EQ(frame.method, "get");
}

TEST(Frame, params_that_are_not_one_map_are_told_apart) {
  FrameScanner scanner;
  Frame frame;
  ASSERT_EQ(scanner.scan(std::string_view("\x94\x00\x01\xa1m\x90", 6), &frame), Scan::complete);
  EXPECT_TRUE(frame.params_ok);
  EXPECT_TRUE(frame.params.empty());
  scanner.reset();
  ASSERT_EQ(scanner.scan(std::string_view("\x94\x00\x01\xa1m\x91\x05", 7), &frame), Scan::complete);
  EXPECT_FALSE(frame.params_ok);
  scanner.reset();
  ASSERT_EQ(scanner.scan(std::string_view("\x94\x00\x01\xa1m\x92\x80\x80", 8), &frame), Scan::complete);
  EXPECT_FALSE(frame.params_ok);
}

struct Bad {
  const char* what;
  std::string bytes;
};

TEST(Frame, what_is_no_message_is_malformed_at_its_first_wrong_byte) {
  const auto s = [](std::string_view text) { return std::string(text); };
  const Bad cases[] = {
      {"HTTP", "G"},
      {"TLS", "\x16"},
      {"a length of zero", s({"\x00", 1})},
      {"a length of ones", "\xff"},
      {"never used", "\xc1"},
      {"a map", "\x80"},
      {"an array of two", "\x92"},
      {"an array of 2^32-1", "\xdd\xff\xff\xff\xff"},
      {"type 3", "\x94\x03"},
      {"type as text", "\x94\xa1"},
      {"a request of three", s({"\x93\x00", 2})},
      {"a notification of four", "\x94\x02"},
      {"an id beyond 32 bits", s({"\x94\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 11})},
      {"an id below zero", s({"\x94\x00\xff", 3})},
      {"a method that is a number", s({"\x94\x00\x01\x05", 4})},
      {"a method of 65 bytes", s({"\x94\x00\x01\xd9\x41", 5})},
      {"params that are a map", s({"\x94\x00\x01\xa1m\x80", 6})},
      {"a string beyond the frame", s({"\x94\x00\x01\xa1m\x91\xc6\x00\x80\x00\x01", 11})},
      {"a string of 2^32-1", s({"\x94\x00\x01\xa1m\x91\xdb\xff\xff\xff\xff", 11})},
      {"an array of 2^31", s({"\x94\x00\x01\xa1m\x91\xdd\x80\x00\x00\x00", 11})},
      {"a map of 2^32-1", s({"\x94\x00\x01\xa1m\x91\xdf\xff\xff\xff\xff", 11})},
      {"an ext of 2^32-1", s({"\x94\x00\x01\xa1m\x91\xc9\xff\xff\xff\xff", 11})},
      {"too deep", s({"\x94\x00\x01\xa1m\x91", 6}) + std::string(kDepthMax - 1, '\x91')},
  };
  for (const auto& c : cases) {
    FrameScanner scanner;
    Frame frame;
    EXPECT_EQ(scanner.scan(c.bytes, &frame), Scan::malformed) << c.what;
    EXPECT_FALSE(scanner.problem().empty());
    EXPECT_EQ(scanner.scan(c.bytes + "\x90\x90", &frame), Scan::malformed) << "it stays so";
    // Not one byte earlier.
    FrameScanner again;
    EXPECT_EQ(again.scan(std::string_view(c.bytes).substr(0, c.bytes.size() - 1), &frame), Scan::incomplete) << c.what;
  }
}

TEST(Frame, many_small_arrays_cannot_promise_more_than_a_frame) {
  // Each level of nested arrays owes its elements; together they pass the limit although each is below it.
  std::string bytes("\x94\x00\x01\xa1m\x91", 6);
  for (int i = 0; i < 12; ++i) bytes += std::string("\xdd\x00\x01\xff\xff", 5);
  FrameScanner scanner;
  Frame frame;
  EXPECT_EQ(scanner.scan(bytes, &frame), Scan::incomplete);
  EXPECT_LE(scanner.size_at_least(), kFrameMax);
}

TEST(Frame, a_frame_of_the_largest_size_passes_and_one_byte_more_does_not) {
  const size_t head = request(1, "m", std::string("\x81\xa1k\xc6\0\0\0\0", 8)).size();
  const auto sized = [&](size_t n) {
    std::string params = "\x81\xa1k";
    Writer w(params);
    w.bin(std::string(n, 'x'));
    return request(1, "m", params);
  };
  const auto fits = sized(kFrameMax - head);
  ASSERT_EQ(fits.size(), kFrameMax);
  FrameScanner scanner;
  Frame frame;
  EXPECT_EQ(scanner.scan(fits, &frame), Scan::complete);
  FrameScanner other;
  EXPECT_EQ(other.scan(sized(kFrameMax - head + 1), &frame), Scan::malformed);
}

TEST(Frame, random_frames_split_at_random_places_are_found) {
  base::SeededRandom random(11);
  for (int round = 0; round < 300; ++round) {
    std::string stream;
    const auto frames = 1 + random.below(8);
    for (uint64_t i = 0; i < frames; ++i) {
      std::vector<std::string> values(random.below(20));
      for (auto& v : values) v.assign(random.below(300), 'v');
      append_request(stream, static_cast<uint32_t>(i), "scan", "\x81\xa1v" + encode(values));
    }
    FrameScanner scanner;
    Frame frame;
    size_t begin = 0, seen = 0, end = 0;
    while (begin < stream.size()) {
      const auto outcome = scanner.scan(std::string_view(stream).substr(begin, end - begin), &frame);
      ASSERT_NE(outcome, Scan::malformed);
      if (outcome == Scan::incomplete) {
        ASSERT_LT(end, stream.size());
        end = std::min(stream.size(), end + 1 + random.below(100));
        continue;
      }
      ASSERT_EQ(frame.msgid, seen++);
      begin += frame.size;
      scanner.reset();
    }
    ASSERT_EQ(seen, frames);
  }
}

TEST(WireError, carries_its_fields_and_hides_local_codes) {
  base::Error error(Code::not_leader, "p3 leads");
  error.detail = "p3";
  error.txnseq = 4;
  error.retry_after_ms = 10;
  EXPECT_EQ(decode_error(encode_error(error)), error);
  EXPECT_EQ(decode_error(encode_error({Code::io_error, "disk"})).code, Code::faulted);
  EXPECT_EQ(decode_error(encode_error({Code::invalid, "key \xff\xc3\xbc"})).text, "key %ff\xc3\xbc")
      << "UTF-8 on the wire";
}

TEST(WireError, takes_what_other_servers_say) {
  std::string text;
  Writer(text).str("boom");
  EXPECT_EQ(decode_error(text), (base::Error{Code::faulted, "boom"}));
  std::string pair;  // neovim: [type, text]
  Writer w(pair);
  w.array(2), w.uint(0), w.str("boom");
  EXPECT_EQ(decode_error(pair).code, Code::faulted);
  std::string unknown;
  Writer u(unknown);
  u.map(1), u.str("code"), u.str("FROM_THE_FUTURE");
  EXPECT_EQ(decode_error(unknown).code, Code::faulted);
}

}  // namespace
}  // namespace cantle::wire

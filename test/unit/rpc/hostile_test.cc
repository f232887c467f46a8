// What a peer may do wrong, on a raw socket: each ends that connection, and no other is harmed (R40).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "lib/base/random.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/rpc/peer.h"
#include "lib/rpc/server.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"

namespace cantle::rpc {
namespace {

using base::Code;
using namespace std::chrono_literals;

// A client that knows no rules. Non-blocking; the test turns the loop meanwhile.
class Raw {
 public:
  Raw(io::Loop& loop, const io::Address& address) : loop_(loop), fd_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)!connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  ~Raw() { close(fd_); }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

  // What the kernel takes now; -1 when the server has closed.
  ssize_t send_some(std::string_view* bytes) {
    const auto n = ::send(fd_, bytes->data(), bytes->size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS ? 0 : -1;
    bytes->remove_prefix(static_cast<size_t>(n));
    return n;
  }
  // True when all of it was taken before the server closed.
  bool send(std::string_view bytes) {
    loop_.run_for(60s, [&] {
      while (!bytes.empty())
        if (const auto n = send_some(&bytes); n <= 0) return n < 0;
      return true;
    });
    return bytes.empty();
  }
  void shut() { shutdown(fd_, SHUT_WR); }
  // What the server says until it closes; fails the test when it does not.
  std::string read_to_end(base::Duration limit = 60s) {
    EXPECT_TRUE(loop_.run_for(limit, [&] { return !read_some(); })) << "the server did not close";
    return got_;
  }
  std::string& got() {
    read_some();
    return got_;
  }

 private:
  bool read_some() {
    char buffer[65536];
    for (;;) {
      const auto n = recv(fd_, buffer, sizeof buffer, 0);
      if (n > 0)
        got_.append(buffer, static_cast<size_t>(n));
      else
        return n < 0 && (errno == EAGAIN || errno == ENOTCONN);
    }
  }
  io::Loop& loop_;
  int fd_;
  std::string got_;
};

class Hostile : public testing::Test {
 protected:
  io::Loop loop;
  std::optional<Server> server;
  io::Address address;
  io::Timer tick{loop, [] {}};  // the raw sockets are not the loop's: their state is looked at every millisecond

  Hostile() { tick.start(1ms, 1ms); }

  void serve(ServerLimits limits = {}) {
    server.emplace(loop, Identity{}, limits);
    server->handle("echo", [](const Call& call, Responder r) { r.ok(call.params); });
    ASSERT_TRUE(server->listen(*io::parse_address("127.0.0.1:0")));
    address = server->addresses().at(0);
    Peer bystander(loop, address);
    ASSERT_TRUE(call_sync(loop, bystander, "echo", {}, 5s));
  }
  void all_gone() {
    ASSERT_TRUE(wait([&] { return server->connections() == 0; }));
  }
  bool wait(const std::function<bool()>& done, base::Duration limit = 60s) { return loop.run_for(limit, done); }
  static std::string echo(uint32_t msgid, std::string_view params = {}) {
    std::string out;
    wire::append_request(out, msgid, "echo", params);
    return out;
  }
  // The error in the answer that `bytes` begin with.
  static std::optional<base::Error> error_in(std::string_view bytes, uint32_t* msgid = nullptr) {
    wire::FrameScanner scanner;
    wire::Frame frame;
    if (scanner.scan(bytes, &frame) != wire::Scan::complete || frame.error.empty()) return std::nullopt;
    if (msgid) *msgid = frame.msgid;
    return wire::decode_error(frame.error);
  }
  void expect_rejected(std::string_view bytes, const std::string& what) {
    Raw raw(loop, address);
    raw.send(bytes);
    const auto error = error_in(raw.read_to_end());
    ASSERT_TRUE(error) << what;
    EXPECT_EQ(error->code, Code::malformed) << what;
  }
  static size_t answers_in(std::string_view bytes) {
    wire::FrameScanner scanner;
    wire::Frame frame;
    size_t n = 0;
    while (scanner.scan(bytes, &frame) == wire::Scan::complete) {
      bytes.remove_prefix(frame.size);
      scanner.reset();
      ++n;
    }
    return n;
  }
};

TEST_F(Hostile, what_is_no_frame_is_answered_malformed_and_closed) {
  serve();
  Peer bystander(loop, address);
  ASSERT_TRUE(call_sync(loop, bystander, "echo", {}, 5s));
  constexpr auto kMax = static_cast<uint32_t>(wire::kFrameMax);
  for (const uint32_t length : {0u, 1u, kMax, kMax + 1, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    std::string bytes;
    base::put_u32_be(bytes, length);
    bytes += "payload";
    expect_rejected(bytes, "a length in front: " + std::to_string(length));
    if (length < kMax) continue;
    expect_rejected(std::string("\x94\x00\x01\xa4"
                                "echo"
                                "\x91\xc6",
                                10) +
                        bytes,
                    "a bin of " + std::to_string(length));
  }
  expect_rejected("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP");
  expect_rejected(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), "TLS hello");
  expect_rejected(std::string("\x94\x01\x05\xc0\xc0", 5), "a response to nothing");
  EXPECT_TRUE(call_sync(loop, bystander, "echo", {}, 5s)) << "others are not harmed";
  EXPECT_EQ(server->counters().malformed, 15u);
}

TEST_F(Hostile, random_bytes_do_no_harm) {
  serve();
  base::SeededRandom random(5);
  Peer bystander(loop, address);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(1 + random.below(400), '\0');
    for (auto& c : bytes) c = static_cast<char>(random.u64());
    if (random.chance(0.5)) bytes = echo(1).substr(0, random.below(12)) + bytes;
    Raw raw(loop, address);
    raw.send(bytes);
    raw.shut();
    raw.read_to_end();
  }
  EXPECT_TRUE(call_sync(loop, bystander, "echo", {}, 5s));
  EXPECT_TRUE(wait([&] { return server->connections() == 1; }));
}

TEST_F(Hostile, good_requests_before_the_bad_one_are_answered) {
  serve();
  Raw raw(loop, address);
  raw.send(echo(1) + echo(2) + "garbage");
  EXPECT_EQ(answers_in(raw.read_to_end()), 3u);
}

TEST_F(Hostile, the_malformed_request_s_id_is_in_the_answer) {
  serve();
  Raw raw(loop, address);
  raw.send(std::string("\x94\x00\x2a\x05", 4));
  uint32_t msgid = 0;
  ASSERT_TRUE(error_in(raw.read_to_end(), &msgid));
  EXPECT_EQ(msgid, 42u);
}

TEST_F(Hostile, a_frame_one_byte_at_a_time_is_answered) {
  serve();
  Raw raw(loop, address);
  for (const char c : echo(9, "\x81\xa1k\x01")) {
    ASSERT_TRUE(raw.send(std::string_view(&c, 1)));
    loop.run_for(1ms, [] { return false; });
  }
  EXPECT_TRUE(wait([&] { return answers_in(raw.got()) == 1; }));
}

TEST_F(Hostile, half_a_frame_and_silence_ends_after_the_stated_time) {
  serve({.frame_timeout = 1s});
  Raw raw(loop, address);
  raw.send(echo(9).substr(0, 5));
  const auto before = loop.refresh_now();
  const auto error = error_in(raw.read_to_end());
  EXPECT_GE(loop.refresh_now() - before, 900ms);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::malformed);
  EXPECT_EQ(server->counters().timeouts, 1u);
}

TEST_F(Hostile, silence_without_half_a_frame_is_allowed) {
  serve({.frame_timeout = 100ms});
  Raw raw(loop, address);
  raw.send(echo(1));
  ASSERT_TRUE(wait([&] { return answers_in(raw.got()) == 1; }));
  loop.run_for(1500ms, [] { return false; });
  raw.send(echo(2));
  EXPECT_TRUE(wait([&] { return answers_in(raw.got()) == 2; }));
}

TEST_F(Hostile, params_that_are_no_map_are_invalid_and_the_connection_stays) {
  serve();
  Raw raw(loop, address);
  raw.send(std::string("\x94\x00\x01\xa4"
                       "echo"
                       "\x91\x05",
                       10) +
           echo(2));
  ASSERT_TRUE(wait([&] { return answers_in(raw.got()) == 2; }));
  EXPECT_EQ(error_in(raw.got())->code, Code::invalid);
}

TEST_F(Hostile, unknown_notifications_are_ignored) {
  serve();
  Raw raw(loop, address);
  raw.send(std::string("\x93\x02\xb4nvim_set_client_info\x95\xa1x\x80\xa1y\x80\x80", 31) + echo(2));
  ASSERT_TRUE(wait([&] { return answers_in(raw.got()) == 1; }));
  EXPECT_EQ(server->counters().notifications, 1u);
}

TEST_F(Hostile, a_peer_that_does_not_read_is_not_read) {
  serve();
  Raw raw(loop, address);
  std::string params = "\x81\xa1k";
  wire::Writer(params).bin(std::string(100000, 'x'));
  const auto one = echo(1, params);
  // 400 MB of answers that nobody takes: the server stops reading long before, and so nothing more can be sent.
  std::string many;
  for (int i = 0; i < 4000; ++i) many += one;
  std::string_view rest = many;
  auto progress = loop.refresh_now();
  wait([&] {
    if (raw.send_some(&rest) > 0) progress = loop.refresh_now();
    return loop.refresh_now() - progress > 300ms;
  });
  EXPECT_GT(rest.size(), many.size() / 2);
  EXPECT_EQ(server->connections(), 1u);
  Peer bystander(loop, address);
  EXPECT_TRUE(call_sync(loop, bystander, "echo", {}, 5s));
}

TEST_F(Hostile, more_requests_than_may_be_in_flight_wait_for_their_turn) {
  serve({.inflight = 4});
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Raw raw(loop, address);
  std::string many;
  for (uint32_t i = 0; i < 50; ++i) wire::append_request(many, i, "keep", {});
  raw.send(many);
  ASSERT_TRUE(wait([&] { return kept.size() == 4; }));
  loop.run_for(20ms, [] { return false; });
  EXPECT_EQ(kept.size(), 4u);
  size_t answered = 0;
  ASSERT_TRUE(wait([&] {
    while (answered < kept.size()) kept[answered++].ok();
    return answers_in(raw.got()) == 50;
  }));
  EXPECT_EQ(server->inflight(), 0u);
}

TEST_F(Hostile, thousands_of_pipelined_requests_in_one_write_are_all_answered) {
  serve();
  Raw raw(loop, address);
  std::string many, expected;
  for (uint32_t i = 0; i < 20000; ++i) {
    many += echo(i, "\x81\xa1k\x01");
    wire::append_result(expected, i, "\x81\xa1k\x01");
  }
  raw.send(many);
  EXPECT_TRUE(wait([&] { return raw.got().size() >= expected.size(); }));
  EXPECT_EQ(raw.got(), expected);
}

TEST_F(Hostile, a_peer_that_closes_its_sending_side_gets_its_answers) {
  serve();
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Raw raw(loop, address);
  std::string bytes;
  wire::append_request(bytes, 1, "keep", {});
  raw.send(bytes);
  raw.shut();
  ASSERT_TRUE(wait([&] { return kept.size() == 1; }));
  loop.run_for(20ms, [] { return false; });
  kept[0].ok();
  EXPECT_EQ(answers_in(raw.read_to_end()), 1u);
}

TEST_F(Hostile, connections_beyond_the_limit_are_closed_and_the_others_live) {
  serve({.connections = 3});
  all_gone();
  std::vector<std::unique_ptr<Raw>> all;
  for (int i = 0; i < 3; ++i) all.push_back(std::make_unique<Raw>(loop, address));
  ASSERT_TRUE(wait([&] { return server->connections() == 3; }));
  Raw late(loop, address);
  EXPECT_EQ(late.read_to_end(), "");
  EXPECT_EQ(server->counters().refused, 1u);
  all[0]->send(echo(1));
  EXPECT_TRUE(wait([&] { return answers_in(all[0]->got()) == 1; }));
  all.pop_back();
  ASSERT_TRUE(wait([&] { return server->connections() == 2; }));
  Raw next(loop, address);
  next.send(echo(1));
  EXPECT_TRUE(wait([&] { return answers_in(next.got()) == 1; }));
}

TEST_F(Hostile, unfinished_frames_together_have_a_limit) {
  serve({.input_total = size_t{4} << 20});
  std::string params = "\x81\xa1k";
  wire::Writer(params).bin(std::string(3 << 20, 'x'));
  const auto large = echo(1, params);
  Raw first(loop, address), second(loop, address);
  first.send(std::string_view(large).substr(0, large.size() - 1));
  ASSERT_TRUE(wait([&] { return server->counters().bytes_in >= large.size() - 1; }));
  second.send(std::string_view(large).substr(0, large.size() - 1));
  const auto error = error_in(second.read_to_end());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::overloaded);
  first.send(std::string_view(large).substr(large.size() - 1));
  EXPECT_TRUE(wait([&] { return answers_in(first.got()) == 1; }));
}

}  // namespace
}  // namespace cantle::rpc

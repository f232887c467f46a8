// Server and Peer over real sockets, on one loop.
#include <gtest/gtest.h>

#include <unistd.h>

#include <optional>

#include "lib/io/conn.h"
#include "lib/io/listener.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/model/fields.h"
#include "lib/rpc/peer.h"
#include "lib/rpc/server.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"

namespace cantle::rpc {
namespace {

using base::Code;
using namespace std::chrono_literals;

struct Ping {
  std::string text;
  uint64_t n = 0;
  CANTLE_FIELDS(text, n)
};

using Answer = std::optional<base::Result<std::string>>;

// Keeps what a call ended with.
Peer::Done into(Answer& answer) {
  return [&answer](base::Result<std::string_view> result) {
    ASSERT_FALSE(answer.has_value()) << "done was called twice";
    if (result)
      answer = std::string(*result);
    else
      answer = base::Result<std::string>(base::fail(result.error()));
  };
}

Code code_of(const Answer& answer) { return *answer ? Code{} : answer->error().code; }

class Rpc : public testing::Test {
 protected:
  io::Loop loop;
  std::optional<Server> server;
  std::optional<Peer> peer;

  io::Address serve(Identity identity = {}, ServerLimits limits = {}) {
    server.emplace(loop, std::move(identity), limits);
    server->handle("echo", [](const Call& call, Responder r) { r.ok(call.params); });
    const auto status = server->listen(*io::parse_address("127.0.0.1:0"));
    EXPECT_TRUE(status) << to_string(status.error());
    return server->addresses().at(0);
  }
  void dial(const io::Address& address, PeerOptions options = {}) { peer.emplace(loop, address, std::move(options)); }
  bool wait(const std::function<bool()>& done, base::Duration limit = 60s) { return loop.run_for(limit, done); }
  Answer call(std::string_view method, const Ping& ping, base::Duration timeout = 5s) {
    Answer answer;
    peer->call(method, wire::encode(ping), timeout, into(answer));
    EXPECT_FALSE(answer.has_value()) << "done was called from inside call()";
    EXPECT_TRUE(wait([&] { return answer.has_value(); }));
    return answer;
  }
};

TEST_F(Rpc, answers_what_it_was_asked) {
  dial(serve());
  const auto answer = call("echo", {"hello", 7});
  ASSERT_TRUE(*answer) << to_string(answer->error());
  const auto ping = wire::decode<Ping>(**answer);
  ASSERT_TRUE(ping);
  EXPECT_EQ(ping->text, "hello");
  EXPECT_EQ(ping->n, 7u);
}

TEST_F(Rpc, an_unknown_method_is_invalid_and_harms_nothing) {
  dial(serve());
  const auto answer = call("no.such", {});
  ASSERT_FALSE(*answer);
  EXPECT_EQ(answer->error().code, Code::invalid);
  EXPECT_NE(answer->error().text.find("no.such"), std::string::npos);
  EXPECT_TRUE(*call("echo", {"x", 1}));
  EXPECT_EQ(server->counters().unknown_methods, 1u);
}

TEST_F(Rpc, errors_travel_with_all_they_say) {
  dial(serve());
  base::Error error(Code::stale_route, "older than the partition");
  error.txnseq = 12;
  error.retry_after_ms = 250;
  error.detail = "p2";
  server->handle("fail", [error](const Call&, Responder r) { r.fail(error); });
  const auto answer = call("fail", {});
  ASSERT_FALSE(*answer);
  EXPECT_EQ(answer->error(), error);
}

TEST_F(Rpc, answers_come_in_any_order) {
  dial(serve());
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer first, second;
  peer->call("keep", wire::encode(Ping{"1", 1}), 5s, into(first));
  peer->call("keep", wire::encode(Ping{"2", 2}), 5s, into(second));
  ASSERT_TRUE(wait([&] { return kept.size() == 2; }));
  EXPECT_EQ(server->inflight(), 2u);
  kept[1].ok(wire::encode(Ping{"b", 2}));
  ASSERT_TRUE(wait([&] { return second.has_value(); }));
  EXPECT_FALSE(first.has_value());
  kept[0].ok(wire::encode(Ping{"a", 1}));
  ASSERT_TRUE(wait([&] { return first.has_value(); }));
  EXPECT_EQ(wire::decode<Ping>(**first)->text, "a");
  EXPECT_EQ(wire::decode<Ping>(**second)->text, "b");
  EXPECT_EQ(server->inflight(), 0u);
}

TEST_F(Rpc, the_first_answer_counts_and_a_dropped_request_is_answered) {
  dial(serve());
  server->handle("twice", [](const Call&, Responder r) {
    r.ok(wire::encode(Ping{"first", 1}));
    EXPECT_FALSE(r.alive());
    r.fail({Code::faulted, "second"});
  });
  server->handle("drop", [](const Call&, Responder) {});
  const auto twice = call("twice", {});
  ASSERT_TRUE(*twice);
  EXPECT_EQ(wire::decode<Ping>(**twice)->text, "first");
  const auto dropped = call("drop", {});
  ASSERT_FALSE(*dropped);
  EXPECT_EQ(dropped->error().code, Code::faulted);
}

TEST_F(Rpc, a_responder_outlives_its_connection_and_its_server) {
  dial(serve({}, {.eof_grace = 0s}));
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer answer;
  peer->call("keep", {}, 5s, into(answer));
  peer->call("keep", {}, 5s, into(answer));
  ASSERT_TRUE(wait([&] { return kept.size() == 2; }));
  EXPECT_TRUE(kept[0].alive());
  peer.reset();
  ASSERT_TRUE(wait([&] { return server->connections() == 0; }));
  EXPECT_FALSE(kept[0].alive());
  EXPECT_EQ(server->inflight(), 0u);
  kept[0].ok();
  server.reset();
  kept[1].ok();
  kept.clear();
}

TEST_F(Rpc, a_refused_connection_is_unavailable_and_backs_off) {
  const auto address = serve();
  server.reset();
  dial(address);
  EXPECT_EQ(code_of(call("echo", {})), Code::unavailable);
  EXPECT_EQ(code_of(call("echo", {})), Code::unavailable);  // at once: it waits before the next try
  EXPECT_FALSE(peer->connected());
}

TEST_F(Rpc, comes_back_when_the_server_does) {
  const auto address = serve();
  dial(address);
  ASSERT_TRUE(*call("echo", {"a", 1}));
  server.reset();
  ASSERT_TRUE(wait([&] { return !peer->connected(); }));
  server.emplace(loop);
  server->handle("echo", [](const Call& c, Responder r) { r.ok(c.params); });
  ASSERT_TRUE(server->listen(address));
  bool answered = false;
  std::function<void()> again = [&] {
    peer->call("echo", {}, 1s, [&](auto result) {
      answered = result.has_value();
      if (!answered) loop.next_turn(again);
    });
  };
  again();
  EXPECT_TRUE(wait([&] { return answered; }));
}

TEST_F(Rpc, a_lost_answer_is_outcome_unknown) {
  dial(serve());
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer answer;
  peer->call("keep", {}, 5s, into(answer));
  ASSERT_TRUE(wait([&] { return kept.size() == 1; }));
  server.reset();
  ASSERT_TRUE(wait([&] { return answer.has_value(); }));
  EXPECT_EQ(code_of(answer), Code::outcome_unknown);
}

TEST_F(Rpc, a_deadline_that_passes_is_outcome_unknown_and_the_late_answer_is_ignored) {
  dial(serve());
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer answer;
  const auto before = loop.refresh_now();
  peer->call("keep", {}, 50ms, into(answer));
  ASSERT_TRUE(wait([&] { return answer.has_value(); }));
  EXPECT_EQ(code_of(answer), Code::outcome_unknown);
  EXPECT_GE(loop.refresh_now() - before, 50ms);
  kept.at(0).ok();
  EXPECT_TRUE(*call("echo", {"still", 1}));
}

// A listener that accepts and says nothing.
TEST_F(Rpc, a_call_that_never_left_the_queue_did_not_happen) {
  std::vector<std::unique_ptr<io::Conn>> silent;
  io::Listener listener(loop, [&](std::unique_ptr<io::Conn> c) { silent.push_back(std::move(c)); });
  ASSERT_TRUE(listener.listen(*io::parse_address("127.0.0.1:0")));
  PeerOptions options;
  options.identity.token = "needs hello";  // and hello is not answered
  dial(listener.address(), options);
  Answer answer;
  peer->call("put", {}, 60ms, into(answer));
  ASSERT_TRUE(wait([&] { return answer.has_value(); }));
  EXPECT_EQ(code_of(answer), Code::unavailable);
}

TEST_F(Rpc, hello_refuses_another_cluster_and_a_wrong_token) {
  base::SeededRandom random(1);
  Identity ours{.cluster = model::ClusterUuid::draw(random), .token = "s3cret", .role = "partd", .id = "p1"};
  const auto address = serve(ours);

  dial(address);  // without hello
  EXPECT_EQ(code_of(call("echo", {})), Code::denied);

  PeerOptions options{.identity = ours};
  dial(address, options);
  EXPECT_TRUE(*call("echo", {"in", 1}));

  options.identity.token = "wrong";
  dial(address, options);
  EXPECT_EQ(code_of(call("echo", {})), Code::denied);

  options.identity = ours;
  options.identity.cluster = model::ClusterUuid::draw(random);
  dial(address, options);
  EXPECT_EQ(code_of(call("echo", {})), Code::denied);

  options.identity = ours;
  options.identity.protocol_min = options.identity.protocol_max = 99;
  dial(address, options);
  EXPECT_EQ(code_of(call("echo", {})), Code::invalid);
}

TEST_F(Rpc, notifications_go_both_ways) {
  dial(serve());
  uint64_t connection = 0;
  std::string heard, told;
  server->handle_notify("map.changed", [&](const Call& call) {
    heard = wire::decode<Ping>(call.params)->text;
    connection = call.caller.connection;
  });
  peer->on_notify([&](std::string_view method, std::string_view) { told = method; });
  peer->notify("map.changed", wire::encode(Ping{"orders", 3}));
  ASSERT_TRUE(wait([&] { return !heard.empty(); }));
  EXPECT_EQ(heard, "orders");
  EXPECT_TRUE(server->notify(connection, "bell", {}));
  ASSERT_TRUE(wait([&] { return !told.empty(); }));
  EXPECT_EQ(told, "bell");
  EXPECT_FALSE(server->notify(connection + 1, "bell", {}));
}

TEST_F(Rpc, a_drain_answers_what_is_in_hand_and_refuses_the_rest) {
  dial(serve());
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer slow;
  peer->call("keep", {}, 5s, into(slow));
  ASSERT_TRUE(wait([&] { return kept.size() == 1; }));
  bool drained = false;
  server->drain(5s, [&] { drained = true; });
  Answer late;
  peer->call("echo", {}, 5s, into(late));
  ASSERT_TRUE(wait([&] { return late.has_value(); }));
  EXPECT_EQ(code_of(late), Code::unavailable);
  EXPECT_FALSE(drained);
  kept[0].ok(wire::encode(Ping{"done", 1}));
  ASSERT_TRUE(wait([&] { return slow.has_value() && drained; }));
  EXPECT_TRUE(**slow == wire::encode(Ping{"done", 1}));
}

TEST_F(Rpc, a_drain_ends_at_its_limit) {
  dial(serve());
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer slow;
  peer->call("keep", {}, 5s, into(slow));
  ASSERT_TRUE(wait([&] { return kept.size() == 1; }));
  bool drained = false;
  server->drain(50ms, [&] { drained = true; });
  EXPECT_TRUE(wait([&] { return drained; }));
  kept.clear();
}

TEST_F(Rpc, too_many_calls_at_once_are_refused_here) {
  PeerOptions options;
  options.inflight_max = 2;
  dial(serve(), options);
  std::vector<Responder> kept;
  server->handle("keep", [&](const Call&, Responder r) { kept.push_back(r); });
  Answer a, b, c;
  peer->call("keep", {}, 5s, into(a));
  peer->call("keep", {}, 5s, into(b));
  peer->call("keep", {}, 5s, into(c));
  ASSERT_TRUE(wait([&] { return c.has_value(); }));
  EXPECT_EQ(code_of(c), Code::overloaded);
  kept.clear();
}

TEST_F(Rpc, large_requests_and_answers_pass_whole) {
  dial(serve());
  const std::string big(5 << 20, 'x');
  const auto answer = call("echo", {big, 9});
  ASSERT_TRUE(*answer) << to_string(answer->error());
  EXPECT_EQ(wire::decode<Ping>(**answer)->text, big);
  const auto larger = call("echo", {std::string(wire::kFrameMax, 'x'), 9});
  EXPECT_EQ(code_of(larger), Code::too_large);
}

TEST_F(Rpc, the_tail_of_the_params_is_sent_from_where_it_lies) {
  dial(serve());
  const auto text = std::make_shared<const std::string>(size_t{5} << 20, 'x');
  std::string head;
  wire::Writer w(head);
  w.map(2);
  w.str("n");
  w.uint(9);
  w.str("text");
  w.bin_head(text->size());
  Answer queued, sent;
  peer->call("echo", head, text, 5s, into(queued));  // not connected yet
  ASSERT_TRUE(wait([&] { return queued.has_value(); }));
  peer->call("echo", head, text, 5s, into(sent));
  EXPECT_GT(peer->unsent(), text->size());
  ASSERT_TRUE(wait([&] { return sent.has_value(); }));
  EXPECT_TRUE(*call("echo", {"behind it", 1}));
  for (const auto& answer : {queued, sent}) {
    ASSERT_TRUE(*answer) << to_string(answer->error());
    const auto ping = wire::decode<Ping>(**answer);
    ASSERT_TRUE(ping);
    EXPECT_EQ(ping->text, *text);
    EXPECT_EQ(ping->n, 9u);
  }
  peer.emplace(loop, server->addresses().at(0), PeerOptions{.output_max = size_t{1} << 20});
  Answer refused;
  peer->call("echo", head, text, 5s, into(refused));
  ASSERT_TRUE(wait([&] { return refused.has_value(); }));
  EXPECT_EQ(code_of(refused), Code::overloaded);
}

TEST_F(Rpc, a_peer_may_be_destroyed_in_its_own_callback) {
  dial(serve());
  bool answered = false;
  peer->call("echo", wire::encode(Ping{"x", 1}), 5s, [&](auto) {
    peer.reset();
    answered = true;
  });
  peer->call("echo", wire::encode(Ping{"x", 1}), 5s, [&](auto) { FAIL() << "called after the peer was destroyed"; });
  EXPECT_TRUE(wait([&] { return answered; }));
  EXPECT_TRUE(wait([&] { return server->connections() == 0; }));
}

TEST_F(Rpc, call_sync_over_a_unix_socket) {
  serve();
  const auto path = "/tmp/cantle-rpc-test-" + std::to_string(getpid()) + ".sock";
  const auto local = *io::parse_address(path);
  ASSERT_TRUE(server->listen(local));
  dial(local);
  const auto answer = call_sync(loop, *peer, "echo", wire::encode(Ping{"u", 1}), 5s);
  ASSERT_TRUE(answer) << to_string(answer.error());
  EXPECT_EQ(wire::decode<Ping>(*answer)->text, "u");
  server.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket is removed";
  unlink((path + ".lock").c_str());
  const auto gone = call_sync(local, "echo", {}, 1s);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::unavailable);
}

}  // namespace
}  // namespace cantle::rpc

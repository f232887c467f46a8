// The simulated world's own promises: what the simulations rest on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "test/sim/coord.h"
#include "test/sim/network.h"
#include "test/sim/process.h"
#include "test/sim/seeds.h"

namespace cantle::sim {
namespace {

using base::Code;
using base::Result;

TEST(SimParts, events_run_in_order_of_time_and_planning) {
  Scheduler s(1);
  std::string order;
  s.after(2ms, [&] { order += 'c'; });
  s.after(1ms, [&] { order += 'a'; });
  s.after(1ms, [&] { order += 'b'; });
  auto never = s.after(1ms, [&] { order += 'x'; });
  s.cancel(never);
  s.run_for(1s);
  EXPECT_EQ(order, "abc");
}

TEST(SimParts, a_killed_process_has_nothing_planned_and_a_paused_one_is_late) {
  Scheduler s(1);
  Process p(s, "p1", "partd"), q(s, "p2", "partd");
  bool ran = false;
  Instant at{};
  p.after(10ms, [&] { ran = true; });
  q.after(10ms, [&] { at = s.now(); });
  const Instant start = s.now();
  q.pause(50ms);
  p.kill();
  p.restart();
  s.run_for(1s);
  EXPECT_FALSE(ran);
  EXPECT_EQ(at, start + 50ms);
}

TEST(SimParts, the_armed_effect_is_the_last_and_does_not_happen) {
  Scheduler s(1);
  Process p(s, "p1", "partd");
  p.arm_crash(2);
  EXPECT_TRUE(p.effect());
  EXPECT_FALSE(p.effect());
  EXPECT_FALSE(p.alive());
}

struct Pair {
  Scheduler s{3};
  Network net{s};
  Process a{s, "a", "x"}, b{s, "b", "x"};
  int handled = 0;
  std::vector<std::string> answers;
  Pair() { listen(); }
  void listen() {
    net.listen(b, [this](const std::string&, const std::any& request, Network::Reply reply) {
      ++handled;
      reply(std::any(std::any_cast<int>(request) + 1));
    });
  }
  void ask(int n) {
    net.call(a, "b/x", n, 300ms, [this](Network::Answer r) {
      answers.push_back(r ? std::to_string(std::any_cast<int>(*r)) : std::string(base::code_name(r.error().code)));
    });
  }
};

TEST(SimParts, calls_are_answered_in_order) {
  Pair w;
  for (int i = 0; i < 5; ++i) w.ask(i);
  w.s.run_for(1s);
  EXPECT_EQ(w.answers, (std::vector<std::string>{"1", "2", "3", "4", "5"}));
}

TEST(SimParts, a_call_to_nobody_was_not_sent_and_one_to_a_dying_process_is_unknown) {
  Pair w;
  w.ask(1);
  w.b.kill();
  w.ask(2);
  w.s.run_for(1s);
  EXPECT_EQ(w.answers.size(), 2u);
  EXPECT_EQ(w.handled, 0);
  EXPECT_EQ(w.answers[0] == "OUTCOME_UNKNOWN", w.answers[1] != "OUTCOME_UNKNOWN");
  EXPECT_EQ(w.answers[0] == "UNAVAILABLE", w.answers[1] != "UNAVAILABLE");
}

TEST(SimParts, a_lost_answer_is_outcome_unknown_though_it_was_done) {
  Pair w;
  w.net.faults().lose_answer = 1;
  w.ask(1);
  w.s.run_for(1s);
  EXPECT_EQ(w.handled, 1);
  EXPECT_EQ(w.answers, (std::vector<std::string>{"OUTCOME_UNKNOWN"}));
}

TEST(SimParts, a_one_way_cut_lets_the_other_way_pass) {
  Pair w;
  w.ask(0);
  w.s.run_for(100ms);
  w.net.cut("b", "a");
  w.ask(1);
  w.s.run_for(1s);
  EXPECT_EQ(w.handled, 2);
  EXPECT_EQ(w.answers.back(), "OUTCOME_UNKNOWN");
  w.net.heal();
  w.ask(2);
  w.s.run_for(1s);
  EXPECT_EQ(w.answers.back(), "3");
}

struct CoordPair {
  Scheduler s{5};
  CoordService service{s};
  Process a{s, "a", "x"}, b{s, "b", "x"};
  std::unique_ptr<coord::Session> sa = service.open(a), sb = service.open(b);
  CoordPair() { s.run_for(50ms); }
  template <class T, class F>
  Result<T> wait(F start) {
    std::optional<Result<T>> got;
    start([&](Result<T> r) { got = std::move(r); });
    EXPECT_TRUE(s.run_until([&] { return got.has_value(); }, s.now() + 10s));
    return got ? *got : base::fail(Code::cancelled, "never answered");
  }
};

TEST(SimParts, a_change_is_refused_at_another_version_and_seen_after_a_sync) {
  CoordPair w;
  w.service.put("/c", "1");
  auto r = w.wait<coord::Stat>([&](auto d) { w.sa->set("/c", "2", 7, d); });
  EXPECT_EQ(r.error().code, Code::conflict);
  w.service.faults().lag_min = w.service.faults().lag_max = 3s;
  ASSERT_TRUE((w.wait<coord::Stat>([&](auto d) { w.sa->set("/c", "2", 0, d); })));
  auto own = w.wait<coord::Node>([&](auto d) { w.sa->get("/c", nullptr, d); });
  EXPECT_EQ(own->value, "2");
  ASSERT_TRUE((w.wait<base::Nothing>([&](auto d) { w.sb->sync("/c", d); })));
  EXPECT_EQ((w.wait<coord::Node>([&](auto d) { w.sb->get("/c", nullptr, d); }))->value, "2");
}

TEST(SimParts, ephemerals_go_with_the_session_and_the_owner_is_told) {
  CoordPair w;
  w.service.put("/n", "");
  std::vector<coord::Event> events;
  w.sa->on_event([&](coord::Event e) { events.push_back(e); });
  ASSERT_TRUE((w.wait<std::string>([&](auto d) { w.sa->create("/n/a", "x", coord::CreateMode::ephemeral, d); })));
  int fired = 0;
  ASSERT_TRUE((w.wait<coord::Children>([&](auto d) {
    w.sb->children(
        "/n", [&] { ++fired; }, d);
  })));
  w.service.expire("a");
  w.s.run_for(1s);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(w.service.value("/n/a"), nullptr);
  EXPECT_EQ(events,
            (std::vector<coord::Event>{coord::Event::disconnected, coord::Event::expired, coord::Event::connected}));
}

TEST(SimParts, a_lost_reply_is_unknown_and_the_change_was_made) {
  CoordPair w;
  w.service.put("/c", "1");
  w.service.faults().lose_reply = 1;
  auto r = w.wait<coord::Stat>([&](auto d) { w.sa->set("/c", "2", 0, d); });
  EXPECT_EQ(r.error().code, Code::outcome_unknown);
  EXPECT_EQ(*w.service.value("/c"), "2");
}

TEST(SimParts, a_late_change_is_unknown_and_may_come_after_the_reconnect) {
  CoordPair w;
  w.service.put("/c", "1");
  w.service.faults().late_change = 1;
  auto r = w.wait<coord::Stat>([&](auto d) { w.sa->set("/c", "2", 0, d); });
  EXPECT_EQ(r.error().code, Code::outcome_unknown);
  w.s.run_for(5s);
  EXPECT_EQ(*w.service.value("/c"), "2");
}

TEST(SimParts, a_multi_is_all_or_nothing) {
  CoordPair w;
  w.service.put("/c", "1");
  std::vector<coord::Op> ops;
  ops.emplace_back(coord::OpCreate{"/d", "new"});
  ops.emplace_back(coord::OpCheck{"/c", 9});
  auto r = w.wait<std::vector<coord::OpResult>>([&](auto d) { w.sa->multi(ops, d); });
  EXPECT_EQ(r.error().code, Code::conflict);
  EXPECT_EQ(r.error().detail, "1");
  EXPECT_EQ(w.service.value("/d"), nullptr);
}

TEST(SimParts, a_session_cut_off_for_its_timeout_expires_and_an_outage_expires_nobody) {
  CoordPair w;
  const uint64_t before = w.sb->session_id();
  w.service.outage(5s);
  w.s.run_for(7s);
  EXPECT_TRUE(w.sb->connected());
  EXPECT_EQ(w.sb->session_id(), before);
  w.service.cut("a");
  const uint64_t old = w.sa->session_id();
  w.s.run_for(5s);
  w.service.heal();
  w.s.run_for(1s);
  EXPECT_NE(w.sa->session_id(), old);
}

TEST(SimParts, a_narrow_simulation_runs_no_more_seeds_than_it_needs) {
  const char* before = std::getenv("SEEDS");
  const std::string kept = before ? before : "";
  const char* narrowed = std::getenv("NARROW_SEEDS");
  const std::string kept_narrow = narrowed ? narrowed : "";
  unsetenv("SEEDS");
  unsetenv("NARROW_SEEDS");
  EXPECT_EQ(seeds_to_run(narrow(20)), 20U);
  setenv("SEEDS", "100", 1);
  EXPECT_EQ(seeds_to_run(narrow(20)), 100U);
  setenv("SEEDS", "20000", 1);
  EXPECT_EQ(seeds_to_run(narrow(20)), kNarrowSeeds);
  setenv("NARROW_SEEDS", "300", 1);
  EXPECT_EQ(seeds_to_run(narrow(20)), 300U);
  EXPECT_EQ(seeds_to_run(20), 20000U);
  narrowed ? setenv("NARROW_SEEDS", kept_narrow.c_str(), 1) : unsetenv("NARROW_SEEDS");
  before ? setenv("SEEDS", kept.c_str(), 1) : unsetenv("SEEDS");
}

TEST(SimParts, the_past_can_come_back) {
  CoordPair w;
  w.service.put("/c", "1");
  const int then = w.service.remember();
  w.service.put("/c", "2");
  w.service.restore(then);
  EXPECT_EQ(*w.service.value("/c"), "1");
}

}  // namespace
}  // namespace cantle::sim

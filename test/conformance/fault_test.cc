// Lost replies, lost servers: what only ZooKeeper can be made to do, through zkproxy (R24, R29).
#include <unistd.h>

#include <algorithm>

#include "lib/coord/settle.h"
#include "test/conformance/backend.h"

namespace cantle::conformance {
namespace {

using coord::OpCreate;
using coord::OpSet;

class Faults : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    if (::access((binary_dir() + "/zkproxy").c_str(), X_OK) != 0)
      GTEST_SKIP() << "zkproxy is not built (make test-conformance builds it)";
    const auto chroot = url().substr(url().find('/', 5));
    proxy_ = std::make_unique<Child>(std::vector<std::string>{binary_dir() + "/zkproxy", "0", port_of(1)});
    port_ = proxy_->greeting().substr(proxy_->greeting().find(' ') + 1);
    proxied_ = "zk://127.0.0.1:" + port_ + chroot;
    direct_ = open();
    through_ = SyncSession::open(loop_, {.url = proxied_, .session_timeout = 2s, .operation_timeout = 1500ms}).value();
  }
  std::string port_of(int server) const {
    return shell("cat " + servers(GetParam()).dir + "/zk" + std::to_string(server) + "/port");
  }
  // Of one request whose reply is lost, with something else happening before the connection is cut.
  template <class T>
  base::Result<T> with_lost_reply(const std::string& kind, const std::function<void(coord::Done<T>)>& change,
                                  const std::function<void()>& meanwhile) {
    std::optional<base::Result<T>> answer;
    const auto before = words(proxy_->ask("swallowed"))[0];
    EXPECT_EQ(proxy_->ask("swallow " + kind), "ok");
    change([&](base::Result<T> r) { answer = std::move(r); });
    EXPECT_TRUE(eventually([&] { return words(proxy_->ask("swallowed"))[0] != before; }));
    meanwhile();
    EXPECT_EQ(proxy_->ask("cut"), "ok");
    EXPECT_TRUE(eventually([&] { return answer.has_value(); }, 30s));
    return answer ? *answer : base::fail(Code::faulted, "never answered");
  }
  std::unique_ptr<Child> proxy_;
  std::string port_, proxied_;
  std::unique_ptr<SyncSession> direct_, through_;
};

TEST_P(Faults, a_lost_reply_of_a_change_is_an_unknown_outcome_and_a_lost_read_is_asked_again) {
  direct_->create("/n", "0").value();
  auto& session = through_->session();
  const auto set = with_lost_reply<coord::Stat>(
      "set", [&](auto done) { session.set("/n", "1", 0, done); }, [] {});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, Code::outcome_unknown);
  EXPECT_TRUE(direct_->sync("/n"));
  EXPECT_EQ(direct_->get("/n")->value, "1");  // it had been made all the same
  const auto multi = with_lost_reply<std::vector<coord::OpResult>>(
      "multi",
      [&](auto done) {
        session.multi({OpSet{"/n", "2", 1}}, done);
      },
      [] {});
  EXPECT_EQ(multi.error().code, Code::outcome_unknown);
  const auto made = with_lost_reply<std::string>(
      "create", [&](auto done) { session.create("/c", "", CreateMode::persistent, done); }, [] {});
  EXPECT_EQ(made.error().code, Code::outcome_unknown);
  const auto removed = with_lost_reply<base::Nothing>(
      "delete", [&](auto done) { session.remove("/c", 0, done); }, [] {});
  EXPECT_EQ(removed.error().code, Code::outcome_unknown);
  const auto read = with_lost_reply<coord::Node>(
      "get", [&](auto done) { session.get("/n", nullptr, done); }, [] {});
  ASSERT_TRUE(read) << base::to_string(read.error());
  EXPECT_EQ(read->value, "2");
}

// R24: own compare-and-swaps whose reply is lost, with and without another's real commit in between.
TEST_P(Faults, r24_two_hundred_lost_replies_are_told_as_what_they_were) {
  coord::LoopTimers timers(loop_);
  coord::Settler settle(through_->session(), timers);
  direct_->create("/txn", "start").value();
  direct_->create("/d", "").value();
  int32_t version = 0;
  for (int round = 0; round < 200; round++) {
    const auto token = "mine-" + std::to_string(round);
    const auto path = "/d/" + token;
    const bool rival = round % 4 == 3;  // overwrites ours before we can look
    const bool lost = round % 8 == 5;   // the request never arrives, a rival's does
    const auto other_writes = [&] { direct_->set("/txn", "theirs-" + std::to_string(round), kAnyVersion).value(); };
    if (round % 2 == 0) {
      const auto set = with_lost_reply<coord::Stat>(
          "set", [&](auto done) { settle.set("/txn", token, version, coord::recognise_value(token), done); }, [] {});
      ASSERT_TRUE(set) << round << base::to_string(set.error());
      EXPECT_EQ(set->version, version + 1);
      version++;
    } else if (lost) {
      other_writes();
      const auto set = with_lost_reply<coord::Stat>(
          "set", [&](auto done) { settle.set("/txn", token, version, coord::recognise_value(token), done); }, [] {});
      ASSERT_FALSE(set) << round;
      EXPECT_EQ(set.error().code, Code::conflict);  // another's, and surely not ours
      version++;
    } else {
      const auto multi = with_lost_reply<std::vector<coord::OpResult>>(
          "multi",
          [&](auto done) {
            settle.multi({OpCreate{path, token}, OpSet{"/txn", token, version}}, rival ? 0 : 1,
                         coord::recognise_value(token), done);
          },
          rival ? std::function<void()>(other_writes) : [] {});
      ASSERT_TRUE(multi) << round << base::to_string(multi.error());
      EXPECT_EQ((*multi)[0].path, path);
      version += rival ? 2 : 1;
    }
    ASSERT_TRUE(direct_->sync("/txn"));
    ASSERT_EQ(direct_->exists("/txn")->version, version) << round;  // never applied twice
  }
}

TEST_P(Faults, when_others_wrote_over_it_the_settler_says_that_it_cannot_tell) {
  coord::LoopTimers timers(loop_);
  coord::Settler settle(through_->session(), timers);
  direct_->create("/n", "").value();
  const auto set = with_lost_reply<coord::Stat>(
      "set", [&](auto done) { settle.set("/n", "mine", 0, coord::recognise_value("mine"), done); },
      [&] { direct_->set("/n", "theirs", kAnyVersion).value(); });
  EXPECT_EQ(set.error().code, Code::outcome_unknown);
  // A value that keeps its history can tell.
  const auto knows = [](const coord::Node& now, int32_t) {
    return now.value.find("mine2") != std::string::npos ? coord::Mine::yes : coord::Mine::no;
  };
  const auto told = with_lost_reply<coord::Stat>(
      "set", [&](auto done) { settle.set("/n", "mine2", 2, knows, done); },
      [&] { direct_->set("/n", "theirs, after mine2", kAnyVersion).value(); });
  EXPECT_TRUE(told) << base::to_string(told.error());
}

TEST_P(Faults, a_request_that_never_arrived_is_made_again) {
  coord::LoopTimers timers(loop_);
  coord::Settler settle(through_->session(), timers);
  std::optional<base::Result<std::string>> made;
  EXPECT_EQ(proxy_->ask("lose create"), "ok");
  settle.create("/once", "token", CreateMode::ephemeral, [&](auto r) { made = r; });
  ASSERT_TRUE(eventually([&] { return made.has_value(); }, 30s));
  EXPECT_TRUE(*made) << base::to_string(made->error());
  EXPECT_EQ(words(proxy_->ask("swallowed"))[1], "1");
  EXPECT_TRUE(direct_->sync("/"));
  EXPECT_EQ(direct_->exists("/once")->ephemeral_owner, through_->session().session_id());
  std::optional<base::Result<base::Nothing>> removed;
  EXPECT_EQ(proxy_->ask("lose delete"), "ok");
  settle.remove("/once", 0, [&](auto r) { removed = r; });
  ASSERT_TRUE(eventually([&] { return removed.has_value(); }, 30s));
  EXPECT_TRUE(*removed);
}

TEST_P(Faults, an_appended_event_whose_reply_was_lost_is_found_and_not_appended_twice) {
  coord::LoopTimers timers(loop_);
  coord::Settler settle(through_->session(), timers);
  direct_->create("/log", "").value();
  direct_->create("/log/event-", "other", CreateMode::persistent_sequential).value();
  const auto made = with_lost_reply<std::string>(
      "create", [&](auto done) { settle.append("/log/event-", "mine", done); },
      [&] { direct_->create("/log/event-", "another", CreateMode::persistent_sequential).value(); });
  EXPECT_EQ(made.value(), "/log/event-0000000001");
  EXPECT_EQ(direct_->children("/log")->size(), 3u);
}

// R29: cut off for a second, while what it watches changes; and a change between its read and its watch.
TEST_P(Faults, r29_a_change_during_a_cut_fires_the_watch_after_it) {
  direct_->create("/n", "0").value();
  int fired = 0;
  bool answered = false;
  through_->session().get(
      "/n", [&] { fired++; }, [&](auto) { answered = true; });
  EVENTUALLY(answered);
  EXPECT_EQ(proxy_->ask("refuse"), "ok");
  EVENTUALLY(!through_->session().connected());
  direct_->set("/n", "1", kAnyVersion).value();
  EXPECT_EQ(fired, 0);
  EXPECT_EQ(proxy_->ask("accept"), "ok");
  ASSERT_TRUE(eventually([&] { return fired == 1 && through_->session().connected(); }, 3s));

  answered = false;
  EXPECT_EQ(proxy_->ask("hold replies"), "ok");
  through_->session().get(
      "/n", [&] { fired++; }, [&](auto) { answered = true; });
  loop_.run_for(100ms, [] { return false; });  // it is read, the answer is on its way
  direct_->set("/n", "2", kAnyVersion).value();
  EXPECT_EQ(proxy_->ask("release"), "ok");
  ASSERT_TRUE(eventually([&] { return answered && fired == 2; }, 3s));
}

TEST_P(Faults, the_lease_clock_stops_in_a_partition_long_before_anybody_says_so) {
  EXPECT_EQ(proxy_->ask("hold all"), "ok");
  const auto at = loop_.refresh_now();
  loop_.run_for(800ms, [] { return false; });
  EXPECT_LT(through_->session().last_confirmed(), at + 50ms);
  EXPECT_EQ(proxy_->ask("release"), "ok");
  EVENTUALLY(through_->session().last_confirmed() > at + 400ms);
}

// R27, S34: nobody says "expired" before the service is reached again.
TEST_P(Faults, a_session_that_expired_in_a_partition_is_replaced_after_it) {
  const auto first = through_->session().session_id();
  std::vector<Event> events;
  through_->session().on_event([&](Event e) { events.push_back(e); });
  through_->create("/e", "", CreateMode::ephemeral).value();
  EXPECT_EQ(proxy_->ask("refuse"), "ok");
  ASSERT_TRUE(eventually([&] { return direct_->sync("/") && !direct_->exists("/e"); }, 15s));
  EXPECT_EQ(through_->get("/").error().code, Code::unavailable);
  EXPECT_EQ(through_->set("/e", "", 0).error().code, Code::unavailable);  // it was never sent
  EXPECT_EQ(std::count(events.begin(), events.end(), Event::expired), 0);
  EXPECT_EQ(proxy_->ask("accept"), "ok");
  ASSERT_TRUE(eventually([&] { return through_->session().connected(); }, 15s));
  EXPECT_EQ(std::count(events.begin(), events.end(), Event::expired), 1);
  EXPECT_NE(through_->session().session_id(), first);
}

TEST_P(Faults, a_change_that_is_never_answered_ends_at_its_deadline) {
  direct_->create("/n", "").value();
  auto session =
      SyncSession::open(loop_, {.url = proxied_, .session_timeout = 20s, .operation_timeout = 500ms}).value();
  EXPECT_EQ(proxy_->ask("hold replies"), "ok");
  EXPECT_EQ(session->set("/n", "1", 0).error().code, Code::outcome_unknown);
  EXPECT_EQ(session->get("/n").error().code, Code::unavailable);
  EXPECT_EQ(proxy_->ask("release"), "ok");
  EXPECT_TRUE(session->sync("/n"));
  EXPECT_EQ(session->get("/n")->value, "1");
}

INSTANTIATE_TEST_SUITE_P(Coord, Faults, testing::Values(Kind::standalone),
                         [](const auto& test) { return name_of(test.param); });

// --- Servers that come and go --------------------------------------------------------------------

// ZOOKEEPER-2466: two addresses, one of which answers; the client is there before the server.
TEST(Ensemble, an_even_number_of_addresses_does_not_keep_us_out) {
  const auto& there = servers(Kind::standalone);
  if (!there.missing.empty()) GTEST_SKIP() << there.missing;
  for (int round = 0; round < 3; round++) {
    const auto dir = fresh_dir();
    const auto ports = words(shell("zk_free_ports 4"));
    const auto count = round == 2 ? 4 : 2;
    std::string list;
    for (int i = 0; i < count; i++) list += (i ? "," : "") + std::string("127.0.0.1:") + ports[static_cast<size_t>(i)];
    io::Loop loop;
    auto session = coord::open(loop, {.url = "zk://" + list, .session_timeout = 2s}).value();
    loop.run_for(300ms, [] { return false; });  // a full round of failures
    EXPECT_FALSE(session->connected());
    shell("zk_start " + dir + " " + ports[static_cast<size_t>(round % count)]);
    EXPECT_TRUE(loop.run_for(9s, [&] { return session->connected(); })) << round;
    shell("zk_stop " + dir);
  }
}

TEST(Ensemble, a_name_is_resolved_and_its_addresses_are_tried) {
  const auto& there = servers(Kind::standalone);
  if (!there.missing.empty()) GTEST_SKIP() << there.missing;
  io::Loop loop;
  auto url = "zk://localhost:" + shell("cat " + there.dir + "/zk1/port");
  const auto session = SyncSession::open(loop, {.url = url, .session_timeout = 2s});
  ASSERT_TRUE(session) << base::to_string(session.error());  // ::1 and 127.0.0.1, one of which answers
  EXPECT_TRUE((*session)->children("/"));
  const auto nobody = coord::open(loop, {.url = "zk://no-such-host.invalid:1", .session_timeout = 2s});
  EXPECT_TRUE(nobody);
  EXPECT_FALSE(loop.run_for(300ms, [&] { return (*nobody)->connected(); }));
}

// Compare-and-swaps of several sessions on one counter, while the leader is killed and comes back twice.
TEST(Ensemble, no_acknowledged_change_is_lost_with_the_leader) {
  const auto& there = servers(Kind::ensemble);
  if (!there.missing.empty()) GTEST_SKIP() << there.missing;
  const auto url = shell("zk_url " + there.dir) + "/leader-test";
  io::Loop loop;
  const auto start = SyncSession::open(loop, {.url = url, .session_timeout = 4s}).value();
  start->create("/counter", "0").value();
  coord::LoopTimers timers(loop);
  struct Writer {
    std::unique_ptr<coord::Session> session;
    std::unique_ptr<coord::Settler> settle;
    int done = 0, lost = 0, unknown = 0;
  };
  std::vector<Writer> writers(4);
  bool stop = false;
  int under_way = 0;
  std::function<void(size_t)> step = [&](size_t i) {
    auto& w = writers[i];
    if (stop) return static_cast<void>(under_way--);
    w.session->get("/counter", nullptr, [&, i](base::Result<coord::Node> node) {
      if (!node) return step(i);
      const auto value = std::to_string(std::stoi(node->value) + 1) + " by " + std::to_string(i) + " " +
                         std::to_string(writers[i].done);
      writers[i].settle->set("/counter", value, node->stat.version, coord::recognise_value(value),
                             [&, i](base::Result<coord::Stat> r) {
                               auto& counts = writers[i];
                               if (r)
                                 counts.done++;
                               else if (r.error().code == Code::conflict)
                                 counts.lost++;
                               else
                                 counts.unknown++;
                               step(i);
                             });
    });
  };
  for (size_t i = 0; i < writers.size(); i++) {
    writers[i].session = coord::open(loop, {.url = url, .session_timeout = 4s}).value();
    writers[i].settle = std::make_unique<coord::Settler>(*writers[i].session, timers);
    under_way++;
    step(i);
  }
  const auto total = [&] {
    int sum = 0;
    for (const auto& w : writers) sum += w.done;
    return sum;
  };
  for (int round = 0; round < 2; round++) {
    const int before = total();
    ASSERT_TRUE(turn_until(
        loop, [&] { return total() > before + 50; }, 20s));
    const auto leader = shell("zk_leader " + there.dir);
    shell("zk_kill " + there.dir + " " + leader);
    const int at_the_kill = total();
    ASSERT_TRUE(turn_until(
        loop, [&] { return total() > at_the_kill + 50; }, 30s));
    shell("zk_start_one " + there.dir + " " + leader + " && zk_wait " + there.dir + " " + leader);
  }
  stop = true;
  ASSERT_TRUE(loop.run_for(60s, [&] { return under_way == 0; }));
  ASSERT_TRUE(start->sync("/counter"));
  const auto final_value = start->get("/counter").value();
  int unknown = 0;
  for (const auto& w : writers) unknown += w.unknown;
  EXPECT_EQ(std::stoi(final_value.value), final_value.stat.version);
  EXPECT_GE(final_value.stat.version, total());
  EXPECT_LE(final_value.stat.version, total() + unknown);
}

}  // namespace
}  // namespace cantle::conformance

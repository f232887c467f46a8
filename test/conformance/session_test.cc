// Sessions: ephemerals, expiry, the lease's clock, many at once, registrations.
#include <signal.h>

#include <algorithm>
#include <set>

#include "lib/base/random.h"
#include "lib/coord/registration.h"
#include "lib/coord/settle.h"
#include "test/conformance/backend.h"

namespace cantle::conformance {
namespace {

class Sessions : public Conformance {
 protected:
  // Until `other` sees that it is gone; how long that took.
  base::Duration until_gone(SyncSession& other, const std::string& path, base::Duration limit = 15s) {
    const auto since = loop_.refresh_now();
    // A sync before each look: in an ensemble another server may not have heard of it yet.
    while (other.sync("/") && other.exists(path) && loop_.refresh_now() - since < limit)
      loop_.run_for(20ms, [] { return false; });
    return loop_.refresh_now() - since;
  }
};

TEST_P(Sessions, ephemerals_name_their_session_and_go_with_it) {
  auto a = open();
  const auto b = open();
  EXPECT_NE(a->session().session_id(), 0u);
  EXPECT_NE(a->session().session_id(), b->session().session_id());
  a->create("/e", "x", CreateMode::ephemeral).value();
  a->create("/s-", "", CreateMode::ephemeral_sequential).value();
  EXPECT_TRUE(b->sync("/"));
  EXPECT_EQ(b->exists("/e")->ephemeral_owner, a->session().session_id());
  EXPECT_EQ(b->create("/e/child", "").error().code, Code::invalid);
  a.reset();
  EXPECT_LT(until_gone(*b, "/e"), 2s);  // a session that is closed needs no timeout
  EXPECT_EQ(b->children("/").value(), std::vector<std::string>{});
}

TEST_P(Sessions, requests_made_before_the_connection_are_served_after_it) {
  auto session = coord::open(loop_, options()).value();
  base::Result<std::string> made = base::fail(Code::faulted, "");
  int events = 0;
  session->on_event([&](Event e) { events += e == Event::connected; });
  session->create("/early", "", CreateMode::persistent, [&](auto r) { made = r; });
  EXPECT_FALSE(session->connected());
  EXPECT_EQ(session->session_id(), 0u);
  EVENTUALLY(made.has_value());
  EXPECT_EQ(events, 1);
  EXPECT_TRUE(session->connected());
}

// A process that is silent for the timeout loses its session; the sessions are on two loops, and one is
// not turned.
TEST_P(Sessions, silence_expires_a_session_and_a_new_one_begins_by_itself) {
  io::Loop silent;
  auto a = open_on(silent, 1s);
  const auto b = open();
  const auto first = a->session().session_id();
  std::vector<Event> events;
  a->session().on_event([&](Event e) { events.push_back(e); });
  a->create("/e", "", CreateMode::ephemeral).value();
  b->create("/n", "").value();
  int fired = 0;
  bool answered = false;
  a->session().get(
      "/n", [&] { fired++; }, [&](auto) { answered = true; });
  ASSERT_TRUE(silent.run_for(5s, [&] { return answered; }));

  const auto gone_after = until_gone(*b, "/e");
  EXPECT_GT(gone_after, 500ms);
  EXPECT_LT(gone_after, 6s);
  ASSERT_TRUE(silent.run_for(10s, [&] { return !events.empty() && events.back() == Event::connected; }));
  EXPECT_NE(std::find(events.begin(), events.end(), Event::expired), events.end());
  EXPECT_EQ(fired, 1);  // whoever watched must look again
  EXPECT_NE(a->session().session_id(), first);
  EXPECT_TRUE(a->create("/e", "", CreateMode::ephemeral));
  EXPECT_EQ(a->exists("/e")->ephemeral_owner, a->session().session_id());
}

// A change asked for under the old session must not be made under the new one.
TEST_P(Sessions, a_change_does_not_cross_an_expiry) {
  io::Loop silent;
  auto a = open_on(silent, 1s);
  const auto b = open();
  a->create("/e", "", CreateMode::ephemeral).value();
  const auto first = a->session().session_id();
  until_gone(*b, "/e");
  std::optional<base::Result<std::string>> late;
  a->session().create("/late", "", CreateMode::ephemeral, [&](auto r) { late = r; });
  ASSERT_TRUE(silent.run_for(10s, [&] { return late.has_value(); }));
  ASSERT_FALSE(*late);
  EXPECT_TRUE(late->error().code == Code::unavailable || late->error().code == Code::outcome_unknown)
      << base::to_string(late->error());
  ASSERT_TRUE(silent.run_for(10s, [&] { return a->session().connected() && a->session().session_id() != first; }));
  EXPECT_EQ(a->exists("/late").error().code, Code::not_found);
}

TEST_P(Sessions, the_lease_clock_goes_on_while_the_service_answers) {
  const auto a = open(1s);
  for (int i = 0; i < 3; i++) {
    const auto before = a->session().last_confirmed();
    EVENTUALLY(a->session().last_confirmed() > before);
    EXPECT_LT(loop_.refresh_now() - a->session().last_confirmed(), 1s);
  }
  EXPECT_GE(a->session().timeout(), 400ms);
}

TEST_P(Sessions, a_hundred_at_once) {
  constexpr size_t kMany = 100;
  std::vector<std::unique_ptr<coord::Session>> sessions;
  for (size_t i = 0; i < kMany; i++) sessions.push_back(coord::open(loop_, options(4s)).value());
  const auto watcher = open(4s);
  watcher->create("/start", "").value();
  size_t made = 0, told = 0;
  for (size_t i = 0; i < kMany; i++) {
    sessions[i]->exists(
        "/start", [&] { told++; }, [](auto) {});
    sessions[i]->create("/m" + std::to_string(i), "", CreateMode::ephemeral, [&](auto r) { made += r.has_value(); });
  }
  ASSERT_TRUE(eventually([&] { return made == kMany; }, 30s));
  std::set<uint64_t> ids;
  for (const auto& s : sessions) ids.insert(s->session_id());
  EXPECT_EQ(ids.size(), kMany);
  watcher->set("/start", "go", kAnyVersion).value();
  ASSERT_TRUE(eventually([&] { return told == kMany; }, 30s));
  sessions.clear();
  ASSERT_TRUE(eventually([&] { return watcher->children("/")->size() == 1; }, 30s));
}

// --- Registration ------------------------------------------------------------------------------

constexpr const char* kPath = "/p2";
std::string value_of(int incarnation) {
  return "readwrite\nrole: partd\nincarnation: " + std::to_string(incarnation) + "\n";
}

// R26: killed and started again at once, while the old session may live on.
TEST_P(Sessions, r26_a_restarted_process_owns_its_ephemeral_and_never_the_one_of_its_life_before) {
  const auto watcher = open();
  std::string last_owner;
  for (int life = 1; life <= 20; life++) {
    const auto number = std::to_string(life);
    Child child(self({"--child", "register", url().c_str(), "1500", kPath, value_of(life), number}));
    const auto owner = child.greeting();
    EXPECT_NE(owner, last_owner);
    ASSERT_TRUE(watcher->sync("/"));
    const auto node = watcher->get(kPath);
    ASSERT_TRUE(node);
    EXPECT_EQ(std::to_string(node->stat.ephemeral_owner), owner);
    EXPECT_EQ(node->value, value_of(life));
    last_owner = owner;
    if (life == 20) {  // and the end of the session before does not take the new one's
      loop_.run_for(3s, [] { return false; });
      ASSERT_TRUE(watcher->sync("/"));
      EXPECT_EQ(std::to_string(watcher->exists(kPath)->ephemeral_owner), owner);
    }
    child.kill();
  }
}

// R27: the session expires, the process lives.
TEST_P(Sessions, r27_a_process_that_was_stopped_registers_again) {
  const auto watcher = open();
  Child child(self({"--child", "register", url().c_str(), "1000", kPath, value_of(1), "1"}));
  for (int round = 0; round < 3; round++) {
    // It said so itself: what others see may still be in its commit, and a process stopped there blocks all.
    child.signal(SIGSTOP);
    EXPECT_LT(until_gone(*watcher, kPath), 10s);
    child.signal(SIGCONT);
    const auto since = loop_.refresh_now();
    const auto owner = child.next_line();
    EXPECT_LT(loop_.refresh_now() - since, 5s) << round;
    EXPECT_TRUE(watcher->sync("/"));
    EXPECT_EQ(std::to_string(watcher->exists(kPath)->ephemeral_owner), owner);
  }
}

class Registered : public Sessions {
 protected:
  struct Member {
    explicit Member(Registered& t, int incarnation, std::string instance = "")
        : session(coord::open(t.loop_, t.options(1s)).value()),
          timers(t.loop_),
          registration(*session, timers, random, model::Incarnation{static_cast<uint64_t>(incarnation)},
                       std::move(instance)) {
      session->on_event([this](Event e) { registration.on_event(e); });
    }
    std::unique_ptr<coord::Session> session;
    coord::LoopTimers timers;
    base::SystemRandom random;
    coord::Registration registration;
  };
};

TEST_P(Registered, what_was_removed_comes_back_and_what_was_changed_is_mended) {
  Member m(*this, 3);
  const auto other = open();
  m.registration.keep("/a", value_of(3));
  m.registration.keep("/v", "software: 1\n");
  m.registration.start();
  EVENTUALLY(m.registration.registered());
  EXPECT_TRUE(other->remove("/a"));
  EVENTUALLY(other->exists("/a").has_value());
  other->set("/a", "junk", kAnyVersion).value();
  EVENTUALLY(other->get("/a")->value == value_of(3));
  m.registration.keep("/a", "readonly\nrole: partd\nincarnation: 3\n");
  EVENTUALLY(other->get("/a")->value.starts_with("readonly"));
  EXPECT_EQ(other->exists("/a")->ephemeral_owner, m.session->session_id());
  bool withdrawn = false;
  m.registration.withdraw([&] { withdrawn = true; });
  EVENTUALLY(withdrawn);
  EXPECT_FALSE(other->exists("/a"));
  EXPECT_FALSE(other->exists("/v"));
}

TEST_P(Registered, a_younger_life_under_our_id_is_not_fought) {
  Member young(*this, 8);
  young.registration.keep("/a", value_of(8));
  young.registration.start();
  EVENTUALLY(young.registration.registered());
  Member old(*this, 7);
  std::string who;
  old.registration.on_displaced([&](const std::string& text) { who = text; });
  old.registration.keep("/a", value_of(7));
  old.registration.keep("/b", "software: 1\n");
  old.registration.start();
  EVENTUALLY(!who.empty());
  loop_.run_for(1500ms, [] { return false; });
  EXPECT_TRUE(young.registration.registered());
  EXPECT_FALSE(old.registration.registered());
  EXPECT_EQ(young.session->session_id(), open()->exists("/a")->ephemeral_owner);
  young.session.reset();  // it goes; then the old one may
  EVENTUALLY(old.registration.registered());
}

TEST_P(Registered, another_data_directory_under_our_id_is_not_fought) {
  const auto value = [](const char* instance) { return value_of(1) + "instance: " + instance + "\n"; };
  Member one(*this, 1, "aa");
  one.registration.keep("/a", value("aa"));
  one.registration.start();
  EVENTUALLY(one.registration.registered());
  Member two(*this, 5, "bb");
  std::string who;
  two.registration.on_displaced([&](const std::string& text) { who = text; });
  two.registration.keep("/a", value("bb"));
  two.registration.start();
  EVENTUALLY(!who.empty());
  EXPECT_TRUE(one.registration.registered());
  EXPECT_FALSE(two.registration.registered());
}

TEST_P(Registered, appended_events_are_found_whatever_their_order) {
  const auto a = open();
  coord::LoopTimers timers(loop_);
  coord::Settler settle(a->session(), timers);
  a->create("/log", "").value();
  std::vector<std::string> made;
  for (int i = 0; i < 5; i++)
    settle.append("/log/event-", "value " + std::to_string(i),
                  [&](base::Result<std::string> r) { made.push_back(r.value()); });
  EVENTUALLY(made.size() == 5);
  for (size_t i = 0; i < 5; i++) EXPECT_EQ(made[i], "/log/event-000000000" + std::to_string(i));
}

const auto kAll = testing::Values(Kind::file, Kind::standalone, Kind::ensemble);
INSTANTIATE_TEST_SUITE_P(Coord, Sessions, kAll, [](const auto& test) { return name_of(test.param); });
INSTANTIATE_TEST_SUITE_P(Coord, Registered, kAll, [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace cantle::conformance

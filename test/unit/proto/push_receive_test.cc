#include <gtest/gtest.h>

#include "test/unit/proto/push_rig.h"

namespace cantle::proto {
namespace {

using model::ServerId;
using push::Purpose;
using test::DriverWorld;
using test::PushRig;
using namespace std::chrono_literals;

struct PushReceive : testing::Test {
  DriverWorld w;
  PushRig r{w};
  void SetUp() override { r.install(); }
  model::Envelope good() const { return r.envelope(w.only().id, r.of("p2"), r.of("p1")); }
};

TEST_F(PushReceive, is_appended_to_the_own_log_and_answered_when_durable) {
  EXPECT_EQ(r.arrive(good()), "ok");
  EXPECT_EQ(r.take<push::AppendReceived>().at(0).log, w.only().id);
}

TEST_F(PushReceive, refuses_another_tenure_an_older_map_and_an_older_life) {
  auto e = good();
  e.to_assignment = model::AssignmentId::draw(w.random);
  EXPECT_EQ(r.arrive(e), "UNAVAILABLE");
  e = good();
  e.from_assignment = r.of("p3").id;  // not p2's
  EXPECT_EQ(r.arrive(e), "UNAVAILABLE");
  e = good();
  e.partition = model::PartitionId::draw(w.random);
  EXPECT_EQ(r.arrive(e), "STALE_ROUTE");
  e = good();
  e.table_uuid = model::TableUuid::draw(w.random);
  EXPECT_EQ(r.arrive(e), "NO_SUCH_TABLE");
  r.feed(push::LiveRead{{{ServerId{"p2"}, {7}}}});
  EXPECT_EQ(r.arrive(good()), "UNAVAILABLE");  // incarnation 1 (S25)
  e = good();
  e.incarnation = {7};
  EXPECT_EQ(r.arrive(e), "ok");
  w.split();
  r.install();
  e.txnseq = {1};
  EXPECT_EQ(r.arrive(e), "STALE_ROUTE");
  EXPECT_EQ(r.count<push::AppendReceived>(), 1u);
}

// A proof against the very copy that is to go would prove nothing (invariant 7).
TEST_F(PushReceive, no_copy_takes_from_itself_or_vouches_for_itself) {
  const auto e = r.envelope(w.only().id, r.of("p1"), r.of("p1"));
  for (const auto purpose : {Purpose::write, Purpose::bulk, Purpose::bulk_end, Purpose::digest, Purpose::read})
    EXPECT_EQ(r.server.admit(e, purpose).kind, push::Admission::Kind::refuse);
  auto older = r.of("p1");  // another tenure of this server
  older.id = model::AssignmentId::draw(w.random);
  const auto other = r.envelope(w.only().id, older, r.of("p1"));
  EXPECT_EQ(r.server.admit(other, Purpose::digest).kind, push::Admission::Kind::ok);
}

TEST_F(PushReceive, hands_on_what_movers_say_of_their_servers_stamps) {
  const auto v = [](uint64_t ms, uint64_t incarnation = 1, uint32_t server = 2) {
    return model::Version::make(ms, 0, {server}, {incarnation});
  };
  const auto id = w.only().id;
  const auto said = [&] { return r.server.delivered(id); };
  r.feed(push::DeliveryTold{good(), {v(10), v(20), false}});
  ASSERT_EQ(said().size(), 1u);
  r.feed(push::DeliveryTold{good(), {v(15), v(30), true}});  // goes on from there
  EXPECT_EQ(said().at(0), (model::Delivered{v(10), v(30), true}));
  r.feed(push::DeliveryTold{good(), {v(50), v(60), false}});  // opened anew behind a damaged place
  EXPECT_EQ(said().at(0), (model::Delivered{v(50), v(60), false}));
  r.feed(push::DeliveryTold{good(), {v(70, 2), v(80, 2), false}});  // of another life
  r.feed(push::DeliveryTold{good(), {v(70), v(80, 1, 3), false}});  // of two stampers
  r.feed(push::DeliveryTold{good(), {v(90), v(80), false}});        // of nothing
  r.feed(push::DeliveryTold{good(), {v(90), v(90), false}});
  auto other = good();
  other.to_assignment = r.of("p3").id;
  r.feed(push::DeliveryTold{other, {v(60), v(80), false}});  // to another tenure
  EXPECT_EQ(said().at(0), (model::Delivered{v(50), v(60), false}));
  r.feed(push::DeliveryTold{good(), {v(55), v(55), true}});  // of nothing, and there is no more: that is news
  EXPECT_EQ(said().at(0), (model::Delivered{v(50), v(60), true}));
}

TEST_F(PushReceive, a_newer_map_is_fetched_first) {
  auto e = good();
  e.txnseq = {9};
  EXPECT_EQ(r.server.admit(e, Purpose::write).kind, push::Admission::Kind::fetch);
  EXPECT_EQ(r.arrive(e), "UNAVAILABLE");
  EXPECT_EQ(r.take<push::FetchMap>().at(0).at_least.value, 9u);
}

TEST_F(PushReceive, a_version_far_ahead_of_the_clock_changes_nothing_here) {
  const auto ahead = model::Version::make(r.now.wall + 5001, 0, {2}, {1});
  EXPECT_EQ(r.arrive(good(), ahead), "INVALID");
  const auto id = r.put("a", model::Level::one);
  EXPECT_LT(r.reply(id).version, ahead);
  const auto near = model::Version::make(r.now.wall + 4000, 0, {2}, {1});
  EXPECT_EQ(r.arrive(good(), near), "ok");
  EXPECT_GT(r.reply(r.put("a", model::Level::one)).version, near);  // never below what the log has
}

TEST_F(PushReceive, a_full_disk_refuses_and_an_overlay_asks_to_wait) {
  r.feed(push::StoreState{"no space", false});
  EXPECT_EQ(r.arrive(good()), "READ_ONLY");
  r.feed(push::StoreState{"", true});
  EXPECT_EQ(r.arrive(good()), "OVERLOADED");
}

TEST_F(PushReceive, bulk_may_come_from_an_old_tenure_but_never_to_one) {
  auto e = good();
  e.from_assignment = model::AssignmentId::draw(w.random);
  EXPECT_EQ(r.server.admit(e, Purpose::bulk).kind, push::Admission::Kind::ok);
  EXPECT_EQ(r.server.admit(e, Purpose::digest).kind, push::Admission::Kind::ok);
  EXPECT_EQ(r.server.admit(e, Purpose::write).kind, push::Admission::Kind::refuse);
  e.to_assignment = model::AssignmentId::draw(w.random);
  EXPECT_EQ(r.server.admit(e, Purpose::bulk).kind, push::Admission::Kind::refuse);
}

// --- live marks ------------------------------------------------------------------------------------------------

std::map<std::string, uint64_t> marks(PushRig& r) {
  std::map<std::string, uint64_t> all;
  for (const auto& m : r.take<push::SetLive>())
    for (const auto& a : r.w.only().assignments)
      if (a.id == m.target) all[a.server.name] = m.point.lsn.value;
  return all;
}

TEST_F(PushReceive, a_mark_is_contiguous_over_own_and_received_records) {
  r.put("a");  // LSN 1
  r.confirm("p2");
  r.feed(push::Flush{});
  EXPECT_EQ(marks(r), (std::map<std::string, uint64_t>{{"p2", 1}}));
  const auto theirs = model::Version::make(r.now.wall, 0, {2}, {1});
  EXPECT_EQ(r.arrive(good(), theirs), "ok");  // LSN 2, stamped by p2
  r.put("b");                                 // LSN 3
  r.confirm("p2");
  r.confirm("p3");
  r.feed(push::Flush{});
  EXPECT_EQ(marks(r), (std::map<std::string, uint64_t>{{"p3", 1}}));  // who has LSN 2 is not known
  const auto later = model::Version::make(r.now.wall + 1, 0, {2}, {1});
  EXPECT_EQ(r.arrive(good(), later, theirs), "ok");  // p2: everybody has `theirs`
  r.feed(push::Flush{});
  EXPECT_EQ(marks(r), (std::map<std::string, uint64_t>{{"p2", 3}, {"p3", 3}}));
}

TEST_F(PushReceive, what_replpush_confirmed_fills_the_gaps) {
  r.put("a");
  r.refuse("p2", {base::Code::unavailable, "down"});
  r.put("b");
  r.confirm("p2");
  r.feed(push::Flush{});
  EXPECT_EQ(marks(r), (std::map<std::string, uint64_t>{}));
  r.feed(push::PushedTo{r.of("p1").id, r.of("p2").id, {1}});
  r.feed(push::Flush{});
  EXPECT_EQ(marks(r), (std::map<std::string, uint64_t>{{"p2", 2}}));
}

TEST_F(PushReceive, tells_with_its_writes_what_everybody_has) {
  const auto a = r.put("a");
  r.confirm("p2");
  r.put("b");
  EXPECT_TRUE(r.sends.back().settled.none());  // p3 has not confirmed "a"
  r.confirm("p2");
  r.confirm("p3");
  r.put("c");
  EXPECT_GE(r.sends.back().settled, r.reply(a).version);
  // Somebody new has nothing of it yet.
  w.replace(ServerId{"p3"}, ServerId{"p4"}, false);
  r.install();
  r.put("d");
  EXPECT_TRUE(r.sends.back().settled.none());
}

}  // namespace
}  // namespace cantle::proto

#include <gtest/gtest.h>

#include "test/unit/proto/push_rig.h"

namespace cantle::proto {
namespace {

using model::Level;
using model::ServerId;
using test::DriverWorld;
using test::PushRig;
using namespace std::chrono_literals;

// p2 confirmed a block, and starts again before that block is in the log here. What p2 confirmed may be lost there: all
// that is in the log is offered to it again then, this block is not.
TEST(PushWrite, what_a_server_confirmed_in_its_life_before_counts_only_if_it_is_in_the_log_here) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.hold_appends = true;
  const auto id = r.put("a");
  r.confirm("p2");
  auto live = r.live();
  live[ServerId{"p2"}] = {2};
  r.feed(push::LiveRead{live});
  r.appended(r.appends.at(0));
  EXPECT_EQ(r.answer(id), "");
  r.pass(1s);
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, one_is_the_own_log_majority_and_all_are_counted_over_slots) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto one = r.put("a", Level::one), majority = r.put("b"), all = r.put("c", Level::all);
  EXPECT_EQ(r.answer(one), "ok");
  EXPECT_EQ(r.answer(majority), "");
  r.confirm("p3");
  EXPECT_EQ(r.answer(majority), "ok");
  EXPECT_EQ(r.answer(all), "");
  r.confirm("p2");
  EXPECT_EQ(r.answer(all), "ok");
}

TEST(PushWrite, nothing_is_acknowledged_before_the_own_log_has_it) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.hold_appends = true;
  const auto id = r.put("a");
  r.confirm("p2");
  r.confirm("p3");
  EXPECT_EQ(r.answer(id), "");
  r.appended(r.appends.at(0));
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, requests_of_one_turn_share_a_block_and_each_learns_its_own_lsn) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto a = r.put("a", Level::one, 2s, false);
  const auto b = r.write({"b", "c"}, Level::one, 2s, false);
  r.feed(push::Flush{});
  EXPECT_EQ(r.take<push::Append>().size(), 1u);
  EXPECT_EQ(r.reply(a).lsn.value, 1u);
  EXPECT_EQ(r.reply(b).lsn.value, 3u);
  EXPECT_LT(r.reply(a).version, r.reply(b).version);
}

TEST(PushWrite, a_level_not_reached_in_time_is_unknown_and_carries_the_version) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto id = r.put("a", Level::majority, 500ms);
  r.pass(400ms);
  EXPECT_EQ(r.answer(id), "");
  r.pass(200ms);
  EXPECT_EQ(r.answer(id), "OUTCOME_UNKNOWN");
  EXPECT_EQ(r.error(id).detail.size(), 40u);
}

TEST(PushWrite, too_few_within_reach_is_known_before_anything_is_appended) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  w.live = {ServerId{"p1"}};
  r.feed(push::LiveRead{r.live()});
  EXPECT_EQ(r.answer(r.put("a")), "NO_QUORUM");
  EXPECT_EQ(r.count<push::Append>(), 0u);
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "ok");
  // A link that works is believed before the coordination service (S35).
  r.feed(push::LinkChanged{ServerId{"p2"}, true});
  const auto id = r.put("b");
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
  r.feed(push::LinkChanged{ServerId{"p2"}, false});
  EXPECT_EQ(r.answer(r.put("c")), "NO_QUORUM");
}

TEST(PushWrite, is_sent_again_to_who_comes_back_before_the_deadline) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto id = r.put("a");
  r.refuse("p2", {base::Code::unavailable, "not connected"});
  r.refuse("p3", {base::Code::outcome_unknown, "connection lost"});
  EXPECT_EQ(r.sent_to(), "");
  r.pass(150ms);
  EXPECT_EQ(r.sent_to(), "p2 p3");
  r.refuse("p2", {base::Code::unavailable, "not connected"});
  r.feed(push::LinkChanged{ServerId{"p2"}, true});
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
}

// p1 was stopped while the split it acts on ended, and the low child was split in its turn, and that was forgotten:
// what it has under way for keys of that child can be counted by no map any more.
TEST(PushWrite, what_lies_in_a_partition_that_was_forgotten_is_not_acknowledged_for_the_rest_of_it) {
  DriverWorld w(1, 1, 3);
  PushRig r(w);
  const auto attempt = w.split({ServerId{"p3"}}, {});
  const auto parent = w.only();
  w.must(model::ops::Initialize{parent.id, attempt});
  r.install();
  const auto id = r.write({"a", "x"}, Level::majority);
  EXPECT_EQ(r.answer(id), "");
  const auto& s = *w.only().split;
  w.must(model::ops::MarkAvailable{s.low.assignments[0].id, ServerId{"p3"}});
  w.must(model::ops::FinalizeSplit{parent.id, attempt, {s.low.assignments[0].id, s.high.assignments[0].id}});
  const auto low = w.only();
  const auto again = model::draw_split(low, "c", {}, {}, w.random);
  w.must(again);
  w.must(model::ops::Initialize{low.id, again.attempt});
  w.must(model::ops::FinalizeSplit{low.id, again.attempt, {again.low.assignments[0].id, again.high.assignments[0].id}});
  w.must(model::ops::SweepEnded{low.id, again.attempt});
  r.install();
  EXPECT_EQ(r.answer(id), "OUTCOME_UNKNOWN");
}

TEST(PushWrite, a_refused_append_sends_nothing_and_says_so) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.hold_appends = true;
  const auto id = r.put("a");
  r.feed(push::Appended{r.appends.at(0).batch, base::fail(base::Code::no_space, "disk full")});
  EXPECT_EQ(r.answer(id), "READ_ONLY");
  r.pass(10s);
  EXPECT_EQ(r.server.status().batches, 0u);
}

TEST(PushWrite, a_repeat_with_the_version_of_an_unknown_outcome_is_the_same_write) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto version = model::Version::make(r.now.wall - 50, 3, {1}, {1});
  const auto id = r.write({"a"}, Level::one, 2s, true, version);
  EXPECT_EQ(r.reply(id).version, version);
  EXPECT_FALSE(r.take<push::Append>().at(0).newest);
  const auto ahead = model::Version::make(r.now.wall + 6000, 0, {1}, {1});
  EXPECT_EQ(r.answer(r.write({"a"}, Level::one, 2s, true, ahead)), "INVALID");
}

// A failover within one millisecond, or to a server whose clock is behind: the client's next write must not lose.
TEST(PushWrite, a_write_is_stamped_above_what_its_client_saw) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto seen = model::Version::make(r.now.wall + 3000, 7, {9}, {9});
  const auto id = r.write({"a"}, Level::one, 2s, true, {}, {}, false, seen);
  ASSERT_EQ(r.answer(id), "ok");
  EXPECT_GT(r.reply(id).version, seen);
  EXPECT_TRUE(r.take<push::Append>().at(0).newest);
  const auto ahead = model::Version::make(r.now.wall + 9000, 0, {9}, {9});
  EXPECT_EQ(r.answer(r.write({"a"}, Level::one, 2s, true, {}, {}, false, ahead)), "UNAVAILABLE");
}

TEST(PushWrite, versions_never_go_back_whatever_the_clock_does) {
  DriverWorld w(1, 1, 1);
  PushRig r(w);
  r.install();
  model::Version last;
  for (int i = 0; i < 200; i++) {
    r.now.wall = i % 3 == 0 ? r.now.wall + 3'600'000 : r.now.wall - 1'800'000;
    const auto id = r.put("a", Level::one);
    ASSERT_EQ(r.answer(id), "ok");
    EXPECT_GT(r.reply(id).version, last);
    last = r.reply(id).version;
  }
}

TEST(PushWrite, a_server_more_than_five_seconds_off_its_peers_turns_read_only_and_back) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto hear = [&](const char* from, int64_t off) {
    r.feed(push::BeaconArrived{{ServerId{from}, {1}, static_cast<uint64_t>(static_cast<int64_t>(r.now.wall) + off)}});
  };
  hear("p2", 6000);
  hear("p3", 0);
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "ok");  // one peer that is off is not the median
  hear("p3", 6500);
  const auto refused = r.put("a", Level::one);
  EXPECT_EQ(r.answer(refused), "READ_ONLY");
  EXPECT_NE(r.error(refused).detail.find("clock"), std::string::npos);
  hear("p2", 100);
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "ok");
}

TEST(PushWrite, a_clock_that_jumped_stamps_nothing_until_a_peer_was_heard) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.feed(push::BeaconArrived{{ServerId{"p2"}, {1}, r.now.wall}});
  r.now.wall += 3'600'000;
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "READ_ONLY");
  r.feed(push::BeaconArrived{{ServerId{"p2"}, {1}, r.now.wall - 3'600'000}});
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "READ_ONLY");
  r.now.wall -= 3'600'000;  // set right again
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "READ_ONLY");
  r.feed(push::BeaconArrived{{ServerId{"p2"}, {1}, r.now.wall}});
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "ok");
}

TEST(PushWrite, refuses_what_a_stale_or_a_too_new_map_asks_for) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  w.split();
  r.install();
  EXPECT_EQ(r.answer(r.write({"a"}, Level::one, 2s, true, {}, {1})), "STALE_ROUTE");
  EXPECT_EQ(r.error(r.last_request).txnseq, w.map->txnseq.value);
  EXPECT_EQ(r.answer(r.write({"a"}, Level::one, 2s, true, {}, w.map->txnseq)), "ok");
  EXPECT_EQ(r.answer(r.write({"a"}, Level::one, 2s, true, {}, w.map->txnseq.next())), "UNAVAILABLE");
  EXPECT_EQ(r.take<push::FetchMap>().size(), 1u);
}

TEST(PushWrite, passes_on_what_another_server_serves_only_if_asked_to) {
  DriverWorld w;
  PushRig r(w, "p5");
  r.install();
  EXPECT_EQ(r.answer(r.put("a")), "STALE_ROUTE");
  const auto id = r.write({"a"}, Level::majority, 2s, true, {}, {}, true);
  const auto forwarded = r.take<push::Forward>();
  ASSERT_EQ(forwarded.size(), 1u);
  EXPECT_EQ(forwarded[0].request, id);
  EXPECT_EQ(forwarded[0].to.name, "p1");
}

TEST(PushWrite, drained_and_full_servers_say_why_they_take_nothing) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.feed(push::DrainAsked{true});
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "READ_ONLY");
  r.feed(push::DrainAsked{false});
  r.feed(push::StoreState{"no space on the disk", false});
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "READ_ONLY");
  EXPECT_EQ(r.error(r.last_request).detail, "no space on the disk");
  r.feed(push::StoreState{"", true});
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "OVERLOADED");
  r.feed(push::StoreState{"", false});
  EXPECT_EQ(r.answer(r.put("a", Level::one)), "ok");
}

TEST(PushWrite, a_follower_that_never_answers_does_not_stop_the_others) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  for (int i = 0; i < 5000; i++) {
    const auto id = r.put("a");
    r.confirm("p2");
    ASSERT_EQ(r.answer(id), "ok") << i;
    if (i % 100 == 0) r.log.clear();
  }
  EXPECT_LE(r.sends.size(), 1024u);
}

// --- while a replica is replaced ----------------------------------------------------------------------------

TEST(PushWrite, a_slot_being_replaced_counts_only_when_both_confirmed) {
  DriverWorld w;
  w.replace(ServerId{"p3"}, ServerId{"p4"}, false);
  PushRig r(w);
  r.install();
  const auto id = r.put("a");
  EXPECT_EQ(r.sent_to(), "p2 p3 p4");
  r.confirm("p3");
  EXPECT_EQ(r.answer(id), "");
  r.confirm("p4");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, the_replacement_of_a_dead_one_counts_only_once_it_is_available) {
  DriverWorld w;
  const auto attempt = w.replace(ServerId{"p3"}, ServerId{"p4"}, true);
  PushRig r(w);
  r.install();
  const auto early = r.put("a");
  EXPECT_EQ(r.sent_to(), "p2 p4");
  r.confirm("p4");
  EXPECT_EQ(r.answer(early), "");
  r.confirm("p2");
  EXPECT_EQ(r.answer(early), "ok");
  r.install(model::ops::Initialize{w.only().id, attempt});
  r.install(model::ops::MarkAvailable{r.of("p4").id, ServerId{"p4"}});
  const auto late = r.put("b");
  r.confirm("p4");
  EXPECT_EQ(r.answer(late), "ok");
}

// It is alive after all, and answers: a write that others acknowledged without it is missed by a majority with it.
TEST(PushWrite, no_majority_read_counts_one_that_was_given_up) {
  DriverWorld w;
  const auto attempt = w.replace(ServerId{"p3"}, ServerId{"p4"}, true);
  PushRig r(w);
  r.install();
  const auto asked = [&](Level level) {
    std::string who;
    const auto plan = r.server.plan_read(r.server.where("t", "a", {}, false), "t", level);
    if (!plan) return to_string(plan.error());
    for (const auto& a : plan->asks) who += (who.empty() ? "" : " ") + a.to.name;
    return who;
  };
  EXPECT_EQ(asked(Level::majority), "p2 p3");
  r.install(model::ops::Initialize{w.only().id, attempt});
  r.install(model::ops::MarkAvailable{r.of("p4").id, ServerId{"p4"}});
  EXPECT_EQ(asked(Level::majority), "p2 p4");
  EXPECT_EQ(asked(Level::all), "p2 p4");
}

// --- while a partition is split -------------------------------------------------------------------------------

TEST(PushWrite, a_split_on_the_same_servers_sends_once_and_counts_for_both) {
  DriverWorld w;
  w.split();
  PushRig r(w);
  r.install();
  const auto id = r.put("a");
  EXPECT_EQ(r.sent_to(), "p2 p3");
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, a_split_to_other_servers_needs_the_parent_and_the_covering_child) {
  DriverWorld w;
  w.split({ServerId{"p1"}, ServerId{"p2"}, ServerId{"p3"}}, {ServerId{"p1"}, ServerId{"p4"}, ServerId{"p5"}});
  PushRig r(w);
  r.install();
  const auto high = r.put("x");
  EXPECT_EQ(r.sent_to(), "p2 p3 p4 p5");
  r.confirm("p2");
  EXPECT_EQ(r.answer(high), "");  // parent: p1 p2; child: p1 alone
  r.confirm("p5");
  EXPECT_EQ(r.answer(high), "ok");
  r.confirm("p3");
  r.confirm("p4");
  const auto low = r.put("a");
  EXPECT_EQ(r.sent_to(), "p2 p3");
  r.confirm("p3");
  EXPECT_EQ(r.answer(low), "ok");
}

TEST(PushWrite, a_batch_over_the_point_needs_both_children_and_each_gets_its_part) {
  DriverWorld w;
  w.split({ServerId{"p1"}, ServerId{"p4"}, ServerId{"p3"}}, {ServerId{"p1"}, ServerId{"p2"}, ServerId{"p5"}});
  PushRig r(w);
  r.install();
  const auto id = r.write({"a", "x"}, Level::majority);
  EXPECT_EQ(r.sent_to(), "p2 p3 p4 p5");
  for (const auto& s : r.sends) {
    if (s.to.name == "p4")
      EXPECT_EQ(s.only, (model::Interval{"", "m"}));
    else if (s.to.name == "p5")
      EXPECT_EQ(s.only, (model::Interval{"m", ""}));
    else
      EXPECT_EQ(s.only, std::nullopt);
  }
  r.confirm("p2");  // parent 2, high 2, low 1
  EXPECT_EQ(r.answer(id), "");
  r.confirm("p4");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, under_way_when_a_split_begins_it_is_counted_anew_with_the_child) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto id = r.put("x");
  w.split({ServerId{"p1"}, ServerId{"p2"}, ServerId{"p3"}}, {ServerId{"p3"}, ServerId{"p4"}, ServerId{"p5"}});
  r.install();
  r.confirm("p2");  // p2 had it before it saw the split: a majority of the parent, none of the child's
  EXPECT_EQ(r.answer(id), "");
  r.confirm("p4");
  r.confirm("p5");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, refused_as_stale_it_fetches_the_map_and_goes_on_under_it) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto id = r.put("a");
  w.split();
  base::Error stale{base::Code::stale_route, "the map has changed"};
  stale.txnseq = w.map->txnseq.value;
  r.refuse("p2", stale);
  r.refuse("p3", stale);
  EXPECT_EQ(r.take<push::FetchMap>().size(), 1u);
  r.install();
  EXPECT_EQ(r.sent_to(), "p2 p3");
  EXPECT_EQ(r.sends.at(0).envelope.txnseq, w.map->txnseq);
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, goes_on_in_the_children_when_the_split_is_finalised_meanwhile) {
  DriverWorld w;
  const auto attempt = w.split();
  w.must(model::ops::Initialize{w.only().id, attempt});
  PushRig r(w);
  r.install();
  r.hold_appends = true;
  const auto id = r.put("a");
  std::vector<model::AssignmentId> ready;
  const auto parent = w.only();
  for (const auto* c : {&parent.split->low, &parent.split->high})
    for (const auto& a : c->assignments) ready.push_back(a.id);
  r.install(model::ops::FinalizeSplit{parent.id, attempt, ready});
  EXPECT_EQ(r.take<push::Divide>().size(), 1u);
  r.appended(r.appends.at(0));
  EXPECT_EQ(r.answer(id), "");
  // p3 confirmed as the parent's replica, before it divided: its child has what the parent had.
  r.confirm("p3");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushWrite, is_unknown_when_the_partition_moved_away_under_it) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto attempt = w.replace(ServerId{"p1"}, ServerId{"p4"}, false);
  w.must(model::ops::Initialize{w.only().id, attempt});
  w.must(model::ops::MarkAvailable{model::find_assignment(w.only(), ServerId{"p4"})->id, ServerId{"p4"}});
  r.install();
  const auto id = r.put("a");
  r.install(model::ops::FinalizeMove{w.only().id, attempt});
  EXPECT_EQ(r.answer(id), "OUTCOME_UNKNOWN");
  EXPECT_EQ(r.answer(r.put("b")), "STALE_ROUTE");
}

}  // namespace
}  // namespace cantle::proto

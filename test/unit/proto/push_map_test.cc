#include <gtest/gtest.h>

#include "test/unit/proto/push_rig.h"

namespace cantle::proto {
namespace {

using model::Level;
using model::ServerId;
using test::DriverWorld;
using test::has;
using test::PushRig;
using namespace std::chrono_literals;

push::Held held_of(const DriverWorld& w, const model::Partition& p, const char* server) {
  return {p.id, model::find_assignment(p, ServerId{server})->id, p.region, w.map->table, p.interval, false, {10}};
}
std::vector<model::AssignmentId> ready_of(const model::Partition& p, const std::set<std::string>& servers) {
  std::vector<model::AssignmentId> ready;
  for (const auto* c : {&p.split->low, &p.split->high})
    for (const auto& a : c->assignments)
      if (servers.contains(a.server.name)) ready.push_back(a.id);
  return ready;
}
void finalize(DriverWorld& w, const model::AttemptId& attempt, const std::set<std::string>& ready) {
  const auto parent = w.only();
  w.must(model::ops::FinalizeSplit{parent.id, attempt, ready_of(parent, ready)});
}

// --- what should be here ------------------------------------------------------------------------------------

TEST(PushMap, begins_the_copies_of_a_new_table_and_serves_them) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  EXPECT_EQ(r.take<push::Create>().size(), 1u);
  EXPECT_EQ(r.state_of(w.only().id), "available/serving");
  EXPECT_EQ(r.server.settled("t")->txnseq, w.map->txnseq);
}

TEST(PushMap, a_map_is_not_shown_before_its_copies_are_durable) {
  DriverWorld w;
  PushServer server(push::Self{ServerId{"p1"}, {1}, {1}, {}, false, {}, {}, {}});
  const push::Now now{base::Instant{1s}, 1'700'000'000'000};
  server.step(now, push::MapRead{"t", w.map});
  EXPECT_EQ(server.settled("t"), nullptr);
  server.step(now, push::Created{w.only().id, base::ok()});
  EXPECT_NE(server.settled("t"), nullptr);
}

TEST(PushMap, data_that_should_be_here_and_is_not_ends_the_server) {
  DriverWorld w;
  w.split();
  {
    push::Self wiped;  // under its old name (S6)
    wiped.fresh_under_known_name = true;
    PushRig fresh(w, "p1", wiped);
    fresh.install();
    EXPECT_EQ(fresh.take<push::Exit>().size(), 1u);
  }
  {
    push::Self self;
    self.seen[w.map->table] = {1};  // it has acted on this table, so it had the copy
    PushRig lost(w, "p1", self);
    lost.install();
    EXPECT_EQ(lost.take<push::Exit>().size(), 1u);
    EXPECT_EQ(lost.count<push::Create>(), 0u);
  }
}

// p4 was to be filled with a child and never could make it (a full disk); then that child was split in its turn.
TEST(PushMap, a_child_of_a_copy_that_never_came_to_be_is_not_lost_unless_it_counted_as_filled) {
  for (const bool filled : {false, true}) {
    DriverWorld w;
    const auto first = w.split({}, {ServerId{"p4"}, ServerId{"p2"}, ServerId{"p3"}});
    w.must(model::ops::Initialize{w.only().id, first});
    finalize(w, first, {"p1", "p2", "p3"});
    const auto parent = *w.map->find("x");
    if (filled) w.must(model::ops::MarkAvailable{find_assignment(parent, ServerId{"p4"})->id, ServerId{"p4"}});
    const auto op = model::draw_split(parent, "t", {}, {}, w.random);
    w.must(op);
    w.must(model::ops::Initialize{parent.id, op.attempt});
    w.must(model::ops::FinalizeSplit{parent.id, op.attempt, ready_of(*w.map->find("x"), {"p2", "p3"})});
    PushRig r(w, "p4");
    r.install();
    EXPECT_EQ(r.count<push::Exit>(), filled ? 1u : 0u);
    EXPECT_EQ(r.take<push::Create>().size(), filled ? 0u : 2u);
  }
}

// p1 was away from the making of the table until after its first split: it has never held anything.
TEST(PushMap, a_child_of_a_copy_that_came_with_the_table_is_lost_only_to_who_has_acted_on_the_table) {
  for (const bool acted : {false, true}) {
    DriverWorld w;
    const auto attempt = w.split();
    w.must(model::ops::Initialize{w.only().id, attempt});
    finalize(w, attempt, {"p2", "p3"});
    push::Self self;
    if (acted) self.seen[w.map->table] = {1};
    PushRig r(w, "p1", self);
    r.install();
    EXPECT_EQ(r.count<push::Exit>(), acted ? 1u : 0u);
    EXPECT_EQ(r.take<push::Create>().size(), acted ? 0u : 2u);
  }
}

// That p4 began it as a child found no room on the disk; the split is still there to tell.
TEST(PushMap, a_child_that_was_not_remembered_is_known_by_its_split) {
  DriverWorld w;
  w.split({}, {ServerId{"p4"}, ServerId{"p2"}, ServerId{"p3"}});
  const auto& child = w.only().split->high;
  push::Self self;
  self.held = {{.partition = child.id,
                .assignment = child.assignments[0].id,
                .region = child.region,
                .table = w.map->table,
                .interval = {"m", ""},
                .end = {}}};
  PushRig r(w, "p4", self);
  r.install();
  EXPECT_EQ(r.state_of(child.id), "child/filling");
  EXPECT_EQ(r.take<push::Remember>().back().children.size(), 1u);
}

TEST(PushMap, an_unknown_assignment_to_be_filled_is_simply_begun) {
  DriverWorld w;
  w.replace(ServerId{"p3"}, ServerId{"p4"}, true);
  PushRig r(w, "p4");
  r.install();
  EXPECT_EQ(r.take<push::Create>().size(), 1u);
  EXPECT_EQ(r.state_of(w.only().id), "proposed/filling");
}

TEST(PushMap, an_older_map_than_the_one_acted_on_is_refused) {
  DriverWorld w;
  push::Self self;
  self.seen[w.map->table] = {5};
  PushRig r(w, "p1", self);
  r.install();
  EXPECT_EQ(r.server.installed("t"), nullptr);
  EXPECT_EQ(r.take<push::Say>().size(), 1u);
}

// Two logs of one partition could not be told apart in the journal, so there is never a second tenure of it.
TEST(PushMap, an_older_tenure_is_set_aside_and_then_goes_on_under_the_new_assignment) {
  DriverWorld w;
  const auto before = w.only();
  w.replace(ServerId{"p3"}, ServerId{"p4"}, true);
  push::Self self;
  self.held = {held_of(w, before, "p3")};
  self.held[0].assignment = before.assignments[0].id;  // a tenure that p4 never had in this map
  PushRig r(w, "p4", self);
  r.install();
  EXPECT_EQ(r.take<push::SetAside>().size(), 1u);
  EXPECT_EQ(r.count<push::Create>(), 0u);  // writes to the old one may be under way
  r.feed(push::SetAsideDone{self.held[0].assignment, base::ok()});
  r.pass(std::chrono::seconds(1));
  EXPECT_EQ(r.take<push::Create>().size(), 1u);
  const auto held = r.server.held();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_FALSE(held[0].unload);
}

TEST(PushMap, a_copy_that_the_map_does_not_explain_is_kept_and_serves_nothing) {
  DriverWorld w;
  push::Self self;
  auto stranger = held_of(w, w.only(), "p1");
  stranger.partition = model::PartitionId::draw(w.random);
  stranger.assignment = model::AssignmentId::draw(w.random);
  stranger.region = w.map->next_region;
  self.held = {stranger};
  PushRig r(w, "p1", self);
  r.install();
  EXPECT_EQ(r.count<push::Drop>(), 0u);
  EXPECT_EQ(r.state_of(stranger.partition), "unknown/kept");
  for (const auto& h : r.server.held()) EXPECT_FALSE(h.unload);
}

// p3 was away while p4 took its place, while the partition was split, and until METADATA had forgotten that.
TEST(PushMap, a_copy_whose_region_the_map_has_used_up_is_pushed_proved_and_dropped) {
  DriverWorld w;
  push::Self self;
  self.held = {held_of(w, w.only(), "p3")};
  self.seen[w.map->table] = w.map->txnseq;
  const auto replace = w.replace(ServerId{"p3"}, ServerId{"p4"}, true);
  w.must(model::ops::Initialize{w.only().id, replace});
  w.must(model::ops::MarkAvailable{model::find_assignment(w.only(), ServerId{"p4"})->id, ServerId{"p4"}});
  w.must(model::ops::FinalizeMove{w.only().id, replace});
  const auto parent = w.only().id;
  const auto attempt = w.split();
  w.must(model::ops::Initialize{parent, attempt});
  finalize(w, attempt, {"p1", "p2", "p4"});
  w.must(model::ops::SweepEnded{parent, attempt});
  PushRig r(w, "p3", self);
  r.install();
  EXPECT_EQ(r.take<push::SetAside>().size(), 1u);
  ASSERT_EQ(r.server.held().size(), 1u);
  EXPECT_TRUE(r.server.held()[0].unload);
}

// The disk is full when a new table's copy is to be made. It is made when there is room, even if the server starts
// again before; it is not taken for one that is lost.
TEST(PushMap, a_copy_that_could_not_be_made_is_made_later) {
  DriverWorld w;
  const push::Now now{base::Instant{1s}, 1'700'000'000'000};
  const auto creates = [](const push::Effects& effects) {
    return std::count_if(effects.begin(), effects.end(),
                         [](const auto& e) { return std::holds_alternative<push::Create>(e); });
  };
  push::Self self{ServerId{"p1"}, {1}, {1}, {}, false, {}, {}, {}};
  PushServer server(self);
  EXPECT_EQ(creates(server.step(now, push::MapRead{"t", w.map})), 1);
  auto effects = server.step(now, push::Created{w.only().id, base::fail(base::Code::no_space, "full")});
  for (const auto& e : effects)
    if (const auto* r = std::get_if<push::Remember>(&e)) self.seen = r->seen;
  EXPECT_EQ(creates(server.step({now.at + 10s, now.wall}, push::Tick{})), 1);
  PushServer again(self);
  EXPECT_EQ(creates(again.step(now, push::MapRead{"t", w.map})), 1);
  effects = again.step(now, push::Created{w.only().id, base::ok()});
  self.seen.clear();
  for (const auto& e : effects)
    if (const auto* r = std::get_if<push::Remember>(&e)) self.seen = r->seen;
  EXPECT_TRUE(self.seen.contains(w.map->table));
}

// Nor are its children, if it is split before there is room, and METADATA forgets it.
TEST(PushMap, the_children_of_a_copy_that_could_not_be_made_are_made_later) {
  for (const bool restarted : {false, true}) {
    DriverWorld w;
    push::Now now{base::Instant{1s}, 1'700'000'000'000};
    push::Self self{ServerId{"p1"}, {1}, {1}, {}, false, {}, {}, {}};
    auto server = std::make_unique<PushServer>(self);
    size_t creates = 0;
    bool room = false;
    const std::function<void(const push::Input&)> feed = [&](const push::Input& in) {
      for (const auto& e : server->step(now, in)) {
        if (const auto* r = std::get_if<push::Remember>(&e)) self.seen = r->seen;
        EXPECT_FALSE(std::holds_alternative<push::Exit>(e));
        const auto* c = std::get_if<push::Create>(&e);
        if (c == nullptr) continue;
        creates += room ? 1 : 0;
        feed(push::Created{c->copy.partition,
                           room ? base::ok() : base::Status(base::fail(base::Code::no_space, "full"))});
      }
    };
    feed(push::MapRead{"t", w.map});
    const auto parent = w.only();
    const auto attempt = w.split();
    w.must(model::ops::Initialize{parent.id, attempt});
    finalize(w, attempt, {"p1", "p2", "p3"});
    feed(push::MapRead{"t", w.map});
    w.must(model::ops::SweepEnded{parent.id, attempt});
    feed(push::MapRead{"t", w.map});
    room = true;
    if (restarted) {
      server = std::make_unique<PushServer>(self);
      feed(push::MapRead{"t", w.map});
    } else {
      now.at = now.at + 10s;
      feed(push::Tick{});
    }
    EXPECT_EQ(creates, 2u) << restarted;
    EXPECT_TRUE(self.seen.contains(w.map->table));
  }
}

TEST(PushMap, a_dropped_table_goes_to_the_trash_without_proof) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto id = r.put("a");
  r.install(model::ops::DropTable{true});
  EXPECT_EQ(r.answer(id), "OUTCOME_UNKNOWN");
  EXPECT_EQ(r.take<push::Drop>().size(), 1u);
  EXPECT_EQ(r.take<push::PublishObserved>().at(0).txnseq, w.map->txnseq);  // the table can be forgotten
  EXPECT_EQ(r.answer(r.put("b")), "NO_SUCH_TABLE");
}

// --- observed: the barrier -------------------------------------------------------------------------------------

TEST(PushMap, observed_waits_for_the_appends_begun_under_older_maps) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.hold_appends = true;
  r.put("a");
  w.split();
  r.install();
  r.put("b");
  EXPECT_EQ(r.count<push::PublishObserved>(), 0u);
  EXPECT_EQ(r.server.settled("t")->txnseq.value, 1u);
  r.appended(r.appends.at(0));  // the older one; the newer need not have ended
  const auto observed = r.take<push::PublishObserved>();
  ASSERT_EQ(observed.size(), 1u);
  EXPECT_EQ(observed[0].txnseq, w.map->txnseq);
  EXPECT_EQ(r.server.settled("t")->txnseq, w.map->txnseq);
}

TEST(PushMap, observed_waits_for_what_others_wrote_here_under_older_maps) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  // The rig answers appends at once: this one is fed by hand.
  model::PushWrite m;
  m.envelope = r.envelope(w.only().id, r.of("p2"), r.of("p1"));
  push::WriteArrived in;
  in.call = 1;
  in.message = &m;
  in.seen = {.count = 1, .newest = model::Version::make(r.now.wall, 0, {2}, {1}), .first_key = "k", .last_key = "k"};
  ASSERT_EQ(r.server.step(r.now, in).size(), 1u);
  w.split();
  r.install();
  EXPECT_EQ(r.count<push::PublishObserved>(), 0u);
  r.feed(push::ReceivedAppended{1, model::LogPoint{{1}, {1}, 0}});
  EXPECT_EQ(r.count<push::PublishObserved>(), 1u);
}

TEST(PushMap, publishes_nothing_when_no_operation_waits_for_it) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  r.install(model::ops::SetOption{"read_level", "majority"});
  EXPECT_EQ(r.count<push::PublishObserved>(), 0u);
  EXPECT_EQ(r.count<push::MapShown>(), 2u);
}

// --- the end of a split ------------------------------------------------------------------------------------------

TEST(PushMap, divides_the_parent_when_the_split_is_final) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto attempt = w.split();
  w.must(model::ops::Initialize{w.only().id, attempt});
  r.install();
  r.take<push::Create>();
  finalize(w, attempt, {"p1", "p2", "p3"});
  r.install();
  const auto divide = r.take<push::Divide>();
  ASSERT_EQ(divide.size(), 1u);
  EXPECT_EQ(divide[0].attempt, attempt);
  EXPECT_EQ(divide[0].point, "m");
  EXPECT_FALSE(divide[0].low.assignment.none() || divide[0].high.assignment.none());
  EXPECT_EQ(r.count<push::Create>(), 0u);  // nothing is copied
  for (const auto& p : w.map->partitions) EXPECT_EQ(r.state_of(p.id), "available/serving");
  const auto id = r.put("x");
  EXPECT_EQ(r.take<push::Append>().at(0).log, w.map->find("x")->id);
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushMap, the_end_is_observed_only_when_the_index_has_the_divide) {
  DriverWorld w;
  push::Self self{ServerId{"p1"}, {1}, {1}, {}, false, {held_of(w, w.only(), "p1")}, {}, {}};
  const auto attempt = w.split();
  const auto parent = w.only();
  w.must(model::ops::Initialize{parent.id, attempt});
  finalize(w, attempt, {"p1", "p2", "p3"});
  PushServer server(self);
  const push::Now now{base::Instant{1s}, 1'700'000'000'000};
  const auto effects = server.step(now, push::MapRead{"t", w.map});  // it was away through the whole split
  EXPECT_TRUE(has<push::Divide>(effects));
  EXPECT_FALSE(has<push::Index>(effects) || has<push::PublishObserved>(effects));
  const auto durable = server.step(now, push::Divided{parent.id, base::ok()});
  EXPECT_TRUE(has<push::Index>(durable));
  EXPECT_FALSE(has<push::PublishObserved>(durable));
  w.must(model::ops::SetOption{"read_level", "majority"});
  const auto meanwhile = server.step(now, push::MapRead{"t", w.map});
  EXPECT_TRUE(has<push::MapShown>(meanwhile));
  EXPECT_FALSE(has<push::Index>(meanwhile) || has<push::PublishObserved>(meanwhile));  // was asked for
  const push::Indexed indexed{w.map->table, w.map->ended.at(0).at};
  EXPECT_TRUE(has<push::PublishObserved>(server.step(now, indexed)));
  EXPECT_FALSE(has<push::PublishObserved>(server.step(now, indexed)));
}

TEST(PushMap, through_two_splits_it_was_away_for_it_divides_step_by_step) {
  DriverWorld w;
  push::Self self;
  self.held = {held_of(w, w.only(), "p1")};
  auto attempt = w.split();
  w.must(model::ops::Initialize{w.only().id, attempt});
  finalize(w, attempt, {"p1", "p2", "p3"});
  const auto high = *w.map->find("x");
  auto op = model::draw_split(high, "t", {}, {}, w.random);
  w.must(op);
  w.must(model::ops::Initialize{high.id, op.attempt});
  w.must(model::ops::FinalizeSplit{high.id, op.attempt, ready_of(*w.map->find("x"), {"p1", "p2", "p3"})});
  PushRig r(w, "p1", self);
  r.install();
  EXPECT_EQ(r.take<push::Divide>().size(), 2u);
  EXPECT_EQ(r.count<push::Exit>(), 0u);
  EXPECT_EQ(r.server.copies().size(), 3u);
}

TEST(PushMap, a_child_that_lives_elsewhere_stays_with_the_parent_until_it_is_proved) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto attempt =
      w.split({ServerId{"p1"}, ServerId{"p2"}, ServerId{"p3"}}, {ServerId{"p2"}, ServerId{"p3"}, ServerId{"p4"}});
  const auto parent = w.only();
  w.must(model::ops::Initialize{parent.id, attempt});
  finalize(w, attempt, {"p1", "p2", "p3"});
  r.install();
  ASSERT_EQ(r.take<push::Divide>().size(), 1u);
  const auto held = r.server.held();
  ASSERT_EQ(held.size(), 2u);
  for (const auto& h : held)
    if (h.partition == parent.id) {
      EXPECT_TRUE(h.unload);
      EXPECT_EQ(h.interval, (model::Interval{"m", ""}));
    }
}

TEST(PushMap, a_parent_without_a_child_here_is_set_aside_before_its_end_is_observed) {
  DriverWorld w;
  PushRig r(w);
  r.install();
  const auto attempt =
      w.split({ServerId{"p2"}, ServerId{"p3"}, ServerId{"p4"}}, {ServerId{"p2"}, ServerId{"p3"}, ServerId{"p5"}});
  w.must(model::ops::Initialize{w.only().id, attempt});
  finalize(w, attempt, {"p2", "p3"});
  r.install();
  ASSERT_EQ(r.count<push::SetAside>(), 1u);
  ASSERT_EQ(r.count<push::PublishObserved>(), 1u);
  size_t aside = 0, observed = 0;
  for (size_t i = 0; i < r.log.size(); i++) {
    if (std::holds_alternative<push::SetAside>(r.log[i])) aside = i;
    if (std::holds_alternative<push::PublishObserved>(r.log[i])) observed = i;
  }
  EXPECT_LT(aside, observed);
  EXPECT_TRUE(r.server.held().at(0).unload);
}

// --- children on other servers --------------------------------------------------------------------------------------

struct RemoteChild : testing::Test {
  DriverWorld w;
  model::AttemptId attempt = w.split({}, {ServerId{"p4"}, ServerId{"p2"}, ServerId{"p5"}});
  model::Partition parent = w.only();
  const model::Child& high() const { return w.only().split->high; }
  model::Envelope from(const PushRig& r, const char* server) const {
    return r.envelope(high().id, r.of(server), high().assignments[0]);
  }
};

TEST_F(RemoteChild, is_begun_and_remembered_with_its_split) {
  PushRig r(w, "p4");
  r.install();
  const auto create = r.take<push::Create>();
  ASSERT_EQ(create.size(), 1u);
  EXPECT_EQ(create[0].copy.partition, high().id);
  EXPECT_EQ(create[0].copy.interval, (model::Interval{"m", ""}));
  const auto remember = r.take<push::Remember>();
  ASSERT_FALSE(remember.empty());
  EXPECT_EQ(remember[0].children, (std::vector<push::ChildOf>{{high().id, parent.id, attempt}}));
  EXPECT_EQ(r.count<push::PublishObserved>(), 1u);
}

TEST_F(RemoteChild, is_available_once_enough_source_slots_have_delivered) {
  w.must(model::ops::Initialize{w.only().id, attempt});
  PushRig r(w, "p4");
  r.install();
  r.bulk_end(from(r, "p1"), 40);
  r.bulk_end(from(r, "p1"), 50);  // the same slot again is not a second one
  r.pass(1s);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 0u);
  r.bulk_end(from(r, "p3"), 7);
  EXPECT_EQ(r.take<push::MarkAvailable>().size(), 1u);
  r.pass(3s);
  EXPECT_EQ(r.take<push::MarkAvailable>().size(), 1u);  // asked again: an answer may be lost (S40)
  r.install(model::ops::MarkAvailable{high().assignments[0].id, ServerId{"p4"}});
  r.pass(3s);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 0u);
}

TEST_F(RemoteChild, takes_writes_from_the_parents_servers_and_answers_no_reads) {
  PushRig r(w, "p4");
  r.install();
  EXPECT_EQ(r.arrive(from(r, "p1"), {}, {}, "x"), "ok");
  EXPECT_EQ(r.arrive(from(r, "p1"), {}, {}, "a"), "INVALID");  // the other child's key
  EXPECT_EQ(r.server.admit(from(r, "p1"), push::Purpose::read).error.code, base::Code::unavailable);
  EXPECT_EQ(r.server.where("t", "x", {}, false).error.code, base::Code::stale_route);
}

TEST_F(RemoteChild, of_an_aborted_split_is_dropped_and_one_only_absent_is_kept) {
  PushRig r(w, "p4");
  r.install();
  w.must(model::ops::AbortSplit{w.only().id, attempt});
  r.install();
  const auto drop = r.take<push::Drop>();
  ASSERT_EQ(drop.size(), 1u);
  EXPECT_EQ(drop[0].why, "split aborted");
  EXPECT_TRUE(r.server.copies().empty());
}

TEST_F(RemoteChild, of_a_split_aborted_while_the_server_was_away_is_dropped_too) {
  push::Self self;
  self.held = {{high().id, high().assignments[0].id, high().region, w.map->table, {"m", ""}, false, {}}};
  self.children = {{high().id, parent.id, attempt}};
  w.must(model::ops::AbortSplit{w.only().id, attempt});
  PushRig r(w, "p4", self);
  r.install();
  EXPECT_EQ(r.take<push::Drop>().size(), 1u);
}

TEST_F(RemoteChild, becomes_a_partition_and_serves) {
  w.must(model::ops::Initialize{w.only().id, attempt});
  PushRig r(w, "p4");
  r.install();
  w.must(model::ops::MarkAvailable{high().assignments[0].id, ServerId{"p4"}});
  finalize(w, attempt, {"p1", "p2", "p3", "p4"});
  r.install();
  EXPECT_EQ(r.count<push::Divide>(), 0u);
  EXPECT_EQ(r.state_of(w.map->find("x")->id), "available/serving");
  EXPECT_EQ(r.server.where("t", "x", {}, false).kind, push::Where::Kind::here);
}

TEST_F(RemoteChild, left_initializing_by_the_end_is_filled_by_the_childs_other_replicas) {
  w.must(model::ops::Initialize{w.only().id, attempt});
  PushRig r(w, "p5");
  r.install();
  w.must(model::ops::MarkAvailable{high().assignments[0].id, ServerId{"p4"}});
  finalize(w, attempt, {"p1", "p2", "p3", "p4"});
  r.install();
  const auto& p = *w.map->find("x");
  EXPECT_EQ(r.state_of(p.id), "initializing/filling");
  const auto& me = *model::find_assignment(p, ServerId{"p5"});
  r.bulk_end(r.envelope(p.id, *model::find_assignment(p, ServerId{"p2"}), me), 3);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 0u);
  r.bulk_end(r.envelope(p.id, *model::find_assignment(p, ServerId{"p4"}), me), 3);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 1u);
}

// --- being filled ---------------------------------------------------------------------------------------------------

// Two of the child's five servers were not filled when the split was final. What p7 delivered before it was filled
// itself says nothing of what its slot stands for.
TEST(PushMap, a_source_that_is_itself_being_filled_does_not_fill) {
  DriverWorld w(1, 5, 7);
  const auto attempt = w.split({}, {ServerId{"p6"}, ServerId{"p7"}, ServerId{"p1"}, ServerId{"p2"}, ServerId{"p3"}});
  w.must(model::ops::Initialize{w.only().id, attempt});
  finalize(w, attempt, {"p1", "p2", "p3", "p4", "p5"});
  const auto high = [&] { return *w.map->find("x"); };
  const auto of = [&](const char* name) { return *model::find_assignment(high(), ServerId{name}); };
  PushRig r(w, "p6");
  r.install();
  const auto end = [&](const char* from) { r.bulk_end(r.envelope(high().id, of(from), of("p6")), 5); };
  end("p1");
  end("p2");
  end("p7");
  r.pass(5s);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 0u);
  r.install(model::ops::MarkAvailable{of("p7").id, ServerId{"p7"}});
  r.pass(5s);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 0u);
  end("p7");
  r.pass(5s);
  EXPECT_GT(r.count<push::MarkAvailable>(), 0u);
}

// p4 was not filled when the split was final, and p2 is lost. Of p5, which takes its place, p1 has what the parent's p1
// and p1's slot counted for; p4 what its slot counted for since; p3 what the parent's p3 had.
TEST(PushMap, a_source_that_is_itself_being_filled_counts_for_the_time_since_the_split) {
  for (const char* without : {"", "p1", "p3", "p4"}) {
    DriverWorld w(1, 3, 5);
    const auto attempt = w.split({}, {ServerId{"p1"}, ServerId{"p2"}, ServerId{"p4"}});
    w.must(model::ops::Initialize{w.only().id, attempt});
    const auto parent = w.only();
    finalize(w, attempt, {"p1", "p2", "p3"});
    const auto high = [&] { return *w.map->find("x"); };
    const auto of = [&](const char* name) { return *model::find_assignment(high(), ServerId{name}); };
    const auto replace = model::draw_replace(high(), of("p2"), ServerId{"p5"}, true, w.random);
    w.must(replace);
    w.must(model::ops::Initialize{high().id, replace.attempt});
    PushRig r(w, "p5");
    r.install();
    const auto end = [&](const model::Assignment& from) {
      if (from.server.name != without) r.bulk_end(r.envelope(high().id, from, of("p5")), 5);
    };
    end(of("p1"));
    end(of("p4"));
    end(*model::find_assignment(parent, ServerId{"p3"}));
    r.pass(5s);
    EXPECT_EQ(r.count<push::MarkAvailable>() > 0, std::string(without).empty()) << without;
  }
}

// Its split has ended and it has been proved; and yet it may be needed, should a server be lost.
TEST(PushMap, no_copy_is_dropped_while_a_replica_of_what_took_over_is_being_filled) {
  DriverWorld w(1, 3, 5);
  const auto attempt =
      w.split({ServerId{"p1"}, ServerId{"p2"}, ServerId{"p4"}}, {ServerId{"p1"}, ServerId{"p2"}, ServerId{"p5"}});
  w.must(model::ops::Initialize{w.only().id, attempt});
  const auto parent = w.only();
  push::Self self;
  self.held = {held_of(w, parent, "p3")};
  self.seen[w.map->table] = {1};
  finalize(w, attempt, {"p1", "p2"});
  PushRig r(w, "p3", self);
  r.install();
  const auto drop = [&] {
    model::DropRequest m;
    m.table = "t";
    m.table_uuid = w.map->table;
    m.partition = parent.id;
    m.assignment = self.held[0].assignment;
    m.txnseq = w.map->txnseq;
    push::DropAsked in;
    in.call = ++r.last_call;
    in.message = &m;
    r.feed(in);
    return r.count<push::Drop>();
  };
  EXPECT_EQ(drop(), 0u);
  const auto fill = [&](const char* key, const char* server) {
    r.install(
        model::ops::MarkAvailable{model::find_assignment(*w.map->find(key), ServerId{server})->id, ServerId{server}});
  };
  fill("a", "p4");
  EXPECT_EQ(drop(), 0u);
  fill("x", "p5");
  EXPECT_EQ(drop(), 1u);
}

// --- catching up after a start
// -----------------------------------------------------------------------------------------

struct CatchUp : testing::Test {
  DriverWorld w;
  push::Self self_with_copy() {
    push::Self self;
    self.held = {held_of(w, w.only(), "p1")};
    self.seen[w.map->table] = {1};
    return self;
  }
  void epochs(PushRig& r, const char* of, uint64_t end) {
    r.feed(push::EpochsAnswered{w.only().id, r.of(of).id, model::EpochsReply{{3}, {{3}, {end}, 0}}});
  }
};

TEST_F(CatchUp, every_live_replica_must_have_delivered_what_it_had) {
  PushRig r(w, "p1", self_with_copy());
  r.install();
  r.pass(100ms);
  EXPECT_EQ(r.take<push::AskEpochs>().size(), 2u);
  EXPECT_EQ(r.server.where("t", "a", {}, false).error.code, base::Code::catching_up);
  EXPECT_FALSE(r.server.caught_up());
  epochs(r, "p2", 20);
  epochs(r, "p3", 0);  // it has nothing to deliver
  const auto e = r.envelope(w.only().id, r.of("p2"), r.of("p1"));
  r.bulk_end(e, 19);
  r.pass(100ms);
  EXPECT_FALSE(r.server.caught_up());
  r.bulk_end(e, 20);
  EXPECT_TRUE(r.server.caught_up());
  EXPECT_EQ(r.server.where("t", "a", {}, false).kind, push::Where::Kind::here);
}

TEST_F(CatchUp, the_dead_are_not_waited_for) {
  PushRig r(w, "p1", self_with_copy());
  w.live = {ServerId{"p1"}, ServerId{"p2"}};
  r.feed(push::LiveRead{r.live()});
  r.install();
  r.pass(100ms);
  EXPECT_EQ(r.take<push::AskEpochs>().size(), 1u);
  epochs(r, "p2", 0);
  r.pass(100ms);
  EXPECT_TRUE(r.server.caught_up());
}

TEST_F(CatchUp, ends_after_thirty_seconds_with_a_warning) {
  PushRig r(w, "p1", self_with_copy());
  r.install();
  r.pass(29s);
  EXPECT_FALSE(r.server.caught_up());
  r.take<push::Say>();
  r.pass(2s);
  EXPECT_TRUE(r.server.caught_up());
  EXPECT_EQ(r.take<push::Say>().at(0).level, base::Level::warn);
}

TEST_F(CatchUp, meanwhile_it_takes_writes_and_is_left_out_of_majority_reads) {
  PushRig r(w, "p1", self_with_copy());
  r.install();
  const auto id = r.put("a");
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
  EXPECT_EQ(r.arrive(r.envelope(w.only().id, r.of("p2"), r.of("p1"))), "ok");
  EXPECT_EQ(r.server.admit(r.envelope(w.only().id, r.of("p2"), r.of("p1")), push::Purpose::read).error.code,
            base::Code::catching_up);
}

// --- dropping
// --------------------------------------------------------------------------------------------------------------

struct Dropping : testing::Test {
  DriverWorld w;
  PushRig r{w};
  model::AssignmentId mine;
  void SetUp() override {
    r.install();
    mine = r.of("p1").id;
    const auto attempt = w.replace(ServerId{"p1"}, ServerId{"p4"}, false);
    w.must(model::ops::Initialize{w.only().id, attempt});
    w.must(model::ops::MarkAvailable{model::find_assignment(w.only(), ServerId{"p4"})->id, ServerId{"p4"}});
    r.install();
    leaving = w.map->txnseq;
    w.must(model::ops::FinalizeMove{w.only().id, attempt});
  }
  std::string ask(model::TxnSeq txnseq, uint64_t proved, uint64_t end) {
    model::DropRequest m{"t", w.map->table, w.only().id, mine, txnseq, {{1}, {proved}, 0}};
    push::DropAsked in;
    in.call = ++r.last_call;
    in.message = &m;
    in.end = model::LogPoint{{1}, {end}, 0};
    r.feed(in);
    return r.call_answer(r.last_call);
  }
  model::TxnSeq leaving;
};

TEST_F(Dropping, only_what_the_map_says_should_go_and_only_what_was_proved) {
  EXPECT_EQ(ask(leaving, 9, 9), "CONFLICT");  // still an assignment
  r.install();
  EXPECT_EQ(ask(leaving, 9, 9), "CONFLICT");        // proved under an older map
  EXPECT_EQ(ask(w.map->txnseq, 8, 9), "CONFLICT");  // the log has grown
  EXPECT_EQ(r.count<push::Drop>(), 0u);
  EXPECT_EQ(ask(w.map->txnseq, 9, 9), "ok");
  EXPECT_EQ(r.take<push::Drop>().at(0).assignment, mine);
  EXPECT_EQ(ask(w.map->txnseq, 9, 9), "ok");  // not there any more
  EXPECT_TRUE(r.server.held().empty());
}

}  // namespace
}  // namespace cantle::proto

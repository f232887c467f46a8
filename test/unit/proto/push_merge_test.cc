// The end of a merge as a server of the two sees it: it joins its logs, whenever it hears of it.
#include <gtest/gtest.h>

#include "test/unit/proto/push_rig.h"

namespace cantle::proto {
namespace {

using model::Level;
using model::ServerId;
using test::DriverWorld;
using test::PushRig;
using namespace std::chrono_literals;

// A table that was split at m.
struct Two : DriverWorld {
  Two() {
    const auto attempt = split();
    must(model::ops::Initialize{only().id, attempt});
    const auto parent = only();
    model::ops::FinalizeSplit op{parent.id, attempt, {}};
    for (const auto* child : {&parent.split->low, &parent.split->high})
      for (const auto& a : child->assignments) op.ready.push_back(a.id);
    must(op);
    must(model::ops::SweepEnded{parent.id, attempt});
    low = map->partitions[0];
    high = map->partitions[1];
  }
  void finalize() {
    const auto m = *only().merge;
    must(model::ops::FinalizeMerge{
        m.attempt, m.low, m.high, {m.target.assignments[0].id, m.target.assignments[1].id}, {}});
  }
  push::Held held(const model::Partition& p, const char* server) const {
    return {p.id, model::find_assignment(p, ServerId{server})->id, p.region, map->table, p.interval, false, {10}};
  }
  push::Self self(const char* server = "p1") const {
    push::Self s;
    s.held = {held(low, server), held(high, server)};
    s.seen[map->table] = map->txnseq;
    return s;
  }
  // Known to everybody else; this server comes back.
  static void caught_up(PushRig& r) { r.pass(push::kCatchUpMost + 1s); }

  model::Partition low, high;
};

TEST(PushMerge, it_is_observed_when_it_begins_and_writes_go_on_as_before) {
  Two w;
  PushRig r(w, "p1", w.self());
  r.install();
  w.caught_up(r);
  r.take<push::PublishObserved>();
  w.merge();
  r.install();
  EXPECT_EQ(r.take<push::PublishObserved>().size(), 1u);
  const auto id = r.put("a");
  EXPECT_EQ(r.take<push::Append>().at(0).log, w.low.id);
  EXPECT_EQ(r.sent_to(), "p2 p3");
  r.confirm("p3");
  EXPECT_EQ(r.answer(id), "ok");
}

TEST(PushMerge, both_become_one_when_it_is_final_and_that_is_observed) {
  Two w;
  PushRig r(w, "p1", w.self());
  r.install();
  w.merge();
  r.install();
  w.finalize();
  r.take<push::PublishObserved>();
  r.install();
  const auto merge = r.take<push::Merge>();
  ASSERT_EQ(merge.size(), 1u);
  EXPECT_EQ(merge[0].low, w.low.id);
  EXPECT_EQ(merge[0].high, w.high.id);
  EXPECT_EQ(merge[0].target, (push::Child{w.only().id, r.of("p1").id, w.only().region}));
  EXPECT_EQ(r.count<push::Create>() + r.count<push::SetAside>(), 0u);
  EXPECT_EQ(r.take<push::PublishObserved>().size(), 1u);
  ASSERT_EQ(r.server.copies().size(), 1u);
  EXPECT_EQ(r.server.held().at(0).interval, (model::Interval{}));
}

TEST(PushMerge, its_end_is_not_observed_before_the_index_has_it) {
  Two w;
  w.merge();
  w.finalize();
  auto self = w.self();
  self.server = ServerId{"p1"};
  self.number = {1};
  self.incarnation = {1};
  PushServer server(self);
  const push::Now now{base::Instant{1s}, 1'700'000'000'000};
  const auto observed = [](const push::Effects& effects) { return test::has<push::PublishObserved>(effects); };
  EXPECT_FALSE(observed(server.step(now, push::MapRead{"t", w.map})));  // it was away through all of it
  EXPECT_FALSE(observed(server.step(now, push::Merged{w.only().id, base::ok()})));
  EXPECT_TRUE(observed(server.step(now, push::Indexed{w.map->table, w.map->ended.at(0).at})));
}

// A write to either that was under way is counted on the target: what was confirmed by their tenures stays confirmed.
TEST(PushMerge, a_write_under_way_is_counted_on_the_target) {
  Two w;
  PushRig r(w, "p1", w.self());
  r.install();
  w.caught_up(r);
  w.merge();
  r.install();
  const auto confirmed = r.put("a", Level::all), sent = r.put("x", Level::all);
  auto both = r.sends;
  r.sends.clear();
  for (const auto& s : both)
    if (s.to.name == "p2")
      r.feed(push::SendAnswered{s.batch, s.envelope.to_assignment, model::PushWriteReply{{1}, r.now.wall}});
  w.finalize();
  r.install();
  for (const auto& s : both)  // an answer to what was sent to the tenure of before
    if (s.to.name == "p3")
      r.feed(push::SendAnswered{s.batch, s.envelope.to_assignment, model::PushWriteReply{{1}, r.now.wall}});
  EXPECT_EQ(r.answer(confirmed), "ok");
  EXPECT_EQ(r.answer(sent), "ok");
}

TEST(PushMerge, what_was_refused_by_who_has_merged_already_is_sent_to_the_target) {
  Two w;
  PushRig r(w, "p1", w.self());
  r.install();
  w.caught_up(r);
  const auto id = r.put("x");
  base::Error stale(base::Code::stale_route, "it was merged");
  w.merge();
  w.finalize();
  stale.txnseq = w.map->txnseq.value;
  r.refuse("p2", stale);
  EXPECT_EQ(r.take<push::FetchMap>().size(), 1u);
  r.install();
  const auto again = std::find_if(r.sends.begin(), r.sends.end(), [](const auto& s) { return s.to.name == "p2"; });
  ASSERT_NE(again, r.sends.end());
  EXPECT_EQ(again->envelope.partition, w.only().id);
  EXPECT_EQ(again->envelope.to_assignment, r.of("p2").id);
  r.confirm("p2");
  EXPECT_EQ(r.answer(id), "ok");
}

// Not everything of the two may be everywhere: what comes behind it says nothing of that, and lets none of it go.
TEST(PushMerge, nothing_is_settled_or_confirmed_by_live_sends_before_the_rest_of_both_is_everywhere) {
  Two w;
  PushRig r(w, "p1", w.self());
  r.install();
  w.caught_up(r);
  w.merge();
  w.finalize();
  r.install();
  const auto all = [&] {
    const auto id = r.put("x", Level::all);
    const auto settled = r.sends.at(0).settled;
    r.confirm("p2");
    r.confirm("p3");
    EXPECT_EQ(r.answer(id), "ok");
    r.pass(1ms);
    return settled;
  };
  r.take<push::SetLive>();
  for (int i = 0; i < 3; i++) EXPECT_TRUE(all().none());
  EXPECT_TRUE(r.take<push::SetLive>().empty());
  EXPECT_EQ(r.server.needed().at(0).second.value, 1u);
  for (const char* other : {"p2", "p3"}) r.feed(push::PushedTo{r.of("p1").id, r.of(other).id, {20}});
  all();
  EXPECT_FALSE(all().none());
  EXPECT_FALSE(r.take<push::SetLive>().empty());
}

TEST(PushMerge, who_was_away_through_a_merge_and_a_split_goes_step_by_step) {
  Two w;
  const auto self = w.self();
  w.merge();
  w.finalize();
  const auto target = w.only();
  const auto op = model::draw_split(target, "t", {}, {}, w.random);
  w.must(op);
  w.must(model::ops::Initialize{target.id, op.attempt});
  model::ops::FinalizeSplit final{target.id, op.attempt, {}};
  for (const auto* child : {&w.only().split->low, &w.only().split->high})
    for (const auto& a : child->assignments) final.ready.push_back(a.id);
  w.must(final);
  PushRig r(w, "p1", self);
  r.install();
  EXPECT_EQ(r.take<push::Merge>().size(), 1u);
  const auto divides = r.take<push::Divide>();
  ASSERT_EQ(divides.size(), 1u);
  EXPECT_EQ(divides[0].parent, target.id);
  EXPECT_EQ(r.server.copies().size(), 2u);
  EXPECT_EQ(r.count<push::Exit>() + r.count<push::Create>(), 0u);
}

TEST(PushMerge, who_was_replaced_since_pushes_and_drops_both) {
  Two w;
  const auto self = w.self("p3");
  w.merge();
  w.finalize();
  const auto attempt = w.replace(ServerId{"p3"}, ServerId{"p4"}, true);
  w.must(model::ops::Initialize{w.only().id, attempt});
  w.must(model::ops::MarkAvailable{find_assignment(w.only(), ServerId{"p4"})->id, ServerId{"p4"}});
  w.must(model::ops::FinalizeMove{w.only().id, attempt});
  PushRig r(w, "p3", self);
  r.install();
  EXPECT_EQ(r.count<push::Merge>(), 0u);
  EXPECT_EQ(r.take<push::SetAside>().size(), 2u);
  for (const auto& h : r.server.held()) EXPECT_TRUE(h.unload);
}

// Its disk was full: nobody ever heard that it has anything of the one. Alone, the other one would be no replica of the
// target.
TEST(PushMerge, one_that_could_not_be_made_is_made_for_it) {
  Two w;
  push::Self self;
  self.held = {w.held(w.low, "p1")};
  w.merge();
  w.finalize();
  // The table came with the two, to a server that was away from the beginning on.
  auto map = *w.map;
  for (auto& e : map.ended)
    for (auto& a : e.parent_assignments) a.source = {}, a.since = {1};
  w.map = std::make_shared<const model::Metadata>(map);
  PushRig r(w, "p1", self);
  r.install();
  const auto made = r.take<push::Create>();
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].copy.partition, w.high.id);
  EXPECT_EQ(r.take<push::Merge>().size(), 1u);
  EXPECT_EQ(r.count<push::SetAside>() + r.count<push::Exit>(), 0u);
  EXPECT_EQ(r.server.copies().size(), 1u);
}

TEST(PushMerge, one_that_is_lost_is_not_made_up) {
  Two w;
  push::Self self;
  self.held = {w.held(w.low, "p1")};
  self.seen[w.map->table] = w.map->txnseq;
  w.merge();
  w.finalize();
  PushRig r(w, "p1", self);
  r.install();
  EXPECT_EQ(r.count<push::Merge>(), 0u);
  EXPECT_EQ(r.take<push::Exit>().size(), 1u);
}

TEST(PushMerge, a_merge_that_was_aborted_leaves_both) {
  Two w;
  PushRig r(w, "p1", w.self());
  r.install();
  w.merge();
  r.install();
  r.install(model::ops::AbortMerge{w.only().merge->attempt, w.low.id, w.high.id});
  EXPECT_EQ(r.count<push::Merge>() + r.count<push::Drop>() + r.count<push::SetAside>(), 0u);
  EXPECT_EQ(r.state_of(w.low.id).substr(0, 9), "available");
}

}  // namespace
}  // namespace cantle::proto

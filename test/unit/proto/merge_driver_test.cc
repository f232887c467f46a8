#include "lib/proto/merge_driver.h"

#include <gtest/gtest.h>

#include "lib/proto/drivers.h"
#include "test/unit/proto/driver_world.h"

namespace cantle::proto {
namespace {

using driver::Outcome;
using model::Replication;
using model::ServerId;
using test::DriverWorld;
using test::Play;

const ServerId p1{"p1"}, p2{"p2"}, p3{"p3"};

driver::Effects first_look(DriverWorld& w, const model::AttemptId& attempt) {
  MergeDriver d(attempt);
  const base::Instant now{std::chrono::seconds(1)};
  d.step(driver::Begin{now});
  return d.step(driver::Looked{now, 1, w.world()});
}
std::optional<model::ops::FinalizeMerge> finalizes(const driver::Effects& effects) {
  const auto* submit = effects.empty() ? nullptr : std::get_if<driver::Submit>(&effects.back());
  const auto* op = submit != nullptr ? std::get_if<model::ops::FinalizeMerge>(&submit->operation) : nullptr;
  return op != nullptr ? std::optional(*op) : std::nullopt;
}
std::string waiting(const driver::Effects& effects) {
  const auto* w = effects.empty() ? nullptr : std::get_if<driver::Waiting>(&effects.back());
  if (w == nullptr) return "does not wait";
  std::string text = w->why + ":";
  for (const auto& s : w->for_whom) text += " " + s.name;
  return text;
}

// Two neighbours [, m) and [m, ).
DriverWorld neighbours() {
  DriverWorld w(1, 3, 3, Replication::quorum);
  const auto attempt = w.split();
  w.servers_act();
  const auto parent = w.only();
  w.must(model::ops::Initialize{parent.id, attempt});
  model::ops::FinalizeSplit op{parent.id, attempt, {}};
  for (const auto* child : {&parent.split->low, &parent.split->high})
    for (const auto& a : child->assignments) op.ready.push_back(a.id);
  op.cut = model::ops::FinalCut{{{1}, {5}, 7}, {1}, 3};
  w.must(op);
  w.must(model::ops::SweepEnded{parent.id, attempt});
  return w;
}
const model::Partition& low(const DriverWorld& w) { return w.map->partitions[0]; }
const model::Partition& high(const DriverWorld& w) { return w.map->partitions[1]; }

TEST(MergeDriver, ends_when_a_majority_has_both_cuts) {
  auto w = neighbours();
  const auto attempt = w.merge();
  EXPECT_EQ(waiting(first_look(w, attempt)), "a government cannot be read:");
  w.cut_on(low(w), attempt, {4}, 9, {});
  w.cut_on(high(w), attempt, {6}, 2, {});
  w.governments[high(w).id].government.leader = {};
  EXPECT_EQ(waiting(first_look(w, attempt)), "one of the two has no leader: p1");
  w.cut_on(high(w), attempt, {6}, 2, {});
  EXPECT_EQ(waiting(first_look(w, attempt)), "not both leaders have cut their logs yet: p1 p1");
  w.cut_on(low(w), attempt, {4}, 9, {p1, p2});
  EXPECT_EQ(waiting(first_look(w, attempt)), "not both leaders have cut their logs yet: p1");
  // Each on a majority, both on p2 alone: p1 and p3 could elect each other without what was acknowledged.
  w.cut_on(high(w), attempt, {6}, 2, {p2, p3});
  EXPECT_EQ(waiting(first_look(w, attempt)), "no majority has both cuts yet: p1 p3");
  w.cut_on(high(w), attempt, {6}, 3, {p1, p2, p3});
  const auto op = finalizes(first_look(w, attempt));
  ASSERT_TRUE(op);
  EXPECT_EQ(op->ready, (std::vector{low(w).merge->target.assignments[0].id, low(w).merge->target.assignments[1].id}));
  ASSERT_TRUE(op->cuts);
  EXPECT_EQ(op->cuts->low, (model::ops::FinalCut{{{4}, {40}, 5}, {4}, 9}));
  EXPECT_EQ(op->cuts->high, (model::ops::FinalCut{{{6}, {60}, 5}, {6}, 3}));
  w.must(*op);
  EXPECT_EQ(w.map->partitions.size(), 1U);
}

TEST(MergeDriver, the_cut_of_another_attempt_is_none) {
  auto w = neighbours();
  const auto given_up = w.merge();
  w.must(model::ops::AbortMerge{given_up, low(w).id, high(w).id});
  const auto attempt = w.merge();
  w.cut_on(low(w), given_up, {4}, 9, {p1, p2, p3});
  w.cut_on(high(w), attempt, {6}, 2, {p1, p2, p3});
  EXPECT_EQ(waiting(first_look(w, attempt)), "not both leaders have cut their logs yet: p1");
}

TEST(MergeDriver, aborts_when_asked_and_says_how_it_ended) {
  auto w = neighbours();
  const auto attempt = w.merge();
  MergeDriver d(attempt);
  const base::Instant now{std::chrono::seconds(1)};
  d.step(driver::AbortAsked{now, "an operator asked for it"});
  d.step(driver::Begin{now});
  const auto effects = d.step(driver::Looked{now, 1, w.world()});
  const auto& submit = std::get<driver::Submit>(effects.back());
  EXPECT_EQ(submit.operation, model::Operation(model::ops::AbortMerge{attempt, low(w).id, high(w).id}));
  w.must(submit.operation);
  d.step(driver::Changed{now, submit.number, base::ok()});
  const auto end = d.step(driver::Looked{now, submit.number + 1, w.world()});
  EXPECT_EQ(std::get<driver::Ended>(end.back()), (driver::Ended{Outcome::aborted, "an operator asked for it"}));
}

TEST(MergeDriver, another_may_go_on_wherever_it_stopped) {
  for (const bool after : {false, true})
    for (const bool unknown : {false, true})
      for (int crash = 0;; crash++) {
        auto w = neighbours();
        const auto attempt = w.merge();
        const auto a = low(w), b = high(w);
        int turns = 0;
        w.cut_on(a, attempt, {4}, 1, {});
        w.cut_on(b, attempt, {6}, 1, {});
        Play play;
        play.crash_at = crash;
        play.after = after;
        play.unknown = unknown;
        play.drive<MergeDriver>(w, attempt, [&] {
          if (++turns == 2) w.cut_on(a, attempt, {4}, 9, {p1, p2});
          if (turns == 4) w.cut_on(b, attempt, {6}, 2, {p1, p2});
        });
        ASSERT_TRUE(play.finished) << crash;
        EXPECT_EQ(play.ended.outcome, Outcome::done) << crash << ": " << play.ended.reason;
        EXPECT_EQ(w.map->partitions.size(), 1U);
        EXPECT_EQ(w.commits["FINALIZE_MERGE"], 1);
        if (crash > play.effects) break;
      }
}

// METADATA forgets it once everybody knows: what is there tells.
TEST(MergeDriver, tells_finished_from_aborted_when_it_is_forgotten) {
  auto w = neighbours();
  const auto attempt = w.merge();
  w.cut_on(low(w), attempt, {4}, 9, {p1, p2});
  w.cut_on(high(w), attempt, {6}, 2, {p1, p2});
  const base::Instant now{std::chrono::seconds(1)};
  MergeDriver d(attempt);
  d.step(driver::Begin{now});
  const auto op = std::get<driver::Submit>(d.step(driver::Looked{now, 1, w.world()}).back());
  const auto a = low(w).id, b = high(w).id;
  w.must(op.operation);
  for (const auto& id : {a, b}) w.must(model::ops::SweepEnded{id, attempt});
  const auto again =
      d.step(driver::Changed{now, op.number, base::fail(base::Code::outcome_unknown, "the connection broke")});
  const auto end = d.step(driver::Looked{now, std::get<driver::Look>(again.back()).number, w.world()});
  EXPECT_EQ(std::get<driver::Ended>(end.back()).outcome, Outcome::done);

  MergeDriver stranger(attempt);
  stranger.step(driver::Begin{now});
  const auto unknown = stranger.step(driver::Looked{now, 1, w.world()});
  EXPECT_EQ(std::get<driver::Ended>(unknown.back()).outcome, Outcome::failed);
}

// Of a push table: nothing is cut, and the servers of both need not do anything but know of it.
TEST(MergeDriver, of_a_push_table_ends_when_the_barrier_has_passed) {
  DriverWorld w;
  auto attempt = w.split();
  w.servers_act();
  const auto parent = w.only();
  w.must(model::ops::Initialize{parent.id, attempt});
  model::ops::FinalizeSplit op{parent.id, attempt, {}};
  for (const auto* child : {&parent.split->low, &parent.split->high})
    for (const auto& a : child->assignments) op.ready.push_back(a.id);
  w.must(op);
  attempt = w.merge();
  EXPECT_EQ(waiting(first_look(w, attempt)), "servers of the two have not observed the merge: p1 p2 p3");
  w.observe(p1);
  w.live.erase(p3);  // one that is dead, but no majority yet
  EXPECT_EQ(waiting(first_look(w, attempt)), "servers of the two have not observed the merge: p2 p3");
  w.observe(p2);
  w.live.insert(p3);
  EXPECT_EQ(waiting(first_look(w, attempt)), "servers of the two have not observed the merge: p3");
  w.live.erase(p3);
  const auto end = finalizes(first_look(w, attempt));
  ASSERT_TRUE(end);
  EXPECT_FALSE(end->cuts);
  EXPECT_EQ(end->ready, (std::vector{low(w).merge->target.assignments[0].id, low(w).merge->target.assignments[1].id}));
  auto with_cuts = *end;
  with_cuts.cuts.emplace();
  EXPECT_FALSE(w.commit(with_cuts));
  auto too_few = *end;
  too_few.ready.pop_back();
  EXPECT_FALSE(w.commit(too_few));
  const auto parents = std::pair(low(w).id, high(w).id);
  w.must(*end);
  ASSERT_EQ(w.map->partitions.size(), 1U);
  EXPECT_EQ(w.only().parent, parents.first);
  EXPECT_EQ(w.only().parent_high, parents.second);
  EXPECT_TRUE(w.only().made_by_merge());
  for (const auto& a : w.only().assignments) {
    EXPECT_EQ(a.state, model::AssignmentState::available);
    EXPECT_EQ(model::merged_tenures(*w.map, w.only().id, a).size(), 2U);
  }
}

TEST(Drivers, are_found_for_what_metadata_has_in_progress) {
  auto w = neighbours();
  const auto attempt = w.merge();
  EXPECT_EQ(operations_of(*w.map), (std::map<model::AttemptId, OpKind>{{attempt, OpKind::merge}}));
  EXPECT_EQ(partitions_of(*w.map, attempt), (std::vector<const model::Partition*>{&low(w), &high(w)}));
  EXPECT_EQ(governed_by(*w.map, attempt).size(), 2U);
  EXPECT_TRUE(partitions_of(*w.map, model::AttemptId::draw(w.random)).empty());
  EXPECT_NE(dynamic_cast<MergeDriver*>(make_driver(OpKind::merge, attempt).get()), nullptr);
}

}  // namespace
}  // namespace cantle::proto

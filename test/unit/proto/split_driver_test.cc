#include "lib/proto/split_driver.h"

#include <gtest/gtest.h>

#include <functional>

#include "test/unit/proto/driver_world.h"

namespace cantle::proto {
namespace {

using driver::Outcome;
using model::ServerId;
using test::DriverWorld;
using test::Play;

const ServerId p1{"p1"}, p2{"p2"}, p3{"p3"}, p4{"p4"}, p5{"p5"};
const base::Instant t0{std::chrono::seconds(1)};

// The one thing that the driver does when it looks at this world.
driver::Effects first_look(DriverWorld& w, const model::AttemptId& attempt) {
  SplitDriver d(attempt);
  EXPECT_EQ(d.step(driver::Begin{t0}), (driver::Effects{driver::Look{1}}));
  return d.step(driver::Looked{t0, 1, w.world()});
}
bool submits(const driver::Effects& effects, std::string_view name) {
  for (const auto& e : effects)
    if (const auto* s = std::get_if<driver::Submit>(&e)) return model::operation_name(s->operation) == name;
  return false;
}
std::string waiting(const driver::Effects& effects) {
  std::string text;
  for (const auto& e : effects)
    if (const auto* w = std::get_if<driver::Waiting>(&e))
      for (const auto& s : w->for_whom) text += s.name + " ";
  return text;
}

TEST(SplitDriver, waits_for_every_live_server_of_the_parent_to_observe) {
  DriverWorld w;
  const auto attempt = w.split();
  EXPECT_EQ(waiting(first_look(w, attempt)), "p1 p2 p3 ");
  w.observe(p1);
  w.observe(p2);
  EXPECT_EQ(waiting(first_look(w, attempt)), "p3 ");  // a majority is not enough while the third lives
  w.observe(p3);
  EXPECT_TRUE(submits(first_look(w, attempt), "INITIALIZE"));
}

TEST(SplitDriver, does_not_wait_for_the_dead_but_for_a_majority) {
  DriverWorld w;
  const auto attempt = w.split();
  w.live = {p1, p4, p5};
  w.observe(p1);
  EXPECT_EQ(waiting(first_look(w, attempt)), "p2 p3 ");  // one of three has observed: the dead are needed
  w.observe(p2);
  EXPECT_TRUE(submits(first_look(w, attempt), "INITIALIZE"));
}

TEST(SplitDriver, an_observed_of_an_older_map_does_not_count) {
  DriverWorld w;
  for (const auto& s : {p1, p2, p3}) w.observe(s);
  const auto attempt = w.split();
  EXPECT_EQ(waiting(first_look(w, attempt)), "p1 p2 p3 ");
}

TEST(SplitDriver, children_where_the_parent_is_are_ready_when_their_servers_observed) {
  DriverWorld w;
  const auto attempt = w.split();
  w.servers_act();
  ASSERT_TRUE(submits(first_look(w, attempt), "INITIALIZE"));
  w.must(model::ops::Initialize{w.only().id, attempt});
  EXPECT_TRUE(submits(first_look(w, attempt), "FINALIZE_SPLIT"));
}

// Of a quorum table: one log takes all writes, so nobody is waited for but the leader's cut.
TEST(SplitDriver, a_quorum_tables_split_ends_with_the_cut_that_its_government_reports) {
  DriverWorld w(1, 3, 3, model::Replication::quorum);
  const auto attempt = w.split();
  const auto parent = w.only().id;
  ASSERT_TRUE(submits(first_look(w, attempt), "INITIALIZE"));
  w.must(model::ops::Initialize{parent, attempt});
  EXPECT_EQ(waiting(first_look(w, attempt)), "");
  auto& seen = w.governments[parent];
  seen.version = 9;
  seen.government.epoch = {4};
  for (const auto& a : w.only().assignments) seen.government.voters.push_back({a.slot, a.server, a.id});
  seen.government.leader = w.only().assignments[1].id;
  EXPECT_EQ(waiting(first_look(w, attempt)), "p2 ");
  const model::LogPoint at{{3}, {100}, 5};
  seen.government.cut = model::CutReport{model::AttemptId::draw(w.random), at};  // of an attempt that was given up
  EXPECT_EQ(waiting(first_look(w, attempt)), "p2 ");
  seen.government.cut->attempt = attempt;
  // After a recovery one voter of one has committed it.
  seen.government.cut->holders = {p3};
  EXPECT_EQ(waiting(first_look(w, attempt)), "p1 p2 ");
  seen.government.cut->holders = {p1, p3};
  const auto effects = first_look(w, attempt);
  ASSERT_TRUE(submits(effects, "FINALIZE_SPLIT"));
  const auto& op = std::get<driver::Submit>(effects.back()).operation;
  EXPECT_EQ(std::get<model::ops::FinalizeSplit>(op).cut, (model::ops::FinalCut{at, {4}, 9}));
  EXPECT_EQ(std::get<model::ops::FinalizeSplit>(op).ready.size(), 4U);
  w.must(op);
  EXPECT_EQ(w.map->partitions.size(), 2U);
}

TEST(SplitDriver, finalizes_with_a_majority_of_each_child_and_names_who_is_ready) {
  DriverWorld w;
  const auto attempt = w.split({p1, p4, p5}, {p1, p2, p3});
  w.servers_act();
  w.must(model::ops::Initialize{w.only().id, attempt});
  w.live.erase(p5);
  EXPECT_EQ(waiting(first_look(w, attempt)), "p4 p5 ");
  w.servers_act();  // p4 is filled
  const auto effects = first_look(w, attempt);
  ASSERT_TRUE(submits(effects, "FINALIZE_SPLIT"));
  const auto& submit = std::get<driver::Submit>(effects.back());
  EXPECT_EQ(std::get<model::ops::FinalizeSplit>(submit.operation).ready.size(), 5u);  // all but p5's
  w.must(submit.operation);
  EXPECT_EQ(find_assignment(w.map->partitions.front(), p5)->state, model::AssignmentState::initializing);
}

TEST(SplitDriver, a_child_of_a_copy_that_is_itself_being_filled_is_not_ready) {
  DriverWorld w;
  auto attempt = w.split({p1, p4, p5}, {});
  w.servers_act();
  w.must(model::ops::Initialize{w.only().id, attempt});
  w.live.erase(p5);
  w.servers_act();
  w.must(std::get<driver::Submit>(first_look(w, attempt).back()).operation);
  // Now p5 is INITIALIZING in the low child; split that: its children there go on from a copy that is not whole.
  auto op = model::draw_split(w.map->partitions.front(), "c", {}, {}, w.random);
  w.must(op);
  w.live.insert(p5);
  w.observe(p1), w.observe(p4), w.observe(p5);
  const auto& parent = w.map->partitions.front();
  EXPECT_EQ(ready_of(parent, parent.split->low, w.world()).size(), 2u);
}

TEST(SplitDriver, an_abort_asked_before_the_end_is_committed_without_the_children) {  // S60
  DriverWorld w;
  const auto attempt = w.split({p4, p5, p1}, {});
  w.live = {p1};
  SplitDriver d(attempt);
  d.step(driver::Begin{t0});
  d.step(driver::Looked{t0, 1, w.world()});
  auto effects = d.step(driver::AbortAsked{t0, "operator"});
  ASSERT_EQ(effects, (driver::Effects{driver::Look{2}}));
  effects = d.step(driver::Looked{t0, 2, w.world()});
  ASSERT_TRUE(submits(effects, "ABORT_SPLIT"));
  const auto& submit = std::get<driver::Submit>(effects.back());
  w.must(submit.operation);
  d.step(driver::Changed{t0, submit.number, base::ok()});
  effects = d.step(driver::Looked{t0, submit.number + 1, w.world()});
  EXPECT_EQ(effects, (driver::Effects{driver::Ended{Outcome::aborted, "operator"}}));
}

TEST(SplitDriver, late_and_repeated_answers_are_dropped) {  // S25
  DriverWorld w;
  const auto attempt = w.split();
  SplitDriver d(attempt);
  d.step(driver::Begin{t0});
  EXPECT_EQ(d.step(driver::Looked{t0, 7, w.world()}), driver::Effects{});
  EXPECT_FALSE(d.step(driver::Looked{t0, 1, w.world()}).empty());
  EXPECT_EQ(d.step(driver::Looked{t0, 1, w.world()}), driver::Effects{});
  EXPECT_EQ(d.step(driver::Changed{t0, 1, base::ok()}), driver::Effects{});
}

TEST(SplitDriver, an_unanswered_question_is_asked_again) {
  SplitDriver d{model::AttemptId{}};
  EXPECT_EQ(d.step(driver::Begin{t0}), (driver::Effects{driver::Look{1}}));
  EXPECT_EQ(d.step(driver::Tick{t0 + kDriverLookEvery}), driver::Effects{});
  EXPECT_EQ(d.step(driver::Tick{t0 + kDriverAnswerWithin}), (driver::Effects{driver::Look{2}}));
}

TEST(SplitDriver, an_unknown_outcome_is_looked_up_and_not_taken_for_failure) {  // S27
  DriverWorld w;
  const auto attempt = w.split();
  Play run;
  run.unknown = true;
  run.drive<SplitDriver>(w, attempt, [&] { w.servers_act(); });
  EXPECT_EQ(run.ended.outcome, Outcome::done) << run.ended.reason;
  EXPECT_EQ(w.commits["INITIALIZE"], 1);
  EXPECT_EQ(w.commits["FINALIZE_SPLIT"], 1);
}

TEST(SplitDriver, a_refusal_is_tried_again_later_and_later) {
  DriverWorld w;
  const auto attempt = w.split();
  w.servers_act();
  SplitDriver d(attempt);
  d.step(driver::Begin{t0});
  auto effects = d.step(driver::Looked{t0, 1, w.world()});
  auto number = std::get<driver::Submit>(effects.back()).number;
  EXPECT_EQ(d.step(driver::Changed{t0, number, base::fail(base::Code::unavailable, "no majority")}), driver::Effects{});
  EXPECT_EQ(d.step(driver::Hint{t0}), driver::Effects{});  // a bell does not shorten it
  EXPECT_EQ(d.step(driver::Tick{t0 + kDriverRetryFirst - std::chrono::milliseconds(1)}), driver::Effects{});
  EXPECT_EQ(d.step(driver::Tick{t0 + kDriverRetryFirst}), (driver::Effects{driver::Look{number + 1}}));
  effects = d.step(driver::Looked{t0, number + 1, w.world()});
  ASSERT_TRUE(submits(effects, "INITIALIZE"));
  EXPECT_NE(d.waiting().why.find("no majority"), std::string::npos);  // and anybody can ask why
}

TEST(SplitDriver, a_dropped_table_ends_it) {
  DriverWorld w;
  const auto attempt = w.split();
  w.must(model::ops::AbortSplit{w.only().id, attempt});
  w.must(model::ops::DropTable{true});
  const auto effects = first_look(w, attempt);
  ASSERT_EQ(effects.size(), 1u);
  EXPECT_EQ(std::get<driver::Ended>(effects[0]).outcome, Outcome::failed);
}

TEST(SplitDriver, a_fresh_driver_knows_a_finished_split_by_what_is_left_of_the_parent) {  // S40
  DriverWorld w;
  const auto attempt = w.split();
  Play run;
  run.drive<SplitDriver>(w, attempt, [&] { w.servers_act(); });
  ASSERT_EQ(run.ended.outcome, Outcome::done);
  EXPECT_EQ(first_look(w, attempt), (driver::Effects{driver::Ended{Outcome::done, ""}}));
}

// S38, S39, S42: whatever the moment at which the driver dies, and whoever goes on, the same split comes out.
void crash_everywhere(const std::function<model::AttemptId(DriverWorld&)>& begin) {
  DriverWorld reference(3);
  const auto attempt = begin(reference);
  Play undisturbed;
  undisturbed.drive<SplitDriver>(reference, attempt, [&] { reference.servers_act(); });
  ASSERT_EQ(undisturbed.ended.outcome, Outcome::done) << undisturbed.ended.reason;
  ASSERT_EQ(reference.map->partitions.size(), 2u);
  for (int at = 0; at < undisturbed.effects; ++at) {
    for (bool after : {false, true}) {
      DriverWorld w(3);
      ASSERT_EQ(begin(w), attempt);
      Play run;
      run.crash_at = at;
      run.after = after;
      run.drive<SplitDriver>(w, attempt, [&] { w.servers_act(); });
      ASSERT_TRUE(run.finished) << "crash at effect " << at << (after ? " (after)" : "");
      EXPECT_EQ(run.ended.outcome, Outcome::done);
      EXPECT_EQ(w.commits, reference.commits) << at;
      ASSERT_EQ(w.map->partitions.size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(w.map->partitions[i].id, reference.map->partitions[i].id);
        EXPECT_EQ(w.map->partitions[i].interval, reference.map->partitions[i].interval);
        EXPECT_EQ(w.map->partitions[i].assignments.size(), reference.map->partitions[i].assignments.size());
      }
    }
  }
}

TEST(SplitDriver, any_process_resumes_a_local_split_after_any_crash) {
  crash_everywhere([](DriverWorld& w) { return w.split(); });
}
TEST(SplitDriver, any_process_resumes_a_split_onto_other_servers_after_any_crash) {
  crash_everywhere([](DriverWorld& w) { return w.split({p4, p5, p1}, {p2, p3, p5}); });
}

}  // namespace
}  // namespace cantle::proto

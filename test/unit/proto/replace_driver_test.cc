#include "lib/proto/replace_driver.h"

#include <gtest/gtest.h>

#include "test/unit/proto/driver_world.h"

namespace cantle::proto {
namespace {

using driver::Outcome;
using model::ServerId;
using test::DriverWorld;
using test::Play;

const ServerId p1{"p1"}, p2{"p2"}, p3{"p3"}, p4{"p4"};
const base::Instant t0{std::chrono::seconds(1)};

std::vector<ServerId> barrier(DriverWorld& w) {
  return move_barrier_waits_for(w.only(), w.only().moves.front(), w.world());
}

TEST(ReplaceDriver, a_dead_source_is_not_waited_for_but_a_majority_of_the_other_slots_is) {
  DriverWorld w;
  w.live = {p1, p4};
  w.replace(p3, p4, true);
  EXPECT_EQ(barrier(w), (std::vector<ServerId>{p1, p2}));  // p2 is down, and needed: two slots are left
  w.observe(p1);
  EXPECT_EQ(barrier(w), std::vector<ServerId>{p2});
  w.observe(p2);
  EXPECT_EQ(barrier(w), std::vector<ServerId>{});
}

TEST(ReplaceDriver, five_replicas_need_three_of_the_other_four) {
  DriverWorld w(1, 5, 6);
  const ServerId p6{"p6"};
  w.live = {p1, p6};
  w.replace(ServerId{"p5"}, p6, true);
  w.observe(p1);
  w.observe(p2);
  EXPECT_EQ(barrier(w).size(), 2u);
  w.observe(p3);
  EXPECT_TRUE(barrier(w).empty());
}

TEST(ReplaceDriver, a_source_that_is_declared_dead_and_lives_holds_up_nothing) {
  DriverWorld w;
  w.replace(p3, p4, true);
  w.observe(p1);
  w.observe(p2);
  EXPECT_TRUE(barrier(w).empty());
}

TEST(ReplaceDriver, a_source_that_is_not_dead_is_waited_for) {
  DriverWorld w;
  w.replace(p3, p4, false);
  w.observe(p1);
  w.observe(p2);
  EXPECT_EQ(barrier(w), std::vector<ServerId>{p3});
}

TEST(ReplaceDriver, says_whom_the_filling_waits_for) {
  DriverWorld w;
  const auto attempt = w.replace(p3, p4, true);
  w.must(model::ops::Initialize{w.only().id, attempt});
  ReplaceDriver d(attempt);
  d.step(driver::Begin{t0});
  EXPECT_EQ(d.step(driver::Looked{t0, 1, w.world()}),
            (driver::Effects{driver::Waiting{"the new replica is being filled", {p4}}}));
}

TEST(ReplaceDriver, a_cancel_goes_back_to_what_was_without_the_new_replica) {  // S60
  DriverWorld w;
  const auto before = w.only().assignments;
  const auto attempt = w.replace(p3, p4, true);
  w.live = {p1, p2};
  ReplaceDriver d(attempt);
  d.step(driver::Begin{t0});
  d.step(driver::Looked{t0, 1, w.world()});
  d.step(driver::AbortAsked{t0, "changed my mind"});
  auto effects = d.step(driver::Looked{t0, 2, w.world()});
  const auto submit = std::get<driver::Submit>(effects.back());
  ASSERT_EQ(model::operation_name(submit.operation), "CANCEL_MOVE");
  w.must(submit.operation);
  d.step(driver::Changed{t0, submit.number, base::ok()});
  effects = d.step(driver::Looked{t0, submit.number + 1, w.world()});
  EXPECT_EQ(effects, (driver::Effects{driver::Ended{Outcome::aborted, "changed my mind"}}));
  ASSERT_EQ(w.only().assignments.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(w.only().assignments[i].id, before[i].id);
}

TEST(ReplaceDriver, an_abort_that_comes_too_late_for_a_dead_source_finishes) {
  DriverWorld w;
  const auto attempt = w.replace(p3, p4, true);
  w.must(model::ops::Initialize{w.only().id, attempt});
  w.must(model::ops::MarkAvailable{find_assignment(w.only(), p4)->id, p4});
  ReplaceDriver d(attempt);
  d.step(driver::Begin{t0});
  d.step(driver::AbortAsked{t0, "changed my mind"});
  const auto effects = d.step(driver::Looked{t0, 1, w.world()});
  const auto submit = std::get<driver::Submit>(effects.back());
  ASSERT_EQ(model::operation_name(submit.operation), "FINALIZE_MOVE");
  w.must(submit.operation);
}

TEST(ReplaceDriver, any_process_resumes_a_replacement_after_any_crash) {  // S38, S53
  DriverWorld reference(5);
  const auto attempt = reference.replace(p3, p4, true);
  Play undisturbed;
  undisturbed.drive<ReplaceDriver>(reference, attempt, [&] { reference.servers_act(); });
  ASSERT_EQ(undisturbed.ended.outcome, Outcome::done) << undisturbed.ended.reason;
  EXPECT_EQ(find_assignment(reference.only(), p3), nullptr);
  for (int at = 0; at < undisturbed.effects - 1; ++at) {
    for (bool after : {false, true}) {
      DriverWorld w(5);
      ASSERT_EQ(w.replace(p3, p4, true), attempt);
      Play run;
      run.crash_at = at;
      run.after = after;
      run.drive<ReplaceDriver>(w, attempt, [&] { w.servers_act(); });
      ASSERT_TRUE(run.finished) << at;
      EXPECT_EQ(w.commits, reference.commits) << at;
      EXPECT_EQ(find_assignment(w.only(), p3), nullptr);
      ASSERT_NE(find_assignment(w.only(), p4), nullptr);
      EXPECT_EQ(find_assignment(w.only(), p4)->state, model::AssignmentState::available);
    }
  }
}

// A map that forgets what it was told (a field that its codec leaves out) must not be told as fast as can be.
TEST(ReplaceDriver, what_is_committed_and_not_shown_is_committed_again_more_and_more_slowly) {
  DriverWorld w;
  const auto attempt = w.replace(p3, p4, true);
  w.observe(p1);
  w.observe(p2);
  ReplaceDriver d(attempt);
  auto now = t0;
  auto effects = d.step(driver::Begin{now});
  int submits = 0;
  for (int i = 0; i < 1000; ++i) {
    driver::Effects next;
    for (const auto& e : effects) {
      if (const auto* l = std::get_if<driver::Look>(&e)) next = d.step(driver::Looked{now, l->number, w.world()});
      if (const auto* s = std::get_if<driver::Submit>(&e)) {
        submits++;
        next = d.step(driver::Changed{now, s->number, base::ok()});
      }
    }
    now = now + std::chrono::milliseconds(10);
    effects = next.empty() ? d.step(driver::Tick{now}) : next;
  }
  EXPECT_GE(submits, 3);  // within ten seconds
  EXPECT_LE(submits, 12);
}

// Of a quorum table: what the driver does next, given who votes by a government of that map.
struct QuorumMove : DriverWorld {
  QuorumMove() {
    auto file = *map;
    file.replication = model::Replication::quorum;
    map = std::make_shared<const model::Metadata>(std::move(file));
    attempt = replace(p3, p4, true);
  }
  driver::Effects looks(ReplaceDriver& d, std::vector<ServerId> voters, model::TxnSeq txnseq) {
    auto w = world();
    model::Government g{{2}, {}, {}, "p1/1/1", txnseq};
    for (const auto& server : voters)
      if (const auto* a = find_assignment(only(), server)) g.voters.push_back({a->slot, server, a->id});
    w.governments[only().id] = {g, 7};
    return d.step(driver::Looked{t0, ++number, w});
  }
  model::AssignmentId at(const ServerId& server) { return find_assignment(only(), server)->id; }
  model::AttemptId attempt;
  uint64_t number = 0;
};

template <class Op>
const Op* submitted(const driver::Effects& effects) {
  for (const auto& e : effects)
    if (const auto* s = std::get_if<driver::Submit>(&e)) return std::get_if<Op>(&s->operation);
  return nullptr;
}

// S61: METADATA takes the old one out only when the government says that it does not vote.
TEST(ReplaceDriver, s61_in_a_quorum_table_the_swapped_voter_makes_it_available_and_then_final) {
  QuorumMove m;
  ReplaceDriver d(m.attempt);
  d.step(driver::Begin{t0});
  EXPECT_NE(submitted<model::ops::Initialize>(m.looks(d, {p1, p2, p3}, {1})), nullptr);  // no barrier
  m.must(model::ops::Initialize{m.only().id, m.attempt});
  const auto next = [&](std::vector<ServerId> voters, model::TxnSeq txnseq) {
    ReplaceDriver fresh(m.attempt);  // it remembers nothing
    m.number = 0;
    fresh.step(driver::Begin{t0});
    return m.looks(fresh, std::move(voters), txnseq);
  };
  EXPECT_NE(std::get_if<driver::Waiting>(&next({p1, p2, p3}, {1}).front()), nullptr);
  const auto effects = next({p1, p2, p4}, m.map->txnseq);
  const auto* marked = submitted<model::ops::MarkAvailable>(effects);
  ASSERT_NE(marked, nullptr);
  EXPECT_EQ(marked->assignment, m.at(p4));
  m.must(*marked);
  EXPECT_NE(std::get_if<driver::Waiting>(&next({p1, p2, p3}, {1}).front()), nullptr);
  EXPECT_NE(submitted<model::ops::FinalizeMove>(next({p1, p2, p4}, m.map->txnseq)), nullptr);
}

TEST(ReplaceDriver, s60_in_a_quorum_table_it_is_undone_when_a_government_of_the_cancelled_map_says_so) {
  QuorumMove m;
  m.must(model::ops::Initialize{m.only().id, m.attempt});
  const auto swapped = m.map->txnseq;
  ReplaceDriver d(m.attempt);
  d.step(driver::Begin{t0});
  d.step(driver::AbortAsked{t0, "changed my mind"});
  const auto first = m.looks(d, {p1, p2, p4}, swapped);
  ASSERT_NE(submitted<model::ops::CancelMove>(first), nullptr);
  EXPECT_FALSE(submitted<model::ops::CancelMove>(first)->undone);
  m.must(*submitted<model::ops::CancelMove>(first));
  const auto next = [&](std::vector<ServerId> voters, model::TxnSeq txnseq) {
    ReplaceDriver fresh(m.attempt);  // whoever takes over: METADATA says that it is cancelled
    m.number = 0;
    fresh.step(driver::Begin{t0});
    return m.looks(fresh, std::move(voters), txnseq);
  };
  EXPECT_NE(std::get_if<driver::Waiting>(&next({p1, p2, p4}, m.map->txnseq).front()), nullptr);
  // Not swapped, and a leader with the older map may swap yet.
  EXPECT_NE(std::get_if<driver::Waiting>(&next({p1, p2, p3}, {1}).front()), nullptr);
  const auto last = next({p1, p2, p3}, m.map->txnseq);
  ASSERT_NE(submitted<model::ops::CancelMove>(last), nullptr);
  EXPECT_TRUE(submitted<model::ops::CancelMove>(last)->undone);
  m.must(*submitted<model::ops::CancelMove>(last));
  EXPECT_EQ(find_assignment(m.only(), p4), nullptr);
}

TEST(ReplaceDriver, s60_taken_up_again_it_is_finished_by_a_government_that_knows_of_it) {
  QuorumMove m;
  m.must(model::ops::Initialize{m.only().id, m.attempt});
  const auto swapped = m.map->txnseq;
  m.must(model::ops::CancelMove{m.only().id, m.attempt});
  ReplaceDriver first(m.attempt);
  first.step(driver::Begin{t0});
  EXPECT_NE(std::get_if<driver::Waiting>(&m.looks(first, {p1, p2, p4}, swapped).front()), nullptr);
  base::SeededRandom random(7);
  const auto again = draw_replace(m.only(), m.only().moves.front(), random);
  m.must(again);
  first.step(driver::Tick{t0 + kDriverLookEvery});
  const auto effects = m.looks(first, {p1, p2, p4}, swapped);
  const auto* ended = std::get_if<driver::Ended>(&effects.front());
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->outcome, driver::Outcome::aborted);
  const auto next = [&](std::vector<ServerId> voters, model::TxnSeq txnseq) {
    ReplaceDriver d(again.attempt);
    m.number = 0;
    d.step(driver::Begin{t0});
    return m.looks(d, std::move(voters), txnseq);
  };
  // Its leader may act on the map in which it was cancelled yet, and give the vote back.
  EXPECT_NE(std::get_if<driver::Waiting>(&next({p1, p2, p4}, swapped).front()), nullptr);
  const auto marked = next({p1, p2, p4}, m.map->txnseq);
  ASSERT_NE(submitted<model::ops::MarkAvailable>(marked), nullptr);
  m.must(*submitted<model::ops::MarkAvailable>(marked));
  EXPECT_NE(submitted<model::ops::FinalizeMove>(next({p1, p2, p4}, m.map->txnseq)), nullptr);
}

}  // namespace
}  // namespace cantle::proto

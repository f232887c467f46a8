#include "lib/client/retry.h"

#include <gtest/gtest.h>

#include "lib/client/route.h"

namespace cantle::client {
namespace {

using base::Code;
using base::Error;
using base::Instant;
using namespace std::chrono_literals;

const Instant t0{1000s};

struct Try {
  base::SeededRandom random{1};
  Attempts attempts;
  explicit Try(RetryOptions options = {}) : attempts(options, t0) {}
  Next failed(Error error, Instant now = t0, size_t others = 0) { return attempts.failed(error, now, others, random); }
};
Error error(Code code, uint32_t retry_after_ms = 0) {
  Error e(code, "x");
  e.retry_after_ms = retry_after_ms;
  return e;
}

TEST(Attempts, what_nothing_can_change_is_answered_at_once) {
  for (const Code code :
       {Code::malformed, Code::invalid, Code::too_large, Code::no_such_table, Code::denied, Code::not_found,
        Code::condition_failed, Code::conflict, Code::diverged, Code::faulted, Code::regressed}) {
    Try t;
    EXPECT_FALSE(t.failed(error(code)).retry) << base::code_name(code);
    EXPECT_EQ(t.attempts.answer().code, code);
  }
}

TEST(Attempts, that_the_condition_of_a_numbered_write_did_not_hold_is_so_of_every_attempt) {
  Try plain, numbered;
  numbered.attempts.repeatable();
  for (auto* t : {&plain, &numbered}) {
    t->failed(error(Code::outcome_unknown));
    t->failed(error(Code::condition_failed));
  }
  EXPECT_EQ(plain.attempts.answer().code, Code::outcome_unknown);
  EXPECT_EQ(numbered.attempts.answer().code, Code::condition_failed);
  numbered.failed(error(Code::invalid));
  EXPECT_EQ(numbered.attempts.answer().code, Code::outcome_unknown);
}

TEST(Attempts, a_stale_route_refreshes_to_the_txnseq_it_was_told_and_goes_on_at_once) {
  Try t;
  Error e = error(Code::stale_route);
  e.txnseq = 17;
  const auto next = t.failed(e);
  EXPECT_TRUE(next.retry && next.refresh);
  EXPECT_EQ(next.at_least.value, 17u);
  EXPECT_EQ(next.delay, 0ns);
  EXPECT_GT(t.failed(e).delay, 0ns);  // a server that goes on saying so is not hammered
}

TEST(Attempts, a_leader_that_is_named_is_asked_at_once_and_then_not_hammered) {
  Try t;
  Error e = error(Code::not_leader);
  e.detail = "p2";
  const auto next = t.failed(e);
  EXPECT_TRUE(next.retry && next.elsewhere && !next.refresh);
  EXPECT_EQ(next.delay, 0ns);
  EXPECT_GT(t.failed(e).delay, 0ns);  // two that name each other
  Try nobody;
  const auto unknown = nobody.failed(error(Code::not_leader));
  EXPECT_TRUE(unknown.retry && unknown.refresh);
  EXPECT_GT(unknown.delay, 0ns);
}

TEST(Attempts, a_server_that_cannot_is_left_at_once_while_there_are_others) {
  for (const Code code : {Code::unavailable, Code::catching_up, Code::read_only}) {
    Try t;
    const auto next = t.failed(error(code, 50), t0, 2);
    EXPECT_TRUE(next.retry && next.elsewhere) << base::code_name(code);
    EXPECT_EQ(next.delay, 0ns);
    EXPECT_GE(t.failed(error(code, 50), t0, 0).delay, 50ms);
  }
}

TEST(Attempts, waits_as_long_as_it_was_told) {
  for (const Code code : {Code::no_quorum, Code::overloaded}) {
    Try t;
    const auto next = t.failed(error(code, 700), t0, 2);
    EXPECT_TRUE(next.retry);
    EXPECT_FALSE(next.elsewhere);
    EXPECT_EQ(next.delay, 700ms);
  }
}

TEST(Attempts, backs_off_up_to_a_bound_and_never_past_the_deadline) {
  Try t({.deadline = 5s});
  Instant now = t0;
  int tries = 0;
  for (Next next = t.failed(error(Code::unavailable), now); next.retry;
       next = t.failed(error(Code::unavailable), now)) {
    EXPECT_LE(next.delay, kBackoffMax);
    now = now + next.delay;
    ++tries;
  }
  EXPECT_LT(now, t0 + 5s);
  EXPECT_GT(now, t0 + 4s);
  EXPECT_LT(tries, 30);
  EXPECT_EQ(t.attempts.answer().code, Code::unavailable);
}

TEST(Attempts, an_unknown_outcome_is_repeated_with_the_version_it_was_told) {
  Try t;
  const auto version = model::Version::make(77, 1, {3}, {5});
  Error unknown = error(Code::outcome_unknown);
  unknown.detail = to_string(version);
  EXPECT_TRUE(t.failed(unknown).retry);
  EXPECT_EQ(t.attempts.version(), version);
  // A later reply that was lost changes nothing about which write it is.
  EXPECT_TRUE(t.failed(error(Code::outcome_unknown)).retry);
  EXPECT_EQ(t.attempts.version(), version);
}

TEST(Attempts, what_may_have_happened_is_never_reported_as_a_failure) {
  Try t;
  EXPECT_TRUE(t.failed(error(Code::outcome_unknown)).retry);
  EXPECT_FALSE(t.failed(error(Code::unavailable), t0 + 1h).retry);
  EXPECT_EQ(t.attempts.answer().code, Code::outcome_unknown);
  Try u;
  EXPECT_TRUE(u.failed(error(Code::outcome_unknown)).retry);
  EXPECT_FALSE(u.failed(error(Code::invalid)).retry);
  EXPECT_EQ(u.attempts.answer().code, Code::outcome_unknown);
}

TEST(Attempts, a_history_does_not_turn_one_write_into_two) {
  Try t({.repeat_unknown = false});
  EXPECT_FALSE(t.failed(error(Code::outcome_unknown)).retry);
  Try u({.repeat_unknown = false});
  Error told = error(Code::outcome_unknown);
  told.detail = to_string(model::Version::make(1, 1, {1}, {1}));
  EXPECT_TRUE(u.failed(told).retry);  // the same write again
}

TEST(Attempts, a_repeatable_write_is_repeated_until_the_deadline) {
  Try t({.deadline = 5s, .repeat_unknown = false});
  t.attempts.repeatable();
  Instant now = t0;
  int tries = 0;
  for (Next next = t.failed(error(Code::outcome_unknown), now); next.retry;
       next = t.failed(error(Code::outcome_unknown), now), ++tries)
    now = now + next.delay;
  EXPECT_GT(now, t0 + 4s);
  EXPECT_GT(tries, 5);
  EXPECT_EQ(t.attempts.answer().code, Code::outcome_unknown);
}

TEST(Attempts, a_number_that_came_too_late_is_told_as_it_is_unless_the_write_may_have_happened) {
  for (const Code code : {Code::series_old, Code::series_expired}) {
    Try t;
    t.attempts.repeatable();
    EXPECT_TRUE(t.failed(error(Code::unavailable)).retry);  // it did not happen
    EXPECT_FALSE(t.failed(error(code)).retry);
    EXPECT_EQ(t.attempts.answer().code, code);
    Try u;
    u.attempts.repeatable();
    EXPECT_TRUE(u.failed(error(Code::outcome_unknown)).retry);
    EXPECT_FALSE(u.failed(error(code)).retry);
    EXPECT_EQ(u.attempts.answer().code, Code::outcome_unknown);
  }
}

TEST(Attempts, what_ended_without_an_answer_may_have_happened_too) {
  Try t;
  EXPECT_EQ(t.attempts.answer(error(Code::invalid)).code, Code::invalid);
  EXPECT_TRUE(t.failed(error(Code::outcome_unknown)).retry);
  EXPECT_EQ(t.attempts.answer(error(Code::invalid)).code, Code::outcome_unknown);
}

// --- routes ---------------------------------------------------------------------------------------

model::Assignment at(std::string server, uint32_t slot, model::AssignmentState state) {
  model::Assignment a;
  a.server = {std::move(server)};
  a.slot = slot;
  a.state = state;
  return a;
}
std::string names(const std::vector<model::ServerId>& servers) {
  std::string all;
  for (const auto& s : servers) all += s.name + " ";
  return all;
}

using State = model::AssignmentState;

TEST(Route, reads_go_where_everything_is_and_writes_to_the_others_last) {
  model::Partition p;
  p.assignments = {at("p1", 0, State::leaving), at("p4", 0, State::initializing), at("p2", 1, State::available),
                   at("p3", 2, State::proposed)};
  const Health health;
  EXPECT_EQ(names(candidates(p, Purpose::read, 0, health, t0)), "p1 p2 ");
  EXPECT_EQ(names(candidates(p, Purpose::read, 7, health, t0)), "p2 p1 ");
  EXPECT_EQ(names(candidates(p, Purpose::write, 1, health, t0)), "p2 p1 p4 p3 ");
}

TEST(Route, a_server_that_failed_is_asked_last_until_it_answers_or_its_time_is_over) {
  model::Partition p;
  p.assignments = {at("p1", 0, State::available), at("p2", 1, State::available)};
  Health health;
  health.failed({"p1"}, t0);
  EXPECT_EQ(names(candidates(p, Purpose::read, 0, health, t0)), "p2 p1 ");
  EXPECT_EQ(names(candidates(p, Purpose::read, 0, health, t0 + kAvoidMin)), "p1 p2 ");
  health.failed({"p1"}, t0);
  EXPECT_TRUE(health.avoided({"p1"}, t0 + kAvoidMin));  // longer the second time
  health.answered({"p1"});
  EXPECT_FALSE(health.avoided({"p1"}, t0));
}

}  // namespace
}  // namespace cantle::client

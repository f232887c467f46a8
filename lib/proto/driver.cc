#include "lib/proto/driver.h"

#include <algorithm>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto {

using namespace driver;

Effects DriverBase::step(const Input& input) {
  Effects out;
  if (phase_ == Phase::ended) return out;
  std::visit([&](const auto& in) { on(in, out); }, input);
  return out;
}

DriverBase::Decision DriverBase::wait(std::string why, std::vector<model::ServerId> for_whom) {
  Decision d;
  d.kind = Decision::Kind::wait;
  d.waiting = {std::move(why), std::move(for_whom)};
  return d;
}

DriverBase::Decision DriverBase::wait_briefly(std::string why, std::vector<model::ServerId> for_whom) {
  auto d = wait(std::move(why), std::move(for_whom));
  d.look_in = kDriverLookSoon;
  return d;
}

DriverBase::Decision DriverBase::submit(model::Operation operation) {
  Decision d;
  d.kind = Decision::Kind::submit;
  d.submit.operation = std::move(operation);
  return d;
}

DriverBase::Decision DriverBase::end(Outcome outcome, std::string reason) {
  Decision d;
  d.kind = Decision::Kind::end;
  d.end = {outcome, std::move(reason)};
  return d;
}

void DriverBase::on(const Begin& in, Effects& out) {
  if (phase_ == Phase::idle) look(in.now, out);
}

void DriverBase::on(const Tick& in, Effects& out) {
  const bool unanswered = phase_ != Phase::idle && in.now - asked_at_ >= kDriverAnswerWithin;
  // An unanswered change may have been committed: look, never assume (S38).
  if (unanswered || (phase_ == Phase::idle && in.now >= next_look_)) look(in.now, out);
}

void DriverBase::on(const Hint& in, Effects& out) {
  if (phase_ != Phase::idle) {
    hinted_ = true;
  } else if (backoff_.count() == 0) {  // not while something refuses us: a bell must not make a storm
    look(in.now, out);
  }
}

void DriverBase::on(const AbortAsked& in, Effects& out) {
  if (abort_asked_) return;
  abort_asked_ = true;
  abort_reason_ = in.reason;
  if (phase_ == Phase::idle)
    look(in.now, out);
  else
    hinted_ = true;
}

void DriverBase::on(const Looked& in, Effects& out) {
  if (phase_ != Phase::looking || in.number != number_) return;
  phase_ = Phase::idle;
  if (!in.world || !in.world->map) {
    retry_later(in.now);
    say({in.world ? "the map cannot be read" : "the map cannot be read: " + in.world.error().text, {}}, out);
    return;
  }
  if (in.world->map->dropped) return act(in.now, end(Outcome::failed, "the table was dropped"), out);
  act(in.now, decide(*in.world), out);
}

void DriverBase::on(const Changed& in, Effects& out) {
  if (phase_ != Phase::changing || in.number != number_) return;
  phase_ = Phase::idle;
  if (in.status) {
    // Committed, and then wanted again: the map does not keep what it says. Once more, but not as fast as can be.
    if (made_ == submitted_) {
      refusal_ = "it was committed, and the map does not show it";
      return retry_later(in.now);
    }
    made_ = submitted_;
    backoff_ = {};
    refusal_.clear();
    return look(in.now, out);
  }
  refusal_ = in.status.error().text;
  switch (in.status.error().code) {
    case base::Code::denied:
    case base::Code::no_such_table: return act(in.now, end(Outcome::failed, base::to_string(in.status.error())), out);
    case base::Code::outcome_unknown:  // S27: it may have happened: look at once
      if (backoff_.count() == 0) {
        retry_later(in.now);
        return look(in.now, out);
      }
      break;
    default: break;
  }
  retry_later(in.now);
}

void DriverBase::look(base::Instant now, Effects& out) {
  phase_ = Phase::looking;
  hinted_ = false;
  asked_at_ = now;
  next_look_ = now + kDriverLookEvery;
  out.emplace_back(Look{++number_});
}

void DriverBase::act(base::Instant now, Decision decision, Effects& out) {
  using Kind = Decision::Kind;
  if (decision.kind == Kind::end) {
    phase_ = Phase::ended;
    out.emplace_back(std::move(decision.end));
    return;
  }
  if (decision.kind == Kind::submit) {
    // After a refusal the same step is tried again only when its time has come.
    phase_ = Phase::changing;
    asked_at_ = now;
    decision.submit.number = ++number_;
    std::string why = "committing " + std::string(model::operation_name(decision.submit.operation));
    if (!refusal_.empty()) why += "; last answer: " + refusal_;
    say({std::move(why), {}}, out);
    submitted_ = decision.submit.operation;
    out.emplace_back(std::move(decision.submit));
    return;
  }
  backoff_ = {};
  refusal_.clear();
  next_look_ = now + decision.look_in;
  say(std::move(decision.waiting), out);
  if (hinted_) look(now, out);
}

void DriverBase::say(Waiting waiting, Effects& out) {
  if (waiting == waiting_) return;
  waiting_ = waiting;
  out.emplace_back(std::move(waiting));
}

void DriverBase::retry_later(base::Instant now) {
  backoff_ = backoff_.count() == 0 ? kDriverRetryFirst : std::min(backoff_ * 2, kDriverRetryMost);
  next_look_ = now + backoff_;
}

}  // namespace cantle::proto

#include "lib/proto/quorum_judge.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/testing.h"

namespace cantle::proto::quorum {

using base::Code;
using model::Lsn;
using model::WriteKind;

namespace {

size_t cost(std::string_view key, size_t value) { return kPendingCost + 2 * key.size() + value; }

// `detail` says what is there, for who wants to try again.
base::Error condition_failed(std::string text, const std::optional<HeldValue>& held) {
  base::Error e(Code::condition_failed, std::move(text));
  if (held) e.detail = model::to_string(held->version);
  return e;
}

base::Error refused_before() {
  return {Code::condition_failed, "the condition did not hold when this was judged, and that stands"};
}

}  // namespace

Verdict Judge::judge(const Write& write, model::Epoch epoch, Lsn first) {
  CHECK(!write.ops.empty() && (pending_.empty() || first > pending_.back().lsn));
  if (epoch != epoch_) {
    CHECK(pending_.empty());
    epoch_ = epoch;
    from_ = Lsn{first.value - 1};
  }
  if (shown_ < from_ && !MUTANT("judge_before_the_store_shows")) {
    base::Error behind(Code::overloaded, "the store is behind what is committed");
    behind.retry_after_ms = kPendingRetryMs;
    return Refusal{std::move(behind), {}};
  }
  if (auto known = judge_series(write)) return std::move(*known);
  if (write.kind == WriteKind::write) return add(write, write.ops, model::ResultKind::place, epoch, first);
  CHECK(write.ops.size() == 1);
  const auto key = look(write.ops[0].key);
  if (!key) return Refusal{key.error(), {}};
  switch (write.kind) {
    case WriteKind::append: return judge_append(write, *key, epoch, first);
    case WriteKind::incr: return judge_incr(write, *key, epoch, first);
    case WriteKind::cas:
    case WriteKind::write: break;
  }
  return judge_cas(write, *key, epoch, first);
}

base::Result<Judge::Key> Judge::look(std::string_view key) const {
  Key out;
  if (const auto it = newest_.find(key); it != newest_.end() && !MUTANT("judge_committed_only")) {
    const auto& p = at(it->second);
    out.after = p.lsn;
    if (p.record.op == model::Op::put) out.held = HeldValue{p.record.version, p.record.value};
    return out;
  }
  TRY_ASSIGN(out.held, state_.value(key));
  return out;
}

// Nothing: it is new.
std::optional<Verdict> Judge::judge_series(const Write& write) {
  if (write.client == 0) return std::nullopt;
  bool whole = true;
  model::SeriesWindow asked;
  auto* window = windows_.find(write.client);
  if (window == nullptr) {
    auto known = state_.series(write.client);
    if (!known) return Refusal{known.error(), {}};
    whole = known->whole;
    if (whole)
      window = windows_.keep(write.client, std::move(known->window));
    else
      window = &(asked = std::move(known->window));
  }
  window->expire(state_.log_time());
  const auto old = [&] {
    return base::Error(Code::series_old, "series " + std::to_string(write.series) + " is more than " +
                                             std::to_string(model::kSeriesWindow - 1) +
                                             " below the client's highest: its answer is not remembered");
  };
  if (model::below_window(write.series, window->high())) return Refusal{old(), {}};
  if (const auto client = series_.find(write.client); client != series_.end()) {
    const auto& numbers = client->second;
    const auto high = numbers.rbegin();
    if (model::below_window(write.series, high->first)) return Refusal{old(), at(high->second).lsn};
    if (const auto it = numbers.find(write.series); it != numbers.end()) {
      const auto& p = at(it->second);
      if (p.outcome.kind == model::ResultKind::refused) return Refusal{refused_before(), p.lsn};
      return Repeat{p.outcome, MUTANT("repeat_answers_early") ? Lsn{} : p.lsn};
    }
  }
  if (const auto* entry = window->find(write.series)) {
    if (entry->outcome.kind == model::ResultKind::refused) return Refusal{refused_before(), {}};
    return Repeat{entry->outcome, {}};
  }
  if (write.age_ms > model::kSeriesAgeMaxMs)
    return Refusal{base::Error(Code::series_expired, "first sent " + std::to_string(write.age_ms) +
                                                         " ms ago: if it was written, that may be forgotten"),
                   {}};
  if (!whole && write.age_ms > 0)
    return Refusal{base::Error(Code::series_expired,
                               "sent before, and this leader's copy was filled without what it was answered"),
                   {}};
  return std::nullopt;
}

Verdict Judge::judge_cas(const Write& write, const Key& key, model::Epoch epoch, Lsn first) {
  const auto& e = write.expect;
  const auto after = MUTANT("refusal_does_not_wait") ? Lsn{} : key.after;
  const auto failed = [&](const char* text) -> Verdict {
    auto error = condition_failed(text, key.held);
    if (write.client != 0 && write.age_ms > 0 && !MUTANT("refusal_not_recorded"))
      return refuse(write, std::move(error), epoch, first);
    return Refusal{std::move(error), after};
  };
  if (e.absent && key.held) return failed("the key is there");
  if (!e.absent && !key.held) return failed("the key is not there");
  if (e.version && key.held->version != *e.version) return failed("the key has another version");
  if (e.value && key.held->value != *e.value) return failed("the key has another value");
  return add(write, write.ops, model::ResultKind::place, epoch, first);
}

Verdict Judge::judge_append(const Write& write, const Key& key, model::Epoch epoch, Lsn first) {
  const auto& op = write.ops[0];
  std::string value(key.held ? key.held->value : std::string_view());
  if (value.size() + op.value.size() > model::kValueMax)
    return Refusal{base::Error(Code::too_large, "with the " + std::to_string(value.size()) +
                                                    " bytes that are there, the value would have " +
                                                    std::to_string(value.size() + op.value.size()) + "; the limit is " +
                                                    std::to_string(model::kValueMax)),
                   key.after};
  value += op.value;
  const model::WriteOp put{model::Op::put, op.key, value};
  return add(write, {&put, 1}, model::ResultKind::length, epoch, first);
}

Verdict Judge::judge_incr(const Write& write, const Key& key, model::Epoch epoch, Lsn first) {
  const auto now = key.held ? model::parse_number(key.held->value) : base::Result<int64_t>(0);
  const auto invalid = [&](const char* text) { return Refusal{base::Error(Code::invalid, text), key.after}; };
  if (!now) return invalid("the value is not a decimal number of 64 bits with a sign");
  int64_t sum = 0;
  if (__builtin_add_overflow(*now, write.by, &sum)) return invalid("the sum does not fit 64 bits with a sign");
  const auto value = std::to_string(sum);
  const model::WriteOp put{model::Op::put, write.ops[0].key, value};
  return add(write, {&put, 1}, model::ResultKind::number, epoch, first);
}

Verdict Judge::add(const Write& write, std::span<const model::WriteOp> ops, model::ResultKind kind, model::Epoch epoch,
                   Lsn first) {
  size_t bytes = 0;
  for (const auto& op : ops) bytes += cost(op.key, op.value.size());
  if (auto refusal = full(bytes)) return std::move(*refusal);
  NewWrite out;
  Lsn lsn = first;
  for (const auto& op : ops) {
    model::Record r;
    r.op = op.op;
    r.key = op.key;
    r.value = op.value;
    r.version = model::quorum_version(epoch, lsn);
    if (&op == &ops.back() && !MUTANT("series_not_recorded")) {  // of a batch, the last one has it (lib/model/series.h)
      r.client = write.client;
      r.series = write.series;
      r.flags = model::result_flags(kind);
    }
    note(std::move(r), lsn);
    lsn = lsn.next();
  }
  bytes_ += bytes;
  out.records.reserve(ops.size());
  for (size_t i = pending_.size() - ops.size(); i < pending_.size(); i++) {
    const auto& r = pending_[i].record;
    out.records.push_back({r.op, r.key, r.value, r.version, r.client, r.series, r.flags});
  }
  out.outcome = pending_.back().outcome;
  return out;
}

// Its condition may come to hold, and what was sent before may still come.
Verdict Judge::refuse(const Write& write, base::Error error, model::Epoch epoch, Lsn first) {
  const auto bytes = cost(write.ops[0].key, 0);
  if (auto refusal = full(bytes)) return std::move(*refusal);
  model::Record r;
  r.op = model::Op::none;
  r.key = write.ops[0].key;
  r.version = model::quorum_version(epoch, first);
  r.client = write.client;
  r.series = write.series;
  r.flags = model::result_flags(model::ResultKind::refused);
  note(std::move(r), first);
  bytes_ += bytes;
  const auto& p = pending_.back();
  NewWrite out;
  out.records.push_back(
      {p.record.op, p.record.key, {}, p.record.version, p.record.client, p.record.series, p.record.flags});
  out.outcome = p.outcome;
  out.refused = std::move(error);
  return out;
}

std::optional<Refusal> Judge::full(size_t bytes) const {
  if (pending_.empty() || bytes_ + bytes <= kPendingMax) return std::nullopt;
  base::Error full(Code::overloaded, "too much is written and not committed");
  full.retry_after_ms = kPendingRetryMs;
  return Refusal{std::move(full), {}};
}

void Judge::note(model::Record record, Lsn lsn) {
  const uint64_t number = front_ + pending_.size();
  Pending p;
  p.lsn = lsn;
  const auto outcome = model::outcome_of(
      {record.op, record.key, record.value, record.version, record.client, record.series, record.flags});
  CHECK(outcome);
  p.outcome = *outcome;
  if (record.op != model::Op::none) {
    const auto [newest, fresh] = newest_.try_emplace(record.key, number);
    if (!fresh) p.older = std::exchange(newest->second, number);
  }
  if (record.client != 0) series_[record.client][record.series] = number;
  p.record = std::move(record);
  pending_.push_back(std::move(p));
}

void Judge::forget_series(const Pending& p, uint64_t number) {
  const auto client = p.record.client == 0 ? series_.end() : series_.find(p.record.client);
  if (client == series_.end()) return;
  const auto it = client->second.find(p.record.series);
  if (it != client->second.end() && it->second == number) client->second.erase(it);
  if (client->second.empty()) series_.erase(client);
}

// The store shows it from now on. When its block came is known by the log time before and after it.
void Judge::follow(const Pending& p, uint64_t before_ms) {
  if (p.record.client == 0 || MUTANT("windows_not_followed")) return;
  if (shown_ms_ - before_ms > kWindowSlackMs)
    windows_.forget(p.record.client);
  else
    windows_.add(p.record.client, {p.record.series, p.outcome, shown_ms_});
}

void Judge::cut(Lsn first) {
  if (MUTANT("judge_not_cut")) return;
  while (!pending_.empty() && pending_.back().lsn >= first) {
    const auto& p = pending_.back();
    const uint64_t number = front_ + pending_.size() - 1;
    if (p.record.op != model::Op::none) {
      const auto newest = newest_.find(p.record.key);
      CHECK(newest != newest_.end() && newest->second == number);
      if (p.older && *p.older >= front_)
        newest->second = *p.older;
      else
        newest_.erase(newest);
    }
    forget_series(p, number);
    bytes_ -= cost(p.record.key, p.record.value.size());
    pending_.pop_back();
  }
}

void Judge::committed(Lsn lsn) {
  shown_ = std::max(shown_, lsn);
  const uint64_t before_ms = std::exchange(shown_ms_, state_.log_time());
  while (!pending_.empty() && pending_.front().lsn <= lsn) {
    const auto& p = pending_.front();
    if (const auto newest = newest_.find(p.record.key); newest != newest_.end() && newest->second == front_)
      newest_.erase(newest);
    forget_series(p, front_);
    follow(p, before_ms);
    bytes_ -= cost(p.record.key, p.record.value.size());
    pending_.pop_front();
    front_++;
  }
}

void Judge::reset() {
  if (MUTANT("judge_not_reset")) return;
  epoch_ = {};
  front_ += pending_.size();
  pending_.clear();
  newest_.clear();
  series_.clear();
  if (!MUTANT("windows_not_reset")) windows_.clear();
  bytes_ = 0;
}

}  // namespace cantle::proto::quorum

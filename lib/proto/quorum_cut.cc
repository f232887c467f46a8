#include "lib/proto/quorum_cut.h"

#include <algorithm>

#include "lib/base/testing.h"

namespace cantle::proto::quorum {

using base::Instant;
using model::BlockKind;
using model::CutReport;

namespace {

constexpr Instant kNever{base::Duration::max()};

template <class Is>
bool majority_of_each(const std::vector<std::vector<model::ServerId>>& children, Is is) {
  return std::all_of(children.begin(), children.end(), [&](const auto& servers) {
    const auto those = std::count_if(servers.begin(), servers.end(), is);
    return static_cast<size_t>(those) >= model::majority(servers.size());
  });
}

bool majority_joined(const Leader& leader, const std::vector<std::vector<model::ServerId>>& children) {
  return majority_of_each(children, [&](const model::ServerId& s) { return leader.has_joined(s); });
}

bool on_majority(const CutReport& report, const ReshapeSeen& state) {
  const auto& has = report.holders;
  return majority_of_each(state.children, [&](const model::ServerId& s) {
    return std::find(has.begin(), has.end(), s) != has.end() || MUTANT("cut_on_few");
  });
}

void add_holders(CutReport& report, const std::vector<model::ServerId>& more) {
  auto& has = report.holders;
  has.insert(has.end(), more.begin(), more.end());
  std::sort(has.begin(), has.end());
  has.erase(std::unique(has.begin(), has.end()), has.end());
}

}  // namespace

ReshapeSeen reshape_of(const model::Metadata& map, const model::PartitionId& partition) {
  ReshapeSeen seen;
  const auto* p = map.dropped ? nullptr : map.find(partition);
  if (p == nullptr) return seen;
  seen.there = true;
  const auto servers_of = [](const model::Child& child) {
    std::vector<model::ServerId> servers;
    for (const auto& a : child.assignments) servers.push_back(a.server);
    return servers;
  };
  if (p->merge) {
    seen.attempt = p->merge->attempt;
    seen.may_cut = true;
    seen.children = {servers_of(p->merge->target)};
    seen.merge = MergePair{p->merge->low, p->merge->high};
  }
  if (!p->split) return seen;
  seen.attempt = p->split->attempt;
  seen.may_cut = p->split->phase == model::SplitPhase::filling;
  seen.children = {servers_of(p->split->low), servers_of(p->split->high)};
  return seen;
}

void Cut::read(Instant now, uint64_t number, const base::Result<ReshapeSeen>& state) {
  if (!read_.out || number != read_.number) return;
  read_.out = false;
  if (state) answer_ = Answer{*state, read_.sent, now};
}

void Cut::ask(Instant now, Effects& out) {
  if (now < ask_at_ || (read_.out && now < read_.sent + kReadReshapeMost)) return;
  read_ = {read_.number + 1, now, true};
  ask_at_ = now + kReadReshapeEvery;
  out.emplace_back(ReadReshape{read_.number});
}

std::optional<Cut::Report> Cut::think(Instant now, Leader* leader, const Log& log, const Report& reported,
                                      Effects& out) {
  next_ = kNever;
  if (leader == nullptr || !leader->serving()) return std::nullopt;
  // What an earlier leadership asked says nothing in this one.
  if (leader->epoch() != epoch_) {
    epoch_ = leader->epoch();
    open_ = over_ = {};
    answer_.reset();
    read_.out = false;
  }
  if (leader->cutting()) return std::nullopt;
  const auto cut = log.open_cut();
  if (!cut) {
    open_ = over_ = {};
    if (seen_.may_cut) {
      next_ = now + kReadReshapeEvery;
      consider_cut(now, *leader, out);
    }
    return Report();
  }
  next_ = now + kReadReshapeEvery;
  return care(now, *leader, *cut, log.committed_cut().has_value(), reported, out);
}

// The newest that is known of that attempt here.
const ReshapeSeen* Cut::known(const model::AttemptId& attempt) const {
  if (answer_ && answer_->state.attempt == attempt) return &answer_->state;
  return seen_.attempt == attempt ? &seen_ : nullptr;
}

// Of a split it is left as it is, once it names enough: whoever finalizes names the version of the government.
std::optional<Cut::Report> Cut::report(const Leader& leader, const model::CutMark& cut, const Report& reported) const {
  const auto* state = known(cut.attempt);
  if (state == nullptr) return std::nullopt;  // whose cut it is is being asked
  CutReport say{cut.attempt, cut.at};
  if (reported && reported->attempt == say.attempt && reported->at == say.at) say.holders = reported->holders;
  if (state->merge || say.holders.empty() || !on_majority(say, *state)) add_holders(say, leader.holders(cut.at.lsn));
  if (!on_majority(say, *state)) return std::nullopt;
  return say;
}

void Cut::consider_cut(Instant now, Leader& leader, Effects& out) {
  if (!majority_joined(leader, seen_.children)) return;
  const bool fresh = answer_ && now < answer_->sent + kCutFresh && answer_->state.may_cut &&
                     answer_->state.attempt == seen_.attempt && majority_joined(leader, answer_->state.children);
  if (!fresh) return ask(now, out);
  out.emplace_back(Say{base::Level::notice, "cut", "attempt " + to_string(seen_.attempt)});
  answer_.reset();
  leader.cut(now, BlockKind::cut, seen_.attempt, out);
}

std::optional<Cut::Report> Cut::care(Instant now, Leader& leader, const model::CutMark& cut, bool committed,
                                     const Report& reported, Effects& out) {
  if (open_ != cut.attempt) {  // only what is asked for from now on is about it
    open_ = cut.attempt;
    over_ = {};
    answer_.reset();
    read_.out = false;
    ask_at_ = now;
    abort_at_ = now + kAbortAfter;
  }
  if (answer_ && answer_->state.there && answer_->state.attempt != cut.attempt) over_ = cut.attempt;
  if (MUTANT("uncut_by_silence") && now >= abort_at_) over_ = cut.attempt;
  if (over_ == cut.attempt) {
    if (reported) return Report();
    out.emplace_back(Say{base::Level::notice, "uncut", "attempt " + to_string(cut.attempt) + " is over"});
    leader.cut(now, BlockKind::uncut, cut.attempt, out);
    return std::nullopt;
  }
  ask(now, out);
  if (now >= abort_at_) {
    abort_at_ = now + kAbortAfter;
    const auto* state = known(cut.attempt);
    out.emplace_back(AskAbort{cut.attempt, state == nullptr ? std::nullopt : state->merge});
  }
  if (!committed) return std::nullopt;
  return report(leader, cut, reported);
}

}  // namespace cantle::proto::quorum

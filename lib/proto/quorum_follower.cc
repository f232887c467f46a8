#include "lib/proto/quorum_follower.h"

#include <algorithm>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto::quorum {

using base::Code;
using base::Instant;
using model::BlockHeader;
using model::LogPoint;
using model::Lsn;

namespace {

tl::unexpected<base::Error> passed() { return base::fail(Code::cancelled, "a later message has taken its place"); }

}  // namespace

bool Follower::follows(model::Epoch epoch, uint64_t generation) const {
  return leader_ && epoch == epoch_ && generation >= generation_;
}

// It was started again, or left, or the open did not come: the leader is told to begin anew.
void Follower::ask_to_open(const model::Envelope& from, model::Epoch epoch, uint64_t generation, Effects& out) {
  if (leader_ && epoch <= epoch_) return;  // a former pipe's
  out.emplace_back(SendAck{.to = {from.from, from.from_assignment},
                           .epoch = epoch,
                           .generation = generation,
                           .refused = {},
                           .gap = true,
                           .error = "the pipe is not open",
                           .durable = {},
                           .commit = log_.commit()});
}

void Follower::open(Instant now, CallId call, const model::PipeOpen& m, Effects& out) {
  if (m.epoch < epoch_ || (m.epoch == epoch_ && m.generation <= generation_)) {
    out.emplace_back(AnswerOpen{call, passed()});
    return;
  }
  if (opening_) out.emplace_back(AnswerOpen{*opening_, passed()});
  drop_early(out);
  leader_ = model::Hop{m.envelope.from, m.envelope.from_assignment};
  if (m.epoch != epoch_) faulted_ = false;  // what another leader has may be another log
  epoch_ = m.epoch;
  generation_ = latest_ = m.generation;
  agreed_ = log_.commit();
  told_commit_ = m.commit;
  gap_next_ = now;
  opening_ = call;
  out.emplace_back(Accepted{*leader_, epoch_});
  answer_when_quiet(out);
}

void Follower::answer_when_quiet(Effects& out) {
  if (!opening_ || cutting_ || (!log_.quiet() && !MUTANT("open_before_sync"))) return;
  model::PipeOpenReply reply;
  reply.end = log_.end();
  reply.commit = log_.commit();
  reply.epochs = log_.epochs();
  reply.faulted = faulted_;
  out.emplace_back(AnswerOpen{*std::exchange(opening_, std::nullopt), std::move(reply)});
}

void Follower::cut(Instant, CallId call, const model::PipeCut& m, Effects& out) {
  // A cut that is late would cut what was acknowledged since: it acts only on the very log that the leader saw.
  if (!follows(m.epoch, m.generation) || m.generation != generation_ || opening_ || cutting_ || !log_.quiet() ||
      m.end != log_.end()) {
    out.emplace_back(AnswerOpen{call, passed()});
    return;
  }
  if (m.keep.lsn < log_.commit()) {
    faulted_ = true;
    out.emplace_back(Faulted{"the leader of epoch " + std::to_string(epoch_.value) + " would have what is behind LSN " +
                             std::to_string(m.keep.lsn.value) + " cut, and all up to LSN " +
                             std::to_string(log_.commit().value) + " is committed here"});
  } else if (m.keep.lsn < log_.end().lsn) {
    cutting_ = true;
    log_.truncate(m.keep);
    agreed_ = m.keep.lsn;
    out.emplace_back(Truncate{m.keep});
  }
  opening_ = call;
  answer_when_quiet(out);
}

// What is cut is committed nowhere: the one that lends has a block of a later epoch, so that what had been committed
// before that epoch is in its log, and what of it was not will never be, as this replica has promised more since.
void Follower::lent(const Lent& what, Effects& out) {
  const bool ours = !leader_ && !opening_ && !cutting_ && log_.quiet() && what.keep.lsn <= log_.end().lsn &&
                    model::token_of(what.end) > model::token_of(log_.end());
  if (ours && what.keep.lsn < log_.commit()) {
    out.emplace_back(Faulted{"a longer log has nothing in common with this one behind LSN " +
                             std::to_string(what.keep.lsn.value) + ", and all up to LSN " +
                             std::to_string(log_.commit().value) + " is committed here"});
  } else if (ours && what.keep.lsn < log_.end().lsn) {
    cutting_ = true;
    log_.truncate(what.keep);
    out.emplace_back(Truncate{what.keep});
  } else if (ours) {
    for (const auto& b : what.blocks) take({b.call, b.header, 0, b.attempt}, out);
    return;
  }
  for (const auto& b : what.blocks) out.emplace_back(Release{b.call});
}

void Follower::truncated(const base::Status& status, Effects& out) {
  if (!cutting_) return;
  cutting_ = false;
  if (!status) {
    faulted_ = true;
    out.emplace_back(Faulted{"the log could not be cut: " + status.error().text});
  }
  answer_when_quiet(out);
}

void Follower::block(Instant now, CallId call, const BlockHeader& h, const model::PipeBlock& m, Effects& out,
                     model::AttemptId attempt) {
  if (!follows(m.epoch, m.generation)) {
    ask_to_open(m.envelope, m.epoch, m.generation, out);
    out.emplace_back(Release{call});
    return;
  }
  const bool urgent = m.urgent > 0;
  if (!m.route.empty())
    out.emplace_back(Forward{call, m.route.front(), {m.route.begin() + 1, m.route.end()}, m.urgent - (urgent ? 1 : 0)});
  latest_ = std::max(latest_, m.generation);
  told_commit_ = std::max(told_commit_, m.commit);
  if (opening_ || cutting_ || faulted_) {
    out.emplace_back(Release{call});
    return;
  }
  const auto end = point_of(h);
  if (h.last() <= log_.end().lsn) {
    // Here already, perhaps: the checksum tells (it covers all that is before it, by the chain).
    const auto ours = log_.recent(h.last());
    out.emplace_back(Release{call});
    if (ours && *ours == end) {
      agreed_ = std::max(agreed_, end.lsn);
      learn(out);
      if (end.lsn <= log_.durable().lsn) ack(m.generation, end, false, "", out);
      return;
    }
    if (ours) gap(now, m.generation, out);  // another block there: the leader has to look where the logs part
    return;
  }
  if (h.first == log_.end().lsn.next()) {
    take({call, h, m.generation, attempt, urgent}, out);
    take_early(out);
    learn(out);
    return;
  }
  if (h.first > log_.end().lsn && early_.size() < kEarlyMax &&
      early_.emplace(h.first, Early{call, h, m.generation, attempt, urgent}).second) {
    gap(now, m.generation, out);
    return;
  }
  out.emplace_back(Release{call});
  gap(now, m.generation, out);
}

void Follower::take(const Early& b, Effects& out) {
  const LogPoint before = before_of(b.header);
  if (before != log_.end()) {
    out.emplace_back(Release{b.call});
    ack(b.generation, log_.durable().lsn <= agreed_ ? log_.durable() : LogPoint{}, true, "", out);
    return;
  }
  std::optional<model::CutMark> mark;
  if (model::is_cut_mark(b.header.kind))
    mark = model::CutMark{point_of(b.header), b.attempt, b.header.kind == model::BlockKind::cut};
  log_.append(b.header.first, point_of(b.header), mark);
  agreed_ = log_.end().lsn;
  out.emplace_back(Take{b.call, b.urgent});
  if (MUTANT("ack_before_sync_at_follower")) ack(b.generation, log_.end(), false, "", out);
}

// What came before its turn.
void Follower::take_early(Effects& out) {
  while (!early_.empty()) {
    const auto it = early_.begin();
    if (it->first > log_.end().lsn.next()) return;
    const Early b = it->second;
    early_.erase(it);
    if (b.header.first == log_.end().lsn.next())
      take(b, out);
    else
      out.emplace_back(Release{b.call});
  }
}

void Follower::drop_early(Effects& out) {
  for (const auto& [first, b] : early_) out.emplace_back(Release{b.call});
  early_.clear();
}

void Follower::take_failed(const LogPoint& end, const base::Error& error, Effects& out) {
  log_.retract(end);
  agreed_ = std::min(agreed_, log_.end().lsn);
  drop_early(out);
  ack(latest_, {}, false, error.text.empty() ? "the store refuses" : error.text, out);
}

void Follower::durable(Effects& out) {
  if (opening_) return answer_when_quiet(out);
  if (!leader_ || cutting_ || faulted_) return;
  if (log_.durable().lsn > agreed_) return;  // of another leader, or our own when we led
  learn(out);
  ack(latest_, log_.durable(), false, "", out);
}

void Follower::commit(Instant now, const model::PipeCommit& m, Effects& out) {
  if (!follows(m.epoch, m.generation)) return ask_to_open(m.envelope, m.epoch, m.generation, out);
  if (opening_ || cutting_ || faulted_) return;
  told_commit_ = std::max(told_commit_, m.commit);
  if (m.agreed.lsn > agreed_ && log_.recent(m.agreed.lsn) == m.agreed) agreed_ = m.agreed.lsn;
  learn(out);
  if (m.commit > agreed_) return gap(now, m.generation, out);
  if (!m.quiet) ack(m.generation, log_.durable().lsn <= agreed_ ? log_.durable() : LogPoint{}, false, "", out);
}

void Follower::learn(Effects& out) {
  const Lsn commit = std::min({told_commit_, agreed_, log_.durable().lsn});
  if (log_.commit(commit)) out.emplace_back(Commit{commit});
}

void Follower::ack(uint64_t generation, const LogPoint& at, bool missing, std::string error, Effects& out) {
  if (!leader_) return;
  out.emplace_back(SendAck{.to = *leader_,
                           .epoch = epoch_,
                           .generation = generation,
                           .refused = {},
                           .gap = missing,
                           .error = std::move(error),
                           .durable = at,
                           .commit = log_.commit()});
}

void Follower::gap(Instant now, uint64_t generation, Effects& out) {
  if (now < gap_next_) return;
  gap_next_ = now + kGapEvery;
  ack(generation, log_.durable().lsn <= agreed_ ? log_.durable() : LogPoint{}, true, "", out);
}

void Follower::leave(Effects& out) {
  if (opening_) out.emplace_back(AnswerOpen{*std::exchange(opening_, std::nullopt), passed()});
  drop_early(out);
  leader_.reset();
  // epoch_ and generation_ stay: what they fence is still fenced.
}

}  // namespace cantle::proto::quorum

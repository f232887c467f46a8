// Leader: requests, blocks, commit. The pipes to the other replicas are in quorum_pipes.cc.
#include "lib/proto/quorum_leader.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/testing.h"

namespace cantle::proto::quorum {

using base::Code;
using base::Instant;
using model::Lsn;

namespace {

constexpr base::Duration kExpireEvery = std::chrono::milliseconds(20);

base::Error no_quorum(std::string text) {
  base::Error e(Code::no_quorum, std::move(text));
  e.retry_after_ms = kNoQuorumRetryMs;
  return e;
}

base::Error unknown(std::string_view why) {
  return {Code::outcome_unknown, "the write is in the log and may be committed yet: " + std::string(why)};
}

}  // namespace

Leader::Leader(model::Hop self, model::Epoch epoch, model::Voters voters, Log& log, Gatherer& gatherer,
               Pipeline pipeline, KeptRoom* room)
    : self_(std::move(self)),
      epoch_(epoch),
      voters_(std::move(voters)),
      log_(log),
      gatherer_(gatherer),
      pipeline_(pipeline),
      room_(room) {}

Leader::~Leader() { set_kept_bytes(0); }

void Leader::set_kept_bytes(size_t bytes) {
  if (room_ != nullptr) {
    room_->bytes = room_->bytes - kept_bytes_ + bytes;
    room_->leaders = room_->leaders - (kept_bytes_ > 0 ? 1 : 0) + (bytes > 0 ? 1 : 0);
  }
  kept_bytes_ = bytes;
}

void Leader::begin(Instant now, Effects& out) {
  now_ = now;
  Gathered start;
  start.id = ++last_batch_;
  start.first = log_.end().lsn.next();
  start.records = 1;
  starting_ = start.id;
  out.emplace_back(Build{start.id, model::BlockKind::epoch_start, epoch_, start.first, log_.commit()});
  building_.emplace(start.id, std::move(start));
  arrange_peers(out);
}

// --- requests ------------------------------------------------------------------------------------

Lsn Leader::next_lsn() const {
  if (building_.empty()) return log_.end().lsn.next();
  const auto& last = building_.rbegin()->second;
  return Lsn{last.first.value + last.records};
}

bool Leader::takes_writes() const {
  return serving_ && !stopped_ && !parked() && log_.commit() >= uncut_ && has_majority() &&
         uncommitted_bytes_ < kUncommittedMax && uncommitted_.size() < kUncommittedBlocksMax;
}

void Leader::write(Instant now, RequestId request, size_t bytes, Instant deadline, Effects& out) {
  now_ = now;
  const Waiting w{request, bytes, deadline};
  if (takes_writes() && waiting_.empty()) return gather(w, out);
  if (waiting_.size() >= kWaitingMax || waiting_bytes_ + bytes > kWaitingBytesMax) {
    base::Error full(Code::overloaded, "too many writes wait for a majority of the replicas");
    full.retry_after_ms = kNoQuorumRetryMs;
    out.emplace_back(Reply{request, base::fail(std::move(full))});
    return;
  }
  waiting_bytes_ += bytes;
  waiting_.push_back(w);
}

void Leader::gather(const Waiting& w, Effects& out) {
  if (batch_ && batch_->bytes + w.bytes > kBlockGather) close_batch(out);
  const BatchId id = batch_ ? batch_->id : last_batch_ + 1;
  const Lsn first = batch_ ? Lsn{batch_->first.value + batch_->records} : next_lsn();
  const auto judged = gatherer_.gather(w.id, id, epoch_, first);
  if (judged.records == 0) return answer_later({w.id, judged.after, w.deadline, judged.may_happen}, out);
  if (!batch_) {
    last_batch_ = id;
    batch_.emplace();
    batch_->id = id;
    batch_->first = first;
    batch_->since = now_;
  }
  batch_->records += judged.records;
  batch_->bytes += judged.bytes;
  batch_->requests.push_back({w.id, Lsn{first.value + judged.records - 1}, w.deadline});
}

// What was judged by something that may still be lost waits behind it (S24).
void Leader::answer_later(const InBlock& request, Effects& out) {
  if (request.last <= log_.commit() || MUTANT("answer_before_judged_by")) {
    out.emplace_back(Reply{request.id, Written{epoch_, request.last}});
    return;
  }
  if (batch_)
    batch_->requests.push_back(request);
  else if (!building_.empty())
    building_.rbegin()->second.requests.push_back(request);
  else
    requests_.push_back(request);
}

void Leader::flush(Instant now, Effects& out) {
  now_ = now;
  take_waiting(out);
  if (batch_ && !holds(now)) close_batch(out);
}

// A block is committed only once it is durable here, and the disk takes one after the other: so what comes while it is
// busy goes into one block, which costs each server less than many do, and is durable no later.
bool Leader::holds(Instant now) const {
  return log_.durable() != log_.end() && batch_->bytes < kHoldBytes && now < batch_->since + kHoldMost;
}

void Leader::close_batch(Effects& out) {
  out.emplace_back(Build{batch_->id, model::BlockKind::data, epoch_, batch_->first, log_.commit()});
  uncommitted_bytes_ += batch_->bytes;
  const auto id = batch_->id;
  building_.emplace(id, std::move(*batch_));
  batch_.reset();
}

void Leader::take_waiting(Effects& out) {
  if (!std::exchange(take_waiting_, false) || stopped_) return;
  bool any = false;
  while (!waiting_.empty() && takes_writes()) {
    gather(waiting_.front(), out);
    waiting_bytes_ -= waiting_.front().bytes;
    waiting_.pop_front();
    any = true;
    if (batch_ && uncommitted_bytes_ + batch_->bytes >= kUncommittedMax) break;
  }
  if (any && batch_) close_batch(out);
}

void Leader::built(Instant now, BatchId id, const base::Result<Placed>& placed, Effects& out) {
  now_ = now;
  const auto it = building_.find(id);
  CHECK(it != building_.end());
  Gathered batch = std::move(it->second);
  building_.erase(it);
  if (cutting_ == id) {
    cutting_.reset();
    take_waiting_ = !waiting_.empty();
  }
  if (!placed) {
    uncommitted_bytes_ -= batch.bytes;
    if (stopped_) return;
    for (const auto& r : batch.requests) out.emplace_back(Reply{r.id, base::fail(placed.error())});
    if (starting_ == id) out.emplace_back(CannotLead{placed.error().text});
    return;
  }
  CHECK(placed->first == batch.first);
  std::optional<model::CutMark> mark;
  if (model::is_cut_mark(batch.kind)) mark = {placed->end, batch.attempt, batch.kind == model::BlockKind::cut};
  log_.append(placed->first, placed->end, mark);
  if (stopped_) return;  // its requests have their answers
  if (batch.kind == model::BlockKind::uncut) uncut_ = placed->end.lsn;
  if (starting_ == id) start_ = placed->first;
  const Kept block{placed->first, placed->end, placed->bytes};
  kept_.push_back(block);
  set_kept_bytes(kept_bytes_ + block.bytes);
  uncommitted_.push_back({batch.first, placed->end, batch.bytes});
  for (auto& r : batch.requests) requests_.push_back(r);
  send_new(now, block, out);
  forget(out);
}

void Leader::next(Instant now, Effects& out) {
  now_ = now;
  if (!stopped_ && batch_ && !holds(now)) close_batch(out);
}

void Leader::durable(Instant now, Effects& out) {
  now_ = now;
  if (stopped_) return;
  commit(now, out);
  for (auto& peer : peers_)
    if (peer.state == PeerState::trailing) go_on(now, peer, out);
  forget(out);
}

// --- the cut of a split or a merge ---------------------------------------------------------------

void Leader::cut(Instant now, model::BlockKind kind, const model::AttemptId& attempt, Effects& out) {
  now_ = now;
  CHECK(serving_ && !stopped_ && !cutting_);
  if (batch_) close_batch(out);
  Gathered cut;
  cut.id = ++last_batch_;
  cut.first = next_lsn();
  cut.records = 1;
  cut.kind = kind;
  cut.attempt = attempt;
  cutting_ = cut.id;
  out.emplace_back(Build{cut.id, kind, epoch_, cut.first, log_.commit(), attempt});
  building_.emplace(cut.id, std::move(cut));
}

bool Leader::parked() const {
  if (MUTANT("writes_not_parked")) return false;
  if (cutting_) return true;
  const auto cut = log_.open_cut();
  return cut.has_value() && (cut->at.epoch == epoch_ || !MUTANT("new_leader_not_parked"));
}

bool Leader::has_joined(const model::ServerId& server) const {
  return server == self_.server || std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
           return p.hop.server == server && p.state == PeerState::joined;
         });
}

std::vector<model::ServerId> Leader::holders(Lsn lsn) const {
  std::vector<model::ServerId> out;
  for (const auto& v : voters_) {
    const auto* peer = find({v.server, v.assignment});
    const auto has = v.assignment == self_.assignment ? log_.durable().lsn : peer == nullptr ? Lsn{} : peer->acked.lsn;
    if (has >= lsn || MUTANT("holders_who_have_not")) out.push_back(v.server);
  }
  return out;
}

// --- commit --------------------------------------------------------------------------------------

// What a majority of them has durable.
Lsn Leader::agreed(const model::Voters& voters) const {
  std::vector<Lsn> have;
  have.reserve(voters.size());
  for (const auto& v : voters) {
    const auto* peer = find({v.server, v.assignment});
    have.push_back(v.assignment == self_.assignment ? log_.end().lsn : peer == nullptr ? Lsn{} : peer->acked.lsn);
  }
  std::sort(have.begin(), have.end(), std::greater<>());
  return have[model::majority(have.size()) - 1];
}

void Leader::commit(Instant now, Effects& out) {
  if (stopped_ || !start_) return;
  Lsn lsn = MUTANT("commit_before_own_sync") && voters_.size() > 1 ? log_.end().lsn : log_.durable().lsn;
  const bool by_new = next_voters_ && MUTANT("commit_by_new_set");
  if (!MUTANT("commit_alone") && !by_new) lsn = std::min(lsn, agreed(voters_));
  if (next_voters_ && !MUTANT("commit_by_one_set")) lsn = std::min(lsn, agreed(*next_voters_));
  // What was written under older epochs counts when the epoch start does, never by itself (S14).
  if (lsn < *start_ && !MUTANT("count_older_epochs")) return;
  if (!log_.commit(lsn)) return;
  out.emplace_back(Commit{lsn});
  if (!serving_) {
    serving_ = true;
    out.emplace_back(Serving{epoch_});
  }
  while (!uncommitted_.empty() && uncommitted_.front().end.lsn <= lsn) {
    uncommitted_bytes_ -= uncommitted_.front().bytes;
    uncommitted_.pop_front();
  }
  while (!requests_.empty() && requests_.front().last <= lsn) {
    out.emplace_back(Reply{requests_.front().id, Written{epoch_, requests_.front().last}});
    requests_.pop_front();
  }
  for (auto& peer : peers_) {
    peer.notice = now + kNoticeAfter;
    peer.noticed = false;
  }
  // Not now: they are judged by the store, which has not heard of this commit yet.
  take_waiting_ = !waiting_.empty();
  if (MUTANT("take_waiting_at_commit")) take_waiting(out);
}

// --- time ----------------------------------------------------------------------------------------

void Leader::expire(Instant now, Effects& out) {
  if (now < expire_at_) return;
  expire_at_ = now + kExpireEvery;
  const auto none = no_quorum(!has_majority() ? "a majority of the replicas is missing"
                              : parked()      ? "the partition is being split or merged"
                                              : "the leader has not served yet");
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (now < it->deadline) {
      ++it;
      continue;
    }
    out.emplace_back(Reply{it->id, base::fail(none)});
    waiting_bytes_ -= it->bytes;
    it = waiting_.erase(it);
  }
  std::erase_if(requests_, [&](const InBlock& r) {
    if (now < r.deadline) return false;
    constexpr std::string_view kLate = "no majority of the replicas had it in time";
    out.emplace_back(Reply{r.id, base::fail(r.may_happen ? unknown(kLate) : no_quorum(std::string(kLate)))});
    return true;
  });
}

void Leader::tick(Instant now, Effects& out) {
  now_ = now;
  if (stopped_) return;
  take_waiting(out);
  if (batch_ && !holds(now)) close_batch(out);
  expire(now, out);
  for (auto& peer : peers_)
    if ((peer.state == PeerState::waiting || peer.state == PeerState::outside) && now >= peer.again) open(peer, out);
  for (size_t i = 0; i < peers_.size(); ++i) {
    auto& peer = peers_[i];
    const bool sends = peer.state == PeerState::joined || peer.state == PeerState::trailing;
    if (!sends || peer.flight.empty() || now < peer.flight.front().sent + deadline_of(peer)) continue;
    // In a chain the first of those that are late is the cause; those behind it get their time anew.
    if (peer.state == PeerState::joined && pipeline_ == Pipeline::chain) {
      const auto late = std::find_if(order_.begin(), order_.end(), [&](size_t at) {
        const auto& p = peers_[at];
        return !p.flight.empty() && now >= p.flight.front().sent + deadline_of(p);
      });
      take_out(now, peers_[*late], "it did not acknowledge in time", out);
    } else {
      take_out(now, peer, "it did not acknowledge in time", out);
    }
    break;
  }
  for (auto& peer : peers_)
    if (peer.state == PeerState::trailing) go_on(now, peer, out);
  notices(now, out);
  forget(out);
}

Instant Leader::next_tick() const {
  if (take_waiting_) return now_;
  // What has a time is below; a stream from the journal is looked at anyway, and thousands of idle leaders hardly at
  // all.
  const bool level =
      std::none_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.state == PeerState::trailing; });
  Instant next = now_ + (level ? kLevelTick : kTrailingTick);
  if (batch_) next = std::min(next, batch_->since + kHoldMost);
  if (!waiting_.empty() || !requests_.empty()) next = std::min(next, std::max(expire_at_, now_));
  for (const auto& peer : peers_) {
    if (peer.state == PeerState::waiting || peer.state == PeerState::outside) next = std::min(next, peer.again);
    if (!peer.flight.empty()) next = std::min(next, peer.flight.front().sent + deadline_of(peer));
    if (lacks_notice(peer)) next = std::min(next, std::max(peer.notice, told_at_ + kNoticeAfter));
  }
  return next;
}

std::string_view Leader::word(PeerState state) {
  switch (state) {
    case PeerState::waiting: return "waiting";
    case PeerState::opening: return "opening";
    case PeerState::finding: return "finding";
    case PeerState::cutting: return "cutting";
    case PeerState::trailing: return "trailing";
    case PeerState::joined: return "joined";
    case PeerState::outside: return "outside";
    case PeerState::faulted: return "faulted";
  }
  return "unknown";
}

void Leader::stop(const base::Error& why, Effects& out) {
  if (stopped_) return;
  stopped_ = true;
  const auto none = [&](RequestId id) { out.emplace_back(Reply{id, base::fail(why)}); };
  const auto maybe = [&](const InBlock& r) {
    out.emplace_back(Reply{r.id, base::fail(r.may_happen ? unknown(why.text) : why)});
  };
  for (const auto& r : requests_) maybe(r);
  // A Build that is on its way to the store will be in the log.
  for (const auto& [id, batch] : building_)
    for (const auto& r : batch.requests) maybe(r);
  if (batch_)
    for (const auto& r : batch_->requests) none(r.id);  // it never gets into the log
  for (const auto& w : waiting_) none(w.id);
  requests_.clear();
  waiting_.clear();
  batch_.reset();
  if (!kept_.empty()) out.emplace_back(ForgetBlocks{kept_.back().end.lsn});
  kept_.clear();
  set_kept_bytes(0);
}

}  // namespace cantle::proto::quorum

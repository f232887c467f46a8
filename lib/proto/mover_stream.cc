#include "lib/proto/mover_stream.h"

#include <algorithm>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto::mover {

using base::Code;
using base::Duration;
using base::Instant;
using model::AssignmentState;
using model::BulkKind;

model::Envelope envelope_to(const Shared& shared, const Target& target, model::TxnSeq txnseq) {
  model::Envelope e;
  e.table = target.table;
  e.table_uuid = target.table_uuid;
  e.partition = target.partition;
  e.txnseq = txnseq;
  e.from = shared.self;
  e.incarnation = shared.incarnation;
  e.from_assignment = target.id.own;
  e.to_assignment = target.id.target;
  return e;
}

MoverStream::MoverStream(Shared& shared, Target target, Instant now)
    : shared_(shared), target_(std::move(target)), progressed_at_(now), recorded_at_(now), catching_up_at_(now) {
  note_goal();
}

MoverStream::~MoverStream() { reset(); }

// --- Inputs ----------------------------------------------------------------------------------------

void MoverStream::retarget(Target target, std::vector<model::SettledMark> settled, Instant now, Effects& out) {
  settled_ = std::move(settled);
  // Became so while the log was being sent: what it was filled with is owed to a target that is being filled, too.
  if (target.hollow && !target_.hollow && !model::answers_reads(target_.state) && !has_rest_) want_snapshot_ = true;
  const bool changed = target.state != target_.state || target.since != target_.since ||
                       target.min_txnseq != target_.min_txnseq || target.interval != target_.interval;
  if (target.catching_up && !target_.catching_up) catching_up_at_ = now;
  target_ = std::move(target);
  if (changed) {
    note_goal();
    told_.reset();
    retry_at_ = now;  // what refused us may have gone with the old map
  }
  advance(now, out);
}

void MoverStream::advance(Instant now, Effects& out) {
  wants_turn_ = false;
  if (shared_.paused || held_) return;
  if (const auto* l = log(); l != nullptr && l->end.lsn != seen_end_) {
    seen_end_ = l->end.lsn;
    grew_at_ = now;
  }
  if (!goal_ && shared_.measured >= goal_measure_)
    if (const auto* l = log()) goal_ = l->end;
  if (loaded_ && !behind()) {
    progressed_at_ = now;
    stepped_in_ = false;
  }
  if (target_.joined && loaded_ && log() != nullptr && (mark_.snapshot != 0 || needs_snapshot())) give_up();
  if (stuck_ || waits_for_joined()) return;
  if (overdue(now))
    return fail(now, base::Error(Code::outcome_unknown, target_.server.name + " did not answer in time"), out);
  if (phase_ == Phase::sending) return fill(now, out);
  if (phase_ == Phase::copying) return copy_more(now, out);
  if (now < retry_at_) return;
  if (phase_ == Phase::loading) return load(out);
  if (phase_ != Phase::idle) return;
  if (!work_waits(now)) {
    failure_.clear();
    failures_ = 0;
    return;
  }
  if (!take_turn()) return;
  if (needs_snapshot() && mark_.snapshot == 0) return open_snapshot(now, out);
  if (open_ && mark_.snapshot == 0) {
    phase_ = Phase::sending;
    return fill(now, out);
  }
  begin(now, out);
}

void MoverStream::on(const LiveSeen& in, Effects& out) {
  if (!loaded_ || mark_.snapshot != 0 || healing_ != 0 || in.to.lsn <= mark_.at.lsn) return;
  if (rest_owed() || want_snapshot_) return;  // live sends bring what is new, not what is in no log
  mark_.at = in.to;
  verified_ = true;
  progressed_at_ = in.now;
  if (in.now - recorded_at_ >= kRecordLiveEvery) record(in.now, true, out);
  if (phase_ == Phase::sending) pop(in.now, out);
  advance(in.now, out);
}

void MoverStream::on(MarkLoaded in, Effects& out) {
  if (phase_ != Phase::loading || in.ticket != ticket_) return;
  mark_ = choose_mark(target_, in.found);
  recorded_ = {};
  for (const auto& [key, mark] : in.found)
    if (key == target_.marks.front()) {
      recorded_ = mark;
      unjoined_ = false;
    }
  unjoined_ = unjoined_ && !target_.joined && mark_ == Mark{};
  loaded_ = true;
  // A stream that begins now to a copy that already counts: that was filled by those who had everything.
  has_rest_ = in.found.empty() && model::answers_reads(target_.state);
  verified_ = mark_.at.lsn.value == 0;
  phase_ = Phase::idle;
  progressed_at_ = in.now;
  record(in.now, true, out);  // what was carried over from a parent stands under this name from now on
  advance(in.now, out);
}

void MoverStream::on(const SnapshotOpened& in, Effects& out) {
  if (phase_ != Phase::measuring_snapshot || in.ticket != ticket_) return;
  if (!in.from) return fail(in.now, in.from.error(), out);
  if (in.from->lsn < gap_ && in.now - gap_at_ < kGapWaitMost)
    return fail(in.now, base::Error(Code::io_error, "the index is not past the damaged LSN " + to_string(gap_)), out);
  mark_.snapshot_from = *in.from;
  do mark_.snapshot = shared_.random.u64();
  while (mark_.snapshot == 0);
  want_snapshot_ = false;
  ++shared_.counters.snapshots;
  record(in.now, true, out);
  out.emplace_back(Note{false, "snapshot", to_string(target_.partition), target_.server.name,
                        (gap_ > mark_.at.lsn ? "the log is damaged behind LSN "
                         : target_.hollow    ? "the log does not have all of it, or not from LSN "
                                             : "the journal does not reach back to LSN ") +
                            to_string(mark_.at.lsn) + ": copying, then the log from LSN " +
                            to_string(mark_.snapshot_from.lsn)});
  begin(in.now, out);
}

void MoverStream::on(const Began& in, Effects& out) {
  if (phase_ != Phase::opening || in.ticket != ticket_) return;
  --unanswered_;  // a question may still be out
  last_sent_ = in.now;
  if (!in.reply) return fail(in.now, in.reply.error(), out);
  if (in.reply->heal != 0 && target_.joined) return give_up();
  if (in.reply->heal != 0 && in.reply->heal != heal_seen_) return heal(in.reply->heal, in.now, out);
  if (mark_.snapshot == 0) {
    open_ = true;
    phase_ = Phase::sending;
    read_at_ = mark_.at;
    return fill(in.now, out);
  }
  phase_ = Phase::copying;
  read_key_ = in.reply->filled_to;
  read_last_ = false;
  if (in.reply->filled_all) return copied(in.now, out);
  copy_more(in.now, out);
}

// Of a joined log: nothing but a snapshot helps, and that is of what the log goes on in.
void MoverStream::give_up() {
  reset();
  stuck_ = true;
}

bool MoverStream::waits_for_joined() const {
  const auto* l = log();
  return unjoined_ && loaded_ && l != nullptr && !l->joined.empty();
}

void MoverStream::join(bool through, Instant now, Effects& out) {
  unjoined_ = false;
  if (through) {
    mark_.at = log()->begins;
    verified_ = true;
    record(now, true, out);
  }
  advance(now, out);
}

// What the target confirmed once may be lost there: all of it is offered again, from the beginning (S62).
void MoverStream::heal(uint64_t number, Instant now, Effects& out) {
  healing_ = heal_seen_ = number;
  unjoined_ = false;
  reset();
  mark_ = {};
  has_rest_ = false;
  verified_ = true;
  was_through_ = false;
  told_.reset();
  want_snapshot_ = false;
  gap_ = {};
  // The goal was measured when the map came; the target has confirmed much behind it since.
  ++shared_.measure;
  note_goal();
  out.emplace_back(Measure{shared_.measure, {target_.source}});
  record(now, true, out);
  out.emplace_back(Note{true, "heal", to_string(target_.partition), target_.server.name,
                        "records may be missing there: offering everything"});
  advance(now, out);
}

void MoverStream::pause() { reset(); }

void MoverStream::peer_restarted(Instant now) {
  // It may be asking to be told how far we are; and what was under way died with the old process.
  reset();
  in_touch_ = false;
  healing_ = heal_seen_ = 0;  // asked once more, if it still is: what we had of it may not have been told (S62)
  told_.reset();
  backoff_ = {};
  retry_at_ = now;
}

void MoverStream::hold(bool held) {
  if (held && !held_) reset();
  held_ = held;
}

void MoverStream::wake() {
  backoff_ = {};
  retry_at_ = {};
  copy_retry_ = {};
}

void MoverStream::requeue(Instant now, Effects& out) {
  if (!loaded_) return;
  unjoined_ = false;
  reset();
  wake();
  mark_ = {};
  has_rest_ = false;
  verified_ = true;
  was_through_ = in_touch_ = false;
  told_.reset();
  want_snapshot_ = false;
  gap_ = {};
  record(now, true, out);
}

// --- What it is doing ------------------------------------------------------------------------------

bool MoverStream::caught_up() const {
  const auto* l = log();
  return loaded_ && goal_ && l != nullptr && !stuck_ && !waits_for_joined() && items_.empty() && mark_.snapshot == 0 &&
         !behind() && mark_.at.lsn >= goal_->lsn;
}

std::string MoverStream::state() const {
  if (held_) return "held";
  if (shared_.paused) return "paused";
  if (!failure_.empty() && phase_ == Phase::idle) return "retrying";
  switch (phase_) {
    case Phase::loading: return "loading";
    case Phase::idle: return wants_turn_ ? "waiting" : "idle";
    case Phase::measuring_snapshot:
    case Phase::opening: return "opening";
    case Phase::sending: return "sending";
    case Phase::copying: return "copying";
  }
  return "?";
}

std::string MoverStream::why() const {
  if (held_) return "held by an operator";
  if (shared_.paused) return shared_.paused_why;
  if (!failure_.empty()) return failure_;
  if (wants_turn_) return "waits for its turn: " + std::to_string(shared_.active) + " streams are moving data";
  if (phase_ == Phase::sending || phase_ == Phase::copying) {
    if (!slow_why_.empty()) return slow_why_;
    for (const auto& item : items_)
      if (item.offer == Offer::waiting || !item.awaited.empty())
        return "waits for another server to push what it stamped";
    if (!items_.empty()) return "waits for " + target_.server.name + " to confirm";
  }
  if (stuck_) return "waits for a snapshot of what its log goes on in";
  if (waits_for_joined()) return "waits for the logs that this one goes on from";
  if (!goal_) return "waits for the end of the log to be measured";
  return {};
}

const LogState* MoverStream::log() const {
  auto it = shared_.logs.find(target_.source);
  return it == shared_.logs.end() ? nullptr : &it->second;
}

// A position at or past the end that is not known to be in this log may be of another one.
bool MoverStream::behind() const {
  const auto* l = log();
  return l == nullptr || mark_.at.lsn < l->end.lsn || (!verified_ && mark_.at != l->end);
}

// The log end is to be measured anew, after the map that is in force now.
void MoverStream::note_goal() {
  goal_.reset();
  goal_measure_ = shared_.measure;
  auto it = shared_.maps.find(target_.table);
  if (it != shared_.maps.end() && it->second) goal_txnseq_ = it->second->txnseq;
}

bool MoverStream::needs_snapshot() const {
  const auto* l = log();
  return want_snapshot_ || rest_owed() || (l != nullptr && mark_.at.lsn.value + 1 < l->oldest.value);
}

bool MoverStream::rest_owed() const { return target_.hollow && mark_.at.lsn.value == 0 && !has_rest_; }

// A server that missed something is brought it by the others: offering it back to them while it comes in would hold up
// all of them, for nothing.
bool MoverStream::being_filled(Instant now) const {
  return target_.catching_up && target_.state == AssignmentState::available && now - grew_at_ < kQuiet &&
         now - catching_up_at_ < kQuietWaitMost;
}

bool MoverStream::grace_over(Instant now) const {
  if (being_filled(now)) return false;
  return !was_through_ || stepped_in_ || target_.state == AssignmentState::initializing ||
         now - progressed_at_ >= kGrace;
}

bool MoverStream::work_waits(Instant now) const {
  const auto* l = log();
  if (l == nullptr) return false;
  if (mark_.snapshot != 0 || needs_snapshot()) return true;
  if (behind()) return grace_over(now);
  return end_owed(now);
}

// --- Steps -----------------------------------------------------------------------------------------

void MoverStream::load(Effects& out) {
  if (ticket_ != 0) return;
  ticket_ = ++shared_.tickets;
  out.emplace_back(LoadMark{target_.id, ticket_, target_.marks});
}

void MoverStream::open_snapshot(Instant now, Effects& out) {
  // A snapshot under way whose log has been retired meanwhile is worth nothing: a new number begins anew.
  phase_ = Phase::measuring_snapshot;
  ticket_ = ++shared_.tickets;
  last_sent_ = now;
  out.emplace_back(OpenSnapshot{target_.id, ticket_, target_.source});
}

void MoverStream::begin(Instant now, Effects& out) {
  const auto* l = log();
  if (mark_.snapshot != 0 && l != nullptr && mark_.snapshot_from.lsn.value + 1 < l->oldest.value) {
    mark_.snapshot = 0;
    mark_.snapshot_from = {};
    return open_snapshot(now, out);
  }
  phase_ = Phase::opening;
  ticket_ = ++shared_.tickets;
  sent(now);
  model::BulkBegin m;
  auto map = shared_.maps.find(target_.table);
  m.envelope = envelope_to(shared_, target_, map == shared_.maps.end() ? goal_txnseq_ : map->second->txnseq);
  m.kind = mark_.snapshot != 0 ? BulkKind::snapshot : BulkKind::log;
  m.interval = target_.interval;
  m.snapshot = mark_.snapshot;
  out.emplace_back(SendBegin{target_.id, ticket_, target_.server, std::move(m)});
}

void MoverStream::fail(Instant now, const base::Error& error, Effects& out) {
  reset();
  if (error.code == Code::unavailable) in_touch_ = false;  // it was away; one that is only slow has most of it
  ++failures_;
  ++shared_.counters.failures;
  failure_ = target_.server.name + ": " + base::to_string(error);
  backoff_ = backoff_.count() == 0 ? kRetryFirst : std::min(backoff_ * 2, kRetryMost);
  Duration pause = std::max(backoff_, Duration(std::chrono::milliseconds(error.retry_after_ms)));
  pause += Duration(static_cast<int64_t>(shared_.random.below(static_cast<uint64_t>(pause.count() / 2) + 1)));
  retry_at_ = now + pause;
  if (failures_ == 1 || failures_ % 20 == 0)
    out.emplace_back(Note{true, "push", to_string(target_.partition), target_.server.name, base::to_string(error)});
  if (error.code == Code::stale_route || error.code == Code::not_found || error.code == Code::conflict)
    out.emplace_back(RefreshView{});
}

// Back to the position; what is under way is forgotten, and its answers are dropped.
void MoverStream::reset() {
  shared_.bytes -= bytes_;
  if (bytes_ > 0) shared_.freed = true;
  bytes_ = 0;
  items_.clear();
  ticket_ = read_ticket_ = end_ticket_ = ask_ticket_ = again_ticket_ = 0;
  spoken_from_ = last_oldest_ = before_oldest_ = {};
  delivered_.clear();
  told_delivered_.reset();
  spoken_gap_ = false;
  unanswered_ = 0;
  open_ = false;
  slow_ = {};
  slow_why_.clear();
  phase_ = loaded_ ? Phase::idle : Phase::loading;
  give_turn();
}

// Nothing to do for now; stays open.
void MoverStream::rest() {
  phase_ = Phase::idle;
  give_turn();
}

bool MoverStream::take_turn() {
  if (has_turn_) return true;
  size_t& here = shared_.active_at[target_.server];
  if (shared_.active >= kActiveMax || here >= kActivePerServerMax) {
    wants_turn_ = true;
    return false;
  }
  ++shared_.active;
  ++here;
  return has_turn_ = true;
}

void MoverStream::give_turn() {
  if (!has_turn_) return;
  has_turn_ = false;
  --shared_.active;
  --shared_.active_at[target_.server];
  shared_.freed = true;
}

void MoverStream::sent(Instant now) {
  last_sent_ = now;
  ++unanswered_;
}

bool MoverStream::overdue(Instant now) const { return unanswered_ > 0 && now - last_sent_ >= kAnswerWithin; }

void MoverStream::record(Instant now, bool at_once, Effects& out) {
  if (mark_ == recorded_) return;
  const bool other_snapshot = mark_.snapshot != recorded_.snapshot;
  if (!at_once && !other_snapshot && now - recorded_at_ < kRecordEvery) return;
  recorded_ = mark_;
  recorded_at_ = now;
  out.emplace_back(RecordMark{target_.marks.front(), target_.source, target_.partition, mark_});
}

}  // namespace cantle::proto::mover

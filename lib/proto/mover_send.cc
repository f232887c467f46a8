// The part of a stream that moves records: reading, offering, sending, confirming (mover_stream.h).
#include <algorithm>
#include <utility>

#include "lib/base/testing.h"
#include "lib/model/record.h"
#include "lib/proto/mover_stream.h"

namespace cantle::proto::mover {

using base::Code;
using base::Duration;
using base::Instant;
using model::AssignmentState;
using model::BulkKind;

namespace {
model::TxnSeq txnseq_of(const Shared& shared, const std::string& table) {
  auto it = shared.maps.find(table);
  return it == shared.maps.end() ? model::TxnSeq{} : it->second->txnseq;
}
}  // namespace

// --- The log ---------------------------------------------------------------------------------------

void MoverStream::fill(Instant now, Effects& out) {
  retry_items(now, out);
  pop(now, out);
  if (phase_ != Phase::sending) return;
  read_more(now, out);
  if (end_owed(now)) send_end(now, out);
  const auto* l = log();
  const bool idle = items_.empty() && read_ticket_ == 0 && end_ticket_ == 0;
  if (!idle || l == nullptr) return;
  if (!behind()) {
    was_through_ = in_touch_ = true;
    direct_bytes_ = 0;  // what lacked nearly all lacks it no more
  } else if (grace_over(now)) {
    return;
  }
  record(now, true, out);
  rest();
}

void MoverStream::read_more(Instant now, Effects& out) {
  const auto* l = log();
  if (read_at_.lsn < mark_.at.lsn) read_at_ = mark_.at;  // live sends were faster
  if (items_.empty()) slow_ = {};
  const bool more = l != nullptr && (read_at_.lsn < l->end.lsn || (items_.empty() && behind()));
  if (read_ticket_ != 0 || !more || !grace_over(now)) return;
  if (needs_snapshot() && items_.empty()) {  // retired while we waited
    reset();
    return advance(now, out);
  }
  if (items_.size() >= kItemsMax || bytes_ + kReadBytes > kStreamBytesMax || slow_.count() != 0) return;
  if (shared_.bytes + kReadBytes > kMoverBytesMax) {
    wants_turn_ = true;
    return;
  }
  read_ticket_ = ++shared_.tickets;
  stepped_in_ = true;
  // Live marks end before records whose stamper has not said that they are settled, though live sends went on behind
  // them.
  const bool offer_own =
      (in_touch_ || healing_ != 0) && direct_bytes_ == 0 && target_.state == AssignmentState::available;
  out.emplace_back(
      ReadLog{target_.id, read_ticket_, target_.source, read_at_, target_.interval, kReadBytes, offer_own});
}

void MoverStream::on(LogRead in, Effects& out) {
  if (phase_ != Phase::sending || in.ticket != read_ticket_ || read_ticket_ == 0) return;
  read_ticket_ = 0;
  switch (in.end) {
    case ReadEnd::batch: add_batch(std::move(in.batch), in.now, out); break;
    case ReadEnd::retired:
      reset();
      want_snapshot_ = true;
      return advance(in.now, out);
    case ReadEnd::not_contained:
      // The log was cut, or another directory took its place: from the last point that both know.
      out.emplace_back(Note{
          true, "position", to_string(target_.partition), target_.server.name,
          "LSN " + to_string(mark_.at.lsn) + " is not in the log; going on from LSN " + to_string(in.restart.lsn)});
      reset();
      mark_.at = in.restart;
      verified_ = true;
      record(in.now, true, out);
      return advance(in.now, out);
    case ReadEnd::failed: return fail(in.now, base::Error(Code::io_error, "reading the journal: " + in.error), out);
  }
  if (phase_ == Phase::sending) fill(in.now, out);
}

void MoverStream::add_batch(LogBatch batch, Instant now, Effects& out) {
  verified_ = true;  // the read began behind the position, so it is there
  if (batch.through.lsn <= read_at_.lsn) return;
  read_at_ = batch.through;
  std::vector<Foreign> foreign;
  for (auto& f : batch.foreign) {
    if (settled(f.entry.version))
      ++shared_.counters.settled;
    else
      foreign.push_back(std::move(f));
  }
  const bool own = batch.own.count > 0;
  if (own) {
    Item& item = items_.emplace_back();
    item.own = std::move(batch.own);
    item.own_done = false;
    item.bytes = item.own.bytes->size();
    bytes_ += item.bytes;
    shared_.bytes += item.bytes;
    if (foreign.empty()) item.through = batch.through;
    send_own(item, now, out);
  }
  if (!foreign.empty()) add_foreign(std::move(foreign), batch.through, now, out);
  if (!own && foreign.empty()) items_.emplace_back().through = batch.through;  // nothing of it lay in the interval
}

void MoverStream::add_foreign(std::vector<Foreign> foreign, std::optional<model::LogPoint> through, Instant now,
                              Effects& out) {
  size_t from = 0;
  while (from < foreign.size()) {
    Item& item = items_.emplace_back();
    size_t records = 0;
    while (from < foreign.size() && item.foreign.size() < model::kDigestEntriesMax) {
      Foreign& f = foreign[from];
      if (records > 0 && records + f.record.size() > model::kBlockMax) break;
      records += f.record.size();
      item.bytes += f.record.size() + f.entry.key.size() + sizeof(Foreign);
      item.foreign.push_back(std::move(f));
      ++from;
    }
    bytes_ += item.bytes;
    shared_.bytes += item.bytes;
    item.offer = Offer::wanted;
    if (from == foreign.size()) item.through = through;
    offer(item, now, out);
  }
}

// Durable on every assignment that METADATA named at mark.txnseq: on this one, if it was named by then.
bool MoverStream::settled(const model::Version& version) const {
  if (target_.state != AssignmentState::available && target_.state != AssignmentState::leaving) return false;
  if (healing_ != 0) return false;  // it was durable there, and may be lost
  for (const auto& mark : settled_)
    if (mark.version.server() == version.server() && mark.version.incarnation() == version.incarnation() &&
        version <= mark.version && target_.since <= mark.txnseq)
      return true;
  return false;
}

// Whoever stamped it is alive and pushes to this target too: it will bring it, and twice is a waste.
bool MoverStream::stamper_pushes(const model::Version& version) const {
  auto it = shared_.numbers.find(version.server());
  if (it == shared_.numbers.end() || it->second == target_.server) return false;
  auto peer = shared_.peers.find(it->second);
  return peer != shared_.peers.end() && peer->second.live &&
         std::find(target_.others.begin(), target_.others.end(), it->second) != target_.others.end();
}

bool MoverStream::stamped_by_target(const model::Version& version) const {
  auto it = shared_.numbers.find(version.server());
  return it != shared_.numbers.end() && it->second == target_.server;
}

void MoverStream::send_own(Item& item, Instant now, Effects& out) {
  item.own_ticket = ++shared_.tickets;
  item.own_retry = {};
  sent(now);
  model::BulkBlock m;
  m.envelope = envelope_to(shared_, target_, txnseq_of(shared_, target_.table));
  m.kind = mark_.snapshot != 0 ? BulkKind::snapshot : BulkKind::log;
  m.count = item.own.count;
  m.snapshot = mark_.snapshot;
  m.through_key = item.through_key;
  m.last = item.last;
  out.emplace_back(SendBlock{target_.id, item.own_ticket, target_.server, std::move(m), item.own.bytes});
}

void MoverStream::offer(Item& item, Instant now, Effects& out) {
  // What the target may have itself, or get from its stamper, is offered always: two servers that send each other
  // unoffered what came from the other would never end.
  const bool may_be_there = std::any_of(item.foreign.begin(), item.foreign.end(), [&](const auto& f) {
    return stamper_pushes(f.entry.version) || stamped_by_target(f.entry.version);
  });
  if (direct_bytes_ > 0 && !may_be_there) {
    direct_bytes_ -= std::min(direct_bytes_, item.bytes);
    std::vector<uint32_t> all(item.foreign.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    return send_lacking(item, all, now, out);
  }
  item.offer = Offer::asked;
  item.offer_ticket = ++shared_.tickets;
  sent(now);
  model::Digest m;
  m.envelope = envelope_to(shared_, target_, txnseq_of(shared_, target_.table));
  m.entries.reserve(item.foreign.size());
  for (const auto& f : item.foreign) m.entries.push_back(f.entry);
  shared_.counters.offered += m.entries.size();
  out.emplace_back(SendDigest{target_.id, item.offer_ticket, target_.server, std::move(m)});
}

void MoverStream::on(const Digested& in, Effects& out) {
  auto it = std::find_if(items_.begin(), items_.end(),
                         [&](const Item& i) { return i.offer == Offer::asked && i.offer_ticket == in.ticket; });
  if (it == items_.end()) return;
  --unanswered_;
  last_sent_ = in.now;
  if (!in.reply) {
    if (slow_down(in.reply.error(), in.now, &it->offer_again))
      it->offer = Offer::wanted;
    else
      return fail(in.now, in.reply.error(), out);
    return advance(in.now, out);
  }
  slow_ = {};
  slow_why_.clear();
  const auto& lacking = in.reply->lacking;
  const size_t entries = it->foreign.size();
  if (!lacking.empty() && lacking.back() >= entries)
    return fail(in.now,
                base::Error(Code::malformed, "an answer to a digest names entry " + std::to_string(lacking.back())),
                out);
  if (lacking.size() * 10 >= entries * 9 && entries > 0)
    direct_bytes_ = kDirectBytes;
  else
    direct_bytes_ = 0;
  if (lacking.empty()) {
    it->offer = Offer::none;
    it->foreign.clear();
    return advance(in.now, out);
  }
  const bool may_come = std::any_of(lacking.begin(), lacking.end(),
                                    [&](uint32_t i) { return stamper_pushes(it->foreign[i].entry.version); });
  it->stalls = it->lacked_last != 0 && lacking.size() >= it->lacked_last ? it->stalls + 1 : 0;
  it->lacked_last = lacking.size();
  if (may_come && it->stalls < kDeferStalls) {
    it->offer = Offer::waiting;
    it->offer_again = in.now + std::min(kDeferFirst * (1 << it->stalls), kDeferMost);
  } else {
    send_lacking(*it, lacking, in.now, out);
  }
  advance(in.now, out);
}

void MoverStream::send_lacking(Item& item, const std::vector<uint32_t>& indexes, Instant now, Effects& out) {
  std::string records;
  size_t bytes = 0;
  for (uint32_t i : indexes) bytes += item.foreign[i].record.size();
  records.reserve(bytes);
  for (uint32_t i : indexes) records += item.foreign[i].record;
  shared_.counters.lacked += indexes.size();
  item.lacking = {std::make_shared<const std::string>(std::move(records)), static_cast<uint32_t>(indexes.size())};
  item.foreign.clear();
  item.offer = Offer::sent;
  item.offer_again = {};
  item.offer_ticket = ++shared_.tickets;
  sent(now);
  model::BulkBlock m;
  m.envelope = envelope_to(shared_, target_, txnseq_of(shared_, target_.table));
  m.kind = BulkKind::log;
  m.count = item.lacking.count;
  out.emplace_back(SendBlock{target_.id, item.offer_ticket, target_.server, std::move(m), item.lacking.bytes});
}

void MoverStream::on(const Confirmed& in, Effects& out) {
  for (auto& item : items_) {
    const bool own = !item.own_done && item.own_ticket == in.ticket;
    const bool lacking = item.offer == Offer::sent && item.offer_ticket == in.ticket;
    if (!own && !lacking) continue;
    --unanswered_;
    last_sent_ = in.now;
    if (!in.status) {
      if (!slow_down(in.status.error(), in.now, own ? &item.own_retry : &item.offer_again))
        return fail(in.now, in.status.error(), out);
      (own ? item.own_ticket : item.offer_ticket) = 0;
      return advance(in.now, out);
    }
    slow_ = {};
    slow_why_.clear();
    const Records& records = own ? item.own : item.lacking;
    ++shared_.counters.blocks;
    shared_.counters.records += records.count;
    shared_.counters.bytes += records.bytes->size();
    sent_bytes_ += records.bytes->size();
    if (own)
      item.own_done = true;
    else
      item.offer = Offer::none;
    return advance(in.now, out);
  }
}

// An answer that asks for patience: the same block goes again later, nothing else is lost.
bool MoverStream::slow_down(const base::Error& error, Instant now, Instant* again) {
  if (error.code != Code::overloaded && error.code != Code::read_only && error.code != Code::no_space) return false;
  slow_ = slow_.count() == 0 ? kSlowFirst : std::min(slow_ * 2, kSlowMost);
  Duration pause = std::max(slow_, Duration(std::chrono::milliseconds(error.retry_after_ms)));
  pause += Duration(static_cast<int64_t>(shared_.random.below(static_cast<uint64_t>(pause.count() / 4) + 1)));
  *again = now + pause;
  slow_why_ = target_.server.name + ": " + base::to_string(error);
  return true;
}

void MoverStream::retry_items(Instant now, Effects& out) {
  const Instant never{};
  for (auto& item : items_) {
    if (!item.own_done && item.own_ticket == 0 && now >= item.own_retry) send_own(item, now, out);
    if (item.offer == Offer::waiting && now >= item.offer_again) offer(item, now, out);
    if (item.offer == Offer::wanted && item.offer_again != never && now >= item.offer_again) offer(item, now, out);
    if (item.offer == Offer::sent && item.offer_ticket == 0 && now >= item.offer_again) {
      item.offer_ticket = ++shared_.tickets;
      sent(now);
      model::BulkBlock m;
      m.envelope = envelope_to(shared_, target_, txnseq_of(shared_, target_.table));
      m.kind = BulkKind::log;
      m.count = item.lacking.count;
      out.emplace_back(SendBlock{target_.id, item.offer_ticket, target_.server, std::move(m), item.lacking.bytes});
    }
  }
}

// The position follows what is confirmed without a gap.
void MoverStream::pop(Instant now, Effects& out) {
  bool moved = false;
  while (!items_.empty()) {
    Item& item = items_.front();
    const bool live = item.through && item.through->lsn <= mark_.at.lsn;
    if (!item.done() && !live && !MUTANT("push_position_before_confirmed")) break;
    if (!item.done())
      unanswered_ -= (!item.own_done && item.own_ticket != 0 ? 1 : 0) +
                     (item.offer_ticket != 0 && (item.offer == Offer::asked || item.offer == Offer::sent) ? 1 : 0);
    if (item.through && item.through->lsn > mark_.at.lsn) {
      mark_.at = *item.through;
      moved = true;
    }
    bytes_ -= item.bytes;
    shared_.bytes -= item.bytes;
    shared_.freed = true;
    items_.pop_front();
  }
  if (!moved) return;
  progressed_at_ = now;
  backoff_ = {};
  failures_ = 0;
  failure_.clear();
  record(now, false, out);
}

// --- bulk.end --------------------------------------------------------------------------------------

bool MoverStream::end_owed(Instant now) const {
  if (!goal_ || end_ticket_ != 0 || mark_.snapshot != 0 || needs_snapshot()) return false;
  if ((mark_.at.lsn < goal_->lsn || (!verified_ && behind())) && !MUTANT("bulk_end_too_early")) return false;
  if (!told_ || told_->txnseq != goal_txnseq_) return true;
  const Duration age = now - told_->at;
  const bool news = mark_.at.lsn > told_->through.lsn;
  auto peer = shared_.peers.find(target_.server);
  const bool filling = target_.state == AssignmentState::initializing;
  const bool may_wait = filling || (peer != shared_.peers.end() && now - peer->second.since < kMayWait);
  if (filling && age >= kEndQuick * 8) return true;  // it may have lost count
  if (!news) return false;
  return age >= (may_wait ? kEndQuick : kEndSlow);
}

void MoverStream::send_end(Instant now, Effects& out) {
  end_ticket_ = ++shared_.tickets;
  end_through_ = mark_.at;
  end_txnseq_ = goal_txnseq_;
  sent(now);
  model::BulkEnd m;
  m.envelope = envelope_to(shared_, target_, goal_txnseq_);
  m.through = end_through_;
  m.healed = end_healed_ = healing_;
  out.emplace_back(SendEnd{target_.id, end_ticket_, target_.server, std::move(m)});
}

void MoverStream::on(const EndTold& in, Effects& out) {
  if (in.ticket != end_ticket_ || end_ticket_ == 0) return;
  end_ticket_ = 0;
  --unanswered_;
  last_sent_ = in.now;
  if (!in.status) return fail(in.now, in.status.error(), out);
  ++shared_.counters.ends;
  failures_ = 0;
  backoff_ = {};
  failure_.clear();
  if (end_healed_ == healing_) healing_ = 0;
  told_ = Told{end_through_, end_txnseq_, in.now};
  advance(in.now, out);
}

// --- Snapshots -------------------------------------------------------------------------------------

void MoverStream::copy_more(Instant now, Effects& out) {
  // One chunk under way, the next one read meanwhile.
  if (!items_.empty() && items_.front().own_ticket == 0 && now >= items_.front().own_retry)
    send_own(items_.front(), now, out);
  if (!items_.empty() && items_.front().own_done) {
    const bool last = items_.front().last;
    bytes_ -= items_.front().bytes;
    shared_.bytes -= items_.front().bytes;
    shared_.freed = true;
    items_.pop_front();
    progressed_at_ = now;
    backoff_ = {};
    failures_ = 0;
    failure_.clear();
    if (last) return copied(now, out);
    return copy_more(now, out);
  }
  if (items_.size() >= 2 || read_ticket_ != 0 || read_last_) return;
  if (shared_.bytes + kSnapshotBytes > kMoverBytesMax) {
    wants_turn_ = true;
    return;
  }
  read_ticket_ = ++shared_.tickets;
  out.emplace_back(ReadSnapshot{target_.id, read_ticket_, target_.source, target_.interval, read_key_, kSnapshotBytes});
}

void MoverStream::on(SnapshotRead in, Effects& out) {
  if (phase_ != Phase::copying || in.ticket != read_ticket_ || read_ticket_ == 0) return;
  read_ticket_ = 0;
  if (!in.chunk) return fail(in.now, std::move(in.chunk).error().wrap("reading the index"), out);
  Item& item = items_.emplace_back();
  item.own = std::move(in.chunk->records);
  if (!item.own.bytes) item.own.bytes = std::make_shared<const std::string>();
  item.own_done = false;
  item.bytes = item.own.bytes->size();
  item.through_key = in.chunk->through_key;
  item.last = in.chunk->last;
  bytes_ += item.bytes;
  shared_.bytes += item.bytes;
  read_key_ = in.chunk->through_key;
  read_last_ = in.chunk->last;
  copy_more(in.now, out);
}

// The snapshot is whole at the target: from here on the log.
void MoverStream::copied(Instant now, Effects& out) {
  mark_.at = mark_.snapshot_from;
  verified_ = true;
  mark_.snapshot = 0;
  mark_.snapshot_from = {};
  record(now, true, out);
  out.emplace_back(Note{false, "snapshot_complete", to_string(target_.partition), target_.server.name,
                        "going on with the log from LSN " + to_string(mark_.at.lsn)});
  phase_ = Phase::idle;
  open_ = false;
  items_.clear();
  begin(now, out);
}

}  // namespace cantle::proto::mover

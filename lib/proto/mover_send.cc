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
using model::Version;

namespace {
size_t weight(const Foreign& f) { return f.record.size() + f.entry.key.size() + sizeof(Foreign); }

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
  read_again(now, out);
  read_more(now, out);
  ask_delivered(now, out);
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
  offering_own_ = (in_touch_ || healing_ != 0) && direct_bytes_ == 0 && target_.state == AssignmentState::available;
  out.emplace_back(ReadLog{.stream = target_.id,
                           .ticket = read_ticket_,
                           .partition = target_.source,
                           .after = read_at_,
                           .interval = target_.interval,
                           .bytes = kReadBytes,
                           .offer_own = offering_own_,
                           .await = offering_own_ ? std::vector<model::ServerNumber>{} : to_await(),
                           .incarnation = shared_.incarnation,
                           .until = {}});
}

void MoverStream::on(LogRead in, Effects& out) {
  if (in.ticket == 0) return;
  if (in.ticket == again_ticket_) {  // whatever the stream does by now: the next such read waits for this one
    again_ticket_ = 0;
    for (auto& item : items_)
      if (item.again_ticket == in.ticket) return on_again(item, std::move(in), out);
    return advance(in.now, out);  // it was confirmed meanwhile
  }
  if (phase_ != Phase::sending || in.ticket != read_ticket_) return;
  read_ticket_ = 0;
  switch (in.end) {
    case ReadEnd::batch:
      if (meets_damage(in.batch, in.now)) return advance(in.now, out);
      add_batch(std::move(in.batch), in.now, out);
      break;
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

// What stood in a damaged place may be in the index, and in no log: the target gets a snapshot, once for each place.
bool MoverStream::meets_damage(const LogBatch& batch, Instant now) {
  if (batch.gap <= gap_) return false;
  reset();
  gap_ = batch.gap;
  gap_at_ = now;
  want_snapshot_ = true;
  return true;
}

void MoverStream::add_batch(LogBatch batch, Instant now, Effects& out) {
  verified_ = true;  // the read began behind the position, so it is there
  if (batch.through.lsn <= read_at_.lsn) return;
  const auto from = std::exchange(read_at_, batch.through);
  note_own(batch);
  Foreigns foreign;
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
    item.own_oldest = batch.own_oldest;
    item.bytes = item.own.bytes->size();
    bytes_ += item.bytes;
    shared_.bytes += item.bytes;
    send_own(item, now, out);
  }
  const bool nothing = !own && foreign.empty();
  add_foreign(std::move(foreign), items_.size(), now, out);
  if (nothing) items_.emplace_back();
  Item& last = items_.back();
  last.through = batch.through;
  last.from = from;
  if (std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.awaited.empty(); })) news_at_ = now;
  last.awaited = std::move(batch.awaited);
  drop_delivered(last);
}

// As items in front of the one at `at`.
void MoverStream::add_foreign(Foreigns foreign, size_t at, Instant now, Effects& out) {
  size_t from = 0;
  while (from < foreign.size()) {
    Item& item = *items_.emplace(items_.begin() + static_cast<std::ptrdiff_t>(at++));
    size_t records = 0;
    while (from < foreign.size() && item.foreign.size() < model::kDigestEntriesMax) {
      Foreign& f = foreign[from];
      if (records > 0 && records + f.record.size() > model::kBlockMax) break;
      records += f.record.size();
      item.bytes += weight(f);
      item.foreign.push_back(std::move(f));
      ++from;
    }
    bytes_ += item.bytes;
    shared_.bytes += item.bytes;
    item.offer = Offer::wanted;
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

model::BulkBlock MoverStream::block_of(const Records& records) {
  model::BulkBlock m;
  m.envelope = envelope_to(shared_, target_, txnseq_of(shared_, target_.table));
  m.kind = BulkKind::log;
  m.count = records.count;
  m.delivered = told_delivered_ = delivered();
  return m;
}

void MoverStream::send_own(Item& item, Instant now, Effects& out) {
  item.own_ticket = ++shared_.tickets;
  item.own_retry = {};
  sent(now);
  auto m = block_of(item.own);
  m.kind = mark_.snapshot != 0 ? BulkKind::snapshot : BulkKind::log;
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
  m.delivered = told_delivered_ = delivered();
  shared_.counters.offered += m.entries.size();
  out.emplace_back(SendDigest{target_.id, item.offer_ticket, target_.server, std::move(m)});
}

void MoverStream::on(const Digested& in, Effects& out) {
  const bool asked = ask_ticket_ != 0 && in.ticket == ask_ticket_;
  if (asked) {
    ask_ticket_ = 0;
    --unanswered_;
    last_sent_ = in.now;  // an error says nothing: where it stands for more, what is offered next will meet it
  }
  if (in.reply) take_delivered(in.reply->delivered, in.now);
  if (asked) return advance(in.now, out);
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
    let_go(*it, it->bytes);
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
  let_go(item, item.bytes - std::min(item.bytes, bytes));
  item.offer = Offer::sent;
  item.offer_again = {};
  send_offered(item, now, out);
}

void MoverStream::send_offered(Item& item, Instant now, Effects& out) {
  item.offer_ticket = ++shared_.tickets;
  sent(now);
  out.emplace_back(
      SendBlock{target_.id, item.offer_ticket, target_.server, block_of(item.lacking), item.lacking.bytes});
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
    take_delivered(in.delivered, in.now);
    Records& records = own ? item.own : item.lacking;
    ++shared_.counters.blocks;
    shared_.counters.records += records.count;
    shared_.counters.bytes += records.bytes->size();
    sent_bytes_ += records.bytes->size();
    let_go(item, records.bytes->size());
    records.bytes.reset();
    if (own)
      item.own_done = true;
    else
      item.offer = Offer::none;
    return advance(in.now, out);
  }
}

// What an item holds no more counts no more: those in front of it may need the room, to be read again.
void MoverStream::let_go(Item& item, size_t bytes) {
  bytes = std::min(bytes, item.bytes);
  item.bytes -= bytes;
  bytes_ -= bytes;
  shared_.bytes -= bytes;
  shared_.freed = shared_.freed || bytes > 0;
}

// An answer that asks for patience: the same block goes again later, nothing else is lost.
bool MoverStream::slow_down(const base::Error& error, Instant now, Instant* again) {
  if (error.code != Code::overloaded && error.code != Code::read_only && error.code != Code::no_space) return false;
  // Blocks that were under way together are refused together: that is one refusal.
  if (slow_.count() == 0 || now >= slow_until_)
    slow_ = slow_.count() == 0 ? kSlowFirst : std::min(slow_ * 2, kSlowMost);
  Duration pause = std::max(slow_, Duration(std::chrono::milliseconds(error.retry_after_ms)));
  pause += Duration(static_cast<int64_t>(shared_.random.below(static_cast<uint64_t>(pause.count() / 4) + 1)));
  *again = now + pause;
  slow_until_ = std::max(slow_until_, *again);
  slow_why_ = target_.server.name + ": " + base::to_string(error);
  return true;
}

void MoverStream::retry_items(Instant now, Effects& out) {
  const Instant never{};
  for (auto& item : items_) {
    if (!item.own_done && item.own_ticket == 0 && now >= item.own_retry) send_own(item, now, out);
    if (item.offer == Offer::waiting && now >= item.offer_again) offer(item, now, out);
    if (item.offer == Offer::wanted && item.offer_again != never && now >= item.offer_again) offer(item, now, out);
    if (item.offer == Offer::sent && item.offer_ticket == 0 && now >= item.offer_again) send_offered(item, now, out);
  }
}

// --- What the stampers' own movers bring ------------------------------------------------------------

void MoverStream::note_own(const LogBatch& batch) {
  if (batch.gap.value != 0 || offering_own_) {
    spoken_from_ = last_oldest_ = before_oldest_ = {};
    spoken_gap_ = true;
  }
  if (batch.own_oldest.none()) return;
  if (spoken_from_.none() && (!spoken_gap_ || !before_oldest_.none())) spoken_from_ = batch.own_oldest;
  before_oldest_ = batch.before_oldest.none() ? last_oldest_ : batch.before_oldest;
  last_oldest_ = batch.last_oldest;
}

// What of this server's stamps is at the target, all of it.
std::optional<model::Delivered> MoverStream::delivered() const {
  if (!target_.whole || mark_.snapshot != 0 || spoken_from_.none() || before_oldest_.none()) return std::nullopt;
  model::Delivered d{spoken_from_, std::min(last_oldest_, before_oldest_), true};
  for (const auto& item : items_) {
    if (item.own_done || item.own_oldest.none()) continue;
    d.before = std::min(d.before, item.own_oldest);
    d.all = false;
  }
  const auto* l = log();
  d.all = d.all && l != nullptr && read_at_.lsn >= l->end.lsn;
  if (d.before <= d.from && !d.all) return std::nullopt;
  d.before = std::max(d.before, d.from);
  return d;
}

// Those that push to this target themselves.
std::vector<model::ServerNumber> MoverStream::to_await() const {
  std::vector<model::ServerNumber> numbers;
  if (target_.state != AssignmentState::available || !target_.whole) return numbers;
  for (const auto& [number, server] : shared_.numbers) {
    const auto peer = shared_.peers.find(server);
    const bool pushes = std::find(target_.others.begin(), target_.others.end(), server) != target_.others.end();
    if (pushes && peer != shared_.peers.end() && peer->second.live) numbers.push_back(number);
  }
  return numbers;
}

bool MoverStream::delivered(const Version& oldest, const Version& newest) const {
  return std::any_of(delivered_.begin(), delivered_.end(), [&](const auto& d) {
    return d.from.server() == newest.server() && d.from.incarnation() == newest.incarnation() && d.from <= oldest &&
           newest < d.before;
  });
}

void MoverStream::take_delivered(const std::vector<model::Delivered>& all, Instant now) {
  if (all == delivered_ || healing_ != 0) return;
  delivered_ = all;
  news_at_ = now;
  for (auto& item : items_) drop_delivered(item);
}

void MoverStream::drop_delivered(Item& item) {
  std::erase_if(item.awaited, [&](const auto& a) {
    if (!delivered(a.oldest, a.newest) && !settled(a.newest)) return false;
    shared_.counters.settled += a.count;
    return true;
  });
  if (item.offer != Offer::waiting && item.offer != Offer::wanted) return;
  size_t freed = 0;
  std::erase_if(item.foreign, [&](const auto& f) {
    if (!delivered(f.entry.version, f.entry.version)) return false;
    freed += weight(f);
    return true;
  });
  let_go(item, freed);
  if (item.foreign.empty()) item.offer = Offer::none;
}

// No more is to be expected of the mover that should bring them.
bool MoverStream::over(const Awaited& awaited) const {
  if (!stamper_pushes(awaited.newest)) return true;
  return std::any_of(delivered_.begin(), delivered_.end(),
                     [&](const auto& d) { return d.all && d.from.server() == awaited.newest.server(); });
}

// Nothing was heard for a while of those who should bring what was passed over, or they have no more to bring: what is
// left of it is read again, and offered.
void MoverStream::read_again(Instant now, Effects& out) {
  if (again_ticket_ != 0 || read_ticket_ != 0) return;
  const bool no_news = now - news_at_ >= kAwaitMost;
  for (auto& item : items_) {
    if (item.awaited.empty()) continue;
    if (!no_news && !std::all_of(item.awaited.begin(), item.awaited.end(), [&](const auto& a) { return over(a); }))
      return;
    if (bytes_ + kReadBytes > kStreamBytesMax || shared_.bytes + kReadBytes > kMoverBytesMax) return;
    again_ticket_ = item.again_ticket = ++shared_.tickets;
    out.emplace_back(ReadLog{.stream = target_.id,
                             .ticket = again_ticket_,
                             .partition = target_.source,
                             .after = item.from,
                             .interval = target_.interval,
                             .bytes = kReadBytes,
                             .offer_own = false,
                             .await = {},
                             .incarnation = shared_.incarnation,
                             .until = item.through->lsn});
    return;
  }
}

void MoverStream::on_again(Item& item, LogRead in, Effects& out) {
  item.again_ticket = 0;
  if (in.end == ReadEnd::retired) {
    reset();
    want_snapshot_ = true;
    return advance(in.now, out);
  }
  if (in.end != ReadEnd::batch || in.batch.through.lsn != item.through->lsn)
    return fail(in.now, base::Error(Code::io_error, "reading the journal again: " + in.error), out);
  if (meets_damage(in.batch, in.now)) return advance(in.now, out);
  Foreigns foreign;
  for (auto& f : in.batch.foreign) {
    const auto& v = f.entry.version;
    const bool awaited = std::any_of(item.awaited.begin(), item.awaited.end(), [&](const auto& a) {
      return v.server() == a.newest.server() && v.incarnation() == a.newest.incarnation();
    });
    if (awaited && !settled(v) && !delivered(v, v)) foreign.push_back(std::move(f));
  }
  item.awaited.clear();
  const auto at = static_cast<size_t>(
      std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return &i == &item; }) - items_.begin());
  add_foreign(std::move(foreign), at, in.now, out);  // in front of it: `item` is no more
  advance(in.now, out);
}

// What the others have said is asked for while nothing goes to the target that would bring it; and told, once, when
// nothing else does.
void MoverStream::ask_delivered(Instant now, Effects& out) {
  if (ask_ticket_ != 0 || unanswered_ > 0 || slow_.count() != 0) return;
  const bool awaits = std::any_of(items_.begin(), items_.end(), [](const Item& item) { return !item.awaited.empty(); });
  if (awaits) shared_.hurry_until = now + kGrace;
  const auto told = target_.others.empty() ? std::nullopt : delivered();
  const bool news = told && told != told_delivered_;
  if (!news && (!awaits || now - asked_at_ < kAskAgain)) return;
  asked_at_ = now;
  ask_ticket_ = ++shared_.tickets;
  sent(now);
  model::Digest m;
  m.envelope = envelope_to(shared_, target_, txnseq_of(shared_, target_.table));
  m.delivered = told_delivered_ = told;
  out.emplace_back(SendDigest{target_.id, ask_ticket_, target_.server, std::move(m)});
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
  if (target_.joined) return false;  // it is not all that this server has
  if (!goal_ || end_ticket_ != 0 || mark_.snapshot != 0 || needs_snapshot()) return false;
  if ((mark_.at.lsn < goal_->lsn || (!verified_ && behind())) && !MUTANT("bulk_end_too_early")) return false;
  const bool filling = target_.state == AssignmentState::initializing;
  if (filling && target_.catching_up) return false;  // what it lacks may be what the target has to have (S62)
  if (!told_ || told_->txnseq != goal_txnseq_) return true;
  const Duration age = now - told_->at;
  const bool news = mark_.at.lsn > told_->through.lsn;
  auto peer = shared_.peers.find(target_.server);
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
  has_rest_ = verified_ = true;
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

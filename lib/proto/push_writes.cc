#include <bit>

#include "lib/proto/push_impl.h"

namespace cantle::proto {

using namespace push;

namespace {

std::string_view name_of(model::Level level) {
  return level == model::Level::all ? "all" : level == model::Level::majority ? "majority" : "one";
}

base::Error with_retry(base::Error error, uint32_t ms = kRetryAfterMs) {
  error.retry_after_ms = ms;
  return error;
}
base::Error stale(const Table& t, std::string text) {
  base::Error error{Code::stale_route, std::move(text)};
  error.txnseq = t.map->txnseq.value;
  return error;
}
uint64_t bit(int i) { return uint64_t{1} << i; }

Side side_of(const model::Partition& p, const WriteAsked& in) {
  if (!p.split) return Side::whole;
  bool low = false, high = false;
  for (const auto& key : in.keys) (key < p.split->point ? low : high) = true;
  return low && high ? Side::both : low ? Side::low : Side::high;
}

}  // namespace

// --- taking a write ------------------------------------------------------------------------------------

void PushServer::Impl::on(const WriteAsked& in) {
  CHECK(!in.keys.empty());
  Table* t = table(in.table);
  if (t == nullptr || !t->map || t->map->dropped)
    return reply_error(in.request, {Code::no_such_table, "no table '" + std::string(in.table) + "'"});
  if (in.txnseq > t->map->txnseq) {
    fetch(*t, in.txnseq);
    return reply_error(in.request, with_retry({Code::unavailable,
                                               "the map at transaction " + to_string(in.txnseq) + " is not here yet"}));
  }
  const auto* s = t->serve(in.keys[0]);
  if (s == nullptr || !model::answers_reads(s->copy->state) || s->copy->creating) return elsewhere(*t, in);
  const auto& p = *s->partition;
  if (in.txnseq.value != 0 && in.txnseq < p.min_txnseq)
    return reply_error(in.request, stale(*t, "the map has changed"));
  if (!model::writable(p.state))
    return reply_error(in.request, with_retry({Code::unavailable, "the partition is being created"}));
  for (const auto& key : in.keys)
    if (!p.interval.contains(key)) return reply_error(in.request, {Code::invalid, "a batch must lie in one partition"});
  if (auto refused = refuse_write(in)) return reply_error(in.request, *std::move(refused));

  const Side side = side_of(p, in);
  const auto plan = plan_for(*t, p, *s->copy, side);
  CHECK(plan != nullptr);
  if (plan->reached(within_reach(*plan)) < std::optional(in.level))  // known beforehand: nothing is appended
    return reply_error(in.request, with_retry({Code::no_quorum, "too few replicas are within reach for level " +
                                                                    std::string(name_of(in.level))}));
  gather(*t, p, *s->copy, side, plan, in);
}

std::optional<base::Error> PushServer::Impl::refuse_write(const WriteAsked& in) const {
  if (const auto reason = read_only(); !reason.empty()) {
    base::Error error{Code::read_only, "this server takes no writes: " + reason};
    error.detail = reason;
    return with_retry(std::move(error), 10 * kRetryAfterMs);
  }
  if (store.overloaded) return with_retry({Code::overloaded, "the overlay is full"});
  if (waiting_batches >= kBatchesInFlightMax || waiting_bytes + in.bytes > kBytesInFlightMax ||
      waiting_requests >= kRequestsInFlightMax)
    return with_retry({Code::overloaded, "too many writes are under way"});
  if (in.version && (in.version->none() || too_far_ahead(*in.version, now.wall)))
    return base::Error{Code::invalid, "version " + to_string(*in.version) + " is ahead of this server's clock"};
  if (in.after && too_far_ahead(*in.after, now.wall))
    return with_retry({Code::unavailable, "this server's clock is behind version " + to_string(*in.after) +
                                              ", after which the write is to come"});
  return std::nullopt;
}

void PushServer::Impl::elsewhere(Table& t, const WriteAsked& in) {
  const auto* p = t.map->find(in.keys[0]);
  if (p == nullptr) return reply_error(in.request, {Code::faulted, "no partition covers the key"});
  if (in.txnseq.value != 0 && in.txnseq < p->min_txnseq)
    return reply_error(in.request, stale(t, "the map has changed"));
  if (!in.hop) return reply_error(in.request, stale(t, "the key is not served here"));
  if (const auto* to = forward_to(*p)) return emit(Forward{in.request, *to, t.map->txnseq});
  reply_error(in.request, with_retry({Code::unavailable, "no server of the partition is within reach"}));
}

const ServerId* PushServer::Impl::forward_to(const model::Partition& p) const {
  for (const auto& a : p.assignments)  // in slot order: the preferred one first
    if (a.server != self.server && model::answers_reads(a.state) && within_reach(a.server)) return &a.server;
  return nullptr;
}

void PushServer::Impl::gather(Table& t, const model::Partition& p, Copy& c, Side side,
                              const std::shared_ptr<const Plan>& plan, const WriteAsked& in) {
  const bool newest = !in.version;
  BatchId& open = c.open[static_cast<int>(side)][newest ? 1 : 0];
  if (open != 0)
    if (auto& b = batches.at(open); b.bytes + in.bytes > model::kBlockMax || b.waiting.size() >= kRequestsInBatchMax)
      close(b);
  if (open == 0) {
    open = ++last_batch;
    Batch& b = batches[open];
    b.id = open;
    b.table = t.uuid;
    b.log = c.held.partition;
    b.own = c.held.assignment;
    b.side = side;
    if (p.split) b.split = p.split->attempt;
    b.newest = newest;
    b.scope = {p.id};
    b.plan = plan;
    b.earliest = in.deadline;
    open_batches.push_back(open);
    waiting_batches++;
  }
  Batch& b = batches.at(open);
  // A failover within one millisecond, or to a server whose clock is behind: the same client's next write still wins.
  if (newest && in.after) hlc.observe(*in.after);
  const auto version = newest ? hlc.stamp(now.wall) : *in.version;
  if (!newest) hlc.observe(version);
  if (b.count == 0 || version < b.low) b.low = version;
  b.high = std::max(b.high, version);
  b.count += static_cast<uint32_t>(in.keys.size());
  b.bytes += in.bytes;
  b.earliest = std::min(b.earliest, in.deadline);
  b.waiting.push_back({in.request, in.level, in.deadline, version, b.count});
  waiting_bytes += in.bytes;
  waiting_requests++;
  emit(Gather{in.request, b.id, version});
}

// --- sending it ------------------------------------------------------------------------------------------

void PushServer::Impl::on(const Flush&) {
  for (const BatchId id : std::exchange(open_batches, {}))
    if (auto it = batches.find(id); it != batches.end() && !it->second.closed) close(it->second);
  publish_marks();
}

void PushServer::Impl::close_open(const TableUuid& uuid) {
  for (const BatchId id : open_batches)
    if (auto it = batches.find(id); it != batches.end() && !it->second.closed && it->second.table == uuid)
      close(it->second);
}

void PushServer::Impl::close(Batch& b) {
  Table* t = table(b.table);
  Copy* c = copy(b.own);
  CHECK(t != nullptr && !b.closed);
  b.closed = true;
  if (c == nullptr) {  // dropped with its table
    b.failed = true;
    give_up(b, "the copy is gone");
    return retire(b);
  }
  c->open[static_cast<int>(b.side)][b.newest ? 1 : 0] = 0;
  if (b.newest) c->track.opened(b.low);
  b.tag = t->map->txnseq;
  t->under_way[b.tag]++;
  emit(Append{b.id, b.log, b.count, b.newest});
  b.resend_at = now.at + b.resend_after;
  send_missing(*t, b);
}

void PushServer::Impl::send_missing(Table& t, Batch& b) {
  b.sent_at = now.at;
  for (size_t i = 0; i < b.plan->targets.size(); i++) {
    const auto& target = b.plan->targets[i];
    if (((b.acked | b.sent | b.plan->own) & bit(static_cast<int>(i))) != 0 || !within_reach(target.server)) continue;
    Link& link = links[target.server];
    if (link.under_way >= kSendsToOneMax) continue;
    link.under_way++;
    link.said = now.at;
    b.sent |= bit(static_cast<int>(i));
    emit(Send{.batch = b.id,
              .to = target.server,
              .envelope = envelope(t, target.partition, target.own, target.assignment),
              .settled = settled_for(b.own),
              .only = target.only,
              .timeout = kSendTimeout});
  }
}

model::Version PushServer::Impl::settled_for(const AssignmentId& own) const {
  const Copy* c = copy(own);
  return c == nullptr ? model::Version{} : c->track.own_settled();
}

model::Envelope PushServer::Impl::envelope(const Table& t, const PartitionId& partition, const AssignmentId& from,
                                           const AssignmentId& to) const {
  return {.table = t.name,
          .table_uuid = t.uuid,
          .partition = partition,
          .txnseq = t.map->txnseq,
          .from = self.server,
          .incarnation = self.incarnation,
          .from_assignment = from,
          .to_assignment = to};
}

// --- answers ---------------------------------------------------------------------------------------------

void PushServer::Impl::on(const Appended& in) {
  auto it = batches.find(in.batch);
  if (it == batches.end()) return;
  Batch& b = it->second;
  Table* t = table(b.table);
  if (in.end) {
    b.end = *in.end;
    b.acked |= b.plan->own;
    LogTrack::Entry entry{.kind = b.newest ? LogTrack::Entry::Kind::own : LogTrack::Entry::Kind::unknown,
                          .end = *in.end,
                          .oldest = b.low,
                          .newest = b.high,
                          .side = b.side,
                          .acked = {}};
    for (size_t i = 0; i < b.plan->targets.size(); i++)
      if ((b.acked & bit(static_cast<int>(i))) != 0) entry.acked.push_back(b.plan->targets[i].assignment);
    track_entry(b.own, entry);
    answer_reached(b);
  } else {
    append_failed(b, in.end.error());
  }
  const TxnSeq tag = b.tag;
  retire(b);
  if (t != nullptr) end_under_way(*t, tag);
}

void PushServer::Impl::append_failed(Batch& b, const base::Error& why) {
  if (b.newest)
    if (Copy* c = copy(b.own)) c->track.abandoned(b.low);
  b.failed = true;
  if (why.code == Code::outcome_unknown) return give_up(b, why.text);
  // The store refused it at once: nothing was sent either, so nothing has happened.
  for (size_t i = 0; i < b.plan->targets.size(); i++)
    if ((b.sent & bit(static_cast<int>(i))) != 0) links[b.plan->targets[i].server].under_way--;
  b.sent = 0;
  auto error = why;
  if (error.code == Code::no_space) error.code = Code::read_only;
  for (const auto& w : std::exchange(b.waiting, {})) reply_error(w.request, with_retry(error)), waiting_requests--;
}

void PushServer::Impl::on(const SendAnswered& in) {
  auto it = batches.find(in.batch);
  if (it == batches.end()) return;
  Batch& b = it->second;
  const int i = target_of(b, in.to);
  if (i < 0) {
    if (b.strays > 0) b.strays--;
    return retire(b);
  }
  const auto& target = b.plan->targets[static_cast<size_t>(i)];
  Link& link = links[target.server];
  if (link.under_way > 0) link.under_way--;
  b.sent &= ~bit(i);
  if (in.answer) {
    // A slow answer says little about the other clock.
    if (now.at - b.sent_at < kClockAnswerWithin) clocks.heard(target.server, in.answer->wall_ms, now.at, now.wall);
    b.acked |= bit(i);
    if (b.end) track_ack(b, in.to, target.assignment);
    answer_reached(b);
  } else {
    refused(b, in.answer.error());
  }
  retire(b);
}

int PushServer::Impl::target_of(const Batch& b, const AssignmentId& to) const {
  for (const auto& [older, i] : b.aliases)
    if (older == to) return i;
  return b.plan->find(to);
}

void PushServer::Impl::refused(Batch& b, const base::Error& error) {
  Table* t = table(b.table);
  if (error.code == Code::stale_route && t != nullptr) {
    if (TxnSeq{error.txnseq} > t->map->txnseq) return fetch(*t, TxnSeq{error.txnseq});  // counted anew when it is here
    b.resend_at = std::min(b.resend_at, now.at + kResendSoon);  // sent before the map was installed
  }
}

void PushServer::Impl::answer_reached(Batch& b) {
  const auto level = b.plan->reached(b.acked);
  if (!level || b.waiting.empty() || !b.end) return;
  const Table* t = table(b.table);
  std::erase_if(b.waiting, [&](const Waiting& w) {
    if (w.level > *level) return false;
    const model::Lsn lsn{b.end->lsn.value - b.count + w.last};
    model::WriteReply reply;
    reply.version = w.version;
    reply.lsn = lsn;
    reply.epoch = b.end->epoch;
    if (t != nullptr) reply.txnseq = t->map->txnseq;
    emit(Reply{w.request, std::move(reply)});
    waiting_requests--;
    return true;
  });
}

base::Error PushServer::Impl::unknown(const Waiting& w, std::string_view why) const {
  base::Error error{Code::outcome_unknown, std::string(why)};
  error.detail = to_string(w.version);  // a retry with it changes nothing a second time
  return error;
}

void PushServer::Impl::give_up(Batch& b, std::string_view why) {
  for (const auto& w : std::exchange(b.waiting, {})) reply_error(w.request, unknown(w, why)), waiting_requests--;
}

// Lets go of what is no longer needed: the payload when nobody waits, the batch when nothing is under way.
void PushServer::Impl::retire(Batch& b) {
  if (!b.waiting.empty() || !b.closed) return;
  if (std::exchange(b.payload, false)) {
    emit(Forget{b.id});
    waiting_batches--;
    waiting_bytes -= b.bytes;
  }
  if ((b.end || b.failed) && b.sent == 0 && b.strays == 0) batches.erase(b.id);
}

// --- time --------------------------------------------------------------------------------------------------

void PushServer::Impl::tick_batches() {
  for (auto it = batches.begin(); it != batches.end();) {
    Batch& b = (it++)->second;
    if (b.waiting.empty() || !b.closed) continue;
    if (now.at >= b.earliest) expire(b);
    if (!b.waiting.empty() && now.at >= b.resend_at) {
      b.resend_after = std::min<base::Duration>(2 * b.resend_after, kResendMost);
      b.resend_at = now.at + b.resend_after;
      if (Table* t = table(b.table)) send_missing(*t, b);
    }
    retire(b);
  }
}

void PushServer::Impl::expire(Batch& b) {
  b.earliest = base::Instant{base::Duration::max()};
  std::erase_if(b.waiting, [&](const Waiting& w) {
    if (w.deadline > now.at) {
      b.earliest = std::min(b.earliest, w.deadline);
      return false;
    }
    reply_error(w.request,
                unknown(w, b.end ? "too few replicas confirmed in time" : "the journal did not confirm in time"));
    waiting_requests--;
    return true;
  });
}

// --- marks ---------------------------------------------------------------------------------------------------

// A log that was divided goes on in its heirs: what comes late is theirs.
void PushServer::Impl::track_entry(const AssignmentId& own, const LogTrack::Entry& entry) {
  if (Copy* c = copy(own); c != nullptr && !c->held.aside) return c->track.add(entry);
  if (auto it = heirs.find(own); it != heirs.end())
    for (const auto& heir : it->second) track_entry(heir, entry);
}

void PushServer::Impl::track_ack(const Batch& b, const AssignmentId& by, const AssignmentId& as) {
  const std::function<void(const AssignmentId&)> to = [&](const AssignmentId& own) {
    if (Copy* c = copy(own); c != nullptr && !c->held.aside) {
      c->track.acked(b.end->lsn, by);
      if (as != by) c->track.acked(b.end->lsn, as);
      return;
    }
    if (auto it = heirs.find(own); it != heirs.end())
      for (const auto& heir : it->second) to(heir);
  };
  to(b.own);
}

void PushServer::Impl::publish_marks() {
  for (auto& [own, c] : copies) {
    if (c->held.aside || c->creating) continue;
    for (const auto& [target, point] : c->track.take_changed()) emit(SetLive{own, target, point});
  }
}

}  // namespace cantle::proto

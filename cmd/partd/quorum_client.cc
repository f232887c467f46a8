// Clients' writes and reads of quorum tables.
#include <algorithm>

#include "cmd/partd/quorum.h"
#include "lib/base/check.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;
using proto::quorum_tables::kRetryAfterMs;
using proto::quorum_tables::Where;

namespace {

struct Method {
  std::string_view name;  // lives longer than any request
  base::Result<wire::WriteRequest> (*decode)(std::string_view params);
};
constexpr Method kMethods[] = {{"put", wire::decode_put},       {"delete", wire::decode_delete},
                               {"batch", wire::decode_batch},   {"cas", wire::decode_cas},
                               {"append", wire::decode_append}, {"incr", wire::decode_incr}};
const Method& method_of(std::string_view name) {
  for (const auto& m : kMethods)
    if (m.name == name) return m;
  CHECK(false);
}

constexpr uint32_t kSessionRetryMs = 5;  // a commit notice comes within 2 ms

}  // namespace

// --- writes ----------------------------------------------------------------------------------------

void Quorum::write(wire::WriteRequest& request, std::string_view method, rpc::Responder responder) {
  const auto where = tables_.where(request.table, request.keys.front(), request.txnseq);
  if (where.kind == Where::Kind::refuse || where.kind == Where::Kind::fetch) return responder.fail(where.error);
  for (const auto& key : request.keys)
    if (!where.partition->interval.contains(key))
      return responder.fail({Code::invalid, "a batch lies in one partition"});
  if (where.kind == Where::Kind::elsewhere)
    return elsewhere(*where.partition, method, request.params, where.txnseq, request.hop, request.deadline(),
                     std::move(responder));
  if (request.level == model::Level::all)
    return responder.fail({Code::invalid, "a write to a quorum table is on a majority of the replicas, not on all"});
  if (draining_) return responder.fail({Code::unavailable, "the server stops"});
  if (requests_.size() >= kQuorumRequestsMax) {
    base::Error full(Code::overloaded, "too many writes under way");
    full.retry_after_ms = kRetryAfterMs;
    return responder.fail(full);
  }
  auto& r = *find(where.partition->id);
  const auto id = ++last_id_;
  auto& kept = requests_[id];
  kept.responder = std::move(responder);
  kept.method = method_of(method).name;
  kept.txnseq = where.txnseq;
  kept.timeout = request.deadline();
  kept.hop = request.hop;
  current_ = &request;
  current_id_ = id;
  run(r, [&](Out& out) { r.machine->write(at(), id, request.bytes, at() + request.deadline(), out); });
  current_ = nullptr;
  // What waits outside the log needs its bytes later; what is in a block may be passed on if it never gets there.
  if (const auto it = requests_.find(id); it != requests_.end()) it->second.params = std::string(request.params);
  flush_soon(r);
}

// A new leadership: what a former one judged and did not get into the log is nothing.
void Quorum::begin_judging(Replica& r) {
  r.judge.reset();
  r.batches.clear();
}

proto::quorum::Judged Quorum::gather(Replica& r, proto::quorum::RequestId id, const BatchKey& batch, model::Lsn first) {
  auto& request = requests_.at(id);
  wire::WriteRequest again;
  const auto* write = current_ != nullptr && current_id_ == id ? current_ : nullptr;
  if (write == nullptr) {
    auto decoded = method_of(request.method).decode(request.params);
    CHECK(decoded.has_value());  // it was when it came
    again = std::move(*decoded);
    write = &again;
  }
  r.judge.committed(engine_.visible(r.partition));
  const auto verdict =
      r.judge.judge({write->kind, write->ops, write->expect, write->by, write->client, write->series, write->age_ms},
                    batch.first, first);
  if (const auto* refusal = std::get_if<proto::quorum::Refusal>(&verdict)) {
    request.verdict = refusal->error;
    return {0, 0, refusal->after, false};
  }
  if (const auto* repeat = std::get_if<proto::quorum::Repeat>(&verdict)) {
    request.verdict = repeat->outcome;
    request.repeat = true;
    return {0, 0, repeat->after, true};
  }
  const auto& fresh = std::get<proto::quorum::NewWrite>(verdict);
  if (fresh.refused)
    request.verdict = *fresh.refused;
  else
    request.verdict = fresh.outcome;
  auto& payload = r.batches[batch];
  const auto before = payload.size();
  for (const auto& record : fresh.records) wire::append_record(payload, record);
  return {static_cast<uint32_t>(fresh.records.size()), payload.size() - before, {}, true};
}

void Quorum::flush_soon(Replica& r) {
  if (std::exchange(r.flush_planned, true)) return;
  loop_.defer([this, alive = alive_, id = r.assignment] {
    if (!*alive) return;
    run(id, [&](Replica& to, Out& out) {
      to.flush_planned = false;
      to.machine->flush(at(), out);
    });
  });
}

void Quorum::elsewhere(const model::Partition& p, std::string_view method, std::string_view params,
                       model::TxnSeq txnseq, bool hop, base::Duration timeout, rpc::Responder responder) {
  if (!hop) {
    base::Error stale(Code::stale_route, "the key is not served here");
    stale.txnseq = txnseq.value;
    return responder.fail(stale);
  }
  const model::ServerId* to = nullptr;
  for (const auto& a : p.assignments)
    if (to == nullptr || (links_.up(a.server) && !links_.up(*to)))
      if (a.server != self_ && hooks_.live(a.server)) to = &a.server;
  if (to != nullptr) return hooks_.forward(*to, method, params, txnseq, timeout, std::move(responder));
  base::Error none(Code::unavailable, "no server of the partition is within reach");
  none.retry_after_ms = kRetryAfterMs;
  responder.fail(none);
}

// --- whoever leads ---------------------------------------------------------------------------------

// Somebody who may be asked. A leader whose connection is gone has mostly gone with it: the others find that out within
// a second, and then there is another.
bool Quorum::leader_known(const Replica& r) const {
  if (r.machine->serving()) return !r.machine->parked();
  const auto& leader = r.machine->election().leader();
  return !leader.name.empty() && leader != self_ && links_.up(leader);
}

void Quorum::not_leader(const model::PartitionId& partition, const base::Error& error, std::string_view method,
                        std::string_view params, model::TxnSeq txnseq, bool hop, base::Duration timeout,
                        const rpc::Responder& responder) {
  auto* r = find(partition);
  const model::ServerId leader{error.detail};
  if (r == nullptr || draining_ || params.empty()) return responder.fail(error);
  if (leader_known(*r) && !leader.name.empty()) {
    if (!hop) return responder.fail(error);
    return hooks_.forward(leader, method, params, txnseq, timeout, responder);
  }
  if (held_.size() >= kHeldMax || held_bytes_ + params.size() > kHeldBytesMax) return responder.fail(error);
  held_bytes_ += params.size();
  r->held++;
  held_.push_back(
      {partition, at() + std::min(timeout, kLeaderWait), std::string(method), std::string(params), responder, error});
}

void Quorum::again(Held h) {
  held_bytes_ -= h.params.size();
  if (auto* r = find(h.partition)) r->held--;
  if (!h.responder.alive()) return;
  if (h.method == "get") {
    const auto request = wire::decode_get(h.params);
    if (request) get(*request, h.params, std::move(h.responder));
  } else if (h.method == "scan") {
    hooks_.scan(h.params, std::move(h.responder));
  } else {
    auto request = method_of(h.method).decode(h.params);
    if (request) write(*request, h.method, std::move(h.responder));
  }
}

void Quorum::release_held(const model::PartitionId& partition) {
  const auto* r = find(partition);
  if (r != nullptr && (r->held == 0 || !leader_known(*r))) return;
  std::deque<Held> rest, now;
  for (auto& h : held_) (h.partition == partition ? now : rest).push_back(std::move(h));
  held_ = std::move(rest);
  for (auto& h : now) again(std::move(h));
}

void Quorum::expire_held() {
  if (held_.empty()) return;
  const auto now = at();
  std::deque<Held> rest, late;
  for (auto& h : held_) (now >= h.until ? late : rest).push_back(std::move(h));
  held_ = std::move(rest);
  for (auto& h : late) {
    held_bytes_ -= h.params.size();
    if (auto* r = find(h.partition)) r->held--;
    h.responder.fail(h.error);
  }
}

// --- reads -----------------------------------------------------------------------------------------

// What is committed, and answered, must be seen: the overlay may be behind while it is full.
base::Status Quorum::may_read(const Replica& r, base::Instant now) const {
  TRY(r.machine->may_read(now));
  if (engine_.visible(r.partition) >= r.machine->log().commit()) return base::ok();
  base::Error full(Code::overloaded, "the index is behind what is committed");
  full.retry_after_ms = kRetryAfterMs;
  return base::fail(full);
}

model::Lsn Quorum::visible(const Replica& r) const { return r.machine->shown(engine_.visible(r.partition)); }

// A leader that takes over, or is parked for a split, will soon answer; one whose lease is over may be none any more.
void Quorum::refuse_read(const model::PartitionId& partition, const base::Error& error, std::string_view method,
                         std::string_view params, model::TxnSeq txnseq, bool hop, base::Duration timeout,
                         const rpc::Responder& responder) {
  const auto& machine = *find(partition)->machine;
  if (error.code == Code::not_leader || (error.code == Code::unavailable && (!machine.serving() || machine.parked())))
    return not_leader(partition, error, method, params, txnseq, hop, timeout, responder);
  responder.fail(error);
}

// What the answer says of how new it is, and whether it may be given: again, after it was read.
base::Result<std::optional<uint64_t>> Quorum::may_answer(const Replica& r, model::Level level, uint64_t session) {
  if (model::is_linearizable(level)) {
    TRY(may_read(r, loop_.now()));
    return std::optional<uint64_t>();
  }
  const auto visible = this->visible(r);
  auto may = level == model::Level::session ? r.machine->may_read_session(loop_.now(), visible, model::Lsn{session})
                                            : r.machine->may_read_any(visible);
  if (!may) {
    may.error().retry_after_ms = kSessionRetryMs;
    return base::fail(std::move(may).error());
  }
  const auto lag = loop_.now() - r.machine->word_at(loop_.now());
  return std::optional<uint64_t>(static_cast<uint64_t>(base::to_ms(lag)));
}

template <class Record>
void Quorum::answer_get(const Answering& a, const base::Result<std::optional<Record>>& found) {
  auto* r = find(a.replica);
  if (r == nullptr) return a.responder.fail({Code::unavailable, "the copy has gone"});
  if (a.linearizable)
    if (const auto may = r->machine->may_read(loop_.refresh_now()); !may) return a.responder.fail(may.error());
  if (!found) return a.responder.fail(found.error());
  if (!*found || (*found)->deleted) {
    base::Error none(Code::not_found, "no such key");
    none.detail = to_string(a.lsn);
    return a.responder.fail(none);
  }
  answer_.clear();
  wire::Writer w(answer_);
  w.map(a.lag_ms ? 4 : 3);
  w.str("value");
  w.bin((*found)->value);
  w.str("version");
  w.bin((*found)->version.view());
  w.str("lsn");
  w.uint(a.lsn.value);
  if (a.lag_ms) {
    w.str("lag_ms");
    w.uint(*a.lag_ms);
  }
  a.responder.ok(answer_);
}

void Quorum::get(const wire::GetView& request, std::string_view params, rpc::Responder responder) {
  const auto where = tables_.where(request.table, request.key, request.txnseq);
  if (where.kind == Where::Kind::refuse || where.kind == Where::Kind::fetch) return responder.fail(where.error);
  if (where.kind == Where::Kind::elsewhere)
    return elsewhere(*where.partition, "get", params, where.txnseq, request.hop, request.deadline(),
                     std::move(responder));
  const auto& r = *find(where.partition->id);
  const auto may = may_answer(r, request.level, request.session);
  if (!may)
    return refuse_read(r.partition, may.error(), "get", params, where.txnseq, request.hop, request.deadline(),
                       responder);
  const Answering a{r.assignment, model::is_linearizable(request.level), visible(r), *may, std::move(responder)};
  if (!hooks_.get_on_loop())
    return engine_.get_async(r.partition, request.key,
                             [this, alive = alive_, a](base::Result<std::optional<store::Engine::Fetched>> found) {
                               if (*alive) answer_get(a, found);
                             });
  answer_get(a, engine_.get(r.partition, request.key));
}

void Quorum::scan(const model::ScanRequest& request, const model::ScanStart& start, std::string_view params,
                  rpc::Responder responder, const std::function<void(const ScanPlace&, rpc::Responder)>& here) {
  const base::Duration timeout = std::chrono::milliseconds(
      request.deadline_ms == 0 ? model::kDeadlineDefaultMs : std::min(request.deadline_ms, model::kDeadlineMaxMs));
  const auto where = tables_.where_scan(request.table, start, request.txnseq);
  if (where.kind == Where::Kind::refuse || where.kind == Where::Kind::fetch) return responder.fail(where.error);
  if (where.kind == Where::Kind::elsewhere)
    return elsewhere(*where.partition, "scan", params, where.txnseq, request.hop, timeout, std::move(responder));
  const auto& r = *find(where.partition->id);
  const auto may = may_answer(r, request.level, request.session.value_or(0));
  if (!may) return refuse_read(r.partition, may.error(), "scan", params, where.txnseq, request.hop, timeout, responder);
  ScanPlace place{r.partition, where.partition->interval, where.txnseq, nullptr, *may};
  if (model::is_linearizable(request.level))
    place.may_answer = [this, alive = alive_, id = r.assignment]() -> base::Status {
      auto* replica = *alive ? find(id) : nullptr;
      if (replica == nullptr) return base::fail(Code::unavailable, "the copy has gone");
      return replica->machine->may_read(loop_.refresh_now());
    };
  here(place, std::move(responder));
}

}  // namespace cantle::partd

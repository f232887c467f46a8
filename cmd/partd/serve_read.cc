#include "cmd/partd/service.h"

#include <sys/resource.h>

#include <utility>

#include "lib/proto/quorum_read.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;

namespace {

constexpr uint32_t kReadsBetweenLooks = 32;
constexpr uint32_t kLoopScanMax = 64;  // records that a scan may take on the loop; longer ones go to the read threads

base::Error quorum_level(model::Level level) {
  return {Code::invalid, "level " + std::string(to_string(level)) + " is for quorum tables"};
}

base::Error not_found() { return {Code::not_found, "no such key"}; }

void encode_get(std::string& out, std::string_view value, const model::Version& version) {
  out.clear();
  wire::Writer w(out);
  w.map(2);
  w.str("value");
  w.bin(value);
  w.str("version");
  w.bin(version.view());
}

model::PushReadReply page_of(const std::optional<store::Engine::Fetched>& found) {
  model::PushReadReply r;
  if (!found) return r;
  return {true, found->deleted, found->version, found->value};
}

// How often this thread has waited for the disk: pages of the index, or values that stayed in the journal.
uint64_t disk_waits() {
  rusage used{};
  if (::getrusage(RUSAGE_THREAD, &used) != 0) return 0;
  return static_cast<uint64_t>(used.ru_majflt) + static_cast<uint64_t>(used.ru_inblock);
}

}  // namespace

bool Service::turn_is_old() {
  if (const auto turn = loop_.turns(); turn != read_turn_) {
    read_turn_ = turn;
    turn_reads_ = 0;
    turn_old_ = false;
    turn_began_ = loop_.now();
  }
  if (++turn_reads_ % kReadsBetweenLooks == 0 && !turn_old_) {
    const auto at = loop_.refresh_now();
    turn_old_ = at - turn_began_ > kLoopReads;  // so few reads in so long a time
    turn_began_ = at;
    if (turn_old_) {
      const auto before = std::exchange(disk_waits_, disk_waits());
      turn_waits_ = disk_waits_ != before;
    }
  }
  return turn_old_;
}

// A turn may be long because others have the processor: a thread for each read would make it longer.
bool Service::get_on_loop() {
  if (!turn_is_old() || !turn_waits_) return true;
  counts_.async_reads++;
  return false;
}

bool Service::scan_on_loop() {
  if (!turn_is_old()) return true;
  counts_.async_reads++;
  return false;
}

void Service::forward(const model::ServerId& to, std::string_view method, std::string_view params, model::TxnSeq txnseq,
                      base::Duration timeout, rpc::Responder responder) {
  counts_.forwarded++;
  links_->call(to, method, wire::pass_on(params, txnseq), timeout, [responder](base::Result<std::string_view> answer) {
    answer ? responder.ok(*answer) : responder.fail(answer.error());
  });
}

// --- get ------------------------------------------------------------------------------------------------------

void Service::serve_get(const rpc::Call& call, rpc::Responder responder) {
  get(call.params, std::move(responder), false);
}

void Service::get(std::string_view params, rpc::Responder responder, bool parked) {
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  const auto request = wire::decode_get(params);
  if (!request) return responder.fail(request.error());
  counts_.gets++;
  if (const auto map = quorum_->tables().installed(request->table); map && !map->dropped) {
    if (parked || request->txnseq <= map->txnseq) return quorum_->get(*request, params, std::move(responder));
    auto kept = std::make_shared<Raw>(params);
    return park(
        Raw(request->table), request->txnseq, loop_.now() + request->deadline(), kept->size(),
        [this, kept, responder] { get(*kept, responder, true); },
        [responder] {
          responder.fail({Code::unavailable, "the map that the request names did not come in time"});
        });
  }
  if (!model::is_push_level(request->level) && machine_->installed(request->table))
    return responder.fail(quorum_level(request->level));
  const auto where = machine_->where(request->table, request->key, request->txnseq, request->hop);
  switch (where.kind) {
    case push::Where::Kind::here:
      if (request->level == model::Level::one) return get_here(*request, where, params, std::move(responder));
      return get_many(*request, where, std::move(responder));
    case push::Where::Kind::forward:
      return forward(where.to, "get", params, where.txnseq, request->deadline(), std::move(responder));
    case push::Where::Kind::refuse:
      // A server that catches up may still ask the others.
      if (where.error.code == Code::catching_up && request->level != model::Level::one)
        return get_many(*request, where, std::move(responder));
      if (where.error.code == Code::no_such_table && !parked) {
        auto kept = std::make_shared<Raw>(params);
        return park_unknown(
            Raw(request->table), loop_.now() + request->deadline(), kept->size(),
            [this, kept, responder] { get(*kept, responder, true); },
            [responder, error = where.error] { responder.fail(error); });
      }
      return responder.fail(where.error);
    case push::Where::Kind::fetch:
      if (parked) return responder.fail(where.error);
      auto kept = std::make_shared<Raw>(params);
      return park(
          Raw(request->table), request->txnseq, loop_.now() + request->deadline(), kept->size(),
          [this, kept, responder] { get(*kept, responder, true); },
          [responder, error = where.error] { responder.fail(error); });
  }
}

void Service::get_here(const wire::GetView& request, const push::Where& where, std::string_view,
                       rpc::Responder responder) {
  if (get_on_loop()) {
    const auto found = engine_->get(where.log, request.key);
    if (!found) return responder.fail(found.error());
    if (!*found || (*found)->deleted) return responder.fail(not_found());
    encode_get(answer_, (*found)->value, (*found)->version);
    return responder.ok(answer_);
  }
  engine_->get_async(where.log, request.key,
                     [this, alive = alive_, responder](base::Result<std::optional<store::Engine::Fetched>> found) {
                       if (!*alive) return;
                       if (!found) return responder.fail(found.error());
                       if (!*found || (*found)->deleted) return responder.fail(not_found());
                       encode_get(answer_, (*found)->value, (*found)->version);
                       responder.ok(answer_);
                     });
}

namespace {

// A read at several replicas, while answers come in.
template <class Quorum>
struct Asking {
  Asking(Quorum q, rpc::Responder r, size_t n) : quorum(std::move(q)), responder(std::move(r)), left(n) {}
  Quorum quorum;
  rpc::Responder responder;
  size_t left;
  bool over = false;
  std::string refusals;

  void refused(const base::Error& error) { refusals += (refusals.empty() ? "" : "; ") + to_string(error); }
  // True once, when it is decided.
  bool decided() {
    if (over || (!quorum.done() && left > 0)) return false;
    over = true;
    return true;
  }
  base::Error too_few() const {
    base::Error error{Code::no_quorum, "too few replicas answered: " + refusals};
    error.retry_after_ms = push::kRetryAfterMs;
    return error;
  }
};

}  // namespace

void Service::get_many(const wire::GetView& request, const push::Where& where, rpc::Responder responder) {
  const auto plan = machine_->plan_read(where, request.table, request.level);
  if (!plan) return responder.fail(plan.error());
  using State = Asking<proto::QuorumGet>;
  auto state = std::make_shared<State>(proto::QuorumGet(plan->needed), std::move(responder),
                                       plan->asks.size() + (plan->here ? 1 : 0));
  const auto take = [this, state](uint32_t slot, base::Result<model::PushReadReply> reply) {
    state->left--;
    if (reply)
      state->quorum.answered(slot, *reply);
    else
      state->refused(reply.error());
    if (!state->decided()) return;
    if (!state->quorum.done()) return state->responder.fail(state->too_few());
    const auto result = state->quorum.result();
    if (!result) return state->responder.fail(result.error());
    encode_get(answer_, result->value, result->version);
    state->responder.ok(answer_);
  };
  if (plan->here) {
    engine_->get_async(
        plan->log, request.key,
        [alive = alive_, take, slot = plan->own_slot](base::Result<std::optional<store::Engine::Fetched>> found) {
          if (!*alive) return;
          if (!found) return take(slot, base::fail(found.error()));
          take(slot, page_of(*found));
        });
  }
  const auto timeout = std::min<base::Duration>(request.deadline(), kReadTimeout);
  for (const auto& ask : plan->asks)
    links_->call(ask.to, "push.read", wire::encode(model::PushRead{ask.envelope, std::string(request.key)}), timeout,
                 [take, slot = ask.slot](base::Result<std::string_view> answer) {
                   if (!answer) return take(slot, base::fail(answer.error()));
                   take(slot, wire::decode<model::PushReadReply>(*answer));
                 });
}

// --- scan -------------------------------------------------------------------------------------------------------

struct Service::ScanPlan {
  model::ScanRequest request;
  model::ScanStart start;
  model::PartitionId log;
  model::Interval serve;  // the partition's, cut to nothing else
  model::TxnSeq txnseq;
  store::ScanRange range;
  bool nothing = false;                      // the range lies outside
  std::function<base::Status()> may_answer;  // of a quorum table: asked again when it was read (S7)
  std::optional<uint64_t> lag_ms;            // of a quorum table, not its leader's
  // Of a consistent scan: the state it reads, its number, and the server whose it is.
  std::optional<store::Engine::Pin> pin;
  uint64_t kept = 0;
  model::ServerId server;

  // The cursor to go on with; empty at the end.
  std::string cursor(bool more, const std::string& resume, model::Lsn lsn) const {
    std::string bound;
    if (more)
      bound = resume;
    else if (!request.reverse && !serve.end.empty() && (request.end.empty() || serve.end < request.end))
      bound = serve.end;
    else if (request.reverse && request.begin < serve.begin)
      bound = serve.begin;
    if (bound.empty()) return "";
    return more ? model::encode_cursor({request.reverse, bound, lsn, kept, kept != 0 ? server : model::ServerId{}})
                : model::encode_cursor({request.reverse, bound, lsn});
  }
};

namespace {

base::Status check_scan(const model::ScanRequest& r) {
  if (r.begin.size() > model::kKeyMax + 1 || r.end.size() > model::kKeyMax + 1)
    return base::fail(Code::too_large, "a bound longer than any key");
  if (r.level < model::Level::one || r.level > model::Level::any)
    return base::fail(Code::invalid, "level is 1 (one) to 6 (any)");
  return base::ok();
}

base::Error no_states() {
  return {Code::invalid, "a consistent scan is for quorum tables: the replicas of a push table have no common state"};
}

uint32_t limited(uint32_t asked, uint32_t most) { return asked == 0 ? most : std::min(asked, most); }

// Records are encoded straight from the store's views.
class ScanAnswer {
 public:
  explicit ScanAnswer(bool keys_only) : keys_only_(keys_only) {}
  void add(std::string_view key, std::string_view value, const model::Version& version) {
    wire::Writer w(records_);
    w.map(keys_only_ ? 2 : 3);
    w.str("key");
    w.bin(key);
    if (!keys_only_) {
      w.str("value");
      w.bin(value);
    }
    w.str("version");
    w.bin(version.view());
    count_++;
  }
  std::string finish(std::string_view cursor, model::Lsn lsn, model::TxnSeq txnseq,
                     std::optional<uint64_t> lag_ms = std::nullopt) const {
    std::string out;
    out.reserve(records_.size() + cursor.size() + 64);
    wire::Writer w(out);
    w.map(lag_ms ? 5 : 4);
    if (lag_ms) {
      w.str("lag_ms");
      w.uint(*lag_ms);
    }
    w.str("records");
    w.array(count_);
    w.raw(records_);
    w.str("cursor");
    w.bin(cursor);
    w.str("lsn");
    w.uint(lsn.value);
    w.str("txnseq");
    w.uint(txnseq.value);
    return out;
  }

 private:
  bool keys_only_;
  std::string records_;
  size_t count_ = 0;
};

}  // namespace

void Service::serve_scan(const rpc::Call& call, rpc::Responder responder) {
  scan(call.params, std::move(responder), false);
}

void Service::scan(std::string_view params, rpc::Responder responder, bool parked) {
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  ScanPlan plan;
  auto request = wire::decode<model::ScanRequest>(params);
  if (!request) return responder.fail(request.error());
  if (auto ok = check_scan(*request); !ok) return responder.fail(ok.error());
  auto start = model::scan_start(*request);
  if (!start) return responder.fail(start.error());
  counts_.scans++;
  const auto& r = plan.request = std::move(*request);
  plan.start = std::move(*start);
  const base::Duration deadline = std::chrono::milliseconds(
      limited(r.deadline_ms == 0 ? model::kDeadlineDefaultMs : r.deadline_ms, model::kDeadlineMaxMs));
  if (const auto map = quorum_->tables().installed(r.table); map && !map->dropped) {
    const bool has_map = parked || r.txnseq <= map->txnseq;
    return scan_quorum(std::move(plan), params, std::move(responder), has_map);
  }
  if (r.consistent && machine_->installed(r.table)) return responder.fail(no_states());
  if (!model::is_push_level(r.level) && machine_->installed(r.table)) return responder.fail(quorum_level(r.level));
  const auto where = machine_->where_scan(r.table, plan.start, r.txnseq, r.hop);
  if (where.kind == push::Where::Kind::forward)
    return forward(where.to, "scan", params, where.txnseq, deadline, std::move(responder));
  const bool ask_others = where.error.code == Code::catching_up && r.level != model::Level::one;
  if (where.kind == push::Where::Kind::refuse && where.error.code == Code::no_such_table && !parked) {
    auto kept = std::make_shared<Raw>(params);
    return park_unknown(
        r.table, loop_.now() + deadline, kept->size(), [this, kept, responder] { scan(*kept, responder, true); },
        [responder, error = where.error] { responder.fail(error); });
  }
  if (where.kind == push::Where::Kind::refuse && !ask_others) return responder.fail(where.error);
  if (where.kind == push::Where::Kind::fetch) {
    if (parked) return responder.fail(where.error);
    auto kept = std::make_shared<Raw>(params);
    return park(
        r.table, r.txnseq, loop_.now() + deadline, kept->size(),
        [this, kept, responder] { scan(*kept, responder, true); },
        [responder, error = where.error] { responder.fail(error); });
  }
  plan.log = where.log;
  plan.txnseq = where.txnseq;
  fit(plan, where.partition->interval);
  if (plan.nothing) return responder.ok(ScanAnswer(false).finish(plan.cursor(false, "", {}), {}, plan.txnseq));
  if (r.level == model::Level::one) return scan_one(plan, std::move(responder));
  scan_many(plan, where, std::move(responder));
}

// What of the range lies in the partition.
void Service::fit(ScanPlan& plan, const model::Interval& interval) {
  const auto& r = plan.request;
  plan.serve = interval;
  const auto clipped =
      model::Interval{r.reverse ? r.begin : plan.start.bound, r.reverse ? plan.start.bound : r.end}.intersect(interval);
  plan.nothing = clipped.empty();
  plan.range = {.from = clipped.begin,
                .to = clipped.end,
                .reverse = r.reverse,
                .tombstones = false,
                .records_max = limited(r.limit, model::kScanRecordsMax),
                .bytes_max = limited(r.bytes, model::kScanBytesMax)};
}

void Service::scan_quorum(ScanPlan plan, std::string_view params, rpc::Responder responder, bool has_map) {
  if (!has_map) {
    auto kept = std::make_shared<Raw>(params);
    const auto deadline =
        loop_.now() + std::chrono::milliseconds(
                          limited(plan.request.deadline_ms == 0 ? model::kDeadlineDefaultMs : plan.request.deadline_ms,
                                  model::kDeadlineMaxMs));
    return park(
        plan.request.table, plan.request.txnseq, deadline, kept->size(),
        [this, kept, responder] { scan(*kept, responder, true); },
        [responder] {
          responder.fail({Code::unavailable, "the map that the request names did not come in time"});
        });
  }
  if (const auto cursor = model::decode_cursor(plan.request.cursor);
      plan.request.consistent && cursor && cursor->kept != 0)
    return scan_kept(std::move(plan), *cursor, params, std::move(responder));
  const auto request = plan.request;
  const auto start = plan.start;
  quorum_->scan(request, start, params, std::move(responder),
                [this, plan = std::move(plan)](const Quorum::ScanPlace& place, rpc::Responder to) mutable {
                  plan.log = place.log;
                  plan.txnseq = place.txnseq;
                  plan.may_answer = place.may_answer;
                  plan.lag_ms = place.lag_ms;
                  fit(plan, place.interval);
                  if (plan.nothing) return to.ok(ScanAnswer(false).finish(plan.cursor(false, "", {}), {}, plan.txnseq));
                  if (plan.request.consistent) return scan_anew(std::move(plan), std::move(to));
                  scan_one(plan, std::move(to));
                });
}

// --- consistent scans: one state of the partition for all pages ------------------------------------------------------

// The first page of a partition: the state is that of now, with all that was visible when this was asked, and the lease
// must have held until it was taken.
void Service::scan_anew(ScanPlan plan, rpc::Responder responder) {
  const auto log = plan.log;
  engine_->pin(log, [this, alive = alive_, plan = std::move(plan),
                     responder](base::Result<store::Engine::Pin> pin) mutable {
    if (!*alive) return;
    if (!pin && pin.error().code == Code::not_found)  // divided, or set aside, since the map was looked at
      return responder.fail({Code::unavailable, "the partition is not served here any more"});
    if (!pin) return responder.fail(pin.error());
    if (plan.may_answer)
      if (const auto may = plan.may_answer(); !may) return responder.fail(may.error());
    plan.may_answer = nullptr;
    const auto now = loop_.now();
    plan.kept = kept_scans_.keep({*pin, plan.request.table, plan.txnseq, now, now, engine_->status().index.file_bytes});
    plan.pin = std::move(*pin);
    plan.server = self_;
    // A division between the question and the state: what is not in this state any more is another partition's.
    fit(plan, plan.serve.intersect(plan.pin->interval()));
    scan_page(plan, responder);
  });
}

// The pages behind it: by whoever has the state, leader or not. What stands in it was committed when it was taken.
void Service::scan_kept(ScanPlan plan, const model::ScanCursor& cursor, std::string_view params,
                        rpc::Responder responder) {
  if (cursor.server != self_) {
    const base::Duration timeout = std::chrono::milliseconds(limited(
        plan.request.deadline_ms == 0 ? model::kDeadlineDefaultMs : plan.request.deadline_ms, model::kDeadlineMaxMs));
    if (plan.request.hop && links_->up(cursor.server))
      return forward(cursor.server, "scan", params, plan.request.txnseq, timeout, std::move(responder));
    return responder.fail(
        {Code::snapshot_too_old, "the state that the scan goes on in is kept by " + cursor.server.name +
                                     (plan.request.hop ? ", which is not within reach: begin it again" : "")});
  }
  const auto kept = kept_scans_.find(cursor.kept, plan.request.table, loop_.now());
  if (!kept) return responder.fail(kept.error());
  plan.pin = (*kept)->pin;
  plan.txnseq = (*kept)->txnseq;
  plan.kept = cursor.kept;
  plan.server = self_;
  fit(plan, plan.pin->interval());
  if (plan.nothing) {
    kept_scans_.let_go(plan.kept);
    return responder.ok(ScanAnswer(false).finish(plan.cursor(false, "", {}), plan.pin->at(), plan.txnseq));
  }
  scan_page(plan, std::move(responder));
}

void Service::scan_page(const ScanPlan& plan, rpc::Responder responder) {
  engine_->scan_async(*plan.pin, plan.range,
                      [this, alive = alive_, plan, responder](base::Result<store::Engine::ScanRows> rows) {
                        if (!*alive) return;
                        if (!rows) return responder.fail(rows.error());
                        if (!rows->end.more) kept_scans_.let_go(plan.kept);
                        ScanAnswer answer(plan.request.keys_only);
                        for (const auto& row : rows->rows) answer.add(row.key, row.record.value, row.record.version);
                        responder.ok(answer.finish(plan.cursor(rows->end.more, rows->end.resume, rows->end.at),
                                                   rows->end.at, plan.txnseq, plan.lag_ms));
                      });
}

void Service::scan_one(const ScanPlan& plan, rpc::Responder responder) {
  if (plan.range.records_max <= kLoopScanMax && scan_on_loop()) {
    ScanAnswer answer(plan.request.keys_only);
    const auto end = engine_->scan(plan.log, plan.range, [&](std::string_view key, const store::Found& found) {
      answer.add(key, found.value, found.version);
      return true;
    });
    if (!end) return responder.fail(end.error());
    if (plan.may_answer)
      if (const auto may = plan.may_answer(); !may) return responder.fail(may.error());
    return responder.ok(answer.finish(plan.cursor(end->more, end->resume, end->at), end->at, plan.txnseq, plan.lag_ms));
  }
  engine_->scan_async(plan.log, plan.range,
                      [alive = alive_, plan, responder](base::Result<store::Engine::ScanRows> rows) {
                        if (!*alive) return;
                        if (!rows) return responder.fail(rows.error());
                        if (plan.may_answer)
                          if (const auto may = plan.may_answer(); !may) return responder.fail(may.error());
                        ScanAnswer answer(plan.request.keys_only);
                        for (const auto& row : rows->rows) answer.add(row.key, row.record.value, row.record.version);
                        responder.ok(answer.finish(plan.cursor(rows->end.more, rows->end.resume, rows->end.at),
                                                   rows->end.at, plan.txnseq, plan.lag_ms));
                      });
}

void Service::scan_many(const ScanPlan& plan, const push::Where& where, rpc::Responder responder) {
  const auto reads = machine_->plan_read(where, plan.request.table, plan.request.level);
  if (!reads) return responder.fail(reads.error());
  using State = Asking<proto::QuorumScan>;
  const auto bytes = static_cast<uint32_t>(plan.range.bytes_max);
  auto state =
      std::make_shared<State>(proto::QuorumScan(reads->needed, plan.range.reverse, plan.range.records_max, bytes),
                              std::move(responder), reads->asks.size() + (reads->here ? 1 : 0));
  const auto take = [state, plan](uint32_t slot, base::Result<model::PushScanReply> page) {
    state->left--;
    if (!page)
      state->refused(page.error());
    else if (!state->over)
      state->quorum.answered(slot, std::move(*page));
    if (!state->decided()) return;
    if (!state->quorum.done()) return state->responder.fail(state->too_few());
    const auto result = state->quorum.result();
    ScanAnswer answer(plan.request.keys_only);
    for (const auto& r : result.records) answer.add(r.key, r.value, r.version);
    state->responder.ok(answer.finish(plan.cursor(result.more, result.resume, {}), {}, plan.txnseq));
  };
  if (reads->here)
    read_page(reads->log, plan.range,
              [take, slot = reads->own_slot](base::Result<model::PushScanReply> page) { take(slot, std::move(page)); });
  model::PushScan ask;
  ask.range = {plan.range.from, plan.range.to};
  ask.reverse = plan.range.reverse;
  ask.limit = plan.range.records_max;
  ask.bytes = bytes;
  for (const auto& a : reads->asks) {
    ask.envelope = a.envelope;
    links_->call(a.to, "push.scan", wire::encode(ask), kReadTimeout,
                 [take, slot = a.slot](base::Result<std::string_view> answer) {
                   if (!answer) return take(slot, base::fail(answer.error()));
                   take(slot, wire::decode<model::PushScanReply>(*answer));
                 });
  }
}

// A page with its tombstones, for merging.
void Service::read_page(const model::PartitionId& log, store::ScanRange range,
                        std::function<void(base::Result<model::PushScanReply>)> done) {
  range.tombstones = true;
  engine_->scan_async(log, range, [alive = alive_, done = std::move(done)](base::Result<store::Engine::ScanRows> rows) {
    if (!*alive) return;
    if (!rows) return done(base::fail(rows.error()));
    model::PushScanReply page;
    page.more = rows->end.more;
    page.resume = std::move(rows->end.resume);
    page.lsn = rows->end.at;
    for (auto& row : rows->rows)
      page.entries.push_back({std::move(row.key), std::move(row.record.value), row.record.version, row.record.deleted});
    done(std::move(page));
  });
}

}  // namespace cantle::partd

#include "lib/base/testing.h"
#include "lib/proto/push_impl.h"

namespace cantle::proto {

using namespace push;

namespace {

void refuse(Where& w, Code code, std::string text, uint32_t retry_after_ms = 0) {
  w.kind = Where::Kind::refuse;
  w.error = {code, std::move(text)};
  w.error.retry_after_ms = retry_after_ms;
  if (code == Code::stale_route) w.error.txnseq = w.txnseq.value;
}

std::string_view state_word(model::AssignmentState state) {
  switch (state) {
    case model::AssignmentState::proposed: return "proposed";
    case model::AssignmentState::initializing: return "initializing";
    case model::AssignmentState::available: return "available";
    case model::AssignmentState::leaving: return "leaving";
  }
  return "unknown";
}

std::string_view doing(const Copy& c) {
  if (c.dropping) return "dropping";
  if (c.creating) return "creating";
  if (c.held.aside || c.role == Role::unknown) return "kept";
  if (!c.caught_up) return "catching_up";
  return model::answers_reads(c.state) ? "serving" : "filling";
}

}  // namespace

// `s`: what this server serves of the place asked for; null: look for `p`, which covers it.
void PushServer::Impl::locate(Where& w, const Table& t, const Table::Serve* s, const model::Partition* p, TxnSeq txnseq,
                              bool hop) const {
  w.partition = s != nullptr ? s->partition : p;
  w.txnseq = t.map->txnseq;
  if (w.partition == nullptr) return refuse(w, Code::faulted, "no partition covers the key");
  if (txnseq.value != 0 && txnseq < w.partition->min_txnseq) return refuse(w, Code::stale_route, "the map has changed");
  if (s != nullptr && model::answers_reads(s->copy->state) && !s->copy->creating &&
      model::readable(w.partition->state)) {
    if (!s->copy->caught_up)
      return refuse(w, Code::catching_up, "this server is catching up with its replicas", kRetryAfterMs);
    w.kind = Where::Kind::here;
    w.log = s->copy->held.partition;
    return;
  }
  if (!hop) return refuse(w, Code::stale_route, "the key is not served here");
  const auto* to = forward_to(*w.partition);
  if (to == nullptr) return refuse(w, Code::unavailable, "no server of the partition is within reach", kRetryAfterMs);
  w.kind = Where::Kind::forward;
  w.to = *to;
}

bool PushServer::Impl::find_table(Where& w, std::string_view name, TxnSeq txnseq, const Table** t) const {
  *t = table(name);
  if (*t == nullptr || !(*t)->map || (*t)->map->dropped) {
    refuse(w, Code::no_such_table, "no table '" + std::string(name) + "'");
    return false;
  }
  w.txnseq = (*t)->map->txnseq;
  if (txnseq <= w.txnseq) return true;
  refuse(w, Code::unavailable, "the map at transaction " + to_string(txnseq) + " is not here yet", kRetryAfterMs);
  w.kind = Where::Kind::fetch;
  return false;
}

Where PushServer::where(std::string_view name, std::string_view key, TxnSeq txnseq, bool hop) const {
  Where w;
  const Table* t = nullptr;
  if (!impl_->find_table(w, name, txnseq, &t)) return w;
  const auto* s = t->serve(key);
  impl_->locate(w, *t, s, s == nullptr ? t->map->find(key) : nullptr, txnseq, hop);
  return w;
}

Where PushServer::where_scan(std::string_view name, const model::ScanStart& start, TxnSeq txnseq, bool hop) const {
  Where w;
  const Table* t = nullptr;
  if (!impl_->find_table(w, name, txnseq, &t)) return w;
  const auto* p = model::scan_partition(*t->map, start);
  const Table::Serve* s = p == nullptr ? nullptr : t->serve(p->interval.begin);
  impl_->locate(w, *t, s, p, txnseq, hop);
  return w;
}

base::Result<ReadPlan> PushServer::plan_read(const Where& where, std::string_view name, model::Level level) const {
  const Table* t = impl_->table(name);
  CHECK(t != nullptr && where.partition != nullptr);
  const auto& p = *where.partition;
  const Copy* own = impl_->live(p.id);
  ReadPlan plan;
  std::set<uint32_t> slots, able;
  for (const auto& a : p.assignments) {
    slots.insert(a.slot);
    if (!model::answers_reads(a.state) && !MUTANT("count_proposed_as_read")) continue;
    if (level != model::Level::one && model::given_up(p, a.id)) continue;
    if (own != nullptr && a.id == own->held.assignment) {
      if (!own->caught_up || own->creating) continue;
      plan.here = true;
      plan.own_slot = a.slot;
      plan.log = p.id;
      able.insert(a.slot);
      continue;
    }
    if (!impl_->within_reach(a.server)) continue;
    able.insert(a.slot);
    plan.asks.push_back(
        {a.slot, a.server, impl_->envelope(*t, p.id, own == nullptr ? AssignmentId{} : own->held.assignment, a.id)});
  }
  plan.needed = static_cast<uint32_t>(level == model::Level::all        ? slots.size()
                                      : level == model::Level::majority ? write_majority(slots.size())
                                                                        : 1);
  if (able.size() >= plan.needed) return plan;
  base::Error error{Code::no_quorum, "only " + std::to_string(able.size()) + " of " + std::to_string(slots.size()) +
                                         " replicas can answer"};
  error.retry_after_ms = kRetryAfterMs;
  return base::fail(std::move(error));
}

Admission PushServer::admit(const model::Envelope& envelope, Purpose purpose) const {
  return impl_->admit(envelope, purpose);
}

std::shared_ptr<const model::Metadata> PushServer::installed(std::string_view name) const {
  const Table* t = impl_->table(name);
  return t == nullptr ? nullptr : t->map;
}

std::shared_ptr<const model::Metadata> PushServer::settled(std::string_view name) const {
  const Table* t = impl_->table(name);
  return t == nullptr || t->settled.value == 0 ? nullptr : t->maps.begin()->second;
}

std::vector<std::string> PushServer::tables() const {
  std::vector<std::string> names;
  for (const auto& [name, t] : impl_->by_name)
    if (t->map && !t->map->dropped) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t PushServer::heal(const model::PartitionId& log) const {
  const Copy* c = impl_->live(log);
  return c == nullptr ? 0 : c->heal;
}

bool PushServer::caught_up() const {
  for (const auto& [own, c] : impl_->copies)
    if (c->role == Role::serving && !c->held.aside && (!c->caught_up || c->creating)) return false;
  return true;
}

std::string PushServer::read_only_reason() const { return impl_->read_only(); }

namespace {
// It may lack what nobody can be expected to have offered it yet: it vouches for nothing.
bool catching_up(const Copy& c) {
  if (c.held.aside) return !c.held.whole;  // and nobody ever will
  return !c.caught_up || (c.heal != 0 && !model::answers_reads(c.state));
}
}  // namespace

std::vector<model::HeldPartition> PushServer::held() const {
  std::vector<model::HeldPartition> all;
  for (const auto& [own, c] : impl_->copies) {
    if (c->creating || c->dropping) continue;
    const Table* t = impl_->table(c->held.table);
    all.push_back({.table = t == nullptr ? "" : t->name,
                   .table_uuid = c->held.table,
                   .partition = c->held.partition,
                   .region = c->held.region,
                   .assignment = c->held.assignment,
                   .interval = c->held.interval,
                   .unload = c->held.aside && !impl_->setting_aside.contains(own),
                   .settled = c->track.marks(),
                   .catching_up = catching_up(*c)});
  }
  return all;
}

std::vector<CopyStatus> PushServer::copies() const {
  std::vector<CopyStatus> all;
  for (const auto& [own, c] : impl_->copies) {
    CopyStatus s;
    s.copy = c->held;
    if (const Table* t = impl_->table(c->held.table)) s.table = t->name;
    switch (c->role) {
      case Role::serving: s.role = std::string(state_word(c->state)); break;
      case Role::child: s.role = "child"; break;
      case Role::old: s.role = "old"; break;
      case Role::unknown: s.role = "unknown"; break;
    }
    s.state = std::string(doing(*c));
    all.push_back(std::move(s));
  }
  return all;
}

std::vector<model::Delivered> PushServer::delivered(const model::PartitionId& log) const {
  const Copy* c = impl_->live(log);
  return c == nullptr || c->heal != 0 ? std::vector<model::Delivered>{} : c->delivered;
}

ServerStatus PushServer::status() const {
  ServerStatus s;
  s.caught_up = caught_up();
  s.read_only = impl_->read_only();
  s.clock_offset_ms = impl_->clocks.median(impl_->now.at);
  s.batches = impl_->batches.size();
  s.requests = impl_->waiting_requests;
  s.bytes = impl_->waiting_bytes;
  return s;
}

model::Incarnation PushServer::peer_incarnation(const ServerId& server) const {
  return impl_->peer_incarnation(server);
}
std::optional<int64_t> PushServer::clock_offset(const ServerId& peer) const {
  return impl_->clocks.offset(peer, impl_->now.at);
}
const model::Version& PushServer::newest_version() const { return impl_->hlc.last(); }
std::set<ServerId> PushServer::partners() const { return impl_->partners; }

std::vector<std::pair<AssignmentId, model::Lsn>> PushServer::needed() const {
  std::vector<std::pair<AssignmentId, model::Lsn>> all;
  for (const auto& [own, c] : impl_->copies)
    if (!c->held.aside && !c->creating) all.emplace_back(own, c->track.needed());
  return all;
}

base::Instant PushServer::next_tick() const {
  return impl_->now.at + (impl_->waiting_requests > 0 ? kTickBusy : kTickIdle);
}

}  // namespace cantle::proto

#include "lib/base/testing.h"
#include "lib/proto/push_impl.h"

namespace cantle::proto {

using namespace push;

void PushServer::Impl::on(const WriteArrived& in) {
  const auto& m = *in.message;
  hear(m.envelope.from, m.envelope.incarnation);
  clocks.heard(m.envelope.from, m.wall_ms, now.at, now.wall);
  receive(in.call, m.envelope, in.seen, Purpose::write,
          in.seen.one_stamper ? LogTrack::Entry::Kind::received : LogTrack::Entry::Kind::unknown);
  if (!receiving.contains(in.call)) return;  // refused
  live(m.envelope.partition)->track.settled({m.settled, m.envelope.txnseq});
}

void PushServer::Impl::on(const BulkArrived& in) {
  const auto& m = *in.message;
  hear(m.envelope.from, m.envelope.incarnation);
  receive(in.call, m.envelope, in.seen, Purpose::bulk, LogTrack::Entry::Kind::unknown);
}

void PushServer::Impl::receive(CallId call, const model::Envelope& e, const RecordsSeen& seen, Purpose purpose,
                               LogTrack::Entry::Kind kind) {
  const auto admission = admit(e, purpose);
  if (admission.kind != Admission::Kind::ok) {
    if (admission.kind == Admission::Kind::fetch)
      if (Table* t = table(e.table_uuid)) fetch(*t, e.txnseq);
    return answer_error(call, admission.error);
  }
  Table& t = *table(e.table_uuid);
  Copy& c = *live(admission.log);
  if (auto refused = refuse_records(c, seen)) return answer_error(call, *std::move(refused));
  hlc.observe(seen.newest);
  t.under_way[t.map->txnseq]++;
  receiving.emplace(
      call,
      Receiving{t.uuid,
                c.held.assignment,
                t.map->txnseq,
                {.kind = kind, .end = {}, .oldest = {}, .newest = seen.newest, .side = Side::whole, .acked = {}}});
  emit(AppendReceived{call, admission.log});
}

std::optional<base::Error> PushServer::Impl::refuse_records(const Copy& c, const RecordsSeen& seen) const {
  if (seen.count == 0) return base::Error{Code::invalid, "a message without records"};
  if (!c.held.interval.contains(seen.first_key) || !c.held.interval.contains(seen.last_key))
    return base::Error{Code::invalid, "a key is outside the partition"};
  // One bad clock must not drag the others after it (R33).
  if (too_far_ahead(seen.newest, now.wall))
    return base::Error{Code::invalid, "version " + to_string(seen.newest) + " is " +
                                          std::to_string(seen.newest.ms() - now.wall) +
                                          " ms ahead of this server's clock"};
  base::Error error;
  error.retry_after_ms = kRetryAfterMs;
  if (!store.read_only.empty()) {
    error.code = Code::read_only;
    error.text = error.detail = store.read_only;
    return error;
  }
  if (store.overloaded) {
    error.code = Code::overloaded;
    error.text = "the overlay is full";
    return error;
  }
  return std::nullopt;
}

void PushServer::Impl::on(const ReceivedAppended& in) {
  auto node = receiving.extract(in.call);
  if (node.empty()) return;
  auto& r = node.mapped();
  if (in.end) {
    r.entry.end = *in.end;
    track_entry(r.own, r.entry);
    emit(Answer{in.call, in.end->lsn});
  } else {
    auto error = in.end.error();
    if (error.code == Code::no_space) error.code = Code::read_only;
    answer_error(in.call, std::move(error));
  }
  if (Table* t = table(r.table)) end_under_way(*t, r.tag);
}

// A mover speaks of its own server's present life alone. Where it goes on from what it said before, both are true.
void PushServer::Impl::on(const DeliveryTold& in) {
  const auto& d = in.delivered;
  if (admit(in.envelope, Purpose::bulk).kind != Admission::Kind::ok) return;
  if (d.from > d.before || (d.from == d.before && !d.all)) return;  // of nothing, and there is more
  if (d.from.server() != d.before.server() || d.from.incarnation() != in.envelope.incarnation ||
      d.before.incarnation() != in.envelope.incarnation)
    return;
  auto& all = live(in.envelope.partition)->delivered;
  auto it = std::find_if(all.begin(), all.end(), [&](const auto& m) { return m.from.server() == d.from.server(); });
  if (it == all.end()) {
    if (all.size() >= kStampersMax) all.erase(all.begin());
    all.push_back(d);
    return;
  }
  const bool same_life = it->from.incarnation() == d.from.incarnation();
  if (!same_life || d.from > it->before || d.before < it->from) {
    *it = d;
    return;
  }
  it->from = std::min(it->from, d.from);
  it->before = std::max(it->before, d.before);
  it->all = d.all;
}

void PushServer::Impl::on(const BulkEndArrived& in) {
  const auto& m = *in.message;
  hear(m.envelope.from, m.envelope.incarnation);
  const auto admission = admit(m.envelope, Purpose::bulk_end);
  if (admission.kind != Admission::Kind::ok) return;
  Copy& c = *live(admission.log);
  if (c.heal != 0) {
    if (m.healed == c.heal) c.healed.insert(m.envelope.from_assignment);
    // Of a stream from before the start: what was lost here lies below its position, so it says nothing.
    if (!c.healed.contains(m.envelope.from_assignment)) return;
  }
  // What one that is itself being filled has delivered is not all that its slot stands for. It says so again when it
  // is.
  const Table& t = *table(m.envelope.table_uuid);
  const auto* sources = t.map->find(filled_from(c));
  const auto* from = sources == nullptr ? nullptr : model::find_assignment(*sources, m.envelope.from_assignment);
  if (!model::answers_reads(c.state) && from != nullptr && !model::answers_reads(from->state)) {
    c.filling_ends.insert(from->id);
  } else {
    auto& end = c.ends[m.envelope.from_assignment];
    if (m.through.lsn > end.lsn || end.epoch < m.through.epoch) end = m.through;
  }
  look_after(*table(m.envelope.table_uuid));
}

void PushServer::Impl::on(const BeaconArrived& in) {
  hear(in.beacon.from, in.beacon.incarnation);
  if (in.beacon.incarnation < peer_incarnation(in.beacon.from)) return;
  clocks.heard(in.beacon.from, in.beacon.wall_ms, now.at, now.wall);
}

// What comes from an older life of a server is late, whoever it was meant for (S25, S34).
void PushServer::Impl::hear(const ServerId& from, model::Incarnation incarnation) {
  auto& known = incarnations[from];
  if (incarnation <= known) return;
  const bool again = known.value != 0;
  known = incarnation;
  if (again) restarted(from);
}

// What it confirmed in its life before may be lost there (S62). All that is in the log here is offered to it again, up
// to the log's end as of then; a block that gets into the log later is sent to it again.
void PushServer::Impl::restarted(const ServerId& server) {
  for (auto& [id, b] : batches) {
    if (!b.closed || b.end || b.failed) continue;
    for (size_t i = 0; i < b.plan->targets.size(); i++)
      if (b.plan->targets[i].server == server) b.acked &= ~(uint64_t{1} << i);
  }
}

model::Incarnation PushServer::Impl::peer_incarnation(const ServerId& server) const {
  auto it = incarnations.find(server);
  return it == incarnations.end() ? model::Incarnation{} : it->second;
}

// --- may it? ---------------------------------------------------------------------------------------------

namespace {

Admission refuse(Code code, std::string text, TxnSeq txnseq = {}) {
  Admission a;
  a.error = {code, std::move(text)};
  a.error.txnseq = txnseq.value;
  if (code == Code::unavailable || code == Code::catching_up) a.error.retry_after_ms = kRetryAfterMs;
  return a;
}

// The entry of the map that says who holds this partition, be it a child of a split.
struct Entry {
  const model::Partition* partition = nullptr;  // itself, or the parent that is being split
  const std::vector<model::Assignment>* assignments = nullptr;
  const model::Child* child = nullptr;
};
Entry find_entry(const model::Metadata& map, const Copy* copy, const PartitionId& id,
                 const std::vector<ChildOf>& children) {
  if (const auto* p = map.find(id)) return {p, &p->assignments, nullptr};
  if (copy == nullptr || copy->role != Role::child) return {};
  for (const auto& known : children) {
    if (known.child != id) continue;
    const auto* p = map.find(known.parent);
    if (p == nullptr || !p->split) return {};
    for (const auto* child : {&p->split->low, &p->split->high})
      if (child->id == id) return {p, &child->assignments, child};
  }
  return {};
}

const model::Assignment* find_in(const std::vector<model::Assignment>& assignments, const AssignmentId& id) {
  for (const auto& a : assignments)
    if (a.id == id) return &a;
  return nullptr;
}

}  // namespace

Admission PushServer::Impl::admit(const model::Envelope& e, Purpose purpose) const {
  const Table* t = table(e.table_uuid);
  if (t == nullptr || !t->map || t->map->dropped)
    return refuse(Code::no_such_table, "no table '" + e.table + "' with that uuid");
  if (e.incarnation < peer_incarnation(e.from))
    return refuse(Code::unavailable, "from an older life of server " + e.from.name);
  if (e.from_assignment == e.to_assignment)
    return refuse(Code::unavailable, "no copy takes from itself, or vouches for itself");
  const Copy* c = live(e.partition);
  const auto entry = find_entry(*t->map, c, e.partition, self.children);
  if (e.txnseq > t->map->txnseq) {
    auto a = refuse(Code::unavailable, "the map at transaction " + to_string(e.txnseq) + " is not here yet");
    a.kind = Admission::Kind::fetch;
    a.table = t->name;
    a.at_least = e.txnseq;
    return a;
  }
  if (entry.partition == nullptr)
    return refuse(Code::stale_route, "partition " + to_string(e.partition) + " is not in the map", t->map->txnseq);
  if (e.txnseq < entry.partition->min_txnseq && !MUTANT("ignore_min_txnseq"))
    return refuse(Code::stale_route, "the map has changed", t->map->txnseq);
  const auto* to = find_in(*entry.assignments, e.to_assignment);
  if (to == nullptr || to->server != self.server)
    return refuse(Code::unavailable, "assignment " + to_string(e.to_assignment) + " is not this server's");
  if (c == nullptr || c->held.assignment != e.to_assignment || c->creating || c->dropping)
    return refuse(Code::unavailable, "the copy is not ready");

  if (purpose == Purpose::write) {
    const auto* from = find_in(*entry.assignments, e.from_assignment);
    if (from == nullptr && entry.child != nullptr) from = find_in(entry.partition->assignments, e.from_assignment);
    if (from == nullptr || from->server != e.from)
      return refuse(Code::unavailable,
                    "assignment " + to_string(e.from_assignment) + " is not server " + e.from.name + "'s");
  }
  if (purpose == Purpose::read) {
    if ((entry.child != nullptr || !model::answers_reads(to->state) || !model::readable(entry.partition->state)) &&
        !MUTANT("count_proposed_as_read"))
      return refuse(Code::unavailable, "the copy does not answer reads");
    if (!c->caught_up) return refuse(Code::catching_up, "the copy is catching up");
  }
  Admission a;
  a.kind = Admission::Kind::ok;
  a.log = e.partition;
  return a;
}

}  // namespace cantle::proto

#include "lib/proto/push_impl.h"

namespace cantle::proto {

using namespace push;
using model::AssignmentState;

// --- caught up after a start -------------------------------------------------------------------------

void PushServer::Impl::start_catch_up(Copy& c) {
  if (c.creating || !model::answers_reads(c.state)) return;
  c.caught_up = false;
  c.catch_up_until = now.at + kCatchUpMost;
}

// Each live replica is asked for the end of its log; what it had by then must have been delivered by its replpush.
// The dead are not waited for (coordination.md, "Start of a server").
void PushServer::Impl::catch_up(Table& t, Copy& c, const model::Partition& p) {
  std::string missing;
  bool unhealed = false;
  const bool ask = now.at >= c.ask_next;
  for (const auto& a : p.assignments) {
    if (a.server == self.server || !model::answers_reads(a.state)) continue;
    if (live_known && !live_servers.contains(a.server)) continue;
    if (c.heal != 0 && !c.healed.contains(a.id)) {
      // A record that may be missing is never answered as not there (S62): no bound in time on this.
      unhealed = true;
      missing += (missing.empty() ? "" : ", ") + a.server.name;
      continue;
    }
    const auto said = c.epochs.find(a.id);
    if (said != c.epochs.end()) {
      const auto end = c.ends.find(a.id);
      if (said->second.end.lsn.value == 0 || (end != c.ends.end() && end->second.lsn >= said->second.end.lsn)) continue;
    } else if (ask) {
      emit(AskEpochs{a.server, envelope(t, p.id, c.held.assignment, a.id)});
    }
    missing += (missing.empty() ? "" : ", ") + a.server.name;
  }
  if (ask) c.ask_next = now.at + kAskEvery;
  if (missing.empty() && live_known) {
    c.caught_up = true;
    return say(base::Level::info, "caught-up", "partition " + to_string(p.id));
  }
  if (now.at < c.catch_up_until || unhealed) return;
  c.caught_up = true;
  say(base::Level::warn, "not-caught-up",
      "partition " + to_string(p.id) + " serves although it has not heard everything from " +
          (missing.empty() ? "its replicas: who is alive is not known" : missing));
}

void PushServer::Impl::on(const EpochsAnswered& in) {
  Copy* c = live(in.partition);
  if (c == nullptr || c->caught_up || !in.answer) return;
  c->epochs.emplace(in.of, *in.answer);  // the first answer: what it had when this server asked
}

// --- being filled --------------------------------------------------------------------------------------

void PushServer::Impl::fill(Table& t, Copy& c) {
  if (c.creating || c.state != AssignmentState::initializing || now.at < c.mark_next || !filled(t, c)) return;
  c.mark_next = now.at + 2 * kAskEvery;  // asked again until the map shows it (S40)
  emit(MarkAvailable{t.name, c.held.partition, c.held.assignment});
}

// Whose copies fill this one: those of its own partition, or of the one that is being split.
PartitionId PushServer::Impl::filled_from(const Copy& c) const {
  if (c.role == Role::child)
    for (const auto& known : self.children)
      if (known.child == c.held.partition) return known.parent;
  return c.held.partition;
}

bool PushServer::Impl::filled(const Table& t, const Copy& c) const {
  Heard heard{{}, c.filling_ends, c.heal != 0};
  for (const auto& [from, end] : c.ends) heard.whole.insert(from);
  const auto* p = t.map->find(filled_from(c));
  if (p == nullptr) return false;
  if (c.role == Role::child) return filled_child(*t.map, *p, c.held.assignment, heard);
  const auto* own = model::find_assignment(*p, c.held.assignment);
  return own != nullptr && push::filled(*t.map, *p, *own, heard);
}

// The damaged place has been compared with every replica, the dead ones too once they are back; only then is it
// passed over for good.
void PushServer::Impl::mark_whole(Copy& c, const model::Partition& p) {
  for (const auto& a : p.assignments)
    if (a.server != self.server && model::answers_reads(a.state) && !c.healed.contains(a.id)) return;
  c.heal = 0;
  c.held.whole = true;
  c.healed.clear();
  say(base::Level::notice, "healed", "partition " + to_string(p.id) + " was compared with every replica");
  emit(MarkWhole{c.held.partition, c.held.assignment});
}

void PushServer::Impl::look_after(Table& t) {
  for (auto& [own, c] : copies) {
    if (c->held.table != t.uuid || c->held.aside || c->dropping) continue;
    const auto* p = t.map->find(c->held.partition);
    if (!c->caught_up && c->role == Role::serving && p != nullptr) catch_up(t, *c, *p);
    if (c->heal != 0 && c->role == Role::serving && p != nullptr && model::answers_reads(c->state)) mark_whole(*c, *p);
    if (c->role == Role::serving || c->role == Role::child) fill(t, *c);
  }
}

// --- the store has done it -----------------------------------------------------------------------------

namespace {
template <class Key>
std::optional<HeldBack> take(std::map<Key, HeldBack>& from, const Key& key) {
  auto it = from.find(key);
  if (it == from.end()) return std::nullopt;
  const auto value = it->second;
  from.erase(it);
  return value;
}
}  // namespace

void PushServer::Impl::on(const Created& in) {
  const auto held = take(creating, in.partition);
  if (!held) return;
  Table* t = table(held->table);
  Copy* c = live(in.partition);
  if (!in.status) {
    say(base::Level::error, "create", "partition " + to_string(in.partition) + ": " + to_string(in.status.error()));
    if (c != nullptr) {
      unmade[c->held.assignment] = c->held.table;
      remove(c->held.assignment);  // the next map, or the slow timer, begins it again
    }
    if (t != nullptr) t->arrange_at = now.at + kAskEvery;
  } else if (c != nullptr) {
    c->creating = false;
    if (unmade.erase(c->held.assignment) != 0 && t != nullptr) remember_seen(*t);
    if (t != nullptr && t->map && !t->map->dropped && !arrange(*t, false)) return;  // a map may have come meanwhile
  }
  if (t != nullptr) end_under_way(*t, held->tag);
}

void PushServer::Impl::on(const Divided& in) {
  const auto held = take(dividing, in.parent);
  if (!held) return;
  if (!in.status)
    return say(base::Level::error, "divide", "partition " + to_string(in.parent) + ": " + to_string(in.status.error()));
  if (Table* t = table(held->table)) end_under_way(*t, held->tag);
}

void PushServer::Impl::on(const Merged& in) {
  const auto held = take(merging, in.target);
  if (!held) return;
  if (!in.status)
    return say(base::Level::error, "merge", "partition " + to_string(in.target) + ": " + to_string(in.status.error()));
  if (Table* t = table(held->table)) end_under_way(*t, held->tag);
}

void PushServer::Impl::on(const SetAsideDone& in) {
  auto it = setting_aside.find(in.assignment);
  if (it == setting_aside.end()) return;
  Table* t = table(it->second.table);
  if (!in.status && in.status.error().code != Code::not_found) {
    say(base::Level::warn, "set-aside", "assignment " + to_string(in.assignment) + ": " + to_string(in.status.error()));
    it->second.failed = true;
    if (t != nullptr) t->arrange_at = now.at + kAskEvery;
    return;
  }
  const auto held = *take(setting_aside, in.assignment);
  if (t != nullptr) end_under_way(*t, held.tag);
}

// --- dropping ------------------------------------------------------------------------------------------

void PushServer::Impl::drop(Copy& c, std::string why) {
  if (std::exchange(c.dropping, true)) return;
  if (Table* t = table(c.held.table); t != nullptr && t->map)
    dropping[c.held.assignment] = {c.held.table, hold_back(*t), false};
  emit(Drop{c.held.partition, c.held.assignment, std::move(why)});
}

void PushServer::Impl::on(const Dropped& in) {
  const auto call = drops.find(in.assignment);
  const auto held = take(dropping, in.assignment);
  if (in.status) {
    if (const Copy* c = copy(in.assignment))
      if (std::erase_if(self.children, [&](const auto& known) { return known.child == c->held.partition; }) > 0)
        remember();
    if (const Copy* c = copy(in.assignment))
      if (Table* t = table(c->held.table)) t->arrange_at = now.at;  // another tenure of it may be due
    remove(in.assignment);
  } else if (Copy* c = copy(in.assignment)) {
    c->dropping = false;
    if (Table* t = table(c->held.table)) t->arrange_at = now.at + kAskEvery;
  }
  if (held)
    if (Table* t = table(held->table)) end_under_way(*t, held->tag);
  if (call == drops.end()) return;
  if (in.status)
    emit(Answer{call->second, model::Lsn{1}});
  else
    answer_error(call->second, in.status.error());
  drops.erase(call);
}

// Only what the newest map positively says should not be here, only under the map that the proof was made with, and
// only if nothing came after what was proved (S54).
void PushServer::Impl::on(const DropAsked& in) {
  const auto& m = *in.message;
  const auto refuse = [&](std::string text) { answer_error(in.call, {Code::conflict, std::move(text)}); };
  Copy* c = copy(m.assignment);
  if (c == nullptr) return emit(Answer{in.call, model::Lsn{0}});
  const Table* t = table(m.table_uuid);
  if (t == nullptr || !t->map) return refuse("the map of the table is not known here");
  if (c->held.table != m.table_uuid || c->held.partition != m.partition)
    return refuse("the assignment is of another partition");
  if (c->role != Role::old || !c->held.aside) return refuse("METADATA does not say that this copy should go");
  if (c->dropping) return refuse("it is being dropped already");
  if (setting_aside.contains(m.assignment)) return refuse("it is being set aside");
  if (m.txnseq > t->map->txnseq) return refuse("proved under a newer map than this server's");
  for (const auto& p : t->map->partitions) {
    if (p.interval.intersect(c->held.interval).empty()) continue;
    if (p.min_txnseq > m.txnseq)
      return refuse("the map has changed since the proof: transaction " + to_string(p.min_txnseq));
    if (model::being_filled(p)) return refuse("a replica of partition " + to_string(p.id) + " is still being filled");
  }
  if (in.end && in.end->lsn != m.proved_to.lsn) return refuse("the log has grown since the proof");
  drops[m.assignment] = in.call;
  drop(*c, "proved");
}

void PushServer::Impl::on(const PushedTo& in) {
  if (Copy* c = copy(in.own)) c->track.pushed_to(in.target, in.lsn);
}

}  // namespace cantle::proto

#include "lib/base/testing.h"
#include "lib/proto/push_impl.h"

namespace cantle::proto {

using namespace push;

namespace {

bool child_of_this_server(const model::Partition& p, const model::Assignment& a) {
  const auto* source = a.source.none() ? nullptr : model::find_assignment(p, a.source);
  return source != nullptr && source->server == a.server;
}

const model::EndedPartition* ended(const model::Metadata& map, const PartitionId& id) {
  for (const auto& e : map.ended)
    if (e.id == id) return &e;
  return nullptr;
}

std::string place(const Copy& c) {
  return "partition " + to_string(c.held.partition) + " assignment " + to_string(c.held.assignment);
}

}  // namespace

void PushServer::Impl::on(const MapRead& in) {
  CHECK(in.map != nullptr);
  Table& t = table_for(in);
  const bool first = t.map == nullptr;
  // The coordination service was set back: old owners must not come alive again (S36).
  if (auto it = self.seen.find(t.uuid); it != self.seen.end() && in.map->txnseq < it->second)
    return say(base::Level::error, "map-regressed",
               "table " + t.name + " shows transaction " + to_string(in.map->txnseq) + ", this server has acted on " +
                   to_string(it->second));
  if (!first && in.map->txnseq <= t.map->txnseq) return;

  close_open(t.uuid);  // what was gathered belongs to the map it was gathered under
  t.map = in.map;
  t.maps[t.map->txnseq] = t.map;
  if (t.map->dropped) {
    drop_table(t);
    return settle(t);
  }
  if (!arrange(t, first)) return;
  if (first)
    for (auto& serve : t.serves) start_catch_up(*serve.copy);
  recount(t);
  settle(t);
}

// Brings the copies in line with the installed map; again and again without harm.
bool PushServer::Impl::arrange(Table& t, bool first) {
  for (auto& [own, held] : setting_aside)
    if (const Copy* c = copy(own); held.table == t.uuid && std::exchange(held.failed, false) && c != nullptr)
      emit(SetAside{c->held.partition, own});
  reshape_ended(t);
  if (!begin_copies(t, first)) return false;
  explain_copies(t);
  rebuild(t);
  return true;
}

Table& PushServer::Impl::table_for(const MapRead& in) {
  auto& slot = tables[in.map->table];
  if (!slot) {
    slot = std::make_unique<Table>();
    slot->uuid = in.map->table;
  }
  slot->name = in.table;
  by_name[in.table] = slot.get();  // a table dropped and made again is another table
  return *slot;
}

void PushServer::Impl::drop_table(Table& t) {
  close_open(t.uuid);
  t.serves.clear();
  for (auto it = batches.begin(); it != batches.end();) {
    Batch& b = (it++)->second;
    if (b.table != t.uuid) continue;
    give_up(b, "the table was dropped");
    retire(b);
  }
  for (auto& [own, c] : copies)
    if (c->held.table == t.uuid) drop(*c, "table dropped");
  find_partners();
}

void PushServer::Impl::on(const TableDropped& in) {
  if (Table* t = table(in.table)) return drop_table(*t);
  for (auto& [own, c] : copies)
    if (c->held.table == in.table) drop(*c, "table dropped");
}

// --- what ended: divide, merge --------------------------------------------------------------------------

// In order of their ends, so that a server that was away through several splits and merges goes step by step (S42,
// S45).
void PushServer::Impl::reshape_ended(Table& t) {
  t.joining.clear();
  for (const auto& e : t.map->ended) {
    if (e.was_merged()) {
      merge_ended(t, e);
      continue;
    }
    Copy* parent = live(e.id);
    if (parent == nullptr || parent->creating) continue;
    for (const auto& a : e.parent_assignments)
      if (a.id == parent->held.assignment) {
        divide(t, *parent, e);
        break;
      }
  }
}

Child PushServer::Impl::child_here(const Table& t, const PartitionId& child, const Copy& parent) const {
  const auto mine = [&](const std::vector<model::Assignment>& assignments, model::Region region) {
    for (const auto& a : assignments)
      if (a.server == self.server && a.source == parent.held.assignment) return Child{child, a.id, region};
    return Child{child, {}, region};
  };
  if (const auto* p = t.map->find(child)) return mine(p->assignments, p->region);
  if (const auto* e = ended(*t.map, child)) return mine(e->parent_assignments, e->region);
  return {child, {}, {}};
}

void PushServer::Impl::divide(Table& t, Copy& parent, const model::EndedPartition& e) {
  const Child low = child_here(t, e.low, parent), high = child_here(t, e.high, parent);
  if (low.assignment.none() && high.assignment.none()) return set_aside(t, parent);  // push the rest, prove, drop
  emit(Divide{e.id, e.attempt, e.point, low, high});
  const AssignmentId own = parent.held.assignment;
  if (!low.assignment.none()) inherit(t, parent, low, Side::low, {parent.held.interval.begin, e.point});
  if (!high.assignment.none()) inherit(t, parent, high, Side::high, {e.point, parent.held.interval.end});
  dividing[e.id] = {t.uuid, hold_back(t), false};
  if (!low.assignment.none() && !high.assignment.none()) return remove(own);
  // The half of the child that lives elsewhere stays until it is proved.
  auto& rest = low.assignment.none() ? parent.held.interval.end : parent.held.interval.begin;
  rest = e.point;
  parent.held.aside = true;
  parent.role = Role::old;
  live_by_partition.erase(e.id);
}

void PushServer::Impl::inherit(Table& t, Copy& parent, const Child& child, Side side, model::Interval interval) {
  Copy& c = add({.partition = child.partition,
                 .assignment = child.assignment,
                 .region = child.region,
                 .table = t.uuid,
                 .interval = std::move(interval),
                 .aside = false,
                 .end = {}});
  c.caught_up = parent.caught_up;
  c.catch_up_until = parent.catch_up_until;
  c.heal = parent.heal;  // the child is compared anew, with its own replicas
  std::vector<Target> targets;
  if (const auto* p = t.map->find(child.partition))
    if (const auto plan = make_plan(*t.map, self.server, {{p, Side::both}})) targets = others(*plan);
  c.track = parent.track.continued_by(side, targets);
  heirs[parent.held.assignment].push_back(child.assignment);
}

void PushServer::Impl::set_aside(Table& t, Copy& c) {
  c.role = Role::old;
  if (c.held.aside || c.dropping) return;
  c.held.aside = true;
  if (auto it = live_by_partition.find(c.held.partition);
      it != live_by_partition.end() && it->second == c.held.assignment)
    live_by_partition.erase(it);
  emit(SetAside{c.held.partition, c.held.assignment});
  setting_aside[c.held.assignment] = {t.uuid, hold_back(t), false};
}

// --- what is to be here: begin --------------------------------------------------------------------

bool PushServer::Impl::begin_copies(Table& t, bool first) {
  for (const auto& p : t.map->partitions) {
    if (t.joining.contains(p.id)) continue;
    if (const auto* a = model::find_assignment(p, self.server))
      if (!begin_copy(t, p.id, p.region, p.interval, *a, &p, first)) return false;
    if (!p.split) continue;
    const auto& s = *p.split;
    for (const auto* child : {&s.low, &s.high})
      for (const auto& a : child->assignments) {
        if (a.server != self.server || child_of_this_server(p, a)) continue;
        const auto interval =
            child == &s.low ? model::Interval{p.interval.begin, s.point} : model::Interval{s.point, p.interval.end};
        // What was remembered of it may have found no room on the disk.
        const bool known = std::any_of(self.children.begin(), self.children.end(), [&](const ChildOf& c) {
          return c.child == child->id && c.attempt == s.attempt;
        });
        if (!known) {
          self.children.push_back({child->id, p.id, s.attempt});
          remember();
        }
        if (!begin_copy(t, child->id, child->region, interval, a, nullptr, first)) return false;
        if (auto* c = live(child->id)) c->role = Role::child, c->state = a.state;
      }
  }
  std::erase_if(
      unmade, [&](const auto& u) { return u.second == t.uuid && t.map->partitions.by_assignment(u.first) == nullptr; });
  return true;
}

// False: this server is not the one that METADATA knows; nothing more may be done.
bool PushServer::Impl::begin_copy(Table& t, const PartitionId& id, model::Region region,
                                  const model::Interval& interval, const model::Assignment& a,
                                  const model::Partition* p, bool first) {
  if (Copy* c = live(id)) {
    if (c->held.assignment == a.id) return true;
    set_aside(t, *c);  // an old tenure: kept, proved, dropped (S6)
  }
  if (copies.contains(a.id)) return true;  // aside or on its way to the trash: nothing to do here
  if (goes_on_from_unmade(t, a)) unmade[a.id] = t.uuid;
  if (lost(t, a, p, first)) {
    const std::string text =
        "METADATA of table " + t.name + " says that server " + self.server.name + " holds partition " + to_string(id) +
        " (assignment " + to_string(a.id) +
        "), and nothing of it is in this data directory. If the data is lost, give the server a new --id "
        "or an empty place: zkctl node replace " +
        self.server.name + " NEW";
    if (first)
      emit(Exit{text});
    else
      say(base::Level::error, "copy-lost", text);
    return !first;
  }
  return make_copy(t, id, region, interval, a.id);
}

bool PushServer::Impl::make_copy(Table& t, const PartitionId& id, model::Region region, const model::Interval& interval,
                                 const AssignmentId& own) {
  // One tenure of a partition at a time: a block in the journal names the partition alone. The store goes on with an
  // old copy under the new assignment; one that is on its way out is waited for.
  if (Copy* old = older_tenure(id)) {
    if (old->dropping || setting_aside.contains(old->held.assignment)) {
      t.arrange_at = now.at + kAskEvery;
      return true;
    }
    remove(old->held.assignment);
  }
  Copy& c = add({.partition = id,
                 .assignment = own,
                 .region = region,
                 .table = t.uuid,
                 .interval = interval,
                 .aside = false,
                 .end = {}});
  c.creating = true;
  creating[id] = {t.uuid, hold_back(t), false};
  emit(Create{c.held, t.name});
  return true;
}

// The child of a copy that the store could not make before it was split.
bool PushServer::Impl::goes_on_from_unmade(const Table& t, const model::Assignment& a) const {
  for (AssignmentId source = a.source; !source.none();) {
    if (unmade.contains(source)) return true;
    const auto* parent = find_ended(*t.map, source).assignment;
    if (parent == nullptr || parent->server != self.server) return false;
    source = parent->source;
  }
  return false;
}

Copy* PushServer::Impl::older_tenure(const PartitionId& id) const {
  for (const auto& [own, c] : copies)
    if (c->held.partition == id) return c.get();
  return nullptr;
}

namespace {

// Of a split's child whose source was on this server: did any of the tenures that it goes on from hold data for sure?
// One that was only to be filled when it ended may never have been made here (its disk was full, its server away), nor
// one that came with the table, if this server was away from then on and has never acted on the table.
bool parent_was_filled(const model::Metadata& map, AssignmentId source, bool acted) {
  while (!source.none()) {
    const auto* parent = find_ended(map, source).assignment;
    if (parent == nullptr) return acted;  // forgotten, which was after this server had observed that it ended
    if (model::answers_reads(parent->state)) return acted || !came_with_the_table(*parent);
    source = parent->source;
  }
  return false;
}

}  // namespace

// Should this copy have data that is not here? A copy that is to be filled has none yet; a new table's has none
// either, unless this server has acted on that table before (S6).
bool PushServer::Impl::lost(const Table& t, const model::Assignment& a, const model::Partition* p, bool first) const {
  if (first && self.fresh_under_known_name) return true;
  if (unmade.contains(a.id)) return false;
  const bool acted = self.seen.contains(t.uuid);
  if (p != nullptr && continues_here(*p, a)) {
    const auto sources = p->made_by_merge() ? model::merged_tenures(*t.map, p->id, a) : std::vector{a.source};
    if (std::any_of(sources.begin(), sources.end(),
                    [&](const auto& source) { return parent_was_filled(*t.map, source, acted); }))
      return true;
    if (!acted) return false;
  }
  if (!model::answers_reads(a.state)) return false;
  const bool created = p != nullptr && p->parent.none() && came_with_the_table(a);
  return !created || acted;
}

// --- what is here and should not be ----------------------------------------------------------------

void PushServer::Impl::explain_copies(Table& t) {
  std::vector<Copy*> here;
  for (auto& [own, c] : copies)
    if (c->held.table == t.uuid && !c->held.aside && !c->dropping && !t.joining.contains(c->held.partition))
      here.push_back(c.get());
  for (Copy* c : here) explain(t, *c);
}

void PushServer::Impl::explain(Table& t, Copy& c) {
  const auto& id = c.held.partition;
  if (const auto* p = t.map->find(id)) {
    const auto* a = model::find_assignment(*p, c.held.assignment);
    if (a == nullptr) return set_aside(t, c);
    c.role = Role::serving;
    c.state = a->state;
    return;
  }
  if (child_in_split(t, c)) return;
  if (ended(*t.map, id) != nullptr) return c.creating ? void() : set_aside(t, c);
  if (aborted(t, c)) return drop(c, "split aborted");
  // The map has used up its region number and names it no more: it ended, or was aborted, and that was forgotten before
  // this server heard of it. A number that the map has not come to yet says nothing.
  if (c.held.region.value != 0 && c.held.region < t.map->next_region) return c.creating ? void() : set_aside(t, c);
  // Absence is never an order to delete: kept, serves nothing (S52).
  c.role = Role::unknown;
  if (!std::exchange(c.told, true))
    say(base::Level::error, "copy-unknown", place(c) + " of table " + t.name + " is not in METADATA: kept, not served");
}

bool PushServer::Impl::child_in_split(const Table& t, Copy& c) const {
  for (const auto& known : self.children) {
    if (known.child != c.held.partition) continue;
    const auto* p = t.map->find(known.parent);
    if (p == nullptr || !p->split || p->split->attempt != known.attempt) return false;
    for (const auto* child : {&p->split->low, &p->split->high})
      for (const auto& a : child->assignments)
        if (a.id == c.held.assignment) {
          c.role = Role::child;
          c.state = a.state;
          return true;
        }
  }
  return false;
}

// A child of a split that did not happen: its parent is there, or ended by another attempt. Every record of it that
// anybody was told of is with a majority of the parent's slots.
bool PushServer::Impl::aborted(const Table& t, const Copy& c) const {
  for (const auto& known : self.children) {
    if (known.child != c.held.partition) continue;
    const auto* p = t.map->find(known.parent);
    if (p != nullptr) return !p->split || p->split->attempt != known.attempt;
    const auto* e = ended(*t.map, known.parent);
    return e != nullptr && e->attempt != known.attempt;
  }
  return false;
}

// --- after the decisions ----------------------------------------------------------------------------

void PushServer::Impl::rebuild(Table& t) {
  t.serves.clear();
  for (const auto& p : t.map->partitions) {
    Copy* c = live(p.id);
    if (c == nullptr || c->role != Role::serving) continue;
    for (auto& plan : c->plans) plan.reset();
    t.serves.push_back({&p, c});
    if (const auto plan = plan_for(t, p, *c, p.split ? Side::both : Side::whole)) {
      c->track.set_targets(others(*plan));
      for (const auto& gone : c->track.take_gone()) emit(ForgetLive{c->held.assignment, gone});
    }
  }
  find_partners();
}

std::vector<Target> PushServer::Impl::others(const Plan& plan) const {
  std::vector<Target> targets;
  for (const auto& target : plan.targets)
    if (target.server != self.server) targets.push_back(target);
  return targets;
}

void PushServer::Impl::find_partners() {
  partners.clear();
  for (const auto& [uuid, t] : tables)
    for (const auto& serve : t->serves) {
      for (const auto& a : serve.partition->assignments) partners.insert(a.server);
      if (const auto& s = serve.partition->split)
        for (const auto* child : {&s->low, &s->high})
          for (const auto& a : child->assignments) partners.insert(a.server);
    }
  partners.erase(self.server);
}

// What the installed map asks for is under way: until it is durable this map is not shown.
TxnSeq PushServer::Impl::hold_back(Table& t) {
  const TxnSeq below{t.map->txnseq.value - 1};
  t.under_way[below]++;
  return below;
}

void PushServer::Impl::end_under_way(Table& t, TxnSeq tag) {
  auto it = t.under_way.find(tag);
  if (it == t.under_way.end()) return;
  if (--it->second > 0) return;
  t.under_way.erase(it);
  settle(t);
}

// The newest map for which everything older has ended: appends begun under older maps are durable or known not to be
// in the log, those of other servers' messages among them; writes that wait for others count under the newest map
// anyhow; divides and creations that it asks for are durable (S43, S45).
void PushServer::Impl::settle(Table& t) {
  TxnSeq limit = t.map->txnseq;
  if (!t.under_way.empty()) limit = std::min(limit, t.under_way.begin()->first);
  auto it = t.maps.upper_bound(limit);
  if (it == t.maps.begin()) return;
  --it;
  if (it->first <= t.settled) return;
  t.settled = it->first;
  t.maps.erase(t.maps.begin(), it);
  remember_seen(t);
  publish(t);
  emit(MapShown{t.name, t.settled});
}

// Then what ended here may be forgotten. In the journal it is one block: should that be damaged when nobody knows any
// more of whose log the children were made, the index has to (S62).
void PushServer::Impl::publish(Table& t) {
  if (!wants_observed(t)) return;
  const TxnSeq at = ended_here(t);
  if (at > t.indexed && !MUTANT("published_before_the_index")) {
    if (at > std::exchange(t.indexing, std::max(t.indexing, at))) emit(Index{t.uuid, at});
    return;
  }
  t.published = t.settled;
  emit(PublishObserved{t.name, t.settled});
}

void PushServer::Impl::on(const Indexed& in) {
  Table* t = table(in.table);
  if (t == nullptr || in.txnseq <= t->indexed) return;
  t->indexed = in.txnseq;
  publish(*t);
}

// When the last of what the settled map says to have ended here did.
TxnSeq PushServer::Impl::ended_here(const Table& t) const {
  TxnSeq at;
  for (const auto& e : t.maps.begin()->second->ended)
    for (const auto& a : e.parent_assignments)
      if (a.server == self.server) at = std::max(at, e.at);
  return at;
}

bool PushServer::Impl::wants_observed(const Table& t) const {
  const auto& map = *t.maps.begin()->second;
  for (const auto& p : map.partitions) {
    bool mine = model::find_assignment(p, self.server) != nullptr;
    if (mine && map.dropped) return true;  // its copies are in the trash: the table can be forgotten
    if (p.split) {
      for (const auto* child : {&p.split->low, &p.split->high})
        for (const auto& a : child->assignments) mine = mine || a.server == self.server;
      if (mine && p.split->since > t.published) return true;
    }
    if (p.merge && mine && p.merge->since > t.published) return true;
    for (const auto& m : p.moves)
      if (mine && m.since > t.published) return true;
  }
  return ended_here(t) > t.published;
}

// Of a table one of whose copies could not be made yet, the next start must not say that it is lost.
void PushServer::Impl::remember_seen(const Table& t) {
  const bool made = std::none_of(unmade.begin(), unmade.end(), [&](const auto& u) { return u.second == t.uuid; });
  if (t.settled.value != 0 && (made || self.seen.contains(t.uuid))) self.seen[t.uuid] = t.settled;
  remember();
}

void PushServer::Impl::remember() { emit(Remember{self.seen, self.children}); }

}  // namespace cantle::proto

#include "lib/proto/quorum_tables.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/testing.h"
#include "lib/model/table_config.h"

namespace cantle::proto {

using namespace quorum_tables;
using base::Code;
using base::Instant;

namespace {

constexpr std::string_view kReplaced = "another replica took its place";

std::string place(const Held& held) {
  return "partition " + to_string(held.partition) + " assignment " + to_string(held.assignment);
}

std::string_view word(model::AssignmentState state) {
  switch (state) {
    case model::AssignmentState::proposed: return "proposed";
    case model::AssignmentState::initializing: return "initializing";
    case model::AssignmentState::available: return "available";
    case model::AssignmentState::leaving: return "leaving";
  }
  return "unknown";
}

void refuse(Where& w, Code code, std::string text, uint32_t retry_after_ms = 0) {
  w.kind = Where::Kind::refuse;
  w.error = {code, std::move(text)};
  w.error.retry_after_ms = retry_after_ms;
  if (code == Code::stale_route) w.error.txnseq = w.txnseq.value;
}

}  // namespace

QuorumTables::QuorumTables(Self self) : self_(std::move(self)) {
  for (const auto& held : self_.held) {
    Copy copy;
    copy.held = held;
    copy.held.whole = held.whole || !held.aside;  // the store knows of what is live
    auto& there = copies_.emplace(held.assignment, std::move(copy)).first->second;
    if (!held.aside) live_[held.partition] = &there;
  }
}

QuorumTables::~QuorumTables() = default;

QuorumTables::Copy* QuorumTables::live(const model::PartitionId& partition) {
  const auto it = live_.find(partition);
  return it == live_.end() ? nullptr : it->second;
}
const QuorumTables::Copy* QuorumTables::live(const model::PartitionId& partition) const {
  return const_cast<QuorumTables*>(this)->live(partition);
}

const QuorumTables::Table* QuorumTables::table(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tables_.at(it->second);
}

// --- maps ------------------------------------------------------------------------------------------

QuorumTables::Out QuorumTables::map_read(Instant, const std::string& name, std::shared_ptr<const model::Metadata> map) {
  Out out;
  changed();
  CHECK(map != nullptr && map->replication == model::Replication::quorum);
  if (const auto seen = self_.seen.find(map->table); seen != self_.seen.end() && map->txnseq < seen->second) {
    out.emplace_back(Say{base::Level::error, "map-regressed",
                         "table " + name + " shows transaction " + to_string(map->txnseq) +
                             ", this server has acted on " + to_string(seen->second)});
    return out;
  }
  auto& t = tables_[map->table];
  const bool first = t.map == nullptr;
  if (!first && map->txnseq <= t.map->txnseq) return out;
  t.name = name;
  by_name_[name] = map->table;  // a table dropped and made again is another table
  t.map = std::move(map);
  t.remembered = false;
  if (t.map->dropped) {
    drop_table(t.map->table, out);
    observe(t, out);
  } else {
    arrange(t, first, out);
  }
  remember(out);
  return out;
}

// Brings the copies in line with the map; again and again without harm.
void QuorumTables::arrange(Table& t, bool first, Out& out) {
  follow_ended(t, out);
  if (first) mark_empty(t);
  for (const auto& p : t.map->partitions) {
    const auto* a = model::find_assignment(p, self_.server);
    auto* here = live(p.id);
    if (here != nullptr && (a == nullptr || here->held.assignment != a->id)) {
      drop(*here, std::string(kReplaced), out);
      // That it is there is still to come, and its end: only then is there room for another of the partition.
      if (here->creating) continue;
      here = nullptr;
    }
    if (a == nullptr) continue;
    if (here == nullptr) {
      if (copies_.contains(a->id)) continue;  // aside, or on its way to the trash: nothing to do here
      if (comes_of(*t.map, p.id)) continue;
      if (lost(t, p, *a, first)) {
        const std::string text = "METADATA of table " + t.name + " says that server " + self_.server.name +
                                 " is a voter of partition " + to_string(p.id) + " (assignment " + to_string(a->id) +
                                 "), and its log is not in this data directory. It must not vote without it";
        if (first)
          out.emplace_back(Exit{text});
        else
          out.emplace_back(Say{base::Level::error, "copy-lost", text});
        if (first) return;
        continue;
      }
      Copy copy;
      copy.held = {p.id, a->id, p.region, t.map->table, p.interval, false};
      const auto aside = aside_of(t, p.id, *a);
      copy.held.whole = std::all_of(aside.begin(), aside.end(), [](const auto* c) { return c->held.whole; }) ||
                        MUTANT("damaged_parent_is_none");
      copy.creating = true;
      ++t.creating;
      copy.empty = !p.parent.none() && !a->source.none();
      here = live_[p.id] = &copies_.emplace(a->id, std::move(copy)).first->second;
      out.emplace_back(Create{here->held, t.name});
    }
    if (!here->creating) begin(*here, out);
    if (here->begun) tell(*here, *t.map, p, out);
    if (here->begun) show_reshape(*here, *t.map, out);
  }
  observe(t, out);
  for (auto& [own, c] : copies_) {
    if (c.held.table != t.map->table || c.dropping || c.ending) continue;
    const auto* p = t.map->find(c.held.partition);
    const auto* ended = p == nullptr ? model::find_ended(*t.map, c.held.partition) : nullptr;
    const auto is_own = [&own = own](const model::Assignment& a) { return a.id == own; };
    const auto* those = p != nullptr ? &p->assignments : ended != nullptr ? &ended->parent_assignments : nullptr;
    const bool replaced = those != nullptr && std::none_of(those->begin(), those->end(), is_own);
    if (replaced) drop(c, std::string(kReplaced), out);
    if (p != nullptr || replaced || c.held.aside || std::exchange(c.told, true)) continue;
    out.emplace_back(Say{base::Level::warn, "copy-unknown",
                         place(c.held) + " of table " + t.name + " is in no map; it is kept and takes no part"});
    if (std::exchange(c.begun, false)) out.emplace_back(End{c.held.partition});
  }
  if (!MUTANT("aside_for_what_went_elsewhere")) drop_filled(out);
}

// Should this copy have a log that is not here? One that came with the table has none yet, unless this server has
// acted on that table before (S6).
bool QuorumTables::lost(const Table& t, const model::Partition& p, const model::Assignment& a, bool first) const {
  if (first && self_.fresh_under_known_name && !MUTANT("wiped_has_nothing_to_lose")) return true;
  if (!model::answers_reads(a.state)) return false;
  if (was_parents(t, p.id, a)) return false;
  // What it continues came with the table, perhaps, and this server was never there.
  return !came_with_table(t, p.id, a) || self_.seen.contains(t.map->table);
}

bool QuorumTables::came_with_table(const Table& t, const model::PartitionId& partition,
                                   const model::Assignment& a) const {
  std::set<model::AssignmentId> seen{a.id};
  for (std::vector<Tenure> todo{{partition, &a}}; !todo.empty();) {
    const auto at = todo.back();
    todo.pop_back();
    if (at.own->source.none()) {
      if (at.own->since.value != 1) return false;
      continue;
    }
    const auto sources = sources_of(*t.map, at);
    if (sources.empty()) return false;
    for (const auto& source : sources) {
      if (source.own == nullptr) return false;
      if (seen.insert(source.own->id).second) todo.push_back(source);
    }
  }
  return true;
}

void QuorumTables::begin(Copy& c, Out& out) {
  if (c.begun || c.dropping || c.held.aside) return;
  const auto it = tables_.find(c.held.table);
  if (it == tables_.end() || !it->second.map || it->second.map->dropped) return;
  const auto* p = it->second.map->find(c.held.partition);
  if (p == nullptr) return;
  c.begun = true;
  c.members.reset();
  c.reshape.reset();
  out.emplace_back(Begin{c.held, it->second.name, it->second.map->keyspace});
  tell(c, *it->second.map, *p, out);
  show_reshape(c, *it->second.map, out);
}

void QuorumTables::tell(Copy& c, const model::Metadata& map, const model::Partition& p, Out& out) {
  quorum::Members m;
  for (const auto* a : model::should_vote(p)) m.voters.push_back({a->slot, a->server, a->id});
  for (const auto& a : p.assignments)
    if (a.state != model::AssignmentState::proposed) m.fed.push_back({a.server, a.id});
  m.pipeline = model::option(map, "pipeline") == "star" ? quorum::Pipeline::star : quorum::Pipeline::chain;
  for (const auto& move : p.moves) {
    m.acknowledge = std::max(m.acknowledge, move.cancelled);
    // Whoever leads by the map in which it was cancelled might give the vote back yet.
    if (model::taken_up_again(p, move)) m.acknowledge = std::max(m.acknowledge, move.since);
  }
  // Of the map that last changed the partition: what changed elsewhere is no news here.
  m.txnseq = p.min_txnseq;
  if (c.members == m) return;
  c.members = m;
  out.emplace_back(Tell{c.held.partition, std::move(m)});
}

void QuorumTables::show_reshape(Copy& c, const model::Metadata& map, Out& out) {
  auto seen = quorum::reshape_of(map, c.held.partition);
  if (c.reshape == seen || (!c.reshape && seen.attempt.none())) return;
  c.reshape = seen;
  out.emplace_back(ShowReshape{c.held.partition, std::move(seen)});
}

// --- what was split or merged ----------------------------------------------------------------------

const model::EndedPartition* QuorumTables::ended_of(const Copy& parent) const {
  const auto t = tables_.find(parent.held.table);
  if (t == tables_.end() || !t->second.map) return nullptr;
  const auto* e = model::find_ended(*t->second.map, parent.held.partition);
  if (e == nullptr || !e->cut) return nullptr;
  const bool ours = std::any_of(e->parent_assignments.begin(), e->parent_assignments.end(),
                                [&](const auto& a) { return a.id == parent.held.assignment; });
  return ours ? e : nullptr;
}

std::vector<const model::EndedPartition*> QuorumTables::parents_of(const model::Metadata& map,
                                                                   const model::PartitionId& partition) {
  if (const auto* e = model::find_parent(map, partition)) return {e};
  auto both = model::find_merged(map, partition);
  if (both.size() != 2) both.clear();
  return both;
}

// A merge's target names the lower one's; the higher one's is this server's, too.
std::vector<QuorumTables::Tenure> QuorumTables::sources_of(const model::Metadata& map, const Tenure& of) const {
  std::vector<Tenure> sources;
  const auto parents = parents_of(map, of.partition);
  for (const auto* e : parents) {
    const bool by_server = e != parents.front();
    const auto own = std::find_if(e->parent_assignments.begin(), e->parent_assignments.end(), [&](const auto& p) {
      return by_server ? p.server == self_.server : p.id == of.own->source;
    });
    const bool ours = own != e->parent_assignments.end() && own->server == self_.server;
    sources.push_back({e->id, ours ? &*own : nullptr});
  }
  return sources;
}

// In order of the maps: what comes of one may have ended, too.
void QuorumTables::follow_ended(Table& t, Out& out) {
  for (const auto& e : t.map->ended) {
    if (e.was_merged()) {
      if (live(e.id) != nullptr) merge(t, e.into, out);
      continue;
    }
    auto* parent = live(e.id);
    if (parent == nullptr || parent->creating || parent->ending || ended_of(*parent) == nullptr) continue;
    divide(t, *parent, e, out);
  }
}

// It takes no part any more; what becomes of its copy is still to be seen.
void QuorumTables::end(const model::EndedPartition& e, Copy& c, Out& out) {
  if (std::exchange(c.begun, false)) out.emplace_back(End{e.id, e.at});
  c.ending = true;
}

Child QuorumTables::child_here(const model::Metadata& map, const model::PartitionId& child,
                               const model::AssignmentId& parent) const {
  const auto mine = [&](const std::vector<model::Assignment>& assignments, model::Region region) {
    for (const auto& a : assignments)
      if (a.server == self_.server && a.source == parent) return Child{child, region, a.id};
    return Child{child, region, {}};
  };
  if (const auto* p = map.find(child)) return mine(p->assignments, p->region);
  if (const auto* e = model::find_ended(map, child)) return mine(e->parent_assignments, e->region);
  return {child, {}, {}};
}

Child QuorumTables::target_here(const model::Metadata& map, const model::PartitionId& target) const {
  const auto both = parents_of(map, target);
  if (both.empty()) return {target, {}, {}};
  for (const auto& a : both.front()->parent_assignments)
    if (a.server == self_.server) return child_here(map, target, a.id);
  return {target, {}, {}};
}

void QuorumTables::divide(Table& t, Copy& parent, const model::EndedPartition& e, Out& out) {
  end(e, parent, out);
  ask_divide(t, parent, e, out);
}

void QuorumTables::ask_divide(const Table& t, Copy& parent, const model::EndedPartition& e, Out& out) {
  const auto own = parent.held.assignment;
  const auto low = child_here(*t.map, e.low, own), high = child_here(*t.map, e.high, own);
  if (low.assignment.none() && high.assignment.none()) return drop(parent, "neither child is here any more", out);
  parent.asked = {low, high};
  out.emplace_back(Divide{e.id, e.attempt, e.point, e.cut->at, low, high});
}

void QuorumTables::merge(Table& t, const model::PartitionId& target, Out& out) {
  const auto both = parents_of(*t.map, target);
  std::vector<Copy*> here;
  bool waits = false;
  for (const auto* e : both) {
    auto* c = live(e->id);
    if (c == nullptr || ended_of(*c) == nullptr) continue;
    here.push_back(c);
    waits = waits || c->creating;
    end(*e, *c, out);
  }
  if (here.empty() || waits || here.front()->merging) return;
  if (here.size() < both.size() &&
      std::any_of(both.begin(), both.end(), [&](const auto* e) { return comes_of(*t.map, e->id); }))
    return;
  const auto child = target_here(*t.map, target);
  if (child.assignment.none()) {
    for (auto* c : here) drop(*c, "what it was merged into is not here any more", out);
    return;
  }
  if (here.size() < both.size())
    return fall_behind(t, here, {Code::not_found, "its neighbour in a merge is not here"}, out);
  here.front()->merging = true;
  here.front()->asked = {child};
  out.emplace_back(Merge{both[0]->id, both[1]->id, both[0]->attempt, both[0]->cut->at, both[1]->cut->at, child});
}

// What the store could not end: it is tried again, or it never can be, and all of the table's copies are looked at.
bool QuorumTables::failed_to_end(Instant now, Table& t, const std::vector<Copy*>& parents, const base::Status& status,
                                 Out& out) {
  if (status) return false;
  auto& first = *parents.front();
  // `exists`: it was set aside before, which was not durable when what comes of it was. `corrupt`: it is damaged, and
  // no leader will ever mend it now (R16).
  const auto code = status.error().code;
  if (code == Code::not_found || code == Code::exists || code == Code::corrupt) {
    fall_behind(t, parents, status.error(), out);
    arrange(t, false, out);
    remember(out);
    return true;
  }
  const bool soon = code == Code::unavailable;
  if (!soon)
    out.emplace_back(Say{base::Level::error, first.merging ? "merge" : "divide",
                         place(first.held) + ": " + to_string(status.error())});
  first.failed = any_failed_ = true;
  first.again = now + (soon ? kDivideAgain : kAgainEvery);
  return true;
}

void QuorumTables::inherit(const Child& child, const Copy& parent, model::Interval interval) {
  if (child.assignment.none()) return;
  Copy c;
  c.held = {child.partition, child.assignment, child.region, parent.held.table, std::move(interval), false};
  live_[child.partition] = &copies_.insert_or_assign(child.assignment, std::move(c)).first->second;
}

QuorumTables::Out QuorumTables::divided(Instant now, const model::PartitionId& partition, const base::Status& status) {
  Out out;
  changed();
  auto* parent = live(partition);
  const auto* e = parent == nullptr || !parent->ending ? nullptr : ended_of(*parent);
  if (e == nullptr || e->was_merged()) return out;
  auto& t = tables_.at(parent->held.table);
  if (failed_to_end(now, t, {parent}, status, out)) return out;
  const auto held = parent->held;
  CHECK(parent->asked.size() == 2);
  const auto low = parent->asked.front(), high = parent->asked.back();
  inherit(low, *parent, {held.interval.begin, e->point});
  inherit(high, copies_.at(held.assignment), {e->point, held.interval.end});
  auto& old = copies_.at(held.assignment);
  old.ending = false;
  live_.erase(partition);
  if (low.assignment.none() || high.assignment.none()) {
    old.held.aside = true;
    drop(old, "its child went elsewhere", out);
  } else {
    copies_.erase(held.assignment);
  }
  arrange(t, false, out);
  remember(out);
  return out;
}

QuorumTables::Out QuorumTables::merged(Instant now, const model::PartitionId& partition, const base::Status& status) {
  Out out;
  changed();
  auto* low = live(partition);
  const auto* e = low == nullptr || !low->merging ? nullptr : ended_of(*low);
  if (e == nullptr) return out;
  auto& t = tables_.at(low->held.table);
  const auto both = parents_of(*t.map, e->into);
  auto* high = both.empty() ? nullptr : live(both.back()->id);
  if (high == nullptr || !high->ending) return out;
  if (failed_to_end(now, t, {low, high}, status, out)) return out;
  CHECK(low->asked.size() == 1);
  const auto target = low->asked.front();
  const auto low_id = low->held.assignment, high_id = high->held.assignment;
  live_.erase(partition);
  live_.erase(high->held.partition);
  inherit(target, *low, {low->held.interval.begin, high->held.interval.end});
  copies_.erase(low_id);
  copies_.erase(high_id);
  arrange(t, false, out);
  remember(out);
  return out;
}

// A cut did not come here before the others went on without this replica, or what comes before it is damaged. Who was
// set aside before, and does not remember that, does not remember why.
void QuorumTables::fall_behind(Table& t, const std::vector<Copy*>& parents, const base::Error& why, Out& out) {
  for (auto* parent : parents) {
    out.emplace_back(Say{base::Level::warn, "behind-a-reshape",
                         place(parent->held) + ": " + why.text + "; what came of it is filled anew"});
    parent->ending = parent->merging = false;
    set_aside(*parent, why.code == Code::not_found, out);
  }
  mark_empty(t);
}

// filled() will say whether they still are.
void QuorumTables::mark_empty(Table& t) {
  for (const auto& p : t.map->partitions) {
    const auto* a = model::find_assignment(p, self_.server);
    if (a == nullptr) continue;
    const auto it = copies_.find(a->id);
    if (it == copies_.end() || it->second.dropping) continue;
    if (was_parents(t, p.id, *a) || (it->second.held.blank && !p.parent.none())) it->second.empty = true;
  }
}

// Copies of ancestors that are here and have not become this one: they ended before the cut, or are damaged.
std::vector<const QuorumTables::Copy*> QuorumTables::aside_of(const Table& t, const model::PartitionId& partition,
                                                              const model::Assignment& a) const {
  std::vector<const Copy*> found;
  std::set<model::AssignmentId> seen{a.id};
  for (std::vector<Tenure> todo{{partition, &a}}; !todo.empty();) {
    const auto at = todo.back();
    todo.pop_back();
    if (at.own->source.none()) continue;
    for (const auto& source : sources_of(*t.map, at)) {
      if (source.own == nullptr || !seen.insert(source.own->id).second) continue;
      const auto it = copies_.find(source.own->id);
      if (it == copies_.end() || it->second.held.table != t.map->table)
        todo.push_back(source);
      else if (it->second.held.aside && !it->second.dropping)
        found.push_back(&it->second);
    }
  }
  return found;
}

// What is here of an ancestor is about to become it.
bool QuorumTables::comes_of(const model::Metadata& map, const model::PartitionId& partition) const {
  if (MUTANT("begun_before_it_came_of_that")) return false;
  std::set<model::PartitionId> seen{partition};
  for (std::vector<model::PartitionId> todo{partition}; !todo.empty();) {
    const auto parents = parents_of(map, todo.back());
    todo.pop_back();
    for (const auto* e : parents) {
      const auto* parent = live(e->id);
      if (parent != nullptr && (parent->ending || parent->creating)) return true;
      if (seen.insert(e->id).second) todo.push_back(e->id);
    }
  }
  return false;
}

std::vector<model::PartitionId> QuorumTables::lagging() const {
  if (lagging_) return *lagging_;
  lagging_.emplace();
  for (const auto& [own, c] : copies_)
    if (c.empty && c.begun) lagging_->push_back(c.held.partition);
  return *lagging_;
}

QuorumTables::Out QuorumTables::filled(const model::PartitionId& partition) {
  Out out;
  changed();
  auto* c = live(partition);
  if (c == nullptr || !std::exchange(c->empty, false)) return out;
  drop_filled(out);
  return out;
}

// What came of the partition is here, as far as this server should have it; `own`: its assignment here.
bool QuorumTables::has_children(const model::Metadata& map, const model::EndedPartition& ended,
                                const model::AssignmentId& assignment) const {
  struct Ended {
    const model::EndedPartition* e;
    model::AssignmentId own;
  };
  std::set<model::AssignmentId> seen;
  for (std::vector<Ended> todo{{&ended, assignment}}; !todo.empty();) {
    const auto [e, own] = todo.back();
    todo.pop_back();
    const auto became = e->was_merged() ? std::vector{target_here(map, e->into)}
                                        : std::vector{child_here(map, e->low, own), child_here(map, e->high, own)};
    for (const auto& child : became) {
      if (child.assignment.none() || !seen.insert(child.assignment).second) continue;
      const auto it = copies_.find(child.assignment);
      if (it != copies_.end() && it->second.begun) {
        if (it->second.empty) return false;
        continue;
      }
      const auto* next = model::find_ended(map, child.partition);
      if (next == nullptr) return false;
      todo.push_back({next, child.assignment});
    }
  }
  return true;
}

// What stands aside since it was split or merged, and what came of it is all filled here, or not here any more.
void QuorumTables::drop_filled(Out& out) {
  for (auto& [own, c] : copies_) {
    const auto* e = c.held.aside && !c.dropping ? ended_of(c) : nullptr;
    if (e == nullptr) continue;
    const auto& map = *tables_.at(c.held.table).map;
    if (has_children(map, *e, own)) drop(c, "what came of it is filled", out);
  }
}

void QuorumTables::set_aside(Copy& c, bool whole, Out& out) {
  if (std::exchange(c.begun, false)) out.emplace_back(End{c.held.partition});
  c.held.aside = true;
  c.held.whole = c.held.whole && whole;
  live_.erase(c.held.partition);
  out.emplace_back(SetAside{c.held.partition, c.held.assignment, c.held.whole});
}

void QuorumTables::drop(Copy& c, std::string why, Out& out) {
  if (c.dropping || c.creating) {
    c.why = std::move(why);  // a copy that is being made is dropped when it is there
    return;
  }
  if (std::exchange(c.begun, false)) out.emplace_back(End{c.held.partition});
  c.ending = c.merging = false;
  c.dropping = true;
  c.why = std::move(why);
  if (const auto it = live_.find(c.held.partition); it != live_.end() && it->second == &c) live_.erase(it);
  out.emplace_back(Drop{c.held.partition, c.held.assignment, c.why});
}

void QuorumTables::drop_table(const model::TableUuid& uuid, Out& out) {
  if (const auto it = tables_.find(uuid); it != tables_.end()) it->second.dropped = true;
  for (auto& [own, c] : copies_)
    if (c.held.table == uuid) drop(c, "table dropped", out);
}

QuorumTables::Out QuorumTables::table_dropped(const model::TableUuid& uuid) {
  Out out;
  changed();
  drop_table(uuid, out);
  return out;
}

// A split or a merge: when what it left here is divided, or filled anew, and the index has that. Then its parent may be
// forgotten.
void QuorumTables::observe(Table& t, Out& out) {
  if (!t.map) return;
  if (!t.map->dropped) {
    model::TxnSeq at;
    for (const auto& e : t.map->ended) {
      for (const auto& a : e.parent_assignments) {
        if (a.server != self_.server) continue;
        if (copies_.contains(a.id)) return;
        at = std::max(at, e.at);
      }
    }
    if (at <= t.observed_at) return;
    if (at > t.settled && !MUTANT("observed_before_the_index")) {
      if (at > std::exchange(t.settling, std::max(t.settling, at))) out.emplace_back(Settle{t.map->table, at});
      return;
    }
    t.observed_at = at;
    out.emplace_back(PublishObserved{t.name, at});
    return;
  }
  if (t.observed) return;
  for (const auto& [own, c] : copies_)
    if (c.held.table == t.map->table) return;
  const auto mine = [&](const model::Partition& p) { return model::find_assignment(p, self_.server) != nullptr; };
  if (std::none_of(t.map->partitions.begin(), t.map->partitions.end(), mine)) return;
  t.observed = true;
  out.emplace_back(PublishObserved{t.name, t.map->txnseq});
}

QuorumTables::Out QuorumTables::settled(const model::TableUuid& table, model::TxnSeq txnseq) {
  Out out;
  const auto it = tables_.find(table);
  if (it == tables_.end() || txnseq <= it->second.settled) return out;
  it->second.settled = txnseq;
  observe(it->second, out);
  return out;
}

// A table is one that was acted on when all that its map asks for is durable.
void QuorumTables::remember(Out& out) {
  bool news = false;
  for (auto& [uuid, t] : tables_) {
    if (!t.map || t.remembered) continue;
    bool pending = false, any = false;
    for (const auto& [own, c] : copies_)
      if (c.held.table == uuid) {
        any = true;
        pending = pending || c.creating;
      }
    if (pending || !any) continue;
    t.remembered = true;
    auto& seen = self_.seen[uuid];
    news = news || seen != t.map->txnseq;
    seen = t.map->txnseq;
  }
  if (news) out.emplace_back(Remember{self_.seen});
}

// --- what the store says ---------------------------------------------------------------------------

QuorumTables::Out QuorumTables::created(Instant now, const model::AssignmentId& assignment,
                                        const base::Status& status) {
  Out out;
  changed();
  const auto it = copies_.find(assignment);
  auto* c = it == copies_.end() ? nullptr : &it->second;
  if (c == nullptr || !c->creating) return out;
  if (!status) {
    out.emplace_back(Say{base::Level::error, "create", place(c->held) + ": " + to_string(status.error())});
    c->failed = any_failed_ = true;
    c->again = now + kAgainEvery;
    return out;
  }
  c->creating = false;
  c->held.whole = true;  // the store has it from here on
  auto& t = tables_.at(c->held.table);
  --t.creating;
  if (!c->why.empty()) {
    drop(*c, std::exchange(c->why, {}), out);
    if (t.map && !t.map->dropped) arrange(t, false, out);  // another may have waited for that
    remember(out);
    return out;
  }
  begin(*c, out);
  // It may have been split or merged meanwhile. With a table come thousands: what rests on all of them is seen to with
  // the last.
  if (c->begun && t.creating > 0) return out;
  if (t.map && !t.map->dropped) arrange(t, false, out);
  remember(out);
  return out;
}

QuorumTables::Out QuorumTables::dropped(Instant now, const model::AssignmentId& assignment,
                                        const base::Status& status) {
  Out out;
  changed();
  const auto it = copies_.find(assignment);
  if (it == copies_.end() || !it->second.dropping) return out;
  if (!status) {
    out.emplace_back(Say{base::Level::error, "drop", place(it->second.held) + ": " + to_string(status.error())});
    it->second.failed = any_failed_ = true;
    it->second.again = now + kAgainEvery;
    return out;
  }
  const auto uuid = it->second.held.table;
  copies_.erase(it);
  if (const auto t = tables_.find(uuid); t != tables_.end()) observe(t->second, out);
  for (const auto& [own, c] : copies_)
    if (c.held.table == uuid) return out;
  if (self_.seen.erase(uuid) != 0) out.emplace_back(Remember{self_.seen});
  if (const auto t = tables_.find(uuid); t != tables_.end()) observe(t->second, out);
  return out;
}

QuorumTables::Out QuorumTables::tick(Instant now) {
  Out out;
  if (!std::exchange(any_failed_, false)) return out;
  std::set<model::TableUuid> rearrange;
  for (auto& [own, c] : copies_) {
    any_failed_ |= c.failed && now < c.again;
    if (!c.failed || now < c.again) continue;
    c.failed = false;
    const auto t = tables_.find(c.held.table);
    if (c.creating && c.why.empty()) {
      out.emplace_back(Create{c.held, t == tables_.end() ? "" : t->second.name});
    } else if (c.creating && t != tables_.end() && !MUTANT("what_was_not_made_stays")) {
      // It is wanted no more, and nothing of it is under way: what comes of its partition must not wait for it.
      c.creating = false;
      --t->second.creating;
      drop(c, std::exchange(c.why, {}), out);
      rearrange.insert(t->first);
    } else if (c.dropping) {
      out.emplace_back(Drop{c.held.partition, c.held.assignment, c.why});
    }
    if (!c.ending || t == tables_.end()) continue;
    const auto* e = ended_of(c);
    if (e == nullptr) continue;
    if (e->was_merged()) {
      if (std::exchange(c.merging, false)) merge(t->second, e->into, out);
      continue;
    }
    ask_divide(t->second, c, *e, out);
  }
  for (const auto& uuid : rearrange) {
    changed();
    auto& t = tables_.at(uuid);
    if (t.map && !t.map->dropped) arrange(t, false, out);
    remember(out);
  }
  return out;
}

// --- questions -------------------------------------------------------------------------------------

bool QuorumTables::find_table(Where& w, std::string_view name, model::TxnSeq txnseq, const Table** t) const {
  *t = table(name);
  if (*t == nullptr || !(*t)->map || (*t)->map->dropped || (*t)->dropped) {
    refuse(w, Code::no_such_table, "no table '" + std::string(name) + "'");
    return false;
  }
  w.txnseq = (*t)->map->txnseq;
  if (txnseq <= w.txnseq) return true;
  refuse(w, Code::unavailable, "the map at transaction " + to_string(txnseq) + " is not here yet", kRetryAfterMs);
  w.kind = Where::Kind::fetch;
  return false;
}

void QuorumTables::locate(Where& w, const Table& t, const model::Partition* p, model::TxnSeq txnseq) const {
  w.partition = p;
  w.txnseq = t.map->txnseq;
  if (p == nullptr) return refuse(w, Code::faulted, "no partition covers the key");
  if (txnseq.value != 0 && txnseq < p->min_txnseq) return refuse(w, Code::stale_route, "the map has changed");
  if (!model::readable(p->state)) return refuse(w, Code::unavailable, "the partition is being made", kRetryAfterMs);
  const auto* c = live(p->id);
  w.kind = c != nullptr && c->begun ? Where::Kind::here : Where::Kind::elsewhere;
}

Where QuorumTables::where(std::string_view name, std::string_view key, model::TxnSeq txnseq) const {
  Where w;
  const Table* t = nullptr;
  if (find_table(w, name, txnseq, &t)) locate(w, *t, t->map->find(key), txnseq);
  return w;
}

Where QuorumTables::where_scan(std::string_view name, const model::ScanStart& start, model::TxnSeq txnseq) const {
  Where w;
  const Table* t = nullptr;
  if (find_table(w, name, txnseq, &t)) locate(w, *t, model::scan_partition(*t->map, start), txnseq);
  return w;
}

base::Status QuorumTables::admit(const model::Envelope& e) const {
  const auto* c = live(e.partition);
  if (c == nullptr || !c->begun || c->held.assignment != e.to_assignment)
    return base::fail(Code::unavailable, "assignment " + to_string(e.to_assignment) + " takes no part here");
  if (c->held.table != e.table_uuid) return base::fail(Code::invalid, "the partition is of another table");
  return base::ok();
}

std::shared_ptr<const model::Metadata> QuorumTables::installed(std::string_view name) const {
  const auto* t = table(name);
  return t == nullptr ? nullptr : t->map;
}

std::vector<std::string> QuorumTables::tables() const {
  std::vector<std::string> names;
  for (const auto& [name, uuid] : by_name_)
    if (const auto& t = tables_.at(uuid); t.map && !t.map->dropped && !t.dropped) names.push_back(name);
  return names;
}

bool QuorumTables::begun() const {
  for (const auto& [uuid, t] : tables_) {
    if (!t.map || t.map->dropped || t.dropped) continue;
    for (const auto& p : t.map->partitions) {
      if (model::find_assignment(p, self_.server) == nullptr) continue;
      const auto* c = live(p.id);
      if (c == nullptr || !c->begun) return false;
    }
  }
  return true;
}

std::vector<CopyStatus> QuorumTables::copies() const {
  std::vector<CopyStatus> all;
  for (const auto& [own, c] : copies_) {
    CopyStatus s{c.held, {}, "unknown", {}};
    if (const auto t = tables_.find(c.held.table); t != tables_.end()) {
      s.table = t->second.name;
      const auto* p = t->second.map ? t->second.map->find(c.held.partition) : nullptr;
      const auto* a = p == nullptr ? nullptr : model::find_assignment(*p, c.held.assignment);
      if (a != nullptr) s.role = word(a->state);
    }
    if (c.held.aside) s.role = "kept";
    s.state = c.dropping ? "dropping" : c.creating ? "creating" : c.begun ? "serving" : "kept";
    all.push_back(std::move(s));
  }
  return all;
}

std::set<model::TableUuid> QuorumTables::uuids() const {
  std::set<model::TableUuid> all;
  for (const auto& [own, c] : copies_)
    if (!c.dropping) all.insert(c.held.table);
  return all;
}

// Asked after each step: the first of thousands answers it.
bool QuorumTables::idle() const {
  return std::all_of(copies_.begin(), copies_.end(), [](const auto& c) { return c.second.dropping; });
}

const std::set<model::ServerId>& QuorumTables::partners() const {
  if (partners_) return *partners_;
  auto& all = partners_.emplace();
  for (const auto& [own, c] : copies_) {
    if (!c.begun) continue;
    const auto* p = tables_.at(c.held.table).map->find(c.held.partition);
    if (p == nullptr) continue;
    for (const auto& a : p->assignments)
      if (a.server != self_.server) all.insert(a.server);
  }
  return all;
}

}  // namespace cantle::proto

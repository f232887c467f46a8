#include "lib/proto/mover_plan.h"

#include <algorithm>
#include <utility>

namespace cantle::proto::mover {

using model::Assignment;
using model::AssignmentId;
using model::AssignmentState;
using model::Partition;

namespace {

constexpr size_t kAncestorsMax = 4;  // beyond that a position is found again by offering digests

// The tenures whose log the one of `id` is, itself first: a child's is that of its parent on the same server. A merge's
// target has another one. What a parent that METADATA has forgotten came from is not looked at: it may be a merge.
std::vector<AssignmentId> log_line(const model::Metadata& map, AssignmentId id, AssignmentId source, bool by_merge) {
  std::vector<AssignmentId> line{id};
  while (!by_merge && !source.none() && line.size() < kAncestorsMax) {
    const auto from = find_ended(map, source);
    if (line.size() > 1 && from.partition == nullptr) break;
    if (from.partition != nullptr && from.partition->was_merged()) break;
    line.push_back(source);
    source = from.assignment == nullptr ? AssignmentId{} : from.assignment->source;
  }
  return line;
}

// The tenures that what `a`, of that partition, holds in the interval was in before, on its server, itself first: what
// they had confirmed it has.
std::vector<AssignmentId> target_line(const model::Metadata& map, const model::PartitionId& partition, bool by_merge,
                                      const Assignment& a, const model::Interval& interval) {
  std::vector<AssignmentId> line{a.id};
  auto at = partition;
  auto source = a.source;
  while (!source.none() && line.size() < kAncestorsMax) {
    auto from = find_ended(map, source);
    if (const auto both = model::find_merged(map, at); by_merge || !both.empty()) {
      from = {};
      for (const auto* e : both)
        for (const auto& old : e->parent_assignments)
          if (old.server == a.server && e->interval.contains(interval)) from = {e, &old};
      if (from.partition == nullptr) break;
      source = from.assignment->id;
    } else if (line.size() > 1 && from.partition == nullptr) {
      break;
    }
    line.push_back(source);
    by_merge = false;
    if (from.partition == nullptr) break;
    at = from.partition->id;
    source = from.assignment->source;
  }
  return line;
}

struct Source {
  const model::HeldPartition& held;
  const model::Metadata& map;
  const model::ServerId& self;
  std::vector<AssignmentId> line;  // of the held tenure
};

bool filled_by_bulk(const Assignment& a) { return a.state != AssignmentState::proposed; }
bool takes_bulk(const Assignment& a, const model::ServerId& self) { return a.server != self && filled_by_bulk(a); }

// `p`: the entry of the map; `partition`: itself, or a child that it is being split into.
void add(const Source& from, const Partition& p, const model::PartitionId& partition, const model::Interval& interval,
         const Assignment& to, std::vector<Target>* out) {
  Target t;
  t.id = {from.held.assignment, to.id};
  t.table = from.held.table;
  t.table_uuid = from.held.table_uuid;
  t.source = from.held.partition;
  t.partition = partition;
  t.server = to.server;
  t.interval = interval.intersect(from.held.interval);
  t.whole = t.interval == interval && !p.split;
  t.catching_up = from.held.catching_up;
  t.state = to.state;
  t.hollow = from.held.hollow;
  t.since = to.since;
  t.min_txnseq = p.min_txnseq;
  for (const auto& a : p.assignments)
    if (a.server != from.self && a.server != to.server && answers_reads(a.state)) t.others.push_back(a.server);
  // The key names the server, so a replacement never inherits what another server confirmed.
  const bool by_merge = partition == p.id && p.made_by_merge();
  for (const auto& own : from.line)
    for (const auto& target : target_line(from.map, partition, by_merge, to, t.interval))
      t.marks.push_back({own, to.server, target});
  if (!t.interval.empty()) out->push_back(std::move(t));
}

bool meets(const Partition& p, const model::Interval& held) { return !p.interval.intersect(held).empty(); }

void add_kept(const Source& from, const Partition& p, std::vector<Target>* out) {
  for (const auto& a : p.assignments)
    if (takes_bulk(a, from.self)) add(from, p, p.id, p.interval, a, out);
  if (!p.split || p.split->phase != model::SplitPhase::filling) return;
  const model::Interval low{p.interval.begin, p.split->point}, high{p.split->point, p.interval.end};
  const std::pair<const model::Child*, const model::Interval*> children[] = {{&p.split->low, &low},
                                                                             {&p.split->high, &high}};
  for (const auto& [child, interval] : children)
    for (const auto& a : child->assignments)
      if (a.source.none() && takes_bulk(a, from.self)) add(from, p, child->id, *interval, a, out);
}

}  // namespace

std::vector<Target> targets_of(const model::HeldPartition& held, const model::Metadata& map,
                               const model::ServerId& self) {
  std::vector<Target> out;
  if (map.dropped || map.table != held.table_uuid) return out;
  Source from{held, map, self, {}};
  if (held.unload) {
    from.line = {held.assignment};
    for (const auto& p : map.partitions) {
      if (!meets(p, held.interval)) continue;
      for (const auto& a : p.assignments)
        if (filled_by_bulk(a) && a.id != held.assignment) add(from, p, p.id, p.interval, a, &out);
    }
    return out;
  }
  const Partition* p = map.find(held.partition);
  const Assignment* own = p == nullptr ? nullptr : find_assignment(*p, held.assignment);
  if (own == nullptr || own->server != self) return out;
  from.line = log_line(map, held.assignment, own->source, p->made_by_merge());
  add_kept(from, *p, &out);
  return out;
}

Target joined_target(const Target& target, const JoinedLog& log, const model::Metadata& map,
                     const model::ServerId& self) {
  Target t = target;
  t.id.own = log.assignment;
  t.source = log.partition;
  t.whole = false;
  t.joined = true;
  t.marks = {{log.assignment, t.server, t.id.target}};
  const auto own = find_ended(map, log.assignment);
  const auto* p = map.find(target.partition);
  const auto* to = p == nullptr ? nullptr : find_assignment(*p, target.id.target);
  if (own.partition == nullptr || own.assignment->server != self || to == nullptr) return t;
  t.interval = t.interval.intersect(own.partition->interval);
  t.marks.clear();
  for (const auto& from : log_line(map, log.assignment, own.assignment->source, false))
    for (const auto& of : target_line(map, p->id, p->made_by_merge(), *to, t.interval))
      t.marks.push_back({from, t.server, of});
  return t;
}

bool covered(const model::HeldPartition& held, const model::Metadata& map) {
  if (map.dropped || map.table != held.table_uuid) return false;
  bool any = false;
  for (const auto& p : map.partitions) {
    if (!meets(p, held.interval)) continue;
    any = true;
    if (find_assignment(p, held.assignment) != nullptr) return false;  // it is to be kept after all
    const bool others =
        std::any_of(p.assignments.begin(), p.assignments.end(), [](const auto& a) { return answers_reads(a.state); });
    if (!others) return false;
  }
  return any;
}

Mark choose_mark(const Target& target, const std::vector<std::pair<MarkKey, Mark>>& found) {
  Mark best;
  for (const auto& [key, mark] : found) {
    if (std::find(target.marks.begin(), target.marks.end(), key) == target.marks.end()) continue;
    if (mark.at.lsn > best.at.lsn) best.at = mark.at;
  }
  for (const auto& [key, mark] : found) {
    const bool same = key.target == target.id.target && key.server == target.server;
    if (!same || mark.snapshot == 0 || mark.snapshot_from.lsn <= best.at.lsn) continue;
    best.snapshot = mark.snapshot;
    best.snapshot_from = mark.snapshot_from;
  }
  return best;
}

}  // namespace cantle::proto::mover

#include "lib/model/validate.h"

#include <algorithm>
#include <array>
#include <set>

#include "lib/base/bytes.h"
#include "lib/model/operation.h"
#include "lib/model/record.h"
#include "lib/model/table_config.h"

namespace cantle::model {
namespace {

constexpr std::array kRules = {
    Rule{"format", "the file's format is one that this version writes"},
    Rule{"name", "the table has a valid name and a uuid"},
    Rule{"replicas", "k is between 1 and 9"},
    Rule{"quorum", "a quorum table has 1, 3, 5 or 7 replicas"},
    Rule{"options", "options exist and have values they can have"},
    Rule{"chain", "txnseq grows by one, and each file names its predecessor and that one's hash"},
    Rule{"limits", "keys, lists and numbers stay below their limits"},
    Rule{"cover", "the partitions cover the keyspace exactly, without hole or overlap"},
    Rule{"ids", "ids of partitions, assignments and attempts are there and unique"},
    Rule{"region", "region numbers are unique and below next_region"},
    Rule{"state", "a partition is splitting if it has a split, merging if it has a merge, otherwise active"},
    Rule{"txnseq", "no entry is newer than its file"},
    Rule{"server-twice", "no server stands twice in one partition or child"},
    Rule{"slot", "each slot has one assignment, or two of which one replaces the other"},
    Rule{"split",
         "the split point lies inside the partition, each child has one assignment a slot, and a source is the "
         "parent's assignment on that server"},
    Rule{"merge",
         "two neighbours on the same servers have the same merge, and its target has one assignment a slot there, "
         "whose source is the lower one's"},
    Rule{"move", "a move joins two assignments of one slot whose states fit"},
    Rule{"ended", "ended partitions are in order and not among the living"},
    Rule{kRacksRule, "no two replicas of a partition stand in one rack, as long as there are enough racks"},
};

tl::unexpected<base::Error> broken(std::string_view rule, std::string text) {
  base::Error error(base::Code::invalid, "rule " + std::string(rule) + ": " + text);
  error.detail = rule;
  return base::fail(std::move(error));
}

std::string name_of(const Partition& p) {
  return "partition " + to_string(p.id) + " (region " + to_string(p.region) + ")";
}

// --- one partition ---------------------------------------------------------------------------------

base::Status check_servers(const std::vector<Assignment>& list, const std::string& where) {
  std::set<ServerId> servers;
  for (const auto& a : list) {
    if (auto valid = validate_server_id(a.server.name); !valid)
      return broken("limits", where + ": " + valid.error().text);
    if (!servers.insert(a.server).second) return broken("server-twice", where + " has " + a.server.name + " twice");
  }
  return base::ok();
}

bool move_states_fit(const Assignment& from, const Assignment& to) {
  switch (to.state) {
    case AssignmentState::proposed:
    case AssignmentState::initializing:
      return from.state == AssignmentState::available || from.state == AssignmentState::initializing;
    case AssignmentState::available:
      return from.state == AssignmentState::leaving || from.state == AssignmentState::initializing;
    case AssignmentState::leaving: return false;
  }
  return false;
}

const Move* move_of(const Partition& p, const Assignment& a) {
  for (const auto& m : p.moves)
    if (m.from == a.id || m.to == a.id) return &m;
  return nullptr;
}

base::Status check_moves(const Partition& p) {
  std::set<AssignmentId> moved;
  for (const auto& m : p.moves) {
    const auto* from = find_assignment(p, m.from);
    const auto* to = find_assignment(p, m.to);
    if (from == nullptr || to == nullptr || from == to || from->slot != to->slot || to->source != from->id)
      return broken("move", name_of(p) + ": move " + to_string(m.attempt) + " does not join two assignments of a slot");
    if (!move_states_fit(*from, *to))
      return broken("move", name_of(p) + ": the states of move " + to_string(m.attempt) + " do not fit");
    if (!moved.insert(m.from).second || !moved.insert(m.to).second)
      return broken("move", name_of(p) + ": an assignment is in two moves");
  }
  if ((p.split || p.merge) && !p.moves.empty())
    return broken("move", name_of(p) + " is " + (p.split ? "split" : "merged") + " and moved at once");
  return base::ok();
}

base::Status check_slots(const Metadata& file, const Partition& p) {
  std::vector<const Assignment*> first(file.replicas, nullptr);
  uint32_t last_slot = 0;
  for (const auto& a : p.assignments) {
    if (a.slot >= file.replicas || a.slot < last_slot)
      return broken("slot", name_of(p) + ": slot " + std::to_string(a.slot) + " is out of range or out of order");
    last_slot = a.slot;
    const auto* move = move_of(p, a);
    if (first[a.slot] == nullptr) {
      first[a.slot] = &a;
      const bool alone_fits = a.state == AssignmentState::available || a.state == AssignmentState::initializing;
      if (move == nullptr && !alone_fits)
        return broken("slot", name_of(p) + ": " + a.server.name + " is replaced or replaces, but there is no move");
      if (move != nullptr && move->from != a.id)
        return broken("slot",
                      name_of(p) + ": in slot " + std::to_string(a.slot) + " the new one stands before the old one");
    } else if (move == nullptr || move->to != a.id || move->from != first[a.slot]->id) {
      return broken("slot", name_of(p) + ": slot " + std::to_string(a.slot) + " has two assignments and no move");
    }
  }
  for (uint32_t slot = 0; slot < file.replicas; slot++)
    if (first[slot] == nullptr) return broken("slot", name_of(p) + ": slot " + std::to_string(slot) + " is empty");
  return base::ok();
}

base::Status check_child(const Metadata& file, const Partition& p, const Child& child) {
  const auto where = "child " + to_string(child.id) + " of " + name_of(p);
  TRY(check_servers(child.assignments, where));
  if (child.assignments.size() != file.replicas) return broken("split", where + " has not one assignment a slot");
  for (uint32_t slot = 0; slot < child.assignments.size(); slot++) {
    const auto& a = child.assignments[slot];
    if (a.slot != slot) return broken("split", where + ": slots are out of order");
    const auto* source = find_assignment(p, a.server);
    if (a.source != (source != nullptr ? source->id : AssignmentId{}))
      return broken("split", where + ": the source of " + a.server.name + " is not the parent's assignment there");
    const bool filling = p.split->phase == SplitPhase::filling && source == nullptr;
    const bool fits = filling ? a.state == AssignmentState::initializing || a.state == AssignmentState::available
                              : a.state == AssignmentState::proposed;
    if (!fits) return broken("split", where + ": the state of " + a.server.name + " does not fit the phase");
  }
  return base::ok();
}

base::Status check_split(const Metadata& file, const Partition& p) {
  const auto fits = p.split ? PartitionState::splitting : p.merge ? PartitionState::merging : PartitionState::active;
  if (p.state != fits) return broken("state", name_of(p) + " has a state that does not fit");
  if (!p.split) return base::ok();
  const auto& s = *p.split;
  if (s.phase != SplitPhase::barrier && s.phase != SplitPhase::filling)
    return broken("split", name_of(p) + ": no such phase");
  if (s.point <= p.interval.begin || !p.interval.contains(s.point))
    return broken("split", name_of(p) + ": the point " + base::escape(s.point) + " is not inside");
  if (s.point.size() > kKeyMax) return broken("limits", name_of(p) + ": the split point is too long");
  TRY(check_child(file, p, s.low));
  return check_child(file, p, s.high);
}

base::Status check_target(const Metadata& file, const Merge& merge, const Partition& low) {
  const auto where = "target " + to_string(merge.target.id) + " of merge " + to_string(merge.attempt);
  TRY(check_servers(merge.target.assignments, where));
  if (merge.target.assignments.size() != file.replicas)
    return broken("merge", where + " has not one assignment a slot");
  for (uint32_t slot = 0; slot < merge.target.assignments.size(); slot++) {
    const auto& a = merge.target.assignments[slot];
    const auto* source = find_assignment(low, a.server);
    if (a.slot != slot) return broken("merge", where + ": slots are out of order");
    if (source == nullptr || a.source != source->id)
      return broken("merge", where + ": the source of " + a.server.name + " is not the lower one's assignment there");
    if (a.state != AssignmentState::proposed)
      return broken("merge", where + ": the state of " + a.server.name + " does not fit");
  }
  return base::ok();
}

base::Status check_merge(const Metadata& file, const Partition& p) {
  if (!p.merge) return base::ok();
  const auto& merge = *p.merge;
  const auto* low = file.find(merge.low);
  const auto* high = file.find(merge.high);
  if (p.split || low == nullptr || high == nullptr || low == high || (low != &p && high != &p) ||
      low->merge != p.merge || high->merge != p.merge || low->interval.end.empty() ||
      low->interval.end != high->interval.begin)
    return broken("merge", name_of(p) + ": merge " + to_string(merge.attempt) + " does not join two neighbours");
  for (const auto& a : low->assignments)
    if (a.state != AssignmentState::available || find_assignment(*high, a.server) == nullptr ||
        find_assignment(*high, a.server)->state != AssignmentState::available)
      return broken("merge", name_of(p) + ": " + a.server.name + " has not the whole of both");
  return check_target(file, merge, *low);
}

base::Status check_txnseqs(const Metadata& file, const Partition& p) {
  const auto fits = [&](TxnSeq t) { return t.value >= 1 && t <= file.txnseq; };
  bool good = fits(p.min_txnseq);
  for (const auto& a : p.assignments) good = good && fits(a.since) && a.since <= p.min_txnseq;
  for (const auto& m : p.moves)
    good = good && fits(m.since) && (m.cancelled.value == 0 || (m.cancelled > m.since && m.cancelled <= p.min_txnseq));
  if (p.split) {
    good = good && fits(p.split->since);
    for (const auto* child : {&p.split->low, &p.split->high})
      for (const auto& a : child->assignments) good = good && fits(a.since) && a.since >= p.split->since;
  }
  if (p.merge) {
    good = good && fits(p.merge->since) && p.merge->since <= p.min_txnseq;
    for (const auto& a : p.merge->target.assignments) good = good && a.since == p.merge->since;
  }
  return good ? base::ok() : broken("txnseq", name_of(p) + " has a txnseq out of range");
}

void each_id(const Partition& p, const auto& fn) {
  fn(p.id.view());
  for (const auto& a : p.assignments) fn(a.id.view());
  for (const auto& m : p.moves) fn(m.attempt.view());
  if (p.split) {
    fn(p.split->attempt.view());
    for (const auto* child : {&p.split->low, &p.split->high}) {
      fn(child->id.view());
      for (const auto& a : child->assignments) fn(a.id.view());
    }
  }
  // The higher one's is the same (rule "merge").
  if (p.merge && p.merge->low == p.id) {
    fn(p.merge->attempt.view());
    fn(p.merge->target.id.view());
    for (const auto& a : p.merge->target.assignments) fn(a.id.view());
  }
}

base::Status check_ids(const Metadata& file, const Partition& p) {
  static const std::string kNone(16, '\0');
  base::Status status = base::ok();
  each_id(p, [&](std::string_view id) {
    if (!status) return;
    if (id == kNone)
      status = broken("ids", name_of(p) + " has an id that is none");
    else if (file.partitions.count_id(id) != 1)
      status = broken("ids", name_of(p) + ": id " + base::to_hex(id) + " stands twice");
  });
  return status;
}

base::Status check_regions(const Metadata& file, const Partition& p) {
  const auto below = [&](Region r) { return r.value >= 1 && r < file.next_region; };
  if (!below(p.region) || file.partitions.get(p.region) != &p)
    return broken("region", name_of(p) + ": its region number is out of range or used twice");
  if (p.merge && (!below(p.merge->target.region) || file.partitions.get(p.merge->target.region) != nullptr))
    return broken("region", name_of(p) + ": the region number of a merge's target is out of range or used twice");
  if (!p.split) return base::ok();
  for (const auto r : {p.split->low.region, p.split->high.region})
    if (!below(r) || file.partitions.get(r) != nullptr)
      return broken("region", name_of(p) + ": the region number of a child is out of range or used twice");
  if (p.split->low.region == p.split->high.region)
    return broken("region", name_of(p) + ": its children share a region number");
  return base::ok();
}

base::Status check_partition(const Metadata& file, const Partition& p) {
  if (p.interval.begin.size() > kKeyMax || p.interval.end.size() > kKeyMax)
    return broken("limits", name_of(p) + ": a bound is longer than a key may be");
  TRY(check_servers(p.assignments, name_of(p)));
  TRY(check_moves(p));
  TRY(check_slots(file, p));
  TRY(check_split(file, p));
  TRY(check_merge(file, p));
  TRY(check_txnseqs(file, p));
  TRY(check_ids(file, p));
  return check_regions(file, p);
}

// --- the whole -------------------------------------------------------------------------------------

base::Status check_head(const Metadata& file) {
  if (file.format < kFormatMin || file.format > kFormatMax)
    return broken("format", "format " + std::to_string(file.format));
  if (auto valid = validate_table_name(file.name); !valid) return broken("name", valid.error().text);
  if (file.table.none()) return broken("name", "the table has no uuid");
  if (file.replicas < 1 || file.replicas > kReplicasMax)
    return broken("replicas", std::to_string(file.replicas) + " replicas");
  if (file.replication == Replication::quorum && (file.replicas % 2 == 0 || file.replicas > kQuorumReplicasMax))
    return broken("quorum", "a quorum table has 1, 3, 5 or 7 replicas, not " + std::to_string(file.replicas));
  for (const auto& [name, value] : file.options)
    if (auto valid = validate_option(name, value); !valid) return broken("options", valid.error().text);
  const bool first = file.txnseq.value == 1;
  if (file.txnid.none() || file.txnseq.value == 0 || first != file.prev_txnid.none() ||
      file.prev_hash.size() != (first ? 0U : 32U) || file.txnid == file.prev_txnid)
    return broken("chain", "the file does not name its predecessor as it should");
  if (file.changes.empty() || file.changes.size() > kChangeIdsMax || file.changes.back().none())
    return broken("chain", "the list of changes is empty, too long or ends with none");
  if (file.next_region.value > kRegionMax) return broken("region", "the table has used up its region numbers");
  return base::ok();
}

base::Status check_ended(const Metadata& file) {
  const EndedPartition* before = nullptr;
  std::set<Region> regions;
  std::set<PartitionId> ids;
  for (const auto& e : file.ended) {
    const auto where = "ended partition " + to_string(e.id);
    if (before != nullptr && std::pair(e.at, e.region) <= std::pair(before->at, before->region))
      return broken("ended", where + " is out of order");
    before = &e;
    if (e.at > file.txnseq || e.at.value == 0) return broken("txnseq", where + " is newer than the file");
    if (e.id.none() || e.attempt.none() || !ids.insert(e.id).second || file.partitions.count_id(e.id.view()) != 0)
      return broken("ended", where + " is among the living, or stands there twice");
    if (e.region.value < 1 || e.region >= file.next_region || !regions.insert(e.region).second ||
        file.partitions.get(e.region) != nullptr)
      return broken("region", where + ": its region number is out of range or used twice");
    if (e.was_merged() != (e.low.none() && e.high.none()) || (e.was_merged() && !e.point.empty()))
      return broken("ended", where + " was split and merged at once");
    TRY(check_servers(e.parent_assignments, where));
  }
  return base::ok();
}

std::string key_text(const std::string& key) { return key.empty() ? "the end of all keys" : base::escape(key); }

// `p` meets its neighbours, or the ends of the keyspace.
base::Status check_neighbours(const Partitions& all, Partitions::const_iterator p) {
  if (p->interval.empty()) return broken("cover", name_of(*p) + " is empty");
  const auto next = std::next(p);
  if (p == all.begin() && !p->interval.begin.empty()) return broken("cover", "hole before " + name_of(*p));
  if (next == all.end()) {
    if (!p->interval.end.empty()) return broken("cover", "hole after " + name_of(*p));
    return base::ok();
  }
  if (p->interval.end.empty() || p->interval.end > next->interval.begin)
    return broken("cover", name_of(*p) + " overlaps " + name_of(*next));
  if (p->interval.end < next->interval.begin)
    return broken("cover", "hole from " + key_text(p->interval.end) + " to " + key_text(next->interval.begin));
  return base::ok();
}

// After a change only the surroundings of what differs can have a hole or an overlap: between two neighbours that
// were there before, something can only be missing, and it began where one of the removed ones did.
base::Status check_cover_at(const Partitions& all, const std::string& key) {
  const auto p = all.at_or_before(key);
  if (p == all.end()) return broken("cover", "hole at " + base::escape(key));
  TRY(check_neighbours(all, p));
  return p == all.begin() ? base::ok() : check_neighbours(all, std::prev(p));
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

base::Status validate(const Metadata& file) {
  TRY(check_head(file));
  if (file.partitions.empty()) return broken("cover", "there is no partition");
  for (auto p = file.partitions.begin(); p != file.partitions.end(); ++p) {
    TRY(check_neighbours(file.partitions, p));
    TRY(check_partition(file, *p));
  }
  return check_ended(file);
}

base::Status validate_change(const Metadata& base, const Metadata& next) {
  if (next.table != base.table || next.name != base.name || next.keyspace != base.keyspace ||
      next.replication != base.replication || next.replicas != base.replicas)
    return broken("name", "a change cannot make another table of it");
  if (next.prev_txnid != base.txnid || next.txnseq != base.txnseq.next() || next.next_region < base.next_region ||
      (base.dropped && !next.dropped))
    return broken("chain", "the file does not follow its base");
  return validate_against(base, next);
}

base::Status validate_against(const Metadata& base, const Metadata& next) {
  TRY(check_head(next));
  if (base.replicas != next.replicas || base.table != next.table) return validate(next);
  if (next.partitions.empty()) return broken("cover", "there is no partition");
  for (const auto region : Partitions::changed(base.partitions, next.partitions)) {
    const auto* before = base.partitions.get(region);
    const auto* after = next.partitions.get(region);
    if (before != nullptr) TRY(check_cover_at(next.partitions, before->interval.begin));
    if (after == nullptr) continue;
    TRY(check_cover_at(next.partitions, after->interval.begin));
    TRY(check_partition(next, *after));
  }
  return check_ended(next);
}

namespace {

size_t racks_known(const Racks& racks) {
  std::set<std::string> names;
  size_t alone = 0;
  for (const auto& [server, rack] : racks) {
    if (rack.empty())
      alone++;
    else
      names.insert(rack);
  }
  return names.size() + alone;
}

base::Status check_racks(const std::vector<Assignment>& list, const std::string& where, const Racks& racks) {
  std::map<std::string, ServerId> seen;
  for (const auto& a : list) {
    const auto it = racks.find(a.server);
    if (it == racks.end() || it->second.empty() || a.state == AssignmentState::leaving) continue;
    const auto [other, fresh] = seen.emplace(it->second, a.server);
    if (!fresh)
      return broken(kRacksRule,
                    where + ": " + other->second.name + " and " + a.server.name + " stand in rack " + it->second);
  }
  return base::ok();
}

// Without those that are being replaced.
std::vector<Assignment> to_stay(const Partition& p) {
  std::vector<Assignment> out;
  for (const auto& a : p.assignments)
    if (std::none_of(p.moves.begin(), p.moves.end(), [&](const Move& m) { return m.from == a.id; })) out.push_back(a);
  return out;
}

}  // namespace

base::Status validate_racks(const Metadata* base, const Metadata& next, const Racks& racks) {
  if (racks_known(racks) < next.replicas) return base::ok();
  static const Partitions kNone;
  const auto& old = base != nullptr ? base->partitions : kNone;
  for (const auto region : Partitions::changed(old, next.partitions)) {
    const auto* p = next.partitions.get(region);
    if (p == nullptr) continue;
    // Only what this step places: a partition that stood badly before may still be split or repaired.
    const auto* before = old.get(region);
    if (before == nullptr && p->parent.none()) TRY(check_racks(p->assignments, name_of(*p), racks));
    if (before != nullptr && before->moves.size() < p->moves.size()) TRY(check_racks(to_stay(*p), name_of(*p), racks));
    if (p->split && before != nullptr && !before->split)
      for (const auto* child : {&p->split->low, &p->split->high}) {
        const bool stays = std::all_of(child->assignments.begin(), child->assignments.end(),
                                       [](const Assignment& a) { return !a.source.none(); });
        if (!stays) TRY(check_racks(child->assignments, "child of " + name_of(*p), racks));
      }
  }
  return base::ok();
}

}  // namespace cantle::model

#include "lib/meta/config_ops.h"

#include <algorithm>
#include <set>

#include "lib/base/testing.h"

namespace cantle::meta {
namespace {

using coord::RegionNode;
using coord::RegionState;
using model::Metadata;
using model::Partition;
using model::Region;

RegionNode of_partition(const Partition& p) {
  RegionNode node;
  node.partition = p.id;
  node.state = coord::region_state(p.state);
  node.has_parent = p.parent_region.value != 0;
  node.parent = p.parent_region;
  if (p.split) {
    node.has_children = true;
    node.left = p.split->low.region;
    node.right = p.split->high.region;
    node.split = p.split->point;
    node.attempt = p.split->attempt;
  }
  if (p.merge) {
    node.has_target = true;
    node.into = p.merge->target.region;
    node.attempt = p.merge->attempt;
  }
  return node;
}

// What a split or a merge of `parent` is to make.
RegionNode of_child(const Partition& parent, const model::Child& child, RegionState state) {
  RegionNode node;
  node.partition = child.id;
  node.state = state;
  node.has_parent = true;
  node.parent = parent.region;
  if (parent.split) node.attempt = parent.split->attempt;
  if (parent.merge) node.attempt = parent.merge->attempt;
  return node;
}

// The lower one of a merge answers for it.
std::vector<const model::Child*> children_of(const Partition& p) {
  if (p.split) return {&p.split->low, &p.split->high};
  if (p.merge && p.merge->low == p.id) return {&p.merge->target};
  return {};
}

RegionNode of_ended(const Partition& p) {
  auto node = of_partition(p);
  node.state = p.merge ? RegionState::merged : RegionState::split;
  return node;
}

// The regions a partition was made from, as far as the file remembers.
std::optional<Region> parent_region(const Metadata& file, const model::PartitionId& id) {
  if (const auto* parent = model::find_parent(file, id)) return parent->region;
  const auto merged = model::find_merged(file, id);
  return merged.empty() ? std::nullopt : std::optional(merged.front()->region);
}

}  // namespace

std::map<Region, RegionNode> region_nodes(const Metadata& file) {
  std::map<Region, RegionNode> out;
  for (const auto& p : file.partitions) {
    out[p.region] = of_partition(p);
    for (const auto* child : children_of(p)) out[child->region] = of_child(p, *child, RegionState::creating);
  }
  for (const auto& e : file.ended) {
    RegionNode node;
    node.partition = e.id;
    node.state = e.was_merged() ? RegionState::merged : RegionState::split;
    node.split = e.point;
    node.attempt = e.attempt;
    if (const auto parent = parent_region(file, e.id)) node.has_parent = true, node.parent = *parent;
    const auto region_of = [&](const model::PartitionId& id) -> std::optional<Region> {
      if (const auto* p = file.find(id)) return p->region;
      if (const auto* other = find_ended(file, id)) return other->region;
      return std::nullopt;
    };
    if (const auto into = region_of(e.into)) node.has_target = true, node.into = *into;
    const auto left = region_of(e.low), right = region_of(e.high);
    if (left && right) {
      node.has_children = true;
      node.left = *left;
      node.right = *right;
    }
    out[e.region] = std::move(node);
  }
  return out;
}

std::optional<RegionNode> region_node(const Metadata& file, Region region) {
  if (const auto* p = file.partitions.get(region)) return of_partition(*p);
  const auto all = region_nodes(file);
  const auto it = all.find(region);
  return it != all.end() ? std::optional(it->second) : std::nullopt;
}

std::map<Region, RegionNode> changed_region_nodes(const Metadata* before, const Metadata& after) {
  static const model::Partitions kNone;
  const auto& old = before != nullptr ? before->partitions : kNone;
  std::map<Region, RegionNode> now, then;
  for (const auto region : model::Partitions::changed(old, after.partitions)) {
    const auto* was = old.get(region);
    const auto* is = after.partitions.get(region);
    if (was != nullptr) {
      then[region] = of_partition(*was);
      if (is == nullptr) now[region] = of_ended(*was);
      for (const auto* child : children_of(*was)) {
        then[child->region] = of_child(*was, *child, RegionState::creating);
        now.try_emplace(child->region, of_child(*was, *child, RegionState::aborted));
      }
    }
    if (is == nullptr) continue;
    now[region] = of_partition(*is);
    for (const auto* child : children_of(*is)) now[child->region] = of_child(*is, *child, RegionState::creating);
  }
  std::erase_if(now, [&](const auto& entry) {
    const auto it = then.find(entry.first);
    return it != then.end() && it->second == entry.second;
  });
  return now;
}

std::optional<model::Government> first_government(const Metadata& file, Region region, std::string writer) {
  const auto* p = file.partitions.get(region);
  if (p == nullptr || file.replication != model::Replication::quorum) return std::nullopt;
  model::Government first{{1}, {}, {}, std::move(writer), p->min_txnseq};
  for (const auto& a : p->assignments) first.voters.push_back({a.slot, a.server, a.id});
  // Above those of all that it was made from.
  auto parents = model::find_merged(file, p->id);
  if (const auto* parent = model::find_parent(file, p->id)) parents.push_back(parent);
  for (const auto* parent : parents) {
    if (parent != parents.front() && MUTANT("target_epoch_not_above")) break;
    if (parent->cut) first.epoch = std::max(first.epoch, parent->cut->epoch.next());
  }
  return first;
}

std::vector<coord::Op> government_checks(const coord::Layout& layout, const std::string& d, const Metadata& before,
                                         std::span<const model::Operation> operations) {
  std::vector<coord::Op> checks;
  const auto check = [&](const model::PartitionId& partition, const model::ops::FinalCut& cut) {
    if (const auto* p = before.find(partition))
      checks.emplace_back(coord::OpCheck{layout.government(d, p->region), cut.government_version});
  };
  for (const auto& op : operations) {
    const auto* split = std::get_if<model::ops::FinalizeSplit>(&op);
    if (split != nullptr && split->cut) check(split->partition, *split->cut);
    const auto* merge = std::get_if<model::ops::FinalizeMerge>(&op);
    if (merge != nullptr && merge->cuts) check(merge->low, merge->cuts->low), check(merge->high, merge->cuts->high);
  }
  return checks;
}

void append_region(std::vector<coord::Op>& ops, const coord::Layout& layout, const std::string& d, const Metadata& file,
                   Region region, const RegionNode& node, bool there, const std::string& writer) {
  if (there) {
    ops.emplace_back(coord::OpSet{layout.region(d, region), region_text(node)});
    return;
  }
  ops.emplace_back(coord::OpCreate{layout.region(d, region), region_text(node)});
  append_government(ops, layout, d, file, region, writer);
}

void append_government(std::vector<coord::Op>& ops, const coord::Layout& layout, const std::string& d,
                       const Metadata& file, Region region, const std::string& writer) {
  const auto government = first_government(file, region, writer);
  if (!government) return;
  ops.emplace_back(coord::OpCreate{layout.government(d, region), coord::government_text(*government)});
  ops.emplace_back(coord::OpCreate{layout.quorums(d, region), ""});
}

SwapOps swap_ops(const coord::Layout& layout, const std::string& d, model::TableConfig to, int32_t version,
                 const Metadata* before, const Metadata& after, const std::map<Region, bool>& known_present) {
  SwapOps out;
  const auto changed = changed_region_nodes(before, after);
  out.regions_behind = to.regions_behind || changed.size() > kRegionsAtOnce;
  to.regions_behind = out.regions_behind;
  if (before == nullptr)
    out.ops.emplace_back(coord::OpCreate{layout.config(d), to_text(to)});
  else
    out.ops.emplace_back(coord::OpSet{layout.config(d), to_text(to), version});
  if (before == nullptr || before->next_region != after.next_region)
    out.ops.emplace_back(coord::OpSet{layout.nameprefixqueue(d), "next: " + to_string(after.next_region) + "\n"});
  for (const auto& [region, node] : changed) {
    // What a child's government begins with is known now, and to nobody later.
    const bool was_child =
        before != nullptr && region < before->next_region && before->partitions.get(region) == nullptr;
    if (changed.size() > kRegionsAtOnce && !was_child) continue;
    bool there = before != nullptr && region < before->next_region;
    if (const auto it = known_present.find(region); it != known_present.end()) there = it->second;
    // A new quorum table takes over nobody's region: its government would be another table's.
    if (before == nullptr && after.replication == model::Replication::quorum) there = false;
    append_region(out.ops, layout, d, after, region, node, there, to.writer);
    if (was_child && there) append_government(out.ops, layout, d, after, region, to.writer);
  }
  if (before != nullptr && !before->dropped && after.dropped)
    out.ops.emplace_back(coord::OpCreate{layout.dropped(after.table), coord::dropped_text({after.name, after.txnseq})});
  return out;
}

}  // namespace cantle::meta

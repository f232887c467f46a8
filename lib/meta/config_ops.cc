#include "lib/meta/config_ops.h"

#include <set>

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
  return node;
}

RegionNode of_child(const Partition& parent, const model::Child& child, RegionState state) {
  RegionNode node;
  node.partition = child.id;
  node.state = state;
  node.has_parent = true;
  node.parent = parent.region;
  if (parent.split) node.attempt = parent.split->attempt;
  return node;
}

RegionNode of_ended(const Partition& p) {
  auto node = of_partition(p);
  node.state = RegionState::split;
  return node;
}

}  // namespace

std::map<Region, RegionNode> region_nodes(const Metadata& file) {
  std::map<Region, RegionNode> out;
  for (const auto& p : file.partitions) {
    out[p.region] = of_partition(p);
    if (!p.split) continue;
    out[p.split->low.region] = of_child(p, p.split->low, RegionState::creating);
    out[p.split->high.region] = of_child(p, p.split->high, RegionState::creating);
  }
  for (const auto& e : file.ended) {
    RegionNode node;
    node.partition = e.id;
    node.state = RegionState::split;
    node.split = e.point;
    node.attempt = e.attempt;
    if (const auto* parent = model::find_parent(file, e.id)) node.has_parent = true, node.parent = parent->region;
    const auto region_of = [&](const model::PartitionId& id) -> std::optional<Region> {
      if (const auto* p = file.find(id)) return p->region;
      if (const auto* other = find_ended(file, id)) return other->region;
      return std::nullopt;
    };
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
      if (was->split)
        for (const auto* child : {&was->split->low, &was->split->high})
          then[child->region] = of_child(*was, *child, RegionState::creating);
      if (is == nullptr) now[region] = of_ended(*was);
      if (was->split)
        for (const auto* child : {&was->split->low, &was->split->high})
          now.try_emplace(child->region, of_child(*was, *child, RegionState::aborted));
    }
    if (is == nullptr) continue;
    now[region] = of_partition(*is);
    if (is->split)
      for (const auto* child : {&is->split->low, &is->split->high})
        now[child->region] = of_child(*is, *child, RegionState::creating);
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
  const auto* parent = model::find_parent(file, p->id);
  if (parent != nullptr && parent->cut) first.epoch = parent->cut->epoch.next();
  return first;
}

std::vector<coord::Op> government_checks(const coord::Layout& layout, const std::string& d, const Metadata& before,
                                         std::span<const model::Operation> operations) {
  std::vector<coord::Op> checks;
  for (const auto& op : operations) {
    const auto* finalize = std::get_if<model::ops::FinalizeSplit>(&op);
    const auto* parent = finalize != nullptr && finalize->cut ? before.find(finalize->partition) : nullptr;
    if (parent == nullptr) continue;
    checks.emplace_back(coord::OpCheck{layout.government(d, parent->region), finalize->cut->government_version});
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

#include "lib/proto/push_plan.h"

#include <algorithm>
#include <map>

#include "lib/base/check.h"

namespace cantle::proto::push {
namespace {

using model::Interval;

const model::Move* move_to(const model::Partition& p, const model::AssignmentId& to) {
  for (const auto& m : p.moves)
    if (m.to == to) return &m;
  return nullptr;
}
const model::Move* dead_move_from(const model::Partition& p, const model::AssignmentId& from) {
  for (const auto& m : p.moves)
    if (m.from == from && m.from_dead) return &m;
  return nullptr;
}

class Builder {
 public:
  Builder(Plan& plan, const model::Metadata& map, const model::ServerId& self) : plan_(plan), map_(map), self_(self) {}

  bool add(const Scope& scope) {
    const auto& p = *scope.partition;
    const auto* own = model::find_assignment(p, self_);
    if (own == nullptr) return false;
    own_ = own->id;
    plan_.own |= target(p, *own, Side::whole);
    group_of(p);
    if (p.split) {
      const Interval low{p.interval.begin, p.split->point}, high{p.split->point, p.interval.end};
      if (scope.side != Side::high) child_group(p, p.split->low, low, Side::low, scope.side != Side::low);
      if (scope.side != Side::low) child_group(p, p.split->high, high, Side::high, scope.side != Side::high);
    }
    return true;
  }

 private:
  uint64_t target(const model::Partition& p, const model::Assignment& a, Side side) {
    const int known = plan_.find(a.id);
    if (known >= 0) return uint64_t{1} << known;
    CHECK(plan_.targets.size() < kTargetsMax);
    plan_.targets.push_back({.server = a.server,
                             .partition = p.id,
                             .assignment = a.id,
                             .continues = continues_here(p, a) ? a.source : model::AssignmentId{},
                             .continues_high = high_of(p, a),
                             .own = own_,
                             .only = only_,
                             .since = a.since,
                             .side = side});
    return uint64_t{1} << (plan_.targets.size() - 1);
  }

  model::AssignmentId high_of(const model::Partition& p, const model::Assignment& a) const {
    if (!p.made_by_merge() || !continues_here(p, a)) return {};
    const auto both = model::merged_tenures(map_, p.id, a);
    return both.size() > 1 ? both[1] : model::AssignmentId{};
  }

  void group_of(const model::Partition& p) {
    std::map<uint32_t, Plan::Slot> slots;
    for (const auto& a : p.assignments) {
      auto& slot = slots[a.slot];
      if (dead_move_from(p, a.id) != nullptr) continue;  // nothing is expected of it
      slot.needs |= target(p, a, Side::whole);
      const auto* move = move_to(p, a.id);
      if (move != nullptr && move->from_dead && a.state != model::AssignmentState::available) slot.counts = false;
    }
    auto& group = plan_.groups.emplace_back();
    for (auto& [number, slot] : slots) {
      if (slot.needs == 0) slot.counts = false;
      group.push_back(slot);
    }
  }

  // `filter`: the block may hold keys of both children.
  void child_group(const model::Partition& p, const model::Child& child, model::Interval interval, Side side,
                   bool filter) {
    auto& group = plan_.groups.emplace_back();
    for (const auto& a : child.assignments) {
      const auto* parent = a.source.none() ? nullptr : model::find_assignment(p, a.source);
      if (parent != nullptr && parent->server == a.server) {
        group.push_back({.needs = target(p, *parent, Side::whole)});
        continue;
      }
      model::Partition as;  // what the child's server knows the copy as
      as.id = child.id;
      const auto before = only_;
      if (filter) only_ = interval;
      group.push_back({.needs = target(as, a, side)});
      only_ = before;
    }
  }

  Plan& plan_;
  const model::Metadata& map_;
  const model::ServerId& self_;
  model::AssignmentId own_;
  std::optional<model::Interval> only_;
};

}  // namespace

bool continues_here(const model::Partition& partition, const model::Assignment& assignment) {
  // A replacement's source is another server's; a child's, if it has one, is the parent's on the same server.
  return !partition.parent.none() && !assignment.source.none() && move_to(partition, assignment.id) == nullptr;
}

std::optional<model::Level> Plan::reached(uint64_t acked) const {
  if ((acked & own) != own) return std::nullopt;
  bool majority = true, all = true;
  for (const auto& group : groups) {
    size_t n = 0;
    for (const auto& slot : group)
      if (slot.counts && (acked & slot.needs) == slot.needs) n++;
    majority = majority && n >= write_majority(group.size());
    all = all && n == group.size();
  }
  if (all) return model::Level::all;
  return majority ? model::Level::majority : model::Level::one;
}

int Plan::find(const model::AssignmentId& assignment) const {
  for (size_t i = 0; i < targets.size(); i++)
    if (targets[i].assignment == assignment) return static_cast<int>(i);
  return -1;
}

std::shared_ptr<const Plan> make_plan(const model::Metadata& map, const model::ServerId& self,
                                      const std::vector<Scope>& scopes) {
  auto plan = std::make_shared<Plan>();
  plan->txnseq = map.txnseq;
  Builder builder(*plan, map, self);
  for (const auto& scope : scopes)
    if (!builder.add(scope)) return nullptr;
  if (scopes.size() > 1) {  // each partition takes its part of the records only
    for (auto& t : plan->targets)
      for (const auto& scope : scopes)
        if (t.partition == scope.partition->id) t.only = scope.partition->interval;
  }
  return plan;
}

}  // namespace cantle::proto::push

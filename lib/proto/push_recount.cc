#include "lib/proto/push_impl.h"

// Writes under way when a map changes their partition are counted anew under the new map: the rules it was begun
// under may no longer make it safe (during a split the child's majority counts too, S43), and servers with the new map
// refuse what is sent under the old one. Confirmations stay: a tenure has what it confirmed, and so has the child that
// goes on from it on the same server, or what it was merged into.
namespace cantle::proto {

using namespace push;

namespace {
uint64_t bit(size_t i) { return uint64_t{1} << i; }
}  // namespace

void PushServer::Impl::recount(Table& t) {
  for (auto it = batches.begin(); it != batches.end();) {
    Batch& b = (it++)->second;
    if (b.table != t.uuid || !b.closed || b.waiting.empty() || !concerned(t, b)) continue;
    recount(t, b);
    retire(b);
  }
}

bool PushServer::Impl::concerned(const Table& t, const Batch& b) const {
  for (const auto& id : b.scope) {
    const auto* p = t.map->find(id);
    if (p == nullptr || p->min_txnseq > b.plan->txnseq) return true;
  }
  return false;
}

void PushServer::Impl::recount(Table& t, Batch& b) {
  std::vector<Scope> scopes;
  bool known = true;
  for (const auto& id : b.scope) known = expand(t, b, id, scopes) && known;
  const auto plan = known ? make_plan(*t.map, self.server, scopes) : nullptr;
  if (plan == nullptr) return give_up(b, "the partition moved away while the write was under way");
  b.scope.clear();
  for (const auto& scope : scopes) b.scope.push_back(scope.partition->id);
  adopt(b, plan);
  answer_reached(b);
  b.resend_after = kResendEvery;
  b.resend_at = now.at + b.resend_after;
  if (!b.waiting.empty()) send_missing(t, b);
}

// The partitions that the block's keys lie in now. False: METADATA has forgotten some in between, and it cannot be
// told.
bool PushServer::Impl::expand(const Table& t, const Batch& b, const PartitionId& id, std::vector<Scope>& scopes) const {
  if (const auto* p = t.map->find(id)) {
    const Side side = p->split && p->split->attempt != b.split ? Side::both : b.side;
    scopes.push_back({p, p->split ? side : Side::whole});
    return true;
  }
  for (const auto& e : t.map->ended) {
    if (e.id != id) continue;
    if (e.was_merged()) return expand(t, b, e.into, scopes);
    const Side side = e.attempt == b.split ? b.side : Side::both;
    return (side == Side::high || expand(t, b, e.low, scopes)) && (side == Side::low || expand(t, b, e.high, scopes));
  }
  return false;
}

void PushServer::Impl::adopt(Batch& b, const std::shared_ptr<const Plan>& plan) {
  uint64_t acked = 0, sent = 0, carried = 0;
  std::vector<std::pair<AssignmentId, int>> aliases;
  for (size_t i = 0; i < plan->targets.size(); i++) {
    const auto& to = plan->targets[i];
    for (size_t j = 0; j < b.plan->targets.size(); j++) {
      const auto& from = b.plan->targets[j];
      const bool goes_on = from.server == to.server && !from.assignment.none() &&
                           (from.assignment == to.continues || from.assignment == to.continues_high);
      if (from.assignment != to.assignment && !goes_on) continue;
      if ((b.acked & bit(j)) != 0) acked |= bit(i);
      if ((b.sent & bit(j)) != 0 && (carried & bit(j)) == 0) {
        sent |= bit(i);
        carried |= bit(j);
        if (goes_on) aliases.emplace_back(from.assignment, static_cast<int>(i));
      }
    }
  }
  for (const auto& [older, j] : b.aliases)
    for (size_t i = 0; i < plan->targets.size(); i++)
      if (plan->targets[i].assignment == b.plan->targets[static_cast<size_t>(j)].assignment)
        aliases.emplace_back(older, static_cast<int>(i));
  for (size_t j = 0; j < b.plan->targets.size(); j++)
    if ((b.sent & ~carried & bit(j)) != 0) {
      b.strays++;
      links[b.plan->targets[j].server].under_way--;
    }
  b.plan = plan;
  b.acked = acked;
  b.sent = sent;
  b.aliases = std::move(aliases);
  if (b.end) b.acked |= plan->own;
}

}  // namespace cantle::proto

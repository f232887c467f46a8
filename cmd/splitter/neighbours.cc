#include "cmd/splitter/neighbours.h"

#include <algorithm>

#include "lib/base/random.h"

namespace cantle::splitter {

using base::Code;
using model::Partition;

namespace {

std::string name_of(const Partition& p) {
  return "partition " + to_string(p.id).substr(0, 8) + " (region " + to_string(p.region) + ")";
}

base::Status check_still(const Partition& p) {
  if (p.merge)
    return base::fail(Code::conflict, name_of(p) + " is being merged already, attempt " + to_string(p.merge->attempt) +
                                          " (splitter status)");
  if (p.split)
    return base::fail(Code::conflict,
                      name_of(p) + " is being split, attempt " + to_string(p.split->attempt) + " (splitter status)");
  if (!p.moves.empty())
    return base::fail(Code::conflict, "a replica of " + name_of(p) + " is being replaced; merge it when that is done");
  if (model::being_filled(p))
    return base::fail(Code::conflict, "a replica of " + name_of(p) + " is being filled; merge it when that is done");
  return base::ok();
}

base::Status check_there(Cluster& cluster, const Partition& p) {
  TRY_ASSIGN(const auto live, cluster.live());
  const auto there =
      std::count_if(p.assignments.begin(), p.assignments.end(), [&](const auto& a) { return live.contains(a.server); });
  if (static_cast<size_t>(there) < p.assignments.size() / 2 + 1)
    return base::fail(Code::conflict, "only " + std::to_string(there) + " of " + std::to_string(p.assignments.size()) +
                                          " servers of " + name_of(p) + " are there: the merge could not go on");
  return base::ok();
}

}  // namespace

base::Result<MergePlan> make_merge(Cluster& cluster, const MergeFlags& flags) {
  TRY_ASSIGN(const auto map, cluster.map(flags.table));
  TRY_ASSIGN(const auto* low, find_partition(*map, flags.low));
  TRY_ASSIGN(const auto* high, find_partition(*map, flags.high));
  if (low == high) return base::fail(Code::invalid, "both words name " + name_of(*low));
  const auto *stays = low, *moved = high;
  if (low->interval.begin > high->interval.begin) std::swap(low, high);
  if (low->interval.end != high->interval.begin)
    return base::fail(Code::invalid, name_of(*low) + ", " + to_string(low->interval) + ", and " + name_of(*high) +
                                         ", " + to_string(high->interval) + ", are no neighbours");
  TRY(check_still(*low));
  TRY(check_still(*high));
  std::vector<model::ServerId> servers;
  for (const auto& a : stays->assignments) servers.push_back(a.server);
  const auto moves = moves_to(*moved, servers);
  TRY(check_there(cluster, *low));
  if (!moves.empty()) TRY(check_there(cluster, *high));
  TRY(check_moves(cluster, moves));
  base::SystemRandom random;
  return MergePlan{map->name,
                   map->txnid,
                   map->txnseq,
                   {low->interval.begin, high->interval.end},
                   model::draw_merge(*low, *high, random),
                   moved->id,
                   servers,
                   moves};
}

}  // namespace cantle::splitter

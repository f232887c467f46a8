// fsck of the partition servers: does each hold what METADATA says, and nothing else that it serves?
#include <algorithm>

#include "cmd/zkctl/fsck.h"

namespace cantle::zkctl {

void Fsck::check_servers() {
  for (const auto& [id, node] : nodes_) {
    if (!node.live() || node.active->role != coord::Role::partd) continue;
    checked_++;
    const auto status = tool_.status_of(id, "", timeout_);
    if (!status)
      found(id.name, "is registered and does not answer: " + status.error().text);
    else
      check_server(node, *status);
  }
}

void Fsck::check_server(const NodeEntry& node, const model::StatusReply& status) {
  const auto& name = node.id.name;
  if (!status.cluster_uuid.none() && status.cluster_uuid != format_.cluster)
    return found(name, "serves another cluster, " + to_string(status.cluster_uuid));
  if (status.server != node.id) return found(name, "at its address answers " + status.server.name);
  if (status.incarnation != node.active->incarnation)
    found(name, "is registered with incarnation " + to_string(node.active->incarnation) + " and is " +
                    to_string(status.incarnation));
  if (node.info && status.number != node.info->number)
    found(name, "has server number " + to_string(status.number) + ", nodes/info says " + to_string(node.info->number));
  for (const auto& entry : maps_) {
    const auto& map = entry.second;
    const auto it =
        std::find_if(status.tables.begin(), status.tables.end(), [&](const auto& t) { return t.uuid == map->table; });
    const auto* held = it == status.tables.end() ? nullptr : &*it;
    if (held) check_held(node, *held, *map);
    check_missing(node, held, *map);
  }
}

void Fsck::check_held(const NodeEntry& node, const model::StatusTable& held, const model::Metadata& map) {
  const auto& name = node.id.name;
  const auto where = name + ", table " + map.name;
  if (held.txnseq > map.txnseq)
    found(where, "acts on transaction " + to_string(held.txnseq) + ", the current one is " + to_string(map.txnseq));
  if (held.txnseq < map.txnseq)
    found(where,
          "is behind: acts on transaction " + to_string(held.txnseq) + ", the current one is " + to_string(map.txnseq));
  for (const auto& p : held.partitions) {
    checked_++;
    const auto* partition = map.find(p.id);
    const auto* a = partition ? model::find_assignment(*partition, p.assignment) : nullptr;
    if (a && a->server != node.id)
      found(where, "holds region " + to_string(p.region) + " under the assignment of " + a->server.name);
    if (a && partition->interval != p.interval)
      found(where, "holds region " + to_string(p.region) + " as " + to_string(p.interval) + ", METADATA says " +
                       to_string(partition->interval));
    // Old tenures and parents that have ended are kept until they have been proved; they must not be served.
    const bool child = std::any_of(map.partitions.begin(), map.partitions.end(), [&](const model::Partition& q) {
      return (q.split && (q.split->low.id == p.id || q.split->high.id == p.id)) ||
             (q.merge && q.merge->target.id == p.id);
    });
    if (!a && !child && p.state == "serving")
      found(where, "serves region " + to_string(p.region) + ", which METADATA does not give it");
  }
}

void Fsck::check_missing(const NodeEntry& node, const model::StatusTable* held, const model::Metadata& map) {
  for (const auto& p : map.partitions) {
    const auto* a = model::find_assignment(p, node.id);
    if (!a || !model::answers_reads(a->state)) continue;
    const bool there = held && std::any_of(held->partitions.begin(), held->partitions.end(),
                                           [&](const auto& h) { return h.id == p.id && h.assignment == a->id; });
    if (!there)
      found(node.id.name + ", table " + map.name,
            "does not hold region " + to_string(p.region) + ", of which METADATA says that it is " +
                (a->state == model::AssignmentState::leaving ? "leaving" : "available"));
  }
}

}  // namespace cantle::zkctl

#include "cmd/zkctl/reach.h"

#include <algorithm>
#include <set>

#include "lib/proto/push_plan.h"

namespace cantle::zkctl {

using model::Level;
using model::ServerId;

namespace {

// What a server says of this tenure; null: it did not answer, or does not hold it.
const model::StatusPartition* copy_of(const Partds& partds, const model::Partition& p, const model::Assignment& a) {
  const auto it = partds.find(a.server);
  if (it == partds.end() || !it->second) return nullptr;
  for (const auto& t : it->second->tables)
    for (const auto& held : t.partitions)
      if (held.id == p.id && held.assignment == a.id) return &held;
  return nullptr;
}

// Why this replica cannot do all that it should; empty: it can.
std::string trouble(const model::Partition& p, const model::Assignment& a, const Nodes& nodes, const Partds& partds) {
  const auto node = nodes.find(a.server);
  if (node == nodes.end() || !node->second.live())
    return a.server.name +
           (node != nodes.end() && node->second.info && node->second.info->dead ? " is marked dead" : " is down");
  const auto said = partds.find(a.server);
  if (said == partds.end()) return "";  // nobody asked
  if (!said->second) return a.server.name + " does not answer";
  const auto* copy = copy_of(partds, p, a);
  if (!copy) return a.server.name + " does not hold it yet";
  if (!model::answers_reads(a.state)) return a.server.name + " is being filled";
  if (copy->state != "serving")
    return a.server.name + " is " + (copy->state == "catching_up" ? "catching up" : copy->state);
  if (!said->second->read_only.empty()) return a.server.name + " takes no writes (" + said->second->read_only + ")";
  return "";
}

std::optional<Level> read_level(size_t able, size_t slots) {
  if (able == 0) return std::nullopt;
  if (able == slots) return Level::all;
  return able >= proto::push::write_majority(slots) ? Level::majority : Level::one;
}

// Whoever takes the write, with confirmations of everybody who is there.
std::optional<Level> write_level(const model::Metadata& map, const model::Partition& p, const std::set<ServerId>& there,
                                 const std::set<ServerId>& takers) {
  std::optional<Level> best;
  const auto side = p.split ? proto::push::Side::both : proto::push::Side::whole;
  for (const auto& server : takers) {
    const auto plan = proto::push::make_plan(map, server, {{&p, side}});
    if (!plan) continue;
    uint64_t confirmed = 0;
    for (size_t i = 0; i < plan->targets.size(); ++i)
      if (there.contains(plan->targets[i].server)) confirmed |= uint64_t{1} << i;
    best = std::max(best, plan->reached(confirmed));
  }
  return best;
}

// A leader under its lease gives everything; without one, what was committed can be read as of level any.
void look_for_leader(Reach& reach, const model::Partition& p, const Partds& partds) {
  reach.quorum = true;
  for (const auto& a : p.assignments) {
    const auto* copy = copy_of(partds, p, a);
    if (copy == nullptr || !copy->quorum || copy->role == "faulted") continue;
    reach.reads = std::max(reach.reads, std::optional(Level::one));
    if (copy->role != "leader" || copy->state != "serving" || copy->quorum->lease_ms == 0) continue;
    reach.leader = a.server;
    reach.reads = Level::all;
    size_t joined = 1;
    for (const auto& other : copy->quorum->replicas) joined += other.state == "joined";
    if (model::writable(p.state) && joined >= proto::push::write_majority(reach.slots) &&
        partds.at(a.server)->read_only.empty())
      reach.writes = Level::all;
  }
  if (reach.leader.name.empty()) reach.why.insert(reach.why.begin(), "nobody leads it");
}

}  // namespace

bool is_partd(const NodeEntry& n) {
  const auto role = n.active ? n.active->role : n.info ? n.info->role : coord::Role::partd;
  return role == coord::Role::partd;
}

Partds ask_partds(Tool& tool, const Nodes& nodes, base::Duration timeout) {
  Partds partds;
  for (const auto& [id, n] : nodes)
    if (n.live() && is_partd(n)) partds.emplace(id, tool.status_of(id, "", timeout));
  return partds;
}

Reach reach_of(const model::Metadata& map, const model::Partition& p, const Nodes& nodes, const Partds& partds) {
  Reach reach;
  std::set<uint32_t> slots, able;
  std::set<ServerId> there, takers;
  for (const auto& [id, status] : partds)
    if (status) there.insert(id);
  for (const auto& a : p.assignments) {
    slots.insert(a.slot);
    if (auto why = trouble(p, a, nodes, partds); !why.empty()) reach.why.push_back(std::move(why));
    const auto* copy = copy_of(partds, p, a);
    if (!copy || !model::answers_reads(a.state)) continue;
    if (copy->state == "serving") able.insert(a.slot);
    // One that catches up takes writes, too.
    if ((copy->state == "serving" || copy->state == "catching_up") && partds.at(a.server)->read_only.empty())
      takers.insert(a.server);
  }
  reach.slots = slots.size();
  reach.live = able.size();
  if (map.replication == model::Replication::quorum) {
    look_for_leader(reach, p, partds);
    return reach;
  }
  if (model::readable(p.state)) reach.reads = read_level(able.size(), slots.size());
  if (model::writable(p.state)) reach.writes = write_level(map, p, there, takers);
  return reach;
}

std::string level_words(const std::optional<Level>& highest) {
  if (!highest) return "at no level";
  return *highest == Level::all ? "at every level" : *highest == Level::majority ? "at one and majority" : "at one";
}

std::string in_words(const Reach& reach) {
  std::string text;
  if (reach.quorum) {
    if (reach.none())
      text = "It is unavailable: neither reads nor writes work";
    else if (reach.leader.name.empty())
      text = "Nothing can be written, and reads work at level any alone";
    else
      text = (reach.writes ? "Reads and writes work, " : "Reads work, writes do not: ") + reach.leader.name + " leads";
    std::string why;
    for (const auto& w : reach.why) why += (why.empty() ? "; " : ", ") + w;
    return text + why + ".";
  }
  if (reach.none())
    text = "It is unavailable: neither reads nor writes work, at no level";
  else if (reach.reads == reach.writes)
    text = "Reads and writes work " + level_words(reach.reads);
  else
    text = "Reads work " + level_words(reach.reads) + ", writes " + level_words(reach.writes);
  if (!reach.none() && reach.below_majority()) text += ", not at majority, the default";
  std::string why;
  for (const auto& w : reach.why) why += (why.empty() ? ": " : ", ") + w;
  return text + why + ".";
}

std::string pusher_trouble(const model::StatusReply& status) {
  if (status.pusher != "missing") return "";
  return "no replpush runs beside " + status.server.name + ", for " + std::to_string(status.pusher_ms / 1000) + " s";
}

}  // namespace cantle::zkctl

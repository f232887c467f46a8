// tree: the cluster as one picture, regions nested under the regions they were split or merged from (under the lower
// one of two); or the bare znodes. What a split or a merge that was aborted was to make stays there for ever: they are
// drawn with --all only.
#include <functional>
#include <set>

#include "cmd/zkctl/ruling.h"
#include "cmd/zkctl/verbs.h"
#include "lib/base/bytes.h"
#include "lib/coord/path.h"
#include "lib/daemon/json.h"

namespace cantle::zkctl {

namespace {

struct RegionEntry {
  coord::RegionNode node;
  std::map<std::string, coord::SystemNode> systems;
  std::optional<Ruling> ruling;  // of a quorum table
};
using Regions = std::map<model::Region, RegionEntry>;

base::Result<Regions> read_regions(coord::SyncSession& session, const coord::Layout& at, const TableEntry& table) {
  Regions regions;
  const auto& d = table.distribution;
  const bool ruled = table.config && table.config->replication == model::Replication::quorum;
  TRY_ASSIGN(const auto values, values_under(session, at.regions(d)));
  for (const auto& [name, text] : values) {
    const auto node = coord::parse_region(text);
    if (!node) continue;  // fsck says what is wrong with it
    const model::Region region{static_cast<uint32_t>(std::strtoul(name.c_str(), nullptr, 10))};
    auto& entry = regions[region];
    entry.node = *node;
    TRY_ASSIGN(const auto systems, values_under(session, at.systems(d, region)));
    for (const auto& [server, system] : systems)
      if (const auto parsed = coord::parse_system(system)) entry.systems[server] = *parsed;
    if (ruled) entry.ruling = read_ruling(session, at, d, region);
  }
  return regions;
}

std::string interval_text(const std::string& begin, const std::string& end) {
  return to_string(model::Interval{begin, end});
}

// Draws a region and, below it, what it was split into. The interval follows from the split points above.
class RegionTree {
 public:
  using Known = std::optional<model::Interval>;

  RegionTree(const Regions& regions, const client::MdClient::MapPtr& map, bool all)
      : regions_(regions), map_(map), all_(all) {}

  void draw(const std::string& indent) {
    for (const auto& [region, entry] : regions_)
      if (!entry.node.has_parent) draw(region, model::Interval{}, indent);
    for (const auto& [region, entry] : regions_)  // whose parent has been swept
      if (!drawn_.contains(region) && !regions_.contains(entry.node.parent)) draw(region, std::nullopt, indent);
    for (const auto& [region, entry] : regions_)
      if (!drawn_.contains(region)) draw(region, std::nullopt, indent);
  }

 private:
  void draw(model::Region region, const Known& interval, const std::string& indent) {
    const auto it = regions_.find(region);
    if (it == regions_.end() || !drawn_.insert(region).second) return;
    const auto& node = it->second.node;
    if (!all_ && node.state == coord::RegionState::aborted) return;
    const auto* partition = map_ ? map_->find(node.partition) : nullptr;
    const Known shown = partition ? Known(partition->interval) : interval;
    std::string line = indent + "region " + to_string(region) + "  " +
                       std::string(coord::region_state_name(node.state)) +
                       (shown ? "  " + interval_text(shown->begin, shown->end) : "");
    if (node.has_children) line += "  split at \"" + base::escape(node.split) + "\"";
    if (node.has_target)
      line += (node.state == coord::RegionState::merged ? "  merged into region " : "  into region ") +
              to_string(node.into);
    if (partition)
      for (const auto& a : partition->assignments)
        line += "  " + a.server.name +
                (a.state == model::AssignmentState::available ? "" : "(" + std::string(name_of(a.state)) + ")");
    daemon::print_line(line);
    if (it->second.ruling) daemon::print_line(indent + "  " + in_a_line(*it->second.ruling));
    if (node.has_children) {
      draw(node.left, shown ? Known({shown->begin, node.split}) : Known(), indent + "  ");
      draw(node.right, shown ? Known({node.split, shown->end}) : Known(), indent + "  ");
    }
    for (const auto& [child, entry] : regions_)  // what it was once to be split into, and was not
      if (entry.node.has_parent && entry.node.parent == region) draw(child, std::nullopt, indent + "  ");
  }

  const Regions& regions_;
  const client::MdClient::MapPtr& map_;
  const bool all_;
  std::set<model::Region> drawn_;
};

void draw_nodes(const std::map<model::ServerId, NodeEntry>& nodes) {
  daemon::print_line("nodes");
  for (const auto& [id, node] : nodes) {
    const auto role = node.active ? node.active->role : node.info ? node.info->role : coord::Role::partd;
    std::string line = "  " + id.name + "  " + std::string(coord::role_name(role));
    if (node.info && !node.info->rack.empty()) line += "  rack " + node.info->rack;
    if (node.active)
      line += "  " + (node.active->tcp.empty() ? node.active->unix_socket : node.active->tcp) + "  incarnation " +
              to_string(node.active->incarnation);
    line += node.live()                    ? (node.active->readonly ? "  read-only" : "  live")
            : node.info && node.info->dead ? "  dead"
                                           : "  down";
    daemon::print_line(line);
  }
}

base::Status draw_table(Tool& tool, coord::SyncSession& session, const TableEntry& t, bool all) {
  if (!t.config) return daemon::print_line("  " + t.distribution + "  damaged: " + t.damage), base::ok();
  const auto& c = *t.config;
  daemon::print_line("  " + t.name + "  " + std::string(to_string(c.keyspace)) + "  " +
                     std::string(to_string(c.replication)) + "  k=" + std::to_string(c.replicas) + "  txnseq " +
                     to_string(c.metadata_txnseq) + "  metadata " + join(c.metadata_servers) +
                     (c.dropped ? "  dropped" : ""));
  TRY_ASSIGN(const auto regions, read_regions(session, tool.at(), t));
  // The map adds servers; without it the picture is that of the coordination service alone.
  client::MdClient::MapPtr map;
  if (!c.dropped)
    if (auto got = tool.map(t.name, std::chrono::seconds(2))) map = *got;
  RegionTree(regions, map, all).draw("    ");
  return base::ok();
}

base::Status draw_raw(coord::SyncSession& session, const std::string& path, const std::string& indent) {
  TRY_ASSIGN(const auto names, session.children_or_none(path));
  for (const auto& name : names) {
    const auto child = coord::join_path(path, name);
    const auto node = session.get(child);
    if (!node) continue;
    std::string line = indent + name;
    if (node->stat.ephemeral_owner) line += "  (ephemeral)";
    if (!node->value.empty()) line += "  " + base::escape(node->value.substr(0, 120));
    daemon::print_line(line);
    TRY(draw_raw(session, child, indent + "  "));
  }
  return base::ok();
}

base::Status print_json(Tool& tool, coord::SyncSession& session, const std::vector<TableEntry>& tables,
                        const std::map<model::ServerId, NodeEntry>& nodes,
                        const std::map<std::string, std::string>& tasks) {
  daemon::Json j;
  TRY_ASSIGN(const auto format, tool.cluster());
  j.object().member("cluster", tool.flags().cluster).member("uuid", to_string(format.cluster)).key("nodes").array();
  for (const auto& [id, node] : nodes) {
    j.object().member("id", id.name).member("live", node.live());
    if (node.active)
      j.member("role", coord::role_name(node.active->role))
          .member("tcp", node.active->tcp)
          .member("unix", node.active->unix_socket)
          .member("incarnation", node.active->incarnation.value);
    if (node.info)
      j.member("rack", node.info->rack).member("weight", node.info->weight).member("dead", node.info->dead);
    j.end();
  }
  j.end().key("tables").array();
  for (const auto& t : tables) {
    j.object().member("table", t.name).member("distribution", t.distribution);
    if (t.config)
      j.member("uuid", to_string(t.config->table_uuid))
          .member("txnseq", t.config->metadata_txnseq.value)
          .member("dropped", t.config->dropped);
    j.key("regions").array();
    TRY_ASSIGN(const auto regions, read_regions(session, tool.at(), t));
    for (const auto& [region, entry] : regions) {
      j.object()
          .member("region", region.value)
          .member("partition", to_string(entry.node.partition))
          .member("state", coord::region_state_name(entry.node.state));
      if (entry.node.has_parent) j.member("parent", entry.node.parent.value);
      if (entry.node.has_children)
        j.member("left", entry.node.left.value)
            .member("right", entry.node.right.value)
            .bytes("split", entry.node.split);
      if (entry.node.has_target) j.member("into", entry.node.into.value);
      j.key("systems").array();
      for (const auto& [server, s] : entry.systems)
        j.object()
            .member("server", server)
            .member("slot", s.slot)
            .member("assignment", to_string(s.assignment))
            .member("version", s.version.value)
            .end();
      j.end();
      if (entry.ruling) add_json(j, *entry.ruling);
      j.end();
    }
    j.end().end();
  }
  j.end().key("tasks").array();
  for (const auto& [name, text] : tasks) {
    const auto task = coord::parse_task(text);
    j.object()
        .member("task", name)
        .member("driver", task ? task->driver : "")
        .member("table", task ? task->table : "")
        .member("what", task ? task->what : "")
        .end();
  }
  daemon::print_line(j.end().end().str());
  return base::ok();
}

}  // namespace

base::Result<int> tree(Tool& tool, const TreeFlags& flags) {
  TRY_ASSIGN(const auto format, tool.cluster());
  TRY_ASSIGN(auto* session, tool.coord());
  TRY(session->sync("/"));
  if (flags.raw) {
    daemon::print_line(tool.at().root());
    TRY(draw_raw(*session, tool.at().root(), "  "));
    return daemon::kExitDone;
  }
  TRY_ASSIGN(auto tables, tool.tables());
  if (!flags.table.empty()) {
    std::erase_if(tables, [&](const auto& t) { return t.name != flags.table; });
    if (tables.empty()) return base::fail(base::Code::no_such_table, "there is no table " + flags.table);
  }
  TRY_ASSIGN(const auto nodes, tool.nodes());
  TRY_ASSIGN(const auto tasks, values_under(*session, tool.at().tasks()));
  if (tool.format() == daemon::Format::json) {
    TRY(print_json(tool, *session, tables, nodes, tasks));
    return daemon::kExitDone;
  }
  daemon::print_line(tool.flags().cluster + "  " + to_string(format.cluster));
  draw_nodes(nodes);
  daemon::print_line("tables");
  for (const auto& t : tables) TRY(draw_table(tool, *session, t, flags.all));
  if (!tasks.empty()) daemon::print_line("tasks");
  for (const auto& [name, text] : tasks) {
    const auto task = coord::parse_task(text);
    daemon::print_line("  " + name +
                       (task ? "  " + task->what + " " + task->table + "  driven by " + task->driver : ""));
  }
  return daemon::kExitDone;
}

}  // namespace cantle::zkctl

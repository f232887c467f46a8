// status: the cluster at a glance, and what is wrong with it.
#include <algorithm>

#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"

namespace cantle::zkctl {

using model::ServerId;

namespace {

struct TableSummary {
  TableEntry entry;
  MapPtr map;
  std::string error;
  size_t short_of_replica = 0;  // partitions with a replica that is down or not filled
  size_t short_of_majority = 0;
};

struct Overview {
  coord::Format format;
  std::map<ServerId, NodeEntry> nodes;
  std::map<ServerId, base::Result<model::StatusReply>> partds;  // of those registered
  std::vector<TableSummary> tables;
  std::vector<OpEntry> operations;
  std::vector<std::string> problems;
};

bool is_partd(const NodeEntry& n) {
  const auto role = n.active ? n.active->role : n.info ? n.info->role : coord::Role::partd;
  return role == coord::Role::partd;
}

size_t majority(const model::Partition& p) {
  uint32_t slots = 0;
  for (const auto& a : p.assignments) slots = std::max(slots, a.slot + 1);
  return slots / 2 + 1;
}

void look_at_partitions(TableSummary& t, const std::map<ServerId, NodeEntry>& nodes) {
  for (const auto& p : t.map->partitions) {
    size_t good = 0;
    bool all = true;
    for (const auto& a : p.assignments) {
      const auto it = nodes.find(a.server);
      const bool works = it != nodes.end() && it->second.live() && model::answers_reads(a.state);
      if (works)
        good++;
      else if (a.state != model::AssignmentState::proposed)
        all = false;
    }
    if (!all) t.short_of_replica++;
    if (good < majority(p)) t.short_of_majority++;
  }
}

std::string count_text(size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

void find_problems(Overview& o) {
  const auto problem = [&](std::string text) { o.problems.push_back(std::move(text)); };
  for (const auto& [id, n] : o.nodes) {
    if (!n.live() && n.info && !n.info->dead) problem(id.name + " is down");
    if (n.live() && n.info && n.info->dead) problem(id.name + " is marked dead and is registered");
  }
  for (const auto& [id, status] : o.partds) {
    if (!status) {
      problem(id.name + " does not answer: " + status.error().text);
      continue;
    }
    if (!status->read_only.empty()) problem(id.name + " is read-only: " + status->read_only);
    if (!status->ready) problem(id.name + " is not ready: it catches up");
    if (status->coord != "connected") problem(id.name + " is cut off from the coordination service");
  }
  for (const auto& t : o.tables) {
    const auto name = t.entry.name.empty() ? t.entry.distribution : t.entry.name;
    if (!t.entry.config)
      problem("table " + name + ": " + t.entry.damage);
    else if (!t.map && !t.entry.config->dropped)
      problem("table " + name + ": no metadata server gives its map: " + t.error);
    if (!t.entry.config) continue;
    if (t.short_of_majority)
      problem("table " + name + ": " + count_text(t.short_of_majority, "partition") +
              " without a majority of replicas");
    if (t.short_of_replica)
      problem("table " + name + ": " + count_text(t.short_of_replica, "partition") + " short of a replica");
    if (t.entry.config->dropped) continue;
    size_t live = 0;
    for (const auto& m : t.entry.config->metadata_servers) {
      const auto it = o.nodes.find(m);
      live += it != o.nodes.end() && it->second.live();
    }
    if (live < model::majority(*t.entry.config))
      problem("table " + name + ": no majority of its metadata servers lives");
  }
}

base::Result<Overview> look(Tool& tool, base::Duration timeout) {
  Overview o;
  TRY_ASSIGN(o.format, tool.cluster());
  TRY_ASSIGN(o.nodes, tool.nodes());
  for (const auto& [id, n] : o.nodes)
    if (n.live() && is_partd(n)) o.partds.emplace(id, tool.status_of(id, "", timeout));
  TRY_ASSIGN(auto entries, tool.tables());
  for (auto& entry : entries) {
    TableSummary t;
    t.entry = std::move(entry);
    if (t.entry.config && !t.entry.config->dropped) {
      auto map = tool.map(t.entry.name, timeout);
      if (map)
        t.map = *map, look_at_partitions(t, o.nodes);
      else
        t.error = to_string(map.error());
    }
    o.tables.push_back(std::move(t));
  }
  if (auto operations = all_operations(tool, timeout)) o.operations = std::move(*operations);
  find_problems(o);
  return o;
}

void print_tables(const Overview& o) {
  daemon::print_line("tables");
  daemon::Printer out(daemon::Format::table, {"  table", "replicas", "partitions", "txnseq", "state"});
  for (const auto& t : o.tables) {
    if (!t.entry.config) {
      out.row({"  " + t.entry.distribution, daemon::Missing{}, daemon::Missing{}, daemon::Missing{}, "damaged"});
      continue;
    }
    const auto& c = *t.entry.config;
    const char* state = c.dropped             ? "dropped"
                        : !t.map              ? "no map"
                        : t.short_of_majority ? "unavailable in part"
                        : t.short_of_replica  ? "short of replicas"
                                              : "healthy";
    out.row({"  " + t.entry.name, c.replicas, t.map ? std::to_string(t.map->partitions.size()) : "",
             c.metadata_txnseq.value, state});
  }
}

void print_nodes(const Overview& o) {
  daemon::print_line("nodes");
  daemon::Printer out(daemon::Format::table, {"  id", "role", "state", "rack", "partitions", "serving"});
  for (const auto& [id, n] : o.nodes) {
    std::string state = n.live()                 ? (n.active->readonly ? "read-only" : "live")
                        : n.info && n.info->dead ? "dead"
                                                 : "down";
    size_t held = 0, serving = 0;
    const auto it = o.partds.find(id);
    const bool answered = it != o.partds.end() && it->second;
    if (it != o.partds.end() && !it->second) state = "not answering";
    if (answered && !it->second->ready) state = "catching up";
    if (answered)
      for (const auto& t : it->second->tables)
        for (const auto& p : t.partitions) held++, serving += p.state == "serving";
    const auto role = n.active ? n.active->role : n.info ? n.info->role : coord::Role::partd;
    out.row({"  " + id.name, coord::role_name(role), state, n.info ? n.info->rack : "",
             answered ? std::to_string(held) : "", answered ? std::to_string(serving) : ""});
  }
}

void print_json(const Overview& o, const std::string& cluster) {
  daemon::Json j;
  j.object()
      .member("cluster", cluster)
      .member("uuid", to_string(o.format.cluster))
      .member("healthy", o.problems.empty());
  j.key("problems").array();
  for (const auto& p : o.problems) j.text(p);
  j.end().key("nodes").array();
  for (const auto& [id, n] : o.nodes) {
    j.object().member("id", id.name).member("live", n.live());
    if (const auto it = o.partds.find(id); it != o.partds.end()) {
      j.member("answers", it->second.has_value());
      if (it->second) j.member("ready", it->second->ready).member("read_only", it->second->read_only);
    }
    j.end();
  }
  j.end().key("tables").array();
  for (const auto& t : o.tables) {
    j.object()
        .member("table", t.entry.name)
        .member("txnseq", t.entry.config ? t.entry.config->metadata_txnseq.value : 0);
    j.member("partitions", t.map ? t.map->partitions.size() : 0)
        .member("short_of_replica", t.short_of_replica)
        .member("short_of_majority", t.short_of_majority)
        .end();
  }
  j.end().key("operations").array();
  for (const auto& op : o.operations)
    j.object()
        .member("attempt", to_string(op.attempt))
        .member("table", op.table)
        .member("region", op.region.value)
        .member("what", op.what)
        .member("detail", op.detail)
        .member("phase", op.phase)
        .member("driver", op.driver)
        .end();
  daemon::print_line(j.end().end().str());
}

}  // namespace

base::Result<int> status(Tool& tool, const StatusFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto o, look(tool, timeout));
  const int exit = flags.problems_only && !o.problems.empty() ? daemon::kExitFindings : daemon::kExitDone;
  if (tool.format() == daemon::Format::json) return print_json(o, tool.flags().cluster), exit;
  if (flags.problems_only) {
    for (const auto& p : o.problems) daemon::print_line(p);
    if (o.problems.empty()) daemon::print_line("all is well");
    return exit;
  }
  daemon::print_line("cluster " + tool.flags().cluster + "  " + to_string(o.format.cluster));
  print_nodes(o);
  print_tables(o);
  if (!o.operations.empty()) daemon::print_line("operations");
  for (const auto& op : o.operations)
    daemon::print_line("  " + op.what + " " + op.table + " region " + to_string(op.region) + " " + op.detail + "  " +
                       op.phase + "  " + to_string(op.attempt) + (op.driver.empty() ? "" : "  driven by " + op.driver));
  daemon::print_line(o.problems.empty() ? "all is well" : "problems");
  for (const auto& p : o.problems) daemon::print_line("  " + p);
  return exit;
}

}  // namespace cantle::zkctl

// status: the cluster at a glance, and what is wrong with it.
#include <algorithm>

#include "cmd/zkctl/reach.h"
#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"

namespace cantle::zkctl {

namespace {

struct TableSummary {
  TableEntry entry;
  MapPtr map;
  std::string error;
  size_t short_of_replica = 0;   // partitions with a replica that is down or not filled
  size_t short_of_majority = 0;  // that cannot be read, or not written, at majority
  size_t unavailable = 0;        // of these, those that can at no level
  std::vector<std::string> why;  // what is missing for the first of these
};

struct Overview {
  coord::Format format;
  Nodes nodes;
  Partds partds;
  std::vector<TableSummary> tables;
  std::vector<OpEntry> operations;
  std::vector<std::string> problems;
};

void look_at_partitions(TableSummary& t, const Nodes& nodes, const Partds& partds) {
  for (const auto& p : t.map->partitions) {
    bool all = true;
    for (const auto& a : p.assignments) {
      const auto it = nodes.find(a.server);
      const bool works = it != nodes.end() && it->second.live() && model::answers_reads(a.state);
      if (!works && a.state != model::AssignmentState::proposed) all = false;
    }
    if (!all) t.short_of_replica++;
    const auto reach = reach_of(*t.map, p, nodes, partds);
    if (!reach.below_majority()) continue;
    if (t.why.empty()) t.why = reach.why;
    t.short_of_majority++;
    t.unavailable += reach.none();
  }
}

// In one word, or two.
const char* state_of(const TableSummary& t) {
  if (t.entry.config->dropped) return "dropped";
  if (!t.map) return "no map";
  const auto n = t.map->partitions.size();
  if (t.unavailable == n) return "unavailable";
  if (t.unavailable > 0) return "unavailable in part";
  if (t.short_of_majority > 0) return t.short_of_majority == n ? "no majority" : "no majority in part";
  return t.short_of_replica ? "short of replicas" : "healthy";
}

std::string count_text(size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

void find_problems(Overview& o) {
  const auto problem = [&](std::string text) { o.problems.push_back(std::move(text)); };
  for (const auto& [id, n] : o.nodes) {
    if (!n.live() && n.info && !n.info->dead) problem(id.name + " is down");
    if (n.live() && n.info && n.info->dead)
      problem(id.name +
              " is marked dead and is registered: stop it; a server that was given up comes back under a new id");
  }
  for (const auto& [id, status] : o.partds) {
    if (!status) {
      problem(id.name + " does not answer: " + status.error().text);
      continue;
    }
    if (!status->read_only.empty()) problem(id.name + " is read-only: " + status->read_only);
    if (!status->ready) problem(id.name + " is not ready: it catches up");
    if (const auto text = pusher_trouble(*status); !text.empty())
      problem(text + ": what others lack and it has is not brought to them");
    if (status->coord != "connected") problem(id.name + " is cut off from the coordination service");
  }
  for (const auto& t : o.tables) {
    const auto name = t.entry.name.empty() ? t.entry.distribution : t.entry.name;
    if (!t.entry.config)
      problem("table " + name + ": " + t.entry.damage);
    else if (!t.map && !t.entry.config->dropped)
      problem("table " + name + ": no metadata server gives its map: " + t.error);
    if (!t.entry.config) continue;
    std::string why;
    for (const auto& w : t.why) why += (why.empty() ? ": " : ", ") + w;
    if (t.unavailable)
      problem("table " + name + ": " + count_text(t.unavailable, "partition") + " unavailable at every level" + why);
    if (t.short_of_majority > t.unavailable)
      problem("table " + name + ": " + count_text(t.short_of_majority - t.unavailable, "partition") +
              " without a majority of replicas" + why);
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
  o.partds = ask_partds(tool, o.nodes, timeout);
  TRY_ASSIGN(auto entries, tool.tables());
  for (auto& entry : entries) {
    TableSummary t;
    t.entry = std::move(entry);
    if (t.entry.config && !t.entry.config->dropped) {
      auto map = tool.map(t.entry.name, timeout);
      if (map)
        t.map = *map, look_at_partitions(t, o.nodes, o.partds);
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
    out.row({"  " + t.entry.name, c.replicas, t.map ? std::to_string(t.map->partitions.size()) : "",
             c.metadata_txnseq.value, state_of(t)});
  }
}

void print_nodes(const Overview& o) {
  daemon::print_line("nodes");
  daemon::Printer out(daemon::Format::table, {"  id", "role", "state", "rack", "partitions", "serving", "replpush"});
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
             answered ? std::to_string(held) : "", answered ? std::to_string(serving) : "",
             answered ? it->second->pusher : ""});
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
      if (it->second)
        j.member("ready", it->second->ready)
            .member("read_only", it->second->read_only)
            .member("pusher", it->second->pusher)
            .member("pusher_ms", it->second->pusher_ms);
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
        .member("unavailable", t.unavailable)
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

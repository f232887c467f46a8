#include "cmd/splitter/verbs.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cmd/splitter/drive.h"
#include "cmd/splitter/moves.h"
#include "lib/base/bytes.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/json.h"
#include "lib/daemon/output.h"
#include "lib/proto/merge_driver.h"
#include "lib/proto/split_driver.h"

namespace cantle::splitter {

using base::Code;
using daemon::Cell;
using daemon::Format;

namespace {

constexpr base::Duration kChangeTimeoutMin = std::chrono::milliseconds(100);

// --- What is printed -----------------------------------------------------------------------------------

using Members = std::vector<std::pair<std::string, Cell>>;

std::string servers_text(const std::vector<model::ServerId>& servers) {
  std::string text;
  for (const auto& s : servers) text += (text.empty() ? "" : ",") + s.name;
  return text;
}
std::string servers_text(const model::ops::NewChild& child) {
  std::vector<model::ServerId> servers;
  for (const auto& a : child.assignments) servers.push_back(a.server);
  return servers_text(servers);
}

Members about(const client::SplitPlan& plan) {
  return {{"table", plan.table},
          {"partition", to_string(plan.split.partition)},
          {"attempt", to_string(plan.split.attempt)},
          {"point", daemon::Bytes{plan.split.point}},
          {"low", to_string(plan.split.low.id)},
          {"low_servers", servers_text(plan.split.low)},
          {"high", to_string(plan.split.high.id)},
          {"high_servers", servers_text(plan.split.high)},
          {"base_txnid", to_string(plan.base)},
          {"base_txnseq", plan.base_txnseq.value}};
}

Members about(const MergePlan& plan) {
  return {{"table", plan.table},
          {"low", to_string(plan.merge.low)},
          {"high", to_string(plan.merge.high)},
          {"attempt", to_string(plan.merge.attempt)},
          {"target", to_string(plan.merge.target.id)},
          {"begin", daemon::Bytes{plan.interval.begin}},
          {"end", daemon::Bytes{plan.interval.end}},
          {"servers", servers_text(plan.servers)},
          {"moves", plan.moves.empty() ? Cell(daemon::Missing{}) : Cell(to_string(plan.moves))},
          {"base_txnid", to_string(plan.base)},
          {"base_txnseq", plan.base_txnseq.value}};
}

// What is to be begun.
struct Planned {
  std::string table;
  model::AttemptId attempt;
  proto::OpKind kind = proto::OpKind::split;
  model::Operation operation;
  std::optional<model::TxnId> base;  // only on exactly this map
  Members about;
};
Planned planned(const client::SplitPlan& plan, bool strict) {
  return {plan.table,
          plan.split.attempt,
          proto::OpKind::split,
          plan.split,
          strict ? std::optional(plan.base) : std::nullopt,
          about(plan)};
}
Planned planned(const MergePlan& plan) {
  return {plan.table, plan.merge.attempt, proto::OpKind::merge, plan.merge, std::nullopt, about(plan)};
}

void say(const char* format, const std::string& a, const std::string& b = {}) {
  std::fprintf(stderr, format, a.c_str(), b.c_str());
}

base::Result<int> report(const daemon::GlobalFlags& global, Members members, const Driven& driven,
                         const std::string& attempt, proto::OpKind kind) {
  const std::string what(proto::op_name(kind));
  members.emplace_back("outcome", std::string(to_string(driven.end)));
  members.emplace_back("seconds", driven.seconds);
  daemon::print_object(global.format, members);
  switch (driven.end) {
    case DriveEnd::done: return daemon::kExitDone;
    case DriveEnd::aborted: say("the %s was aborted: %s\n", what, driven.reason); return daemon::kExitFailed;
    case DriveEnd::failed: say("the %s failed: %s\n", what, driven.reason); return daemon::kExitFailed;
    case DriveEnd::detached:
      say("detached; the %s goes on: ", what);
      say("splitter wait %s, or splitter abort %s\n", attempt, attempt);
      return daemon::kExitTemporary;
    case DriveEnd::timed_out:
      say("not finished in time; the %s goes on: ", what);
      say("splitter wait %s, or splitter abort %s\n", attempt, attempt);
      return daemon::kExitTemporary;
  }
  return daemon::kExitFailed;
}

// --- Beginning -----------------------------------------------------------------------------------------

base::Result<int> begin(Cluster& cluster, const FollowFlags& flags, const Planned& plan) {
  const std::string attempt = to_string(plan.attempt);
  client::ChangeSpec spec;
  spec.table = plan.table;
  spec.operations = {plan.operation};
  if (plan.base) spec.base = *plan.base;
  base::Duration limit = kChangeTimeout;
  if (!flags.timeout.empty()) {
    TRY_ASSIGN(const auto wanted, daemon::parse_duration(flags.timeout));
    limit = std::clamp<base::Duration>(wanted, kChangeTimeoutMin, kChangeTimeout);
  }
  auto committed = commit(cluster, spec, limit);
  if (!committed && committed.error().code == Code::outcome_unknown)
    say("it may have begun: splitter wait %s tells\n", attempt);
  if (!committed)
    return base::fail(std::move(committed).error().wrap("beginning the " + std::string(proto::op_name(plan.kind))));
  if (flags.no_wait) {
    auto members = plan.about;
    members.emplace_back("outcome", std::string("begun"));
    daemon::print_object(cluster.flags().format, members);
    say("begun, attempt %s; splitter wait follows it\n", attempt);
    return daemon::kExitDone;
  }
  TRY_ASSIGN(const auto driven,
             drive(cluster, plan.table, plan.kind, plan.attempt, {true, false, flags.progress, flags.timeout}));
  return report(cluster.flags(), plan.about, driven, attempt, plan.kind);
}

// Replicas that are to be moved before a merge or after a split, which is `what`. Nothing: they were.
base::Result<std::optional<int>> moved(Cluster& cluster, const std::string& table, const model::PartitionId& partition,
                                       const std::vector<model::ServerId>& servers, const FollowFlags& flags,
                                       const char* what) {
  TRY_ASSIGN(const auto driven, move_replicas(cluster, table, partition, servers, flags));
  if (driven.end == DriveEnd::done) return std::nullopt;
  if (driven.end == DriveEnd::failed || driven.end == DriveEnd::aborted)
    return base::fail(Code::unavailable, "a replica was not moved: " + driven.reason);
  say("the move goes on by itself; %s\n", what);
  return daemon::kExitTemporary;
}
base::Result<model::AttemptId> parse_attempt(const std::string& text) {
  auto id = model::parse_id<model::AttemptId>(text);
  if (!id)
    return base::fail(Code::usage,
                      "'" + text + "' is no attempt: " + id.error().text + " (splitter status lists them)");
  return id;
}

base::Result<int> follow(const daemon::GlobalFlags& global, const AttemptFlags& flags, bool drives, bool aborts) {
  TRY_ASSIGN(const auto attempt, parse_attempt(flags.attempt));
  Cluster cluster(global);
  TRY(cluster.connect());
  TRY_ASSIGN(const auto found, find_attempt(cluster, attempt, flags.table));
  Members members{{"table", found.table}, {"attempt", to_string(attempt)}};
  const std::string what(proto::op_name(found.kind));
  if (aborts && found.ended)
    return base::fail(Code::conflict, "the " + what + " is finished: it cannot be aborted any more");
  const auto tell = [&](const Driven& driven) {
    return report(global, std::move(members), driven, to_string(attempt), found.kind);
  };
  if (found.ended) return tell({DriveEnd::done, "", 0});
  if (found.aborted && !aborts) return tell({DriveEnd::aborted, "some time ago", 0});
  Driven driven{DriveEnd::aborted, "", 0};
  if (!found.aborted) {
    TRY_ASSIGN(driven,
               drive(cluster, found.table, found.kind, attempt, {drives, aborts, flags.progress, flags.timeout}));
  }
  if (!aborts) return tell(driven);
  if (driven.end == DriveEnd::done)
    return base::fail(Code::conflict, "the " + what + " was finished before it could be aborted");
  if (driven.end != DriveEnd::aborted) return tell(driven);
  members.emplace_back("outcome", std::string("aborted"));
  members.emplace_back("seconds", driven.seconds);
  daemon::print_object(global.format, members);
  return daemon::kExitDone;
}

// --- Status --------------------------------------------------------------------------------------------

struct Going {
  std::string phase, waits_for;
};

std::string names_of(const std::vector<model::ServerId>& servers) {
  std::string text;
  for (const auto& s : servers) text += (text.empty() ? "" : ",") + s.name;
  return text;
}

// Of a quorum table: whose cut it waits for.
Going where_cuts_stand(const model::Partition& p, const model::AttemptId& attempt, const proto::World& world) {
  if (p.split && p.split->phase == model::SplitPhase::barrier) return {"begun", ""};
  std::vector<model::ServerId> leaders;
  bool cut = true;
  for (const auto* each : proto::partitions_of(*world.map, attempt)) {
    const auto seen = world.governments.find(each->id);
    const auto* government = seen != world.governments.end() ? &seen->second.government : nullptr;
    if (government != nullptr && government->cut && government->cut->attempt == attempt) continue;
    cut = false;
    const auto* leader = government ? model::find_voter(government->voters, government->leader) : nullptr;
    if (leader != nullptr) leaders.push_back(leader->server);
  }
  return {cut ? "cut" : "cutting", names_of(leaders)};
}

Going where_it_stands(const model::Partition& p, const proto::World& world) {
  Going out;
  if (p.merge) return {"barrier", names_of(merge_barrier_waits_for(*p.merge, world))};
  if (p.split->phase == model::SplitPhase::barrier) {
    out.phase = "barrier";
    out.waits_for = names_of(split_barrier_waits_for(p, world));
    return out;
  }
  out.phase = "filling";
  std::vector<model::ServerId> unready;
  for (const auto* child : {&p.split->low, &p.split->high}) {
    const auto ready = ready_of(p, *child, world);
    for (const auto& a : child->assignments)
      if (std::find(ready.begin(), ready.end(), a.id) == ready.end() &&
          std::find(unready.begin(), unready.end(), a.server) == unready.end())
        unready.push_back(a.server);
  }
  out.waits_for = names_of(unready);
  return out;
}

base::Result<proto::World> world_of(Cluster& cluster, const std::string& table, MapPtr map) {
  proto::World world;
  world.map = std::move(map);
  TRY_ASSIGN(world.live, cluster.live());
  TRY_ASSIGN(world.observed, cluster.observed(table));
  const auto d = coord::distribution(world.map->keyspace, table);
  for (const auto& [attempt, kind] : proto::operations_of(*world.map))
    for (const auto& [id, region] : proto::governed_by(*world.map, attempt)) {
      const auto node = cluster.coord().get(cluster.layout().government(d, region));
      if (!node) continue;  // it waits for it, and says so
      if (auto government = coord::parse_government(node->value))
        world.governments[id] = {std::move(*government), node->stat.version};
    }
  return world;
}

}  // namespace

base::Result<int> plan(const daemon::GlobalFlags& global, const SplitFlags& flags) {
  Cluster cluster(global);
  TRY(cluster.connect());
  TRY_ASSIGN(const auto both, make_plan(cluster, flags));
  if (!both.low.empty() || !both.high.empty())
    return base::fail(Code::conflict,
                      "children of a quorum table are moved when it is split: splitter split does both");
  const auto& made = both.plan;
  if (global.format == Format::json)
    daemon::print_object(global.format, about(made));
  else
    std::fputs(format_plan(made).c_str(), stdout);
  say("splitter apply FILE begins it, as long as the map of %s is what it is now; splitter abort %s goes back until it "
      "is finished\n",
      made.table, to_string(made.split.attempt));
  return daemon::kExitFindings;
}

base::Result<int> split(const daemon::GlobalFlags& global, const SplitFlags& flags) {
  Cluster cluster(global);
  TRY(cluster.connect());
  TRY_ASSIGN(const auto made, make_plan(cluster, flags));
  auto plan = planned(made.plan, false);
  for (const auto& [name, servers] : {std::pair("low_moved_to", made.low), std::pair("high_moved_to", made.high)})
    if (!servers.empty()) plan.about.emplace_back(name, servers_text(servers));
  if (flags.dry_run) {
    daemon::print_object(global.format, plan.about);
    return daemon::kExitDone;
  }
  if (flags.no_wait && !(made.low.empty() && made.high.empty()))
    return base::fail(Code::usage, "with --no-wait nobody would move the children");
  TRY_ASSIGN(const int exit, begin(cluster, flags, plan));
  for (const auto& [child, servers] :
       {std::pair(made.plan.split.low.id, made.low), std::pair(made.plan.split.high.id, made.high)}) {
    if (exit != daemon::kExitDone || servers.empty()) continue;
    TRY_ASSIGN(const auto stopped, moved(cluster, made.plan.table, child, servers, flags,
                                         "it is split, and the rest stays where it is (zkctl node replace moves it)"));
    if (stopped) return *stopped;
  }
  return exit;
}

base::Result<int> merge(const daemon::GlobalFlags& global, const MergeFlags& flags) {
  Cluster cluster(global);
  TRY(cluster.connect());
  TRY_ASSIGN(auto made, make_merge(cluster, flags));
  if (flags.dry_run) {
    daemon::print_object(global.format, about(made));
    return daemon::kExitDone;
  }
  if (!made.moves.empty()) {
    if (flags.no_wait)
      return base::fail(Code::usage, "with --no-wait nobody would move replicas first: " + to_string(made.moves));
    TRY_ASSIGN(const auto exit, moved(cluster, made.table, made.moved, made.servers, flags,
                                      "the merge is not begun: the same command goes on from there"));
    if (exit) return *exit;
    TRY_ASSIGN(made, make_merge(cluster, flags));
    if (!made.moves.empty())
      return base::fail(Code::conflict, "somebody else moves them meanwhile: " + to_string(made.moves));
  }
  return begin(cluster, flags, planned(made));
}

base::Result<int> apply(const daemon::GlobalFlags& global, const SplitFlags& flags) {
  std::string text;
  if (flags.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::ifstream in(flags.file, std::ios::binary);
    if (!in) return base::fail(Code::not_found, flags.file + " cannot be read");
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  auto made = client::parse_plan(text);
  if (!made) return base::fail(std::move(made).error().wrap(flags.file));
  Cluster cluster(global);
  TRY(cluster.connect());
  TRY_ASSIGN(const auto map, cluster.map(made->table));
  if (map->table != made->table_uuid)
    return base::fail(Code::conflict, "table " + made->table + " is another one than the plan was made for");
  const auto* parent = map->find(made->split.partition);
  if (map->txnid != made->base || parent == nullptr)
    return base::fail(Code::conflict,
                      "the map of " + made->table + " has changed since the plan was made (transaction " +
                          to_string(map->txnseq) + ", not " + to_string(made->base_txnseq) + "): make another");
  TRY(check_servers(cluster, *map, *parent, made->split));
  if (flags.dry_run) {
    daemon::print_object(global.format, about(*made));
    return daemon::kExitDone;
  }
  return begin(cluster, flags, planned(*made, true));
}

base::Result<int> status(const daemon::GlobalFlags& global, const std::string& table) {
  Cluster cluster(global);
  TRY(cluster.connect());
  std::vector<std::string> tables{table};
  if (table.empty()) {
    TRY_ASSIGN(tables, cluster.tables());
  }
  daemon::Printer out(global.format, {"attempt", "table", "partition", "point", "phase", "since", "driver", "waits_for",
                                      "what", "neighbour"});
  for (const auto& name : tables) {
    auto map = cluster.map(name);
    if (!map && table.empty() && map.error().code == Code::no_such_table) continue;
    if (!map) return base::fail(std::move(map).error());
    TRY_ASSIGN(const auto world, world_of(cluster, name, *map));
    for (const auto& p : (*map)->partitions) {
      if (!p.split && !(p.merge && p.merge->low == p.id)) continue;
      const auto attempt = p.split ? p.split->attempt : p.merge->attempt;
      const auto going = (*map)->replication == model::Replication::quorum ? where_cuts_stand(p, attempt, world)
                                                                           : where_it_stands(p, world);
      const auto task = cluster.coord().get(cluster.layout().op_task(attempt));
      const auto driver = task ? coord::parse_task(task->value) : base::Result<coord::Task>(base::fail(task.error()));
      out.row({to_string(attempt), name, to_string(p.id),
               p.split ? Cell(daemon::Bytes{p.split->point}) : Cell(daemon::Missing{}), going.phase,
               p.split ? p.split->since.value : p.merge->since.value,
               driver ? Cell(driver->driver) : Cell(daemon::Missing{}),
               going.waits_for.empty() ? Cell(daemon::Missing{}) : Cell(going.waits_for), p.split ? "split" : "merge",
               p.merge ? Cell(to_string(p.merge->high)) : Cell(daemon::Missing{})});
    }
  }
  out.flush();
  return daemon::kExitDone;
}

base::Result<int> wait(const daemon::GlobalFlags& global, const AttemptFlags& flags) {
  return follow(global, flags, false, false);
}
base::Result<int> resume(const daemon::GlobalFlags& global, const AttemptFlags& flags) {
  return follow(global, flags, true, false);
}
base::Result<int> abort(const daemon::GlobalFlags& global, const AttemptFlags& flags) {
  return follow(global, flags, true, true);
}

}  // namespace cantle::splitter

#include "cmd/splitter/verbs.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cmd/splitter/drive.h"
#include "lib/base/bytes.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/json.h"
#include "lib/daemon/output.h"
#include "lib/io/timer.h"
#include "lib/proto/split_driver.h"

namespace cantle::splitter {

using base::Code;
using daemon::Cell;
using daemon::Format;

namespace {

constexpr base::Duration kChangeTimeout = std::chrono::seconds(20), kChangeTimeoutMin = std::chrono::milliseconds(100);
constexpr base::Duration kAnswerGrace = std::chrono::seconds(2);  // for the answer that says that the time is over
constexpr base::Duration kSaySlow = std::chrono::seconds(2);

// --- What is printed -----------------------------------------------------------------------------------

std::string servers_text(const model::ops::NewChild& child) {
  std::string text;
  for (const auto& a : child.assignments) text += (text.empty() ? "" : ",") + a.server.name;
  return text;
}

std::vector<std::pair<std::string, Cell>> about(const client::SplitPlan& plan) {
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

void say(const char* format, const std::string& a, const std::string& b = {}) {
  std::fprintf(stderr, format, a.c_str(), b.c_str());
}

base::Result<int> report(const daemon::GlobalFlags& global, std::vector<std::pair<std::string, Cell>> members,
                         const Driven& driven, const std::string& attempt) {
  members.emplace_back("outcome", std::string(to_string(driven.end)));
  members.emplace_back("seconds", driven.seconds);
  daemon::print_object(global.format, members);
  switch (driven.end) {
    case DriveEnd::done: return daemon::kExitDone;
    case DriveEnd::aborted: say("the split was aborted: %s\n", driven.reason); return daemon::kExitFailed;
    case DriveEnd::failed: say("the split failed: %s\n", driven.reason); return daemon::kExitFailed;
    case DriveEnd::detached:
      say("detached; the split goes on: splitter wait %s, or splitter abort %s\n", attempt, attempt);
      return daemon::kExitTemporary;
    case DriveEnd::timed_out:
      say("not finished in time; the split goes on: splitter wait %s, or splitter abort %s\n", attempt, attempt);
      return daemon::kExitTemporary;
  }
  return daemon::kExitFailed;
}

// --- Beginning -----------------------------------------------------------------------------------------

// Ctrl-C and the time limit end the waiting, not the change: a metadata server that has it may commit it yet.
base::Result<model::MdChangeReply> commit(Cluster& cluster, const client::ChangeSpec& spec, base::Duration limit) {
  const bool& stopped = cluster.interrupted();
  const auto answer = std::make_shared<std::optional<base::Result<model::MdChangeReply>>>();
  auto& loop = cluster.loop();
  io::Timer slow(loop, [&] {
    say("waiting for a majority of the metadata servers of table %s (zkctl md list shows them)\n", spec.table);
  });
  slow.start(kSaySlow);
  cluster.md().change(spec, limit, [answer](base::Result<model::MdChangeReply> r) { *answer = std::move(r); });
  loop.run_for(limit + kAnswerGrace, [&] { return stopped || answer->has_value(); });
  if (answer->has_value()) return std::move(**answer);
  return base::fail(Code::outcome_unknown, stopped ? "interrupted" : "no answer in time");
}

base::Result<int> begin(Cluster& cluster, const SplitFlags& flags, const client::SplitPlan& plan, bool strict) {
  const std::string attempt = to_string(plan.split.attempt);
  client::ChangeSpec spec;
  spec.table = plan.table;
  spec.operations = {plan.split};
  if (strict) spec.base = plan.base;
  base::Duration limit = kChangeTimeout;
  if (!flags.timeout.empty()) {
    TRY_ASSIGN(const auto wanted, daemon::parse_duration(flags.timeout));
    limit = std::clamp<base::Duration>(wanted, kChangeTimeoutMin, kChangeTimeout);
  }
  auto committed = commit(cluster, spec, limit);
  if (!committed && committed.error().code == Code::outcome_unknown)
    say("it may have begun: splitter wait %s tells\n", attempt);
  if (!committed) return base::fail(std::move(committed).error().wrap("beginning the split"));
  if (flags.no_wait) {
    auto members = about(plan);
    members.emplace_back("outcome", std::string("begun"));
    daemon::print_object(cluster.flags().format, members);
    say("begun, attempt %s; splitter wait follows it\n", attempt);
    return daemon::kExitDone;
  }
  TRY_ASSIGN(const auto driven,
             drive(cluster, plan.table, plan.split.attempt, {true, false, flags.progress, flags.timeout}));
  return report(cluster.flags(), about(plan), driven, attempt);
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
  std::vector<std::pair<std::string, Cell>> members{{"table", found.table}, {"attempt", to_string(attempt)}};
  if (aborts && found.ended) return base::fail(Code::conflict, "the split is finished: it cannot be aborted any more");
  if (found.ended) return report(global, std::move(members), {DriveEnd::done, "", 0}, to_string(attempt));
  if (found.aborted && !aborts)
    return report(global, std::move(members), {DriveEnd::aborted, "some time ago", 0}, to_string(attempt));
  Driven driven{DriveEnd::aborted, "", 0};
  if (!found.aborted) {
    TRY_ASSIGN(driven, drive(cluster, found.table, attempt, {drives, aborts, flags.progress, flags.timeout}));
  }
  if (!aborts) return report(global, std::move(members), driven, to_string(attempt));
  if (driven.end == DriveEnd::done)
    return base::fail(Code::conflict, "the split was finished before it could be aborted");
  if (driven.end != DriveEnd::aborted) return report(global, std::move(members), driven, to_string(attempt));
  members.emplace_back("outcome", std::string("aborted"));
  members.emplace_back("seconds", driven.seconds);
  daemon::print_object(global.format, members);
  return daemon::kExitDone;
}

// --- Status --------------------------------------------------------------------------------------------

struct Going {
  std::string phase, waits_for;
};
// Of a quorum table: whose cut it waits for.
Going where_it_stands(const model::Partition& p, const std::optional<model::Government>& government) {
  if (p.split->phase == model::SplitPhase::barrier) return {"begun", ""};
  if (!government) return {"cutting", ""};
  if (government->cut && government->cut->attempt == p.split->attempt) return {"cut", ""};
  const auto* leader = model::find_voter(government->voters, government->leader);
  return {"cutting", leader != nullptr ? leader->server.name : ""};
}

Going where_it_stands(const model::Partition& p, const proto::World& world) {
  Going out;
  const auto name_all = [&](const std::vector<model::ServerId>& servers) {
    for (const auto& s : servers) out.waits_for += (out.waits_for.empty() ? "" : ",") + s.name;
  };
  if (p.split->phase == model::SplitPhase::barrier) {
    out.phase = "barrier";
    name_all(split_barrier_waits_for(p, world));
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
  name_all(unready);
  return out;
}

}  // namespace

base::Result<int> plan(const daemon::GlobalFlags& global, const SplitFlags& flags) {
  Cluster cluster(global);
  TRY(cluster.connect());
  TRY_ASSIGN(const auto made, make_plan(cluster, flags));
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
  if (!flags.dry_run) return begin(cluster, flags, made, false);
  daemon::print_object(global.format, about(made));
  return daemon::kExitDone;
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
  return begin(cluster, flags, *made, true);
}

base::Result<int> status(const daemon::GlobalFlags& global, const std::string& table) {
  Cluster cluster(global);
  TRY(cluster.connect());
  std::vector<std::string> tables{table};
  if (table.empty()) {
    TRY_ASSIGN(tables, cluster.tables());
  }
  daemon::Printer out(global.format,
                      {"attempt", "table", "partition", "point", "phase", "since", "driver", "waits_for"});
  for (const auto& name : tables) {
    auto map = cluster.map(name);
    if (!map && table.empty() && map.error().code == Code::no_such_table) continue;
    if (!map) return base::fail(std::move(map).error());
    proto::World world;
    world.map = *map;
    TRY_ASSIGN(world.live, cluster.live());
    TRY_ASSIGN(world.observed, cluster.observed(name));
    for (const auto& p : (*map)->partitions) {
      if (!p.split) continue;
      std::optional<model::Government> government;
      const auto d = coord::distribution((*map)->keyspace, name);
      const bool quorum = (*map)->replication == model::Replication::quorum;
      if (const auto node = cluster.coord().get(cluster.layout().government(d, p.region)); quorum && node)
        if (auto parsed = coord::parse_government(node->value)) government = std::move(*parsed);
      const auto going = quorum ? where_it_stands(p, government) : where_it_stands(p, world);
      const auto task = cluster.coord().get(cluster.layout().op_task(p.split->attempt));
      const auto driver = task ? coord::parse_task(task->value) : base::Result<coord::Task>(base::fail(task.error()));
      out.row({to_string(p.split->attempt), name, to_string(p.id), daemon::Bytes{p.split->point}, going.phase,
               p.split->since.value, driver ? Cell(driver->driver) : Cell(daemon::Missing{}),
               going.waits_for.empty() ? Cell(daemon::Missing{}) : Cell(going.waits_for)});
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

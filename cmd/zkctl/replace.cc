// node replace, node dead: a server's replicas get other homes. Each replacement is recorded in METADATA first and then
// driven from here; Ctrl-C detaches, and a metadata server goes on.
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/client/op_driver.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"
#include "lib/model/operation.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;
using model::ServerId;

namespace {

constexpr size_t kAtOnce = 4;  // replacements that this tool has under way

struct Step {
  std::string table;
  model::PartitionId partition;
  model::Region region;
  model::Interval interval;
  ServerId from, to;
  model::Operation operation;
  model::AttemptId attempt;
};

struct Outcome {
  Step step;
  std::string state;  // done, failed, running
  std::string reason;
};

base::Status refuse_busy(const std::string& table, const model::Partition& p, const model::Assignment& from,
                         bool from_dead) {
  if (from_dead && model::cancelled_move(p, from.id) != nullptr) return base::ok();
  if (!p.split && !p.merge && p.moves.empty()) {
    if (from_dead || from.state != model::AssignmentState::available || !model::being_filled(p)) return base::ok();
    return fail(Code::conflict, table + ", region " + to_string(p.region) +
                                    ": a replica is still being filled; wait for it (zkctl explain " + to_string(p.id) +
                                    ")");
  }
  const char* what = p.split ? "split" : p.merge ? "merge" : "replacement";
  return fail(Code::conflict, table + ", region " + to_string(p.region) + ": a " + what +
                                  " is under way; wait for it (zkctl explain " + to_string(p.id) + ")");
}

// Chooses the new server of a partition; empty `to`: by placement.
base::Result<ServerId> target_of(const model::Partition& p, const ServerId& from, const ServerId& to,
                                 std::vector<Candidate>& free, const std::map<ServerId, NodeEntry>& nodes) {
  if (!to.name.empty()) {
    if (model::find_assignment(p, to))
      return fail(Code::conflict, to.name + " holds region " + to_string(p.region) + " already");
    return to;
  }
  std::vector<std::string> racks;
  for (const auto& a : p.assignments) {
    const auto it = nodes.find(a.server);
    if (a.server != from && it != nodes.end() && it->second.info) racks.push_back(it->second.info->rack);
  }
  auto fitting = free;
  std::erase_if(fitting,
                [&](const Candidate& c) { return model::find_assignment(p, c.id) != nullptr || c.id == from; });
  TRY_ASSIGN(const auto chosen, place(std::move(fitting), 1, std::move(racks)));
  for (auto& c : free)
    if (c.id == chosen.front()) c.assignments++;
  return chosen.front();
}

// Whether anybody but `from`, or `from` itself while it lives, can fill another replica.
bool has_source(const model::Partition& p, const ServerId& from, bool from_dead,
                const std::map<ServerId, NodeEntry>& nodes) {
  return std::any_of(p.assignments.begin(), p.assignments.end(), [&](const model::Assignment& a) {
    const auto it = nodes.find(a.server);
    return model::answers_reads(a.state) && !(from_dead && a.server == from) && it != nodes.end() && it->second.live();
  });
}

struct Plan {
  std::vector<Step> steps;
  std::vector<std::string> impossible;  // why a replica stays where it is
};

base::Result<Plan> plan_away(Tool& tool, const ServerId& from, const ServerId& to, const std::string& only_table,
                             bool from_dead, base::Duration timeout) {
  Plan plan;
  TRY_ASSIGN(const auto tables, tool.tables());
  TRY_ASSIGN(const auto nodes, tool.nodes());
  std::vector<Candidate> free;
  if (to.name.empty()) {
    TRY_ASSIGN(free, candidates(tool, timeout));
  }
  for (const auto& t : tables) {
    if (!t.config || t.config->dropped || (!only_table.empty() && t.name != only_table)) continue;
    TRY_ASSIGN(const auto map, tool.map(t.name, timeout));
    for (const auto& p : map->partitions) {
      const auto* a = model::find_assignment(p, from);
      if (!a) continue;
      TRY(refuse_busy(t.name, p, *a, from_dead));
      // What was begun before and cancelled can only go on, to where it went.
      if (const auto* move = from_dead ? model::cancelled_move(p, a->id) : nullptr) {
        const auto op = model::draw_replace(p, *move, tool.random());
        plan.steps.push_back({t.name, p.id, p.region, p.interval, from, op.to.server, op, op.attempt});
        continue;
      }
      if (!has_source(p, from, from_dead, nodes)) {
        plan.impossible.push_back(t.name + ", region " + to_string(p.region) + ": no live replica has its data");
        continue;
      }
      const auto target = target_of(p, from, to, free, nodes);
      if (!target && to.name.empty()) {
        plan.impossible.push_back(t.name + ", region " + to_string(p.region) + ": " + target.error().text);
        continue;
      }
      if (!target) return fail(target.error());
      const auto op = model::draw_replace(p, *a, *target, from_dead, tool.random());
      plan.steps.push_back({t.name, p.id, p.region, p.interval, from, *target, op, op.attempt});
    }
  }
  return plan;
}

void print_plan(Tool& tool, const Plan& plan) {
  daemon::Printer out(tool.format(), {"table", "region", "interval", "from", "to"});
  for (const auto& s : plan.steps) out.row({s.table, s.region.value, to_string(s.interval), s.from.name, s.to.name});
}

void say(const Step& step, const std::string& text) {
  std::fprintf(stderr, "%s region %s: %s\n", step.table.c_str(), to_string(step.region).c_str(), text.c_str());
}

// Several at a time, each with its driver.
class Replacements {
 public:
  Replacements(Tool& tool, client::MdClient& md, bool progress, bool cancel = false)
      : tool_(tool), md_(md), progress_(progress), cancel_(cancel) {}

  base::Result<std::vector<Outcome>> run(std::vector<Step> steps, base::Duration timeout) {
    const auto deadline = tool_.loop().refresh_now() + timeout;
    waiting_.assign(std::make_move_iterator(steps.begin()), std::make_move_iterator(steps.end()));
    while (true) {
      running_.erase(std::remove_if(running_.begin(), running_.end(), [](const auto& r) { return r->ended; }),
                     running_.end());
      while (!waiting_.empty() && running_.size() < kAtOnce && tool_.loop().refresh_now() < deadline) begin();
      if (running_.empty() && waiting_.empty()) break;
      const auto left = deadline - tool_.loop().refresh_now();
      if (left <= base::Duration::zero()) break;
      tool_.loop().run_for(
          left, [&] { return std::any_of(running_.begin(), running_.end(), [](const auto& r) { return r->ended; }); });
    }
    for (const auto& r : running_)
      if (!r->ended) outcomes_.push_back({r->step, "running", r->waits});
    for (const auto& s : waiting_) outcomes_.push_back({s, "not begun", ""});
    return std::move(outcomes_);
  }

 private:
  struct Running {
    Step step;
    bool ended = false;
    std::string waits;
    std::unique_ptr<client::OpDriver> driver;
  };

  void begin() {
    auto step = std::move(waiting_.front());
    waiting_.pop_front();
    if (!cancel_) {
      client::ChangeSpec spec;
      spec.table = step.table;
      spec.operations = {step.operation};
      const auto reply = tool_.change(std::move(spec), std::chrono::seconds(15));
      if (!reply && reply.error().code != Code::outcome_unknown) {
        outcomes_.push_back({std::move(step), "failed", to_string(reply.error())});
        return;
      }
    }
    // Unknown: METADATA will tell the driver whether there is anything to drive.
    auto running = std::make_unique<Running>();
    running->step = std::move(step);
    drive(*running);
    running_.push_back(std::move(running));
  }

  void drive(Running& r) {
    client::OpDriverEvents events;
    events.on_waiting = [this, &r](const proto::driver::Waiting& w) {
      r.waits = w.why + (w.for_whom.empty() ? "" : " (for " + join(w.for_whom, ", ") + ")");
      if (progress_) say(r.step, "waits: " + r.waits);
    };
    events.on_ended = [this, &r](const proto::driver::Ended& e) {
      r.ended = true;
      const bool done = e.outcome == proto::driver::Outcome::done;
      if (progress_)
        say(r.step, done ? r.step.to.name + " has taken over from " + r.step.from.name : "ended: " + e.reason);
      const bool cancelled = cancel_ && e.outcome == proto::driver::Outcome::aborted;
      outcomes_.push_back({r.step,
                           cancelled          ? "cancelled"
                           : done && !cancel_ ? "done"
                                              : "failed",
                           done && cancel_ ? "it was final already" : e.reason});
    };
    client::OpDriverOptions options;
    options.what = proto::op_name(proto::OpKind::replace);
    options.who = client::this_process();
    options.without_task = cancel_;  // whoever drives it will see that it is cancelled
    r.driver = std::make_unique<client::OpDriver>(tool_.loop(), md_, r.step.table, r.step.attempt,
                                                  proto::make_driver(proto::OpKind::replace, r.step.attempt), options,
                                                  std::move(events));
    r.driver->start();
    if (cancel_) r.driver->abort("an operator cancelled it");
  }

  Tool& tool_;
  client::MdClient& md_;
  bool progress_, cancel_;
  std::deque<Step> waiting_;
  std::vector<std::unique_ptr<Running>> running_;
  std::vector<Outcome> outcomes_;
};

int print_outcomes(Tool& tool, const std::vector<Outcome>& outcomes) {
  daemon::Printer out(tool.format(), {"attempt", "table", "region", "from", "to", "state", "reason"});
  bool failed = false, running = false;
  for (const auto& o : outcomes) {
    out.row({to_string(o.step.attempt), o.step.table, o.step.region.value, o.step.from.name, o.step.to.name, o.state,
             o.reason});
    failed |= o.state == "failed";
    running |= o.state == "running" || o.state == "not begun";
  }
  return failed ? daemon::kExitFailed : running ? daemon::kExitTemporary : daemon::kExitDone;
}

// Tables stop waiting for a server that holds nothing of them any more.
base::Status forget_in_tables(Tool& tool, const ServerId& dead, base::Duration timeout) {
  TRY_ASSIGN(const auto tables, tool.tables());
  for (const auto& t : tables) {
    if (!t.config || t.config->dropped) continue;
    TRY_ASSIGN(const auto map, tool.map(t.name, timeout));
    const bool waited_for = std::any_of(map->ended.begin(), map->ended.end(), [&](const auto& e) {
      return std::any_of(e.parent_assignments.begin(), e.parent_assignments.end(),
                         [&](const auto& a) { return a.server == dead; });
    });
    if (!waited_for) continue;
    client::ChangeSpec spec;
    spec.table = t.name;
    spec.operations = {model::ops::RemoveDead{dead}};
    const auto reply = tool.change(std::move(spec), timeout);
    if (!reply && reply.error().code != Code::conflict)
      return fail(reply.error());  // conflict: it still holds something
  }
  return base::ok();
}

// The flag in nodes/info, and a departure in the log of arrivals. A mark that is there stays as it is.
base::Status mark_dead(Tool& tool, const ServerId& id) {
  TRY_ASSIGN(auto* session, tool.coord());
  const auto path = tool.at().info(id);
  const auto node = session->get(path);
  if (!node && node.error().code == Code::not_found) return base::ok();  // it never came so far
  if (!node) return fail(node.error());
  TRY_ASSIGN(auto info, coord::parse_info(node->value));
  if (info.dead) return base::ok();
  info.dead = true;
  TRY(session->settled_set(path, coord::info_text(info), node->stat.version));
  coord::Arrival event;
  event.kind = coord::Arrival::Kind::departure;
  event.server = id;
  event.at_ms = tool.loop().wall_ms();
  event.rack = info.rack;
  event.weight = info.weight;
  event.instance = to_string(model::ChangeId::draw(tool.random()));  // tells this event from any other
  TRY(session->settled_append(tool.at().arrival_prefix(), coord::arrival_text(event)));
  return base::ok();
}

base::Result<NodeEntry> need_node(Tool& tool, const std::string& id) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  const auto it = nodes.find(ServerId{id});
  if (it == nodes.end()) return fail(Code::not_found, "no server " + id + " is known");
  return it->second;
}

base::Result<std::vector<Outcome>> perform(Tool& tool, Plan plan, base::Duration timeout, bool progress) {
  TRY_ASSIGN(auto* md, tool.md());
  return Replacements(tool, *md, progress || ::isatty(STDERR_FILENO) != 0).run(std::move(plan.steps), timeout);
}

void name_impossible(const std::vector<std::string>& impossible) {
  for (const auto& why : impossible) std::fprintf(stderr, "stays as it is: %s\n", why.c_str());
}

// The replacements of one server by another that are under way.
base::Result<Plan> plan_back(Tool& tool, const ServerId& from, const ServerId& to, const std::string& only_table) {
  Plan plan;
  TRY_ASSIGN(const auto tables, tool.tables());
  for (const auto& t : tables) {
    if (!t.config || t.config->dropped || (!only_table.empty() && t.name != only_table)) continue;
    TRY_ASSIGN(const auto map, tool.map(t.name, std::chrono::seconds(10)));
    for (const auto& p : map->partitions)
      for (const auto& m : p.moves) {
        const auto* source = model::find_assignment(p, m.from);
        const auto* target = model::find_assignment(p, m.to);
        if (source != nullptr && target != nullptr && source->server == from && target->server == to)
          plan.steps.push_back(
              {t.name, p.id, p.region, p.interval, from, to, model::ops::CancelMove{p.id, m.attempt}, m.attempt});
      }
  }
  return plan;
}

base::Result<int> cancel(Tool& tool, const NodeReplaceFlags& flags, base::Duration timeout) {
  TRY_ASSIGN(auto plan, plan_back(tool, ServerId{flags.from}, ServerId{flags.to}, flags.table));
  if (flags.dry_run) {
    print_plan(tool, plan);
    return plan.steps.empty() ? daemon::kExitDone : daemon::kExitFindings;
  }
  TRY_ASSIGN(auto* md, tool.md());
  Replacements running(tool, *md, flags.progress || ::isatty(STDERR_FILENO) != 0, true);
  TRY_ASSIGN(const auto outcomes, running.run(std::move(plan.steps), timeout));
  return print_outcomes(tool, outcomes);
}

base::Result<int> detach(Tool& tool, Plan plan) {
  std::vector<Outcome> outcomes;
  for (auto& step : plan.steps) {
    client::ChangeSpec spec;
    spec.table = step.table;
    spec.operations = {step.operation};
    const auto reply = tool.change(std::move(spec), std::chrono::seconds(15));
    outcomes.push_back({std::move(step), reply ? "begun" : "failed", reply ? "" : to_string(reply.error())});
  }
  return print_outcomes(tool, outcomes);
}

}  // namespace

base::Result<int> node_replace(Tool& tool, const NodeReplaceFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  const ServerId from{flags.from}, to{flags.to};
  if (from == to) return fail(Code::usage, "a server cannot replace itself: give the new one another id");
  if (flags.cancel) return cancel(tool, flags, timeout);
  TRY_ASSIGN(const auto source, need_node(tool, flags.from));
  TRY_ASSIGN(const auto target, need_node(tool, flags.to));
  if (!target.live() || target.active->role != coord::Role::partd)
    return fail(Code::not_found, "no partition server " + flags.to + " is registered");
  if (target.info && (target.info->dead || target.info->drain) && !flags.force)
    return fail(daemon::unsafe(flags.to + " is marked " + (target.info->dead ? "dead" : "drain"), "--force"));
  TRY_ASSIGN(auto plan, plan_away(tool, from, to, flags.table, !source.live(), std::chrono::seconds(10)));
  const auto impossible = plan.impossible;
  name_impossible(impossible);
  if (flags.dry_run) {
    print_plan(tool, plan);
    return plan.steps.empty() && impossible.empty() ? daemon::kExitDone : daemon::kExitFindings;
  }
  if (!source.live() && flags.table.empty()) TRY(mark_dead(tool, from));
  if (flags.detach) return detach(tool, std::move(plan));
  TRY_ASSIGN(const auto outcomes, perform(tool, std::move(plan), timeout, flags.progress));
  const int status = print_outcomes(tool, outcomes);
  if (status != daemon::kExitDone) return status;
  if (!impossible.empty()) return daemon::kExitFindings;
  if (!source.live() && flags.table.empty()) TRY(forget_in_tables(tool, from, std::chrono::seconds(10)));
  return status;
}

base::Result<int> node_dead(Tool& tool, const NodeDeadFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  const ServerId id{flags.id};
  TRY_ASSIGN(const auto node, need_node(tool, flags.id));
  if (node.live() && !flags.force) return fail(daemon::unsafe(flags.id + " is registered: it is alive", "--force"));
  if (!flags.dry_run) TRY(mark_dead(tool, id));
  if (flags.mark_only) return daemon::kExitDone;
  TRY_ASSIGN(auto plan, plan_away(tool, id, {}, "", !node.live(), std::chrono::seconds(10)));
  const auto impossible = plan.impossible;
  int status = daemon::kExitDone;
  if (flags.dry_run) {
    print_plan(tool, plan);
    status = plan.steps.empty() ? daemon::kExitDone : daemon::kExitFindings;
  } else {
    TRY_ASSIGN(const auto outcomes, perform(tool, std::move(plan), timeout, false));
    status = print_outcomes(tool, outcomes);
  }
  name_impossible(impossible);
  if (status == daemon::kExitDone && impossible.empty() && !flags.dry_run)
    TRY(forget_in_tables(tool, id, std::chrono::seconds(10)));
  return status == daemon::kExitDone && !impossible.empty() ? daemon::kExitFindings : status;
}

}  // namespace cantle::zkctl

// wait CONDITION...: until all of them hold.
//
//   table:NAME:exists | gone | available | settled      op:ATTEMPT:done
//   node:ID:active | gone | ready | readwrite           md:ID:current
#include <algorithm>
#include <cstdio>

#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"

#include "lib/daemon/duration.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;

namespace {

constexpr base::Duration kLookEvery = std::chrono::milliseconds(100);

struct Condition {
  std::string kind, name, state;
};

base::Result<Condition> parse_condition(const std::string& word) {
  const auto first = word.find(':'), last = word.rfind(':');
  if (first == std::string::npos || first == last)
    return fail(Code::usage, "a condition is KIND:NAME:STATE, not " + word);
  Condition c{word.substr(0, first), word.substr(first + 1, last - first - 1), word.substr(last + 1)};
  const std::map<std::string, std::vector<std::string>> known{{"table", {"exists", "gone", "available", "settled"}},
                                                              {"node", {"active", "gone", "ready", "readwrite"}},
                                                              {"op", {"done"}},
                                                              {"md", {"current"}}};
  const auto it = known.find(c.kind);
  if (it == known.end()) return fail(Code::usage, "a condition is about a table, node, op or md, not " + c.kind);
  if (std::find(it->second.begin(), it->second.end(), c.state) == it->second.end()) {
    std::string states;
    for (const auto& s : it->second) states.append(states.empty() ? "" : ", ").append(s);
    return fail(Code::usage, c.kind + " can be waited for to be: " + states + "; not " + c.state);
  }
  if (c.kind == "op" && !model::parse_id<model::AttemptId>(c.name))
    return fail(Code::usage, "no attempt id: " + c.name);
  return c;
}

// Empty: it holds. Otherwise what is missing.
using Missing = base::Result<std::string>;

Missing table_missing(Tool& tool, const Condition& c) {
  const auto table = tool.table(c.name);
  if (!table && table.error().code != Code::no_such_table) return fail(table.error());
  const bool there = table && !table->config->dropped;
  if (c.state == "gone") return there ? "there is a table " + c.name : "";
  if (!there) return "there is no table " + c.name;
  if (c.state == "exists") return "";
  TRY_ASSIGN(const auto world, world_of(tool, c.name, std::chrono::seconds(5)));
  for (const auto& p : world.map->partitions)
    for (const auto& a : p.assignments)
      if (a.state != model::AssignmentState::available)
        return a.server.name + " is " + std::string(name_of(a.state)) + " in region " + to_string(p.region);
  if (c.state == "available") return "";
  for (const auto& op : operations_of(*world.map))
    return "a " + op.what + " of region " + to_string(op.region) + ": " + next_step(op, world);
  for (const auto& id : world.live) {
    const auto status = tool.status_of(id, c.name, std::chrono::seconds(2));
    if (!status) return id.name + ": " + status.error().text;
    for (const auto& t : status->tables)
      for (const auto& p : t.partitions)
        if (t.name == c.name && p.state != "serving")
          return id.name + " is " + p.state + " in region " + to_string(p.region);
  }
  return "";
}

Missing node_missing(Tool& tool, const Condition& c) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  const auto it = nodes.find(model::ServerId{c.name});
  const bool live = it != nodes.end() && it->second.live();
  if (c.state == "gone") return live ? c.name + " is registered" : "";
  if (!live) return c.name + " is not registered";
  if (c.state == "active") return "";
  if (c.state == "readwrite") return it->second.active->readonly ? c.name + " is read-only" : "";
  if (it->second.active->role == coord::Role::mdserver) return "";
  const auto status = tool.status_of({c.name}, "", std::chrono::seconds(2));
  if (!status) return c.name + ": " + status.error().text;
  return status->ready ? "" : c.name + " catches up";
}

Missing op_missing(Tool& tool, const Condition& c) {
  TRY_ASSIGN(const auto list, all_operations(tool, std::chrono::seconds(5)));
  for (const auto& op : list) {
    if (to_string(op.attempt) != c.name) continue;
    TRY_ASSIGN(const auto world, world_of(tool, op.table, std::chrono::seconds(5)));
    return "a " + op.what + " in " + op.table + ", region " + to_string(op.region) + ": " + next_step(op, world);
  }
  return "";
}

Missing md_missing(Tool& tool, const Condition& c) {
  TRY_ASSIGN(auto* md, tool.md());
  const auto status = client::wait_for<model::MdStatusReply>(tool.loop(), std::chrono::seconds(3), [&](auto done) {
    md->status({c.name}, std::chrono::seconds(2), std::move(done));
  });
  if (!status) return c.name + ": " + status.error().text;
  for (const auto& t : status->tables)
    if (t.member && !t.dropped && !t.current) return c.name + " is behind in " + t.name + ", at " + to_string(t.txnseq);
  return "";
}

Missing missing(Tool& tool, const Condition& c) {
  if (c.kind == "table") return table_missing(tool, c);
  if (c.kind == "node") return node_missing(tool, c);
  if (c.kind == "op") return op_missing(tool, c);
  return md_missing(tool, c);
}

}  // namespace

base::Result<int> wait(Tool& tool, const WaitFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  std::vector<Condition> open;
  for (const auto& word : flags.conditions) {
    TRY_ASSIGN(auto condition, parse_condition(word));
    open.push_back(std::move(condition));
  }
  TRY(tool.cluster());
  const auto deadline = tool.loop().refresh_now() + timeout;
  for (;;) {
    std::string why;
    for (const auto& c : open) {
      const auto lacking = missing(tool, c);
      why = lacking ? *lacking : to_string(lacking.error());  // a service that is away may come back
      if (!why.empty()) break;
    }
    if (why.empty()) return daemon::kExitDone;
    if (tool.loop().refresh_now() >= deadline) {
      std::fprintf(stderr, "zkctl: not so after %s: %s\n", flags.timeout.c_str(), why.c_str());
      return daemon::kExitTemporary;
    }
    tool.loop().run_for(kLookEvery, [] { return false; });
  }
}

}  // namespace cantle::zkctl

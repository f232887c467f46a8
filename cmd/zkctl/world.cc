#include "cmd/zkctl/world.h"

#include "lib/base/bytes.h"

namespace cantle::zkctl {

using model::ServerId;

namespace {

std::string server_of(const model::Partition& p, const model::AssignmentId& id) {
  const auto* a = model::find_assignment(p, id);
  return a ? a->server.name : "?";
}

OpEntry entry_of(const model::Metadata& map, const model::Partition& p, proto::OpKind kind) {
  OpEntry op;
  op.kind = kind;
  op.what = proto::op_name(kind);
  op.table = map.name;
  op.partition = p.id;
  op.region = p.region;
  return op;
}

}  // namespace

std::vector<OpEntry> operations_of(const model::Metadata& map) {
  std::vector<OpEntry> list;
  for (const auto& p : map.partitions) {
    if (p.split) {
      auto op = entry_of(map, p, proto::OpKind::split);
      op.attempt = p.split->attempt;
      op.detail = "at \"" + base::escape(p.split->point) + "\"";
      op.phase = p.split->phase == model::SplitPhase::barrier ? "barrier" : "filling";
      op.since = p.split->since;
      list.push_back(std::move(op));
    }
    if (p.merge && p.merge->low == p.id) {
      auto op = entry_of(map, p, proto::OpKind::merge);
      op.attempt = p.merge->attempt;
      const auto* high = model::find_neighbour(map, p);
      op.detail = "with region " + to_string(high->region) + " into region " + to_string(p.merge->target.region);
      op.phase = "cutting";
      op.since = p.merge->since;
      list.push_back(std::move(op));
    }
    for (const auto& m : p.moves) {
      auto op = entry_of(map, p, proto::OpKind::replace);
      op.attempt = m.attempt;
      op.detail = server_of(p, m.from) + " -> " + server_of(p, m.to) + (m.from_dead ? " (the source is dead)" : "") +
                  (m.cancelled.value != 0 ? " (cancelled)" : "");
      const auto* to = model::find_assignment(p, m.to);
      op.phase = to ? std::string(name_of(to->state)) : "?";
      op.since = m.since;
      list.push_back(std::move(op));
    }
  }
  return list;
}

base::Result<std::vector<OpEntry>> all_operations(Tool& tool, base::Duration timeout) {
  std::vector<OpEntry> all;
  TRY_ASSIGN(const auto tables, tool.tables());
  TRY_ASSIGN(auto* session, tool.coord());
  TRY_ASSIGN(const auto tasks, values_under(*session, tool.at().tasks()));
  for (const auto& t : tables) {
    if (!t.config || t.config->dropped) continue;
    TRY_ASSIGN(const auto map, tool.map(t.name, timeout));
    for (auto& op : operations_of(*map)) {
      const auto task = tasks.find("op-" + to_string(op.attempt));
      if (task != tasks.end())
        if (const auto parsed = coord::parse_task(task->second)) op.driver = parsed->driver;
      all.push_back(std::move(op));
    }
  }
  return all;
}

base::Result<proto::World> world_of(Tool& tool, const std::string& table, base::Duration timeout) {
  proto::World world;
  TRY_ASSIGN(const auto entry, tool.table(table));
  TRY_ASSIGN(const auto nodes, tool.nodes());
  for (const auto& [id, node] : nodes)
    if (node.live() && node.active->role == coord::Role::partd) world.live.insert(id);
  TRY_ASSIGN(auto* session, tool.coord());
  TRY_ASSIGN(const auto observed, values_under(*session, tool.at().observed(entry.distribution)));
  for (const auto& [name, text] : observed)
    if (const auto o = coord::parse_observed(text)) world.observed[ServerId{name}] = o->txnseq;
  TRY_ASSIGN(world.map, tool.map(table, timeout));
  if (world.map->replication == model::Replication::push) return world;
  for (const auto& p : world.map->partitions) {
    if (!p.split && !p.merge && p.moves.empty()) continue;
    const auto node = session->get(tool.at().government(entry.distribution, p.region));
    if (!node) continue;  // it says so: there is none
    if (auto government = coord::parse_government(node->value))
      world.governments[p.id] = {std::move(*government), node->stat.version};
  }
  return world;
}

namespace {

struct Say {
  std::string text;
  void operator()(const proto::driver::Look&) {}
  void operator()(const proto::driver::Submit& s) {
    text = "the next step can be made: " + model::to_string(s.operation);
  }
  void operator()(const proto::driver::Waiting& w) {
    text = "waits: " + w.why + (w.for_whom.empty() ? "" : " (for " + join(w.for_whom, ", ") + ")");
  }
  void operator()(const proto::driver::Ended& e) { text = "it has ended" + (e.reason.empty() ? "" : ": " + e.reason); }
};

}  // namespace

// The real machine decides, so that what is told is what happens.
std::string next_step(const OpEntry& op, const proto::World& world) {
  const auto machine = proto::make_driver(op.kind, op.attempt);
  Say say;
  const base::Instant now{std::chrono::seconds(1)};
  for (const auto& effect : machine->step(proto::driver::Begin{now})) {
    const auto* look = std::get_if<proto::driver::Look>(&effect);
    if (!look) continue;
    for (const auto& e : machine->step(proto::driver::Looked{now, look->number, world})) std::visit(say, e);
  }
  return say.text;
}

}  // namespace cantle::zkctl

// table create | list | show | set | drop, and the METADATA file as text.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "cmd/zkctl/place.h"
#include "cmd/zkctl/verbs.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"
#include "lib/model/operation.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;
using model::ServerId;

namespace {

base::Result<model::Keyspace> parse_keyspace(const std::string& word) {
  if (word == "range") return model::Keyspace::range;
  if (word == "hash") return model::Keyspace::hash;
  return fail(Code::usage, "keyspace '" + word + "' is neither range nor hash");
}

base::Result<model::Replication> parse_replication(const std::string& word) {
  if (word == "push") return model::Replication::push;
  if (word == "quorum") return model::Replication::quorum;
  return fail(Code::usage, "replication '" + word + "' is neither push nor quorum");
}

uint64_t free_bytes(const model::StatusReply& status) {
  for (const auto& count : status.counts)
    if (count.name == "disk_free_bytes") return count.value;
  return 0;
}

}  // namespace

base::Result<std::vector<Candidate>> candidates(Tool& tool, base::Duration timeout) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  std::map<ServerId, uint64_t> assignments;
  TRY_ASSIGN(const auto tables, tool.tables());
  for (const auto& table : tables) {
    if (!table.config || table.config->dropped) continue;
    TRY_ASSIGN(const auto map, tool.map(table.name, timeout));
    for (const auto& partition : map->partitions)
      for (const auto& a : partition.assignments) assignments[a.server]++;
  }
  std::vector<Candidate> list;
  for (const auto& [id, node] : nodes) {
    if (!node.live() || node.active->role != coord::Role::partd || node.active->readonly) continue;
    const auto info = node.info.value_or(coord::NodeInfo{});
    if (info.dead || info.drain || info.reserve) continue;
    const auto status = tool.status_of(id, "", std::chrono::seconds(2));
    if (!status) continue;  // registered, but it does not answer
    list.push_back({id, info.rack, info.weight, assignments[id], free_bytes(*status)});
  }
  return list;
}

namespace {

base::Result<std::vector<ServerId>> choose_servers(Tool& tool, const TableCreateFlags& flags, base::Duration timeout) {
  TRY_ASSIGN(const auto named, parse_servers(flags.servers));
  if (named.empty()) {
    TRY_ASSIGN(auto list, candidates(tool, timeout));
    return place(std::move(list), flags.replicas);
  }
  if (named.size() != flags.replicas)
    return fail(Code::usage, "--servers names " + std::to_string(named.size()) + " servers, --replicas is " +
                                 std::to_string(flags.replicas));
  TRY_ASSIGN(const auto nodes, tool.nodes());
  for (const auto& id : named) {
    const auto it = nodes.find(id);
    if (it == nodes.end() || !it->second.live() || it->second.active->role != coord::Role::partd)
      return fail(Code::not_found, "no partition server " + id.name + " is registered");
  }
  return named;
}

// The keys between the partitions, in order.
base::Result<std::vector<std::string>> read_points(const std::string& path) {
  std::vector<std::string> points;
  if (path.empty()) return points;
  std::ifstream in(path);
  if (!in) return fail(Code::usage, "--points: " + path + " cannot be read");
  for (std::string line; std::getline(in, line);) {
    const bool ascends = points.empty() ? !line.empty() : line > points.back();
    if (!ascends || line.size() > model::kKeyMax)
      return fail(Code::usage, "--points: line " + std::to_string(points.size() + 1) + " of " + path +
                                   " is no key above the one before");
    if (points.size() + 1 == model::kPartitionsAtCreation)
      return fail(Code::usage, "--points: a table begins with " + std::to_string(model::kPartitionsAtCreation) +
                                   " partitions at most");
    points.push_back(std::move(line));
  }
  return points;
}

base::Result<model::ops::CreateTable> make_operation(Tool& tool, const TableCreateFlags& flags,
                                                     const std::vector<ServerId>& servers) {
  model::ops::CreateTable op;
  op.name = flags.name;
  op.table = model::TableUuid::draw(tool.random());
  TRY_ASSIGN(op.keyspace, parse_keyspace(flags.keyspace));
  TRY_ASSIGN(op.replication, parse_replication(flags.replication));
  op.replicas = flags.replicas;
  for (const auto& word : flags.options) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) return fail(Code::usage, "--option NAME=VALUE, not " + word);
    op.options[word.substr(0, equals)] = word.substr(equals + 1);
  }
  TRY_ASSIGN(const auto points, read_points(flags.points));
  for (size_t i = 0; i <= points.size(); ++i) {
    model::ops::NewPartition p;
    p.id = model::PartitionId::draw(tool.random());
    if (i > 0) p.interval.begin = points[i - 1];
    if (i < points.size()) p.interval.end = points[i];
    // Each in turn has the lowest slot, which leads if nothing speaks against it.
    for (size_t slot = 0; slot < servers.size(); ++slot)
      p.assignments.push_back({servers[(slot + i) % servers.size()], model::AssignmentId::draw(tool.random())});
    op.partitions.push_back(std::move(p));
  }
  return op;
}

// The servers that have not yet taken up the table; those that died meanwhile are not waited for.
std::vector<ServerId> not_serving(Tool& tool, const std::string& table, const std::vector<ServerId>& servers) {
  std::vector<ServerId> missing;
  for (const auto& id : servers) {
    const auto status = tool.status_of(id, table, std::chrono::seconds(2));
    const bool serves = status && std::any_of(status->tables.begin(), status->tables.end(), [&](const auto& t) {
                          return t.name == table && !t.partitions.empty() &&
                                 std::all_of(t.partitions.begin(), t.partitions.end(),
                                             [](const auto& p) { return p.state == "serving"; });
                        });
    if (!serves) missing.push_back(id);
  }
  return missing;
}

base::Status wait_until_served(Tool& tool, const std::string& table, const std::vector<ServerId>& servers,
                               base::Duration timeout) {
  const auto deadline = tool.loop().refresh_now() + timeout;
  for (;;) {
    const auto missing = not_serving(tool, table, servers);
    if (missing.empty()) return base::ok();
    if (tool.loop().refresh_now() >= deadline)
      return fail(Code::catching_up, "table " + table + " is created; not yet served by " + join(missing, ", "));
    tool.loop().run_for(std::chrono::milliseconds(20), [] { return false; });
  }
}

// By default all that live keep a new table's map. When most of those there are do not, that is not what anybody wants.
base::Status enough_metadata_servers(Tool& tool) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  std::vector<ServerId> live, down;
  for (const auto& [id, node] : nodes)
    if (node.info && node.info->role == coord::Role::mdserver && !node.info->dead)
      (node.live() ? live : down).push_back(id);
  if (down.empty()) return base::ok();
  const auto text = "of " + std::to_string(live.size() + down.size()) + " metadata servers " +
                    std::to_string(live.size()) + (live.size() == 1 ? " lives" : " live");
  if (live.size() <= down.size())
    return fail(Code::unavailable, text + " (down: " + join(down) + "): name with --metadata-servers who is to keep " +
                                       "the table's map, or mark those that are gone: zkctl node dead");
  std::fprintf(stderr, "zkctl: %s; %s will not have the map until zkctl md join\n", text.c_str(), join(down).c_str());
  return base::ok();
}

}  // namespace

base::Result<int> table_create(Tool& tool, const TableCreateFlags& flags) {
  if (auto valid = model::validate_table_name(flags.name); !valid) return fail(Code::usage, valid.error().text);
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto metadata_servers, parse_servers(flags.metadata_servers));
  TRY_ASSIGN(const auto tables, tool.tables());
  for (const auto& table : tables)
    if (table.name == flags.name) return fail(Code::exists, "there is a table " + flags.name + " already");
  if (metadata_servers.empty()) TRY(enough_metadata_servers(tool));
  TRY_ASSIGN(const auto servers, choose_servers(tool, flags, timeout));
  TRY_ASSIGN(const auto op, make_operation(tool, flags, servers));
  if (flags.dry_run) {
    daemon::print_object(tool.format(), {{"table", flags.name}, {"servers", join(servers)}});
    return daemon::kExitDone;
  }
  client::ChangeSpec spec;
  spec.table = flags.name;
  spec.operations = {op};
  spec.metadata_servers = metadata_servers;
  TRY_ASSIGN(const auto reply, tool.change(std::move(spec), timeout));
  daemon::print_object(tool.format(), {{"table", flags.name},
                                       {"uuid", to_string(op.table)},
                                       {"servers", join(servers)},
                                       {"txnseq", reply.txnseq.value}});
  if (!flags.no_wait) TRY(wait_until_served(tool, flags.name, servers, timeout));
  return daemon::kExitDone;
}

base::Result<int> table_list(Tool& tool, const NoFlags&) {
  TRY_ASSIGN(const auto tables, tool.tables());
  daemon::Printer out(tool.format(),
                      {"table", "keyspace", "replication", "replicas", "state", "txnseq", "metadata_servers"});
  for (const auto& t : tables) {
    if (!t.config) {
      out.row({t.name.empty() ? t.distribution : t.name, daemon::Missing{}, daemon::Missing{}, daemon::Missing{},
               "damaged", daemon::Missing{}, daemon::Missing{}});
      continue;
    }
    out.row({t.name, to_string(t.config->keyspace), to_string(t.config->replication), t.config->replicas,
             t.config->dropped ? "dropped" : "active", t.config->metadata_txnseq.value,
             join(t.config->metadata_servers)});
  }
  return daemon::kExitDone;
}

namespace {

void assignment_json(daemon::Json& j, const model::Assignment& a) {
  j.object().member("server", a.server.name).member("slot", a.slot).member("assignment", to_string(a.id));
  j.member("state", name_of(a.state)).member("since", a.since.value).key("source");
  a.source.none() ? j.null() : j.text(to_string(a.source));
  j.end();
}

void assignments_json(daemon::Json& j, const std::vector<model::Assignment>& list) {
  j.key("assignments").array();
  for (const auto& a : list) assignment_json(j, a);
  j.end();
}

void child_json(daemon::Json& j, std::string_view name, const model::Child& child) {
  j.key(name).object().member("partition", to_string(child.id)).member("region", child.region.value);
  assignments_json(j, child.assignments);
  j.end();
}

void partition_json(daemon::Json& j, const model::Partition& p) {
  j.object().member("partition", to_string(p.id)).member("region", p.region.value);
  j.bytes("begin", p.interval.begin).bytes("end", p.interval.end).member("state", name_of(p.state));
  j.member("min_txnseq", p.min_txnseq.value);
  assignments_json(j, p.assignments);
  if (p.split) {
    j.key("split").object().member("attempt", to_string(p.split->attempt)).bytes("point", p.split->point);
    j.member("phase", p.split->phase == model::SplitPhase::barrier ? "barrier" : "filling")
        .member("since", p.split->since.value);
    child_json(j, "low", p.split->low);
    child_json(j, "high", p.split->high);
    j.end();
  }
  if (p.merge) {
    j.key("merge").object().member("attempt", to_string(p.merge->attempt));
    j.member("low", to_string(p.merge->low)).member("high", to_string(p.merge->high));
    j.member("since", p.merge->since.value);
    child_json(j, "target", p.merge->target);
    j.end();
  }
  j.key("moves").array();
  for (const auto& m : p.moves)
    j.object()
        .member("attempt", to_string(m.attempt))
        .member("from", to_string(m.from))
        .member("to", to_string(m.to))
        .member("from_dead", m.from_dead)
        .member("cancelled", m.cancelled.value != 0)
        .member("since", m.since.value)
        .end();
  j.end().end();
}

std::string metadata_json(const model::Metadata& m, const model::TableConfig& config) {
  daemon::Json j;
  j.object().member("table", m.name).member("uuid", to_string(m.table)).member("keyspace", to_string(m.keyspace));
  j.member("replication", to_string(m.replication)).member("replicas", m.replicas).member("format", m.format);
  j.member("txnid", to_string(m.txnid)).member("txnseq", m.txnseq.value).member("prev_txnid", to_string(m.prev_txnid));
  j.member("prev_hash", base::to_hex(m.prev_hash))
      .member("hash", base::to_hex(config.metadata_hash))
      .member("dropped", m.dropped);
  j.key("metadata_servers").array();
  for (const auto& id : config.metadata_servers) j.text(id.name);
  j.end().key("options").object();
  for (const auto& [name, value] : m.options) j.member(name, value);
  j.end().key("partitions").array();
  for (const auto& p : m.partitions) partition_json(j, p);
  j.end().key("ended").array();
  for (const auto& e : m.ended) {
    j.object().member("partition", to_string(e.id)).member("region", e.region.value).bytes("begin", e.interval.begin);
    j.bytes("end", e.interval.end).member("attempt", to_string(e.attempt));
    if (e.was_merged())
      j.member("into", to_string(e.into));
    else
      j.bytes("point", e.point).member("low", to_string(e.low)).member("high", to_string(e.high));
    j.member("at", e.at.value).end();
  }
  return j.end().end().str();
}

std::string servers_text(const std::vector<model::Assignment>& assignments) {
  std::string text;
  for (const auto& a : assignments) {
    text.append(text.empty() ? "" : " ").append(a.server.name);
    if (a.state != model::AssignmentState::available) text.append("(").append(name_of(a.state)).append(")");
  }
  return text;
}

void print_partition(const model::Partition& p) {
  daemon::print_line("partition " + to_string(p.id) + "  region " + to_string(p.region) + "  " + to_string(p.interval) +
                     "  " + std::string(name_of(p.state)) + "  since " + to_string(p.min_txnseq));
  for (const auto& a : p.assignments)
    daemon::print_line("  slot " + std::to_string(a.slot) + "  " + a.server.name + "  " +
                       std::string(name_of(a.state)) + "  " + to_string(a.id));
  if (p.split) {
    daemon::print_line("  split " + to_string(p.split->attempt) + " at \"" + base::escape(p.split->point) + "\", " +
                       (p.split->phase == model::SplitPhase::barrier ? "barrier" : "filling") + ", since " +
                       to_string(p.split->since));
    for (const auto* child : {&p.split->low, &p.split->high})
      daemon::print_line(std::string("    ") + (child == &p.split->low ? "low  " : "high ") + to_string(child->id) +
                         "  region " + to_string(child->region) + "  " + servers_text(child->assignments));
  }
  if (p.merge)
    daemon::print_line("  merge " + to_string(p.merge->attempt) + " of " + to_string(p.merge->low) + " and " +
                       to_string(p.merge->high) + " into " + to_string(p.merge->target.id) + "  region " +
                       to_string(p.merge->target.region) + "  " + servers_text(p.merge->target.assignments) +
                       ", since " + to_string(p.merge->since));
  for (const auto& m : p.moves)
    daemon::print_line("  move " + to_string(m.attempt) + "  " + to_string(m.from) + " -> " + to_string(m.to) +
                       (m.from_dead ? "  (the source is dead)" : "") + "  since " + to_string(m.since));
}

}  // namespace

base::Result<int> cat_metadata(Tool& tool, const std::string& name) {
  TRY_ASSIGN(const auto table, tool.table(name));
  TRY_ASSIGN(const auto map, tool.map(name, std::chrono::seconds(10)));
  if (tool.format() == daemon::Format::json) {
    daemon::print_line(metadata_json(*map, *table.config));
    return daemon::kExitDone;
  }
  daemon::print_line("table " + map->name + "  " + to_string(map->table) + (map->dropped ? "  dropped" : ""));
  daemon::print_line("txnseq " + to_string(map->txnseq) + "  txnid " + to_string(map->txnid) + "  before it " +
                     to_string(map->prev_txnid));
  for (const auto& p : map->partitions) print_partition(p);
  for (const auto& e : map->ended)
    daemon::print_line("ended " + to_string(e.id) + "  region " + to_string(e.region) + "  at txnseq " +
                       to_string(e.at) + "  into " +
                       (e.was_merged() ? to_string(e.into) : to_string(e.low) + " " + to_string(e.high)));
  return daemon::kExitDone;
}

base::Result<int> table_show(Tool& tool, const TableFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto table, tool.table(flags.name));
  TRY_ASSIGN(const auto map, tool.map(flags.name, timeout));
  if (tool.format() == daemon::Format::json) {
    daemon::print_line(metadata_json(*map, *table.config));
    return daemon::kExitDone;
  }
  std::vector<std::pair<std::string, daemon::Cell>> members{{"table", flags.name},
                                                            {"uuid", to_string(map->table)},
                                                            {"keyspace", to_string(map->keyspace)},
                                                            {"replication", to_string(map->replication)},
                                                            {"replicas", map->replicas},
                                                            {"state", map->dropped ? "dropped" : "active"},
                                                            {"txnseq", map->txnseq.value},
                                                            {"txnid", to_string(map->txnid)},
                                                            {"metadata_servers", join(table.config->metadata_servers)},
                                                            {"partitions", map->partitions.size()}};
  for (const auto& rule : model::option_rules())
    members.emplace_back(std::string(rule.name), model::option(*map, rule.name));
  daemon::print_object(tool.format(), members);
  return daemon::kExitDone;
}

base::Result<int> table_set(Tool& tool, const TableSetFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  if (flags.value.empty() != flags.fallback) return fail(Code::usage, "give either a value or --default");
  TRY(tool.table(flags.name));
  if (!flags.fallback) TRY(model::validate_option(flags.option, flags.value));
  model::ops::SetOption op{flags.option, flags.fallback ? std::nullopt : std::optional(flags.value)};
  client::ChangeSpec spec;
  spec.table = flags.name;
  spec.operations = {op};
  TRY_ASSIGN(const auto reply, tool.change(std::move(spec), timeout));
  daemon::print_object(tool.format(), {{"table", flags.name},
                                       {"option", flags.option},
                                       {"value", op.value.value_or(model::default_option(flags.option))},
                                       {"txnseq", reply.txnseq.value}});
  return daemon::kExitDone;
}

base::Result<int> table_drop(Tool& tool, const TableDropFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto table, tool.table(flags.name));
  if (!flags.accept_loss)
    return fail(daemon::unsafe("dropping " + flags.name + " loses all its records", "--accept-loss"));
  client::ChangeSpec spec;
  spec.table = flags.name;
  spec.operations = {model::ops::DropTable{true}};
  TRY_ASSIGN(const auto reply, tool.change(std::move(spec), timeout));
  daemon::print_object(tool.format(), {{"table", flags.name},
                                       {"uuid", to_string(reply.table_uuid)},
                                       {"state", "dropped"},
                                       {"txnseq", reply.txnseq.value}});
  return daemon::kExitDone;
}

}  // namespace cantle::zkctl

// node list | show, arrivals, md list | join | leave.
#include <algorithm>
#include <ctime>

#include "cmd/zkctl/verbs.h"
#include "cmd/zkctl/world.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;
using model::ServerId;

namespace {

coord::Role role_of(const NodeEntry& node) {
  return node.active ? node.active->role : node.info ? node.info->role : coord::Role::partd;
}

std::string_view state_of(const NodeEntry& node) {
  if (node.live()) return node.active->readonly ? "readonly" : "live";
  return node.info && node.info->dead ? "dead" : "down";
}

std::string flags_of(const NodeEntry& node) {
  std::string text;
  if (!node.info) return text;
  const auto add = [&](bool on, const char* word) {
    if (on) text.append(text.empty() ? "" : ",").append(word);
  };
  add(node.info->drain, "drain");
  add(node.info->dead, "dead");
  add(node.info->reserve, "reserve");
  return text;
}

template <class T>
daemon::Cell or_missing(bool there, T value) {
  return there ? daemon::Cell(value) : daemon::Cell(daemon::Missing{});
}

std::string utc_text(int64_t unix_ms) {
  const auto seconds = static_cast<time_t>(unix_ms / 1000);
  tm utc{};
  char text[32];
  if (::gmtime_r(&seconds, &utc) == nullptr || std::strftime(text, sizeof text, "%FT%TZ", &utc) == 0) return "?";
  return text;
}

}  // namespace

base::Result<int> node_list(Tool& tool, const NoFlags&) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  daemon::Printer out(tool.format(), {"id", "role", "state", "rack", "weight", "flags", "number", "incarnation",
                                      "software", "tcp", "unix"});
  for (const auto& [id, n] : nodes) {
    const auto info = n.info.value_or(coord::NodeInfo{});
    const auto active = n.active.value_or(coord::Active{});
    out.row({id.name, coord::role_name(role_of(n)), state_of(n), info.rack, or_missing(n.info.has_value(), info.weight),
             flags_of(n), or_missing(info.number.value != 0, info.number.value),
             or_missing(n.live(), active.incarnation.value),
             or_missing(n.version.has_value(), n.version.value_or(coord::NodeVersion{}).software), active.tcp,
             active.unix_socket});
  }
  return daemon::kExitDone;
}

namespace {

struct Holding {
  std::string table;
  const model::Partition* partition;
  const model::Assignment* assignment;
};

std::vector<Holding> holdings(const std::vector<MapPtr>& maps, const ServerId& server) {
  std::vector<Holding> list;
  for (const auto& map : maps)
    for (const auto& p : map->partitions)
      if (const auto* a = model::find_assignment(p, server)) list.push_back({map->name, &p, a});
  return list;
}

}  // namespace

base::Result<int> node_show(Tool& tool, const NodeFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto nodes, tool.nodes());
  const auto it = nodes.find(ServerId{flags.id});
  if (it == nodes.end()) return fail(Code::not_found, "no server " + flags.id + " is known");
  const auto& n = it->second;
  TRY_ASSIGN(const auto maps, tool.maps(timeout));
  const auto held = holdings(maps, n.id);
  if (tool.format() == daemon::Format::json) {
    daemon::Json j;
    j.object().member("id", flags.id).member("role", coord::role_name(role_of(n))).member("state", state_of(n));
    if (n.active)
      j.member("tcp", n.active->tcp)
          .member("unix", n.active->unix_socket)
          .member("incarnation", n.active->incarnation.value)
          .member("instance", n.active->instance);
    if (n.info)
      j.member("rack", n.info->rack)
          .member("host", n.info->host)
          .member("weight", n.info->weight)
          .member("number", n.info->number.value)
          .member("flags", flags_of(n));
    if (n.version)
      j.member("software", n.version->software)
          .member("protocol_max", n.version->protocol_max)
          .member("format_max", n.version->format_max);
    j.key("assignments").array();
    for (const auto& h : held)
      j.object()
          .member("table", h.table)
          .member("partition", to_string(h.partition->id))
          .member("region", h.partition->region.value)
          .member("assignment", to_string(h.assignment->id))
          .member("slot", h.assignment->slot)
          .member("state", name_of(h.assignment->state))
          .end();
    daemon::print_line(j.end().end().str());
    return daemon::kExitDone;
  }
  const auto info = n.info.value_or(coord::NodeInfo{});
  const auto active = n.active.value_or(coord::Active{});
  daemon::print_object(tool.format(), {{"id", flags.id},
                                       {"role", coord::role_name(role_of(n))},
                                       {"state", state_of(n)},
                                       {"tcp", active.tcp},
                                       {"unix", active.unix_socket},
                                       {"incarnation", or_missing(n.live(), active.incarnation.value)},
                                       {"rack", info.rack},
                                       {"host", info.host},
                                       {"weight", info.weight},
                                       {"number", info.number.value},
                                       {"flags", flags_of(n)},
                                       {"software", n.version ? n.version->software : ""},
                                       {"assignments", held.size()}});
  for (const auto& h : held)
    daemon::print_line("  " + h.table + "  region " + to_string(h.partition->region) + "  " +
                       to_string(h.partition->interval) + "  slot " + std::to_string(h.assignment->slot) + "  " +
                       std::string(name_of(h.assignment->state)));
  return daemon::kExitDone;
}

base::Result<int> arrivals(Tool& tool, const NoFlags&) {
  TRY(tool.cluster());
  TRY_ASSIGN(auto* session, tool.coord());
  TRY(session->sync("/"));
  TRY_ASSIGN(const auto events, values_under(*session, tool.at().arrivals()));
  const bool json = tool.format() == daemon::Format::json;  // for programs: milliseconds, as everywhere
  daemon::Printer out(tool.format(),
                      {"number", "event", "server", "rack", "weight", json ? "at_ms" : "at", "instance"});
  for (const auto& [name, text] : events) {
    const auto number = coord::sequence_of(name);
    const auto event = coord::parse_arrival(text);
    if (!number || !event) {
      out.row({or_missing(number.has_value(), number.value_or(0)), "damaged", name, daemon::Missing{},
               daemon::Missing{}, daemon::Missing{}, daemon::Missing{}});
      continue;
    }
    out.row({*number, event->kind == coord::Arrival::Kind::arrival ? "arrival" : "departure", event->server.name,
             event->rack, event->weight, json ? daemon::Cell(event->at_ms) : daemon::Cell(utc_text(event->at_ms)),
             event->instance});
  }
  return daemon::kExitDone;
}

base::Result<int> md_list(Tool& tool, const NoFlags&) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  TRY_ASSIGN(const auto tables, tool.tables());
  TRY_ASSIGN(auto* md, tool.md());
  // Whoever lives, and whoever a table names.
  std::map<ServerId, base::Result<model::MdStatusReply>> servers;
  const auto ask = [&](const ServerId& id) {
    if (servers.contains(id)) return;
    servers.emplace(id, client::wait_for<model::MdStatusReply>(tool.loop(), std::chrono::seconds(4), [&](auto done) {
                      md->status(id, std::chrono::seconds(3), std::move(done));
                    }));
  };
  for (const auto& [id, n] : nodes)
    if (role_of(n) == coord::Role::mdserver) ask(id);
  for (const auto& t : tables)
    if (t.config)
      for (const auto& id : t.config->metadata_servers) ask(id);
  daemon::Printer out(tool.format(), {"server", "table", "member", "state", "txnseq", "age_ms", "files", "note"});
  for (const auto& [id, status] : servers) {
    if (!status) {
      const auto it = nodes.find(id);
      out.row({id.name, daemon::Missing{}, daemon::Missing{},
               it != nodes.end() && it->second.live() ? "not answering" : "down", daemon::Missing{}, daemon::Missing{},
               daemon::Missing{}, to_string(status.error())});
      continue;
    }
    if (status->tables.empty())
      out.row({id.name, daemon::Missing{}, daemon::Missing{}, "live", daemon::Missing{}, daemon::Missing{},
               daemon::Missing{}, ""});
    for (const auto& t : status->tables)
      out.row({id.name, t.name, t.member,
               t.regressed ? "regressed"
               : t.dropped ? "dropped"
               : t.current ? "current"
                           : "behind",
               t.txnseq.value, t.age_ms, t.files, t.alarm});
  }
  return daemon::kExitDone;
}

namespace {

base::Result<int> print_members(Tool& tool, const std::string& table,
                                const base::Result<model::MdMembersReply>& reply) {
  if (!reply) return fail(reply.error());
  daemon::print_object(
      tool.format(),
      {{"table", table}, {"metadata_servers", join(reply->metadata_servers)}, {"txnseq", reply->txnseq.value}});
  return daemon::kExitDone;
}

}  // namespace

base::Result<int> md_join(Tool& tool, const MdFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY(tool.table(flags.table));
  TRY_ASSIGN(auto* md, tool.md());
  return print_members(
      tool, flags.table,
      client::wait_for<model::MdMembersReply>(tool.loop(), timeout + std::chrono::seconds(1), [&](auto done) {
        md->join(flags.table, ServerId{flags.server}, timeout, std::move(done));
      }));
}

base::Result<int> md_leave(Tool& tool, const MdFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY(tool.table(flags.table));
  TRY_ASSIGN(auto* md, tool.md());
  return print_members(
      tool, flags.table,
      client::wait_for<model::MdMembersReply>(tool.loop(), timeout + std::chrono::seconds(1), [&](auto done) {
        md->leave(flags.table, ServerId{flags.server}, timeout, std::move(done));
      }));
}

}  // namespace cantle::zkctl

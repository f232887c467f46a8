// route, status: what there is, and who serves it.
#include <algorithm>
#include <cstdio>

#include "cmd/partc/msgpack_json.h"
#include "cmd/partc/verbs.h"
#include "lib/base/bytes.h"
#include "lib/client/await.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"
#include "lib/io/loop.h"
#include "lib/model/client_messages.h"
#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"

namespace cantle::partc {

using base::Code;

namespace {

constexpr base::Duration kAskAgain = std::chrono::milliseconds(10);  // of one that is waited for

std::string_view name_of(model::PartitionState state) {
  switch (state) {
    case model::PartitionState::creating: return "creating";
    case model::PartitionState::active: return "active";
    case model::PartitionState::splitting: return "splitting";
    case model::PartitionState::merging: return "merging";
  }
  return "unknown";
}

std::string_view name_of(model::AssignmentState state) {
  switch (state) {
    case model::AssignmentState::proposed: return "proposed";
    case model::AssignmentState::initializing: return "initializing";
    case model::AssignmentState::available: return "available";
    case model::AssignmentState::leaving: return "leaving";
  }
  return "unknown";
}

std::string servers_text(const model::Partition& p) {
  std::string text;
  for (const auto& a : p.assignments) {
    if (!text.empty()) text += ",";
    text += a.server.name;
    if (a.state != model::AssignmentState::available) text += "(" + std::string(name_of(a.state)) + ")";
  }
  return text;
}

void print_partition(daemon::Printer& out, daemon::Format format, const model::Metadata& map, const model::Partition& p,
                     const client::Servers& servers) {
  if (format != daemon::Format::json) {
    out.row({p.region.value, to_string(p.interval), name_of(p.state), p.min_txnseq.value, servers_text(p)});
    return;
  }
  daemon::Json j;
  j.object().member("table", map.name).member("txnseq", map.txnseq.value).member("region", p.region.value);
  j.member("partition", to_string(p.id)).bytes("begin", p.interval.begin).bytes("end", p.interval.end);
  j.member("state", name_of(p.state)).member("min_txnseq", p.min_txnseq.value).key("servers").array();
  for (const auto& a : p.assignments) {
    const auto* entry = servers.find(a.server);
    j.object().member("server", a.server.name).member("slot", a.slot).member("assignment", to_string(a.id));
    j.member("state", name_of(a.state)).member("live", entry != nullptr && entry->live);
    j.member("tcp", entry ? entry->active.tcp : "").member("unix", entry ? entry->active.unix_socket : "").end();
  }
  j.end().end();
  daemon::print_line(j.str());
}

}  // namespace

base::Result<int> route(Tool& tool, const RouteFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto map, tool.map(flags.table, timeout));
  TRY_ASSIGN(auto* c, tool.client());
  daemon::Printer out(tool.flags().format, {"region", "partition", "state", "min_txnseq", "servers"});
  if (!flags.key.empty()) {
    TRY_ASSIGN(const auto key, parse_key(flags.key, flags.hex));
    const auto* partition = map->find(key);
    if (!partition) return base::fail(Code::corrupt, "the map has no partition for the key");
    print_partition(out, tool.flags().format, *map, *partition, c->servers());
    return daemon::kExitDone;
  }
  for (const auto& partition : map->partitions)
    print_partition(out, tool.flags().format, *map, partition, c->servers());
  return daemon::kExitDone;
}

namespace {

// What the status of every daemon has in common. One that says nothing of being ready is so when it answers.
struct AnyStatus {
  model::ServerId server;
  std::string role;
  std::optional<bool> ready;
  CANTLE_FIELDS(server, role, ready)
};

// The answer of one daemon, whatever its role, as JSON.
base::Result<int> show_answer(Tool& tool, const std::string& bytes, bool ready_wanted) {
  TRY_ASSIGN(const auto status, wire::decode<AnyStatus>(bytes));
  if (ready_wanted && !status.ready.value_or(true))
    return base::fail(Code::catching_up, status.role + " " + status.server.name + " is not ready yet");
  if (ready_wanted && tool.flags().format == daemon::Format::table) return daemon::kExitDone;
  TRY_ASSIGN(const auto json, msgpack_to_json(bytes));
  daemon::print_line(json);
  return daemon::kExitDone;
}

bool is_ready(const base::Result<std::string>& answer) {
  if (!answer) return false;
  const auto status = wire::decode<AnyStatus>(*answer);
  return status && status->ready.value_or(true);
}

base::Result<int> status_at(Tool& tool, const StatusFlags& flags, base::Duration timeout) {
  TRY_ASSIGN(const auto address, io::parse_address(flags.at));
  TRY_ASSIGN(const auto wait, daemon::parse_duration(flags.wait));
  rpc::PeerOptions options;
  options.backoff_min = options.backoff_max = kAskAgain;
  TRY_ASSIGN(options.identity.token, daemon::read_token(tool.flags()));
  io::Loop loop;
  rpc::Peer peer(loop, address, options);
  const auto until = loop.now() + wait;
  auto answer = rpc::call_sync(loop, peer, "status", {}, timeout);
  while (!is_ready(answer) && loop.refresh_now() < until) {
    loop.run_for(kAskAgain, [] { return false; });
    answer = rpc::call_sync(loop, peer, "status", {}, timeout);
  }
  if (!answer) return base::fail(std::move(answer).error());
  return show_answer(tool, *answer, flags.ready);
}

base::Result<std::string> ask(client::Client& client, const model::ServerId& server, const std::string& table,
                              base::Duration timeout) {
  model::StatusRequest request;
  request.table = table;
  return client::await<std::string>(client.loop(), timeout + client::kAnswerGrace, [&](client::Done<std::string> done) {
    client.call(server, "status", wire::encode(request), timeout, [done](base::Result<std::string_view> answer) {
      done(answer ? base::Result<std::string>(std::string(*answer)) : base::fail(answer.error()));
    });
  });
}

// A line for each partition server; true when it answered and is ready.
bool print_server(daemon::Printer& out, const model::ServerId& server, bool live,
                  const base::Result<model::StatusReply>& s) {
  if (!s) {
    out.row({server.name, live ? "not answering" : "down", daemon::Missing{}, daemon::Missing{}, daemon::Missing{},
             daemon::Missing{}, daemon::Missing{}, to_string(s.error())});
    return false;
  }
  uint64_t partitions = 0, serving = 0;
  for (const auto& table : s->tables)
    for (const auto& p : table.partitions) {
      ++partitions;
      if (p.state == "serving") ++serving;
    }
  std::string note = s->read_only.empty() ? "" : "read-only: " + s->read_only;
  if (s->pusher == "missing")
    note += (note.empty() ? "" : "; ") + ("no replpush beside it for " + std::to_string(s->pusher_ms / 1000) + " s");
  if (s->coord != "connected") note += (note.empty() ? "" : "; ") + ("coordination service: " + s->coord);
  out.row({server.name, s->ready ? "ready" : "starting", s->incarnation.value, s->tables.size(), partitions, serving,
           static_cast<double>(s->uptime_ms) / 1000, note});
  return s->ready;
}

}  // namespace

base::Result<int> status(Tool& tool, const StatusFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  if (!flags.at.empty()) return status_at(tool, flags, timeout);
  TRY_ASSIGN(auto* c, tool.client());
  if (!flags.server.empty()) {
    TRY_ASSIGN(const auto answer, ask(*c, {flags.server}, flags.table, timeout));
    return show_answer(tool, answer, flags.ready);
  }
  daemon::Printer out(tool.flags().format,
                      {"server", "state", "incarnation", "tables", "partitions", "serving", "uptime_s", "note"});
  bool all_ready = true;
  TRY_ASSIGN(const auto servers, tool.partition_servers());
  for (const auto& server : servers) {
    const auto* entry = c->servers().find(server);
    const auto answer = entry ? ask(*c, server, flags.table, timeout)
                              : base::Result<std::string>(base::fail(Code::unavailable, "it is not registered"));
    const auto reply = answer ? wire::decode<model::StatusReply>(*answer)
                              : base::Result<model::StatusReply>(base::fail(answer.error()));
    all_ready = print_server(out, server, entry != nullptr && entry->live, reply) && all_ready;
  }
  out.flush();
  if (servers.empty()) return base::fail(Code::not_found, "no partition server is registered");
  return all_ready ? daemon::kExitDone : daemon::kExitNotThere;
}

}  // namespace cantle::partc

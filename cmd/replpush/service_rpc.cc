// What a replpush answers on its Unix socket: status, list, hold, release, requeue, wake.
#include <utility>

#include "cmd/replpush/service.h"
#include "lib/base/log.h"
#include "lib/model/client_messages.h"
#include "lib/wire/codec.h"

namespace cantle::replpush {

using base::Code;

namespace {

std::string id_of(const mv::StreamId& id) { return to_string(id.own) + to_string(id.target); }

model::PushStreamRow row_of(const mv::StreamStatus& s) {
  model::PushStreamRow row;
  row.id = id_of(s.target.id);
  row.table = s.target.table;
  row.source = s.target.source;
  row.partition = s.target.partition;
  row.server = s.target.server;
  row.own = s.target.id.own;
  row.target = s.target.id.target;
  row.state = s.state;
  row.why = s.why;
  row.caught_up = s.caught_up;
  row.confirmed = s.mark.at.lsn;
  row.end = s.log.end.lsn;
  row.snapshot = s.mark.snapshot != 0;
  row.sent_bytes = s.sent_bytes;
  row.retry_in_ms = static_cast<uint64_t>(s.retry_in_ms);
  return row;
}

template <class Fn>
void answer(const rpc::Responder& responder, const Fn& fn) {
  base::Result<std::string> result = fn();
  if (result)
    responder.ok(*result);
  else
    responder.fail(result.error());
}

}  // namespace

void Service::add_methods(rpc::Server& server) {
  server.handle("status", [this](const rpc::Call&, rpc::Responder r) { r.ok(status()); });
  server.handle("list",
                [this](const rpc::Call& call, rpc::Responder r) { answer(r, [&] { return list(call.params); }); });
  const std::pair<const char*, mv::Verb> verbs[] = {{"hold", mv::Verb::hold},
                                                    {"release", mv::Verb::release},
                                                    {"requeue", mv::Verb::requeue},
                                                    {"wake", mv::Verb::wake}};
  for (const auto& [name, verb] : verbs)
    server.handle(name, [this, verb = verb](const rpc::Call& call, rpc::Responder r) {
      answer(r, [&] { return asked(verb, call.params); });
    });
  const auto look = [this](const rpc::Call&) {
    refresh_view();
    moved();
  };
  server.handle_notify("map.changed", look);
  server.handle_notify("wake", look);
  server.handle("map.changed", [look](const rpc::Call& call, rpc::Responder r) {
    look(call);
    r.ok();
  });
}

std::string Service::status() const {
  model::StatusReply s;
  s.server = identity_.server;
  if (s.server.name.empty()) s.server = config_.id;
  s.role = "replpush";
  s.software = CANTLE_VERSION;
  s.cluster = config_.cluster;
  s.cluster_uuid = cluster_;
  s.incarnation = attached_to_;
  s.number = identity_.number;
  s.ready = attached_;
  s.uptime_ms = static_cast<uint64_t>(base::to_ms(loop_.now() - started_));
  const auto& c = mover_.counters();
  s.counts = {{"all_done", all_done() ? 1u : 0u},
              {"blocks_confirmed", c.blocks},
              {"bytes_confirmed", c.bytes},
              {"bytes_under_way", mover_.bytes_under_way()},
              {"drops", c.drops},
              {"ends_told", c.ends},
              {"failures", c.failures},
              {"records_confirmed", c.records},
              {"records_lacked", c.lacked},
              {"records_offered", c.offered},
              {"records_settled", c.settled},
              {"snapshots", c.snapshots}};
  return wire::encode(s);
}

base::Result<std::string> Service::list(std::string_view params) const {
  TRY_ASSIGN(const auto request, wire::decode<model::PushListRequest>(params));
  const uint32_t limit = request.limit == 0 ? model::kPushRowsMax : std::min(request.limit, model::kPushRowsMax);
  model::PushList out;
  for (const auto& s : mover_.streams(loop_.now())) {
    if (id_of(s.target.id) <= request.after) continue;
    if (out.streams.size() == limit) {
      out.more = true;
      break;
    }
    out.streams.push_back(row_of(s));
  }
  out.all_done = all_done();
  out.paused = trouble();
  if (!request.after.empty()) return wire::encode(out);
  for (const auto& p : mover_.proofs()) {
    if (out.proofs.size() == model::kPushRowsMax) break;
    out.proofs.push_back({p.held.table, p.held.partition, p.held.assignment, p.state, p.why, p.proved});
  }
  out.holds.assign(mover_.holds().begin(), mover_.holds().end());
  return wire::encode(out);
}

base::Result<std::string> Service::asked(mv::Verb verb, std::string_view params) {
  TRY_ASSIGN(const auto ask, wire::decode<model::PushAsk>(params));
  if (ask.which.size() > 200 || ask.which.find('\n') != std::string::npos)
    return base::fail(Code::invalid, "that names no stream");
  model::PushAsked out;
  for (const auto& s : mover_.streams(loop_.now())) out.streams += mv::names(ask.which, s.target) ? 1 : 0;
  const auto before = mover_.holds();
  feed(mv::Asked{loop_.now(), verb, ask.which});
  if (verb == mv::Verb::wake) {
    refresh_view();
    moved();
  }
  if (mover_.holds() == before) return wire::encode(out);
  if (!opened_) return base::fail(Code::unavailable, trouble());
  std::string text;
  for (const auto& hold : mover_.holds()) text += hold + "\n";
  TRY(source_.write_holds(text));
  return wire::encode(out);
}

}  // namespace cantle::replpush

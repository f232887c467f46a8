#include "cmd/partd/service.h"

namespace cantle::partd {

using base::Code;

void Service::serve_put(const rpc::Call& call, rpc::Responder responder) {
  decode_write(call, std::move(responder), wire::decode_put);
}
void Service::serve_delete(const rpc::Call& call, rpc::Responder responder) {
  decode_write(call, std::move(responder), wire::decode_delete);
}
void Service::serve_batch(const rpc::Call& call, rpc::Responder responder) {
  decode_write(call, std::move(responder), wire::decode_batch);
}
void Service::serve_cas(const rpc::Call& call, rpc::Responder responder) {
  decode_write(call, std::move(responder), wire::decode_cas);
}
void Service::serve_append(const rpc::Call& call, rpc::Responder responder) {
  decode_write(call, std::move(responder), wire::decode_append);
}
void Service::serve_incr(const rpc::Call& call, rpc::Responder responder) {
  decode_write(call, std::move(responder), wire::decode_incr);
}

void Service::decode_write(const rpc::Call& call, rpc::Responder responder, DecodeWrite decode) {
  auto request = decode(call.params);
  if (!request) return responder.fail(request.error());
  write(*request, call.method, decode, std::move(responder));
}

// The machine answers in the same step where it refuses, passes on or gathers; the request's bytes are needed no
// longer.
void Service::write(wire::WriteRequest& request, std::string_view method, DecodeWrite decode, rpc::Responder responder,
                    bool parked) {
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  const auto map = installed(request.table);
  if ((!map || map->dropped || request.txnseq > map->txnseq) && !parked) {
    auto params = std::make_shared<Raw>(request.params);
    const auto again = [this, params, method = Raw(method), decode, responder] {
      if (auto same = decode(*params)) write(*same, method, decode, responder, true);
    };
    const Raw table(request.table);
    const auto deadline = loop_.now() + request.deadline();
    if (!map || map->dropped)
      return park_unknown(table, deadline, params->size(), again, [responder, table] {
        responder.fail({Code::no_such_table, "no table '" + table + "'"});
      });
    return park(table, request.txnseq, deadline, params->size(), again, [responder] {
      responder.fail({Code::unavailable, "the map that the request names did not come in time"});
    });
  }
  counts_.writes++;
  if (map && map->replication == model::Replication::quorum)
    return quorum_->write(request, method, std::move(responder));
  if (request.kind != model::WriteKind::write)
    return responder.fail(
        {Code::invalid, Raw(method) + " is for quorum tables, and " + Raw(request.table) + " is a push table"});
  const auto id = ++last_id_;
  requests_.emplace(id, Pending{std::move(responder)});
  current_ = &request;
  current_method_ = method;
  push::WriteAsked asked;
  asked.request = id;
  asked.table = request.table;
  asked.keys = request.keys;
  asked.bytes = request.bytes;
  asked.txnseq = request.txnseq;
  asked.level = request.level;
  asked.deadline = loop_.now() + request.deadline();
  asked.hop = request.hop;
  asked.version = request.version;
  asked.after = request.after;
  input(asked);
  flush_soon();
}

}  // namespace cantle::partd

#include "cmd/partd/service.h"

namespace cantle::partd {

using base::Code;

void Service::serve_put(const rpc::Call& call, rpc::Responder responder) {
  auto request = wire::decode_put(call.params);
  if (!request) return responder.fail(request.error());
  write(*request, call.method, std::move(responder));
}

void Service::serve_delete(const rpc::Call& call, rpc::Responder responder) {
  auto request = wire::decode_delete(call.params);
  if (!request) return responder.fail(request.error());
  write(*request, call.method, std::move(responder));
}

void Service::serve_batch(const rpc::Call& call, rpc::Responder responder) {
  auto request = wire::decode_batch(call.params);
  if (!request) return responder.fail(request.error());
  write(*request, call.method, std::move(responder));
}

// The machine answers in the same step where it refuses, passes on or gathers; the request's bytes are needed no
// longer.
void Service::write(wire::WriteRequest& request, std::string_view method, rpc::Responder responder, bool parked) {
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  const auto map = installed(request.table);
  if ((!map || map->dropped || request.txnseq > map->txnseq) && !parked) {
    auto params = std::make_shared<Raw>(request.params);
    const auto again = [this, params, method = Raw(method), responder] {
      auto same = method == "put"      ? wire::decode_put(*params)
                  : method == "delete" ? wire::decode_delete(*params)
                                       : wire::decode_batch(*params);
      if (same) write(*same, method, responder, true);
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

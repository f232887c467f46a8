#include "cmd/mdserver/methods.h"

#include "lib/wire/codec.h"

namespace cantle::mdserver {
namespace {

template <class Reply>
void answer(const rpc::Responder& responder, const base::Result<Reply>& result) {
  if (result)
    responder.ok(wire::encode(*result));
  else
    responder.fail(result.error());
}

// A method that answers later.
template <class Request, class Reply>
void handle(rpc::Server& server, const char* name,
            std::function<void(const Request&, std::function<void(base::Result<Reply>)>)> method) {
  server.handle(name, [method = std::move(method)](const rpc::Call& call, rpc::Responder responder) {
    auto request = wire::decode<Request>(call.params);
    if (!request) return responder.fail(request.error());
    method(*request, [responder](base::Result<Reply> result) { answer(responder, result); });
  });
}

}  // namespace

void serve_methods(rpc::Server& server, meta::Service& service, std::function<model::MdStatusReply()> status) {
  using namespace model;
  handle<MdChange, MdChangeReply>(server, "md.change",
                                  [&](const auto& r, auto done) { service.change(r, std::move(done)); });
  handle<MdStore, MdStoreReply>(server, "md.store",
                                [&](const auto& r, auto done) { service.store(r, std::move(done)); });
  handle<MdOutcome, MdOutcomeReply>(server, "md.outcome",
                                    [&](const auto& r, auto done) { service.outcome(r, std::move(done)); });
  handle<MdFind, MdFindReply>(server, "md.find", [&](const auto& r, auto done) { service.find(r, std::move(done)); });
  handle<MdGet, MdGetReply>(server, "md.get", [&](const auto& r, auto done) { service.get(r, std::move(done)); });
  handle<MdFetch, MdFetchReply>(server, "md.fetch", [&](const auto& r, auto done) { done(service.fetch(r)); });
  handle<MdDiscover, MdDiscoverReply>(server, "md.discover",
                                      [&](const auto& r, auto done) { service.discover(r, std::move(done)); });
  handle<MdJoin, MdMembersReply>(server, "md.join",
                                 [&](const auto& r, auto done) { service.join(r, std::move(done)); });
  handle<MdLeave, MdMembersReply>(server, "md.leave",
                                  [&](const auto& r, auto done) { service.leave(r, std::move(done)); });
  server.handle("status", [status = std::move(status)](const rpc::Call&, rpc::Responder responder) {
    responder.ok(wire::encode(status()));
  });
  const auto abort = [&](std::string_view params) -> base::Status {
    TRY_ASSIGN(const auto request, wire::decode<MdAbort>(params));
    service.abort(request);
    return base::ok();
  };
  server.handle("md.abort", [abort](const rpc::Call& call, rpc::Responder responder) {
    const auto done = abort(call.params);
    if (done)
      responder.ok();
    else
      responder.fail(done.error());
  });
  server.handle_notify("md.abort", [abort](const rpc::Call& call) { (void)abort(call.params); });
}

}  // namespace cantle::mdserver

#include "cmd/mdserver/world.h"

#include "lib/client/servers.h"
#include "lib/wire/codec.h"

namespace cantle::mdserver {

World::World(io::Loop& loop, coord::Session& session, coord::Layout layout, meta::FileStore& files, Self self)
    : loop_(loop),
      session_(session),
      layout_(layout),
      files_(files),
      self_(std::move(self)),
      timers_(loop),
      nodes_(session, layout, timers_) {}
World::~World() = default;

// Null when its address is not known.
rpc::Peer* World::peer(const model::ServerId& to) {
  const auto it = nodes_.actives().find(to);
  if (it == nodes_.actives().end()) return nullptr;
  const auto address = client::ServerEntry{to, it->second, true}.address();
  if (!address) return nullptr;
  auto& slot = peers_[to];
  if (!slot)
    slot = std::make_unique<rpc::Peer>(loop_, *address, rpc::PeerOptions{.identity = self_.identity});
  else if (!(slot->address() == *address))
    slot->move_to(*address);
  return slot.get();
}

template <class Reply>
void World::call(const model::ServerId& to, const char* method, std::string params, base::Duration timeout,
                 Done<Reply> done) {
  auto* p = peer(to);
  if (p == nullptr) {
    nodes_.refresh([](bool) {});
    loop_.defer(
        [done = std::move(done), to] { done(base::fail(base::Code::unavailable, to.name + " is not registered")); });
    return;
  }
  p->call(method, params, timeout, [done = std::move(done)](base::Result<std::string_view> bytes) {
    if (!bytes) return done(base::fail(std::move(bytes).error()));
    done(wire::decode<Reply>(*bytes));
  });
}

void World::store(const model::ServerId& to, const model::MdStore& request, base::Duration timeout,
                  Done<model::MdStoreReply> done) {
  call<model::MdStoreReply>(to, "md.store", wire::encode(request), timeout, std::move(done));
}

void World::fetch(const model::ServerId& to, const model::MdFetch& request, base::Duration timeout,
                  Done<model::MdFetchReply> done) {
  call<model::MdFetchReply>(to, "md.fetch", wire::encode(request), timeout, std::move(done));
}

void World::abort(const model::ServerId& to, const model::MdAbort& request) {
  if (auto* p = peer(to)) p->notify("md.abort", wire::encode(request));
}

void World::tell_changed(const model::ServerId& partd, const model::MapChanged& message) {
  if (auto* p = peer(partd)) p->notify("map.changed", wire::encode(message));
}

}  // namespace cantle::mdserver

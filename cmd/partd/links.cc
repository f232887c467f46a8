#include "cmd/partd/links.h"

#include "lib/io/loop.h"

namespace cantle::partd {

Links::Links(io::Loop& loop, client::Servers& servers, rpc::PeerOptions options, Changed changed)
    : loop_(loop), servers_(servers), options_(std::move(options)), changed_(std::move(changed)) {
  options_.stay_connected = true;
}

void Links::want(const std::set<model::ServerId>& servers) {
  if (wanted_ == servers) return;
  wanted_ = servers;
  refresh();
}

void Links::refresh() {
  for (const auto& server : wanted_) peer(server);
  for (auto& [server, peer] : peers_) {
    const auto* entry = servers_.find(server);
    if (entry == nullptr) continue;
    if (auto address = entry->address()) peer->move_to(*address);
  }
}

rpc::Peer* Links::peer(const model::ServerId& server) {
  if (auto it = peers_.find(server); it != peers_.end()) return it->second.get();
  const auto* entry = servers_.find(server);
  if (entry == nullptr) return nullptr;
  auto address = entry->address();
  if (!address) return nullptr;
  auto made = std::make_unique<rpc::Peer>(loop_, *address, options_);
  made->on_state([this, server](bool up) { changed_(server, up); });
  return peers_.emplace(server, std::move(made)).first->second.get();
}

void Links::call(const model::ServerId& to, std::string_view method, std::string_view params, base::Duration timeout,
                 rpc::Peer::Done done) {
  if (auto* p = peer(to)) return p->call(method, params, timeout, std::move(done));
  loop_.defer(
      [to, done = std::move(done)] { done(base::fail(base::Code::unavailable, "no address of server " + to.name)); });
}

void Links::notify(const model::ServerId& to, std::string_view method, std::string_view params) {
  if (auto* p = peer(to)) p->notify(method, params);
}

size_t Links::unsent(const model::ServerId& server) const {
  const auto it = peers_.find(server);
  return it == peers_.end() ? 0 : it->second->unsent();
}

bool Links::up(const model::ServerId& server) const {
  auto it = peers_.find(server);
  return it != peers_.end() && it->second->connected();
}

}  // namespace cantle::partd

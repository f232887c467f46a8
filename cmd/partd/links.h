// Links: one connection to each server that shares partitions with this one.
//
// Use
//   Links links(loop, servers, options, [](const ServerId& s, bool up) { ... });
//   links.want({p2, p3});                        // connects, stays connected, lets go of others
//   links.call(p2, "push.write", bytes, 5s, [](base::Result<std::string_view> r) { ... });
//
// Invariants: done as rpc::Peer says: unavailable when nothing was sent. Addresses follow nodes/active.
// Ownership: owns neither loop nor servers; destroyed before them. Threads: the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "lib/client/servers.h"
#include "lib/model/ids.h"
#include "lib/rpc/peer.h"

namespace cantle::partd {

class Links {
 public:
  using Changed = std::function<void(const model::ServerId&, bool up)>;
  Links(io::Loop& loop, client::Servers& servers, rpc::PeerOptions options, Changed changed);

  void want(const std::set<model::ServerId>& servers);
  // Servers may have come, gone or moved.
  void refresh();
  void call(const model::ServerId& to, std::string_view method, std::string_view params, base::Duration timeout,
            rpc::Peer::Done done);
  void notify(const model::ServerId& to, std::string_view method, std::string_view params);
  size_t unsent(const model::ServerId& server) const;  // bytes waiting in this process
  bool up(const model::ServerId& server) const;

 private:
  rpc::Peer* peer(const model::ServerId& server);

  io::Loop& loop_;
  client::Servers& servers_;
  rpc::PeerOptions options_;
  Changed changed_;
  std::set<model::ServerId> wanted_;
  std::map<model::ServerId, std::unique_ptr<rpc::Peer>> peers_;
};

}  // namespace cantle::partd

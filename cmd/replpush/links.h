// Links: the connections of a replpush: to its own partd over the Unix socket, to the partds it pushes to over TCP.
//
// The own partd's socket is --partd, else what nodes/active of the coordination service says of the server with our
// id; a session is open only while that is looked up, so that pushing never depends on it. Targets' addresses come with
// the partd's view.
//
// Invariants: done is called once, from the loop, never inside the call (as rpc::Peer says).
// Ownership: destroy it before the loop. Threads: the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/io/loop.h"
#include "lib/model/local.h"
#include "lib/rpc/peer.h"

namespace cantle::replpush {

class PartdLink {
 public:
  struct Config {
    std::string address;  // --partd; empty: looked up
    std::string coord, cluster;
    model::ServerId id;
    rpc::Identity identity;
  };
  // `notified`: the partd says that something may have changed.
  PartdLink(io::Loop& loop, Config config, std::function<void()> notified);
  ~PartdLink();

  void call(std::string_view method, std::string params, base::Duration timeout, rpc::Peer::Done done);
  void set_cluster(const model::ClusterUuid& cluster) { config_.identity.cluster = cluster; }

 private:
  void look_up();
  void looked_up(base::Result<coord::Node> node);
  void connect(const std::string& address);

  io::Loop& loop_;
  Config config_;
  std::function<void()> notified_;
  std::unique_ptr<rpc::Peer> peer_;
  std::string address_, trouble_ = "the partition server's socket is not known yet";
  std::unique_ptr<coord::Session> session_;
  base::Instant looked_at_;
  bool looking_ = false;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

class TargetLinks {
 public:
  TargetLinks(io::Loop& loop, rpc::Identity identity) : loop_(loop), identity_(std::move(identity)) {}

  // Addresses as of a view; connections to servers that are not in it end.
  void set(const std::vector<model::PeerView>& peers, const model::ClusterUuid& cluster);
  void call(const model::ServerId& to, std::string_view method, std::string_view params, base::Duration timeout,
            rpc::Peer::Done done, rpc::Peer::Tail tail = nullptr);
  // The server lives (again): ends the backoff of its connection.
  void retry(const model::ServerId& to);

 private:
  struct Link {
    std::string address;
    bool live = false;
    std::unique_ptr<rpc::Peer> peer;  // made at the first call
  };
  io::Loop& loop_;
  rpc::Identity identity_;
  std::map<model::ServerId, Link> links_;
};

}  // namespace cantle::replpush

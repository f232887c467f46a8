// World: the meta::Host of the daemon: what its logic does, over sockets, the coordination service and a disk.
//
// Threads: the loop's. Ownership: loop, session and files outlive it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "lib/base/random.h"
#include "lib/io/loop.h"
#include "lib/meta/host.h"
#include "lib/meta/node_watch.h"
#include "lib/rpc/identity.h"
#include "lib/rpc/peer.h"

namespace cantle::mdserver {

class World final : public meta::Host {
 public:
  struct Self {
    model::ServerId id;
    model::Incarnation incarnation;
    rpc::Identity identity;
  };
  World(io::Loop& loop, coord::Session& session, coord::Layout layout, meta::FileStore& files, Self self);
  ~World() override;

  const model::ServerId& self() const override { return self_.id; }
  model::Incarnation incarnation() const override { return self_.incarnation; }
  coord::Timers& timers() override { return timers_; }
  base::WallMs wall_ms() override { return loop_.wall_ms(); }
  base::Random& random() override { return random_; }
  coord::Session& session() override { return session_; }
  const coord::Layout& layout() const override { return layout_; }
  meta::FileStore& files() override { return files_; }
  const meta::NodesView& nodes() const override { return nodes_.view(); }
  void refresh_nodes(std::function<void(bool)> done) override { nodes_.refresh(std::move(done)); }

  void store(const model::ServerId& to, const model::MdStore& request, base::Duration timeout,
             Done<model::MdStoreReply> done) override;
  void fetch(const model::ServerId& to, const model::MdFetch& request, base::Duration timeout,
             Done<model::MdFetchReply> done) override;
  void abort(const model::ServerId& to, const model::MdAbort& request) override;
  void tell_changed(const model::ServerId& partd, const model::MapChanged& message) override;

  meta::NodeWatch& node_watch() { return nodes_; }

 private:
  rpc::Peer* peer(const model::ServerId& to);
  template <class Reply>
  void call(const model::ServerId& to, const char* method, std::string params, base::Duration timeout,
            Done<Reply> done);

  io::Loop& loop_;
  coord::Session& session_;
  coord::Layout layout_;
  meta::FileStore& files_;
  Self self_;
  coord::LoopTimers timers_;
  base::SystemRandom random_;
  meta::NodeWatch nodes_;
  std::map<model::ServerId, std::unique_ptr<rpc::Peer>> peers_;
};

}  // namespace cantle::mdserver

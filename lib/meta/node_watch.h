// NodeWatch: who is registered under nodes/active and what nodes/info says of them, kept fresh by a watch and a timer.
//
// Use
//   NodeWatch nodes(session, layout, timers);
//   nodes.start();
//   nodes.view().mdservers …
//   nodes.refresh([] { … });      // after a read that began after this call
//
// What was learnt stays until it is learnt anew: an outage empties nothing.
// Threads: the loop's. Ownership: session and timers outlive it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/coord/timers.h"
#include "lib/meta/host.h"

namespace cantle::meta {

constexpr base::Duration kNodesPoll = std::chrono::seconds(2);

class NodeWatch {
 public:
  NodeWatch(coord::Session& session, coord::Layout layout, coord::Timers& timers);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  void start();
  void refresh(std::function<void(bool read)> done);
  void session_lost() { armed_ = false; }
  const NodesView& view() const { return view_; }
  // By id, for addresses: of both roles, as last seen alive.
  const std::map<model::ServerId, coord::Active>& actives() const { return actives_; }

 private:
  struct Round {
    std::set<model::ServerId> names;
    std::map<model::ServerId, coord::Active> actives;
    std::map<model::ServerId, coord::NodeInfo> infos;
    size_t left = 0;
    bool failed = false;
  };
  void begin();
  void read_each(std::shared_ptr<Round> round, const std::vector<std::string>& active,
                 const std::vector<std::string>& infos);
  void finish(Round& round);
  void poll();

  coord::Session& session_;
  coord::Layout layout_;
  coord::Timers& timers_;
  NodesView view_;
  std::map<model::ServerId, coord::Active> actives_;
  std::vector<std::function<void(bool)>> running_, next_;
  bool busy_ = false, armed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta

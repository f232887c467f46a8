// Host: what a metadata server's logic may do in the world. The daemon has one over sockets, the simulator
// one over its own; everything else in this room is the same code in both.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "lib/base/random.h"
#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/coord/timers.h"
#include "lib/meta/file_store.h"
#include "lib/model/md_messages.h"
#include "lib/model/messages.h"

namespace cantle::meta {

// Who is there, as last read. A hint for placing and for taking turns; never proof that somebody is dead.
struct NodesView {
  std::set<model::ServerId> mdservers, partds;       // nodes/active
  std::map<model::ServerId, coord::NodeInfo> infos;  // nodes/info
};

class Host {
 public:
  template <class T>
  using Done = std::function<void(base::Result<T>)>;

  virtual ~Host() = default;
  virtual const model::ServerId& self() const = 0;
  virtual model::Incarnation incarnation() const = 0;
  virtual coord::Timers& timers() = 0;
  virtual base::WallMs wall_ms() = 0;
  virtual base::Random& random() = 0;
  virtual coord::Session& session() = 0;
  virtual const coord::Layout& layout() const = 0;
  virtual FileStore& files() = 0;
  virtual const NodesView& nodes() const = 0;
  virtual void refresh_nodes(std::function<void(bool read)> done) = 0;  // a read that begins after this call

  // To other metadata servers. `done` once, later; outcome_unknown: it may have arrived.
  virtual void store(const model::ServerId& to, const model::MdStore& request, base::Duration timeout,
                     Done<model::MdStoreReply> done) = 0;
  virtual void fetch(const model::ServerId& to, const model::MdFetch& request, base::Duration timeout,
                     Done<model::MdFetchReply> done) = 0;
  // Hints: sent once, not answered.
  virtual void abort(const model::ServerId& to, const model::MdAbort& request) = 0;
  virtual void tell_changed(const model::ServerId& partd, const model::MapChanged& message) = 0;
};

constexpr base::Duration kStoreTimeout = std::chrono::seconds(3);
constexpr base::Duration kFetchTimeout = std::chrono::seconds(3);
constexpr base::Duration kConfigPoll = std::chrono::seconds(1);  // each table's TableConfig is read so often (S33)

}  // namespace cantle::meta

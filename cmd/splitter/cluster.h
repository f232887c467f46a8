// Cluster: what splitter's verbs stand on: the loop, the coordination service, the metadata servers, the partds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/client/md_client.h"
#include "lib/client/servers.h"
#include "lib/coord/sync_session.h"
#include "lib/daemon/app.h"
#include "lib/io/loop.h"
#include "lib/io/signal.h"
#include "lib/model/client_messages.h"
#include "lib/proto/drivers.h"

namespace cantle::splitter {

using MapPtr = client::MdClient::MapPtr;

class Cluster {
 public:
  explicit Cluster(const daemon::GlobalFlags& flags) : flags_(flags) {}

  // Connects and learns the cluster; before anything else.
  base::Status connect();
  io::Loop& loop() { return loop_; }
  coord::SyncSession& coord() { return *coord_; }
  client::MdClient& md() { return *md_; }
  const coord::Layout& layout() const { return md_->layout(); }
  client::Servers& servers() { return *servers_; }
  const daemon::GlobalFlags& flags() const { return flags_; }
  // From the first call on SIGINT and SIGTERM end the waiting, and not the process: until the end, as whoever sends one
  // may send it twice (timeout: to its child and then to the group) and what is to be said then is still to be said.
  const bool& interrupted();

  base::Result<MapPtr> map(const std::string& table);
  base::Result<std::vector<std::string>> tables();
  base::Result<std::string> distribution(const std::string& table);
  // Partition servers that are registered now.
  base::Result<std::set<model::ServerId>> live();
  base::Result<std::map<model::ServerId, model::TxnSeq>> observed(const std::string& table);
  base::Result<coord::NodeInfo> info(const model::ServerId& server);
  // One call to one partd; the encoded result.
  base::Result<std::string> call(const model::ServerId& server, const char* method, const std::string& params,
                                 base::Duration timeout);

 private:
  const daemon::GlobalFlags& flags_;
  io::Loop loop_;
  bool interrupted_ = false;
  std::optional<io::Signal> interrupt_, term_;
  rpc::Identity identity_;
  std::unique_ptr<coord::SyncSession> coord_;
  std::unique_ptr<client::CoordServers> servers_;
  std::unique_ptr<client::MdClient> md_;
};

// The one partition that a word names: an id or at least four digits of one, a region number, or key:K (%XX for a
// byte).
base::Result<const model::Partition*> find_partition(const model::Metadata& map, const std::string& word);

// Where an attempt stands: its table's map tells as long as that names it, after that the region nodes of the family,
// for a day. not_found: nothing names it.
struct FoundAttempt {
  std::string table;
  // Of one that has neither ended nor been aborted.
  proto::OpKind kind = proto::OpKind::split;
  bool ended = false;  // it is finished
  bool aborted = false;
};
base::Result<FoundAttempt> find_attempt(Cluster& cluster, const model::AttemptId& attempt, const std::string& table);

}  // namespace cantle::splitter

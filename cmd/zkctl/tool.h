// Tool: what zkctl's verbs stand on: a loop, the coordination service, the metadata servers; built when
// first needed. And how words of the command line become values.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/result.h"
#include "lib/client/md_client.h"
#include "lib/client/servers.h"
#include "lib/coord/layout.h"
#include "lib/coord/sync_session.h"
#include "lib/daemon/app.h"
#include "lib/io/loop.h"
#include "lib/model/client_messages.h"
#include "lib/model/table_config.h"

namespace cantle::zkctl {

// One table as the coordination service has it.
struct TableEntry {
  std::string distribution;
  model::Keyspace keyspace = model::Keyspace::range;
  std::string name;
  std::optional<model::TableConfig> config;  // none: there is no TableConfig, or it is damaged
  int32_t version = 0;
  std::string damage;
};
// One server, alive or known of.
struct NodeEntry {
  model::ServerId id;
  std::optional<coord::Active> active;
  std::optional<coord::NodeInfo> info;
  std::optional<coord::NodeVersion> version;
  bool live() const { return active.has_value(); }
};

class Tool {
 public:
  explicit Tool(const daemon::GlobalFlags& flags);
  ~Tool();
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  const daemon::GlobalFlags& flags() const { return flags_; }
  daemon::Format format() const { return flags_.format; }
  const coord::Layout& at() const { return layout_; }
  io::Loop& loop() { return loop_; }
  base::Random& random() { return random_; }
  const rpc::Identity& identity() const { return identity_; }

  // Connected; the cluster need not be there.
  // `must_exist` false makes an embedded coordination service where there is none.
  base::Result<coord::SyncSession*> coord(bool must_exist = true);
  // Connected, and there is a cluster. not_found: there is none.
  base::Result<coord::Format> cluster();
  base::Result<client::MdClient*> md();
  base::Result<client::Servers*> servers();

  base::Result<std::vector<TableEntry>> tables();
  base::Result<TableEntry> table(const std::string& name);  // no_such_table
  base::Result<std::map<model::ServerId, NodeEntry>> nodes();
  base::Result<client::MdClient::MapPtr> map(const std::string& table, base::Duration timeout);
  // Of every table that is not dropped.
  base::Result<std::vector<client::MdClient::MapPtr>> maps(base::Duration timeout);
  base::Result<model::MdChangeReply> change(client::ChangeSpec spec, base::Duration timeout);
  // What that server answers to a request.
  base::Result<std::string> ask(const model::ServerId& server, std::string_view method, const std::string& params,
                                base::Duration timeout);
  // What a partition server says of itself.
  base::Result<model::StatusReply> status_of(const model::ServerId& server, const std::string& table,
                                             base::Duration timeout);

 private:
  base::Status connect_servers();
  base::Status refresh_servers();

  const daemon::GlobalFlags& flags_;
  coord::Layout layout_;
  io::Loop loop_;  // built first, dies last
  base::SystemRandom random_;
  rpc::Identity identity_;
  std::optional<coord::Format> format_;
  std::unique_ptr<coord::SyncSession> coord_;
  std::unique_ptr<client::CoordServers> servers_;
  std::unique_ptr<client::MdClient> md_;
};

std::vector<std::string> split_list(const std::string& text);  // "a,b , c"
base::Result<std::vector<model::ServerId>> parse_servers(const std::string& list);
base::Result<std::string> read_value(const std::string& word);  // "-": stdin
std::string_view name_of(model::PartitionState state);
std::string_view name_of(model::AssignmentState state);
std::string join(const std::vector<model::ServerId>& ids, std::string_view separator = ",");
// Values of the children of a directory, by name; those that vanish meanwhile are left out.
base::Result<std::map<std::string, std::string>> values_under(coord::SyncSession& coord, const std::string& directory);

}  // namespace cantle::zkctl

// Fsck: looks for contradictions between METADATA, the coordination service and the servers (invariants 1 to 3 and 7 of
// the design, as far as they can be seen from outside). It changes nothing.
//
// What is under way changes while it looks, so a finding counts only when a second look finds it again.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cmd/zkctl/tool.h"

namespace cantle::zkctl {

struct Finding {
  std::string where;  // a path, a table, a server
  std::string what;
  auto operator<=>(const Finding&) const = default;
};

class Fsck {
 public:
  Fsck(Tool& tool, std::string only_table, bool offline, base::Duration timeout)
      : tool_(tool), only_table_(std::move(only_table)), offline_(offline), timeout_(timeout) {}

  // One look at everything. Errors: the coordination service cannot be read.
  base::Result<std::set<Finding>> look();
  size_t checked() const { return checked_; }  // things looked at, to show that something was

 private:
  void found(std::string where, std::string what) { findings_.insert({std::move(where), std::move(what)}); }
  // fsck_coord.cc
  base::Status check_cluster();
  base::Status check_nodes();
  base::Status check_tasks();
  base::Status check_dropped();
  base::Status check_unknown(const std::string& directory, const std::set<std::string>& known);
  // fsck_table.cc
  base::Status check_table(const TableEntry& table);
  base::Status check_regions(const TableEntry& table, const model::Metadata& map);
  base::Status check_systems(const TableEntry& table, const model::Metadata& map, model::Region region);
  base::Status check_government(const TableEntry& table, const model::Metadata& map, model::Region region);
  base::Status check_votes(const std::string& quorums, const model::Government& government);
  base::Status check_observed(const TableEntry& table, const model::Metadata& map);
  void check_map(const TableEntry& table, const model::Metadata& map);
  void check_metadata_servers(const TableEntry& table);
  base::Status check_chain(const TableEntry& table);
  // fsck_server.cc
  void check_servers();
  void check_server(const NodeEntry& node, const model::StatusReply& status);
  void check_held(const NodeEntry& node, const model::StatusTable& held, const model::Metadata& map);
  void check_missing(const NodeEntry& node, const model::StatusTable* held, const model::Metadata& map);

  Tool& tool_;
  std::string only_table_;
  bool offline_;
  base::Duration timeout_;
  coord::Format format_;
  std::map<model::ServerId, NodeEntry> nodes_;
  std::map<std::string, client::MdClient::MapPtr> maps_;  // by table
  std::set<std::string> attempts_;                        // of operations in progress
  std::set<Finding> findings_;
  size_t checked_ = 0;
};

}  // namespace cantle::zkctl

// The verbs of zkctl, each a function of the tool and its flags; the exit status or the error.
#pragma once

#include <string>
#include <vector>

#include "cmd/zkctl/place.h"
#include "cmd/zkctl/tool.h"

namespace cantle::zkctl {

// The partition servers that can take a new replica now.
base::Result<std::vector<Candidate>> candidates(Tool& tool, base::Duration timeout);

struct NoFlags {};
struct InitFlags {
  bool if_missing = false;
};
struct TreeFlags {
  std::string table;
  bool raw = false, all = false;
};
struct PathFlags {
  std::string path;
};
struct SetFlags {
  std::string path, value;
  int32_t version = coord::kAnyVersion;
  bool create = false, force = false;
};
struct WaitFlags {
  std::vector<std::string> conditions;
  std::string timeout = "60s";
};
struct StatusFlags {
  bool problems_only = false;
  std::string timeout = "3s";
};
struct FsckFlags {
  std::string table, timeout = "5s";
  bool offline = false;
};
struct ExplainFlags {
  std::vector<std::string> what;
  std::string timeout = "5s";
};
struct TableCreateFlags {
  std::string name, keyspace = "range", replication = "push", servers, metadata_servers, points, timeout = "30s";
  uint32_t replicas = 3;
  std::vector<std::string> options;
  bool dry_run = false, no_wait = false;
};
struct TableFlags {
  std::string name, timeout = "15s";
};
struct TableSetFlags {
  std::string name, option, value, timeout = "15s";
  bool fallback = false;
};
struct TableDropFlags {
  std::string name, timeout = "15s";
  bool accept_loss = false;
};
struct NodeFlags {
  std::string id, timeout = "15s";
};
struct NodeDeadFlags {
  std::string id, timeout = "60s";
  bool force = false, mark_only = false, dry_run = false;
};
struct NodeReplaceFlags {
  std::string from, to, table, timeout = "10m";
  bool dry_run = false, detach = false, progress = false, force = false, cancel = false;
};
struct QuorumShowFlags {
  std::string table, partition, timeout = "5s";
  std::vector<std::string> reports;
};
struct RecoverPlanFlags {
  std::string table, partition, stay, timeout = "5s";
  std::vector<std::string> reports;
};
struct RecoverApplyFlags {
  std::string file, timeout = "30s";
  bool accept_loss = false;
};
struct MdFlags {
  std::string table, server, timeout = "15s";
};

base::Result<int> init(Tool& tool, const InitFlags& flags);
base::Result<int> tree(Tool& tool, const TreeFlags& flags);
base::Result<int> ls(Tool& tool, const PathFlags& flags);
base::Result<int> cat(Tool& tool, const PathFlags& flags);
// The METADATA file of a table.
base::Result<int> cat_metadata(Tool& tool, const std::string& table);
base::Result<int> set(Tool& tool, const SetFlags& flags);
base::Result<int> wait(Tool& tool, const WaitFlags& flags);
base::Result<int> status(Tool& tool, const StatusFlags& flags);
base::Result<int> fsck(Tool& tool, const FsckFlags& flags);
base::Result<int> explain(Tool& tool, const ExplainFlags& flags);
base::Result<int> arrivals(Tool& tool, const NoFlags& flags);

base::Result<int> table_create(Tool& tool, const TableCreateFlags& flags);
base::Result<int> table_list(Tool& tool, const NoFlags& flags);
base::Result<int> table_show(Tool& tool, const TableFlags& flags);
base::Result<int> table_set(Tool& tool, const TableSetFlags& flags);
base::Result<int> table_drop(Tool& tool, const TableDropFlags& flags);

base::Result<int> node_list(Tool& tool, const NoFlags& flags);
base::Result<int> node_show(Tool& tool, const NodeFlags& flags);
base::Result<int> node_dead(Tool& tool, const NodeDeadFlags& flags);
base::Result<int> node_replace(Tool& tool, const NodeReplaceFlags& flags);

base::Result<int> quorum_show(Tool& tool, const QuorumShowFlags& flags);
base::Result<int> recover_plan(Tool& tool, const RecoverPlanFlags& flags);
base::Result<int> recover_apply(Tool& tool, const RecoverApplyFlags& flags);

base::Result<int> md_list(Tool& tool, const NoFlags& flags);
base::Result<int> md_join(Tool& tool, const MdFlags& flags);
base::Result<int> md_leave(Tool& tool, const MdFlags& flags);

}  // namespace cantle::zkctl

// Where to split, and onto which servers.
#pragma once

#include <string>
#include <vector>

#include "cmd/splitter/cluster.h"
#include "lib/client/split_plan.h"

namespace cantle::splitter {

// Of what is begun: how it is followed.
struct FollowFlags {
  bool dry_run = false, no_wait = false, progress = false;
  std::string timeout;  // how long to wait; empty: for ever
};

struct SplitFlags : FollowFlags {
  std::string table, partition;
  std::string at;                      // a key, %XX for a byte; empty: the median by bytes
  std::vector<std::string> low, high;  // servers in slot order; empty: the parent's
  std::string data_dir;                // sample here instead of asking a server
  std::string index_dir;
  std::string file;  // apply: the plan
};

// The split as it would be committed: checked as far as it can be checked before. Refusals
//   conflict   the partition is being split or moved, a server is not there
//   invalid    the point is not inside; the partition cannot be split, with the reason (S50)
// The children of a quorum table begin where their parent stands; those that are to be elsewhere are moved when it is
// split, and until then stand in the same slots as far as they can.
struct SplitMade {
  client::SplitPlan plan;
  std::vector<model::ServerId> low, high;  // where they are moved; empty: nowhere
};
base::Result<SplitMade> make_plan(Cluster& cluster, const SplitFlags& flags);
// Of a plan that was made earlier: are the servers there?
base::Status check_servers(Cluster& cluster, const model::Metadata& map, const model::Partition& parent,
                           const model::ops::SplitPartition& split);

}  // namespace cantle::splitter

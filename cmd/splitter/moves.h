// Replicas that are moved before a merge, so that both stand on the same servers, or after a split.
#pragma once

#include <string>
#include <vector>

#include "cmd/splitter/drive.h"
#include "cmd/splitter/point.h"
#include "lib/model/metadata.h"

namespace cantle::splitter {

struct Move {
  model::ServerId from, to;
};
// What has to be replaced so that the partition stands on those servers, as many as it has replicas: in the slot of
// each where that can be, else anywhere.
std::vector<Move> moves_to(const model::Partition& partition, const std::vector<model::ServerId>& servers);
std::string to_string(const std::vector<Move>& moves);  // "p1 -> p4, p2 -> p5"
// May they be begun? conflict: one of the servers is not there, or marked dead or to be drained.
base::Status check_moves(Cluster& cluster, const std::vector<Move>& moves);

// One replica after the other, each to its end, as `zkctl node replace` does. What was moved stays so, whatever comes
// of the rest.
base::Result<Driven> move_replicas(Cluster& cluster, const std::string& table, const model::PartitionId& partition,
                                   const std::vector<model::ServerId>& servers, const FollowFlags& flags);

}  // namespace cantle::splitter

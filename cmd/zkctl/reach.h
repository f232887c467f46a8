// Reach: what of a partition works now, and why not more. The rules are those that the servers act on themselves
// (lib/proto/push_plan.h), applied to who is registered and to what each says of itself.
//
//   const auto reach = reach_of(*map, partition, nodes, ask_partds(tool, nodes, timeout));
//   story.say(in_words(reach));        // "Reads work at one and majority, writes at …: p3 is down."
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cmd/zkctl/tool.h"

namespace cantle::zkctl {

using Nodes = std::map<model::ServerId, NodeEntry>;
using Partds = std::map<model::ServerId, base::Result<model::StatusReply>>;  // of those registered

bool is_partd(const NodeEntry& node);
Partds ask_partds(Tool& tool, const Nodes& nodes, base::Duration timeout);

struct Reach {
  size_t slots = 0, live = 0;                 // replicas that there should be; those that can answer a read
  std::optional<model::Level> reads, writes;  // the highest level that works; nothing: none does
  std::vector<std::string> why;               // what is missing for all: "p2 is down"
  // Of a quorum table: `all` is what a leader gives, `one` what any replica does.
  bool quorum = false;
  model::ServerId leader;  // who serves as one; empty: nobody

  bool none() const { return !reads && !writes; }
  bool below_majority() const { return reads < model::Level::majority || writes < model::Level::majority; }
};
Reach reach_of(const model::Metadata& map, const model::Partition& p, const Nodes& nodes, const Partds& partds);

// "at no level", "at one", "at one and majority", "at every level".
std::string level_words(const std::optional<model::Level>& highest);
std::string in_words(const Reach& reach);
// Empty, or that nobody pushes what this server has, and for how long.
std::string pusher_trouble(const model::StatusReply& status);

}  // namespace cantle::zkctl

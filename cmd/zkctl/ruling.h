// Who rules a partition of a quorum table, as far as the coordination service tells: its government, and the votes that
// stand while there is an election.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cmd/zkctl/tool.h"
#include "lib/daemon/json.h"
#include "lib/model/quorum.h"

namespace cantle::zkctl {

struct Ruling {
  std::optional<model::Government> government;
  std::string damage;  // why it could not be read
  std::vector<model::Vote> votes;
};
Ruling read_ruling(coord::SyncSession& session, const coord::Layout& at, const std::string& distribution,
                   model::Region region);

// The server that leads; empty: nobody does.
std::string leader_of(const model::Government& government);
// "epoch 3  leader p2  voters p1 p2 p3", and how many votes there are.
std::string in_a_line(const Ruling& ruling);
// The same in sentences.
std::vector<std::string> in_words(const Ruling& ruling);
void add_json(daemon::Json& j, const Ruling& ruling);

}  // namespace cantle::zkctl

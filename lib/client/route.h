// Route: which servers can take a request, best first; and which of them to leave alone for a while. Pure.
//
//   Health health;
//   for (const auto& server : candidates(partition, Purpose::write, spread, health, now)) …
//
// Invariants
//   * Reads go to AVAILABLE and LEAVING assignments alone; PROPOSED and INITIALIZING ones take writes, but last.
//   * The order depends on `spread` (a hash of the key) only as long as nobody is avoided: a key keeps its server.
//   * A server that is avoided is put last, never left out: it may be the only one left.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/partition.h"

namespace cantle::client {

enum class Purpose : uint8_t { read, write };

constexpr base::Duration kAvoidMin = std::chrono::milliseconds(200);
constexpr base::Duration kAvoidMax = std::chrono::seconds(3);

class Health {
 public:
  void failed(const model::ServerId& server, base::Instant now);  // longer each time in a row
  void answered(const model::ServerId& server);
  bool avoided(const model::ServerId& server, base::Instant now) const;

 private:
  struct Bad {
    base::Duration span{0};
    base::Instant until;
  };
  std::map<model::ServerId, Bad> bad_;
};

std::vector<model::ServerId> candidates(const model::Partition& partition, Purpose purpose, uint64_t spread,
                                        const Health& health, base::Instant now);

}  // namespace cantle::client

// Identity: what the two ends of a connection tell each other in `hello`, and who may go on.
//
// hello {protocol_min, protocol_max, cluster, token, from} → {protocol, cluster, role, id, software}.
// Another cluster's uuid is refused with DENIED, no common version with INVALID, a wrong token with DENIED,
// and the connection is closed behind the answer. `hello` is optional, unless the server has a token.
#pragma once

#include <cstdint>
#include <string>

#include "lib/model/ids.h"

namespace cantle::rpc {

constexpr uint32_t kProtocolMin = 1, kProtocolMax = 1;

struct Identity {
  model::ClusterUuid cluster = {};  // none: not known (yet): says nothing, refuses nobody
  std::string token = {};           // shared secret of the cluster; empty: none is asked for
  std::string role = {};            // "partd"
  std::string id = {};              // "p1"
  uint32_t protocol_min = kProtocolMin, protocol_max = kProtocolMax;
};

}  // namespace cantle::rpc

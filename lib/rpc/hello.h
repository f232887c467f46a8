// Hello: the message that opens a connection (identity.h), and what a server says to it.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/result.h"
#include "lib/model/fields.h"
#include "lib/rpc/identity.h"
#include "lib/wire/codec.h"

namespace cantle::rpc {

struct Hello {
  uint32_t protocol_min = kProtocolMin, protocol_max = kProtocolMin;
  model::ClusterUuid cluster;
  std::string token;
  wire::Text from;
  CANTLE_FIELDS(protocol_min, protocol_max, cluster, token, from)
};
struct HelloReply {
  uint32_t protocol = 0;  // the highest that both speak
  model::ClusterUuid cluster;
  wire::Text role, id, software;
  CANTLE_FIELDS(protocol, cluster, role, id, software)
};

Hello hello_of(const Identity& identity);
// denied: another cluster, wrong token; invalid: no common protocol version.
base::Result<HelloReply> answer_hello(const Identity& identity, const Hello& hello);

}  // namespace cantle::rpc

#include "lib/rpc/hello.h"

#include <algorithm>

namespace cantle::rpc {
namespace {

// In a time that does not tell how much of it was right.
bool same_secret(std::string_view a, std::string_view b) {
  const auto want = base::sha256(a), got = base::sha256(b);
  unsigned difference = 0;
  for (size_t i = 0; i < want.size(); ++i) difference |= static_cast<unsigned>(want[i] ^ got[i]);
  return difference == 0;
}

std::string range(uint32_t from, uint32_t to) { return std::to_string(from) + ".." + std::to_string(to); }

}  // namespace

Hello hello_of(const Identity& identity) {
  Hello hello;
  hello.protocol_min = identity.protocol_min;
  hello.protocol_max = identity.protocol_max;
  hello.cluster = identity.cluster;
  hello.token = identity.token;
  hello.from.value = identity.id;
  return hello;
}

base::Result<HelloReply> answer_hello(const Identity& identity, const Hello& hello) {
  const auto highest = std::min(identity.protocol_max, hello.protocol_max);
  if (highest < std::max(identity.protocol_min, hello.protocol_min))
    return base::fail(base::Code::invalid, "no common protocol version: here " +
                                               range(identity.protocol_min, identity.protocol_max) + ", there " +
                                               range(hello.protocol_min, hello.protocol_max));
  if (!identity.cluster.none() && !hello.cluster.none() && identity.cluster != hello.cluster)
    return base::fail(base::Code::denied,
                      "this is cluster " + to_string(identity.cluster) + ", not " + to_string(hello.cluster));
  if (!identity.token.empty() && !same_secret(identity.token, hello.token))
    return base::fail(base::Code::denied, hello.token.empty() ? "a token is needed" : "wrong token");
  HelloReply reply;
  reply.protocol = highest;
  reply.cluster = identity.cluster;
  reply.role.value = identity.role;
  reply.id.value = identity.id;
  reply.software.value = CANTLE_VERSION;
  return reply;
}

}  // namespace cantle::rpc

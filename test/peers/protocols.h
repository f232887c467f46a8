// What each store's clients say: cantle's MessagePack-RPC, Redis's RESP, etcd's gRPC.
#pragma once

#include <optional>

#include "test/peers/load.h"

namespace cantle::peers {

enum class Read : uint8_t { linearizable, session };
// Writes go under numbers, each connection being a client of its own, as partc's do. Values are of so many bytes.
MakeProtocol cantle_protocol(std::string table, Read read = Read::linearizable, size_t value_size = kValueSize);
// The same request without a hop: ok only from the leader.
std::string cantle_probe(const std::string& table);
// What the leader at that port says of another server's replica of a table of one partition: trailing, joined, …;
// empty: nothing.
std::string cantle_follower(uint16_t leader, const std::string& table, const std::string& server);

// Each write is followed by WAIT 1; or those that are sent at once by one WAIT 1, for all of them.
enum class Wait : uint8_t { each, burst };
MakeProtocol redis_protocol(Wait wait, size_t value_size = kValueSize);
std::string redis_command(const std::vector<std::string>& words);

MakeProtocol etcd_protocol();
// One call without fields; its answer's message, or nothing.
std::optional<std::string> etcd_call(uint16_t port, const std::string& path);
// A field of a protocol buffer's message: numbers, and those of the message inside `within`, if that is not 0.
std::optional<uint64_t> proto_number(std::string_view message, uint32_t field, uint32_t within = 0);

// Sends it and returns what comes within `seconds`, as soon as `whole` says that it is all.
std::string exchange(uint16_t port, const std::string& bytes, double seconds,
                     const std::function<bool(std::string_view)>& whole);

}  // namespace cantle::peers

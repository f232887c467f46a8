// Load: closed-loop load over TCP, the same for every store: a number of connections, each with a number of requests
// under way, keys drawn at random, the latency of each request. What is said on a connection is its Protocol's
// business.
//
// Threads: the caller's. Units: microseconds where it says so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "test/bench/bench.h"

namespace cantle::peers {

enum class Op : uint8_t { put, get };

constexpr uint64_t kKeys = 100000;
constexpr size_t kKeySize = 16, kValueSize = 100;
// "k" and fifteen digits.
void append_key(std::string& out, uint64_t key);

// One connection's. A request has a tag, its place among those under way; it is used again once it is done.
class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual void begin(std::string*) {}  // connected
  virtual void request(Op op, uint64_t key, uint32_t tag, std::string* out) = 0;
  // Behind the requests that are sent at once.
  virtual void sent(std::string*) {}
  // Bytes that came; tags whose answer is whole and good. An error ends the run.
  virtual base::Status take(std::string_view bytes, std::vector<uint32_t>* done, std::string* out) = 0;

  // Who was told to come again, by the last take(): the store has more to do than it can.
  struct Refused {
    uint32_t tag = 0;
    double seconds = 0;  // not before that
  };
  std::vector<Refused> refused;
};
using MakeProtocol = std::function<std::unique_ptr<Protocol>()>;

struct Plan {
  uint16_t port = 0;  // on 127.0.0.1
  MakeProtocol protocol;
  Op op = Op::put;
  int connections = 1, in_flight = 1;
  double seconds = 1;
  uint64_t count = 0;           // not 0: each key below it once, in order, and then the end
  uint64_t operations = 0;      // not 0: so many, at random, and then the end
  std::function<bool()> until;  // set: it ends when that says so
  uint64_t seed = 1;            // of the keys
  double each_second = 0;       // of all connections together; 0: as fast as it goes
};
struct Outcome {
  double per_second = 0;
  uint64_t operations = 0, refused = 0;  // a refused one is asked again
  bench::Samples latency_us;
  std::string error;  // empty: none
};
Outcome load(const Plan& plan);

}  // namespace cantle::peers

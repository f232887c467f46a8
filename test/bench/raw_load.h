// RawLoad: a load generator with nothing in it but libuv: requests of one size out, answers of one size in, a
// number of connections with a number of requests under way on each. It does not read the answers, it counts
// their bytes: the same generator measures our servers and a bare echo server.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "test/bench/bench.h"

namespace cantle::bench {

struct RawPlan {
  std::string socket;  // path of a Unix socket
  int connections = 1, in_flight = 1;
  double seconds = 1;
  std::function<void(std::string* out)> request{};  // appends the next request
  size_t reply = 0;                                 // bytes of each answer
};
struct RawResult {
  double per_second = 0;
  uint64_t operations = 0;
  Samples latency_us;  // with one request under way on one connection
  std::string error;   // empty: none
};
RawResult raw_load(const RawPlan& plan);

// One request and its whole answer, as bytes; empty: none within five seconds. Says how long answers are.
std::string raw_call(const std::string& socket, const std::string& request);

// A process that answers each `request` bytes with `reply` bytes on a Unix socket, by libuv alone, one write a read.
class EchoServer {
 public:
  EchoServer(const std::string& socket, size_t request, size_t reply);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

 private:
  pid_t child_ = -1;
  std::string socket_;
};

}  // namespace cantle::bench

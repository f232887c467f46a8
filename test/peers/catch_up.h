// Catch-up: how fast a follower that was away gets what it missed, and what a client's writes take meanwhile.
//
// Each store's follower is stopped, writes are made without it, and it is started again. What is measured lies between
// the first of the missed blocks that it has and the time when it is level with the leader; bytes are those of the
// missed records, their keys and values, so that the stores and a plain copy of as many are held against each other.
// A client writes at a fixed rate all the time: of the latencies before the follower was stopped, and of those
// while it catches up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "test/bench/bench.h"
#include "test/peers/servers.h"

namespace cantle::peers {

struct CatchUpOptions {
  uint64_t missed_mib = 1024;  // 0: not measured
  size_t value = 1024;         // bytes of each value that is missed
  // The client's: values of kValueSize bytes.
  int connections = 16;
  double each_second = 2000;
};

class CatchUp {
 public:
  CatchUp(const CatchUpOptions& options, std::string dir, const Cantle* cantle, Redis* redis);
  void round(int number);
  void report(bench::Bench& bench) const;

 private:
  struct Figure {
    bench::Samples rate, before, meanwhile;  // MiB/s; p99 in us
  };
  // One store's.
  struct Way {
    std::function<Plan(size_t value)> writes;  // to the leader, by 64 connections
    std::function<void()> stop, start;         // the follower
    std::function<bool()> begun, level;        // since it was started
  };
  Way cantle_way() const;
  Way redis_way() const;
  void measure(const std::string& store, const Way& way, Figure& figure, int round);
  double copy() const;
  uint64_t records() const;

  CatchUpOptions options_;
  std::string dir_;
  const Cantle* cantle_;
  Redis* redis_;
  Figure cantle_figure_, redis_figure_;
  bench::Samples copy_rate_;
};

}  // namespace cantle::peers

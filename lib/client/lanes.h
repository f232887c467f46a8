// Lanes: the numbers that a client's writes to quorum tables go under, so that each takes effect once however often
// it is sent (lib/model/series.h). Pure.
//
// Use
//   const auto number = lanes.draw();      // before a write is first sent; the same on each attempt
//   … send number.client, number.series, lanes.low(number) …
//   lanes.ended(number);                   // it is no longer waited for, whatever came of it
//
// A server remembers kSeriesWindow numbers of a client id. So that nothing waits for a slow write, there is not one id
// but as many as it takes, each with numbers of its own: a lane. The first lane that may go on is taken.
//
// Invariants
//   * No two writes have the same (client, series), in whatever partition: a lane's numbers ascend over all tables.
//   * What is waited for in a lane lies within kSeriesWindow numbers, so no answer that is waited for is forgotten.
//   * There are at most as many lanes as there were ever writes under way at one time, and no lane before it is needed.
//
// Threads: one. Ownership: does not own `random`, which outlives it.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "lib/base/random.h"
#include "lib/model/series.h"

namespace cantle::client {

class Lanes {
 public:
  struct Number {
    uint64_t client = 0, series = 0;
    size_t lane = 0;
    friend bool operator==(const Number&, const Number&) = default;
  };

  explicit Lanes(base::Random& random) : random_(random) {}

  Number draw();
  // The lowest number of its lane that is waited for; of one that is waited for.
  uint64_t low(const Number& number) const { return lanes_[number.lane].low; }
  void ended(const Number& number);  // once for each that was drawn

  size_t size() const { return lanes_.size(); }

 private:
  struct Lane {
    uint64_t client = 0, next = 1;
    uint64_t low = 1;     // the lowest that is waited for; none: next
    uint64_t waited = 0;  // bit i: low + i is
    bool may_go_on() const { return next - low < model::kSeriesWindow; }
  };
  size_t open_lane();

  base::Random& random_;
  std::vector<Lane> lanes_;
  std::set<size_t> open_;  // those that may go on
};

}  // namespace cantle::client

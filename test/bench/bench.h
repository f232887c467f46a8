// Bench: figures as ratios measured in the same run, each beside the bar it has to pass.
//
//   void appends(Bench& bench) {
//     for (int round = 0; round < bench.rounds(); round++) { ours.add(…); bare.add(…); }   // interleaved
//     bench.report({"append 16 writers", "appends/s", ours.median(), "pwrite+fdatasync", bare.median(), 0.8,
//     at_least});
//   }
//   const Register appends_bench("store.append", appends);
//
// The machine is shared and noisy: measure the two sides in turns, and report medians.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace cantle::bench {

// at_least: ours / reference must be ≥ bar; at_most: ≤ bar; shown: no bar.
enum class Bar { at_least, at_most, shown };

struct Row {
  std::string what;
  std::string unit;
  double ours = 0;
  std::string reference_name;
  double reference = 0;
  double bar = 0;
  Bar kind = Bar::shown;
};

class Samples {
 public:
  void add(double x) { values_.push_back(x); }
  double median() const;
  double quantile(double q) const;  // 0 … 1
  bool empty() const { return values_.empty(); }

 private:
  mutable std::vector<double> values_;
};

class Bench {
 public:
  Bench(int rounds, std::string dir) : rounds_(rounds), dir_(std::move(dir)) {}
  int rounds() const { return rounds_; }
  const std::string& dir() const { return dir_; }  // a directory on the disk to be measured; fresh for each bench
  void report(const Row& row);
  int missed() const { return missed_; }

 private:
  int rounds_;
  std::string dir_;
  int missed_ = 0;
};

struct Register {
  Register(std::string name, std::function<void(Bench&)> fn);
};

double now_s();  // CLOCK_MONOTONIC

}  // namespace cantle::bench

// Stats: what loads and benches measure: latencies, gaps between acknowledgements, rates.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "lib/base/time.h"

namespace cantle::client {

// Histogram of durations from 1 ns to 4.6 h, each bucket at most 1/32 of its value wide.
class Histogram {
 public:
  void add(base::Duration d);
  uint64_t count() const { return count_; }
  base::Duration quantile(double q) const;  // the upper end of the bucket it lies in; 0 when empty
  base::Duration max() const { return max_; }
  base::Duration mean() const;

 private:
  static constexpr int kSub = 5;  // bits below the leading one that are kept
  static size_t bucket_of(uint64_t ns);
  static uint64_t upper(size_t bucket);
  std::array<uint64_t, (64 - kSub) << kSub> buckets_{};
  uint64_t count_ = 0;
  double sum_ = 0;
  base::Duration max_{0};
};

// Gaps: how long somebody waited without any acknowledgement coming. A gap runs from one acknowledgement to the
// next, or, when nothing was waiting in between, from the first request after that.
class GapMeter {
 public:
  // `each` is called with every gap as it ends.
  explicit GapMeter(std::function<void(base::Instant end, base::Duration gap)> each = {}) : each_(std::move(each)) {}
  void sent(base::Instant now);  // a request is under way
  void acknowledged(base::Instant now);
  void idle() { running_ = false; }  // nothing is under way any more
  base::Duration longest() const { return longest_; }
  base::Instant longest_end() const { return longest_end_; }

 private:
  std::function<void(base::Instant, base::Duration)> each_;
  bool running_ = false;
  base::Instant last_, longest_end_;
  base::Duration longest_{0};
};

// Pacer lets `rate` things happen a second, evenly, with no debt of more than kPacerDebt from a pause.
constexpr base::Duration kPacerDebt = std::chrono::milliseconds(100);
class Pacer {
 public:
  Pacer(double per_second, base::Instant now);  // 0: no limit
  // How many may happen now.
  uint64_t allowed(base::Instant now);
  void spend(uint64_t n) { spent_ += static_cast<double>(n); }
  base::Instant next() const;  // when one more may happen; the past if one may

 private:
  double rate_, spent_ = 0;
  base::Instant start_;
};

}  // namespace cantle::client

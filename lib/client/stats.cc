#include "lib/client/stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace cantle::client {

using base::Duration;
using base::Instant;

// Values below 2^(kSub+1) have a bucket each; above that, the leading one and kSub bits behind it name it.
size_t Histogram::bucket_of(uint64_t ns) {
  if (ns < (uint64_t{2} << kSub)) return ns;
  const auto shift = static_cast<int>(std::bit_width(ns)) - 1 - kSub;
  return (static_cast<size_t>(shift) << kSub) + (ns >> shift);
}

uint64_t Histogram::upper(size_t bucket) {
  if (bucket < (size_t{2} << kSub)) return bucket;
  const size_t shift = (bucket >> kSub) - 1;
  const uint64_t lead = bucket - (shift << kSub);
  return ((lead + 1) << shift) - 1;
}

void Histogram::add(Duration d) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(d.count(), 0));
  ++buckets_[std::min(bucket_of(ns), buckets_.size() - 1)];
  ++count_;
  sum_ += static_cast<double>(ns);
  max_ = std::max(max_, d);
}

Duration Histogram::quantile(double q) const {
  if (count_ == 0) return Duration::zero();
  const auto rank = static_cast<uint64_t>(std::ceil(q * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= std::max<uint64_t>(rank, 1)) return std::min(Duration(static_cast<int64_t>(upper(i))), max_);
  }
  return max_;
}

Duration Histogram::mean() const {
  return count_ == 0 ? Duration::zero() : Duration(static_cast<int64_t>(sum_ / static_cast<double>(count_)));
}

void GapMeter::sent(Instant now) {
  if (!running_) last_ = now;
  running_ = true;
}

void GapMeter::acknowledged(Instant now) {
  const Duration gap = now - last_;
  last_ = now;
  if (gap > longest_) {
    longest_ = gap;
    longest_end_ = now;
  }
  if (each_) each_(now, gap);
}

Pacer::Pacer(double per_second, Instant now) : rate_(per_second), start_(now) {}

uint64_t Pacer::allowed(Instant now) {
  if (rate_ <= 0) return UINT64_MAX;
  const double due = std::chrono::duration<double>(now - start_).count() * rate_ + 1;
  // What a pause left undone is caught up with only in part.
  const double debt_max = std::max(1.0, std::chrono::duration<double>(kPacerDebt).count() * rate_);
  spent_ = std::max(spent_, due - debt_max);
  return due > spent_ ? static_cast<uint64_t>(due - spent_) : 0;
}

Instant Pacer::next() const {
  if (rate_ <= 0) return start_;
  return start_ + Duration(static_cast<int64_t>(std::max(0.0, spent_) / rate_ * 1e9) + 1);
}

}  // namespace cantle::client

#include "test/bench/bench.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

namespace cantle::bench {

double Samples::quantile(double q) const {
  if (values_.empty()) return 0;
  std::sort(values_.begin(), values_.end());
  const auto last = static_cast<double>(values_.size() - 1);
  return values_[static_cast<size_t>(q * last + 0.5)];
}
double Samples::median() const { return quantile(0.5); }

void Bench::report(const Row& row) {
  const double ratio = row.reference != 0 ? row.ours / row.reference : 0;
  const char* verdict = "";
  if (row.kind == Bar::at_least) verdict = ratio >= row.bar ? "ok" : "MISSED";
  if (row.kind == Bar::at_most) verdict = ratio <= row.bar ? "ok" : "MISSED";
  if (verdict[0] == 'M') missed_++;
  char bar[32] = "";
  if (row.kind != Bar::shown)
    std::snprintf(bar, sizeof bar, "%s %.2f", row.kind == Bar::at_least ? ">=" : "<=", row.bar);
  std::printf("%-44s %12.1f %-10s %-28s %12.1f  ratio %6.2f  %-8s %s\n", row.what.c_str(), row.ours, row.unit.c_str(),
              row.reference_name.c_str(), row.reference, ratio, bar, verdict);
  std::fflush(stdout);
}

double now_s() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<double>(ts.tv_sec) + static_cast<double>(ts.tv_nsec) * 1e-9;
}

}  // namespace cantle::bench

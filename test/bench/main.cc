// bench [NAME-PREFIX...] [--rounds N] [--dir DIR] [--list]
//
// Runs the registered benches, prints a row for each figure, and exits 2 if a bar was missed.
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>

#include "test/bench/bench.h"

namespace cantle::bench {
namespace {

std::map<std::string, std::function<void(Bench&)>>& registry() {
  static std::map<std::string, std::function<void(Bench&)>> benches;
  return benches;
}

bool wanted(const std::string& name, const std::vector<std::string>& prefixes) {
  return prefixes.empty() ||
         std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& p) { return name.starts_with(p); });
}

}  // namespace

Register::Register(std::string name, std::function<void(Bench&)> fn) {
  registry().emplace(std::move(name), std::move(fn));
}

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

namespace {

int run(const std::vector<std::string>& prefixes, int rounds, const std::string& dir) {
  int missed = 0, ran = 0;
  for (const auto& [name, fn] : registry()) {
    if (!wanted(name, prefixes)) continue;
    const auto fresh = dir + "/" + name;
    std::filesystem::remove_all(fresh);
    std::filesystem::create_directories(fresh);
    Bench bench(rounds, fresh);
    fn(bench);
    malloc_trim(0);  // what one bench leaves is not the next one's memory
    missed += bench.missed();
    ran++;
    std::filesystem::remove_all(fresh);
  }
  if (ran == 0) std::fprintf(stderr, "bench: no bench of that name\n");
  std::printf("bench: %d benches, %d bars missed\n", ran, missed);
  return ran == 0 ? 3 : missed != 0 ? 2 : 0;
}

}  // namespace
}  // namespace cantle::bench

int main(int argc, char** argv) {
  std::vector<std::string> prefixes;
  int rounds = 5;
  std::string dir = std::filesystem::current_path().string() + "/build/bench";
  for (int i = 1; i < argc; i++) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--rounds" && more) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--dir" && more) {
      dir = argv[++i];
    } else if (arg == "--list") {
      for (const auto& [name, fn] : cantle::bench::registry()) std::printf("%s\n", name.c_str());
      return 0;
    } else if (arg.starts_with("-")) {
      std::fprintf(stderr, "usage: bench [NAME-PREFIX...] [--rounds N] [--dir DIR] [--list]\n");
      return 64;
    } else {
      prefixes.emplace_back(arg);
    }
  }
  return cantle::bench::run(prefixes, rounds, dir);
}

// bench [NAME-PREFIX...] [--rounds N] [--dir DIR] [--list]
//
// Runs the registered benches, prints a row for each figure, and exits 2 if a bar was missed.
#include <malloc.h>

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

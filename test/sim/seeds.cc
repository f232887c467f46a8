#include "test/sim/seeds.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>

namespace cantle::sim {
namespace {

constexpr uint64_t kTwiceEvery = 50;
constexpr uint64_t kFailuresShown = 3;

std::string program_name = "build/release/test/sim";

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string repeat_command(uint64_t seed) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string command = "SEED=" + std::to_string(seed) + " TRACE=1 " + program_name;
  if (info) command += std::string(" --gtest_filter=") + info->test_suite_name() + "." + info->name();
  return command;
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

void set_program(std::string argv0) { program_name = std::move(argv0); }

void run_seeds(const char* what, uint64_t default_count, const RunSeed& run) {
  const bool one = std::getenv("SEED") != nullptr;
  const uint64_t first = one ? number_from("SEED", 1) : number_from("FIRST", 1);
  const uint64_t count = one ? 1 : number_from("SEEDS", default_count);
  const double begun = processor_seconds();
  uint64_t events = 0, done = 0, twice = 0;
  const uint64_t shown = number_from("FAILURES", kFailuresShown);
  uint64_t failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < shown; ++seed) {
    const Verdict verdict = run(seed);
    events += verdict.events;
    ++done;
    if (!verdict.violation.empty()) {
      ++failures;
      ADD_FAILURE() << what << " seed " << seed << ": " << verdict.violation << "\n  repeat: " << repeat_command(seed);
    }
    if (one || seed % kTwiceEvery == 0) {
      ++twice;
      if (run(seed).trace_hash != verdict.trace_hash) {
        ++failures;
        ADD_FAILURE() << what << " seed " << seed
                      << " gave another trace the second time\n  repeat: " << repeat_command(seed);
      }
    }
  }
  const double seconds = processor_seconds() - begun;
  std::printf("%s: %llu seeds (%llu of them twice) in %.1f s of processor time, %.0f seeds/s, %.0f events/seed\n", what,
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(twice), seconds,
              static_cast<double>(done + twice) / seconds,
              static_cast<double>(events) / static_cast<double>(done ? done : 1));
  std::fflush(stdout);
}

namespace {
std::map<std::string, RunSeed>& simulations() {
  static std::map<std::string, RunSeed> all;
  return all;
}
}  // namespace

Simulation::Simulation(std::string name, RunSeed run) { simulations()[std::move(name)] = std::move(run); }

const RunSeed* find_simulation(const std::string& name) {
  const auto it = simulations().find(name);
  return it == simulations().end() ? nullptr : &it->second;
}

}  // namespace cantle::sim

#include "test/sim/seeds.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/check.h"

namespace cantle::sim {
namespace {

constexpr uint64_t kTwiceEvery = 50;
constexpr uint64_t kFailuresShown = 3;
constexpr uint64_t kJobsMax = 16, kSeedsOfAJob = 20;  // fewer seeds are not worth a process

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
const std::string& program() { return program_name; }

namespace {

struct Failure {
  uint64_t seed = 0;
  std::string text;
};
struct Tally {
  uint64_t done = 0, twice = 0, events = 0;
  double seconds = 0;
  std::vector<Failure> failures;
};
struct Range {
  uint64_t first = 1, count = 1, step = 1;
  uint64_t failures_shown = kFailuresShown;
  bool always_twice = false;
};

Tally run_range(const Range& range, const RunSeed& run) {
  Tally tally;
  const double begun = processor_seconds();
  for (uint64_t i = 0; i < range.count && tally.failures.size() < range.failures_shown; ++i) {
    const uint64_t seed = range.first + i * range.step;
    const Verdict verdict = run(seed);
    tally.events += verdict.events;
    ++tally.done;
    if (!verdict.violation.empty()) tally.failures.push_back({seed, verdict.violation});
    if (!range.always_twice && seed % kTwiceEvery != 0) continue;
    ++tally.twice;
    if (run(seed).trace_hash != verdict.trace_hash)
      tally.failures.push_back({seed, "gave another trace the second time"});
  }
  tally.seconds = processor_seconds() - begun;
  return tally;
}

// A child's tally as it comes through the pipe: a line of numbers, then a line for each failure.
void tell(const Tally& tally, int fd) {
  FILE* out = fdopen(fd, "w");
  for (const auto& f : tally.failures) {
    std::string text = f.text;
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::fprintf(out, "%llu %s\n", static_cast<unsigned long long>(f.seed), text.c_str());
  }
  std::fprintf(out, "0 %llu %llu %llu %f\n", static_cast<unsigned long long>(tally.done),
               static_cast<unsigned long long>(tally.twice), static_cast<unsigned long long>(tally.events),
               tally.seconds);
  std::fclose(out);
}

// False: the child died before it had told everything.
bool hear(int fd, Tally* tally) {
  FILE* in = fdopen(fd, "r");
  char* line = nullptr;
  size_t room = 0;
  bool whole = false;
  while (getline(&line, &room, in) > 0) {
    char* rest = nullptr;
    const uint64_t seed = std::strtoull(line, &rest, 10);
    if (seed != 0) {
      std::string text(rest + 1);
      if (!text.empty() && text.back() == '\n') text.pop_back();
      tally->failures.push_back({seed, std::move(text)});
      continue;
    }
    unsigned long long done = 0, twice = 0, events = 0;
    double seconds = 0;
    whole = std::sscanf(rest, "%llu %llu %llu %lf", &done, &twice, &events, &seconds) == 4;
    tally->done += done, tally->twice += twice, tally->events += events, tally->seconds += seconds;
  }
  std::free(line);
  std::fclose(in);
  return whole;
}

// Every jobs-th seed in a process of its own: what a seed does depends on nothing else.
Tally run_in_processes(uint64_t first, uint64_t count, uint64_t jobs, uint64_t shown, const RunSeed& run) {
  struct Child {
    pid_t pid = 0;
    int fd = -1;
  };
  std::vector<Child> children;
  std::fflush(stdout);
  for (uint64_t j = 0; j < jobs; ++j) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      close(ends[0]);
      const Range range{first + j, (count - j + jobs - 1) / jobs, jobs, shown, false};
      tell(run_range(range, run), ends[1]);
      _exit(0);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  Tally all;
  for (const auto& child : children) {
    const bool whole = hear(child.fd, &all);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (!whole) all.failures.push_back({0, "a process died at a seed: JOBS=1 shows at which"});
  }
  std::sort(all.failures.begin(), all.failures.end(), [](const auto& a, const auto& b) { return a.seed < b.seed; });
  return all;
}

uint64_t jobs_for(uint64_t count) {
  const uint64_t processors = std::max(1U, std::thread::hardware_concurrency());
  return std::max<uint64_t>(1, std::min({number_from("JOBS", processors), kJobsMax, count / kSeedsOfAJob}));
}

}  // namespace

uint64_t seeds_to_run(const SeedCount& count) {
  const auto seeds = number_from("SEEDS", count.usual);
  return count.narrow ? std::min(seeds, number_from("NARROW_SEEDS", kNarrowSeeds)) : seeds;
}

void run_seeds(const char* what, const SeedCount& seeds, const RunSeed& run) {
  const bool one = std::getenv("SEED") != nullptr;
  const uint64_t first = one ? number_from("SEED", 1) : number_from("FIRST", 1);
  const uint64_t count = one ? 1 : seeds_to_run(seeds);
  const uint64_t shown = number_from("FAILURES", kFailuresShown), jobs = jobs_for(count);
  const Tally all =
      jobs > 1 ? run_in_processes(first, count, jobs, shown, run) : run_range({first, count, 1, shown, one}, run);
  for (const auto& f : all.failures)
    ADD_FAILURE() << what << " seed " << f.seed << ": " << f.text << "\n  repeat: " << repeat_command(f.seed);
  std::printf("%s: %llu seeds (%llu of them twice) in %.1f s of processor time, %.0f seeds/s, %.0f events/seed\n", what,
              static_cast<unsigned long long>(all.done), static_cast<unsigned long long>(all.twice), all.seconds,
              static_cast<double>(all.done + all.twice) / all.seconds,
              static_cast<double>(all.events) / static_cast<double>(all.done ? all.done : 1));
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

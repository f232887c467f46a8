// Seeds: which ones a simulation runs, how it reports, and the proof that a seed decides everything.
//
// Use
//   TEST(SimPush, every_promise_is_kept) {
//     sim::run_seeds("push", 1000, [](uint64_t seed) { World w(seed); w.run(); return w.verdict(); });
//   }
//
//   run_seeds("push in no log", narrow(20), …);       // SEEDS counts for it up to kNarrowSeeds
//
// Environment: SEED=17 runs that one alone; SEEDS=20000 how many, of a narrow simulation at most kNarrowSeeds, or
// NARROW_SEEDS=500; FIRST=1 the first; TRACE=1 prints events; FAILURES=3 how many to show, a process; JOBS=n processes
// (otherwise one a processor), each with every n-th seed. Every kTwiceEvery-th seed is run twice and must give the same
// trace hash. A failure prints the seed and the command that repeats it; after the first kFailuresShown a process ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace cantle::sim {

struct Verdict {
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  std::string violation;  // empty: every promise was kept
};

using RunSeed = std::function<Verdict(uint64_t seed)>;

// How many seeds a simulation runs without SEEDS, and how many at most. A narrow one forces one schedule or one special
// world, so that its seeds differ in little, and more of them than that find nothing.
constexpr uint64_t kNarrowSeeds = 2000;
struct SeedCount {
  SeedCount(uint64_t usual_, bool narrow_ = false) : usual(usual_), narrow(narrow_) {}
  uint64_t usual;
  bool narrow;
};
inline SeedCount narrow(uint64_t usual) { return {usual, true}; }
uint64_t seeds_to_run(const SeedCount& count);

// Runs the seeds and reports failures to GoogleTest; prints seeds per second.
void run_seeds(const char* what, const SeedCount& seeds, const RunSeed& run);

// Simulations by name, for the mutants (mutants.h). A file registers its own with a namespace-scope object:
//   const sim::Simulation push("push", run_push_world);
struct Simulation {
  Simulation(std::string name, RunSeed run);
};
const RunSeed* find_simulation(const std::string& name);

// The program's own name, for the command that repeats a failure.
void set_program(std::string argv0);
const std::string& program();

}  // namespace cantle::sim

// sim [--seeds N] [--mutants NAME…]: the simulator. GoogleTest's flags, and SEED, SEEDS, FIRST, TRACE (seeds.h);
// --seeds N is SEEDS=N; --mutants: mutants.h; MUTANT=NAME breaks what is run in that way (TESTING=1). Anything else is
// refused: who believes that it ran more seeds than it did believes what is not so.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "test/sim/mutants.h"
#include "test/sim/seeds.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cantle::sim::set_program(argv[0]);
  cantle::base::set_log_level(cantle::base::Level::panic);
  if (argc > 1 && std::string_view(argv[1]) == "--mutants") return cantle::sim::run_mutants({argv + 2, argv + argc});
  for (int i = 1; i < argc; i += 2) {
    if (std::string_view(argv[i]) != "--seeds" || i + 1 == argc || std::strtoull(argv[i + 1], nullptr, 10) == 0) {
      std::fprintf(stderr, "usage: sim [--seeds N] [--gtest_...] | sim --mutants NAME...\n");
      return 64;
    }
    ::setenv("SEEDS", argv[i + 1], 1);
  }
  if (const char* mutant = std::getenv("MUTANT")) {
#ifdef CANTLE_TESTING
    cantle::base::set_mutant(mutant);
#else
    std::fprintf(stderr, "sim: MUTANT=%s: mutants are only in builds with TESTING=1\n", mutant);
    return 64;
#endif
  }
  return RUN_ALL_TESTS();
}

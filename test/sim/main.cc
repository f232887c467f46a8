// sim: the simulator. GoogleTest's flags, and SEED, SEEDS, FIRST, TRACE (seeds.h); --mutants (mutants.h).
#include <gtest/gtest.h>

#include "lib/base/log.h"
#include "test/sim/mutants.h"
#include "test/sim/seeds.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cantle::sim::set_program(argv[0]);
  cantle::base::set_log_level(cantle::base::Level::panic);
  if (argc > 1 && std::string_view(argv[1]) == "--mutants") return cantle::sim::run_mutants({argv + 2, argv + argc});
  return RUN_ALL_TESTS();
}

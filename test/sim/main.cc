// sim: the simulator. GoogleTest's flags, and SEED, SEEDS, FIRST, TRACE (seeds.h).
#include <gtest/gtest.h>

#include "lib/base/log.h"
#include "test/sim/seeds.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  cantle::sim::set_program(argv[0]);
  cantle::base::set_log_level(cantle::base::Level::panic);
  return RUN_ALL_TESTS();
}

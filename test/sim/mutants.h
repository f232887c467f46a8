// Mutants: the machines and the store broken on purpose (MUTANT in lib/base/testing.h), one at a time, to see
// that the simulations notice.
//
//   build/release-testing/test/sim --mutants            all of them
//   build/release-testing/test/sim --mutants NAME…      some
//
// A mutant names the simulation that is to catch it, or a scenario: a test of one forced schedule, which is to fail
// with it and with nothing else. Each runs in a process of its own, since a broken machine may fail a CHECK: that
// counts as caught. Printed: how many seeds it took and what was seen. One that is not caught within its limit fails
// the run. SEEDS=n sets the limit.
#pragma once

#include <string>
#include <vector>

namespace cantle::sim {

// Exit status: 0 all caught, 1 some not, 2 not a testing build.
int run_mutants(const std::vector<std::string>& names);

}  // namespace cantle::sim

// Push tables as a whole, under every fault (push_world.h).
#include <gtest/gtest.h>

#include "test/sim/push_world.h"

namespace cantle::sim {
namespace {

const Simulation push("push", run_push_world);

TEST(SimPush, every_promise_is_kept_whatever_goes_wrong) { run_seeds("push", 1000, run_push_world); }

}  // namespace
}  // namespace cantle::sim

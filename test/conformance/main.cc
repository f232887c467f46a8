// The conformance suite: both coordination backends behave alike, the real ZooKeeper among them.
//
//   conformance [--gtest_…]
//   conformance --child ROLE …       what some tests start and kill; see roles.cc
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "lib/base/log.h"

namespace cantle::conformance {
int child_main(int argc, char** argv);
}

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  cantle::base::set_log_level(cantle::base::Level::error);  // faults are what this is about
  if (argc > 2 && std::strcmp(argv[1], "--child") == 0) return cantle::conformance::child_main(argc - 2, argv + 2);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

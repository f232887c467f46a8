// What the suite starts in processes of their own, to stop and kill them.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "lib/base/random.h"
#include "lib/coord/file_env.h"
#include "lib/coord/file_writer.h"
#include "lib/coord/registration.h"
#include "lib/coord/sync_session.h"
#include "lib/io/loop.h"

namespace cantle::conformance {

using namespace std::chrono_literals;

namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// register URL TIMEOUT-MS PATH VALUE INCARNATION: says the session id each time it is registered anew.
int be_registered(char** argv) {
  io::Loop loop;
  auto session = coord::open(loop, {.url = argv[0], .session_timeout = std::chrono::milliseconds(std::atoi(argv[1]))});
  if (!session) return 1;
  coord::LoopTimers timers(loop);
  base::SystemRandom random;
  coord::Registration registration(**session, timers, random, model::Incarnation{std::strtoull(argv[4], nullptr, 10)});
  registration.keep(argv[2], argv[3]);
  registration.on_change([&](bool there) {
    if (there) say(std::to_string((*session)->session_id()));
  });
  (*session)->on_event([&](coord::Event event) { registration.on_event(event); });
  registration.start();
  loop.run();
  return 0;
}

// hold-writer DIR: sits in the middle of a change until it is killed.
int hold_writer(char** argv) {
  auto env = coord::file::Env::open(argv[0]);
  if (!env) return 1;
  static_cast<void>((*env)->writer().run_now([](MDB_txn*) -> base::Status {
    say("holding");
    for (;;) ::pause();
  }));
  return 1;
}

}  // namespace

int child_main(int argc, char** argv) {
  const std::string_view role = argv[0];
  if (role == "register" && argc == 6) return be_registered(argv + 1);
  if (role == "hold-writer" && argc == 2) return hold_writer(argv + 1);
  return 64;
}

}  // namespace cantle::conformance

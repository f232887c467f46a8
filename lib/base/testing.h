// Testing: crash points and mutants. Both exist only in builds with -DCANTLE_TESTING (make TESTING=1);
// elsewhere they are constants that the compiler removes.
//
//   CRASH_POINT("journal.before_sync");       CANTLE_CRASH_AT=journal.before_sync dies there by SIGKILL,
//                                             …=journal.before_sync:3 at the third time.
//   if (MUTANT("ack_before_sync")) …          a fault that the simulation must notice (design/testing.md);
//                                             base::set_mutant("ack_before_sync") switches it on, and so does
//                                             CANTLE_MUTANT=ack_before_sync.
//
// The names of all crash points of a program are known without reaching them: `--list-crash-points`.
// Threads: any.
#pragma once

#include <string_view>
#include <vector>

#ifdef CANTLE_TESTING
namespace cantle::base {
void crash_point_reached(const char* name);
bool mutant_on(std::string_view name);
void set_mutant(std::string_view name);  // "" switches off
}  // namespace cantle::base
// The name goes into a section of the object file as text; duplicates (inlined copies) do no harm.
#define CRASH_POINT(name)                                                         \
  do {                                                                            \
    asm(".pushsection cantle_crash,\"a\"\n\t.asciz \"" name "\"\n\t.popsection"); \
    ::cantle::base::crash_point_reached(name);                                    \
  } while (0)
#define MUTANT(name) ::cantle::base::mutant_on(name)
#else
#define CRASH_POINT(name) \
  do {                    \
  } while (0)
#define MUTANT(name) false
#endif

namespace cantle::base {
// The names of this program's crash points, sorted; empty in builds without them.
std::vector<std::string_view> crash_points();
}  // namespace cantle::base

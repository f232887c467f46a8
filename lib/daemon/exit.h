// Exit statuses (design/interface.md), and the one table from error codes to them.
//
// clang-format off
// | status                           | codes                                                                    |
// |----------------------------------|--------------------------------------------------------------------------|
// | 1  failed or refused             | malformed invalid too_large no_space io_error corrupt faulted diverged … |
// | 2  differences or findings       | (returned by the verb itself)                                            |
// | 3  not there, not running        | not_found no_such_table                                                  |
// | 4  conflict or precondition      | conflict condition_failed exists not_empty                               |
// | 5  unsafe without a flag         | unsafe() below                                                           |
// | 7  outcome unknown               | outcome_unknown                                                          |
// | 64 wrong usage                   | usage                                                                    |
// | 69 service unavailable           | unavailable                                                              |
// | 75 temporary, retry              | stale_route not_leader no_quorum catching_up overloaded read_only cancelled |
// | 77 denied                        | denied                                                                   |
// | 78 wrong configuration, identity | identity; a configuration file that cannot be used                       |
// clang-format on
#pragma once

#include "lib/base/result.h"

namespace cantle::daemon {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitFindings = 2;
constexpr int kExitNotThere = 3;
constexpr int kExitConflict = 4;
constexpr int kExitUnsafe = 5;
constexpr int kExitUnknown = 7;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr int kExitTemporary = 75;
constexpr int kExitDenied = 77;
constexpr int kExitConfig = 78;

int exit_status(const base::Error& error);

// The refusal of something that would lose data: "what; --flag does it all the same". Exit status 5.
base::Error unsafe(std::string what, std::string flag);

}  // namespace cantle::daemon

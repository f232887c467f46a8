#include "lib/daemon/exit.h"

namespace cantle::daemon {
namespace {

constexpr const char* kUnsafeDetail = "unsafe";

}  // namespace

base::Error unsafe(std::string what, std::string flag) {
  base::Error error(base::Code::condition_failed, std::move(what) + "; " + std::move(flag) + " does it all the same");
  error.detail = kUnsafeDetail;
  return error;
}

int exit_status(const base::Error& error) {
  using base::Code;
  if (error.code == Code::condition_failed && error.detail == kUnsafeDetail) return kExitUnsafe;
  switch (error.code) {
    case Code::not_found:
    case Code::no_such_table: return kExitNotThere;
    case Code::conflict:
    case Code::condition_failed:
    case Code::exists:
    case Code::not_empty: return kExitConflict;
    case Code::outcome_unknown: return kExitUnknown;
    case Code::usage: return kExitUsage;
    case Code::unavailable: return kExitUnavailable;
    case Code::stale_route:
    case Code::not_leader:
    case Code::no_quorum:
    case Code::catching_up:
    case Code::overloaded:
    case Code::cancelled:
    case Code::read_only: return kExitTemporary;
    case Code::denied: return kExitDenied;
    case Code::identity: return kExitConfig;
    case Code::malformed:
    case Code::invalid:
    case Code::too_large:
    case Code::series_old:
    case Code::series_expired:
    case Code::snapshot_too_old:
    case Code::feed_lost:
    case Code::diverged:
    case Code::faulted:
    case Code::regressed:
    case Code::io_error:
    case Code::corrupt:
    case Code::no_space: return kExitFailed;
  }
  return kExitFailed;
}

}  // namespace cantle::daemon

#include "lib/base/result.h"

#include <array>
#include <cerrno>
#include <system_error>

namespace cantle::base {
namespace {

struct Named {
  Code code;
  std::string_view name;
};

constexpr std::array kNames = {
    Named{Code::malformed, "MALFORMED"},
    Named{Code::invalid, "INVALID"},
    Named{Code::too_large, "TOO_LARGE"},
    Named{Code::no_such_table, "NO_SUCH_TABLE"},
    Named{Code::denied, "DENIED"},
    Named{Code::not_found, "NOT_FOUND"},
    Named{Code::condition_failed, "CONDITION_FAILED"},
    Named{Code::stale_route, "STALE_ROUTE"},
    Named{Code::not_leader, "NOT_LEADER"},
    Named{Code::unavailable, "UNAVAILABLE"},
    Named{Code::no_quorum, "NO_QUORUM"},
    Named{Code::catching_up, "CATCHING_UP"},
    Named{Code::overloaded, "OVERLOADED"},
    Named{Code::read_only, "READ_ONLY"},
    Named{Code::conflict, "CONFLICT"},
    Named{Code::outcome_unknown, "OUTCOME_UNKNOWN"},
    Named{Code::series_old, "SERIES_OLD"},
    Named{Code::series_expired, "SERIES_EXPIRED"},
    Named{Code::snapshot_too_old, "SNAPSHOT_TOO_OLD"},
    Named{Code::feed_lost, "FEED_LOST"},
    Named{Code::diverged, "DIVERGED"},
    Named{Code::faulted, "FAULTED"},
    Named{Code::regressed, "REGRESSED"},
    Named{Code::io_error, "IO_ERROR"},
    Named{Code::corrupt, "CORRUPT"},
    Named{Code::exists, "EXISTS"},
    Named{Code::not_empty, "NOT_EMPTY"},
    Named{Code::no_space, "NO_SPACE"},
    Named{Code::cancelled, "CANCELLED"},
    Named{Code::usage, "USAGE"},
    Named{Code::identity, "IDENTITY"},
};

}  // namespace

std::string_view code_name(Code code) {
  for (const auto& named : kNames)
    if (named.code == code) return named.name;
  return "FAULTED";
}

Code code_from_name(std::string_view name) {
  for (const auto& named : kNames)
    if (named.name == name) return named.code;
  return Code::faulted;
}

Error Error::wrap(std::string_view context) && {
  text = std::string(context) + ": " + text;
  return std::move(*this);
}

std::string to_string(const Error& error) { return std::string(code_name(error.code)) + ": " + error.text; }

Error errno_error(std::string_view what, int err) {
  const auto code = err == ENOSPC || err == EDQUOT ? Code::no_space : Code::io_error;
  return Error(code, std::string(what) + ": " + std::generic_category().message(err));
}

}  // namespace cantle::base

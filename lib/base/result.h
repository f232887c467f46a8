// Result, Error and Code: expected failures are values.
//
// A Code is what a program acts on, the text is what a person acts on. The codes are those of the
// wire protocol (design/interface.md, the table of error codes), so that an error can travel from
// the place where it happened to the client without a translation table on the way; a few at the
// end never leave a process.
//
// Use
//   Result<Block> read(...);             // value or Error
//   TRY(sync());                         // return the error of a Status or Result
//   TRY_ASSIGN(auto block, read(...));   // or bind the value
//   return std::move(r).error().wrap("reading segment 7");
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace cantle::base {

enum class Code : uint8_t {
  // Give up; the text says what and where.
  malformed = 1,
  invalid,
  too_large,
  no_such_table,
  denied,
  // An answer, not a failure.
  not_found,
  condition_failed,
  // Refresh the map and retry.
  stale_route,
  not_leader,
  unavailable,  // It did not happen; retry.
  // Wait and retry.
  no_quorum,
  catching_up,
  overloaded,
  read_only,
  // Somebody else was first: look again, decide again.
  conflict,
  // It may have happened: look before retrying. A connection lost during a compare-and-swap is this.
  outcome_unknown,
  // It came too late.
  series_old,
  series_expired,
  snapshot_too_old,
  feed_lost,
  // An operator should look.
  diverged,
  faulted,
  regressed,
  // Local to a process; on the wire they become `faulted`.
  io_error,
  corrupt,
  exists,     // create: there already
  not_empty,  // remove: has children
  no_space,
  cancelled,
  usage,     // wrong command line or configuration
  identity,  // wrong identity: exit status 78
};

// The spelling on the wire and in --json: upper case with underscores, "STALE_ROUTE".
std::string_view code_name(Code code);
// The inverse; `faulted` for a name this version does not know.
Code code_from_name(std::string_view name);

struct Error {
  Code code = Code::faulted;
  std::string text;
  uint64_t txnseq = 0;          // stale_route: the current one; 0 = not said
  uint32_t retry_after_ms = 0;  // 0 = not said
  std::string detail;           // machine-readable extra: leader, reason, version in hex

  Error() = default;
  Error(Code c, std::string t) : code(c), text(std::move(t)) {}

  // Adds context in front of the text: "context: text".
  Error wrap(std::string_view context) &&;
  friend bool operator==(const Error&, const Error&) = default;
};

// "CODE: text", for logs and for people.
std::string to_string(const Error& error);

template <class T>
using Result = tl::expected<T, Error>;
struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) = default;
};
using Status = Result<Nothing>;

inline Status ok() { return Nothing{}; }
inline tl::unexpected<Error> fail(Code code, std::string text) {
  return tl::unexpected<Error>(Error(code, std::move(text)));
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }
// io_error (no_space for ENOSPC and EDQUOT) with strerror(err) appended: "what: No such file".
Error errno_error(std::string_view what, int err);

}  // namespace cantle::base

#define CANTLE_CONCAT_(a, b) a##b
#define CANTLE_CONCAT(a, b) CANTLE_CONCAT_(a, b)
#define TRY(expr)                                                                   \
  do {                                                                              \
    if (auto try_status_ = (expr); !try_status_)                                    \
      return tl::unexpected<::cantle::base::Error>(std::move(try_status_).error()); \
  } while (0)
#define TRY_ASSIGN_(tmp, lhs, expr)                                               \
  auto tmp = (expr);                                                              \
  if (!tmp) return tl::unexpected<::cantle::base::Error>(std::move(tmp).error()); \
  lhs = std::move(*tmp)
#define TRY_ASSIGN(lhs, expr) TRY_ASSIGN_(CANTLE_CONCAT(try_value_, __LINE__), lhs, expr)

// Attempts: what becomes of one request after each answer that was not a success (the table of error codes in
// cantle-protocol(7)). Pure: time and randomness come in.
//
// Use
//   Attempts attempts(options, now);
//   … send with attempts.version() …
//   const auto next = attempts.failed(error, now, others_left, random);
//   if (next.retry) wait next.delay, refresh the map if next.refresh, choose another server if next.elsewhere
//   else            answer attempts.answer()
//
// Invariants
//   * Once an attempt may have happened, the answer is a success or OUTCOME_UNKNOWN, never "it did not happen":
//     a later refusal says nothing about the earlier attempt (S27). But that a numbered one's condition did not hold
//     is remembered with its number (lib/model/series.h): that is so of every attempt.
//   * A write whose version is known is only ever repeated with that version, and a numbered one with its number
//     (idempotent).
//   * There is no retry whose delay would end past the deadline.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/base/random.h"
#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/version.h"

namespace cantle::client {

constexpr base::Duration kBackoffMin = std::chrono::milliseconds(4);
constexpr base::Duration kBackoffMax = std::chrono::milliseconds(400);

struct RetryOptions {
  base::Duration deadline = std::chrono::seconds(10);  // for all attempts together
  // Repeat a write whose outcome is unknown, that has no number, and whose version nobody told: it is then a new write.
  // Off for histories that must tell one write from two. Reads are repeated.
  bool repeat_unknown = true;
};

struct Next {
  bool retry = false;
  base::Duration delay{0};
  bool refresh = false;    // look for a newer map first …
  model::TxnSeq at_least;  // … at or past this one, if it is said
  bool elsewhere = false;  // another server may do better
};

class Attempts {
 public:
  Attempts(const RetryOptions& options, base::Instant begun);

  // An attempt failed with `error`. `others_left`: servers of the partition not tried since the last delay.
  Next failed(const base::Error& error, base::Instant now, size_t others_left, base::Random& random);

  // To repeat it is the same request from now on: it reads, or is sent with a number.
  void repeatable() { repeatable_ = true; }

  base::Instant deadline() const { return deadline_; }
  uint32_t failures() const { return failures_; }
  bool maybe_happened() const { return maybe_happened_; }
  // To send with the next attempt of a write.
  const std::optional<model::Version>& version() const { return version_; }
  // What the caller is told when there is no retry, or when it ended with `last`.
  base::Error answer() const { return answer(last_); }
  base::Error answer(const base::Error& last) const;

 private:
  base::Duration backoff(base::Random& random);
  Next again(base::Instant now, base::Duration delay, bool refresh, bool elsewhere);

  RetryOptions options_;
  base::Instant deadline_;
  uint32_t failures_ = 0, waits_ = 0, named_ = 0;
  bool maybe_happened_ = false, repeatable_ = false;
  std::optional<model::Version> version_;
  base::Error last_;
};

}  // namespace cantle::client

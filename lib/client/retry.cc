#include "lib/client/retry.h"

#include <algorithm>

#include "lib/base/bytes.h"

namespace cantle::client {

using base::Code;
using base::Duration;

Attempts::Attempts(const RetryOptions& options, base::Instant begun)
    : options_(options), deadline_(begun + options.deadline) {}

Next Attempts::failed(const base::Error& error, base::Instant now, size_t others_left, base::Random& random) {
  ++failures_;
  last_ = error;
  const Duration told = std::chrono::milliseconds(error.retry_after_ms);
  // A server that cannot is left at once while there are others to ask; then everybody waits.
  const auto pause = [&] { return others_left > 0 ? Duration::zero() : std::max(told, backoff(random)); };
  switch (error.code) {
    case Code::stale_route: {
      // The first refresh is free: a split has just ended and the new map is there.
      auto next = again(now, failures_ == 1 ? Duration::zero() : backoff(random), true, false);
      next.at_least.value = error.txnseq;
      return next;
    }
    case Code::not_leader: {
      // Named at the first time: it is asked at once. They may name each other for a while after that.
      const bool named = !error.detail.empty() && named_++ == 0;
      return again(now, named ? Duration::zero() : pause(), error.detail.empty(), true);
    }
    case Code::unavailable: return again(now, pause(), true, true);
    case Code::catching_up:
    case Code::read_only: return again(now, pause(), false, true);
    case Code::no_quorum:
    case Code::overloaded: return again(now, std::max(told, backoff(random)), false, false);
    case Code::outcome_unknown: {
      maybe_happened_ = true;
      if (const auto raw = base::from_hex(error.detail); raw && !version_)
        if (const auto version = model::Version::from_bytes(*raw)) version_ = *version;
      if (!version_ && !repeatable_ && !options_.repeat_unknown) return {};
      return again(now, pause(), true, true);
    }
    default: return {};
  }
}

Next Attempts::again(base::Instant now, Duration delay, bool refresh, bool elsewhere) {
  if (now + delay >= deadline_) return {};
  return {.retry = true, .delay = delay, .refresh = refresh, .at_least = {}, .elsewhere = elsewhere};
}

// Doubles, and is spread over its upper half, so that those who failed together do not come back together.
Duration Attempts::backoff(base::Random& random) {
  const Duration whole = std::min(kBackoffMax, kBackoffMin * (1 << std::min(waits_++, 10u)));
  return whole / 2 + Duration(random.below(static_cast<uint64_t>(whole.count() / 2)));
}

base::Error Attempts::answer(const base::Error& last) const {
  if (!maybe_happened_ || last.code == Code::outcome_unknown) return last;
  if (repeatable_ && last.code == Code::condition_failed) return last;
  base::Error unknown(Code::outcome_unknown, "an earlier attempt may have happened; the last said " + to_string(last));
  if (version_) unknown.detail = to_string(*version_);
  return unknown;
}

}  // namespace cantle::client

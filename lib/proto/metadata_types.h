// What the machines of METADATA share: TableConfig with its version, and how a compare-and-swap ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/metadata.h"
#include "lib/model/table_config.h"

namespace cantle::proto {

using MapPtr = std::shared_ptr<const model::Metadata>;

struct VersionedConfig {
  model::TableConfig config;
  int32_t version = 0;
  friend bool operator==(const VersionedConfig&, const VersionedConfig&) = default;
};
// A read after a sync: what stands there; nullopt: there is no such table. An error says nothing.
using ConfigAnswer = base::Result<std::optional<VersionedConfig>>;

enum class SwapResult : uint8_t {
  done = 1,
  conflict,  // refused: another version, or (creating) it exists: this swap will not happen
  refused,   // something that it rests on besides is not so any more: it will never happen as it is
  unsent,    // known not to have reached anybody
  unknown,   // it may have happened, or happen yet (S27)
};
// As the coordination service answered a change.
inline SwapResult swap_result(const base::Error& error) {
  switch (error.code) {
    case base::Code::outcome_unknown: return SwapResult::unknown;
    case base::Code::unavailable: return SwapResult::unsent;
    default: return SwapResult::conflict;
  }
}
template <class T>
SwapResult swap_result(const base::Result<T>& answer) {
  return answer ? SwapResult::done : swap_result(answer.error());
}

// Waits: attempts that failed are repeated after these, doubled each time.
constexpr base::Duration kMetadataRetryFirst = std::chrono::milliseconds(50);
constexpr base::Duration kMetadataRetryMost = std::chrono::seconds(1);
constexpr base::Duration kMdChangeDeadline = std::chrono::seconds(10);  // when the requester names none
constexpr base::Duration kMdChangeDeadlineMax = std::chrono::seconds(60);
constexpr base::Duration kMdResolve =
    std::chrono::seconds(3);  // behind the deadline, to find out what became of a swap

// The wait between attempts.
class Backoff {
 public:
  // Plans the next attempt.
  void failed(base::Instant now) {
    wait_ = wait_.count() == 0 ? kMetadataRetryFirst : std::min(wait_ * 2, kMetadataRetryMost);
    due_ = now + wait_;
    planned_ = true;
  }
  void reset() { wait_ = {}, planned_ = false; }
  void cancel() { planned_ = false; }
  // True once, when the planned attempt is due.
  bool take(base::Instant now) {
    if (!planned_ || now < due_) return false;
    planned_ = false;
    return true;
  }
  bool planned() const { return planned_; }

 private:
  base::Duration wait_{0};
  base::Instant due_;
  bool planned_ = false;
};

}  // namespace cantle::proto

// Drive: follows one split or merge to its end, driving it unless told only to look, and tells people how it goes.
#pragma once

#include <optional>
#include <string>

#include "cmd/splitter/cluster.h"
#include "lib/proto/drivers.h"

namespace cantle::splitter {

struct DriveOptions {
  bool drive = true;      // false: only look
  bool abort = false;     // have it aborted
  bool progress = false;  // also where stderr is no terminal
  std::string timeout;    // empty: none
};

enum class DriveEnd : uint8_t { done, aborted, failed, detached, timed_out };
struct Driven {
  DriveEnd end = DriveEnd::detached;
  std::string reason;
  double seconds = 0;
};
constexpr base::Duration kChangeTimeout = std::chrono::seconds(20);
// A change, once. Ctrl-C and the limit end the waiting: outcome_unknown.
base::Result<model::MdChangeReply> commit(Cluster& cluster, const client::ChangeSpec& spec, base::Duration limit);
// Until the operation ends, the timeout, or SIGINT or SIGTERM, which detach: it goes on without us.
base::Result<Driven> drive(Cluster& cluster, const std::string& table, proto::OpKind kind,
                           const model::AttemptId& attempt, const DriveOptions& options);

std::string_view to_string(DriveEnd end);

}  // namespace cantle::splitter

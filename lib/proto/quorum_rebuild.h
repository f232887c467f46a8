// Rebuild: how a replica of a quorum table gets a snapshot in the place of a copy whose log its leader cannot continue
// (design/replication.md, "outside the session"; lib/model/quorum_snapshot.h).
//
// Use
//   Rebuild rebuild(place);                     // as the store has it: what came in a life before stays
//   rebuild.told(now, leader, out);             // the leader said: you need one
//   rebuild.pulled(now, number, place, out);    // a part came, and is durable; or why not
//   rebuild.installed(now, status, out);
//   rebuild.tick(now, out);                     // at next_tick()
//
// Parts are pulled one after the other from the leader that said so: it keeps the log behind its snapshot, so that its
// pipe can go on from there. A part that did not come is asked for again; a snapshot that is not there any more is
// begun anew, and so is one that turned out to be older than the log here. The leader says it every time that it opens
// the pipe and finds nothing in common; when it has not for kToldMost, nothing is asked for any more, and what came
// stays.
//
// Invariants
//   * It installs only what is complete. Until that is done the old copy is the copy, with all that it answers.
//   * One thing is asked for at a time; an answer to an older question changes nothing.
#pragma once

#include <algorithm>
#include <optional>

#include "lib/model/quorum_snapshot.h"
#include "lib/proto/quorum_types.h"

namespace cantle::proto::quorum {

constexpr base::Duration kToldMost = std::chrono::seconds(5);     // the leader's word counts
constexpr base::Duration kPartTimeout = std::chrono::seconds(5);  // the shell's, for one part
constexpr base::Duration kRebuildAgain = std::chrono::milliseconds(100), kRebuildAgainMost = std::chrono::seconds(2);

class Rebuild {
 public:
  explicit Rebuild(model::SnapshotPlace place) : place_(std::move(place)) {}

  void told(base::Instant now, const model::Hop& leader, Effects& out);
  void pulled(base::Instant now, uint64_t number, const base::Result<model::SnapshotPlace>& place, Effects& out);
  void installed(base::Instant now, const base::Status& status, Effects& out);
  void tick(base::Instant now, Effects& out);
  // It leads: its log is what there is.
  void stop() { from_.reset(); }

  bool busy() const { return from_.has_value(); }
  bool installing() const { return installing_; }
  const model::SnapshotPlace& place() const { return place_; }
  base::Instant next_tick(base::Instant now) const {
    return busy() && !asked_ && !installing_ ? std::max(again_, now) : now + kToldMost;
  }

 private:
  void go_on(base::Instant now, Effects& out);
  void later(base::Instant now);

  std::optional<model::Hop> from_;
  base::Instant told_at_{}, again_{};
  base::Duration backoff_ = kRebuildAgain;
  model::SnapshotPlace place_;
  std::optional<uint64_t> asked_;
  uint64_t number_ = 0;
  bool installing_ = false;
};

}  // namespace cantle::proto::quorum

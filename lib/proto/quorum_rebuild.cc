#include "lib/proto/quorum_rebuild.h"

#include "lib/base/testing.h"

namespace cantle::proto::quorum {

using base::Code;
using base::Instant;
using model::SnapshotPlace;

void Rebuild::told(Instant now, const model::Hop& leader, Effects& out) {
  if (from_ != leader) {
    out.emplace_back(Say{base::Level::notice, "rebuild", "a snapshot is pulled from " + leader.server.name});
    backoff_ = kRebuildAgain;
    again_ = now;
  }
  from_ = leader;
  told_at_ = now;
  go_on(now, out);
}

void Rebuild::go_on(Instant now, Effects& out) {
  if (!from_ || asked_ || installing_ || now < again_) return;
  if (place_.all || (MUTANT("install_before_complete") && place_.records_done)) {
    installing_ = true;
    out.emplace_back(InstallSnapshot{});
    return;
  }
  asked_ = ++number_;
  out.emplace_back(PullSnapshot{*from_, number_, place_});
}

void Rebuild::later(Instant now) {
  again_ = now + backoff_;
  backoff_ = std::min(backoff_ * 2, kRebuildAgainMost);
}

void Rebuild::pulled(Instant now, uint64_t number, const base::Result<SnapshotPlace>& place, Effects& out) {
  if (asked_ != number) return;
  asked_.reset();
  if (place) {
    place_ = *place;
    backoff_ = kRebuildAgain;
    return go_on(now, out);
  }
  const auto code = place.error().code;
  out.emplace_back(Say{base::Level::info, "rebuild", "a part of the snapshot: " + to_string(place.error())});
  if (code == Code::not_found || code == Code::invalid || code == Code::malformed) place_ = {};
  later(now);
}

void Rebuild::installed(Instant now, const base::Status& status, Effects& out) {
  if (!installing_) return;
  installing_ = false;
  if (status) {
    out.emplace_back(Say{base::Level::notice, "rebuild", "the snapshot has taken the copy's place"});
    place_ = {};
    from_.reset();
    return;
  }
  out.emplace_back(
      Say{base::Level::warn, "rebuild", "the snapshot could not be installed: " + to_string(status.error())});
  // What is older than the own log is of no use.
  if (status.error().code == Code::conflict || status.error().code == Code::invalid) place_ = {};
  later(now);
}

void Rebuild::tick(Instant now, Effects& out) {
  if (from_ && now - told_at_ >= kToldMost && !installing_) from_.reset();
  go_on(now, out);
}

}  // namespace cantle::proto::quorum

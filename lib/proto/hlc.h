// Hlc and PeerClocks: how push tables stamp versions, and when a clock is not to be trusted.
//
// Hlc stamps records: milliseconds of the wall clock, or of the newest version seen if that is ahead, with a
// counter that orders stamps of one millisecond. PeerClocks compares this server's clock with its peers'.
//
// Use
//   Hlc hlc(number, incarnation, newest_version_in_log_or_root);
//   auto v = hlc.stamp(wall_ms);            // above everything observed and stamped
//   hlc.observe(received);                  // after too_far_ahead(received, wall_ms) said no
//
// Invariants
//   * stamp() grows strictly, whatever the wall clock does (R33): versions never go back.
//   * A version more than kSkewMax ahead of the wall clock is never observed, so one bad clock cannot drag others.
//
// Units: milliseconds of UTC; offsets are peer minus own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/version.h"

namespace cantle::proto {

constexpr uint64_t kSkewMaxMs = 5000;  // a clock or a version further off is not trusted
constexpr base::Duration kClockSampleAge = std::chrono::seconds(10);

// `version` is so far ahead of `wall` that it must be refused.
inline bool too_far_ahead(const model::Version& version, base::WallMs wall) { return version.ms() > wall + kSkewMaxMs; }

class Hlc {
 public:
  Hlc(model::ServerNumber number, model::Incarnation incarnation, const model::Version& newest)
      : number_(number), incarnation_(incarnation), last_(newest) {}

  model::Version stamp(base::WallMs wall);
  void observe(const model::Version& version) {
    if (version > last_) last_ = version;
  }
  const model::Version& last() const { return last_; }
  // Milliseconds that the next stamp would be ahead of `wall`; 0 if it would not.
  uint64_t ahead_ms(base::WallMs wall) const { return last_.ms() > wall ? last_.ms() - wall : 0; }

 private:
  model::ServerNumber number_;
  model::Incarnation incarnation_;
  model::Version last_;
};

// Median of what peers' clocks say. A jump of the own clock makes every older sample void: until a peer has
// been heard again the clock is `suspect` (there is none to ask: it is taken as it is).
class PeerClocks {
 public:
  // At every turn: notices that the wall clock jumped against the steady one.
  void tick(base::Instant now, base::WallMs wall);
  // A peer's clock said `peer_wall`, just now.
  void heard(const model::ServerId& peer, base::WallMs peer_wall, base::Instant now, base::WallMs wall);
  void forget(const model::ServerId& peer) { samples_.erase(peer); }

  // Median of the fresh samples' offsets, of two middle ones the smaller in size; nothing without samples.
  std::optional<int64_t> median(base::Instant now) const;
  std::optional<int64_t> offset(const model::ServerId& peer, base::Instant now) const;
  // More than kSkewMaxMs from the median, or jumped and not yet compared although `has_peers`.
  bool distrusted(base::Instant now, bool has_peers) const;

 private:
  struct Sample {
    int64_t offset_ms;
    base::Instant at;
  };
  std::map<model::ServerId, Sample> samples_;
  std::optional<int64_t> base_ms_;  // wall minus steady clock, at the last tick
  bool jumped_ = false;
};

}  // namespace cantle::proto

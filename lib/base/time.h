// Time: instants of a steady clock, wall-clock milliseconds, and the clock interface.
//
// Machines never ask a clock: they are told (`Tick{now}`). Shells own a SystemClock.
//
// Units: Instant and Duration count nanoseconds. An Instant is CLOCK_BOOTTIME (it goes on while the
// host is suspended, S8) and means nothing on another host. WallMs is UTC milliseconds since 1970.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace cantle::base {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;

struct Instant {
  Duration since_boot{0};
  auto operator<=>(const Instant&) const = default;
};
inline Instant operator+(Instant a, Duration d) { return {a.since_boot + d}; }
inline Instant operator-(Instant a, Duration d) { return {a.since_boot - d}; }
inline Duration operator-(Instant a, Instant b) { return a.since_boot - b.since_boot; }

using WallMs = uint64_t;

inline int64_t to_ms(Duration d) { return std::chrono::duration_cast<std::chrono::milliseconds>(d).count(); }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() = 0;
  virtual WallMs wall_ms() = 0;
};

class SystemClock final : public Clock {
 public:
  Instant now() override;
  WallMs wall_ms() override;
};

}  // namespace cantle::base

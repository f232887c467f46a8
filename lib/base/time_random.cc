#include <sys/random.h>
#include <time.h>

#include "lib/base/check.h"
#include "lib/base/random.h"
#include "lib/base/time.h"

namespace cantle::base {

Instant SystemClock::now() {
  timespec ts{};
  CHECK(clock_gettime(CLOCK_BOOTTIME, &ts) == 0);
  return {std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec)};
}

WallMs SystemClock::wall_ms() {
  timespec ts{};
  CHECK(clock_gettime(CLOCK_REALTIME, &ts) == 0);
  return static_cast<WallMs>(ts.tv_sec) * 1000 + static_cast<WallMs>(ts.tv_nsec) / 1000000;
}

uint64_t Random::below(uint64_t bound) {
  if (bound == 0) return 0;
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t x = u64();
  while (x >= limit) x = u64();
  return x % bound;
}

bool Random::chance(double p) { return static_cast<double>(u64() >> 11) * 0x1.0p-53 < p; }

uint64_t SystemRandom::u64() {
  uint64_t x = 0;
  CHECK(getrandom(&x, sizeof x, 0) == static_cast<ssize_t>(sizeof x));
  return x;
}

SeededRandom::SeededRandom(uint64_t seed) {
  for (auto& s : s_) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    s = z ^ (z >> 31);
  }
}

uint64_t SeededRandom::u64() {
  const auto rotl = [](uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
  const uint64_t result = rotl(s_[1] * 5, 7) * 9;
  const uint64_t t = s_[1] << 17;
  s_[2] ^= s_[0];
  s_[3] ^= s_[1];
  s_[1] ^= s_[2];
  s_[0] ^= s_[3];
  s_[2] ^= t;
  s_[3] = rotl(s_[3], 45);
  return result;
}

}  // namespace cantle::base

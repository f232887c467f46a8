// Random: the source of ids and jitter. Machines get one passed in, so that one seed decides a
// simulation; daemons use SystemRandom, which asks the kernel.
#pragma once

#include <cstdint>

namespace cantle::base {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t u64() = 0;
  // In [0, bound); 0 for bound 0.
  uint64_t below(uint64_t bound);
  // True with probability p, 0 ≤ p ≤ 1.
  bool chance(double p);
};

// getrandom(2). Threads: each its own.
class SystemRandom final : public Random {
 public:
  uint64_t u64() override;
};

// xoshiro256** seeded by splitmix64: fast, and the same numbers on every machine.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed);
  uint64_t u64() override;

 private:
  uint64_t s_[4];
};

}  // namespace cantle::base

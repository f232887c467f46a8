// Timers: how the helpers of this room wait, so that a simulation can drive them as well.
//
//   coord::LoopTimers timers(loop);      // in a daemon or a tool
//
// A function given to after() is called once, later, from the loop, or never if the Timers die first.
// There is no cancelling: whoever may be gone by then lets the function find out (a weak pointer).
#pragma once

#include <functional>
#include <memory>

#include "lib/base/time.h"

namespace cantle::io {
class Loop;
}

namespace cantle::coord {

class Timers {
 public:
  virtual ~Timers() = default;
  virtual base::Instant now() = 0;
  virtual void after(base::Duration delay, std::function<void()> fn) = 0;
};

class LoopTimers final : public Timers {
 public:
  explicit LoopTimers(io::Loop& loop);
  ~LoopTimers() override;
  base::Instant now() override;
  void after(base::Duration delay, std::function<void()> fn) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace cantle::coord

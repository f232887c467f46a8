// Timer: calls a function after a delay, once or again and again.
//
//   io::Timer timer(loop, [this] { tick(); });
//   timer.start(100ms);            // restarts it if it runs
//   timer.start(100ms, 1s);
//
// Units: durations are rounded up to milliseconds, at least 1 ms (sooner: Loop::defer). Never early.
// Ownership: may be destroyed inside its own callback; does not own the loop and dies before it.
// What the callback has captured is released when the loop has closed the handle, at its next turn.
#pragma once

#include <functional>
#include <memory>

#include "lib/base/time.h"

namespace cantle::io {

class Loop;

class Timer {
 public:
  Timer(Loop& loop, std::function<void()> fn);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void start(base::Duration delay, base::Duration repeat = base::Duration::zero());
  void stop();
  bool active() const;

 private:
  struct State;
  State* state_;
};

}  // namespace cantle::io

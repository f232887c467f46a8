#include "test/sim/executor.h"

#include <algorithm>

namespace cantle::sim {

void SimExecutor::run(store::Lane lane, Fn task, Fn done) {
  auto& scheduler = process_.scheduler();
  Duration takes = scheduler.between(times_.task_min, times_.task_max);
  if (times_.slow > 0 && scheduler.random().chance(times_.slow)) takes = scheduler.between(takes, times_.slow_max);
  const Duration back = scheduler.between(times_.done_min, times_.done_max);
  Instant runs = scheduler.now() + takes, ends = runs + back;
  if (lane != store::Lane::read) {
    auto& free_at = free_at_[static_cast<size_t>(lane)];
    runs = std::max(scheduler.now(), free_at) + takes;
    ends = free_at = runs + back;
  }
  // Two events, so that a crash can come between: done and nobody told.
  process_.after(runs - scheduler.now(), [here = here_, t = std::move(task)] {
    if (*here && t) t();
  });
  process_.after(ends - scheduler.now(), [here = here_, d = std::move(done)] {
    if (*here && d) d();
  });
}

void SimExecutor::after(base::Duration delay, Fn fn) {
  process_.after(delay, [here = here_, f = std::move(fn)] {
    if (*here) f();
  });
}

void SimExecutor::defer(Fn fn) {
  process_.post([here = here_, f = std::move(fn)] {
    if (*here) f();
  });
}

}  // namespace cantle::sim

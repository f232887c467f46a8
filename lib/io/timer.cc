#include "lib/io/timer.h"

#include <uv.h>

#include <algorithm>

#include "lib/base/check.h"
#include "lib/io/loop.h"

namespace cantle::io {

// Lives until the loop has closed the handle: a timer may be destroyed inside its own function.
struct Timer::State {
  uv_timer_t handle{};
  std::function<void()> fn;
  bool owned = true;
};

namespace {

uint64_t whole_ms(base::Duration d) {
  const auto ns = std::max<int64_t>(d.count(), 1);
  return static_cast<uint64_t>((ns + 999999) / 1000000);
}

}  // namespace

Timer::Timer(Loop& loop, std::function<void()> fn) : state_(new State) {
  state_->fn = std::move(fn);
  CHECK(uv_timer_init(loop.raw(), &state_->handle) == 0);
  state_->handle.data = state_;
}

Timer::~Timer() {
  state_->owned = false;
  uv_close(reinterpret_cast<uv_handle_t*>(&state_->handle),
           [](uv_handle_t* h) { delete static_cast<State*>(h->data); });
}

void Timer::start(base::Duration delay, base::Duration repeat) {
  // The loop's idea of the time may be a long callback old: the timer would be early.
  uv_update_time(state_->handle.loop);
  const auto fire = [](uv_timer_t* h) {
    auto* state = static_cast<State*>(h->data);
    if (state->owned) state->fn();
  };
  // +1: the loop's clock is cut to milliseconds.
  CHECK(uv_timer_start(&state_->handle, fire, whole_ms(delay) + 1, repeat.count() == 0 ? 0 : whole_ms(repeat)) == 0);
}

void Timer::stop() { uv_timer_stop(&state_->handle); }
bool Timer::active() const { return uv_is_active(reinterpret_cast<const uv_handle_t*>(&state_->handle)) != 0; }

}  // namespace cantle::io

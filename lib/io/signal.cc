#include "lib/io/signal.h"

#include <uv.h>

#include "lib/base/check.h"
#include "lib/io/loop.h"

namespace cantle::io {

struct Signal::State {
  uv_signal_t handle{};
  std::function<void()> fn;
  bool owned = true;
};

Signal::Signal(Loop& loop, int number, std::function<void()> fn) : state_(new State) {
  state_->fn = std::move(fn);
  CHECK(uv_signal_init(loop.raw(), &state_->handle) == 0);
  state_->handle.data = state_;
  const auto fire = [](uv_signal_t* h, int) {
    auto* state = static_cast<State*>(h->data);
    if (state->owned) state->fn();
  };
  CHECK(uv_signal_start(&state_->handle, fire, number) == 0);
}

Signal::~Signal() {
  state_->owned = false;
  uv_close(reinterpret_cast<uv_handle_t*>(&state_->handle),
           [](uv_handle_t* h) { delete static_cast<State*>(h->data); });
}

}  // namespace cantle::io

#include "lib/coord/timers.h"

#include <map>

#include "lib/io/loop.h"
#include "lib/io/timer.h"

namespace cantle::coord {

struct LoopTimers::State {
  explicit State(io::Loop& l) : loop(l) {}
  io::Loop& loop;
  uint64_t next = 1;
  std::map<uint64_t, std::unique_ptr<io::Timer>> running;
};

LoopTimers::LoopTimers(io::Loop& loop) : state_(std::make_shared<State>(loop)) {}
LoopTimers::~LoopTimers() { state_->running.clear(); }

base::Instant LoopTimers::now() { return state_->loop.refresh_now(); }

void LoopTimers::after(base::Duration delay, std::function<void()> fn) {
  const auto id = state_->next++;
  // Raw: the timer lives in the state, and a timer may be destroyed inside its own callback.
  auto* state = state_.get();
  auto fire = [state, id, fn = std::move(fn)] {
    auto call = fn;  // the timer takes its function with it
    state->running.erase(id);
    call();
  };
  auto timer = std::make_unique<io::Timer>(state_->loop, std::move(fire));
  timer->start(delay);
  state_->running.emplace(id, std::move(timer));
}

}  // namespace cantle::coord

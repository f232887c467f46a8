#include "lib/io/loop.h"

#include <signal.h>
#include <uv.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/io/timer.h"

namespace cantle::io {
namespace {

// Deferred functions may defer others; after so many rounds the sockets get their turn first.
constexpr int kDeferRounds = 16;

using Functions = std::vector<std::function<void()>>;

// A peer that closes is an error of one write, never the end of the process: no program with a loop wants SIGPIPE.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

}  // namespace

struct Loop::Impl {
  uv_loop_t loop{};
  uv_prepare_t prepare{};
  uv_check_t check{};
  uv_idle_t idle{};
  uv_async_t async{};
  base::SystemClock clock;
  std::thread::id thread = std::this_thread::get_id();

  base::Instant now{};
  bool fresh = false;    // `now` was taken in this phase
  bool turning = false;  // inside uv_run
  bool stop = false;
  bool watched = false;  // run_until() looks at its condition after each turn
  uint64_t turns = 0;

  std::mutex mutex;  // guards posted
  Functions posted;
  Functions deferred, next;
  std::vector<Flushable*> unflushed;
  char read_buffer[kReadBuffer];

  std::optional<Timer> heartbeat;
  base::Duration gap_threshold{0}, longest_gap{0};
  base::Instant last_turn{};
  std::function<void(base::Duration)> on_gap;

  void turn(uv_run_mode mode);
  void run_posted();
  void run_deferred();
  void flush_outputs();
  void settle();  // everything that callbacks left behind, before the loop waits
  void run_next();
  void note_gap();
  base::Instant refresh() {
    fresh = true;
    return now = std::max(now, clock.now());
  }
};

void Loop::Impl::run_posted() {
  Functions batch;
  {
    const std::lock_guard lock(mutex);
    batch.swap(posted);
  }
  for (auto& fn : batch) fn();
}

void Loop::Impl::run_deferred() {
  for (int round = 0; round < kDeferRounds && !deferred.empty(); ++round) {
    Functions batch;
    batch.swap(deferred);
    for (auto& fn : batch) fn();
  }
}

void Loop::Impl::flush_outputs() {
  // flush() may close connections, which takes entries out of the list behind us: hence by index.
  for (size_t i = 0; i < unflushed.size(); ++i) {
    auto* what = std::exchange(unflushed[i], nullptr);
    if (!what) continue;
    what->flush_index_ = SIZE_MAX;
    what->flush();
  }
  unflushed.clear();
}

void Loop::Impl::settle() {
  const bool something = watched && (!deferred.empty() || !unflushed.empty());
  run_deferred();
  flush_outputs();
  run_deferred();
  if (deferred.empty() && next.empty() && unflushed.empty() && !something)
    uv_idle_stop(&idle);
  else
    uv_idle_start(&idle, [](uv_idle_t*) {});  // an idle handle keeps the loop from waiting
}

void Loop::Impl::run_next() {
  Functions batch;
  batch.swap(next);
  for (auto& fn : batch) fn();
}

void Loop::Impl::note_gap() {
  if (gap_threshold == base::Duration::zero()) return;
  const auto at = refresh();
  const auto gap = at - last_turn;
  last_turn = at;
  longest_gap = std::max(longest_gap, gap);
  if (gap > gap_threshold && on_gap) on_gap(gap);
}

void Loop::Impl::turn(uv_run_mode mode) {
  CHECK(!turning);
  turning = true;
  fresh = false;
  uv_run(&loop, mode);
  turning = false;
}

Loop::Loop() : impl_(std::make_unique<Impl>()) {
  auto& m = *impl_;
  ignore_broken_pipes();
  CHECK(uv_loop_init(&m.loop) == 0);
  m.loop.data = this;
  CHECK(uv_prepare_init(&m.loop, &m.prepare) == 0);
  CHECK(uv_check_init(&m.loop, &m.check) == 0);
  CHECK(uv_idle_init(&m.loop, &m.idle) == 0);
  CHECK(uv_async_init(&m.loop, &m.async, [](uv_async_t* h) { static_cast<Impl*>(h->data)->run_posted(); }) == 0);
  m.prepare.data = m.check.data = m.idle.data = m.async.data = &m;
  uv_prepare_start(&m.prepare, [](uv_prepare_t* h) {
    auto& self = *static_cast<Impl*>(h->data);
    self.settle();
    self.fresh = false;  // what comes next may come after a long wait
  });
  uv_check_start(&m.check, [](uv_check_t* h) {
    auto& self = *static_cast<Impl*>(h->data);
    ++self.turns;
    self.note_gap();
    self.run_next();
    self.settle();
    self.fresh = false;
  });
  uv_unref(reinterpret_cast<uv_handle_t*>(&m.prepare));
  uv_unref(reinterpret_cast<uv_handle_t*>(&m.check));
  uv_unref(reinterpret_cast<uv_handle_t*>(&m.idle));
}

Loop::~Loop() {
  auto& m = *impl_;
  m.heartbeat.reset();
  // What functions captured may own handles: those go first.
  m.deferred.clear();
  m.next.clear();
  m.posted.clear();
  m.unflushed.clear();
  for (auto* h : {reinterpret_cast<uv_handle_t*>(&m.prepare), reinterpret_cast<uv_handle_t*>(&m.check),
                  reinterpret_cast<uv_handle_t*>(&m.idle), reinterpret_cast<uv_handle_t*>(&m.async)})
    uv_close(h, nullptr);
  // A handle that is open here has an owner that outlives the loop: a bug, and it would wait for ever.
  uv_walk(
      &m.loop,
      [](uv_handle_t* h, void*) {
        if (uv_is_closing(h)) return;
        base::log(base::Level::panic, "loop-handle-left", {{"type", uv_handle_type_name(h->type)}});
        CHECK(uv_is_closing(h));
      },
      nullptr);
  while (uv_loop_close(&m.loop) == UV_EBUSY) uv_run(&m.loop, UV_RUN_DEFAULT);
}

void Loop::run() {
  impl_->thread = std::this_thread::get_id();
  while (!impl_->stop) impl_->turn(UV_RUN_DEFAULT);
  impl_->stop = false;
}

void Loop::stop() {
  impl_->stop = true;
  uv_stop(&impl_->loop);
}

bool Loop::run_until(const std::function<bool()>& done, base::Instant deadline) {
  impl_->thread = std::this_thread::get_id();
  Timer alarm(*this, [] {});
  impl_->watched = true;
  bool reached = done();
  while (!reached) {
    const auto left = deadline - refresh_now();
    if (left <= base::Duration::zero()) break;
    alarm.start(left);
    impl_->turn(UV_RUN_ONCE);
    impl_->settle();  // UV_RUN_ONCE runs timers last
    reached = done();
  }
  impl_->watched = false;
  return reached;
}

base::Instant Loop::now() {
  if (impl_->fresh && impl_->turning) [[likely]]
    return impl_->now;
  return impl_->refresh();
}

base::WallMs Loop::wall_ms() { return impl_->clock.wall_ms(); }
base::Instant Loop::refresh_now() { return impl_->refresh(); }

void Loop::post(std::function<void()> fn) {
  bool first = false;
  {
    const std::lock_guard lock(impl_->mutex);
    first = impl_->posted.empty();
    impl_->posted.push_back(std::move(fn));
  }
  if (first) uv_async_send(&impl_->async);
}

void Loop::defer(std::function<void()> fn) { impl_->deferred.push_back(std::move(fn)); }
void Loop::next_turn(std::function<void()> fn) { impl_->next.push_back(std::move(fn)); }

void Loop::watch_gaps(base::Duration threshold, std::function<void(base::Duration)> late) {
  auto& m = *impl_;
  m.gap_threshold = threshold;
  m.on_gap = std::move(late);
  m.last_turn = m.refresh();
  m.longest_gap = base::Duration::zero();
  m.heartbeat.emplace(*this, [] {});
  m.heartbeat->start(threshold / 2, threshold / 2);
}

base::Duration Loop::longest_gap() const { return impl_->longest_gap; }
base::Duration Loop::take_longest_gap() { return std::exchange(impl_->longest_gap, base::Duration::zero()); }
uint64_t Loop::turns() const { return impl_->turns; }
bool Loop::in_thread() const { return impl_->thread == std::this_thread::get_id(); }
uv_loop_s* Loop::raw() { return &impl_->loop; }
char* Loop::read_buffer() { return impl_->read_buffer; }

void Loop::flush_soon(Flushable& what) {
  if (what.flush_index_ != SIZE_MAX) return;
  what.flush_index_ = impl_->unflushed.size();
  impl_->unflushed.push_back(&what);
}

void Loop::forget(Flushable& what) {
  if (what.flush_index_ == SIZE_MAX) return;
  impl_->unflushed[what.flush_index_] = nullptr;
  what.flush_index_ = SIZE_MAX;
}

}  // namespace cantle::io

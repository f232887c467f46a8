// Loop: the event loop of a process, and its clock. Everything that waits, waits here.
//
//   io::Loop loop;                        // built first, dies last
//   loop.defer([] { ... });               // after the callback that runs now
//   pool.run(work, [&] { loop.post(f); }) // from another thread
//   loop.run();                           // until stop()
//
// Invariants
//   * post() wakes the loop once for any number of functions; they run in the order given.
//   * Output that callbacks produced is flushed before the loop waits again.
//   * now() never goes back, and is the same within one phase of a turn: cheap to ask. A callback that
//     took long and needs the true time calls refresh_now().
// A process with a Loop ignores SIGPIPE.
//
// Ownership: owners of handles (Timer, Conn, …) are destroyed before the loop; its destructor drains
// what is still closing and treats an open handle as a bug.
// Threads: all but post() belong to the thread that runs the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lib/base/time.h"

struct uv_loop_s;

namespace cantle::io {

// Something with output waiting (a Conn). The loop calls flush() once before it waits.
class Flushable {
 public:
  virtual void flush() = 0;

 protected:
  ~Flushable() = default;

 private:
  friend class Loop;
  size_t flush_index_ = SIZE_MAX;
};

class Loop final : public base::Clock {
 public:
  Loop();
  ~Loop() override;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run();   // until stop()
  void stop();  // run() returns after this turn; before run(): at once
  // Turns the loop until `done()` or the deadline; false for the deadline. For tools and tests; not from a callback.
  bool run_until(const std::function<bool()>& done, base::Instant deadline);
  bool run_for(base::Duration limit, const std::function<bool()>& done) {
    return run_until(done, refresh_now() + limit);
  }

  base::Instant now() override;     // CLOCK_BOOTTIME
  base::WallMs wall_ms() override;  // CLOCK_REALTIME, not cached
  base::Instant refresh_now();

  void post(std::function<void()> fn);       // any thread
  void defer(std::function<void()> fn);      // before the loop waits again
  void next_turn(std::function<void()> fn);  // after the loop has looked at every other source once

  // Calls `late(gap)` when two turns were more than `threshold` apart (SIGSTOP, a suspended host, a callback
  // that blocked); keeps a heartbeat timer of half the threshold for that. One watcher.
  void watch_gaps(base::Duration threshold, std::function<void(base::Duration gap)> late);
  base::Duration longest_gap() const;  // since watch_gaps(), or since the last take_longest_gap()
  base::Duration take_longest_gap();

  uint64_t turns() const;  // completed; a watchdog takes it for progress
  bool in_thread() const;
  uv_loop_s* raw();

  // For Conn: asks for one flush() before the loop waits; forget() before the object dies.
  void flush_soon(Flushable& what);
  void forget(Flushable& what);
  // A buffer of kReadBuffer bytes for the read callback that runs now.
  char* read_buffer();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

constexpr size_t kReadBuffer = size_t{64} << 10;

}  // namespace cantle::io

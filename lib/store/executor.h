// Executor: the store's threads behind an interface, so that the simulator runs them one at a time, at
// simulated times, and loses them in a crash.
//
// Use
//   executor.run(Lane::journal, [=] { …on the lane's thread… }, [=] { …back on the loop… });
//   executor.after(2ms, [=] { …on the loop, so much later, or when the journal lane's task ends… });
//   executor.defer([=] { …on the loop, when the current turn's events have been handled… });
//
// Invariants
//   * Tasks of the journal, apply and background lanes run one at a time each, in the order given; their
//     `done`s run on the loop in that order. Tasks of the read lane may run beside each other.
//   * After the executor's destructor began nothing is started any more; what was not started is lost.
//
// Threads: run(), after() and defer() are called on the loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lib/base/time.h"

namespace cantle::store {

enum class Lane : uint8_t {
  journal,     // write and sync of sync groups
  apply,       // every LMDB write
  read,        // index reads that may fault pages in; scans, samples
  background,  // zeroing of segments, removal of files
};

class Executor {
 public:
  using Fn = std::function<void()>;
  virtual ~Executor() = default;
  virtual void run(Lane lane, Fn task, Fn done) = 0;
  virtual void defer(Fn fn) = 0;
  virtual void after(base::Duration delay, Fn fn) = 0;
};

// Real threads: one each for journal, apply and background, `read_threads` for reading.
// `post` must be callable from any thread and run the function on the loop (io::Loop::post); `defer`
// runs on the loop at the end of the turn (io::Loop::defer).
// Ownership: destroy it before the loop that `post` leads to, after the Engine that uses it.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(std::function<void(Fn)> post, std::function<void(Fn)> defer, int read_threads = 2);
  ~ThreadExecutor() override;
  void run(Lane lane, Fn task, Fn done) override;
  void defer(Fn fn) override;
  void after(base::Duration delay, Fn fn) override;  // the journal's thread looks at the clock

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// No threads: tasks wait in the order given until somebody runs them; after() is when nothing else is left. For tests
// and tools.
class InlineExecutor final : public Executor {
 public:
  InlineExecutor();
  ~InlineExecutor() override;
  void run(Lane lane, Fn task, Fn done) override;
  void defer(Fn fn) override;
  void after(base::Duration delay, Fn fn) override;
  bool step();     // runs the next deferred function or the next task with its done; false: nothing to do
  void run_all();  // until nothing is left

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cantle::store

#include "lib/store/executor.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace cantle::store {
namespace {

using Clock = std::chrono::steady_clock;

struct Work {
  Executor::Fn task, done;
};

// Threads that take work from one queue. One thread: in order.
class Pool {
 public:
  Pool(int threads, const std::function<void(Executor::Fn)>& post) : post_(post) {
    for (int i = 0; i < threads; i++) threads_.emplace_back([this] { serve(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    some_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  void add(Work work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    some_.notify_one();
  }
  void at(Clock::time_point when, Executor::Fn fn) {
    {
      const std::lock_guard lock(mutex_);
      later_.emplace(when, std::move(fn));
    }
    some_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto due = [this] { return !later_.empty() && later_.begin()->first <= Clock::now(); };
      while (!stop_ && queue_.empty() && !due()) {
        if (later_.empty())
          some_.wait(lock);
        else
          some_.wait_until(lock, later_.begin()->first);
      }
      if (stop_) return;
      if (due()) {
        auto fn = later_.extract(later_.begin());
        lock.unlock();
        post_(std::move(fn.mapped()));
        lock.lock();
        continue;
      }
      Work work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work.task();
      work.task = nullptr;  // what it holds is let go here, not on the loop
      if (work.done) post_(std::move(work.done));
      lock.lock();
    }
  }

  std::function<void(Executor::Fn)> post_;
  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<Work> queue_;
  std::multimap<Clock::time_point, Executor::Fn> later_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

struct ThreadExecutor::Impl {
  Impl(const std::function<void(Fn)>& post, std::function<void(Fn)> defer_fn, int read_threads)
      : defer(std::move(defer_fn)), journal(1, post), apply(1, post), background(1, post), read(read_threads, post) {}
  std::function<void(Fn)> defer;
  Pool journal, apply, background, read;

  Pool& pool(Lane lane) {
    switch (lane) {
      case Lane::journal: return journal;
      case Lane::apply: return apply;
      case Lane::background: return background;
      case Lane::read: break;
    }
    return read;
  }
};

ThreadExecutor::ThreadExecutor(std::function<void(Fn)> post, std::function<void(Fn)> defer, int read_threads)
    : impl_(std::make_unique<Impl>(post, std::move(defer), read_threads)) {}
ThreadExecutor::~ThreadExecutor() = default;
void ThreadExecutor::run(Lane lane, Fn task, Fn done) { impl_->pool(lane).add({std::move(task), std::move(done)}); }
void ThreadExecutor::defer(Fn fn) { impl_->defer(std::move(fn)); }

void ThreadExecutor::after(base::Duration delay, Fn fn) { impl_->journal.at(Clock::now() + delay, std::move(fn)); }

struct InlineExecutor::Impl {
  std::deque<Fn> deferred, later;
  std::deque<Work> tasks;
};

InlineExecutor::InlineExecutor() : impl_(std::make_unique<Impl>()) {}
InlineExecutor::~InlineExecutor() = default;
void InlineExecutor::run(Lane, Fn task, Fn done) { impl_->tasks.push_back({std::move(task), std::move(done)}); }
void InlineExecutor::defer(Fn fn) { impl_->deferred.push_back(std::move(fn)); }

void InlineExecutor::after(base::Duration, Fn fn) { impl_->later.push_back(std::move(fn)); }

bool InlineExecutor::step() {
  if (!impl_->deferred.empty()) {
    const Fn fn = std::move(impl_->deferred.front());
    impl_->deferred.pop_front();
    fn();
    return true;
  }
  if (impl_->tasks.empty() && impl_->later.empty()) return false;
  if (impl_->tasks.empty()) {
    const Fn fn = std::move(impl_->later.front());
    impl_->later.pop_front();
    fn();
    return true;
  }
  const Work work = std::move(impl_->tasks.front());
  impl_->tasks.pop_front();
  work.task();
  if (work.done) work.done();
  return true;
}

void InlineExecutor::run_all() {
  while (step()) {
  }
}

}  // namespace cantle::store

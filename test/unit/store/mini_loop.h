// MiniLoop: what the engine needs of an event loop, for tests and benches in this room.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace cantle::store {

class MiniLoop {
 public:
  using Fn = std::function<void()>;
  std::function<void(Fn)> poster() {
    return [this](Fn fn) {
      {
        const std::lock_guard lock(mutex_);
        posted_.push_back(std::move(fn));
      }
      some_.notify_one();
    };
  }
  std::function<void(Fn)> deferrer() {
    return [this](Fn fn) { deferred_.push_back(std::move(fn)); };
  }
  // Turns until `done`, which is asked every turn; false after `limit`.
  bool until(const std::function<bool()>& done, std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!done()) {
      turn();
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    turn_end();
    return true;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    posted_.clear();
    deferred_.clear();
  }
  // One turn: what was posted, then what was deferred; waits a little where there is nothing.
  void turn() {
    turn_end();
    std::vector<Fn> now;
    {
      std::unique_lock lock(mutex_);
      some_.wait_for(lock, std::chrono::milliseconds(10), [this] { return !posted_.empty(); });
      now.assign(std::make_move_iterator(posted_.begin()), std::make_move_iterator(posted_.end()));
      posted_.clear();
    }
    for (auto& fn : now) fn();
    turn_end();
  }

 private:
  void turn_end() {
    while (!deferred_.empty()) {
      auto fn = std::move(deferred_.front());
      deferred_.pop_front();
      fn();
    }
  }
  std::mutex mutex_;
  std::condition_variable some_;
  std::deque<Fn> posted_, deferred_;
};

}  // namespace cantle::store

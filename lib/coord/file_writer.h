// Writer: the one thread of a process that changes the embedded coordination service.
//
// A commit waits for the disk, and for other processes: one that was stopped inside a commit blocks
// every other. So no loop ever waits here: it submits a job and is told; a job that has not begun can be
// withdrawn, and then certainly does not happen.
//
// Invariants
//   * Jobs run in the order of submission, each once, many in one commit; `finished` follows the commit.
//   * A job withdrawn is neither run nor finished.
//   * The destructor runs what is queued if the lock can be had within kDrainMax.
// Threads: submit, withdraw, run_now: any. `run` and `finished` are called on the writer thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lib/base/result.h"
#include "lib/coord/file_tree.h"

namespace cantle::coord::file {

constexpr size_t kBatchMax = 256;  // jobs in one commit
constexpr std::chrono::seconds kDrainMax{1};
constexpr std::chrono::seconds kOpenMax{10};       // waiting for the lock when a tree is opened for the first time
constexpr std::chrono::seconds kComplainAfter{1};  // then the log says who holds the lock
constexpr std::chrono::seconds kComplainEvery{10};

class Writer {
 public:
  class Job {
   public:
    // nullopt: committed. unavailable: certainly not. outcome_unknown: the disk failed in the commit.
    using Finished = std::function<void(std::optional<base::Error>)>;
    Job(std::function<void(Editor&)> run, Finished finished) : run_(std::move(run)), finished_(std::move(finished)) {}
    // True: it has not begun and never will.
    bool withdraw() {
      auto expected = State::queued;
      return state_.compare_exchange_strong(expected, State::withdrawn);
    }

   private:
    friend class Writer;
    enum class State : uint8_t { queued, begun, withdrawn };
    bool begin() {
      auto expected = State::queued;
      return state_.compare_exchange_strong(expected, State::begun);
    }
    std::function<void(Editor&)> run_;
    Finished finished_;
    std::atomic<State> state_{State::queued};
  };

  explicit Writer(Env& env);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void submit(std::shared_ptr<Job> job);
  // Blocks: for the opening only. unavailable: somebody else kept the lock for kOpenMax.
  base::Status run_now(const std::function<base::Status(MDB_txn*)>& change);

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  bool lock_or_give_up();
  bool try_lock();
  void unlock();
  void complain(Clock::time_point since);
  std::vector<std::shared_ptr<Job>> take();
  void drop_withdrawn();
  std::optional<base::Error> commit_all(const std::vector<std::shared_ptr<Job>>& jobs);
  std::optional<base::Error> commit(MDB_txn* txn, uint64_t before);

  Env& env_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  bool stopping_ = false;
  Clock::time_point stop_by_{};
  Clock::time_point last_complaint_{};
  std::mutex lock_owner_;  // the writer lock belongs to the process: its threads agree here
  std::thread thread_;
};

}  // namespace cantle::coord::file

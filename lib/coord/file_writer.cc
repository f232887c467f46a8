#include "lib/coord/file_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/base/log.h"

namespace cantle::coord::file {

using base::Code;
using base::Level;

namespace {

constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLongestPause{5000};

int set_lock(int fd, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return ::fcntl(fd, F_SETLK, &lock);
}

}  // namespace

Writer::Writer(Env& env) : env_(env), thread_([this] { run(); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_by_ = Clock::now() + kDrainMax;
  }
  wake_.notify_all();
  thread_.join();
}

void Writer::submit(std::shared_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  wake_.notify_all();
}

base::Status Writer::run_now(const std::function<base::Status(MDB_txn*)>& change) {
  const auto deadline = Clock::now() + kOpenMax;
  while (!try_lock()) {
    if (Clock::now() > deadline)
      return base::fail(Code::unavailable, "the writer lock is held by " + describe_writer(env_.writer_fd()));
    std::this_thread::sleep_for(kLongestPause);  // no loop runs yet: the environment is being opened
  }
  MDB_txn* txn = nullptr;
  base::Status result = base::ok();
  if (const int rc = mdb_txn_begin(env_.raw(), nullptr, 0, &txn)) {
    result = base::fail(lmdb_error("begin", rc));
  } else if (result = change(txn); !result) {
    mdb_txn_abort(txn);
  } else if (const int failed = mdb_txn_commit(txn)) {
    result = base::fail(lmdb_error("commit", failed));
  }
  unlock();
  return result;
}

bool Writer::try_lock() {
  if (!lock_owner_.try_lock()) return false;
  if (set_lock(env_.writer_fd(), F_WRLCK) == 0) return true;
  lock_owner_.unlock();
  return false;
}

void Writer::unlock() {
  set_lock(env_.writer_fd(), F_UNLCK);
  lock_owner_.unlock();
}

void Writer::complain(Clock::time_point since) {
  const auto now = Clock::now();
  if (now - since < kComplainAfter || now - last_complaint_ < kComplainEvery) return;
  last_complaint_ = now;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - since).count();
  base::log(Level::warn, "coord.writer_lock",
            {{"dir", env_.dir()}, {"waited_ms", waited}, {"holder", describe_writer(env_.writer_fd())}});
}

void Writer::drop_withdrawn() {
  const std::lock_guard lock(mutex_);
  std::erase_if(queue_, [](const auto& job) { return job->state_ == Job::State::withdrawn; });
}

// False: nothing is left to do, or the time to stop has come.
bool Writer::lock_or_give_up() {
  const auto since = Clock::now();
  for (auto pause = kFirstPause; !try_lock(); pause = std::min(pause * 2, kLongestPause)) {
    complain(since);
    drop_withdrawn();
    std::unique_lock lock(mutex_);
    if (queue_.empty() || (stopping_ && Clock::now() > stop_by_)) return false;
    // Not woken by submit(): the pause is what keeps the lock's file from being asked all the time.
    lock.unlock();
    std::this_thread::sleep_for(pause);
  }
  return true;
}

std::vector<std::shared_ptr<Writer::Job>> Writer::take() {
  std::vector<std::shared_ptr<Job>> jobs;
  const std::lock_guard lock(mutex_);
  while (!queue_.empty() && jobs.size() < kBatchMax) {
    if (queue_.front()->begin()) jobs.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return jobs;
}

void Writer::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty() || (stopping_ && Clock::now() > stop_by_)) return;
    }
    if (!lock_or_give_up()) continue;
    const auto jobs = take();
    const auto failed = jobs.empty() ? std::nullopt : commit_all(jobs);
    unlock();
    for (const auto& job : jobs) job->finished_(failed);
  }
}

std::optional<base::Error> Writer::commit_all(const std::vector<std::shared_ptr<Job>>& jobs) {
  MDB_txn* txn = nullptr;
  if (const int rc = mdb_txn_begin(env_.raw(), nullptr, 0, &txn))
    return base::Error(Code::unavailable, lmdb_error("begin", rc).text);
  Editor editor(env_, txn);
  const auto before = editor.zxid();
  for (const auto& job : jobs)
    if (!editor.broken()) job->run_(editor);
  if (!editor.broken()) static_cast<void>(editor.seal());
  if (editor.broken()) {
    mdb_txn_abort(txn);
    base::log(Level::error, "coord.change_failed", {{"dir", env_.dir()}, {"error", editor.error().text}});
    return base::Error(Code::unavailable, editor.error().text);
  }
  if (!editor.changed()) {
    mdb_txn_abort(txn);
    return std::nullopt;
  }
  return commit(txn, before);
}

std::optional<base::Error> Writer::commit(MDB_txn* txn, uint64_t before) {
  const int rc = mdb_txn_commit(txn);
  if (rc == 0) {
    env_.ring();
    return std::nullopt;
  }
  const auto error = lmdb_error("commit", rc);
  base::log(Level::error, "coord.commit_failed", {{"dir", env_.dir()}, {"error", error.text}});
  // What readers see decides: a commit that failed before its last page is invisible and stays so.
  MDB_txn* look = nullptr;
  if (mdb_txn_begin(env_.raw(), nullptr, MDB_RDONLY, &look) != 0) return base::Error(Code::outcome_unknown, error.text);
  const bool invisible = Reader(env_, look).zxid() == before;
  mdb_txn_abort(look);
  return base::Error(invisible ? Code::unavailable : Code::outcome_unknown, error.text);
}

}  // namespace cantle::coord::file

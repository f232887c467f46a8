// Env: the LMDB environment of an embedded coordination service, opened once a process.
//
//   DIR/data.mdb, lock.mdb   the tree and its counters
//   DIR/writer               the writer lock: a POSIX record lock, so that F_GETLK names who holds it
//   DIR/bell                 written after each commit: inotify wakes everybody's watches
//   DIR/sessions/<id>        a session: an open-file-description lock and the time of its last heartbeat
//
// Invariants
//   * One Env per directory and process (libraries lose LMDB's lock otherwise): open() shares.
//   * Transactions that write begin and end on one thread, under the writer lock (file_writer.h).
// Threads: open() and ReadTxn: any. Ownership: shared by the sessions; a ReadTxn holds its Env.
#pragma once

#include <lmdb.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/result.h"

namespace cantle::coord::file {

constexpr size_t kMapBytes = size_t{4} << 30;  // address space only; the file holds what is stored
constexpr unsigned kReadersMax = 1022;

// Name of the file system of that statfs type if other hosts may share it; empty otherwise.
std::string_view network_file_system(unsigned long type);

base::Error lmdb_error(std::string_view what, int rc);

class Writer;

class Env {
 public:
  // Creates the directory when it is missing. invalid: a network file system, or a tree of a newer version.
  static base::Result<std::shared_ptr<Env>> open(const std::string& dir);
  ~Env();
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;

  const std::string& dir() const { return dir_; }
  std::string sessions_dir() const { return dir_ + "/sessions"; }
  std::string bell_path() const { return dir_ + "/bell"; }
  int writer_fd() const { return writer_fd_; }
  void ring();  // the bell: after a commit
  Writer& writer() { return *writer_; }

  MDB_env* raw() const { return env_; }
  struct Tables {
    MDB_dbi meta = 0, nodes = 0, ephemerals = 0, sessions = 0;
  };
  const Tables& tables() const { return tables_; }

 private:
  friend class ReadTxn;
  Env();
  base::Status open_files(const std::string& dir);
  base::Status open_tables();
  base::Status find_tables(MDB_txn* txn, unsigned flags);

  std::string dir_;
  MDB_env* env_ = nullptr;
  Tables tables_;
  int writer_fd_ = -1, bell_fd_ = -1;
  std::mutex mutex_;
  std::vector<MDB_txn*> idle_readers_;  // reset; a reader slot each
  std::unique_ptr<Writer> writer_;      // its thread ends before the rest is closed
};

// A snapshot; views into it end with it.
class ReadTxn {
 public:
  static base::Result<ReadTxn> begin(std::shared_ptr<Env> env);
  ~ReadTxn();
  ReadTxn(ReadTxn&& other) noexcept : env_(std::move(other.env_)), txn_(std::exchange(other.txn_, nullptr)) {}
  ReadTxn& operator=(ReadTxn&&) = delete;
  MDB_txn* raw() const { return txn_; }
  const Env& env() const { return *env_; }

 private:
  ReadTxn(std::shared_ptr<Env> env, MDB_txn* txn) : env_(std::move(env)), txn_(txn) {}
  std::shared_ptr<Env> env_;
  MDB_txn* txn_;
};

// Which other process holds the writer lock now, in words: "pid 12 (mdserver), stopped"; empty when
// none does.
std::string describe_writer(int writer_fd);

}  // namespace cantle::coord::file

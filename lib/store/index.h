// Index: an ordered key-value store with a few named databases, one writer and snapshot readers; LMDB's
// commit semantics behind an interface. LmdbIndex is the real one, MemIndex the simulator's.
//
// Use
//   TRY_ASSIGN(auto txn, index.begin());            // on the apply lane
//   TRY(txn->put(Db::records, key, value));
//   TRY(txn->commit());                             // atomic and durable, or nothing happened
//   auto reader = index.reader();  reader->renew(); // a snapshot as of now
//   TRY_ASSIGN(auto value, reader->get(Db::records, key));
//   reader->reset();                                // lets go of the snapshot
//
// Invariants
//   * A commit that returned ok survives any crash; one that failed or was cut off by a crash left no
//     trace, except that a crash during commit() may leave all of it.
//   * Views are valid until the next put/del/commit of the write transaction, or until renew/reset of
//     the reader, that gave them.
//   * At most one write transaction at a time; it begins and ends on one thread (LMDB's rule).
//   * A transaction that was not committed is undone by its destructor. After a failed put only the
//     destructor may be called.
//   * No reader keeps a snapshot longer than kReaderAgeMax: long work goes on by key. But for the few of Engine::pin.
//
// Errors: no_space: disk or map full, nothing happened, try again when there is room; corrupt: the files
// are damaged; io_error: final (S61).
//
// Threads: begin() and WriteTxn on one thread at a time; a Reader by one thread at a time, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace cantle::store {

enum class Db : uint8_t { records, pieces, samples, partitions, series, extents, meta, positions };
constexpr int kDbs = 8;
constexpr std::chrono::milliseconds kReaderAgeMax{250};

struct KeyValue {
  std::string_view key, value;
};

// A place in the order of one database. Views as the transaction's.
class Cursor {
 public:
  virtual ~Cursor() = default;
  // First entry at or after `key` ("" = the first of all); nothing past the end.
  virtual base::Result<std::optional<KeyValue>> seek(std::string_view key) = 0;
  // Last entry before `key` ("" = the last of all).
  virtual base::Result<std::optional<KeyValue>> seek_before(std::string_view key) = 0;
  virtual base::Result<std::optional<KeyValue>> next() = 0;
  virtual base::Result<std::optional<KeyValue>> prev() = 0;
};

// What readers and write transactions have in common.
class Source {
 public:
  virtual ~Source() = default;
  virtual base::Result<std::optional<std::string_view>> get(Db db, std::string_view key) = 0;
  // A reader's belongs to the current snapshot: destroy it before renew() and reset(). A write transaction's is
  // destroyed before the next put, del or commit.
  virtual base::Result<std::unique_ptr<Cursor>> cursor(Db db) = 0;
};

class Reader : public Source {
 public:
  virtual base::Status renew() = 0;  // resets first if needed; overloaded: no reader slot is free
  virtual void reset() = 0;
  virtual bool active() const = 0;
};

class WriteTxn : public Source {
 public:
  virtual base::Status put(Db db, std::string_view key, std::string_view value) = 0;
  virtual base::Status del(Db db, std::string_view key) = 0;  // fine if it is not there
  virtual base::Status commit() = 0;
};

struct IndexSpace {
  uint64_t map_bytes = 0;   // the most it can grow to
  uint64_t file_bytes = 0;  // what it takes now
  uint64_t free_bytes = 0;  // of that, free for reuse
};

struct ReaderInfo {
  int pid = 0;
  uint64_t transaction = 0, behind = 0;
};

class Index {
 public:
  virtual ~Index() = default;
  virtual base::Result<std::unique_ptr<WriteTxn>> begin() = 0;
  virtual std::unique_ptr<Reader> reader() = 0;
  // `count_free`: also free_bytes, which walks the list of free pages.
  virtual base::Result<IndexSpace> space(bool count_free) = 0;
  // Frees reader slots of dead processes (R10). Returns how many.
  virtual int check_readers() = 0;
  // Who holds a snapshot, of all processes, and how many transactions it is behind (R11).
  virtual std::vector<ReaderInfo> readers() = 0;
  // Ends a process whose snapshot keeps the file from using pages again, if it is of our group and not us.
  virtual bool evict(int pid) = 0;
};

// Opens the index, and takes a damaged one out of the way, so that the next open() makes an empty one.
class IndexFactory {
 public:
  virtual ~IndexFactory() = default;
  virtual base::Result<std::unique_ptr<Index>> open() = 0;  // corrupt: damaged, foreign or marked suspect
  virtual base::Status set_aside(std::string_view why) = 0;
};

}  // namespace cantle::store

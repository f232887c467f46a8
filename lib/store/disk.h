// Disk: every touch of a file by the store, so that the simulator can put a disk that loses, tears and
// flips under the same code.
//
// Use
//   RealDisk disk("/var/lib/cantle/p1");
//   TRY_ASSIGN(auto file, disk.open("journal/000000000001.seg", OpenMode::create));
//   TRY(file->write(0, {header, payload}));
//   TRY(file->sync());            // error: final, never call sync() again for the same bytes (S61)
//   TRY(disk.sync_dir("journal")) // a new name is durable only after this (S64)
//
// Paths are relative to the disk's root and use '/'. LMDB's files are not behind this: the index has an
// interface of its own (index.h).
//
// Threads: a Disk from any thread; a File from one thread at a time, except read(), which may run beside
// a write() of other bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"

namespace cantle::store {

class File {
 public:
  virtual ~File() = default;
  // Writes the parts one after the other at `offset`; all of it or an error, after which the file's
  // content there is unknown. no_space for a full disk.
  virtual base::Status write(uint64_t offset, const std::vector<std::string_view>& parts) = 0;
  base::Status write(uint64_t offset, std::string_view bytes) {
    return write(offset, std::vector<std::string_view>{bytes});
  }
  // Reads up to `size` bytes; fewer only at the end of the file.
  virtual base::Result<size_t> read(uint64_t offset, char* to, size_t size) = 0;
  base::Result<std::string> read(uint64_t offset, size_t size);
  // fdatasync(2). What was written and not synced may be lost, in any part, by a crash.
  virtual base::Status sync() = 0;
  virtual base::Result<uint64_t> size() = 0;
  virtual base::Status truncate(uint64_t size) = 0;
  // Takes room for a file of `size` bytes; what was not written reads as zeros. By writing them, where the disk knows
  // no quicker way.
  virtual base::Status reserve(uint64_t size);
  // Forgets cached pages, so that the next read comes from the medium (POSIX_FADV_DONTNEED).
  virtual void drop_cache() = 0;
};

// A shared mapping of a whole file: several processes of one host see the same bytes.
class Mapping {
 public:
  virtual ~Mapping() = default;
  virtual char* data() = 0;
  virtual size_t size() const = 0;
  // A 32-bit word in the mapping: block while it is `seen`, at most `timeout_ms`; wake all who wait.
  virtual void wait(const uint32_t* word, uint32_t seen, int timeout_ms) = 0;
  virtual void wake(const uint32_t* word) = 0;
};

enum class OpenMode : uint8_t {
  read,    // must exist
  write,   // must exist; read and write
  create,  // read and write; made empty where it does not exist
  medium,  // must exist; only read, past the cache where the file system can
};

struct Space {
  uint64_t total = 0, free = 0;  // bytes, of the file system; `free` as for an unprivileged user
};

// Holds an exclusive lock while it lives.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class Disk {
 public:
  virtual ~Disk() = default;
  // not_found where `read` or `write` finds nothing.
  virtual base::Result<std::unique_ptr<File>> open(std::string_view path, OpenMode mode) = 0;
  virtual base::Status rename(std::string_view from, std::string_view to) = 0;  // replaces `to`
  virtual base::Status remove(std::string_view path) = 0;                       // a file; not_found if none
  virtual base::Status make_dir(std::string_view path) = 0;                     // with parents; fine if there
  virtual base::Status sync_dir(std::string_view path) = 0;                     // "" = the root
  virtual base::Result<std::vector<std::string>> list(
      std::string_view path) = 0;  // names, sorted; empty if no such directory
  virtual base::Result<bool> exists(std::string_view path) = 0;
  virtual base::Result<Space> space() = 0;
  // Maps `size` bytes; with `create` the file is made or grown to that size, else it must be at least so large.
  virtual base::Result<std::unique_ptr<Mapping>> map(std::string_view path, size_t size, bool create) = 0;
  // conflict: somebody else holds it.
  virtual base::Result<std::unique_ptr<FileLock>> lock(std::string_view path) = 0;

  // A small whole file. write_whole: written aside, synced, renamed, directory synced (S64).
  base::Result<std::string> read_whole(std::string_view path, size_t size_max);
  base::Status write_whole(std::string_view path, std::string_view bytes);
};

class RealDisk final : public Disk {
 public:
  explicit RealDisk(std::string root);  // must exist when used; nothing is done here
  const std::string& root() const { return root_; }

  base::Result<std::unique_ptr<File>> open(std::string_view path, OpenMode mode) override;
  base::Status rename(std::string_view from, std::string_view to) override;
  base::Status remove(std::string_view path) override;
  base::Status make_dir(std::string_view path) override;
  base::Status sync_dir(std::string_view path) override;
  base::Result<std::vector<std::string>> list(std::string_view path) override;
  base::Result<bool> exists(std::string_view path) override;
  base::Result<Space> space() override;
  base::Result<std::unique_ptr<Mapping>> map(std::string_view path, size_t size, bool create) override;
  base::Result<std::unique_ptr<FileLock>> lock(std::string_view path) override;

 private:
  std::string full(std::string_view path) const;
  std::string root_;
};

}  // namespace cantle::store

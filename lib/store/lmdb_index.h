// LmdbIndex: an Index in an LMDB environment.
//
// Use
//   LmdbIndexFactory factory(disk, "/var/lib/cantle/p1/index", …);   // partd: makes, checks, sets aside
//   TRY_ASSIGN(auto index, open_lmdb(dir, {.write = false}));           // other processes: read-only
//
// Invariants
//   * An environment is open at most once in a process, however many ask (LMDB forgets its locks otherwise).
//   * The file is read from the disk, not from a cache, when the first opener of the process is the writer (S61).
//   * A file that is shorter than what it should hold, has a damaged head, or was marked suspect, is `corrupt`.
//
// Threads: as index.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/store/disk.h"
#include "lib/store/index.h"

namespace cantle::store {

// Of address space; the file stays small. ThreadSanitizer leaves a process 1.5 TiB of it, anywhere in which the
// system's own maps may begin.
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kIndexMapBytes = uint64_t{64} << 30;
#else
constexpr uint64_t kIndexMapBytes = uint64_t{1} << 40;
#endif

struct LmdbOptions {
  bool write = false;
  uint64_t map_bytes = kIndexMapBytes;
  unsigned readers = 512;  // slots for all processes
};

// not_found: read-only and there is nothing yet. Opens the databases in `dbs` (all, when empty).
base::Result<std::unique_ptr<Index>> open_lmdb(const std::string& dir, const LmdbOptions& options,
                                               const std::vector<Db>& dbs = {});
// Device and inode of the environment's file; changes when a rebuilt one took its place. Empty: none.
std::string lmdb_identity(const std::string& dir);

class LmdbIndexFactory final : public IndexFactory {
 public:
  // `dir`: the environment's directory; what is set aside goes beside it as DIR.bad (the newest one is kept).
  explicit LmdbIndexFactory(std::string dir, LmdbOptions options = {.write = true});
  base::Result<std::unique_ptr<Index>> open() override;
  base::Status set_aside(std::string_view why) override;

 private:
  std::string dir_;
  LmdbOptions options_;
};

// From now on SIGBUS in the map (a read error under it, or a file cut short) leaves DIR/suspect behind and ends the
// process by that signal; the next open of the index says corrupt. For the daemon that owns the directory, once.
void mark_suspect_on_sigbus(const std::string& dir);

}  // namespace cantle::store

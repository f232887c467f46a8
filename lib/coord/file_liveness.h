// SessionFile: what makes a session of the embedded backend live and die with its process.
//
//   DIR/sessions/<id>   held under an open-file-description lock: the kernel lets go of it at the instant
//                       the process dies; it also holds the time of the last heartbeat, so that a
//                       process that was stopped loses its session as it would with ZooKeeper.
//
// Order: the file is there, locked and beaten, before the session is recorded in the tree; so a record
// without a locked file belongs to the dead.
// Units: the heartbeat is CLOCK_BOOTTIME in nanoseconds; after a reboot no lock is held any more.
// Ownership: the object owns the lock; its destructor lets go and removes the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/coord/file_tree.h"

namespace cantle::coord::file {

class SessionFile {
 public:
  static base::Result<std::unique_ptr<SessionFile>> create(const std::string& sessions_dir, uint64_t id,
                                                           base::Instant now);
  ~SessionFile();
  SessionFile(const SessionFile&) = delete;
  SessionFile& operator=(const SessionFile&) = delete;

  uint64_t id() const { return id_; }
  base::Status beat(base::Instant now);

 private:
  SessionFile(std::string path, uint64_t id, int fd) : path_(std::move(path)), id_(id), fd_(fd) {}
  std::string path_;
  uint64_t id_;
  int fd_;
};

// Its process is gone, or has not beaten for its timeout.
bool is_dead(const std::string& sessions_dir, const SessionRecord& session, base::Instant now);
std::vector<uint64_t> dead_sessions(const Reader& reader, const std::string& sessions_dir, base::Instant now);
// Ends the dead ones with their ephemerals, and removes their files.
base::Status sweep(Editor& editor, const std::string& sessions_dir, base::Instant now);

}  // namespace cantle::coord::file

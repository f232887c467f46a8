// DataDir: who a data directory belongs to: server id, cluster, incarnation, server number.
//
// Use
//   RealDisk disk(path);
//   TRY_ASSIGN(auto dir, DataDir::open(disk, {ServerId{"p1"}, cluster}));   // bumps the incarnation
//   dir->identity().incarnation
//
// The first start makes the `id` file; each later one raises the incarnation, durably, before anything
// else is done. `identity` errors (exit status 78) say what to do: another server's or cluster's
// directory, or an `id` file that is missing beside data (coordination.md, "Start of a server" 1; S6).
// Whether the server *should* have data is not known here: the caller asks METADATA and Engine::find.
//
// Incarnations are compared by whoever knows the server by its name, and an emptied directory does not know how far
// they had come. So they say first which directory it is: the n-th life of server number N has the incarnation
// N × 1,000,000,000 + n, and a directory made later has a higher number. Until the number is known they are counted
// from 1; such a one must be shown to nobody.
//
// Invariants
//   * Two processes never have one directory open for writing at a time (a lock on `id.lock`).
//   * No incarnation is given out twice, and none below one of an older directory of the same name.
//
// Ownership: does not own the disk. Holds the lock while it lives. Threads: one.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/model/ids.h"
#include "lib/store/disk.h"

namespace cantle::store {

struct Identity {
  model::ServerId server;
  model::ClusterUuid cluster;
  model::Incarnation incarnation;
  model::ServerNumber number;  // 0: not known yet (the arrival event gives it)
  friend bool operator==(const Identity&, const Identity&) = default;
};

struct Expected {
  model::ServerId server;
  model::ClusterUuid cluster;
};

class DataDir {
 public:
  // For a daemon that writes: locks, checks, makes or bumps.
  static base::Result<std::unique_ptr<DataDir>> open(Disk& disk, const Expected& expected);
  // For readers (replpush, tools): the identity as it stands; not_found before the first start.
  static base::Result<Identity> read(Disk& disk);

  const Identity& identity() const { return identity_; }
  bool first_start() const { return first_; }
  // Durable when it returns; the incarnation is another one then.
  base::Status set_number(model::ServerNumber number);

 private:
  DataDir(Disk& disk, Identity identity, bool first, std::unique_ptr<FileLock> lock);
  Disk& disk_;
  Identity identity_;
  bool first_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace cantle::store

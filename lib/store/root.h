// Root blocks: two slots of 4 KiB in journal/root, written in turn; one is always good. They say where
// journal and index stood at a checkpoint; between checkpoints the journal speaks for itself.
//
// Use
//   TRY_ASSIGN(auto roots, Roots::read(disk));        // newest(), older()
//   next.generation = roots.newest()->generation + 1;
//   (log the slot's old content in the journal: slot_bytes(generation))
//   TRY(write_root(disk, next));
//
// Threads: any; no state.
#pragma once

#include <optional>
#include <string>

#include "lib/base/result.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/version.h"
#include "lib/store/disk.h"
#include "lib/store/position.h"

namespace cantle::store {

constexpr size_t kRootSlot = 4096;

struct Root {
  uint64_t generation = 0;  // slot = generation % 2
  std::string server;       // whose journal it is
  model::ClusterUuid cluster;
  model::Incarnation incarnation;  // that wrote it
  JournalPosition head;            // durable up to here when written
  JournalPosition applied;         // everything before it is in the index
  uint64_t oldest_segment = 0;     // needed
  model::Version highest;          // no version above it had been stamped or seen
  bool clean = false;              // written by a shutdown: nothing follows `head`
};

struct Roots {
  std::optional<Root> slot[2];
  const Root* newest() const;
  const Root* older() const;  // the one before; the newest where there is only one
  static base::Result<Roots> read(Disk& disk);
};

std::string encode_root(const Root& root);              // kRootSlot bytes
base::Result<Root> decode_root(std::string_view slot);  // corrupt
// Writes and syncs the slot of root.generation.
base::Status write_root(Disk& disk, const Root& root);

}  // namespace cantle::store

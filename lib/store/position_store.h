// PositionStore: the push/ environment: how far each target has confirmed each log of this server.
// replpush writes it; partd reads it, to keep what is still needed.
//
// Use
//   TRY_ASSIGN(auto store, PositionStore::open(dir, Access::write));
//   TRY(store->put({own, target}, position));        // durable when it returns
//   TRY_ASSIGN(auto all, store->all());
//
// A pair names two tenures, so another tenure starts from zero by itself.
//
// Threads: one at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/store/index.h"

namespace cantle::store {

struct PositionKey {
  model::AssignmentId own;     // the tenure whose log it is
  model::AssignmentId target;  // the tenure that confirmed
  auto operator<=>(const PositionKey&) const = default;
};

struct Position {
  model::PartitionId partition;         // whose log
  model::PartitionId target_partition;  // a child, while the parent is being split
  model::ServerId server;               // where the target is
  model::LogPoint confirmed;            // lsn 0: nothing yet
  uint64_t snapshot = 0;                // a snapshot under way: its number, 0 = none
  model::LogPoint snapshot_from;        // the log goes on behind this when it is complete
  std::string filled_to;                // the snapshot's last confirmed key
  CANTLE_FIELDS(partition, target_partition, server, confirmed, snapshot, snapshot_from, filled_to)
};

class PositionStore {
 public:
  // The daemon's: opens DIR/push; reading only: not_found before replpush ran.
  static base::Result<std::unique_ptr<PositionStore>> open(const std::string& data_dir, bool write);
  // Over an index of the caller's (simulator). Ownership: does not own it.
  explicit PositionStore(Index& index);
  ~PositionStore();

  base::Result<std::optional<Position>> get(const PositionKey& key);
  base::Status put(const PositionKey& key, const Position& position);
  // In one transaction: after a divide, the parent's positions become the children's too.
  base::Status put(const std::vector<std::pair<PositionKey, Position>>& positions);
  base::Status remove(const PositionKey& key);
  base::Result<std::map<PositionKey, Position>> all();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cantle::store

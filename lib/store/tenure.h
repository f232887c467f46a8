// Tenure: one copy of a partition that a data directory holds, under one assignment; what the index's
// `partitions` database says of it. The values here are read by partd (through Engine), by replpush and by
// tools (through DirectReader).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/bytes.h"
#include "lib/model/block.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/record.h"

namespace cantle::store {

struct TenureId {
  model::PartitionId partition;
  model::AssignmentId assignment;
  auto operator<=>(const TenureId&) const = default;
};

// Whose a tenure's log is: of this server alone, or one that is the same on every replica (model::Table's mode).
enum class LogMode : uint8_t { push = 1, quorum = 2 };

enum class TenureState : uint8_t {
  live = 1,   // appends and answers
  aside = 2,  // an old tenure, or what is left of a divided parent: kept until it is proved and dropped
  trash = 3,  // dropped: only freeing is left; kept for the trash time, freed at once when space runs out
};

// What a snapshot has filled so far (Engine::ingest).
struct Fill {
  uint64_t snapshot = 0;  // the sender's number; 0: none was begun
  std::string to;         // the last key that is durable
  bool all = false;
};

struct Tenure {
  TenureId id;
  model::TableUuid table;
  model::Region region;
  TenureState state = TenureState::live;
  LogMode mode = LogMode::push;
  model::Interval interval;                  // held: of an ended parent what went to children that are not here
  model::Epoch born;                         // incarnation in which it was created here
  model::LogPoint log_start;                 // the log begins behind this point; a child's: the parent's last block
  model::LogPoint applied;                   // in the index
  std::vector<model::PartitionId> children;  // an ended parent's: low, high
  Fill fill;
  // Some of it came in a snapshot, past the journal: its log, be it there from the first LSN on, does not have all of
  // it.
  bool hollow = false;
  bool whole =
      true;  // false: records may be missing here (damage, a rebuilt index): compare with every replica, both ways
};

// A record as a read gives it. Views: see the call that gives them.
struct Found {
  bool deleted = false;  // a tombstone: `value` is empty
  model::Version version;
  std::string_view value;
  uint8_t flags = 0;
};

struct ContentHash {
  base::Hash128 records, tombstones;  // sums over hash(key, version, value), so that order does not matter
  uint64_t record_count = 0, tombstone_count = 0;
  uint64_t bytes = 0;  // keys and values of the records
  friend bool operator==(const ContentHash&, const ContentHash&) = default;
};
// What one record adds to a sum.
base::Hash128 record_hash(const model::RecordView& record);

struct ScanRange {
  std::string from, to;  // [from, to); "" = unbounded; clipped to the tenure's interval
  bool reverse = false;
  bool tombstones = false;
  uint32_t records_max = 1000;
  size_t bytes_max = size_t{1} << 20;  // of keys and values; the first record is given whatever its size
};
struct ScanEnd {
  bool more = false;   // stopped by a limit
  std::string resume;  // then: forward: the next `from`; reverse: the next `to`
  model::Lsn at;       // everything up to here in the log was seen, nothing later
};

}  // namespace cantle::store

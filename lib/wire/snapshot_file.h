// SnapshotFile: a copy of one partition's records as a stream of bytes: what `partd snapshot` writes and `partd
// restore` reads (man page cantle-snapshot.5).
//
//   "CSNP" | u32 format | frame…        frame: u32 length | u32 CRC-32C of the body | body (MessagePack map)
//   the first body is a SnapshotHead, the last a SnapshotPart with `last`, between them SnapshotParts
// Integers big-endian.
//
// Use
//   std::string out; append_snapshot_head(out, head); append_snapshot_part(out, part);
//   SnapshotParser parser;  parser.feed(bytes);  while (parser.next(&item)) …;  TRY(parser.status());
//
// Invariants
//   * The parser holds at most one frame of kSnapshotFrameMax bytes, whatever lengths the input claims.
//   * A part is handed out only if its checksum is right and its records are within the limits.
//   * complete() is true only after the part that says `last` was handed out and nothing followed it.
// Threads: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/record.h"

namespace cantle::wire {

constexpr std::string_view kSnapshotMagic = "CSNP";
constexpr uint32_t kSnapshotFormat = 1;
constexpr size_t kSnapshotFrameMax = model::kBlockMax + (size_t{64} << 10);

struct SnapshotHead {
  model::TableUuid table;
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::ServerId server;
  model::Interval interval;
  model::LogPoint from;  // the log behind this point, applied over the records, gives the partition's state
  std::string after;     // resumed behind this key
  CANTLE_FIELDS(table, partition, assignment, server, interval, from, after)
};
struct SnapshotPart {
  std::string records;  // a block payload, in key order, tombstones among them
  uint32_t count = 0;
  std::string through_key;  // everything up to here, inclusive, has been given
  bool last = false;
  CANTLE_FIELDS(records, count, through_key, last)
};

void append_snapshot_head(std::string& out, const SnapshotHead& head);
void append_snapshot_part(std::string& out, const SnapshotPart& part);

class SnapshotParser {
 public:
  using Item = std::variant<SnapshotHead, SnapshotPart>;
  void feed(std::string_view bytes);
  // False: more bytes are needed, or status() says what is wrong.
  bool next(Item* out);
  base::Status status() const { return status_; }
  bool complete() const { return last_ && pending_.empty() && status_.has_value(); }

 private:
  bool fail(std::string text);
  bool begin();

  std::string pending_;
  base::Status status_ = base::ok();
  bool begun_ = false, head_ = false, last_ = false;
};

}  // namespace cantle::wire

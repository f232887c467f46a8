// Messages by which a replica of a quorum table gets a snapshot: its log ends before what any leader can send
// (design/replication.md, "outside the session"), or what it has is damaged.
//
//   quorum.outside    a notification of the leader: you need a snapshot
//   quorum.snapshot   the next part of one, please; pulled, part after part, from whoever has the copy
//   quorum.blocks     some blocks of the log, please, which cannot be read here (lib/proto/quorum_mend.h)
//   quorum.lend       what the log here lacks, please, so that somebody can be elected (lib/proto/quorum_borrow.h)
//
// A snapshot is what one transaction of the answerer's index has: the records and the clients' series as the log up to
// `at` makes them, nothing that is not committed. First come the records, in key order, then the series, by client.
// It is kept for whoever asks for the next part in time; one that is not there any more is begun anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/cut.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/messages.h"
#include "lib/model/quorum.h"

namespace cantle::model {

constexpr size_t kSnapshotSeriesMax = 4096;                    // windows in one part
constexpr uint32_t kSnapshotPartBytes = uint32_t{1} << 20;     // asked for at a time
constexpr uint32_t kSnapshotPartBytesMax = uint32_t{2} << 20;  // given at a time
constexpr size_t kGapBytesMax = size_t{6} << 20;               // payloads of a gap's blocks
constexpr size_t kGapBlocksMax = 4096;
constexpr size_t kLendBytes = size_t{2} << 20;  // payloads lent at a time, about

struct QuorumOutside {
  Envelope envelope;
  Epoch epoch;
  CANTLE_FIELDS(envelope, epoch)
};

// How far somebody has come with one.
struct SnapshotPlace {
  uint64_t snapshot = 0;  // 0: none yet
  std::string after_key;
  bool records_done = false;
  uint64_t after_client = 0;
  bool all = false;
  CANTLE_FIELDS(snapshot, after_key, records_done, after_client, all)
  friend bool operator==(const SnapshotPlace&, const SnapshotPlace&) = default;
};

struct QuorumSnapshot {
  Envelope envelope;
  SnapshotPlace place;
  uint32_t bytes = kSnapshotPartBytes;
  CANTLE_FIELDS(envelope, place, bytes)
};

// A client's window, as the index keeps it (man page cantle-index.5).
struct SeriesRow {
  static constexpr size_t kListMax = kSnapshotSeriesMax;
  uint64_t client = 0;
  std::string window;
  CANTLE_FIELDS(client, window)
  friend bool operator==(const SeriesRow&, const SeriesRow&) = default;
};

struct QuorumSnapshotPart {
  SnapshotPlace place;  // behind this part
  LogPoint at;
  uint64_t log_time_ms = 0;
  std::vector<EpochStart> epochs;  // in the first part
  std::vector<CutMark> cuts;       // likewise: whether the log ends in a cut there
  std::string records;
  std::vector<SeriesRow> series;
  CANTLE_FIELDS(place, at, log_time_ms, epochs, cuts, records, series)
};

// What is missing of a log between the end of one block and the end of another. The checksum of the last one's header,
// which covers the checksums of its payload and of the block before it, says what they are.
struct LogGap {
  LogPoint after, upto;
  CANTLE_FIELDS(after, upto)
  friend bool operator==(const LogGap&, const LogGap&) = default;
};

struct QuorumBlocks {
  Envelope envelope;
  LogGap gap;
  CANTLE_FIELDS(envelope, gap)
};

struct LogBlock {
  static constexpr size_t kListMax = kGapBlocksMax;
  std::string header;  // its bytes (wire::encode_header)
  std::string payload;
  CANTLE_FIELDS(header, payload)
};

// All of them, in order.
struct QuorumBlocksReply {
  std::vector<LogBlock> blocks;
  CANTLE_FIELDS(blocks)
};

// Of one that has promised `promise`, as the receiver must have: where its log ends, and its epochs.
struct QuorumLend {
  Envelope envelope;
  Epoch promise;
  LogPoint end;
  std::vector<EpochStart> epochs;
  CANTLE_FIELDS(envelope, promise, end, epochs)
};

// Where the log of the one asked ends, and its last block that the other's has, too; the first of those behind it.
struct QuorumLendReply {
  LogPoint end, keep;
  std::vector<LogBlock> blocks;
  CANTLE_FIELDS(end, keep, blocks)
};

}  // namespace cantle::model

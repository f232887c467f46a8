// Block: a batch of consecutive log records of one partition, under one header and two checksums.
// It is the unit of journal write, replication and resynchronisation (design/store.md, "Journal").
//
// Log blocks have LSNs and are chained; local blocks (seal, truncate, divide, merge, root_image) belong to
// one server's journal, have no LSN and are in no chain. In push tables each server has its own log:
// the epoch is the incarnation of the server that appended it. A mended block is a log block that is damaged further in
// front in this server's journal, and came from another replica: it fills that place, and nothing else (R16).
#pragma once

#include <cstdint>
#include <string>

#include "lib/model/fields.h"
#include "lib/model/ids.h"

namespace cantle::model {

enum class BlockKind : uint8_t {
  data = 1,
  epoch_start = 2,
  cut = 3,
  uncut = 4,
  seal = 16,
  truncate = 17,
  divide = 18,
  root_image = 19,
  merge = 20,
  mended_data = 33,
  mended_epoch_start = 34,
  mended_cut = 35,
  mended_uncut = 36,
};
constexpr bool is_log_block(BlockKind kind) { return kind < BlockKind::seal; }
constexpr bool is_mended(BlockKind kind) { return kind >= BlockKind::mended_data; }
constexpr uint8_t kMendedKinds = 32;  // this much above those that they are in the place of

constexpr uint64_t kElapsedMaxMs =
    60000;  // that a block adds to its log's time, so that no clock jump expires anything

struct BlockHeader {
  BlockKind kind = BlockKind::data;
  PartitionId partition;
  Region region;
  Epoch epoch;
  Lsn first;                                 // LSN of the first record; 0 for local blocks
  uint32_t records = 0;                      // LSNs first … first + records - 1
  uint32_t length = 0;                       // payload bytes, at most kBlockMax
  Epoch prev_epoch;                          // of the block before this in the partition's log; zero for the first
  Lsn prev_lsn;                              // LSN of the last record of that block
  uint32_t prev_crc = 0;                     // its header CRC, which covers its payload CRC
  Lsn commit;                                // commit LSN known when it was built; push: the LSN before `first`
  uint64_t leader_ms = 0;                    // wall clock of the builder; for expiry, never for safety
  uint64_t elapsed_ms = 0;                   // CLOCK_BOOTTIME since the block before, at most kElapsedMaxMs
  uint32_t payload_crc = 0, header_crc = 0;  // CRC-32C

  Lsn last() const { return {records == 0 ? first.value : first.value + records - 1}; }
  friend bool operator==(const BlockHeader&, const BlockHeader&) = default;
};

struct Block {
  BlockHeader header;
  std::string payload;
};

// Where a log stands or a target has confirmed to: (epoch, LSN, header CRC of the block that holds it).
struct LogPoint {
  Epoch epoch;
  Lsn lsn;
  uint32_t crc = 0;
  CANTLE_FIELDS(epoch, lsn, crc)
  auto operator<=>(const LogPoint&) const = default;
};

// Where a log block of that header ends, and where the one before it does.
inline LogPoint point_of(const BlockHeader& h) { return {h.epoch, h.last(), h.header_crc}; }
inline LogPoint before_of(const BlockHeader& h) { return {h.prev_epoch, h.prev_lsn, h.prev_crc}; }

}  // namespace cantle::model

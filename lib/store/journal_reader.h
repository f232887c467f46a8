// JournalReader: a partition's log as it stands in a journal that somebody else writes. It builds its
// own sparse index by scanning frames up to the durable end that the live page names.
//
// Use
//   TRY_ASSIGN(auto reader, JournalReader::open(disk));
//   TRY(reader->advance(page->read().durable));           // takes in what is new
//   TRY_ASSIGN(auto part, reader->read(partition, from, 1 << 20));
//   for (auto& block : part.blocks) send(filter_records(block.payload, interval)); from = part.next;
//
// A child's log goes on in its parent's: LSNs at or below the S of the divide are read from the parent's
// blocks (their header names the parent, their LSNs are as they are), so a position of the parent's
// (epoch, LSN, checksum) is a position of the child's. Filter by the child's interval.
//
// The log of a merge's target is another one than those that it was merged from: it begins behind both of their ends
// (model::merged_point()), and they are still read under their own names.
//
// Of a quorum table's log, blocks without records (epoch starts) are given as the others are; what was cut is not.
//
// Invariants
//   * Nothing past the position given to advance() is ever returned.
//   * Every block returned was read with both checksums right, from a frame with the right place.
//   * A gap (a damaged block) is reported where it lies, once per read that meets it; it is never
//     silently skipped and never taken for the end.
//   * A segment that was retired or recycled meanwhile is `gone`, never an error or old data.
//
// Threads: one at a time. Ownership: does not own the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/ids.h"
#include "lib/store/disk.h"
#include "lib/store/position.h"

namespace cantle::store {

struct LogBlock {
  model::BlockHeader header;  // header.partition may be an ancestor of the one asked for
  std::string payload;
};

struct LogPart {
  std::vector<LogBlock> blocks;  // contiguous LSNs from `from`'s block on, unless `gap`
  model::Lsn next;               // ask from here next; the end is reached when next > end(partition)
  bool gone = false;             // `from` is older than what the journal still has: a snapshot is needed
  bool gap = false;              // the LSNs between the last block (or `from`) and `next` are damaged here
};

enum class Contains : uint8_t { yes, no, gone };

// What a divide did, as the journal tells it.
struct Divided {
  model::AttemptId attempt;
  model::PartitionId parent, low, high;
  model::LogPoint at;  // the parent's last block
  std::string point;
  bool has_low = false, has_high = false;  // which of them goes on on this server as an assignment
};

// What a merge did.
struct MergedLog {
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::LogPoint at;  // its last block
};
struct Merged {
  model::AttemptId attempt;
  MergedLog low, high;
  model::PartitionId target;
  model::LogPoint start;  // the target's log begins behind it
};

class JournalReader {
 public:
  static base::Result<std::unique_ptr<JournalReader>> open(Disk& disk);
  ~JournalReader();

  base::Status advance(const JournalPosition& durable_end);
  JournalPosition seen() const;

  // Of the log of a partition, ancestors included. Nothing where the journal holds no block of it.
  std::optional<model::LogPoint> end(const model::PartitionId& partition) const;
  std::optional<model::Lsn> oldest(const model::PartitionId& partition) const;
  // Is this point a block end of the log? `gone`: older than what is still here.
  base::Result<Contains> contains(const model::PartitionId& partition, const model::LogPoint& point);
  // Blocks whose last LSN is at or above `from`, up to about max_bytes of payload, at least one.
  base::Result<LogPart> read(const model::PartitionId& partition, model::Lsn from, size_t max_bytes);
  // The same without a copy: each block is shown where it lies, and `blocks` stays empty. False: that one was not
  // wanted, and no more.
  using Each = std::function<base::Result<bool>(const model::BlockHeader& header, std::string_view payload)>;
  base::Result<LogPart> read(const model::PartitionId& partition, model::Lsn from, size_t max_bytes, const Each& each);
  // Divides met while scanning, in journal order.
  const std::vector<Divided>& divides() const;
  // The merge that this partition's log began with, as long as the journal has it; null: none.
  const Merged* merge_into(const model::PartitionId& target) const;
  uint64_t damaged_places() const;  // bad frames below the durable end met so far

 private:
  struct Impl;
  explicit JournalReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cantle::store

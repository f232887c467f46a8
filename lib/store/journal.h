// Journal: the writing side: sync groups into segments (design/store.md, "Journal").
//
// Use
//   Journal journal(disk, executor, options, handlers);
//   journal.start(head, file, ready);        // after recovery
//   journal.add(std::move(block));           // header sealed; queued
//   journal.pump();                          // starts a group if none is under way
// handlers.durable(blocks, file) is called on the loop with the blocks of each group that was synced, in order, and the
// segment that they are in.
//
// One group is under way at a time: one write, one sync; meanwhile the next gathers. A group lies in one
// segment. The next segment is made ready in the background: a retired one renamed, or a new one filled with
// zeros, because syncing a file that does not grow costs half (store.md). Under a stream of large groups that half is
// nothing beside the bytes, and zeros would double them: then a new one is only reserved.
//
// Invariants
//   * A block is reported durable after the fdatasync that covers it returned ok, never otherwise.
//   * After a failed write or sync nothing is written any more and handlers.failed is called once (S61).
//   * A segment is written only after its whole length and its name are on the disk.
//
// One that may wait (Sync::soon) starts no group by itself until kSyncSoon later.
//
// Threads: the loop; writing and making ready run on lanes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/block.h"
#include "lib/store/disk.h"
#include "lib/store/executor.h"
#include "lib/store/journal_format.h"

namespace cantle::store {

constexpr size_t kRecycleMax = 2;                      // retired segments kept for reuse
constexpr uint64_t kLargeGroup = uint64_t{256} << 10;  // bytes a sync, on the average of a segment: a stream

// Of one sync: whoever else syncs on the disk waits for no more of a stream than that. Less than group_bytes_max, which
// stays what recovery looks for: a journal that was written before may end in a torn group as large as that.
constexpr uint64_t kStreamGroup = uint64_t{4} << 20;
constexpr base::Duration kSyncSoon = std::chrono::milliseconds(2);
constexpr uint64_t kSoonMax = uint64_t{256} << 10;  // bytes that wait for more

enum class SegmentFill : uint8_t { zeros, reserve };

struct JournalBlock {
  model::BlockHeader header;
  std::string payload;
  std::shared_ptr<void> context;           // the owner's; kept with the block
  std::function<void(base::Status)> done;  // the owner's too: the journal does not call it
  Frame frame;                             // set when its place is decided
  Sync sync = Sync::now;
};

struct JournalOptions {
  uint64_t segment_bytes = 0, group_bytes_max = 0;
};

struct JournalHandlers {
  std::function<void(std::vector<JournalBlock>, const std::shared_ptr<File>&)> durable;
  std::function<void(const base::Error&)> failed;
  std::function<void()> changed;  // the next segment became ready, or could not be made for want of room
};

class Journal {
 public:
  Journal(Disk& disk, Executor& executor, const JournalOptions& options, JournalHandlers handlers);
  ~Journal();

  // `file`: the segment of `head`. `ready`: the one after it, if it is there already.
  void start(const JournalPosition& head, std::shared_ptr<File> file, std::shared_ptr<File> ready);
  void add(JournalBlock block);
  void pump();
  // No longer needed by anyone: will be used again, or removed. In order, oldest first.
  void retire(uint64_t segment);
  void tick();  // tries again what failed for want of room

  JournalPosition head() const { return head_; }        // where the next block goes
  JournalPosition durable() const { return durable_; }  // the first byte not durable
  uint64_t queued_bytes() const { return queued_bytes_; }
  bool idle() const { return !writing_ && queue_.empty(); }
  // Will a block of that payload find room without waiting for the disk to have some?
  bool has_room(uint64_t payload_bytes) const;
  // Groups are large: what comes is a stream, not single writes.
  bool streaming() const { return groups_here_ > 0 && head_.offset / groups_here_ >= kLargeGroup; }
  bool out_of_room() const { return no_room_; }
  uint64_t syncs() const { return syncs_; }
  // The largest payload that fits a segment.
  uint64_t payload_max() const { return options_.segment_bytes - kFrameAndHeader - kFrameAlign; }

 private:
  struct Alive;
  struct Group;
  bool next_segment();
  void write(std::shared_ptr<Group> group);
  void written(const std::shared_ptr<Group>& group);
  void make_ready();
  void wait_for_more();
  void fail(const base::Error& error);

  Disk& disk_;
  Executor& executor_;
  JournalOptions options_;
  JournalHandlers handlers_;
  std::shared_ptr<Alive> alive_;
  std::shared_ptr<File> file_, ready_;
  JournalPosition head_, durable_;
  std::deque<JournalBlock> queue_;
  uint64_t queued_bytes_ = 0, syncs_ = 0;
  uint64_t groups_here_ = 0;  // in this segment
  SegmentFill fill_ = SegmentFill::zeros;
  bool writing_ = false, making_ = false, no_room_ = false, failed_ = false;
  bool urgent_ = false, timer_ = false;  // something queued is to be synced now; somebody looks soon
  std::deque<uint64_t> retired_;
};

// Makes a segment, synced, with its name: filled with zeros, or only reserved. For recovery and for the background.
base::Result<std::shared_ptr<File>> make_segment(Disk& disk, uint64_t segment, uint64_t bytes, SegmentFill fill);
// Overwrites with zeros and syncs.
base::Status zero(File& file, uint64_t from, uint64_t to);

}  // namespace cantle::store

// Recovery: reads a journal from a position to its end, and tells the end from damage.
//
// Everything read is on the disk first: each segment is synced, then its cache is dropped, then it is read
// past the cache where that can be (S61). A place without a good frame of the expected sequence is
//   * the end of a segment, if the next one goes on with that sequence;
//   * damage, if a good frame of a later sync group follows: that group was written only after this place
//     had been synced; or if the place is known to have been durable (a root, the index). It is reported
//     and passed over, never cut (S62). A block whose header is readable is passed over alone; where not even that is
//     known of the last one, what stands there goes to the trash (keep_lost_tail), or where that has no room stays,
//     and the journal goes on behind it (behind_lost_tail);
//   * else the torn tail of the last group: nobody was told of it. finish_tail() zeroes it.
//
// Threads: any; blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/store/disk.h"
#include "lib/store/engine.h"
#include "lib/store/journal_format.h"

namespace cantle::store {

// In the trash: journal-SEGMENT-OFFSET-SEQUENCE-MILLISECONDS.damaged
constexpr std::string_view kLostPrefix = "journal-", kLostEnd = ".damaged";

struct JournalScan {
  JournalPosition start;  // sequence 0: whatever the first frame says
  uint64_t durable = 0;   // sequences below this are known to have been synced
  uint64_t segment_bytes = 0;
  uint64_t group_bytes_max = 0;  // of a sync group; 0: not known
  bool sync = true;              // false: only look (tools)
  std::function<base::Status(const Frame& frame, std::string_view payload)> frame;
  // `whose`: the header of the damaged block, where that much is readable.
  std::function<void(const DamagedPlace& place, const std::optional<Frame>& whose)> damage;
};

// That place is the end of the journal, which had been durable: nobody can say how many bytes it had.
bool is_lost_end(const DamagedPlace& place, const JournalPosition& end);
// The journal's segments, ascending.
base::Result<std::vector<uint64_t>> list_segments(Disk& disk);
// Where the journal ends: the place of the next frame. Its segment may not exist (an empty or lost journal).
base::Result<JournalPosition> scan_journal(Disk& disk, const JournalScan& scan);

// What stands at the end of a journal whose end is damaged, though it had been durable: into the trash, as it lies
// there, before finish_tail() writes over it. The path; empty: nothing stands there. no_space: nothing was written
// over, nor is anything of it in the trash.
base::Result<std::string> keep_lost_tail(Disk& disk, const JournalPosition& end, uint64_t segment_bytes,
                                         uint64_t group_bytes_max, base::WallMs now);
// The first place behind what stands there, of the same sequence. A journal that goes on there leaves it as it lies
// (S65): once a frame is behind it, it is a damaged place like any other, and until then its damaged end.
base::Result<JournalPosition> behind_lost_tail(Disk& disk, const JournalPosition& end, uint64_t segment_bytes,
                                               uint64_t group_bytes_max);

struct Tail {
  std::shared_ptr<File> file, ready;  // of the end's segment; of the one after it, if it is usable
  uint64_t zeroed = 0;                // bytes of torn tail
};
// Makes the end writable: what a group that was on its way can have left behind it is zeroed and synced, later segments
// that hold anything that could be taken for ours are removed. Bytes further on are of no frame of this segment.
// `group_bytes_max`: of a sync group; a torn one lies at most that far into its segment.
base::Result<Tail> finish_tail(Disk& disk, const JournalPosition& end, uint64_t segment_bytes,
                               uint64_t group_bytes_max);

}  // namespace cantle::store

// LogWalk: the blocks of one quorum table's log, as they lie in the journal's segments among those of others.
//
//   const LogWalk walk{partition, begins, from, place, durable_end};
//   TRY(walk.run(index, epochs, open_segment, true, [&](const Frame& frame, std::string_view payload) { …; return more;
//   }));
//
// Blocks that were cut away are passed over, and so is what cannot be read: whoever needs them all looks whether one
// follows the other. What cannot be read may be the very frame that says where the log was cut: that a block is in the
// log is told by its epoch, too, which is the one that the log has at that LSN. Of an epoch and an LSN there is one
// block.
//
// Threads: any, if `open` may be called there; it looks at nothing that changes but the files, and of those at what
// lies before `end`. A segment that is used again meanwhile has none of its old frames any more (journal_format.h).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/ids.h"
#include "lib/store/disk.h"
#include "lib/store/journal_format.h"
#include "lib/store/quorum_log.h"

namespace cantle::store {

struct LogWalk {
  model::PartitionId partition;
  uint64_t begins = 0;  // frames before are of an older tenure
  model::Lsn from;      // blocks that end before are not wanted
  JournalPosition at, end;

  using Open = std::function<base::Result<std::shared_ptr<File>>(uint64_t segment)>;
  // False: that is enough. The payload is empty unless asked for; in front of it lies its block's header.
  using Each = std::function<base::Result<bool>(const Frame& frame, std::string_view payload)>;
  base::Status run(const LogIndex& index, const EpochTable& epochs, const Open& open, bool payload,
                   const Each& each) const;
};

}  // namespace cantle::store

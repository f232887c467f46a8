#include "lib/store/journal_reader.h"

#include <algorithm>
#include <map>
#include <set>

#include "lib/base/check.h"
#include "lib/store/divide.h"
#include "lib/store/journal_format.h"
#include "lib/store/merge.h"
#include "lib/store/quorum_log.h"
#include "lib/store/recovery.h"

namespace cantle::store {
namespace {

using base::Code;
using base::ok;
using model::LogPoint;
using model::Lsn;
using model::PartitionId;

constexpr size_t kFilesMax = 4;  // segments kept open

struct Mark {
  Lsn first;
  JournalPosition at;
};

// What was seen of one partition's own blocks.
struct PartLog {
  std::vector<Mark> marks;  // ascending
  Lsn oldest;               // first LSN of the first block; 0: none seen
  LogPoint before;          // what that block says came before it
  LogPoint end;
  std::vector<Mark> cuts;  // of a quorum table's: where it was cut, and the last LSN kept
  Mark last;               // the block where the last walk stopped: the next mostly goes on there; segment 0: none
  bool any() const { return oldest.value != 0; }
  bool lives(const Frame& f) const {
    return std::none_of(cuts.begin(), cuts.end(),
                        [&](const Mark& c) { return c.at > f.at && c.first < f.header.last(); });
  }
};

// In whose log an LSN of a partition stands.
struct Owner {
  PartitionId partition;
  std::optional<Lsn> upto;  // an ancestor: where its log ends for this partition
};

struct Origin {
  PartitionId parent;
  LogPoint at;
  uint64_t segment = 0;  // where the divide stands
};

}  // namespace

struct JournalReader::Impl {
  explicit Impl(Disk& d) : disk(d) {}

  base::Status advance(const JournalPosition& end);
  base::Result<bool> scan_segment(const JournalPosition& end);
  base::Status take(const Frame& frame, SegmentScanner& scanner);
  void take_block(const Frame& frame);
  void take_truncate(const Frame& frame);
  base::Status take_divide(std::string_view payload, uint64_t segment);
  base::Status take_merge(std::string_view payload, uint64_t segment);
  void take_image(std::string_view payload);
  void forget_below(uint64_t segment);
  base::Result<std::shared_ptr<File>> open(uint64_t segment);
  base::Result<bool> gone(uint64_t segment);

  // Whose own blocks hold an LSN of this partition's log.
  Owner owner(PartitionId partition, Lsn lsn) const;
  PartLog* own(const PartitionId& partition) {
    const auto it = logs.find(partition);
    return it == logs.end() ? nullptr : &it->second;
  }
  // Calls `each` with the partition's blocks from the one that holds `from` on, until it returns false.
  enum class Walked : uint8_t { done, stopped, gone };
  base::Result<Walked> walk(const PartitionId& partition, Lsn from, bool payload,
                            const std::function<base::Result<bool>(const Frame&, std::string_view)>& each);

  Disk& disk;
  JournalPosition seen;  // sequence 0: nothing yet
  uint64_t kept = 0;     // the first segment; what stood in those before it is gone
  std::map<PartitionId, PartLog> logs;
  std::map<PartitionId, Origin> origins;
  std::vector<Divided> divides;
  struct MergeSeen {
    Merged merged;
    uint64_t segment = 0;  // where it stands
  };
  std::map<PartitionId, MergeSeen> merges;    // by target
  std::map<PartitionId, LogPoint> merged_at;  // where the logs of the two ended
  std::set<PartitionId> listed;               // by the parts of a list of tenures that were met so far
  uint32_t next_part = 0;
  uint64_t damaged = 0;
  std::map<uint64_t, std::shared_ptr<File>> files;
  SegmentScanner::Window window;  // of whoever walks: the next mostly begins where the last stopped
};

base::Result<std::shared_ptr<File>> JournalReader::Impl::open(uint64_t segment) {
  if (const auto it = files.find(segment); it != files.end()) return it->second;
  TRY_ASSIGN(auto file, disk.open(segment_path(segment), OpenMode::read));
  if (files.size() >= kFilesMax) files.erase(files.begin());
  return files[segment] = std::move(file);
}

// Retired or recycled while we had it open?
base::Result<bool> JournalReader::Impl::gone(uint64_t segment) {
  TRY_ASSIGN(const bool there, disk.exists(segment_path(segment)));
  if (!there) files.erase(segment);
  return !there;
}

base::Status JournalReader::Impl::advance(const JournalPosition& end) {
  if (end.sequence <= seen.sequence) return ok();
  if (seen.segment != end.segment) {  // segments may have been retired
    TRY_ASSIGN(const auto segments, list_segments(disk));
    const uint64_t oldest = segments.empty() ? end.segment : segments.front();
    forget_below(oldest);
    if (seen.segment < oldest) seen = {oldest, 0, seen.sequence};
  }
  while (seen.sequence < end.sequence) {
    TRY_ASSIGN(const bool more, scan_segment(end));
    if (!more) break;
  }
  seen = end;
  return ok();
}

// From where we are to the end of that segment, or to `end`. False: there is nothing more.
base::Result<bool> JournalReader::Impl::scan_segment(const JournalPosition& end) {
  const bool last = seen.segment >= end.segment;
  auto file = open(seen.segment);
  if (!file && file.error().code != Code::not_found) return base::fail(std::move(file).error());
  if (file) {
    TRY_ASSIGN(const auto size, (*file)->size());
    SegmentScanner scanner(**file, seen.segment, seen.offset, last ? std::min(size, end.offset) : size);
    scanner.headers_only();
    for (;;) {
      TRY_ASSIGN(auto frame, scanner.look(false));
      if (!frame || frame->at.sequence < seen.sequence) {
        // Nothing of the sequence that is due: the end of the segment, or a damaged place in it.
        TRY_ASSIGN(frame, scanner.search(seen.sequence == 0 ? 0 : seen.sequence - 1));
        if (!frame) break;
      }
      if (seen.sequence != 0 && frame->at.sequence > seen.sequence) damaged++;
      seen = frame->end();
      scanner.pass(*frame);
      TRY(take(*frame, scanner));
    }
  }
  if (last) return false;
  seen = {seen.segment + 1, 0, seen.sequence};
  return true;
}

base::Status JournalReader::Impl::take(const Frame& frame, SegmentScanner&) {
  if (model::is_log_block(frame.header.kind)) {
    take_block(frame);
    return ok();
  }
  if (frame.header.kind == model::BlockKind::truncate) {
    take_truncate(frame);
    return ok();
  }
  const bool image = frame.header.kind == model::BlockKind::root_image;
  const bool merge = frame.header.kind == model::BlockKind::merge;
  if (!image && !merge && frame.header.kind != model::BlockKind::divide) return ok();
  TRY_ASSIGN(auto file, open(frame.at.segment));
  TRY_ASSIGN(const auto payload, file->read(frame.at.offset + kFrameAndHeader, frame.header.length));
  if (!wire::check_payload(frame.header, payload)) {
    damaged++;
    return ok();
  }
  if (merge) return take_merge(payload, frame.at.segment);
  if (!image) return take_divide(payload, frame.at.segment);
  take_image(payload);
  return ok();
}

// The list of tenures that the writer has now. Of a partition that is not in it the copy was dropped: what was seen of
// it is of a log that has ended, and another tenure's would begin at the first LSN. A divided parent's goes on in its
// children's.
void JournalReader::Impl::take_image(std::string_view payload) {
  const auto image = decode_image(payload);
  if (!image || !image->has_tenures) return;
  if (image->part == 0) {
    listed.clear();
    next_part = 0;
  }
  if (image->part != next_part) return;
  next_part++;
  for (const auto& row : image->tenures) listed.insert(row.partition);
  if (next_part != image->parts) return;
  for (const auto& d : divides) listed.insert(d.parent);
  for (const auto& [partition, at] : merged_at) listed.insert(partition);
  std::erase_if(logs, [&](const auto& entry) { return !listed.contains(entry.first); });
}

base::Status JournalReader::Impl::take_divide(std::string_view payload, uint64_t segment) {
  TRY_ASSIGN(const auto note, decode_note(payload));
  Divided d;
  d.attempt = note.attempt;
  d.parent = note.parent;
  d.low = note.low.partition;
  d.high = note.high.partition;
  d.at = note.at;
  d.point = note.point;
  d.has_low = !note.low.assignment.none();
  d.has_high = !note.high.assignment.none();
  if (d.has_low) origins[d.low] = {d.parent, d.at, segment};
  if (d.has_high) origins[d.high] = {d.parent, d.at, segment};
  divides.push_back(std::move(d));
  return ok();
}

base::Status JournalReader::Impl::take_merge(std::string_view payload, uint64_t segment) {
  TRY_ASSIGN(const auto note, decode_merge_note(payload));
  Merged m;
  m.attempt = note.attempt;
  m.low = {note.low.partition, note.low.assignment, note.low.at};
  m.high = {note.high.partition, note.high.assignment, note.high.at};
  m.target = note.target.partition;
  m.start = note.start();
  for (const auto* log : {&m.low, &m.high}) merged_at[log->partition] = log->at;
  origins.erase(m.target);
  merges[note.target.partition] = {std::move(m), segment};
  return ok();
}

void JournalReader::Impl::take_truncate(const Frame& frame) {
  PartLog* log = own(frame.header.partition);
  const LogPoint keep = before_of(frame.header);
  if (log == nullptr || keep.lsn >= log->end.lsn) return;
  if (keep.lsn < log->oldest) {
    *log = {};
    return;
  }
  log->end = keep;
  while (!log->marks.empty() && log->marks.back().first > keep.lsn) log->marks.pop_back();
  if (log->last.first > keep.lsn) log->last = {};
  log->cuts.push_back({keep.lsn, frame.at});
}

void JournalReader::Impl::take_block(const Frame& frame) {
  const auto& h = frame.header;
  auto& log = logs[h.partition];
  const LogPoint before = before_of(h);
  // A log that begins at the first LSN goes on from no parent's, whatever an older tenure of the partition did.
  if (h.first.value == 1) {
    origins.erase(h.partition);
    merged_at.erase(h.partition);
  }
  // A log that begins again: another tenure of the partition.
  if (log.any() && h.first <= log.end.lsn) log = {};
  if (!log.any()) {
    log.oldest = h.first;
    log.before = before;
  }
  if (log.marks.empty() || log.marks.back().at.segment != frame.at.segment ||
      frame.at.offset - log.marks.back().at.offset >= kMarkEvery)
    log.marks.push_back({h.first, frame.at});
  log.end = point_of(h);
}

void JournalReader::Impl::forget_below(uint64_t segment) {
  kept = std::max(kept, segment);
  files.erase(files.begin(), files.lower_bound(segment));
  for (auto it = merges.begin(); it != merges.end();) {
    if (it->second.segment >= segment) {
      ++it;
      continue;
    }
    for (const auto* log : {&it->second.merged.low, &it->second.merged.high}) merged_at.erase(log->partition);
    it = merges.erase(it);
  }
  for (auto it = logs.begin(); it != logs.end();) {
    auto& log = it->second;
    if (log.last.at.segment < segment) log.last = {};
    std::erase_if(log.cuts, [&](const Mark& c) { return c.at.segment < segment; });
    const auto keep =
        std::find_if(log.marks.begin(), log.marks.end(), [&](const Mark& m) { return m.at.segment >= segment; });
    if (keep == log.marks.begin()) {
      ++it;
    } else if (keep == log.marks.end()) {
      it = logs.erase(it);
    } else {
      log.oldest = keep->first;  // a mark stands at the first block of each segment
      log.before = {};
      log.marks.erase(log.marks.begin(), keep);
      ++it;
    }
  }
}

Owner JournalReader::Impl::owner(PartitionId partition, Lsn lsn) const {
  Owner owner{partition, {}};
  for (auto it = origins.find(partition); it != origins.end() && lsn <= it->second.at.lsn;
       it = origins.find(owner.partition))
    owner = {it->second.parent, it->second.at.lsn};
  if (const auto it = merged_at.find(owner.partition); it != merged_at.end() && !owner.upto)
    owner.upto = it->second.lsn;
  return owner;
}

base::Result<JournalReader::Impl::Walked> JournalReader::Impl::walk(
    const PartitionId& partition, Lsn from, bool payload,
    const std::function<base::Result<bool>(const Frame&, std::string_view)>& each) {
  PartLog* log = own(partition);
  CHECK(log != nullptr && log->any());
  auto mark = std::upper_bound(log->marks.begin(), log->marks.end(), from,
                               [](Lsn lsn, const Mark& m) { return lsn < m.first; });
  if (mark != log->marks.begin()) --mark;
  const bool goes_on = log->last.at.segment != 0 && mark->first <= log->last.first && log->last.first <= from;
  JournalPosition at = goes_on ? log->last.at : mark->at;
  for (; at.segment <= seen.segment; at = {at.segment + 1, 0, at.sequence}) {
    auto file = open(at.segment);
    if (!file && file.error().code == Code::not_found) return Walked::gone;
    if (!file) return base::fail(std::move(file).error());
    TRY_ASSIGN(const auto size, (*file)->size());
    SegmentScanner scanner(**file, at.segment, at.offset,
                           at.segment == seen.segment ? std::min(size, seen.offset) : size);
    scanner.lend(std::move(window));
    const struct GiveBack {
      SegmentScanner& scanner;
      SegmentScanner::Window& window;
      ~GiveBack() { window = scanner.take(); }
    } give_back{scanner, window};
    for (;;) {
      const auto wanted = [&](const Frame& f) {
        return model::is_log_block(f.header.kind) && f.header.partition == partition && f.header.last() >= from &&
               log->lives(f);
      };
      TRY_ASSIGN(auto frame, scanner.look(false));
      if (payload && frame && frame->at.sequence >= at.sequence && wanted(*frame)) {
        TRY_ASSIGN(frame, scanner.look(true));
      }
      if (!frame || frame->at.sequence < at.sequence) {
        TRY_ASSIGN(const bool lost, gone(at.segment));
        if (lost) return Walked::gone;
        TRY_ASSIGN(frame, scanner.search(at.sequence == 0 ? 0 : at.sequence - 1));
        if (!frame) break;
      }
      at.sequence = frame->at.sequence + 1;
      const auto& h = frame->header;
      if (wanted(*frame)) {
        log->last = {h.first, frame->at};
        TRY_ASSIGN(const bool go_on, each(*frame, scanner.payload()));
        if (!go_on || h.last() >= log->end.lsn) return Walked::stopped;
      }
      scanner.pass(*frame);
    }
  }
  return Walked::done;
}

// --- the door -----------------------------------------------------------------------------------

JournalReader::JournalReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JournalReader::~JournalReader() = default;

base::Result<std::unique_ptr<JournalReader>> JournalReader::open(Disk& disk) {
  return std::unique_ptr<JournalReader>(new JournalReader(std::make_unique<Impl>(disk)));
}

base::Status JournalReader::advance(const JournalPosition& durable_end) { return impl_->advance(durable_end); }
JournalPosition JournalReader::seen() const { return impl_->seen; }
const std::vector<Divided>& JournalReader::divides() const { return impl_->divides; }
uint64_t JournalReader::damaged_places() const { return impl_->damaged; }

std::optional<LogPoint> JournalReader::end(const PartitionId& partition) const {
  // Its last blocks may be damaged.
  if (const auto it = impl_->merged_at.find(partition); it != impl_->merged_at.end()) return it->second;
  if (const auto* log = impl_->own(partition); log != nullptr && log->any()) return log->end;
  if (const auto it = impl_->merges.find(partition); it != impl_->merges.end()) return it->second.merged.start;
  // Divided, and nothing since; unless what came since is gone with the divide.
  const auto it = impl_->origins.find(partition);
  if (it == impl_->origins.end() || it->second.segment < impl_->kept) return std::nullopt;
  return it->second.at;
}

const Merged* JournalReader::merge_into(const PartitionId& target) const {
  const auto it = impl_->merges.find(target);
  return it == impl_->merges.end() ? nullptr : &it->second.merged;
}

std::optional<Lsn> JournalReader::oldest(const PartitionId& partition) const {
  std::optional<Lsn> found;
  auto p = partition;
  for (;;) {
    if (const auto* log = impl_->own(p); log != nullptr && log->any()) found = log->oldest;
    const auto it = impl_->origins.find(p);
    if (it == impl_->origins.end()) return found;
    p = it->second.parent;
  }
}

base::Result<Contains> JournalReader::contains(const PartitionId& partition, const LogPoint& point) {
  if (point.lsn.value == 0) return Contains::yes;
  for (auto it = impl_->origins.find(partition); it != impl_->origins.end();
       it = impl_->origins.find(it->second.parent))
    if (it->second.at == point) return Contains::yes;
  const auto owner = impl_->owner(partition, point.lsn).partition;
  if (const auto it = impl_->merges.find(owner); it != impl_->merges.end() && it->second.merged.start == point)
    return Contains::yes;
  const auto* log = impl_->own(owner);
  if (log == nullptr || !log->any()) return Contains::gone;
  if (point == log->before || point == log->end) return Contains::yes;
  if (point.lsn > log->end.lsn) return Contains::no;
  if (point.lsn < log->oldest) return Contains::gone;
  Contains answer = Contains::no;
  TRY_ASSIGN(const auto walked,
             impl_->walk(owner, point.lsn, false, [&](const Frame& f, std::string_view) -> base::Result<bool> {
               const auto& h = f.header;
               if (point_of(h) == point) answer = Contains::yes;
               return false;
             }));
  return walked == Impl::Walked::gone ? Contains::gone : answer;
}

base::Result<LogPart> JournalReader::read(const PartitionId& partition, Lsn from, size_t max_bytes) {
  std::vector<LogBlock> blocks;
  TRY_ASSIGN(auto part, read(partition, from, max_bytes,
                             [&](const model::BlockHeader& header, std::string_view payload) -> base::Result<bool> {
                               blocks.push_back({header, std::string(payload)});
                               return true;
                             }));
  part.blocks = std::move(blocks);
  return part;
}

base::Result<LogPart> JournalReader::read(const PartitionId& partition, Lsn from, size_t max_bytes, const Each& each) {
  LogPart part;
  part.next = {std::max<uint64_t>(from.value, 1)};
  const auto finish = end(partition);
  size_t bytes = 0;
  bool any = false, enough = false;
  while (finish && part.next <= finish->lsn && bytes < max_bytes) {
    const auto [owner, upto] = impl_->owner(partition, part.next);
    const auto* log = impl_->own(owner);
    if (log == nullptr || !log->any() || part.next < log->oldest) {
      part.gone = !any;
      return part;
    }
    const Lsn before = part.next;
    bool hole = false;
    TRY_ASSIGN(const auto walked,
               impl_->walk(owner, part.next, true, [&](const Frame& f, std::string_view payload) -> base::Result<bool> {
                 hole = f.header.first > part.next;
                 if (hole) {  // told by itself: what comes before it is given first
                   if (!any) part.next = f.header.first;
                   return false;
                 }
                 TRY_ASSIGN(const bool wanted, each(f.header, payload));
                 enough = !wanted;
                 if (enough) return false;
                 any = true;
                 part.next = f.header.last().next();
                 bytes += payload.size();
                 return bytes < max_bytes;
               }));
    if (walked == Impl::Walked::gone) {
      part.gone = !any;
      return part;
    }
    if (hole) {
      part.gap = !any;
      return part;
    }
    if (enough) return part;
    if (part.next == before) {  // the last blocks of this log are damaged
      part.gap = !any;
      if (part.gap) part.next = upto.value_or(log->end.lsn).next();
      return part;
    }
  }
  return part;
}

}  // namespace cantle::store

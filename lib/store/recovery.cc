#include "lib/store/recovery.h"

#include <algorithm>
#include <set>

#include "lib/base/testing.h"
#include "lib/store/journal.h"

namespace cantle::store {
namespace {

using base::Code;

// How far behind the last that was synced a group can have left something, when one block more was added to it.
constexpr uint64_t reach_of(uint64_t group_bytes_max) { return group_bytes_max + framed_size(model::kBlockMax); }

struct Found {
  size_t segment = 0;  // index into the list
  Frame frame;
};

class Scan {
 public:
  Scan(Disk& disk, const JournalScan& scan, std::vector<uint64_t> segments)
      : disk_(disk), scan_(scan), segments_(std::move(segments)) {
    end_ = scan.start;
  }

  base::Result<JournalPosition> run() {
    std::optional<Found> jump;
    for (size_t i = 0; i < segments_.size(); i = jump ? jump->segment : i + 1) {
      const uint64_t from = jump ? jump->frame.at.offset : segments_[i] == scan_.start.segment ? scan_.start.offset : 0;
      jump.reset();
      TRY_ASSIGN(const bool more, segment(i, from, jump));
      if (!more) break;
    }
    if (end_.sequence != 0 && end_.sequence < scan_.durable) lost_tail();
    return end_;
  }

 private:
  // Reads one segment as far as it goes. False: the journal ends here. `jump`: go on there instead of in the next one.
  base::Result<bool> segment(size_t i, uint64_t from, std::optional<Found>& jump) {
    TRY_ASSIGN(auto file, open(i));
    TRY_ASSIGN(const auto size, file->size());
    SegmentScanner scanner(*file, segments_[i], from, std::min(size, scan_.segment_bytes));
    for (;;) {
      TRY_ASSIGN(const auto frame, scanner.look(true));
      if (frame && (end_.sequence == 0 || frame->at.sequence >= end_.sequence)) {
        TRY(take(*frame, scanner.payload()));
        scanner.pass(*frame);
        continue;
      }
      const auto whose = scanner.bad_frame();
      const auto why = scanner.bad();
      TRY_ASSIGN(const bool natural, next_goes_on(i));
      if (natural) return true;
      TRY_ASSIGN(jump, later(i, scanner.offset()));
      const bool was_durable = jump || end_.sequence < scan_.durable;
      if (whose && was_durable && whose->at.sequence == end_.sequence) {
        // Its header says how far it goes: what is damaged is this block alone, and it stays where it is.
        jump.reset();
        damaged(whose, whose->end(), why);
        end_ = whose->end();
        scanner.pass(*whose);
        continue;
      }
      if (!jump) return false;
      damaged(whose, jump->frame.at, why);
      return true;
    }
  }

  base::Status take(const Frame& frame, std::string_view payload) {
    // A hole in the sequence in front of a good frame: a segment is missing.
    if (end_.sequence != 0 && frame.at.sequence > end_.sequence && !told_)
      damaged(std::nullopt, frame.at, "blocks are missing");
    told_ = false;
    end_ = frame.end();
    return scan_.frame(frame, payload);
  }

  void damaged(const std::optional<Frame>& whose, const JournalPosition& to, const std::string& what) {
    told_ = true;
    scan_.damage({end_, to, what}, whose);
  }

  // What a root or the index saw durable is not there any more.
  void lost_tail() {
    JournalPosition to = end_;
    to.sequence = scan_.durable;
    scan_.damage({end_, to, "the end of the journal is lost"}, std::nullopt);
    end_.sequence = scan_.durable;
  }

  // Does the next segment begin with the sequence that is due?
  base::Result<bool> next_goes_on(size_t i) {
    if (i + 1 >= segments_.size()) return false;
    TRY_ASSIGN(auto file, open(i + 1));
    SegmentScanner scanner(*file, segments_[i + 1], 0, scan_.segment_bytes);
    TRY_ASSIGN(const auto frame, scanner.look(true));
    return frame && frame->at.sequence == end_.sequence;
  }

  // Damage or torn tail? The first good frame behind this place, if one of a later sync group is behind it, or if the
  // place is known to have been durable.
  base::Result<std::optional<Found>> later(size_t i, uint64_t from) {
    // Where all is here that is known to have been durable, one group can be: the rest of a segment needs not be read.
    const bool all_here = end_.sequence != 0 && end_.sequence >= scan_.durable && scan_.group_bytes_max != 0;
    const uint64_t reach = all_here ? reach_of(scan_.group_bytes_max) : scan_.segment_bytes;
    std::optional<Found> first;
    for (size_t j = i; j < segments_.size(); j++) {
      TRY_ASSIGN(auto file, open(j));
      TRY_ASSIGN(const auto size, file->size());
      const uint64_t begin = j == i ? from : 0;
      SegmentScanner scanner(*file, segments_[j], begin, std::min({size, scan_.segment_bytes, begin + reach}));
      for (;;) {
        TRY_ASSIGN(const auto frame, scanner.search(end_.sequence == 0 ? 0 : end_.sequence - 1));
        if (!frame) break;
        if (!first) first = Found{j, *frame};
        if (end_.sequence == 0 || frame->group > end_.sequence || end_.sequence < scan_.durable) return first;
        scanner.pass(*frame);
      }
    }
    return std::nullopt;
  }

  base::Result<std::shared_ptr<File>> open(size_t i) {
    if (opened_ == i && file_) return file_;
    TRY_ASSIGN(auto file, disk_.open(segment_path(segments_[i]), scan_.sync ? OpenMode::medium : OpenMode::read));
    if (scan_.sync && !synced_.contains(i)) {
      TRY(file->sync());
      file->drop_cache();
      synced_.insert(i);
    }
    file_ = std::move(file);
    opened_ = i;
    return file_;
  }

  Disk& disk_;
  const JournalScan& scan_;
  std::vector<uint64_t> segments_;
  JournalPosition end_;
  bool told_ = false;  // the hole in front of the next frame was reported
  std::shared_ptr<File> file_;
  size_t opened_ = 0;
  std::set<size_t> synced_;
};

}  // namespace

base::Result<std::vector<uint64_t>> list_segments(Disk& disk) {
  TRY_ASSIGN(const auto names, disk.list(kJournalDir));
  std::vector<uint64_t> segments;
  for (const auto& name : names)
    if (const auto n = segment_of_name(name); n != 0) segments.push_back(n);
  std::sort(segments.begin(), segments.end());
  return segments;
}

bool is_lost_end(const DamagedPlace& place, const JournalPosition& end) {
  return place.to.sequence == end.sequence && place.from.segment == place.to.segment &&
         place.from.offset == place.to.offset;
}

base::Result<JournalPosition> scan_journal(Disk& disk, const JournalScan& scan) {
  TRY_ASSIGN(auto segments, list_segments(disk));
  std::erase_if(segments, [&](uint64_t n) { return n < scan.start.segment; });
  return Scan(disk, scan, std::move(segments)).run();
}

namespace {

// The bytes there that finish_tail() is going to write over.
base::Result<std::string> bytes_at(Disk& disk, uint64_t segment, uint64_t from, uint64_t segment_bytes,
                                   uint64_t group_bytes_max) {
  auto file = disk.open(segment_path(segment), OpenMode::medium);
  if (!file && file.error().code == Code::not_found) return std::string();
  if (!file) return base::fail(std::move(file).error());
  TRY_ASSIGN(const auto size, (*file)->size());
  SegmentScanner scanner(**file, segment, from, std::min({size, segment_bytes, from + reach_of(group_bytes_max)}));
  TRY_ASSIGN(const auto length, scanner.nonzero_from(from));
  return (*file)->read(from, length);
}

}  // namespace

base::Result<std::string> keep_lost_tail(Disk& disk, const JournalPosition& end, uint64_t segment_bytes,
                                         uint64_t group_bytes_max, base::WallMs now) {
  TRY_ASSIGN(auto bytes, bytes_at(disk, end.segment, end.offset, segment_bytes, group_bytes_max));
  TRY_ASSIGN(const auto next, bytes_at(disk, end.segment + 1, 0, segment_bytes, group_bytes_max));
  bytes += next;
  if (bytes.empty()) return std::string();
  TRY(disk.make_dir(kTrashDir));
  TRY(disk.sync_dir(""));
  std::string path = std::string(kTrashDir) + "/" + std::string(kLostPrefix);
  for (const uint64_t n : {end.segment, end.offset, end.sequence}) path += std::to_string(n) + "-";
  path += std::to_string(now) + std::string(kLostEnd);
  if (auto kept = disk.write_whole(path, bytes); !kept) {
    (void)disk.remove(path + ".new");  // what of it was written takes the room of others
    return base::fail(std::move(kept).error());
  }
  CRASH_POINT("recovery.end_kept");
  return path;
}

base::Result<JournalPosition> behind_lost_tail(Disk& disk, const JournalPosition& end, uint64_t segment_bytes,
                                               uint64_t group_bytes_max) {
  TRY_ASSIGN(const auto here, bytes_at(disk, end.segment, end.offset, segment_bytes, group_bytes_max));
  TRY_ASSIGN(const auto next, bytes_at(disk, end.segment + 1, 0, segment_bytes, group_bytes_max));
  const auto aligned = [](uint64_t offset) { return (offset + kFrameAlign - 1) / kFrameAlign * kFrameAlign; };
  if (!next.empty()) return JournalPosition{end.segment + 1, aligned(next.size()), end.sequence};
  return JournalPosition{end.segment, aligned(end.offset + here.size()), end.sequence};
}

base::Result<Tail> finish_tail(Disk& disk, const JournalPosition& end, uint64_t segment_bytes,
                               uint64_t group_bytes_max) {
  Tail tail;
  if (auto removed = disk.remove("journal/next.tmp"); !removed && removed.error().code != Code::not_found)
    return base::fail(removed.error());
  TRY_ASSIGN(const auto segments, list_segments(disk));
  const uint64_t written = reach_of(group_bytes_max);
  bool removed = false;
  for (const uint64_t n : segments) {
    if (n <= end.segment) continue;
    TRY_ASSIGN(auto file, disk.open(segment_path(n), OpenMode::write));
    TRY_ASSIGN(const auto size, file->size());
    TRY_ASSIGN(const auto medium, disk.open(segment_path(n), OpenMode::medium));
    SegmentScanner scanner(*medium, n, 0, std::min({size, segment_bytes, written}));
    TRY_ASSIGN(const auto frame, scanner.search(0));
    if (n == end.segment + 1 && size == segment_bytes && !frame) {
      tail.ready = std::move(file);
    } else {
      TRY(disk.remove(segment_path(n)));
      removed = true;
    }
  }
  if (removed) TRY(disk.sync_dir(kJournalDir));
  auto file = disk.open(segment_path(end.segment), OpenMode::write);
  if (!file && file.error().code != Code::not_found) return base::fail(std::move(file).error());
  if (!file) {
    TRY_ASSIGN(tail.file, make_segment(disk, end.segment, segment_bytes, SegmentFill::zeros));
    return tail;
  }
  tail.file = std::move(*file);
  TRY_ASSIGN(const auto size, tail.file->size());
  TRY_ASSIGN(const auto medium, disk.open(segment_path(end.segment), OpenMode::medium));
  SegmentScanner scanner(*medium, end.segment, end.offset, std::min({size, segment_bytes, end.offset + written}));
  TRY_ASSIGN(tail.zeroed, scanner.nonzero_from(end.offset));
  CRASH_POINT("recovery.before_zero");
  if (MUTANT("no_torn_tail_zeroing")) return tail;
  if (tail.zeroed > 0) TRY(zero(*tail.file, end.offset, end.offset + tail.zeroed));
  if (size < segment_bytes) TRY(zero(*tail.file, size, segment_bytes));  // cut short: made whole again
  CRASH_POINT("recovery.after_zero");
  return tail;
}

}  // namespace cantle::store

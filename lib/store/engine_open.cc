// Opening: the index, its rows, then the journal from where the index stands.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/engine_impl.h"
#include "lib/store/recovery.h"
#include "lib/wire/block.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::BlockKind;

namespace {

constexpr JournalPosition kBeginning{1, 0, 1};

// What a lost index is rebuilt from: the newest list of tenures in the journal, and the divides and merges.
struct Lineage {
  std::vector<TenureRow> tenures;
  std::map<model::PartitionId, DivideNote> divides;    // by parent
  std::map<model::PartitionId, MergeNote> merges;      // by each of the two
  std::map<model::PartitionId, model::LogPoint> ends;  // of logs that have no tenure any more
  std::set<model::PartitionId> broken;                 // their logs are not whole
  // Whose the key is now that was that partition's.
  model::PartitionId heir(model::PartitionId partition, std::string_view key) const {
    for (;;) {
      if (const auto d = divides.find(partition); d != divides.end())
        partition = key < d->second.point ? d->second.low.partition : d->second.high.partition;
      else if (const auto m = merges.find(partition); m != merges.end())
        partition = m->second.target.partition;
      else
        return partition;
    }
  }
  // Does all of the log stand in the journal, up to there?
  bool whole_to(const model::PartitionId& partition, const model::LogPoint& at) const {
    const auto end = ends.find(partition);
    return !broken.contains(partition) && (end == ends.end() ? model::LogPoint{} : end->second) == at;
  }
};

base::Result<Lineage> read_lineage(Disk& disk, const JournalScan& base_scan) {
  Lineage lineage;
  std::vector<TenureRow> gathering;
  uint32_t next_part = 0;
  JournalScan scan = base_scan;
  scan.damage = [](const DamagedPlace&, const std::optional<Frame>&) {};
  scan.frame = [&](const Frame& frame, std::string_view payload) -> base::Status {
    if (frame.header.kind == BlockKind::divide) {
      if (auto note = decode_note(payload)) lineage.divides[note->parent] = std::move(*note);
    } else if (frame.header.kind == BlockKind::merge) {
      if (auto note = decode_merge_note(payload))
        lineage.merges[note->low.partition] = lineage.merges[note->high.partition] = std::move(*note);
    } else if (frame.header.kind == BlockKind::root_image) {
      auto image = decode_image(payload);
      if (!image || !image->has_tenures) return ok();
      if (image->part == 0) {
        gathering.clear();
        next_part = 0;
      }
      if (image->part != next_part) return ok();
      next_part++;
      std::move(image->tenures.begin(), image->tenures.end(), std::back_inserter(gathering));
      if (next_part == image->parts) lineage.tenures = std::move(gathering);
    }
    return ok();
  };
  TRY(scan_journal(disk, scan));
  return lineage;
}

// A note that no divide writes, though its checksum is right: what it makes of the parent would be no copies.
base::Status check_note(const Log& log, const DivideNote& note) {
  const auto bad = [&](const char* why) {
    return base::fail(Code::corrupt, "journal: a divide of partition " + to_string(note.parent) + " " + why);
  };
  if (!log.row.interval.contains(note.point) || note.point == log.row.interval.begin)
    return bad("at a point outside of it");
  if (note.low.partition == note.parent || note.high.partition == note.parent ||
      note.low.partition == note.high.partition)
    return bad("into what is not two others");
  if (note.log.has_value() != (log.quorum != nullptr)) return bad("with a log of another sort");
  if (!note.log) return ok();
  const auto& epochs = note.log->epochs;
  for (size_t n = 0; n < epochs.size(); n++)
    if (epochs[n].first > note.at.lsn ||
        (n > 0 && (epochs[n].epoch <= epochs[n - 1].epoch || epochs[n].first <= epochs[n - 1].first)))
      return bad("whose epochs are not a log's");
  return ok();
}
base::Status check_note(const Log& low, const Log& high, const MergeNote& note) {
  const auto bad = [&](const char* why) {
    return base::fail(Code::corrupt, "journal: a merge of partitions " + to_string(note.low.partition) + " and " +
                                         to_string(note.high.partition) + " " + why);
  };
  if (low.row.table != high.row.table || low.row.interval.end.empty() ||
      low.row.interval.end != high.row.interval.begin)
    return bad("that are no neighbours");
  const auto& target = note.target;
  if (target.partition.none() || target.assignment.none() || target.partition == note.low.partition ||
      target.partition == note.high.partition)
    return bad("into what is not another");
  if ((low.quorum != nullptr) != (high.quorum != nullptr)) return bad("with logs of two sorts");
  return ok();
}

}  // namespace

// One recovery: the state that only replay needs.
class Replay {
 public:
  Replay(Engine::Impl& engine, bool rebuild) : e_(engine), rebuild_(rebuild) {}

  base::Status run();

 private:
  base::Status rebuild_rows();
  base::Status frame(const Frame& frame, std::string_view payload);
  base::Status make_room();
  base::Status data(const Frame& frame, std::string_view payload);
  base::Status quorum(Log& log, const Frame& frame, std::string_view payload);
  base::Status quorum_before(Log& log, const Frame& frame);
  base::Status quorum_block(Log& log, const Frame& frame, std::string_view payload);
  base::Status quorum_end(Log& log, const model::LogPoint& at);
  void quorum_damage(Log& log, const DamagedPlace& place, const std::optional<Frame>& whose);
  base::Result<std::shared_ptr<File>> segment_file(uint64_t segment);  // for values that stay there
  void follow(const Frame& frame, std::string_view payload);
  base::Status divide(const DivideNote& note, const JournalPosition& at);
  base::Status merge(const MergeNote& note, const JournalPosition& at);
  void begun_lost(Log& log, const model::LogPoint& start, const DivideLog* as, bool whole);
  void damage(const DamagedPlace& place, const std::optional<Frame>& whose);
  void doubt(Log& log, uint64_t sequence);
  base::Status settle();
  base::Status doubt_parents(WriteTxn& txn);
  base::Status keep_lost_end(JournalPosition& end);
  base::Status remember(const JournalPosition& end);
  JournalScan scan();
  JournalPosition start_of_scan() const;

  Engine::Impl& e_;
  bool rebuild_;
  Lineage lineage_;
  std::map<model::PartitionId, model::LogPoint> promised_;  // rebuild: where the list of tenures saw each log
  bool doubted_ = false;
  std::map<model::PartitionId, JournalPosition> starts_;      // where each quorum log is read from
  std::map<model::PartitionId, std::vector<TailBlock>> cut_;  // blocks before it that may have been cut
  std::shared_ptr<File> file_;
  uint64_t file_segment_ = 0;
};

// Where the index stands, or before it, where a quorum table's log has something that is not in the index yet.
JournalPosition Replay::start_of_scan() const {
  if (rebuild_) return {};
  JournalPosition start = e_.index_applied;
  for (const auto& [partition, log] : e_.live)
    for (const auto& at : needs_of(log->row)) start = std::min(start, at);
  return start;
}

JournalScan Replay::scan() {
  JournalScan scan;
  scan.start = start_of_scan();
  scan.segment_bytes = e_.config.segment_bytes;
  scan.group_bytes_max = e_.config.group_bytes_max;
  const Root* root = e_.roots.newest();
  scan.durable =
      std::max({root == nullptr ? 0 : root->head.sequence, e_.index_applied.sequence,
                e_.parts.live == nullptr || MUTANT("damaged_end_is_torn") ? 0 : e_.parts.live->durable_before()});
  scan.frame = [this](const Frame& f, std::string_view payload) { return frame(f, payload); };
  scan.damage = [this](const DamagedPlace& place, const std::optional<Frame>& whose) { damage(place, whose); };
  return scan;
}

base::Status Replay::run() {
  const auto started = e_.parts.clock.now();
  TRY_ASSIGN(const auto segments, list_segments(e_.parts.disk));
  for (const uint64_t n : segments) e_.segments[n] = {};
  e_.scan_start = start_of_scan().sequence;
  if (rebuild_) TRY(rebuild_rows());
  for (const auto& [partition, log] : e_.live)
    if (const auto& row = log->row.quorum)
      starts_[partition] = rebuild_ ? JournalPosition{} : row->from_sequence != 0 ? row->from() : e_.index_applied;
  TRY_ASSIGN(auto end, scan_journal(e_.parts.disk, scan()));
  e_.overlay.settle();
  // The index may hold something newer that lay in a block we cannot read.
  if (!e_.report.damaged.empty() || rebuild_) e_.overlay.distrust();
  if (end.sequence == 0) end = kBeginning;
  const bool there = e_.segments.contains(end.segment);
  if (!there && end.sequence > 1) {  // the segment of the end is gone: never write under a number that readers may know
    const uint64_t last = segments.empty() ? 0 : segments.back();
    end = {std::max(end.segment, last) + 1, 0, end.sequence};
  }
  const Root* root = e_.roots.newest();
  e_.report.clean = root != nullptr && root->clean && root->head == end;
  TRY(keep_lost_end(end));
  if (!e_.report.damaged.empty()) TRY(remember(end));
  TRY_ASSIGN(auto tail, finish_tail(e_.parts.disk, end, e_.config.segment_bytes, e_.config.group_bytes_max));
  if (tail.zeroed > 0) {
    e_.report.torn_bytes = tail.zeroed;
    base::log(base::Level::notice, "journal-tail-cut",
              {{"segment", end.segment}, {"offset", end.offset}, {"bytes", tail.zeroed}});
  }
  for (auto it = e_.segments.begin(); it != e_.segments.end();)
    it = it->first > end.segment ? e_.segments.erase(it) : std::next(it);
  e_.segments[end.segment];
  TRY(settle());
  e_.journal->start(end, tail.file, tail.ready);
  e_.report.took = e_.parts.clock.now() - started;
  return ok();
}

// No peer need have what the end of a journal on every replica was, and its bytes are about to be written over. S65: a
// full disk is no reason not to start, nor to write over them.
base::Status Replay::keep_lost_end(JournalPosition& end) {
  if (e_.report.damaged.empty() || !is_lost_end(e_.report.damaged.back(), end)) return ok();
  if (MUTANT("damaged_end_not_kept")) return ok();
  auto kept = keep_lost_tail(e_.parts.disk, e_.report.damaged.back().from, e_.config.segment_bytes,
                             e_.config.group_bytes_max, e_.parts.clock.wall_ms());
  if (kept && !kept->empty()) base::log(base::Level::warn, "journal-end-kept", {{"file", *kept}});
  if (kept) return ok();
  if (kept.error().code != Code::no_space)
    return base::fail(std::move(kept).error().wrap("keeping the damaged end of the journal in the trash"));
  TRY_ASSIGN(const auto behind,
             behind_lost_tail(e_.parts.disk, end, e_.config.segment_bytes, e_.config.group_bytes_max));
  const uint64_t segments = behind.segment - end.segment;
  e_.report.left_bytes = segments * e_.config.segment_bytes + behind.offset - end.offset;
  base::log(base::Level::error, "journal-end-left",
            {{"segment", end.segment},
             {"offset", end.offset},
             {"bytes", e_.report.left_bytes},
             {"why", "the trash has no room for the damaged end of the journal: " + to_string(kept.error())}});
  end = behind;
  return ok();
}

// What showed that a damaged place is no torn tail may lie in the torn tail itself, and is about to be zeroed: a root
// says it from now on. Else the next recovery would end at the damage, and cut what this one found behind it.
base::Status Replay::remember(const JournalPosition& end) {
  const Root* newest = e_.roots.newest();
  if (newest != nullptr && newest->head.sequence >= end.sequence) return ok();
  const Root root = e_.next_root(end);
  TRY(write_root(e_.parts.disk, root));
  e_.roots.slot[root.generation % 2] = root;
  return ok();
}

base::Status Replay::frame(const Frame& frame, std::string_view payload) {
  const auto& h = frame.header;
  e_.report.frames++;
  e_.report.bytes += h.length;
  const bool reshapes = (h.kind == BlockKind::divide || h.kind == BlockKind::merge) && e_.index_applied <= frame.at;
  if (Log* log = e_.find_log(h.partition); log != nullptr && log->quorum && !reshapes)
    return quorum(*log, frame, payload);
  if (frame.at < e_.index_applied) {  // read for a quorum table's log; all of this is in the index
    e_.note_frame(frame);
    return ok();
  }
  switch (h.kind) {
    case BlockKind::data: TRY(data(frame, payload)); break;
    case BlockKind::divide: {
      auto note = decode_note(payload);
      if (!note) return base::fail(std::move(note).error().wrap("journal: divide block at " + to_string(frame.at)));
      TRY(divide(*note, frame.at));
      break;
    }
    case BlockKind::merge: {
      auto note = decode_merge_note(payload);
      if (!note) return base::fail(std::move(note).error().wrap("journal: merge block at " + to_string(frame.at)));
      TRY(merge(*note, frame.at));
      break;
    }
    case BlockKind::root_image:
      if (auto image = decode_image(payload); image && image->has_tenures) e_.image_segment = frame.at.segment;
      break;
    case BlockKind::seal:
    case BlockKind::truncate:
    case BlockKind::epoch_start:
    case BlockKind::cut:
    case BlockKind::uncut:
    case BlockKind::mended_data:
    case BlockKind::mended_epoch_start:
    case BlockKind::mended_cut:
    case BlockKind::mended_uncut: break;
  }
  e_.take_durable(frame, payload, nullptr, nullptr);
  return make_room();
}

// Half of the bound is the running engine's; here nothing else is in the way.
base::Status Replay::make_room() {
  if (e_.active_bytes() >= e_.config.overlay_bytes / 8 * 7 || e_.backlog() >= e_.backlog_max() / 8 * 7)
    TRY(e_.apply_now());
  return ok();
}

base::Status Replay::data(const Frame& frame, std::string_view payload) {
  const auto& h = frame.header;
  Log* log = e_.find_log(h.partition);
  if (log == nullptr) {
    if (rebuild_) follow(frame, payload);
    return ok();
  }
  const bool fresh = h.first.value == 1 && h.prev_epoch.value == 0 && h.prev_crc == 0;
  if (rebuild_ && fresh) log->end = {};  // a later tenure's log begins
  if (h.last() <= log->end.lsn) return ok();
  if (before_of(h) != log->end) doubt(*log, frame.at.sequence);
  log->end = point_of(h);
  e_.report.records += h.records;
  TRY_ASSIGN(const auto file, segment_file(frame.at.segment));
  e_.take_durable(frame, payload, log, file);
  return ok();
}

// A quorum table's log: as Engine::Impl::quorum_durable() has it, once it is known to follow.
base::Status Replay::quorum(Log& log, const Frame& frame, std::string_view payload) {
  auto& q = *log.quorum;
  const auto& h = frame.header;
  if (frame.at.sequence < q.begins) {  // of an older tenure
    e_.note_frame(frame);
    return ok();
  }
  if (frame.at < starts_.at(log.row.partition)) return quorum_before(log, frame);
  if (is_log_block(h.kind)) {
    TRY(quorum_block(log, frame, payload));
  } else if (h.kind == BlockKind::seal) {
    q.promised = std::max(q.promised, h.epoch);
    q.highest = std::max(q.highest, h.epoch);
    e_.quorum_durable(log, frame, "", nullptr);
  } else if (h.kind == BlockKind::truncate) {
    if (h.prev_lsn < q.visible.lsn &&
        !q.empty) {  // what is committed is never cut: something is wrong with the journal
      doubt(log, frame.at.sequence);
      e_.note_frame(frame);
      return ok();
    }
    e_.quorum_durable(log, frame, "", nullptr);
    log.end = log.durable;
    q.epochs.cut(h.prev_lsn);
    q.cuts.truncate(h.prev_lsn);
  } else if (model::is_mended(h.kind) && !MUTANT("mended_is_forgotten")) {
    e_.quorum_durable(log, frame, std::string(payload), nullptr);
  } else {
    e_.note_frame(frame);
  }
  return make_room();
}

// What stands before the place where this log is to be read from, and is read for another's: only the journal's index
// learns of it, and of what was cut there, the trash.
base::Status Replay::quorum_before(Log& log, const Frame& frame) {
  auto& q = *log.quorum;
  const auto& h = frame.header;
  e_.note_frame(frame);
  if (!is_log_block(h.kind) && h.kind != BlockKind::truncate) return ok();
  auto& blocks = cut_[log.row.partition];
  if (is_log_block(h.kind)) {
    q.index.add(h.first, frame.at);
    const auto cut = log.row.quorum->cut();
    if (cut.sequence == 0 || frame.at < cut) return ok();
    TailBlock block;
    block.frame = frame;
    TRY_ASSIGN(block.file, segment_file(frame.at.segment));
    blocks.push_back(std::move(block));
    return ok();
  }
  q.index.cut(h.prev_lsn, frame.at);
  const auto first = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const TailBlock& b) { return b.frame.header.last() > h.prev_lsn; });
  std::vector<TailBlock> off(std::make_move_iterator(first), std::make_move_iterator(blocks.end()));
  blocks.erase(first, blocks.end());
  e_.put_aside(log, frame, std::move(off));
  return ok();
}

base::Status Replay::quorum_block(Log& log, const Frame& frame, std::string_view payload) {
  auto& q = *log.quorum;
  const auto& h = frame.header;
  if (h.last() <= log.end.lsn) {  // never for a cut: a truncate block says that (S18)
    e_.note_frame(frame);
    if (log.end == point_of(h)) return ok();
    const bool known =
        std::any_of(q.tail.begin(), q.tail.end(), [&](const TailBlock& b) { return b.end() == point_of(h); });
    if (!known && h.last() > q.visible.lsn) doubt(log, frame.at.sequence);
    return ok();
  }
  if (log.end != before_of(h)) {
    doubt(log, frame.at.sequence);
    q.hole = true;
    // An index is made anew only from a whole log: of a part, the records are not taken in, the log's end is.
    q.empty = q.empty || rebuild_;
  }
  e_.report.records += h.kind == BlockKind::data ? h.records : 0;
  e_.note_block(log, h, payload);
  TRY_ASSIGN(const auto file, segment_file(frame.at.segment));
  e_.quorum_durable(log, frame, std::string(payload), file);
  return ok();
}

// A block whose header is readable, and follows, is the log's end all the same: nobody may think that it is not there.
void Replay::quorum_damage(Log& log, const DamagedPlace& place, const std::optional<Frame>& whose) {
  auto& q = *log.quorum;
  if (place.to <= starts_.at(log.row.partition)) return;  // it was read before
  if (place.to.sequence <= q.begins) return;              // of an older copy
  const bool one = whose && place.to.sequence == whose->at.sequence + 1;
  if (one && whose->header.partition != log.row.partition) return;
  if (one && model::is_mended(whose->header.kind)) return;  // what it was to mend is missing still
  const bool block = one && is_log_block(whose->header.kind);
  if (block && whose->header.last() <= log.end.lsn) return;
  // It is no seal, and it is known where the log ends: only its bytes are missing.
  if (!block || before_of(whose->header) != log.end) doubt(log, place.to.sequence);
  if (!block) return;
  const auto& h = whose->header;
  q.hole = true;
  q.empty = q.empty || rebuild_;
  e_.note_block(log, h, "");  // of a cut, nobody knows which: this log leads nobody
  log.durable = log.end;
  q.index.add(h.first, whose->at);
  q.tail.emplace_back().frame = *whose;
  q.tail.back().damaged = true;
  q.bytes += h.length;
  q.dirty = true;
}

base::Result<std::shared_ptr<File>> Replay::segment_file(uint64_t segment) {
  if (file_segment_ == segment) return file_;
  TRY_ASSIGN(auto file, e_.parts.disk.open(segment_path(segment), OpenMode::read));
  file_ = std::move(file);
  file_segment_ = segment;
  return file_;
}

// Rebuilding: a block of a partition that was divided or merged since goes to whoever has its keys now.
void Replay::follow(const Frame& frame, std::string_view payload) {
  const auto& h = frame.header;
  if (!lineage_.divides.contains(h.partition) && !lineage_.merges.contains(h.partition)) return;
  const auto known = lineage_.ends.find(h.partition);
  const model::LogPoint before = known == lineage_.ends.end() ? model::LogPoint{} : known->second;
  if (before != before_of(h)) lineage_.broken.insert(h.partition);
  lineage_.ends[h.partition] = point_of(h);
  wire::RecordReader in(payload);
  for (model::RecordView r; in.next(r);) {
    const auto partition = lineage_.heir(h.partition, r.key);
    // Of a quorum table's log it is not known here what was committed.
    if (Log* log = e_.find_log(partition); log != nullptr && !log->quorum) {
      std::string one;
      wire::append_record(one, r);
      e_.put_records(*log, one, nullptr);
      e_.pending.points[partition];  // something of it is in this half
    }
  }
}

base::Status Replay::divide(const DivideNote& note, const JournalPosition& at) {
  Log* log = e_.find_log(note.parent);
  if (log != nullptr && log->row.assignment == note.assignment) {
    TRY(check_note(*log, note));
    if (log->quorum)
      TRY(quorum_end(*log, note.at));
    else if (log->end != note.at)
      doubt(*log, UINT64_MAX);
    e_.divide_memory(note);
    for (const auto& child : {note.low.partition, note.high.partition}) {
      Log* c = e_.find_log(child);
      if (c == nullptr) continue;
      c->durable = note.at;
      if (c->quorum) starts_[child] = at;
    }
    return ok();
  }
  if (!rebuild_) return ok();
  // The children are there from the start: their logs begin where the parent's ended, whole if that was.
  const bool whole = lineage_.whole_to(note.parent, note.at);
  for (const auto& child : {note.low.partition, note.high.partition}) {
    lineage_.ends[child] = note.at;
    if (!whole) lineage_.broken.insert(child);
    if (Log* c = e_.find_log(child)) begun_lost(*c, note.at, note.log ? &*note.log : nullptr, whole);
  }
  return ok();
}

base::Status Replay::merge(const MergeNote& note, const JournalPosition& at) {
  Log* low = e_.find_log(note.low.partition);
  Log* high = e_.find_log(note.high.partition);
  const auto is = [](const Log* log, const MergeParent& p) {
    return log != nullptr && log->row.assignment == p.assignment;
  };
  const auto target = note.target.partition;
  if (is(low, note.low) && is(high, note.high)) {
    TRY(check_note(*low, *high, note));
    for (const auto& [log, end] : {std::pair(low, note.low.at), std::pair(high, note.high.at)}) {
      if (log->quorum)
        TRY(quorum_end(*log, end));
      else if (log->end != end)
        doubt(*log, UINT64_MAX);
    }
    e_.merge_memory(note);
    Log* log = e_.find_log(target);
    log->durable = log->end;
    if (log->quorum) starts_[target] = at;
    return ok();
  }
  if (!rebuild_) return ok();
  const bool whole =
      lineage_.whole_to(note.low.partition, note.low.at) && lineage_.whole_to(note.high.partition, note.high.at);
  lineage_.ends[target] = note.start();
  if (!whole) lineage_.broken.insert(target);
  const DivideLog as{
      {{note.start().epoch, note.start().lsn}}, std::max(note.low.log_time_ms, note.high.log_time_ms), note.begins};
  if (Log* log = e_.find_log(target)) begun_lost(*log, note.start(), &as, whole);
  return ok();
}

// Whoever divided or merged it knew that the cut is committed, and saw to it that nothing that is needed stands behind.
base::Status Replay::quorum_end(Log& log, const model::LogPoint& at) {
  auto& q = *log.quorum;
  q.commit = std::max(q.commit, std::min(at.lsn, log.end.lsn));
  TRY(e_.let_in(log));
  for (bool moved = true; moved && q.visible.lsn < at.lsn;) {  // the overlay is full
    const auto before = q.visible;
    TRY(e_.apply_now());
    moved = q.visible != before;
  }
  const bool past = q.visible.lsn > at.lsn;  // nothing but epoch starts
  if (past || q.visible == at) return ok();
  // Damage came between: what goes on from it has to be filled.
  q.empty = true;
  doubt(log, UINT64_MAX);
  return ok();
}

// The index is made anew, and what the log goes on from is no more: it has what lies behind the divide or the merge.
void Replay::begun_lost(Log& log, const model::LogPoint& start, const DivideLog* as, bool whole) {
  log.row.log_start = log.end = log.durable = start;
  if (log.quorum && as != nullptr) {
    auto& q = *log.quorum;
    q.empty = true;
    q.visible = start;
    q.commit = start.lsn;
    q.epochs = EpochTable(as->epochs);
    q.log_time_ms = as->log_time_ms;
  }
  if (!whole || log.quorum) doubt(log, UINT64_MAX);
}

void Replay::doubt(Log& log, uint64_t sequence) {
  if (sequence < log.row.healed || !log.row.whole) return;
  log.row.whole = false;
  doubted_ = true;
  base::log(base::Level::error, "log-damaged",
            {{"partition", model::to_string(log.row.partition)}, {"after_lsn", log.end.lsn.value}});
}

void Replay::damage(const DamagedPlace& place, const std::optional<Frame>& whose) {
  base::log(base::Level::error, "journal-damaged",
            {{"from", to_string(place.from)}, {"to", to_string(place.to)}, {"what", place.what}});
  e_.report.damaged.push_back(place);
  for (auto& [partition, log] : e_.live) {
    if (log->quorum) {
      quorum_damage(*log, place, whose);
      continue;
    }
    if (place.to <= e_.index_applied) continue;  // all of it was applied
    // One block whose header is readable tells whose it was; else it may have been anybody's.
    const bool one = whose && place.to.sequence == whose->at.sequence + 1;
    if (one && (whose->header.kind != BlockKind::data || whose->header.partition != partition)) continue;
    if (one && whose->header.last() <= log->row.applied.lsn) continue;  // it is in the index
    doubt(*log, place.to.sequence);
    // Its LSNs are taken, by a header that readers of the journal will see: what comes next goes on behind it.
    if (one && before_of(whose->header) == log->end) log->end = log->durable = point_of(whose->header);
  }
}

base::Status Replay::rebuild_rows() {
  auto look = scan();
  TRY_ASSIGN(lineage_, read_lineage(e_.parts.disk, look));
  // What a divide or a merge behind the list made is made again by its replay.
  std::set<model::PartitionId> listed;
  for (const auto& row : lineage_.tenures) listed.insert(row.partition);
  for (auto it = lineage_.divides.begin(); it != lineage_.divides.end();)
    it = listed.contains(it->first) ? lineage_.divides.erase(it) : std::next(it);
  for (auto it = lineage_.merges.begin(); it != lineage_.merges.end();)
    it = listed.contains(it->first) ? lineage_.merges.erase(it) : std::next(it);
  TRY_ASSIGN(auto txn, e_.index->begin());
  TRY_ASSIGN(auto meta, read_meta(*txn));
  CHECK(meta);
  for (const auto& old : lineage_.tenures) {
    if (old.state != RowState::live) continue;  // what was set aside is gone with the index
    promised_[old.partition] = old.applied;
    TenureRow row = old;
    row.applied = row.log_start = {};
    row.fill_snapshot = 0;
    row.fill_to.clear();
    // Records that came in a snapshot were never in the journal.
    if (old.hollow) row.whole = false;
    row.fill_all = false;
    row.refill.reset();
    if (row.quorum) row.quorum->series_whole = false;
    const model::ExtentId extent{meta->next_extent++};
    row.parts = {{extent, row.interval}};
    if (row.quorum) {
      row.quorum->set_from({});
      row.quorum->set_cut({});
      row.quorum->log_time_ms = 0;
    }
    ExtentRow pieces;
    pieces.pieces.push_back({row.interval, row.partition, row.assignment, "", {}});
    TRY(write_extent(*txn, extent, pieces));
    TRY(write_tenure(*txn, row));
    auto log = std::make_shared<Log>();
    log->row = row;
    e_.begin_log(*log);
    e_.live[row.partition] = std::move(log);
    e_.extents[extent] = std::move(pieces);
  }
  TRY(write_meta(*txn, *meta));
  return txn->commit();
}

// Rows that are no longer what the index says of them.
base::Status Replay::settle() {
  for (auto& [partition, log] : e_.live) {
    const auto it = promised_.find(partition);
    if (it != promised_.end() && it->second.lsn > log->end.lsn) {
      doubt(*log, UINT64_MAX);
      log->end = log->durable = it->second;
      if (log->quorum) {
        e_.drop_tail(*log);
        log->quorum->empty = true;
        log->quorum->visible = log->end;
      }
    }
    if (log->quorum) {
      auto& q = *log->quorum;
      q.commit = std::min(std::max(q.commit, std::exchange(q.recovered, {})), log->end.lsn);
      TRY(e_.let_in(*log));
      // Recovery may have read from further back than the next one has to.
      q.dirty = q.dirty || !needs_of(log->row).empty();
    }
  }
  if (rebuild_) {
    TRY(e_.apply_now());
    while (!e_.pending.empty()) TRY(e_.apply_now());  // of quorum logs, what had to wait for room
  }
  if (!doubted_ && !rebuild_) return ok();
  TRY_ASSIGN(auto txn, e_.index->begin());
  if (rebuild_) {
    TRY_ASSIGN(auto meta, read_meta(*txn));
    CHECK(meta);
    meta->rebuilding = false;
    TRY(write_meta(*txn, *meta));
  }
  for (auto& [partition, log] : e_.live) {
    TRY_ASSIGN(auto row, read_tenure(*txn, log->id()));
    if (!row) continue;  // its divide or merge is still to be applied: a parent's row says it
    row->whole = log->row.whole;
    if (rebuild_) {
      row->log_start = log->row.log_start;
      row->applied = log->row.applied = log->quorum ? log->quorum->visible : log->end;
    }
    // Only where all that is visible is applied: else it would say that what is in the overlay need not be read again.
    if (log->quorum && rebuild_) row->quorum = log->row.quorum = e_.quorum_row(*log);
    TRY(write_tenure(*txn, *row));
  }
  TRY(doubt_parents(*txn));
  return txn->commit();
}

// Rows that a divide or a merge which is still to be applied will make get it from those that they are made of.
base::Status Replay::doubt_parents(WriteTxn& txn) {
  std::set<model::PartitionId> doubtful;
  for (const auto& [partition, log] : e_.live)
    if (!log->row.whole) doubtful.insert(partition);
  const auto& reshapes = e_.pending.reshapes;
  for (auto reshape = reshapes.rbegin(); reshape != reshapes.rend(); ++reshape) {
    const auto made = made_by(*reshape);
    if (std::none_of(made.begin(), made.end(), [&](const auto& p) { return doubtful.contains(p); })) continue;
    for (const auto& parent : ended_by(*reshape)) {
      doubtful.insert(parent.partition);
      TRY_ASSIGN(auto row, read_tenure(txn, parent));
      if (!row) continue;
      row->whole = false;
      TRY(write_tenure(txn, *row));
    }
  }
  return ok();
}

// --- the index ----------------------------------------------------------------------------------

// Opens it and judges it: damaged, foreign, or fine. A reason: it is to be set aside.
base::Status Engine::Impl::load_rows() {
  auto reader = index->reader();
  TRY(reader->renew());
  TRY_ASSIGN(const auto meta, read_meta(*reader));
  if (!meta) return ok();
  if (meta->server != identity.server.name || meta->cluster != identity.cluster)
    return base::fail(Code::corrupt, "it belongs to server '" + meta->server + "' of another directory");
  if (meta->rebuilding) return base::fail(Code::corrupt, "it was being rebuilt when the server ended");
  TRY_ASSIGN(const auto rows, read_tenures(*reader));
  TRY_ASSIGN(const auto pieces, read_extents(*reader));
  {
    TRY_ASSIGN(const auto cursor, reader->cursor(Db::series));
    TRY_ASSIGN(const auto first, cursor->seek(""));
    series_sweep_wanted = first.has_value();
  }
  index_applied = meta->applied;
  highest = std::max(highest, meta->highest);
  for (const auto& [extent, row] : pieces) extents[extent] = row;
  for (const auto& row : rows) {
    if (row.state != RowState::live) {
      others[{row.partition, row.assignment}] = row;
      continue;
    }
    auto log = std::make_shared<Log>();
    log->row = row;
    begin_log(*log);
    live[row.partition] = std::move(log);
  }
  count_quorum_logs();
  return ok();
}

// From its row, before anything of the journal was read.
void Engine::Impl::begin_log(Log& log) const {
  log.end = log.durable = log.row.applied;
  if (!log.row.quorum) return;
  const auto& row = *log.row.quorum;
  log.quorum = std::make_unique<QuorumState>();
  auto& q = *log.quorum;
  q.epochs = EpochTable(row.epochs);
  q.epochs.cut(log.row.applied.lsn);  // the others are read again
  q.cuts = model::CutTable(row.cuts);
  q.cuts.truncate(log.row.applied.lsn);
  q.promised = q.sealed = row.promised;
  q.highest = row.highest;
  q.commit = log.row.applied.lsn;
  q.recovered = row.commit;
  q.visible = log.row.applied;
  q.log_time_ms = row.log_time_ms;
  q.begins = row.begins;
  q.empty = row.lacking;
  q.learned = false;
}

base::Status Engine::Impl::open_index() {
  const auto attempt = [this]() -> base::Status {
    TRY_ASSIGN(auto opened, parts.indexes.open());
    index = std::move(opened);
    return load_rows();
  };
  auto first = attempt();
  if (!first && first.error().code != Code::corrupt) return first;
  if (!first) {
    index.reset();
    live.clear();
    others.clear();
    extents.clear();
    quorum_logs = 0;
    index_applied = {};
    report.index_rebuilt = true;
    report.index_reason = first.error().text;
    TRY(parts.indexes.set_aside(first.error().text));
    TRY(attempt());
  }
  return ok();
}

base::Status Engine::Impl::open() {
  TRY(parts.disk.make_dir(kJournalDir));
  TRY(parts.disk.sync_dir(""));
  TRY_ASSIGN(roots, Roots::read(parts.disk));
  if (const Root* root = roots.newest()) highest = root->highest;
  TRY(open_index());
  TRY_ASSIGN(const auto segments_there, list_segments(parts.disk));
  report.first = roots.newest() == nullptr && segments_there.empty();
  // Its first row is durable before the first segment is made: a directory with either a segment or a root had an
  // index. (A server that dies before its first checkpoint has no root.)
  const bool empty = index_applied.sequence == 0;
  if (empty && !report.first && !report.index_rebuilt) {
    report.index_rebuilt = true;
    report.index_reason = "the index is gone";
    base::log(base::Level::error, "index-gone", {});
  }
  if (empty) {
    MetaRow meta;
    meta.server = identity.server.name;
    meta.cluster = identity.cluster;
    meta.incarnation = identity.incarnation;
    meta.applied = index_applied = kBeginning;
    meta.rebuilding = report.index_rebuilt;
    TRY_ASSIGN(auto txn, index->begin());
    TRY(write_meta(*txn, meta));
    TRY(txn->commit());
  }
  turn = index->reader();
  Replay replay(*this, report.index_rebuilt);
  TRY(replay.run());
  if (failed) return base::fail(*failed);
  count_quorum_logs();
  if (auto s = parts.disk.space()) space = *s;
  check_space();
  last_checkpoint = last_second = last_readers = last_series_sweep = last_block = parts.clock.now();
  if (parts.live != nullptr) {
    parts.live->set_durable(journal->durable());
    parts.live->tell();
  }
  image_wanted = true;
  if (!pending.empty()) added_n = durable_n = 1;  // what was replayed counts as a block: a drain must wait for it too
  write_cut_offs();
  maybe_seal();
  base::log(base::Level::info, "recovered",
            {{"frames", report.frames},
             {"records", report.records},
             {"head", to_string(journal->durable())},
             {"ms", base::to_ms(report.took)}});
  return ok();
}

Engine::Impl::Impl(EngineParts p, const EngineConfig& c, Identity id) : parts(p), config(c), identity(std::move(id)) {
  epoch = {identity.incarnation.value};
  JournalHandlers handlers;
  handlers.durable = [this](std::vector<JournalBlock> blocks, const std::shared_ptr<File>& file) {
    on_durable(std::move(blocks), file);
  };
  handlers.failed = [this](const base::Error& error) { fail(error); };
  handlers.changed = [this] { set_read_only(); };
  journal = std::make_unique<Journal>(
      parts.disk, parts.executor, JournalOptions{config.segment_bytes, config.group_bytes_max}, std::move(handlers));
}

Engine::Impl::~Impl() = default;

}  // namespace cantle::store

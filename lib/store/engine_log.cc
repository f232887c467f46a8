// Logs of quorum tables, away from the way of a write: their rows, blocks that are asked for again, what was cut.
#include <algorithm>
#include <cstdlib>

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
using model::LogPoint;
using model::Lsn;

namespace {

constexpr uint32_t kRetryAfterMs = 20;
constexpr size_t kLogFilesMax = 4;  // segments kept open for reading logs
constexpr std::string_view kCutPrefix = "cut-", kCutEnd = ".blocks";
constexpr base::Duration kSweepEvery = std::chrono::minutes(1);

base::Error later(Code code, std::string text) {
  base::Error e(code, std::move(text));
  e.retry_after_ms = kRetryAfterMs;
  return e;
}

}  // namespace

// --- rows ---------------------------------------------------------------------------------------

void Engine::Impl::count_quorum_logs() {
  quorum_logs = static_cast<size_t>(
      std::count_if(live.begin(), live.end(), [](const auto& l) { return l.second->quorum != nullptr; }));
}

// Where recovery must begin to read for it, if before the index's position.
std::vector<JournalPosition> needs_of(const TenureRow& row) {
  std::vector<JournalPosition> needs;
  if (row.quorum && row.quorum->from_sequence != 0) needs.push_back(row.quorum->from());
  if (row.quorum && row.quorum->cut_sequence != 0) needs.push_back(row.quorum->cut());
  return needs;
}

QuorumRow Engine::Impl::quorum_row(const Log& log) const {
  const auto& q = *log.quorum;
  QuorumRow row;
  row.promised = q.sealed;
  row.highest = q.highest;
  row.commit = std::max(q.recovered, std::min(q.commit, durable_of(log).lsn));
  row.epochs = q.epochs.starts();
  row.cuts = q.cuts.marks();
  row.begins = q.begins;
  row.lacking = q.empty;
  row.log_time_ms = q.log_time_ms;
  row.series_whole = log.row.quorum->series_whole;
  row.series_from_ms = log.row.quorum->series_from_ms;
  for (const auto& origin : log.row.quorum->origins)
    if (origin.until_ms > q.log_time_ms) row.origins.push_back(origin);
  JournalPosition from, cut;
  const auto need = [](JournalPosition& first, const JournalPosition& at) {
    if (at.sequence != 0 && (first.sequence == 0 || at < first)) first = at;
  };
  if (!q.tail.empty()) need(from, q.tail.front().frame.at);
  for (const auto& off : q.cut_off) need(cut, off.blocks.front().frame.at);
  if (pending.upto < index_applied) {  // in the middle of a recovery: what comes next is still to be read
    if (const auto start = log.row.quorum->from(); start.sequence != 0) need(from, std::max(pending.upto, start));
    need(cut, log.row.quorum->cut());
  }
  row.set_from(from);
  row.set_cut(cut);
  return row;
}

void Engine::Impl::gather_rows(Pending& half) {
  if (half.from.sequence == 0) half.from = half.upto;
  if (quorum_logs == 0) return;
  for (auto& [partition, log] : live) {
    if (!log->quorum || !log->quorum->dirty) continue;
    // The row of a child or a target is made by the divide or the merge.
    const auto makes = [&p = partition](const Reshape& reshape) {
      const auto made = made_by(reshape);
      return std::find(made.begin(), made.end(), p) != made.end();
    };
    if (!log->indexed && std::none_of(half.reshapes.begin(), half.reshapes.end(), makes)) continue;
    half.rows[partition] = quorum_row(*log);
    log->quorum->dirty = false;
  }
}

void Engine::Impl::rows_applied(const Pending& half) {
  for (const auto& [partition, row] : half.rows)
    if (Log* log = find_log(partition); log != nullptr && log->quorum && log->quorum->begins == row.begins)
      log->row.quorum = row;
}

// With nothing to apply the index's position stands still. Segments are not kept for that alone.
bool Engine::Impl::rows_due() const {
  if (quorum_logs == 0 || journal->durable().segment == index_applied.segment) return false;
  return std::any_of(live.begin(), live.end(),
                     [](const auto& l) { return l.second->quorum && l.second->quorum->dirty; });
}

uint64_t Engine::Impl::pinned_segment() const {
  uint64_t first = UINT64_MAX;
  for (const auto& [partition, log] : live)
    for (const auto& at : needs_of(log->row)) first = std::min(first, at.segment);
  for (const auto& [number, open] : snapshots) first = std::min(first, open.log_segment);
  return first;
}

// --- reading the log ----------------------------------------------------------------------------

base::Result<std::optional<LogPoint>> Engine::Impl::find_point(Log& log, Lsn lsn) {
  const auto& q = *log.quorum;
  for (const auto& point : {log.end, q.visible, log.row.applied, log.row.log_start})
    if (point.lsn == lsn) return point;
  if (lsn > log.end.lsn) return std::nullopt;
  // A cut may stand for long, and segments are not kept for it.
  for (const auto& mark : q.cuts.marks())
    if (mark.at.lsn == lsn) return mark.at;
  if (lsn > q.visible.lsn) {
    const auto cut = q.lowest_cut();
    if (!cut || lsn <= cut->lsn)
      if (const auto block = std::lower_bound(q.tail.begin(), q.tail.end(), lsn,
                                              [](const TailBlock& b, Lsn l) { return b.end().lsn < l; });
          block != q.tail.end() && block->end().lsn == lsn)
        return block->end();
    for (const auto& f : q.flying)
      if (f.end.lsn == lsn) return f.end;
    return std::nullopt;
  }
  TRY_ASSIGN(const auto at, place_of(log, lsn));
  std::optional<LogPoint> found;
  TRY(walk(log, lsn, at, false, [&](const Frame& f, std::string_view) -> base::Result<bool> {
    if (f.header.first > lsn) return base::fail(Code::corrupt, "the log is damaged there");
    if (f.header.last() == lsn) found = point_of(f.header);
    return false;
  }));
  return found;
}

base::Result<JournalPosition> Engine::Impl::place_of(Log& log, Lsn lsn) {
  const auto& q = *log.quorum;
  if (lsn > log.row.log_start.lsn) {
    if (const auto at = q.index.find(lsn)) return *at;
    if (!q.learned) {
      learn_logs();
      return base::fail(later(Code::unavailable, "older blocks are being looked up"));
    }
  }
  return base::fail(Code::not_found, "older than what is retained of the log");
}

// A block that came from another replica does not stand where the log's index says: here it is, if it begins there.
const TailBlock* Engine::Impl::mended_at(const Log& log, Lsn first) const {
  const auto& tail = log.quorum->tail;
  const auto it = std::lower_bound(tail.begin(), tail.end(), first,
                                   [](const TailBlock& b, Lsn l) { return b.frame.header.first < l; });
  return it != tail.end() && it->mended && it->frame.header.first == first ? &*it : nullptr;
}

base::Result<std::vector<model::Block>> Engine::Impl::read_log(const model::PartitionId& partition, Lsn from,
                                                               size_t bytes_max) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  std::vector<model::Block> blocks;
  const auto end = durable_of(*log).lsn;
  from = std::max(from, Lsn{1});
  if (from > end) return blocks;
  size_t bytes = 0;
  Lsn next = from;
  for (auto begun = Lsn{}; next <= end && bytes < bytes_max && begun != next;) {
    begun = next;
    if (const auto* block = mended_at(*log, next); block != nullptr && block->end().lsn <= end) {
      blocks.push_back({block->frame.header, block->payload});
      next = block->end().lsn.next();
      bytes += block->payload.size();
      continue;
    }
    TRY_ASSIGN(const auto at, place_of(*log, next));
    TRY(walk(*log, next, at, true, [&](const Frame& f, std::string_view payload) -> base::Result<bool> {
      const auto& h = f.header;
      if (h.last() > end) return false;
      if (h.first > next) return false;  // a damaged block is in between: told when it is asked for
      blocks.push_back({h, std::string(payload)});
      next = h.last().next();
      bytes += payload.size();
      if (bytes >= bytes_max || next > end) return false;
      return !log->quorum->index.lies_far(next, f.at, payload.size());
    }));
  }
  if (blocks.empty()) return base::fail(Code::corrupt, "the log is damaged at LSN " + model::to_string(from));
  return blocks;
}

base::Status Engine::Impl::walk(const Log& log, Lsn from, JournalPosition at, bool payload, const LogWalk::Each& each) {
  const auto& q = *log.quorum;
  const LogWalk walk{log.row.partition, q.begins, from, at, journal->durable()};
  return walk.run(
      q.index, q.epochs, [this](uint64_t segment) { return log_file(segment); }, payload, each);
}

void Engine::Impl::stream_log(const model::PartitionId& partition, Lsn from, size_t bytes_max, SeeBlock see,
                              Done done) {
  struct Work {
    LogWalk walk;
    LogIndex index;
    EpochTable epochs;
    Lsn from, next, end;
    size_t bytes_max = 0;
    SeeBlock see;
  };
  auto work = std::make_shared<Work>();
  const auto prepare = [&]() -> base::Status {
    TRY_ASSIGN(Log * log, quorum_log_of(partition));
    work->from = work->next = std::max(from, Lsn{1});
    work->end = durable_of(*log).lsn;
    work->bytes_max = bytes_max;
    work->see = std::move(see);
    if (work->next > work->end) return ok();
    TRY_ASSIGN(const auto at, place_of(*log, work->next));
    work->walk = {partition, log->quorum->begins, work->next, at, journal->durable()};
    work->index = log->quorum->index.ahead(work->next);
    work->epochs = log->quorum->epochs;
    return ok();
  };
  const auto prepared = prepare();
  if (!prepared || work->next > work->end)
    return parts.executor.defer(guarded([prepared, done = std::move(done)] { done(prepared); }));
  auto task = [work, &disk = parts.disk] {
    size_t bytes = 0;
    const auto open = [&disk](uint64_t segment) -> base::Result<std::shared_ptr<File>> {
      TRY_ASSIGN(auto file, disk.open(segment_path(segment), OpenMode::read));
      return std::shared_ptr<File>(std::move(file));
    };
    const auto each = [&](const Frame& f, std::string_view payload) -> base::Result<bool> {
      const auto& h = f.header;
      if (h.last() > work->end || h.first > work->next) return false;
      work->see(h, {payload.data() - wire::kBlockHeaderSize, wire::kBlockHeaderSize + payload.size()});
      work->next = h.last().next();
      bytes += payload.size();
      return bytes < work->bytes_max && work->next <= work->end &&
             !work->index.lies_far(work->next, f.at, payload.size());
    };
    // What cannot be read is looked at once more, below.
    for (Lsn begun; work->next <= work->end && bytes < work->bytes_max && begun != work->next;) {
      begun = work->walk.from = work->next;
      if (begun != work->from) work->walk.at = work->index.find(begun).value_or(work->walk.at);
      (void)work->walk.run(work->index, work->epochs, open, true, each);
    }
  };
  // A thread does not know whether a block is damaged or its segment was retired under it. The loop does.
  parts.executor.run(Lane::read, std::move(task), guarded([this, partition, work, done = std::move(done)] {
                       if (work->next > work->from) return done(ok());
                       const auto again = read_log(partition, work->from, 1);
                       if (!again) return done(base::fail(again.error()));
                       for (const auto& block : *again) {
                         std::string all(wire::kBlockHeaderSize, '\0');
                         wire::encode_header(block.header, all.data());
                         all += block.payload;
                         work->see(block.header, all);
                       }
                       done(ok());
                     }));
}

base::Result<std::shared_ptr<File>> Engine::Impl::log_file(uint64_t segment) {
  if (const auto it = log_files.find(segment); it != log_files.end()) return it->second;
  TRY_ASSIGN(auto file, parts.disk.open(segment_path(segment), OpenMode::read));
  if (log_files.size() >= kLogFilesMax) log_files.erase(log_files.begin());
  return log_files[segment] = std::move(file);
}

void Engine::Impl::forget_segment(uint64_t segment) {
  log_files.erase(segment);
  if (quorum_logs == 0) return;
  for (auto& [partition, log] : live)
    if (log->quorum) log->quorum->index.forget_below(segment + 1);
}

// What stands in segments from before the place where the last recovery began, when somebody asks for it. One segment
// after the other, in the background.
struct Engine::Impl::Learning {
  std::map<model::PartitionId, std::pair<uint64_t, LogIndex>> logs;  // where each begins
  std::deque<uint64_t> segments;
  uint64_t before = 0;  // journal sequence
};

void Engine::Impl::learn_logs() {
  if (learning_logs) return;
  learning_logs = true;
  auto work = std::make_shared<Learning>();
  for (const auto& [partition, log] : live)
    if (log->quorum && !log->quorum->learned) work->logs[partition].first = log->quorum->begins;
  for (const auto& [number, info] : segments) work->segments.push_back(number);
  work->before = scan_start;
  learn_next(std::move(work));
}

void Engine::Impl::learn_next(std::shared_ptr<Learning> work) {
  if (work->segments.empty()) {
    learning_logs = false;
    for (auto& [partition, found] : work->logs) {
      Log* log = find_log(partition);
      if (log == nullptr || !log->quorum || log->quorum->begins != found.first) continue;
      log->quorum->index.put_before(std::move(found.second));
      if (!segments.empty()) log->quorum->index.forget_below(segments.begin()->first);
      log->quorum->learned = true;
    }
    return;
  }
  const uint64_t number = work->segments.front();
  work->segments.pop_front();
  auto task = [work, number, &disk = parts.disk, limit = config.segment_bytes] {
    each_header(disk, number, limit, [&work](const Frame& f) {
      if (f.at.sequence >= work->before) {
        work->segments.clear();
        return false;
      }
      const auto log = work->logs.find(f.header.partition);
      if (log != work->logs.end() && f.at.sequence >= log->second.first) {
        if (is_log_block(f.header.kind)) log->second.second.add(f.header.first, f.at);
        if (f.header.kind == BlockKind::truncate) log->second.second.cut(f.header.prev_lsn, f.at);
      }
      return true;
    });
  };
  parts.executor.run(Lane::background, std::move(task), guarded([this, work] { learn_next(work); }));
}

// --- trash --------------------------------------------------------------------------------------

std::string cut_path(const model::PartitionId& partition, const Frame& truncate) {
  return std::string(kTrashDir) + "/" + std::string(kCutPrefix) + model::to_string(partition) + "-" +
         std::to_string(truncate.at.sequence) + "-" + std::to_string(truncate.header.leader_ms) + std::string(kCutEnd);
}

namespace {

base::Status write_blocks(Disk& disk, const std::string& path, const std::vector<TailBlock>& blocks) {
  CRASH_POINT("trash.before_write");
  TRY(disk.make_dir(kTrashDir));
  TRY(disk.sync_dir(""));
  const std::string aside = path + ".new";
  {
    TRY_ASSIGN(auto file, disk.open(aside, OpenMode::create));
    uint64_t at = 0;
    for (const auto& block : blocks) {
      const auto size = wire::kBlockHeaderSize + block.frame.header.length;
      // As it lies there, right or not: it is for a person to look at.
      TRY_ASSIGN(const auto bytes, block.file->read(block.frame.at.offset + kFrameSize, size));
      TRY(file->write(at, bytes));
      at += size;
    }
    TRY(file->truncate(at));
    TRY(file->sync());
  }
  TRY(disk.rename(aside, path));
  TRY(disk.sync_dir(kTrashDir));
  CRASH_POINT("trash.after_write");
  return ok();
}

}  // namespace

void Engine::Impl::write_cut_offs() {
  for (auto& [partition, log] : live) {
    if (!log->quorum) continue;
    for (auto& off : log->quorum->cut_off) {
      if (off.writing) continue;
      off.writing = true;
      auto result = std::make_shared<base::Status>(ok());
      auto task = [path = off.path, blocks = off.blocks, result, &disk = parts.disk] {
        *result = write_blocks(disk, path, blocks);
      };
      parts.executor.run(
          Lane::background, std::move(task), guarded([this, partition = partition, path = off.path, result] {
            Log* there = find_log(partition);
            if (failed || there == nullptr || !there->quorum) return;
            auto& q = *there->quorum;
            const auto it =
                std::find_if(q.cut_off.begin(), q.cut_off.end(), [&](const CutOff& o) { return o.path == path; });
            if (it == q.cut_off.end()) return;
            if (!*result && result->error().code == Code::no_space) {
              it->writing = false;  // its segment stays; the tick tries again
              return;
            }
            if (!*result)
              base::log(base::Level::error, "log-cut-lost",
                        {{"file", path}, {"error", base::to_string(result->error())}});
            q.cut_off.erase(it);
            q.dirty = true;
          }));
    }
  }
}

// They lie there for the trash time; how old one is its name tells.
void Engine::Impl::expire_cut_offs(bool all) {
  const auto now = parts.clock.now();
  if (!all && now - last_sweep < kSweepEvery) return;
  last_sweep = now;
  const uint64_t kept = static_cast<uint64_t>(base::to_ms(config.trash_time)), now_ms = parts.clock.wall_ms();
  auto task = [all, kept, now_ms, &disk = parts.disk] {
    const auto names = disk.list(kTrashDir);
    if (!names) return;
    for (const auto& name : *names) {
      const auto dash = name.rfind('-');
      const bool cut = name.starts_with(kCutPrefix) && name.ends_with(kCutEnd);
      if (!cut && !(name.starts_with(kLostPrefix) && name.ends_with(kLostEnd))) continue;
      const uint64_t since = std::strtoull(name.c_str() + dash + 1, nullptr, 10);
      if (all || since + kept < now_ms) (void)disk.remove(std::string(kTrashDir) + "/" + name);
    }
  };
  parts.executor.run(Lane::background, std::move(task), nullptr);
}

}  // namespace cantle::store

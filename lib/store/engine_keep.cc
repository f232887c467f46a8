// Keeping house: time, room on the disk, checkpoints, retention, trash.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;
using base::ok;

namespace {

constexpr uint64_t kReserveMax = uint64_t{256} << 20;
constexpr uint64_t kRetentionMax = uint64_t{64} << 30;
constexpr uint64_t kMapReserve = uint64_t{256} << 20;  // of the index's address space
constexpr base::Duration kSecond = std::chrono::seconds(1), kReadersEvery = std::chrono::seconds(10);
constexpr base::Duration kReaderNamed = std::chrono::seconds(5), kReaderKilled = std::chrono::seconds(60);

}  // namespace

void Engine::Impl::tick() {
  if (failed) return;
  const auto now = parts.clock.now();
  maybe_seal();
  if (job && job_waits && !job_running && !index_full) run_apply();
  background();
  if (now - last_second < kSecond) return;
  last_second = now;
  if (job && job_waits && !job_running && index_full) run_apply();
  journal->tick();
  if (quorum_logs > 0) write_cut_offs();
  expire_snapshots();
  check_space();
  expire_trash(low_space);
  if (quorum_logs > 0) expire_cut_offs(low_space);
  check_readers();
  retire();
  const bool moved = index_applied != checkpointed || image_due();
  if (moved && !checkpointing && !closing && now - last_checkpoint >= config.checkpoint_interval)
    checkpoint(false, nullptr);
}

void Engine::Impl::check_space() {
  if (auto s = parts.disk.space()) space = *s;
  if (auto s = index->space(false)) {
    s->free_bytes = index_space.free_bytes;  // counted now and then
    index_space = *s;
  }
  const uint64_t reserve = config.reserve_bytes != 0 ? config.reserve_bytes : std::min(kReserveMax, space.total / 20);
  // Turns back only with a little more room than it turned read-only at.
  low_space = space.free < (read_only ? reserve + reserve / 8 : reserve) ||
              (index_space.map_bytes > 0 && index_space.file_bytes + kMapReserve / 4 > index_space.map_bytes);
  if (index_full && !job && !low_space) index_full = false;  // a job tries by itself
  set_read_only();
}

void Engine::Impl::set_read_only() {
  std::string reason;
  if (index_full)
    reason = "no space: the index could not grow";
  else if (low_space)
    reason = "no space: " + std::to_string(space.free >> 20) + " MiB free on the disk";
  else if (journal->out_of_room())
    reason = "no space: no room for another journal segment";
  const bool was = read_only;
  read_only = !reason.empty();
  read_only_reason = std::move(reason);
  if (was == read_only) return;
  base::log(base::Level::warn, read_only ? "read-only" : "read-write", {{"reason", read_only_reason}});
  if (read_only_fn) read_only_fn(read_only, read_only_reason);
}

// A snapshot that does not move keeps LMDB from using pages again: named after a while, ended after a longer one.
void Engine::Impl::check_readers() {
  const auto now = parts.clock.now();
  if (now - last_readers >= kReadersEvery) {
    last_readers = now;
    index->check_readers();
    if (auto s = index->space(true)) index_space = *s;
  }
  std::map<std::pair<int, uint64_t>, StaleReader> still;
  reader_lag = 0;
  for (const auto& r : index->readers()) {
    reader_lag = std::max(reader_lag, r.behind);
    if (r.behind == 0) continue;
    auto& reader = still[{r.pid, r.transaction}];
    const auto known = stale_readers.find({r.pid, r.transaction});
    reader = known == stale_readers.end() ? StaleReader{now, false} : known->second;
    if (!reader.told && now - reader.since >= kReaderNamed) {
      reader.told = true;
      base::log(base::Level::warn, "stale-reader", {{"pid", r.pid}, {"transactions_behind", r.behind}});
    }
    if (now - reader.since >= kReaderKilled && index->evict(r.pid))
      base::log(base::Level::error, "stale-reader-killed", {{"pid", r.pid}, {"transactions_behind", r.behind}});
  }
  stale_readers = std::move(still);
}

// --- checkpoints --------------------------------------------------------------------------------

bool Engine::Impl::image_due() const { return image_wanted || image_segment != journal->durable().segment; }

void Engine::Impl::write_images(Done done) {
  std::vector<TenureRow> rows;
  for (const auto& [partition, log] : live) {
    rows.push_back(log->row);
    if (!log->quorum) continue;
    rows.back().quorum = quorum_row(*log);
    rows.back().quorum->promised = log->quorum->promised;  // stands before this in the journal
  }
  for (const auto& [id, row] : others)
    if (row.state == RowState::aside) rows.push_back(row);
  std::vector<RootImage> images(1);
  size_t bytes = 0;
  for (auto& row : rows) {
    const size_t more = encode_row(row).size();
    auto& last = images.back().tenures;
    if (!last.empty() &&
        (last.size() == kImageTenures || bytes + more > std::min(kImageBytes, journal->payload_max() / 2))) {
      images.emplace_back();
      bytes = 0;
    }
    bytes += more;
    images.back().tenures.push_back(std::move(row));
  }
  const auto parts_n = static_cast<uint32_t>(images.size());
  image_wanted = false;
  auto first = std::make_shared<uint64_t>(0);
  for (uint32_t i = 0; i < parts_n; i++) {
    auto& image = images[i];
    image.has_tenures = true;
    image.part = i;
    image.parts = parts_n;
    Done then = [this, done, first, is_first = i == 0, is_last = i + 1 == parts_n](const base::Status& s) {
      if (is_first) *first = journal->durable().segment;
      if (!is_last) return;
      if (s) image_segment = *first;  // all of its parts are needed
      if (done) done(s);
    };
    add_local(model::BlockKind::root_image, {}, {}, encode_image(image), std::move(then));
  }
}

Root Engine::Impl::next_root(const JournalPosition& head) const {
  Root root;
  root.generation = roots.newest() == nullptr ? 1 : roots.newest()->generation + 1;
  root.server = identity.server.name;
  root.cluster = identity.cluster;
  root.incarnation = identity.incarnation;
  root.head = head;
  root.applied = index_applied;
  root.oldest_segment = segments.empty() ? root.head.segment : segments.begin()->first;
  root.highest = highest;
  return root;
}

// The slot about to be overwritten is in the journal, durable, before it is.
void Engine::Impl::checkpoint(bool clean, Done done) {
  checkpointing = true;
  last_checkpoint = parts.clock.now();
  if (image_due()) write_images(nullptr);
  RootImage image;
  const uint64_t generation = roots.newest() == nullptr ? 1 : roots.newest()->generation + 1;
  if (const auto& old = roots.slot[generation % 2]) image.slot = encode_root(*old);
  add_local(
      model::BlockKind::root_image, {}, {}, encode_image(image),
      [this, clean, done = std::move(done)](const base::Status&) {
        Root root = next_root(journal->durable());
        root.clean = clean;
        const auto applied = index_applied;
        auto result = std::make_shared<base::Status>(ok());
        parts.executor.run(
            Lane::background, [root, result, &disk = parts.disk] { *result = write_root(disk, root); },
            guarded([this, root, applied, result, done] {
              checkpointing = false;
              if (failed) return;
              if (!*result && result->error().code != Code::no_space) return fail(result->error());
              if (*result) {  // a full disk: the one before still holds, and the next checkpoint tries again (S65)
                roots.slot[root.generation % 2] = root;
                checkpointed = applied;
              }
              if (done) done(*result);
              if (after_checkpoint) std::exchange(after_checkpoint, nullptr)();
            }));
      });
}

// --- retention ----------------------------------------------------------------------------------

// Does somebody still need a block of that segment?
bool Engine::Impl::needed(uint64_t, const SegmentInfo& info) const {
  const auto wants = [&](const TenureRow& row) {
    const auto it = needed_from.find({row.partition, row.assignment});
    const model::Lsn from = it == needed_from.end() ? model::Lsn{} : it->second;
    // Its own log, and its ancestors'.
    std::vector<model::PartitionId> line = {row.partition};
    for (size_t i = 0; i < line.size(); i++)
      for (const auto& [id, other] : others)
        if (std::find(other.children.begin(), other.children.end(), line[i]) != other.children.end() &&
            std::find(line.begin(), line.end(), id.partition) == line.end())
          line.push_back(id.partition);
    return std::any_of(line.begin(), line.end(), [&](const auto& p) {
      const auto last = info.last.find(p);
      return last != info.last.end() && last->second >= from;
    });
  };
  for (const auto& [partition, log] : live)
    if (wants(log->row)) return true;
  return std::any_of(others.begin(), others.end(),
                     [&](const auto& o) { return o.second.state == RowState::aside && wants(o.second); });
}

void Engine::Impl::retire() {
  const Root* older = roots.older();
  if (older == nullptr || closing) return;
  const uint64_t bytes_max =
      config.retention_bytes != 0 ? config.retention_bytes : std::min(kRetentionMax, space.total / 10);
  const uint64_t now_ms = parts.clock.wall_ms();
  const auto age_max = static_cast<uint64_t>(base::to_ms(config.retention_time));
  // Recovery starts at the older root; a lost index is rebuilt from the newest list of tenures.
  const uint64_t bound = std::min(
      {older->applied.segment, index_applied.segment, image_segment, journal->durable().segment, pinned_segment()});
  while (!segments.empty() && segments.begin()->first < bound) {
    const auto& [number, info] = *segments.begin();
    const bool too_many = segments.size() * config.segment_bytes > bytes_max || low_space;
    if (!too_many) {
      if (!info.known) return learn(number);
      const bool too_old = info.newest_ms + age_max < now_ms;
      if (!too_old && needed(number, info)) return;
    }
    if (info.held()) return;
    journal->retire(number);
    forget_segment(number);
    segments.erase(segments.begin());
  }
}

void each_header(Disk& disk, uint64_t segment, uint64_t limit, const std::function<bool(const Frame&)>& see) {
  auto file = disk.open(segment_path(segment), OpenMode::read);
  if (!file) return;
  SegmentScanner scanner(**file, segment, 0, limit);
  scanner.headers_only();
  for (;;) {
    auto frame = scanner.look(false);
    if (frame && !*frame) frame = scanner.search(0);
    if (!frame || !*frame) break;
    if (!see(**frame)) return;
    scanner.pass(**frame);
  }
  (*file)->drop_cache();
}

// What a segment from before the last start holds: its headers are read in the background.
void Engine::Impl::learn(uint64_t number) {
  if (learning) return;
  learning = true;
  auto info = std::make_shared<SegmentInfo>();
  auto task = [number, info, &disk = parts.disk, limit = config.segment_bytes]() -> void {
    each_header(disk, number, limit, [&info](const Frame& f) {
      const auto& h = f.header;
      info->newest_ms = std::max(info->newest_ms, h.leader_ms);
      if (is_log_block(h.kind)) info->last[h.partition] = std::max(info->last[h.partition], h.last());
      return true;
    });
  };
  parts.executor.run(Lane::background, std::move(task), guarded([this, number, info] {
                       learning = false;
                       const auto it = segments.find(number);
                       if (it == segments.end()) return;
                       info->files = std::move(it->second.files);
                       it->second = *info;
                       it->second.known = true;
                     }));
}

// --- trash --------------------------------------------------------------------------------------

void Engine::Impl::expire_trash(bool all) {
  const uint64_t now_ms = parts.clock.wall_ms();
  for (const auto& [id, row] : others) {
    if (row.state != RowState::trash || busy.contains(id.partition) || (!all && row.trash_until_ms > now_ms)) continue;
    busy.insert(id.partition);
    auto changed = std::make_shared<std::map<model::ExtentId, ExtentRow>>();
    auto task = [id = id, changed](WriteTxn& txn) -> base::Status {
      TRY_ASSIGN(auto found, read_tenure(txn, id));
      if (!found || found->state != RowState::trash) return ok();
      TRY(leave_parts(txn, *found, *changed));
      if (found->refill) {
        TRY(free_extent(txn, found->refill->extent));
        TRY_ASSIGN((*changed)[found->refill->extent], read_extent(txn, found->refill->extent));
      }
      return txn.del(Db::partitions, tenure_key(id));
    };
    return index_txn(std::move(task), unbusy(id.partition, [this, id = id, changed](const base::Status& s) {
                       if (!s) return;
                       if (const auto it = others.find(id); it != others.end()) {
                         series_sweep_wanted = series_sweep_wanted || it->second.quorum.has_value();
                         others.erase(it);
                       }
                       for (auto& [extent, r] : *changed) extents[extent] = std::move(r);
                     }));
  }
}

// --- the end ------------------------------------------------------------------------------------

void Engine::Impl::shutdown(Done done) {
  if (failed) return parts.executor.defer(guarded([this, done = std::move(done)] { done(base::fail(*failed)); }));
  closing = true;
  drain([this, done = std::move(done)](const base::Status& s) {
    if (!s) return done(s);
    if (!checkpointing) return checkpoint(true, done);
    after_checkpoint = [this, done] { checkpoint(true, done); };
  });
}

EngineStatus Engine::Impl::status() const {
  EngineStatus s;
  s.read_only = read_only;
  s.read_only_reason = read_only_reason;
  s.faulted = failed.has_value();
  s.head = journal->durable();
  s.segments = segments.size();
  s.oldest_segment = segments.empty() ? s.head.segment : segments.begin()->first;
  s.journal_bytes = s.segments * config.segment_bytes;
  s.overlay_bytes = overlay_bytes();
  s.overlay_records = overlay.records();
  s.cache_bytes = cache.bytes();
  s.cache_records = cache.records();
  s.cache_hits = cache.hits();
  s.cache_misses = cache.misses();
  s.queue_bytes = journal->queued_bytes();
  s.backlog_bytes = backlog();
  s.appended_blocks = appended_blocks;
  s.appended_bytes = appended_bytes;
  s.syncs = journal->syncs();
  s.applied_records = applied_records;
  for (const auto& [extent, row] : extents)
    s.freeing_extents +=
        std::any_of(row.pieces.begin(), row.pieces.end(), [](const Piece& p) { return p.freeing(); }) ? 1 : 0;
  for (const auto& [id, row] : others) s.trash_tenures += row.state == RowState::trash ? 1 : 0;
  s.lost_places = lost_places;
  s.mended_blocks = mended_blocks;
  s.tail_bytes = tail_held;
  s.cut_blocks = cut_blocks;
  s.disk = space;
  s.index = index_space;
  s.snapshots = static_cast<size_t>(
      std::count_if(snapshots.begin(), snapshots.end(), [](const auto& o) { return o.second.reader != nullptr; }));
  s.reader_lag = reader_lag;
  return s;
}

}  // namespace cantle::store

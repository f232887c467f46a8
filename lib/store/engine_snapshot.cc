// Snapshots of quorum tables' copies: read by whoever has one, and put in the place of a copy whose log nobody can
// continue.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/content.h"
#include "lib/store/engine_impl.h"
#include "lib/wire/block.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::QuorumSnapshotPart;
using model::SnapshotPlace;

namespace {

constexpr uint32_t kRetryAfterMs = 50;
constexpr unsigned kNumberBits = 24;  // of a life's snapshots

base::Error later(Code code, std::string text) {
  base::Error e(code, std::move(text));
  e.retry_after_ms = kRetryAfterMs;
  return e;
}

base::Status read_records(const OpenSnapshot& from, SnapshotPlace& place, size_t bytes, QuorumSnapshotPart& part) {
  ScanRange range;
  if (!place.after_key.empty()) range.from = place.after_key + '\0';
  range.tombstones = true;
  range.records_max = UINT32_MAX;
  range.bytes_max = bytes;
  TRY_ASSIGN(const auto end,
             merge(*from.reader, plan_scan(from.parts, range), [&](std::string_view key, const Found& f) {
               wire::append_record(
                   part.records, {f.deleted ? model::Op::del : model::Op::put, key, f.value, f.version, 0, 0, f.flags});
               place.after_key = key;
               return part.records.size() < bytes;
             }));
  place.records_done = !end.more;
  return ok();
}

// The windows of a client lie under as many keys as its copy was divided or merged from.
base::Status read_windows(const OpenSnapshot& from, SnapshotPlace& place, size_t bytes, QuorumSnapshotPart& part) {
  if (MUTANT("series_left_behind")) place.all = true;
  for (size_t taken = part.records.size();
       !place.all && taken < bytes && part.series.size() < model::kSnapshotSeriesMax;) {
    if (place.after_client == UINT64_MAX) {
      place.all = true;
      return ok();
    }
    std::optional<uint64_t> next;
    for (const auto& origin : from.series) {
      const SeriesKey key{origin.partition, origin.extent, place.after_client + 1};
      TRY_ASSIGN(const auto cursor, from.reader->cursor(Db::series));
      TRY_ASSIGN(const auto at, cursor->seek(encode_key(key)));
      if (!at) continue;
      TRY_ASSIGN(const auto found, decode_series_key(at->key));
      if (found.partition == key.partition && found.extent == key.extent)
        next = std::min(next.value_or(UINT64_MAX), found.client);
    }
    if (!next) {
      place.all = true;
      return ok();
    }
    model::SeriesWindow window;
    for (const auto& origin : from.series) {
      TRY_ASSIGN(const auto one, read_series(*from.reader, origin, *next));
      window.merge(one);
    }
    window.expire(from.log_time_ms);
    place.after_client = *next;
    if (window.empty()) continue;
    part.series.push_back({*next, encode_row(window)});
    taken += part.series.back().window.size();
  }
  return ok();
}

}  // namespace

// --- reading --------------------------------------------------------------------------------------

// All that a row says of a log, and the records and series that go with it, are of one transaction of the index.
base::Result<OpenSnapshot> Engine::Impl::open_snapshot(const model::PartitionId& partition) {
  TRY_ASSIGN(const Log* log, quorum_log_of(partition));
  if (!log->row.whole || log->quorum->hole || log->quorum->empty)
    return base::fail(Code::corrupt, "this copy is not whole");
  const auto open =
      std::count_if(snapshots.begin(), snapshots.end(), [](const auto& o) { return o.second.reader != nullptr; });
  if (static_cast<size_t>(open) >= kSnapshotsMax)
    return base::fail(later(Code::overloaded, "as many snapshots as may be are being read"));
  OpenSnapshot s;
  s.index = index;
  s.reader = index->reader();
  TRY(s.reader->renew());
  TRY_ASSIGN(const auto row, read_tenure(*s.reader, log->id()));
  if (!row || !row->quorum || row->state != RowState::live)
    return base::fail(later(Code::overloaded, "the index does not have this copy yet"));
  TRY_ASSIGN(const auto meta, read_meta(*s.reader));
  CHECK(meta);
  s.partition = partition;
  s.parts = row->parts;
  s.at = row->applied;
  // Who leads with it is parked where this log is (S43). Were it refused until that is over, a leader whose cut a lost
  // disk had confirmed would wait for a majority that waits for it.
  auto cuts = model::CutTable(row->quorum->cuts);
  cuts.truncate(s.at.lsn);
  if (!MUTANT("snapshot_of_a_parked_copy")) s.cuts = cuts.marks();
  auto epochs = EpochTable(row->quorum->epochs);
  epochs.cut(row->applied.lsn);
  s.epochs = epochs.starts();
  s.log_time_ms = row->quorum->log_time_ms;
  const auto own = series_key(*row, 0);
  s.series.push_back({own.partition, own.extent, 0, 0});
  for (const auto& origin : row->quorum->origins) s.series.push_back(origin);
  s.log_segment = meta->applied.segment;
  for (const auto& at : needs_of(*row)) s.log_segment = std::min(s.log_segment, at.segment);
  s.opened = parts.clock.now();
  return s;
}

base::Result<std::pair<uint64_t, OpenSnapshot*>> Engine::Impl::find_snapshot(const model::PartitionId& partition,
                                                                             uint64_t number) {
  if (failed || closing) return base::fail(Code::unavailable, "the store is closing");
  if (number == 0) {
    TRY_ASSIGN(auto opened, open_snapshot(partition));
    number = (epoch.value << kNumberBits) + ++last_snapshot;
    snapshots[number] = std::move(opened);
  }
  const auto it = snapshots.find(number);
  if (it == snapshots.end() || it->second.reader == nullptr || it->second.partition != partition)
    return base::fail(Code::not_found, "that snapshot is not kept any more");
  if (it->second.reading) return base::fail(later(Code::overloaded, "another part of it is being read"));
  return std::pair(number, &it->second);
}

void Engine::Impl::read_snapshot(const model::PartitionId& partition, const SnapshotPlace& place, uint32_t bytes,
                                 std::function<void(base::Result<QuorumSnapshotPart>)> done) {
  if (const auto it = snapshots.find(place.snapshot);
      it != snapshots.end() && it->second.last && it->second.last->first == place) {
    it->second.asked = parts.clock.now();
    return parts.executor.defer(guarded([done = std::move(done), part = it->second.last->second] { done(part); }));
  }
  auto found = find_snapshot(partition, place.snapshot);
  if (!found)
    return parts.executor.defer(guarded([done = std::move(done), e = found.error()] { done(base::fail(e)); }));
  const uint64_t number = found->first;
  auto* snapshot = found->second;
  snapshot->asked = parts.clock.now();
  snapshot->reading = true;
  struct Work {
    OpenSnapshot from;  // its reader is nobody else's while `reading` is set
    QuorumSnapshotPart part;
    base::Status status = ok();
  };
  auto work = std::make_shared<Work>();
  work->from = *snapshot;
  auto& part = work->part;
  part.place = place;
  part.place.snapshot = number;
  part.place.all = false;
  part.at = snapshot->at;
  part.log_time_ms = snapshot->log_time_ms;
  if (place.snapshot == 0) {
    part.epochs = snapshot->epochs;
    part.cuts = snapshot->cuts;
  }
  const size_t most = std::clamp<size_t>(bytes, 1, model::kSnapshotPartBytesMax);
  auto task = [work, most] {
    auto& p = work->part;
    if (!p.place.records_done) work->status = read_records(work->from, p.place, most, p);
    if (work->status && p.place.records_done) work->status = read_windows(work->from, p.place, most, p);
  };
  parts.executor.run(Lane::read, std::move(task), guarded([this, work, number, asked = place, done = std::move(done)] {
                       work->from.reader.reset();
                       if (const auto it = snapshots.find(number); it != snapshots.end()) {
                         it->second.reading = false;
                         it->second.asked = parts.clock.now();
                         if (work->status && work->part.place.all) {
                           it->second.last = {asked, work->part};
                           it->second.reader.reset();
                         }
                       }
                       if (work->status)
                         done(std::move(work->part));
                       else
                         done(base::fail(std::move(work->status).error()));
                     }));
}

void Engine::Impl::expire_snapshots() {
  const auto now = parts.clock.now();
  for (auto it = snapshots.begin(); it != snapshots.end();) {
    auto& s = it->second;
    const bool idle = now - s.asked >= kSnapshotIdle, old = now - s.opened >= kSnapshotMost;
    if ((idle || old) && !s.reading) s.reader.reset();
    it = s.reader == nullptr && now - s.asked >= kSnapshotIdle + kSnapshotLog ? snapshots.erase(it) : std::next(it);
  }
}

// --- filling anew ---------------------------------------------------------------------------------

namespace {

// The log that goes on at the snapshot's point begins with what the part says of it.
base::Status check_beginning(const QuorumSnapshotPart& part) {
  const auto& epochs = part.epochs;
  if (epochs.empty()) return base::fail(Code::invalid, "a part of a snapshot that was not begun");
  for (size_t n = 1; n < epochs.size(); n++)
    if (epochs[n].epoch <= epochs[n - 1].epoch || epochs[n].first <= epochs[n - 1].first)
      return base::fail(Code::invalid, "a snapshot whose epochs do not ascend");
  if (epochs.front().first.value == 0 || epochs.back().epoch != part.at.epoch || epochs.back().first > part.at.lsn)
    return base::fail(Code::invalid, "a snapshot whose epochs are of another log");
  model::Lsn last;
  for (const auto& mark : part.cuts) {
    if (mark.at.lsn <= last || mark.at.lsn > part.at.lsn)
      return base::fail(Code::invalid, "a snapshot whose cuts are of another log");
    last = mark.at.lsn;
  }
  return ok();
}

}  // namespace

base::Status Engine::Impl::refill(const model::PartitionId& partition, QuorumSnapshotPart part, Done done) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  if (failed || closing || !log->open) return base::fail(Code::unavailable, "this copy takes no more writes");
  if (read_only) return base::fail(Code::read_only, read_only_reason);
  if (part.place.snapshot == 0 || part.at.lsn.value == 0) return base::fail(Code::invalid, "a part of no snapshot");
  TRY_ASSIGN(const auto info, wire::check_records(part.records, log->row.interval));
  if (!info.inside) return base::fail(Code::invalid, "a key outside the partition's interval");
  for (const auto& row : part.series) TRY(decode_series_row(row.window));
  const auto& known = log->row.refill;
  const bool begins = !known || known->place.snapshot != part.place.snapshot;
  if (begins) TRY(check_beginning(part));
  if (!log->indexed) return base::fail(later(Code::unavailable, "the index does not have this copy yet"));
  struct Result {
    TenureRow row;
    std::map<model::ExtentId, ExtentRow> extents;
  };
  auto result = std::make_shared<Result>();
  auto shared = std::make_shared<QuorumSnapshotPart>(std::move(part));
  auto task = [id = log->id(), p = shared, result](WriteTxn& txn) -> base::Status {
    TRY_ASSIGN(auto found, read_tenure(txn, id));
    if (!found || found->state != RowState::live) return base::fail(Code::not_found, "no such copy on this server");
    auto& row = result->row = std::move(*found);
    if (row.refill && row.refill->place.snapshot != p->place.snapshot) {
      TRY(free_extent(txn, row.refill->extent));
      TRY_ASSIGN(result->extents[row.refill->extent], read_extent(txn, row.refill->extent));
      row.refill.reset();
    }
    if (!row.refill) {
      TRY_ASSIGN(auto meta, read_meta(txn));
      CHECK(meta);
      auto& fresh = row.refill.emplace();
      // A new one, or what was deleted meanwhile would be there still (S17).
      fresh.extent =
          MUTANT("refill_into_the_old_copy") ? row.parts.front().extent : model::ExtentId{meta->next_extent++};
      fresh.at = p->at;
      fresh.epochs = p->epochs;
      fresh.cuts = p->cuts;
      fresh.log_time_ms = p->log_time_ms;
      ExtentRow pieces;
      pieces.pieces.push_back({row.interval, row.partition, row.assignment, "", {}});
      TRY(write_extent(txn, fresh.extent, pieces));
      TRY(write_meta(txn, *meta));
    }
    auto& refill = *row.refill;
    if (refill.at != p->at) return base::fail(Code::invalid, "a part of another snapshot under the same number");
    RecordKey keys(refill.extent);
    TRY_ASSIGN(auto extent, read_extent(txn, refill.extent));
    wire::RecordReader in(p->records);
    for (model::RecordView r; in.next(r);) {
      if (r.op == model::Op::del && MUTANT("refill_into_the_old_copy")) continue;
      Piece* piece = extent.find(r.key);
      if (piece == nullptr) return base::fail(Code::corrupt, "index: an owner without its piece");
      auto put = put_record(txn, keys, r, piece->counts);
      if (!put) return base::fail(std::move(put).error());
    }
    TRY(write_extent(txn, refill.extent, extent));
    result->extents[refill.extent] = std::move(extent);
    for (const auto& s : p->series) {
      TRY_ASSIGN(const auto window, decode_series_row(s.window));
      TRY(write_series(txn, {row.partition, refill.extent, s.client}, window));
    }
    refill.place = p->place;
    CRASH_POINT("ingest.before_commit");
    return write_tenure(txn, row);
  };
  index_txn(std::move(task), [this, id = log->id(), result, done = std::move(done)](const base::Status& s) {
    if (s) {
      CRASH_POINT("snapshot.part_durable");
      if (TenureRow* row = find_row(id)) row->refill = result->row.refill;
      for (auto& [extent, row] : result->extents) extents[extent] = std::move(row);
    }
    if (done) done(s);
  });
  return ok();
}

// Whose log ends later by epoch and LSN has what a majority may have counted (S5, S18). What is committed is in the
// snapshot then: of the log behind it, or of its own epoch's, nothing here can be.
base::Status Engine::Impl::install(const model::PartitionId& partition, Done done) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  TRY(can_add_local(*log));
  auto& q = *log->quorum;
  if (!log->row.refill || (!log->row.refill->place.all && !MUTANT("install_before_complete")))
    return base::fail(Code::invalid, "the snapshot is not complete");
  const auto& at = log->row.refill->at;
  const bool further = model::token_of(at) < model::token_of(log->end) || at.lsn < q.commit;
  if (further && !MUTANT("install_over_a_longer_log"))
    return base::fail(Code::conflict, "the log goes further than the snapshot");
  if (busy.contains(partition) || !q.cut_off.empty())
    return base::fail(later(Code::unavailable, "another change of this partition is under way"));
  busy.insert(partition);
  q.closed = true;
  done = [this, partition, done = unbusy(partition, std::move(done))](const base::Status& s) {
    if (Log* there = find_log(partition); there != nullptr && there->quorum) there->quorum->closed = false;
    done(s);
  };
  drain([this, log = live.at(partition), done = std::move(done)](const base::Status& s) {
    if (!s) return done(s);
    install_now(log, done);
  });
  return ok();
}

void Engine::Impl::install_now(const std::shared_ptr<Log>& log, Done done) {
  CRASH_POINT("snapshot.before_install");
  auto row = std::make_shared<TenureRow>();
  auto changed = std::make_shared<std::map<model::ExtentId, ExtentRow>>();
  index_txn(
      [id = log->id(), row, changed, begins = journal->head().sequence, promised = log->quorum->promised,
       highest = log->quorum->highest](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(auto found, read_tenure(txn, id));
        if (!found || !found->quorum || !found->refill)
          return base::fail(Code::not_found, "no such copy on this server");
        *row = std::move(*found);
        const auto refill = *std::exchange(row->refill, std::nullopt);
        TRY(leave_parts(txn, *row, *changed));
        TRY_ASSIGN(auto pieces, read_extent(txn, refill.extent));
        for (auto& piece : pieces.pieces) {  // it may have another assignment since
          piece.partition = id.partition;
          piece.assignment = id.assignment;
        }
        TRY(write_extent(txn, refill.extent, pieces));
        (*changed)[refill.extent] = std::move(pieces);
        row->parts = {{refill.extent, row->interval}};
        row->log_start = row->applied = refill.at;
        row->hollow = true;
        auto& q = *row->quorum;
        q.promised = MUTANT("install_forgets_promise") ? model::Epoch{} : std::max(q.promised, promised);
        q.highest = std::max({q.highest, highest, refill.at.epoch});
        q.commit = refill.at.lsn;
        q.epochs = refill.epochs;
        q.cuts = refill.cuts;
        q.begins = begins;
        q.log_time_ms = refill.log_time_ms;
        q.set_from({});
        q.set_cut({});
        q.origins.clear();
        q.series_whole = true;
        q.series_from_ms = 0;
        q.lacking = false;
        CRASH_POINT("ingest.before_commit");
        return write_tenure(txn, *row);
      },
      [this, log, row, changed, done = std::move(done)](const base::Status& s) {
        if (!s) return done(s);
        CRASH_POINT("snapshot.installed");
        for (auto& [extent, pieces] : *changed) extents[extent] = std::move(pieces);
        installed(*log, *row);
        // A lost index is made again from the journal: what it does not have must stand there first.
        write_images(done);
      });
}

// The same Log stays: seals that are on their way are its.
void Engine::Impl::installed(Log& log, const TenureRow& row) {
  auto& q = *log.quorum;
  std::vector<TailBlock> left;
  for (auto& block : q.tail)
    if (!block.damaged && !block.mended) left.push_back(std::move(block));
  base::log(base::Level::notice, "rebuilt",
            {{"partition", model::to_string(row.partition)},
             {"ended_at_lsn", log.end.lsn.value},
             {"lsn", row.applied.lsn.value},
             {"blocks_put_aside", left.size()}});
  drop_tail(log);
  q.bytes = 0;
  q.flying.clear();
  log.row = row;
  log.end = log.durable = row.applied;
  q.index = {};
  q.learned = true;
  q.epochs = EpochTable(row.quorum->epochs);
  q.cuts = model::CutTable(row.quorum->cuts);
  if (MUTANT("install_forgets_promise")) q.promised = q.sealed = {};
  q.highest = row.quorum->highest;
  q.commit = row.applied.lsn;
  q.recovered = {};
  q.visible = row.applied;
  q.log_time_ms = row.quorum->log_time_ms;
  q.begins = row.quorum->begins;
  q.hole = q.empty = false;
  q.dirty = true;
  series_sweep_wanted = true;  // the old extent's
  Frame frame;
  frame.at.sequence = q.begins;
  frame.header.leader_ms = parts.clock.wall_ms();
  frame.header.prev_lsn = row.applied.lsn;
  for (auto& block : left) block.held = false;
  put_aside(log, frame, std::move(left));
  confirm_repeated(log);
}

}  // namespace cantle::store

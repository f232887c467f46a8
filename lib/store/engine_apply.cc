// Applying: the overlay's older half into the index, and every other transaction of the apply lane.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;
using base::ok;

namespace {

constexpr uint32_t kCountRecords = 5000;                                 // counted in one background transaction
constexpr base::Duration kStreamPause = std::chrono::milliseconds(100);  // without a block: the stream has ended
constexpr base::Duration kApplyGapMax = std::chrono::seconds(10);

}  // namespace

void Engine::Impl::maybe_seal() {
  if (failed || overlay.sealed() || (pending.empty() && !rows_due())) return;
  const bool full = pending.empty() || active_bytes() >= config.overlay_bytes / 2 || backlog() >= backlog_max() / 2;
  // Under load each round is at least as long as the one before took: larger halves rewrite fewer pages for a record.
  const auto now = parts.clock.now();
  const bool old = now - active_since >= config.overlay_age && now - apply_ended >= std::min(apply_took, kApplyGapMax);
  const bool asked = !drains.empty() && drains.front().mark > sealed_n && drains.front().mark <= durable_n;
  if (full || old || asked) seal();
}

void Engine::Impl::seal() {
  sealed_n = durable_n;
  apply_began = parts.clock.now();
  gather_rows(pending);
  auto half = overlay.seal();
  job = std::make_shared<ApplyJob>(index, half, std::exchange(pending, {}), identity, highest,
                                   ApplyLimits{config.slice_bytes, config.slice_records});
  pending.upto = job->pending().upto;
  job_records = 0;
  run_apply();
}

void Engine::Impl::run_apply() {
  CHECK(job && !job_running);
  job_running = true;
  job_waits = false;
  auto result = std::make_shared<base::Result<bool>>(false);
  parts.executor.run(
      Lane::apply, [job = job, result] { *result = job->step(); }, guarded([this, result] { applied_step(*result); }));
}

void Engine::Impl::applied_step(const base::Result<bool>& result) {
  job_running = false;
  if (failed) return;
  if (!result && result.error().code == Code::corrupt) return fail_damaged(result.error());
  if (!result && result.error().code != Code::no_space) return fail(result.error());
  index_full = !result;
  if (index_full) {  // the overlay keeps what it has; the tick tries again
    job_waits = true;
    set_read_only();
    return;
  }
  applied_records += job->records() - job_records;
  job_records = job->records();
  if (*result) {
    // The loop's readers must see the last commit before the overlay lets go of what it holds, and views handed out in
    // this turn must stay: so at its end.
    parts.executor.defer(guarded([this] { finish_apply(); }));
    return;
  }
  // While there is room, slices are spread out: the journal's syncs go first. What a stream has left behind is worked
  // off as soon as it pauses.
  const bool room = overlay_bytes() < config.overlay_bytes / 2 && backlog() < backlog_max() / 2;
  const bool stream = journal->streaming() && parts.clock.now() - last_block < kStreamPause;
  job_waits = drains.empty() && !closing && !low_space && room && (stream || backlog() < config.overlay_bytes / 2);
  if (!job_waits) run_apply();
}

void Engine::Impl::points_applied(const Pending& half) {
  for (const auto& [partition, point] : half.points)
    if (Log* log = find_log(partition); log != nullptr && is_of(point, log->row) && point.at.lsn > log->row.applied.lsn)
      log->row.applied = point.at;
}

void Engine::Impl::finish_apply() {
  turn->reset();
  turn_open = false;
  turn_values.clear();
  overlay.drop_sealed();
  apply_ended = parts.clock.now();
  apply_took = apply_ended - apply_began;
  applied_n = sealed_n;
  index_applied = std::max(index_applied, job->pending().upto);
  points_applied(job->pending());
  for (const auto& [extent, row] : job->changed()) extents[extent] = row;
  for (const auto& reshape : job->pending().reshapes) reshape_applied(reshape);
  rows_applied(job->pending());
  job.reset();
  let_in_waiting();
  maybe_seal();
  check_drains();
}

base::Status Engine::Impl::apply_now() {
  overlay.settle();
  if (pending.empty() && overlay.active()->empty()) return ok();
  sealed_n = durable_n;
  gather_rows(pending);
  auto half = overlay.seal();
  ApplyJob now(index, half, std::exchange(pending, {}), identity, highest, {config.slice_bytes, config.slice_records});
  pending.upto = now.pending().upto;
  for (bool last = false; !last;) {
    TRY_ASSIGN(last, now.step());
  }
  overlay.drop_sealed();
  applied_n = sealed_n;
  index_applied = std::max(index_applied, now.pending().upto);
  points_applied(now.pending());
  for (const auto& [extent, row] : now.changed()) extents[extent] = row;
  for (const auto& reshape : now.pending().reshapes) reshape_applied(reshape);
  rows_applied(now.pending());
  let_in_waiting();
  return ok();
}

void Engine::Impl::drain(Done done) {
  drains.push_back({added_n, std::move(done)});
  parts.executor.defer(guarded([this] {
    maybe_seal();
    check_drains();
    if (job && job_waits && !index_full) run_apply();
  }));
}

void Engine::Impl::check_drains() {
  while (!drains.empty() && !failed) {
    // Blocks without records or rows need no apply: then being durable is enough.
    const bool applied = applied_n >= drains.front().mark;
    const bool nothing_left = durable_n >= drains.front().mark && !overlay.sealed() && pending.empty();
    if (!applied && !nothing_left) return;
    const auto done = std::move(drains.front().done);
    drains.pop_front();
    if (done) done(ok());
  }
}

void Engine::Impl::index_txn(std::function<base::Status(WriteTxn&)> task, Done done) {
  auto result = std::make_shared<base::Status>(ok());
  auto run = [index = index, task = std::move(task)]() -> base::Status {
    TRY_ASSIGN(auto txn, index->begin());
    TRY(task(*txn));
    return txn->commit();
  };
  parts.executor.run(
      Lane::apply, [run = std::move(run), result] { *result = run(); }, guarded([this, result, done = std::move(done)] {
        if (failed) return;
        if (!*result && (result->error().code == Code::io_error || result->error().code == Code::corrupt))
          return fail(result->error());
        if (!*result && result->error().code == Code::no_space) {
          index_full = true;
          set_read_only();
        }
        if (done) done(*result);
      }));
}

// One small piece of work that nobody waits for: freeing, counting what a divide left uncounted, or sweeping the
// series.
void Engine::Impl::background() {
  if (background_busy || job_running || failed || closing) return;
  for (auto& [extent, row] : extents)
    for (size_t i = 0; i < row.pieces.size(); i++) {
      if (row.pieces[i].freeing()) return free_some(extent, i);
      if (!row.pieces[i].counts.all && !low_space) return count_some(extent, row.pieces[i].interval, nullptr);
    }
  if (series_sweep_due()) sweep_series();
}

void Engine::Impl::free_some(model::ExtentId extent, size_t piece) {
  background_busy = true;
  const auto interval = extents[extent].pieces[piece].interval;
  auto row = std::make_shared<ExtentRow>();
  index_txn(
      [extent, interval, row, max = config.free_records](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(*row, read_extent(txn, extent));
        const auto it = std::find_if(row->pieces.begin(), row->pieces.end(),
                                     [&](const Piece& p) { return p.interval == interval && p.freeing(); });
        if (it == row->pieces.end()) return ok();
        TRY_ASSIGN(auto next, free_records(txn, extent, std::max(it->freed_to, interval.begin), interval.end, max));
        if (next)
          it->freed_to = std::move(*next);
        else
          row->pieces.erase(it);
        return write_extent(txn, extent, *row);
      },
      [this, extent, row](const base::Status& s) {
        background_busy = false;
        if (!s) return;
        if (row->pieces.empty())
          extents.erase(extent);
        else
          extents[extent] = *row;
      });
}

void Engine::Impl::count_some(model::ExtentId extent, model::Interval interval, Done done) {
  background_busy = true;
  auto row = std::make_shared<ExtentRow>();
  index_txn(
      [extent, interval, row](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(*row, read_extent(txn, extent));
        for (auto& piece : row->pieces)
          if (piece.interval == interval && !piece.freeing()) TRY(count_more(txn, extent, piece, kCountRecords));
        return write_extent(txn, extent, *row);
      },
      [this, extent, row, done = std::move(done)](const base::Status& s) {
        background_busy = false;
        if (s) extents[extent] = *row;
        if (done) done(s);
      });
}

// Drained, then counted to the end, then read: all on the apply lane, so that nothing comes in between.
void Engine::Impl::hash(const TenureId& id, std::function<void(base::Result<HashAt>)> done) {
  struct Work {
    TenureId id;
    HashAt at;
    bool counted = false;
    std::function<void(base::Result<HashAt>)> done;
    std::function<void()> round;
  };
  auto work = std::make_shared<Work>();
  work->id = id;
  work->done = std::move(done);
  const auto round = [this](const std::shared_ptr<Work>& w) {
    index_txn(
        [w](WriteTxn& txn) -> base::Status {
          TRY_ASSIGN(const auto row, read_tenure(txn, w->id));
          if (!row || row->state != RowState::live)
            return base::fail(Code::not_found, "no such partition on this server");
          w->at = {{}, row->applied};
          w->counted = true;
          for (const auto& part : row->parts) {
            TRY_ASSIGN(auto extent, read_extent(txn, part.extent));
            for (auto& piece : extent.pieces) {
              if (!part.interval.contains(piece.interval)) continue;
              TRY(count_more(txn, part.extent, piece, kCountRecords));
              const auto& c = piece.counts;
              w->counted = w->counted && c.all;
              auto& h = w->at.hash;
              h.records += c.records;
              h.tombstones += c.tombstones;
              h.record_count += c.record_count;
              h.tombstone_count += c.tombstone_count;
              h.bytes += c.bytes;
            }
            TRY(write_extent(txn, part.extent, extent));
          }
          return ok();
        },
        [w](const base::Status& s) {
          if (!s) return w->done(base::fail(s.error()));
          if (w->counted) return w->done(w->at);
          w->round();
        });
  };
  work->round = [round, weak = std::weak_ptr(work)] {
    if (auto w = weak.lock()) round(w);
  };
  drain([work](const base::Status& s) {
    if (!s) return work->done(base::fail(s.error()));
    work->round();
  });
}

}  // namespace cantle::store

// Tenures: created, set aside, dropped, filled.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/engine_impl.h"
#include "lib/wire/block.h"

namespace cantle::store {

using base::Code;
using base::ok;

namespace {

base::Status busy_error() { return base::fail(Code::unavailable, "another change of this partition is under way"); }
base::Status no_tenure() { return base::fail(Code::not_found, "no such copy on this server"); }

// Owner of every piece in the row's parts that `from` owned.
base::Status give(WriteTxn& txn, const TenureRow& row, const TenureId& from, const TenureId& to) {
  for (const auto& part : row.parts) {
    TRY_ASSIGN(auto extent, read_extent(txn, part.extent));
    for (auto& piece : extent.pieces)
      if (part.interval.contains(piece.interval) && piece.partition == from.partition &&
          piece.assignment == from.assignment) {
        piece.partition = to.partition;
        piece.assignment = to.assignment;
      }
    TRY(write_extent(txn, part.extent, extent));
  }
  return ok();
}

}  // namespace

Log* Engine::Impl::find_log(const model::PartitionId& partition) const {
  const auto it = live.find(partition);
  return it == live.end() ? nullptr : it->second.get();
}

TenureRow* Engine::Impl::find_row(const TenureId& id) {
  if (Log* log = find_log(id.partition); log != nullptr && log->id() == id) return &log->row;
  const auto it = others.find(id);
  return it == others.end() ? nullptr : &it->second;
}

Engine::Done Engine::Impl::unbusy(const model::PartitionId& partition, Done done) {
  return [this, partition, done = std::move(done)](const base::Status& s) {
    busy.erase(partition);
    if (done) done(s);
  };
}

base::Status Engine::Impl::create(const TenureSpec& spec, Done done) {
  if (failed || closing) return base::fail(Code::unavailable, "the store is closing");
  if (spec.interval.empty() || spec.id.partition.none() || spec.id.assignment.none())
    return base::fail(Code::invalid, "a tenure needs ids and an interval");
  if (spec.mode != LogMode::quorum && spec.log_start.lsn.value != 0)
    return base::fail(Code::invalid, "a push table's log begins at its beginning");
  if (find_row(spec.id) != nullptr) return base::fail(Code::exists, "this copy is here already");
  if (busy.contains(spec.id.partition)) return busy_error();
  busy.insert(spec.id.partition);
  done = unbusy(spec.id.partition, std::move(done));
  Log* old = find_log(spec.id.partition);
  if (old == nullptr) {
    if (const auto kept = aside_of(spec))
      adopt(*kept, spec, std::move(done));
    else
      create_now(spec, std::move(done));
    return ok();
  }
  old->open = false;
  drain([this, spec, old_id = old->id(), done = std::move(done)](const base::Status& s) {
    if (!s) return done(s);
    change_state(old_id, RowState::aside, [this, spec, done](const base::Status& set) {
      if (!set) return done(set);
      create_now(spec, done);
    });
  });
  return ok();
}

void Engine::Impl::create_now(const TenureSpec& spec, Done done) {
  auto row = std::make_shared<TenureRow>();
  row->partition = spec.id.partition;
  row->assignment = spec.id.assignment;
  row->table = spec.table;
  row->region = spec.region;
  row->interval = spec.interval;
  row->born = epoch;
  row->whole = spec.whole;
  if (spec.mode == LogMode::quorum) {
    row->log_start = row->applied = spec.log_start;
    auto& quorum = row->quorum.emplace();
    quorum.begins = journal->head().sequence;
    quorum.commit = spec.log_start.lsn;
    quorum.highest = spec.log_start.epoch;
    quorum.epochs = spec.epochs;
    quorum.cuts = spec.cuts;
  }
  creating.emplace_back(std::move(row), std::move(done));
  if (creating.size() > 1) return;
  parts.executor.defer(guarded([this] { create_all(); }));
}

// Those that a map brings, thousands perhaps, in one transaction and one image.
void Engine::Impl::create_all() {
  auto all = std::make_shared<std::vector<std::pair<std::shared_ptr<TenureRow>, Done>>>(std::exchange(creating, {}));
  index_txn(
      [all](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(auto meta, read_meta(txn));
        CHECK(meta);
        for (const auto& [row, done] : *all) {
          const model::ExtentId extent{meta->next_extent++};  // always a new one: nothing old can show through
          row->parts = {{extent, row->interval}};
          ExtentRow pieces;
          pieces.pieces.push_back({row->interval, row->partition, row->assignment, "", {}});
          TRY(write_extent(txn, extent, pieces));
          TRY(write_tenure(txn, *row));
        }
        return write_meta(txn, *meta);
      },
      [this, all](const base::Status& s) {
        const auto tell = [all](const base::Status& status) {
          for (const auto& [row, done] : *all) done(status);
        };
        if (!s) return tell(s);
        for (const auto& [row, done] : *all) {
          auto log = std::make_shared<Log>();
          log->row = *row;
          begin_log(*log);
          if (log->quorum) log->quorum->learned = true;  // there is nothing older
          live[row->partition] = std::move(log);
          extents[row->parts[0].extent].pieces = {{row->interval, row->partition, row->assignment, "", {}}};
        }
        count_quorum_logs();
        write_images(tell);
      });
}

// An older tenure of the same partition that was set aside and not dropped.
std::optional<TenureId> Engine::Impl::aside_of(const TenureSpec& spec) const {
  for (const auto& [id, row] : others)
    if (id.partition == spec.id.partition && row.state == RowState::aside && row.attempt.none() &&
        row.table == spec.table && row.interval == spec.interval &&
        row.quorum.has_value() == (spec.mode == LogMode::quorum) && spec.log_start.lsn.value == 0)
      return id;
  return std::nullopt;
}

// The old tenure's data and log go on under the new assignment. A journal block names the partition alone, so two logs
// of one partition could not be told apart; and what only the old copy has is pushed from the new one as from any.
void Engine::Impl::adopt(const TenureId& from, const TenureSpec& spec, Done done) {
  auto row = std::make_shared<TenureRow>();
  index_txn(
      [from, spec, row, begins = journal->head().sequence](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(auto found, read_tenure(txn, from));
        if (!found) return no_tenure();
        *row = std::move(*found);
        row->assignment = spec.id.assignment;
        row->region = spec.region;
        row->state = RowState::live;
        row->whole = row->whole && spec.whole;
        row->fill_snapshot = 0;
        row->fill_to.clear();
        row->fill_all = false;
        if (row->quorum) {
          // A copy that was set aside no longer counts in any majority: what it had and nobody committed here, the
          // leader sends again.
          row->log_start = row->applied;
          auto epochs = EpochTable(row->quorum->epochs);
          epochs.cut(row->applied.lsn);
          row->quorum->epochs = epochs.starts();
          auto cuts = model::CutTable(row->quorum->cuts);
          cuts.truncate(row->applied.lsn);
          row->quorum->cuts = cuts.marks();
          row->quorum->commit = row->applied.lsn;
          row->quorum->begins = begins;
          row->quorum->set_from({});
          row->quorum->set_cut({});
        }
        TRY(give(txn, *row, from, spec.id));
        TRY(txn.del(Db::partitions, tenure_key(from)));
        return write_tenure(txn, *row);
      },
      [this, from, row, done = std::move(done)](const base::Status& s) {
        if (!s) return done(s);
        others.erase(from);
        needed_from.erase(from);
        for (const auto& part : row->parts)
          for (auto& piece : extents[part.extent].pieces)
            if (piece.partition == from.partition && piece.assignment == from.assignment)
              piece.assignment = row->assignment;
        auto log = std::make_shared<Log>();
        log->row = *row;
        begin_log(*log);
        live[row->partition] = log;
        if (log->quorum) {  // the journal says it too: there its blocks go on behind those that are not counted
          log->quorum->learned = true;
          log->quorum->cutting.push_back(log->end);
          model::BlockHeader h;
          h.kind = model::BlockKind::truncate;
          h.epoch = epoch;
          h.prev_epoch = log->end.epoch;
          h.prev_lsn = log->end.lsn;
          h.prev_crc = log->end.crc;
          add_quorum_local(log, h, nullptr);
        }
        count_quorum_logs();
        write_images(done);
      });
}

void Engine::Impl::change_state(const TenureId& id, RowState state, Done done, bool whole) {
  if (const auto* row = find_row(id)) whole = whole && row->whole;
  const uint64_t until =
      state == RowState::trash ? parts.clock.wall_ms() + static_cast<uint64_t>(base::to_ms(config.trash_time)) : 0;
  auto row = std::make_shared<TenureRow>();
  index_txn(
      [id, state, until, whole, row](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(auto found, read_tenure(txn, id));
        if (!found) return no_tenure();
        *row = std::move(*found);
        row->state = row->parts.empty() ? RowState::ended : state;
        row->whole = row->whole && whole;
        row->trash_until_ms = until;
        return write_tenure(txn, *row);
      },
      [this, id, row, done = std::move(done)](const base::Status& s) {
        if (!s) return done(s);
        if (Log* log = find_log(id.partition); log != nullptr && log->id() == id) {
          drop_tail(*log);
          live.erase(id.partition);
          count_quorum_logs();
        }
        others[id] = *row;
        write_images(done);
      });
}

base::Status Engine::Impl::retag(const TenureId& from, const model::AssignmentId& to, Done done) {
  Log* log = find_log(from.partition);
  if (log == nullptr || log->id() != from) return no_tenure();
  const TenureId next{from.partition, to};
  if (find_row(next) != nullptr) return base::fail(Code::exists, "that assignment is here already");
  if (busy.contains(from.partition)) return busy_error();
  busy.insert(from.partition);
  done = unbusy(from.partition, std::move(done));
  drain([this, from, next, done](const base::Status& drained) {
    if (!drained) return done(drained);
    index_txn(
        [from, next](WriteTxn& txn) -> base::Status {
          TRY_ASSIGN(auto row, read_tenure(txn, from));
          if (!row) return no_tenure();
          row->assignment = next.assignment;
          TRY(give(txn, *row, from, next));
          TRY(txn.del(Db::partitions, tenure_key(from)));
          return write_tenure(txn, *row);
        },
        [this, from, next, done](const base::Status& s) {
          if (!s) return done(s);
          if (Log* l = find_log(from.partition)) {
            l->row.assignment = next.assignment;
            for (const auto& part : l->row.parts)
              for (auto& piece : extents[part.extent].pieces)
                if (piece.partition == from.partition && piece.assignment == from.assignment)
                  piece.assignment = next.assignment;
          }
          if (const auto it = needed_from.find(from); it != needed_from.end()) {
            needed_from[next] = it->second;
            needed_from.erase(it);
          }
          write_images(done);
        });
  });
  return ok();
}

base::Status Engine::Impl::set_aside(const TenureId& id, bool whole, Done done) {
  Log* log = find_log(id.partition);
  if (log == nullptr || log->id() != id) return no_tenure();
  if (busy.contains(id.partition)) return busy_error();
  busy.insert(id.partition);
  log->open = false;
  drain([this, id, whole, done = unbusy(id.partition, std::move(done))](const base::Status& s) {
    if (!s) return done(s);
    change_state(id, RowState::aside, done, whole);
  });
  return ok();
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): a function moved into a function is not lost

base::Status Engine::Impl::drop(const TenureId& id, Done done) {
  if (find_row(id) == nullptr) return no_tenure();
  if (busy.contains(id.partition)) return busy_error();
  busy.insert(id.partition);
  if (Log* log = find_log(id.partition); log != nullptr && log->id() == id) log->open = false;
  drain([this, id, done = unbusy(id.partition, std::move(done))](const base::Status& s) {
    if (!s) return done(s);
    change_state(id, RowState::trash, [this, id, done](const base::Status& t) {
      if (t) {
        needed_from.erase(id);
        base::log(base::Level::notice, "dropped",
                  {{"partition", model::to_string(id.partition)}, {"assignment", model::to_string(id.assignment)}});
      }
      done(t);
    });
  });
  return ok();
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): a function moved into a function is not lost

base::Status Engine::Impl::ingest(const TenureId& id, Chunk chunk, Done done) {
  Log* log = find_log(id.partition);
  if (log == nullptr || log->id() != id) return no_tenure();
  if (failed || closing || !log->open) return base::fail(Code::unavailable, "this copy takes no more writes");
  if (read_only) return base::fail(Code::read_only, read_only_reason);
  TRY_ASSIGN(const auto info, wire::check_records(chunk.records, log->row.interval));
  if (!info.inside) return base::fail(Code::invalid, "a key outside the partition's interval");
  // It goes past the overlay: whatever is there may be older than this.
  if (log->quorum)
    log->quorum->filled = true;
  else if (info.highest > highest)
    highest = info.highest;
  overlay.distrust();
  cache.clear();
  ingesting++;
  done = [this, done = std::move(done)](const base::Status& s) {
    ingesting--;
    if (done) done(s);
  };
  auto shared = std::make_shared<Chunk>(std::move(chunk));
  if (log->indexed) {
    ingest_now(id, std::move(shared), std::move(done));
    return ok();
  }
  drain([this, id, shared, done = std::move(done)](const base::Status& s) {
    if (!s) return done(s);
    ingest_now(id, shared, done);
  });
  return ok();
}

void Engine::Impl::ingest_now(const TenureId& id, std::shared_ptr<Chunk> chunk, Done done) {
  struct Result {
    TenureRow row;
    std::map<model::ExtentId, ExtentRow> extents;
  };
  auto result = std::make_shared<Result>();
  auto task = [id, chunk, result, top = highest](WriteTxn& txn) -> base::Status {
    TRY_ASSIGN(auto found, read_tenure(txn, id));
    if (!found || found->state != RowState::live) return no_tenure();
    auto& row = result->row = std::move(*found);
    if (row.fill_snapshot != chunk->snapshot) {
      row.fill_snapshot = chunk->snapshot;
      row.fill_to.clear();
      row.fill_all = false;
    }
    const bool known = row.fill_all || (!row.fill_to.empty() && chunk->through_key <= row.fill_to);
    if (known && !chunk->last) return ok();
    for (const auto& part : row.parts) {
      RecordKey keys(part.extent);
      TRY_ASSIGN(auto extent, read_extent(txn, part.extent));
      wire::RecordReader in(chunk->records);
      Piece* piece = nullptr;
      for (model::RecordView r; in.next(r);) {
        if (!part.interval.contains(r.key)) continue;
        if (piece == nullptr || !piece->interval.contains(r.key)) piece = extent.find(r.key);
        if (piece == nullptr || piece->freeing()) return base::fail(Code::corrupt, "index: an owner without its piece");
        auto put = put_record(txn, keys, r, piece->counts);
        if (!put) return base::fail(std::move(put).error());
      }
      TRY(write_extent(txn, part.extent, extent));
      result->extents[part.extent] = std::move(extent);
    }
    row.hollow = true;
    row.fill_to = std::max(row.fill_to, chunk->through_key);
    row.fill_all = row.fill_all || chunk->last;
    // These versions are in no log: after a restart the state row alone says that they were seen.
    TRY_ASSIGN(auto meta, read_meta(txn));
    CHECK(meta);
    if (top > meta->highest) {
      meta->highest = top;
      TRY(write_meta(txn, *meta));
    }
    CRASH_POINT("ingest.before_commit");
    return write_tenure(txn, row);
  };
  index_txn(std::move(task), [this, id, result, done = std::move(done)](const base::Status& s) {
    bool first = false;
    if (s) {
      if (TenureRow* row = find_row(id)) {
        first = result->row.hollow && !row->hollow;
        row->fill_snapshot = result->row.fill_snapshot;
        row->fill_to = result->row.fill_to;
        row->hollow = result->row.hollow;
        row->fill_all = result->row.fill_all;
      }
      for (auto& [extent, row] : result->extents) extents[extent] = std::move(row);
    }
    // A lost index is made again from the journal: that the journal does not have all of it must stand there first.
    if (first) return write_images(done);
    if (done) done(s);
  });
}

base::Status Engine::Impl::mark_whole(const TenureId& id, Done done) {
  if (find_row(id) == nullptr) return no_tenure();
  const uint64_t healed = journal->durable().sequence;
  drain([this, id, healed, done = std::move(done)](const base::Status& drained) {
    if (!drained) return done(drained);
    index_txn(
        [id, healed](WriteTxn& txn) -> base::Status {
          TRY_ASSIGN(auto row, read_tenure(txn, id));
          if (!row) return no_tenure();
          row->whole = true;
          row->healed = healed;
          return write_tenure(txn, *row);
        },
        [this, id, healed, done](const base::Status& s) {
          if (TenureRow* row = find_row(id); s && row != nullptr) {
            if (!row->whole) lost_places++;
            row->whole = true;
            row->healed = healed;
          }
          if (done) done(s);
        });
  });
  return ok();
}

}  // namespace cantle::store

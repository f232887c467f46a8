// Writing: append, sync groups, what happens when a block is durable.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/engine_impl.h"
#include "lib/wire/block.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::BlockKind;

namespace {

constexpr uint32_t kRetryAfterMs = 20;
constexpr uint64_t kRoomShare = 16;  // of the overlay is left to clients by those who can wait

base::Error overloaded(std::string text) {
  base::Error e(Code::overloaded, std::move(text));
  e.retry_after_ms = kRetryAfterMs;
  return e;
}

}  // namespace

base::Status Engine::Impl::can_append(const Log* log, uint64_t payload_bytes) const {
  if (failed) return base::fail(Code::faulted, "the store failed: " + failed->text);
  if (log == nullptr) return base::fail(Code::not_found, "no such partition on this server");
  if (closing || !log->open) return base::fail(Code::unavailable, "this copy takes no more writes");
  if (read_only) return base::fail(Code::read_only, read_only_reason);
  // The last of it is for what must be written though the disk is full.
  if (!journal->has_room(payload_bytes + quorum_logs * kLocalRoom))
    return base::fail(Code::read_only, "no room for another journal segment");
  if (overlay_bytes() + journal->queued_bytes() + payload_bytes > config.overlay_bytes)
    return base::fail(overloaded("the overlay is full"));
  if (backlog() + journal->queued_bytes() + payload_bytes > backlog_max())
    return base::fail(overloaded("the index is far behind the journal"));
  if (journal->queued_bytes() + payload_bytes > config.queue_bytes_max)
    return base::fail(overloaded("the journal's queue is full"));
  return ok();
}

bool Engine::Impl::has_room(uint64_t payload_bytes) const {
  const uint64_t queued = journal->queued_bytes() + payload_bytes;
  return overlay_bytes() + queued <= config.overlay_bytes - config.overlay_bytes / kRoomShare &&
         backlog() + queued <= backlog_max() - backlog_max() / kRoomShare && queued <= config.queue_bytes_max / 2;
}

// Of the journal, from the first block that has something for the index to the last that is durable.
uint64_t Engine::Impl::backlog() const {
  if (!job && pending.empty()) return 0;
  const auto& first = job ? job->pending().from : pending.from;
  const auto place = [this](const JournalPosition& p) { return p.segment * config.segment_bytes + p.offset; };
  return place(pending.upto) - std::min(place(pending.upto), place(first));
}

base::Result<model::Lsn> Engine::Impl::append(const model::PartitionId& partition, std::string payload, Appended done) {
  Log* log = find_log(partition);
  TRY(can_append(log, payload.size()));
  if (log->quorum) return base::fail(Code::invalid, "a quorum table's log is not appended to");
  TRY_ASSIGN(const auto info, wire::check_records(payload, log->row.interval));
  if (info.records == 0) return base::fail(Code::invalid, "an append without records");
  if (!info.inside) return base::fail(Code::invalid, "a key outside the partition's interval");
  if (payload.size() > journal->payload_max())
    return base::fail(Code::too_large, "a block that does not fit a journal segment");
  const auto now = parts.clock.now();
  JournalBlock block;
  auto& h = block.header;
  h.kind = BlockKind::data;
  h.partition = partition;
  h.region = log->row.region;
  h.epoch = epoch;
  h.first = log->end.lsn.next();
  h.records = info.records;
  h.prev_epoch = log->end.epoch;
  h.prev_lsn = log->end.lsn;
  h.prev_crc = log->end.crc;
  h.commit = log->end.lsn;  // push: all of it is
  h.leader_ms = parts.clock.wall_ms();
  h.elapsed_ms = std::min<uint64_t>(model::kElapsedMaxMs,
                                    static_cast<uint64_t>(std::max<int64_t>(0, base::to_ms(now - last_block))));
  last_block = now;
  wire::seal_block(h, payload);
  log->end = point_of(h);
  block.context = live.find(partition)->second;
  const auto lsn = h.last();
  if (done)
    block.done = [done = std::move(done), lsn](base::Status s) {
      if (s)
        done(lsn);
      else
        done(base::fail(std::move(s).error()));
    };
  if (MUTANT("apply_ahead_of_journal")) put_records(*log, payload, nullptr);
  block.payload = std::move(payload);
  appended_bytes += block.payload.size();
  add(std::move(block));
  return lsn;
}

void Engine::Impl::add_local(BlockKind kind, const model::PartitionId& partition, model::Region region,
                             std::string payload, std::function<void(base::Status)> done) {
  JournalBlock block;
  block.header.kind = kind;
  block.header.partition = partition;
  block.header.region = region;
  block.header.epoch = epoch;
  block.header.leader_ms = parts.clock.wall_ms();
  wire::seal_block(block.header, payload);
  block.payload = std::move(payload);
  block.done = std::move(done);
  add(std::move(block));
}

void Engine::Impl::add(JournalBlock block) {
  added_n++;
  appended_blocks++;
  journal->add(std::move(block));
  pump_soon();
}

// What the rest of this turn appends goes into the same sync group.
void Engine::Impl::pump_soon() {
  if (pump_due) return;
  pump_due = true;
  parts.executor.defer(guarded([this] {
    pump_due = false;
    journal->pump();
  }));
}

void Engine::Impl::on_durable(std::vector<JournalBlock> blocks, const std::shared_ptr<File>& file) {
  if (failed) return;
  std::vector<Log*> quorums;  // kept by their blocks
  bool pushed = false;        // quorum tables' blocks are nothing to replpush
  for (auto& b : blocks) {
    auto* log = static_cast<Log*>(b.context.get());
    if (log == nullptr || !log->quorum) {
      pushed = true;
      take_durable(b.frame, b.payload, log, file);
      continue;
    }
    quorums.push_back(log);
    if (!quorum_durable(*log, b.frame, std::move(b.payload), file) && b.done)
      b.done = [done = std::move(b.done)](const base::Status&) {
        done(base::fail(Code::cancelled, "the block was cut from the log"));
      };
  }
  durable_n += blocks.size();
  if (parts.live != nullptr) parts.live->set_durable(journal->durable());
  for (auto& b : blocks)
    if (b.done) b.done(ok());
  if (pushed && parts.live != nullptr) parts.live->tell();
  for (auto* log : quorums) confirm_repeated(*log);
  maybe_seal();
  check_drains();
  // After the next group is on its way.
  parts.executor.defer(guarded([this] { overlay.settle_many(); }));
}

SegmentInfo& Engine::Impl::note_frame(const Frame& frame) {
  auto& segment = segments[frame.at.segment];
  if (frame.at.offset == 0) segment.known = true;  // we see all of it
  segment.newest_ms = std::max(segment.newest_ms, frame.header.leader_ms);
  if (is_log_block(frame.header.kind)) {
    auto& last = segment.last[frame.header.partition];
    last = std::max(last, frame.header.last());
  }
  pending.upto = std::max(pending.upto, frame.end());
  return segment;
}

void Engine::Impl::take_durable(const Frame& frame, std::string_view payload, Log* log,
                                const std::shared_ptr<File>& file) {
  const auto& h = frame.header;
  auto& segment = note_frame(frame);
  if (h.kind == BlockKind::divide) {
    auto note = decode_note(payload);
    CHECK(note);  // its checksum is right, so we wrote it
    begin_pending(frame);
    for (const auto& child : {note->low.partition, note->high.partition})
      if (Log* c = find_log(child)) {
        if (c->durable.lsn < note->at.lsn) c->durable = note->at;
        if (c->quorum) c->quorum->dirty = true;
      }
    pending.reshapes.emplace_back(std::move(*note));
  }
  if (h.kind == BlockKind::merge) {
    auto note = decode_merge_note(payload);
    CHECK(note);
    begin_pending(frame);
    if (Log* target = find_log(note->target.partition)) {
      if (target->durable.lsn < note->start().lsn) target->durable = note->start();
      if (target->quorum) target->quorum->dirty = true;
    }
    pending.reshapes.emplace_back(std::move(*note));
  }
  if (h.kind != BlockKind::data || log == nullptr) return;
  log->durable = point_of(h);
  begin_pending(frame);
  pending.points[h.partition] = {log->durable};
  const PayloadPlace place{file, frame.at.offset + kFrameAndHeader, payload.data()};
  if (segment.files.empty() || segment.files.back().lock() != file) segment.files.push_back(file);
  put_records(*log, payload, &place);
}

void Engine::Impl::begin_pending(const Frame& frame) {
  if (pending.from.sequence != 0) return;
  active_since = parts.clock.now();
  pending.from = frame.at;
}

void Engine::Impl::put_records(Log& log, std::string_view payload, const PayloadPlace* place, uint64_t time_ms) {
  wire::RecordReader in(payload);
  const Part* part = nullptr;
  for (model::RecordView r; in.next(r);) {
    if (part == nullptr || !part->interval.contains(r.key)) {
      const auto it = std::find_if(log.row.parts.begin(), log.row.parts.end(),
                                   [&](const Part& p) { return p.interval.contains(r.key); });
      if (it == log.row.parts.end()) continue;  // of a divided parent: what lies elsewhere now
      part = &*it;
    }
    // A quorum table's come in the order of their versions, which are of another kind than the clocks'.
    const bool newest = log.quorum ? !log.quorum->filled && !log.row.hollow : r.version > highest;
    if (newest && !log.quorum) highest = r.version;
    const auto* left = r.value.size() >= config.spill_value && crowded() ? place : nullptr;
    if (r.op != model::Op::none) {
      overlay.put(part->extent, r, newest, left);
      if (!MUTANT("cache_is_not_told_of_writes")) cache.erase(part->extent, r.key);
    }
    if (log.quorum && r.client != 0) note_series(log, r, time_ms);
  }
}

void Engine::Impl::fail_damaged(const base::Error& error) {
  if (failed || closing_damaged) return;
  if (journal->durable().sequence == 0) return fail(error);  // still recovering
  closing_damaged = true;
  Root root = next_root(journal->durable());
  if (checkpointing) root.generation++;  // the one under way comes first
  parts.executor.run(
      Lane::background, [root, &disk = parts.disk] { (void)write_root(disk, root); },
      guarded([this, error] { fail(error); }));
}

void Engine::Impl::fail(const base::Error& error) {
  if (failed) return;
  failed = error;
  base::log(base::Level::fatal, "store-failed", {{"error", base::to_string(error)}});
  if (fatal_fn) fatal_fn(error);
}

}  // namespace cantle::store

// Logs of quorum tables: built and taken, committed, sealed, cut, read.
//
// Two views of a log are kept. What was appended (Log::end, flying, epochs, promised) changes at once with each call.
// What is durable (Log::durable, tail, index) follows the journal, block by block, and recovery goes the same way: so a
// cut that races the syncs of what it cuts takes effect behind them, as it stands in the journal, and until then
// `cutting` says what of the durable view is not the log's any more.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/model/series.h"
#include "lib/store/engine_impl.h"
#include "lib/wire/block.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::BlockHeader;
using model::BlockKind;
using model::LogPoint;
using model::Lsn;

namespace {

constexpr uint32_t kRetryAfterMs = 20;

base::Error later(Code code, std::string text) {
  base::Error e(code, std::move(text));
  e.retry_after_ms = kRetryAfterMs;
  return e;
}

// What a data block of a quorum table must hold.
base::Status check_payload_of(const BlockHeader& h, std::string_view payload, const model::Interval& interval) {
  if (h.kind != BlockKind::data) {
    if (h.records != 1) return base::fail(Code::malformed, "a block without records takes one LSN");
    if (model::is_cut_mark(h.kind)) TRY(model::attempt_of_cut(payload));
    return ok();
  }
  uint32_t records = 0;
  wire::RecordReader in(payload);
  for (model::RecordView r; in.next(r); records++) {
    if (!interval.contains(r.key)) return base::fail(Code::malformed, "a key outside the partition's interval");
    if (r.version != model::quorum_version(h.epoch, {h.first.value + records}))
      return base::fail(Code::malformed, "a record whose version is not its place in the log");
    TRY(model::outcome_of(r));
  }
  TRY(in.status());
  if (records == 0 || records != h.records)
    return base::fail(Code::malformed, "a block with another number of records");
  return ok();
}

}  // namespace

base::Result<Log*> Engine::Impl::quorum_log_of(const model::PartitionId& partition) const {
  Log* log = find_log(partition);
  if (log == nullptr) return base::fail(Code::not_found, "no such partition on this server");
  if (!log->quorum) return base::fail(Code::invalid, "the partition is not a quorum table's");
  return log;
}

// --- appending ----------------------------------------------------------------------------------

base::Status Engine::Impl::can_add(const Log& log, BlockKind kind, uint64_t payload_bytes) const {
  TRY(can_add_local(log));
  if (log.quorum->closed) return base::fail(later(Code::unavailable, "a snapshot takes the copy's place"));
  if (payload_bytes > std::min<uint64_t>(journal->payload_max(), model::kBlockMax))
    return base::fail(Code::too_large, "a block that does not fit a journal segment");
  if (kind == BlockKind::data) {
    if (read_only) return base::fail(Code::read_only, read_only_reason);
    if (!journal->has_room(payload_bytes + quorum_logs * kLocalRoom))
      return base::fail(Code::read_only, "no room for another journal segment");
  } else if (!journal->has_room(payload_bytes)) {
    return base::fail(Code::read_only, "no room for another journal segment");
  }
  if (journal->queued_bytes() + payload_bytes > config.queue_bytes_max)
    return base::fail(later(Code::overloaded, "the journal's queue is full"));
  return ok();
}

base::Result<BlockHeader> Engine::Impl::build(const model::PartitionId& partition, const BuildSpec& spec,
                                              std::string payload, Taken done) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  auto& q = *log->quorum;
  TRY(can_add(*log, spec.kind, payload.size()));
  if (!is_log_block(spec.kind)) return base::fail(Code::invalid, "a block of a kind that is in no log");
  if (spec.epoch < log->end.epoch || spec.epoch.value == 0) return base::fail(Code::invalid, "an epoch that is over");
  if (spec.commit > log->end.lsn) return base::fail(Code::invalid, "a commit LSN behind the end of the log");
  if (spec.kind == BlockKind::data) {
    // What is built must find room when it is committed: an answer waits for it.
    if (overlay_bytes() + journal->queued_bytes() + q.bytes + payload.size() > config.overlay_bytes)
      return base::fail(later(Code::overloaded, "the overlay is full"));
    if (backlog() + journal->queued_bytes() + payload.size() > backlog_max())
      return base::fail(later(Code::overloaded, "the index is far behind the journal"));
  }
  const auto now = parts.clock.now();
  BlockHeader h;
  h.kind = spec.kind;
  h.partition = partition;
  h.region = log->row.region;
  h.epoch = spec.epoch;
  h.first = log->end.lsn.next();
  h.records = 1;
  if (spec.kind == BlockKind::data) {
    TRY_ASSIGN(const auto info, wire::check_records(payload));
    h.records = info.records;
  }
  h.prev_epoch = log->end.epoch;
  h.prev_lsn = log->end.lsn;
  h.prev_crc = log->end.crc;
  h.commit = std::max(spec.commit, q.commit);
  h.leader_ms = parts.clock.wall_ms();
  if (q.last_block != base::Instant{})
    h.elapsed_ms = std::min<uint64_t>(model::kElapsedMaxMs,
                                      static_cast<uint64_t>(std::max<int64_t>(0, base::to_ms(now - q.last_block))));
  TRY(check_payload_of(h, payload, log->row.interval));
  wire::seal_block(h, payload);
  add_log_block(live.find(partition)->second, h, std::move(payload), std::move(done));
  return h;
}

base::Status Engine::Impl::check_block(const Log& log, const BlockHeader& h, std::string_view payload) const {
  if (h.partition != log.row.partition || !is_log_block(h.kind))
    return base::fail(Code::malformed, "a block of another log");
  if (payload.size() > model::kBlockMax) return base::fail(Code::too_large, "a block of more than 4 MiB");
  BlockHeader sealed = h;
  wire::seal_block(sealed, payload);
  if (sealed != h) return base::fail(Code::malformed, "a block with a wrong checksum");
  char bytes[wire::kBlockHeaderSize];
  wire::encode_header(h, bytes);
  TRY(wire::decode_header({bytes, sizeof bytes}));
  if (h.epoch < h.prev_epoch || h.epoch.value == 0) return base::fail(Code::malformed, "a block of an older epoch");
  if (h.elapsed_ms > model::kElapsedMaxMs) return base::fail(Code::malformed, "a block of more than a minute");
  if (h.commit >= h.first) return base::fail(Code::malformed, "a block that commits itself");
  return check_payload_of(h, payload, log.row.interval);
}

base::Result<LogPoint> Engine::Impl::take(const model::PartitionId& partition, const BlockHeader& h,
                                          std::string payload, Taken done, Sync sync) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  TRY(check_block(*log, h, payload));
  TRY(can_add(*log, h.kind, payload.size()));
  if (h.last() <= log->end.lsn) return take_again(*log, h, std::move(done));
  if (h.prev_lsn > log->end.lsn) return base::fail(Code::catching_up, "blocks in front of this one are missing");
  if (before_of(h) != log->end) return base::fail(Code::diverged, "the block does not follow the log's last one");
  if (log->quorum->tail.size() + log->quorum->flying.size() >= kTailBlocksMax)
    return base::fail(later(Code::overloaded, "too many blocks that are not committed"));
  add_log_block(live.find(partition)->second, h, std::move(payload), std::move(done), sync);
  return log->end;
}

// One that has the LSN already compares checksums before it confirms.
base::Result<LogPoint> Engine::Impl::take_again(Log& log, const BlockHeader& h, Taken done) {
  auto& q = *log.quorum;
  auto known = find_point(log, h.last());
  if (!known) return base::fail(Code::unavailable, "older than what can be compared: " + known.error().text);
  const auto point = point_of(h);
  if (*known != point) return base::fail(Code::diverged, "another block is in its place");
  q.commit = std::max(q.commit, h.commit);
  if (done) q.repeated.emplace_back(point, std::move(done));
  parts.executor.defer(guarded([this, partition = log.row.partition] {
    if (Log* there = find_log(partition); there != nullptr && there->quorum && !failed) confirm_repeated(*there);
  }));
  return point;
}

void Engine::Impl::note_block(Log& log, const BlockHeader& h, std::string_view payload) {
  auto& q = *log.quorum;
  log.end = point_of(h);
  q.epochs.note(h.epoch, h.first);
  q.highest = std::max(q.highest, h.epoch);
  q.commit = std::max(q.commit, h.commit);
  if (const auto mark = model::cut_mark(h, payload)) q.cuts.note(*mark, q.commit);
}

void Engine::Impl::add_log_block(const std::shared_ptr<Log>& log, const BlockHeader& h, std::string payload, Taken done,
                                 Sync sync) {
  auto& q = *log->quorum;
  note_block(*log, h, payload);
  last_block = q.last_block = parts.clock.now();
  q.flying.push_back({log->end, h.length});
  q.bytes += h.length;
  JournalBlock block;
  block.header = h;
  block.context = log;
  if (done)
    block.done = [done = std::move(done), point = log->end](base::Status s) {
      if (s)
        done(point);
      else
        done(base::fail(std::move(s).error()));
    };
  appended_bytes += payload.size();
  block.payload = std::move(payload);
  block.sync = sync;
  add(std::move(block));
}

void Engine::Impl::confirm_repeated(Log& log) {
  auto& q = *log.quorum;
  if (q.repeated.empty()) return;
  const auto durable = durable_of(log);
  std::vector<std::pair<Taken, base::Result<LogPoint>>> tell;
  std::erase_if(q.repeated, [&](auto& r) {
    const auto& point = r.first;
    const bool flying = std::any_of(q.flying.begin(), q.flying.end(), [&](const Flying& f) { return f.end == point; });
    if (flying) return false;
    if (point.lsn <= durable.lsn)
      tell.emplace_back(std::move(r.second), point);
    else
      tell.emplace_back(std::move(r.second), base::fail(Code::cancelled, "the block was cut from the log"));
    return true;
  });
  for (auto& [done, result] : tell) done(std::move(result));
}

// --- commit, seal, cut --------------------------------------------------------------------------

base::Status Engine::Impl::commit_log(const model::PartitionId& partition, Lsn lsn) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  if (failed) return base::fail(Code::faulted, "the store failed: " + failed->text);
  auto& q = *log->quorum;
  lsn = std::min(lsn, log->end.lsn);
  if (lsn <= q.commit || q.closed) return ok();
  q.commit = lsn;
  q.dirty = true;
  if (auto in = let_in(*log); !in) {
    fail_damaged(in.error());
    return in;
  }
  maybe_seal();
  return ok();
}

// These are written though the server is read-only: the reserve is for them (S65).
base::Status Engine::Impl::can_add_local(const Log& log) const {
  if (failed) return base::fail(Code::faulted, "the store failed: " + failed->text);
  if (closing || !log.open) return base::fail(Code::unavailable, "this copy takes no more writes");
  if (!journal->has_room(0)) return base::fail(Code::read_only, "no room for another journal segment");
  return ok();
}

void Engine::Impl::add_quorum_local(const std::shared_ptr<Log>& log, const BlockHeader& header, Done done) {
  JournalBlock block;
  block.header = header;
  block.header.partition = log->row.partition;
  block.header.region = log->row.region;
  block.header.leader_ms = parts.clock.wall_ms();
  wire::seal_block(block.header, "");
  block.context = log;
  block.done = std::move(done);
  add(std::move(block));
}

base::Status Engine::Impl::seal_log(const model::PartitionId& partition, model::Epoch promised, Done done) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  TRY(can_add_local(*log));
  auto& q = *log->quorum;
  if (promised <= q.promised && q.sealing == 0) {
    parts.executor.defer(guarded([this, done = std::move(done)] {
      if (done && !failed) done(ok());
    }));
    return ok();
  }
  q.promised = std::max(q.promised, promised);
  q.highest = std::max(q.highest, promised);
  q.sealing++;
  BlockHeader h;
  h.kind = BlockKind::seal;
  h.epoch = q.promised;
  add_quorum_local(live.find(partition)->second, h, std::move(done));
  return ok();
}

base::Status Engine::Impl::truncate_log(const model::PartitionId& partition, const LogPoint& keep, Done done) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  TRY(can_add_local(*log));
  auto& q = *log->quorum;
  if (q.closed) return base::fail(later(Code::unavailable, "a snapshot takes the copy's place"));
  if (keep.lsn < q.commit) return base::fail(Code::faulted, "what is committed is never cut");
  if (keep == log->end && keep == log->durable && q.cutting.empty()) {  // nothing to cut, and nothing on its way
    parts.executor.defer(guarded([this, done = std::move(done)] {
      if (done && !failed) done(ok());
    }));
    return ok();
  }
  TRY_ASSIGN(const auto known, find_point(*log, keep.lsn));
  if (known != keep) return base::fail(Code::not_found, "no block of the log ends there");
  log->end = keep;
  q.epochs.cut(keep.lsn);
  q.cuts.truncate(keep.lsn);
  while (!q.flying.empty() && q.flying.back().end.lsn > keep.lsn) {
    q.bytes -= q.flying.back().bytes;
    q.flying.pop_back();
  }
  q.cutting.push_back(keep);
  BlockHeader h;
  h.kind = BlockKind::truncate;
  h.epoch = epoch;
  h.prev_epoch = keep.epoch;
  h.prev_lsn = keep.lsn;
  h.prev_crc = keep.crc;
  add_quorum_local(live.find(partition)->second, h, std::move(done));
  return ok();
}

// --- becoming durable ---------------------------------------------------------------------------

bool Engine::Impl::quorum_durable(Log& log, const Frame& frame, std::string payload,
                                  const std::shared_ptr<File>& file) {
  auto& q = *log.quorum;
  const auto& h = frame.header;
  note_frame(frame);
  q.dirty = true;
  if (h.kind == BlockKind::seal) {
    q.sealing -= q.sealing > 0 ? 1 : 0;
    q.sealed = std::max(q.sealed, h.epoch);
    return true;
  }
  if (h.kind == BlockKind::truncate) {
    cut_durable(log, frame);
    return true;
  }
  if (model::is_mended(h.kind)) {
    mended_durable(log, frame, std::move(payload));
    return true;
  }
  const auto point = point_of(h);
  const auto cut = q.lowest_cut();
  const bool is_cut = cut && cut->lsn < point.lsn;
  log.durable = point;
  q.index.add(h.first, frame.at);
  if (!is_cut && !q.flying.empty()) {
    CHECK(q.flying.front().end == point);
    q.bytes -= q.flying.front().bytes;
    q.flying.pop_front();
  }
  TailBlock& block = q.tail.emplace_back();
  block.frame = frame;
  block.file = file;
  block.payload = std::move(payload);
  block.held = true;
  q.bytes += h.length;
  tail_held += h.length;
  if (auto in = let_in(log); !in) fail_damaged(in.error());
  if (tail_held > config.tail_bytes && !q.tail.empty() && q.tail.back().held) {
    auto& newest = q.tail.back();
    tail_held -= newest.frame.header.length;
    newest.payload = {};
    newest.held = false;
  }
  return !is_cut;
}

void Engine::Impl::cut_durable(Log& log, const Frame& frame) {
  auto& q = *log.quorum;
  const LogPoint keep = before_of(frame.header);
  if (!q.cutting.empty()) q.cutting.pop_front();
  q.index.cut(keep.lsn, frame.at);
  if (log.durable.lsn > keep.lsn) log.durable = keep;
  std::vector<TailBlock> blocks;
  while (!q.tail.empty() && q.tail.back().end().lsn > keep.lsn) {
    auto& block = q.tail.back();
    const uint64_t length = block.frame.header.length;
    q.bytes -= length;
    if (block.held) tail_held -= length;
    block.payload = {};
    block.held = false;
    if (!block.damaged && !block.mended) blocks.push_back(std::move(block));
    q.tail.pop_back();
  }
  if (q.tail.empty()) q.hole = false;
  std::reverse(blocks.begin(), blocks.end());
  put_aside(log, frame, std::move(blocks));
}

void Engine::Impl::put_aside(Log& log, const Frame& truncate, std::vector<TailBlock> blocks) {
  if (blocks.empty()) return;
  cut_blocks += blocks.size();
  CutOff off;
  off.path = cut_path(log.row.partition, truncate);
  base::log(base::Level::warn, "log-cut",
            {{"partition", model::to_string(log.row.partition)},
             {"after_lsn", truncate.header.prev_lsn.value},
             {"blocks", blocks.size()},
             {"kept_in", off.path}});
  off.blocks = std::move(blocks);
  log.quorum->cut_off.push_back(std::move(off));
  if (journal->durable().sequence != 0) write_cut_offs();
}

bool Engine::Impl::has_overlay_room(uint64_t payload_bytes) const {
  const bool empty = !overlay.sealed() && overlay.active()->empty();
  return empty || overlay_bytes() + payload_bytes <= config.overlay_bytes;
}

base::Status Engine::Impl::let_in(Log& log) {
  auto& q = *log.quorum;
  const auto cut = q.lowest_cut();
  const Lsn limit = cut ? std::min(q.commit, cut->lsn) : q.commit;
  while (!q.tail.empty()) {
    auto& block = q.tail.front();
    const auto& h = block.frame.header;
    if (h.last() > limit) break;
    const uint64_t time_ms = q.log_time_ms + h.elapsed_ms;
    if (!q.empty) {
      const bool follows = !block.damaged && before_of(h) == q.visible;
      if (!follows || !has_overlay_room(h.length)) break;
      TRY(put_tail(log, block, time_ms));
    }
    q.visible = point_of(h);
    q.log_time_ms = time_ms;
    q.bytes -= h.length;
    if (block.held) tail_held -= h.length;
    q.dirty = true;
    if (pending.from.sequence == 0) {
      active_since = parts.clock.now();
      pending.from = pending.upto;
    }
    pending.points[log.row.partition] = {q.visible, q.begins};
    q.tail.pop_front();
  }
  return ok();
}

// What had to wait while the overlay was full.
void Engine::Impl::let_in_waiting() {
  if (quorum_logs == 0 || failed) return;
  for (auto& [partition, log] : live) {
    if (!log->quorum || log->quorum->tail.empty()) continue;
    if (auto in = let_in(*log); !in) return fail_damaged(in.error());
  }
}

base::Status Engine::Impl::put_tail(Log& log, const TailBlock& block, uint64_t time_ms) {
  if (block.frame.header.kind != BlockKind::data) return ok();
  std::string again;
  if (!block.held) {
    TRY_ASSIGN(again, payload_of(block));
  }
  const std::string& payload = block.held ? block.payload : again;
  if (block.mended) {
    put_records(log, payload, nullptr, time_ms);
    return ok();
  }
  auto& segment = segments[block.frame.at.segment];
  if (segment.files.empty() || segment.files.back().lock() != block.file) segment.files.push_back(block.file);
  const PayloadPlace place{block.file, block.frame.at.offset + kFrameAndHeader, payload.data()};
  put_records(log, payload, &place, time_ms);
  return ok();
}

base::Result<std::string> Engine::Impl::payload_of(const TailBlock& block) {
  const auto& f = block.frame;
  TRY_ASSIGN(auto bytes, block.file->read(f.at.offset + kFrameAndHeader, f.header.length));
  if (auto good = wire::check_payload(f.header, bytes); !good)
    return base::fail(Code::corrupt, "journal: the block at " + to_string(f.at) + " is not what was written there");
  return bytes;
}

void Engine::Impl::drop_tail(Log& log) {
  if (!log.quorum) return;
  for (const auto& block : log.quorum->tail)
    if (block.held) tail_held -= block.frame.header.length;
  log.quorum->tail.clear();
}

LogPoint Engine::Impl::durable_of(const Log& log) const {
  if (!log.quorum) return log.durable;
  const auto cut = log.quorum->lowest_cut();
  return cut && cut->lsn < log.durable.lsn ? *cut : log.durable;
}

std::optional<QuorumLog> Engine::Impl::quorum_state(const model::PartitionId& partition) const {
  const Log* log = find_log(partition);
  if (log == nullptr || !log->quorum) return std::nullopt;
  const auto& q = *log->quorum;
  QuorumLog out;
  out.end = log->end;
  out.durable = durable_of(*log);
  out.commit = std::min(q.commit, log->end.lsn);
  out.visible = q.visible.lsn;
  out.log_time_ms = q.log_time_ms;
  out.promised = q.promised;
  out.highest = q.highest;
  out.epochs = q.epochs.starts();
  out.cuts = q.cuts.marks();
  out.whole = log->row.whole && !q.hole;
  out.hole = q.hole || q.empty;
  out.known = log->row.whole;
  return out;
}

}  // namespace cantle::store

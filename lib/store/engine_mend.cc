// A quorum table's log that has a gap: blocks that cannot be read here are taken from another replica (R16).
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::BlockHeader;
using model::LogGap;
using model::LogPoint;
using model::Lsn;

namespace {

std::optional<LogGap> first_gap(const QuorumState& q) {
  LogPoint at = q.visible;
  for (const auto& block : q.tail) {
    const auto before = before_of(block.frame.header);
    if (before != at) return before.lsn > at.lsn ? std::optional(LogGap{at, before}) : std::nullopt;
    if (block.damaged) return LogGap{at, block.end()};
    at = block.end();
  }
  return std::nullopt;
}

bool has_hole(const QuorumState& q) {
  LogPoint at = q.visible;
  return std::any_of(q.tail.begin(), q.tail.end(), [&](const TailBlock& block) {
    const bool follows = before_of(block.frame.header) == at && !block.damaged;
    at = block.end();
    return !follows;
  });
}

// Its epoch begins there, or before; what is known of it from a later block was too late.
void note_epoch(QuorumState& q, const BlockHeader& h) {
  auto starts = q.epochs.starts();
  const auto it = std::lower_bound(starts.begin(), starts.end(), h.epoch,
                                   [](const model::EpochStart& s, model::Epoch e) { return s.epoch < e; });
  if (it == starts.end() || it->epoch != h.epoch)
    starts.insert(it, {h.epoch, h.first});
  else
    it->first = std::min(it->first, h.first);
  q.epochs = EpochTable(std::move(starts));
}

void note_cut(QuorumState& q, const model::CutMark& mark) {
  auto marks = q.cuts.marks();
  const auto it = std::lower_bound(marks.begin(), marks.end(), mark.at.lsn,
                                   [](const model::CutMark& m, Lsn lsn) { return m.at.lsn < lsn; });
  if (it == marks.end() || it->at.lsn != mark.at.lsn)
    marks.insert(it, mark);
  else
    *it = mark;
  q.cuts = model::CutTable(std::move(marks));
}

}  // namespace

std::optional<LogGap> Engine::Impl::gap(const model::PartitionId& partition) const {
  const Log* log = find_log(partition);
  if (log == nullptr || !log->quorum) return std::nullopt;
  const auto& q = *log->quorum;
  return q.hole && !q.empty && !q.closed ? first_gap(q) : std::nullopt;
}

base::Status Engine::Impl::mend(const model::PartitionId& partition, const LogGap& missing,
                                std::vector<model::Block> blocks) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  if (failed) return base::fail(Code::faulted, "the store failed: " + failed->text);
  if (gap(partition) != missing) return base::fail(Code::conflict, "that is not what is missing of the log");
  LogPoint at = missing.after;
  for (const auto& block : blocks) {
    TRY(check_block(*log, block.header, block.payload));
    if (before_of(block.header) != at || block.header.last() > missing.upto.lsn)
      return base::fail(Code::diverged, "a block that is not the missing one");
    at = point_of(block.header);
  }
  if (at != missing.upto) return base::fail(Code::diverged, "the blocks do not end where the missing ones do");
  auto& q = *log->quorum;
  auto place = std::find_if(q.tail.begin(), q.tail.end(),
                            [&](const TailBlock& b) { return b.frame.header.first > missing.after.lsn; });
  CHECK(place != q.tail.end());
  const auto where = place->frame.at;
  if (place->damaged) {
    q.bytes -= place->frame.header.length;
    place = q.tail.erase(place);
  }
  for (auto& block : blocks) {
    const auto& h = block.header;
    note_epoch(q, h);
    if (const auto mark = model::cut_mark(h, block.payload)) note_cut(q, *mark);
    q.commit = std::max(q.commit, h.commit);
    TailBlock mended;
    mended.frame = {where, 0, h};
    mended.payload = std::move(block.payload);
    mended.held = mended.mended = true;
    q.bytes += h.length;
    tail_held += h.length;
    place = std::next(q.tail.insert(place, std::move(mended)));
  }
  mended_blocks += blocks.size();
  q.hole = has_hole(q);
  q.dirty = true;
  base::log(base::Level::notice, "log-mended",
            {{"partition", model::to_string(partition)},
             {"after_lsn", missing.after.lsn.value},
             {"lsn", missing.upto.lsn.value},
             {"blocks", blocks.size()}});
  if (auto in = let_in(*log); !in) {
    fail_damaged(in.error());
    return in;
  }
  maybe_seal();
  return ok();
}

base::Result<std::vector<model::Block>> Engine::Impl::read_gap(const model::PartitionId& partition,
                                                               const LogGap& missing) {
  std::vector<model::Block> blocks;
  LogPoint at = missing.after;
  size_t bytes = 0;
  while (at != missing.upto) {
    TRY_ASSIGN(auto some, read_log(partition, at.lsn.next(), model::kGapBytesMax - bytes));
    if (some.empty()) return base::fail(Code::not_found, "the log here ends before that");
    for (auto& block : some) {
      if (at == missing.upto) break;
      const auto& h = block.header;
      if (before_of(h) != at || h.last() > missing.upto.lsn)
        return base::fail(Code::not_found, "other blocks are in that place here");
      at = point_of(h);
      bytes += block.payload.size();
      if (bytes > model::kGapBytesMax || blocks.size() >= model::kGapBlocksMax)
        return base::fail(Code::too_large, "more is missing than is given at once");
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

base::Result<Engine::Behind> Engine::Impl::read_behind(const model::PartitionId& partition, Lsn after,
                                                       size_t bytes_max) {
  TRY_ASSIGN(const Log* log, quorum_log_of(partition));
  Behind behind;
  behind.end = behind.after = durable_of(*log);
  TRY_ASSIGN(behind.blocks, read_log(partition, after.next(), bytes_max));
  if (!behind.blocks.empty()) behind.after = before_of(behind.blocks.front().header);
  if (behind.after.lsn != after) return base::fail(Code::not_found, "no block of the log here ends there");
  return behind;
}

}  // namespace cantle::store

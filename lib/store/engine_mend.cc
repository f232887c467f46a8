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

// What fills a gap is durable before it is said to be there. As it was, a log that had confirmed a block lacked it
// again when its server died, and another voter's damage met it: two of three then had neither of them (R16).
base::Status Engine::Impl::mend(const model::PartitionId& partition, const LogGap& missing,
                                std::vector<model::Block> blocks, Done done) {
  TRY_ASSIGN(Log * log, quorum_log_of(partition));
  TRY(can_add_local(*log));
  if (gap(partition) != missing) return base::fail(Code::conflict, "that is not what is missing of the log");
  LogPoint at = missing.after;
  uint64_t bytes = 0;
  for (const auto& block : blocks) {
    TRY(check_block(*log, block.header, block.payload));
    if (before_of(block.header) != at || block.header.last() > missing.upto.lsn)
      return base::fail(Code::diverged, "a block that is not the missing one");
    at = point_of(block.header);
    bytes += framed_size(block.payload.size());
  }
  if (at != missing.upto) return base::fail(Code::diverged, "the blocks do not end where the missing ones do");
  if (!journal->has_room(bytes)) return base::fail(Code::unavailable, "no room for another journal segment");
  const auto& owner = live.find(partition)->second;
  const Done told = [this, missing, partition, n = blocks.size(), done = std::move(done)](const base::Status& status) {
    if (status) {
      mended_blocks += n;
      base::log(base::Level::notice, "log-mended",
                {{"partition", model::to_string(partition)},
                 {"after_lsn", missing.after.lsn.value},
                 {"lsn", missing.upto.lsn.value},
                 {"blocks", n}});
    }
    if (done) done(status);
  };
  for (auto& mended : blocks) {
    JournalBlock block;
    block.header = wire::as_mended(mended.header);
    block.payload = std::move(mended.payload);
    block.context = owner;
    if (&mended == &blocks.back()) block.done = told;
    add(std::move(block));
  }
  return ok();
}

// Once it is durable, and when recovery meets it again. It has one place: that of a damaged block that says the same of
// itself, or between two that it joins.
void Engine::Impl::mended_durable(Log& log, const Frame& frame, std::string payload) {
  auto& q = *log.quorum;
  const auto h = wire::of_mended(frame.header);
  auto place = std::lower_bound(q.tail.begin(), q.tail.end(), h.first,
                                [](const TailBlock& b, Lsn first) { return b.frame.header.first < first; });
  if (h.last() <= q.visible.lsn || place == q.tail.end()) return;
  const auto where = place->frame.at;
  if (place->damaged && place->end() == point_of(h)) {
    q.bytes -= place->frame.header.length;
    place = q.tail.erase(place);
  } else {
    const auto before = place == q.tail.begin() ? q.visible : std::prev(place)->end();
    if (before != before_of(h) || h.last() >= place->frame.header.first) return;
  }
  note_epoch(q, h);
  if (const auto mark = model::cut_mark(h, payload)) note_cut(q, *mark);
  q.commit = std::max(q.commit, h.commit);
  TailBlock mended;
  mended.frame = {where, 0, h};
  mended.payload = std::move(payload);
  mended.held = mended.mended = true;
  q.bytes += h.length;
  tail_held += h.length;
  q.tail.insert(place, std::move(mended));
  q.hole = has_hole(q);
  if (auto in = let_in(log); !in) fail_damaged(in.error());
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

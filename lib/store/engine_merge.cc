// Two tenures become one: at the ends of logs that are this server's alone, or at the cuts that every replica of a
// quorum table's partitions has (S45).
#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::BlockKind;
using model::LogPoint;

namespace {

constexpr uint32_t kRetryAfterMs = 10;

// The first place of the journal that either still needs; sequence 0: neither needs one.
JournalPosition first_of(const JournalPosition& a, const JournalPosition& b) {
  if (a.sequence == 0) return b;
  if (b.sequence == 0) return a;
  return std::min(a, b);
}

}  // namespace

// What must hold of both before anything is done to either.
base::Status Engine::Impl::can_merge(const MergeSpec& spec) const {
  const Log* low = find_log(spec.low);
  const Log* high = find_log(spec.high);
  if (low == nullptr || high == nullptr) return base::fail(Code::not_found, "no such partition on this server");
  if (failed) return base::fail(Code::faulted, "the store failed: " + failed->text);
  if (closing) return base::fail(Code::unavailable, "the store is closing");
  if (busy.contains(spec.low) || busy.contains(spec.high) || busy.contains(spec.target.partition)) {
    base::Error e(Code::unavailable, "another change of these partitions is under way");
    e.retry_after_ms = kRetryAfterMs;
    return base::fail(std::move(e));
  }
  const auto& a = low->row.interval;
  const auto& b = high->row.interval;
  if (low->row.table != high->row.table || a.end.empty() || a.end != b.begin)
    return base::fail(Code::invalid, "the partitions are no neighbours");
  if (spec.target.assignment.none() || spec.target.partition.none())
    return base::fail(Code::invalid, "a merge needs a target");
  if (find_log(spec.target.partition) != nullptr)
    return base::fail(Code::exists, "a copy of the target is here already");
  return ok();
}

base::Result<LogPoint> Engine::Impl::merge_ends(const model::PartitionId& low, const model::PartitionId& high,
                                                const model::AttemptId& attempt, const ChildSpec& target, Done done) {
  const MergeSpec spec{low, {}, high, {}, attempt, target};
  if (find_log(low) == nullptr && find_log(high) == nullptr) {
    TRY_ASSIGN(const auto at, merged(spec, false));
    drain(std::move(done));
    return at;
  }
  TRY(can_merge(spec));
  const Log& a = *find_log(low);
  const Log& b = *find_log(high);
  if (a.quorum || b.quorum) return base::fail(Code::invalid, "a quorum table's partitions are merged at their cuts");
  MergeNote note;
  note.attempt = attempt;
  note.low.at = a.end;
  note.high.at = b.end;
  return begin_merge(std::move(note), spec, std::move(done));
}

base::Result<LogPoint> Engine::Impl::merge_at(const MergeSpec& spec, Done done) {
  if (find_log(spec.low) == nullptr && find_log(spec.high) == nullptr) {
    TRY_ASSIGN(const auto at, merged(spec, true));
    drain(std::move(done));
    return at;
  }
  TRY(can_merge(spec));
  Log& low = *find_log(spec.low);
  Log& high = *find_log(spec.high);
  if (!low.quorum || !high.quorum) return base::fail(Code::invalid, "a push table's log has no cut");
  TRY(can_add_local(low));
  TRY(can_add_local(high));
  const auto low_ends = end_at(low, spec.low_cut);  // both begin at once what takes a while
  const auto high_ends = end_at(high, spec.high_cut);
  // That one of them never had its cut goes first: then it does not matter what is damaged.
  for (const auto* ends : {&low_ends, &high_ends})
    if (!*ends && ends->error().code == Code::not_found) return base::fail(ends->error());
  TRY(low_ends);
  TRY(high_ends);
  TRY_ASSIGN(const auto low_log, log_at(low, spec.low_cut));
  TRY_ASSIGN(const auto high_log, log_at(high, spec.high_cut));
  MergeNote note;
  note.attempt = spec.attempt;
  note.low.at = spec.low_cut;
  note.low.log_time_ms = low_log.log_time_ms;
  note.high.at = spec.high_cut;
  note.high.log_time_ms = high_log.log_time_ms;
  return begin_merge(std::move(note), spec, std::move(done));
}

base::Result<LogPoint> Engine::Impl::merged(const MergeSpec& spec, bool cuts) const {
  const auto end_of = [&](const model::PartitionId& partition) -> const TenureRow* {
    for (const auto& [id, row] : others)
      if (id.partition == partition && !row.attempt.none()) return &row;
    return nullptr;
  };
  const auto* low = end_of(spec.low);
  const auto* high = end_of(spec.high);
  if (low == nullptr || high == nullptr) return base::fail(Code::not_found, "no such partitions on this server");
  for (const auto* row : {low, high})
    if (row->attempt != spec.attempt) return base::fail(Code::conflict, "ended by another attempt");
  if (cuts && (low->applied != spec.low_cut || high->applied != spec.high_cut))
    return base::fail(Code::conflict, "merged at other places of their logs");
  return model::merged_point(low->applied, high->applied);
}

base::Result<LogPoint> Engine::Impl::begin_merge(MergeNote note, const MergeSpec& spec, Done done) {
  const Log& low = *find_log(spec.low);
  const Log& high = *find_log(spec.high);
  note.low.partition = low.row.partition;
  note.low.assignment = low.row.assignment;
  note.high.partition = high.row.partition;
  note.high.assignment = high.row.assignment;
  note.target = {spec.target.partition, spec.target.region, spec.target.assignment};
  note.begins = journal->head().sequence;
  const auto region = low.row.region;
  merge_memory(note);  // and the logs of both are no more
  add_local(BlockKind::merge, note.low.partition, region, encode_note(note), std::move(done));
  image_wanted = true;
  return note.start();
}

void Engine::Impl::merge_memory(const MergeNote& note) {
  const auto low = live.at(note.low.partition), high = live.at(note.high.partition);
  for (const auto& log : {low, high}) {
    log->open = false;
    // The index may come as far as it before it has the merge.
    if (log->quorum && log->quorum->dirty) pending.rows[log->row.partition] = quorum_row(*log);
  }
  auto rows = merge_rows(low->row, high->row, note, epoch);
  auto target = std::make_shared<Log>();
  target->row = std::move(rows.target);
  target->end = note.start();  // durable, when the merge is
  target->indexed = false;
  if (target->row.quorum) begin_target_log(*low, *high, *target);
  // What the targets of either need of its log is needed of this one's ancestors.
  const auto low_needed = needed_from.find(low->id()), high_needed = needed_from.find(high->id());
  if (low_needed != needed_from.end() && high_needed != needed_from.end())
    needed_from[target->id()] = std::min(low_needed->second, high_needed->second);
  for (const auto& log : {low, high}) {
    drop_tail(*log);
    live.erase(log->row.partition);
  }
  others[low->id()] = std::move(rows.low);
  others[high->id()] = std::move(rows.high);
  live[target->row.partition] = std::move(target);
  count_quorum_logs();
}

void Engine::Impl::begin_target_log(const Log& low, const Log& high, Log& target) const {
  begin_log(target);
  auto& q = *target.quorum;
  q.learned = true;  // there is nothing older
  q.filled = low.quorum->filled || high.quorum->filled;
  q.empty = low.quorum->empty || high.quorum->empty;
  q.last_block = std::max(low.quorum->last_block, high.quorum->last_block);
  // Until the index has the merge, recovery needs what it needed for the two.
  target.row.quorum->set_from(first_of(low.row.quorum->from(), high.row.quorum->from()));
  target.row.quorum->set_cut(first_of(low.row.quorum->cut(), high.row.quorum->cut()));
}

}  // namespace cantle::store

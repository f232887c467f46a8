// Tenures divided: at the end of a log that is this server's alone, or at the cut that every replica of a quorum
// table's has (S45).
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;
using base::ok;
using model::BlockKind;
using model::LogPoint;
using model::Lsn;

namespace {

constexpr uint32_t kRetryAfterMs = 10;

base::Error later(std::string text) {
  base::Error e(Code::unavailable, std::move(text));
  e.retry_after_ms = kRetryAfterMs;
  return e;
}

base::Status check_inside(const TenureRow& row, std::string_view point) {
  if (!row.interval.contains(point) || point == row.interval.begin || point.empty())
    return base::fail(Code::invalid, "the split point does not lie inside the partition");
  return ok();
}

}  // namespace

base::Result<LogPoint> Engine::Impl::divide(const model::PartitionId& parent, const model::AttemptId& attempt,
                                            std::string_view point, const ChildSpec& low, const ChildSpec& high,
                                            Done done) {
  Log* log = find_log(parent);
  if (log == nullptr) {
    TRY_ASSIGN(const auto at, divided(parent, attempt));
    drain(std::move(done));
    return at;
  }
  if (failed || closing) return base::fail(Code::unavailable, "the store is closing");
  if (log->quorum) return base::fail(Code::invalid, "a quorum table's partition is not divided by one server alone");
  if (busy.contains(parent)) return base::fail(later("another change of this partition is under way"));
  TRY(check_inside(log->row, point));
  DivideNote note;
  note.attempt = attempt;
  note.at = log->end;
  note.point = std::string(point);
  return begin_divide(*log, std::move(note), low, high, std::move(done));
}

base::Result<LogPoint> Engine::Impl::divide_at(const model::PartitionId& parent, const LogPoint& cut,
                                               const model::AttemptId& attempt, std::string_view point,
                                               const ChildSpec& low, const ChildSpec& high, Done done) {
  Log* log = find_log(parent);
  if (log == nullptr) {
    TRY_ASSIGN(const auto at, divided(parent, attempt));
    if (at != cut) return base::fail(Code::conflict, "divided at another place of its log");
    drain(std::move(done));
    return at;
  }
  if (!log->quorum) return base::fail(Code::invalid, "a push table's log has no cut");
  if (busy.contains(parent)) return base::fail(later("another change of this partition is under way"));
  TRY(check_inside(log->row, point));
  for (const auto* child : {&low, &high})
    if (!child->assignment.none() && find_log(child->partition) != nullptr)
      return base::fail(Code::exists, "a copy of a child is here already");
  TRY(can_add_local(*log));
  TRY(end_at(*log, cut));
  DivideNote note;
  note.attempt = attempt;
  note.at = cut;
  note.point = std::string(point);
  TRY_ASSIGN(note.log, log_at(*log, cut));
  return begin_divide(*log, std::move(note), low, high, std::move(done));
}

base::Result<LogPoint> Engine::Impl::divided(const model::PartitionId& parent, const model::AttemptId& attempt) const {
  for (const auto& [id, row] : others) {
    if (id.partition != parent || row.attempt.none()) continue;
    if (row.attempt != attempt) return base::fail(Code::conflict, "divided by another attempt");
    return row.applied;
  }
  return base::fail(Code::not_found, "no such partition on this server");
}

base::Result<LogPoint> Engine::Impl::begin_divide(const Log& log, DivideNote note, const ChildSpec& low,
                                                  const ChildSpec& high, Done done) {
  note.parent = log.row.partition;
  note.assignment = log.row.assignment;
  note.low = {low.partition, low.region, low.assignment};
  note.high = {high.partition, high.region, high.assignment};
  const auto region = log.row.region;
  divide_memory(note);  // and the parent's log is no more
  add_local(BlockKind::divide, note.parent, region, encode_note(note), std::move(done));
  image_wanted = true;
  return note.at;
}

// A quorum table's log before it is divided at the cut: all of it is in the overlay or the index, nothing that is not
// committed stands behind it, and nothing is on its way. It may take some calls until that is so. That there is no such
// block is said only of a log of which nothing is missing: another may have had it, and confirmed it.
base::Status Engine::Impl::end_at(Log& log, const LogPoint& cut) {
  auto& q = *log.quorum;
  TRY_ASSIGN(const auto known, find_point(log, cut.lsn));
  const bool whole = log.row.whole && !q.hole && !q.empty;
  if (known != cut && !whole) return base::fail(Code::corrupt, "the log is damaged, and may have had the cut");
  if (known != cut) return base::fail(Code::not_found, "the log has no such block");
  TRY(commit_log(log.row.partition, cut.lsn));
  if (q.visible.lsn < cut.lsn || q.visible.lsn < q.commit) {
    if (!q.tail.empty() && (q.tail.front().damaged || before_of(q.tail.front().frame.header) != q.visible))
      return base::fail(Code::corrupt, "the log is damaged before the cut");
    return base::fail(later("not all of the log up to the cut is visible yet"));
  }
  if (log.end.lsn > q.visible.lsn) TRY(truncate_log(log.row.partition, LogPoint(q.visible), nullptr));
  const bool quiet = log.durable == log.end && q.cutting.empty() && q.flying.empty() && q.sealing == 0 &&
                     q.cut_off.empty() && q.repeated.empty();
  if (!quiet) return base::fail(later("what stands behind the cut is on its way to the trash"));
  return ok();
}

// Behind the cut leaders' epochs may have begun, and that may be committed; nothing else can be.
base::Result<DivideLog> Engine::Impl::log_at(Log& log, const LogPoint& cut) {
  const auto& q = *log.quorum;
  auto epochs = q.epochs;
  epochs.cut(cut.lsn);
  DivideLog at{epochs.starts(), q.log_time_ms, journal->head().sequence};
  if (q.visible.lsn == cut.lsn) return at;
  Lsn next = cut.lsn.next();
  TRY_ASSIGN(const auto place, place_of(log, next));
  TRY(walk(log, next, place, false, [&](const Frame& f, std::string_view) -> base::Result<bool> {
    const auto& h = f.header;
    if (h.first != next) return base::fail(Code::corrupt, "the log is damaged behind the cut");
    if (h.kind == BlockKind::data || h.kind == BlockKind::uncut)
      return base::fail(Code::faulted, "the log goes on behind the cut, and that is committed");
    at.log_time_ms -= h.elapsed_ms;
    next = h.last().next();
    return next <= q.visible.lsn;
  }));
  if (next <= q.visible.lsn) return base::fail(Code::corrupt, "the log is damaged behind the cut");
  base::log(base::Level::notice, "epochs-behind-cut",
            {{"partition", model::to_string(log.row.partition)},
             {"cut_lsn", cut.lsn.value},
             {"lsns", q.visible.lsn.value - cut.lsn.value}});
  return at;
}

void Engine::Impl::divide_memory(const DivideNote& note) {
  const auto log = live.at(note.parent);
  log->open = false;
  // The index may come as far as it before it has the divide.
  if (log->quorum && log->quorum->dirty) pending.rows[note.parent] = quorum_row(*log);
  auto rows = divide_rows(log->row, note, epoch);
  drop_tail(*log);
  live.erase(note.parent);
  others[{note.parent, note.assignment}] = std::move(rows.parent);
  for (auto* row : {&rows.low, &rows.high}) {
    if (!*row) continue;
    auto child = std::make_shared<Log>();
    child->row = std::move(**row);
    child->end = note.at;
    child->durable = log->durable;
    child->indexed = false;
    if (log->quorum) begin_child_log(*log, *child);
    // The parent's positions carry over: what its targets need of it, they need of the child.
    if (const auto it = needed_from.find({note.parent, note.assignment}); it != needed_from.end())
      needed_from[child->id()] = it->second;
    live[child->row.partition] = std::move(child);
  }
  count_quorum_logs();
}

void Engine::Impl::begin_child_log(const Log& parent, Log& child) const {
  begin_log(child);
  auto& q = *child.quorum;
  q.learned = true;  // there is nothing older
  q.filled = parent.quorum->filled;
  q.empty = parent.quorum->empty;
  q.last_block = parent.quorum->last_block;
  // Until the index has the divide, recovery needs what it needed for the parent.
  child.row.quorum->set_from(parent.row.quorum->from());
  child.row.quorum->set_cut(parent.row.quorum->cut());
}

void Engine::Impl::reshape_applied(const Reshape& reshape) {
  for (const auto& made : made_by(reshape))
    if (Log* log = find_log(made)) log->indexed = true;
}

}  // namespace cantle::store

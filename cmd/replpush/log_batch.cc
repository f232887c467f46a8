#include "cmd/replpush/log_batch.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/model/record.h"
#include "lib/wire/block.h"

namespace cantle::replpush {

namespace mv = proto::mover;
using store::Contains;

namespace {

constexpr size_t kScanBytes = size_t{4} << 20;  // of one read while the last common point is searched
constexpr size_t kOwnReserve = proto::mover::kReadBytes + (size_t{64} << 10);
constexpr int kReadsMax = 64;  // in one batch: blocks may be small, or lie outside the interval

mv::LogRead failed(mv::LogRead out, std::string why) {
  out.end = mv::ReadEnd::failed;
  out.error = std::move(why);
  return out;
}

// The last point of the log that a log which held `lost` held too: blocks of its epoch and of those before it, up to
// its LSN. Where the very block is here with another checksum, nothing of that epoch is believed.
model::LogPoint last_common(store::JournalReader& journal, const model::PartitionId& partition,
                            const model::LogPoint& lost) {
  model::LogPoint best;
  const auto oldest = journal.oldest(partition);
  const auto end = journal.end(partition);
  if (!oldest || !end) return best;
  bool twisted = false;
  model::LogPoint before;  // the best of an earlier epoch
  model::Lsn from = *oldest;
  while (from <= end->lsn) {
    auto part = journal.read(partition, from, kScanBytes);
    if (!part || part->gone || part->next <= from) break;
    for (const auto& b : part->blocks) {
      if (b.header.epoch > lost.epoch || b.header.last() > lost.lsn) return twisted ? before : best;
      if (b.header.epoch != best.epoch) before = best;
      best = point_of(b.header);
      twisted = twisted || (best.lsn == lost.lsn && best.epoch == lost.epoch);
    }
    from = part->next;
  }
  return twisted ? before : best;
}

}  // namespace

base::Result<bool> LogSorter::add(const model::BlockHeader& header, std::string_view payload) {
  if (any_ && bytes() + payload.size() > model::kBlockMax) return false;
  if (own_.capacity() < kOwnReserve) own_.reserve(kOwnReserve);  // grown once, not by doubling
  wire::RecordReader in(payload);
  model::RecordView r;
  size_t at = 0, run = 0;  // `run`: where the present run of own records began
  auto end_run = [&](size_t upto) { own_.append(payload, run, upto - run); };
  model::Version oldest;  // of what this server stamped in its present life
  while (in.next(r)) {
    const size_t next = in.offset();
    const bool inside = interval_.contains(r.key);
    const auto stamper = r.version.server();
    if (inside && stamper == stampers_.self) {
      ++own_count_;
      if (r.version.incarnation() == stampers_.incarnation && (oldest.none() || r.version < oldest)) oldest = r.version;
    } else {
      end_run(at);
      run = next;
      const auto& awaited = stampers_.await;
      if (inside && std::find(awaited.begin(), awaited.end(), stamper) != awaited.end()) {
        await(r.version);
        awaited_bytes_ += next - at;
      } else if (inside) {
        foreign_.push_back({{std::string(r.key), r.version}, std::string(payload.substr(at, next - at))});
        foreign_bytes_ += next - at;
      }
    }
    at = next;
  }
  TRY(in.status());
  end_run(at);
  if (!oldest.none()) note_own(oldest);
  through_ = point_of(header);
  any_ = true;
  return true;
}

void LogSorter::await(const model::Version& version) {
  for (auto& a : awaited_) {
    if (a.oldest.server() != version.server() || a.oldest.incarnation() != version.incarnation()) continue;
    a.oldest = std::min(a.oldest, version);
    a.newest = std::max(a.newest, version);
    ++a.count;
    return;
  }
  awaited_.push_back({version, version, 1});
}

void LogSorter::note_own(const model::Version& block_oldest) {
  if (own_oldest_.none() || block_oldest < own_oldest_) own_oldest_ = block_oldest;
  before_oldest_ = std::exchange(last_oldest_, block_oldest);
}

mv::LogBatch LogSorter::take() {
  mv::LogBatch batch;
  batch.through = through_;
  batch.own = {std::make_shared<const std::string>(std::move(own_)), own_count_};
  batch.foreign = std::move(foreign_);
  batch.awaited = std::move(awaited_);
  batch.own_oldest = own_oldest_;
  batch.last_oldest = last_oldest_;
  batch.before_oldest = before_oldest_;
  batch.gap = gap_;
  return batch;
}

bool add_logs(const store::JournalReader& journal, const model::PartitionId& partition,
              std::map<model::PartitionId, mv::LogState>* logs) {
  const auto end = journal.end(partition);
  if (!end) return false;
  auto& state = (*logs)[partition];
  state = {*end, journal.oldest(partition).value_or(end->lsn.next())};
  const auto* merge = journal.merge_into(partition);
  if (merge == nullptr || merge->start.lsn.value == 0) return true;
  state.begins = merge->start;
  for (const auto* log : {&merge->low, &merge->high}) {
    state.joined.push_back({log->partition, log->assignment});
    (*logs)[log->partition] = {log->at, journal.oldest(log->partition).value_or(log->at.lsn.next())};
  }
  return true;
}

mv::LogRead read_batch(store::JournalReader& journal, const mv::ReadLog& ask, model::ServerNumber self) {
  mv::LogRead out;
  out.stream = ask.stream;
  out.ticket = ask.ticket;
  if (ask.after.lsn.value > 0) {
    const auto contains = journal.contains(ask.partition, ask.after);
    if (!contains) return failed(std::move(out), contains.error().text);
    if (*contains == Contains::gone) return out.end = mv::ReadEnd::retired, out;
    if (*contains == Contains::no) {
      out.end = mv::ReadEnd::not_contained;
      out.restart = last_common(journal, ask.partition, ask.after);
      return out;
    }
  }
  LogSorter sorter(ask.interval, {ask.offer_own ? std::nullopt : std::optional(self), ask.incarnation, ask.await});
  auto end = journal.end(ask.partition);
  if (end && ask.until.value != 0) end->lsn = std::min(end->lsn, ask.until);
  model::Lsn from = ask.after.lsn.next();
  bool gap = false;
  for (int reads = 0; reads < kReadsMax && end && from <= end->lsn && sorter.bytes() < ask.bytes; ++reads) {
    bool full = false;
    auto part = journal.read(ask.partition, from, ask.bytes - sorter.bytes(),
                             [&](const model::BlockHeader& header, std::string_view payload) -> base::Result<bool> {
                               full = ask.until.value != 0 && header.last() > ask.until;
                               if (full) return false;
                               TRY_ASSIGN(const bool added, sorter.add(header, payload));
                               full = !added;
                               return added;
                             });
    if (!part) return failed(std::move(out), part.error().text);
    if (part->gone && sorter.empty()) return out.end = mv::ReadEnd::retired, out;
    if (full || part->gone) return out.batch = sorter.take(), out;
    if (part->gap) sorter.passed_gap({part->next.value - 1});
    gap = gap || part->gap;
    if (part->gap)  // a damaged place: what was there is in the index alone, or in no place here
      base::log(base::Level::warn, "damaged_log",
                {{"partition", to_string(ask.partition)}, {"from", to_string(from)}, {"next", to_string(part->next)}});
    if (part->next <= from) break;
    from = part->next;
  }
  // Damaged to the end: there is nothing to send, and the position goes on all the same.
  const bool all_damaged = gap && end && from > end->lsn && sorter.empty();
  if (sorter.empty() && end && ask.after.lsn < end->lsn && !all_damaged)
    return failed(std::move(out), "LSN " + to_string(from) + " cannot be read");
  out.batch = sorter.take();
  if (!out.batch.through.lsn.value) out.batch.through = all_damaged ? *end : ask.after;
  return out;
}

}  // namespace cantle::replpush

#include "cmd/replpush/log_batch.h"

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
      best = {b.header.epoch, b.header.last(), b.header.header_crc};
      twisted = twisted || (best.lsn == lost.lsn && best.epoch == lost.epoch);
    }
    from = part->next;
  }
  return twisted ? before : best;
}

}  // namespace

base::Result<bool> LogSorter::add(const store::LogBlock& block) {
  if (any_ && own_.size() + foreign_bytes_ + block.payload.size() > model::kBlockMax) return false;
  if (own_.capacity() < kOwnReserve) own_.reserve(kOwnReserve);  // grown once, not by doubling
  wire::RecordReader in(block.payload);
  model::RecordView r;
  size_t at = 0, run = 0;  // `run`: where the present run of own records began
  auto end_run = [&](size_t upto) { own_.append(block.payload, run, upto - run); };
  while (in.next(r)) {
    const size_t next = in.offset();
    const bool inside = interval_.contains(r.key);
    if (inside && r.version.server() == self_) {
      ++own_count_;
    } else {
      end_run(at);
      run = next;
      if (inside) {
        foreign_.push_back({{std::string(r.key), r.version}, block.payload.substr(at, next - at)});
        foreign_bytes_ += next - at;
      }
    }
    at = next;
  }
  TRY(in.status());
  end_run(at);
  through_ = {block.header.epoch, block.header.last(), block.header.header_crc};
  any_ = true;
  return true;
}

mv::LogBatch LogSorter::take() {
  mv::LogBatch batch;
  batch.through = through_;
  batch.own = {std::make_shared<const std::string>(std::move(own_)), own_count_};
  batch.foreign = std::move(foreign_);
  return batch;
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
  LogSorter sorter(ask.interval, ask.offer_own ? std::nullopt : std::optional(self));
  const auto end = journal.end(ask.partition);
  model::Lsn from = ask.after.lsn.next();
  for (int reads = 0; reads < kReadsMax && end && from <= end->lsn && sorter.bytes() < ask.bytes; ++reads) {
    auto part = journal.read(ask.partition, from, ask.bytes - sorter.bytes());
    if (!part) return failed(std::move(out), part.error().text);
    if (part->gone) return out.end = mv::ReadEnd::retired, out;
    for (const auto& block : part->blocks) {
      auto added = sorter.add(block);
      if (!added) return failed(std::move(out), added.error().text);
      if (!*added) return out.batch = sorter.take(), out;
    }
    if (part->gap)  // a damaged place: what was there is compared with the other replicas by the partd
      base::log(base::Level::warn, "damaged_log",
                {{"partition", to_string(ask.partition)}, {"from", to_string(from)}, {"next", to_string(part->next)}});
    if (part->next <= from) break;
    from = part->next;
  }
  if (sorter.empty() && end && ask.after.lsn < end->lsn)
    return failed(std::move(out), "LSN " + to_string(from) + " cannot be read");
  out.batch = sorter.take();
  if (!out.batch.through.lsn.value) out.batch.through = ask.after;
  return out;
}

}  // namespace cantle::replpush

#include "lib/model/series.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace cantle::model {

using base::Code;
using base::fail;

base::Result<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) return fail(Code::invalid, "a number of more than 64 bits");
  if (error != std::errc() || at != end) return fail(Code::invalid, "not a decimal number");
  return value;
}

base::Result<WriteOutcome> outcome_of(const RecordView& r) {
  if ((r.flags & ~kResultBits) != 0) return fail(Code::malformed, "a record with flags that are not known here");
  if ((r.client == 0) != (r.series == 0)) return fail(Code::malformed, "a record with half a series");
  WriteOutcome out;
  out.epoch = quorum_epoch(r.version);
  out.lsn = quorum_lsn(r.version);
  const bool refused = (r.flags & kResultBits) == static_cast<uint8_t>(ResultKind::refused);
  if (refused != (r.op == Op::none) || (refused && (r.client == 0 || !r.value.empty())))
    return fail(Code::malformed, "a record that changes nothing, and does not say what was refused");
  switch (r.flags & kResultBits) {
    case static_cast<uint8_t>(ResultKind::place): return out;
    case static_cast<uint8_t>(ResultKind::refused): out.kind = ResultKind::refused; return out;
    case static_cast<uint8_t>(ResultKind::number): {
      const auto number = parse_number(r.value);
      if (r.op != Op::put || !number) return fail(Code::malformed, "a record whose value should be a number");
      out.kind = ResultKind::number;
      out.value = *number;
      return out;
    }
    case static_cast<uint8_t>(ResultKind::length):
      if (r.op != Op::put) return fail(Code::malformed, "a deletion that should have appended");
      out.kind = ResultKind::length;
      out.value = static_cast<int64_t>(r.value.size());
      return out;
    default: return fail(Code::malformed, "a record with a result of a kind that is not known here");
  }
}

namespace {

auto place_of(std::vector<SeriesEntry>& entries, uint64_t number) {
  return std::lower_bound(entries.begin(), entries.end(), number,
                          [](const SeriesEntry& e, uint64_t n) { return e.number < n; });
}

}  // namespace

void SeriesWindow::add(const SeriesEntry& entry) {
  // Log time does not go back along a log, so what is expired beside any other is never needed again; and a number that
  // is used anew after that must not be taken for one below the old ones' window.
  const uint64_t newest = entries_.empty() ? entry.time_ms : std::max(entry.time_ms, newest_ms_);
  expire(newest);
  if (entry.time_ms + kSeriesExpiryMs <= newest) return;
  if (below_window(entry.number, high())) return;
  const auto at = place_of(entries_, entry.number);
  if (at != entries_.end() && at->number == entry.number) {
    const auto order = [](const SeriesEntry& e) { return std::pair(e.outcome.lsn, e.time_ms); };
    if (order(entry) <= order(*at)) return;
    *at = entry;
    return look_at_times();
  }
  oldest_ms_ = entries_.empty() ? entry.time_ms : std::min(oldest_ms_, entry.time_ms);
  newest_ms_ = newest;
  entries_.insert(at, entry);
  const auto low = std::find_if(entries_.begin(), entries_.end(),
                                [&](const SeriesEntry& e) { return !below_window(e.number, high()); });
  const bool newest_goes =
      std::any_of(entries_.begin(), low, [&](const SeriesEntry& e) { return e.time_ms == newest_ms_; });
  entries_.erase(entries_.begin(), low);
  if (newest_goes) look_at_times();
}

void SeriesWindow::merge(const SeriesWindow& other) {
  for (const auto& entry : other.entries_) add(entry);
}

void SeriesWindow::shift(uint64_t ms) {
  for (auto& e : entries_) e.time_ms += ms;
  look_at_times();
}

void SeriesWindow::expire(uint64_t now_ms) {
  if (entries_.empty() || oldest_ms_ + kSeriesExpiryMs > now_ms) return;
  std::erase_if(entries_, [&](const SeriesEntry& e) { return e.time_ms + kSeriesExpiryMs <= now_ms; });
  look_at_times();
}

void SeriesWindow::look_at_times() {
  newest_ms_ = 0;
  oldest_ms_ = entries_.empty() ? 0 : entries_.front().time_ms;
  for (const auto& e : entries_) {
    newest_ms_ = std::max(newest_ms_, e.time_ms);
    oldest_ms_ = std::min(oldest_ms_, e.time_ms);
  }
}

const SeriesEntry* SeriesWindow::find(uint64_t number) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), number,
                                   [](const SeriesEntry& e, uint64_t n) { return e.number < n; });
  return at != entries_.end() && at->number == number ? &*at : nullptr;
}

}  // namespace cantle::model

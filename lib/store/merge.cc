#include "lib/store/merge.h"

#include <algorithm>

#include "lib/base/testing.h"
#include "lib/model/series.h"
#include "lib/wire/codec.h"

namespace cantle::store {
namespace {

using model::kSeriesExpiryMs;

// What was one part before a split is one again.
std::vector<Part> join_parts(const TenureRow& low, const TenureRow& high) {
  auto parts = low.parts;
  for (const auto& part : high.parts) {
    if (!parts.empty() && parts.back().extent == part.extent && parts.back().interval.end == part.interval.begin)
      parts.back().interval.end = part.interval.end;
    else
      parts.push_back(part);
  }
  return parts;
}

// The rows of a tenure that lies further back are needed as long as either side needs them.
void add_origin(std::vector<SeriesOrigin>& origins, const SeriesOrigin& origin) {
  const auto known = std::find_if(origins.begin(), origins.end(), [&](const SeriesOrigin& o) {
    return o.partition == origin.partition && o.extent == origin.extent;
  });
  if (known == origins.end()) {
    origins.push_back(origin);
    return;
  }
  known->until_ms = std::max(known->until_ms, origin.until_ms);
  known->shift_ms = std::max(known->shift_ms, origin.shift_ms);
}

// A new log, which nobody promised anything about. Its time is that of the log that was ahead; what is of the other is
// as old in it as it was in its own (S27: else a number could be forgotten that is still repeated).
QuorumRow target_log(const TenureRow& low, const TenureRow& high, const MergeNote& note) {
  const auto start = note.start();
  QuorumRow row;
  row.highest = start.epoch;
  row.commit = start.lsn;
  row.epochs = {{start.epoch, start.lsn}};
  row.begins = note.begins;
  row.log_time_ms = std::max(note.low.log_time_ms, note.high.log_time_ms);
  row.lacking = low.quorum->lacking || high.quorum->lacking;
  row.series_whole = true;
  for (const auto& [parent, end] : {std::pair(&low, &note.low), std::pair(&high, &note.high)}) {
    const uint64_t ahead = row.log_time_ms - std::min(row.log_time_ms, end->log_time_ms);
    const auto own = series_key(*parent, 0);
    if (MUTANT("merge_series_of_one") && parent == &high) break;
    add_origin(row.origins, {own.partition, own.extent, row.log_time_ms + kSeriesExpiryMs, ahead});
    for (const auto& o : parent->quorum->origins)
      if (o.until_ms > end->log_time_ms)
        add_origin(row.origins, {o.partition, o.extent, o.until_ms + ahead, o.shift_ms + ahead});
    if (parent->hollow && !parent->quorum->series_whole) {
      row.series_whole = false;
      row.series_from_ms = std::max(row.series_from_ms, parent->quorum->series_from_ms + ahead);
    }
  }
  return row;
}

TenureRow ended_row(const TenureRow& parent, const MergeParent& end, const MergeNote& note) {
  TenureRow row = parent;
  row.applied = end.at;
  row.children = {note.target.partition};
  row.attempt = note.attempt;
  row.state = RowState::ended;
  row.refill.reset();
  row.parts.clear();
  if (row.quorum) {  // nothing of its log is waited for any more
    row.quorum->set_from({});
    row.quorum->set_cut({});
  }
  return row;
}

base::Status give_pieces(WriteTxn& txn, const TenureRow& parent, const TenureRow& target) {
  for (const auto& part : parent.parts) {
    TRY_ASSIGN(auto extent, read_extent(txn, part.extent));
    for (auto& piece : extent.pieces)
      if (part.interval.contains(piece.interval) && piece.partition == parent.partition &&
          piece.assignment == parent.assignment) {
        piece.partition = target.partition;
        piece.assignment = target.assignment;
      }
    join_pieces(extent, {target.partition, target.assignment});
    TRY(write_extent(txn, part.extent, extent));
  }
  return base::ok();
}

}  // namespace

MergedRows merge_rows(const TenureRow& low, const TenureRow& high, const MergeNote& note, model::Epoch now) {
  MergedRows rows{ended_row(low, note.low, note), ended_row(high, note.high, note), {}};
  auto& row = rows.target;
  row.partition = note.target.partition;
  row.assignment = note.target.assignment;
  row.table = low.table;
  row.region = note.target.region;
  row.interval = {low.interval.begin, high.interval.end};
  row.born = now;
  row.log_start = row.applied = note.start();
  row.parts = join_parts(low, high);
  row.hollow = low.hollow || high.hollow;
  row.whole = low.whole && high.whole;
  row.healed = std::min(low.healed, high.healed);
  row.fill_all = low.fill_all && high.fill_all;
  if (low.quorum && high.quorum) row.quorum = target_log(low, high, note);
  return rows;
}

base::Status merge_index(WriteTxn& txn, const MergeNote& note, model::Epoch now, std::set<model::ExtentId>& touched) {
  TRY_ASSIGN(const auto low, read_tenure(txn, {note.low.partition, note.low.assignment}));
  TRY_ASSIGN(const auto high, read_tenure(txn, {note.high.partition, note.high.assignment}));
  const auto live = [](const auto& row) { return row && row->state == RowState::live; };
  if (!live(low) || !live(high)) return base::ok();  // done before
  const auto rows = merge_rows(*low, *high, note, now);
  for (const auto* parent : {&*low, &*high}) {
    for (const auto& part : parent->parts) touched.insert(part.extent);
    if (parent->refill) {
      TRY(free_extent(txn, parent->refill->extent));
      touched.insert(parent->refill->extent);
    }
    TRY(give_pieces(txn, *parent, rows.target));
  }
  TRY(write_tenure(txn, rows.target));
  TRY(write_tenure(txn, rows.low));
  return write_tenure(txn, rows.high);
}

std::string encode_note(const MergeNote& note) { return wire::encode(note); }
base::Result<MergeNote> decode_merge_note(std::string_view payload) { return wire::decode<MergeNote>(payload); }

}  // namespace cantle::store

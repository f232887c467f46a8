#include "lib/store/divide.h"

#include "lib/model/series.h"
#include "lib/wire/codec.h"

namespace cantle::store {
namespace {

using model::Interval;

std::vector<Part> clip(const std::vector<Part>& parts, const Interval& interval) {
  std::vector<Part> out;
  for (const auto& part : parts) {
    Part p{part.extent, part.interval.intersect(interval)};
    if (!p.interval.empty()) out.push_back(std::move(p));
  }
  return out;
}

// A child's log is a new one, which nobody promised anything about: it begins behind the cut, with the parent's epochs
// up to there, and its log time goes on. The parent's series stay where they are.
QuorumRow child_log(const TenureRow& parent, const DivideNote& note) {
  QuorumRow row;
  row.highest = note.at.epoch;
  row.commit = note.at.lsn;
  row.epochs = note.log->epochs;
  row.begins = note.log->begins;
  row.log_time_ms = note.log->log_time_ms;
  row.series_whole = parent.quorum->series_whole;
  row.series_from_ms = parent.quorum->series_from_ms;
  row.lacking = parent.quorum->lacking;
  const auto own = series_key(parent, 0);
  row.origins.push_back({own.partition, own.extent, row.log_time_ms + model::kSeriesExpiryMs});
  for (const auto& origin : parent.quorum->origins)
    if (origin.until_ms > row.log_time_ms) row.origins.push_back(origin);
  return row;
}

TenureRow child_row(const TenureRow& parent, const DivideNote& note, const DivideChild& child, const Interval& interval,
                    model::Epoch now) {
  TenureRow row;
  row.partition = child.partition;
  row.assignment = child.assignment;
  row.table = parent.table;
  row.region = child.region;
  row.interval = interval;
  row.born = now;
  row.log_start = row.applied = note.at;
  row.parts = clip(parent.parts, interval);
  row.hollow = parent.hollow;
  row.whole = parent.whole;
  row.healed = parent.healed;
  // A parent that was still being filled leaves children that are: they are filled anew, what is there stays.
  row.fill_all = parent.fill_all;
  if (parent.quorum && note.log) row.quorum = child_log(parent, note);
  return row;
}

base::Status give_pieces(WriteTxn& txn, const TenureRow& parent, const TenureRow& row) {
  for (const auto& part : row.parts) {
    TRY_ASSIGN(auto extent, read_extent(txn, part.extent));
    cut_piece(extent, part.interval.begin);
    if (!part.interval.end.empty()) cut_piece(extent, part.interval.end);
    for (auto& piece : extent.pieces)
      if (part.interval.contains(piece.interval) && piece.partition == parent.partition &&
          piece.assignment == parent.assignment) {
        piece.partition = row.partition;
        piece.assignment = row.assignment;
      }
    TRY(write_extent(txn, part.extent, extent));
  }
  return base::ok();
}

}  // namespace

DividedRows divide_rows(const TenureRow& parent, const DivideNote& note, model::Epoch now) {
  const Interval low{parent.interval.begin, note.point}, high{note.point, parent.interval.end};
  DividedRows rows;
  rows.parent = parent;
  rows.parent.applied = note.at;
  rows.parent.children = {note.low.partition, note.high.partition};
  rows.parent.attempt = note.attempt;
  rows.parent.state = RowState::aside;
  rows.parent.refill.reset();
  if (rows.parent.quorum) {  // nothing of its log is waited for any more
    rows.parent.quorum->set_from({});
    rows.parent.quorum->set_cut({});
  }
  if (!note.low.assignment.none()) rows.low = child_row(parent, note, note.low, low, now);
  if (!note.high.assignment.none()) rows.high = child_row(parent, note, note.high, high, now);
  if (rows.low && rows.high) {
    rows.parent.state = RowState::ended;
    rows.parent.parts.clear();
  } else if (rows.low || rows.high) {
    rows.parent.interval = rows.low ? high : low;
    rows.parent.parts = clip(parent.parts, rows.parent.interval);
  }
  return rows;
}

base::Status divide_index(WriteTxn& txn, const DivideNote& note, model::Epoch now, std::set<model::ExtentId>& touched) {
  TRY_ASSIGN(const auto parent, read_tenure(txn, {note.parent, note.assignment}));
  if (!parent || parent->state != RowState::live) return base::ok();  // done before, and perhaps dropped since
  const auto rows = divide_rows(*parent, note, now);
  for (const auto& part : parent->parts) touched.insert(part.extent);
  if (parent->refill) {
    TRY(free_extent(txn, parent->refill->extent));
    touched.insert(parent->refill->extent);
  }
  for (const auto* child : {&rows.low, &rows.high}) {
    if (!*child) continue;
    TRY(give_pieces(txn, *parent, **child));
    TRY(write_tenure(txn, **child));
  }
  return write_tenure(txn, rows.parent);
}

std::string encode_note(const DivideNote& note) { return wire::encode(note); }
base::Result<DivideNote> decode_note(std::string_view payload) { return wire::decode<DivideNote>(payload); }
std::string encode_image(const RootImage& image) { return wire::encode(image); }
base::Result<RootImage> decode_image(std::string_view payload) { return wire::decode<RootImage>(payload); }

}  // namespace cantle::store

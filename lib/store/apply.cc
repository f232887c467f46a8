#include "lib/store/apply.h"

#include "lib/base/testing.h"
#include "lib/store/content.h"

namespace cantle::store {

using base::ok;

std::vector<model::PartitionId> made_by(const Reshape& reshape) {
  if (const auto* divide = std::get_if<DivideNote>(&reshape)) return {divide->low.partition, divide->high.partition};
  return {std::get<MergeNote>(reshape).target.partition};
}

std::vector<TenureId> ended_by(const Reshape& reshape) {
  if (const auto* divide = std::get_if<DivideNote>(&reshape)) return {{divide->parent, divide->assignment}};
  const auto& merge = std::get<MergeNote>(reshape);
  return {{merge.low.partition, merge.low.assignment}, {merge.high.partition, merge.high.assignment}};
}

bool is_of(const AppliedPoint& point, const TenureRow& row) {
  return !row.quorum || row.quorum->begins == point.begins;
}

struct ApplyJob::Slice {
  Place place;
  uint64_t bytes = 0;
  uint32_t records = 0, windows = 0;
  bool full = false;
  std::map<model::ExtentId, ExtentRow> changed;
};

ApplyJob::ApplyJob(std::shared_ptr<Index> index, std::shared_ptr<Half> half, Pending pending, Identity identity,
                   model::Version highest, ApplyLimits limits)
    : index_(std::move(index)),
      half_(std::move(half)),
      pending_(std::move(pending)),
      identity_(std::move(identity)),
      highest_(highest),
      limits_(limits),
      extents_(half_->extents()) {}

base::Result<bool> ApplyJob::step() {
  Slice slice;
  slice.place = place_;
  TRY_ASSIGN(auto txn, index_->begin());
  while (slice.place.extent < extents_.size() && !slice.full) TRY(apply_extent(*txn, slice));
  if (!slice.full) TRY(apply_series(*txn, slice));
  const bool last = !slice.full;
  std::set<model::ExtentId> touched;
  if (last) TRY(finish(*txn, touched));
  CRASH_POINT("apply.before_commit");
  TRY(txn->commit());
  CRASH_POINT("apply.after_commit");
  place_ = std::move(slice.place);
  records_ += slice.records;
  for (auto& [extent, row] : slice.changed) changed_[extent] = std::move(row);
  txn.reset();
  if (!touched.empty()) {
    auto reader = index_->reader();
    TRY(reader->renew());
    for (const auto extent : touched) {
      TRY_ASSIGN(changed_[extent], read_extent(*reader, extent));
    }
  }
  return last;
}

base::Status ApplyJob::apply_extent(WriteTxn& txn, Slice& slice) {
  const auto extent = extents_[slice.place.extent];
  TRY_ASSIGN(auto row, read_extent(txn, extent));
  RecordKey keys(extent);
  Half::Walk walk(*half_, extent);
  const Entry* entry = walk.seek(slice.place.key.empty() ? std::string() : slice.place.key + '\0');
  Piece* piece = nullptr;
  std::string buffer;
  for (; entry != nullptr; entry = walk.next()) {
    slice.full = slice.records >= limits_.records || slice.bytes >= limits_.bytes;
    if (slice.full) break;
    if (piece == nullptr || !piece->interval.contains(entry->key())) piece = row.find(entry->key());
    slice.records++;
    slice.bytes += entry->key().size() + entry->value_size;
    slice.place.key = entry->key();
    if (piece == nullptr || piece->freeing()) continue;  // its owner is gone
    TRY_ASSIGN(const auto value, entry->value(buffer));
    const auto op = entry->deleted ? model::Op::del : model::Op::put;
    auto put = put_record(txn, keys, {op, entry->key(), value, entry->version, 0, 0, entry->flags}, piece->counts);
    if (!put) return base::fail(std::move(put).error());
  }
  TRY(write_extent(txn, extent, row));
  slice.changed[extent] = std::move(row);
  if (!slice.full) slice.place = {slice.place.extent + 1, "", {}};
  return ok();
}

base::Status ApplyJob::apply_series(WriteTxn& txn, Slice& slice) {
  const auto& rows = pending_.series.rows();
  auto it = slice.place.series ? rows.upper_bound(*slice.place.series) : rows.begin();
  for (; it != rows.end(); ++it) {
    slice.full = slice.records + slice.windows >= limits_.records || slice.bytes >= limits_.bytes;
    if (slice.full) break;
    TRY_ASSIGN(auto window, read_series(txn, it->first));
    window.merge(it->second);
    TRY(write_series(txn, it->first, window));
    slice.windows++;
    slice.bytes += window.entries().size() * sizeof(model::SeriesEntry);
    slice.place.series = it->first;
  }
  return ok();
}

base::Status ApplyJob::finish(WriteTxn& txn, std::set<model::ExtentId>& touched) {
  const model::Epoch now{identity_.incarnation.value};
  for (const auto& reshape : pending_.reshapes) {
    if (const auto* divide = std::get_if<DivideNote>(&reshape)) TRY(divide_index(txn, *divide, now, touched));
    if (const auto* merge = std::get_if<MergeNote>(&reshape)) TRY(merge_index(txn, *merge, now, touched));
  }
  for (const auto& [partition, point] : pending_.points) {
    TRY_ASSIGN(auto row, read_live(txn, partition));
    if (!row || !is_of(point, *row)) continue;  // divided, merged or set aside since, and perhaps created anew
    if (row->applied.lsn >= point.at.lsn) continue;
    row->applied = point.at;
    TRY(write_tenure(txn, *row));
  }
  for (const auto& [partition, quorum] : pending_.rows) {
    TRY_ASSIGN(auto row, read_live(txn, partition));
    if (!row || !row->quorum || row->quorum->begins != quorum.begins) continue;
    row->quorum = quorum;
    TRY(write_tenure(txn, *row));
  }
  TRY_ASSIGN(auto meta, read_meta(txn));
  MetaRow next = meta ? *meta : MetaRow{};
  next.server = identity_.server.name;
  next.cluster = identity_.cluster;
  next.incarnation = identity_.incarnation;
  if (pending_.upto > next.applied) next.applied = pending_.upto;
  if (highest_ > next.highest) next.highest = highest_;
  return write_meta(txn, next);
}

}  // namespace cantle::store

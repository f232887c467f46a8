#include "lib/store/direct_reader.h"

#include <algorithm>
#include <map>

#include "lib/base/check.h"
#include "lib/store/content.h"
#include "lib/store/lmdb_index.h"
#include "lib/store/position.h"
#include "lib/store/rows.h"
#include "lib/store/scan.h"
#include "lib/wire/block.h"

namespace cantle::store {

using base::Code;
using base::ok;

struct DirectReader::Impl {
  struct Cached {
    std::string bytes;  // the row as it was
    TenureRow row;
    uint64_t checked = 0;  // at this refresh it still was so
  };

  std::string dir;   // empty: the index is the caller's
  std::string file;  // lmdb_identity
  std::unique_ptr<Index> owned;
  Index* index = nullptr;
  std::unique_ptr<Reader> reader;
  bool complete = false;  // it was seen that this index is not being rebuilt: that does not come back
  uint64_t refreshes = 0;
  std::map<TenureId, Cached> rows;
  const Cached* last = nullptr;
  std::string buffer;

  base::Status open_index() {
    reader.reset();
    rows.clear();
    last = nullptr;
    owned.reset();
    file = lmdb_identity(dir);
    TRY_ASSIGN(owned, open_lmdb(dir, {.write = false}));
    index = owned.get();
    reader = index->reader();
    complete = false;
    return ok();
  }

  // An index that is being rebuilt lacks records, and nothing else tells.
  base::Status check_complete() {
    if (complete) return ok();
    TRY_ASSIGN(const auto meta, read_meta(*reader));
    if (meta && meta->rebuilding) return base::fail(Code::unavailable, "the index is being rebuilt");
    complete = meta.has_value();
    return ok();
  }

  // The tenure's row as of the snapshot; null: none, or in the trash. Decoded again only where it changed.
  base::Result<const TenureRow*> row_of(const TenureId& id) {
    if (last != nullptr && last->checked == refreshes && last->row.partition == id.partition &&
        last->row.assignment == id.assignment)
      return &last->row;
    TRY_ASSIGN(const auto bytes, reader->get(Db::partitions, tenure_key(id)));
    if (!bytes) {
      rows.erase(id);
      last = nullptr;
      return nullptr;
    }
    auto& cached = rows[id];
    if (cached.bytes != *bytes) {
      TRY_ASSIGN(cached.row, decode_tenure_row(*bytes));
      cached.bytes = std::string(*bytes);
    }
    cached.checked = refreshes;
    last = &cached;
    const bool held = cached.row.state == RowState::live || cached.row.state == RowState::aside;
    return held ? &cached.row : nullptr;
  }

  base::Status load() {
    TRY_ASSIGN(auto all, read_tenures(*reader));
    rows.clear();
    last = nullptr;
    for (auto& row : all) {
      const TenureId id{row.partition, row.assignment};
      auto& cached = rows[id];
      cached.bytes = encode_row(row);
      cached.row = std::move(row);
      cached.checked = refreshes;
    }
    return ok();
  }

  const TenureRow* covering(const model::TableUuid& table, std::string_view key) const {
    const auto covers = [&](const Cached& c) {
      return c.row.state == RowState::live && c.row.table == table && c.row.interval.contains(key);
    };
    if (last != nullptr && covers(*last)) return &last->row;
    for (const auto& [id, cached] : rows)
      if (covers(cached)) return &cached.row;
    return nullptr;
  }
};

base::Result<std::unique_ptr<DirectReader>> DirectReader::open(const std::string& data_dir,
                                                               const std::string& index_dir) {
  auto impl = std::make_unique<Impl>();
  impl->dir = index_dir.empty() ? data_dir + "/" + std::string(kIndexDir) : index_dir;
  TRY(impl->open_index());
  auto reader = std::unique_ptr<DirectReader>(new DirectReader(*impl->index));
  reader->impl_ = std::move(impl);
  TRY(reader->refresh());
  return reader;
}

DirectReader::DirectReader(Index& index) : impl_(std::make_unique<Impl>()) {
  impl_->index = &index;
  impl_->reader = index.reader();
}
DirectReader::~DirectReader() = default;

base::Status DirectReader::refresh() {
  if (!impl_->dir.empty() && (impl_->owned == nullptr || lmdb_identity(impl_->dir) != impl_->file))
    TRY(impl_->open_index());
  impl_->refreshes++;
  TRY(impl_->reader->renew());
  return impl_->check_complete();
}

void DirectReader::release() { impl_->reader->reset(); }

base::Result<std::vector<Tenure>> DirectReader::tenures() {
  TRY(impl_->load());
  std::vector<Tenure> out;
  for (const auto& [id, cached] : impl_->rows)
    if (cached.row.state == RowState::live || cached.row.state == RowState::aside) out.push_back(tenure_of(cached.row));
  return out;
}

base::Result<std::optional<Tenure>> DirectReader::find(const TenureId& id) {
  TRY_ASSIGN(const auto* row, impl_->row_of(id));
  if (row == nullptr) return std::nullopt;
  return tenure_of(*row);
}

base::Result<std::optional<Tenure>> DirectReader::find(const model::TableUuid& table, std::string_view key) {
  // A cached row may be of before; it is looked at again, and if it does not hold any more, all are.
  for (int round = 0; round < 2; round++) {
    const TenureRow* guess = impl_->covering(table, key);
    if (guess != nullptr) {
      TRY_ASSIGN(const auto* row, impl_->row_of({guess->partition, guess->assignment}));
      if (row != nullptr && row->state == RowState::live && row->interval.contains(key)) return tenure_of(*row);
    }
    if (round == 0) TRY(impl_->load());
  }
  return std::nullopt;
}

base::Result<std::optional<Found>> DirectReader::get(const TenureId& id, std::string_view key) {
  TRY_ASSIGN(const auto* row, impl_->row_of(id));
  if (row == nullptr) return base::fail(Code::not_found, "no such copy in this directory");
  if (key.size() > model::kKeyMax) return base::fail(Code::invalid, "key too long");
  for (const auto& part : row->parts) {
    if (!part.interval.contains(key)) continue;
    RecordKey keys(part.extent);
    return read_record(*impl_->reader, keys, key, impl_->buffer);
  }
  return base::fail(Code::invalid, "the key does not lie in the partition");
}

base::Result<ScanEnd> DirectReader::scan(const TenureId& id, const ScanRange& range, const Each& each) {
  TRY_ASSIGN(const auto* row, impl_->row_of(id));
  if (row == nullptr) return base::fail(Code::not_found, "no such copy in this directory");
  TRY_ASSIGN(auto end, merge(*impl_->reader, plan_scan(row->parts, range), each));
  end.at = row->applied.lsn;
  return end;
}

base::Result<std::vector<std::string>> DirectReader::sample(const TenureId& id, uint32_t n) {
  TRY_ASSIGN(const auto* row, impl_->row_of(id));
  if (row == nullptr) return base::fail(Code::not_found, "no such copy in this directory");
  return sample_parts(*impl_->reader, row->parts, n);
}

// --- snapshots ----------------------------------------------------------------------------------

SnapshotReader::SnapshotReader(DirectReader& reader, TenureId id, model::Interval interval, std::string after)
    : reader_(reader), id_(id), interval_(std::move(interval)), after_(std::move(after)) {}

base::Result<SnapshotChunk> SnapshotReader::next(size_t bytes_max) {
  SnapshotChunk chunk;
  chunk.through_key = after_;
  if (done_) {
    chunk.last = true;
    return chunk;
  }
  TRY(reader_.refresh());
  TRY_ASSIGN(const auto tenure, reader_.find(id_));
  if (!tenure) return base::fail(Code::not_found, "no such copy in this directory");
  if (!start_) start_ = tenure->applied;
  ScanRange range;
  range.from = after_.empty() ? interval_.begin : std::max(interval_.begin, after_ + '\0');
  range.to = interval_.end;
  range.tombstones = true;
  range.records_max = UINT32_MAX;
  range.bytes_max = std::min(bytes_max, model::kBlockMax / 2);  // encoded, it stays below a block's limit
  auto end = reader_.scan(id_, range, [&](std::string_view key, const Found& f) {
    wire::append_record(chunk.records,
                        {f.deleted ? model::Op::del : model::Op::put, key, f.value, f.version, 0, 0, f.flags});
    chunk.count++;
    chunk.through_key = key;
    return chunk.records.size() < range.bytes_max;
  });
  reader_.release();
  if (!end) return base::fail(std::move(end).error());
  after_ = chunk.through_key;
  done_ = chunk.last = !end->more;
  return chunk;
}

}  // namespace cantle::store

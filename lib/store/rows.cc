#include "lib/store/rows.h"

#include <algorithm>

#include "lib/wire/codec.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;

constexpr std::string_view kMetaKey = "state";

template <class T>
std::string sealed(const T& row) {
  const auto body = wire::encode(row);
  std::string out;
  out.reserve(body.size() + 4);
  base::put_u32_be(out, base::crc32c(body));
  return out += body;
}

template <class T>
base::Result<T> opened(std::string_view bytes, std::string_view what) {
  if (bytes.size() < 4 || base::get_u32_be(bytes.data()) != base::crc32c(bytes.substr(4)))
    return fail(Code::corrupt, "index: " + std::string(what) + " row: wrong checksum");
  auto row = wire::decode<T>(bytes.substr(4));
  if (!row) return fail(Code::corrupt, "index: " + std::string(what) + " row: " + row.error().text);
  return row;
}

// A position is three numbers in the map.
struct MetaFields {
  MetaRow row;
  template <class V>
  void each_field(V&& v) {
    visit(*this, v);
  }
  template <class V>
  void each_field(V&& v) const {
    visit(*this, v);
  }
  template <class Self, class V>
  static void visit(Self& self, V&& v) {
    auto& r = self.row;
    v("server", r.server);
    v("cluster", r.cluster);
    v("incarnation", r.incarnation);
    v("applied_segment", r.applied.segment);
    v("applied_offset", r.applied.offset);
    v("applied_sequence", r.applied.sequence);
    v("next_extent", r.next_extent);
    v("highest", r.highest);
    v("rebuilding", r.rebuilding);
  }
};

// A window, column by column: the names stand there once.
struct SeriesFields {
  std::vector<uint64_t> number, epoch, lsn, time_ms;
  std::vector<uint32_t> kind;
  std::vector<int64_t> value;
  CANTLE_FIELDS(number, epoch, lsn, kind, value, time_ms)
};
constexpr uint32_t kResultKindLast = static_cast<uint32_t>(model::ResultKind::refused);

}  // namespace

Tenure tenure_of(const TenureRow& row) {
  Tenure t;
  t.id = {row.partition, row.assignment};
  t.table = row.table;
  t.region = row.region;
  t.state = row.state == RowState::live    ? TenureState::live
            : row.state == RowState::aside ? TenureState::aside
                                           : TenureState::trash;
  t.mode = row.quorum ? LogMode::quorum : LogMode::push;
  t.interval = row.interval;
  t.born = row.born;
  t.log_start = row.log_start;
  t.applied = row.applied;
  t.children = row.children;
  t.fill = {row.fill_snapshot, row.fill_to, row.fill_all};
  t.hollow = row.hollow;
  t.whole = row.whole;
  return t;
}

Piece* ExtentRow::find(std::string_view key) {
  auto it = std::upper_bound(pieces.begin(), pieces.end(), key,
                             [](std::string_view k, const Piece& p) { return k < p.interval.begin; });
  if (it == pieces.begin()) return nullptr;
  --it;
  return it->interval.contains(key) ? &*it : nullptr;
}

std::string encode_row(const TenureRow& row) { return sealed(row); }
std::string encode_row(const ExtentRow& row) { return sealed(row); }
std::string encode_row(const MetaRow& row) { return sealed(MetaFields{row}); }
base::Result<TenureRow> decode_tenure_row(std::string_view bytes) { return opened<TenureRow>(bytes, "partition"); }
base::Result<ExtentRow> decode_extent_row(std::string_view bytes) { return opened<ExtentRow>(bytes, "extent"); }
base::Result<MetaRow> decode_meta_row(std::string_view bytes) {
  TRY_ASSIGN(auto fields, opened<MetaFields>(bytes, "state"));
  return std::move(fields.row);
}

SeriesKey series_key(const TenureRow& row, uint64_t client) {
  return {row.partition, row.parts.empty() ? model::ExtentId{} : row.parts.front().extent, client};
}

std::string encode_key(const SeriesKey& key) {
  std::string out(key.partition.view());
  base::put_u32_be(out, key.extent.value);
  base::put_u64_be(out, key.client);
  return out;
}

base::Result<SeriesKey> decode_series_key(std::string_view bytes) {
  SeriesKey key;
  constexpr size_t kId = 16;
  if (bytes.size() != kId + 4 + 8) return fail(Code::corrupt, "index: series row under a key of another length");
  std::copy_n(bytes.begin(), kId, key.partition.bytes.begin());
  key.extent = {base::get_u32_be(bytes.data() + kId)};
  key.client = base::get_u64_be(bytes.data() + kId + 4);
  return key;
}

std::string encode_row(const model::SeriesWindow& row) {
  SeriesFields f;
  for (const auto& e : row.entries()) {
    f.number.push_back(e.number);
    f.epoch.push_back(e.outcome.epoch.value);
    f.lsn.push_back(e.outcome.lsn.value);
    f.kind.push_back(static_cast<uint32_t>(e.outcome.kind));
    f.value.push_back(e.outcome.value);
    f.time_ms.push_back(e.time_ms);
  }
  return sealed(f);
}

base::Result<model::SeriesWindow> decode_series_row(std::string_view bytes) {
  TRY_ASSIGN(const auto f, opened<SeriesFields>(bytes, "series"));
  const size_t n = f.number.size();
  if (f.epoch.size() != n || f.lsn.size() != n || f.kind.size() != n || f.value.size() != n || f.time_ms.size() != n)
    return fail(Code::corrupt, "index: series row: columns of different lengths");
  model::SeriesWindow row;
  for (size_t i = 0; i < n; i++) {
    if (f.kind[i] > kResultKindLast) return fail(Code::corrupt, "index: series row: unknown kind of result");
    row.add(
        {f.number[i], {{f.epoch[i]}, {f.lsn[i]}, static_cast<model::ResultKind>(f.kind[i]), f.value[i]}, f.time_ms[i]});
  }
  return row;
}

base::Result<model::SeriesWindow> read_series(Source& source, const SeriesKey& key) {
  TRY_ASSIGN(const auto bytes, source.get(Db::series, encode_key(key)));
  if (!bytes) return model::SeriesWindow{};
  return decode_series_row(*bytes);
}

base::Result<model::SeriesWindow> read_series(Source& source, const SeriesOrigin& origin, uint64_t client) {
  TRY_ASSIGN(auto window, read_series(source, {origin.partition, origin.extent, client}));
  if (origin.shift_ms != 0) window.shift(origin.shift_ms);
  return window;
}

base::Status write_series(WriteTxn& txn, const SeriesKey& key, const model::SeriesWindow& row) {
  return txn.put(Db::series, encode_key(key), encode_row(row));
}

std::string tenure_key(const TenureId& id) {
  std::string key(id.partition.view());
  return key += id.assignment.view();
}

std::string extent_key(model::ExtentId extent) {
  std::string key;
  base::put_u32_be(key, extent.value);
  return key;
}

base::Result<std::vector<TenureRow>> read_tenures(Source& source) {
  std::vector<TenureRow> rows;
  TRY_ASSIGN(auto cursor, source.cursor(Db::partitions));
  TRY_ASSIGN(auto at, cursor->seek(""));
  while (at) {
    TRY_ASSIGN(auto row, decode_tenure_row(at->value));
    if (at->key != tenure_key({row.partition, row.assignment}))
      return fail(Code::corrupt, "index: partition row under another key");
    rows.push_back(std::move(row));
    TRY_ASSIGN(at, cursor->next());
  }
  return rows;
}

base::Result<std::optional<TenureRow>> read_tenure(Source& source, const TenureId& id) {
  TRY_ASSIGN(const auto bytes, source.get(Db::partitions, tenure_key(id)));
  if (!bytes) return std::nullopt;
  TRY_ASSIGN(auto row, decode_tenure_row(*bytes));
  return row;
}

base::Result<std::optional<TenureRow>> read_live(Source& source, const model::PartitionId& partition) {
  TRY_ASSIGN(auto cursor, source.cursor(Db::partitions));
  TRY_ASSIGN(auto at, cursor->seek(partition.view()));
  while (at && at->key.substr(0, 16) == partition.view()) {
    TRY_ASSIGN(auto row, decode_tenure_row(at->value));
    if (row.state == RowState::live) return row;
    TRY_ASSIGN(at, cursor->next());
  }
  return std::nullopt;
}

base::Status write_tenure(WriteTxn& txn, const TenureRow& row) {
  return txn.put(Db::partitions, tenure_key({row.partition, row.assignment}), encode_row(row));
}

base::Result<ExtentRow> read_extent(Source& source, model::ExtentId extent) {
  TRY_ASSIGN(const auto bytes, source.get(Db::extents, extent_key(extent)));
  if (!bytes) return ExtentRow{};
  return decode_extent_row(*bytes);
}

base::Status write_extent(WriteTxn& txn, model::ExtentId extent, const ExtentRow& row) {
  if (row.pieces.empty()) return txn.del(Db::extents, extent_key(extent));
  return txn.put(Db::extents, extent_key(extent), encode_row(row));
}

base::Status leave_parts(WriteTxn& txn, const TenureRow& row, std::map<model::ExtentId, ExtentRow>& changed) {
  for (const auto& part : row.parts) {
    TRY_ASSIGN(auto extent, read_extent(txn, part.extent));
    for (auto& piece : extent.pieces)
      if (part.interval.contains(piece.interval) && piece.partition == row.partition &&
          piece.assignment == row.assignment) {
        piece.partition = {};
        piece.assignment = {};
      }
    TRY(write_extent(txn, part.extent, extent));
    changed[part.extent] = std::move(extent);
  }
  return base::ok();
}

base::Result<std::vector<std::pair<model::ExtentId, ExtentRow>>> read_extents(Source& source) {
  std::vector<std::pair<model::ExtentId, ExtentRow>> rows;
  TRY_ASSIGN(auto cursor, source.cursor(Db::extents));
  TRY_ASSIGN(auto at, cursor->seek(""));
  while (at) {
    if (at->key.size() != 4) return fail(Code::corrupt, "index: extent row under a key of another length");
    TRY_ASSIGN(auto row, decode_extent_row(at->value));
    rows.emplace_back(model::ExtentId{base::get_u32_be(at->key.data())}, std::move(row));
    TRY_ASSIGN(at, cursor->next());
  }
  return rows;
}

base::Result<std::optional<MetaRow>> read_meta(Source& source) {
  TRY_ASSIGN(const auto bytes, source.get(Db::meta, kMetaKey));
  if (!bytes) return std::nullopt;
  TRY_ASSIGN(auto row, decode_meta_row(*bytes));
  return row;
}

base::Status write_meta(WriteTxn& txn, const MetaRow& row) { return txn.put(Db::meta, kMetaKey, encode_row(row)); }

base::Status free_extent(WriteTxn& txn, model::ExtentId extent) {
  TRY_ASSIGN(auto row, read_extent(txn, extent));
  for (auto& piece : row.pieces) {
    piece.partition = {};
    piece.assignment = {};
  }
  return write_extent(txn, extent, row);
}

void cut_piece(ExtentRow& row, std::string_view point) {
  for (auto it = row.pieces.begin(); it != row.pieces.end(); ++it) {
    if (!it->interval.contains(point) || it->interval.begin == point) continue;
    Piece high = *it;
    high.interval.begin = std::string(point);
    it->interval.end = std::string(point);
    it->counts = high.counts = Counts{};
    it->counts.all = high.counts.all = false;
    row.pieces.insert(std::next(it), std::move(high));
    return;
  }
}

void join_pieces(ExtentRow& row, const TenureId& owner) {
  const auto owns = [&](const Piece& p) { return p.partition == owner.partition && p.assignment == owner.assignment; };
  for (size_t i = 0; i + 1 < row.pieces.size();) {
    auto& low = row.pieces[i];
    const auto& high = row.pieces[i + 1];
    if (!owns(low) || !owns(high) || low.interval.end != high.interval.begin) {
      i++;
      continue;
    }
    low.interval.end = high.interval.end;
    if (low.counts.all && high.counts.all) {
      low.counts.records += high.counts.records;
      low.counts.tombstones += high.counts.tombstones;
      low.counts.record_count += high.counts.record_count;
      low.counts.tombstone_count += high.counts.tombstone_count;
      low.counts.bytes += high.counts.bytes;
    } else {
      low.counts = {};
      low.counts.all = false;
    }
    row.pieces.erase(row.pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

}  // namespace cantle::store

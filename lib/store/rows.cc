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

}  // namespace cantle::store

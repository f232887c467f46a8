#include "lib/store/content.h"

#include <algorithm>
#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;
using base::Hash128;
using base::ok;
using model::Op;
using model::RecordView;
using model::Version;

constexpr size_t kVersionBytes = 20;
constexpr size_t kRowHead = kVersionBytes + 2;
constexpr uint8_t kDeleted = 1, kInPieces = 2, kHashed = 4;
constexpr size_t kHashedFrom = 256;  // bytes of value: below, hashing again is cheaper than keeping the hash
constexpr size_t kPiecePages = 4;    // LMDB looks for neighbouring free pages: more are harder to find
constexpr size_t kPieceMax = kPiecePages * kPageBytes - kPageHead;
constexpr size_t kTailMax = 1200;
constexpr size_t kSamplesEnough = 200;             // below, the records themselves are looked at
constexpr uint64_t kScanStop = uint64_t{1} << 20;  // rows looked at, at most, where there are too few samples

// How a value of some length is divided: whole pages, and a tail that stays in the row.
struct Layout {
  size_t full = 0;  // pieces of kPieceMax bytes
  size_t last = 0;  // bytes of one more piece, 0 = none
  size_t tail = 0;
  uint16_t pieces() const { return static_cast<uint16_t>(full + (last > 0 ? 1 : 0)); }
};

Layout layout_of(size_t length) {
  Layout l;
  if (kRowHead + sizeof(Hash128) + length <= kPageBytes - kPageHead) {
    l.tail = length;
    return l;
  }
  l.full = length / kPieceMax;
  const size_t rest = length % kPieceMax;
  const size_t pages = (rest + kPageHead) / kPageBytes;
  l.last = pages == 0 ? 0 : pages * kPageBytes - kPageHead;
  l.tail = rest - l.last;
  if (l.tail > kTailMax) {
    l.last = rest;
    l.tail = 0;
  }
  return l;
}

void put_hash(std::string& out, const Hash128& h) {
  base::put_u64_be(out, h.high);
  base::put_u64_be(out, h.low);
}

Hash128 hash_of(std::string_view key, const Version& version, bool deleted, const Hash128& value) {
  char bytes[model::kKeyMax + kVersionBytes + 1 + sizeof(Hash128)];
  char* at = bytes;
  const auto add = [&at](const void* from, size_t n) {
    std::memcpy(at, from, n);
    at += n;
  };
  CHECK(key.size() <= model::kKeyMax);
  add(key.data(), key.size());
  add(version.bytes.data(), kVersionBytes);
  const uint8_t op = deleted ? 2 : 1;
  add(&op, 1);
  add(&value.high, 8);
  add(&value.low, 8);
  return base::hash128({bytes, static_cast<size_t>(at - bytes)});
}

Hash128 hash_of(std::string_view key, const StoredRow& row) {
  return hash_of(key, row.version, row.deleted, row.has_hash ? row.value_hash : base::hash128(row.tail));
}

void add_to(Counts& counts, std::string_view key, const StoredRow& row) {
  (row.deleted ? counts.tombstones : counts.records) += hash_of(key, row);
  (row.deleted ? counts.tombstone_count : counts.record_count)++;
  if (!row.deleted) counts.bytes += key.size() + row.length;
}

void take_from(Counts& counts, std::string_view key, const StoredRow& row) {
  (row.deleted ? counts.tombstones : counts.records) -= hash_of(key, row);
  (row.deleted ? counts.tombstone_count : counts.record_count)--;
  if (!row.deleted) counts.bytes -= key.size() + row.length;
}

// The weight of a key among the samples; 0: it is none of them. Chance in proportion to size, decided by the key
// alone, so that the same records give the same samples.
uint32_t sample_weight(std::string_view key, size_t value_bytes) {
  const size_t size = key.size() + value_bytes;
  if (size >= kSampleStep) return static_cast<uint32_t>(size);
  const uint64_t chance = UINT64_MAX / kSampleStep * size;
  return base::hash128(key).low < chance ? kSampleStep : 0;
}

base::Status update_sample(WriteTxn& txn, std::string_view index_key, uint32_t before, uint32_t now) {
  if (before == now) return ok();
  if (now == 0) return txn.del(Db::samples, index_key);
  std::string weight;
  base::put_u32_be(weight, now);
  return txn.put(Db::samples, index_key, weight);
}

std::string encode_stored(const RecordView& r, const Layout& layout, const Hash128& value_hash) {
  std::string row;
  row.reserve(kRowHead + 4 + sizeof(Hash128) + layout.tail);
  row += r.version.view();
  const bool pieces = layout.pieces() > 0, hashed = r.value.size() >= kHashedFrom;
  row += static_cast<char>((r.op == Op::del ? kDeleted : 0) | (pieces ? kInPieces : 0) | (hashed ? kHashed : 0));
  row += static_cast<char>(r.flags);
  if (pieces) base::put_u32_be(row, static_cast<uint32_t>(r.value.size()));
  if (hashed) put_hash(row, value_hash);
  return row += r.value.substr(r.value.size() - layout.tail);
}

base::Status put_pieces(WriteTxn& txn, RecordKey& keys, const RecordView& r, const Layout& layout) {
  for (uint16_t i = 0; i < layout.pieces(); i++) {
    const size_t size = i < layout.full ? kPieceMax : layout.last;
    TRY(txn.put(Db::pieces, keys.piece(r.key, i), r.value.substr(i * kPieceMax, size)));
  }
  return ok();
}

base::Status del_pieces(WriteTxn& txn, RecordKey& keys, std::string_view key, uint16_t from, uint16_t to) {
  for (uint16_t i = from; i < to; i++) TRY(txn.del(Db::pieces, keys.piece(key, i)));
  return ok();
}

uint16_t pieces_of(const StoredRow& row) { return row.in_pieces ? layout_of(row.length).pieces() : uint16_t{0}; }

base::Result<std::string_view> gather(Source& source, RecordKey& keys, std::string_view key, const StoredRow& row,
                                      std::string& buffer) {
  if (!row.in_pieces) return row.tail;
  buffer.clear();
  buffer.reserve(row.length);
  for (uint16_t i = 0; i < pieces_of(row); i++) {
    TRY_ASSIGN(const auto piece, source.get(Db::pieces, keys.piece(key, i)));
    if (!piece) return fail(Code::corrupt, "index: a piece of a value is missing");
    buffer += *piece;
  }
  buffer += row.tail;
  if (buffer.size() != row.length) return fail(Code::corrupt, "index: a value of the wrong length");
  return std::string_view(buffer);
}

bool in_extent(std::string_view index_key, std::string_view prefix) {
  return index_key.size() > 4 && index_key.substr(0, 4) == prefix;
}

}  // namespace

Hash128 record_hash(const RecordView& r) { return hash_of(r.key, r.version, r.op == Op::del, base::hash128(r.value)); }

RecordKey::RecordKey(model::ExtentId extent) : buffer_(extent_key(extent)) { buffer_.reserve(4 + model::kKeyMax + 2); }

std::string_view RecordKey::of(std::string_view key) {
  buffer_.resize(4);
  return buffer_ += key;
}

std::string_view RecordKey::piece(std::string_view key, uint16_t number) {
  of(key);
  buffer_ += static_cast<char>(number >> 8);
  return buffer_ += static_cast<char>(number);
}

base::Result<StoredRow> decode_stored(std::string_view bytes) {
  if (bytes.size() < kRowHead) return fail(Code::corrupt, "index: a record too short");
  StoredRow row;
  std::memcpy(row.version.bytes.data(), bytes.data(), kVersionBytes);
  const auto state = static_cast<uint8_t>(bytes[kVersionBytes]);
  row.flags = static_cast<uint8_t>(bytes[kVersionBytes + 1]);
  row.deleted = (state & kDeleted) != 0;
  row.in_pieces = (state & kInPieces) != 0;
  row.has_hash = (state & kHashed) != 0;
  bytes.remove_prefix(kRowHead);
  const size_t extra = (row.in_pieces ? 4 : 0) + (row.has_hash ? sizeof(Hash128) : 0);
  if (bytes.size() < extra || (state & ~(kDeleted | kInPieces | kHashed)) != 0)
    return fail(Code::corrupt, "index: a bad record");
  if (row.in_pieces) {
    row.length = base::get_u32_be(bytes.data());
    bytes.remove_prefix(4);
  }
  if (row.has_hash) {
    row.value_hash = {base::get_u64_be(bytes.data() + 8), base::get_u64_be(bytes.data())};
    bytes.remove_prefix(sizeof(Hash128));
  }
  row.tail = bytes;
  if (!row.in_pieces) row.length = static_cast<uint32_t>(bytes.size());
  if (row.length > model::kValueMax || (row.in_pieces && layout_of(row.length).tail != bytes.size()))
    return fail(Code::corrupt, "index: a record of the wrong length");
  return row;
}

base::Result<std::optional<Found>> read_record(Source& source, RecordKey& keys, std::string_view key,
                                               std::string& buffer) {
  TRY_ASSIGN(const auto bytes, source.get(Db::records, keys.of(key)));
  if (!bytes) return std::nullopt;
  TRY_ASSIGN(const auto row, decode_stored(*bytes));
  TRY_ASSIGN(const auto value, gather(source, keys, key, row, buffer));
  return Found{row.deleted, row.version, value, row.flags};
}

base::Result<std::optional<Version>> read_version(Source& source, RecordKey& keys, std::string_view key) {
  TRY_ASSIGN(const auto bytes, source.get(Db::records, keys.of(key)));
  if (!bytes) return std::nullopt;
  TRY_ASSIGN(const auto row, decode_stored(*bytes));
  return row.version;
}

base::Result<bool> put_record(WriteTxn& txn, RecordKey& keys, const RecordView& r, Counts& counts) {
  const auto index_key = keys.of(r.key);
  TRY_ASSIGN(const auto old_bytes, txn.get(Db::records, index_key));
  const auto layout = layout_of(r.value.size());
  uint32_t old_weight = 0;
  uint16_t old_pieces = 0;
  const bool counted = counts.covers(r.key);
  if (old_bytes) {
    TRY_ASSIGN(const auto old, decode_stored(*old_bytes));
    if (old.version >= r.version) return false;  // newest version wins
    if (counted) take_from(counts, r.key, old);
    if (!old.deleted) old_weight = sample_weight(r.key, old.length);
    old_pieces = pieces_of(old);
  }
  const auto value_hash = base::hash128(r.value);
  TRY(txn.put(Db::records, index_key, encode_stored(r, layout, value_hash)));
  const bool deleted = r.op == Op::del;
  TRY(update_sample(txn, index_key, old_weight, deleted ? 0 : sample_weight(r.key, r.value.size())));
  if (counted) {
    StoredRow now;
    now.version = r.version;
    now.deleted = deleted;
    now.length = static_cast<uint32_t>(r.value.size());
    now.has_hash = true;
    now.value_hash = value_hash;
    add_to(counts, r.key, now);
  }
  TRY(put_pieces(txn, keys, r, layout));
  TRY(del_pieces(txn, keys, r.key, layout.pieces(), old_pieces));
  return true;
}

base::Status each_row(Source& source, const Part& part, bool reverse,
                      const std::function<base::Result<bool>(const RowAt&)>& each) {
  if (part.interval.empty()) return ok();
  const auto prefix = extent_key(part.extent);
  TRY_ASSIGN(auto cursor, source.cursor(Db::records));
  std::optional<KeyValue> at;
  if (reverse) {
    const auto end = part.interval.end.empty() ? extent_key({part.extent.value + 1}) : prefix + part.interval.end;
    TRY_ASSIGN(at, cursor->seek_before(end));
  } else {
    TRY_ASSIGN(at, cursor->seek(prefix + part.interval.begin));
  }
  while (at && in_extent(at->key, prefix)) {
    const auto key = at->key.substr(4);
    if (!part.interval.contains(key)) break;
    TRY_ASSIGN(const auto row, decode_stored(at->value));
    TRY_ASSIGN(const bool go_on, each({key, row}));
    if (!go_on) break;
    TRY_ASSIGN(at, reverse ? cursor->prev() : cursor->next());
  }
  return ok();
}

base::Result<std::string_view> value_of(Source& source, RecordKey& keys, const RowAt& at, std::string& buffer) {
  return gather(source, keys, at.key, at.row, buffer);
}

base::Result<std::optional<std::string>> free_records(WriteTxn& txn, model::ExtentId extent, std::string_view from,
                                                      std::string_view to, uint32_t max) {
  struct Victim {
    std::string key;
    uint16_t pieces = 0;
    bool sampled = false;
  };
  std::vector<Victim> victims;
  TRY(each_row(txn, {extent, {std::string(from), std::string(to)}}, false, [&](const RowAt& at) -> base::Result<bool> {
    victims.push_back(
        {std::string(at.key), pieces_of(at.row), !at.row.deleted && sample_weight(at.key, at.row.length) > 0});
    return victims.size() < max;
  }));
  RecordKey keys(extent);
  for (const auto& v : victims) {
    TRY(del_pieces(txn, keys, v.key, 0, v.pieces));
    if (v.sampled) TRY(txn.del(Db::samples, keys.of(v.key)));
    TRY(txn.del(Db::records, keys.of(v.key)));
  }
  if (victims.size() < max) return std::nullopt;
  return victims.back().key;
}

base::Status count_more(WriteTxn& txn, model::ExtentId extent, Piece& piece, uint32_t max) {
  Counts& counts = piece.counts;
  if (counts.all) return ok();
  model::Interval rest = piece.interval;
  if (!counts.counted_to.empty()) rest.begin = counts.counted_to + '\0';
  uint32_t seen = 0;
  TRY(each_row(txn, {extent, rest}, false, [&](const RowAt& at) -> base::Result<bool> {
    add_to(counts, at.key, at.row);
    counts.counted_to = at.key;
    return ++seen < max;
  }));
  if (seen < max) {
    counts.all = true;
    counts.counted_to.clear();
  }
  return ok();
}

namespace {

struct Weighed {
  std::string key;
  uint64_t weight;
};

base::Status gather_samples(Source& source, const Part& part, std::vector<Weighed>& out) {
  const auto prefix = extent_key(part.extent);
  TRY_ASSIGN(auto cursor, source.cursor(Db::samples));
  TRY_ASSIGN(auto at, cursor->seek(prefix + part.interval.begin));
  while (at && in_extent(at->key, prefix) && part.interval.contains(at->key.substr(4))) {
    if (at->value.size() != 4) return fail(Code::corrupt, "index: a bad sample");
    out.push_back({std::string(at->key.substr(4)), base::get_u32_be(at->value.data())});
    TRY_ASSIGN(at, cursor->next());
  }
  return ok();
}

std::vector<std::string> quantiles(const std::vector<Weighed>& all, uint32_t n) {
  uint64_t total = 0;
  for (const auto& w : all) total += w.weight;
  std::vector<std::string> cuts;
  uint64_t before = 0;
  uint32_t next = 1;
  for (size_t i = 0; i < all.size() && next < n; i++) {
    const bool due = before * n >= total * next;
    if (due && i > 0) {
      cuts.push_back(all[i].key);
      while (next < n && before * n >= total * next) next++;
    }
    before += all[i].weight;
  }
  // One record of more than its share leaves a cut due at the end: the last key is one.
  if (cuts.empty() && n > 1 && all.size() > 1) cuts.push_back(all.back().key);
  return cuts;
}

}  // namespace

base::Result<std::vector<std::string>> sample_parts(Source& source, const std::vector<Part>& parts, uint32_t n) {
  std::vector<Weighed> samples;
  for (const auto& part : parts) TRY(gather_samples(source, part, samples));
  if (samples.size() < kSamplesEnough) {
    samples.clear();
    for (const auto& part : parts)
      TRY(each_row(source, part, false, [&](const RowAt& at) -> base::Result<bool> {
        if (!at.row.deleted) samples.push_back({std::string(at.key), at.key.size() + at.row.length});
        return samples.size() < kScanStop;
      }));
  }
  return quantiles(samples, n);
}

base::Result<uint64_t> estimate_bytes(Source& source, const Part& part) {
  std::vector<Weighed> samples;
  TRY(gather_samples(source, part, samples));
  uint64_t bytes = 0;
  for (const auto& s : samples) bytes += s.weight;
  return bytes;
}

}  // namespace cantle::store

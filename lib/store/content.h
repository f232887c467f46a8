// Content: records in the index: how a record lies in `records` and `pieces`, how it is put there (newest
// version wins), read, scanned and freed, and the sums and samples kept beside it.
//
// `records`: extent (u32 big-endian), routing key → version (20), state, user flags, then the value; a value
// of more than kInlineMax bytes lies in whole pages of `pieces` (extent, key, u16 number), which LMDB gives
// pages of their own, and only what does not fill a page stays in the row. `samples` has about one key for each
// kSampleStep bytes, chosen by the key's hash, so that quantiles cost the same whatever the size.
//
// Invariants
//   * put_record never replaces a version by an older one, and changes nothing for an equal one.
//   * The Counts passed in are those of the piece that holds the key; they change exactly with the records.
//   * Whatever the bytes in the index are, reading gives a record or `corrupt`.
//
// Threads: those of the Source.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/record.h"
#include "lib/store/index.h"
#include "lib/store/rows.h"
#include "lib/store/tenure.h"

namespace cantle::store {

constexpr size_t kInlineMax = 1900;  // a node of LMDB that stays in its leaf
constexpr size_t kSampleStep = size_t{64} << 10;
constexpr size_t kPageBytes = 4096, kPageHead = 16;  // LMDB's

// Builds extent ‖ key without allocating anew.
class RecordKey {
 public:
  explicit RecordKey(model::ExtentId extent);
  std::string_view of(std::string_view key);
  std::string_view piece(std::string_view key, uint16_t number);

 private:
  std::string buffer_;
};

// What one row says, the value perhaps elsewhere.
struct StoredRow {
  model::Version version;
  bool deleted = false;
  uint8_t flags = 0;
  uint32_t length = 0;  // of the whole value
  bool in_pieces = false;
  base::Hash128 value_hash;  // valid if has_hash
  bool has_hash = false;
  std::string_view tail;  // the part of the value that is in the row
};
base::Result<StoredRow> decode_stored(std::string_view row);

// Views into the source, or into `buffer` for a value in pieces.
base::Result<std::optional<Found>> read_record(Source& source, RecordKey& keys, std::string_view key,
                                               std::string& buffer);
// Only the version; cheaper.
base::Result<std::optional<model::Version>> read_version(Source& source, RecordKey& keys, std::string_view key);

// Returns whether it was newer.
base::Result<bool> put_record(WriteTxn& txn, RecordKey& keys, const model::RecordView& record, Counts& counts);

// Goes over a part's records in order. `each` false stops.
struct RowAt {
  std::string_view key;
  StoredRow row;
};
base::Status each_row(Source& source, const Part& part, bool reverse,
                      const std::function<base::Result<bool>(const RowAt&)>& each);
base::Result<std::string_view> value_of(Source& source, RecordKey& keys, const RowAt& at, std::string& buffer);

// Removes up to `max` records of the extent from `from` on, below `to` ("" = all). Returns the key to go on from, or
// nothing when the range is empty.
base::Result<std::optional<std::string>> free_records(WriteTxn& txn, model::ExtentId extent, std::string_view from,
                                                      std::string_view to, uint32_t max);

// Adds up to `max` more records to counts that do not cover the whole piece yet.
base::Status count_more(WriteTxn& txn, model::ExtentId extent, Piece& piece, uint32_t max);

// n - 1 keys that cut the parts into n of about equal bytes.
base::Result<std::vector<std::string>> sample_parts(Source& source, const std::vector<Part>& parts, uint32_t n);
// About how many bytes a part has, from the samples alone.
base::Result<uint64_t> estimate_bytes(Source& source, const Part& part);

}  // namespace cantle::store

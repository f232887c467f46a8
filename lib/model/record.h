// Record: one change of one key as it stands in a block's payload, and the limits on it.
//
// In a payload it is the MessagePack array [op, routing key, value, version, client, series, flags];
// lib/wire/block.h has the codec, lib/model/series.h says what the last three are for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/version.h"

namespace cantle::model {

constexpr size_t kKeyMax = 480;                // bytes; LMDB's 511 less the extent prefix
constexpr size_t kValueMax = size_t{1} << 20;  // bytes
constexpr size_t kBlockMax = size_t{4} << 20;  // bytes of payload in one block
constexpr size_t kBatchRecordsMax = 10000;     // records in one batch request

// none: it changes nothing; all it says is what was answered to whom (lib/model/series.h). In quorum tables.
enum class Op : uint8_t { put = 1, del = 2, none = 3 };

struct Record {
  Op op = Op::put;
  std::string key;    // routing key: 1 to kKeyMax bytes
  std::string value;  // at most kValueMax; empty for del
  Version version;
  uint64_t client = 0, series = 0;  // 0: none; push tables keep none
  uint8_t flags = 0;

  friend bool operator==(const Record&, const Record&) = default;
};

// The same without owning: views into a payload.
struct RecordView {
  Op op = Op::put;
  std::string_view key, value;
  Version version;
  uint64_t client = 0, series = 0;
  uint8_t flags = 0;
};

}  // namespace cantle::model

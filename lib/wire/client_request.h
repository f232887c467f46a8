// Requests of clients as they stand on the wire, decoded by hand without copying: the hot path of a partd.
// The fields are those of lib/model/client_messages.h; unknown ones are passed over.
//
// Errors: malformed for a wrong type, with the field's name; invalid for a value that no request may have;
// too_large over the limits of lib/model/record.h. Nothing is stored for a request that is refused here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/client_messages.h"

namespace cantle::wire {

// What every request has.
struct RequestCommon {
  std::string_view table;
  model::TxnSeq txnseq;
  model::Level level = model::Level::one;
  bool hop = true;
  uint32_t deadline_ms = 0;

  base::Duration deadline() const {
    const auto ms = deadline_ms == 0 ? model::kDeadlineDefaultMs : std::min(deadline_ms, model::kDeadlineMaxMs);
    return std::chrono::milliseconds(ms);
  }
};

struct GetView : RequestCommon {
  std::string_view key;
  uint64_t session = 0;  // 0: not said
};
base::Result<GetView> decode_get(std::string_view params);

using model::ExpectView;
using model::WriteKind;
using model::WriteOp;

struct WriteRequest : RequestCommon {
  WriteKind kind = WriteKind::write;  // put, delete and batch are writes
  std::vector<WriteOp> ops;           // one of cas, append and incr; append: `value` is what is added
  std::vector<std::string_view> keys;
  std::optional<model::Version> version, after;
  ExpectView expect;                                            // cas
  int64_t by = 1;                                               // incr
  uint64_t client = 0, series = 0, series_low = 0, age_ms = 0;  // client 0: none
  size_t bytes = 0;                                             // encoded, at most
  std::string_view params;                                      // the whole, for passing on
};
base::Result<WriteRequest> decode_put(std::string_view params);
base::Result<WriteRequest> decode_delete(std::string_view params);
base::Result<WriteRequest> decode_batch(std::string_view params);
base::Result<WriteRequest> decode_cas(std::string_view params);
base::Result<WriteRequest> decode_append(std::string_view params);
base::Result<WriteRequest> decode_incr(std::string_view params);

// The same request with other values of `hop` and `txnseq`.
std::string pass_on(std::string_view params, model::TxnSeq txnseq);

base::Status check_key(std::string_view key);

}  // namespace cantle::wire

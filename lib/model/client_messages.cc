#include "lib/model/client_messages.h"

#include "lib/base/bytes.h"

namespace cantle::model {
namespace {

// One byte (format 1, doubled, plus 1 for reverse), the LSN in 8 bytes, the bound.
constexpr uint8_t kCursorFormat = 1;
constexpr size_t kCursorHead = 9;

// The last partition with keys below `bound` (empty: of all).
const Partition* last_below(const Metadata& map, std::string_view bound) {
  if (map.partitions.empty()) return nullptr;
  if (bound.empty()) return &map.partitions.back();
  const auto it = map.partitions.at_or_before(bound);
  if (it == map.partitions.end()) return nullptr;
  if (it->interval.begin < bound) return &*it;
  if (it == map.partitions.begin()) return nullptr;
  return &*std::prev(it);
}

}  // namespace

std::string_view to_string(Level level) {
  switch (level) {
    case Level::one: return "one";
    case Level::majority: return "majority";
    case Level::all: return "all";
    case Level::linearizable: return "linearizable";
    case Level::session: return "session";
    case Level::any: return "any";
  }
  return "unknown";
}

std::string encode_cursor(const ScanCursor& cursor) {
  std::string out(1, static_cast<char>(kCursorFormat * 2 + (cursor.reverse ? 1 : 0)));
  base::put_u64_be(out, cursor.lsn.value);
  return out + cursor.bound;
}

base::Result<ScanCursor> decode_cursor(std::string_view bytes) {
  const auto bad = [] { return base::fail(base::Code::invalid, "the cursor is not one that a scan gave"); };
  if (bytes.size() < kCursorHead || bytes.size() > kCursorHead + kKeyMax + 1) return bad();
  const auto head = static_cast<uint8_t>(bytes[0]);
  if (head / 2 != kCursorFormat) return bad();
  ScanCursor cursor{.reverse = head % 2 == 1,
                    .bound = std::string(bytes.substr(kCursorHead)),
                    .lsn = {base::get_u64_be(bytes.data() + 1)}};
  if (cursor.bound.empty()) return bad();
  return cursor;
}

base::Result<ScanStart> scan_start(const ScanRequest& request) {
  if (request.cursor.empty()) return ScanStart{request.reverse ? request.end : request.begin, request.reverse};
  TRY_ASSIGN(auto cursor, decode_cursor(request.cursor));
  if (cursor.reverse != request.reverse)
    return base::fail(base::Code::invalid, "the cursor belongs to a scan in the other direction");
  return ScanStart{std::move(cursor.bound), request.reverse};
}

const Partition* scan_partition(const Metadata& map, const ScanStart& start) {
  return start.below ? last_below(map, start.bound) : map.find(start.bound);
}

}  // namespace cantle::model

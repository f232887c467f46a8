#include "lib/model/client_messages.h"

#include "lib/base/bytes.h"

namespace cantle::model {
namespace {

// One byte (the format, doubled, plus 1 for reverse), the LSN in 8 bytes, the bound. Format 2 has before the bound the
// number of the state that is kept, in 8 bytes, and the name of the server, behind its length in one.
constexpr uint8_t kCursorFormat = 1, kCursorKept = 2;
constexpr size_t kCursorHead = 9, kCursorKeptHead = kCursorHead + 9;
constexpr size_t kServerNameMax = 63;

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
  const auto format = cursor.kept != 0 ? kCursorKept : kCursorFormat;
  std::string out(1, static_cast<char>(format * 2 + (cursor.reverse ? 1 : 0)));
  base::put_u64_be(out, cursor.lsn.value);
  if (cursor.kept != 0) {
    base::put_u64_be(out, cursor.kept);
    out += static_cast<char>(cursor.server.name.size());
    out += cursor.server.name;
  }
  return out + cursor.bound;
}

base::Result<ScanCursor> decode_cursor(std::string_view bytes) {
  const auto bad = [] { return base::fail(base::Code::invalid, "the cursor is not one that a scan gave"); };
  if (bytes.size() < kCursorHead) return bad();
  const auto head = static_cast<uint8_t>(bytes[0]);
  const auto format = head / 2;
  if (format != kCursorFormat && format != kCursorKept) return bad();
  ScanCursor cursor;
  cursor.reverse = head % 2 == 1;
  cursor.lsn = {base::get_u64_be(bytes.data() + 1)};
  auto rest = bytes.substr(kCursorHead);
  if (format == kCursorKept) {
    if (bytes.size() < kCursorKeptHead) return bad();
    cursor.kept = base::get_u64_be(rest.data());
    const size_t name = static_cast<uint8_t>(rest[8]);
    rest.remove_prefix(kCursorKeptHead - kCursorHead);
    if (cursor.kept == 0 || name > kServerNameMax || rest.size() < name) return bad();
    cursor.server.name = rest.substr(0, name);
    if (!validate_server_id(cursor.server.name)) return bad();
    rest.remove_prefix(name);
  }
  if (rest.empty() || rest.size() > kKeyMax + 1) return bad();
  cursor.bound = rest;
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

// Snapshot files, fed in pieces: whatever comes, the parser holds at most one part, hands out only what is within the
// limits, and finds the same in pieces as in one.
#include <cstdint>
#include <string_view>

#include "lib/base/check.h"
#include "lib/wire/block.h"
#include "lib/wire/snapshot_file.h"

namespace {

using namespace cantle;

std::pair<uint64_t, bool> parse(std::string_view bytes, size_t step) {
  wire::SnapshotParser parser;
  wire::SnapshotParser::Item item;
  uint64_t items = 0;
  for (size_t at = 0; at < bytes.size(); at += step) {
    parser.feed(bytes.substr(at, step));
    while (parser.next(&item)) {
      items++;
      if (const auto* part = std::get_if<wire::SnapshotPart>(&item))
        CHECK(wire::check_records(part->records)->records == part->count);
    }
  }
  return {items, parser.complete()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CHECK(parse(bytes, size) == parse(bytes, 7));
  return 0;
}

// Bytes from a connection: the frame scanner, the reader and the codec.
//
// What holds whatever comes
//   * Cut into pieces or whole, the scanner finds the same frames, and the same first fault.
//   * A frame that it takes is one value to Reader::skip and ends where that ends; its parts lie inside it.
//   * No frame is larger than kFrameMax; a fault stays a fault.
//   * Params, results and errors decode or are refused; what decodes encodes to something that decodes again.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "lib/base/check.h"
#include "lib/model/messages.h"
#include "lib/model/quorum.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"

namespace {

using namespace cantle;

bool inside(std::string_view part, std::string_view whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

template <class T>
void decode_twice(std::string_view bytes) {
  const auto once = wire::decode<T>(bytes);
  if (!once) return;
  const auto encoded = wire::encode(*once);
  const auto twice = wire::decode<T>(encoded);
  CHECK(twice);
  CHECK(wire::encode(*twice) == encoded);
}

void check_payload(std::string_view bytes) {
  decode_twice<model::PushWrite>(bytes);
  decode_twice<model::BulkBegin>(bytes);
  decode_twice<model::Digest>(bytes);
  decode_twice<model::BulkEnd>(bytes);
  decode_twice<model::MapChanged>(bytes);
  decode_twice<model::QuorumBeacon>(bytes);
  decode_twice<model::QuorumBeaconReply>(bytes);
  decode_twice<model::QuorumSuspect>(bytes);
  decode_twice<model::QuorumSuspectReply>(bytes);
  decode_twice<model::QuorumRelease>(bytes);
  (void)wire::decode_error(bytes);
}

void check_frame(const wire::Frame& frame, std::string_view whole) {
  CHECK(frame.size > 0 && frame.size <= wire::kFrameMax && frame.size <= whole.size());
  const auto bytes = whole.substr(0, frame.size);
  for (const auto part : {frame.method, frame.params, frame.error, frame.result}) CHECK(inside(part, bytes));
  CHECK(frame.method.size() <= wire::kMethodMax);
  wire::Reader reader(bytes);
  std::string_view passed;
  // The scanner counts the outer array as a level, as skip does.
  CHECK(reader.skip(&passed) && passed.size() == frame.size);
  check_payload(frame.params);
  check_payload(frame.result);
  if (!frame.error.empty()) (void)wire::decode_error(frame.error);
}

// Finds all frames, shown `step` bytes more at a time (0: all at once). The sum tells runs apart.
uint64_t walk(std::string_view input, size_t step, bool check) {
  wire::FrameScanner scanner;
  wire::Frame frame;
  uint64_t sum = 0;
  size_t shown = step == 0 ? input.size() : 0;
  while (!input.empty()) {
    const auto outcome = scanner.scan(input.substr(0, shown), &frame);
    if (outcome == wire::Scan::malformed) {
      CHECK(!scanner.problem().empty());
      CHECK(scanner.scan(input, &frame) == wire::Scan::malformed);
      return sum * 31 + 1;
    }
    if (outcome == wire::Scan::incomplete) {
      if (shown == input.size()) return sum * 31 + 2;
      shown = std::min(input.size(), shown + step);
      continue;
    }
    if (check) check_frame(frame, input);
    sum = sum * 31 + frame.size * 7 + frame.msgid;
    input.remove_prefix(frame.size);
    shown = step == 0 ? input.size() : (shown > frame.size ? shown - frame.size : 0);
    scanner.reset();
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto whole = walk(input, 0, true);
  CHECK(walk(input, 1, false) == whole);
  CHECK(walk(input, 7, false) == whole);
  check_payload(input);
  return 0;
}

// What replicas of a quorum table say to each other: the pipeline's messages, a block among them, and the elections'.
//
// What holds whatever comes
//   * Each message decodes or is refused; what decodes encodes to something that decodes to the same.
//   * No list is longer than its limit.
//   * A block that is read without copying is what the codec reads, lies inside the input, and goes on as it came.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/model/pipe.h"
#include "lib/model/quorum.h"
#include "lib/model/quorum_snapshot.h"
#include "lib/model/record.h"
#include "lib/store/rows.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"
#include "lib/wire/pipe_block.h"

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

void messages(std::string_view bytes) {
  decode_twice<model::PipeOpen>(bytes);
  decode_twice<model::PipeOpenReply>(bytes);
  decode_twice<model::PipeCut>(bytes);
  decode_twice<model::PipeBlock>(bytes);
  decode_twice<model::PipeCommit>(bytes);
  decode_twice<model::PipeAck>(bytes);
  decode_twice<model::QuorumBeacon>(bytes);
  decode_twice<model::QuorumBeaconReply>(bytes);
  decode_twice<model::QuorumSuspect>(bytes);
  decode_twice<model::QuorumSuspectReply>(bytes);
  decode_twice<model::QuorumRelease>(bytes);
  decode_twice<model::QuorumOutside>(bytes);
  decode_twice<model::QuorumSnapshot>(bytes);
  decode_twice<model::QuorumSnapshotPart>(bytes);
  decode_twice<model::QuorumBlocks>(bytes);
  decode_twice<model::QuorumBlocksReply>(bytes);
  decode_twice<model::QuorumLend>(bytes);
  decode_twice<model::QuorumLendReply>(bytes);
  decode_twice<model::Government>(bytes);
}

void lists(std::string_view bytes) {
  if (const auto m = wire::decode<model::PipeOpenReply>(bytes)) CHECK(m->epochs.size() <= model::kEpochStartsMax);
  if (const auto m = wire::decode<model::QuorumBeacon>(bytes)) CHECK(m->released.size() <= model::kBeaconPartitionsMax);
  if (const auto m = wire::decode<model::QuorumBeaconReply>(bytes))
    CHECK(m->refused.size() <= model::kBeaconPartitionsMax);
  if (const auto m = wire::decode<model::QuorumSnapshotPart>(bytes)) {
    CHECK(m->series.size() <= model::kSnapshotSeriesMax && m->epochs.size() <= model::kEpochStartsMax);
    for (const auto& row : m->series) (void)store::decode_series_row(row.window);
  }
  if (const auto m = wire::decode<model::Government>(bytes)) CHECK(m->voters.size() <= model::kVotersMax);
}

// True if it was a block.
bool block(std::string_view bytes) {
  const auto in = wire::decode_pipe_block(bytes);
  if (!in) return false;
  CHECK(inside(in->block, bytes) && inside(in->payload, in->block));
  CHECK(in->message.block.empty() && in->message.route.size() <= model::kRouteMax);
  CHECK(in->payload.size() == in->header.length && in->payload.size() <= model::kBlockMax);
  const auto same = wire::decode<model::PipeBlock>(bytes);
  CHECK(same && same->block == in->block);
  const auto on = wire::encode_pipe_block(in->message, in->block);
  CHECK(on == wire::encode(*same));
  CHECK(wire::decode_pipe_block(on));
  return true;
}

// The same with a header that is right, so that what lies behind its checksum is reached.
void repaired_block(std::string_view bytes) {
  const auto message = wire::decode<model::PipeBlock>(bytes);
  if (!message || message->block.size() < wire::kBlockHeaderSize) return;
  auto copy = *message;
  std::memcpy(copy.block.data(), &wire::kBlockMagic, 4);
  std::memcpy(copy.block.data() + 4, &wire::kBlockFormat, 2);
  const uint32_t crc = base::crc32c(std::string_view(copy.block).substr(0, wire::kBlockHeaderSize - 4));
  std::memcpy(copy.block.data() + wire::kBlockHeaderSize - 4, &crc, 4);
  (void)block(wire::encode(copy));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  messages(bytes);
  lists(bytes);
  if (!block(bytes)) repaired_block(bytes);
  return 0;
}

// A journal as recovery finds it: segments of frames, whole, torn, misplaced, flipped.
//
// The input is a list of steps that write frames and garbage into two segments; what is left of it stands raw at the
// end.
//
// What holds whatever comes
//   * Recovery ends, and only frames whose place and checksums are right are taken, in rising sequence.
//   * The end is where the next frame goes; once the tail is finished, another recovery finds the same end.
//   * A reader of the journal takes no more than recovery does.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/store/journal_format.h"
#include "lib/store/journal_reader.h"
#include "lib/store/recovery.h"
#include "test/unit/store/mem_disk.h"

namespace {

using namespace cantle;
using store::Frame;

constexpr uint64_t kSegment = 16 << 10;

class Steps {
 public:
  Steps(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto b = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return b;
  }
  bool done() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

struct Built {
  std::string segment[2] = {std::string(kSegment, '\0'), std::string(kSegment, '\0')};
};

std::string frame_bytes(Frame frame, const std::string& payload) {
  auto& h = frame.header;
  wire::seal_block(h, payload);
  std::string bytes(store::framed_size(payload.size()), '\0');
  store::encode_frame(frame, bytes.data());
  std::memcpy(bytes.data() + store::kFrameAndHeader, payload.data(), payload.size());
  return bytes;
}

Built build(Steps& in) {
  Built built;
  uint64_t sequence = 1, group = 1, lsn = 0;
  size_t which = 0;
  uint64_t offset = 0;
  for (int steps = 0; steps < 64 && !in.done(); steps++) {
    const uint8_t op = in.byte();
    Frame frame;
    if ((op & 1) != 0) group = sequence;  // a new sync group
    if ((op & 2) != 0 && which == 0) {
      which = 1;
      offset = 0;
    }
    frame.at = {which + 1, offset, sequence};
    frame.group = group;
    frame.header.kind = (op & 4) != 0 ? model::BlockKind::root_image : model::BlockKind::data;
    if (frame.header.kind == model::BlockKind::data) {
      frame.header.first = {lsn + 1};
      frame.header.records = 1;
      frame.header.prev_lsn = {lsn};
      lsn++;
    }
    const std::string payload(in.byte(), 'p');
    if ((op & 8) != 0) frame.at.sequence += in.byte();
    if ((op & 16) != 0) frame.at.segment += 1;
    auto bytes = frame_bytes(frame, payload);
    if ((op & 32) != 0) bytes[in.byte() % bytes.size()] ^= 1;
    if ((op & 64) != 0) std::fill(bytes.begin(), bytes.begin() + static_cast<long>(in.byte() % bytes.size()), '\0');
    if ((op & 128) != 0) bytes.resize(in.byte() % bytes.size());
    if (offset + bytes.size() > kSegment) break;
    std::memcpy(built.segment[which].data() + offset, bytes.data(), bytes.size());
    offset += store::framed_size(payload.size());
    sequence++;
  }
  const auto raw = in.rest().substr(0, kSegment - std::min(offset, kSegment));
  std::memcpy(built.segment[which].data() + std::min(offset, kSegment), raw.data(), raw.size());
  return built;
}

// `durable`: as a root says it. `damaged`: whether damage was passed over.
store::JournalPosition recover(store::MemDisk& disk, uint64_t durable, uint64_t* frames, bool* damaged) {
  store::JournalScan scan;
  scan.durable = durable;
  scan.start = {1, 0, 1};
  scan.segment_bytes = kSegment;
  uint64_t last = 0;
  scan.frame = [&](const Frame& f, std::string_view payload) {
    CHECK(f.at.sequence > last && f.at.offset + store::framed_size(payload.size()) <= kSegment);
    CHECK(base::crc32c(payload) == f.header.payload_crc);
    last = f.at.sequence;
    ++*frames;
    return base::ok();
  };
  scan.damage = [damaged](const store::DamagedPlace& place, const std::optional<Frame>&) {
    CHECK(place.to.sequence >= place.from.sequence);
    *damaged = true;
  };
  const auto end = store::scan_journal(disk, scan);
  CHECK(end && end->sequence > last && end->offset <= kSegment);
  return *end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Steps steps(data, size);
  const auto built = build(steps);
  store::MemDisk disk;
  for (uint64_t n = 1; n <= 2; n++) {
    auto file = std::move(*disk.open(store::segment_path(n), store::OpenMode::create));
    CHECK(file->write(0, built.segment[n - 1]) && file->sync());
  }
  CHECK(disk.sync_dir("journal"));
  uint64_t frames = 0, again = 0, seen = 0;
  bool damaged = false;
  const auto end = recover(disk, 0, &frames, &damaged);
  CHECK(store::finish_tail(disk, end, kSegment, kSegment));
  // The engine writes a root before it cuts the tail, if damage was passed over.
  CHECK(recover(disk, damaged ? end.sequence : 0, &again, &damaged) == end);
  CHECK(again == frames);
  auto reader = std::move(*store::JournalReader::open(disk));
  CHECK(reader->advance(end));
  for (model::Lsn next{1}; reader->end({}) && next <= reader->end({})->lsn;) {
    const auto part = reader->read({}, next, 1000);
    CHECK(part && (part->next > next || part->gone));
    seen += part->blocks.size();
    if (part->gone) break;
    next = part->next;
  }
  CHECK(seen <= frames);
  return 0;
}

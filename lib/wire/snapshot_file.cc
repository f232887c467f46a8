#include "lib/wire/snapshot_file.h"

#include "lib/base/bytes.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"

namespace cantle::wire {
namespace {

constexpr size_t kStart = 8, kFrameHead = 8;

void append_frame(std::string& out, std::string_view body) {
  base::put_u32_be(out, static_cast<uint32_t>(body.size()));
  base::put_u32_be(out, base::crc32c(body));
  out.append(body);
}

}  // namespace

void append_snapshot_head(std::string& out, const SnapshotHead& head) {
  out.append(kSnapshotMagic);
  base::put_u32_be(out, kSnapshotFormat);
  append_frame(out, encode(head));
}

void append_snapshot_part(std::string& out, const SnapshotPart& part) { append_frame(out, encode(part)); }

bool SnapshotParser::fail(std::string text) {
  status_ = base::fail(base::Code::malformed, "snapshot: " + std::move(text));
  return false;
}

void SnapshotParser::feed(std::string_view bytes) {
  if (status_) pending_.append(bytes);
}

bool SnapshotParser::begin() {
  if (pending_.size() < kStart) return false;
  if (pending_.compare(0, 4, kSnapshotMagic) != 0) return fail("this is not one");
  if (base::get_u32_be(pending_.data() + 4) != kSnapshotFormat) return fail("a format that this version does not know");
  pending_.erase(0, kStart);
  begun_ = true;
  return true;
}

bool SnapshotParser::next(Item* out) {
  if (!status_ || (!begun_ && !begin())) return false;
  if (last_) return pending_.empty() ? false : fail("bytes behind the last part");
  if (pending_.size() < kFrameHead) return false;
  const uint32_t length = base::get_u32_be(pending_.data());
  if (length > kSnapshotFrameMax) return fail("a part of " + std::to_string(length) + " bytes");
  if (pending_.size() < kFrameHead + length) return false;
  const auto body = std::string_view(pending_).substr(kFrameHead, length);
  if (base::crc32c(body) != base::get_u32_be(pending_.data() + 4)) return fail("a checksum is wrong");
  if (!head_) {
    auto head = decode<SnapshotHead>(body);
    if (!head) return fail(head.error().text);
    head_ = true;
    *out = std::move(*head);
  } else {
    auto part = decode<SnapshotPart>(body);
    if (!part) return fail(part.error().text);
    const auto info = check_records(part->records);
    if (!info) return fail(info.error().text);
    if (info->records != part->count) return fail("a part has not as many records as it says");
    last_ = part->last;
    *out = std::move(*part);
  }
  pending_.erase(0, kFrameHead + length);
  return true;
}

}  // namespace cantle::wire

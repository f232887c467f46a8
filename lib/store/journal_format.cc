#include "lib/store/journal_format.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "lib/base/bytes.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;

constexpr size_t kWindow = size_t{1} << 20;
// Often one block is wanted of a log whose next one lies far off: what is read at once grows while it is read on.
constexpr size_t kFirstWindow = size_t{16} << 10;
constexpr size_t kSparseWindow = size_t{4} << 10;

struct Raw {
  uint32_t magic;
  uint16_t format, zero;
  uint64_t segment, offset, sequence, group;
  uint32_t length, header_crc, payload_crc, crc;
};
static_assert(sizeof(Raw) == kFrameSize);

uint32_t crc_of(const Raw& r) { return base::crc32c({reinterpret_cast<const char*>(&r), offsetof(Raw, crc)}); }

// Where the first frame's magic stands in the bytes, at a multiple of kFrameAlign; else their size, rounded down to
// one.
size_t find_magic(std::string_view bytes) {
  const size_t end = bytes.size() / kFrameAlign * kFrameAlign;
  for (size_t at = 0; at < end; at += kFrameAlign) {
    uint32_t magic = 0;
    std::memcpy(&magic, bytes.data() + at, sizeof magic);
    if (magic == kFrameMagic) return at;
  }
  return end;
}

bool all_zero(std::string_view bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace

void encode_frame(const Frame& frame, char* out) {
  Raw r{};
  r.magic = kFrameMagic;
  r.format = kFrameFormat;
  r.segment = frame.at.segment;
  r.offset = frame.at.offset;
  r.sequence = frame.at.sequence;
  r.group = frame.group;
  r.length = static_cast<uint32_t>(wire::kBlockHeaderSize) + frame.header.length;
  r.header_crc = frame.header.header_crc;
  r.payload_crc = frame.header.payload_crc;
  r.crc = crc_of(r);
  std::memcpy(out, &r, sizeof r);
  wire::encode_header(frame.header, out + sizeof r);
}

base::Result<Frame> decode_frame(std::string_view bytes, uint64_t segment, uint64_t offset) {
  if (bytes.size() < kFrameAndHeader) return fail(Code::corrupt, "frame: too short");
  Raw r;
  std::memcpy(&r, bytes.data(), sizeof r);
  if (r.magic != kFrameMagic) return fail(Code::corrupt, "frame: wrong magic");
  if (r.crc != crc_of(r)) return fail(Code::corrupt, "frame: wrong checksum");
  if (r.format != kFrameFormat)
    return fail(Code::corrupt, "frame: format " + std::to_string(r.format) + " is not known here");
  if (r.segment != segment || r.offset != offset) return fail(Code::corrupt, "frame: belongs elsewhere");
  auto header = wire::decode_header(bytes.substr(sizeof r));
  if (!header) return fail(Code::corrupt, header.error().text);
  if (r.length != wire::kBlockHeaderSize + header->length || r.header_crc != header->header_crc ||
      r.payload_crc != header->payload_crc)
    return fail(Code::corrupt, "frame: of another block");
  return Frame{{segment, offset, r.sequence}, r.group, *header};
}

SegmentScanner::SegmentScanner(File& file, uint64_t segment, uint64_t offset, uint64_t limit)
    : file_(file), segment_(segment), offset_(offset), limit_(limit), ahead_(kFirstWindow) {
  window_.segment = segment;
}

void SegmentScanner::lend(Window window) {
  window_ = std::move(window);
  if (window_.segment != segment_) window_.size = 0;
  window_.segment = segment_;
}

base::Result<std::string_view> SegmentScanner::window(uint64_t offset, size_t size) {
  auto& w = window_;
  const bool held = offset >= w.offset && offset + size <= w.offset + w.size;
  if (!held) {
    const size_t wish = std::max(size, sparse_ ? kSparseWindow : ahead_);
    ahead_ = std::min(ahead_ * 4, kWindow);
    const auto want = static_cast<size_t>(std::min<uint64_t>(wish, limit_ > offset ? limit_ - offset : 0));
    if (w.bytes.size() < want) w.bytes.resize(want);
    // What is held of it already, as of a frame that began in the last window, is not read twice.
    const bool begun = offset >= w.offset && offset < w.offset + w.size;
    const size_t kept = begun ? std::min(want, static_cast<size_t>(w.offset + w.size - offset)) : 0;
    if (kept > 0) std::memmove(w.bytes.data(), w.bytes.data() + (offset - w.offset), kept);
    w.size = 0;
    TRY_ASSIGN(const size_t got, file_.read(offset + kept, w.bytes.data() + kept, want - kept));
    w.size = kept + got;
    w.offset = offset;
  }
  const size_t skip = static_cast<size_t>(offset - w.offset);
  return std::string_view(w.bytes.data() + skip, std::min(size, w.size - skip));
}

base::Result<std::optional<Frame>> SegmentScanner::look(bool payload) {
  payload_ = {};
  bad_.clear();
  bad_frame_.reset();
  TRY_ASSIGN(const auto head, window(offset_, kFrameAndHeader));
  auto frame = decode_frame(head, segment_, offset_);
  if (!frame) {
    bad_ = frame.error().text;
    return std::nullopt;
  }
  const uint64_t size = framed_size(frame->header.length);
  if (offset_ + size > limit_) {
    bad_ = "frame: longer than the segment";
    return std::nullopt;
  }
  if (!payload) return std::move(*frame);
  TRY_ASSIGN(const auto whole, window(offset_, static_cast<size_t>(size)));
  const auto body = whole.size() < size ? std::string_view() : whole.substr(kFrameAndHeader, frame->header.length);
  if (auto good = wire::check_payload(frame->header, body); !good) {
    bad_ = good.error().text;
    bad_frame_ = std::move(*frame);
    return std::nullopt;
  }
  payload_ = body;
  return std::move(*frame);
}

base::Result<std::optional<Frame>> SegmentScanner::search(uint64_t after) {
  const uint64_t start = offset_;
  while (offset_ + kFrameAndHeader <= limit_) {
    TRY_ASSIGN(const auto part, window(offset_, static_cast<size_t>(std::min<uint64_t>(kWindow, limit_ - offset_))));
    if (part.size() < kFrameAndHeader) break;
    const size_t at = find_magic(part);
    offset_ += at;
    if (at + kFrameAlign > part.size()) continue;  // none here
    TRY_ASSIGN(auto frame, look(true));
    if (frame && frame->at.sequence > after) return frame;
    offset_ += kFrameAlign;
  }
  offset_ = start;
  payload_ = {};
  return std::nullopt;
}

base::Result<uint64_t> SegmentScanner::nonzero_from(uint64_t offset) {
  uint64_t end = 0;
  for (uint64_t at = offset; at < limit_; at += kWindow) {
    TRY_ASSIGN(const auto part, window(at, static_cast<size_t>(std::min<uint64_t>(kWindow, limit_ - at))));
    if (part.empty()) break;
    if (!all_zero(part)) end = at + static_cast<uint64_t>(part.find_last_not_of('\0')) + 1;
  }
  return end == 0 ? 0 : end - offset;
}

std::string to_string(const JournalPosition& p) {
  return std::to_string(p.segment) + ":" + std::to_string(p.offset) + ":" + std::to_string(p.sequence);
}

std::string segment_path(uint64_t segment) {
  char name[32];
  snprintf(name, sizeof name, "/%012llu.seg", static_cast<unsigned long long>(segment));
  return std::string(kJournalDir) + name;
}

uint64_t segment_of_name(std::string_view name) {
  constexpr size_t kDigits = 12;
  if (name.size() != kDigits + 4 || name.substr(kDigits) != ".seg") return 0;
  uint64_t n = 0;
  for (const char c : name.substr(0, kDigits)) {
    if (c < '0' || c > '9') return 0;
    n = n * 10 + static_cast<uint64_t>(c - '0');
  }
  return n;
}

}  // namespace cantle::store

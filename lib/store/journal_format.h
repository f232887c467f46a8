// The journal's bytes: frames around blocks, and a scanner over one segment (man page cantle-journal.5).
//
// A frame says where it stands: segment, offset, sequence (+1 a frame) and sync group, under a checksum
// that covers the block's two. A frame whose place is not where it was read is not there: an old block in
// a recycled segment, a write that landed in the wrong place. The number of a sync group is the sequence
// of its first frame, so that a good frame after a bad one tells whether the bad one had been synced: it
// had if its sequence lies before that group (S62).
//
// Threads: a scanner one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/store/disk.h"
#include "lib/store/position.h"
#include "lib/wire/block.h"

namespace cantle::store {

constexpr size_t kFrameSize = 56;
constexpr size_t kFrameAndHeader = kFrameSize + wire::kBlockHeaderSize;
constexpr uint32_t kFrameMagic = 0x4d465243;  // "CRFM"
constexpr uint16_t kFrameFormat = 1;
constexpr size_t kFrameAlign = 8;
constexpr size_t kSparseFrame = size_t{64} << 10;  // bytes of a payload that is worth passing over

// Bytes a block takes in the journal, with its frame and the padding behind it.
constexpr uint64_t framed_size(uint64_t payload_bytes) {
  return (kFrameAndHeader + payload_bytes + kFrameAlign - 1) / kFrameAlign * kFrameAlign;
}

struct Frame {
  JournalPosition at;
  uint64_t group = 0;  // sequence of the first frame of its sync group
  model::BlockHeader header;
  JournalPosition end() const { return {at.segment, at.offset + framed_size(header.length), at.sequence + 1}; }
};

// kFrameAndHeader bytes: frame, then block header.
void encode_frame(const Frame& frame, char* out);
// The frame at that place, if it is there; any sequence. `bytes`: at least kFrameAndHeader of them.
base::Result<Frame> decode_frame(std::string_view bytes, uint64_t segment, uint64_t offset);

class SegmentScanner {
 public:
  // A piece of a segment, as it was read.
  struct Window {
    uint64_t segment = 0, offset = 0;
    size_t size = 0;
    std::string bytes;  // may be longer
  };
  // Reads from `offset`, never at or past `limit`. The file must outlive it.
  SegmentScanner(File& file, uint64_t segment, uint64_t offset, uint64_t limit);

  // Looks at the current offset. Nothing: no valid frame with a valid payload is there; bad() says why.
  // `payload`: read and check it too; else only the headers are, and payload() is empty.
  base::Result<std::optional<Frame>> look(bool payload);
  // What another scanner has read, and its memory: a scanner of the same segment goes on with it. take() gives it back.
  // Only for bytes that do not change any more: what lies before the durable end.
  void lend(Window window);
  Window take() { return std::exchange(window_, {}); }
  // Payloads will not be looked at: what lies between large frames' headers need not be read.
  void headers_only() { headers_only_ = true; }
  std::string_view payload() const { return payload_; }  // valid until the next call
  void pass(const Frame& frame) {
    offset_ = frame.at.offset + framed_size(frame.header.length);
    sparse_ = headers_only_ && frame.header.length >= kSparseFrame;
  }
  // Searches from the current offset for a valid frame with a sequence above `after`, and moves there.
  base::Result<std::optional<Frame>> search(uint64_t after);

  uint64_t offset() const { return offset_; }
  const std::string& bad() const { return bad_; }
  // The header of the frame at the current offset is good, though its payload is not: whose it was.
  const std::optional<Frame>& bad_frame() const { return bad_frame_; }
  // Bytes at the current offset that are not zero, up to the limit: is there a torn write?
  base::Result<uint64_t> nonzero_from(uint64_t offset);

 private:
  // At least `size` bytes at `offset` if the file has them; a view into the buffer.
  base::Result<std::string_view> window(uint64_t offset, size_t size);
  File& file_;
  uint64_t segment_, offset_, limit_;
  Window window_;
  size_t ahead_;                                // how much is read at once, next
  bool headers_only_ = false, sparse_ = false;  // sparse: the next frame is taken to be large, as the last was
  std::string_view payload_;
  std::string bad_;
  std::optional<Frame> bad_frame_;
};

}  // namespace cantle::store

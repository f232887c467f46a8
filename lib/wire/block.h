// Blocks as bytes: the header in a fixed layout, the payload as concatenated MessagePack records
// [op, routing key, value, version, client id, series, flags] (man page cantle-journal.5).
//
// Use
//   std::string payload;
//   append_record(payload, record);                        // build
//   BlockHeader h = …; seal_block(h, payload);             // length and both checksums
//   RecordReader in(payload); RecordView r;
//   while (in.next(r)) …;  if (!in.status()) …             // iterate without copying
//
// Invariants
//   * A header that decodes has a known magic, format and kind and a right header checksum. Its
//     payload is checked separately, by whoever has it (check_payload).
//   * RecordReader never reads outside the payload and never yields a record over its limits, whatever
//     the bytes are; views point into the payload.
//
// Threads: any; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/interval.h"
#include "lib/model/record.h"

namespace cantle::wire {

constexpr size_t kBlockHeaderSize = 104;
constexpr uint32_t kBlockMagic = 0x4b4c4243;  // "CBLK" in a little-endian file
constexpr uint16_t kBlockFormat = 1;

// Fills in length, payload_crc and header_crc from the other fields and the payload.
void seal_block(model::BlockHeader& header, std::string_view payload);
// A log block's header as that of the mended block with the same payload, and back: but for the kind and header_crc
// they are the same.
model::BlockHeader as_mended(model::BlockHeader header);
model::BlockHeader of_mended(model::BlockHeader header);
// Writes kBlockHeaderSize bytes; header_crc must be right (seal_block).
void encode_header(const model::BlockHeader& header, char* out);
// malformed: too short, wrong magic, format, kind, checksum, or a field over its limit.
base::Result<model::BlockHeader> decode_header(std::string_view bytes);
// corrupt: the payload is not the one the header was sealed with.
base::Status check_payload(const model::BlockHeader& header, std::string_view payload);

// Appends one record. The record must be within its limits (CHECKed): validate input first.
void append_record(std::string& payload, const model::RecordView& record);
model::RecordView view_of(const model::Record& record);
model::Record own(const model::RecordView& view);
// Bytes that append_record adds.
size_t encoded_size(const model::RecordView& record);

// Gives each record its version as a quorum table's: `first` and on, in a block of that epoch. malformed: not records.
base::Status stamp_records(std::string& payload, model::Epoch epoch, model::Lsn first);

class RecordReader {
 public:
  explicit RecordReader(std::string_view payload) : rest_(payload), size_(payload.size()) {}
  // False at the end and at the first bad record; status() tells which.
  bool next(model::RecordView& out);
  base::Status status() const;
  size_t offset() const { return size_ - rest_.size(); }  // of the next record

 private:
  std::string_view rest_;
  size_t size_;
  const char* bad_ = nullptr;
};

struct PayloadInfo {
  uint32_t records = 0;
  model::Version highest;
  bool inside = true;  // every key lies in the interval asked about
};
// Walks the whole payload. malformed or too_large where a record is; the limits are model/record.h's.
base::Result<PayloadInfo> check_records(std::string_view payload, const model::Interval& interval = {});
// The records of `payload` whose key lies in `interval`, as a payload, and how many they are.
std::string filter_records(std::string_view payload, const model::Interval& interval, uint32_t* count);

}  // namespace cantle::wire

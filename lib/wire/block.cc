#include "lib/wire/block.h"

#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"

namespace cantle::wire {
namespace {

using base::Code;
using model::BlockHeader;
using model::BlockKind;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the header's integers are little-endian, as in memory");

// The fixed layout. Offsets are the format: cantle-journal.5.
struct Raw {
  uint32_t magic;
  uint16_t format;
  uint8_t kind;
  uint8_t zero0;
  uint8_t partition[16];
  uint32_t region, records;
  uint64_t epoch, first;
  uint64_t prev_epoch, prev_lsn;
  uint64_t commit, leader_ms, elapsed_ms;
  uint32_t prev_crc, length;
  uint32_t payload_crc, header_crc;
};
static_assert(sizeof(Raw) == kBlockHeaderSize);

bool known(uint8_t kind) {
  switch (static_cast<BlockKind>(kind)) {
    case BlockKind::data:
    case BlockKind::epoch_start:
    case BlockKind::cut:
    case BlockKind::uncut:
    case BlockKind::seal:
    case BlockKind::truncate:
    case BlockKind::divide:
    case BlockKind::root_image:
    case BlockKind::merge:
    case BlockKind::mended_data:
    case BlockKind::mended_epoch_start:
    case BlockKind::mended_cut:
    case BlockKind::mended_uncut: return true;
  }
  return false;
}

Raw raw_of(const BlockHeader& h) {
  Raw r{};
  r.magic = kBlockMagic;
  r.format = kBlockFormat;
  r.kind = static_cast<uint8_t>(h.kind);
  std::memcpy(r.partition, h.partition.bytes.data(), 16);
  r.region = h.region.value;
  r.records = h.records;
  r.epoch = h.epoch.value;
  r.first = h.first.value;
  r.prev_epoch = h.prev_epoch.value;
  r.prev_lsn = h.prev_lsn.value;
  r.commit = h.commit.value;
  r.leader_ms = h.leader_ms;
  r.elapsed_ms = h.elapsed_ms;
  r.prev_crc = h.prev_crc;
  r.length = h.length;
  r.payload_crc = h.payload_crc;
  r.header_crc = h.header_crc;
  return r;
}

// Everything in front of header_crc itself.
uint32_t crc_of(const Raw& r) { return base::crc32c({reinterpret_cast<const char*>(&r), offsetof(Raw, header_crc)}); }

// --- MessagePack, only what a record needs ------------------------------------------------------

constexpr char kArray7 = '\x97';

void put_uint(std::string& out, uint64_t v) {
  const auto big_endian = [&](int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift);
  };
  if (v < 0x80) {
    out += static_cast<char>(v);
  } else if (v <= 0xff) {
    out += '\xcc';
    big_endian(1);
  } else if (v <= 0xffff) {
    out += '\xcd';
    big_endian(2);
  } else if (v <= 0xffffffff) {
    out += '\xce';
    big_endian(4);
  } else {
    out += '\xcf';
    big_endian(8);
  }
}

size_t uint_size(uint64_t v) { return v < 0x80 ? 1 : v <= 0xff ? 2 : v <= 0xffff ? 3 : v <= 0xffffffff ? 5 : 9; }
size_t bin_size(size_t n) { return (n <= 0xff ? 2 : n <= 0xffff ? 3 : 5) + n; }

void put_bin(std::string& out, std::string_view bytes) {
  const size_t n = bytes.size();
  if (n <= 0xff) {
    out += '\xc4';
    out += static_cast<char>(n);
  } else if (n <= 0xffff) {
    out += '\xc5';
    out += static_cast<char>(n >> 8);
    out += static_cast<char>(n);
  } else {
    out += '\xc6';
    base::put_u32_be(out, static_cast<uint32_t>(n));
  }
  out += bytes;
}

// Takes `width` bytes as a big-endian integer.
bool take_be(std::string_view& in, size_t width, uint64_t& v) {
  if (in.size() < width) return false;
  v = 0;
  for (size_t i = 0; i < width; i++) v = v << 8 | static_cast<uint8_t>(in[i]);
  in.remove_prefix(width);
  return true;
}

bool take_uint(std::string_view& in, uint64_t& v) {
  if (in.empty()) return false;
  const auto tag = static_cast<uint8_t>(in[0]);
  in.remove_prefix(1);
  if (tag < 0x80) {
    v = tag;
    return true;
  }
  if (tag < 0xcc || tag > 0xcf) return false;
  return take_be(in, size_t{1} << (tag - 0xcc), v);
}

bool take_bin(std::string_view& in, std::string_view& out) {
  if (in.empty()) return false;
  const auto tag = static_cast<uint8_t>(in[0]);
  in.remove_prefix(1);
  if (tag < 0xc4 || tag > 0xc6) return false;
  uint64_t n = 0;
  if (!take_be(in, size_t{1} << (tag - 0xc4), n) || n > in.size()) return false;
  out = in.substr(0, static_cast<size_t>(n));
  in.remove_prefix(static_cast<size_t>(n));
  return true;
}

// Null, or what is wrong with the next record.
const char* take_record(std::string_view& in, model::RecordView& r) {
  if (in[0] != kArray7) return "a record is an array of 7";
  in.remove_prefix(1);
  uint64_t op = 0, flags = 0;
  std::string_view version;
  if (!take_uint(in, op) || op < 1 || op > 3) return "unknown operation";
  if (!take_bin(in, r.key)) return "bad key";
  if (!take_bin(in, r.value)) return "bad value";
  if (!take_bin(in, version) || version.size() != r.version.bytes.size()) return "bad version";
  if (!take_uint(in, r.client) || !take_uint(in, r.series) || !take_uint(in, flags) || flags > 0xff)
    return "bad series or flags";
  if (r.key.empty() || r.key.size() > model::kKeyMax) return "key of a length not allowed";
  if (r.value.size() > model::kValueMax) return "value too long";
  r.op = static_cast<model::Op>(op);
  if (r.op != model::Op::put && !r.value.empty()) return "a value of what puts none";
  r.flags = static_cast<uint8_t>(flags);
  std::memcpy(r.version.bytes.data(), version.data(), version.size());
  return nullptr;
}

base::Status check_limits(const BlockHeader& h) {
  if (h.length > model::kBlockMax)
    return base::fail(Code::malformed, "block header: payload of " + std::to_string(h.length) + " bytes");
  if (model::is_log_block(h.kind) || model::is_mended(h.kind)) {
    if (h.first.value == 0) return base::fail(Code::malformed, "block header: a log block without an LSN");
    if (h.records == 0 || h.records > UINT64_MAX - h.first.value)
      return base::fail(Code::malformed, "block header: LSNs out of range");
    if (h.prev_lsn.value + 1 != h.first.value)
      return base::fail(Code::malformed, "block header: LSN does not follow the one before");
  } else if (h.first.value != 0 || h.records != 0) {
    return base::fail(Code::malformed, "block header: a local block with LSNs");
  }
  return base::ok();
}

}  // namespace

void seal_block(BlockHeader& header, std::string_view payload) {
  CHECK(payload.size() <= model::kBlockMax);
  header.length = static_cast<uint32_t>(payload.size());
  header.payload_crc = base::crc32c(payload);
  header.header_crc = crc_of(raw_of(header));
}

BlockHeader as_mended(BlockHeader header) {
  CHECK(model::is_log_block(header.kind));
  header.kind = static_cast<BlockKind>(static_cast<uint8_t>(header.kind) + model::kMendedKinds);
  header.header_crc = crc_of(raw_of(header));
  return header;
}

BlockHeader of_mended(BlockHeader header) {
  CHECK(model::is_mended(header.kind));
  header.kind = static_cast<BlockKind>(static_cast<uint8_t>(header.kind) - model::kMendedKinds);
  header.header_crc = crc_of(raw_of(header));
  return header;
}

void encode_header(const BlockHeader& header, char* out) {
  const Raw raw = raw_of(header);
  std::memcpy(out, &raw, sizeof raw);
}

base::Result<BlockHeader> decode_header(std::string_view bytes) {
  if (bytes.size() < kBlockHeaderSize) return base::fail(Code::malformed, "block header: too short");
  Raw r;
  std::memcpy(&r, bytes.data(), sizeof r);
  if (r.magic != kBlockMagic) return base::fail(Code::malformed, "block header: wrong magic");
  if (r.header_crc != crc_of(r)) return base::fail(Code::malformed, "block header: wrong checksum");
  if (r.format != kBlockFormat)
    return base::fail(Code::malformed, "block header: format " + std::to_string(r.format) + " is not known here");
  if (!known(r.kind) || r.zero0 != 0)
    return base::fail(Code::malformed, "block header: kind " + std::to_string(r.kind) + " is not known here");
  BlockHeader h;
  h.kind = static_cast<BlockKind>(r.kind);
  std::memcpy(h.partition.bytes.data(), r.partition, 16);
  h.region = {r.region};
  h.epoch = {r.epoch};
  h.first = {r.first};
  h.records = r.records;
  h.length = r.length;
  h.prev_epoch = {r.prev_epoch};
  h.prev_lsn = {r.prev_lsn};
  h.prev_crc = r.prev_crc;
  h.commit = {r.commit};
  h.leader_ms = r.leader_ms;
  h.elapsed_ms = r.elapsed_ms;
  h.payload_crc = r.payload_crc;
  h.header_crc = r.header_crc;
  TRY(check_limits(h));
  return h;
}

base::Status check_payload(const BlockHeader& header, std::string_view payload) {
  if (payload.size() != header.length || base::crc32c(payload) != header.payload_crc)
    return base::fail(Code::corrupt, "block payload: wrong checksum");
  return base::ok();
}

void append_record(std::string& payload, const model::RecordView& r) {
  CHECK(!r.key.empty() && r.key.size() <= model::kKeyMax && r.value.size() <= model::kValueMax);
  payload += kArray7;
  put_uint(payload, static_cast<uint64_t>(r.op));
  put_bin(payload, r.key);
  put_bin(payload, r.value);
  put_bin(payload, r.version.view());
  put_uint(payload, r.client);
  put_uint(payload, r.series);
  put_uint(payload, r.flags);
}

size_t encoded_size(const model::RecordView& r) {
  return 2 + bin_size(r.key.size()) + bin_size(r.value.size()) + bin_size(r.version.bytes.size()) +
         uint_size(r.client) + uint_size(r.series) + uint_size(r.flags);
}

model::RecordView view_of(const model::Record& r) {
  return {r.op, r.key, r.value, r.version, r.client, r.series, r.flags};
}

model::Record own(const model::RecordView& v) {
  return {v.op, std::string(v.key), std::string(v.value), v.version, v.client, v.series, v.flags};
}

bool RecordReader::next(model::RecordView& out) {
  if (rest_.empty() || bad_ != nullptr) return false;
  std::string_view in = rest_;
  bad_ = take_record(in, out);
  if (bad_ != nullptr) return false;
  rest_ = in;
  return true;
}

base::Status RecordReader::status() const {
  if (bad_ == nullptr) return base::ok();
  return base::fail(Code::malformed, std::string("record at byte ") + std::to_string(offset()) + ": " + bad_);
}

base::Result<PayloadInfo> check_records(std::string_view payload, const model::Interval& interval) {
  if (payload.size() > model::kBlockMax)
    return base::fail(Code::too_large, "more than " + std::to_string(model::kBlockMax) + " bytes of records");
  PayloadInfo info;
  RecordReader in(payload);
  for (model::RecordView r; in.next(r); info.records++) {
    if (r.version > info.highest) info.highest = r.version;
    info.inside = info.inside && interval.contains(r.key);
  }
  TRY(in.status());
  return info;
}

base::Status stamp_records(std::string& payload, model::Epoch epoch, model::Lsn first) {
  RecordReader in(payload);
  auto lsn = first;
  for (model::RecordView r; in.next(r); lsn = lsn.next()) {
    // The version stands behind the value, with two bytes of its own in front of it.
    const auto at = static_cast<size_t>(r.value.data() - payload.data()) + r.value.size() + 2;
    const auto version = model::quorum_version(epoch, lsn);
    std::memcpy(payload.data() + at, version.bytes.data(), version.bytes.size());
  }
  return in.status();
}

std::string filter_records(std::string_view payload, const model::Interval& interval, uint32_t* count) {
  std::string out;
  *count = 0;
  RecordReader in(payload);
  model::RecordView r;
  for (size_t at = 0; in.next(r); at = in.offset()) {
    if (!interval.contains(r.key)) continue;
    out += payload.substr(at, in.offset() - at);
    ++*count;
  }
  return out;
}

}  // namespace cantle::wire

// MessagePack, as far as this project speaks it: heads, a Writer and a Reader that allocates nothing.
//
//   std::string out;
//   wire::Writer w(out);
//   w.map(2); w.str("key"); w.bin(key); w.str("lsn"); w.uint(7);
//
//   wire::Reader r(bytes);
//   uint32_t n = 0;
//   if (!r.map(&n)) ...           // false: another type, or cut short; the position does not move
//
// Its own, and not the library's, because a reader here must resume in the middle of a frame, never allocate
// on the word of a peer, and be cheap to include; the unit tests hold it against msgpack-cxx, byte for byte.
//
// Invariants
//   * The Writer writes the shortest form. The Reader takes every form, str for bin and bin for str.
//   * A count is at most the bytes that are left, a length never passes the end: nothing can be allocated
//     beyond the size of the input.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cantle::wire {

constexpr int kDepthMax = 16;                         // containers in containers
constexpr uint32_t kElementsMax = uint32_t{1} << 17;  // in one array or map

enum class Kind : uint8_t { nil, boolean, uint, sint, real, str, bin, ext, array, map, bad };
std::string_view kind_name(Kind kind);

// The first bytes of a value: all of it for scalars, type and length for the others.
struct Head {
  Kind kind = Kind::bad;
  uint8_t bytes = 0;   // length of the head; 0: more bytes are needed to tell
  uint64_t value = 0;  // boolean, uint; sint as two's complement; real: bits of the double; else length or count
};
Head parse_tagged_head(uint8_t tag, const char* p, size_t left);  // 0xc0 … 0xdf
// `bytes` = 0 for a head that is cut short; Kind::bad for 0xc1. Most heads are one byte: hence inline.
inline Head parse_head(const char* p, size_t left) {
  if (left == 0) return {};
  const auto tag = static_cast<uint8_t>(*p);
  if (tag < 0x80) return {Kind::uint, 1, tag};
  if (tag < 0x90) return {Kind::map, 1, tag & 15u};
  if (tag < 0xa0) return {Kind::array, 1, tag & 15u};
  if (tag < 0xc0) return {Kind::str, 1, tag & 31u};
  if (tag >= 0xe0) return {Kind::sint, 1, static_cast<uint64_t>(int64_t{static_cast<int8_t>(tag)})};
  return parse_tagged_head(tag, p, left);
}

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  void nil() { byte(0xc0); }
  void boolean(bool v) { byte(v ? 0xc3 : 0xc2); }
  void uint(uint64_t v) {
    if (v < 0x80) return byte(static_cast<uint8_t>(v));
    if (v <= 0xff) return sized<uint8_t>(0xcc, v);
    if (v <= 0xffff) return sized<uint16_t>(0xcd, v);
    if (v <= 0xffffffff) return sized<uint32_t>(0xce, v);
    sized<uint64_t>(0xcf, v);
  }
  void sint(int64_t v) {
    if (v >= 0) return uint(static_cast<uint64_t>(v));
    if (v >= -32) return byte(static_cast<uint8_t>(v));
    if (v >= INT8_MIN) return sized<uint8_t>(0xd0, static_cast<uint64_t>(v));
    if (v >= INT16_MIN) return sized<uint16_t>(0xd1, static_cast<uint64_t>(v));
    if (v >= INT32_MIN) return sized<uint32_t>(0xd2, static_cast<uint64_t>(v));
    sized<uint64_t>(0xd3, static_cast<uint64_t>(v));
  }
  void real(double v) { sized<uint64_t>(0xcb, std::bit_cast<uint64_t>(v)); }
  void str(std::string_view v) {
    str_head(v.size());
    out_.append(v);
  }
  void bin(std::string_view v) {
    bin_head(v.size());
    out_.append(v);
  }
  void bin_head(size_t n) {
    if (n <= 0xff) return sized<uint8_t>(0xc4, n);
    if (n <= 0xffff) return sized<uint16_t>(0xc5, n);
    sized<uint32_t>(0xc6, n);
  }
  void array(size_t n) {
    if (n < 16) return byte(static_cast<uint8_t>(0x90 | n));
    if (n <= 0xffff) return sized<uint16_t>(0xdc, n);
    sized<uint32_t>(0xdd, n);
  }
  void map(size_t n) {
    if (n < 16) return byte(static_cast<uint8_t>(0x80 | n));
    if (n <= 0xffff) return sized<uint16_t>(0xde, n);
    sized<uint32_t>(0xdf, n);
  }
  void raw(std::string_view encoded) { out_.append(encoded); }

 private:
  void byte(uint8_t b) { out_.push_back(static_cast<char>(b)); }
  void str_head(size_t n) {
    if (n < 32) return byte(static_cast<uint8_t>(0xa0 | n));
    if (n <= 0xff) return sized<uint8_t>(0xd9, n);
    if (n <= 0xffff) return sized<uint16_t>(0xda, n);
    sized<uint32_t>(0xdb, n);
  }
  template <class Int>
  void sized(uint8_t tag, uint64_t v) {
    char buffer[1 + sizeof(Int)];
    buffer[0] = static_cast<char>(tag);
    for (size_t i = 0; i < sizeof(Int); ++i) buffer[1 + i] = static_cast<char>(v >> (8 * (sizeof(Int) - 1 - i)));
    out_.append(buffer, sizeof buffer);
  }

  std::string& out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return at_ == end_; }
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  Kind peek() const;  // bad at the end or when cut short

  bool nil();
  bool boolean(bool* out);
  bool uint(uint64_t* out);
  bool sint(int64_t* out);           // takes unsigned values that fit
  bool real(double* out);            // takes integers too
  bool text(std::string_view* out);  // str or bin; a view into the input
  bool array(uint32_t* count);
  bool map(uint32_t* count);
  // Passes over one value of any type; false: cut short, 0xc1, or deeper than kDepthMax.
  bool skip(std::string_view* passed = nullptr);

 private:
  const char* at_;
  const char* end_;
};

}  // namespace cantle::wire

#include "lib/wire/msgpack.h"

#include "lib/base/bytes.h"

namespace cantle::wire {
namespace {

uint64_t big_endian(const char* p, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; ++i) v = v << 8 | static_cast<uint8_t>(p[i]);
  return v;
}

template <class Small>
uint64_t widen(uint64_t v) {
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<Small>(v)));
}

// A head whose length is written in `size` bytes behind the tag.
struct Shape {
  Kind kind;
  uint8_t size;
};
constexpr Shape kShapes[32] = {
    {Kind::nil, 0},  {Kind::bad, 0},  {Kind::boolean, 0}, {Kind::boolean, 0}, {Kind::bin, 1},   {Kind::bin, 2},
    {Kind::bin, 4},  {Kind::ext, 1},  {Kind::ext, 2},     {Kind::ext, 4},     {Kind::real, 4},  {Kind::real, 8},
    {Kind::uint, 1}, {Kind::uint, 2}, {Kind::uint, 4},    {Kind::uint, 8},    {Kind::sint, 1},  {Kind::sint, 2},
    {Kind::sint, 4}, {Kind::sint, 8}, {Kind::ext, 0},     {Kind::ext, 0},     {Kind::ext, 0},   {Kind::ext, 0},
    {Kind::ext, 0},  {Kind::str, 1},  {Kind::str, 2},     {Kind::str, 4},     {Kind::array, 2}, {Kind::array, 4},
    {Kind::map, 2},  {Kind::map, 4},
};

}  // namespace

std::string_view kind_name(Kind kind) {
  static constexpr std::string_view kNames[] = {
      "nil", "bool", "unsigned integer", "negative integer", "float", "str", "bin", "ext", "array", "map", "nothing"};
  return kNames[static_cast<size_t>(kind)];
}

Head parse_tagged_head(uint8_t tag, const char* p, size_t left) {
  if (tag == 0xc1) return {Kind::bad, 1, 0};
  const auto shape = kShapes[tag - 0xc0];
  if (left < 1u + shape.size) return {shape.kind, 0, 0};
  Head head{shape.kind, static_cast<uint8_t>(1 + shape.size), big_endian(p + 1, shape.size)};
  switch (shape.kind) {
    case Kind::boolean: head.value = tag & 1; break;
    case Kind::real:
      if (shape.size == 4) {
        const float narrow = std::bit_cast<float>(static_cast<uint32_t>(head.value));
        head.value = std::bit_cast<uint64_t>(static_cast<double>(narrow));
      }
      break;
    case Kind::sint:
      if (shape.size == 1) head.value = widen<int8_t>(head.value);
      if (shape.size == 2) head.value = widen<int16_t>(head.value);
      if (shape.size == 4) head.value = widen<int32_t>(head.value);
      if (static_cast<int64_t>(head.value) >= 0) head.kind = Kind::uint;
      break;
    case Kind::ext:  // the type byte counts as payload
      head.value = (shape.size == 0 ? uint64_t{1} << (tag - 0xd4) : head.value) + 1;
      break;
    default: break;
  }
  return head;
}

Kind Reader::peek() const {
  const auto head = parse_head(at_, static_cast<size_t>(end_ - at_));
  return head.bytes == 0 ? Kind::bad : head.kind;
}

bool Reader::nil() {
  if (at_ == end_ || static_cast<uint8_t>(*at_) != 0xc0) return false;
  ++at_;
  return true;
}

bool Reader::boolean(bool* out) {
  const auto head = parse_head(at_, static_cast<size_t>(end_ - at_));
  if (head.bytes == 0 || head.kind != Kind::boolean) return false;
  *out = head.value != 0;
  at_ += head.bytes;
  return true;
}

bool Reader::uint(uint64_t* out) {
  const auto head = parse_head(at_, static_cast<size_t>(end_ - at_));
  if (head.bytes == 0 || head.kind != Kind::uint) return false;
  *out = head.value;
  at_ += head.bytes;
  return true;
}

bool Reader::sint(int64_t* out) {
  const auto head = parse_head(at_, static_cast<size_t>(end_ - at_));
  if (head.bytes == 0) return false;
  if (head.kind != Kind::sint && (head.kind != Kind::uint || head.value > INT64_MAX)) return false;
  *out = static_cast<int64_t>(head.value);
  at_ += head.bytes;
  return true;
}

bool Reader::real(double* out) {
  const auto head = parse_head(at_, static_cast<size_t>(end_ - at_));
  if (head.bytes == 0) return false;
  if (head.kind == Kind::real)
    *out = std::bit_cast<double>(head.value);
  else if (head.kind == Kind::uint)
    *out = static_cast<double>(head.value);
  else if (head.kind == Kind::sint)
    *out = static_cast<double>(static_cast<int64_t>(head.value));
  else
    return false;
  at_ += head.bytes;
  return true;
}

bool Reader::text(std::string_view* out) {
  const auto left = static_cast<size_t>(end_ - at_);
  const auto head = parse_head(at_, left);
  if (head.bytes == 0 || (head.kind != Kind::str && head.kind != Kind::bin)) return false;
  if (head.value > left - head.bytes) return false;
  *out = {at_ + head.bytes, static_cast<size_t>(head.value)};
  at_ += head.bytes + head.value;
  return true;
}

bool Reader::array(uint32_t* count) {
  const auto left = static_cast<size_t>(end_ - at_);
  const auto head = parse_head(at_, left);
  if (head.bytes == 0 || head.kind != Kind::array) return false;
  if (head.value > left - head.bytes || head.value > kElementsMax) return false;
  *count = static_cast<uint32_t>(head.value);
  at_ += head.bytes;
  return true;
}

bool Reader::map(uint32_t* count) {
  const auto left = static_cast<size_t>(end_ - at_);
  const auto head = parse_head(at_, left);
  if (head.bytes == 0 || head.kind != Kind::map) return false;
  if (head.value * 2 > left - head.bytes || head.value > kElementsMax) return false;
  *count = static_cast<uint32_t>(head.value);
  at_ += head.bytes;
  return true;
}

bool Reader::skip(std::string_view* passed) {
  const char* at = at_;
  uint64_t owed[kDepthMax + 1];  // values still to come at each depth
  int depth = 0;
  owed[0] = 1;
  for (;;) {
    while (owed[depth] == 0) {
      if (depth == 0) {
        if (passed) *passed = {at_, static_cast<size_t>(at - at_)};
        at_ = at;
        return true;
      }
      --depth;
    }
    --owed[depth];
    const auto left = static_cast<size_t>(end_ - at);
    const auto head = parse_head(at, left);
    if (head.bytes == 0 || head.kind == Kind::bad) return false;
    at += head.bytes;
    const uint64_t room = left - head.bytes;
    switch (head.kind) {
      case Kind::str:
      case Kind::bin:
      case Kind::ext:
        if (head.value > room) return false;
        at += head.value;
        break;
      case Kind::array:
      case Kind::map: {
        const uint64_t values = head.kind == Kind::map ? head.value * 2 : head.value;
        if (values > room || head.value > kElementsMax || depth == kDepthMax) return false;
        owed[++depth] = values;
        break;
      }
      default: break;
    }
  }
}

}  // namespace cantle::wire

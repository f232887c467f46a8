#include "lib/base/bytes.h"

#include <nmmintrin.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <cstring>
#include <memory>

#include "lib/base/check.h"

namespace cantle::base {
namespace {

constexpr char kHex[] = "0123456789abcdef";

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

struct CrcTables {
  uint32_t t[8][256];
  CrcTables() : t{} {
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t c = i;
      for (int k = 0; k < 8; k++) c = (c & 1) != 0 ? (c >> 1) ^ 0x82f63b78U : c >> 1;
      t[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
      for (int k = 1; k < 8; k++) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
  }
};

uint32_t crc_soft(const uint8_t* p, size_t n, uint32_t c) {
  static const CrcTables tables;
  const auto& t = tables.t;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t v = 0;
    std::memcpy(&v, p, 8);
    v ^= c;
    c = t[7][v & 255] ^ t[6][(v >> 8) & 255] ^ t[5][(v >> 16) & 255] ^ t[4][(v >> 24) & 255] ^ t[3][(v >> 32) & 255] ^
        t[2][(v >> 40) & 255] ^ t[1][(v >> 48) & 255] ^ t[0][v >> 56];
  }
  for (; n > 0; p++, n--) c = (c >> 8) ^ t[0][(c ^ *p) & 255];
  return c;
}

// What a checksum becomes when kLane zero bytes follow. Linear, so a table for each of its bytes does it.
constexpr size_t kLane = 512;
struct CrcShift {
  uint32_t t[4][256];
  CrcShift() : t{} {
    const uint8_t zeros[kLane] = {};
    for (uint32_t k = 0; k < 4; k++)
      for (uint32_t i = 0; i < 256; i++) t[k][i] = crc_soft(zeros, kLane, i << (8 * k));
  }
  uint32_t operator()(uint32_t c) const {
    return t[0][c & 255] ^ t[1][(c >> 8) & 255] ^ t[2][(c >> 16) & 255] ^ t[3][c >> 24];
  }
};

// The instruction takes a new operand each cycle and gives its result three cycles later: three lanes side by side,
// joined as if they had been taken one after the other.
__attribute__((target("sse4.2"))) uint32_t crc_hard(const uint8_t* p, size_t n, uint32_t c) {
  static const CrcShift shift;
  for (; n >= 3 * kLane; p += 3 * kLane, n -= 3 * kLane) {
    uint64_t lane[3] = {c, 0, 0};
    for (size_t at = 0; at < kLane; at += 8) {
      uint64_t v[3];
      for (size_t i = 0; i < 3; i++) std::memcpy(&v[i], p + i * kLane + at, 8);
      for (size_t i = 0; i < 3; i++) lane[i] = _mm_crc32_u64(lane[i], v[i]);
    }
    c = shift(shift(static_cast<uint32_t>(lane[0])) ^ static_cast<uint32_t>(lane[1])) ^ static_cast<uint32_t>(lane[2]);
  }
  uint64_t c64 = c;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t v = 0;
    std::memcpy(&v, p, 8);
    c64 = _mm_crc32_u64(c64, v);
  }
  c = static_cast<uint32_t>(c64);
  for (; n > 0; p++, n--) c = _mm_crc32_u8(c, *p);
  return c;
}

}  // namespace

std::string to_hex(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const unsigned char c : bytes) {
    out += kHex[c >> 4];
    out += kHex[c & 15];
  }
  return out;
}

Result<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return fail(Code::invalid, "hex string of odd length");
  std::string out;
  out.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = nibble(hex[i]), low = nibble(hex[i + 1]);
    if (high < 0 || low < 0) return fail(Code::invalid, "not a hex digit at " + std::to_string(i));
    out += static_cast<char>(high << 4 | low);
  }
  return out;
}

std::string escape(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const unsigned char c : bytes) {
    if (c > ' ' && c < 0x7f && c != '%') {
      out += static_cast<char>(c);
    } else {
      out += '%';
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  return out;
}

Result<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? nibble(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? nibble(text[i + 2]) : -1;
    if (high < 0 || low < 0) return fail(Code::invalid, "bad %XX escape at " + std::to_string(i));
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return out;
}

void put_u32_be(std::string& out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift);
}
void put_u64_be(std::string& out, uint64_t v) {
  for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift);
}
uint32_t get_u32_be(const void* p) {
  uint32_t v = 0;
  std::memcpy(&v, p, 4);
  return __builtin_bswap32(v);
}
uint64_t get_u64_be(const void* p) {
  uint64_t v = 0;
  std::memcpy(&v, p, 8);
  return __builtin_bswap64(v);
}

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
  static const bool hard = __builtin_cpu_supports("sse4.2") != 0;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  return ~(hard ? crc_hard(p, bytes.size(), ~crc) : crc_soft(p, bytes.size(), ~crc));
}

Sha256 sha256(std::string_view bytes) {
  // Finding the algorithm by its name and making a context cost more than hashing a few hundred bytes.
  static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  Sha256 out{};
  unsigned int n = 0;
  CHECK(EVP_DigestInit_ex2(context.get(), algorithm, nullptr) == 1);
  CHECK(EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) == 1);
  CHECK(EVP_DigestFinal_ex(context.get(), out.data(), &n) == 1);
  CHECK(n == out.size());
  return out;
}

Hash128& Hash128::operator+=(const Hash128& other) {
  const uint64_t before = low;
  low += other.low;
  high += other.high + (low < before ? 1 : 0);
  return *this;
}

Hash128& Hash128::operator-=(const Hash128& other) {
  const uint64_t before = low;
  low -= other.low;
  high -= other.high + (low > before ? 1 : 0);
  return *this;
}

Hash128 hash128(std::string_view bytes) {
  const auto h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

std::string to_hex(const Hash128& hash) {
  std::string bytes;
  put_u64_be(bytes, hash.high);
  put_u64_be(bytes, hash.low);
  return to_hex(std::string_view(bytes));
}

}  // namespace cantle::base

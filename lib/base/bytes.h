// Bytes: helpers over std::string as a byte string: hex, percent escapes, big-endian integers, and
// the two checksums everything uses.
//
// A byte string is std::string / std::string_view throughout; nothing assumes UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace cantle::base {

std::string to_hex(std::string_view bytes);
Result<std::string> from_hex(std::string_view hex);  // invalid: odd length or not hex

// Printable form of a key for people, znodes and command lines: bytes outside [!-~] and '%' become
// %XX. Round trips through unescape. Empty stays empty.
std::string escape(std::string_view bytes);
Result<std::string> unescape(std::string_view text);

void put_u32_be(std::string& out, uint32_t v);
void put_u64_be(std::string& out, uint64_t v);
uint32_t get_u32_be(const void* p);
uint64_t get_u64_be(const void* p);

// CRC-32C (Castagnoli); SSE4.2 where the processor has it. crc32c("123456789") = 0xe3069283.
// `crc` continues an earlier value: crc32c(b, crc32c(a)) = crc32c(a+b).
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

// SHA-256 by libcrypto.
using Sha256 = std::array<uint8_t, 32>;
Sha256 sha256(std::string_view bytes);

// XXH3 of 128 bits; content hashes add these modulo 2^128. Not for hostile input.
struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  Hash128& operator+=(const Hash128& other);  // modulo 2^128
  Hash128& operator-=(const Hash128& other);
};
Hash128 hash128(std::string_view bytes);
std::string to_hex(const Hash128& hash);  // 32 digits

}  // namespace cantle::base

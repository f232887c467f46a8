// Ids and counters, each its own type, so that an LSN never lands in an epoch.
//
// Four identities, never mixed (design/README.md): TxnId says which METADATA file, TxnSeq says in
// what order, Epoch says whose writes count, AssignmentId says which tenure.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "lib/base/random.h"
#include "lib/base/result.h"

namespace cantle::model {

// A random 128-bit name. All zero means "none". Written as 32 hex digits.
template <class Tag>
struct Id128 {
  std::array<uint8_t, 16> bytes{};

  // In the order of the bytes, told by two words: maps of thousands of replicas are asked at every step, and a call of
  // memcmp is most of what a look-up costs.
  bool operator==(const Id128& other) const { return word(0) == other.word(0) && word(8) == other.word(8); }
  std::strong_ordering operator<=>(const Id128& other) const {
    const auto high = word(0), other_high = other.word(0);
    return high != other_high ? high <=> other_high : word(8) <=> other.word(8);
  }
  bool none() const { return *this == Id128{}; }
  size_t hash() const { return word(0) ^ word(8); }
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

  static Id128 draw(base::Random& random) {
    Id128 id;
    while (id.none()) {
      const uint64_t a = random.u64(), b = random.u64();
      std::memcpy(id.bytes.data(), &a, 8);
      std::memcpy(id.bytes.data() + 8, &b, 8);
    }
    return id;
  }
  // `raw` must be 16 bytes: invalid otherwise.
  static base::Result<Id128> from_bytes(std::string_view raw) {
    if (raw.size() != 16)
      return base::fail(base::Code::invalid, "an id has 16 bytes, not " + std::to_string(raw.size()));
    Id128 id;
    std::memcpy(id.bytes.data(), raw.data(), 16);
    return id;
  }

 private:
  // Eight bytes from there on, the first of them the highest.
  uint64_t word(size_t at) const {
    uint64_t raw;
    std::memcpy(&raw, bytes.data() + at, sizeof raw);
    if constexpr (std::endian::native == std::endian::little) raw = __builtin_bswap64(raw);
    return raw;
  }
};

std::string hex_of_id(std::string_view bytes);
base::Result<std::string> bytes_of_id(std::string_view hex);

template <class Tag>
std::string to_string(const Id128<Tag>& id) {
  return hex_of_id(id.view());
}
template <class Id>
base::Result<Id> parse_id(std::string_view hex) {
  TRY_ASSIGN(const auto raw, bytes_of_id(hex));
  return Id::from_bytes(raw);
}

using TableUuid = Id128<struct TableTag>;
using ClusterUuid = Id128<struct ClusterTag>;
using TxnId = Id128<struct TxnTag>;
using ChangeId = Id128<struct ChangeTag>;
using PartitionId = Id128<struct PartitionTag>;
using AssignmentId = Id128<struct AssignmentTag>;
using AttemptId = Id128<struct AttemptTag>;

template <class Tag, class Int>
struct Number {
  Int value = 0;
  auto operator<=>(const Number&) const = default;
  Number next() const { return {static_cast<Int>(value + 1)}; }
};
template <class Tag, class Int>
std::string to_string(const Number<Tag, Int>& n) {
  return std::to_string(n.value);
}

using TxnSeq = Number<struct TxnSeqTag, uint64_t>;  // place in the chain of METADATA files; 1 = creation
using Epoch = Number<struct EpochTag, uint64_t>;    // quorum: government; push: the server's incarnation
using Lsn = Number<struct LsnTag, uint64_t>;        // from 1, contiguous within a partition; 0 = before the first
using Incarnation = Number<struct IncarnationTag, uint64_t>;  // grows with each start of a server (store/data_dir.h)
using Region = Number<struct RegionTag, uint32_t>;            // a partition's short number
using ExtentId = Number<struct ExtentTag, uint32_t>;
using ServerNumber = Number<struct ServerNumberTag, uint32_t>;  // sequence number of the server's arrival event

// Name of a server, from --id: [a-z0-9][a-z0-9_.-]{0,62}.
struct ServerId {
  std::string name;
  auto operator<=>(const ServerId&) const = default;
};
inline const std::string& to_string(const ServerId& id) { return id.name; }
base::Status validate_server_id(std::string_view name);
// Table names: [a-z][a-z0-9_-]{0,62}.
base::Status validate_table_name(std::string_view name);

}  // namespace cantle::model

// For maps that are asked at every step, and whose order nobody needs: ids are random as they are.
template <class Tag>
struct std::hash<cantle::model::Id128<Tag>> {
  size_t operator()(const cantle::model::Id128<Tag>& id) const noexcept { return id.hash(); }
};

// Version: a hybrid logical clock stamp of a record in a push table; newest wins.
//
// 20 bytes, big-endian, compared as bytes: u48 milliseconds, u16 counter, u32 server number,
// u64 incarnation of the server that stamped it. All zero: no version.
//
// In a quorum table it is the record's place in the log: u64 LSN, u32 zero, u64 epoch of its block. It grows along
// the log, and on into the children of a split and the target of a merge, whose LSNs go on from there.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/ids.h"

namespace cantle::model {

struct Version {
  std::array<uint8_t, 20> bytes{};

  auto operator<=>(const Version&) const = default;
  bool none() const { return *this == Version{}; }
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

  base::WallMs ms() const;
  uint16_t counter() const;
  ServerNumber server() const;
  Incarnation incarnation() const;

  static Version make(base::WallMs ms, uint16_t counter, ServerNumber server, Incarnation incarnation);
  static base::Result<Version> from_bytes(std::string_view raw);
};
// Of the record of a quorum table at that LSN, in a block of that epoch.
Version quorum_version(Epoch epoch, Lsn lsn);
Epoch quorum_epoch(const Version& version);
Lsn quorum_lsn(const Version& version);
std::string to_string(const Version& version);  // 40 hex digits

}  // namespace cantle::model

// Address: where a daemon listens: "host:port" with a numeric host ("[::1]:7410", ":7410" for every
// interface), or a Unix socket "unix:/path" or "/path".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace cantle::io {

constexpr size_t kSocketPathMax = 107;  // bytes; longer ones would be cut silently by the kernel's interface

struct Address {
  enum class Kind : uint8_t { tcp, local };
  Kind kind = Kind::tcp;
  std::string host;  // tcp: numeric
  uint16_t port = 0;
  std::string path;  // local

  friend bool operator==(const Address&, const Address&) = default;
};

// invalid: neither form, a host that is a name, a port out of range, a path that is empty or too long.
base::Result<Address> parse_address(std::string_view text);
std::string to_string(const Address& address);

}  // namespace cantle::io

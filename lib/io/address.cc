#include "lib/io/address.h"

#include <arpa/inet.h>

#include <charconv>

namespace cantle::io {
namespace {

bool numeric_host(const std::string& host) {
  unsigned char buffer[16];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 || inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

base::Result<Address> parse_local(std::string_view path) {
  if (path.empty() || path[0] != '/')
    return base::fail(base::Code::invalid, "a Unix socket needs an absolute path, not '" + std::string(path) + "'");
  if (path.find('\0') != std::string_view::npos) return base::fail(base::Code::invalid, "a zero byte in a socket path");
  if (path.size() > kSocketPathMax)
    return base::fail(base::Code::invalid, "socket path " + std::string(path) + " has " + std::to_string(path.size()) +
                                               " bytes; at most " + std::to_string(kSocketPathMax) + " are possible");
  Address address;
  address.kind = Address::Kind::local;
  address.path = path;
  return address;
}

}  // namespace

base::Result<Address> parse_address(std::string_view text) {
  if (text.substr(0, 5) == "unix:") return parse_local(text.substr(5));
  if (!text.empty() && text[0] == '/') return parse_local(text);

  const auto bad = [&](std::string_view why) {
    return base::fail(base::Code::invalid, "address '" + std::string(text) + "': " + std::string(why) +
                                               "; expected a numeric host:port or unix:/path");
  };
  if (text.find('/') != std::string_view::npos) return bad("a Unix socket is named by its absolute path");
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("no port");
  auto host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad("an IPv6 host is written in brackets");
  Address address;
  address.host = host.empty() ? "0.0.0.0" : std::string(host);
  if (!numeric_host(address.host)) return bad("the host is a name or malformed");
  const auto port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || error != std::errc{} || end != port.data() + port.size())
    return bad("the port is no number below 65536");
  return address;
}

std::string to_string(const Address& address) {
  if (address.kind == Address::Kind::local) return "unix:" + address.path;
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace cantle::io

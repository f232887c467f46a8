#include "lib/coord/zk_hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <uv.h>

#include <algorithm>
#include <charconv>

#include "lib/coord/path.h"
#include "lib/io/loop.h"

namespace cantle::coord::zk {

using base::Code;
using base::fail;

namespace {

base::Result<std::pair<std::string, std::string>> parse_server(std::string_view text) {
  std::string host, port = "2181";
  const auto colon = text.rfind(':');
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos) return fail(Code::invalid, "zk://: no ] in " + std::string(text));
    host = text.substr(1, end - 1);
    if (end + 1 < text.size() && text[end + 1] == ':') port = text.substr(end + 2);
  } else {
    host = text.substr(0, colon);
    if (colon != text.npos) port = text.substr(colon + 1);
  }
  unsigned n = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), n);
  if (error != std::errc{} || end != port.data() + port.size() || n == 0 || n > 65535)
    return fail(Code::invalid, "zk://: bad port in " + std::string(text));
  if (host.empty()) return fail(Code::invalid, "zk://: no host in \"" + std::string(text) + "\"");
  return std::pair(host, port);
}

// The addresses of one getaddrinfo answer, as the client wants them written.
void collect(const addrinfo* list, const std::string& port, std::vector<std::string>* out) {
  for (; list; list = list->ai_next) {
    char text[INET6_ADDRSTRLEN] = {};
    if (list->ai_family == AF_INET)
      uv_ip4_name(reinterpret_cast<const sockaddr_in*>(list->ai_addr), text, sizeof text);
    else if (list->ai_family == AF_INET6)
      uv_ip6_name(reinterpret_cast<const sockaddr_in6*>(list->ai_addr), text, sizeof text);
    else
      continue;
    out->push_back(std::string(text) + ":" + port);
  }
}

bool is_numeric(const std::string& host) {
  in6_addr any{};
  return inet_pton(AF_INET, host.c_str(), &any) == 1 || inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

// One resolution: as many look-ups as there are names.
struct Resolution : std::enable_shared_from_this<Resolution> {
  std::function<void(base::Result<std::string>)> done;
  std::vector<std::string> addresses;
  std::string last_error;
  size_t outstanding = 0;

  void finish_one() {
    if (--outstanding > 0) return;
    if (addresses.empty()) return done(fail(Code::unavailable, "zk://: " + last_error));
    done(odd_list(addresses));
  }
};

struct Lookup {
  uv_getaddrinfo_t request{};
  std::weak_ptr<Resolution> resolution;
  std::string host, port;
};

void looked_up(uv_getaddrinfo_t* request, int status, addrinfo* list) {
  const std::unique_ptr<Lookup> lookup(static_cast<Lookup*>(request->data));
  if (auto resolution = lookup->resolution.lock()) {
    if (status == 0)
      collect(list, lookup->port, &resolution->addresses);
    else
      resolution->last_error = lookup->host + ": " + uv_strerror(status);
    resolution->finish_one();
  }
  uv_freeaddrinfo(list);
}

void look_up(io::Loop& loop, const std::shared_ptr<Resolution>& resolution, const std::string& host,
             const std::string& port) {
  auto lookup = std::make_unique<Lookup>();
  lookup->request.data = lookup.get();
  lookup->resolution = resolution;
  lookup->host = host;
  lookup->port = port;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  resolution->outstanding++;
  if (const int rc = uv_getaddrinfo(loop.raw(), &lookup->request, looked_up, host.c_str(), nullptr, &hints)) {
    resolution->last_error = host + ": " + uv_strerror(rc);
    loop.defer([weak = std::weak_ptr(resolution)] {
      if (auto r = weak.lock()) r->finish_one();
    });
    return;
  }
  static_cast<void>(lookup.release());  // looked_up() takes it back
}

}  // namespace

base::Result<Target> parse_target(std::string_view text) {
  Target target;
  const auto slash = text.find('/');
  if (slash != text.npos && slash + 1 < text.size()) {
    target.chroot = text.substr(slash);
    TRY(validate_path(target.chroot));
  }
  auto list = text.substr(0, slash);
  while (true) {
    const auto comma = list.find(',');
    TRY_ASSIGN(auto server, parse_server(list.substr(0, comma)));
    target.servers.push_back(std::move(server));
    if (comma == list.npos) return target;
    list.remove_prefix(comma + 1);
  }
}

std::string odd_list(std::vector<std::string> addresses) {
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  if (addresses.size() % 2 == 0 && !addresses.empty()) addresses.push_back(addresses.front());
  std::string list;
  for (const auto& a : addresses) list.append(list.empty() ? "" : ",").append(a);
  return list;
}

std::shared_ptr<void> resolve(io::Loop& loop, const Target& target,
                              std::function<void(base::Result<std::string>)> done) {
  auto resolution = std::make_shared<Resolution>();
  resolution->done = std::move(done);
  resolution->outstanding = 1;  // ours, so that nothing ends before all have begun
  for (const auto& [host, port] : target.servers) {
    if (is_numeric(host))
      resolution->addresses.push_back(host + ":" + port);
    else
      look_up(loop, resolution, host, port);
  }
  loop.defer([weak = std::weak_ptr(resolution)] {
    if (auto r = weak.lock()) r->finish_one();
  });
  return resolution;
}

}  // namespace cantle::coord::zk

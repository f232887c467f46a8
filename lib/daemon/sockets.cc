#include "lib/daemon/sockets.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "lib/base/log.h"
#include "lib/rpc/server.h"

namespace cantle::daemon {
namespace {

constexpr int kFirstPassed = 3;
constexpr int kPassedMax = 64;

int number_in(const char* text) {
  int value = -1;
  if (text == nullptr) return value;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  return error == std::errc{} && *end == '\0' ? value : -1;
}

std::vector<std::string> split_names(const char* text) {
  std::vector<std::string> names;
  if (text == nullptr) return names;
  std::string_view rest = text;
  for (size_t colon = 0; colon != std::string_view::npos; rest.remove_prefix(std::min(rest.size(), colon + 1))) {
    colon = rest.find(':');
    names.emplace_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
  }
  return names;
}

void note(Listening& result, const io::Address& address) {
  base::log(base::Level::info, "listening", {{"at", to_string(address)}});
  if (address.kind == io::Address::Kind::local) {
    if (result.local.empty()) result.local = address.path;
  } else if (result.tcp.empty()) {
    result.tcp = to_string(address);
  }
}

base::Status listen_passed(rpc::Server& server, const std::vector<PassedSocket>& passed) {
  for (const auto& socket : passed)
    if (auto status = server.listen_fd(socket.fd); !status)
      return base::fail(std::move(status).error().wrap("socket " + socket.name + " from the service manager"));
  return base::ok();
}

base::Status listen_configured(rpc::Server& server, const DaemonFlags& flags, const std::string& role,
                               uint16_t default_port) {
  auto tcp = flags.listen;
  if (tcp.empty() && default_port != 0) tcp.push_back("127.0.0.1:" + std::to_string(default_port));
  for (const auto& text : tcp) {
    TRY_ASSIGN(const auto address, io::parse_address(text));
    TRY(server.listen(address));
  }
  const auto path = flags.socket.empty() ? "/run/cantle/" + role + "-" + flags.id + ".sock" : flags.socket;
  TRY_ASSIGN(const auto local,
             io::parse_address(path.rfind("unix:", 0) == 0 || path[0] == '/' ? path : "unix:" + path));
  if (local.kind != io::Address::Kind::local)
    return base::fail(base::Code::usage, "--socket wants a path, not " + path);
  return server.listen(local);
}

}  // namespace

std::vector<PassedSocket> take_passed_sockets() {
  std::vector<PassedSocket> sockets;
  const int pid = number_in(std::getenv("LISTEN_PID"));
  const int count = number_in(std::getenv("LISTEN_FDS"));
  const auto names = split_names(std::getenv("LISTEN_FDNAMES"));
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  if (pid != getpid() || count <= 0 || count > kPassedMax) return sockets;
  for (int i = 0; i < count; ++i) {
    const int fd = kFirstPassed + i;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets.push_back({fd, static_cast<size_t>(i) < names.size() ? names[static_cast<size_t>(i)] : "unknown"});
  }
  return sockets;
}

base::Result<Listening> listen_all(rpc::Server& server, const DaemonFlags& flags, const std::string& role,
                                   uint16_t default_port) {
  const auto passed = take_passed_sockets();
  if (passed.empty())
    TRY(listen_configured(server, flags, role, default_port));
  else
    TRY(listen_passed(server, passed));
  Listening result;
  for (const auto& address : server.addresses()) note(result, address);
  if (!flags.advertise.empty()) result.tcp = flags.advertise;
  return result;
}

}  // namespace cantle::daemon

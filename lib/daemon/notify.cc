#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "lib/daemon/supervisor.h"

namespace cantle::daemon {

bool notify_manager(const std::string& message) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return false;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const size_t size = std::strlen(path);
  if (size >= sizeof to.sun_path) return false;
  std::memcpy(to.sun_path, path, size);
  if (path[0] == '@') to.sun_path[0] = '\0';  // an abstract address
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size + (path[0] == '@' ? 0 : 1));
  const auto sent =
      sendto(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&to), length);
  close(fd);
  return sent == static_cast<ssize_t>(message.size());
}

}  // namespace cantle::daemon

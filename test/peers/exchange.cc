#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test/peers/protocols.h"

namespace cantle::peers {

std::string exchange(uint16_t port, const std::string& bytes, double seconds,
                     const std::function<bool(std::string_view)>& whole) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string in;
  const double until = bench::now_s() + seconds;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
      ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size())) {
    pollfd p{fd, POLLIN, 0};
    char buffer[65536];
    while (!whole(in) && bench::now_s() < until) {
      if (::poll(&p, 1, 50) <= 0) continue;
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n <= 0) break;
      in.append(buffer, static_cast<size_t>(n));
    }
  }
  ::close(fd);
  return in;
}

}  // namespace cantle::peers

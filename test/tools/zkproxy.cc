// zkproxy: stands between a ZooKeeper client and a server, and loses what it is told to lose.
//
//   zkproxy LISTEN-PORT SERVER-PORT [CONTROL-SOCKET]
//
// Both on 127.0.0.1; LISTEN-PORT 0 picks one. Prints "listening PORT", then answers commands, one a line,
// from stdin or from the clients of the control socket, with a line each:
//
//   swallow KIND    pass the next request of KIND (create set delete multi change get any), keep back its
//                   reply and all that follows it to that client: "ok"
//   lose KIND       cut the connection instead of passing the next request of KIND on: "ok"
//   keep KIND N     pass the next N requests of KIND, keep the one behind them, and all that follows it on its
//                   connection, until `release`; other connections go on: "ok"
//   swallowed       how many replies were kept back, how many requests lost: "2 0"
//   kept            how many requests `keep` has kept: "1"
//   hold WAY        WAY is requests, replies or all: pass nothing more that way, keep it: "ok"
//   release         pass what was held by `hold`: "ok"
//   cut             close all connections; what was held is gone: "ok"
//   refuse          close all connections, and new ones as they come: "ok"
//   accept          no longer: "ok"
//   connections     how many: "1"
//   target PORT     new connections go to another server: "ok"
//   quit
//
// It understands of the protocol what it must: a request is a length, an xid and a type; a reply a
// length and an xid. The first message each way is the connect handshake.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

constexpr size_t kMessageMax = size_t{16} << 20;
constexpr size_t kBufferMax = size_t{64} << 20;  // held back on one connection

enum Type : int32_t { kCreate = 1, kDelete = 2, kGet = 4, kSet = 5, kMulti = 14, kCreate2 = 15, kPing = 11 };

bool is_kind(const std::string& kind, int32_t type) {
  const bool create = type == kCreate || type == kCreate2;
  if (kind == "create") return create;
  if (kind == "set") return type == kSet;
  if (kind == "delete") return type == kDelete;
  if (kind == "multi") return type == kMulti;
  if (kind == "get") return type == kGet;
  if (kind == "change") return create || type == kSet || type == kDelete || type == kMulti;
  return kind == "any" && type > 0 && type != kPing;
}

bool known_kind(const std::string& kind) {
  for (const char* k : {"create", "set", "delete", "multi", "get", "change", "any"})
    if (kind == k) return true;
  return false;
}

int32_t int_at(const std::string& bytes, size_t at) {
  uint32_t n = 0;
  std::memcpy(&n, bytes.data() + at, 4);
  return static_cast<int32_t>(ntohl(n));
}

// A whole message at the front, with its length; empty while it is not all there.
std::string next_message(const std::string& buffer) {
  if (buffer.size() < 4) return "";
  const auto length = static_cast<uint32_t>(int_at(buffer, 0));
  if (length > kMessageMax || buffer.size() < 4 + length) return "";
  return buffer.substr(0, 4 + length);
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

struct Way {  // one direction of a connection
  int from = -1, to = -1;
  std::string in;   // read, not yet looked at
  std::string out;  // to be written
  bool greeted = false;
};

struct Connection {
  Way requests, replies;
  std::optional<int32_t> keep_back;  // the xid whose reply is kept back
  bool mute = false;                 // it came: nothing more to this client
  bool stuck = false;                // a request of it is kept: it waits for `release`
  bool dead = false;
};

class Proxy {
 public:
  Proxy(int listener, uint16_t target) : listener_(listener), target_(target) {}

  std::string command(const std::string& line);
  bool quit() const { return quit_; }
  // Fills and reads one round of poll().
  void add(std::vector<pollfd>& fds) const;
  void handle(const std::vector<pollfd>& fds);

 private:
  void open_connection();
  void pump(Connection& c);
  void pump_requests(Connection& c);
  void pump_replies(Connection& c);
  void cut() {
    for (auto& c : connections_) close_both(c);
    connections_.clear();
  }
  static void close_both(Connection& c) {
    ::close(c.requests.from);
    ::close(c.replies.from);
  }
  static void transfer(Way& way, const pollfd* readable, const pollfd* writable, bool* dead);

  int listener_;
  uint16_t target_;
  std::list<Connection> connections_;
  std::string swallow_, lose_, keep_;
  unsigned swallowed_ = 0, lost_ = 0, kept_ = 0, passes_ = 0;
  bool hold_requests_ = false, hold_replies_ = false, refuse_ = false, quit_ = false;
};

int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

void Proxy::open_connection() {
  const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = refuse_ ? -1 : connect_to(target_);
  if (server < 0) {
    ::close(client);
    return;
  }
  for (const int fd : {client, server}) {
    set_nonblocking(fd);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  auto& c = connections_.emplace_back();
  c.requests = {client, server, "", "", false};
  c.replies = {server, client, "", "", false};
}

void Proxy::pump_requests(Connection& c) {
  while (!hold_requests_ && !c.dead && !c.stuck) {
    const auto message = next_message(c.requests.in);
    if (message.empty()) return;
    if (c.requests.greeted && message.size() >= 12 && is_kind(keep_, int_at(message, 8)) && passes_-- == 0) {
      keep_.clear();
      kept_++;
      c.stuck = true;
      return;
    }
    c.requests.in.erase(0, message.size());
    if (c.requests.greeted && message.size() >= 12) {
      const auto xid = int_at(message, 4), type = int_at(message, 8);
      if (is_kind(lose_, type)) {
        lose_.clear();
        lost_++;
        c.dead = true;
        return;
      }
      if (is_kind(swallow_, type)) {
        swallow_.clear();
        c.keep_back = xid;
      }
    }
    c.requests.greeted = true;
    c.requests.out += message;
  }
}

void Proxy::pump_replies(Connection& c) {
  while (!hold_replies_ && !c.mute) {
    const auto message = next_message(c.replies.in);
    if (message.empty()) return;
    c.replies.in.erase(0, message.size());
    if (c.replies.greeted && message.size() >= 8 && c.keep_back && int_at(message, 4) == *c.keep_back) {
      c.mute = true;
      swallowed_++;
      return;
    }
    c.replies.greeted = true;
    c.replies.out += message;
  }
}

void Proxy::pump(Connection& c) {
  pump_requests(c);
  pump_replies(c);
}

void Proxy::add(std::vector<pollfd>& fds) const {
  fds.push_back({listener_, POLLIN, 0});
  for (const auto& c : connections_) {
    const auto events = [](const Way& reading, const Way& writing) {
      return static_cast<short>((reading.in.size() < kBufferMax ? POLLIN : 0) | (writing.out.empty() ? 0 : POLLOUT));
    };
    fds.push_back({c.requests.from, events(c.requests, c.replies), 0});
    fds.push_back({c.replies.from, events(c.replies, c.requests), 0});
  }
}

void Proxy::transfer(Way& way, const pollfd* readable, const pollfd* writable, bool* dead) {
  char buffer[65536];
  if (readable->revents & (POLLIN | POLLHUP | POLLERR)) {
    const auto n = ::read(way.from, buffer, sizeof buffer);
    if (n > 0)
      way.in.append(buffer, static_cast<size_t>(n));
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
      *dead = true;
  }
  if (!way.out.empty() && (writable->revents & POLLOUT)) {
    const auto n = ::write(way.to, way.out.data(), way.out.size());
    if (n > 0)
      way.out.erase(0, static_cast<size_t>(n));
    else if (errno != EAGAIN && errno != EINTR)
      *dead = true;
  }
}

void Proxy::handle(const std::vector<pollfd>& fds) {
  std::map<int, const pollfd*> by_fd;
  for (const auto& p : fds) by_fd[p.fd] = &p;
  for (auto it = connections_.begin(); it != connections_.end();) {
    auto& c = *it;
    const auto *client = by_fd[c.requests.from], *server = by_fd[c.replies.from];
    if (client && server) {
      transfer(c.requests, client, server, &c.dead);
      transfer(c.replies, server, client, &c.dead);
    }
    pump(c);
    if (c.dead)
      close_both(c), it = connections_.erase(it);
    else
      ++it;
  }
  if (by_fd[listener_] && (by_fd[listener_]->revents & POLLIN)) open_connection();
}

std::string Proxy::command(const std::string& line) {
  const auto space = line.find(' ');
  const auto verb = line.substr(0, space);
  const auto word = space == line.npos ? "" : line.substr(space + 1);
  if (verb == "swallow" && known_kind(word)) return swallow_ = word, "ok";
  if (verb == "lose" && known_kind(word)) return lose_ = word, "ok";
  if (verb == "keep") {
    const auto gap = word.find(' ');
    const auto kind = word.substr(0, gap);
    if (!known_kind(kind) || gap == word.npos) return "unknown: " + line;
    passes_ = static_cast<unsigned>(std::strtoul(word.c_str() + gap, nullptr, 10));
    return keep_ = kind, "ok";
  }
  if (verb == "kept") return std::to_string(kept_);
  if (verb == "swallowed") return std::to_string(swallowed_) + " " + std::to_string(lost_);
  if (verb == "connections") return std::to_string(connections_.size());
  if (verb == "hold" && (word == "requests" || word == "replies" || word == "all")) {
    hold_requests_ |= word != "replies";
    hold_replies_ |= word != "requests";
    return "ok";
  }
  if (verb == "release") {
    hold_requests_ = hold_replies_ = false;
    for (auto& c : connections_) c.stuck = false, pump(c);
    return "ok";
  }
  if (verb == "cut") return cut(), "ok";
  if (verb == "refuse") return refuse_ = true, cut(), "ok";
  if (verb == "accept") return refuse_ = false, "ok";
  if (verb == "target") return target_ = static_cast<uint16_t>(std::strtoul(word.c_str(), nullptr, 10)), "ok";
  if (verb == "quit") return quit_ = true, "ok";
  return "unknown: " + line;
}

int listen_on(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(fd, 64) != 0) {
    std::perror("zkproxy: listen");
    std::exit(1);
  }
  set_nonblocking(fd);
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("listening %u\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return fd;
}

int listen_at(const char* path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  ::unlink(path);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(fd, 8) != 0) {
    std::perror("zkproxy: control socket");
    std::exit(1);
  }
  return fd;
}

struct Talker {  // where commands come from and answers go
  int in, out;
  std::string buffer;
};

// False: it went away.
bool listen_to(Talker& talker, Proxy& proxy) {
  char bytes[4096];
  const auto n = ::read(talker.in, bytes, sizeof bytes);
  if (n <= 0) return false;
  talker.buffer.append(bytes, static_cast<size_t>(n));
  for (size_t end; (end = talker.buffer.find('\n')) != std::string::npos; talker.buffer.erase(0, end + 1)) {
    const auto answer = proxy.command(talker.buffer.substr(0, end)) + "\n";
    if (::write(talker.out, answer.data(), answer.size()) < 0) return false;
  }
  return true;
}

void run(Proxy& proxy, int control) {
  std::list<Talker> talkers;
  talkers.push_back({STDIN_FILENO, STDOUT_FILENO, ""});
  while (!proxy.quit()) {
    std::vector<pollfd> fds;
    for (const auto& t : talkers) fds.push_back({t.in, POLLIN, 0});
    fds.push_back({control, POLLIN, 0});  // -1 is ignored
    const auto ours = fds.size();
    proxy.add(fds);
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    proxy.handle({fds.begin() + static_cast<long>(ours), fds.end()});
    size_t i = 0;
    for (auto it = talkers.begin(); it != talkers.end(); i++) {
      const bool gone = (fds[i].revents & (POLLIN | POLLHUP)) && !listen_to(*it, proxy);
      const bool driver = it->in == STDIN_FILENO;
      if (gone && driver && control < 0) return;  // nobody is left to talk to
      if (gone && !driver) ::close(it->in);
      it = gone ? talkers.erase(it) : std::next(it);
    }
    if (fds[ours - 1].revents & POLLIN) {
      const int fd = ::accept4(control, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) talkers.push_back({fd, fd, ""});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: zkproxy LISTEN-PORT SERVER-PORT [CONTROL-SOCKET]\n");
    return 64;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const auto port = [&](int i) { return static_cast<uint16_t>(std::strtoul(argv[i], nullptr, 10)); };
  Proxy proxy(listen_on(port(1)), port(2));
  run(proxy, argc > 3 ? listen_at(argv[3]) : -1);
}

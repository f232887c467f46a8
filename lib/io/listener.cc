#include "lib/io/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/io/log_gate.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"

namespace cantle::io {
namespace {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress socket_address(const Address& address) {
  SocketAddress result;
  if (address.kind == Address::Kind::local) {
    auto* local = reinterpret_cast<sockaddr_un*>(&result.storage);
    local->sun_family = AF_UNIX;
    std::memcpy(local->sun_path, address.path.data(), address.path.size());
    result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.path.size() + 1);
  } else if (address.host.find(':') == std::string::npos) {
    CHECK(uv_ip4_addr(address.host.c_str(), address.port, reinterpret_cast<sockaddr_in*>(&result.storage)) == 0);
    result.size = sizeof(sockaddr_in);
  } else {
    CHECK(uv_ip6_addr(address.host.c_str(), address.port, reinterpret_cast<sockaddr_in6*>(&result.storage)) == 0);
    result.size = sizeof(sockaddr_in6);
  }
  return result;
}

base::Error listen_error(const Address& address, std::string_view what, int err) {
  auto error = base::errno_error(to_string(address) + ": " + std::string(what), err);
  if (err == EADDRINUSE) error.code = base::Code::conflict;
  if (err == EACCES || err == EPERM) error.code = base::Code::denied;
  if (err == EADDRNOTAVAIL || err == ENOENT || err == ENOTDIR) error.code = base::Code::invalid;
  return error;
}

Address bound_address(int fd) {
  SocketAddress at;
  at.size = sizeof at.storage;
  Address address;
  if (getsockname(fd, at.get(), &at.size) != 0) return address;
  char host[64] = "";
  if (at.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&at.storage);
    uv_ip4_name(v4, host, sizeof host);
    address.port = ntohs(v4->sin_port);
  } else if (at.storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&at.storage);
    uv_ip6_name(v6, host, sizeof host);
    address.port = ntohs(v6->sin6_port);
  } else {
    address.kind = Address::Kind::local;
    address.path = reinterpret_cast<const sockaddr_un*>(&at.storage)->sun_path;
  }
  address.host = host;
  return address;
}

// A socket file with nobody behind it is removed; a live one, or another kind of file, is left alone.
base::Status remove_stale_socket(const Address& address) {
  struct stat st {};
  if (lstat(address.path.c_str(), &st) != 0)
    return errno == ENOENT ? base::ok() : base::fail(listen_error(address, "stat", errno));
  if (!S_ISSOCK(st.st_mode)) return base::fail(base::Code::conflict, address.path + " exists and is not a socket");
  const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe.get() < 0) return base::fail(listen_error(address, "socket", errno));
  auto to = socket_address(address);
  if (connect(probe.get(), to.get(), to.size) == 0 || errno == EAGAIN || errno == EINPROGRESS)
    return base::fail(base::Code::conflict, address.path + ": another process listens there");
  if (errno != ECONNREFUSED && errno != ENOENT) return base::fail(listen_error(address, "probe", errno));
  if (unlink(address.path.c_str()) != 0 && errno != ENOENT) return base::fail(listen_error(address, "remove", errno));
  return base::ok();
}

// uv_poll_t lives until it is closed; the listener may be gone by then.
struct Poll {
  uv_poll_t handle{};
  std::function<void()> ready;
};

// The kernel gives the lowest number that is free: a high one says how many are in use, by whomever.
bool running_short(int fd, Address::Kind kind) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return false;
  const auto limit = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, INT32_MAX));
  const auto reserved = std::clamp<int64_t>(limit / 4, kReservedDescriptorsMin, kReservedDescriptors);
  return fd >= limit - (kind == Address::Kind::local ? reserved / 2 : reserved);
}

bool out_of_resources(int err) { return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS; }

}  // namespace

struct Listener::Core {
  Core(Loop& l, Accept a) : loop(l), accept(std::move(a)), pause(l, [this] { want(true); }) {}
  ~Core() { close(); }

  Loop& loop;
  Accept accept;
  std::function<bool()> room;
  Timer pause;
  Fd fd, reserve, lock;
  Poll* poll = nullptr;
  Address address;
  dev_t socket_dev = 0;  // of the socket file that we made
  ino_t socket_ino = 0;
  uint64_t accepted = 0, refused = 0, starved = 0;
  LogGate gate;

  base::Status bind_local(const Address& to);
  base::Status bind_tcp(const Address& to);
  base::Status begin();
  void want(bool on);
  void ready();
  bool take_one();
  void take(int connection);
  void starve(int err);
  void close();
};

base::Status Listener::Core::bind_local(const Address& to) {
  lock.reset(open((to.path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0660));
  if (lock.get() < 0) return base::fail(listen_error(to, "lock file", errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return base::fail(base::Code::conflict, to.path + ": another process holds its lock file");
  TRY(remove_stale_socket(to));
  fd.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return base::fail(listen_error(to, "socket", errno));
  auto at = socket_address(to);
  if (bind(fd.get(), at.get(), at.size) != 0) return base::fail(listen_error(to, "bind", errno));
  // Nobody can connect before listen(), so the mode is right in time.
  struct stat st {};
  if (chmod(to.path.c_str(), 0660) != 0 || lstat(to.path.c_str(), &st) != 0)
    return base::fail(listen_error(to, "mode", errno));
  socket_dev = st.st_dev;
  socket_ino = st.st_ino;
  return base::ok();
}

base::Status Listener::Core::bind_tcp(const Address& to) {
  auto at = socket_address(to);
  fd.reset(socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return base::fail(listen_error(to, "socket", errno));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), at.get(), at.size) != 0) return base::fail(listen_error(to, "bind", errno));
  return base::ok();
}

base::Status Listener::Core::begin() {
  if (::listen(fd.get(), kBacklog) != 0) return base::fail(listen_error(address, "listen", errno));
  address = bound_address(fd.get());
  reserve.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  poll = new Poll;
  poll->ready = [this] { ready(); };
  if (const int rc = uv_poll_init(loop.raw(), &poll->handle, fd.get()); rc != 0) {
    delete std::exchange(poll, nullptr);
    return base::fail(base::Code::io_error, to_string(address) + ": " + uv_strerror(rc));
  }
  poll->handle.data = poll;
  want(true);
  return base::ok();
}

void Listener::Core::want(bool on) {
  if (!poll) return;
  if (!on) {
    uv_poll_stop(&poll->handle);
    return;
  }
  const auto fire = [](uv_poll_t* h, int, int) {
    auto* self = static_cast<Poll*>(h->data);
    if (self->ready) self->ready();
  };
  CHECK(uv_poll_start(&poll->handle, UV_READABLE, fire) == 0);
}

void Listener::Core::ready() {
  const auto refused_before = refused;
  for (int i = 0; i < kAcceptsPerTurn && poll; ++i)
    if (!take_one()) return;
  // A turn full of connections that nobody has room for: let them wait in the backlog.
  if (poll && refused != refused_before) {
    want(false);
    pause.start(kAcceptPause);
  }
}

bool Listener::Core::take_one() {
  const int connection = accept4(fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (connection >= 0) {
    take(connection);
    return true;
  }
  if (errno == EINTR || errno == ECONNABORTED || errno == EPERM || errno == EPROTO) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
  starve(errno);
  return false;
}

void Listener::Core::take(int connection) {
  if ((room && !room()) || running_short(connection, address.kind)) {
    ++refused;
    ::close(connection);
    if (gate.open(loop.now()))
      base::log(base::Level::warn, "connections-full",
                {{"at", to_string(address)}, {"refused", refused}, {"missed", gate.take_missed()}});
    return;
  }
  ++accepted;
  accept(std::make_unique<Conn>(loop, address.kind, connection));
}

void Listener::Core::starve(int err) {
  ++starved;
  if (out_of_resources(err) && reserve.get() >= 0) {
    // One of those who wait learns that it is in vain; that also makes the event go away for one of them.
    reserve.reset();
    const int connection = accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) ::close(connection);
    reserve.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (reserve.get() < 0) reserve.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (gate.open(loop.now()))
    base::log(base::Level::warn, "accept-starved",
              {{"at", to_string(address)}, {"error", std::strerror(err)}, {"missed", gate.take_missed()}});
  want(false);
  pause.start(kAcceptPause);
}

void Listener::Core::close() {
  pause.stop();
  if (auto* old = std::exchange(poll, nullptr)) {
    old->ready = nullptr;
    uv_close(reinterpret_cast<uv_handle_t*>(&old->handle), [](uv_handle_t* h) { delete static_cast<Poll*>(h->data); });
  }
  fd.reset();
  reserve.reset();
  if (socket_ino != 0) {
    struct stat st {};
    const bool ours = lstat(address.path.c_str(), &st) == 0 && st.st_dev == socket_dev && st.st_ino == socket_ino;
    if (ours) unlink(address.path.c_str());
    socket_ino = 0;
  }
  lock.reset();
}

Listener::Listener(Loop& loop, Accept accept) : core_(std::make_unique<Core>(loop, std::move(accept))) {}
Listener::~Listener() = default;

base::Status Listener::listen(const Address& address) {
  auto& core = *core_;
  CHECK(!core.poll);
  core.address = address;
  auto status = address.kind == Address::Kind::local ? core.bind_local(address) : core.bind_tcp(address);
  if (status) status = core.begin();
  if (!status) core.close();
  return status;
}

base::Status Listener::listen_fd(int fd) {
  auto& core = *core_;
  CHECK(!core.poll);
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return base::fail(base::Code::invalid, "descriptor " + std::to_string(fd) + " is not a stream socket");
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return base::fail(base::errno_error("descriptor " + std::to_string(fd), errno));
  core.fd.reset(fd);
  core.address = bound_address(fd);
  auto status = core.begin();
  if (!status) core.close();
  return status;
}

void Listener::close() { core_->close(); }
void Listener::set_room(std::function<bool()> room) { core_->room = std::move(room); }
Address Listener::address() const { return core_->address; }
uint64_t Listener::accepted() const { return core_->accepted; }
uint64_t Listener::refused() const { return core_->refused; }
uint64_t Listener::starved() const { return core_->starved; }

}  // namespace cantle::io

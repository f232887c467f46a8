#include "lib/io/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "lib/base/check.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"

namespace cantle::io {
namespace {

constexpr size_t kKeepBuffer = size_t{16} << 20;   // a buffer that grew beyond this is given back once it is sent
constexpr size_t kLingerBytes = size_t{16} << 20;  // discarded of what a peer sends behind our last word

base::Error broken(std::string_view what, int uv_error) {
  return {base::Code::unavailable, std::string(what) + ": " + uv_strerror(uv_error)};
}

void set_option(int fd, int level, int name, int value) {
  // Each is a safeguard of its own; a kernel that refuses one keeps the connection.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

int seconds(base::Duration d) { return static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(d).count()); }

void tune_tcp(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds(kKeepaliveIdle));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds(kKeepaliveInterval));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveCount);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(base::to_ms(kUserTimeout)));
}

std::string name_of_peer(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  char host[64] = "";
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    uv_ip4_name(v4, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    uv_ip6_name(v6, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6->sin6_port));
  }
  ucred who{};
  size = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return "unix:?";
  return "unix:pid=" + std::to_string(who.pid) + ",uid=" + std::to_string(who.uid);
}

// A message that is sent from where it lies, and what was written before it.
struct Large {
  std::string before;
  std::shared_ptr<const std::string> bytes;
};

}  // namespace

void ConnHandler::on_eof(Conn& conn) { conn.finish(); }

// What the loop knows of a connection. It outlives the Conn until the handle is closed.
struct Conn::Core final : Flushable {
  Core(Loop& l, Address::Kind k) : loop(l), kind(k) {}

  Loop& loop;
  Address::Kind kind;
  union {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
  } uv{};
  std::shared_ptr<Core> self;  // dropped when the handle is closed; the Conn has another
  Conn* owner = nullptr;
  ConnHandler* handler = nullptr;
  std::string peer;

  std::string out;                          // goes out at the next flush, behind `large`
  std::string sending;                      // held by the one uv_write under way
  std::vector<Large> large, sending_large;  // likewise
  size_t large_bytes = 0;
  std::vector<uv_buf_t> pieces;  // of one system call
  uv_write_t write_request{};
  uv_connect_t connect_request{};
  uv_shutdown_t shutdown_request{};
  std::optional<Timer> linger;

  bool connecting = false, closed = false, eof = false;
  bool wants_bytes = false, paused = false, throttled = false, reading = false;
  bool writing = false, above_high = false;
  bool finishing = false, shut = false;
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t turn = 0;
  size_t turn_bytes = 0, discarded = 0;

  void init();
  void opened(int fd);
  void update_reading();
  void received(ssize_t n, const char* bytes);
  void throttle(size_t n);
  void cut(const std::vector<Large>& before, std::string_view last, size_t done);
  void flush() override;
  void sent(int status);
  void check_drained();
  void finish_if_sent();
  void end(const base::Error& why);
  void end_later(const base::Error& why);
  void release();
  bool has_output() const { return !out.empty() || !large.empty(); }
  size_t unsent() const {
    return out.size() + large_bytes + (writing ? uv_stream_get_write_queue_size(&uv.stream) : 0);
  }

  static Core& of(uv_handle_t* h) { return *static_cast<Core*>(h->data); }
  static Core& of(uv_stream_t* s) { return *static_cast<Core*>(s->data); }
};

void Conn::Core::init() {
  if (kind == Address::Kind::tcp)
    CHECK(uv_tcp_init(loop.raw(), &uv.tcp) == 0);
  else
    CHECK(uv_pipe_init(loop.raw(), &uv.pipe, 0) == 0);
  uv.handle.data = this;
}

void Conn::Core::opened(int fd) {
  if (kind == Address::Kind::tcp) tune_tcp(fd);
  peer = name_of_peer(fd);
}

void Conn::Core::update_reading() {
  const bool want = !closed && !connecting && !eof && !throttled && handler && ((wants_bytes && !paused) || finishing);
  if (want == reading) return;
  reading = want;
  if (!want) {
    uv_read_stop(&uv.stream);
    return;
  }
  const auto lend = [](uv_handle_t* h, size_t, uv_buf_t* buf) {
    *buf = uv_buf_init(of(h).loop.read_buffer(), kReadBuffer);
  };
  const auto got = [](uv_stream_t* s, ssize_t n, const uv_buf_t* buf) { of(s).received(n, buf->base); };
  if (const int rc = uv_read_start(&uv.stream, lend, got); rc != 0) end_later(broken("read", rc));
}

void Conn::Core::received(ssize_t n, const char* bytes) {
  if (n == 0) return;  // EAGAIN
  if (n == UV_EOF) {
    eof = true;
    update_reading();
    if (finishing)
      finish_if_sent();
    else
      handler->on_eof(*owner);
    return;
  }
  if (n < 0) return end(broken("read", static_cast<int>(n)));
  const auto size = static_cast<size_t>(n);
  bytes_in += size;
  throttle(size);
  if (!finishing) return handler->on_bytes(*owner, {bytes, size});
  discarded += size;
  if (discarded > kLingerBytes) end({base::Code::cancelled, "closed here"});
}

// Whoever sends without pause waits for the others once he had his share of a turn.
void Conn::Core::throttle(size_t n) {
  if (turn != loop.turns()) {
    turn = loop.turns();
    turn_bytes = 0;
  }
  turn_bytes += n;
  if (turn_bytes < kBytesPerTurn || throttled) return;
  throttled = true;
  update_reading();
  loop.next_turn([weak = std::weak_ptr(self)] {
    if (const auto core = weak.lock()) {
      core->throttled = false;
      core->update_reading();
    }
  });
}

// Into the pieces of one system call, from byte `done` on.
void Conn::Core::cut(const std::vector<Large>& before, std::string_view last, size_t done) {
  pieces.clear();
  const auto add = [&](std::string_view bytes) {
    const size_t passed = std::min(done, bytes.size());
    done -= passed;
    bytes.remove_prefix(passed);
    if (!bytes.empty())
      pieces.push_back(uv_buf_init(const_cast<char*>(bytes.data()), static_cast<unsigned>(bytes.size())));
  };
  for (const auto& l : before) {
    add(l.before);
    add(*l.bytes);
  }
  add(last);
}

void Conn::Core::flush() {
  if (closed || connecting || writing || !has_output()) return;
  cut(large, out, 0);
  const size_t whole = out.size() + large_bytes;
  int n = uv_try_write(&uv.stream, pieces.data(), static_cast<unsigned>(pieces.size()));
  if (n == UV_EAGAIN) n = 0;
  if (n < 0) return end(broken("write", n));
  const auto done = static_cast<size_t>(n);
  bytes_out += done;
  if (done == whole) {
    out.clear();
    large.clear();
    large_bytes = 0;
    if (out.capacity() > kKeepBuffer) out.shrink_to_fit();
    check_drained();
    finish_if_sent();
    return;
  }
  out.swap(sending);
  large.swap(sending_large);
  large_bytes = 0;
  cut(sending_large, sending, done);
  bytes_out += whole - done;
  writing = true;
  write_request.data = this;
  const auto written = [](uv_write_t* r, int status) { static_cast<Core*>(r->data)->sent(status); };
  if (const int rc = uv_write(&write_request, &uv.stream, pieces.data(), static_cast<unsigned>(pieces.size()), written);
      rc != 0) {
    writing = false;
    end(broken("write", rc));
  }
}

void Conn::Core::sent(int status) {
  writing = false;
  sending.clear();
  sending_large.clear();
  if (sending.capacity() > kKeepBuffer) sending.shrink_to_fit();
  if (closed || !owner) return;
  if (status != 0) return end(broken("write", status));
  flush();
  check_drained();
}

void Conn::Core::check_drained() {
  if (!above_high || closed || !owner || unsent() > kOutputLow) return;
  above_high = false;
  if (!finishing) handler->on_drained(*owner);
}

void Conn::Core::finish_if_sent() {
  if (!finishing || closed || connecting || writing || has_output()) return;
  if (eof) return end_later({base::Code::cancelled, "closed here"});
  if (shut) return;
  shut = true;
  if (uv_shutdown(&shutdown_request, &uv.stream, [](uv_shutdown_t*, int) {}) != 0)
    return end_later({base::Code::cancelled, "closed here"});
  linger->start(kLinger);
}

void Conn::Core::end(const base::Error& why) {
  if (closed) return;
  const auto keep = self;
  release();
  if (owner) handler->on_closed(*owner, why);
}

void Conn::Core::end_later(const base::Error& why) {
  loop.defer([weak = std::weak_ptr(self), why] {
    if (const auto core = weak.lock()) core->end(why);
  });
}

void Conn::Core::release() {
  if (closed) return;
  closed = true;
  reading = false;
  loop.forget(*this);
  linger.reset();
  uv_close(&uv.handle, [](uv_handle_t* h) {
    auto keep = std::move(of(h).self);
    keep.reset();
  });
}

std::unique_ptr<Conn> Conn::connect(Loop& loop, const Address& address, ConnHandler& handler) {
  const auto core = std::make_shared<Core>(loop, address.kind);
  core->self = core;
  core->init();
  auto conn = std::unique_ptr<Conn>(new Conn(core));
  core->handler = &handler;
  core->peer = to_string(address);
  core->connecting = true;
  core->connect_request.data = core.get();
  const auto done = [](uv_connect_t* r, int status) {
    auto& self = *static_cast<Core*>(r->data);
    if (self.closed || !self.owner) return;
    self.connecting = false;
    if (status != 0) return self.end(broken("connect to " + self.peer, status));
    uv_os_fd_t fd = -1;
    const auto name = self.peer;
    if (uv_fileno(&self.uv.handle, &fd) == 0) self.opened(fd);
    self.peer = name;
    self.wants_bytes = true;
    self.update_reading();
    if (self.has_output()) self.loop.flush_soon(self);
    self.handler->on_connected(*self.owner);
  };
  int rc = 0;
  if (address.kind == Address::Kind::local) {
    CHECK(address.path.size() <= kSocketPathMax);  // parse_address() refused it
    uv_pipe_connect(&core->connect_request, &core->uv.pipe, address.path.c_str(), done);
  } else {
    sockaddr_storage to{};
    rc = address.host.find(':') == std::string::npos
             ? uv_ip4_addr(address.host.c_str(), address.port, reinterpret_cast<sockaddr_in*>(&to))
             : uv_ip6_addr(address.host.c_str(), address.port, reinterpret_cast<sockaddr_in6*>(&to));
    if (rc == 0) rc = uv_tcp_connect(&core->connect_request, &core->uv.tcp, reinterpret_cast<sockaddr*>(&to), done);
  }
  if (rc != 0) core->end_later(broken("connect to " + core->peer, rc));
  return conn;
}

Conn::Conn(std::shared_ptr<Core> core) : core_(std::move(core)) { core_->owner = this; }

Conn::Conn(Loop& loop, Address::Kind kind, int fd) : core_(std::make_shared<Core>(loop, kind)) {
  core_->self = core_;
  core_->init();
  core_->owner = this;
  const int rc = kind == Address::Kind::tcp ? uv_tcp_open(&core_->uv.tcp, fd) : uv_pipe_open(&core_->uv.pipe, fd);
  CHECK(rc == 0);
  core_->opened(fd);
}

Conn::~Conn() {
  core_->owner = nullptr;
  core_->handler = nullptr;
  core_->release();
}

void Conn::start(ConnHandler& handler) {
  core_->handler = &handler;
  core_->wants_bytes = true;
  core_->update_reading();
}

void Conn::write(std::string_view bytes) {
  if (core_->closed || core_->finishing) return;
  core_->out.append(bytes);
  wrote();
}

void Conn::write_shared(std::shared_ptr<const std::string> bytes) {
  if (core_->closed || core_->finishing) return;
  core_->large_bytes += core_->out.size() + bytes->size();
  core_->large.push_back({std::exchange(core_->out, {}), std::move(bytes)});
  wrote();
}

std::string& Conn::output() { return core_->out; }

void Conn::wrote() {
  if (core_->closed) {
    core_->out.clear();
    core_->large.clear();
    core_->large_bytes = 0;
    return;
  }
  if (!core_->connecting && !core_->writing) core_->loop.flush_soon(*core_);
  if (!core_->above_high && core_->unsent() >= kOutputHigh) core_->above_high = true;
}

void Conn::send_now() {
  const auto core = core_;
  if (core->closed || core->connecting || core->writing || !core->has_output()) return;
  core->loop.forget(*core);
  core->flush();
}

size_t Conn::unsent() const { return core_->unsent(); }

void Conn::trim() {
  if (core_->out.empty()) core_->out.shrink_to_fit();
  if (core_->sending.empty()) core_->sending.shrink_to_fit();
}

size_t Conn::held() const { return core_->out.capacity() + core_->sending.capacity(); }

void Conn::pause() {
  core_->paused = true;
  core_->update_reading();
}

void Conn::resume() {
  core_->paused = false;
  core_->update_reading();
}

bool Conn::paused() const { return core_->paused; }

void Conn::finish() {
  auto& core = *core_;
  if (core.closed || core.finishing) return;
  core.finishing = true;
  core.linger.emplace(core.loop, [&core] { core.end({base::Code::cancelled, "closed here"}); });
  core.linger->start(kUserTimeout);  // for a peer that does not read what is still to be sent
  if (core.connecting) return core.end_later({base::Code::cancelled, "closed here"});
  core.update_reading();
  core.finish_if_sent();
}

bool Conn::finishing() const { return core_->finishing; }
Address::Kind Conn::kind() const { return core_->kind; }
const std::string& Conn::peer() const { return core_->peer; }
uint64_t Conn::bytes_in() const { return core_->bytes_in; }
uint64_t Conn::bytes_out() const { return core_->bytes_out; }

}  // namespace cantle::io

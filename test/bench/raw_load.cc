#include "test/bench/raw_load.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <cstring>
#include <memory>
#include <vector>

#include "lib/wire/frame.h"

namespace cantle::bench {
namespace {

constexpr size_t kRead = 64 << 10;

struct Load;
struct Connection {
  Load* load = nullptr;
  uv_pipe_t pipe{};
  uv_connect_t connecting{};
  std::string out;
  size_t expected = 0, got = 0;  // of the answer under way
  std::string in;                // answers whose length is not known beforehand
  double sent_at = 0;
  bool blocked = false;  // the kernel took only a part
};

struct Load {
  const RawPlan* plan = nullptr;
  RawResult result;
  uv_loop_t loop{};
  uv_timer_t timer{};
  std::vector<std::unique_ptr<Connection>> connections;
  char buffer[kRead];
  double begun = 0;
  bool stopping = false;
};

void fail(Load& load, const char* what, int code) {
  if (load.result.error.empty()) load.result.error = std::string(what) + ": " + uv_strerror(code);
  uv_stop(&load.loop);
}

struct Tail {
  uv_write_t request;
  std::string bytes;
};

void flush(Connection& c) {
  if (c.blocked || c.out.empty()) return;
  uv_buf_t buf = uv_buf_init(c.out.data(), static_cast<unsigned>(c.out.size()));
  auto* stream = reinterpret_cast<uv_stream_t*>(&c.pipe);
  const int n = uv_try_write(stream, &buf, 1);
  if (n < 0 && n != UV_EAGAIN) return fail(*c.load, "write", n);
  if (n > 0) c.out.erase(0, static_cast<size_t>(n));
  if (c.out.empty()) return;
  auto* tail = new Tail{{}, std::move(c.out)};
  c.out.clear();
  tail->request.data = &c;
  c.blocked = true;
  buf = uv_buf_init(tail->bytes.data(), static_cast<unsigned>(tail->bytes.size()));
  uv_write(&tail->request, stream, &buf, 1, [](uv_write_t* w, int status) {
    auto* self = static_cast<Connection*>(w->data);
    delete reinterpret_cast<Tail*>(w);
    if (status < 0) return;
    self->blocked = false;
    flush(*self);
  });
}

void send(Connection& c, size_t count) {
  for (; count > 0; --count) c.load->plan->request(&c.out);
  if (c.load->plan->in_flight == 1) c.sent_at = now_s();
  flush(c);
}

size_t take_frames(std::string& in) {
  size_t count = 0, at = 0;
  wire::Frame frame;
  while (true) {
    wire::FrameScanner scanner;
    if (scanner.scan(std::string_view(in).substr(at), &frame) != wire::Scan::complete) break;
    at += frame.size;
    ++count;
  }
  in.erase(0, at);
  return count;
}

void on_read(uv_stream_t* stream, ssize_t n, const uv_buf_t* buf) {
  auto& c = *static_cast<Connection*>(stream->data);
  auto& load = *c.load;
  if (n < 0) return fail(load, "read", static_cast<int>(n));
  if (load.stopping) return;
  c.got += static_cast<size_t>(n);
  size_t done = 0;
  if (load.plan->reply == 0) {
    c.in.append(buf->base, static_cast<size_t>(n));
    done = take_frames(c.in);
    c.got = 0;
  }
  while (c.expected > 0 && c.got >= c.expected) {
    c.got -= c.expected;
    ++done;
  }
  if (done == 0) return;
  load.result.operations += done;
  if (load.plan->in_flight == 1 && load.plan->connections == 1) load.result.latency_us.add((now_s() - c.sent_at) * 1e6);
  send(c, done);
}

void on_connected(uv_connect_t* connecting, int status) {
  auto& c = *static_cast<Connection*>(connecting->data);
  if (status < 0) return fail(*c.load, "connect", status);
  uv_read_start(
      reinterpret_cast<uv_stream_t*>(&c.pipe),
      [](uv_handle_t* h, size_t, uv_buf_t* buf) {
        auto& load = *static_cast<Connection*>(h->data)->load;
        *buf = uv_buf_init(load.buffer, kRead);
      },
      on_read);
  c.expected = c.load->plan->reply;
  send(c, static_cast<size_t>(c.load->plan->in_flight));
}

}  // namespace

RawResult raw_load(const RawPlan& plan) {
  ::signal(SIGPIPE, SIG_IGN);
  auto load = std::make_unique<Load>();
  load->plan = &plan;
  uv_loop_init(&load->loop);
  load->loop.data = load.get();
  for (int i = 0; i < plan.connections; ++i) {
    auto c = std::make_unique<Connection>();
    c->load = load.get();
    uv_pipe_init(&load->loop, &c->pipe, 0);
    c->pipe.data = c->connecting.data = c.get();
    uv_pipe_connect(&c->connecting, &c->pipe, plan.socket.c_str(), on_connected);
    load->connections.push_back(std::move(c));
  }
  uv_timer_init(&load->loop, &load->timer);
  load->timer.data = load.get();
  uv_timer_start(
      &load->timer,
      [](uv_timer_t* t) {
        static_cast<Load*>(t->data)->stopping = true;
        uv_stop(t->loop);
      },
      static_cast<uint64_t>(plan.seconds * 1000), 0);
  load->begun = now_s();
  uv_run(&load->loop, UV_RUN_DEFAULT);
  load->result.per_second = static_cast<double>(load->result.operations) / (now_s() - load->begun);
  uv_close(reinterpret_cast<uv_handle_t*>(&load->timer), nullptr);
  for (auto& c : load->connections) uv_close(reinterpret_cast<uv_handle_t*>(&c->pipe), nullptr);
  uv_run(&load->loop, UV_RUN_DEFAULT);
  uv_loop_close(&load->loop);
  return std::move(load->result);
}

std::string raw_call(const std::string& socket, const std::string& request) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  std::string answer;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
    // Whole when nothing follows for a while.
    pollfd p{fd, POLLIN, 0};
    while (::poll(&p, 1, answer.empty() ? 5000 : 200) > 0) {
      char buffer[65536];
      const ssize_t n = ::read(fd, buffer, sizeof buffer);
      if (n <= 0) break;
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  ::close(fd);
  return answer;
}

// --- the bare echo server, in its own process ----------------------------------------------------------

namespace {

struct Echo {
  size_t request, reply;
  uv_loop_t loop{};
  uv_pipe_t server{};
  char buffer[kRead];
  std::string answers;
};
struct Client {
  uv_pipe_t pipe{};
  Echo* echo = nullptr;
  size_t got = 0;
};

void echo_read(uv_stream_t* stream, ssize_t n, const uv_buf_t*) {
  auto* client = static_cast<Client*>(stream->data);
  if (n < 0)
    return uv_close(reinterpret_cast<uv_handle_t*>(stream),
                    [](uv_handle_t* h) { delete static_cast<Client*>(h->data); });
  auto& echo = *client->echo;
  client->got += static_cast<size_t>(n);
  const size_t count = client->got / echo.request;
  client->got %= echo.request;
  if (count == 0) return;
  echo.answers.resize(std::max(echo.answers.size(), count * echo.reply), 'x');
  uv_buf_t buf = uv_buf_init(echo.answers.data(), static_cast<unsigned>(count * echo.reply));
  const int wrote = uv_try_write(stream, &buf, 1);
  const size_t sent = wrote > 0 ? static_cast<size_t>(wrote) : 0;
  if (sent == count * echo.reply) return;
  auto* tail = new Tail{{}, std::string(count * echo.reply - sent, 'x')};
  buf = uv_buf_init(tail->bytes.data(), static_cast<unsigned>(tail->bytes.size()));
  uv_write(&tail->request, stream, &buf, 1, [](uv_write_t* w, int) { delete reinterpret_cast<Tail*>(w); });
}

void echo_accept(uv_stream_t* server, int status) {
  if (status < 0) return;
  auto* echo = static_cast<Echo*>(server->data);
  auto* client = new Client;
  client->echo = echo;
  uv_pipe_init(&echo->loop, &client->pipe, 0);
  client->pipe.data = client;
  uv_accept(server, reinterpret_cast<uv_stream_t*>(&client->pipe));
  uv_read_start(
      reinterpret_cast<uv_stream_t*>(&client->pipe),
      [](uv_handle_t* h, size_t, uv_buf_t* buf) {
        *buf = uv_buf_init(static_cast<Client*>(h->data)->echo->buffer, kRead);
      },
      echo_read);
}

[[noreturn]] void serve_echo(const std::string& socket, size_t request, size_t reply, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  static Echo echo{.request = request, .reply = reply, .loop = {}, .server = {}, .buffer = {}, .answers = {}};
  uv_loop_init(&echo.loop);
  uv_pipe_init(&echo.loop, &echo.server, 0);
  echo.server.data = &echo;
  const bool listening = uv_pipe_bind(&echo.server, socket.c_str()) == 0 &&
                         uv_listen(reinterpret_cast<uv_stream_t*>(&echo.server), 511, echo_accept) == 0;
  if (!listening || ::write(ready, "r", 1) != 1) ::_exit(1);
  uv_run(&echo.loop, UV_RUN_DEFAULT);
  ::_exit(0);
}

}  // namespace

EchoServer::EchoServer(const std::string& socket, size_t request, size_t reply) : socket_(socket) {
  ::unlink(socket.c_str());
  int ready[2];
  if (::pipe(ready) != 0) return;
  child_ = ::fork();
  if (child_ == 0) serve_echo(socket, request, reply, ready[1]);
  ::close(ready[1]);
  char r = 0;
  if (::read(ready[0], &r, 1) != 1) std::fprintf(stderr, "bench: the echo server did not start\n");
  ::close(ready[0]);
}

EchoServer::~EchoServer() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ::unlink(socket_.c_str());
}

}  // namespace cantle::bench

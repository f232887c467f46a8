#include "test/peers/load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "lib/base/random.h"

namespace cantle::peers {
namespace {

constexpr size_t kRead = 256 << 10;
constexpr double kSilence = 10;  // seconds without any answer: it hangs

struct Connection {
  int fd = -1;
  std::unique_ptr<Protocol> protocol;
  std::string out;
  bool waits_to_write = false;
  std::vector<double> begun;   // by tag
  std::vector<uint64_t> keys;  // the same
};

class Load {
 public:
  explicit Load(const Plan& plan) : plan_(plan), random_(plan.seed), buffer_(kRead, '\0') {}
  ~Load() {
    for (auto& c : connections_)
      if (c.fd >= 0) ::close(c.fd);
    if (epoll_ >= 0) ::close(epoll_);
  }

  Outcome run() {
    ::signal(SIGPIPE, SIG_IGN);
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    connections_.resize(static_cast<size_t>(plan_.connections));
    for (size_t i = 0; i < connections_.size() && good(); i++) connect(i);
    began_ = heard_ = bench::now_s();
    for (auto& c : connections_) {
      c.begun.resize(static_cast<size_t>(plan_.in_flight));
      c.keys.resize(c.begun.size());
      c.protocol->begin(&c.out);
      for (uint32_t tag = 0; tag < c.begun.size(); tag++) ask(c, tag);
      c.protocol->sent(&c.out);
      write(c);
    }
    while (good() && !over()) turn();
    outcome_.per_second = static_cast<double>(outcome_.operations) / (bench::now_s() - began_);
    return std::move(outcome_);
  }

 private:
  bool good() const { return outcome_.error.empty(); }
  void fail(std::string what) {
    if (good()) outcome_.error = std::move(what);
  }
  bool over() const {
    if (plan_.until) return plan_.until();
    if (const auto enough = std::max(plan_.count, plan_.operations); enough != 0) return outcome_.operations >= enough;
    return now_ >= began_ + plan_.seconds;
  }

  void connect(size_t i) {
    auto& c = connections_[i];
    c.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(plan_.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(c.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return fail("connect to port " + std::to_string(plan_.port) + ": " + std::strerror(errno));
    const int on = 1;
    ::setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u64 = i;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, c.fd, &e);
    c.protocol = plan_.protocol();
  }

  void ask(Connection& c, uint32_t tag) {
    if (plan_.count != 0 && next_ >= plan_.count) return;
    const uint64_t key = plan_.count != 0 ? next_++ : random_.below(kKeys);
    c.begun[tag] = bench::now_s();
    c.keys[tag] = key;
    c.protocol->request(plan_.op, key, tag, &c.out);
  }

  void write(Connection& c) {
    size_t at = 0;
    while (at < c.out.size()) {
      const ssize_t n = ::send(c.fd, c.out.data() + at, c.out.size() - at, MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN) return fail(std::string("write: ") + std::strerror(errno));
      if (n < 0) break;
      at += static_cast<size_t>(n);
    }
    c.out.erase(0, at);
    const bool waits = !c.out.empty();
    if (waits == c.waits_to_write) return;
    c.waits_to_write = waits;
    epoll_event e{};
    e.events = EPOLLIN | (waits ? static_cast<uint32_t>(EPOLLOUT) : 0u);
    e.data.u64 = static_cast<uint64_t>(&c - connections_.data());
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, c.fd, &e);
  }

  // Those that are due, of what is to be sent at a rate.
  void pace() {
    while (!idle_.empty() && static_cast<double>(sent_) < (now_ - began_) * plan_.each_second) {
      auto [i, tag] = idle_.back();
      idle_.pop_back();
      auto& c = connections_[i];
      ++sent_;
      ask(c, tag);
      c.protocol->sent(&c.out);
      write(c);
    }
  }

  // Those that were told to come again, and may by now.
  void ask_again() {
    for (; !again_.empty() && again_.begin()->first <= now_; again_.erase(again_.begin())) {
      const auto [i, tag] = again_.begin()->second;
      auto& c = connections_[i];
      c.protocol->request(plan_.op, c.keys[tag], tag, &c.out);
      c.protocol->sent(&c.out);
      write(c);
    }
  }

  void turn() {
    epoll_event events[64];
    const int n = ::epoll_wait(epoll_, events, 64, plan_.each_second > 0 || !again_.empty() ? 1 : 100);
    now_ = bench::now_s();
    for (int i = 0; i < n && good(); i++) {
      auto& c = connections_[events[i].data.u64];
      if ((events[i].events & EPOLLOUT) != 0) write(c);
      if ((events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read(c);
    }
    ask_again();
    if (plan_.each_second > 0) pace();
    if (now_ > heard_ + kSilence) fail("no answer for 10 s");
  }

  void read(Connection& c) {
    const ssize_t n = ::recv(c.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return fail(n == 0 ? "the connection was closed" : std::string("read: ") + std::strerror(errno));
    done_.clear();
    if (const auto taken = c.protocol->take({buffer_.data(), static_cast<size_t>(n)}, &done_, &c.out); !taken)
      return fail(to_string(taken.error()));
    for (const auto& r : c.protocol->refused)
      again_.emplace(now_ + r.seconds, std::pair(static_cast<size_t>(&c - connections_.data()), r.tag));
    outcome_.refused += c.protocol->refused.size();
    c.protocol->refused.clear();
    if (!done_.empty()) {
      heard_ = now_ = bench::now_s();
      outcome_.operations += done_.size();
      for (const uint32_t tag : done_) {
        outcome_.latency_us.add((now_ - c.begun[tag]) * 1e6);
        if (plan_.each_second > 0)
          idle_.emplace_back(static_cast<size_t>(&c - connections_.data()), tag);
        else
          ask(c, tag);
      }
      if (plan_.each_second <= 0) c.protocol->sent(&c.out);
    }
    if (!c.out.empty()) write(c);
  }

  const Plan& plan_;
  base::SeededRandom random_;
  std::string buffer_;
  std::vector<Connection> connections_;
  std::vector<std::pair<size_t, uint32_t>> idle_;
  std::multimap<double, std::pair<size_t, uint32_t>> again_;  // by when
  std::vector<uint32_t> done_;
  Outcome outcome_;
  int epoll_ = -1;
  uint64_t next_ = 0, sent_ = 0;
  double began_ = 0, now_ = 0, heard_ = 0;
};

}  // namespace

void append_key(std::string& out, uint64_t key) {
  char digits[kKeySize];
  for (size_t i = kKeySize; i-- > 1; key /= 10) digits[i] = static_cast<char>('0' + key % 10);
  digits[0] = 'k';
  out.append(digits, sizeof digits);
}

Outcome load(const Plan& plan) { return Load(plan).run(); }

}  // namespace cantle::peers

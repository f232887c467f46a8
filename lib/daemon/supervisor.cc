#include "lib/daemon/supervisor.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "lib/base/log.h"
#include "lib/io/loop.h"
#include "lib/io/signal.h"
#include "lib/io/timer.h"

namespace cantle::daemon {
namespace {

constexpr base::Duration kStatusEvery = std::chrono::seconds(1);

// How often the service manager wants to hear of us; zero: not at all.
base::Duration watchdog_interval() {
  const char* text = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  if (text == nullptr || (pid != nullptr && pid != std::to_string(getpid()))) return base::Duration::zero();
  int64_t usec = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), usec);
  if (error != std::errc{} || *end != '\0' || usec <= 0) return base::Duration::zero();
  return std::chrono::microseconds(usec) / 2;
}

// A STATUS is one line.
std::string one_line(std::string text) {
  for (auto& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

}  // namespace

struct Supervisor::Core {
  Core(io::Loop& l, Life h)
      : loop(l),
        life(std::move(h)),
        term(l, SIGTERM, [this] { stop("SIGTERM"); }),
        interrupt(l, SIGINT, [this] { stop("SIGINT"); }),
        hangup(l, SIGHUP, [this] { reload(); }),
        status_timer(l, [this] { tell_status(); }),
        watchdog(l, [this] { feed_watchdog(); }),
        drain_timer(l, [this] { drained(false); }) {
    if (life.status) status_timer.start(kStatusEvery, kStatusEvery);
    if (const auto every = watchdog_interval(); every > base::Duration::zero()) watchdog.start(every, every);
  }

  void ready();
  void stop(std::string_view why);
  void drained(bool whole);
  void reload();
  void tell_status();
  void feed_watchdog();

  io::Loop& loop;
  Life life;
  io::Signal term, interrupt, hangup;
  io::Timer status_timer, watchdog, drain_timer;
  bool is_ready = false, stopping = false, ended = false;
  std::optional<base::Error> error;
  std::string last_status;
};

void Supervisor::Core::ready() {
  if (is_ready || stopping) return;
  is_ready = true;
  base::log(base::Level::notice, "ready", {{"name", life.name}});
  notify_manager("READY=1");
  tell_status();
}

void Supervisor::Core::stop(std::string_view why) {
  if (stopping) {
    base::log(base::Level::warn, "stop-now", {{"name", life.name}, {"why", why}});
    ended = true;
    return loop.stop();
  }
  stopping = true;
  base::log(base::Level::notice, "stopping", {{"name", life.name}, {"why", why}});
  notify_manager("STOPPING=1\nSTATUS=draining");
  if (!life.drain) return drained(true);
  drain_timer.start(life.drain_limit);
  life.drain([this] { drained(true); });
}

void Supervisor::Core::drained(bool whole) {
  if (ended) return;
  ended = true;
  drain_timer.stop();
  base::log(whole ? base::Level::notice : base::Level::warn, whole ? "stopped" : "drain-cut-short",
            {{"name", life.name}});
  loop.stop();
}

void Supervisor::Core::reload() {
  if (!life.reload || stopping) return;
  notify_manager("RELOADING=1");
  const auto status = life.reload();
  if (status)
    base::log(base::Level::notice, "reloaded", {{"name", life.name}});
  else
    base::log(base::Level::error, "reload-refused", {{"name", life.name}, {"error", status.error().text}});
  if (is_ready) notify_manager("READY=1");
}

void Supervisor::Core::tell_status() {
  if (!life.status || stopping) return;
  auto now = one_line(life.status());
  if (now == last_status) return;
  last_status = std::move(now);
  notify_manager("STATUS=" + last_status);
}

void Supervisor::Core::feed_watchdog() {
  if (!life.healthy || life.healthy()) notify_manager("WATCHDOG=1");
}

Supervisor::Supervisor(io::Loop& loop, Life life) : core_(std::make_unique<Core>(loop, std::move(life))) {}
Supervisor::~Supervisor() = default;

void Supervisor::ready() { core_->ready(); }
void Supervisor::stop() { core_->stop("asked to"); }
bool Supervisor::stopping() const { return core_->stopping; }

void Supervisor::fail(base::Error error) {
  if (!core_->error) core_->error = std::move(error);
  core_->ended = true;
  core_->loop.stop();
}

base::Status Supervisor::run() {
  core_->loop.run();
  if (core_->error) return base::fail(std::move(*core_->error));
  return base::ok();
}

}  // namespace cantle::daemon

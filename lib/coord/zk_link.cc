#include "lib/coord/zk_link.h"

#include <sys/time.h>
#include <uv.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/io/loop.h"

namespace cantle::coord::zk {

using base::Level;
using namespace std::chrono_literals;

namespace {

constexpr base::Duration kRetry = 10ms;  // after the library reported an error; it spaces its own attempts

std::string last_text;  // the log is the program's one global, and so is what the library last said

// With all servers down the library talks tens of times a second; a line a second says as much. What it says is for who
// asks: the session tells of a lost connection itself.
void log_line(const char* message) {
  static base::Instant last{};  // the log is the program's one global, and so is its patience
  static uint64_t dropped = 0;
  const char* text = std::strstr(message, "@");  // after date, process and level
  text = text ? text + 1 : message;
  if (std::strstr(text, "Delaying connection") == nullptr) last_text = text;  // that says nothing of why
  const auto now = base::SystemClock().now();
  if (last != base::Instant{} && now - last < 1s) {
    dropped++;
    return;
  }
  last = now;
  base::log(Level::info, "coord.zookeeper", {{"text", text}, {"dropped", std::exchange(dropped, 0)}});
}

int to_uv(int interest) {  // the two libraries have the bits the other way round
  return ((interest & ZOOKEEPER_READ) ? UV_READABLE : 0) | ((interest & ZOOKEEPER_WRITE) ? UV_WRITABLE : 0);
}
int from_uv(int events) {
  return ((events & UV_READABLE) ? ZOOKEEPER_READ : 0) | ((events & UV_WRITABLE) ? ZOOKEEPER_WRITE : 0);
}

}  // namespace

std::string library_said() { return last_text; }

Link::Link(io::Loop& loop, LinkOwner& owner) : loop_(loop), owner_(owner), timer_(loop, [this] { pump(); }) {}

Link::~Link() { stop(); }

bool Link::start(const std::string& addresses, base::Duration timeout, const clientid_t* resume) {
  stop();
  zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
  handle_ = zookeeper_init2(addresses.c_str(), on_session, static_cast<int>(base::to_ms(timeout)), resume, this,
                            ZOO_NO_LOG_CLIENTENV, log_line);
  if (!handle_) return false;
  zoo_set_servers_resolution_delay(handle_, -1);  // or each call opens a socket and reads /etc/hosts
  kick();
  return true;
}

void Link::stop() {
  CHECK(!in_library_);
  timer_.stop();
  drop_poll();
  if (!handle_) return;
  in_library_ = true;
  zookeeper_close(std::exchange(handle_, nullptr));  // answers what is outstanding with ZCLOSING
  in_library_ = false;
  changes_.clear();
}

bool Link::connected() const { return handle_ && zoo_state(handle_) == ZOO_CONNECTED_STATE; }

void Link::kick() {
  if (std::exchange(kicked_, true)) return;
  loop_.defer([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    kicked_ = false;
    pump();
  });
}

void Link::pump() {
  if (!handle_ || in_library_) return;
  if (poll_) uv_poll_stop(poll_);
  int fd = -1, interest = 0;
  timeval wait{};
  in_library_ = true;
  const int rc = zookeeper_interest(handle_, &fd, &interest, &wait);
  in_library_ = false;
  if (rc != ZOK || fd == -1)
    drop_poll();
  else
    watch_socket(fd, interest);
  timer_.start(rc != ZOK ? kRetry
                         : std::max<base::Duration>(
                               std::chrono::seconds(wait.tv_sec) + std::chrono::microseconds(wait.tv_usec), 1ms));
  tell_owner();
}

void Link::watch_socket(int fd, int interest) {
  if (poll_ && poll_fd_ != fd) drop_poll();
  if (!poll_) {
    poll_ = new uv_poll_t;
    if (uv_poll_init(loop_.raw(), poll_, fd) != 0) {
      delete std::exchange(poll_, nullptr);
      return;  // the timer comes back
    }
    poll_->data = this;
    poll_fd_ = fd;
  }
  uv_poll_start(poll_, to_uv(interest), [](uv_poll_t* handle, int status, int events) {
    if (handle->data) static_cast<Link*>(handle->data)->ready(status, events);
  });
}

void Link::drop_poll() {
  if (!poll_) return;
  poll_->data = nullptr;
  uv_poll_stop(poll_);
  uv_close(reinterpret_cast<uv_handle_t*>(std::exchange(poll_, nullptr)),
           [](uv_handle_t* h) { delete reinterpret_cast<uv_poll_t*>(h); });
  poll_fd_ = -1;
}

void Link::ready(int status, int events) {
  if (!handle_ || in_library_) return;
  // A refused connection comes as an error of the poll; the library finds out by trying.
  process(status < 0 ? ZOOKEEPER_READ | ZOOKEEPER_WRITE : from_uv(events));
}

// The library handles one packet a call; it may close its socket in any of them.
void Link::process(int events) {
  uv_poll_stop(poll_);
  constexpr int kPacketsMax = 1000;  // then others have their turn
  int rc = ZOK;
  in_library_ = true;
  for (int i = 0; i < kPacketsMax && rc == ZOK; i++) {
    rc = zookeeper_process(handle_, events);
    events = ZOOKEEPER_READ;
  }
  in_library_ = false;
  if (rc != ZOK && rc != ZNOTHING) drop_poll();
  tell_owner();
  pump();
}

void Link::on_session(zhandle_t*, int type, int state, const char*, void* context) {
  if (type == ZOO_SESSION_EVENT) static_cast<Link*>(context)->note(state);
}

void Link::note(int state) {
  if (state == ZOO_CONNECTED_STATE)
    changes_.push_back(Change::connected);
  else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)
    changes_.push_back(Change::expired);
  else
    changes_.push_back(Change::lost);
}

// Watches hear of the session too; only what happened to the znode consumes them.
void Link::on_watch(zhandle_t* handle, int type, int, const char*, void* context) {
  if (type == ZOO_SESSION_EVENT) return;
  auto* link = static_cast<Link*>(const_cast<void*>(zoo_get_context(handle)));
  link->owner_.link_watch_fired(reinterpret_cast<uintptr_t>(context));
}

void Link::tell_owner() {
  const std::weak_ptr alive(alive_);
  for (const auto change : std::exchange(changes_, {})) {
    if (change == Change::connected)
      owner_.link_connected();
    else if (change == Change::lost)
      owner_.link_lost();
    else
      return owner_.link_expired();  // the rest is of the past
    if (alive.expired()) return;
  }
}

}  // namespace cantle::coord::zk

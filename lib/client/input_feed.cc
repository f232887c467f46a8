#include "lib/client/input_feed.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "lib/io/loop.h"

namespace cantle::client {

struct InputFeed::Core {
  Core(io::Loop& l, OnPortion f) : loop(l), on_portion(std::move(f)) {}
  ~Core() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
    if (stop_fd >= 0) ::eventfd_write(stop_fd, 1);
    if (thread.joinable()) thread.join();
    if (fd > 0) ::close(fd);
    if (stop_fd >= 0) ::close(stop_fd);
  }

  void run();                           // the thread
  long read_some(std::string* buffer);  // 0: the end or told to stop; -errno
  bool hand_over(Portion&& portion);    // false: told to stop
  void deliver();                       // on the loop

  io::Loop& loop;
  OnPortion on_portion;
  std::unique_ptr<Parser> parser;
  Portion filling;  // the thread's
  int fd = -1, stop_fd = -1;
  uint64_t size = 0;

  std::mutex mutex;
  std::condition_variable room;
  std::deque<Portion> ready;
  size_t wanted = 0;
  bool stopping = false;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  std::thread thread;
};

base::Result<std::unique_ptr<InputFeed>> InputFeed::open(io::Loop& loop, const std::string& path, Format format,
                                                         const ParserOptions& options, OnPortion on_portion) {
  auto core = std::make_unique<Core>(loop, std::move(on_portion));
  auto* c = core.get();
  TRY_ASSIGN(c->parser, make_parser(format, options,
                                    {.entry = [c](Entry&& e) { c->filling.entries.push_back(std::move(e)); },
                                     .rejected = [c](Rejected&& r) { c->filling.rejected.push_back(std::move(r)); }}));
  c->fd = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (c->fd < 0) {
    if (errno == ENOENT) return base::fail(base::Code::not_found, "there is no file " + path);
    return base::fail(base::errno_error("opening " + path, errno));
  }
  struct stat st {};
  if (::fstat(c->fd, &st) == 0 && S_ISREG(st.st_mode)) c->size = static_cast<uint64_t>(st.st_size);
  c->stop_fd = ::eventfd(0, EFD_CLOEXEC);
  if (c->stop_fd < 0) return base::fail(base::errno_error("eventfd", errno));
  c->thread = std::thread([c] { c->run(); });
  return std::unique_ptr<InputFeed>(new InputFeed(std::move(core)));
}

InputFeed::InputFeed(std::unique_ptr<Core> core) : core_(std::move(core)) {}
InputFeed::~InputFeed() { *core_->alive = false; }

uint64_t InputFeed::size() const { return core_->size; }

void InputFeed::more() {
  {
    const std::lock_guard lock(core_->mutex);
    ++core_->wanted;
  }
  core_->loop.defer([core = core_.get(), alive = core_->alive] {
    if (*alive) core->deliver();
  });
}

void InputFeed::Core::deliver() {
  Portion portion;
  {
    const std::lock_guard lock(mutex);
    if (wanted == 0 || ready.empty()) return;
    --wanted;
    portion = std::move(ready.front());
    ready.pop_front();
  }
  room.notify_one();
  on_portion(std::move(portion));
}

bool InputFeed::Core::hand_over(Portion&& portion) {
  {
    std::unique_lock lock(mutex);
    room.wait(lock, [this] { return stopping || ready.size() < kPortionsAhead; });
    if (stopping) return false;
    ready.push_back(std::move(portion));
  }
  loop.post([this, a = alive] {
    if (*a) deliver();
  });
  return true;
}

long InputFeed::Core::read_some(std::string* buffer) {
  while (true) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return -errno;
    if (fds[1].revents != 0) return 0;
    const ssize_t n = ::read(fd, buffer->data(), buffer->size());
    if (n >= 0) return n;
    if (errno != EINTR && errno != EAGAIN) return -errno;
  }
}

void InputFeed::Core::run() {
  std::string buffer(size_t{256} << 10, '\0');
  uint64_t total = 0, in_portion = 0;
  while (true) {
    const long n = read_some(&buffer);
    if (n > 0) {
      parser->feed(std::string_view(buffer).substr(0, static_cast<size_t>(n)));
      total += static_cast<uint64_t>(n);
      in_portion += static_cast<uint64_t>(n);
      // A slow input is handed on as it comes.
      if (in_portion < kPortionBytes && n == static_cast<long>(buffer.size())) continue;
    } else {
      if (n < 0) filling.error = base::errno_error("reading the input", static_cast<int>(-n));
      if (n == 0) parser->finish();
      filling.last = true;
    }
    Portion portion = std::exchange(filling, {});
    portion.bytes_read = total;
    in_portion = 0;
    const bool last = portion.last;
    if (!hand_over(std::move(portion)) || last) return;
  }
}

}  // namespace cantle::client

#include "cmd/partc/stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace cantle::partc {

constexpr size_t kBuffer = size_t{256} << 10;

base::Result<Stream> Stream::open(const std::string& path) {
  if (path == "-" || path.empty()) return Stream(STDOUT_FILENO);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return base::fail(base::errno_error("opening " + path, errno));
  return Stream(fd);
}

Stream::Stream(Stream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)), gone_(other.gone_), bytes_(other.bytes_) {}

Stream::~Stream() {
  if (fd_ < 0) return;
  static_cast<void>(flush());
  if (fd_ != STDOUT_FILENO) ::close(fd_);
}

base::Status Stream::write(std::string_view bytes) {
  bytes_ += bytes.size();
  buffer_ += bytes;
  return buffer_.size() < kBuffer ? base::ok() : flush();
}

base::Status Stream::flush() {
  std::string_view left = buffer_;
  while (!left.empty() && !gone_) {
    const ssize_t n = ::write(fd_, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) gone_ = true;
    if (n < 0 && errno != EPIPE) return base::fail(base::errno_error("writing the output", errno));
    if (n > 0) left.remove_prefix(static_cast<size_t>(n));
  }
  buffer_.clear();
  return base::ok();
}

Progress::Progress(bool asked) : on_(asked || ::isatty(STDERR_FILENO)), terminal_(::isatty(STDERR_FILENO)) {}

bool Progress::due(base::Instant now) {
  if (!on_ || now < next_) return false;
  next_ = now + std::chrono::seconds(terminal_ ? 1 : 10);
  return true;
}

void Progress::show(const std::string& line) {
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::end() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace cantle::partc

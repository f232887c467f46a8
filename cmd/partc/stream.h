// Stream: bytes to stdout or a file, through a buffer; a reader that has gone is not an error of ours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/base/time.h"

namespace cantle::partc {

class Stream {
 public:
  static base::Result<Stream> open(const std::string& path);  // "-": stdout
  Stream(Stream&& other) noexcept;
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  base::Status write(std::string_view bytes);
  base::Status flush();
  // Nobody reads any more (a closed pipe): writing on is pointless, and fine.
  bool gone() const { return gone_; }
  uint64_t bytes() const { return bytes_; }

 private:
  explicit Stream(int fd) : fd_(fd) {}
  int fd_;
  std::string buffer_;
  bool gone_ = false;
  uint64_t bytes_ = 0;
};

// Progress: one line on stderr, rewritten once a second on a terminal, else a new line every ten.
// Off where stderr is no terminal, unless asked for.
class Progress {
 public:
  explicit Progress(bool asked);
  bool due(base::Instant now);
  void show(const std::string& line);
  void end();
  bool on() const { return on_; }

 private:
  bool on_, terminal_, shown_ = false;
  base::Instant next_;
};

}  // namespace cantle::partc

// GapLog: a line "T GAP" for each gap between acknowledgements: when it ended, in microseconds since 1970, and
// how long it was, in microseconds. So that the gaps of one moment (a split) can be set beside those before.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cmd/partc/stream.h"
#include "lib/io/loop.h"

namespace cantle::partc {

class GapLog {
 public:
  // An empty path: none.
  static base::Result<std::optional<GapLog>> open(const std::string& path, io::Loop& loop) {
    if (path.empty()) return std::optional<GapLog>();
    TRY_ASSIGN(auto stream, Stream::open(path));
    return std::optional<GapLog>(GapLog(std::move(stream), loop));
  }

  void add(base::Instant end, base::Duration gap) {
    const int64_t us = offset_us_ + end.since_boot.count() / 1000;
    if (auto written = stream_.write(std::to_string(us) + " " + std::to_string(gap.count() / 1000) + "\n"); !written)
      failed_ = written.error();
  }
  base::Status close() {
    if (failed_) return base::fail(*failed_);
    return stream_.flush();
  }

  static base::WallMs wall_ms(io::Loop& loop, base::Instant at) {
    return static_cast<base::WallMs>(offset_us(loop) / 1000 + at.since_boot.count() / 1000000);
  }

 private:
  GapLog(Stream stream, io::Loop& loop) : stream_(std::move(stream)), offset_us_(offset_us(loop)) {}
  // Wall clock less our own, measured once: gaps are measured on a clock that nobody sets.
  static int64_t offset_us(io::Loop& loop) {
    return static_cast<int64_t>(loop.wall_ms()) * 1000 - loop.refresh_now().since_boot.count() / 1000;
  }

  Stream stream_;
  int64_t offset_us_;
  std::optional<base::Error> failed_;
};

}  // namespace cantle::partc

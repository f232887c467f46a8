// LogGate: at most one log line of a kind a second, however often its cause repeats (R40).
//
//   if (gate.open(loop.now())) log(Level::warn, "accept-starved", {{"missed", gate.take_missed()}, …});
#pragma once

#include <cstdint>
#include <utility>

#include "lib/base/time.h"

namespace cantle::io {

class LogGate {
 public:
  explicit LogGate(base::Duration every = std::chrono::seconds(1)) : every_(every) {}
  bool open(base::Instant now) {
    if (used_ && now - last_ < every_) {
      ++missed_;
      return false;
    }
    used_ = true;
    last_ = now;
    return true;
  }
  // How often it was closed since it was last open.
  uint64_t take_missed() { return std::exchange(missed_, 0); }

 private:
  base::Duration every_;
  base::Instant last_{};
  bool used_ = false;
  uint64_t missed_ = 0;
};

}  // namespace cantle::io

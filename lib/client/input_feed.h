// InputFeed: reads and parses a file or stdin on a thread of its own, and hands the records to the loop in portions.
//
// Use
//   TRY_ASSIGN(auto feed, InputFeed::open(loop, "-", Format::tsv, {}, [&](InputFeed::Portion&& p) { … feed->more();
//   })); feed->more();                      // one portion, and no further before the next more()
//
// Invariants
//   * on_portion runs on the loop; portions come in the order of the input; the one with `last` is the last.
//   * At most kPortionsAhead portions are parsed before they are asked for.
// Ownership: its destructor ends the thread, also while it waits for input. Destroy it before the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/client/format.h"

namespace cantle::io {
class Loop;
}

namespace cantle::client {

constexpr size_t kPortionBytes = size_t{1} << 20;  // of input
constexpr size_t kPortionsAhead = 4;

class InputFeed {
 public:
  struct Portion {
    std::vector<Entry> entries;
    std::vector<Rejected> rejected;
    uint64_t bytes_read = 0;  // of the input, so far
    bool last = false;
    std::optional<base::Error> error;  // reading failed; this portion is the last
  };
  using OnPortion = std::function<void(Portion&&)>;

  // "-" is stdin. io_error, not_found: cannot be opened; usage: the format does not take the options.
  static base::Result<std::unique_ptr<InputFeed>> open(io::Loop& loop, const std::string& path, Format format,
                                                       const ParserOptions& options, OnPortion on_portion);
  ~InputFeed();

  void more();
  uint64_t size() const;  // of a regular file; 0: not known

 private:
  struct Core;
  explicit InputFeed(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace cantle::client

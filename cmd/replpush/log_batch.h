// LogBatch from blocks: the records of a log that lie in an interval, those stamped by this server in one payload,
// the others one by one with their key and version.
#pragma once

#include <optional>
#include <string>

#include "lib/base/result.h"
#include "lib/proto/mover_types.h"
#include "lib/store/journal_reader.h"

namespace cantle::replpush {

class LogSorter {
 public:
  // `self`: whose records are put together; none: nobody's.
  LogSorter(model::Interval interval, std::optional<model::ServerNumber> self)
      : interval_(std::move(interval)), self_(self) {}

  // False: it does not fit with what is there any more, and was not added.
  base::Result<bool> add(const store::LogBlock& block);
  bool empty() const { return !any_; }
  size_t bytes() const { return own_.size() + foreign_bytes_; }
  proto::mover::LogBatch take();

 private:
  model::Interval interval_;
  std::optional<model::ServerNumber> self_;
  std::string own_;
  uint32_t own_count_ = 0;
  size_t foreign_bytes_ = 0;
  std::vector<proto::mover::Foreign> foreign_;
  model::LogPoint through_;
  bool any_ = false;
};

// Reads on behind `ask.after`, about ask.bytes of payload. Journal errors, a position that is retired or not in the
// log, and damage are in the answer's `end`.
proto::mover::LogRead read_batch(store::JournalReader& journal, const proto::mover::ReadLog& ask,
                                 model::ServerNumber self);

}  // namespace cantle::replpush

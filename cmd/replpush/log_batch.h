// LogBatch from blocks: the records of a log that lie in an interval, those stamped by this server in one payload,
// the others one by one with their key and version, or, of those whose own movers bring them, the versions' span alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/proto/mover_types.h"
#include "lib/store/journal_reader.h"

namespace cantle::replpush {

class LogSorter {
 public:
  struct Stampers {
    std::optional<model::ServerNumber> self;  // whose records are put together; none: nobody's
    model::Incarnation incarnation;           // its present life
    std::vector<model::ServerNumber> await;
  };
  LogSorter(model::Interval interval, Stampers stampers)
      : interval_(std::move(interval)), stampers_(std::move(stampers)) {}

  // False: it does not fit with what is there any more, and was not added.
  base::Result<bool> add(const model::BlockHeader& header, std::string_view payload);
  bool empty() const { return !any_; }
  size_t bytes() const { return own_.size() + foreign_bytes_ + awaited_bytes_; }  // looked at, of the interval
  void passed_gap(model::Lsn end) { gap_ = end; }
  proto::mover::LogBatch take();

 private:
  void await(const model::Version& version);
  void note_own(const model::Version& block_oldest);

  model::Interval interval_;
  Stampers stampers_;
  std::string own_;
  uint32_t own_count_ = 0;
  size_t foreign_bytes_ = 0, awaited_bytes_ = 0;
  std::vector<proto::mover::Foreign> foreign_;
  std::vector<proto::mover::Awaited> awaited_;
  model::Version own_oldest_, last_oldest_, before_oldest_;
  model::Lsn gap_;
  model::LogPoint through_;
  bool any_ = false;
};

// What the journal says of a log, and of those that were joined into it. False: it has no block of it.
bool add_logs(const store::JournalReader& journal, const model::PartitionId& partition,
              std::map<model::PartitionId, proto::mover::LogState>* logs);

// Reads on behind `ask.after`, about ask.bytes of payload. Journal errors, a position that is retired or not in the
// log, and damage are in the answer's `end`.
proto::mover::LogRead read_batch(store::JournalReader& journal, const proto::mover::ReadLog& ask,
                                 model::ServerNumber self);

}  // namespace cantle::replpush

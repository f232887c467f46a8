// Series: how the writes of one client to a quorum table are told apart, so that each takes effect once
// (design/replication.md, "Exactly once").
//
// A client draws a random id and numbers its writes: (client, series), neither 0. The pair stands in the record that
// the write led to, and `flags` say how the result that was answered is found again: in the record itself. Of a batch
// the pair stands in the last record alone: a block holds all of a batch, so it is in effect exactly when its last
// record is, its version and LSN are that record's, and a window has one entry for a request whatever it wrote.
//
// A SeriesWindow is what a partition remembers of a client: the results of up to kSeriesWindow numbers, the highest one
// and those right below it.
//
// Invariants
//   * merge() is that of a set: in any order, with repeats, the same comes out. Of one number the entry with the
//   highest
//     LSN stays: it can be there twice only when the first one had expired and was written anew. Of the same record the
//     later time stays: two that were one may be merged again, and their logs' times have parted meanwhile.
//   * At most kSeriesWindow entries, ascending, the lowest above `high() - kSeriesWindow`.
//
// Units: time_ms is the partition's log time: the sum of the elapsed_ms of its log's blocks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/record.h"

namespace cantle::model {

constexpr uint64_t kSeriesWindow = 64;             // numbers remembered of a client
constexpr uint64_t kSeriesExpiryMs = 3600 * 1000;  // of log time, after which a number is forgotten
// A write first sent longer ago than this, and not in the table, may have been in it: it is refused.
constexpr uint64_t kSeriesAgeMaxMs = kSeriesExpiryMs / 2;

// --- results --------------------------------------------------------------------------------------

// Where the result of a record's write is, besides its version and LSN. The low bits of the record's flags.
enum class ResultKind : uint8_t {
  place = 0,   // nothing else: a put, delete, cas or batch
  number = 1,  // an incr: the record's value, a signed 64-bit number in decimal
  length = 2,  // an append: the length of the record's value
  refused = 3  // a cas whose condition did not hold: the record changes nothing
};
constexpr uint8_t kResultBits = 0x03;  // of Record::flags; the others are 0

inline uint8_t result_flags(ResultKind kind) { return static_cast<uint8_t>(kind); }

// What was answered to a write, and is answered to each repeat of it.
struct WriteOutcome {
  Epoch epoch;
  Lsn lsn;  // of its last record
  ResultKind kind = ResultKind::place;
  int64_t value = 0;  // of a number or length
  friend bool operator==(const WriteOutcome&, const WriteOutcome&) = default;
};
// Of a quorum table's record. malformed: its flags say what the record does not bear out, or one of client and series
// stands without the other.
base::Result<WriteOutcome> outcome_of(const RecordView& record);

// A signed 64-bit number in decimal, nothing else; invalid: it is not one.
base::Result<int64_t> parse_number(std::string_view text);

// --- windows --------------------------------------------------------------------------------------

struct SeriesEntry {
  uint64_t number = 0;
  WriteOutcome outcome;
  uint64_t time_ms = 0;  // log time through its block
  friend bool operator==(const SeriesEntry&, const SeriesEntry&) = default;
};

// With `high` as the client's highest number, `number` is no longer remembered.
constexpr bool below_window(uint64_t number, uint64_t high) {
  return high >= kSeriesWindow && number <= high - kSeriesWindow;
}

class SeriesWindow {
 public:
  void add(const SeriesEntry& entry);
  void merge(const SeriesWindow& other);
  void shift(uint64_t ms);       // into the time of a log that is so far ahead of theirs
  void expire(uint64_t now_ms);  // forgets what was written kSeriesExpiryMs of log time ago
  const SeriesEntry* find(uint64_t number) const;
  uint64_t high() const { return entries_.empty() ? 0 : entries_.back().number; }
  bool empty() const { return entries_.empty(); }
  const std::vector<SeriesEntry>& entries() const { return entries_; }
  friend bool operator==(const SeriesWindow& a, const SeriesWindow& b) { return a.entries_ == b.entries_; }

 private:
  void look_at_times();

  std::vector<SeriesEntry> entries_;
  // A window is put together for each write: most of that must not look at every entry.
  uint64_t newest_ms_ = 0;  // of the entries, if there are any
  uint64_t oldest_ms_ = 0;  // none of them is older
};

// What a replica knows of a client.
struct ClientSeries {
  SeriesWindow window;  // what has expired may still be among it
  uint64_t now_ms = 0;  // the log time
  bool whole = true;    // false: there may have been more, a snapshot did not bring it
};

}  // namespace cantle::model

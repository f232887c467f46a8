// What is kept in memory of a quorum table's log besides its newest blocks: where older ones lie in the journal, and
// where each epoch begins (design/store.md, "Journal").
//
// Use
//   index.add(header.first, frame.at);            // each log block, in the order of the journal
//   index.cut(keep, frame.at);                    // a truncate block
//   if (auto at = index.find(lsn)) …              // walk the journal's frames from there
//   if (!index.lives(header.last(), sequence)) …  // that one was cut away: pass over it
//
// Invariants
//   * One mark a partition and kMarkEvery bytes of a segment, and one at its first block in each segment.
//   * A block that was cut away is never taken for the one of the same LSN that was written after the cut.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/model/ids.h"
#include "lib/model/quorum.h"
#include "lib/store/position.h"

namespace cantle::store {

constexpr uint64_t kMarkEvery = uint64_t{256} << 10;  // of a segment
// Where thousands of logs share the journal, a block lies far from the one before it. The last ones of each log are
// remembered one by one: they are what is asked for when replicas come back.
constexpr uint64_t kMarkAlone = uint64_t{4} << 10;  // that far behind the block before
constexpr size_t kAloneMost = 8;
constexpr size_t kMarksAhead = 32;  // of ahead(): 8 MiB of a log that has the journal for itself

class LogIndex {
 public:
  void add(model::Lsn first, const JournalPosition& at);
  void cut(model::Lsn keep, const JournalPosition& at);
  void forget_below(uint64_t segment);  // segments below are gone
  // What was found later of the part of the log before ours.
  void put_before(LogIndex older);

  // Where to begin to look for the block that holds `lsn`. Nothing: it lies before all that is known.
  std::optional<JournalPosition> find(model::Lsn lsn) const;
  // Is a block that ends at `last`, met at that place, part of the log as it is now?
  bool lives(model::Lsn last, uint64_t sequence) const;
  std::optional<model::Lsn> oldest() const;  // first LSN that is known
  size_t marks() const { return marks_.size(); }
  // For elsewhere: lives() as here, and find() from that LSN on, a little way.
  LogIndex ahead(model::Lsn from) const;
  // The block that holds `next` lies further on than right behind that one, which has so many bytes: what lies in
  // between is others'.
  bool lies_far(model::Lsn next, const JournalPosition& from, size_t bytes) const;

 private:
  struct Mark {
    model::Lsn first;  // of a cut: the last LSN kept
    JournalPosition at;
    bool alone = false;  // goes when newer ones have come
  };
  std::vector<Mark> marks_;  // ascending in both
  std::vector<Mark> cuts_;   // in the order of the journal
  JournalPosition last_;     // of the last block that was added
  void forget_alone();
};

// Ascending in both; one entry for each epoch that has a block.
class EpochTable {
 public:
  EpochTable() = default;
  explicit EpochTable(std::vector<model::EpochStart> starts) : starts_(std::move(starts)) {}
  void note(model::Epoch epoch, model::Lsn first);  // a block
  void cut(model::Lsn keep);                        // blocks above are gone
  // Could a block of that epoch that begins there be in the log? Before all that is known: yes.
  bool fits(model::Epoch epoch, model::Lsn first) const;
  const std::vector<model::EpochStart>& starts() const { return starts_; }

 private:
  std::vector<model::EpochStart> starts_;
};

}  // namespace cantle::store

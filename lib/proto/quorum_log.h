// QuorumLog: what the machines know of a replica's own log: its ends, its epochs, the last blocks.
//
// It mirrors what the store has (Engine::quorum_log): whoever asks the store for an append, a cut or a commit tells it
// here, so that the machines decide without asking. Pure memory.
//
// Invariants
//   * commit <= durable <= end; nothing at or below the commit is ever cut.
//   * `epochs` has one entry for each epoch with a block in the log, ascending in both fields.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/cut.h"
#include "lib/model/quorum.h"

namespace cantle::proto::quorum {

constexpr size_t kRecentPoints = 4096;  // blocks whose ends are remembered

class Log {
 public:
  // As the store found it.
  Log(model::LogPoint end, model::Lsn commit, std::vector<model::EpochStart> epochs,
      std::vector<model::CutMark> cuts = {})
      : end_(end), durable_(end), commit_(commit), epochs_(std::move(epochs)), cuts_(std::move(cuts)) {
    recent_.push_back(end);
  }

  const model::LogPoint& end() const { return end_; }  // appended
  const model::LogPoint& durable() const { return durable_; }
  model::Lsn commit() const { return commit_; }
  const std::vector<model::EpochStart>& epochs() const { return epochs_; }
  bool quiet() const { return end_ == durable_; }
  // It ends in the cut of a split or a merge: whoever leads with it is parked.
  std::optional<model::CutMark> open_cut() const { return cuts_.open(); }
  std::optional<model::CutMark> committed_cut() const;

  // A block from `first` to `end` was appended. `mark`: it is a cut or an uncut.
  void append(model::Lsn first, const model::LogPoint& end, const std::optional<model::CutMark>& mark = {});
  void durable(const model::LogPoint& point);
  void truncate(const model::LogPoint& keep);
  // The store did not take what was appended last: its log ends here.
  void retract(const model::LogPoint& end);
  // At most the durable end. True: it grew.
  bool commit(model::Lsn lsn);

  // End of the block that ends at `lsn`, if it is one of the last.
  std::optional<model::LogPoint> recent(model::Lsn lsn) const;

 private:
  void shorten(const model::LogPoint& end);

  model::LogPoint end_, durable_;
  model::Lsn commit_;
  std::vector<model::EpochStart> epochs_;
  model::CutTable cuts_;
  std::deque<model::LogPoint> recent_;  // ascending
};

// The LSN up to which two logs are the same, as far as epochs can tell: within one epoch one leader alone appended, so
// that the same epoch at the same LSN is the same record (S2). `end` and `epochs` of each.
model::Lsn last_common(const model::LogPoint& end_a, const std::vector<model::EpochStart>& a,
                       const model::LogPoint& end_b, const std::vector<model::EpochStart>& b);

}  // namespace cantle::proto::quorum

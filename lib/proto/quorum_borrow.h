// Borrow: how a voter that would lead gets what its log lacks from one that has more and cannot lead itself
// (design/replication.md, "Electing").
//
// Use
//   Borrow borrow;
//   borrow.due(sources, promise, log, out);     // often, while the election says so
//   if (borrow.answered(number, ok)) …          // what came is for the log as it was when it was asked for
//
// The sources are asked one after the other, best first: whoever does not answer, or has nothing that follows, is
// passed over for the next.
//
// Invariants
//   * One thing is asked for at a time; an answer to an older question changes nothing.
#pragma once

#include <optional>
#include <vector>

#include "lib/proto/quorum_log.h"
#include "lib/proto/quorum_types.h"

namespace cantle::proto::quorum {

constexpr base::Duration kLendTimeout = std::chrono::seconds(3);  // the shell's, for one answer

class Borrow {
 public:
  void due(const std::vector<model::Hop>& sources, model::Epoch promise, const Log& log, Effects& out);
  // What was asked for with it, and is answered now. Nothing: it answers an older question.
  std::optional<BorrowBlocks> answered(uint64_t number, bool ok);

 private:
  std::optional<BorrowBlocks> asked_;
  size_t turn_ = 0;
  uint64_t number_ = 0;
};

}  // namespace cantle::proto::quorum

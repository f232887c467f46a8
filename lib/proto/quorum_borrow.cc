#include "lib/proto/quorum_borrow.h"

#include <utility>

namespace cantle::proto::quorum {

void Borrow::due(const std::vector<model::Hop>& sources, model::Epoch promise, const Log& log, Effects& out) {
  if (asked_ || sources.empty()) return;
  asked_ = {sources[turn_ % sources.size()], ++number_, promise, log.end(), log.epochs()};
  out.emplace_back(*asked_);
}

std::optional<BorrowBlocks> Borrow::answered(uint64_t number, bool ok) {
  if (!asked_ || asked_->number != number) return std::nullopt;
  if (!ok) ++turn_;
  return std::exchange(asked_, std::nullopt);
}

}  // namespace cantle::proto::quorum

#include "lib/proto/quorum_mend.h"

#include <algorithm>

namespace cantle::proto::quorum {

using base::Code;
using base::Instant;

void Mend::ask(Instant now, const Others& others, Effects& out) {
  if (!gap_ || asked_ || others.empty() || now < again_) return;
  if (!since_) since_ = now;
  asked_ = ++number_;
  asked_of_ = others[turn_ % others.size()];
  out.emplace_back(FetchBlocks{asked_of_, *asked_, *gap_});
}

void Mend::tick(Instant now, const Others& others, Effects& out) { ask(now, others, out); }

bool Mend::fetched(Instant now, uint64_t number, const base::Result<std::optional<model::LogGap>>& next,
                   const Others& others, Effects& out) {
  if (asked_ != number) return false;
  asked_.reset();
  if (!gap_) return false;
  if (next) {
    out.emplace_back(Say{base::Level::notice, "mended",
                         "LSN " + to_string(gap_->after.lsn.next()) + " to " + to_string(gap_->upto.lsn) +
                             " came from " + asked_of_.server.name});
    gap_ = *next;
    since_.reset();
    vain_.clear();
    backoff_ = kMendAgain;
    again_ = now;
    ask(now, others, out);  // whoever had this may have that
    return true;
  }
  const auto code = next.error().code;
  const bool later = code == Code::unavailable || code == Code::outcome_unknown || code == Code::overloaded;
  if (!later) vain_.insert(asked_of_.assignment);
  out.emplace_back(Say{base::Level::info, "mend", asked_of_.server.name + ": " + to_string(next.error())});
  turn_++;
  if (turn_ % std::max<size_t>(others.size(), 1) == 0) {
    again_ = now + backoff_;
    backoff_ = std::min(backoff_ * 2, kMendAgainMost);
  }
  ask(now, others, out);
  return true;
}

bool Mend::hopeful(Instant now, const Others& others) const {
  if (!gap_ || (since_ && now - *since_ >= kMendMost)) return false;
  return others.empty() || std::any_of(others.begin(), others.end(),
                                       [&](const model::Hop& other) { return !vain_.contains(other.assignment); });
}

}  // namespace cantle::proto::quorum

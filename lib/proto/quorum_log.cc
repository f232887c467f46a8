#include "lib/proto/quorum_log.h"

#include <algorithm>

#include "lib/base/check.h"

namespace cantle::proto::quorum {

using model::EpochStart;
using model::LogPoint;
using model::Lsn;

void Log::append(Lsn first, const LogPoint& end, const std::optional<model::CutMark>& mark) {
  CHECK(first == end_.lsn.next() && end.lsn >= first && end.epoch >= end_.epoch);
  if (epochs_.empty() || epochs_.back().epoch != end.epoch) epochs_.push_back({end.epoch, first});
  end_ = end;
  if (mark) cuts_.note(*mark, commit_);
  recent_.push_back(end);
  if (recent_.size() > kRecentPoints) recent_.pop_front();
}

void Log::durable(const LogPoint& point) {
  if (point.lsn > durable_.lsn) durable_ = point;
}

void Log::truncate(const LogPoint& keep) {
  CHECK(keep.lsn >= commit_ && keep.lsn <= end_.lsn);
  durable_ = keep;
  shorten(keep);
}

void Log::retract(const LogPoint& end) {
  if (end.lsn >= end_.lsn) return;
  CHECK(end.lsn >= durable_.lsn && end.lsn >= commit_);
  shorten(end);
}

void Log::shorten(const LogPoint& keep) {
  end_ = keep;
  while (!epochs_.empty() && epochs_.back().first > keep.lsn) epochs_.pop_back();
  cuts_.truncate(keep.lsn);
  while (!recent_.empty() && recent_.back().lsn > keep.lsn) recent_.pop_back();
  if (recent_.empty()) recent_.push_back(keep);
}

bool Log::commit(Lsn lsn) {
  lsn = std::min(lsn, durable_.lsn);
  if (lsn <= commit_) return false;
  commit_ = lsn;
  return true;
}

std::optional<model::CutMark> Log::committed_cut() const {
  const auto cut = cuts_.open();
  return cut && cut->at.lsn <= commit_ ? cut : std::nullopt;
}

std::optional<LogPoint> Log::recent(Lsn lsn) const {
  const auto it =
      std::lower_bound(recent_.begin(), recent_.end(), lsn, [](const LogPoint& p, const Lsn& l) { return p.lsn < l; });
  if (it == recent_.end() || it->lsn != lsn) return std::nullopt;
  return *it;
}

namespace {
// Where an epoch ends in a log.
Lsn end_of(size_t at, const std::vector<EpochStart>& epochs, const LogPoint& end) {
  return at + 1 < epochs.size() ? Lsn{epochs[at + 1].first.value - 1} : end.lsn;
}
}  // namespace

Lsn last_common(const LogPoint& end_a, const std::vector<EpochStart>& a, const LogPoint& end_b,
                const std::vector<EpochStart>& b) {
  // The newest epoch that both have; up to where the shorter one of them has it.
  size_t i = a.size(), j = b.size();
  while (i > 0 && j > 0) {
    if (a[i - 1].epoch == b[j - 1].epoch) {
      if (a[i - 1].first != b[j - 1].first) {
        // The same epoch does not begin at two places; a table that says so is not to be trusted.
        --i, --j;
        continue;
      }
      return std::min(end_of(i - 1, a, end_a), end_of(j - 1, b, end_b));
    }
    a[i - 1].epoch > b[j - 1].epoch ? --i : --j;
  }
  // None: a log that begins behind another one's end (a child's) has its start in common.
  Lsn start{0};
  if (!a.empty() && !b.empty()) start = Lsn{std::min(a.front().first, b.front().first).value - 1};
  if (a.empty() && b.empty()) return std::min(end_a.lsn, end_b.lsn);
  if (a.empty()) return end_a.lsn;
  if (b.empty()) return end_b.lsn;
  return start;
}

}  // namespace cantle::proto::quorum

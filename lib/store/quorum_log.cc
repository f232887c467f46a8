#include "lib/store/quorum_log.h"

#include <algorithm>
#include <iterator>

namespace cantle::store {

using model::Lsn;

void LogIndex::add(Lsn first, const JournalPosition& at) {
  if (marks_.empty()) {
    marks_.push_back({first, at});
  } else if (first > marks_.back().first) {  // else the same block once more
    const auto grid = std::find_if(marks_.rbegin(), marks_.rend(), [](const Mark& m) { return !m.alone; });
    const auto far = [&](const JournalPosition& from, uint64_t bytes) {
      return from.segment != at.segment || at.offset - from.offset >= bytes;
    };
    if (grid == marks_.rend() || far(grid->at, kMarkEvery))
      marks_.push_back({first, at});
    else if (far(last_, kMarkAlone))
      marks_.push_back({first, at, true}), forget_alone();
  }
  last_ = at;
}

void LogIndex::forget_alone() {
  size_t alone = 0;
  for (auto m = marks_.rbegin(); m != marks_.rend(); ++m) {
    if (!m->alone || ++alone <= kAloneMost) continue;
    marks_.erase(std::prev(m.base()));
    return;
  }
}

void LogIndex::cut(Lsn keep, const JournalPosition& at) {
  while (!marks_.empty() && marks_.back().first > keep) marks_.pop_back();
  cuts_.push_back({keep, at});
}

void LogIndex::forget_below(uint64_t segment) {
  const auto gone = [segment](const Mark& m) { return m.at.segment < segment; };
  std::erase_if(marks_, gone);
  std::erase_if(cuts_, gone);
}

void LogIndex::put_before(LogIndex older) {
  for (const auto& c : cuts_)
    while (!older.marks_.empty() && older.marks_.back().first > c.first) older.marks_.pop_back();
  while (!marks_.empty() && !older.marks_.empty() && older.marks_.back().first >= marks_.front().first)
    older.marks_.pop_back();
  older.marks_.insert(older.marks_.end(), marks_.begin(), marks_.end());
  older.cuts_.insert(older.cuts_.end(), cuts_.begin(), cuts_.end());
  older.last_ = last_;
  *this = std::move(older);
}

std::optional<JournalPosition> LogIndex::find(Lsn lsn) const {
  const auto it = std::upper_bound(marks_.begin(), marks_.end(), lsn, [](Lsn l, const Mark& m) { return l < m.first; });
  if (it == marks_.begin()) return std::nullopt;
  return std::prev(it)->at;
}

bool LogIndex::lives(Lsn last, uint64_t sequence) const {
  return std::none_of(cuts_.begin(), cuts_.end(),
                      [&](const Mark& c) { return c.at.sequence > sequence && c.first < last; });
}

LogIndex LogIndex::ahead(Lsn from) const {
  LogIndex out;
  out.cuts_ = cuts_;
  auto it = std::upper_bound(marks_.begin(), marks_.end(), from, [](Lsn l, const Mark& m) { return l < m.first; });
  if (it != marks_.begin()) --it;
  for (; it != marks_.end() && out.marks_.size() < kMarksAhead; ++it) out.marks_.push_back(*it);
  return out;
}

bool LogIndex::lies_far(Lsn next, const JournalPosition& from, size_t bytes) const {
  const auto mark = find(next);
  return mark && mark->sequence > from.sequence &&
         (mark->segment != from.segment || mark->offset - from.offset >= bytes + kMarkAlone);
}

std::optional<Lsn> LogIndex::oldest() const {
  if (marks_.empty()) return std::nullopt;
  return marks_.front().first;
}

void EpochTable::note(model::Epoch epoch, Lsn first) {
  if (starts_.empty() || starts_.back().epoch < epoch) starts_.push_back({epoch, first});
}

void EpochTable::cut(Lsn keep) {
  while (!starts_.empty() && starts_.back().first > keep) starts_.pop_back();
}

bool EpochTable::fits(model::Epoch epoch, Lsn first) const {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), first,
                                     [](Lsn lsn, const model::EpochStart& s) { return lsn < s.first; });
  return next == starts_.begin() || std::prev(next)->epoch == epoch;
}

}  // namespace cantle::store

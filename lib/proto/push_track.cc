#include "lib/proto/push_track.h"

#include <algorithm>

namespace cantle::proto::push {
namespace {

bool holds(const std::vector<model::AssignmentId>& ids, const model::AssignmentId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The greatest version below `v`, for thresholds.
model::Version below(model::Version v) {
  for (size_t i = v.bytes.size(); i-- > 0;)
    if (v.bytes[i]-- != 0) break;
  return v;
}

bool one_child(Side side) { return side == Side::low || side == Side::high; }

}  // namespace

void LogTrack::set_targets(const std::vector<Target>& targets) {
  std::map<model::AssignmentId, Mark> next;
  for (const auto& t : targets) {
    Mark mark;
    if (auto it = targets_.find(t.assignment); it != targets_.end()) mark = it->second;
    mark.side = t.side;
    mark.since = t.since;
    next.emplace(t.assignment, mark);
  }
  for (const auto& [id, mark] : targets_)
    if (!next.contains(id)) gone_.push_back(id);
  targets_ = std::move(next);
  advance_all();
}

void LogTrack::begin(model::Lsn begin) {
  if (begin <= last_) return;
  last_ = forgotten_ = begin;
}

void LogTrack::close(const model::Version& oldest) {
  if (auto it = open_.find(oldest); it != open_.end()) open_.erase(it);
}

void LogTrack::add(Entry entry) {
  if (entry.kind == Entry::Kind::own) close(entry.oldest);
  last_ = entry.end.lsn;
  entries_.push_back(std::move(entry));
  advance_all();
}

void LogTrack::acked(model::Lsn end, const model::AssignmentId& target) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), end,
                             [](const Entry& e, model::Lsn lsn) { return e.end.lsn < lsn; });
  if (it == entries_.end() || it->end.lsn != end) return;  // forgotten meanwhile
  if (!holds(it->acked, target)) it->acked.push_back(target);
  if (auto t = targets_.find(target); t != targets_.end()) {
    advance(t->first, t->second);
    trim();
  }
}

void LogTrack::settled(const model::SettledMark& mark) {
  if (mark.version.none()) return;
  const Stamper stamper{mark.version.server(), mark.version.incarnation()};
  if (!stampers_.contains(stamper) && stampers_.size() >= kStampersMax) stampers_.erase(stampers_.begin());
  auto& marks = stampers_[stamper];
  for (const auto& m : marks)
    if (m.version >= mark.version && m.txnseq >= mark.txnseq) return;  // says nothing new
  std::erase_if(marks, [&](const auto& m) { return m.version <= mark.version && m.txnseq <= mark.txnseq; });
  if (marks.size() >= kMarksPerStamper) marks.erase(marks.begin());
  marks.push_back(mark);
  advance_all();
}

void LogTrack::pushed_to(const model::AssignmentId& target, model::Lsn lsn) {
  auto it = targets_.find(target);
  if (it == targets_.end() || it->second.lsn >= lsn) return;
  it->second.lsn = std::min(lsn, last_);
  advance(it->first, it->second);
  trim();
}

bool LogTrack::confirmed(const Entry& entry, const model::AssignmentId& id, const Mark& mark) const {
  switch (entry.kind) {
    case Entry::Kind::own:
      if (one_child(entry.side) && one_child(mark.side) && entry.side != mark.side) return true;  // none of its keys
      return holds(entry.acked, id);
    case Entry::Kind::received: {
      auto it = stampers_.find({entry.newest.server(), entry.newest.incarnation()});
      if (it == stampers_.end()) return false;
      // The stamper spoke of the assignments of a map: this target must have been among them.
      return std::any_of(it->second.begin(), it->second.end(),
                         [&](const auto& m) { return m.version >= entry.newest && m.txnseq >= mark.since; });
    }
    case Entry::Kind::unknown: return false;
  }
  return false;
}

void LogTrack::advance(const model::AssignmentId& id, Mark& mark) {
  if (mark.lsn < forgotten_) return;  // what lies between is not known here
  auto it = std::upper_bound(entries_.begin(), entries_.end(), mark.lsn,
                             [](model::Lsn lsn, const Entry& e) { return lsn < e.end.lsn; });
  for (; it != entries_.end() && confirmed(*it, id, mark); ++it) {
    mark.lsn = it->end.lsn;
    mark.point = it->end;
    mark.changed = true;
  }
}

void LogTrack::advance_all() {
  for (auto& [id, mark] : targets_) advance(id, mark);
  trim();
}

model::Lsn LogTrack::lowest() const {
  model::Lsn low = last_;
  for (const auto& [id, mark] : targets_) low = std::min(low, mark.lsn);
  return low;
}

void LogTrack::trim() {
  const auto low = lowest();
  while (!entries_.empty() && (entries_.front().end.lsn <= low || entries_.size() > kTrackEntriesMax)) {
    const auto& e = entries_.front();
    if (e.kind == Entry::Kind::own && e.newest > forgotten_own_) forgotten_own_ = e.newest;
    forgotten_ = e.end.lsn;
    entries_.pop_front();
  }
}

std::vector<std::pair<model::AssignmentId, model::LogPoint>> LogTrack::take_changed() {
  std::vector<std::pair<model::AssignmentId, model::LogPoint>> changed;
  for (auto& [id, mark] : targets_)
    if (std::exchange(mark.changed, false)) changed.emplace_back(id, mark.point);
  return changed;
}

model::Version LogTrack::own_settled() const {
  if (lowest() < forgotten_) return {};
  auto version = forgotten_own_;
  // Blocks of one turn are stamped interleaved: nothing at or above the oldest stamp that is still open is settled.
  if (!open_.empty() && *open_.begin() <= version) version = below(*open_.begin());
  int looked = 0;  // one block a child and turn: the next turn's stamps are above these
  for (auto e = entries_.begin(); e != entries_.end() && looked < 2; ++e)
    if (e->kind == Entry::Kind::own) {
      if (e->oldest <= version) version = below(e->oldest);
      looked++;
    }
  return version;
}

std::vector<model::SettledMark> LogTrack::marks() const {
  std::vector<model::SettledMark> all;
  for (const auto& [stamper, marks] : stampers_) all.insert(all.end(), marks.begin(), marks.end());
  return all;
}

model::Lsn LogTrack::needed() const { return lowest().next(); }

model::Lsn LogTrack::mark(const model::AssignmentId& target) const {
  auto it = targets_.find(target);
  return it == targets_.end() ? model::Lsn{} : it->second.lsn;
}

LogTrack LogTrack::continued_by(Side side, const std::vector<Target>& targets) const {
  LogTrack child = *this;
  child.gone_.clear();
  child.targets_.clear();
  for (const auto& t : targets) {
    Mark mark{.side = t.side, .since = t.since, .lsn = {}, .point = {}, .changed = false};
    auto from = targets_.find(t.assignment);  // a target of the split already
    if (from == targets_.end() && !t.continues.none()) from = targets_.find(t.continues);
    if (from != targets_.end()) {
      mark.lsn = from->second.lsn;
      mark.point = from->second.point;
      mark.changed = mark.point.lsn == mark.lsn && mark.lsn.value > 0;
    }
    child.targets_.emplace(t.assignment, mark);
  }
  for (auto& e : child.entries_) {
    const bool elsewhere = one_child(e.side) && e.side != side;  // none of its keys are this child's
    for (const auto& t : targets)
      if ((elsewhere || holds(e.acked, t.continues)) && !holds(e.acked, t.assignment)) e.acked.push_back(t.assignment);
    e.side = Side::whole;
  }
  child.advance_all();
  return child;
}

}  // namespace cantle::proto::push

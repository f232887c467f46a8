// LogTrack: how far each target has confirmed one copy's log by live sends, without a gap; and what its stampers say.
//
// Every block of the log is one entry, in LSN order: own (stamped here: targets confirm it one by one), received
// (stamped by the sender of a push.write, who tells with later writes how far all assignments have its records), or
// unknown (from bulk: only replpush's own position can tell).
//
// Use
//   track.set_targets({...});  track.opened(oldest);  track.add(own_entry);  track.acked(end_lsn, target);
//   track.settled(stamper_mark);  track.pushed_to(target, lsn);
//   for (auto& [target, point] : track.take_changed()) publish(target, point);
//
// Invariants
//   * A target's mark never passes an entry that the target has not confirmed durable.
//   * own_settled() is at or above a version only if every record stamped here at or below it is confirmed by every
//     target that there is now.
//   * At most kTrackEntriesMax entries; what is forgotten for want of room can only hold marks back.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/ids.h"
#include "lib/model/local.h"
#include "lib/model/version.h"
#include "lib/proto/push_plan.h"

namespace cantle::proto::push {

constexpr size_t kTrackEntriesMax = 8192;
constexpr size_t kMarksPerStamper = 4;
constexpr size_t kStampersMax = 256;

class LogTrack {
 public:
  struct Entry {
    enum class Kind : uint8_t { own, received, unknown } kind = Kind::unknown;
    model::LogPoint end;            // of the block
    model::Version oldest, newest;  // own: both; received: newest
    Side side = Side::whole;        // own: which child's targets it concerns
    std::vector<model::AssignmentId> acked;
  };

  // Marks of targets that stay are kept. The log begins behind `begin` as far as this track goes.
  void set_targets(const std::vector<Target>& targets);
  void begin(model::Lsn begin);
  void opened(const model::Version& oldest) { open_.insert(oldest); }  // own block, not in the log yet
  void abandoned(const model::Version& oldest) { close(oldest); }      // and never will be
  void add(Entry entry);
  void acked(model::Lsn end, const model::AssignmentId& target);
  void settled(const model::SettledMark& mark);
  void pushed_to(const model::AssignmentId& target, model::Lsn lsn);

  // Marks that moved since the last call, each at the end of a block.
  std::vector<std::pair<model::AssignmentId, model::LogPoint>> take_changed();
  std::vector<model::AssignmentId> take_gone() { return std::exchange(gone_, {}); }  // targets no longer there
  model::Version own_settled() const;
  std::vector<model::SettledMark> marks() const;
  model::Lsn needed() const;  // the lowest LSN that some target may still lack; one past the end when none does
  model::Lsn mark(const model::AssignmentId& target) const;
  size_t entries() const { return entries_.size(); }
  model::Lsn last() const { return last_; }

  // The track of a child's log (side low or high), which goes on where this one ends.
  LogTrack continued_by(Side side, const std::vector<Target>& targets) const;

 private:
  struct Mark {
    Side side = Side::whole;
    model::TxnSeq since;
    model::Lsn lsn;
    model::LogPoint point;  // the same as a block end; may lag behind lsn
    bool changed = false;
  };
  using Stamper = std::pair<model::ServerNumber, model::Incarnation>;

  bool confirmed(const Entry& entry, const model::AssignmentId& id, const Mark& mark) const;
  void advance(const model::AssignmentId& id, Mark& mark);
  void advance_all();
  void trim();
  model::Lsn lowest() const;
  void close(const model::Version& oldest);

  std::map<model::AssignmentId, Mark> targets_;
  std::vector<model::AssignmentId> gone_;
  std::deque<Entry> entries_;
  std::map<Stamper, std::vector<model::SettledMark>> stampers_;
  std::multiset<model::Version> open_;
  model::Lsn last_;               // end of the log
  model::Lsn forgotten_;          // entries at or below it are not here any more
  model::Version forgotten_own_;  // the newest version stamped here among them
};

}  // namespace cantle::proto::push

#include "lib/proto/push_fill.h"

#include <algorithm>
#include <vector>

#include "lib/base/testing.h"
#include "lib/proto/push_plan.h"

namespace cantle::proto::push {

using model::answers_reads;
using model::Assignment;
using model::AssignmentId;

namespace {

using Assignments = std::vector<Assignment>;

class Sources {
 public:
  Sources(const model::Metadata& map, const model::Partition& partition, const AssignmentId& own, const Heard& heard)
      : own_(own), heard_(heard), replicas_(map.replicas) {
    line_.push_back(&partition.assignments);
    for (const auto* e = model::find_parent(map, partition.id); e != nullptr; e = model::find_parent(map, e->id))
      line_.push_back(&e->parent_assignments);
  }

  // Everything that was acknowledged under the n-th of the line, and before it, is here.
  bool cover(size_t n) const {
    std::set<uint32_t> whole, any;
    for (const auto& a : *line_[n]) {
      if (has_all(n, a)) whole.insert(a.slot);
      if (has_since_it_began(n, a)) any.insert(a.slot);
    }
    if (MUTANT("available_before_majority_bulk_end") && !whole.empty()) return true;
    const size_t needed = read_quorum(std::max<size_t>(replicas_, slots(n)));
    if (whole.size() >= needed) return true;
    any.insert(whole.begin(), whole.end());
    return any.size() >= needed && cover_before(n);
  }

  // Everything that was acknowledged before the n-th of the line began.
  bool cover_before(size_t n) const {
    if (n + 1 >= line_.size()) return false;
    const auto was_filled = [&](const Assignment& a) { return has_all(n, a) && continued(n, a) == nullptr; };
    return std::any_of(line_[n]->begin(), line_[n]->end(), was_filled) || cover(n + 1);
  }

  // Everything that was acknowledged before `a`, of the n-th of the line, joined.
  bool cover_before_it_joined(size_t n, const Assignment& a) const {
    if (!there_when_it_began(n, a)) return false;
    const auto* older = continued(n, a);
    if (older != nullptr && !answers_reads(older->state) && cover_before_it_joined(n + 1, *older)) return true;
    return cover_before(n);
  }

 private:
  // The copy that it goes on from, on the same server; null: none.
  const Assignment* continued(size_t n, const Assignment& a) const {
    if (a.source.none() || n + 1 >= line_.size()) return nullptr;
    for (const auto& older : *line_[n + 1])
      if (older.id == a.source && older.server == a.server) return &older;
    return nullptr;
  }
  // And not in the place of another since.
  bool there_when_it_began(size_t n, const Assignment& a) const {
    return n + 1 < line_.size() && (a.source.none() || continued(n, a) != nullptr);
  }

  // Its log is here, sent by itself or by what goes on from it; this copy's own log is.
  bool heard_of(size_t n, const Assignment& a) const {
    if ((a.id == own_ && !heard_.damaged) || heard_.whole.contains(a.id) || heard_.filling.contains(a.id)) return true;
    if (n == 0) return false;
    return std::any_of(line_[n - 1]->begin(), line_[n - 1]->end(),
                       [&](const auto& b) { return continued(n - 1, b) == &a && heard_of(n - 1, b); });
  }
  bool has_all(size_t n, const Assignment& a) const {
    if (!answers_reads(a.state)) return false;
    return n == 0 ? heard_.whole.contains(a.id) && a.id != own_ : heard_of(n, a);
  }
  bool has_since_it_began(size_t n, const Assignment& a) const {
    return a.state == model::AssignmentState::initializing && there_when_it_began(n, a) && heard_of(n, a);
  }

  size_t slots(size_t n) const {
    std::set<uint32_t> all;
    for (const auto& a : *line_[n]) all.insert(a.slot);
    return all.size();
  }

  const AssignmentId& own_;
  const Heard& heard_;
  size_t replicas_;
  std::vector<const Assignments*> line_;  // the partition's, then those of its parent when that ended, and so on
};

}  // namespace

bool filled(const model::Metadata& map, const model::Partition& partition, const Assignment& own, const Heard& heard) {
  const Sources sources(map, partition, own.id, heard);
  return sources.cover(0) || (!heard.damaged && sources.cover_before_it_joined(0, own));
}

bool filled_child(const model::Metadata& map, const model::Partition& parent, const AssignmentId& own,
                  const Heard& heard) {
  return Sources(map, parent, own, heard).cover(0);
}

}  // namespace cantle::proto::push

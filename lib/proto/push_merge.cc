#include "lib/base/testing.h"
#include "lib/proto/push_impl.h"

// The end of a merge: a server that holds the two joins its copies of them.
namespace cantle::proto {

using namespace push;

namespace {

const model::Assignment* assignment_of(const model::EndedPartition& e, const ServerId& server) {
  for (const auto& a : e.parent_assignments)
    if (a.server == server) return &a;
  return nullptr;
}

}  // namespace

// Both ended in one transaction: looked at once, for the lower one.
void PushServer::Impl::merge_ended(Table& t, const model::EndedPartition& e) {
  const auto both = model::find_merged(*t.map, e.into);
  if (both.size() != 2 || both[0] != &e) return;
  Copy* here[2] = {};
  const model::Assignment* mine[2] = {};
  for (size_t i = 0; i < 2; i++) {
    mine[i] = assignment_of(*both[i], self.server);
    if (mine[i] == nullptr) return;
    here[i] = live(both[i]->id);
    if (here[i] != nullptr && here[i]->held.assignment != mine[i]->id) return;
  }
  if (here[0] == nullptr && here[1] == nullptr) return;  // joined already, or none of it was ever here
  const auto wait = [&] { t.joining.insert({both[0]->id, both[1]->id, e.into}); };
  for (size_t i = 0; i < 2; i++) {
    if (here[i] != nullptr) continue;
    if (!never_made(t, *mine[i])) return;  // it is lost: what is here of the other one is pushed, and goes
    // Nobody ever heard that this server has anything of it. Empty, it is joined with the other one.
    unmade[mine[i]->id] = t.uuid;
    wait();
    (void)make_copy(t, both[i]->id, both[i]->region, both[i]->interval, mine[i]->id);
    return;
  }
  if (here[0]->creating || here[1]->creating) return wait();
  merge(t, *here[0], *here[1], e);
}

// Its disk was full, or this server was away from the beginning of the table on.
bool PushServer::Impl::never_made(const Table& t, const model::Assignment& a) const {
  if (copies.contains(a.id)) return false;
  return unmade.contains(a.id) || goes_on_from_unmade(t, a) ||
         (came_with_the_table(a) && !self.seen.contains(t.uuid) && !self.fresh_under_known_name);
}

// The target's log begins behind both. Of what was not confirmed to everybody in them its track knows nothing: until
// the mover has said of a target that it has all of both, it holds no mark for it, and calls nothing settled.
void PushServer::Impl::merge(Table& t, Copy& low, Copy& high, const model::EndedPartition& e) {
  const Child target = child_here(t, e.into, low);
  if (target.assignment.none()) {  // replaced since: push the rest, prove, drop
    set_aside(t, high);
    return set_aside(t, low);
  }
  emit(Merge{low.held.partition, high.held.partition, e.attempt, target});
  Copy& c = add({.partition = target.partition,
                 .assignment = target.assignment,
                 .region = target.region,
                 .table = t.uuid,
                 .interval = {low.held.interval.begin, high.held.interval.end},
                 .aside = false,
                 .end = {}});
  c.caught_up = low.caught_up && high.caught_up;
  c.catch_up_until = std::max(low.catch_up_until, high.catch_up_until);
  c.heal = std::max(low.heal, high.heal);
  if (!MUTANT("settled_before_the_rest"))
    c.track.begin({std::max({low.track.last().value, high.track.last().value, uint64_t{1}})});
  merging[target.partition] = {t.uuid, hold_back(t), false};
  remove(low.held.assignment);
  remove(high.held.assignment);
}

}  // namespace cantle::proto

// Every state that splits, replacements, drops of old copies and the loss of one server can lead a partition of three
// replicas to, with the operations, plans and rules of the real machines, and one acknowledged write at the worst time:
//   * it is never missed by a read at majority;
//   * with the servers that are left every replica can be filled, every operation ends, every old copy can go.
// FILL_SERVERS, FILL_SPLITS and FILL_MOVES bound a wider search than the one that always runs.
#include "lib/proto/push_fill.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <unordered_set>

#include "lib/model/operation.h"
#include "lib/proto/mover_plan.h"
#include "lib/proto/push_plan.h"
#include "lib/proto/replace_driver.h"
#include "lib/proto/split_driver.h"

namespace cantle::proto::push {
namespace {

using model::answers_reads;
using model::Assignment;
using model::AssignmentId;
using model::AssignmentState;
using model::Metadata;
using model::Partition;
using model::PartitionId;
using model::ServerId;

constexpr int kReplicas = 3;
const std::string kKey = "a";  // in the low child of each split

struct Limits {
  int servers = 4, splits = 1, moves = 1;
};

template <class Id>
Id id_of(char what, int a = 0, int b = 0, char c = 0) {
  Id id;
  id.bytes[0] = static_cast<uint8_t>(what), id.bytes[1] = static_cast<uint8_t>(a);
  id.bytes[2] = static_cast<uint8_t>(b), id.bytes[3] = static_cast<uint8_t>(c);
  return id;
}
ServerId server(int n) { return {"p" + std::to_string(n)}; }
int number(const ServerId& s) { return std::atoi(s.name.c_str() + 1); }

struct Copy {
  int server = 0;
  PartitionId partition;
  bool aside = false, has = false;  // has: the write
};

struct State {
  std::shared_ptr<const Metadata> map;
  std::map<AssignmentId, Copy> copies;
  int lost = 0;  // a server; 0: none
  int splits = 0, moves = 0, changes = 0;
  bool written = false;
  std::string how;  // it came to be

  const Partition& part() const { return *map->find(kKey); }
  const Copy* copy(const AssignmentId& id) const {
    const auto it = copies.find(id);
    return it == copies.end() ? nullptr : &it->second;
  }
  std::string key() const;
  std::string describe() const;
};

std::string text(const std::vector<Assignment>& list) {
  std::string out;
  for (const auto& a : list)
    out += " " + a.server.name + "/" + std::to_string(a.slot) + "=" + to_string(a.id).substr(0, 8) + "(" +
           std::to_string(static_cast<int>(a.state)) + ")" +
           (a.source.none() ? "" : "<" + to_string(a.source).substr(0, 8));
  return out;
}
std::string State::describe() const {
  std::string out;
  for (const auto& p : map->partitions) {
    out += to_string(p.id).substr(0, 4) + text(p.assignments);
    if (p.split) out += " split " + std::to_string(static_cast<int>(p.split->phase)) + text(p.split->low.assignments);
    for (const auto& m : p.moves) out += m.from_dead ? " dead" : " move";
    out += "; ";
  }
  for (const auto& e : map->ended) out += "ended " + to_string(e.id).substr(0, 4) + text(e.parent_assignments) + "; ";
  for (const auto& [id, c] : copies)
    out += to_string(id).substr(0, 8) + (c.aside ? " aside" : "") + (c.has ? " has" : "") + "; ";
  return out + "lost " + std::to_string(lost) + (written ? " written" : "");
}
std::string State::key() const {
  return describe() + std::to_string(splits) + "," + std::to_string(moves) + "," + std::to_string(changes);
}

// What is left out: a later half that nobody looks at (the high child is repaired at once), and servers that come
// back (their copies are as good as those of servers that stayed, and what they forget is sent again).
class Search {
 public:
  explicit Search(const Limits& limits) : limits_(limits) {}

  void run() {
    push(first(), "");
    while (!todo_.empty() && !testing::Test::HasFailure()) {
      const State s = std::move(todo_.front());
      todo_.pop_front();
      ++states;
      if (const auto why = missed(s); !why.empty()) ADD_FAILURE() << why << "\n" << s.how << "\n" << s.describe();
      if (const auto why = stuck(s); !why.empty()) ADD_FAILURE() << why << "\n" << s.how << "\n" << s.describe();
      successors(s);
    }
  }

  size_t states = 0;

 private:
  State first() const {
    model::ops::CreateTable create;
    create.name = "t";
    create.table = id_of<model::TableUuid>('T', 1);
    create.replicas = kReplicas;
    model::ops::NewPartition p;
    p.id = id_of<PartitionId>('P');
    for (int i = 1; i <= kReplicas; ++i) p.assignments.push_back({server(i), id_of<AssignmentId>('A', 0, i)});
    create.partitions.push_back(p);
    State s;
    EXPECT_TRUE(commit(s, create));
    return s;
  }

  void push(State s, const std::string& step) {
    if (!step.empty()) s.how += step + ", ";
    tidy(s);
    if (seen_.insert(s.key()).second) todo_.push_back(std::move(s));
  }

  bool alive(const State& s, int n) const { return n != s.lost; }
  bool alive(const State& s, const ServerId& n) const { return alive(s, number(n)); }

  World world(const State& s) const {
    World w{s.map, {}, {}};
    for (int i = 1; i <= limits_.servers; ++i)
      if (alive(s, i)) w.live.insert(server(i)), w.observed[server(i)] = s.map->txnseq;
    return w;
  }

  // METADATA, and what the servers make of it at once.
  bool commit(State& s, const model::Operation& op) const {
    const auto before = s.map;
    const auto n = before ? static_cast<int>(before->txnseq.value) + 1 : 1;
    auto next = model::apply(before.get(), std::vector<model::Operation>{op},
                             {id_of<model::TxnId>('X', n / 250, n % 250 + 1),
                              id_of<model::ChangeId>('C', n / 250, n % 250 + 1), before ? std::string(32, 'h') : ""});
    if (!next) return false;
    next->changes.clear();
    s.map = std::make_shared<const Metadata>(std::move(*next));
    follow(s);
    return true;
  }
  void follow(State& s) const {
    const Partition& p = s.part();
    for (const auto& a : p.assignments) {
      const auto from = s.copies.find(a.source);
      if (s.copies.contains(a.id) || !alive(s, a.server)) continue;
      if (from != s.copies.end() && from->second.server == number(a.server) && from->second.partition != p.id) {
        Copy c = from->second;  // divided
        c.partition = p.id;
        s.copies.erase(from);
        s.copies[a.id] = c;
        continue;
      }
      begin(s, a, p.id);
    }
    if (p.split)
      for (const auto& a : p.split->low.assignments)
        if (a.source.none() && alive(s, a.server)) begin(s, a, p.split->low.id);
    for (auto it = s.copies.begin(); it != s.copies.end();) {
      auto& [id, c] = *it;
      const bool of_split = p.split && c.partition == p.split->low.id;
      const bool here = find_assignment(p, id) != nullptr || of_split;
      const bool known = here || c.aside || c.partition == p.id || find_ended(*s.map, c.partition) != nullptr;
      c.aside = !here;
      it = known ? std::next(it) : s.copies.erase(it);  // of an aborted split
    }
  }
  void begin(State& s, const Assignment& a, const PartitionId& p) const {
    if (s.copies.contains(a.id)) return;
    Copy c{number(a.server), p};
    for (auto it = s.copies.begin(); it != s.copies.end(); ++it)  // the store goes on with an older tenure
      if (it->second.server == c.server && it->second.partition == p) {
        c.has = it->second.has;
        s.copies.erase(it);
        break;
      }
    s.copies[a.id] = c;
  }
  // The other half is none of our business.
  void tidy(State& s) const {
    for (bool again = true; again;) {
      again = false;
      for (const auto& p : s.map->partitions) {
        if (p.interval.contains(kKey)) continue;
        if (repair(s, p)) {
          again = true;
          break;
        }
      }
    }
  }
  bool repair(State& s, Partition p) const {
    for (const auto& a : p.assignments)
      if (a.state == AssignmentState::initializing && alive(s, a.server))
        return commit(s, model::ops::MarkAvailable{a.id, a.server});
    for (const auto& m : p.moves) {
      if (find_assignment(p, m.to)->state == AssignmentState::proposed)
        return commit(s, model::ops::Initialize{p.id, m.attempt});
      return commit(s, model::ops::FinalizeMove{p.id, m.attempt});
    }
    for (const auto& a : p.assignments) {
      if (alive(s, a.server)) continue;
      for (int i = 1; i <= limits_.servers; ++i)
        if (alive(s, i) && !find_assignment(p, server(i))) {
          const auto n = static_cast<int>(s.map->txnseq.value);
          return commit(
              s, model::ops::Replace{
                     p.id, id_of<model::AttemptId>('h', n), a.id, {server(i), id_of<AssignmentId>('H', n)}, true});
        }
    }
    return false;
  }

  // --- what fills what -------------------------------------------------------------------------------------------
  model::HeldPartition held(const State& s, const AssignmentId& id, const Copy& c) const {
    model::HeldPartition h;
    h.table = "t";
    h.table_uuid = s.map->table;
    h.partition = c.partition;
    h.assignment = id;
    h.interval = {"", "b"};
    h.unload = c.aside;
    return h;
  }
  std::vector<AssignmentId> sources(const State& s, const AssignmentId& to) const {
    std::vector<AssignmentId> all;
    for (const auto& [id, c] : s.copies)
      for (const auto& t : mover::targets_of(held(s, id, c), *s.map, server(c.server)))
        if (t.id.target == to) all.push_back(id);
    return all;
  }
  bool enough(const State& s, const AssignmentId& to, const std::vector<AssignmentId>& from) const {
    const Partition& p = s.part();
    Heard heard;
    for (const auto& id : from) {
      const auto* a = find_assignment(p, id);
      (a != nullptr && !answers_reads(a->state) ? heard.filling : heard.whole).insert(id);
    }
    const auto* own = find_assignment(p, to);
    return own != nullptr ? filled(*s.map, p, *own, heard) : filled_child(*s.map, p, to, heard);
  }
  void deliver(State& s, const AssignmentId& to, const std::vector<AssignmentId>& from) const {
    for (const auto& id : from) s.copies[to].has = s.copies[to].has || s.copies[id].has;
  }
  std::vector<Assignment> to_fill(const State& s) const {
    std::vector<Assignment> all;
    const auto add = [&](const std::vector<Assignment>& list) {
      for (const auto& a : list)
        if (a.state == AssignmentState::initializing && s.copies.contains(a.id)) all.push_back(a);
    };
    add(s.part().assignments);
    if (s.part().split) add(s.part().split->low.assignments);
    return all;
  }
  // Calls with each smallest part of `of` that will do.
  template <class T, class Will>
  static void smallest(const std::vector<T>& of, const Will& will, const std::function<void(std::vector<T>)>& call) {
    std::vector<uint32_t> found;
    std::vector<uint32_t> masks(size_t{1} << of.size());
    for (uint32_t m = 0; m < masks.size(); ++m) masks[m] = m;
    std::stable_sort(masks.begin(), masks.end(),
                     [](auto a, auto b) { return __builtin_popcount(a) < __builtin_popcount(b); });
    for (const uint32_t m : masks) {
      if (std::any_of(found.begin(), found.end(), [&](auto f) { return (f & m) == f; })) continue;
      std::vector<T> some;
      for (size_t i = 0; i < of.size(); ++i)
        if ((m >> i & 1) != 0) some.push_back(of[i]);
      if (!will(some)) continue;
      found.push_back(m);
      call(std::move(some));
    }
  }
  // Proved and dropped, if it may be.
  bool drop(State& s, const AssignmentId& id) const {
    const Copy c = s.copies[id];
    const auto h = held(s, id, c);
    if (!mover::covered(h, *s.map) || model::being_filled(*s.map, h.interval)) return false;
    const auto targets = mover::targets_of(h, *s.map, server(c.server));
    for (const auto& t : targets)
      if (!s.copies.contains(t.id.target)) return false;
    for (const auto& t : targets) deliver(s, t.id.target, {id});
    s.copies.erase(id);
    return true;
  }

  // --- steps -----------------------------------------------------------------------------------------------------
  void successors(const State& s) {
    write(s);
    reshape(s);
    for (const auto& a : to_fill(s))
      smallest<AssignmentId>(
          sources(s, a.id), [&](const auto& from) { return enough(s, a.id, from); },
          [&](std::vector<AssignmentId> from) {
            State n = s;
            deliver(n, a.id, from);
            if (commit(n, model::ops::MarkAvailable{a.id, a.server})) push(n, "filled " + a.server.name);
          });
    for (const auto& [id, c] : s.copies)
      if (State n = s; c.aside && drop(n, id)) push(n, "dropped " + to_string(id).substr(0, 8));
    for (const auto& e : s.map->ended)
      if (State n = s; commit(n, model::ops::SweepEnded{e.id, e.attempt})) push(n, "swept");
    if (s.lost == 0)
      for (int i = 1; i <= limits_.servers; ++i) {
        State n = s;
        n.lost = i;
        std::erase_if(n.copies, [&](const auto& entry) { return entry.second.server == i; });
        push(n, "lost p" + std::to_string(i));
      }
    else if (State n = s; commit(n, model::ops::RemoveDead{server(s.lost)}) && n.describe() != s.describe())
      push(n, "removed");
  }

  void write(const State& s) {
    if (s.written) return;
    const Partition& p = s.part();
    for (const auto& a : p.assignments) {
      if (!answers_reads(a.state) || !s.copies.contains(a.id)) continue;
      const auto plan = make_plan(*s.map, a.server, {{&p, p.split ? Side::low : Side::whole}});
      std::vector<size_t> there;
      for (size_t i = 0; i < plan->targets.size(); ++i)
        if (s.copies.contains(plan->targets[i].assignment)) there.push_back(i);
      const auto mask = [](const auto& some) {
        uint64_t m = 0;
        for (const size_t i : some) m |= uint64_t{1} << i;
        return m;
      };
      smallest<size_t>(
          there, [&](const auto& some) { return plan->reached(mask(some)) >= std::optional(model::Level::majority); },
          [&](std::vector<size_t> some) {
            State n = s;
            n.written = true;
            std::string who;
            for (const size_t i : some) {
              n.copies[plan->targets[i].assignment].has = true;
              who += " " + plan->targets[i].server.name;
            }
            push(n, "written at" + who);
          });
    }
  }

  void reshape(const State& s) {
    const Partition& p = s.part();
    if (p.split) {
      const auto attempt = p.split->attempt;
      if (split_barrier_waits_for(p, world(s)).empty())
        if (State n = s; commit(n, model::ops::Initialize{p.id, attempt})) push(n, "initialize");
      if (State n = s; commit(n, model::ops::AbortSplit{p.id, attempt})) push(n, "abort");
      const auto high = ready_of(p, p.split->high, world(s));
      const auto low = ready_of(p, p.split->low, world(s));
      for (uint32_t m = 0; m < 1u << low.size(); ++m) {
        auto ready = high;
        for (size_t i = 0; i < low.size(); ++i)
          if ((m >> i & 1) != 0) ready.push_back(low[i]);
        if (State n = s; commit(n, model::ops::FinalizeSplit{p.id, attempt, ready})) push(n, "finalize");
      }
      return;
    }
    for (const auto& m : p.moves) {
      if (move_barrier_waits_for(p, m, world(s)).empty())
        if (State n = s; commit(n, model::ops::Initialize{p.id, m.attempt})) push(n, "initialize");
      if (State n = s; commit(n, model::ops::CancelMove{p.id, m.attempt})) push(n, "cancel");
      if (State n = s; commit(n, model::ops::FinalizeMove{p.id, m.attempt})) push(n, "moved");
    }
    if (!p.moves.empty()) return;
    if (s.splits < limits_.splits)
      for (uint32_t m = 0; m < 1u << limits_.servers; ++m) {
        std::vector<int> low;
        for (int i = 1; i <= limits_.servers; ++i)
          if ((m >> (i - 1) & 1) != 0 && alive(s, i)) low.push_back(i);
        if (low.size() != kReplicas) continue;
        if (State n = s; split(n, low)) push(n, "split " + std::to_string(m));
      }
    for (const auto& a : p.assignments) {
      const bool dead = !alive(s, a.server);
      if (!dead && s.moves >= limits_.moves) continue;
      for (int i = 1; i <= limits_.servers; ++i)
        if (State n = s; alive(s, i) && n.changes < limits_.moves + 1 && replace(n, a, i, dead)) {
          if (!dead) n.moves++;
          push(n, "replace " + a.server.name + " by p" + std::to_string(i));
        }
    }
  }
  bool split(State& s, const std::vector<int>& low) const {
    const Partition& p = s.part();
    const int level = ++s.splits;
    model::ops::SplitPartition op;
    op.partition = p.id;
    op.attempt = id_of<model::AttemptId>('S', level);
    op.point = std::string(1, static_cast<char>('m' - level));
    op.low.id = id_of<PartitionId>('P', level), op.high.id = id_of<PartitionId>('Q', level);
    for (const int i : low) op.low.assignments.push_back({server(i), id_of<AssignmentId>('A', level, i)});
    for (const auto& a : p.assignments)
      op.high.assignments.push_back({a.server, id_of<AssignmentId>('B', level, number(a.server))});
    return commit(s, op);
  }
  bool replace(State& s, const Assignment& from, int to, bool dead) const {
    const int n = ++s.changes;
    return commit(s, model::ops::Replace{s.part().id,
                                         id_of<model::AttemptId>('M', n),
                                         from.id,
                                         {server(to), id_of<AssignmentId>('R', n, to)},
                                         dead});
  }

  // --- what must hold --------------------------------------------------------------------------------------------
  static std::string missed(const State& s) {
    if (!s.written) return "";
    std::set<uint32_t> lacking;
    for (const auto& a : s.part().assignments)
      if (const auto* c = s.copy(a.id); answers_reads(a.state) && c != nullptr && !c->has) lacking.insert(a.slot);
    return lacking.size() >= write_majority(kReplicas) ? "a read at majority can miss the write" : "";
  }

  // Everything that is left does what it can; whoever waits for the dead is told to stop.
  std::string stuck(State s) const {
    for (int round = 0; round < 100; ++round)
      if (!help(s)) break;
    const Partition& p = s.part();
    if (p.split || !p.moves.empty()) return "an operation does not end: " + s.describe();
    for (const auto& a : p.assignments)
      if (a.state != AssignmentState::available || !s.copies.contains(a.id))
        return "not every replica can be filled: " + s.describe();
    for (const auto& [id, c] : s.copies)
      if (c.aside) return "an old copy stays: " + s.describe();
    for (const auto& [id, c] : s.copies)
      if (s.written && !c.has) return "the write is not everywhere: " + s.describe();
    return "";
  }
  bool help(State& s) const {
    tidy(s);
    for (const auto& a : to_fill(s)) {
      const auto from = sources(s, a.id);
      deliver(s, a.id, from);
      if (enough(s, a.id, from) && commit(s, model::ops::MarkAvailable{a.id, a.server})) return true;
    }
    const Partition p = s.part();
    if (p.split) {
      if (split_barrier_waits_for(p, world(s)).empty() && commit(s, model::ops::Initialize{p.id, p.split->attempt}))
        return true;
      auto ready = ready_of(p, p.split->low, world(s));
      for (const auto& id : ready_of(p, p.split->high, world(s))) ready.push_back(id);
      return commit(s, model::ops::FinalizeSplit{p.id, p.split->attempt, ready}) ||
             commit(s, model::ops::AbortSplit{p.id, p.split->attempt});
    }
    for (const auto& m : p.moves) {
      if (move_barrier_waits_for(p, m, world(s)).empty() && commit(s, model::ops::Initialize{p.id, m.attempt}))
        return true;
      return commit(s, model::ops::FinalizeMove{p.id, m.attempt}) || commit(s, model::ops::CancelMove{p.id, m.attempt});
    }
    for (const auto& a : p.assignments)
      for (int i = 1; i <= limits_.servers && !alive(s, a.server); ++i)
        if (alive(s, i) && replace(s, a, i, true)) return true;
    for (const auto& a : p.assignments) {  // live writes and streams go on
      const auto from = sources(s, a.id);
      if (s.copies.contains(a.id)) deliver(s, a.id, from);
    }
    for (const auto& [id, c] : s.copies)
      if (c.aside && drop(s, id)) return true;
    return false;
  }

  Limits limits_;
  std::deque<State> todo_;
  std::unordered_set<std::string> seen_;
};

int bound(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

TEST(PushFill, one_lost_server_never_leaves_a_replica_that_nobody_can_fill) {
  Limits limits;
  limits.servers = bound("FILL_SERVERS", limits.servers);
  limits.splits = bound("FILL_SPLITS", limits.splits);
  limits.moves = bound("FILL_MOVES", limits.moves);
  Search search(limits);
  search.run();
  std::printf("%zu states\n", search.states);
  EXPECT_GT(search.states, 100u);
}

}  // namespace
}  // namespace cantle::proto::push

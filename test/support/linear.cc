#include "test/support/linear.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "test/support/linear_search.h"

namespace cantle::linear {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr size_t kShownBefore = 10;  // operations of a failure's surroundings, of each sort
constexpr size_t kShownBytes = 60;   // of a value

using Operations = std::vector<const Operation*>;

bool changes(const Operation& o) { return o.op != Kind::get && !o.refused; }

// What was known at `until`: what had ended by then is sure, what had begun may have happened.
Piece known_at(const Operations& operations, int64_t until) {
  Piece p;
  for (const auto* o : operations) {
    if (o->outcome == Outcome::fail || o->begin > until) continue;
    if (o->outcome == Outcome::ok && o->end <= until)
      p.sure.push_back({o, o->begin, o->end});
    else if (changes(*o))
      p.maybe.push_back({o, o->begin, kNever});
  }
  return p;
}

// Who saw which value, and what may have left it.
struct Uses {
  std::map<State, std::pair<int64_t, int64_t>> seen;  // the first and the last end of those that saw it for sure
  std::map<State, size_t> sources;
  std::set<State> wished;  // by a cas that is a maybe
  bool sourced = true;     // all values were left by puts, deletes and swaps
  bool plain = true;       // and nobody sees what a record is not
};
Uses uses_of(const Piece& p) {
  Uses u;
  ++u.sources[p.initial];
  const auto look = [&u](const Operation& o) {
    if (writes(o)) ++u.sources[written(o)];
    if (o.op == Kind::incr || o.op == Kind::append) u.sourced = false;
    if (o.refused) u.plain = false;
  };
  for (const auto& i : p.sure) {
    look(*i.op);
    if (i.op->refused || (i.op->op != Kind::get && i.op->op != Kind::cas)) continue;
    const auto& value = i.op->op == Kind::get ? i.op->result : i.op->expected;
    const auto [at, added] = u.seen.try_emplace(value, i.end, i.end);
    if (!added) at->second = {std::min(at->second.first, i.end), std::max(at->second.second, i.end)};
  }
  for (const auto& i : p.maybe) {
    look(*i.op);
    if (i.op->op == Kind::cas) u.wished.insert(i.op->expected);
  }
  u.plain = u.plain && u.sourced;
  return u;
}

// Settles maybes where values say which it was, until there are no more:
//   * a value that was seen and that only this one can have left: it happened, before the first that saw it ended
//   * a value that nobody saw who ended after this one began: it might as well not have happened, as the next that
//     happened overwrote it without a look
void settle(Piece* p) {
  while (!p->maybe.empty()) {
    const auto uses = uses_of(*p);
    if (!uses.sourced) return;
    std::vector<Item> open;
    for (auto& i : p->maybe) {
      const auto value = written(*i.op);
      const auto seen = uses.seen.find(value);
      if (seen != uses.seen.end() && uses.sources.at(value) == 1)
        p->sure.push_back({i.op, i.begin, std::max(i.begin, seen->second.first)});
      else if (!uses.plain || uses.wished.contains(value) ||
               (seen != uses.seen.end() && seen->second.second >= i.begin))
        open.push_back(i);
    }
    if (open.size() == p->maybe.size()) return;
    p->maybe = std::move(open);
  }
}

// The state that the operation leaves, if that is known whatever was there before.
std::optional<State> left_by(const Operation& o) {
  if (o.op == Kind::get) return o.result;
  if (writes(o)) return written(o);
  if (o.op == Kind::incr && o.outcome == Outcome::ok && o.result) return State(o.result);
  return std::nullopt;
}

// Cuts behind each operation during which nothing else was under way, and that leaves a known state: what follows does
// not depend on what was before.
std::vector<Piece> cut(Piece whole) {
  std::stable_sort(whole.sure.begin(), whole.sure.end(),
                   [](const Item& a, const Item& b) { return a.begin < b.begin; });
  int64_t maybe_from = kNever;
  for (const auto& i : whole.maybe) maybe_from = std::min(maybe_from, i.begin);
  std::vector<Piece> pieces(1);
  pieces.back().initial = whole.initial;
  int64_t ended = std::numeric_limits<int64_t>::min();  // the last end so far
  for (size_t n = 0; n < whole.sure.size(); ++n) {
    const auto& item = whole.sure[n];
    pieces.back().sure.push_back(item);
    const bool last = n + 1 == whole.sure.size();
    const bool alone = (n == 0 || ended < item.begin) && !last && item.end < whole.sure[n + 1].begin;
    ended = std::max(ended, item.end);
    if (!alone || maybe_from <= item.end) continue;
    if (auto left = left_by(*item.op)) pieces.push_back({.initial = std::move(*left), .sure = {}, .maybe = {}});
  }
  pieces.back().maybe = std::move(whole.maybe);
  return pieces;
}

Answer decide(const Operations& operations, int64_t until, uint64_t* budget) {
  Piece whole = known_at(operations, until);
  settle(&whole);
  auto answer = Answer::yes;
  for (const auto& piece : cut(std::move(whole))) {
    const auto a = search(piece, budget);
    if (a == Answer::no) return a;
    if (a == Answer::undecided) answer = a;
  }
  return answer;
}

std::string shown(const State& s) {
  if (!s) return "absent";
  const std::string text = base::escape(s->substr(0, kShownBytes));
  return "\"" + text + (s->size() > kShownBytes ? "\"... (" + std::to_string(s->size()) + " bytes)" : "\"");
}

// Moves those that began last to the end of `to`; returns how many stayed behind.
size_t move_last(Operations from, Operations* to) {
  std::stable_sort(from.begin(), from.end(), [](const auto* a, const auto* b) { return a->begin > b->begin; });
  const size_t shown = std::min(from.size(), kShownBefore);
  to->insert(to->end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(shown));
  return from.size() - shown;
}

// The last operation of the prefix and what it overlaps; before that what may have left the value that it saw, others
// that ended, and others whose outcome is unknown: the last of each.
std::string surroundings(const Operations& operations, const Operation& culprit) {
  Operations around, sources, ended, unknown;
  for (const auto* o : operations) {
    if (o->outcome == Outcome::fail || o->begin > culprit.end) continue;
    const bool source = writes(*o) && ((culprit.op == Kind::get && written(*o) == culprit.result) ||
                                       (culprit.op == Kind::cas && written(*o) == culprit.expected));
    const bool answered = o->outcome == Outcome::ok;
    const bool before = answered ? o->end < culprit.begin : o->begin < culprit.begin;
    (!before ? around : source ? sources : answered ? ended : unknown).push_back(o);
  }
  move_last(std::move(sources), &around);
  move_last(std::move(ended), &around);
  const size_t hidden = move_last(std::move(unknown), &around);
  std::stable_sort(around.begin(), around.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::string text;
  for (const auto* o : around) text += (o == &culprit ? "\n> " : "\n  ") + to_string(*o);
  if (hidden > 0) text += "\n  and " + std::to_string(hidden) + " earlier ones of unknown outcome";
  return text;
}

// Every prefix of what can be explained can be, so that the shortest one that cannot be is found by halving. A prefix
// that takes too long to decide counts as explained: the one found then may not be the shortest.
void explain(const Operations& operations, const Options& options, Verdict* verdict) {
  Operations ended;
  for (const auto* o : operations)
    if (o->outcome == Outcome::ok) ended.push_back(o);
  std::stable_sort(ended.begin(), ended.end(), [](const auto* a, const auto* b) { return a->end < b->end; });
  size_t good = 0, bad = ended.size();  // how many answers
  bool shortest = true;
  while (bad - good > 1) {
    const size_t middle = good + (bad - good) / 2;
    uint64_t budget = options.states_max;
    const auto answer = decide(operations, ended[middle - 1]->end, &budget);
    verdict->states += options.states_max - budget;
    shortest = shortest && answer != Answer::undecided;
    (answer == Answer::no ? bad : good) = middle;
  }
  while (bad < ended.size() && ended[bad]->end == ended[bad - 1]->end) ++bad;
  const auto& culprit = *ended[bad - 1];
  verdict->prefix = bad;
  verdict->text = "key " + shown(culprit.key) + ": no order explains the first " + std::to_string(bad) + " of " +
                  std::to_string(ended.size()) + " answers" +
                  (shortest ? "" : " (perhaps fewer: some prefixes took too long)") +
                  "; the last of them is marked:" + surroundings(operations, culprit);
}

}  // namespace

std::string to_string(const Operation& o) {
  static constexpr const char* kKinds[] = {"get", "put", "del", "cas", "incr", "append"};
  static constexpr const char* kOutcomes[] = {"ok", "fail", "unknown"};
  std::string text = kKinds[static_cast<size_t>(o.op)];
  if (o.op == Kind::cas) text += " " + shown(o.expected) + " ->";
  if (o.op == Kind::incr)
    text += " " + o.input;
  else if (o.op != Kind::get && o.op != Kind::del)
    text += " " + shown(o.input);
  const bool counts = o.op == Kind::incr || o.op == Kind::append;
  if (o.outcome == Outcome::ok && (o.op == Kind::get || (counts && o.result))) text += " = " + shown(o.result);
  if (o.refused) text += " refused";
  text += " by " + std::to_string(o.process) + ", " + std::to_string(o.begin) + "..";
  if (o.outcome != Outcome::unknown) text += std::to_string(o.end);
  return text + " " + kOutcomes[static_cast<size_t>(o.outcome)];
}

Verdict check(const std::vector<Operation>& history, const Options& options) {
  std::map<std::string, Operations> keys;
  for (const auto& o : history) {
    CHECK(o.outcome != Outcome::ok || o.begin <= o.end);
    keys[o.key].push_back(&o);
  }
  Verdict verdict;
  for (const auto& [key, operations] : keys) {
    ++verdict.keys;
    uint64_t budget = options.states_max;
    const auto answer = decide(operations, kNever, &budget);
    verdict.states += options.states_max - budget;
    if (answer == Answer::yes) continue;
    if (answer == Answer::no) {
      verdict.kind = Verdict::Kind::violated;
      verdict.key = key;
      explain(operations, options, &verdict);
      return verdict;
    }
    if (verdict.kind == Verdict::Kind::undecided) continue;
    verdict.kind = Verdict::Kind::undecided;
    verdict.key = key;
    verdict.text = "key " + shown(key) + ": undecided after " + std::to_string(options.states_max) + " states";
  }
  return verdict;
}

}  // namespace cantle::linear

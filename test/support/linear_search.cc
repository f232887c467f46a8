#include "test/support/linear_search.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>

#include "lib/base/check.h"

namespace cantle::linear {
namespace {

constexpr int kNone = -1;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::optional<int64_t> number(const std::string& text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

// States are named by small numbers; those that an operation wants or leaves, too.
struct Op {
  const Operation* raw = nullptr;
  int64_t begin = 0, end = kNever;
  int input = kNone;    // put, del, cas: what it leaves
  int need = kNone;     // get, cas: the only state in which it can be
  int refused = kNone;  // a cas that was refused: the only state in which it cannot be
  bool sure = true;
  bool reads_only() const { return raw->op == Kind::get || refused != kNone; }
  bool overwrites() const { return raw->op == Kind::put || raw->op == Kind::del; }
  bool resets() const { return input != kNone; }
  // Whether there are states in which it cannot be.
  bool observes() const { return need != kNone || refused != kNone || raw->op == Kind::incr || measures(); }
  // An append that was told how long the value is then.
  bool measures() const { return sure && raw->op == Kind::append && raw->result; }
};

// Those of the maybes that do the same: one that began earlier may stand for a later one, never the other way round, so
// that they are taken in the order in which they began.
struct Class {
  Op op;
  std::vector<int64_t> begins;
  size_t used = 0;
};

class Search {
 public:
  Search(const Piece& piece, uint64_t* budget) : budget_(budget) {
    state_ = name(piece.initial);
    for (const auto& item : piece.sure) ops_.push_back(make(item, true));
    std::stable_sort(ops_.begin(), ops_.end(), [](const Op& a, const Op& b) { return a.begin < b.begin; });
    for (const auto& item : piece.maybe) add_maybe(make(item, false));
    for (auto& c : classes_) std::sort(c.begins.begin(), c.begins.end());
    survey();
    link();
  }

  Answer run() {
    if (unwritten()) return Answer::no;
    auto entered = enter();
    while (true) {
      if (entered == Entered::solved) return Answer::yes;
      if (entered == Entered::spent) return Answer::undecided;
      while (!stack_.empty() && stack_.back().next == stack_.back().choices.size()) stack_.pop_back();
      if (stack_.empty()) return Answer::no;
      restore(stack_.back());
      take(stack_.back().choices[stack_.back().next++]);
      entered = enter();
    }
  }

 private:
  enum class Entered : uint8_t { solved, dead, open, spent };
  struct Choice {
    int index = 0;
    bool maybe = false;
  };
  struct Frame {
    std::vector<Choice> choices;
    size_t next = 0, trail = 0, observer = 0;
    int state = kNone, top = kNone;
    bool fresh = false;
  };

  // --- names ---
  int name(const State& s) {
    const auto [at, added] = names_.try_emplace(s, static_cast<int>(states_.size()));
    if (added) {
      states_.push_back(s);
      need_.push_back(0);
      source_.push_back(0);
      wish_.push_back(0);
      extended_.push_back(kNone);
    }
    return at->second;
  }
  Op make(const Item& item, bool sure) {
    Op o{.raw = item.op, .begin = item.begin, .end = sure ? item.end : kNever, .sure = sure};
    CHECK(o.begin <= o.end);
    const auto& raw = *item.op;
    if (raw.op == Kind::get) o.need = name(raw.result);
    if (raw.op == Kind::cas) (raw.refused ? o.refused : o.need) = name(raw.expected);
    if (writes(raw)) o.input = name(written(raw));
    return o;
  }
  void add_maybe(const Op& o) {
    CHECK(!o.reads_only());
    const auto key = std::make_tuple(o.raw->op, o.raw->input, o.need);
    const auto [at, added] = class_of_.try_emplace(key, classes_.size());
    if (added) classes_.push_back({.op = o, .begins = {}});
    classes_[at->second].begins.push_back(o.begin);
  }

  // --- what there is ---
  void survey() {
    bool incr = false, append = false, refused = false;
    const auto look = [&](const Op& o) {
      incr |= o.raw->op == Kind::incr;
      append |= o.raw->op == Kind::append;
      refused |= o.refused != kNone;
      measured_ |= o.measures();
    };
    for (const auto& o : ops_) {
      look(o);
      if (o.need != kNone) ++need_[o.need];
      if (o.input != kNone) ++source_[o.input];
      if (o.observes()) ++observers_;
      if (o.need != kNone) by_end_.push_back(static_cast<int>(&o - ops_.data()));
      if (o.resets()) resets_.push_back(o.begin);
      for (const int wanted : {o.need, o.refused})
        if (wanted != kNone && states_[wanted]) wanted_.insert(*states_[wanted]);
    }
    for (const auto& c : classes_) {
      look(c.op);
      const auto n = static_cast<int>(c.begins.size());
      if (c.op.input != kNone) source_[c.op.input] += n;
      if (c.op.need != kNone) wish_[c.op.need] += n;
      if (c.op.need != kNone && states_[c.op.need]) wanted_.insert(*states_[c.op.need]);
      if (c.op.resets()) resets_.insert(resets_.end(), c.begins.begin(), c.begins.end());
    }
    std::sort(resets_.begin(), resets_.end());
    std::stable_sort(by_end_.begin(), by_end_.end(), [this](int a, int b) { return ops_[a].end < ops_[b].end; });
    sourced_ = !incr && !append;
    plain_ = sourced_ && !refused;
    grows_ = append && !incr;
    refused_ = refused;
  }
  // What has not happened is a list in order of begin; the last place is its end.
  void link() {
    const int n = static_cast<int>(ops_.size());
    next_.resize(n + 1);
    before_.resize(n + 1);
    for (int i = 0; i <= n; ++i) {
      next_[i] = i == n ? 0 : i + 1;
      before_[i] = i == 0 ? n : i - 1;
    }
    done_.assign(n, false);
    last_ = n;
  }
  int first() const { return next_[last_]; }

  // A value that was seen and that nothing can have left.
  bool unwritten() const {
    if (!sourced_) return false;
    for (size_t s = 0; s < states_.size(); ++s)
      if (need_[s] > 0 && source_[s] == 0 && static_cast<int>(s) != state_) return true;
    return false;
  }

  // --- one step ---
  int after(const Op& o, int state) {
    switch (o.raw->op) {
      case Kind::get:
      case Kind::cas:
        if (o.refused != kNone) return state == o.refused ? kNone : state;
        if (state != o.need) return kNone;
        return o.raw->op == Kind::get ? state : o.input;
      case Kind::put:
      case Kind::del: return o.input;
      case Kind::append: return after_append(o, state);
      case Kind::incr: return after_incr(o, state);
    }
    return kNone;
  }
  int after_append(const Op& o, int state) {
    const auto& old = states_[state];
    const size_t length = (old ? old->size() : 0) + o.raw->input.size();
    if (o.measures() && *o.raw->result != std::to_string(length)) return kNone;
    return name(old.value_or("") + o.raw->input);
  }
  int after_incr(const Op& o, int state) {
    const auto old = states_[state] ? number(*states_[state]) : 0, by = number(o.raw->input);
    int64_t sum = 0;
    if (!old || !by || __builtin_add_overflow(*old, *by, &sum)) return kNone;
    std::string text = std::to_string(sum);
    if (o.sure && o.raw->result && *o.raw->result != text) return kNone;
    return name(std::move(text));
  }

  void count(const Op& o, int by) {
    if (o.need != kNone) (o.sure ? need_ : wish_)[o.need] -= by;
    if (o.input != kNone) source_[o.input] -= by;
    if (o.sure && o.observes()) observers_ -= by;
    if (o.resets()) resets_done_ += by;
  }
  void take(const Choice& c) {
    trail_.push_back(c);
    const Op& o = c.maybe ? classes_[c.index].op : ops_[c.index];
    state_ = after(o, state_);
    CHECK(state_ != kNone);
    fresh_ = c.maybe;
    count(o, 1);
    if (c.maybe) {
      ++classes_[c.index].used;
      return;
    }
    done_[c.index] = true;
    top_ = std::max(top_, c.index);
    next_[before_[c.index]] = next_[c.index];
    before_[next_[c.index]] = before_[c.index];
  }
  void restore(const Frame& f) {
    for (; trail_.size() > f.trail; trail_.pop_back()) {
      const auto c = trail_.back();
      count(c.maybe ? classes_[c.index].op : ops_[c.index], -1);
      if (c.maybe) {
        --classes_[c.index].used;
        continue;
      }
      done_[c.index] = false;
      next_[before_[c.index]] = c.index;
      before_[next_[c.index]] = c.index;
    }
    state_ = f.state;
    fresh_ = f.fresh;
    top_ = f.top;
    observer_ = f.observer;
  }

  // --- the search ---
  Entered enter() {
    int64_t horizon = kNever;
    do {
      // What is left can follow in order of begin: a put or an append can be in any state.
      if (observers_ == 0) return Entered::solved;
      horizon = look();
    } while (take_at_once());
    if (grows_ && outgrown()) return Entered::dead;
    if (!memo_.insert(memo_key()).second) return Entered::dead;
    if (*budget_ == 0) return Entered::spent;
    --*budget_;
    Frame f{
        .choices = {}, .trail = trail_.size(), .observer = observer_, .state = state_, .top = top_, .fresh = fresh_};
    std::sort(candidates_.begin(), candidates_.end(),
              [this](int a, int b) { return std::tie(ops_[a].end, a) < std::tie(ops_[b].end, b); });
    for (const int i : candidates_)
      if (worth(ops_[i])) f.choices.push_back({i, false});
    for (size_t i = 0; i < classes_.size(); ++i) {
      const auto& c = classes_[i];
      if (c.used < c.begins.size() && c.begins[c.used] <= horizon && worth(c.op))
        f.choices.push_back({static_cast<int>(i), true});
    }
    if (f.choices.empty()) return Entered::dead;
    stack_.push_back(std::move(f));
    return Entered::open;
  }

  // Finds what may be next: what began before anything that has not happened ended. Returns the first of these ends.
  int64_t look() {
    candidates_.clear();
    int64_t horizon = kNever;
    for (int i = first(); i != last_ && ops_[i].begin <= horizon; i = next_[i]) {
      candidates_.push_back(i);
      horizon = std::min(horizon, ops_[i].end);
    }
    return horizon;
  }

  // What can be taken without a choice: if any order goes on from here, one that begins with this does.
  //   * What changes nothing and may be now: moved to the front it leaves all the others what they saw.
  //   * A put of what nobody will see, over what nobody will see any more. Whatever came first was an overwriting one
  //     (nothing else can be in this state), and so was what came after the put.
  bool take_at_once() {
    for (const int i : candidates_) {
      const auto& o = ops_[i];
      const bool read = o.reads_only() && after(o, state_) != kNone;
      const bool dead = plain_ && !fresh_ && o.overwrites() && unseen(state_) && unseen(o.input);
      if (!read && !dead) continue;
      take({i, false});
      return true;
    }
    return false;
  }
  bool unseen(int state) const { return need_[state] == 0 && wish_[state] == 0; }

  // Choices that lead nowhere, or where another one leads as well.
  //   * A maybe with an overwriting one after it, or with nothing, might as well not have happened; the same for one
  //     that changes nothing.
  //   * While somebody still has to see this state and nobody can bring it back, it must stay.
  //   * A maybe is wanted for what it leaves only.
  bool worth(const Op& o) {
    if (o.reads_only() || (fresh_ && o.overwrites())) return false;
    const int to = after(o, state_);
    if (to == kNone) return false;
    if (to != state_ && sourced_ && need_[state_] - (o.sure && o.need == state_ ? 1 : 0) > 0 && source_[state_] == 0)
      return false;
    if (o.sure) return true;
    if (to == state_) return false;
    if (plain_) return !unseen(to);
    return !grows_ || refused_ || measured_ || !lost(to);
  }

  // Where values only grow: the next that has to be seen must begin with this one, unless something overwrites first.
  // All overwriting ones that have happened began before that one ended, as it has not happened yet.
  bool outgrown() {
    while (observer_ < by_end_.size() && done_[by_end_[observer_]]) ++observer_;
    if (observer_ == by_end_.size()) return false;
    const Op& o = ops_[by_end_[observer_]];
    const auto may = std::upper_bound(resets_.begin(), resets_.end(), o.end) - resets_.begin();
    if (may > resets_done_ || !states_[state_]) return false;
    return !states_[o.need] || !states_[o.need]->starts_with(*states_[state_]);
  }
  // Where values only grow: no value that anybody sees begins with this one.
  bool lost(int state) {
    if (!states_[state]) return false;
    auto& known = extended_[state];
    if (known == kNone) {
      const auto at = wanted_.lower_bound(*states_[state]);
      known = at != wanted_.end() && at->starts_with(*states_[state]) ? 1 : 0;
    }
    return known == 0;
  }

  // States that nobody can tell apart any more are one.
  std::string memo_key() {
    const bool alike = (plain_ && unseen(state_)) || (grows_ && !measured_ && lost(state_));
    std::string key;
    const auto add = [&key](int n) { key.append(reinterpret_cast<const char*>(&n), sizeof n); };
    add(alike ? kNone : state_);
    add(fresh_ ? 1 : 0);
    for (const auto& c : classes_) add(static_cast<int>(c.used));
    add(top_);
    for (int i = first(); i < top_; i = next_[i]) add(i);
    return key;
  }

  uint64_t* budget_;
  std::vector<Op> ops_;  // sure ones, in order of begin
  std::vector<Class> classes_;
  std::map<std::tuple<Kind, std::string, int>, size_t> class_of_;

  std::map<State, int> names_;
  std::vector<State> states_;
  std::vector<int> need_, source_, wish_;  // by state: sure ones that need it; what would leave it; maybes that need it
  std::vector<int> extended_;              // by state: whether a wanted value begins with it
  std::set<std::string> wanted_;
  std::vector<int> by_end_;      // those that need a state
  std::vector<int64_t> resets_;  // when those began that leave what does not depend on the state before
  bool sourced_ = false, plain_ = false, grows_ = false, refused_ = false, measured_ = false;

  // Where the search is.
  int state_ = kNone, top_ = kNone, last_ = 0;
  bool fresh_ = false;  // the last step was a maybe
  size_t observer_ = 0;
  int observers_ = 0;
  ptrdiff_t resets_done_ = 0;
  std::vector<int> next_, before_;
  std::vector<bool> done_;
  std::vector<int> candidates_;
  std::vector<Choice> trail_;
  std::vector<Frame> stack_;
  std::unordered_set<std::string> memo_;
};

}  // namespace

Answer search(const Piece& piece, uint64_t* budget) { return Search(piece, budget).run(); }

}  // namespace cantle::linear

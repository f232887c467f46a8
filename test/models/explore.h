// Explorer: all that a small model of a protocol can do, breadth first, and the shortest way to the first violation.
//
// Use
//   struct State { … };  // bytes without gaps: states are the same if their bytes are
//   const auto found = Explorer<State>([](const State& s, auto& out) {
//     State next = s; …
//     out.go(next, "B seals 2");
//     if (…) out.violation("A answers a read", "the lease of another is valid");
//   }).run(State{}, 1'000'000);
//
// A model is a rule of design/replication.md or metadata.md without the machine that follows it: change a rule here
// first. Each has mutants, a rule left out, which must be caught: else the model is too small to show anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cantle::models {

struct Found {
  size_t states = 0;
  bool exhausted = false;        // all of them were looked at
  std::string violation;         // empty: none
  std::vector<std::string> way;  // to the violation
};

template <class State>
class Explorer {
  static_assert(std::is_trivially_copyable_v<State> && std::has_unique_object_representations_v<State>);

 public:
  class Out {
   public:
    void go(const State& next, const std::string& action) { on_go_(next, action); }
    void violation(const std::string& action, const std::string& what) { on_violation_(action, what); }

   private:
    friend class Explorer;
    std::function<void(const State&, const std::string&)> on_go_;
    std::function<void(const std::string&, const std::string&)> on_violation_;
  };
  using Expand = std::function<void(const State&, Out&)>;
  explicit Explorer(Expand expand) : expand_(std::move(expand)) {}

  Found run(const State& initial, size_t states_max) {
    size_t at = 0;
    Found found;
    Out out;
    out.on_go_ = [&](const State& next, const std::string&) { add(next, at); };
    out.on_violation_ = [&](const std::string& action, const std::string& what) {
      if (!found.violation.empty()) return;
      found.violation = what;
      found.way = way_to(at);
      found.way.push_back(action);
    };
    add(initial, 0);
    for (; at < states_.size() && states_.size() < states_max && found.violation.empty(); ++at) {
      const State here = states_[at];
      expand_(here, out);
    }
    found.states = states_.size();
    found.exhausted = at == states_.size();
    return found;
  }

  // For a model that begins in the middle of things: they can come to that.
  static bool leads_to(const Expand& expand, const State& from, const State& to, size_t states_max) {
    const auto until = [&](const State& s, Out& out) {
      if (bytes(s) == bytes(to)) return out.violation("", "it is there");
      expand(s, out);
    };
    return !Explorer(until).run(from, states_max).violation.empty();
  }

 private:
  static std::string_view bytes(const State& s) { return {reinterpret_cast<const char*>(&s), sizeof s}; }

  void add(const State& next, size_t from) {
    if ((states_.size() + 1) * 2 > known_.size()) grow();
    const auto hash = std::hash<std::string_view>()(bytes(next));
    for (size_t at = hash;; ++at) {
      Known& known = known_[at & (known_.size() - 1)];
      if (known.state == 0) {
        states_.push_back(next);
        from_.push_back(static_cast<uint32_t>(from));
        known = {tag_of(hash), static_cast<uint32_t>(states_.size())};
        return;
      }
      if (known.tag == tag_of(hash) && bytes(states_[known.state - 1]) == bytes(next)) return;
    }
  }
  void grow() {
    known_.assign(std::max<size_t>(1024, known_.size() * 2), {});
    for (size_t i = 0; i < states_.size(); ++i) {
      const auto hash = std::hash<std::string_view>()(bytes(states_[i]));
      size_t at = hash;
      while (known_[at & (known_.size() - 1)].state != 0) ++at;
      known_[at & (known_.size() - 1)] = {tag_of(hash), static_cast<uint32_t>(i + 1)};
    }
  }
  static uint32_t tag_of(size_t hash) { return static_cast<uint32_t>(hash >> 32); }

  // The actions are not kept: each step is taken again to learn its name.
  std::vector<std::string> way_to(size_t i) {
    std::vector<std::string> way;
    for (; i != 0; i = from_[i]) {
      std::string name;
      Out out;
      out.on_go_ = [&](const State& next, const std::string& action) {
        if (name.empty() && bytes(next) == bytes(states_[i])) name = action;
      };
      out.on_violation_ = [](const std::string&, const std::string&) {};
      expand_(states_[from_[i]], out);
      way.push_back(name);
    }
    std::reverse(way.begin(), way.end());
    return way;
  }

  Expand expand_;
  std::deque<State> states_;
  std::vector<uint32_t> from_;
  // Open addressing: nearly all the time is spent in asking whether a state is known, and a miss costs one look at
  // memory.
  struct Known {
    uint32_t tag, state;  // part of its hash; its number + 1, 0 for none
  };
  std::vector<Known> known_;
};

inline std::string text_of(const Found& found) {
  std::string text = std::to_string(found.states) + " states" + (found.exhausted ? ", all" : "");
  for (const auto& step : found.way) text += "\n  " + step;
  return found.violation.empty() ? text : text + "\n  <== " + found.violation;
}

inline std::string name_of(int replica) { return std::string(1, static_cast<char>('A' + replica)); }

}  // namespace cantle::models

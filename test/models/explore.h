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
#include <unordered_set>
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

 private:
  static std::string_view bytes(const State& s) { return {reinterpret_cast<const char*>(&s), sizeof s}; }
  struct Hash {
    const std::deque<State>* states;
    size_t operator()(uint32_t i) const { return std::hash<std::string_view>()(bytes((*states)[i])); }
  };
  struct Same {
    const std::deque<State>* states;
    bool operator()(uint32_t a, uint32_t b) const { return bytes((*states)[a]) == bytes((*states)[b]); }
  };

  void add(const State& next, size_t from) {
    states_.push_back(next);
    if (known_.insert(static_cast<uint32_t>(states_.size() - 1)).second)
      from_.push_back(static_cast<uint32_t>(from));
    else
      states_.pop_back();
  }

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
  std::unordered_set<uint32_t, Hash, Same> known_{16, Hash{&states_}, Same{&states_}};
};

inline std::string text_of(const Found& found) {
  std::string text = std::to_string(found.states) + " states" + (found.exhausted ? ", all" : "");
  for (const auto& step : found.way) text += "\n  " + step;
  return found.violation.empty() ? text : text + "\n  <== " + found.violation;
}

inline std::string name_of(int replica) { return std::string(1, static_cast<char>('A' + replica)); }

}  // namespace cantle::models

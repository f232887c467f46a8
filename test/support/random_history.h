// RandomHistory: what clients of a store that keeps its promises would record, from one seed.
//
//   auto history = random_history(random, {.operations = 10'000, .processes = 16, .keys = 100});
//
// Each client does one operation after the other; each takes effect at an instant between its begin and its end. One
// whose outcome is unknown takes effect at any instant after its begin, or never, and its client goes on.
#pragma once

#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "test/support/linear.h"

namespace cantle::linear {

struct HistoryOptions {
  size_t operations = 100, processes = 4, keys = 1;
  std::vector<Kind> kinds = {Kind::get, Kind::get, Kind::put};  // each as often as it stands there
  size_t values = 0;                                            // how many different ones; 0: every one is new
  double unknown = 0, fail = 0;                                 // how often
  bool lengths = false;                                         // appends are told the new length
};

class HistoryMaker {
 public:
  HistoryMaker(base::Random& random, HistoryOptions options) : random_(random), options_(std::move(options)) {}

  std::vector<Operation> make() {
    slots_.assign(options_.processes, kIdle);
    while (done_ < options_.operations) {
      ++now_;
      const size_t slot = random_.below(slots_.size() + 1);
      if (slot < slots_.size())
        advance(slot);
      else if (!late_.empty())
        take_late(random_.below(late_.size()));
    }
    // What is under way has not answered.
    for (const auto& slot : slots_)
      if (slot != kIdle) history_[slot].outcome = Outcome::unknown;
    return std::move(history_);
  }

 private:
  static constexpr size_t kIdle = SIZE_MAX;

  std::string value() {
    return options_.values == 0 ? "v" + std::to_string(++value_count_) + "."
                                : std::to_string(random_.below(options_.values));
  }
  void begin(size_t slot) {
    Operation o{.key = "k" + std::to_string(random_.below(options_.keys)), .process = slot, .begin = now_};
    o.op = options_.kinds[random_.below(options_.kinds.size())];
    if (o.op == Kind::put || o.op == Kind::cas || o.op == Kind::append) o.input = value();
    if (o.op == Kind::incr) o.input = std::to_string(static_cast<int>(random_.below(3)) + 1);
    if (o.op == Kind::cas) {
      const auto at = store_.find(o.key);
      if (at != store_.end() && random_.chance(0.7)) o.expected = at->second;
    }
    slots_[slot] = history_.size();
    took_effect_.push_back(false);
    history_.push_back(std::move(o));
  }
  // Begins, takes effect, or ends.
  void advance(size_t slot) {
    if (slots_[slot] == kIdle) return begin(slot);
    const size_t i = slots_[slot];
    auto& o = history_[i];
    if (took_effect_[i]) return end(slot);
    if (random_.chance(options_.fail)) o.outcome = Outcome::fail;
    if (o.outcome == Outcome::ok && random_.chance(options_.unknown)) {
      o.outcome = Outcome::unknown;
      if (random_.chance(0.7)) late_.push_back(i);
    }
    if (o.outcome != Outcome::ok) return end(slot);
    if (effect(&o)) took_effect_[i] = true;
    if (o.outcome != Outcome::ok) end(slot);
  }
  void end(size_t slot) {
    history_[slots_[slot]].end = now_;
    slots_[slot] = kIdle;
    ++done_;
  }
  void take_late(size_t which) {
    Operation copy = history_[late_[which]];  // nobody is told
    effect(&copy);
    late_.erase(late_.begin() + static_cast<ptrdiff_t>(which));
  }

  bool effect(Operation* o) {
    const auto at = store_.find(o->key);
    const auto old = at == store_.end() ? std::optional<std::string>() : std::optional(at->second);
    switch (o->op) {
      case Kind::get: o->result = old; break;
      case Kind::put: store_[o->key] = o->input; break;
      case Kind::del: store_.erase(o->key); break;
      case Kind::append:
        store_[o->key] += o->input;
        if (options_.lengths) o->result = std::to_string(store_[o->key].size());
        break;
      case Kind::cas:
        o->refused = old != o->expected;
        if (!o->refused) store_[o->key] = o->input;
        break;
      case Kind::incr: {
        long long n = 0;
        const std::string text = old.value_or("0");
        if (std::from_chars(text.data(), text.data() + text.size(), n).ptr != text.data() + text.size()) {
          o->outcome = Outcome::fail;
          return false;
        }
        o->result = store_[o->key] = std::to_string(n + std::stoi(o->input));
      }
    }
    return true;
  }

  base::Random& random_;
  HistoryOptions options_;
  int64_t now_ = 0;
  size_t done_ = 0;
  uint64_t value_count_ = 0;
  std::map<std::string, std::string> store_;
  std::vector<Operation> history_;
  std::vector<bool> took_effect_;
  std::vector<size_t> slots_, late_;
};

inline std::vector<Operation> random_history(base::Random& random, HistoryOptions options) {
  return HistoryMaker(random, std::move(options)).make();
}

}  // namespace cantle::linear

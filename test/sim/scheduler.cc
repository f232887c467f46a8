#include "test/sim/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cantle::sim {

Scheduler::Scheduler(uint64_t seed) : seed_(seed), random_(seed) {
  tracing_ = std::getenv("TRACE") != nullptr;
  heap_.reserve(256);
  mix(seed);
}

EventId Scheduler::at(Instant when, Fn fn) {
  uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  const uint64_t order = next_order_++;
  slots_[slot].order = order;
  slots_[slot].fn = std::move(fn);
  push({std::max(when, now_), order, slot});
  return {slot, order};
}

void Scheduler::push(Entry entry) {
  heap_.push_back(entry);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void Scheduler::release(uint32_t slot) {
  slots_[slot].order = 0;
  free_slots_.push_back(slot);
}

void Scheduler::cancel(EventId& id) {
  // The entry stays in the heap until its time and finds an empty slot then.
  if (id.order != 0 && slots_[id.slot].order == id.order) slots_[id.slot].fn = nullptr;
  id = {};
}

bool Scheduler::step() {
  while (!heap_.empty() && !stopped_) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    Fn fn = std::move(slots_[entry.slot].fn);
    slots_[entry.slot].fn = nullptr;
    if (!fn) {
      release(entry.slot);
      continue;
    }
    now_ = std::max(now_, entry.at);
    ++events_;
    postponed_ = false;
    fn();
    if (postponed_) {
      slots_[entry.slot].fn = std::move(fn);
      push({std::max(postponed_to_, now_), entry.order, entry.slot});
    } else {
      release(entry.slot);
    }
    if (after_each_) after_each_();
    return true;
  }
  return false;
}

void Scheduler::run_until(Instant end) {
  while (!stopped_ && !heap_.empty() && heap_.front().at <= end) step();
  if (!stopped_) now_ = std::max(now_, end);
}

bool Scheduler::run_until(const std::function<bool()>& done, Instant deadline) {
  while (!done()) {
    if (stopped_ || heap_.empty() || heap_.front().at > deadline) return false;
    step();
  }
  return true;
}

Duration Scheduler::between(Duration low, Duration high) {
  if (high <= low) return low;
  return low + Duration(random_.below(static_cast<uint64_t>((high - low).count()) + 1));
}

void Scheduler::mix(std::string_view text) {
  mix(static_cast<uint64_t>(text.size()));
  while (text.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    mix(word);
    text.remove_prefix(8);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  mix(rest);
}

void Scheduler::print(const std::string& line) const {
  const double s = std::chrono::duration<double>(now_.since_boot).count();
  std::fprintf(stderr, "%12.6f %s\n", s, line.c_str());
}

}  // namespace cantle::sim

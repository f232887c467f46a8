// Scheduler: virtual time and the queue of what will happen. One seed decides everything.
//
// Use
//   sim::Scheduler s(seed);
//   s.after(5ms, [&] { ... });
//   s.run_until(s.now() + 10s);            // events in order of (time, order of planning)
//   s.note("net", from, to, bytes);        // mixed into the trace hash; printed when TRACE=1
//
// Invariants
//   * Same seed, same program: same events in the same order, same trace_hash().
//   * An event never runs before its time; time never goes back; an event planned for the past runs now.
//   * A cancelled event does not run.
//
// Units: Instants of the world itself. What a process sees as its clocks: process.h.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/time.h"

namespace cantle::sim {

using base::Duration;
using base::Instant;
using namespace std::chrono_literals;

using Fn = std::function<void()>;

// Names a planned event; the default one names none.
struct EventId {
  uint32_t slot = 0;
  uint64_t order = 0;
};

class Scheduler {
 public:
  explicit Scheduler(uint64_t seed);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  uint64_t seed() const { return seed_; }
  base::Random& random() { return random_; }
  Instant now() const { return now_; }
  uint64_t events() const { return events_; }

  EventId at(Instant when, Fn fn);
  EventId after(Duration d, Fn fn) { return at(now_ + d, std::move(fn)); }
  void cancel(EventId& id);  // harmless for one that ran or was cancelled; clears `id`

  bool step();                  // runs the next event; false when there is none
  void run_until(Instant end);  // leaves now() at `end`
  void run_for(Duration d) { run_until(now_ + d); }
  bool run_until(const std::function<bool()>& done, Instant deadline);  // true when done() became true
  // From inside an event: it runs again at `when` under the same EventId.
  void postpone(Instant when) { postponed_to_ = when, postponed_ = true; }
  // Called after every event: where the invariants are checked.
  void after_each(Fn fn) { after_each_ = std::move(fn); }
  // Ends the run after the current event (a violation was found).
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

  // Uniform in [low, high].
  Duration between(Duration low, Duration high);

  uint64_t trace_hash() const { return hash_; }
  template <class... Parts>
  void note(std::string_view kind, const Parts&... parts) {
    mix(static_cast<uint64_t>(now_.since_boot.count()));
    mix(kind);
    (mix(parts), ...);
    if (tracing_) [[unlikely]] {
      std::string line(kind);
      ((line += ' ', append(line, parts)), ...);
      print(line);
    }
  }
  bool tracing() const { return tracing_; }
  void set_tracing(bool on) { tracing_ = on; }

 private:
  struct Entry {
    Instant at;
    uint64_t order;
    uint32_t slot;
  };
  struct Slot {
    uint64_t order = 0;
    Fn fn;
  };
  static bool later(const Entry& a, const Entry& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }

  void push(Entry entry);
  void release(uint32_t slot);
  void mix(uint64_t v) { hash_ = (hash_ ^ v) * 0x9e3779b97f4a7c15, hash_ ^= hash_ >> 29; }
  void mix(std::string_view text);
  void mix(const std::string& text) { mix(std::string_view(text)); }
  void mix(const char* text) { mix(std::string_view(text)); }
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void mix(T v) { mix(static_cast<uint64_t>(v)); }
  static void append(std::string& line, std::string_view text) { line += text; }
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  static void append(std::string& line, T v) {
    if constexpr (std::is_enum_v<T>)
      line += std::to_string(static_cast<int64_t>(v));
    else
      line += std::to_string(v);
  }
  void print(const std::string& line) const;

  uint64_t seed_;
  base::SeededRandom random_;
  Instant now_{1000s};
  uint64_t next_order_ = 1, events_ = 0, hash_ = 0xcbf29ce484222325;
  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  Fn after_each_;
  Instant postponed_to_{};
  bool postponed_ = false, stopped_ = false, tracing_ = false;
};

}  // namespace cantle::sim

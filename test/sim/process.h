// Process: one process of the simulated cluster: its life, its clocks, its timers.
//
// A Process is what code of a daemon may do in the world: look at a clock (it is a base::Clock), plan
// something for later, draw random numbers. Killed, everything it had planned is gone; the name stays
// and a new life begins with restart(). Paused (SIGSTOP, a stalled host), everything it had planned
// waits for its end and then happens late.
//
// Use
//   Process p(scheduler, "p1", "partd");
//   auto id = p.after(100ms, [&] { ... });     // by its own clock, which drifts
//   p.kill(); p.restart();
//
// Invariants
//   * Nothing planned in one life runs in another.
//   * now() never goes back within a process's life, wall_ms() may jump (that is what wall clocks do).
//
// Crash at every effect: whoever performs an effect for the process first asks `if (!p.effect()) return;`.
// arm_crash(n) makes the n-th effect from now the last one: it does not happen, and the process is dead,
// though its code may still be on the stack. on_death() tells the world, which destroys the objects
// on the next event, never under the running code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/scheduler.h"

namespace cantle::sim {

// The clocks of a machine. Processes of one host share them.
struct HostClock {
  double drift = 0;            // 1e-4: this host's second is 100 µs short
  int64_t wall_offset_ms = 0;  // against the world; jump it to simulate a stepped clock
};

class Process final : public base::Clock {
 public:
  Process(Scheduler& scheduler, std::string host, std::string role, std::shared_ptr<HostClock> clock = nullptr);

  Scheduler& scheduler() { return scheduler_; }
  base::Random& random() { return random_; }
  const std::string& host() const { return host_; }  // "p1": what network cuts name
  const std::string& name() const { return name_; }  // "p1/partd": its address
  HostClock& host_clock() { return *clock_; }

  Instant now() override;
  base::WallMs wall_ms() override;
  static constexpr base::WallMs kWallStart = 1700000000000;  // wall clock of the world when it begins

  bool alive() const { return alive_; }
  uint64_t life() const { return life_; }  // 1 in the first
  bool paused() const { return scheduler_.now() < paused_until_; }
  void kill();     // SIGKILL, power cut
  void restart();  // a new life, with nothing planned
  void pause(Duration d);

  // In this life, once `d` of the own clock has passed (and no pause is on).
  EventId after(Duration d, Fn fn);
  EventId post(Fn fn) { return after(Duration{0}, std::move(fn)); }
  void cancel(EventId& id) { scheduler_.cancel(id); }
  // Runs `fn` now or, when paused, at the pause's end; not at all after this life.
  void deliver(Fn fn);

  bool effect();
  void arm_crash(uint64_t effects) { crash_in_ = effects; }
  uint64_t effects() const { return effects_; }
  // Called at every death, in order of registration.
  void on_death(Fn fn) { on_death_.push_back(std::move(fn)); }

 private:
  EventId plan(Instant world, Fn fn);

  Scheduler& scheduler_;
  std::string host_, name_;
  std::shared_ptr<HostClock> clock_;
  base::SeededRandom random_;
  bool alive_ = true;
  uint64_t life_ = 1, effects_ = 0, crash_in_ = 0;
  Instant paused_until_{};
  std::vector<Fn> on_death_;
};

}  // namespace cantle::sim

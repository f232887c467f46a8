#include "test/sim/process.h"

#include <algorithm>

namespace cantle::sim {
namespace {

uint64_t seed_of(uint64_t seed, std::string_view name) {
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return seed;
}

}  // namespace

Process::Process(Scheduler& scheduler, std::string host, std::string role, std::shared_ptr<HostClock> clock)
    : scheduler_(scheduler),
      host_(std::move(host)),
      name_(host_ + "/" + role),
      clock_(clock ? std::move(clock) : std::make_shared<HostClock>()),
      random_(seed_of(scheduler.seed(), name_)) {}

Instant Process::now() {
  const auto world = static_cast<double>(scheduler_.now().since_boot.count());
  return {Duration(static_cast<int64_t>(world * (1.0 + clock_->drift)))};
}

base::WallMs Process::wall_ms() {
  return static_cast<base::WallMs>(static_cast<int64_t>(kWallStart) + base::to_ms(now().since_boot) +
                                   clock_->wall_offset_ms);
}

void Process::kill() {
  if (!alive_) return;
  alive_ = false;
  crash_in_ = 0;
  scheduler_.note("kill", name_, life_);
  const auto listeners = on_death_;
  for (const auto& listener : listeners) listener();
}

void Process::restart() {
  if (alive_) kill();
  ++life_;
  alive_ = true;
  paused_until_ = {};
  scheduler_.note("start", name_, life_);
}

void Process::pause(Duration d) {
  paused_until_ = std::max(paused_until_, scheduler_.now() + d);
  scheduler_.note("pause", name_, d.count());
}

EventId Process::after(Duration d, Fn fn) {
  const auto world = Duration(static_cast<int64_t>(static_cast<double>(d.count()) / (1.0 + clock_->drift)));
  return plan(scheduler_.now() + world, std::move(fn));
}

EventId Process::plan(Instant world, Fn fn) {
  return scheduler_.at(world, [this, life = life_, f = std::move(fn)] {
    if (!alive_ || life != life_) return;
    if (paused())
      scheduler_.postpone(paused_until_);
    else
      f();
  });
}

void Process::deliver(Fn fn) {
  if (!alive_) return;
  if (paused())
    plan(paused_until_, std::move(fn));
  else
    fn();
}

bool Process::effect() {
  if (!alive_) return false;
  ++effects_;
  if (crash_in_ == 0 || --crash_in_ > 0) return true;
  kill();
  return false;
}

}  // namespace cantle::sim

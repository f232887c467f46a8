// Pins: a state of one partition that stays while others write, for scans of many pages.
#include <algorithm>

#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;

// What is in the snapshot of the index, and what the overlay held besides, in key order. Both are never changed: the
// entries stay where they are as long as their halves are kept.
struct Engine::Pin::State {
  std::shared_ptr<Index> index;
  std::unique_ptr<Reader> reader;
  std::vector<Part> parts;
  std::vector<OverlayRows> overlay;  // one a part
  std::vector<std::shared_ptr<Half>> held;
  model::Interval interval;
  model::Lsn at;
  bool reading = false;  // one page after the other
  std::shared_ptr<size_t> count;

  ~State() {
    if (reader) reader->reset();
    (*count)--;
  }
};

model::Lsn Engine::Pin::at() const { return state_->at; }
const model::Interval& Engine::Pin::interval() const { return state_->interval; }

namespace {

// The part of a page: what of the overlay's rows lies in it, in the order of the scan.
OverlayRows rows_in(const OverlayRows& all, const model::Interval& interval, bool reverse) {
  const auto at = [&](const std::string& key) {
    return std::lower_bound(all.entries.begin(), all.entries.end(), key,
                            [](const Entry* e, const std::string& k) { return e->key() < k; });
  };
  OverlayRows rows;
  rows.entries.assign(at(interval.begin), interval.end.empty() ? all.entries.end() : at(interval.end));
  if (reverse) std::reverse(rows.entries.begin(), rows.entries.end());
  return rows;
}

}  // namespace

base::Result<Engine::Pin> Engine::Impl::pin_now(const model::PartitionId& partition) {
  TRY_ASSIGN(const Log* log, readable(partition));
  if (*pins >= kPinsMax) {
    base::Error full(Code::overloaded, "as many scans hold a state of their own as may");
    full.retry_after_ms = kPinRetryMs;
    return base::fail(full);
  }
  auto state = std::make_shared<Pin::State>();
  ++*pins;
  state->count = pins;
  state->index = index;
  state->reader = index->reader();
  TRY(state->reader->renew());
  state->parts = log->row.parts;
  state->interval = log->row.interval;
  state->at = log->seen();
  ScanRange all;
  all.tombstones = true;
  all.records_max = UINT32_MAX;
  all.bytes_max = SIZE_MAX;
  auto plan = plan_scan(state->parts, all);
  collect(plan, overlay);
  state->parts = std::move(plan.parts);
  state->overlay = std::move(plan.overlay);
  state->held = std::move(plan.held);
  return Pin(std::move(state));
}

// What is durable goes into the index first, so that little of the overlay has to be kept.
void Engine::pin(const model::PartitionId& partition, std::function<void(base::Result<Pin>)> done) {
  impl_->drain([self = impl_.get(), partition, done = std::move(done)](base::Status drained) {
    if (!drained) return done(base::fail(std::move(drained).error()));
    done(self->pin_now(partition));
  });
}

void Engine::scan_async(const Pin& pin, const ScanRange& range, std::function<void(base::Result<ScanRows>)> done) {
  struct Work {
    std::shared_ptr<Pin::State> state;
    ScanPlan plan;
    base::Result<ScanRows> rows = ScanRows{};
  };
  auto* self = impl_.get();
  auto work = std::make_shared<Work>();
  work->state = pin.state_;
  auto& state = *pin.state_;
  if (std::exchange(state.reading, true))
    return self->parts.executor.defer(self->guarded(
        [done = std::move(done)] { done(base::fail(Code::conflict, "another page of it is being read")); }));
  work->plan = plan_scan(state.parts, range);
  for (const auto& part : work->plan.parts) {
    const auto whole = std::find_if(state.parts.begin(), state.parts.end(),
                                    [&](const Part& p) { return p.interval.contains(part.interval.begin); });
    const auto& rows = state.overlay[static_cast<size_t>(whole - state.parts.begin())];
    work->plan.overlay.push_back(rows_in(rows, part.interval, range.reverse));
  }
  auto task = [work] {
    auto end = merge(*work->state->reader, work->plan, [&](std::string_view key, const Found& f) {
      work->rows->rows.push_back({std::string(key), {f.deleted, f.version, std::string(f.value), f.flags}});
      return true;
    });
    if (end)
      work->rows->end = std::move(*end);
    else
      work->rows = base::fail(std::move(end).error());
  };
  self->parts.executor.run(Lane::read, std::move(task), self->guarded([work, done = std::move(done)] {
    work->state->reading = false;
    if (work->rows) work->rows->end.at = work->state->at;
    work->state.reset();
    done(std::move(work->rows));
  }));
}

}  // namespace cantle::store

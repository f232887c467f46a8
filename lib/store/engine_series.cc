// Series of quorum tables' clients: noted when their records become visible, looked up, swept.
#include <algorithm>
#include <map>
#include <utility>

#include "lib/base/check.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

namespace {

constexpr base::Duration kSweepEvery = std::chrono::minutes(10);
constexpr size_t kSweepRows = 500;  // looked at in one transaction

// Whose windows are still needed, and the log time of the one among their tenures that has come least far: a divided
// partition's rows are its children's, too, be it here or not.
using Owners = std::map<std::pair<model::PartitionId, model::ExtentId>, uint64_t>;
base::Result<Owners> owners_of(Source& source) {
  Owners owners;
  TRY_ASSIGN(const auto rows, read_tenures(source));
  const auto owns = [&](const model::PartitionId& partition, model::ExtentId extent, uint64_t time) {
    const auto [it, fresh] = owners.try_emplace({partition, extent}, time);
    if (!fresh) it->second = std::min(it->second, time);
  };
  for (const auto& row : rows) {
    if (!row.quorum) continue;
    if (!row.parts.empty()) owns(row.partition, series_key(row, 0).extent, row.quorum->log_time_ms);
    if (row.refill) owns(row.partition, row.refill->extent, row.refill->log_time_ms);
    for (const auto& origin : row.quorum->origins)  // in the time of that tenure
      owns(origin.partition, origin.extent,
           row.quorum->log_time_ms - std::min(row.quorum->log_time_ms, origin.shift_ms));
  }
  return owners;
}

// Of the rows from `from` on, those that nobody needs any more, and the key to go on from; empty: the end.
struct Swept {
  std::vector<std::string> rows;
  std::string next;
};
base::Result<Swept> look_over(Source& source, const std::string& from, std::shared_ptr<const Owners>& owners) {
  Swept swept;
  bool fresh = owners == nullptr;
  const auto look = [&]() -> base::Status {
    TRY_ASSIGN(auto all, owners_of(source));
    owners = std::make_shared<const Owners>(std::move(all));
    return base::ok();
  };
  if (fresh) TRY(look());
  TRY_ASSIGN(auto cursor, source.cursor(Db::series));
  TRY_ASSIGN(auto at, cursor->seek(from));
  for (size_t n = 0; at && n < kSweepRows; n++) {
    TRY_ASSIGN(const auto key, decode_series_key(at->key));
    TRY_ASSIGN(auto window, decode_series_row(at->value));
    auto owner = owners->find({key.partition, key.extent});
    if (owner == owners->end() && !std::exchange(fresh, true)) {  // of a tenure that came since the sweep began
      TRY(look());
      owner = owners->find({key.partition, key.extent});
    }
    const bool owned = owner != owners->end();
    if (owned) window.expire(owner->second);
    if (!owned || window.empty()) swept.rows.emplace_back(at->key);
    TRY_ASSIGN(at, cursor->next());
  }
  if (at) swept.next = at->key;
  return swept;
}

}  // namespace

void Engine::Impl::note_series(const Log& log, const model::RecordView& record, uint64_t time_ms) {
  const auto outcome = model::outcome_of(record);
  CHECK(outcome);  // looked at when the block was built or taken
  pending.series.add(series_key(log.row, record.client), {record.series, *outcome, time_ms});
}

base::Result<model::ClientSeries> Engine::Impl::series(const model::PartitionId& partition, uint64_t client) {
  TRY_ASSIGN(const Log* log, quorum_log_of(partition));
  TRY_ASSIGN(Reader * reader, turn_reader());
  model::ClientSeries out;
  out.now_ms = log->quorum->log_time_ms;
  const auto& row = *log->row.quorum;
  const auto join = [&](const SeriesKey& key, uint64_t shift_ms) -> base::Status {
    TRY_ASSIGN(auto known, read_series(*reader, key));
    if (job)
      if (const auto* sealed = job->pending().series.find(key)) known.merge(*sealed);
    if (const auto* active = pending.series.find(key)) known.merge(*active);
    if (shift_ms != 0) known.shift(shift_ms);
    out.window.merge(known);
    return base::ok();
  };
  TRY(join(series_key(log->row, client), 0));
  for (const auto& origin : row.origins)
    if (origin.until_ms > out.now_ms) TRY(join({origin.partition, origin.extent, client}, origin.shift_ms));
  // The log time of a copy that was filled without them began with its log: what it lacks is older than that.
  out.whole = !log->row.hollow || row.series_whole || out.now_ms >= row.series_from_ms + model::kSeriesExpiryMs;
  return out;
}

bool Engine::Impl::series_sweep_due() const {
  if (!series_swept_to.empty() || series_sweep_wanted) return true;
  return quorum_logs > 0 && parts.clock.now() - last_series_sweep >= kSweepEvery;
}

// One step of it. Windows of which a part has expired stay whole: the next write of that client sees to them.
void Engine::Impl::sweep_series() {
  background_busy = true;
  if (series_swept_to.empty()) {
    last_series_sweep = parts.clock.now();
    series_sweep_wanted = false;
  }
  struct Step {
    std::string from, next;
    std::shared_ptr<const Owners> owners;
  };
  auto step = std::make_shared<Step>();
  step->from = series_swept_to;
  step->owners = std::static_pointer_cast<const Owners>(series_owners);
  index_txn(
      [step](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(auto swept, look_over(txn, step->from, step->owners));
        for (const auto& key : swept.rows) TRY(txn.del(Db::series, key));
        step->next = std::move(swept.next);
        return base::ok();
      },
      [this, step](const base::Status& s) {
        background_busy = false;
        series_swept_to = s ? std::move(step->next) : std::string();
        series_owners = series_swept_to.empty() ? nullptr : step->owners;
        series_sweep_wanted = series_sweep_wanted || !s;
      });
}

}  // namespace cantle::store

// Series of quorum tables' clients: noted when their records become visible, looked up, swept.
#include <map>

#include "lib/base/check.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

namespace {

constexpr base::Duration kSweepEvery = std::chrono::minutes(10);
constexpr size_t kSweepRows = 500;  // looked at in one transaction

// The log time of a tenure as the index has it; nothing: the tenure is gone.
base::Result<std::optional<uint64_t>> log_time_of(Source& source, const SeriesKey& key) {
  TRY_ASSIGN(auto cursor, source.cursor(Db::partitions));
  TRY_ASSIGN(auto at, cursor->seek(key.partition.view()));
  while (at && at->key.substr(0, key.partition.view().size()) == key.partition.view()) {
    TRY_ASSIGN(const auto row, decode_tenure_row(at->value));
    if (row.quorum && series_key(row, 0).extent == key.extent) return row.quorum->log_time_ms;
    TRY_ASSIGN(at, cursor->next());
  }
  return std::nullopt;
}

// Of the rows from `from` on, those that nobody needs any more, and the key to go on from; empty: the end.
struct Swept {
  std::vector<std::string> rows;
  std::string next;
};
base::Result<Swept> look_over(Source& source, const std::string& from) {
  Swept swept;
  std::map<std::pair<model::PartitionId, model::ExtentId>, std::optional<uint64_t>> times;
  TRY_ASSIGN(auto cursor, source.cursor(Db::series));
  TRY_ASSIGN(auto at, cursor->seek(from));
  for (size_t n = 0; at && n < kSweepRows; n++) {
    TRY_ASSIGN(const auto key, decode_series_key(at->key));
    TRY_ASSIGN(auto window, decode_series_row(at->value));
    const auto [time, fresh] = times.try_emplace({key.partition, key.extent});
    if (fresh) {
      TRY_ASSIGN(time->second, log_time_of(source, key));
    }
    if (time->second) window.expire(*time->second);
    if (!time->second || window.empty()) swept.rows.emplace_back(at->key);
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
  const auto key = series_key(log->row, client);
  TRY_ASSIGN(Reader * reader, turn_reader());
  model::ClientSeries out;
  TRY_ASSIGN(out.window, read_series(*reader, key));
  if (job)
    if (const auto* sealed = job->pending().series.find(key)) out.window.merge(*sealed);
  if (const auto* active = pending.series.find(key)) out.window.merge(*active);
  out.now_ms = log->quorum->log_time_ms;
  // The log time of a copy that was filled began with its log: what it lacks is older than that.
  out.whole = !log->row.hollow || out.now_ms >= model::kSeriesExpiryMs;
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
  auto next = std::make_shared<std::string>();
  index_txn(
      [next, from = series_swept_to](WriteTxn& txn) -> base::Status {
        TRY_ASSIGN(auto swept, look_over(txn, from));
        for (const auto& key : swept.rows) TRY(txn.del(Db::series, key));
        *next = std::move(swept.next);
        return base::ok();
      },
      [this, next](const base::Status& s) {
        background_busy = false;
        series_swept_to = s ? std::move(*next) : std::string();
        series_sweep_wanted = series_sweep_wanted || !s;
      });
}

}  // namespace cantle::store

// Reading: the overlay's newest, then the index; on the loop, or on a read thread.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;
using base::ok;

namespace {

// Reads under way on read threads: each holds one of the index's slots for readers (512 for all processes).
constexpr size_t kReadsMax = 64;

const Part* part_of(const TenureRow& row, std::string_view key) {
  for (const auto& part : row.parts)
    if (part.interval.contains(key)) return &part;
  return nullptr;
}

}  // namespace

base::Result<std::optional<Found>> Engine::Impl::found_in(const Entry& e) {
  if (!e.left) {
    std::string unused;
    return Found{e.deleted, e.version, *e.value(unused), e.flags};
  }
  TRY(turn_reader());  // ends the views with the turn
  auto value = e.value(turn_values.emplace_back());
  if (value) return Found{e.deleted, e.version, *value, e.flags};
  // What was durable is not there any more: recovery finds out what is, and the other replicas have the rest (S62).
  fail_damaged(value.error());
  return base::fail(std::move(value).error());
}

base::Result<Reader*> Engine::Impl::turn_reader() {
  if (!turn_open) {
    TRY(turn->renew());
    turn_open = true;
    parts.executor.defer(guarded([this] {
      turn->reset();
      turn_open = false;
      turn_values.clear();
    }));
  }
  return turn.get();
}

// The view ends with the turn, as a reader's do.
std::optional<Found> Engine::Impl::find_cached(model::ExtentId extent, std::string_view key) {
  const bool first = !cache.viewed();
  auto found = cache.find(extent, key);
  if (found && first) parts.executor.defer(guarded([this] { cache.let_go(); }));
  return found;
}

base::Result<const Log*> Engine::Impl::readable(const model::PartitionId& partition) const {
  const Log* log = find_log(partition);
  if (log == nullptr) return base::fail(Code::not_found, "no such partition on this server");
  return log;
}

base::Result<std::optional<Found>> Engine::Impl::get(const model::PartitionId& partition, std::string_view key) {
  TRY_ASSIGN(const Log* log, readable(partition));
  const Part* part = key.size() > model::kKeyMax ? nullptr : part_of(log->row, key);
  if (part == nullptr) return base::fail(Code::invalid, "the key does not lie in the partition");
  const Held held = overlay.find(part->extent, key);
  if (held.entry != nullptr && held.newest) return found_in(*held.entry);
  const bool cached = held.entry == nullptr && ingesting == 0;
  if (cached)
    if (const auto found = find_cached(part->extent, key)) return *found;
  TRY_ASSIGN(Reader * reader, turn_reader());
  RecordKey keys(part->extent);
  TRY_ASSIGN(const auto bytes, reader->get(Db::records, keys.of(key)));
  if (!bytes && held.entry == nullptr) return std::nullopt;
  if (!bytes) return found_in(*held.entry);
  TRY_ASSIGN(const auto row, decode_stored(*bytes));
  if (held.entry != nullptr && held.entry->version >= row.version) return found_in(*held.entry);
  if (!row.in_pieces) {
    const Found found{row.deleted, row.version, row.tail, row.flags};
    if (cached) cache.add(part->extent, key, found);
    return found;
  }
  TRY_ASSIGN(const auto value, value_of(*reader, keys, {key, row}, turn_values.emplace_back()));
  return Found{row.deleted, row.version, value, row.flags};
}

base::Result<ScanEnd> Engine::Impl::scan(const model::PartitionId& partition, const ScanRange& range,
                                         const Each& each) {
  TRY_ASSIGN(const Log* log, readable(partition));
  TRY_ASSIGN(Reader * reader, turn_reader());
  auto plan = plan_scan(log->row.parts, range);
  collect(plan, overlay);
  TRY_ASSIGN(auto end, merge(*reader, plan, each));
  end.at = log->seen();
  return end;
}

base::Result<std::vector<uint32_t>> Engine::Impl::lacking(const model::PartitionId& partition,
                                                          const std::vector<Offer>& offers) {
  TRY_ASSIGN(const Log* log, readable(partition));
  TRY_ASSIGN(Reader * reader, turn_reader());
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < offers.size(); i++) {
    const auto& offer = offers[i];
    const Part* part = offer.key.empty() || offer.key.size() > model::kKeyMax ? nullptr : part_of(log->row, offer.key);
    if (part == nullptr) return base::fail(Code::invalid, "an offered key does not lie in the partition");
    const Held held = overlay.find(part->extent, offer.key);
    if (held.entry != nullptr && held.entry->version >= offer.version) continue;
    RecordKey keys(part->extent);
    TRY_ASSIGN(const auto version, read_version(*reader, keys, offer.key));
    if (!version || *version < offer.version) out.push_back(i);
  }
  return out;
}

base::Result<std::shared_ptr<Reader>> Engine::Impl::pooled_reader() {
  std::shared_ptr<Reader> reader;
  if (pool.empty()) {
    reader = index->reader();
  } else {
    reader = std::move(pool.back());
    pool.pop_back();
  }
  TRY(reader->renew());
  reads_under_way++;
  return reader;
}

void Engine::Impl::give_back(std::shared_ptr<Reader> reader) {
  pool.push_back(std::move(reader));
  reads_under_way--;
  while (!reads_waiting.empty() && reads_under_way < kReadsMax) {
    const auto begin = std::move(reads_waiting.front());
    reads_waiting.pop_front();
    begin();
  }
}

void Engine::Impl::read_async(std::function<void()> begin) {
  if (reads_under_way < kReadsMax && reads_waiting.empty()) return begin();
  reads_waiting.push_back(std::move(begin));
}

Engine::Size Engine::Impl::size(const model::PartitionId& partition) {
  Size size;
  const Log* log = find_log(partition);
  if (log == nullptr) return size;
  for (const auto& part : log->row.parts) {
    bool exact = false;
    if (const auto it = extents.find(part.extent); it != extents.end())
      for (const auto& piece : it->second.pieces) {
        if (piece.partition != partition || piece.assignment != log->row.assignment || piece.interval != part.interval)
          continue;
        exact = piece.counts.all;
        if (!exact) break;
        size.bytes += piece.counts.bytes;
        size.records += piece.counts.record_count;
      }
    if (exact) continue;
    size.exact = false;
    auto reader = turn_reader();
    if (!reader) continue;
    if (auto bytes = estimate_bytes(**reader, part)) size.bytes += *bytes;
  }
  return size;
}

// --- on read threads ----------------------------------------------------------------------------

void Engine::get_async(const model::PartitionId& partition, std::string_view key,
                       std::function<void(base::Result<std::optional<Fetched>>)> done) {
  ScanRange range;
  range.from = std::string(key);
  range.to = range.from + '\0';
  range.tombstones = true;
  scan_async(partition, range, [done = std::move(done)](base::Result<ScanRows> rows) {
    if (!rows) return done(base::fail(std::move(rows).error()));
    if (rows->rows.empty()) return done(std::nullopt);
    done(std::move(rows->rows.front().record));
  });
}

void Engine::scan_async(const model::PartitionId& partition, const ScanRange& range,
                        std::function<void(base::Result<ScanRows>)> done) {
  impl_->read_async([self = impl_.get(), partition, range, done = std::move(done)]() mutable {
    self->begin_scan(partition, range, std::move(done));
  });
}

void Engine::Impl::begin_scan(const model::PartitionId& partition, const ScanRange& range,
                              std::function<void(base::Result<ScanRows>)> done) {
  struct Work {
    ScanPlan plan;
    std::shared_ptr<Reader> reader;
    base::Result<ScanRows> rows = ScanRows{};
    model::Lsn at;
  };
  auto work = std::make_shared<Work>();
  const auto prepare = [&]() -> base::Status {
    TRY_ASSIGN(const Log* log, readable(partition));
    TRY_ASSIGN(work->reader, pooled_reader());
    work->plan = plan_scan(log->row.parts, range);
    collect(work->plan, overlay);
    work->at = log->seen();
    return ok();
  };
  if (auto s = prepare(); !s)
    return parts.executor.defer(guarded([done = std::move(done), e = s.error()] { done(base::fail(e)); }));
  auto task = [work] {
    auto end = merge(*work->reader, work->plan, [&](std::string_view key, const Found& f) {
      work->rows->rows.push_back({std::string(key), {f.deleted, f.version, std::string(f.value), f.flags}});
      return true;
    });
    work->reader->reset();
    if (end)
      work->rows->end = std::move(*end);
    else
      work->rows = base::fail(std::move(end).error());
  };
  parts.executor.run(Lane::read, std::move(task), guarded([this, work, done = std::move(done)] {
                       give_back(std::move(work->reader));
                       work->plan = {};
                       if (work->rows) work->rows->end.at = work->at;
                       done(std::move(work->rows));
                     }));
}

void Engine::sample(const model::PartitionId& partition, uint32_t n,
                    std::function<void(base::Result<std::vector<std::string>>)> done) {
  impl_->read_async([self = impl_.get(), partition, n, done = std::move(done)]() mutable {
    self->begin_sample(partition, n, std::move(done));
  });
}

void Engine::Impl::begin_sample(const model::PartitionId& partition, uint32_t n,
                                std::function<void(base::Result<std::vector<std::string>>)> done) {
  struct Work {
    std::vector<Part> parts;
    std::shared_ptr<Reader> reader;
    base::Result<std::vector<std::string>> keys = std::vector<std::string>();
  };
  auto work = std::make_shared<Work>();
  const auto prepare = [&]() -> base::Status {
    TRY_ASSIGN(const Log* log, readable(partition));
    work->parts = log->row.parts;
    TRY_ASSIGN(work->reader, pooled_reader());
    return ok();
  };
  if (auto s = prepare(); !s)
    return parts.executor.defer(guarded([done = std::move(done), e = s.error()] { done(base::fail(e)); }));
  parts.executor.run(
      Lane::read,
      [work, n] {
        work->keys = sample_parts(*work->reader, work->parts, n);
        work->reader->reset();
      },
      guarded([this, work, done = std::move(done)] {
        give_back(std::move(work->reader));
        done(std::move(work->keys));
      }));
}

}  // namespace cantle::store

#include "lib/store/engine.h"

#include "lib/store/engine_impl.h"

namespace cantle::store {

using base::Code;

base::Result<std::unique_ptr<Engine>> Engine::open(EngineParts parts, const EngineConfig& config,
                                                   const Identity& identity) {
  constexpr uint64_t kSegmentMin = uint64_t{16} << 10;
  if (config.segment_bytes < kSegmentMin || config.segment_bytes % kFrameAlign != 0)
    return base::fail(Code::invalid, "segment size: at least 16 KiB, and a multiple of 8");
  auto impl = std::make_unique<Impl>(parts, config, identity);
  TRY(impl->open());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

const RecoveryReport& Engine::report() const { return impl_->report; }
EngineStatus Engine::status() const { return impl_->status(); }
void Engine::on_fatal(std::function<void(const base::Error&)> fn) { impl_->fatal_fn = std::move(fn); }
void Engine::on_read_only(std::function<void(bool, const std::string&)> fn) { impl_->read_only_fn = std::move(fn); }
void Engine::tick() { impl_->tick(); }
void Engine::shutdown(std::function<void(base::Status)> done) { impl_->shutdown(std::move(done)); }

std::vector<Tenure> Engine::tenures() const {
  std::vector<Tenure> out;
  for (const auto& [partition, log] : impl_->live) out.push_back(tenure_of(log->row));
  for (const auto& [id, row] : impl_->others)
    if (row.state == RowState::aside) out.push_back(tenure_of(row));
  return out;
}

std::optional<Tenure> Engine::find(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  if (log == nullptr) return std::nullopt;
  return tenure_of(log->row);
}

std::optional<Tenure> Engine::find(const TenureId& id) const {
  const TenureRow* row = impl_->find_row(id);
  if (row == nullptr || (row->state != RowState::live && row->state != RowState::aside)) return std::nullopt;
  return tenure_of(*row);
}

base::Status Engine::create(const TenureSpec& spec, Done done) { return impl_->create(spec, std::move(done)); }
base::Status Engine::retag(const TenureId& from, const model::AssignmentId& to, Done done) {
  return impl_->retag(from, to, std::move(done));
}
base::Status Engine::set_aside(const TenureId& id, bool whole, Done done) {
  return impl_->set_aside(id, whole, std::move(done));
}
base::Status Engine::drop(const TenureId& id, Done done) { return impl_->drop(id, std::move(done)); }

base::Status Engine::restore(const TenureId& id, Done done) {
  const TenureRow* row = impl_->find_row(id);
  if (row == nullptr || row->state != RowState::trash) return base::fail(Code::not_found, "not in the trash");
  if (!impl_->busy.insert(id.partition).second)
    return base::fail(Code::unavailable, "another change of this partition is under way");
  impl_->change_state(id, RowState::aside, impl_->unbusy(id.partition, std::move(done)));
  return base::ok();
}

void Engine::read_snapshot(const model::PartitionId& partition, const model::SnapshotPlace& place, uint32_t bytes,
                           std::function<void(base::Result<model::QuorumSnapshotPart>)> done) {
  impl_->read_snapshot(partition, place, bytes, std::move(done));
}
base::Status Engine::refill(const model::PartitionId& partition, model::QuorumSnapshotPart part, Done done) {
  return impl_->refill(partition, std::move(part), std::move(done));
}
model::SnapshotPlace Engine::refilled(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  return log == nullptr || !log->row.refill ? model::SnapshotPlace{} : log->row.refill->place;
}
base::Status Engine::install(const model::PartitionId& partition, Done done) {
  return impl_->install(partition, std::move(done));
}
base::Result<model::LogPoint> Engine::divide_at(const model::PartitionId& parent, const model::LogPoint& cut,
                                                const model::AttemptId& attempt, std::string_view point,
                                                const ChildSpec& low, const ChildSpec& high, Done done) {
  return impl_->divide_at(parent, cut, attempt, point, low, high, std::move(done));
}
base::Result<model::LogPoint> Engine::divide(const model::PartitionId& parent, const model::AttemptId& attempt,
                                             std::string_view point, const ChildSpec& low, const ChildSpec& high,
                                             Done done) {
  return impl_->divide(parent, attempt, point, low, high, std::move(done));
}
base::Result<model::LogPoint> Engine::merge_at(const MergeSpec& spec, Done done) {
  return impl_->merge_at(spec, std::move(done));
}
base::Result<model::LogPoint> Engine::merge_ends(const model::PartitionId& low, const model::PartitionId& high,
                                                 const model::AttemptId& attempt, const ChildSpec& target, Done done) {
  return impl_->merge_ends(low, high, attempt, target, std::move(done));
}
base::Status Engine::mark_whole(const TenureId& id, Done done) { return impl_->mark_whole(id, std::move(done)); }

base::Result<model::Lsn> Engine::append(const model::PartitionId& partition, std::string payload, Appended done) {
  return impl_->append(partition, std::move(payload), std::move(done));
}
base::Status Engine::can_append(const model::PartitionId& partition) const {
  return impl_->can_append(impl_->find_log(partition), 0);
}
bool Engine::has_room(uint64_t payload_bytes) const { return impl_->has_room(payload_bytes); }
base::Status Engine::ingest(const TenureId& id, Chunk chunk, Done done) {
  return impl_->ingest(id, std::move(chunk), std::move(done));
}

base::Result<model::BlockHeader> Engine::build(const model::PartitionId& partition, const BuildSpec& spec,
                                               std::string payload, Taken done) {
  return impl_->build(partition, spec, std::move(payload), std::move(done));
}
base::Result<model::LogPoint> Engine::take(const model::PartitionId& partition, const model::BlockHeader& header,
                                           std::string payload, Taken done, Sync sync) {
  return impl_->take(partition, header, std::move(payload), std::move(done), sync);
}
base::Status Engine::commit(const model::PartitionId& partition, model::Lsn lsn) {
  return impl_->commit_log(partition, lsn);
}
base::Status Engine::seal(const model::PartitionId& partition, model::Epoch promised, Done done) {
  return impl_->seal_log(partition, promised, std::move(done));
}
base::Status Engine::truncate(const model::PartitionId& partition, const model::LogPoint& keep, Done done) {
  return impl_->truncate_log(partition, keep, std::move(done));
}
model::Lsn Engine::visible(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  return log == nullptr ? model::Lsn{} : log->seen();
}

uint64_t Engine::log_time_ms(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  return log != nullptr && log->quorum ? log->quorum->log_time_ms : 0;
}

std::optional<QuorumLog> Engine::quorum_log(const model::PartitionId& partition) const {
  return impl_->quorum_state(partition);
}
base::Result<model::ClientSeries> Engine::series(const model::PartitionId& partition, uint64_t client) {
  return impl_->series(partition, client);
}
std::optional<model::LogGap> Engine::gap(const model::PartitionId& partition) const { return impl_->gap(partition); }
base::Status Engine::mend(const model::PartitionId& partition, const model::LogGap& gap,
                          std::vector<model::Block> blocks, Done done) {
  return impl_->mend(partition, gap, std::move(blocks), std::move(done));
}
base::Result<std::vector<model::Block>> Engine::read_gap(const model::PartitionId& partition,
                                                         const model::LogGap& gap) {
  return impl_->read_gap(partition, gap);
}
base::Result<std::vector<model::Block>> Engine::read_log(const model::PartitionId& partition, model::Lsn from,
                                                         size_t bytes_max) {
  return impl_->read_log(partition, from, bytes_max);
}
void Engine::stream_log(const model::PartitionId& partition, model::Lsn from, size_t bytes_max, SeeBlock see,
                        Done done) {
  impl_->stream_log(partition, from, bytes_max, std::move(see), std::move(done));
}
base::Result<Engine::Behind> Engine::read_behind(const model::PartitionId& partition, model::Lsn after,
                                                 size_t bytes_max) {
  return impl_->read_behind(partition, after, bytes_max);
}
std::optional<model::LogPoint> Engine::point_at(const model::PartitionId& partition, model::Lsn lsn) {
  auto log = impl_->quorum_log_of(partition);
  if (!log) return std::nullopt;
  auto point = impl_->find_point(**log, lsn);
  return point ? *point : std::nullopt;
}

base::Result<std::optional<Found>> Engine::get(const model::PartitionId& partition, std::string_view key) {
  return impl_->get(partition, key);
}
base::Result<ScanEnd> Engine::scan(const model::PartitionId& partition, const ScanRange& range, const Each& each) {
  return impl_->scan(partition, range, each);
}
base::Result<std::vector<uint32_t>> Engine::lacking(const model::PartitionId& partition,
                                                    const std::vector<Offer>& offers) {
  return impl_->lacking(partition, offers);
}

void Engine::hash(const model::PartitionId& partition, std::function<void(base::Result<HashAt>)> done) {
  const Log* log = impl_->find_log(partition);
  if (log == nullptr)
    return impl_->parts.executor.defer(impl_->guarded(
        [done = std::move(done)] { done(base::fail(Code::not_found, "no such partition on this server")); }));
  impl_->hash(log->id(), std::move(done));
}

Engine::Size Engine::size(const model::PartitionId& partition) const { return impl_->size(partition); }

std::optional<model::LogPoint> Engine::log_end(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  return log == nullptr ? std::nullopt : std::optional(log->end);
}
std::optional<model::LogPoint> Engine::durable(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  return log == nullptr ? std::nullopt : std::optional(impl_->durable_of(*log));
}
std::optional<model::LogPoint> Engine::applied(const model::PartitionId& partition) const {
  const Log* log = impl_->find_log(partition);
  return log == nullptr ? std::nullopt : std::optional(log->row.applied);
}
model::Version Engine::highest_version() const { return impl_->highest; }
void Engine::set_needed(const TenureId& id, model::Lsn from) { impl_->needed_from[id] = from; }
void Engine::drain(Done done) { impl_->drain(std::move(done)); }
Index& Engine::index() { return *impl_->index; }

}  // namespace cantle::store

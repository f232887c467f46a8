// Engine::Impl: the state behind engine.h. Private to lib/store.
//
// How a write goes: append() seals a block onto its log and queues it; the journal writes and syncs a group;
// on_durable() puts its records into the overlay and calls back; seal() hands the overlay's older half to an
// ApplyJob; finish_apply() lets go of it when the loop's readers see its last commit; checkpoint() writes a root.
// In a quorum table it goes into the tail first, and from there into the overlay when it is committed
// (engine_quorum.cc).
//
// Threads: the loop, but for what is handed to lanes: an ApplyJob, an IndexTask, a read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/store/apply.h"
#include "lib/store/content.h"
#include "lib/store/divide.h"
#include "lib/store/engine.h"
#include "lib/store/journal.h"
#include "lib/store/log_walk.h"
#include "lib/store/overlay.h"
#include "lib/store/quorum_log.h"
#include "lib/store/record_cache.h"
#include "lib/store/root.h"
#include "lib/store/rows.h"
#include "lib/store/scan.h"

namespace cantle::store {

constexpr uint64_t kBacklogOverlays = 16;  // journal that is not in the index: at most that many times the overlay

constexpr size_t kTailBlocksMax = size_t{1} << 20;  // of one log, not committed or not in the overlay: take() stops
constexpr uint64_t kLocalRoom = 512;  // of the journal, kept from records for each quorum log's seals, cuts and epochs

// A durable block of a quorum table's log that is not in the overlay yet.
struct TailBlock {
  Frame frame;
  std::shared_ptr<File> file;
  std::string payload;  // empty where `held` is not set: it is read again
  bool held = false;
  bool damaged = false;  // only its header could be read
  bool mended = false;   // it came from another replica: `held`; where its frame says that it stands it does not
  model::LogPoint end() const { return point_of(frame.header); }
};

struct Flying {
  model::LogPoint end;
  uint32_t bytes = 0;
};

// What a truncate cut, until it is in the trash.
struct CutOff {
  std::string path;
  std::vector<TailBlock> blocks;
  bool writing = false;
};

// A quorum table's log, besides what Log says. Log::end is what was appended; Log::durable is what has come to the disk
// in the journal's order, so that a truncate that is on its way has not cut it yet.
struct QuorumState {
  LogIndex index;
  bool learned = true;  // the index reaches back to the oldest segment
  EpochTable epochs;
  model::CutTable cuts;
  model::Epoch promised, highest;
  model::Epoch sealed;  // durable
  model::Lsn commit;
  model::Lsn recovered;                 // its row's, until the journal was replayed: of the log behind the last cut
  model::LogPoint visible;              // in the overlay, or in the index
  uint64_t log_time_ms = 0;             // through `visible`
  std::deque<TailBlock> tail;           // behind `visible`
  std::deque<Flying> flying;            // appended, not durable, not cut
  std::deque<model::LogPoint> cutting;  // truncates that are not durable
  uint64_t bytes = 0;                   // payloads of tail and flying, in memory or not
  uint32_t sealing = 0;                 // seals that are not durable
  uint64_t begins = 0;
  bool hole = false;    // something is missing in the tail
  bool filled = false;  // a snapshot goes into it: the index may hold newer records than the log brings
  bool empty = false;   // of a part of its log the records are not here, nor is that part
  bool closed = false;  // another copy is about to take its place: no blocks, no cuts, no commits meanwhile
  bool dirty = false;   // its row does not say what it should at the next apply
  std::deque<CutOff> cut_off;
  std::vector<std::pair<model::LogPoint, std::function<void(base::Result<model::LogPoint>)>>> repeated;
  base::Instant last_block{};
  // Nothing behind it will stay.
  std::optional<model::LogPoint> lowest_cut() const {
    const auto it =
        std::min_element(cutting.begin(), cutting.end(), [](const auto& a, const auto& b) { return a.lsn < b.lsn; });
    return it == cutting.end() ? std::nullopt : std::optional(*it);
  }
};

// A log of this server: a live tenure, or one whose last blocks are still on their way.
struct Log {
  TenureRow row;
  model::LogPoint end, durable;
  bool open = true;                     // takes appends
  bool indexed = true;                  // its row is in the index; a child's is not until the divide was applied
  std::unique_ptr<QuorumState> quorum;  // a push table's: none
  TenureId id() const { return {row.partition, row.assignment}; }
  model::Lsn seen() const { return quorum ? quorum->visible.lsn : durable.lsn; }  // by reads
};

// What retention asks of a segment.
struct SegmentInfo {
  bool known = false;                             // `last` is complete
  std::map<model::PartitionId, model::Lsn> last;  // highest LSN of each partition in it
  uint64_t newest_ms = 0;
  // As halves of the overlay may hold it that have values in it; a scan may go on with one after it was applied.
  std::vector<std::weak_ptr<File>> files;
  bool held() const {
    return std::any_of(files.begin(), files.end(), [](const auto& f) { return !f.expired(); });
  }
};

// A snapshot that somebody pulls, part after part.
struct OpenSnapshot {
  std::shared_ptr<Index> index;    // the reader's: a read may still be under way when the engine is gone
  std::shared_ptr<Reader> reader;  // null: it is closed, and only the log behind it is kept
  model::PartitionId partition;
  std::vector<Part> parts;
  std::vector<SeriesOrigin> series;  // whose rows are joined
  model::LogPoint at;
  std::vector<model::EpochStart> epochs;
  std::vector<model::CutMark> cuts;  // up to there
  uint64_t log_time_ms = 0;
  uint64_t log_segment = UINT64_MAX;  // recovery's and the pipe's, behind `at`
  base::Instant opened{}, asked{};
  bool reading = false;
  // When all of it was read, the reader goes; the last part stays, for one whose answer was lost.
  std::optional<std::pair<model::SnapshotPlace, model::QuorumSnapshotPart>> last;
};

std::string cut_path(const model::PartitionId& partition, const Frame& truncate);
std::vector<JournalPosition> needs_of(const TenureRow& row);

// The headers of a segment's frames, in order, past what cannot be read, until `see` says no. For the background.
void each_header(Disk& disk, uint64_t segment, uint64_t limit, const std::function<bool(const Frame&)>& see);

struct Engine::Impl {
  Impl(EngineParts p, const EngineConfig& c, Identity id);
  ~Impl();

  // --- engine_open.cc
  base::Status open();
  base::Status open_index();
  base::Status load_rows();
  void begin_log(Log& log) const;
  base::Status recover();
  // --- engine_write.cc
  base::Result<model::Lsn> append(const model::PartitionId& partition, std::string payload, Appended done);
  base::Status can_append(const Log* log, uint64_t payload_bytes) const;
  bool has_room(uint64_t payload_bytes) const;
  void add_local(model::BlockKind kind, const model::PartitionId& partition, model::Region region, std::string payload,
                 std::function<void(base::Status)> done);
  void add(JournalBlock block);
  void pump_soon();
  void on_durable(std::vector<JournalBlock> blocks, const std::shared_ptr<File>& file);
  SegmentInfo& note_frame(const Frame& frame);  // it is durable
  // `file`: the frame's segment.
  void take_durable(const Frame& frame, std::string_view payload, Log* log, const std::shared_ptr<File>& file);
  void begin_pending(const Frame& frame);  // once for each half
  // `place`: where large values may stay; null: they are copied. `time_ms`: log time, of a quorum table's.
  void put_records(Log& log, std::string_view payload, const PayloadPlace* place, uint64_t time_ms = 0);
  // What the overlay takes, with the series that came with it; and of that, the half that takes what comes.
  uint64_t overlay_bytes() const {
    return overlay.bytes() + pending.series.bytes() + (job ? job->pending().series.bytes() : 0);
  }
  uint64_t active_bytes() const { return overlay.active()->bytes() + pending.series.bytes(); }
  bool crowded() const { return overlay.bytes() >= std::min(config.spill_from, config.overlay_bytes / 4); }
  uint64_t backlog() const;
  uint64_t backlog_max() const { return config.overlay_bytes * kBacklogOverlays; }
  void fail(const base::Error& error);
  // What was durable here cannot be read. A root says first how far the journal was durable: else the next start would
  // take its last block for one that was never finished, and cut it.
  void fail_damaged(const base::Error& error);
  Root next_root(const JournalPosition& head) const;
  // --- engine_quorum.cc
  base::Result<Log*> quorum_log_of(const model::PartitionId& partition) const;
  base::Status can_add(const Log& log, model::BlockKind kind, uint64_t payload_bytes) const;
  base::Status check_block(const Log& log, const model::BlockHeader& header, std::string_view payload) const;
  base::Result<model::BlockHeader> build(const model::PartitionId& partition, const BuildSpec& spec,
                                         std::string payload, Taken done);
  base::Result<model::LogPoint> take(const model::PartitionId& partition, const model::BlockHeader& header,
                                     std::string payload, Taken done, Sync sync);
  base::Result<model::LogPoint> take_again(Log& log, const model::BlockHeader& header, Taken done);
  void add_log_block(const std::shared_ptr<Log>& log, const model::BlockHeader& header, std::string payload, Taken done,
                     Sync sync = Sync::now);
  base::Status commit_log(const model::PartitionId& partition, model::Lsn lsn);
  base::Status seal_log(const model::PartitionId& partition, model::Epoch promised, Done done);
  base::Status truncate_log(const model::PartitionId& partition, const model::LogPoint& keep, Done done);
  base::Status can_add_local(const Log& log) const;
  void add_quorum_local(const std::shared_ptr<Log>& log, const model::BlockHeader& header, Done done);
  // The log's frames as they become durable, or are replayed. False: a block that a truncate behind it has cut.
  bool quorum_durable(Log& log, const Frame& frame, std::string payload, const std::shared_ptr<File>& file);
  void cut_durable(Log& log, const Frame& frame);
  // `blocks`, in the order of the log, were cut by the truncate of that frame.
  void put_aside(Log& log, const Frame& truncate, std::vector<TailBlock> blocks);
  base::Status let_in(Log& log);  // what is committed and durable, into the overlay as far as there is room
  void let_in_waiting();
  bool has_overlay_room(uint64_t payload_bytes) const;
  base::Status put_tail(Log& log, const TailBlock& block, uint64_t time_ms);
  base::Result<std::string> payload_of(const TailBlock& block);
  void note_block(Log& log, const model::BlockHeader& header, std::string_view payload);  // it is the new end
  void drop_tail(Log& log);
  void confirm_repeated(Log& log);
  model::LogPoint durable_of(const Log& log) const;
  std::optional<QuorumLog> quorum_state(const model::PartitionId& partition) const;
  // --- engine_series.cc
  void note_series(const Log& log, const model::RecordView& record, uint64_t time_ms);
  base::Result<model::ClientSeries> series(const model::PartitionId& partition, uint64_t client);
  bool series_sweep_due() const;
  void sweep_series();
  // --- engine_log.cc
  QuorumRow quorum_row(const Log& log) const;
  void gather_rows(Pending& half);  // of quorum logs, for the half that is about to be applied
  void points_applied(const Pending& half);
  void rows_applied(const Pending& half);
  bool rows_due() const;
  std::optional<model::LogGap> gap(const model::PartitionId& partition) const;
  base::Status mend(const model::PartitionId& partition, const model::LogGap& gap, std::vector<model::Block> blocks,
                    Done done);
  void mended_durable(Log& log, const Frame& frame, std::string payload);
  base::Result<std::vector<model::Block>> read_gap(const model::PartitionId& partition, const model::LogGap& gap);
  base::Result<Behind> read_behind(const model::PartitionId& partition, model::Lsn after, size_t bytes_max);
  base::Result<std::vector<model::Block>> read_log(const model::PartitionId& partition, model::Lsn from,
                                                   size_t bytes_max);
  base::Result<std::optional<model::LogPoint>> find_point(Log& log, model::Lsn lsn);
  base::Result<JournalPosition> place_of(Log& log, model::Lsn lsn);
  // Shows the log's durable blocks that end at or behind `from`, until `each` says false.
  void stream_log(const model::PartitionId& partition, model::Lsn from, size_t bytes_max, SeeBlock see, Done done);
  const TailBlock* mended_at(const Log& log, model::Lsn first) const;
  base::Status walk(const Log& log, model::Lsn from, JournalPosition at, bool payload, const LogWalk::Each& each);
  base::Result<std::shared_ptr<File>> log_file(uint64_t segment);
  void learn_logs();
  struct Learning;
  void learn_next(std::shared_ptr<Learning> work);
  void forget_segment(uint64_t segment);
  uint64_t pinned_segment() const;  // the first that recovery needs for a quorum log
  void write_cut_offs();
  void expire_cut_offs(bool all);
  void count_quorum_logs();
  // --- engine_apply.cc
  void maybe_seal();
  void seal();
  void run_apply();
  void applied_step(const base::Result<bool>& result);
  void finish_apply();
  base::Status apply_now();  // recovery: seal and apply here
  void drain(Done done);
  void check_drains();
  // Runs one transaction on the apply lane; `done` gets its result. A final error ends the engine first.
  void index_txn(std::function<base::Status(WriteTxn&)> task, Done done);
  void background();
  void free_some(model::ExtentId extent, size_t piece);
  void count_some(model::ExtentId extent, model::Interval interval, Done done);
  void hash(const TenureId& id, std::function<void(base::Result<HashAt>)> done);
  // --- engine_keep.cc
  void tick();
  void check_space();
  void check_readers();
  void set_read_only();
  void checkpoint(bool clean, Done done);
  void write_images(Done done);
  bool image_due() const;
  void retire();
  bool needed(uint64_t segment, const SegmentInfo& info) const;
  void learn(uint64_t segment);
  void expire_trash(bool all);
  void shutdown(Done done);
  EngineStatus status() const;
  // --- engine_tenure.cc
  Log* find_log(const model::PartitionId& partition) const;
  TenureRow* find_row(const TenureId& id);
  base::Status create(const TenureSpec& spec, Done done);
  void create_now(const TenureSpec& spec, Done done);
  void create_all();
  std::optional<TenureId> aside_of(const TenureSpec& spec) const;
  void adopt(const TenureId& from, const TenureSpec& spec, Done done);
  base::Status retag(const TenureId& from, const model::AssignmentId& to, Done done);
  base::Status set_aside(const TenureId& id, bool whole, Done done);
  base::Status drop(const TenureId& id, Done done);
  void change_state(const TenureId& id, RowState state, Done done, bool whole = true);
  void ingest_now(const TenureId& id, std::shared_ptr<Chunk> chunk, Done done);
  Done unbusy(const model::PartitionId& partition, Done done);
  base::Status ingest(const TenureId& id, Chunk chunk, Done done);
  base::Status mark_whole(const TenureId& id, Done done);
  // --- engine_divide.cc
  base::Result<model::LogPoint> divide(const model::PartitionId& parent, const model::AttemptId& attempt,
                                       std::string_view point, const ChildSpec& low, const ChildSpec& high, Done done);
  base::Result<model::LogPoint> divide_at(const model::PartitionId& parent, const model::LogPoint& cut,
                                          const model::AttemptId& attempt, std::string_view point, const ChildSpec& low,
                                          const ChildSpec& high, Done done);
  base::Result<model::LogPoint> divided(const model::PartitionId& parent, const model::AttemptId& attempt) const;
  base::Result<model::LogPoint> begin_divide(const Log& log, DivideNote note, const ChildSpec& low,
                                             const ChildSpec& high, Done done);
  base::Status end_at(Log& log, const model::LogPoint& cut);
  base::Result<DivideLog> log_at(Log& log, const model::LogPoint& cut);
  void divide_memory(const DivideNote& note);
  void begin_child_log(const Log& parent, Log& child) const;
  void reshape_applied(const Reshape& reshape);
  // --- engine_merge.cc
  base::Result<model::LogPoint> merge_ends(const model::PartitionId& low, const model::PartitionId& high,
                                           const model::AttemptId& attempt, const ChildSpec& target, Done done);
  base::Result<model::LogPoint> merge_at(const MergeSpec& spec, Done done);
  base::Status can_merge(const MergeSpec& spec) const;
  base::Result<model::LogPoint> merged(const MergeSpec& spec, bool cuts) const;
  base::Result<model::LogPoint> begin_merge(MergeNote note, const MergeSpec& spec, Done done);
  void merge_memory(const MergeNote& note);
  void begin_target_log(const Log& low, const Log& high, Log& target) const;
  // --- engine_snapshot.cc
  base::Result<std::pair<uint64_t, OpenSnapshot*>> find_snapshot(const model::PartitionId& partition, uint64_t number);
  base::Result<OpenSnapshot> open_snapshot(const model::PartitionId& partition);
  void read_snapshot(const model::PartitionId& partition, const model::SnapshotPlace& place, uint32_t bytes,
                     std::function<void(base::Result<model::QuorumSnapshotPart>)> done);
  void expire_snapshots();
  base::Status refill(const model::PartitionId& partition, model::QuorumSnapshotPart part, Done done);
  base::Status install(const model::PartitionId& partition, Done done);
  void install_now(const std::shared_ptr<Log>& log, Done done);
  void installed(Log& log, const TenureRow& row);
  // --- engine_read.cc
  base::Result<Reader*> turn_reader();
  std::optional<Found> find_cached(model::ExtentId extent, std::string_view key);
  base::Result<const Log*> readable(const model::PartitionId& partition) const;
  base::Result<std::optional<Found>> found_in(const Entry& e);
  base::Result<std::optional<Found>> get(const model::PartitionId& partition, std::string_view key);
  base::Result<ScanEnd> scan(const model::PartitionId& partition, const ScanRange& range, const Each& each);
  base::Result<std::vector<uint32_t>> lacking(const model::PartitionId& partition, const std::vector<Offer>& offers);
  // A snapshot of now, for a read thread; back into the pool when let go.
  base::Result<std::shared_ptr<Reader>> pooled_reader();
  void give_back(std::shared_ptr<Reader> reader);
  // Begins a read on a read thread, now or when one of those under way has ended: each holds a slot of the index.
  void read_async(std::function<void()> begin);
  void begin_scan(const model::PartitionId& partition, const ScanRange& range,
                  std::function<void(base::Result<ScanRows>)> done);
  void begin_sample(const model::PartitionId& partition, uint32_t n,
                    std::function<void(base::Result<std::vector<std::string>>)> done);
  Size size(const model::PartitionId& partition);
  // --- engine_pin.cc
  base::Result<Pin> pin_now(const model::PartitionId& partition);

  template <class F>
  auto guarded(F fn) {  // a callback that does nothing once the engine is gone
    return [fn = std::move(fn), alive = std::weak_ptr(alive)](auto&&... args) mutable {
      if (!alive.expired()) fn(std::forward<decltype(args)>(args)...);
    };
  }

  EngineParts parts;
  EngineConfig config;
  Identity identity;
  model::Epoch epoch;  // of our log blocks: the incarnation
  std::shared_ptr<int> alive = std::make_shared<int>(0);
  std::shared_ptr<size_t> pins = std::make_shared<size_t>(0);  // there are now
  RecoveryReport report;
  std::function<void(const base::Error&)> fatal_fn;
  std::function<void(bool, const std::string&)> read_only_fn;

  std::shared_ptr<Index> index;
  std::unique_ptr<Journal> journal;
  std::unordered_map<model::PartitionId, std::shared_ptr<Log>> live;
  std::map<TenureId, TenureRow> others;                               // aside, trash, ended
  std::map<model::ExtentId, ExtentRow> extents;                       // as of the last apply
  std::vector<std::pair<std::shared_ptr<TenureRow>, Done>> creating;  // of this turn
  std::set<model::PartitionId> busy;                                  // a create, retag, … of it is under way

  Overlay overlay;
  Pending pending, sealed_pending;  // of the active half; sealed's goes with the job
  base::Instant active_since{}, apply_began{}, apply_ended{};
  base::Duration apply_took{};
  std::shared_ptr<ApplyJob> job;
  bool job_running = false, job_waits = false;  // a step is on the lane; the next one waits for the tick
  uint64_t job_records = 0;

  struct Drain {
    uint64_t mark;
    Done done;
  };
  std::deque<Drain> drains;
  uint64_t added_n = 0, durable_n = 0, sealed_n = 0, applied_n = 0;  // blocks, counted

  model::Version highest;
  uint64_t appended_blocks = 0, appended_bytes = 0, applied_records = 0;
  std::optional<base::Error> failed;
  bool closing = false, closing_damaged = false, pump_due = false;
  base::Instant last_block{};

  JournalPosition index_applied;  // as the index's meta row says
  Roots roots;
  bool checkpointing = false;
  std::function<void()> after_checkpoint;
  base::Instant last_checkpoint{}, last_second{}, last_readers{}, last_sweep{};
  JournalPosition checkpointed;  // `applied` of the newest root
  uint64_t image_segment = 0;    // the newest segment that has the tenures
  bool image_wanted = false;
  std::map<uint64_t, SegmentInfo> segments;
  bool learning = false;
  std::map<TenureId, model::Lsn> needed_from;
  Space space;
  IndexSpace index_space;
  // Snapshots of readers that do not move: (pid, transaction) → since when, and was it said.
  struct StaleReader {
    base::Instant since;
    bool told = false;
  };
  std::map<std::pair<int, uint64_t>, StaleReader> stale_readers;
  uint64_t reader_lag = 0;
  bool read_only = false, index_full = false, low_space = false;
  std::string read_only_reason;
  bool background_busy = false;
  uint64_t lost_places = 0, mended_blocks = 0;

  size_t quorum_logs = 0;  // of `live`
  uint64_t tail_held = 0;  // payload bytes
  uint64_t cut_blocks = 0;
  std::string series_swept_to;                // in the middle of a sweep: the next key
  std::shared_ptr<const void> series_owners;  // and what it found of the tenures when it began
  base::Instant last_series_sweep{};
  // A tenure with series is gone since the last sweep began, or may have gone in the life before.
  bool series_sweep_wanted = false;
  std::map<uint64_t, OpenSnapshot> snapshots;
  uint64_t last_snapshot = 0;
  bool learning_logs = false;
  uint64_t scan_start = 0;  // of the last recovery: what lies before is in no LogIndex until it is learned
  std::map<uint64_t, std::shared_ptr<File>> log_files;

  std::unique_ptr<Reader> turn;
  bool turn_open = false;
  std::deque<std::string> turn_values;
  RecordCache cache;
  size_t ingesting = 0;  // chunks on their way into the index, past the overlay: the cache is not asked meanwhile
  std::vector<std::shared_ptr<Reader>> pool;
  size_t reads_under_way = 0;  // on read threads, or on their way there
  std::deque<std::function<void()>> reads_waiting;
};

}  // namespace cantle::store

// Engine::Impl: the state behind engine.h. Private to lib/store.
//
// How a write goes: append() seals a block onto its log and queues it; the journal writes and syncs a group;
// on_durable() puts its records into the overlay and calls back; seal() hands the overlay's older half to an
// ApplyJob; finish_apply() lets go of it when the loop's readers see its last commit; checkpoint() writes a root.
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
#include <vector>

#include "lib/store/apply.h"
#include "lib/store/content.h"
#include "lib/store/divide.h"
#include "lib/store/engine.h"
#include "lib/store/journal.h"
#include "lib/store/overlay.h"
#include "lib/store/root.h"
#include "lib/store/rows.h"
#include "lib/store/scan.h"

namespace cantle::store {

constexpr uint64_t kBacklogOverlays = 16;  // journal that is not in the index: at most that many times the overlay

// A log of this server: a live tenure, or one whose last blocks are still on their way.
struct Log {
  TenureRow row;
  model::LogPoint end, durable;
  bool open = true;     // takes appends
  bool indexed = true;  // its row is in the index; a child's is not until the divide was applied
  TenureId id() const { return {row.partition, row.assignment}; }
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

struct Engine::Impl {
  Impl(EngineParts p, const EngineConfig& c, Identity id);
  ~Impl();

  // --- engine_open.cc
  base::Status open();
  base::Status open_index();
  base::Status load_rows();
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
  // `file`: the frame's segment.
  void take_durable(const Frame& frame, std::string_view payload, Log* log, const std::shared_ptr<File>& file);
  void begin_pending(const Frame& frame);  // once for each half
  // `place`: where large values may stay; null: they are copied.
  void put_records(Log& log, std::string_view payload, const PayloadPlace* place);
  bool crowded() const { return overlay.bytes() >= std::min(config.spill_from, config.overlay_bytes / 4); }
  uint64_t backlog() const;
  uint64_t backlog_max() const { return config.overlay_bytes * kBacklogOverlays; }
  void fail(const base::Error& error);
  // What was durable here cannot be read. A root says first how far the journal was durable: else the next start would
  // take its last block for one that was never finished, and cut it.
  void fail_damaged(const base::Error& error);
  Root next_root(const JournalPosition& head) const;
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
  std::optional<TenureId> aside_of(const TenureSpec& spec) const;
  void adopt(const TenureId& from, const TenureSpec& spec, Done done);
  base::Status retag(const TenureId& from, const model::AssignmentId& to, Done done);
  base::Status set_aside(const TenureId& id, Done done);
  base::Status drop(const TenureId& id, Done done);
  void change_state(const TenureId& id, RowState state, Done done);
  base::Result<model::LogPoint> divide(const model::PartitionId& parent, const model::AttemptId& attempt,
                                       std::string_view point, const ChildSpec& low, const ChildSpec& high, Done done);
  void divide_memory(const DivideNote& note);
  void divide_applied(const DivideNote& note);
  void ingest_now(const TenureId& id, std::shared_ptr<Chunk> chunk, Done done);
  Done unbusy(const model::PartitionId& partition, Done done);
  base::Status ingest(const TenureId& id, Chunk chunk, Done done);
  base::Status mark_whole(const TenureId& id, Done done);
  // --- engine_read.cc
  base::Result<Reader*> turn_reader();
  base::Result<const Log*> readable(const model::PartitionId& partition) const;
  base::Result<std::optional<Found>> found_in(const Entry& e);
  base::Result<std::optional<Found>> get(const model::PartitionId& partition, std::string_view key);
  base::Result<ScanEnd> scan(const model::PartitionId& partition, const ScanRange& range, const Each& each);
  base::Result<std::vector<uint32_t>> lacking(const model::PartitionId& partition, const std::vector<Offer>& offers);
  // A snapshot of now, for a read thread; back into the pool when let go.
  base::Result<std::shared_ptr<Reader>> pooled_reader();
  void give_back(std::shared_ptr<Reader> reader);
  Size size(const model::PartitionId& partition);

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
  RecoveryReport report;
  std::function<void(const base::Error&)> fatal_fn;
  std::function<void(bool, const std::string&)> read_only_fn;

  std::shared_ptr<Index> index;
  std::unique_ptr<Journal> journal;
  std::map<model::PartitionId, std::shared_ptr<Log>> live;
  std::map<TenureId, TenureRow> others;          // aside, trash, ended
  std::map<model::ExtentId, ExtentRow> extents;  // as of the last apply
  std::set<model::PartitionId> busy;             // a create, retag, … of it is under way

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
  base::Instant last_checkpoint{}, last_second{}, last_readers{};
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
  uint64_t lost_places = 0;

  std::unique_ptr<Reader> turn;
  bool turn_open = false;
  std::deque<std::string> turn_values;
  std::vector<std::shared_ptr<Reader>> pool;
};

}  // namespace cantle::store

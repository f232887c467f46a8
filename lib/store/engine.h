// Engine: the store of one partd: journal, overlay, index, and the partitions in them. The same code runs
// in the daemon and in the simulator; only Disk, IndexFactory, Executor and Clock differ.
//
// Use
//   TRY_ASSIGN(auto engine, Engine::open({disk, indexes, executor, clock, page.get()}, config, identity));
//   engine->report()                                     // what recovery found
//   engine->on_fatal([&](const Error& e) { exit… });     // a failed sync or write is final
//   TRY(engine->create(spec, [](Status s) { … }));       // durable when called back
//   TRY_ASSIGN(auto lsn, engine->append(partition, payload, [](Result<Lsn> durable) { … }));
//   TRY_ASSIGN(auto found, engine->get(partition, key)); // only what is durable is ever seen
//   engine->tick();                                      // every 50 to 200 ms
//   engine->shutdown([] { … });                          // drains, checkpoints, marks the root clean
//
// Push tables: committed means durable here; in overlay, index and ingest the newest version of a key wins, so
// records may come in any order and more than once.
//
// Quorum tables (create() with LogMode::quorum): the log is the same on every replica, and what is in it counts when
// it is committed. build() and take() append, commit() lets in what a majority has, truncate() cuts what nobody
// committed; the protocol above says when.
//   TRY_ASSIGN(auto header, engine->build(partition, {BlockKind::data, epoch, commit}, payload, done));  // leader
//   TRY_ASSIGN(auto point, engine->take(partition, header, payload, done));                             // follower
//   TRY(engine->commit(partition, lsn));
//   TRY(engine->seal(partition, promised, done)); TRY(engine->truncate(partition, keep, done));
//
// A record of theirs that says whose write it was (client, series) is in the client's series as soon as the record is
// visible, goes into the index with it, and is forgotten kSeriesExpiryMs of log time later.
//
// Invariants
//   * A done callback that says ok comes after the fdatasync that covers its block, and all blocks before it
//     in the journal, in the order of the appends (invariant 5 of design/README.md, R01).
//   * The index never holds what is not durable in the journal; the applied LSN never passes the durable one
//     (invariant 8).
//   * After a fatal error nothing is called back with ok any more, and nothing is written.
//   * LSNs of a partition are contiguous; its log on this server is chained; a child's begins behind its
//     parent's last block. A quorum table's parent ends at the cut, on every replica at the same block.
//   * A divide changes memory at once and the index in one transaction; it costs the same whatever the size (S45).
//   * Nothing of an extent that an owner has is freed; a new tenure always has a new extent.
//   * Of a quorum table only what is committed is ever read or in the index; what is not stays in the journal, and is
//     found again by every recovery, until it is committed or cut.
//   * A log is cut by truncate() alone, never below its commit LSN; a block that was cut is not confirmed any more, and
//     goes to the trash.
//
// Errors of append: not_found (no such live tenure), overloaded (the overlay or the queue is full; retry),
// read_only (no room on the disk), malformed and too_large (payload), faulted (after a fatal error).
//
// Ownership: owns none of its Parts; they must outlive it. Destroying it without shutdown() is a crash, and
// recovery copes with it; callbacks not yet made are never made.
// Threads: the loop thread only; callbacks are made on it, never from inside the call that takes them.
// Units: bytes; Durations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/block.h"
#include "lib/model/cut.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/quorum.h"
#include "lib/model/quorum_snapshot.h"
#include "lib/model/series.h"
#include "lib/model/version.h"
#include "lib/store/data_dir.h"
#include "lib/store/disk.h"
#include "lib/store/executor.h"
#include "lib/store/index.h"
#include "lib/store/live_page.h"
#include "lib/store/position.h"
#include "lib/store/tenure.h"

namespace cantle::store {

constexpr size_t kPinsMax = 8;
constexpr uint32_t kPinRetryMs = 200;

struct EngineConfig {
  uint64_t segment_bytes = uint64_t{64} << 20;  // of each journal segment; at least 16 KiB
  uint64_t overlay_bytes = uint64_t{64} << 20;  // both halves together
  // From that many bytes in the overlay on (a quarter of it at most), values of that size or more are left in the
  // journal: memory is not what bounds a stream, and the index need not keep up with it.
  uint64_t spill_from = uint64_t{16} << 20;
  uint32_t spill_value = 1024;
  base::Duration overlay_age = std::chrono::seconds(1);
  uint64_t group_bytes_max = uint64_t{8} << 20;   // of one sync group
  uint64_t queue_bytes_max = uint64_t{32} << 20;  // appended and not yet durable
  uint64_t slice_bytes = uint64_t{4} << 20;       // of one apply transaction
  uint32_t slice_records = 8192;
  base::Duration checkpoint_interval = std::chrono::seconds(5);
  base::Duration retention_time = std::chrono::hours(24);  // for those that have not confirmed
  uint64_t retention_bytes = 0;                            // 0: a tenth of the disk, 64 GiB at most
  uint64_t reserve_bytes = 0;  // 0: a twentieth of the disk, 256 MiB at most; below: read-only
  base::Duration trash_time = std::chrono::hours(24);
  uint32_t free_records = 2000;  // records freed in one background transaction
  // Payloads of quorum tables' blocks that are not committed yet, in memory; past it they are read again from the
  // journal when they commit.
  uint64_t tail_bytes = uint64_t{16} << 20;
};

constexpr size_t kSnapshotsMax = 4;                                 // of quorum tables' copies, open at once
constexpr base::Duration kSnapshotIdle = std::chrono::seconds(10);  // no part of it was asked for
constexpr base::Duration kSnapshotMost = std::chrono::hours(1);     // it is kept, asked for or not
constexpr base::Duration kSnapshotLog = std::chrono::seconds(60);   // the log behind it is kept longer than itself

struct EngineParts {
  Disk& disk;
  IndexFactory& indexes;
  Executor& executor;
  base::Clock& clock;
  LivePage* live = nullptr;  // told the durable end, if given; asked for that of the life before
};

struct TenureSpec {
  TenureId id;
  model::TableUuid table;
  model::Region region;
  model::Interval interval;
  LogMode mode = LogMode::push;
  // Of a quorum table's copy that a snapshot fills: where its log begins, and the epochs up to there.
  model::LogPoint log_start{};
  std::vector<model::EpochStart> epochs{};
  std::vector<model::CutMark> cuts{};
  // false, of a quorum table's: more was here than this server can tell. It is so until mark_whole().
  bool whole = true;
};

// A divide's child. `assignment` none: this server does not hold it; its part stays with the ended parent's
// tenure (state aside) until that is dropped.
struct ChildSpec {
  model::PartitionId partition;
  model::Region region;
  model::AssignmentId assignment;
};

// Two neighbours, low and high, that become one.
struct MergeSpec {
  model::PartitionId low;
  model::LogPoint low_cut;
  model::PartitionId high;
  model::LogPoint high_cut;
  model::AttemptId attempt;
  ChildSpec target;
};

struct DamagedPlace {
  JournalPosition from;  // the first bad frame
  JournalPosition to;    // the next good one
  std::string what;
};

struct RecoveryReport {
  bool clean = false;          // the root said so
  bool first = false;          // an empty directory
  bool index_rebuilt = false;  // the index was damaged, foreign or gone; tenures that are not `whole` need their peers
  std::string index_reason;
  uint64_t frames = 0, records = 0, bytes = 0;  // replayed
  uint64_t torn_bytes = 0;                      // cut from the tail, zeroed and synced
  std::vector<DamagedPlace> damaged;
  // Of a damaged end of the journal, which is neither in the trash, for want of room, nor written over: the journal
  // goes on behind it.
  uint64_t left_bytes = 0;
  base::Duration took{};
};

struct EngineStatus {
  bool read_only = false;
  std::string read_only_reason;
  bool faulted = false;
  JournalPosition head;  // the first byte not durable
  uint64_t oldest_segment = 0, segments = 0, journal_bytes = 0;
  uint64_t overlay_bytes = 0, overlay_records = 0, queue_bytes = 0;
  uint64_t cache_bytes = 0, cache_records = 0, cache_hits = 0, cache_misses = 0;  // of records read before
  uint64_t backlog_bytes = 0;  // of the journal, not in the index yet
  uint64_t appended_blocks = 0, appended_bytes = 0, syncs = 0, applied_records = 0;
  uint64_t freeing_extents = 0, trash_tenures = 0;
  uint64_t lost_places = 0;    // damaged blocks that were marked lost
  uint64_t mended_blocks = 0;  // of quorum tables, that came from another replica
  uint64_t tail_bytes = 0;     // of quorum tables: payloads in memory that are not committed
  uint64_t cut_blocks = 0;     // that were cut from quorum tables' logs, and lie in the trash
  Space disk;
  IndexSpace index;
  size_t snapshots = 0;     // of quorum tables' copies that are open for others
  uint64_t reader_lag = 0;  // transactions that the oldest snapshot of any reader is behind
};

// A block for the leader to build. Of a kind other than data: it takes one LSN, and the payload says what it is.
struct BuildSpec {
  model::BlockKind kind = model::BlockKind::data;
  model::Epoch epoch;
  model::Lsn commit;  // known now
};

// Where the log of a quorum table stands.
struct QuorumLog {
  model::LogPoint end, durable;  // appended; on the disk
  model::Lsn commit;             // the highest that is known, at most `end`
  model::Lsn visible;            // reads see it up to here; behind `commit` while the overlay is full
  uint64_t log_time_ms = 0;      // the sum of elapsed_ms of the blocks up to `visible`
  model::Epoch promised;         // by the newest seal, be it on its way to the disk
  model::Epoch highest;          // of any block or seal that was ever in it
  std::vector<model::EpochStart> epochs;
  std::vector<model::CutMark> cuts;  // model::CutTable: whether it ends in a cut
  // False: a block above what is applied cannot be read, or may be missing. `end` is where the chain goes on behind it.
  bool whole = true;
  bool hole = false;  // such a block is known, or something is missing: no more is committed here
  // False: what was promised, or where the log ended, may be among what cannot be read (R16).
  bool known = true;
};

class Engine {
 public:
  static base::Result<std::unique_ptr<Engine>> open(EngineParts parts, const EngineConfig& config,
                                                    const Identity& identity);
  ~Engine();

  const RecoveryReport& report() const;
  EngineStatus status() const;
  void on_fatal(std::function<void(const base::Error&)> fn);
  // Called on the loop each time the server turns read-only or back.
  void on_read_only(std::function<void(bool read_only, const std::string& reason)> fn);
  // Time passed: age of the overlay, checkpoints, space, retention, trash, freeing, scanning of unknown hashes.
  void tick();
  // Applies everything, writes a clean root, calls back. Appends are refused from here on.
  void shutdown(std::function<void(base::Status)> done);

  // --- tenures ------------------------------------------------------------------------------------
  std::vector<Tenure> tenures() const;                                    // trash not among them
  std::optional<Tenure> find(const model::PartitionId& partition) const;  // the live one
  std::optional<Tenure> find(const TenureId& id) const;                   // any state but trash
  using Done = std::function<void(base::Status)>;
  // exists: this very tenure is there. A live tenure of the same partition under another assignment is set
  // aside. One that is aside goes on under the new assignment, with its data and its log: it is not to be told from the
  // new one in the journal. Appends are taken once it has been called back.
  base::Status create(const TenureSpec& spec, Done done);
  // Another assignment id for the same copy.
  base::Status retag(const TenureId& from, const model::AssignmentId& to, Done done);
  // Sets a live tenure aside: no more appends or answers; its data stays until drop().
  // Not `whole`: something may have been here that is not (Tenure::whole); it says so from then on.
  base::Status set_aside(const TenureId& id, bool whole, Done done);
  // After proof: to the trash, and from there, after the trash time, freed in the background.
  base::Status drop(const TenureId& id, Done done);
  // Out of the trash again, as aside.  not_found: freed already.
  base::Status restore(const TenureId& id, Done done);
  // Ends `parent` at its last appended LSN; returns that point. Children take appends at once. Idempotent for one
  // attempt; conflict where the parent was divided by another.
  base::Result<model::LogPoint> divide(const model::PartitionId& parent, const model::AttemptId& attempt,
                                       std::string_view point, const ChildSpec& low, const ChildSpec& high, Done done);
  // A quorum table's: ends `parent` at the cut, which is committed, and which its log has. What stands behind it is the
  // parent's no more: what was not committed goes to the trash, and of what was there is nothing but epoch starts.
  // The children's logs begin at cut.lsn + 1 and chain to it; their epochs are the parent's up to there, nothing is
  // promised in them, log time goes on, and the parent's series are theirs, too. Idempotent for one attempt.
  // not_found: no such copy, or its log has no such block and never had, or is known no more; unavailable
  // (retry_after_ms): what comes before the cut is not all visible yet, or what stands behind it is on its way to the
  // trash: ask again; corrupt: the log is damaged, and may have had the cut; faulted: more than epoch starts is
  // committed behind the cut; conflict: it was divided by another attempt, or elsewhere; exists: a child is here
  // already.
  base::Result<model::LogPoint> divide_at(const model::PartitionId& parent, const model::LogPoint& cut,
                                          const model::AttemptId& attempt, std::string_view point, const ChildSpec& low,
                                          const ChildSpec& high, Done done);
  // Two neighbours of a quorum table become one at once; each ends at its cut, as a parent that is divided does. No
  // record moves: the target has the extents of both. Its log begins behind model::merged_point(), which is returned;
  // nothing is promised in it; its log time is the larger one, and it goes on from the series of both. Errors as of
  // divide_at(); invalid: they are no neighbours of one table.
  base::Result<model::LogPoint> merge_at(const MergeSpec& spec, Done done);
  // A push table's: each log ends at its last appended LSN.
  base::Result<model::LogPoint> merge_ends(const model::PartitionId& low, const model::PartitionId& high,
                                           const model::AttemptId& attempt, const ChildSpec& target, Done done);
  // Every replica was compared with, both ways: what was damaged here is marked lost and passed over.
  base::Status mark_whole(const TenureId& id, Done done);

  // --- writing ------------------------------------------------------------------------------------
  // LSN of the last record. After a fatal error no callback is made any more: the outcome is not known.
  using Appended = std::function<void(base::Result<model::Lsn>)>;
  // One block of records (wire/block.h), 1 record to kBlockMax bytes; keys in the tenure's interval. Returns the LSN of
  // the last record.
  base::Result<model::Lsn> append(const model::PartitionId& partition, std::string payload, Appended done);
  // Would an append be taken now? The error it would get.
  base::Status can_append(const model::PartitionId& partition) const;
  // Would a block of this size be taken, and leave room for the writes of clients? For those who can wait.
  bool has_room(uint64_t payload_bytes) const;
  struct Chunk {
    uint64_t snapshot = 0;
    std::string records;      // in key order
    std::string through_key;  // everything up to here is in this chunk or an earlier one
    bool last = false;
  };
  // A snapshot's chunk straight into the extent, past the journal; durable when called back. A chunk of another
  // snapshot number begins anew; one at or before `fill.to` is only confirmed. A snapshot does not bring series yet:
  // see series().
  base::Status ingest(const TenureId& id, Chunk chunk, Done done);

  // --- quorum tables ------------------------------------------------------------------------------
  // The block's last point. cancelled: it was cut meanwhile.
  using Taken = std::function<void(base::Result<model::LogPoint>)>;
  // The next block of the log, by its leader: region, LSNs, chain, times and checksums are filled in. The versions of
  // records are quorum_version() of their LSNs (wire::stamp_records). Errors as of append().
  base::Result<model::BlockHeader> build(const model::PartitionId& partition, const BuildSpec& spec,
                                         std::string payload, Taken done);
  // The next block as its leader built it, byte for byte. One that is here already is confirmed again. malformed;
  // catching_up: it does not follow, something is missing; diverged: another block has its place here, or comes before
  // it; unavailable: older than what can be compared.
  base::Result<model::LogPoint> take(const model::PartitionId& partition, const model::BlockHeader& header,
                                     std::string payload, Taken done, Sync sync = Sync::now);
  // A majority has it up to there: a point of this very log. What is durable of it is read from now on, the rest as
  // soon as it is; what lies behind the end is not remembered. A block's own commit LSN counts like this too.
  base::Status commit(const model::PartitionId& partition, model::Lsn lsn);
  // A promise only grows: a lower one is fine, and changes nothing.
  base::Status seal(const model::PartitionId& partition, model::Epoch promised, Done done);
  // Cuts behind `keep`, the end of a block in the log, at once; durable when called back, and before anything later is.
  // not_found: no such block; faulted: it is committed.
  base::Status truncate(const model::PartitionId& partition, const model::LogPoint& keep, Done done);
  std::optional<QuorumLog> quorum_log(const model::PartitionId& partition) const;
  // Its `visible` alone, for every read; zero: no such copy.
  model::Lsn visible(const model::PartitionId& partition) const;
  uint64_t log_time_ms(const model::PartitionId& partition) const;  // through what is visible
  // What is visible here of that client's series. Not `whole` in a copy that a snapshot filled, until what it did not
  // bring has expired.
  base::Result<model::ClientSeries> series(const model::PartitionId& partition, uint64_t client);
  // Durable blocks from the one that holds `from` on, about bytes_max of payload, at least one; none: it is behind the
  // end. not_found: older than what is retained; unavailable: that is being looked up, ask again; corrupt: damaged.
  base::Result<std::vector<model::Block>> read_log(const model::PartitionId& partition, model::Lsn from,
                                                   size_t bytes_max);
  // The same on a thread for reading, which gives each of them to `see` there: its header, and the bytes of header and
  // payload as they stand in the journal, checked. Then done(), on the loop, never in this call: ok also if there was
  // none; an error if the first could not be read. unavailable: ask again.
  using SeeBlock = std::function<void(const model::BlockHeader& header, std::string_view bytes)>;
  void stream_log(const model::PartitionId& partition, model::Lsn from, size_t bytes_max, SeeBlock see, Done done);
  // What is missing next in the log, of what another replica may have (R16). Nothing: nothing is, or no more than a
  // snapshot can help.
  std::optional<model::LogGap> gap(const model::PartitionId& partition) const;
  // Fills it with all its blocks, which are written behind all else: what is committed of them becomes visible. Until
  // done() they are missing, and then never again: who confirms what follows them confirms them. They stay in memory
  // until they are applied. conflict: another thing, or nothing, is missing; malformed, diverged: these are not they;
  // unavailable: no room for them now.
  base::Status mend(const model::PartitionId& partition, const model::LogGap& gap, std::vector<model::Block> blocks,
                    Done done);
  // The blocks of such a gap of another replica's, as they are in this log. not_found: they are not; too_large: more
  // than kGapBytesMax; corrupt, unavailable: as read_log().
  base::Result<std::vector<model::Block>> read_gap(const model::PartitionId& partition, const model::LogGap& gap);
  // Durable blocks behind the one that ends at `after`, about bytes_max of payload, for one whose log ends there.
  // not_found: none ends there, or the log is not kept so far back; corrupt, unavailable: as read_log().
  struct Behind {
    model::LogPoint end, after;  // of the durable log; of that block
    std::vector<model::Block> blocks;
  };
  base::Result<Behind> read_behind(const model::PartitionId& partition, model::Lsn after, size_t bytes_max);
  // Of the block that ends there. Nothing: none does, or it cannot be told (read_log() says which).
  std::optional<model::LogPoint> point_at(const model::PartitionId& partition, model::Lsn lsn);

  // --- snapshots of quorum tables' copies -----------------------------------------------------------
  // The part behind that place, of about so many bytes, on a read thread. place.snapshot 0: a new one is opened, as the
  // index is now. It is kept while parts are asked for (kSnapshotIdle, kSnapshotMost), and so is the log behind it a
  // while longer (kSnapshotLog), so that whoever has it can go on. not_found: no such copy, or the snapshot is not kept
  // any more: begin anew; overloaded: as many as may be are open, or the last part is not read yet; corrupt: not whole.
  void read_snapshot(const model::PartitionId& partition, const model::SnapshotPlace& place, uint32_t bytes,
                     std::function<void(base::Result<model::QuorumSnapshotPart>)> done);
  // Puts a part into the new copy that is made beside the old one; durable when called back. Another snapshot's begins
  // anew; one that is there already is only confirmed. invalid: it does not follow what is there.
  base::Status refill(const model::PartitionId& partition, model::QuorumSnapshotPart part, Done done);
  // How far that is; all of it is there, or some, or nothing.
  model::SnapshotPlace refilled(const model::PartitionId& partition) const;
  // The new copy, which is complete, takes the old one's place in one transaction: the log begins behind the
  // snapshot's point; what was promised stays promised. Of the old log, what was not committed goes to the trash. A
  // copy that was not `whole` is not so yet (mark_whole()): it may have confirmed more than this. invalid: it is not
  // complete; conflict: the own log goes further than the snapshot, so that it must not be given up (a later epoch, or
  // more of the same); unavailable (retry_after_ms).
  base::Status install(const model::PartitionId& partition, Done done);

  // --- reading ------------------------------------------------------------------------------------
  // Views are valid until the loop's next turn. All reads of one turn see one snapshot of the index. `partition` is a
  // live tenure's.
  base::Result<std::optional<Found>> get(const model::PartitionId& partition, std::string_view key);
  using Each = std::function<bool(std::string_view key, const Found& found)>;
  base::Result<ScanEnd> scan(const model::PartitionId& partition, const ScanRange& range, const Each& each);
  // The same on a read thread, for when the index is not resident; the overlay's part is taken now.
  struct Fetched {
    bool deleted = false;
    model::Version version;
    std::string value;
    uint8_t flags = 0;
  };
  void get_async(const model::PartitionId& partition, std::string_view key,
                 std::function<void(base::Result<std::optional<Fetched>>)> done);
  struct ScanRow {
    std::string key;
    Fetched record;
  };
  struct ScanRows {
    std::vector<ScanRow> rows;
    ScanEnd end;
  };
  void scan_async(const model::PartitionId& partition, const ScanRange& range,
                  std::function<void(base::Result<ScanRows>)> done);
  // A state of one partition that stays as it is while others write: for a scan of many pages that sees one state. It
  // keeps a snapshot of the index, so that the file grows meanwhile, and what the overlay held besides, until its last
  // copy goes: whoever holds one bounds that time. overloaded: there are kPinsMax already.
  class Pin {
   public:
    model::Lsn at() const;  // everything up to here in the log is in it, nothing later
    const model::Interval& interval() const;

   private:
    friend class Engine;
    struct State;
    explicit Pin(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };
  void pin(const model::PartitionId& partition, std::function<void(base::Result<Pin>)> done);
  // A page of it; one at a time, conflict otherwise.
  void scan_async(const Pin& pin, const ScanRange& range, std::function<void(base::Result<ScanRows>)> done);
  // Which of the entries this tenure does not hold at that version or a newer one, durable. Indexes, ascending.
  struct Offer {
    std::string_view key;
    model::Version version;
  };
  base::Result<std::vector<uint32_t>> lacking(const model::PartitionId& partition, const std::vector<Offer>& offers);
  // Hash and counts of exactly the log up to the returned point; drains the overlay first, and scans what is not known
  // yet.
  struct HashAt {
    ContentHash hash;
    model::LogPoint at;
  };
  void hash(const model::PartitionId& partition, std::function<void(base::Result<HashAt>)> done);
  // Keys that cut the partition into n parts of about equal bytes: n - 1 of them, or fewer. From the index, on a read
  // thread.
  void sample(const model::PartitionId& partition, uint32_t n,
              std::function<void(base::Result<std::vector<std::string>>)> done);
  // Payload bytes and records, as of the last apply; `exact` false while a child's own are being counted.
  struct Size {
    uint64_t bytes = 0, records = 0;
    bool exact = true;
  };
  Size size(const model::PartitionId& partition) const;

  // --- positions ----------------------------------------------------------------------------------
  std::optional<model::LogPoint> log_end(const model::PartitionId& partition) const;  // appended
  std::optional<model::LogPoint> durable(const model::PartitionId& partition) const;
  std::optional<model::LogPoint> applied(const model::PartitionId& partition) const;
  // The highest version in the log or the root: never stamp at or below it.
  model::Version highest_version() const;
  // The lowest LSN of a tenure's log that some target has not confirmed; its segments stay within the retention
  // bounds. Max: nothing is needed. What was never set is needed from the log's start.
  void set_needed(const TenureId& id, model::Lsn from);
  // Applies all that is durable now, then calls back. Tests, snapshots, `hash`.
  void drain(Done done);
  // The index, for snapshots and samples within this process. Readers only.
  Index& index();

  struct Impl;  // engine_impl.h

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cantle::store

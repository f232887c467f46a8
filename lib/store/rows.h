// Rows: what the index's `partitions`, `series`, `extents` and `meta` databases hold (man page cantle-index.5). Each
// row is a CRC-32C (big-endian) and then a MessagePack map, because LMDB has no checksums of its own.
//
// Threads: any; no state.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/bytes.h"
#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/cut.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/quorum.h"
#include "lib/model/quorum_snapshot.h"
#include "lib/model/series.h"
#include "lib/store/data_dir.h"
#include "lib/store/index.h"
#include "lib/store/position.h"
#include "lib/store/tenure.h"

namespace cantle::store {

// Where a part of a tenure's keys lies.
struct Part {
  model::ExtentId extent;
  model::Interval interval;
  CANTLE_FIELDS(extent, interval)
  friend bool operator==(const Part&, const Part&) = default;
};

// A tenure's row also says what Tenure does not tell: where its records are.
enum class RowState : uint8_t {
  live = 1,
  aside = 2,
  trash = 3,
  ended = 4
};  // ended: a divided parent of which nothing is left here

// Where a divided or merged copy's series go on from: the rows of the tenure that it was, which were not copied.
struct SeriesOrigin {
  model::PartitionId partition;
  model::ExtentId extent;
  uint64_t until_ms = 0;  // log time at which the last of them has expired
  uint64_t shift_ms = 0;  // added to the times in them: a merged copy's log time is that of the log that was ahead
  CANTLE_FIELDS(partition, extent, until_ms, shift_ms)
  friend bool operator==(const SeriesOrigin&, const SeriesOrigin&) = default;
};

// What the row of a quorum table's tenure says besides: all that recovery must know of its log and that may stand in a
// segment that is retired, or before the place that the index has reached.
struct QuorumRow {
  model::Epoch promised, highest;
  model::Lsn commit;
  std::vector<model::EpochStart> epochs;
  std::vector<model::CutMark> cuts;
  uint64_t begins = 0;  // journal sequence: what stands before is of an older tenure
  // The first block that recovery must read; sequence 0: none before the index's applied position.
  uint64_t from_segment = 0, from_offset = 0, from_sequence = 0;
  // The same for blocks that were cut and are not in the trash yet.
  uint64_t cut_segment = 0, cut_offset = 0, cut_sequence = 0;
  uint64_t log_time_ms = 0;  // through the tenure's `applied`
  std::vector<SeriesOrigin> origins;
  bool series_whole = false;    // of a hollow one: the snapshot brought the series, too
  uint64_t series_from_ms = 0;  // if not: log time from which on they are here
  bool lacking = false;         // records of its log are not here, and the log no more: a snapshot has to bring them
  CANTLE_FIELDS(promised, highest, commit, epochs, cuts, begins, from_segment, from_offset, from_sequence, cut_segment,
                cut_offset, cut_sequence, log_time_ms, origins, series_whole, series_from_ms, lacking)
  JournalPosition from() const { return {from_segment, from_offset, from_sequence}; }
  JournalPosition cut() const { return {cut_segment, cut_offset, cut_sequence}; }
  void set_from(const JournalPosition& at) {
    from_segment = at.segment;
    from_offset = at.offset;
    from_sequence = at.sequence;
  }
  void set_cut(const JournalPosition& at) {
    cut_segment = at.segment;
    cut_offset = at.offset;
    cut_sequence = at.sequence;
  }
  friend bool operator==(const QuorumRow&, const QuorumRow&) = default;
};

// A new copy of a quorum table's tenure, which a snapshot fills while the old one stays.
struct RefillRow {
  model::ExtentId extent;
  model::SnapshotPlace place;
  model::LogPoint at;  // where the log goes on
  std::vector<model::EpochStart> epochs;
  std::vector<model::CutMark> cuts;
  uint64_t log_time_ms = 0;
  CANTLE_FIELDS(extent, place, at, epochs, cuts, log_time_ms)
  friend bool operator==(const RefillRow&, const RefillRow&) = default;
};

struct TenureRow {
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::TableUuid table;
  model::Region region;
  RowState state = RowState::live;
  model::Interval interval;
  model::Epoch born;
  model::LogPoint log_start, applied;
  std::vector<Part> parts;
  std::vector<model::PartitionId> children;  // of a divided parent
  model::AttemptId attempt;                  // that divided it
  uint64_t fill_snapshot = 0;
  std::string fill_to;
  bool fill_all = false;
  bool hollow = false;  // a snapshot was filled into it, so that its log does not have all of it
  bool whole = true;
  uint64_t healed = 0;  // damaged places with a lower journal sequence are known and were compared
  uint64_t trash_until_ms = 0;
  std::optional<QuorumRow> quorum;  // of a push table's: nothing
  std::optional<RefillRow> refill;
  CANTLE_FIELDS(partition, assignment, table, region, state, interval, born, log_start, applied, parts, children,
                attempt, fill_snapshot, fill_to, fill_all, hollow, whole, healed, trash_until_ms, quorum, refill)
  friend bool operator==(const TenureRow&, const TenureRow&) = default;
};
Tenure tenure_of(const TenureRow& row);

// Counts over the records of a piece, kept by each transaction that changes it. After a divide nothing is counted
// yet: then only keys at or below `counted_to` are in the sums, until a background scan has reached the end.
struct Counts {
  base::Hash128 records, tombstones;
  uint64_t record_count = 0, tombstone_count = 0, bytes = 0;
  bool all = true;
  std::string counted_to;
  CANTLE_FIELDS(records, tombstones, record_count, tombstone_count, bytes, all, counted_to)
  bool covers(std::string_view key) const { return all || key <= counted_to; }
  friend bool operator==(const Counts&, const Counts&) = default;
};

// One interval of an extent and who owns it.
struct Piece {
  model::Interval interval;
  model::PartitionId partition;  // owner; none: being freed
  model::AssignmentId assignment;
  std::string freed_to;  // everything of it below this key is gone
  Counts counts;
  CANTLE_FIELDS(interval, partition, assignment, freed_to, counts)
  bool freeing() const { return partition.none(); }
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct ExtentRow {
  std::vector<Piece> pieces;  // in key order
  CANTLE_FIELDS(pieces)
  Piece* find(std::string_view key);
};

// Whose index it is and how far it has come.
struct MetaRow {
  std::string server;
  model::ClusterUuid cluster;
  model::Incarnation incarnation;  // that wrote it last
  JournalPosition applied;         // everything before this place is in the index
  uint32_t next_extent = 1;
  model::Version highest;
  bool rebuilding = false;  // begun after the last index was lost, and not complete: never trusted as it is
};

std::string encode_row(const TenureRow& row);
std::string encode_row(const ExtentRow& row);
std::string encode_row(const MetaRow& row);
base::Result<TenureRow> decode_tenure_row(std::string_view bytes);
base::Result<ExtentRow> decode_extent_row(std::string_view bytes);
base::Result<MetaRow> decode_meta_row(std::string_view bytes);

// A client's window, under the partition's id, the number of the tenure's first extent (so that nothing of an older
// tenure shows through, and a tenure that is known by another assignment keeps its own), and the client's id.
struct SeriesKey {
  model::PartitionId partition;
  model::ExtentId extent;
  uint64_t client = 0;
  auto operator<=>(const SeriesKey&) const = default;
};
SeriesKey series_key(const TenureRow& row, uint64_t client);
std::string encode_key(const SeriesKey& key);  // keeps the order
base::Result<SeriesKey> decode_series_key(std::string_view bytes);
std::string encode_row(const model::SeriesWindow& row);
base::Result<model::SeriesWindow> decode_series_row(std::string_view bytes);
base::Result<model::SeriesWindow> read_series(Source& source, const SeriesKey& key);  // empty if there is none
// The same, in the log time of the copy that goes on from it.
base::Result<model::SeriesWindow> read_series(Source& source, const SeriesOrigin& origin, uint64_t client);
base::Status write_series(WriteTxn& txn, const SeriesKey& key, const model::SeriesWindow& row);

std::string tenure_key(const TenureId& id);
std::string extent_key(model::ExtentId extent);

base::Result<std::vector<TenureRow>> read_tenures(Source& source);
base::Result<std::optional<TenureRow>> read_tenure(Source& source, const TenureId& id);
// The live row of a partition, if there is one.
base::Result<std::optional<TenureRow>> read_live(Source& source, const model::PartitionId& partition);
base::Status write_tenure(WriteTxn& txn, const TenureRow& row);
base::Result<ExtentRow> read_extent(Source& source, model::ExtentId extent);             // empty if there is none
base::Status write_extent(WriteTxn& txn, model::ExtentId extent, const ExtentRow& row);  // removes an empty one
// What the copy has in its parts is nobody's from now on; `changed` gets the extents as they are then.
base::Status leave_parts(WriteTxn& txn, const TenureRow& row, std::map<model::ExtentId, ExtentRow>& changed);
base::Result<std::vector<std::pair<model::ExtentId, ExtentRow>>> read_extents(Source& source);
base::Result<std::optional<MetaRow>> read_meta(Source& source);
base::Status write_meta(WriteTxn& txn, const MetaRow& row);

// Takes their owners from all its pieces, so that it is freed in the background.
base::Status free_extent(WriteTxn& txn, model::ExtentId extent);

// Cuts the piece that holds `point` in two at `point`, so that it becomes a boundary. Counts of both are then unknown.
void cut_piece(ExtentRow& row, std::string_view point);
// Neighbours of one owner become one piece. Its counts are known if both's were.
void join_pieces(ExtentRow& row, const TenureId& owner);

}  // namespace cantle::store

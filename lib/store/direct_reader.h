// DirectReader: the index of a data directory read by another process of the host: no server round trip,
// as of the last apply. Also the source of snapshots and digests for replpush, splitter and `partc --direct`.
//
// Use
//   TRY_ASSIGN(auto reader, DirectReader::open("/var/lib/cantle/p1"));
//   TRY(reader->refresh());                          // a new snapshot; once per turn of a loop
//   TRY_ASSIGN(auto found, reader->get(tenure, key));
//   SnapshotReader snapshot(*reader, id, interval, "");      // resumes behind a key
//   TRY_ASSIGN(auto chunk, snapshot.next(1 << 20));
//
// Invariants
//   * Views are valid until the next refresh() or release().
//   * The environment is opened once per process, whoever asks (LMDB's rule). An index that was replaced
//     by a rebuilt one is noticed by refresh() and opened anew; until that one is complete refresh() fails with
//     unavailable.
//   * No snapshot of LMDB is held longer than kReaderAgeMax if refresh() or release() is called so often;
//     SnapshotReader holds one only during next().
//
// Threads: one at a time; each thread its own DirectReader.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/store/index.h"
#include "lib/store/tenure.h"

namespace cantle::store {

class DirectReader {
 public:
  static base::Result<std::unique_ptr<DirectReader>> open(const std::string& data_dir,
                                                          const std::string& index_dir = "");
  // Over an index of the caller's (simulator, partd itself). Ownership: does not own it.
  explicit DirectReader(Index& index);
  ~DirectReader();

  base::Status refresh();
  void release();  // lets go of the snapshot until the next refresh()

  // The tenures as of the snapshot, trash not among them.
  base::Result<std::vector<Tenure>> tenures();
  base::Result<std::optional<Tenure>> find(const TenureId& id);
  // The live tenure of a table that holds the key.
  base::Result<std::optional<Tenure>> find(const model::TableUuid& table, std::string_view key);

  base::Result<std::optional<Found>> get(const TenureId& id, std::string_view key);
  // `each` gets key and record in order; false stops (ScanEnd::more is then true).
  using Each = std::function<bool(std::string_view key, const Found& found)>;
  base::Result<ScanEnd> scan(const TenureId& id, const ScanRange& range, const Each& each);
  // n - 1 keys that cut the tenure into n parts of about equal bytes; fewer where it is too small. Never its first key.
  base::Result<std::vector<std::string>> sample(const TenureId& id, uint32_t n);

 private:
  friend class SnapshotReader;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SnapshotChunk {
  std::string records;  // a block payload, tombstones included, in key order
  uint32_t count = 0;
  std::string through_key;  // the last key; all up to it inclusive has been given
  bool last = false;
};

// A copy of one tenure in chunks of short read transactions. Begun at LSN s0 = start(): applying the log
// behind s0 over the copied records gives the partition's state (newest version wins).
class SnapshotReader {
 public:
  // `after`: resume behind this key ("" = from the start).
  SnapshotReader(DirectReader& reader, TenureId id, model::Interval interval, std::string after);
  // Where the index stood when the first chunk was read; nothing before that.
  const std::optional<model::LogPoint>& start() const { return start_; }
  base::Result<SnapshotChunk> next(size_t bytes_max);

 private:
  DirectReader& reader_;
  TenureId id_;
  model::Interval interval_;
  std::string after_;
  bool done_ = false;
  std::optional<model::LogPoint> start_;
};

}  // namespace cantle::store

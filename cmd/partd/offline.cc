#include "cmd/partd/offline.h"

#include <unistd.h>

#include <iostream>

#include "lib/base/bytes.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/store/direct_reader.h"
#include "lib/store/engine.h"
#include "lib/store/lmdb_index.h"
#include "lib/wire/block.h"
#include "lib/wire/snapshot_file.h"

namespace cantle::partd {

using base::Code;

namespace {

constexpr size_t kDigitsMin = 4;
constexpr uint32_t kPageRecords = 10000;
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kStdinBytes = size_t{64} << 10;
constexpr base::Duration kRestoreLimit = std::chrono::minutes(60);
constexpr base::Duration kTickEvery = std::chrono::milliseconds(50);
constexpr base::Duration kKeepAll = std::chrono::hours(24 * 365 * 100);

bool named(const Offline& what, const store::TenureId& id) {
  return to_string(id.partition).rfind(what.partition, 0) == 0;
}

base::Status check_digits(const Offline& what) {
  if (!what.partition.empty() && what.partition.size() < kDigitsMin)
    return base::fail(Code::usage, "--partition needs at least four digits");
  return base::ok();
}

base::Result<store::Tenure> only(const Offline& what, const std::vector<store::Tenure>& tenures) {
  TRY(check_digits(what));
  const store::Tenure* found = nullptr;
  for (const auto& t : tenures) {
    if (!named(what, t.id) || t.state != store::TenureState::live) continue;
    if (found != nullptr) return base::fail(Code::usage, "more than one partition begins with " + what.partition);
    found = &t;
  }
  if (found == nullptr) return base::fail(Code::not_found, "no partition here begins with " + what.partition);
  return *found;
}

// All records of a copy, a page at a time, each in a snapshot of its own.
base::Status walk(store::DirectReader& reader, const store::TenureId& id,
                  const std::function<void(std::string_view, const store::Found&)>& each) {
  store::ScanRange range;
  range.tombstones = true;
  range.records_max = kPageRecords;
  for (bool more = true; more;) {
    TRY(reader.refresh());
    TRY_ASSIGN(const auto end, reader.scan(id, range, [&](std::string_view key, const store::Found& found) {
      each(key, found);
      return true;
    }));
    more = end.more;
    range.from = end.resume;
  }
  return base::ok();
}

}  // namespace

base::Result<store::ContentHash> content_of(store::DirectReader& reader, const store::TenureId& id) {
  store::ContentHash sum;
  TRY(walk(reader, id, [&](std::string_view key, const store::Found& found) {
    model::RecordView r;
    r.op = found.deleted ? model::Op::del : model::Op::put;
    r.key = key;
    r.value = found.value;
    r.version = found.version;
    r.flags = found.flags;
    (found.deleted ? sum.tombstones : sum.records) += store::record_hash(r);
    (found.deleted ? sum.tombstone_count : sum.record_count)++;
    if (!found.deleted) sum.bytes += key.size() + found.value.size();
  }));
  return sum;
}

base::Result<int> hash(const Offline& what) {
  TRY(check_digits(what));
  TRY_ASSIGN(auto reader, store::DirectReader::open(what.data_dir, what.index_dir));
  TRY(reader->refresh());
  TRY_ASSIGN(const auto tenures, reader->tenures());
  daemon::Printer out(what.format, {"partition", "assignment", "state", "interval", "records", "tombstones", "bytes",
                                    "hash", "applied"});
  for (const auto& t : tenures) {
    if (!named(what, t.id)) continue;
    TRY_ASSIGN(const auto sum, content_of(*reader, t.id));
    auto both = sum.records;
    both += sum.tombstones;
    out.row({to_string(t.id.partition), to_string(t.id.assignment),
             t.state == store::TenureState::live ? "live" : "aside", to_string(t.interval), sum.record_count,
             sum.tombstone_count, sum.bytes, base::to_hex(both), t.applied.lsn.value});
  }
  return 0;
}

// --- snapshot, restore --------------------------------------------------------------------------------------

namespace {

base::Status write_out(std::string& bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto n = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::fail(base::errno_error("stdout", errno));
    rest.remove_prefix(static_cast<size_t>(n));
  }
  bytes.clear();
  return base::ok();
}

}  // namespace

base::Result<int> snapshot(const Offline& what) {
  if (::isatty(STDOUT_FILENO) != 0)
    return base::fail(Code::usage, "stdout is a terminal: send the snapshot to a file or a pipe");
  TRY_ASSIGN(const auto after, base::unescape(what.after));
  store::RealDisk disk(what.data_dir);
  TRY_ASSIGN(const auto identity, store::DataDir::read(disk));
  TRY_ASSIGN(auto reader, store::DirectReader::open(what.data_dir, what.index_dir));
  TRY(reader->refresh());
  TRY_ASSIGN(const auto tenures, reader->tenures());
  TRY_ASSIGN(const auto tenure, only(what, tenures));
  store::SnapshotReader source(*reader, tenure.id, tenure.interval, after);
  std::string out;
  wire::append_snapshot_head(out, {tenure.table, tenure.id.partition, tenure.id.assignment, identity.server,
                                   tenure.interval, tenure.applied, after});
  for (bool last = false; !last;) {
    TRY_ASSIGN(auto chunk, source.next(kChunkBytes));
    last = chunk.last;
    wire::append_snapshot_part(out, {std::move(chunk.records), chunk.count, std::move(chunk.through_key), last});
    TRY(write_out(out));
  }
  return 0;
}

namespace {

// The records of a snapshot, put into the log of the copy here as if they were written again with the versions they
// have: what is newer here stays, and replpush brings the others what they lack.
class Restoring {
 public:
  Restoring(io::Loop& loop, store::Engine& engine, store::Tenure tenure)
      : loop_(loop), engine_(engine), tenure_(std::move(tenure)), tick_(loop, [this] { engine_.tick(); }) {
    // After that nothing that was appended is called back any more.
    engine_.on_fatal([this](const base::Error& error) {
      if (error_) error_ = base::fail(base::Error(error).wrap("the store failed"));
    });
    tick_.start(kTickEvery, kTickEvery);
  }

  base::Status take(const wire::SnapshotParser::Item& item) {
    if (const auto* head = std::get_if<wire::SnapshotHead>(&item)) {
      if (head->table != tenure_.table) return base::fail(Code::conflict, "the snapshot is of another table");
      return base::ok();
    }
    const auto& part = std::get<wire::SnapshotPart>(item);
    uint32_t count = 0;
    auto records = wire::filter_records(part.records, tenure_.interval, &count);
    outside_ += part.count - count;
    return count == 0 ? base::ok() : append(std::move(records), count);
  }
  uint64_t taken() const { return taken_; }
  uint64_t outside() const { return outside_; }
  base::Status finish() {
    return wait([&] { return under_way_ == 0; });
  }
  // Applies everything and marks the root clean.
  base::Status end() {
    bool down = false;
    base::Status stopped = base::ok();
    engine_.shutdown([&](base::Status status) {
      stopped = std::move(status);
      down = true;
    });
    TRY(wait([&] { return down; }));
    return stopped;
  }

 private:
  base::Status append(std::string records, uint32_t count) {
    for (;;) {
      auto lsn = engine_.append(tenure_.id.partition, records, [this](base::Result<model::Lsn> durable) {
        under_way_--;
        if (!durable && error_) error_ = base::fail(durable.error());
      });
      if (lsn) break;
      if (!error_) return error_;
      if (lsn.error().code != Code::overloaded) return base::fail(std::move(lsn).error());
      loop_.run_for(std::chrono::milliseconds(20), [] { return false; });
    }
    under_way_++;
    taken_ += count;
    return error_;
  }
  base::Status wait(const std::function<bool()>& done) {
    if (!loop_.run_for(kRestoreLimit, [&] { return done() || !error_; }))
      return base::fail(Code::unavailable, "the journal makes no progress");
    return error_;
  }

  io::Loop& loop_;
  store::Engine& engine_;
  store::Tenure tenure_;
  uint64_t taken_ = 0, outside_ = 0, under_way_ = 0;
  base::Status error_ = base::ok();
  io::Timer tick_;
};

base::Status read_snapshot(Restoring& into) {
  wire::SnapshotParser parser;
  wire::SnapshotParser::Item item;
  std::string buffer(kStdinBytes, '\0');
  for (;;) {
    const auto n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return base::fail(base::errno_error("stdin", errno));
    if (n == 0) break;
    parser.feed(std::string_view(buffer).substr(0, static_cast<size_t>(n)));
    while (parser.next(&item)) TRY(into.take(item));
    TRY(parser.status());
  }
  TRY(into.finish());
  if (!parser.complete())
    return base::fail(Code::malformed, "the snapshot ends too early; what was read of it is restored");
  return base::ok();
}

}  // namespace

base::Result<int> restore(const Offline& what) {
  if (::isatty(STDIN_FILENO) != 0) return base::fail(Code::usage, "stdin is a terminal: a snapshot is read from there");
  io::Loop loop;
  store::RealDisk disk(what.data_dir);
  TRY_ASSIGN(const auto known, store::DataDir::read(disk));
  TRY_ASSIGN(const auto dir, store::DataDir::open(disk, {known.server, known.cluster}));  // refused while a server runs
  store::ThreadExecutor executor([&](auto fn) { loop.post(std::move(fn)); },
                                 [&](auto fn) { loop.defer(std::move(fn)); });
  store::LmdbIndexFactory indexes(what.index_dir.empty() ? what.data_dir + "/" + std::string(store::kIndexDir)
                                                         : what.index_dir);
  store::EngineConfig config;
  config.retention_time = kKeepAll;  // what the journal need not keep is the server's to say
  config.retention_bytes = UINT64_MAX;
  TRY_ASSIGN(auto engine, store::Engine::open({disk, indexes, executor, loop}, config, dir->identity()));
  TRY_ASSIGN(auto tenure, only(what, engine->tenures()));
  Restoring restoring(loop, *engine, std::move(tenure));
  const auto read = read_snapshot(restoring);
  auto stopped = restoring.end();
  TRY(read);
  TRY(stopped);
  daemon::print_object(what.format, {{"restored", restoring.taken()}, {"outside", restoring.outside()}});
  return 0;
}

}  // namespace cantle::partd

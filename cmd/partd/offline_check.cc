// verify, dump-journal and report: what stands in a data directory, checked and shown.
#include <algorithm>
#include <map>
#include <set>

#include "cmd/partd/offline.h"
#include "lib/base/bytes.h"
#include "lib/coord/recovery_text.h"
#include "lib/store/data_dir.h"
#include "lib/store/direct_reader.h"
#include "lib/store/live_page.h"
#include "lib/store/lmdb_index.h"
#include "lib/store/quorum_log.h"
#include "lib/store/recovery.h"
#include "lib/store/root.h"
#include "lib/store/rows.h"
#include "lib/wire/block.h"

namespace cantle::partd {

base::Result<store::ContentHash> content_of(store::DirectReader& reader, const store::TenureId& id);

namespace {

std::string_view op_word(model::Op op) {
  switch (op) {
    case model::Op::put: return "put";
    case model::Op::del: return "del";
    case model::Op::none: break;
  }
  return "none";
}

std::string_view kind_word(model::BlockKind kind) {
  switch (kind) {
    case model::BlockKind::data: return "data";
    case model::BlockKind::epoch_start: return "epoch-start";
    case model::BlockKind::cut: return "cut";
    case model::BlockKind::uncut: return "uncut";
    case model::BlockKind::seal: return "seal";
    case model::BlockKind::truncate: return "truncate";
    case model::BlockKind::divide: return "divide";
    case model::BlockKind::root_image: return "root-image";
    case model::BlockKind::merge: return "merge";
    case model::BlockKind::mended_data: return "mended-data";
    case model::BlockKind::mended_epoch_start: return "mended-epoch-start";
    case model::BlockKind::mended_cut: return "mended-cut";
    case model::BlockKind::mended_uncut: return "mended-uncut";
  }
  return "?";
}

// From the oldest segment that is needed to the end. Nothing is written. What a root block or the live page knows to be
// durable is damaged where it is not there, as recovery has it; `applied`: or the index, its sequence.
base::Status scan(store::Disk& disk, std::function<base::Status(const store::Frame&, std::string_view)> frame,
                  const std::function<void(const store::DamagedPlace&, const std::optional<store::Frame>&)>& damage,
                  uint64_t applied = 0) {
  store::JournalScan what;
  // Before the segments are read: a server that runs goes on.
  const auto page = store::LivePage::attach(disk);
  if (!page && page.error().code != base::Code::not_found) return base::fail(page.error());
  TRY_ASSIGN(const auto segments, store::list_segments(disk));
  what.durable = std::max(page ? (*page)->read().durable.sequence : 0, applied);
  if (segments.empty()) {
    if (what.durable > 1) damage({{}, {0, 0, what.durable}, "the journal is gone"}, std::nullopt);
    return base::ok();
  }
  what.start = {segments.front(), 0, 0};
  auto roots = store::Roots::read(disk);
  if (roots && roots->newest() != nullptr) {
    what.durable = std::max(what.durable, roots->newest()->head.sequence);
    what.start.segment = std::max(segments.front(), roots->newest()->oldest_segment);
  }
  TRY_ASSIGN(auto first, disk.open(store::segment_path(what.start.segment), store::OpenMode::read));
  TRY_ASSIGN(what.segment_bytes, first->size());
  what.sync = false;
  what.frame = std::move(frame);
  what.damage = damage;
  TRY_ASSIGN(const auto end, store::scan_journal(disk, what));
  if (end.sequence < what.durable)  // there is not one good frame
    damage({what.start, {what.start.segment, 0, what.durable}, "the journal cannot be read"}, std::nullopt);
  return base::ok();
}

// What verify found, a line each.
class Findings {
 public:
  explicit Findings(daemon::Format format) : out_(format, {"where", "what"}) {}
  void add(const std::string& where, const std::string& what) { out_.row({where, what}); }
  size_t count() const { return out_.rows(); }

 private:
  daemon::Printer out_;
};

void verify_roots(store::Disk& disk, Findings& findings) {
  auto roots = store::Roots::read(disk);
  if (!roots) return findings.add(std::string(store::kRootPath), roots.error().text);
  if (roots->newest() != nullptr) return;
  // Before the first checkpoint there is none.
  const auto bytes = disk.read_whole(store::kRootPath, 2 * store::kRootSlot);
  if (bytes && bytes->find_first_not_of('\0') != std::string::npos)
    findings.add(std::string(store::kRootPath), "neither root block is good");
}

// Frames, checksums, records, and each log's chain.
base::Status verify_journal(store::Disk& disk, Findings& findings,
                            std::map<model::PartitionId, model::LogPoint>& ends) {
  const auto frame = [&](const store::Frame& f, std::string_view payload) -> base::Status {
    const auto& h = f.header;
    if (h.kind == model::BlockKind::truncate) {
      const auto it = ends.find(h.partition);
      if (it != ends.end() && it->second.lsn > h.prev_lsn) it->second = before_of(h);
    }
    if (!model::is_log_block(h.kind)) return base::ok();
    const auto where = "journal " + to_string(f.at);
    if (h.kind != model::BlockKind::data) {
      if (h.records != 1) findings.add(where, "a block without records of more than one LSN");
    } else if (auto ok = wire::check_records(payload); !ok)
      findings.add(where, ok.error().text);
    else if (ok->records != h.records)
      findings.add(where, "the header says " + std::to_string(h.records) + " records, the payload has " +
                              std::to_string(ok->records));
    if (auto it = ends.find(h.partition);
        it != ends.end() && (it->second.lsn != h.prev_lsn || it->second.crc != h.prev_crc))
      findings.add(where, "the log of partition " + to_string(h.partition) + " does not chain: LSN " +
                              to_string(h.first) + " follows " + to_string(it->second.lsn));
    ends[h.partition] = point_of(h);
    return base::ok();
  };
  const auto damage = [&](const store::DamagedPlace& place, const std::optional<store::Frame>& whose) {
    findings.add("journal " + to_string(place.from),
                 place.what + (whose ? ", a block of partition " + to_string(whose->header.partition) : ""));
    if (whose)
      ends.erase(whose->header.partition);
    else
      ends.clear();
  };
  TRY(scan(disk, frame, damage));
  return base::ok();
}

// The sums that the index keeps, against those of the records it has.
base::Status verify_index(const Offline& what, bool compare, Findings& findings,
                          const std::map<model::PartitionId, model::LogPoint>& ends) {
  const auto dir = what.index_dir.empty() ? what.data_dir + "/" + std::string(store::kIndexDir) : what.index_dir;
  auto reader = store::DirectReader::open(what.data_dir, what.index_dir);
  if (!reader) return findings.add(dir, reader.error().text), base::ok();
  TRY((*reader)->refresh());
  TRY_ASSIGN(const auto tenures, (*reader)->tenures());
  std::map<store::TenureId, store::ContentHash> kept;
  std::set<store::TenureId> unknown;
  TRY_ASSIGN(auto index, store::open_lmdb(dir, {.write = false}));
  auto rows = index->reader();
  TRY(rows->renew());
  TRY_ASSIGN(const auto extents, store::read_extents(*rows));
  TRY_ASSIGN(const auto copies, store::read_tenures(*rows));
  std::set<model::ExtentId> filling;  // beside the copy whose place they are to take
  for (const auto& row : copies)
    if (row.refill) filling.insert(row.refill->extent);
  for (const auto& [id, extent] : extents)
    for (const auto& piece : extent.pieces) {
      if (filling.contains(id)) continue;
      const store::TenureId owner{piece.partition, piece.assignment};
      if (!piece.counts.all) unknown.insert(owner);
      auto& sum = kept[owner];
      sum.records += piece.counts.records;
      sum.tombstones += piece.counts.tombstones;
      sum.record_count += piece.counts.record_count;
      sum.tombstone_count += piece.counts.tombstone_count;
      sum.bytes += piece.counts.bytes;
    }
  rows.reset();
  for (const auto& t : tenures) {
    const auto where = "index, partition " + to_string(t.id.partition);
    if (auto end = ends.find(t.id.partition);
        end != ends.end() && t.applied.lsn > std::max(end->second.lsn, t.log_start.lsn))
      findings.add(where,
                   "applied LSN " + to_string(t.applied.lsn) + " is past the journal's " + to_string(end->second.lsn));
    if (!t.whole) findings.add(where, "records may be missing: it has to be compared with every replica");
    auto sum = content_of(**reader, t.id);
    if (!sum)
      findings.add(where, sum.error().text);
    else if (compare && !unknown.contains(t.id) && !(*sum == kept[t.id]))
      findings.add(where, "its records do not add up to the sums kept with it");
  }
  return base::ok();
}

}  // namespace

base::Result<int> verify(const Offline& what) {
  store::RealDisk disk(what.data_dir);
  TRY_ASSIGN(const auto identity, store::DataDir::read(disk));
  // While a server runs the index changes under the comparison: only what does not is looked at.
  const auto lock = disk.lock("id.lock");
  Findings findings(what.format);
  std::map<model::PartitionId, model::LogPoint> ends;
  verify_roots(disk, findings);
  TRY(verify_journal(disk, findings, ends));
  TRY(verify_index(what, lock.has_value(), findings, lock ? ends : std::map<model::PartitionId, model::LogPoint>{}));
  if (findings.count() == 0 && what.format == daemon::Format::table)
    daemon::print_line("server " + identity.server.name + ": nothing found" +
                       (lock ? "" : " (it runs: sums were not compared)"));
  return findings.count() == 0 ? 0 : 2;
}

base::Result<int> dump_journal(const Offline& what) {
  store::RealDisk disk(what.data_dir);
  daemon::Printer out(what.format, {"at", "group", "kind", "partition", "epoch", "first", "last", "bytes", "key", "op",
                                    "version", "value_bytes"});
  using daemon::Cell;
  const auto frame = [&](const store::Frame& f, std::string_view payload) -> base::Status {
    const auto& h = f.header;
    if (!what.partition.empty() && to_string(h.partition).rfind(what.partition, 0) != 0) return base::ok();
    // Of a truncate: the last LSN that it kept.
    const auto last = h.kind == model::BlockKind::truncate ? h.prev_lsn : h.last();
    out.row({to_string(f.at), f.group, kind_word(h.kind), to_string(h.partition), h.epoch.value, h.first.value,
             last.value, h.length, daemon::Missing{}, daemon::Missing{}, daemon::Missing{}, daemon::Missing{}});
    if (!what.records || h.kind != model::BlockKind::data) return base::ok();
    wire::RecordReader in(payload);
    model::RecordView r;
    for (uint64_t lsn = h.first.value; in.next(r); lsn++)
      out.row({to_string(f.at), f.group, "record", to_string(h.partition), h.epoch.value, lsn, lsn, daemon::Missing{},
               daemon::Bytes{std::string(r.key)}, op_word(r.op), to_string(r.version), r.value.size()});
    return in.status();
  };
  size_t damaged = 0;
  const auto damage = [&](const store::DamagedPlace& place, const std::optional<store::Frame>&) {
    damaged++;
    out.row({to_string(place.from), daemon::Missing{}, "damaged", daemon::Missing{}, daemon::Missing{},
             daemon::Missing{}, daemon::Missing{}, daemon::Missing{}, daemon::Bytes{place.what}, daemon::Missing{},
             daemon::Missing{}, daemon::Missing{}});
  };
  TRY(scan(disk, frame, damage));
  return damaged == 0 ? 0 : 2;
}

// --- report -----------------------------------------------------------------------------------------------------

namespace {

// A quorum table's log, put together as recovery does it (lib/store/engine_open.cc): from its row, and from where that
// says on in the journal.
struct LyingLog {
  model::CopyReport report;
  store::EpochTable epochs;
  model::Lsn applied;
  uint64_t begins = 0, from = 0, healed = 0;  // journal sequences

  // What is missing between two blocks, or what a place says nothing of.
  struct Missing {
    model::LogPoint after, upto;
    std::string place;
    bool doubt = false;
  };
  std::vector<Missing> missing;

  void take(const store::Frame& frame) {
    const auto& h = frame.header;
    if (frame.at.sequence < begins || frame.at.sequence < from) return;
    if (h.kind == model::BlockKind::seal) {
      report.promised = std::max(report.promised, h.epoch);
      report.highest = std::max(report.highest, h.epoch);
    } else if (h.kind == model::BlockKind::truncate) {
      if (h.prev_lsn < applied) return;
      report.end = before_of(h);
      epochs.cut(h.prev_lsn);
      std::erase_if(missing, [&](const Missing& m) { return !m.doubt && m.upto.lsn > h.prev_lsn; });
    } else if (model::is_log_block(h.kind) && h.last() > report.end.lsn) {
      if (report.end != before_of(h)) missing.push_back({report.end, before_of(h), "", false});
      end_in(h);
    } else if (model::is_mended(h.kind)) {
      mend(wire::of_mended(h));
    }
  }

  // A block whose header is readable, and follows, is the log's end all the same.
  void damage(const store::DamagedPlace& place, const std::optional<store::Frame>& whose) {
    if (place.to.sequence <= std::max(begins, from)) return;
    const bool one = whose && place.to.sequence == whose->at.sequence + 1;
    if (one && whose->header.partition != report.partition) return;
    if (one && model::is_mended(whose->header.kind)) return;  // what it was to mend is missing still
    const bool block = one && model::is_log_block(whose->header.kind);
    if (block && whose->header.last() <= report.end.lsn) return;
    const auto text = to_string(place.from) + " to " + to_string(place.to) + ": " + place.what;
    const bool follows = block && before_of(whose->header) == report.end;
    if (!follows && place.to.sequence >= healed) missing.push_back({{}, {}, text, true});
    if (!block) return;
    const auto& h = whose->header;
    if (!follows) missing.push_back({report.end, before_of(h), "", false});
    missing.push_back({before_of(h), point_of(h), text, false});
    end_in(h);
  }

 private:
  void end_in(const model::BlockHeader& h) {
    report.end = point_of(h);
    report.highest = std::max(report.highest, h.epoch);
    report.commit = std::max(report.commit, h.commit);
    epochs.note(h.epoch, h.first);
  }
  void mend(const model::BlockHeader& h) {
    const auto it = std::find_if(missing.begin(), missing.end(),
                                 [&](const Missing& m) { return !m.doubt && m.after == before_of(h); });
    if (it == missing.end()) return;
    it->after = point_of(h);
    if (it->after == it->upto) missing.erase(it);
  }
};

struct Lying {
  std::map<model::PartitionId, LyingLog> logs;
  uint64_t applied = 0;  // by the index, a journal sequence
};
base::Result<Lying> lying_logs(const Offline& what, const store::Identity& identity) {
  const auto dir = what.index_dir.empty() ? what.data_dir + "/" + std::string(store::kIndexDir) : what.index_dir;
  TRY_ASSIGN(auto index, store::open_lmdb(dir, {.write = false}));
  auto rows = index->reader();
  TRY(rows->renew());
  TRY_ASSIGN(const auto meta, store::read_meta(*rows));
  TRY_ASSIGN(const auto tenures, store::read_tenures(*rows));
  Lying lying;
  lying.applied = meta ? meta->applied.sequence : 0;
  for (const auto& row : tenures) {
    if (!row.quorum || row.state != store::RowState::live) continue;
    if (!what.partition.empty() && to_string(row.partition).rfind(what.partition, 0) != 0) continue;
    auto& log = lying.logs[row.partition];
    auto& r = log.report;
    r.server = identity.server;
    r.incarnation = identity.incarnation;
    r.table = row.table;
    r.partition = row.partition;
    r.region = row.region;
    r.assignment = row.assignment;
    r.state = "offline";
    r.end = row.applied;
    r.commit = std::max(row.quorum->commit, row.applied.lsn);
    r.promised = row.quorum->promised;
    r.highest = row.quorum->highest;
    r.whole = row.whole && !(meta && meta->rebuilding);
    log.epochs = store::EpochTable(row.quorum->epochs);
    log.epochs.cut(row.applied.lsn);
    log.applied = row.applied.lsn;
    log.begins = row.quorum->begins;
    log.healed = row.healed;
    log.from = row.quorum->from_sequence != 0 ? row.quorum->from_sequence : lying.applied;
  }
  return lying;
}

}  // namespace

base::Result<int> report(const Offline& what) {
  store::RealDisk disk(what.data_dir);
  TRY_ASSIGN(const auto identity, store::DataDir::read(disk));
  const auto lock = disk.lock("id.lock");
  if (!lock)
    return base::fail(base::Code::conflict, "a server runs on " + what.data_dir + ": zkctl quorum show asks it itself");
  TRY_ASSIGN(auto lying, lying_logs(what, identity));
  auto& logs = lying.logs;
  const auto frame = [&](const store::Frame& f, std::string_view) -> base::Status {
    if (const auto it = logs.find(f.header.partition); it != logs.end()) it->second.take(f);
    return base::ok();
  };
  const auto damage = [&](const store::DamagedPlace& place, const std::optional<store::Frame>& whose) {
    for (auto& [partition, log] : logs) log.damage(place, whose);
  };
  TRY(scan(disk, frame, damage, lying.applied));
  const bool people = what.format == daemon::Format::table;  // the form that zkctl reads
  daemon::Printer out(people ? daemon::Format::tsv : what.format,
                      {"partition", "assignment", "epoch", "lsn", "commit", "promised", "whole", "damaged"});
  for (auto& [partition, log] : logs) {
    auto& r = log.report;
    r.epochs = log.epochs.starts();
    r.commit = std::min(r.commit, r.end.lsn);
    r.whole = r.whole && log.missing.empty();
    std::string places;
    for (const auto& m : log.missing) {
      if (m.place.empty()) continue;
      if (people) daemon::print_line("# damaged: journal " + m.place);
      places += (places.empty() ? "" : "; ") + m.place;
    }
    if (people)
      daemon::print_line(coord::report_text(r));
    else
      out.row({to_string(r.partition), to_string(r.assignment), r.end.epoch.value, r.end.lsn.value, r.commit.value,
               r.promised.value, r.whole, places});
  }
  return logs.empty() ? 3 : 0;
}

}  // namespace cantle::partd

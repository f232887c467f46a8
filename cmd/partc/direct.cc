#include "cmd/partc/direct.h"

#include "lib/base/bytes.h"
#include "lib/io/loop.h"
#include "lib/store/direct_reader.h"

namespace cantle::partc {

using base::Code;

Direct::Direct() = default;
Direct::~Direct() = default;

base::Result<std::unique_ptr<Direct>> Direct::open(Tool& tool, const std::string& table, const std::string& data_dir) {
  TRY_ASSIGN(const auto map, tool.map(table, std::chrono::seconds(10)));
  std::unique_ptr<Direct> direct(new Direct());
  direct->table_ = map->table;
  TRY_ASSIGN(direct->reader_, store::DirectReader::open(data_dir));
  TRY(direct->refresh());
  return direct;
}

base::Status Direct::refresh() { return reader_->refresh(); }

namespace {

tl::unexpected<base::Error> not_here(const std::string& what) {
  return base::fail(Code::unavailable, "this directory does not hold " + what);
}

}  // namespace

base::Result<model::GetReply> Direct::get(const std::string& key) {
  TRY_ASSIGN(const auto tenure, reader_->find(table_, key));
  if (!tenure) return not_here("the partition of key " + base::escape(key));
  TRY_ASSIGN(const auto found, reader_->get(tenure->id, key));
  if (!found || found->deleted) return base::fail(Code::not_found, "there is no record " + base::escape(key));
  model::GetReply reply;
  reply.value = found->value;
  reply.version = found->version;
  return reply;
}

base::Result<bool> Direct::peek(const std::string& key) {
  TRY_ASSIGN(const auto tenure, reader_->find(table_, key));
  if (!tenure) return not_here("the partition of key " + base::escape(key));
  TRY_ASSIGN(const auto found, reader_->get(tenure->id, key));
  return found && !found->deleted;
}

base::Result<model::ScanReply> Direct::scan(const model::ScanRequest& request) {
  TRY(reader_->refresh());
  TRY_ASSIGN(const auto start, model::scan_start(request));
  TRY_ASSIGN(const auto tenures, reader_->tenures());
  const store::Tenure* here = nullptr;
  for (const auto& t : tenures) {
    if (!(t.table == table_) || t.state != store::TenureState::live) continue;
    const bool below = (start.bound.empty() || t.interval.begin < start.bound) &&
                       (t.interval.end.empty() || (!start.bound.empty() && start.bound <= t.interval.end));
    if (start.below ? below : t.interval.contains(start.bound)) here = &t;
  }
  if (!here) return not_here("the partition at key " + base::escape(start.bound));

  store::ScanRange range;
  range.reverse = request.reverse;
  range.from = request.reverse ? request.begin : start.bound;
  range.to = request.reverse ? start.bound : request.end;
  range.records_max = request.limit ? request.limit : model::kScanRecordsMax;
  range.bytes_max = request.bytes ? request.bytes : model::kScanBytesMax;
  model::ScanReply reply;
  TRY_ASSIGN(const auto end, reader_->scan(here->id, range, [&](std::string_view key, const store::Found& found) {
    reply.records.push_back({.key = std::string(key),
                             .value = request.keys_only ? std::string() : std::string(found.value),
                             .version = found.version});
    return true;
  }));
  reply.lsn = end.at;
  model::ScanCursor next{.reverse = request.reverse, .bound = {}, .lsn = end.at};
  if (end.more) {
    next.bound = end.resume;
    reply.cursor = model::encode_cursor(next);
  } else if (!request.reverse) {
    next.bound = here->interval.end;
    if (!next.bound.empty() && (request.end.empty() || next.bound < request.end))
      reply.cursor = model::encode_cursor(next);
  } else {
    next.bound = here->interval.begin;
    if (next.bound > request.begin) reply.cursor = model::encode_cursor(next);
  }
  return reply;
}

}  // namespace cantle::partc

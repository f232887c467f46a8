// scan, dump: all records of a range, page after page.
#include <cstdio>

#include "cmd/partc/direct.h"
#include "cmd/partc/stream.h"
#include "cmd/partc/verbs.h"
#include "lib/base/bytes.h"
#include "lib/client/await.h"
#include "lib/client/format.h"
#include "lib/client/pages.h"
#include "lib/daemon/duration.h"
#include "lib/io/loop.h"

namespace cantle::partc {

namespace {

base::Result<model::ScanRequest> request_of(const ScanFlags& flags) {
  model::ScanRequest request;
  request.table = flags.table;
  request.reverse = flags.reverse;
  request.keys_only = flags.keys_only;
  request.consistent = flags.consistent;
  TRY_ASSIGN(request.level, parse_level(flags.level));
  TRY_ASSIGN(request.begin, parse_key(flags.begin, flags.hex));
  TRY_ASSIGN(request.end, parse_key(flags.end, flags.hex));
  if (flags.prefix.empty()) return request;
  if (!flags.begin.empty() || !flags.end.empty())
    return base::fail(base::Code::usage, "--prefix and a range exclude each other");
  TRY_ASSIGN(request.begin, parse_key(flags.prefix, flags.hex));
  request.end = client::after_prefix(request.begin);
  return request;
}

// Says, for each partition of a consistent scan, which state of it is read.
client::PageSource naming(client::PageSource pages) {
  return [pages = std::move(pages)](const model::ScanRequest& request) {
    auto page = pages(request);
    const auto cursor = model::decode_cursor(request.cursor);
    if (page && (!cursor || cursor->kept == 0)) {
      const auto& from = cursor ? cursor->bound : request.reverse ? request.end : request.begin;
      std::fprintf(stderr, "%s \"%s\": as of LSN %s\n", request.reverse ? "below" : "from", base::escape(from).c_str(),
                   to_string(page->lsn).c_str());
    }
    return page;
  };
}

// Calls `each` for every record until it says no or `limit` records were given (0: all).
base::Status walk(Tool& tool, const ScanFlags& flags, const client::EachRecord& each) {
  TRY_ASSIGN(auto request, request_of(flags));
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  client::PageSource pages;
  std::unique_ptr<Direct> direct;
  if (!flags.direct.empty() && flags.consistent)
    return base::fail(base::Code::usage, "--consistent asks servers: it excludes --direct");
  if (!flags.direct.empty()) {
    TRY_ASSIGN(direct, Direct::open(tool, flags.table, flags.direct));
    pages = [&](const model::ScanRequest& page) { return direct->scan(page); };
  } else {
    TRY_ASSIGN(auto* c, tool.client({.deadline = timeout}));
    pages = client::pages_of(*c, timeout);
    if (flags.consistent) pages = naming(std::move(pages));
  }
  return client::walk(pages, std::move(request), flags.limit, each);
}

}  // namespace

base::Result<int> scan(Tool& tool, const ScanFlags& flags) {
  if (flags.keys_only) {
    daemon::Printer out(tool.flags().format, {"key", "version"});
    TRY(walk(tool, flags, [&](const model::ScanRecord& r) {
      out.row({daemon::Bytes{r.key}, to_string(r.version)});
      return base::Result<bool>(true);
    }));
    return daemon::kExitDone;
  }
  daemon::Printer out(tool.flags().format, {"key", "value", "version"});
  TRY(walk(tool, flags, [&](const model::ScanRecord& r) {
    out.row({daemon::Bytes{r.key}, daemon::Bytes{r.value}, to_string(r.version)});
    return base::Result<bool>(true);
  }));
  return daemon::kExitDone;
}

base::Result<int> dump(Tool& tool, const DumpFlags& flags) {
  TRY_ASSIGN(const auto format, client::parse_format(flags.format));
  TRY_ASSIGN(auto out, Stream::open(flags.file));
  Progress progress(flags.progress);
  const auto begun = tool.loop().refresh_now();
  uint64_t records = 0;
  std::string text;
  const auto line = [&](base::Instant now) {
    const double seconds = std::max(1e-9, std::chrono::duration<double>(now - begun).count());
    return "dump: " + std::to_string(records) + " records, " + size_text(static_cast<double>(out.bytes())) + ", " +
           size_text(static_cast<double>(out.bytes()) / seconds) + "/s";
  };
  const auto each = [&](const model::ScanRecord& r) -> base::Result<bool> {
    text.clear();
    client::write_entry(format, r.key, r.value, &text);
    TRY(out.write(text));
    ++records;
    if (const auto now = tool.loop().now(); progress.due(now)) progress.show(line(now));
    return !out.gone();
  };
  TRY(walk(tool, flags, each));
  TRY(out.flush());
  progress.end();
  if (flags.file != "-" || flags.progress) std::fprintf(stderr, "%s\n", line(tool.loop().refresh_now()).c_str());
  return daemon::kExitDone;
}

}  // namespace cantle::partc

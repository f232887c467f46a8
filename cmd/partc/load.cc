// load: an input into a table, with figures.
#include "lib/client/load.h"

#include <csignal>
#include <cstdio>

#include "cmd/partc/gap_log.h"
#include "cmd/partc/stream.h"
#include "cmd/partc/verbs.h"
#include "lib/client/input_feed.h"
#include "lib/daemon/duration.h"
#include "lib/io/loop.h"
#include "lib/io/signal.h"

namespace cantle::partc {

namespace {

std::string progress_line(const client::LoadFigures& f, const client::Client& client, uint64_t size,
                          base::Instant now) {
  std::string line = "load: " + std::to_string(f.acknowledged) + " records, " +
                     size_text(static_cast<double>(f.bytes)) + ", " +
                     std::to_string(static_cast<uint64_t>(f.records_per_second(now))) + " records/s, " +
                     size_text(f.bytes_per_second(now)) + "/s";
  if (f.rejected > 0) line += ", " + std::to_string(f.rejected) + " rejected";
  if (const auto& retries = client.counts().retries; retries > 0) line += ", " + std::to_string(retries) + " retries";
  if (size > 0 && f.bytes > 0 && f.input_bytes > 0) {
    const double left = static_cast<double>(size) / static_cast<double>(f.bytes) - 1;
    if (left > 0)
      line += ", " + duration_text(base::Duration(static_cast<int64_t>(f.seconds(now) * left * 1e9))) + " left";
  }
  return line;
}

void print_figures(const daemon::GlobalFlags& flags, const client::LoadFigures& f, const client::Client& client,
                   const base::WallMs gap_end_ms) {
  const bool gap = f.longest_gap.count() > 0;
  const auto now = f.ended;
  const auto ms = [](base::Duration d) { return static_cast<double>(d.count()) / 1e6; };
  daemon::print_object(flags.format, {{"records", f.acknowledged},
                                      {"bytes", f.bytes},
                                      {"rejected", f.rejected},
                                      {"seconds", f.seconds(now)},
                                      {"records_per_second", f.records_per_second(now)},
                                      {"megabytes_per_second", f.bytes_per_second(now) / 1e6},
                                      {"requests", f.requests},
                                      {"retries", client.counts().retries},
                                      {"latency_ms_p50", ms(f.latency.quantile(0.5))},
                                      {"latency_ms_p99", ms(f.latency.quantile(0.99))},
                                      {"latency_ms_max", ms(f.latency.max())},
                                      {"longest_gap_ms", ms(f.longest_gap)},
                                      {"longest_gap_end_unix_ms", gap ? daemon::Cell(gap_end_ms) : daemon::Missing{}}});
}

}  // namespace

base::Result<int> load(Tool& tool, const LoadFlags& flags) {
  client::LoadOptions options;
  options.table = flags.table;
  TRY_ASSIGN(options.level, parse_level(flags.level));
  TRY_ASSIGN(options.timeout, daemon::parse_duration(flags.timeout));
  options.window = flags.window;
  options.group.records = flags.batch;
  options.rate = flags.rate;
  options.keep_going = flags.keep_going;
  TRY_ASSIGN(const auto format, client::parse_format(flags.format));
  TRY_ASSIGN(auto gap_log, GapLog::open(flags.gap_log, tool.loop()));
  TRY_ASSIGN(auto* c, tool.client({.deadline = options.timeout}));
  auto& loop = tool.loop();

  std::unique_ptr<client::InputFeed> feed;
  std::optional<base::Status> result;
  uint64_t shown = 0;
  Progress progress(flags.progress);
  client::LoadHooks hooks;
  hooks.hungry = [&] { feed->more(); };
  hooks.finished = [&](base::Status status) { result = std::move(status); };
  if (gap_log) hooks.gap = [&](base::Instant end, base::Duration gap) { gap_log->add(end, gap); };
  hooks.rejected = [&](const client::Rejected& r) {
    if (++shown > flags.show_rejected) return;
    progress.end();
    std::fprintf(stderr, "partc: line %llu rejected: %s\n", static_cast<unsigned long long>(r.line), r.why.c_str());
  };
  client::Loader loader(*c, options, std::move(hooks));
  TRY_ASSIGN(feed, client::InputFeed::open(loop, flags.file, format, {.key_field = flags.key_field},
                                           [&](client::InputFeed::Portion&& p) { loader.add(std::move(p)); }));
  // Ctrl-C: what is under way is waited for, so that the figures are true.
  io::Signal interrupted(loop, SIGINT, [&] {
    loader.stop({base::Code::cancelled, "interrupted: what was acknowledged is in the table"});
  });
  loader.start();
  while (!loop.run_for(std::chrono::milliseconds(200), [&] { return result.has_value(); }))
    if (const auto now = loop.now(); progress.due(now))
      progress.show(progress_line(loader.figures(), *c, feed->size(), now));
  progress.end();

  const auto& f = loader.figures();
  if (loader.hopeless())
    return base::fail(result->error().code,
                      result->error().text + another_format(format) + " (--keep-going loads what can be read)");
  if (!*result && f.acknowledged == 0) return base::fail(result->error());  // there is nothing to measure
  if (f.rejected > flags.show_rejected)
    std::fprintf(stderr, "partc: %llu rejected in all\n", static_cast<unsigned long long>(f.rejected));
  print_figures(tool.flags(), f, *c, GapLog::wall_ms(loop, f.longest_gap_end));
  if (gap_log) TRY(gap_log->close());
  if (!*result) return base::fail(result->error());
  return f.rejected > 0 ? daemon::kExitFailed : daemon::kExitDone;
}

}  // namespace cantle::partc

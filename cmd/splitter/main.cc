// splitter: chooses split points; starts, follows, resumes and aborts splits and merges.
#include <CLI/CLI.hpp>

#include "cmd/splitter/verbs.h"

namespace {

using namespace cantle;
using namespace cantle::splitter;

void add_choice(CLI::App* sub, SplitFlags& f) {
  sub->add_option("table", f.table, "Table")->required();
  sub->add_option("partition", f.partition,
                  "Partition: an id, at least four digits of one, a region number (2 or #2), or key:KEY")
      ->required();
  sub->add_option("--at", f.at, "Key at which the high child begins (%XX for a byte); default: the median by bytes");
  sub->add_option("--low", f.low, "Servers of the low child in slot order; default: the parent's")->delimiter(',');
  sub->add_option("--high", f.high, "Servers of the high child in slot order; default: the parent's")->delimiter(',');
  sub->add_option("--data-dir", f.data_dir, "Sample this data directory of this host instead of asking a server");
  sub->add_option("--index-dir", f.index_dir, "Its index, if that is elsewhere");
}
void add_following(CLI::App* sub, FollowFlags& f) {
  sub->add_flag("--dry-run", f.dry_run, "Say what would be done, and do nothing");
  sub->add_flag("--no-wait", f.no_wait, "Begin it and leave the rest to the metadata servers");
  sub->add_flag("--progress", f.progress, "Say what it waits for, also where stderr is no terminal");
  sub->add_option("--timeout", f.timeout, "How long to wait (5s, 2m); default: until it ends");
}
CLI::App* add_attempt(CLI::App& app, AttemptFlags& f, const char* name, const char* says) {
  auto* sub = app.add_subcommand(name, says);
  sub->add_option("attempt", f.attempt, "Id of the attempt, as split, merge and status print it")->required();
  sub->add_option("--table", f.table, "Where to look; default: in every table");
  sub->add_option("--timeout", f.timeout, "How long to wait (5s, 2m); default: until it ends");
  sub->add_flag("--progress", f.progress, "Say what it waits for, also where stderr is no terminal");
  sub->footer(std::string("example: splitter ") + name + " 3f2a9c0e51d84b7799aa3c1f0e6d5b42");
  return sub;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Split a partition of a table into two, or merge two into one, while they are in use.");
  daemon::GlobalFlags global;
  global.log_level = "warn";  // what a person typed is answered, not logged
  daemon::add_global_flags(app, global);
  app.require_subcommand(1);
  SplitFlags f;
  MergeFlags m;
  AttemptFlags a;
  std::string table;

  auto* split = app.add_subcommand("split", "Split a partition, and wait until it is done");
  add_choice(split, f);
  add_following(split, f);
  split->footer(
      "Ctrl-C detaches: the split goes on.\nexample: splitter split packages key:libc6 --at libm --high p4,p5,p6");
  auto* plan = app.add_subcommand("plan", "Print a split as a plan, for apply; exit status 2");
  add_choice(plan, f);
  plan->footer("example: splitter plan packages 0 > FILE; splitter apply FILE");
  auto* apply =
      app.add_subcommand("apply", "Begin a planned split, if the map is still what it was, and wait until it is done");
  apply->add_option("file", f.file, "The plan; - for stdin")->required();
  add_following(apply, f);
  apply->footer("example: splitter apply FILE");
  auto* merge = app.add_subcommand("merge", "Merge two neighbours, and wait until it is done");
  merge->add_option("table", m.table, "Table")->required();
  merge->add_option("low", m.low, "One of the two: an id, at least four digits of one, a region number, or key:KEY")
      ->required();
  merge->add_option("high", m.high, "The other one; moved first to the servers of the first, where they differ")
      ->required();
  add_following(merge, m);
  merge->footer("Ctrl-C detaches: the merge goes on.\nexample: splitter merge packages key:libc6 key:libm");
  auto* status = app.add_subcommand("status", "List the splits and merges in progress, and whom they wait for");
  status->add_option("table", table, "Only of this table");
  status->footer("example: splitter status --json");
  auto* wait = add_attempt(app, a, "wait", "Wait until a split or merge ends, whoever drives it");
  auto* resume = add_attempt(app, a, "resume", "Drive a split or merge that nobody drives, and wait until it ends");
  auto* abort = add_attempt(app, a, "abort", "Go back to what was; possible until the split or merge is finished");

  return daemon::run(app, argc, argv, global, [&]() -> base::Result<int> {
    if (split->parsed()) return splitter::split(global, f);
    if (plan->parsed()) return splitter::plan(global, f);
    if (apply->parsed()) return splitter::apply(global, f);
    if (merge->parsed()) return splitter::merge(global, m);
    if (status->parsed()) return splitter::status(global, table);
    if (wait->parsed()) return splitter::wait(global, a);
    if (resume->parsed()) return splitter::resume(global, a);
    if (abort->parsed()) return splitter::abort(global, a);
    return base::fail(base::Code::usage, "a verb is required (splitter --help)");
  });
}

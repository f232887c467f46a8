// partc: the client. Flags here, a verb a function (verbs.h), what they stand on in tool.h.
#include <CLI/CLI.hpp>

#include "cmd/partc/verbs.h"

namespace {

using namespace cantle;
using namespace cantle::partc;

// The verbs, each with its flags and what runs it.
class Verbs {
 public:
  Verbs(CLI::App& app, Tool& tool) : app_(app), tool_(tool) {}

  template <class Flags>
  CLI::App* add(const char* name, const char* says, Flags& flags, base::Result<int> (*verb)(Tool&, const Flags&)) {
    auto* sub = app_.add_subcommand(name, says);
    runs_.emplace_back(sub, [this, &flags, verb] { return verb(tool_, flags); });
    return sub;
  }
  base::Result<int> run() {
    for (auto& [sub, run] : runs_)
      if (sub->parsed()) return run();
    return base::fail(base::Code::usage, "a verb is required (partc --help)");
  }

 private:
  CLI::App& app_;
  Tool& tool_;
  std::vector<std::pair<CLI::App*, std::function<base::Result<int>()>>> runs_;
};

void add_table(CLI::App* sub, CommonFlags& f) { sub->add_option("table", f.table, "Table")->required(); }
void add_timeout(CLI::App* sub, CommonFlags& f, const char* preset) {
  f.timeout = preset;
  sub->add_option("--timeout", f.timeout, "How long to try (250ms, 5s, 2m)")->capture_default_str();
}
void add_level(CLI::App* sub, CommonFlags& f, const char* preset) {
  f.level = preset;
  sub->add_option("--level", f.level, "How many replicas must confirm: one, majority, all")->capture_default_str();
}
void add_read_level(CLI::App* sub, CommonFlags& f) {
  f.level = "majority";
  sub->add_option(
         "--level", f.level,
         "Whose answer counts: one, majority, all; of a quorum table: linearizable (as majority), session, any")
      ->capture_default_str();
}
void add_hex(CLI::App* sub, CommonFlags& f) {
  sub->add_flag("--hex", f.hex, "Keys are given in hexadecimal (else %XX stands for a byte)");
}

struct AllFlags {
  GetFlags get;
  PutFlags put;
  DeleteFlags remove;
  BatchFlags batch;
  CasFlags cas;
  AppendFlags append;
  IncrFlags incr;
  ScanFlags scan;
  DumpFlags dump;
  LoadFlags load;
  VerifyFlags verify;
  CommonFlags hash;
  RouteFlags route;
  StatusFlags status;
  BenchFlags bench;
};

void add_record_verbs(Verbs& verbs, AllFlags& f) {
  auto* get = verbs.add("get", "Print the value of a key, or the records of several", f.get, partc::get);
  add_table(get, f.get);
  get->add_option("key", f.get.keys, "Keys; - for the lines of stdin")->required();
  get->add_flag("--raw", f.get.raw, "Print the value and no newline behind it");
  get->add_option("--direct", f.get.direct, "Read the data directory of a server on this host, without the server");
  add_read_level(get, f.get);
  add_timeout(get, f.get, "10s");
  add_hex(get, f.get);
  get->footer("example: partc get packages bash");

  auto* put = verbs.add("put", "Write a record", f.put, partc::put);
  add_table(put, f.put);
  put->add_option("key", f.put.key, "Key")->required();
  put->add_option("value", f.put.value, "Value; - for stdin")->required();
  add_level(put, f.put, "majority");
  add_timeout(put, f.put, "10s");
  add_hex(put, f.put);
  put->footer("example: partc put orders 2024-001 '3 apples'");

  auto* remove = verbs.add("delete", "Delete records", f.remove, partc::remove);
  add_table(remove, f.remove);
  remove->add_option("key", f.remove.keys, "Keys; - for the lines of stdin")->required();
  add_level(remove, f.remove, "majority");
  add_timeout(remove, f.remove, "10s");
  add_hex(remove, f.remove);
  remove->footer("example: partc scan orders --prefix 2023- --keys-only -o name | partc delete orders -");

  auto* batch = verbs.add("batch", "Write several records of one partition, all or nothing", f.batch, partc::batch);
  add_table(batch, f.batch);
  batch->add_option("file", f.batch.file, "Input; - for stdin")->capture_default_str();
  batch->add_option("--format", f.batch.format, "jsonl, tsv or deb822")->capture_default_str();
  add_level(batch, f.batch, "majority");
  add_timeout(batch, f.batch, "10s");
  batch->footer("example: printf 'a\\t1\\nb\\t2\\n' | partc batch orders --format tsv");
}

void add_update_verbs(Verbs& verbs, AllFlags& f) {
  auto* cas = verbs.add("cas", "Write or delete a record if it is as expected (quorum tables)", f.cas, partc::cas);
  add_table(cas, f.cas);
  cas->add_option("key", f.cas.key, "Key")->required();
  auto* value = cas->add_option("value", f.cas.value, "New value; - for stdin");
  auto* expect = cas->add_option_group("expect", "What is expected: one of");
  auto* expected = expect->add_option("--expect-value", f.cas.expect_value, "The key has this value");
  expect->add_option("--expect-version", f.cas.expect_version, "The key has this version, as get -o json prints it");
  expect->add_flag("--expect-absent", f.cas.expect_absent, "The key is not there");
  expect->require_option(1);
  cas->add_flag("--delete", f.cas.remove, "Delete the key instead of writing a value")->excludes(value);
  add_timeout(cas, f.cas, "10s");
  add_hex(cas, f.cas);
  cas->callback([&f, value, expected] {
    f.cas.has_value = value->count() > 0;
    f.cas.has_expect_value = expected->count() > 0;
  });
  cas->footer(
      "Exit status 4: it was not as expected; what is there stands on stderr.\n"
      "example: partc cas locks printer host-7 --expect-absent");

  auto* append = verbs.add("append", "Add bytes to the end of a value, print its new length (quorum tables)", f.append,
                           partc::append);
  add_table(append, f.append);
  append->add_option("key", f.append.key, "Key; one that is not there has an empty value")->required();
  append->add_option("value", f.append.value, "What is added; - for stdin")->required();
  add_timeout(append, f.append, "10s");
  add_hex(append, f.append);
  append->footer("example: partc append logs 2024-001 'shipped;'");

  auto* incr =
      verbs.add("incr", "Add to a value that is a decimal number, print the sum (quorum tables)", f.incr, partc::incr);
  add_table(incr, f.incr);
  incr->add_option("key", f.incr.key, "Key; one that is not there has 0")->required();
  incr->add_option("--by", f.incr.by, "What is added; below 0 it is taken off")->capture_default_str();
  add_timeout(incr, f.incr, "10s");
  add_hex(incr, f.incr);
  incr->footer("example: partc incr counters visits --by=-2");
}

void add_range(CLI::App* sub, ScanFlags& f) {
  add_table(sub, f);
  sub->add_option("--prefix", f.prefix, "Only keys that begin so");
  sub->add_flag("--reverse", f.reverse, "From the last key down");
  sub->add_option("--limit", f.limit, "At most so many records (0: all)")->capture_default_str();
  sub->add_flag("--consistent", f.consistent, "Of a quorum table: one state of each partition, whose LSN is said");
  sub->add_option("--direct", f.direct, "Read the data directory of a server on this host, without the server");
  add_read_level(sub, f);
  add_timeout(sub, f, "10s");
  add_hex(sub, f);
}

void add_bulk_verbs(Verbs& verbs, AllFlags& f) {
  auto* scan = verbs.add("scan", "Print the records of a range", f.scan, partc::scan);
  add_range(scan, f.scan);
  scan->add_option("begin", f.scan.begin, "First key");
  scan->add_option("end", f.scan.end, "First key that is not printed any more");
  scan->add_flag("--keys-only", f.scan.keys_only, "No values");
  scan->footer("example: partc scan packages bash bat --keys-only");

  auto* dump = verbs.add("dump", "Write all records to a file or stdout", f.dump, partc::dump);
  add_range(dump, f.dump);
  dump->add_option("file", f.dump.file, "Output; - for stdout")->capture_default_str();
  dump->add_option("--begin", f.dump.begin, "First key");
  dump->add_option("--end", f.dump.end, "First key that is not written any more");
  dump->add_option("--format", f.dump.format, "jsonl, tsv or deb822")->capture_default_str();
  dump->add_flag("--progress", f.dump.progress, "Say how far it is, also where stderr is no terminal");
  dump->footer("example: partc dump packages packages.jsonl");

  auto* load = verbs.add("load", "Write the records of a file or stdin into a table", f.load, partc::load);
  add_table(load, f.load);
  load->add_option("file", f.load.file, "Input; - for stdin")->capture_default_str();
  load->add_option("--format", f.load.format, "jsonl, tsv or deb822")->capture_default_str();
  load->add_option("--key-field", f.load.key_field,
                   "deb822: the field that is the key (Package); jsonl: the same, the line is the value");
  load->add_option("--rate", f.load.rate, "Records a second (0: as fast as it can)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  load->add_option("--window", f.load.window, "Records under way at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  load->add_option("--batch", f.load.batch, "Records in one request at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  load->add_option("--gap-log", f.load.gap_log,
                   "Write each gap between acknowledgements to this file (when it ended, its length; microseconds)");
  load->add_option("--show-rejected", f.load.show_rejected, "Rejected records to name on stderr")
      ->capture_default_str();
  load->add_flag("--keep-going", f.load.keep_going,
                 "Also where none of the first 100 entries can be read (another --format?)");
  load->add_flag("--progress", f.load.progress, "Say how far it is, also where stderr is no terminal");
  add_level(load, f.load, "majority");
  add_timeout(load, f.load, "60s");
  load->footer("example: apt-cache dumpavail | partc load packages --format deb822");

  auto* verify = verbs.add("verify", "Compare the replicas of a table with each other, and with an input", f.verify,
                           partc::verify);
  add_table(verify, f.verify);
  verify->add_option("--against", f.verify.against,
                     "The input that was loaded: every record must be there, and no other");
  verify->add_option("--format", f.verify.format, "jsonl, tsv or deb822")->capture_default_str();
  verify->add_option("--key-field", f.verify.key_field, "As for load");
  verify->add_option("--show-differences", f.verify.show_differences, "Differences to name on stderr")
      ->capture_default_str();
  verify->add_flag("--progress", f.verify.progress, "Say what it waits for, also where stderr is no terminal");
  add_timeout(verify, f.verify, "60s");
  verify->footer(
      "Waits until the replicas agree, at most --timeout. Exit status 2: differences; 75: not all replicas could be\n"
      "compared, because a server is down or catches up.\n"
      "example: partc verify packages --against packages.deb822 --format deb822");
}

void add_cluster_verbs(Verbs& verbs, AllFlags& f) {
  auto* hash = verbs.add("hash", "Print the content hash of each replica of each partition", f.hash, partc::hash);
  add_table(hash, f.hash);
  add_timeout(hash, f.hash, "30s");
  hash->footer("example: partc hash packages");

  auto* route = verbs.add("route", "Print the partitions of a table and their servers, or those of one key", f.route,
                          partc::route);
  add_table(route, f.route);
  route->add_option("key", f.route.key, "Key");
  add_timeout(route, f.route, "10s");
  add_hex(route, f.route);
  route->footer("example: partc route packages bash");

  auto* status = verbs.add("status", "Print how the partition servers are", f.status, partc::status);
  status->add_option("table", f.status.table, "Only of this table");
  status->add_option("--server", f.status.server, "Everything one server says");
  status->add_option("--at", f.status.at,
                     "Ask any daemon at this address (host:port, unix:/path) without the coordination service");
  status->add_flag("--ready", f.status.ready, "Exit status 0 if it is ready to serve, else 75; for scripts");
  status->add_option("--wait", f.status.wait, "With --ready and --at: wait so long for it to become so")
      ->needs("--ready")
      ->needs("--at")
      ->capture_default_str();
  add_timeout(status, f.status, "3s");
  status->footer("example: partc status --at unix:/run/cantle/partd-p1.sock");
}

void add_bench_verb(Verbs& verbs, AllFlags& f) {
  auto& b = f.bench;
  auto* bench = verbs.add("bench", "Write or read in closed loops, and measure", b, partc::bench);
  bench->add_option("workload", b.workload, "put, get, mixed or incr")->required();
  add_table(bench, b);
  bench->add_option("--connections", b.connections, "Clients, each with connections of its own")->capture_default_str();
  bench->add_option("--in-flight", b.in_flight, "Requests under way of each client")->capture_default_str();
  bench->add_option("--records", b.records, "Keys: k0… to this many")->capture_default_str();
  bench->add_option("--count", b.count, "Requests in all (0: as many as --duration allows)")->capture_default_str();
  bench->add_option("--duration", b.duration, "How long, without --count")->capture_default_str();
  bench->add_option("--key-size", b.key_size, "Bytes of a key")->capture_default_str();
  bench->add_option("--value-size", b.value_size, "Bytes of a value")->capture_default_str();
  bench->add_option("--read-share", b.read_share, "mixed: share of reads")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  bench->add_option("--rate", b.rate, "Requests a second in all (0: no limit)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  bench->add_option("--seed", b.seed, "Of the random keys, and a part of the values")->capture_default_str();
  bench->add_option("--direct", b.direct, "get: read this data directory of this host, without a server");
  bench->add_option("--history", b.history, "Write each request and its outcome to this file, as JSON lines");
  bench->add_option("--gap-log", b.gap_log, "Write each gap between acknowledgements to this file, as for load");
  bench->add_flag("--keep-going", b.keep_going, "A failure is counted and does not end the run");
  add_read_level(bench, b);
  add_timeout(bench, b, "10s");
  bench->footer("example: partc bench put orders --connections 16 --in-flight 16 --duration 30s");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Talk to a cantle cluster: read, write, load, verify, measure.");
  daemon::GlobalFlags global;
  global.log_level = "warn";  // what a person typed is answered, not logged
  daemon::add_global_flags(app, global);
  app.require_subcommand(1);  // exactly: a table that is called like a verb is an argument
  Tool tool(global);
  AllFlags flags;
  Verbs verbs(app, tool);
  add_record_verbs(verbs, flags);
  add_update_verbs(verbs, flags);
  add_bulk_verbs(verbs, flags);
  add_cluster_verbs(verbs, flags);
  add_bench_verb(verbs, flags);
  return daemon::run(app, argc, argv, global, [&] { return verbs.run(); });
}

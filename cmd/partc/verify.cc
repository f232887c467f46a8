// verify, hash: do all replicas hold the same, and is it what was loaded?
#include "lib/client/verify.h"

#include <cstdio>
#include <fstream>

#include "cmd/partc/stream.h"
#include "cmd/partc/verbs.h"
#include "lib/base/bytes.h"
#include "lib/client/pages.h"
#include "lib/daemon/duration.h"
#include "lib/io/loop.h"

namespace cantle::partc {

using base::Code;
using Difference = client::Expected::Difference;

namespace {

struct Findings {
  uint64_t partitions = 0, disagreeing = 0, not_compared = 0;
  uint64_t records = 0, expected = 0, rejected = 0;
  uint64_t missing = 0, extra = 0, differing = 0;
  uint64_t shown = 0, show = 20;

  uint64_t all() const { return disagreeing + missing + extra + differing; }
  void say(const std::string& text) {
    if (++shown <= show) std::fprintf(stderr, "partc: %s\n", text.c_str());
  }
  const char* verdict() const { return all() > 0 ? "different" : not_compared > 0 ? "incomplete" : "same"; }
  int exit() const {
    return all() > 0 ? daemon::kExitFindings : not_compared > 0 ? daemon::kExitTemporary : daemon::kExitDone;
  }
};

constexpr base::Duration kSayAfter = std::chrono::seconds(3);

// What it waits for: over and over where progress is shown, else once when it has lasted a moment.
class Waiting {
 public:
  Waiting(Tool& tool, client::Client& client, const VerifyFlags& flags)
      : tool_(tool), client_(client), timeout_(flags.timeout), progress_(flags.progress), begun_(tool.loop().now()) {}

  void round(const std::vector<client::PartitionReplicas>& partitions) {
    const client::PartitionReplicas* first = nullptr;
    size_t open = 0;
    for (const auto& p : partitions) {
      if (p.agree()) continue;
      if (!first) first = &p;
      ++open;
    }
    if (!first) return;
    const auto missing = not_compared(*first, client_.servers());
    say("the replicas of " + std::to_string(open) + " of " + std::to_string(partitions.size()) +
        " partitions do not agree yet; region " + to_string(first->region) + ": " +
        (missing.empty() ? "they differ" : missing));
  }
  void silent(const std::vector<model::ServerId>& servers) {
    std::string text;
    for (const auto& server : servers) text += (text.empty() ? "" : ", ") + server.name;
    say("no answer yet from " + text);
  }
  void end() { progress_.end(); }

 private:
  void say(const std::string& what) {
    const auto now = tool_.loop().now();
    if (progress_.due(now)) return progress_.show("verify: waiting: " + what);
    if (progress_.on() || said_ || now - begun_ < kSayAfter) return;
    said_ = true;
    std::fprintf(stderr, "partc: waiting, at most %s: %s\n", timeout_.c_str(), what.c_str());
  }

  Tool& tool_;
  client::Client& client_;
  const std::string timeout_;
  Progress progress_;
  const base::Instant begun_;
  bool said_ = false;
};

base::Status check_replicas(Tool& tool, client::Client& client, const VerifyFlags& flags, base::Duration limit,
                            Findings* findings) {
  Waiting waiting(tool, client, flags);
  client::ReplicaWait wait;
  wait.limit = limit;
  wait.waiting = [&](const auto& partitions) { waiting.round(partitions); };
  wait.silent = [&](const auto& servers) { waiting.silent(servers); };
  TRY_ASSIGN(const auto partitions, client::wait_for_replicas(client, flags.table, wait));
  waiting.end();
  findings->partitions = partitions.size();
  for (const auto& p : partitions) {
    findings->records += p.records();
    if (p.agree()) continue;
    if (p.differ()) {
      ++findings->disagreeing;
      findings->say("replicas differ: " + disagreement(p));
    } else {
      ++findings->not_compared;
      findings->say("not compared: partition " + to_string(p.region) + " " + to_string(p.interval) + ": " +
                    not_compared(p, client.servers()));
    }
  }
  return base::ok();
}

base::Status read_expected(const VerifyFlags& flags, client::Expected* expected, Findings* findings) {
  TRY_ASSIGN(const auto format, client::parse_format(flags.format));
  TRY_ASSIGN(auto parser, client::make_parser(format, {.key_field = flags.key_field},
                                              {.entry = [&](client::Entry&& e) { expected->add(e); },
                                               .rejected = [&](client::Rejected&&) { ++findings->rejected; }}));
  std::ifstream file(flags.against, std::ios::binary);
  if (!file) return base::fail(Code::not_found, "cannot open " + flags.against);
  std::string buffer(size_t{1} << 20, '\0');
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    parser->feed(std::string_view(buffer).substr(0, static_cast<size_t>(file.gcount())));
  }
  if (file.bad()) return base::fail(Code::io_error, "reading " + flags.against + " failed");
  parser->finish();
  findings->expected = expected->size();
  if (findings->expected == 0 && findings->rejected > 0)
    return base::fail(Code::invalid, "none of the " + std::to_string(findings->rejected) + " entries of " +
                                         flags.against + " can be read" + another_format(format));
  return base::ok();
}

void count(const Difference& d, Findings* findings) {
  const std::string key = base::escape(d.key);
  const std::string line = " (line " + std::to_string(d.line) + ")";
  switch (d.kind) {
    case Difference::Kind::missing: ++findings->missing; return findings->say("missing: " + key + line);
    case Difference::Kind::extra: ++findings->extra; return findings->say("not in the input: " + key);
    case Difference::Kind::value: ++findings->differing; return findings->say("another value: " + key + line);
  }
}

base::Status check_values(client::Client& client, const VerifyFlags& flags, base::Duration timeout,
                          Findings* findings) {
  client::Expected expected;
  TRY(read_expected(flags, &expected, findings));
  model::ScanRequest request;
  request.table = flags.table;
  // The replicas have been compared; but of a quorum table any one may fall behind again.
  const auto map = client.map_in_hand(flags.table);
  const bool quorum = map && map->replication == model::Replication::quorum;
  request.level = quorum ? model::Level::linearizable : model::Level::one;
  uint64_t records = 0;
  const auto each = [&](const model::ScanRecord& r) -> base::Result<bool> {
    ++records;
    if (const auto difference = expected.check(r.key, r.value)) count(*difference, findings);
    return true;
  };
  TRY(client::walk(client::pages_of(client, timeout), request, 0, each));
  for (const auto& difference : expected.missing()) count(difference, findings);
  findings->records = records;
  return base::ok();
}

}  // namespace

base::Result<int> verify(Tool& tool, const VerifyFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(auto* c, tool.client({.deadline = timeout}));
  Findings findings;
  findings.show = flags.show_differences;
  TRY(check_replicas(tool, *c, flags, timeout, &findings));
  if (!flags.against.empty()) TRY(check_values(*c, flags, timeout, &findings));
  if (findings.shown > findings.show)
    std::fprintf(stderr, "partc: … and %llu more\n", static_cast<unsigned long long>(findings.shown - findings.show));
  std::vector<std::pair<std::string, daemon::Cell>> members = {{"table", flags.table},
                                                               {"partitions", findings.partitions},
                                                               {"partitions_differing", findings.disagreeing},
                                                               {"partitions_not_compared", findings.not_compared},
                                                               {"records", findings.records}};
  if (!flags.against.empty()) {
    members.insert(members.end(), {{"records_expected", findings.expected},
                                   {"input_rejected", findings.rejected},
                                   {"missing", findings.missing},
                                   {"not_in_input", findings.extra},
                                   {"other_values", findings.differing}});
  }
  members.emplace_back("verdict", findings.verdict());
  daemon::print_object(tool.flags().format, members);
  return findings.exit();
}

base::Result<int> hash(Tool& tool, const CommonFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(auto* c, tool.client({.deadline = timeout}));
  TRY_ASSIGN(const auto partitions, client::compare_replicas(*c, flags.table, timeout));
  daemon::Printer out(tool.flags().format,
                      {"region", "partition", "server", "records", "tombstones", "bytes", "hash", "serving", "error"});
  bool answered = false;
  for (const auto& p : partitions)
    for (const auto& r : p.replicas) {
      if (!r.held) {
        out.row({p.region.value, to_string(p.interval), r.assignment.server.name, daemon::Missing{}, daemon::Missing{},
                 daemon::Missing{}, daemon::Missing{}, false, to_string(r.held.error())});
        continue;
      }
      answered = true;
      out.row({p.region.value, to_string(p.interval), r.assignment.server.name, r.held->records, r.held->tombstones,
               r.held->bytes, base::to_hex(r.held->hash), r.held->serving, daemon::Missing{}});
    }
  if (!answered) return base::fail(Code::unavailable, "no server answered");
  return daemon::kExitDone;
}

}  // namespace cantle::partc

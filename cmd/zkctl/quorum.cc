// quorum show and recover: a partition of a quorum table, how far each of its replicas goes, and how it goes on when a
// majority of them is gone for good. What may be done, and what is lost by it, is decided in proto/quorum_recovery.h.
//
// Applying a plan is one multi: the government is swapped at the version that the plan names, and a note of the plan is
// put beside it, by which a second run knows that the first one did it. Before it nothing has been changed, behind it
// there is nothing left to do but to wait until a leader serves.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>

#include "cmd/zkctl/ruling.h"
#include "cmd/zkctl/verbs.h"
#include "lib/base/bytes.h"
#include "lib/coord/recovery_text.h"
#include "lib/coord/ring.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/json.h"
#include "lib/proto/quorum_recovery.h"
#include "lib/wire/codec.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;
using model::ServerId;

namespace {

constexpr base::Duration kLookEvery = std::chrono::milliseconds(100);

base::Result<std::string> read_text(const std::string& path, size_t most) {
  const int fd = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(base::errno_error(path, errno));
  std::string all;
  char buffer[65536];
  base::Status status = base::ok();
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) status = fail(base::errno_error(path, errno));
    if (n > 0 && all.size() + static_cast<size_t>(n) > most) status = fail(Code::too_large, path + " is too long");
    if (!status) break;
    all.append(buffer, static_cast<size_t>(n));
  }
  if (fd != STDIN_FILENO) ::close(fd);
  TRY(status);
  return all;
}

// The partition's id, #REGION, or a key in it, as explain has it.
base::Result<const model::Partition*> find_partition(const model::Metadata& map, const std::string& word) {
  if (map.dropped) return fail(Code::no_such_table, "table " + map.name + " was dropped");
  if (map.replication != model::Replication::quorum)
    return fail(Code::invalid, "table " + map.name + " is a push table: it has no quorums");
  if (word.size() == 32)
    if (const auto id = model::parse_id<model::PartitionId>(word))
      if (const auto* p = map.find(*id)) return p;
  if (word.starts_with('#')) {
    model::Region region;
    const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), region.value);
    if (error == std::errc{} && end == word.data() + word.size())
      if (const auto* p = map.partitions.get(region)) return p;
    return fail(Code::not_found, "table " + map.name + " has no region " + word);
  }
  auto key = base::unescape(word);
  if (!key) return fail(Code::usage, "key '" + word + "': " + key.error().text);
  if (const auto* p = map.find(*key)) return p;
  return fail(Code::corrupt, "the map has no partition for the key");
}

// Everything that is seen of a partition now.
struct Seen {
  proto::RecoveryView view;
  std::string distribution;
  std::map<ServerId, std::string> away;  // why it did not answer
  std::optional<model::Recovered> recovered;
  int32_t recovered_version = coord::kAnyVersion;
};

base::Status see_government(Tool& tool, Seen& seen) {
  TRY_ASSIGN(auto* session, tool.coord());
  TRY(session->sync(tool.at().root()));
  const auto& region = seen.view.region;
  TRY_ASSIGN(const auto node, session->get(tool.at().government(seen.distribution, region)));
  auto government = coord::parse_government(node.value);
  if (!government) return fail(std::move(government).error().wrap("the government (zkctl fsck)"));
  seen.view.government = std::move(*government);
  seen.view.version = node.stat.version;
  const auto note = session->get(tool.at().recovered(seen.distribution, region));
  if (!note && note.error().code != Code::not_found) return fail(note.error());
  if (!note) return base::ok();
  seen.recovered_version = note->stat.version;
  auto parsed = coord::parse_recovered(note->value);
  if (!parsed) return fail(std::move(parsed).error().wrap("the note of the last recovery (zkctl fsck)"));
  seen.recovered = std::move(*parsed);
  return base::ok();
}

base::Status ask_server(Tool& tool, const ServerId& server, base::Duration timeout, Seen& seen) {
  const model::QuorumReportRequest request{seen.view.partition};
  auto answer = tool.ask(server, "quorum.report", wire::encode(request), timeout);
  auto reply = answer ? wire::decode<model::QuorumReportReply>(*answer)
                      : base::Result<model::QuorumReportReply>(fail(answer.error()));
  if (!reply) {
    seen.view.silent.insert(server);
    seen.away[server] = "registered, and does not answer: " + reply.error().text;
    return base::ok();
  }
  if (reply->cluster != seen.view.cluster) return fail(Code::identity, server.name + " is a server of another cluster");
  if (reply->copies.empty()) seen.away[server] = "runs, and has no copy";
  for (auto& copy : reply->copies) seen.view.copies.push_back(std::move(copy));
  return base::ok();
}

base::Status ask_servers(Tool& tool, base::Duration timeout, Seen& seen) {
  TRY_ASSIGN(const auto nodes, tool.nodes());
  std::set<ServerId> servers;
  for (const auto* list : {&seen.view.government.voters, &seen.view.assigned})
    for (const auto& v : *list) servers.insert(v.server);
  for (const auto& server : servers) {
    const auto it = nodes.find(server);
    if (it != nodes.end() && it->second.live()) {
      TRY(ask_server(tool, server, timeout, seen));
    } else {
      seen.away[server] =
          it != nodes.end() && it->second.info && it->second.info->dead ? "down, marked dead" : "down: not registered";
    }
  }
  return base::ok();
}

base::Status add_reports(const std::vector<std::string>& files, Seen& seen) {
  for (const auto& file : files) {
    TRY_ASSIGN(const auto text, read_text(file, coord::kReportsTextMax));
    auto reports = coord::parse_reports(text);
    if (!reports) return fail(std::move(reports).error().wrap(file));
    for (auto& r : *reports) {
      if (r.partition != seen.view.partition || r.table != seen.view.table_uuid) continue;
      // What a server says itself is newer than what once lay in its directory.
      const bool known = std::any_of(seen.view.copies.begin(), seen.view.copies.end(), [&](const model::CopyReport& c) {
        return c.assignment == r.assignment && c.state != "aside";
      });
      if (!known) seen.view.copies.push_back(std::move(r));
    }
  }
  return base::ok();
}

base::Result<Seen> see(Tool& tool, const std::string& table, const std::string& partition,
                       const std::vector<std::string>& reports, base::Duration timeout) {
  Seen seen;
  TRY_ASSIGN(const auto format, tool.cluster());
  TRY_ASSIGN(const auto map, tool.map(table, timeout));
  TRY_ASSIGN(const auto* p, find_partition(*map, partition));
  seen.view = proto::view_of(*map, *p);
  seen.view.cluster = format.cluster;
  seen.distribution = coord::distribution(map->keyspace, map->name);
  TRY(see_government(tool, seen));
  TRY(ask_servers(tool, timeout, seen));
  TRY(add_reports(reports, seen));
  return seen;
}

// --- show ------------------------------------------------------------------------------------------

std::string place_text(const model::LogPoint& p) { return to_string(p.epoch) + "-" + to_string(p.lsn); }

std::string role_of(const proto::CopyState& c) { return c.voter ? "votes" : c.assigned ? "assigned" : "old tenure"; }

std::string standing(const proto::RecoveryState& state, const model::Government& government) {
  const auto count = std::to_string(government.voters.size());
  return std::to_string(state.able) + " of " + count + " voters can elect; a majority is " +
         std::to_string(state.needed) +
         (state.majority() ? "." : ": nobody can lead. If the others never come back: zkctl quorum recover plan.");
}

std::string recovered_words(const model::Recovered& r) {
  return "Recovered with epoch " + to_string(r.epoch) + " by " + r.by + " at " + std::to_string(r.at_ms) +
         " ms, plan " + to_string(r.plan) + "; loss: " + std::string(coord::loss_name(r.loss.kind)) + ", behind LSN " +
         to_string(r.loss.end.lsn) + ".";
}

void show_json(const Seen& seen, const proto::RecoveryState& state) {
  daemon::Json j;
  const auto& g = seen.view.government;
  j.object()
      .member("table", seen.view.table)
      .member("partition", to_string(seen.view.partition))
      .member("region", seen.view.region.value)
      .member("epoch", g.epoch.value)
      .member("government_version", seen.view.version)
      .member("leader", leader_of(g))
      .member("able", state.able)
      .member("needed", state.needed)
      .member("majority", state.majority());
  j.key("copies").array();
  for (const auto& c : state.copies)
    j.object()
        .member("server", c.report.server.name)
        .member("assignment", to_string(c.report.assignment))
        .member("state", c.report.state)
        .member("voter", c.voter)
        .member("assigned", c.assigned)
        .member("able", c.able)
        .member("best", c.best)
        .member("epoch", c.report.end.epoch.value)
        .member("lsn", c.report.end.lsn.value)
        .member("commit", c.report.commit.value)
        .member("promised", c.report.promised.value)
        .member("whole", c.report.whole)
        .end();
  j.end().key("missing").array();
  for (const auto& s : state.missing) j.text(s.name);
  j.end().key("recovered");
  if (seen.recovered)
    j.object()
        .member("plan", to_string(seen.recovered->plan))
        .member("epoch", seen.recovered->epoch.value)
        .member("loss", coord::loss_name(seen.recovered->loss.kind))
        .member("lsn", seen.recovered->loss.end.lsn.value)
        .member("at_ms", seen.recovered->at_ms)
        .member("by", seen.recovered->by)
        .end();
  else
    j.null();
  daemon::print_line(j.end().str());
}

void show_table(Tool& tool, const Seen& seen, const proto::RecoveryState& state) {
  const bool people = tool.format() == daemon::Format::table;
  const auto& g = seen.view.government;
  if (people)
    daemon::print_line("partition " + to_string(seen.view.partition) + "  region " + to_string(seen.view.region) +
                       "  epoch " + to_string(g.epoch) + "  leader " + (leader_of(g).empty() ? "none" : leader_of(g)));
  {
    daemon::Printer out(tool.format(), {"server", "state", "counts", "log_end", "commit", "promised", "note"});
    for (const auto& c : state.copies)
      out.row({c.report.server.name, c.report.state, role_of(c), place_text(c.report.end), c.report.commit.value,
               c.report.promised.value,
               !c.report.whole ? "damaged"
               : c.best        ? "the best log"
                               : ""});
    for (const auto& server : state.missing) {
      const auto why = seen.away.find(server);
      out.row({server.name, "missing", "", daemon::Missing{}, daemon::Missing{}, daemon::Missing{},
               why == seen.away.end() ? "" : why->second});
    }
  }
  if (!people) return;
  daemon::print_line(standing(state, g));
  if (seen.recovered) daemon::print_line(recovered_words(*seen.recovered));
}

}  // namespace

base::Result<int> quorum_show(Tool& tool, const QuorumShowFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto seen, see(tool, flags.table, flags.partition, flags.reports, timeout));
  const auto state = proto::assess(seen.view);
  if (tool.format() == daemon::Format::json)
    show_json(seen, state);
  else
    show_table(tool, seen, state);
  return state.majority() ? daemon::kExitDone : daemon::kExitFindings;
}

// --- plan ------------------------------------------------------------------------------------------

base::Result<int> recover_plan(Tool& tool, const RecoverPlanFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto stay, parse_servers(flags.stay));
  TRY_ASSIGN(const auto seen, see(tool, flags.table, flags.partition, flags.reports, timeout));
  TRY_ASSIGN(const auto plan, proto::plan_recovery(seen.view, stay, model::AttemptId::draw(tool.random())));
  const auto sentences = proto::in_words(plan);
  auto text = coord::recovery_plan_text(plan);
  if (tool.format() == daemon::Format::json) {
    daemon::Json j;
    j.object().member("plan", to_string(plan.id)).member("loss", coord::loss_name(plan.loss.kind));
    j.member("lsn", plan.loss.end.lsn.value).member("epoch", plan.epoch.value).key("says").array();
    for (const auto& s : sentences) j.text(s);
    daemon::print_line(j.end().member("text", text).end().str());
    return daemon::kExitDone;
  }
  for (const auto& s : sentences) text += "# " + s + "\n";
  text += "# zkctl quorum recover apply FILE" +
          std::string(plan.loss.kind == model::LossKind::none ? "" : " --accept-loss") +
          "; there is no way back: what is lost then is lost.";
  daemon::print_line(text);
  for (const auto& s : sentences) std::cerr << s << "\n";
  return daemon::kExitDone;
}

// --- apply -----------------------------------------------------------------------------------------

namespace {

std::string who() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + ":" + std::to_string(::getpid());
}

base::Status write_government(Tool& tool, const model::RecoveryPlan& plan, const Seen& seen) {
  const model::Recovered note{plan.id, plan.epoch, plan.voters, plan.loss, static_cast<uint64_t>(tool.loop().wall_ms()),
                              who()};
  const auto path = tool.at().recovered(seen.distribution, plan.region);
  const auto text = coord::recovered_text(note);
  std::vector<coord::Op> ops;
  if (seen.recovered_version == coord::kAnyVersion)
    ops.emplace_back(coord::OpCreate{path, text});
  else
    ops.emplace_back(coord::OpSet{path, text, seen.recovered_version});
  ops.emplace_back(coord::OpSet{tool.at().government(seen.distribution, plan.region),
                                coord::government_text(proto::government_of(plan)), plan.version});
  ops.emplace_back(coord::OpCreate{tool.at().ring_prefix(seen.distribution), coord::ring_line(plan.region),
                                   coord::CreateMode::persistent_sequential});
  TRY_ASSIGN(auto* session, tool.coord());
  auto done = session->settled_multi(std::move(ops), 0);
  if (done) return base::ok();
  auto error = std::move(done).error();
  if (error.code == Code::conflict || error.code == Code::exists || error.code == Code::not_found)
    return fail(Code::conflict,
                "the government has changed since the plan was made: make a new plan (nothing was "
                "changed)");
  return fail(std::move(error));
}

// Behind the swap: until a leader of the new lineage serves.
base::Result<Seen> wait_for_leader(Tool& tool, const model::RecoveryPlan& plan, base::Duration timeout) {
  TRY_ASSIGN(auto* session, tool.coord());
  const auto until = tool.loop().refresh_now() + timeout;
  for (;;) {
    TRY_ASSIGN(auto seen, see(tool, plan.table, to_string(plan.partition), {}, std::chrono::seconds(3)));
    switch (proto::recovery_verdict(plan, seen.view.government, seen.view.copies)) {
      case proto::RecoveryVerdict::serving: return seen;
      case proto::RecoveryVerdict::elsewhere:
        return fail(Code::faulted, "the log of the leader does not go on where the plan said (zkctl quorum show)");
      case proto::RecoveryVerdict::waiting: break;
    }
    if (tool.loop().refresh_now() >= until)
      return fail(Code::no_quorum, "the government is written, and no leader serves yet: look at zkctl explain " +
                                       to_string(plan.partition) + ", and run this again, which only waits then");
    session->wait(kLookEvery, [] { return false; });
  }
}

int print_recovered(Tool& tool, const model::RecoveryPlan& plan, const Seen& seen, bool before) {
  const auto leader = leader_of(seen.view.government);
  daemon::print_object(tool.format(), {{"plan", to_string(plan.id)},
                                       {"applied", before ? "before" : "now"},
                                       {"epoch", seen.view.government.epoch.value},
                                       {"leader", leader},
                                       {"voters", seen.view.government.voters.size()},
                                       {"loss", std::string(coord::loss_name(plan.loss.kind))}});
  if (!plan.gone.empty())
    std::cerr << "next: give the replicas of " << join(plan.gone, ", ")
              << " new homes (zkctl node dead, zkctl node replace), for until then "
              << (plan.voters.size() == 1 ? "one server alone has" : "too few servers have") << " this partition\n";
  return daemon::kExitDone;
}

}  // namespace

base::Result<int> recover_apply(Tool& tool, const RecoverApplyFlags& flags) {
  TRY_ASSIGN(const auto timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(const auto text, read_text(flags.file, coord::kRecoveryPlanMax));
  TRY_ASSIGN(const auto plan, coord::parse_recovery_plan(text));
  TRY_ASSIGN(const auto seen, see(tool, plan.table, to_string(plan.partition), {}, std::chrono::seconds(5)));
  if (seen.view.cluster != plan.cluster || seen.view.table_uuid != plan.table_uuid)
    return fail(Code::conflict, "the plan is of another cluster, or of a table that was dropped");
  const bool before = seen.recovered && seen.recovered->plan == plan.id;
  if (!before) {
    TRY(proto::still_holds(plan, seen.view));
    for (const auto& s : proto::in_words(plan)) std::cerr << s << "\n";
    if (plan.loss.kind != model::LossKind::none && !flags.accept_loss)
      return fail(daemon::unsafe("the plan loses what the others acknowledged behind LSN " +
                                     to_string(plan.loss.end.lsn) + " (" +
                                     std::string(coord::loss_name(plan.loss.kind)) + ")",
                                 "--accept-loss"));
    TRY(write_government(tool, plan, seen));
  }
  TRY_ASSIGN(const auto now, wait_for_leader(tool, plan, timeout));
  return print_recovered(tool, plan, now, before);
}

}  // namespace cantle::zkctl

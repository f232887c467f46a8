#include "cmd/splitter/moves.h"

#include <algorithm>
#include <cstdio>

#include "lib/base/random.h"
#include "lib/daemon/duration.h"

namespace cantle::splitter {

using base::Code;
using model::ServerId;

namespace {
constexpr base::Duration kLookAgain = std::chrono::milliseconds(200);
}  // namespace

std::vector<Move> moves_to(const model::Partition& partition, const std::vector<ServerId>& servers) {
  std::vector<ServerId> missing;
  for (const auto& server : servers)
    if (model::find_assignment(partition, server) == nullptr) missing.push_back(server);
  std::vector<Move> moves;
  const auto pair = [&](const model::Assignment& a, std::vector<ServerId>::iterator to) {
    moves.push_back({a.server, *to});
    missing.erase(to);
  };
  std::vector<const model::Assignment*> rest;
  for (const auto& a : partition.assignments) {
    if (std::find(servers.begin(), servers.end(), a.server) != servers.end()) continue;
    const auto own =
        a.slot < servers.size() ? std::find(missing.begin(), missing.end(), servers[a.slot]) : missing.end();
    if (own != missing.end())
      pair(a, own);
    else
      rest.push_back(&a);
  }
  for (const auto* a : rest)
    if (!missing.empty()) pair(*a, missing.begin());
  return moves;
}

std::string to_string(const std::vector<Move>& moves) {
  std::string text;
  for (const auto& m : moves) text += (text.empty() ? "" : ", ") + m.from.name + " -> " + m.to.name;
  return text;
}

base::Status check_moves(Cluster& cluster, const std::vector<Move>& moves) {
  TRY_ASSIGN(const auto live, cluster.live());
  for (const auto& m : moves) {
    if (!live.contains(m.to))
      return base::fail(Code::conflict,
                        m.to.name + " is not there (no partition server is registered under that name)");
    TRY_ASSIGN(const auto info, cluster.info(m.to));
    if (info.dead || info.drain)
      return base::fail(Code::conflict, m.to.name + " is marked " + (info.dead ? "dead" : "to be drained"));
  }
  return base::ok();
}

base::Result<Driven> move_replicas(Cluster& cluster, const std::string& table, const model::PartitionId& partition,
                                   const std::vector<ServerId>& servers, const FollowFlags& flags) {
  Driven all{DriveEnd::done, "", 0};
  base::SystemRandom random;
  base::Duration limit{0};
  if (!flags.timeout.empty()) {
    TRY_ASSIGN(limit, daemon::parse_duration(flags.timeout));
  }
  const auto until = cluster.loop().refresh_now() + limit;
  for (;;) {
    TRY_ASSIGN(const auto map, cluster.map(table));
    const auto* p = map->find(partition);
    if (p == nullptr) return base::fail(Code::conflict, "the partition is not there any more");
    const auto moves = moves_to(*p, servers);
    if (moves.empty()) return all;
    const bool late = !flags.timeout.empty() && cluster.loop().refresh_now() >= until;
    if (late || cluster.interrupted()) return Driven{late ? DriveEnd::timed_out : DriveEnd::detached, "", all.seconds};
    if (model::being_filled(*p)) {  // a child that a server has not proved yet
      cluster.loop().run_for(kLookAgain, [&] { return cluster.interrupted(); });
      continue;
    }
    const auto& move = moves.front();
    const auto replace = model::draw_replace(*p, *model::find_assignment(*p, move.from), move.to, false, random);
    client::ChangeSpec spec;
    spec.table = table;
    spec.operations = {replace};
    const auto begun = commit(cluster, spec, kChangeTimeout);
    if (!begun)
      return base::fail(
          base::Error(begun.error()).wrap("moving a replica from " + move.from.name + " to " + move.to.name));
    std::fprintf(stderr, "moving the replica on %s to %s, attempt %s\n", move.from.name.c_str(), move.to.name.c_str(),
                 to_string(replace.attempt).c_str());
    const auto left = std::max<int64_t>(0, base::to_ms(until - cluster.loop().refresh_now()));
    const auto timeout = flags.timeout.empty() ? std::string() : std::to_string(left) + "ms";
    TRY_ASSIGN(auto driven,
               drive(cluster, table, proto::OpKind::replace, replace.attempt, {true, false, flags.progress, timeout}));
    all.seconds += driven.seconds;
    if (driven.end != DriveEnd::done) return Driven{driven.end, driven.reason, all.seconds};
  }
}

}  // namespace cantle::splitter

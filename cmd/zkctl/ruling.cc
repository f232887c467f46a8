#include "cmd/zkctl/ruling.h"

namespace cantle::zkctl {

using base::Code;

namespace {

std::vector<model::ServerId> servers_of(const model::Voters& voters) {
  std::vector<model::ServerId> out;
  for (const auto& v : voters) out.push_back(v.server);
  return out;
}

// What goes while it is looked at is left out, and so is what is no vote: fsck says that.
std::vector<model::Vote> read_votes(coord::SyncSession& session, const std::string& quorums) {
  std::vector<model::Vote> votes;
  const auto values = values_under(session, quorums);
  if (!values) return votes;
  for (const auto& [name, text] : *values)
    if (auto vote = coord::parse_vote(text)) votes.push_back(std::move(*vote));
  return votes;
}

}  // namespace

Ruling read_ruling(coord::SyncSession& session, const coord::Layout& at, const std::string& d, model::Region region) {
  Ruling out;
  if (const auto node = session.get(at.government(d, region)); !node) {
    out.damage = node.error().code == Code::not_found ? "there is none" : node.error().text;
  } else if (auto parsed = coord::parse_government(node->value); !parsed) {
    out.damage = parsed.error().text;
  } else {
    out.government = std::move(*parsed);
  }
  out.votes = read_votes(session, at.quorums(d, region));
  return out;
}

std::string leader_of(const model::Government& g) {
  const auto* leader = g.leader.none() ? nullptr : model::find_voter(g.voters, g.leader);
  return leader ? leader->server.name : "";
}

std::string in_a_line(const Ruling& ruling) {
  std::string line = "government  ";
  if (const auto& g = ruling.government)
    line += "epoch " + to_string(g->epoch) + "  leader " + (g->leader.none() ? "none" : leader_of(*g)) + "  voters " +
            join(servers_of(g->voters), " ");
  else
    line += "damaged: " + ruling.damage;
  if (!ruling.votes.empty()) line += "  votes " + std::to_string(ruling.votes.size());
  return line;
}

std::vector<std::string> in_words(const Ruling& ruling) {
  std::vector<std::string> out;
  if (const auto& g = ruling.government)
    out.push_back("Its government is that of epoch " + to_string(g->epoch) + ": " +
                  (g->leader.none() ? "nobody leads" : leader_of(*g) + " leads") + "; " +
                  join(servers_of(g->voters), ", ") + (g->voters.size() == 1 ? " votes." : " vote."));
  else
    out.push_back("Its government cannot be read: " + ruling.damage + " (zkctl fsck).");
  if (ruling.government && ruling.government->cut)
    out.push_back("  Its log ends in the cut of attempt " + to_string(ruling.government->cut->attempt) + ", at LSN " +
                  to_string(ruling.government->cut->at.lsn) +
                  ": writes and linearizable reads wait until the split or merge is finished or aborted.");
  for (const auto& v : ruling.votes)
    out.push_back("  " + v.server.name + " has voted: it obeys nothing below epoch " + to_string(v.promise) +
                  ", its log ends at LSN " + to_string(v.token.lsn) + " of epoch " + to_string(v.token.epoch) +
                  (v.can_lead ? ", and it can lead." : ", and it cannot lead."));
  return out;
}

void add_json(daemon::Json& j, const Ruling& ruling) {
  j.key("government");
  if (const auto& g = ruling.government) {
    j.object().member("epoch", g->epoch.value).key("leader");
    g->leader.none() ? j.null() : j.text(leader_of(*g));
    j.key("voters").array();
    for (const auto& v : g->voters)
      j.object()
          .member("slot", v.slot)
          .member("server", v.server.name)
          .member("assignment", to_string(v.assignment))
          .end();
    j.end().member("writer", g->writer).end();
  } else {
    j.null();
  }
  j.key("votes").array();
  for (const auto& v : ruling.votes)
    j.object()
        .member("server", v.server.name)
        .member("promise", v.promise.value)
        .member("token", coord::token_text(v.token))
        .member("can_lead", v.can_lead)
        .end();
  j.end();
}

}  // namespace cantle::zkctl

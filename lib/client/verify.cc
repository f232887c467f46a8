#include "lib/client/verify.h"

#include <algorithm>

#include "lib/client/await.h"
#include "lib/wire/codec.h"

namespace cantle::client {

namespace {

constexpr base::Duration kRoundMin = std::chrono::milliseconds(50);   // between two rounds, growing …
constexpr base::Duration kRoundMax = std::chrono::milliseconds(500);  // … up to here

using Hashes = std::map<model::ServerId, base::Result<model::HashReply>>;

// All servers at once; every one has an answer at the end, if only that there was none in time.
Hashes ask_all(Client& client, const std::string& table, const std::vector<model::ServerId>& servers,
               base::Duration timeout, const Silent& silent) {
  auto answers = std::make_shared<Hashes>();
  model::HashRequest request;
  request.table = table;
  request.deadline_ms = static_cast<uint32_t>(std::min<int64_t>(base::to_ms(timeout), model::kDeadlineMaxMs));
  const std::string params = wire::encode(request);
  for (const auto& server : servers)
    client.call(server, "hash", params, timeout, [answers, server](base::Result<std::string_view> result) {
      answers->insert_or_assign(server, result ? wire::decode<model::HashReply>(*result)
                                               : base::Result<model::HashReply>(base::fail(result.error())));
    });
  const auto complete = [&] { return answers->size() == servers.size(); };
  const auto first = std::min(timeout, kSilentAfter);
  if (!client.loop().run_for(first, complete) && silent) {
    std::vector<model::ServerId> who;
    for (const auto& server : servers)
      if (!answers->contains(server)) who.push_back(server);
    silent(who);
  }
  client.loop().run_for(timeout - first + kAnswerGrace, complete);
  for (const auto& server : servers)
    answers->try_emplace(server, base::fail(base::Code::unavailable, "no answer in time"));
  return *answers;
}

base::Result<model::HashPartition> held_by(const Hashes& hashes, const model::Partition& partition,
                                           const model::Assignment& a) {
  const auto& reply = hashes.at(a.server);
  if (!reply) return base::fail(reply.error());
  for (const auto& held : reply->partitions)
    if (held.id == partition.id && held.assignment == a.id) return held;
  return base::fail(base::Code::not_found, "does not hold the partition yet");
}

// What it holds can be held against what others hold. One that is being filled, or catches up, has part of it.
bool comparable(const ReplicaHash& r) { return r.held && r.held->serving && answers_reads(r.assignment.state); }

bool same(const model::HashPartition& a, const model::HashPartition& b) {
  return a.hash == b.hash && a.records == b.records && a.tombstones == b.tombstones;
}

}  // namespace

namespace {

bool of_quorum(const ReplicaHash& r) { return r.held && r.held->leads.has_value(); }
// Of one log that all have: at different places in it they may well differ.
bool elsewhere(const ReplicaHash& a, const ReplicaHash& b) {
  return of_quorum(a) && of_quorum(b) && a.held->applied != b.held->applied;
}

}  // namespace

bool PartitionReplicas::agree() const {
  if (replicas.empty()) return false;
  // Without a leader's answer there may be more that is committed than any of them knows.
  const bool led = std::any_of(replicas.begin(), replicas.end(),
                               [](const ReplicaHash& r) { return of_quorum(r) && *r.held->leads; });
  if (of_quorum(replicas.front()) && !led) return false;
  return std::all_of(replicas.begin(), replicas.end(), [&](const ReplicaHash& r) {
    const auto& first = replicas.front().held;
    return r.held && first && same(*r.held, *first);
  });
}

bool PartitionReplicas::differ() const {
  const ReplicaHash* first = nullptr;
  for (const auto& r : replicas) {
    const bool has_it_not = !r.held && r.held.error().code == base::Code::not_found;
    if (has_it_not && r.assignment.state == model::AssignmentState::available) return true;
    if (!comparable(r)) continue;
    if (first && elsewhere(r, *first)) continue;
    if (first && !same(*r.held, *first->held)) return true;
    if (!first) first = &r;
  }
  return false;
}

uint64_t PartitionReplicas::records() const {
  for (const auto& r : replicas)
    if (comparable(r)) return r.held->records;
  return 0;
}

base::Result<std::vector<PartitionReplicas>> compare_replicas(Client& client, const std::string& table,
                                                              base::Duration timeout, const Silent& silent) {
  TRY_ASSIGN(const MapPtr map, await<MapPtr>(client.loop(), timeout,
                                             [&](Done<MapPtr> done) { client.with_map(table, {}, std::move(done)); }));
  std::vector<model::ServerId> servers;
  for (const auto& partition : map->partitions)
    for (const auto& a : partition.assignments) servers.push_back(a.server);
  std::sort(servers.begin(), servers.end());
  servers.erase(std::unique(servers.begin(), servers.end()), servers.end());

  const auto hashes = ask_all(client, table, servers, timeout, silent);
  std::vector<PartitionReplicas> result;
  model::TxnSeq newest = map->txnseq;
  for (const auto& [server, reply] : hashes)
    if (reply) newest = std::max(newest, reply->txnseq);
  for (const auto& partition : map->partitions) {
    PartitionReplicas replicas{
        .id = partition.id, .region = partition.region, .interval = partition.interval, .replicas = {}};
    for (const auto& a : partition.assignments)
      replicas.replicas.push_back({.assignment = a, .held = held_by(hashes, partition, a)});
    result.push_back(std::move(replicas));
  }
  // A server that acts on a newer map answers for other partitions: look for that map before the next round.
  if (newest > map->txnseq) client.with_map(table, newest, [](const base::Result<MapPtr>&) {});
  return result;
}

base::Result<std::vector<PartitionReplicas>> wait_for_replicas(Client& client, const std::string& table,
                                                               const ReplicaWait& wait) {
  auto& loop = client.loop();
  const auto deadline = loop.refresh_now() + wait.limit;
  base::Duration pause = kRoundMin;
  while (true) {
    const auto left = std::max(deadline - loop.refresh_now(), base::Duration(std::chrono::seconds(1)));
    TRY_ASSIGN(auto round,
               compare_replicas(client, table, std::min(left, base::Duration(std::chrono::seconds(30))), wait.silent));
    const bool done = std::all_of(round.begin(), round.end(), [](const PartitionReplicas& p) { return p.agree(); });
    if (done || loop.refresh_now() + pause >= deadline) return round;
    if (wait.waiting) wait.waiting(round);
    client.servers().refresh([] {});
    loop.run_for(pause, [] { return false; });
    pause = std::min(pause * 2, kRoundMax);
  }
}

std::string disagreement(const PartitionReplicas& partition) {
  std::string text = "partition " + to_string(partition.region) + " " + to_string(partition.interval) + ":";
  for (const auto& r : partition.replicas) {
    text += " " + r.assignment.server.name;
    if (r.held)
      text += " has " + std::to_string(r.held->records) + " records, " + std::to_string(r.held->tombstones) +
              " tombstones, hash " + base::to_hex(r.held->hash).substr(0, 12) + ";";
    else
      text += ": " + to_string(r.held.error()) + ";";
  }
  if (text.ends_with(';')) text.pop_back();
  return text;
}

std::string not_compared(const PartitionReplicas& partition, const Servers& servers) {
  std::string text;
  const ReplicaHash* leader = nullptr;
  for (const auto& r : partition.replicas)
    if (of_quorum(r) && *r.held->leads) leader = &r;
  for (const auto& r : partition.replicas) {
    if (comparable(r) && leader != nullptr && elsewhere(r, *leader)) {
      text += (text.empty() ? "" : "; ") + r.assignment.server.name + ": it is at LSN " + to_string(r.held->applied) +
              ", the leader at " + to_string(leader->held->applied);
      continue;
    }
    if (comparable(r)) continue;
    const auto* entry = servers.find(r.assignment.server);
    std::string why = "it catches up";
    if (!r.held && (!entry || !entry->live))
      why = "it is down";
    else if (!r.held)
      why = to_string(r.held.error());
    else if (!answers_reads(r.assignment.state))
      why = "it is being filled";
    text += (text.empty() ? "" : "; ") + r.assignment.server.name + ": " + why;
  }
  if (text.empty() && leader == nullptr && !partition.replicas.empty() && of_quorum(partition.replicas.front()))
    text = "none of them leads";
  return text;
}

void Expected::add(const Entry& entry) {
  if (entry.deleted)
    keys_.erase(entry.key);
  else
    keys_[entry.key] = {.hash = base::hash128(entry.value), .line = entry.line, .seen = false};
}

std::optional<Expected::Difference> Expected::check(const std::string& key, std::string_view value) {
  const auto it = keys_.find(key);
  if (it == keys_.end()) return Difference{.kind = Difference::Kind::extra, .key = key};
  it->second.seen = true;
  if (it->second.hash == base::hash128(value)) return std::nullopt;
  return Difference{.kind = Difference::Kind::value, .key = key, .line = it->second.line};
}

std::vector<Expected::Difference> Expected::missing() const {
  std::vector<Difference> list;
  for (const auto& [key, value] : keys_)
    if (!value.seen) list.push_back({.kind = Difference::Kind::missing, .key = key, .line = value.line});
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  return list;
}

}  // namespace cantle::client

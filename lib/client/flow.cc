#include "lib/client/flow.h"

#include <algorithm>

#include "lib/io/loop.h"

namespace cantle::client {

using base::Code;

Flow::Flow(Client& client, std::string table, Purpose purpose, base::Duration timeout)
    : client_(client),
      table_(std::move(table)),
      purpose_(purpose),
      attempts_({.deadline = timeout.count() > 0 ? timeout : client.options_.retry.deadline,
                 .repeat_unknown = client.options_.retry.repeat_unknown},
                client.loop_.now()) {
  if (purpose == Purpose::read) attempts_.repeatable();
}

void Flow::begin() {
  ++client_.counts_.requests;
  find_map();
}

void Flow::find_map() {
  client_.with_map(table_, at_least_, [self = shared_from_this()](base::Result<MapPtr> map) {
    if (map) return self->attempt(*map);
    self->attempt_failed({}, map.error(), 0);
  });
}

void Flow::attempt(const MapPtr& map) {
  acted_on_ = map->txnseq;
  const model::Partition* partition = locate(*map);
  if (!partition) return;
  map_ = map;
  region_ = partition->region;
  partition_ = partition->id;
  parents_ = {partition->parent};
  if (partition->made_by_merge()) parents_.push_back(partition->parent_high);
  of_quorum_ = map->replication == model::Replication::quorum;
  of_leader_ = of_quorum_ && needs_leader();
  auto order = candidates(*partition, purpose_, spread(), client_.health_, client_.loop_.now());
  if (const auto leader = client_.leaders_.find(partition_); of_leader_ && leader != client_.leaders_.end())
    std::stable_partition(order.begin(), order.end(), [&](const auto& s) { return s == leader->second; });
  const auto fresh = std::find_if(order.begin(), order.end(), [&](const auto& s) { return !tried_.contains(s); });
  if (order.empty())
    return attempt_failed({}, {Code::unavailable, "no server of the partition answers requests yet"}, 0);
  const auto server = fresh == order.end() ? order.front() : *fresh;
  tried_.insert(server);
  const auto others = std::count_if(order.begin(), order.end(), [&](const auto& s) { return !tried_.contains(s); });
  send(server, map, static_cast<size_t>(others));
}

void Flow::send(const model::ServerId& server, const MapPtr& map, size_t others) {
  ++client_.counts_.attempts;
  const auto left = std::max(attempts_.deadline() - client_.loop_.now(), base::Duration(std::chrono::milliseconds(1)));
  const auto limit = std::min(left, client_.options_.attempt);
  auto params = encode(map->txnseq, static_cast<uint32_t>(std::max<int64_t>(1, base::to_ms(limit))));
  client_.call(server, std::string(method()), std::move(params), limit + kAnswerGrace,
               [self = shared_from_this(), server, others](base::Result<std::string_view> result) {
                 if (!result) return self->attempt_failed(server, result.error(), others);
                 self->client_.health_.answered(server);
                 if (self->of_leader_) self->client_.leaders_[self->partition_] = server;
                 if (const auto read = self->succeeded(*result); !read) self->give_up(read.error());
               });
}

void Flow::attempt_failed(const model::ServerId& server, const base::Error& error, size_t others) {
  ++client_.counts_.errors[std::string(base::code_name(error.code))];
  const auto now = client_.loop_.now();
  const bool told = error.code == Code::outcome_unknown && !error.detail.empty();  // the server itself said so
  if ((error.code == Code::unavailable || error.code == Code::outcome_unknown) && !told && !server.name.empty())
    client_.health_.failed(server, now);
  if (of_leader_ && !server.name.empty()) learn_leader(server, error);
  Next next = attempts_.failed(error, now, others, client_.random_);
  if (!next.retry) return give_up(error);
  ++client_.counts_.retries;
  if (error.code == Code::stale_route && next.at_least <= acted_on_) next.at_least = acted_on_.next();
  if (next.at_least > at_least_) at_least_ = next.at_least;
  if (next.refresh && next.at_least.value == 0) {
    client_.refresh_in_background(table_);
    client_.servers_.refresh([] {});
  }
  if (!next.elsewhere) tried_.erase(server);
  if (next.delay.count() == 0) return find_map();
  tried_.clear();
  client_.after(next.delay, [self = shared_from_this()] { self->find_map(); });
}

// A token of an ancestor is one of each descendant: their logs go on from its. Where more than one split or merge came
// since the client last read here, the map tells of those that not every server has seen yet. Of two that were merged
// the larger one counts: the target's log begins behind both.
std::optional<uint64_t> Flow::session_token() const {
  if (const auto it = client_.seen_.find(partition_); it != client_.seen_.end()) return it->second;
  std::optional<uint64_t> token;
  auto line = parents_;
  for (size_t i = 0; i < line.size(); i++) {
    if (line[i].none()) continue;
    if (const auto it = client_.seen_.find(line[i]); it != client_.seen_.end()) {
      token = std::max(token.value_or(0), it->second);
      continue;
    }
    if (!map_) continue;
    if (const auto* e = model::find_parent(*map_, line[i])) line.push_back(e->id);
    for (const auto* e : model::find_merged(*map_, line[i])) line.push_back(e->id);
  }
  return token;
}

void Flow::saw_lsn(uint64_t lsn) {
  if (!of_quorum_ || lsn == 0) return;
  const auto before = session_token().value_or(0);
  client_.seen_[partition_] = std::max(before, lsn);
}

// Who does not lead names who does, if he knows.
void Flow::learn_leader(const model::ServerId& server, const base::Error& error) {
  auto& leaders = client_.leaders_;
  if (error.code == Code::not_leader && !error.detail.empty()) {
    leaders[partition_] = model::ServerId{error.detail};
    tried_.erase(leaders[partition_]);
    return;
  }
  if (error.code != Code::not_leader && error.code != Code::unavailable && error.code != Code::outcome_unknown) return;
  if (const auto it = leaders.find(partition_); it != leaders.end() && it->second == server) leaders.erase(it);
}

// What a server says of itself is not enough to act on: where it is, and who is not there.
void Flow::give_up(const base::Error& last) {
  auto error = attempts_.answer(last);
  switch (error.code) {
    case Code::unavailable:
    case Code::no_quorum:
    case Code::catching_up:
    case Code::read_only:
    case Code::outcome_unknown: error.text += place(); break;
    default: break;
  }
  failed(error);
}

std::string Flow::place() const {
  const auto* partition = map_ ? map_->partitions.get(region_) : nullptr;
  if (partition == nullptr) return "";
  std::vector<model::ServerId> servers;
  for (const auto& a : partition->assignments) servers.push_back(a.server);
  std::sort(servers.begin(), servers.end());
  std::string on, down;
  for (const auto& server : servers) {
    on += (on.empty() ? "" : ", ") + server.name;
    const auto* entry = client_.servers_.find(server);
    if (!entry || !entry->live) down += (down.empty() ? "" : ", ") + server.name;
  }
  return "; region " + to_string(region_) + " of table " + table_ + " is on " + on +
         (down.empty() ? "" : ", of which " + down + (down.find(',') == std::string::npos ? " is down" : " are down"));
}

}  // namespace cantle::client

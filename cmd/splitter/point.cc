#include "cmd/splitter/point.h"

#include <algorithm>
#include <set>
#include <utility>

#include "cmd/splitter/moves.h"
#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/model/record.h"
#include "lib/model/validate.h"
#include "lib/store/direct_reader.h"
#include "lib/wire/codec.h"

namespace cantle::splitter {

using base::Code;
using model::AssignmentState;
using model::ServerId;

namespace {

constexpr base::Duration kSampleTimeout = std::chrono::seconds(30);
constexpr uint32_t kQuantiles = 15;  // asked for; the one nearest the middle that will do is taken

std::string name_of(const model::Partition& p) {
  return "partition " + to_string(p.id).substr(0, 8) + " (region " + to_string(p.region) + ")";
}

struct Sample {
  std::vector<std::pair<std::string, uint64_t>> points;  // key, bytes below it
  std::string first, last;
  uint64_t bytes = 0, records = 0;
};

// From whoever has it: AVAILABLE ones first, then those being replaced.
base::Result<Sample> ask_servers(Cluster& cluster, const model::Metadata& map, const model::Partition& p) {
  base::Error last(Code::unavailable, "no server of it answers");
  for (const auto state : {AssignmentState::available, AssignmentState::leaving})
    for (const auto& a : p.assignments) {
      if (a.state != state) continue;
      model::SampleRequest request;
      request.table = map.name;
      request.partition = p.id;
      request.points = kQuantiles;
      request.deadline_ms = static_cast<uint32_t>(base::to_ms(kSampleTimeout));
      auto answer = cluster.call(a.server, "sample", wire::encode(request), kSampleTimeout);
      if (!answer) {
        last = base::Error(Code::unavailable, a.server.name + ": " + answer.error().text);
        continue;
      }
      TRY_ASSIGN(auto reply, wire::decode<model::SampleReply>(*answer));
      Sample sample{{}, std::move(reply.first), std::move(reply.last), reply.bytes, reply.records};
      for (auto& point : reply.points) sample.points.emplace_back(std::move(point.key), point.bytes_below);
      return sample;
    }
  return base::fail(std::move(last).wrap("sampling " + name_of(p)));
}

base::Result<std::string> edge_key(store::DirectReader& reader, const store::TenureId& id,
                                   const model::Interval& interval, bool reverse) {
  std::string key;
  store::ScanRange range;
  range.from = interval.begin;
  range.to = interval.end;
  range.reverse = reverse;
  range.records_max = 1;
  TRY(reader.scan(id, range, [&](std::string_view k, const store::Found&) {
    key = k;
    return true;
  }));
  return key;
}

base::Result<Sample> read_directory(const SplitFlags& flags, const model::Partition& p) {
  TRY_ASSIGN(auto reader, store::DirectReader::open(flags.data_dir, flags.index_dir));
  TRY(reader->refresh());
  for (const auto& a : p.assignments) {
    const store::TenureId id{p.id, a.id};
    auto tenure = reader->find(id);
    if (!tenure || !*tenure) continue;
    Sample sample;
    TRY_ASSIGN(auto keys, reader->sample(id, kQuantiles + 1));
    for (size_t i = 0; i < keys.size(); ++i) sample.points.emplace_back(std::move(keys[i]), i + 1);
    sample.bytes = sample.points.size() + 1;
    TRY_ASSIGN(sample.first, edge_key(*reader, id, p.interval, false));
    TRY_ASSIGN(sample.last, edge_key(*reader, id, p.interval, true));
    sample.records = sample.first.empty() ? 0 : sample.first == sample.last ? 1 : 2;
    return sample;
  }
  return base::fail(Code::not_found, flags.data_dir + " does not hold " + name_of(p));
}

// The quantile nearest the middle that is a point: inside the interval, and neither the first nor the last key.
base::Result<std::string> median(const model::Partition& p, const Sample& sample) {
  const std::string* best = nullptr;
  uint64_t distance = UINT64_MAX;
  for (const auto& [key, below] : sample.points) {
    if (key == sample.first || key == sample.last || key <= p.interval.begin || !p.interval.contains(key)) continue;
    const uint64_t half = sample.bytes / 2, d = below > half ? below - half : half - below;
    if (best == nullptr || d < distance) best = &key, distance = d;
  }
  if (best != nullptr) return *best;
  if (sample.first.empty())
    return base::fail(Code::invalid, name_of(p) + " is empty: there is nothing to split at; name a key with --at");
  if (sample.first == sample.last)
    return base::fail(Code::invalid,
                      name_of(p) + " has one record, " + base::escape(sample.first) + ": it cannot be split");
  return base::fail(Code::invalid,
                    name_of(p) + " cannot be split by size: nearly all of its bytes are at one end, between " +
                        base::escape(sample.first) + " and " + base::escape(sample.last) + "; name a key with --at");
}

base::Result<std::string> choose_point(Cluster& cluster, const SplitFlags& flags, const model::Metadata& map,
                                       const model::Partition& p) {
  if (flags.at.empty()) {
    auto sample = flags.data_dir.empty() ? ask_servers(cluster, map, p) : read_directory(flags, p);
    if (!sample) return base::fail(std::move(sample).error());
    return median(p, *sample);
  }
  auto key = base::unescape(flags.at);
  if (!key) return base::fail(Code::usage, "--at " + flags.at + ": " + key.error().text);
  if (key->size() > model::kKeyMax)
    return base::fail(Code::too_large, "a key has at most " + std::to_string(model::kKeyMax) + " bytes");
  if (*key <= p.interval.begin || !p.interval.contains(*key))
    return base::fail(Code::invalid, base::escape(*key) + " does not lie inside " + to_string(p.interval) +
                                         ", the interval of " + name_of(p));
  return *key;
}

base::Result<std::vector<ServerId>> servers_of(const char* side, const std::vector<std::string>& names,
                                               uint32_t replicas) {
  std::vector<ServerId> out;
  for (const auto& name : names) {
    TRY(model::validate_server_id(name));
    if (std::find(out.begin(), out.end(), ServerId{name}) != out.end())
      return base::fail(Code::usage, std::string(side) + " names " + name + " twice");
    out.push_back({name});
  }
  if (!out.empty() && out.size() != replicas)
    return base::fail(Code::usage, std::string(side) + " must name " + std::to_string(replicas) + " servers, not " +
                                       std::to_string(out.size()));
  return out;
}

// A parent's slot must be free of a replacement under way, and nothing else may be going on.
base::Status check_parent(const model::Partition& p) {
  if (p.split)
    return base::fail(Code::conflict, name_of(p) + " is being split already, attempt " + to_string(p.split->attempt) +
                                          " (splitter status)");
  if (p.merge)
    return base::fail(Code::conflict,
                      name_of(p) + " is being merged, attempt " + to_string(p.merge->attempt) + " (splitter status)");
  if (!p.moves.empty())
    return base::fail(Code::conflict, "a replica of " + name_of(p) + " is being replaced; split it when that is done");
  if (p.state != model::PartitionState::active) return base::fail(Code::conflict, name_of(p) + " is not active");
  return base::ok();
}

}  // namespace

base::Status check_servers(Cluster& cluster, const model::Metadata& map, const model::Partition& parent,
                           const model::ops::SplitPartition& split) {
  TRY_ASSIGN(const auto live, cluster.live());
  model::Racks racks;
  for (const auto& server : live) {
    auto info = cluster.info(server);
    if (info) racks[server] = info->rack;
  }
  size_t parents_live = 0;
  for (const auto& a : parent.assignments) parents_live += live.contains(a.server) ? 1 : 0;
  if (parents_live < map.replicas / 2 + 1)
    return base::fail(Code::conflict, "only " + std::to_string(parents_live) + " of " + std::to_string(map.replicas) +
                                          " servers of " + name_of(parent) + " are there: the split could not go on");
  for (const auto* child : {&split.low, &split.high})
    for (const auto& a : child->assignments) {
      if (live.contains(a.server)) {
        auto info = cluster.info(a.server);
        if (info && (info->dead || info->drain) && find_assignment(parent, a.server) == nullptr)
          return base::fail(Code::conflict, a.server.name + " is marked " + (info->dead ? "dead" : "to be drained"));
        continue;
      }
      if (find_assignment(parent, a.server) != nullptr) continue;  // it comes back with the parent, or is replaced
      return base::fail(Code::conflict,
                        a.server.name + " is not there (no partition server is registered under that name)");
    }
  model::ApplyContext context;
  base::SystemRandom random;
  context.txnid = model::TxnId::draw(random);
  context.change = model::ChangeId::draw(random);
  context.base_hash = std::string(32, '\0');
  const std::vector<model::Operation> ops{split};
  TRY_ASSIGN(const auto next, model::apply(&map, ops, context));
  return model::validate_racks(&map, next, racks);
}

namespace {

// Servers of the parent, those that are wanted in their slots.
std::vector<ServerId> in_place(const model::Partition& parent, const std::vector<ServerId>& wanted) {
  std::vector<ServerId> rest, servers;
  for (const auto& a : parent.assignments)
    if (std::find(wanted.begin(), wanted.end(), a.server) == wanted.end()) rest.push_back(a.server);
  auto next = rest.begin();
  for (const auto& server : wanted) servers.push_back(find_assignment(parent, server) != nullptr ? server : *next++);
  return servers;
}

}  // namespace

base::Result<SplitMade> make_plan(Cluster& cluster, const SplitFlags& flags) {
  TRY_ASSIGN(const auto map, cluster.map(flags.table));
  TRY_ASSIGN(const auto* parent, find_partition(*map, flags.partition));
  TRY(check_parent(*parent));
  TRY_ASSIGN(const auto low, servers_of("--low", flags.low, map->replicas));
  TRY_ASSIGN(const auto high, servers_of("--high", flags.high, map->replicas));
  TRY_ASSIGN(auto point, choose_point(cluster, flags, *map, *parent));
  base::SystemRandom random;
  SplitMade made;
  auto& plan = made.plan;
  plan.table = map->name;
  plan.table_uuid = map->table;
  plan.base = map->txnid;
  plan.base_txnseq = map->txnseq;
  plan.split = model::draw_split(*parent, std::move(point), low, high, random);
  if (map->replication == model::Replication::push) {
    TRY(check_servers(cluster, *map, *parent, plan.split));
    return made;
  }
  // What would be refused of a push table is refused before anything is begun.
  auto as_push = *map;
  as_push.replication = model::Replication::push;
  TRY(check_servers(cluster, as_push, *parent, plan.split));
  if (!moves_to(*parent, low).empty()) made.low = low;
  if (!moves_to(*parent, high).empty()) made.high = high;
  const auto here = [&](const auto& wanted) { return wanted.empty() ? wanted : in_place(*parent, wanted); };
  plan.split = model::draw_split(*parent, plan.split.point, here(low), here(high), random);
  return made;
}

}  // namespace cantle::splitter

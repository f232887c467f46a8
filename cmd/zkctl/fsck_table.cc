// fsck of one table: TableConfig, the map, its chain, its regions.
#include <algorithm>

#include "cmd/zkctl/fsck.h"
#include "cmd/zkctl/world.h"
#include "lib/coord/path.h"
#include "lib/meta/config_ops.h"
#include "lib/model/validate.h"
#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::zkctl {

using base::Code;
using model::Region;
using model::ServerId;

namespace {
constexpr size_t kChainSteps = 16;  // predecessors looked at
}

base::Status Fsck::check_table(const TableEntry& table) {
  checked_++;
  const auto& at = tool_.at();
  if (!table.config) return found(at.config(table.distribution), table.damage), base::ok();
  TRY(check_unknown(at.table(table.distribution),
                    {"config", "replication", "nameprefixqueue", "observed", "bell", "regions"}));
  TRY_ASSIGN(auto* session, tool_.coord());
  if (const auto k = session->get(at.replication(table.distribution));
      k && std::to_string(table.config->replicas) != k->value.substr(0, k->value.find('\n')))
    found(at.replication(table.distribution),
          "says " + k->value + ", TableConfig " + std::to_string(table.config->replicas));
  if (table.config->dropped) return base::ok();  // its servers are still letting go
  check_metadata_servers(table);
  const auto map = tool_.map(table.name, timeout_);
  if (!map) return found("table " + table.name, "no map: " + to_string(map.error())), base::ok();
  maps_[table.name] = *map;
  for (const auto& op : operations_of(**map)) attempts_.insert(to_string(op.attempt));
  check_map(table, **map);
  TRY(check_regions(table, **map));
  TRY(check_observed(table, **map));
  return check_chain(table);
}

// The map came with the hash that TableConfig names (MdClient checks it); now what it says.
void Fsck::check_map(const TableEntry& table, const model::Metadata& map) {
  checked_ += map.partitions.size();
  const auto where = "table " + table.name;
  if (const auto valid = model::validate(map); !valid) found(where, "invalid METADATA: " + valid.error().text);
  if (map.table != table.config->table_uuid) found(where, "METADATA is of another table, " + to_string(map.table));
  if (map.name != table.name) found(where, "METADATA calls it " + map.name);
  if (map.replicas != table.config->replicas)
    found(where, "METADATA says " + std::to_string(map.replicas) + " replicas, TableConfig " +
                     std::to_string(table.config->replicas));
  model::Racks racks;
  for (const auto& [id, node] : nodes_)
    if (node.info && !node.info->dead) racks[id] = node.info->rack;
  if (const auto apart = model::validate_racks(nullptr, map, racks); !apart) found(where, apart.error().text);
  for (const auto& p : map.partitions)
    for (const auto& a : p.assignments)
      if (const auto it = nodes_.find(a.server); it == nodes_.end() || (!it->second.info && !it->second.active))
        found(where, "region " + to_string(p.region) + " is assigned to " + a.server.name + ", which nobody knows");
}

void Fsck::check_metadata_servers(const TableEntry& table) {
  if (offline_) return;
  auto md = tool_.md();
  if (!md) return found("table " + table.name, md.error().text);
  size_t current = 0;
  for (const auto& id : table.config->metadata_servers) {
    checked_++;
    const auto status =
        client::wait_for<model::MdStatusReply>(tool_.loop(), timeout_ + std::chrono::seconds(1),
                                               [&](auto done) { (*md)->status(id, timeout_, std::move(done)); });
    if (!status) continue;  // down: status tells; what counts is the majority
    if (!status->cluster_uuid.none() && status->cluster_uuid != format_.cluster)
      found(id.name, "serves another cluster, " + to_string(status->cluster_uuid));
    for (const auto& t : status->tables) {
      if (t.table_uuid != table.config->table_uuid) continue;
      if (t.regressed)
        found(id.name, "table " + table.name +
                           ": it has seen a later transaction than the coordination service shows: " + t.alarm);
      else if (!t.alarm.empty())
        found(id.name, "table " + table.name + ": " + t.alarm);
      if (t.txnseq > table.config->metadata_txnseq && t.current)
        found(id.name, "table " + table.name + ": is at " + to_string(t.txnseq) + ", TableConfig at " +
                           to_string(table.config->metadata_txnseq));
      if (t.current) current++;
    }
  }
  if (current < model::majority(*table.config))
    found("table " + table.name, "only " + std::to_string(current) + " of its " +
                                     std::to_string(table.config->metadata_servers.size()) +
                                     " metadata servers have the current METADATA");
}

namespace {

bool is_past(coord::RegionState state) {
  return state == coord::RegionState::split || state == coord::RegionState::merged ||
         state == coord::RegionState::aborted;
}

// While METADATA names a partition that has ended, it does not say whose child that was, nor the regions of children
// that have gone meanwhile: about these it implies nothing.
coord::RegionNode implied(coord::RegionNode should, const coord::RegionNode& is) {
  if (should.state != coord::RegionState::split && should.state != coord::RegionState::merged) return should;
  should.has_parent = is.has_parent;
  should.parent = is.parent;
  if (!should.has_target) should.has_target = is.has_target, should.into = is.into;
  if (should.has_children) return should;
  should.has_children = is.has_children;
  should.left = is.left;
  should.right = is.right;
  return should;
}

std::string differs(const coord::RegionNode& is, const coord::RegionNode& should) {
  if (is.state != should.state)
    return "state is " + std::string(coord::region_state_name(is.state)) + ", METADATA says " +
           std::string(coord::region_state_name(should.state));
  if (is.partition != should.partition)
    return "partition is " + to_string(is.partition) + ", METADATA says " + to_string(should.partition);
  if (is.has_children != should.has_children || is.left != should.left || is.right != should.right ||
      is.split != should.split)
    return "its children are not those of METADATA";
  if (is.has_target != should.has_target || is.into != should.into)
    return "what it is merged into is not what METADATA says";
  return "it is not what METADATA implies";
}

}  // namespace

base::Status Fsck::check_regions(const TableEntry& table, const model::Metadata& map) {
  TRY_ASSIGN(auto* session, tool_.coord());
  const auto& at = tool_.at();
  const auto& d = table.distribution;
  if (table.config->regions_behind) return base::ok();  // said to follow, and who finishes it is known
  auto expected = meta::region_nodes(map);
  TRY_ASSIGN(const auto names, session->children_or_none(at.regions(d)));
  for (const auto& name : names) {
    checked_++;
    const Region region{static_cast<uint32_t>(std::strtoul(name.c_str(), nullptr, 10))};
    const auto path = at.regions(d) + "/" + name;
    if (to_string(region) != name) {
      found(path, "is no region number");
      continue;
    }
    const auto node = session->get(path);
    if (!node) continue;
    const auto is = coord::parse_region(node->value);
    if (!is) {
      found(path, is.error().text);
      continue;
    }
    const auto it = expected.find(region);
    if (it == expected.end()) {
      if (!is_past(is->state)) found(path, "is an orphan: METADATA has no such region");
      continue;
    }
    if (const auto should = implied(it->second, *is); *is != should) found(path, differs(*is, should));
    expected.erase(it);
    TRY(check_systems(table, map, region));
  }
  for (const auto& [region, node] : expected)
    found(at.region(d, region),
          "is missing; METADATA has the region as " + std::string(coord::region_state_name(node.state)));
  return base::ok();
}

base::Status Fsck::check_systems(const TableEntry& table, const model::Metadata& map, Region region) {
  TRY_ASSIGN(auto* session, tool_.coord());
  const auto& at = tool_.at();
  TRY(check_unknown(at.region(table.distribution, region), {"systems", "government", "quorums", "recovered"}));
  TRY(check_government(table, map, region));
  TRY_ASSIGN(const auto systems, values_under(*session, at.systems(table.distribution, region)));
  const auto* partition = map.partitions.get(region);
  for (const auto& [server, text] : systems) {
    checked_++;
    const auto path = at.system(table.distribution, region, ServerId{server});
    const auto system = coord::parse_system(text);
    if (!system) {
      found(path, system.error().text);
      continue;
    }
    // An old tenure's node stays until its copy has been proved and dropped. A current one must name its tenure.
    const auto* a = partition ? model::find_assignment(*partition, system->assignment) : nullptr;
    if (a && a->server.name != server) found(path, "names the assignment of " + a->server.name);
    if (a && a->slot != system->slot)
      found(path, "is in slot " + std::to_string(system->slot) + ", METADATA has slot " + std::to_string(a->slot));
  }
  return base::ok();
}

// A region of a quorum table got its government with itself. Its voters change only as the map says that they should:
// each is the map's of its slot, or of the two there the one that is replaced or the one that replaces it.
base::Status Fsck::check_government(const TableEntry& table, const model::Metadata& map, Region region) {
  TRY_ASSIGN(auto* session, tool_.coord());
  const auto& at = tool_.at();
  const auto path = at.government(table.distribution, region), quorums = at.quorums(table.distribution, region);
  if (map.replication == model::Replication::push) {
    for (const auto& node : {path, quorums})
      if (session->exists(node)) found(node, "is a quorum table's: a push table has no governments");
    return base::ok();
  }
  // A split's child gets its government when the split is finished; one that was aborted never does.
  const auto* p = map.partitions.get(region);
  if (p == nullptr && !session->exists(path)) return base::ok();
  checked_++;
  if (const auto there = session->exists(quorums); !there && there.error().code == Code::not_found)
    found(quorums, "is missing: nobody can vote");
  TRY(check_unknown(path, {}));
  const auto node = session->get(path);
  if (!node && node.error().code != Code::not_found) return base::fail(node.error());
  if (!node) return found(path, "is missing: nobody can lead"), base::ok();
  const auto is = coord::parse_government(node->value);  // which refuses epoch 0, and a leader that is no voter
  if (!is) return found(path, is.error().text), base::ok();
  const auto fits = [&](const model::Voter& v) {
    const auto* a = model::find_assignment(*p, v.assignment);
    return a != nullptr && a->server == v.server && a->slot == v.slot && a->state != model::AssignmentState::proposed;
  };
  if (p != nullptr && (is->voters.size() != map.replicas || !std::all_of(is->voters.begin(), is->voters.end(), fits)))
    found(path, "its voters are not those that the map names");
  return check_votes(quorums, *is);
}

base::Status Fsck::check_votes(const std::string& quorums, const model::Government& government) {
  TRY_ASSIGN(auto* session, tool_.coord());
  TRY_ASSIGN(const auto names, session->children_or_none(quorums));
  for (const auto& name : names) {
    checked_++;
    const auto path = quorums + "/" + name;
    const auto node = session->get(path);
    if (!node) continue;
    if (node->stat.ephemeral_owner == 0) found(path, "is not ephemeral: it outlives its voter");
    const auto vote = coord::parse_vote(node->value);
    if (!vote)
      found(path, vote.error().text);
    else if (coord::vote_name(vote->token, vote->server) != name)
      found(path, "is the vote of " + vote->server.name + " at " + coord::token_text(vote->token));
    else if (model::find_voter(government.voters, vote->assignment) == nullptr)
      found(path, "is the vote of one who is no voter");
  }
  return base::ok();
}

base::Status Fsck::check_observed(const TableEntry& table, const model::Metadata& map) {
  TRY_ASSIGN(auto* session, tool_.coord());
  TRY_ASSIGN(const auto values, values_under(*session, tool_.at().observed(table.distribution)));
  for (const auto& [server, text] : values) {
    checked_++;
    const auto path = tool_.at().observed(table.distribution, ServerId{server});
    const auto observed = coord::parse_observed(text);
    if (!observed)
      found(path, observed.error().text);
    else if (observed->txnseq > map.txnseq)
      found(path, "has seen transaction " + to_string(observed->txnseq) + ", the current one is " +
                      to_string(map.txnseq) + ": the coordination service went backwards");
  }
  return base::ok();
}

// Each file names its predecessor and its hash (invariant 3): follows them as far as the servers keep files.
base::Status Fsck::check_chain(const TableEntry& table) {
  if (offline_) return base::ok();
  TRY_ASSIGN(auto* servers, tool_.servers());
  const auto where = "table " + table.name;
  const auto fetch = [&](const std::string& hash) -> base::Result<std::string> {
    model::MdFetch request;
    request.table = table.name;
    request.table_uuid = table.config->table_uuid;
    request.hashes = {hash};
    for (const auto& id : table.config->metadata_servers) {
      const auto* entry = servers->find(id);
      const auto address =
          entry && entry->live ? entry->address() : base::Result<io::Address>(base::fail(Code::unavailable, ""));
      if (!address) continue;
      rpc::PeerOptions options;
      options.identity = tool_.identity();
      rpc::Peer peer(tool_.loop(), *address, options);
      const auto bytes = rpc::call_sync(tool_.loop(), peer, "md.fetch", wire::encode(request), timeout_);
      const auto reply = bytes ? wire::decode<model::MdFetchReply>(*bytes)
                               : base::Result<model::MdFetchReply>(base::fail(bytes.error()));
      if (reply && !reply->nodes.empty() && !reply->nodes.front().empty()) return reply->nodes.front();
    }
    return base::fail(Code::not_found, "nobody has it any more");
  };
  std::string hash = table.config->metadata_hash;
  model::TxnId txnid = table.config->metadata_txnid;
  model::TxnSeq seq = table.config->metadata_txnseq;
  for (size_t i = 0; i < kChainSteps && seq.value > 0; i++) {
    const auto bytes = fetch(hash);
    if (!bytes) {
      if (i == 0) found(where, "no metadata server has the current METADATA");
      return base::ok();
    }
    checked_++;
    if (std::string(wire::view(wire::hash_of_node(*bytes))) != hash)
      return found(where, "the METADATA file of transaction " + to_string(seq) + " does not have its hash"), base::ok();
    const auto head = wire::decode_root_head(*bytes);
    if (!head) return found(where, "transaction " + to_string(seq) + ": " + head.error().text), base::ok();
    if (head->txnid != txnid || head->txnseq != seq)
      return found(where,
                   "the chain breaks at transaction " + to_string(seq) + ": its file says " + to_string(head->txnseq)),
             base::ok();
    if (head->prev_hash.empty()) {
      if (seq.value != 1) found(where, "transaction " + to_string(seq) + " names no predecessor");
      return base::ok();
    }
    hash = head->prev_hash;
    txnid = head->prev_txnid;
    seq.value--;
  }
  return base::ok();
}

}  // namespace cantle::zkctl

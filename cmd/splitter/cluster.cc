#include "cmd/splitter/cluster.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <utility>

#include "lib/base/bytes.h"
#include "lib/rpc/peer.h"

namespace cantle::splitter {

using base::Code;

namespace {
constexpr base::Duration kMapTimeout = std::chrono::seconds(15);
}

base::Status Cluster::connect() {
  TRY_ASSIGN(const auto url, daemon::need_coord(flags_));
  TRY_ASSIGN(identity_.token, daemon::read_token(flags_));
  TRY_ASSIGN(coord_, coord::SyncSession::open(loop_, {.url = url, .must_exist = true}));
  const coord::Layout layout(flags_.cluster);
  auto node = coord_->get(layout.format());
  if (!node && node.error().code == Code::not_found)
    return base::fail(Code::not_found,
                      "there is no cluster " + flags_.cluster + " at " + url + " (zkctl init makes one)");
  if (!node) return base::fail(std::move(node).error());
  TRY_ASSIGN(const auto format, coord::parse_format(node->value));
  identity_.cluster = format.cluster;
  identity_.role = "splitter";
  servers_ = std::make_unique<client::CoordServers>(loop_, coord_->session(), layout);
  md_ = std::make_unique<client::MdClient>(loop_, coord_->session(), layout, *servers_, identity_);
  bool known = false;
  servers_->refresh([&] { known = true; });
  loop_.run_for(std::chrono::seconds(10), [&] { return known; });
  if (!known) return base::fail(Code::unavailable, "the coordination service does not answer");
  return base::ok();
}

const bool& Cluster::interrupted() {
  if (!interrupt_) {
    interrupt_.emplace(loop_, SIGINT, [this] { interrupted_ = true; });
    term_.emplace(loop_, SIGTERM, [this] { interrupted_ = true; });
  }
  return interrupted_;
}

base::Result<MapPtr> Cluster::map(const std::string& table) {
  TRY(model::validate_table_name(table));
  TRY_ASSIGN(auto map, client::wait_for<MapPtr>(loop_, kMapTimeout + std::chrono::seconds(1),
                                                [&](auto done) { md_->get(table, {}, kMapTimeout, done); }));
  if (map->dropped) return base::fail(Code::no_such_table, "table " + table + " was dropped");
  return map;
}

base::Result<std::vector<std::string>> Cluster::tables() {
  TRY(coord_->sync(layout().distributions()));
  TRY_ASSIGN(const auto names, coord_->children_or_none(layout().distributions()));
  std::vector<std::string> out;
  for (const auto& name : names)
    if (auto d = coord::parse_distribution(name)) out.push_back(d->table);
  return out;
}

base::Result<std::string> Cluster::distribution(const std::string& table) {
  TRY_ASSIGN(const auto names, coord_->children_or_none(layout().distributions()));
  return coord::find_distribution(names, table);
}

base::Result<std::set<model::ServerId>> Cluster::live() {
  std::set<model::ServerId> out;
  TRY_ASSIGN(const auto names, coord_->children_or_none(layout().active()));
  for (const auto& name : names) {
    auto node = coord_->get(layout().active(model::ServerId{name}));
    if (!node && node.error().code == Code::not_found) continue;
    if (!node) return base::fail(std::move(node).error());
    auto active = coord::parse_active(node->value);
    if (active && active->role == coord::Role::partd) out.insert(model::ServerId{name});
  }
  return out;
}

base::Result<std::map<model::ServerId, model::TxnSeq>> Cluster::observed(const std::string& table) {
  std::map<model::ServerId, model::TxnSeq> out;
  TRY_ASSIGN(const auto d, distribution(table));
  TRY_ASSIGN(const auto names, coord_->children_or_none(layout().observed(d)));
  for (const auto& name : names) {
    auto node = coord_->get(layout().observed(d, model::ServerId{name}));
    if (!node) continue;
    if (auto o = coord::parse_observed(node->value)) out[model::ServerId{name}] = o->txnseq;
  }
  return out;
}

base::Result<coord::NodeInfo> Cluster::info(const model::ServerId& server) {
  TRY_ASSIGN(const auto node, coord_->get(layout().info(server)));
  return coord::parse_info(node.value);
}

base::Result<std::string> Cluster::call(const model::ServerId& server, const char* method, const std::string& params,
                                        base::Duration timeout) {
  const auto* entry = servers_->find(server);
  if (entry == nullptr) return base::fail(Code::unavailable, server.name + " has never registered");
  TRY_ASSIGN(const auto address, entry->address());
  rpc::PeerOptions options;
  options.identity = identity_;
  rpc::Peer peer(loop_, address, options);
  return rpc::call_sync(loop_, peer, method, params, timeout);
}

// --- Names ---------------------------------------------------------------------------------------------

namespace {

base::Result<const model::Partition*> by_key(const model::Metadata& map, const std::string& text) {
  auto key = base::unescape(text);
  if (!key) return base::fail(Code::usage, "key '" + text + "': " + key.error().text);
  const auto* p = map.find(std::string_view(*key));
  if (p == nullptr) return base::fail(Code::not_found, "no partition holds that key");
  return p;
}

// 2, or #2 as zkctl explain writes it.
const model::Partition* by_region(const model::Metadata& map, std::string_view word) {
  if (word.starts_with('#')) word.remove_prefix(1);
  uint32_t region = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), region);
  if (error != std::errc{} || end != word.data() + word.size()) return nullptr;
  return map.partitions.get(model::Region{region});
}

}  // namespace

base::Result<const model::Partition*> find_partition(const model::Metadata& map, const std::string& word) {
  if (word.rfind("key:", 0) == 0) return by_key(map, word.substr(4));
  if (const auto* p = by_region(map, word)) return p;
  if (word.starts_with('#')) return base::fail(Code::not_found, "table " + map.name + " has no region " + word);
  if (word.size() < 4)
    return base::fail(Code::not_found,
                      "'" + word + "' is no region number of " + map.name + ", and an id needs at least four digits");
  const model::Partition* found = nullptr;
  for (const auto& p : map.partitions) {
    if (to_string(p.id).compare(0, word.size(), word) != 0) continue;
    if (found != nullptr) return base::fail(Code::usage, "'" + word + "' names more than one partition of " + map.name);
    found = &p;
  }
  if (found != nullptr) return found;
  for (const auto& e : map.ended)
    if (to_string(e.id).compare(0, word.size(), word) == 0)
      return base::fail(Code::conflict, "partition " + to_string(e.id) + " was split into " + to_string(e.low) +
                                            " and " + to_string(e.high));
  return base::fail(Code::not_found, "'" + word + "' names no partition of " + map.name);
}

namespace {

// A finished split or merge is soon swept from METADATA; the region of its parent says how it ended.
base::Result<std::optional<FoundAttempt>> past_attempt(Cluster& cluster, const model::AttemptId& attempt,
                                                       const std::string& table) {
  TRY_ASSIGN(const auto d, cluster.distribution(table));
  TRY_ASSIGN(const auto names, cluster.coord().children_or_none(cluster.layout().regions(d)));
  for (const auto& name : names) {
    const auto node = cluster.coord().get(cluster.layout().regions(d) + "/" + name);
    if (!node && node.error().code == Code::not_found) continue;
    if (!node) return base::fail(node.error());
    const auto region = coord::parse_region(node->value);
    if (!region || region->attempt != attempt) continue;
    if (region->state == coord::RegionState::split) return FoundAttempt{.table = table, .ended = true};
    if (region->state == coord::RegionState::merged)
      return FoundAttempt{.table = table, .kind = proto::OpKind::merge, .ended = true};
    if (region->state == coord::RegionState::aborted) return FoundAttempt{.table = table, .aborted = true};
  }
  return std::nullopt;
}

}  // namespace

base::Result<FoundAttempt> find_attempt(Cluster& cluster, const model::AttemptId& attempt, const std::string& table) {
  std::vector<std::string> tables{table};
  if (table.empty()) {
    TRY_ASSIGN(tables, cluster.tables());
  }
  for (const auto& name : tables) {
    auto map = cluster.map(name);
    if (!map && table.empty() && map.error().code == Code::no_such_table) continue;
    if (!map) return base::fail(std::move(map).error());
    const auto going = proto::operations_of(**map);
    if (const auto it = going.find(attempt); it != going.end() && it->second != proto::OpKind::replace)
      return FoundAttempt{.table = name, .kind = it->second};
    for (const auto& e : (*map)->ended)
      if (e.attempt == attempt)
        return FoundAttempt{
            .table = name, .kind = e.was_merged() ? proto::OpKind::merge : proto::OpKind::split, .ended = true};
  }
  for (const auto& name : tables) {
    TRY_ASSIGN(const auto past, past_attempt(cluster, attempt, name));
    if (past) return *past;
  }
  return base::fail(Code::not_found, "no table has a split or merge " + to_string(attempt) +
                                         ": it was finished or aborted more than a day ago");
}

}  // namespace cantle::splitter

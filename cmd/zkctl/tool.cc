#include "cmd/zkctl/tool.h"

#include <unistd.h>

#include <cerrno>

#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"

namespace cantle::zkctl {

using base::Code;
using base::fail;
using model::ServerId;

Tool::Tool(const daemon::GlobalFlags& flags) : flags_(flags), layout_("") {}
Tool::~Tool() = default;

base::Result<coord::SyncSession*> Tool::coord(bool must_exist) {
  if (coord_) return coord_.get();
  if (auto valid = coord::validate_cluster_name(flags_.cluster); !valid) return fail(Code::usage, valid.error().text);
  layout_ = coord::Layout(flags_.cluster);
  TRY_ASSIGN(const auto url, daemon::need_coord(flags_));
  TRY_ASSIGN(coord_, coord::SyncSession::open(loop_, {.url = url, .must_exist = must_exist}));
  return coord_.get();
}

base::Result<coord::Format> Tool::cluster() {
  if (format_) return *format_;
  TRY_ASSIGN(auto* session, coord());
  const auto node = session->get(layout_.format());
  if (!node && node.error().code == Code::not_found)
    return fail(Code::not_found,
                "there is no cluster " + flags_.cluster + " at " + flags_.coord + " (zkctl init makes one)");
  if (!node) return fail(node.error());
  TRY_ASSIGN(format_, coord::parse_format(node->value));
  return *format_;
}

base::Status Tool::connect_servers() {
  if (md_) return base::ok();
  TRY_ASSIGN(const auto format, cluster());
  TRY_ASSIGN(identity_.token, daemon::read_token(flags_));
  identity_.cluster = format.cluster;
  identity_.role = "zkctl";
  servers_ = std::make_unique<client::CoordServers>(loop_, coord_->session(), layout_);
  TRY(refresh_servers());
  md_ = std::make_unique<client::MdClient>(loop_, coord_->session(), layout_, *servers_, identity_);
  return base::ok();
}

base::Status Tool::refresh_servers() {
  const auto known = std::make_shared<bool>(false);
  servers_->refresh([known] { *known = true; });
  if (!loop_.run_for(std::chrono::seconds(10), [&] { return *known; }))
    return fail(Code::unavailable, "the coordination service does not answer");
  return base::ok();
}

base::Result<client::MdClient*> Tool::md() {
  TRY(connect_servers());
  return md_.get();
}

base::Result<client::Servers*> Tool::servers() {
  TRY(connect_servers());
  return servers_.get();
}

namespace {

TableEntry read_table(coord::SyncSession& session, const coord::Layout& at, const std::string& d) {
  TableEntry entry;
  entry.distribution = d;
  const auto parsed = coord::parse_distribution(d);
  if (!parsed) return entry.damage = parsed.error().text, entry;
  entry.keyspace = parsed->keyspace;
  entry.name = parsed->table;
  const auto node = session.get(at.config(d));
  if (!node) return entry.damage = node.error().text, entry;
  entry.version = node->stat.version;
  auto config = model::parse_table_config(node->value);
  if (config)
    entry.config = std::move(*config);
  else
    entry.damage = config.error().text;
  return entry;
}

}  // namespace

base::Result<std::vector<TableEntry>> Tool::tables() {
  TRY(cluster());
  TRY(coord_->sync(layout_.root()));
  TRY_ASSIGN(const auto names, coord_->children_or_none(layout_.distributions()));
  std::vector<TableEntry> list;
  for (const auto& d : names) list.push_back(read_table(*coord_, layout_, d));
  return list;
}

base::Result<TableEntry> Tool::table(const std::string& name) {
  TRY_ASSIGN(auto list, tables());
  for (auto& entry : list)
    if (entry.name == name && entry.config) return std::move(entry);
  return fail(Code::no_such_table, "there is no table " + name);
}

base::Result<std::map<std::string, std::string>> values_under(coord::SyncSession& coord, const std::string& directory) {
  TRY_ASSIGN(const auto names, coord.children_or_none(directory));
  std::map<std::string, std::string> values;
  for (const auto& name : names) {
    const auto node = coord.get(directory + "/" + name);
    if (node)
      values[name] = node->value;
    else if (node.error().code != Code::not_found)
      return fail(node.error());
  }
  return values;
}

base::Result<std::map<ServerId, NodeEntry>> Tool::nodes() {
  TRY(cluster());
  TRY(coord_->sync(layout_.root()));
  std::map<ServerId, NodeEntry> list;
  const auto entry = [&](const std::string& name) -> NodeEntry& {
    auto& e = list[ServerId{name}];
    e.id = ServerId{name};
    return e;
  };
  TRY_ASSIGN(const auto active, values_under(*coord_, layout_.active()));
  for (const auto& [name, text] : active)
    if (const auto a = coord::parse_active(text)) entry(name).active = *a;
  TRY_ASSIGN(const auto infos, values_under(*coord_, layout_.infos()));
  for (const auto& [name, text] : infos)
    if (const auto i = coord::parse_info(text)) entry(name).info = *i;
  TRY_ASSIGN(const auto versions, values_under(*coord_, layout_.versions()));
  for (const auto& [name, text] : versions)
    if (const auto v = coord::parse_version(text)) entry(name).version = *v;
  return list;
}

base::Result<client::MdClient::MapPtr> Tool::map(const std::string& table, base::Duration timeout) {
  TRY_ASSIGN(auto* client, md());
  return client::wait_for<client::MdClient::MapPtr>(
      loop_, timeout + std::chrono::seconds(1), [&](auto done) { client->get(table, {}, timeout, std::move(done)); });
}

base::Result<std::vector<client::MdClient::MapPtr>> Tool::maps(base::Duration timeout) {
  std::vector<client::MdClient::MapPtr> all;
  TRY_ASSIGN(const auto list, tables());
  for (const auto& t : list) {
    if (!t.config || t.config->dropped) continue;
    TRY_ASSIGN(auto one, map(t.name, timeout));
    all.push_back(std::move(one));
  }
  return all;
}

base::Result<model::MdChangeReply> Tool::change(client::ChangeSpec spec, base::Duration timeout) {
  TRY_ASSIGN(auto* client, md());
  return client::wait_for<model::MdChangeReply>(loop_, timeout + std::chrono::seconds(1), [&](auto done) {
    client->change(std::move(spec), timeout, std::move(done));
  });
}

base::Result<std::string> Tool::ask(const ServerId& server, std::string_view method, const std::string& params,
                                    base::Duration timeout) {
  TRY(connect_servers());
  TRY(refresh_servers());  // it may have come since, or with another address
  const auto* entry = servers_->find(server);
  if (!entry || !entry->live) return fail(Code::unavailable, server.name + " is not registered");
  TRY_ASSIGN(const auto address, entry->address());
  rpc::PeerOptions options;
  options.identity = identity_;
  rpc::Peer peer(loop_, address, options);
  return rpc::call_sync(loop_, peer, method, params, timeout);
}

base::Result<model::StatusReply> Tool::status_of(const ServerId& server, const std::string& table,
                                                 base::Duration timeout) {
  model::StatusRequest request;
  request.table = table;
  TRY_ASSIGN(const auto bytes, ask(server, "status", wire::encode(request), timeout));
  return wire::decode<model::StatusReply>(bytes);
}

// --- Words -------------------------------------------------------------------------------------

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + ",") {
    if (c == ' ' || c == '\t') continue;
    if (c != ',')
      word += c;
    else if (!word.empty())
      words.push_back(std::exchange(word, ""));
  }
  return words;
}

base::Result<std::vector<ServerId>> parse_servers(const std::string& list) {
  std::vector<ServerId> servers;
  for (auto& name : split_list(list)) {
    if (auto valid = model::validate_server_id(name); !valid) return fail(Code::usage, valid.error().text);
    servers.push_back({std::move(name)});
  }
  return servers;
}

base::Result<std::string> read_value(const std::string& word) {
  if (word != "-") return word;
  std::string all;
  char buffer[65536];
  for (ssize_t n; (n = ::read(STDIN_FILENO, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(base::errno_error("stdin", errno));
    all.append(buffer, static_cast<size_t>(n));
    if (all.size() > coord::kValueMax)
      return fail(Code::too_large, "a znode holds at most " + std::to_string(coord::kValueMax) + " bytes");
  }
  return all;
}

std::string_view name_of(model::PartitionState state) { return coord::region_state_name(coord::region_state(state)); }

std::string_view name_of(model::AssignmentState state) {
  switch (state) {
    case model::AssignmentState::proposed: return "proposed";
    case model::AssignmentState::initializing: return "initializing";
    case model::AssignmentState::available: return "available";
    case model::AssignmentState::leaving: return "leaving";
  }
  return "?";
}

std::string join(const std::vector<ServerId>& ids, std::string_view separator) {
  std::string text;
  for (const auto& id : ids) text.append(text.empty() ? "" : separator).append(id.name);
  return text;
}

}  // namespace cantle::zkctl

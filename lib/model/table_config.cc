#include "lib/model/table_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "lib/base/bytes.h"

namespace cantle::model {
namespace {

constexpr std::string_view kOptionPrefix = "option.";
constexpr size_t kConfigMax = 100000;  // bytes
constexpr size_t kMembersMax = 99;

base::Result<uint64_t> parse_number(std::string_view text) {
  uint64_t n = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
  if (r.ec != std::errc{} || r.ptr != text.data() + text.size() || text.empty())
    return base::fail(base::Code::invalid, "not a number: " + std::string(text));
  return n;
}

base::Status parse_servers(std::string_view text, std::vector<ServerId>* out) {
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const auto name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name.empty()) continue;
    TRY(validate_server_id(name));
    if (!seen.insert(name).second) return base::fail(base::Code::invalid, std::string(name) + " is listed twice");
    out->push_back({std::string(name)});
  }
  if (out->empty() || out->size() > kMembersMax)
    return base::fail(base::Code::invalid, "a table has 1 to " + std::to_string(kMembersMax) + " metadata servers");
  return base::ok();
}

base::Status set_field(TableConfig& c, std::string_view key, std::string_view value, bool* known) {
  *known = true;
  if (key == "table_uuid") {
    TRY_ASSIGN(c.table_uuid, parse_id<TableUuid>(value));
  } else if (key == "keyspace") {
    if (value != "range" && value != "hash") return base::fail(base::Code::invalid, "neither range nor hash");
    c.keyspace = value == "hash" ? Keyspace::hash : Keyspace::range;
  } else if (key == "replication") {
    if (value != "push" && value != "quorum") return base::fail(base::Code::invalid, "neither push nor quorum");
    c.replication = value == "quorum" ? Replication::quorum : Replication::push;
  } else if (key == "replicas") {
    TRY_ASSIGN(const auto n, parse_number(value));
    if (n == 0 || n > 1000) return base::fail(base::Code::invalid, "out of range");
    c.replicas = static_cast<uint32_t>(n);
  } else if (key == "metadata_txnid") {
    TRY_ASSIGN(c.metadata_txnid, parse_id<TxnId>(value));
  } else if (key == "metadata_txnseq") {
    TRY_ASSIGN(c.metadata_txnseq.value, parse_number(value));
  } else if (key == "metadata_hash") {
    TRY_ASSIGN(c.metadata_hash, base::from_hex(value));
    if (c.metadata_hash.size() != 32) return base::fail(base::Code::invalid, "a hash has 64 digits");
  } else if (key == "metadata_servers") {
    TRY(parse_servers(value, &c.metadata_servers));
  } else if (key == "state") {
    if (value != "active" && value != "dropped") return base::fail(base::Code::invalid, "neither active nor dropped");
    c.dropped = value == "dropped";
  } else if (key == "regions_behind") {
    c.regions_behind = value == "yes";
  } else if (key == "writer") {
    c.writer = value;
  } else if (key.starts_with(kOptionPrefix)) {
    c.options[std::string(key.substr(kOptionPrefix.size()))] = value;
  } else {
    *known = false;
  }
  return base::ok();
}

}  // namespace

std::string to_text(const TableConfig& c) {
  std::string out;
  const auto line = [&](std::string_view key, std::string_view value) {
    out.append(key).append(": ").append(value).append("\n");
  };
  std::string servers;
  for (const auto& s : c.metadata_servers) servers += (servers.empty() ? "" : " ") + s.name;
  line("table_uuid", to_string(c.table_uuid));
  line("keyspace", to_string(c.keyspace));
  line("replication", to_string(c.replication));
  line("replicas", std::to_string(c.replicas));
  line("metadata_txnid", to_string(c.metadata_txnid));
  line("metadata_txnseq", to_string(c.metadata_txnseq));
  line("metadata_hash", base::to_hex(c.metadata_hash));
  line("metadata_servers", servers);
  line("state", c.dropped ? "dropped" : "active");
  if (c.regions_behind) line("regions_behind", "yes");
  if (!c.writer.empty()) line("writer", c.writer);
  for (const auto& [name, value] : c.options) line(std::string(kOptionPrefix) + name, value);
  for (const auto& [key, value] : c.others) line(key, value);
  return out;
}

base::Result<TableConfig> parse_table_config(std::string_view text) {
  if (text.size() > kConfigMax) return base::fail(base::Code::too_large, "TableConfig is too long");
  TableConfig c;
  std::set<std::string, std::less<>> seen;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.empty()) continue;
    const auto colon = row.find(':');
    if (colon == std::string_view::npos || colon == 0)
      return base::fail(base::Code::invalid, "TableConfig: not a `key: value` line: " + base::escape(row));
    const auto key = row.substr(0, colon);
    auto value = row.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (!seen.insert(std::string(key)).second)
      return base::fail(base::Code::invalid, "TableConfig: " + std::string(key) + " stands there twice");
    bool known = false;
    if (auto set = set_field(c, key, value, &known); !set)
      return base::fail(std::move(set).error().wrap("TableConfig: " + std::string(key)));
    if (!known) c.others.emplace(key, value);
  }
  for (const std::string_view key : {"table_uuid", "keyspace", "replication", "replicas", "metadata_txnid",
                                     "metadata_txnseq", "metadata_hash", "metadata_servers"})
    if (!seen.contains(key)) return base::fail(base::Code::invalid, "TableConfig: " + std::string(key) + " is missing");
  return c;
}

void set_current(TableConfig& config, const Metadata& file, std::string hash) {
  config.table_uuid = file.table;
  config.keyspace = file.keyspace;
  config.replication = file.replication;
  config.replicas = file.replicas;
  config.metadata_txnid = file.txnid;
  config.metadata_txnseq = file.txnseq;
  config.metadata_hash = std::move(hash);
  config.dropped = file.dropped;
  config.options = file.options;
}

bool is_member(const TableConfig& config, const ServerId& server) {
  return std::find(config.metadata_servers.begin(), config.metadata_servers.end(), server) !=
         config.metadata_servers.end();
}

namespace {
constexpr std::array<std::string_view, 3> kWriteLevels = {"one", "majority", "all"};
constexpr std::array<std::string_view, 2> kPipelines = {"chain", "star"};
constexpr std::array<std::string_view, 2> kReadLevels = {"one", "majority"};
constexpr std::array kOptions = {
    OptionRule{"read_level", "one", "how many replicas a client asks unless told otherwise", kReadLevels},
    OptionRule{"pipeline", "chain",
               "how blocks of a quorum table get to the replicas: one to the next, or leader to each", kPipelines},
    OptionRule{"write_level", "majority", "how many replicas must have a write unless told otherwise", kWriteLevels},
};
}  // namespace

std::span<const OptionRule> option_rules() { return kOptions; }

base::Status validate_option(std::string_view name, std::string_view value) {
  for (const auto& rule : kOptions) {
    if (rule.name != name) continue;
    if (std::find(rule.values.begin(), rule.values.end(), value) != rule.values.end()) return base::ok();
    std::string text = "option " + std::string(name) + " is one of";
    for (const auto v : rule.values) text.append(" ").append(v);
    base::Error error(base::Code::invalid, text + ", not " + base::escape(value));
    error.detail = "options";
    return base::fail(std::move(error));
  }
  base::Error error(base::Code::invalid, "there is no option " + base::escape(name));
  error.detail = "options";
  return base::fail(std::move(error));
}

std::string default_option(std::string_view name) {
  for (const auto& rule : kOptions)
    if (rule.name == name) return std::string(rule.fallback);
  return {};
}

std::string option(const Metadata& metadata, std::string_view name) {
  const auto it = metadata.options.find(std::string(name));
  return it != metadata.options.end() ? it->second : default_option(name);
}

std::string_view to_string(Keyspace keyspace) { return keyspace == Keyspace::hash ? "hash" : "range"; }
std::string_view to_string(Replication replication) { return replication == Replication::quorum ? "quorum" : "push"; }

}  // namespace cantle::model

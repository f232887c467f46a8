// TableConfig: the small znode that says which METADATA file of a table is valid, and who stores it; and
// the options a table can have.
//
// It is the target of every compare-and-swap (design/metadata.md). Plain `key: value` lines, so that any
// ZooKeeper shell shows it; lines with keys of a newer version are kept as they are.
//
// Invariants of parse(): known keys once, in any order; ids, hash and names valid; metadata_servers not empty
// and without repeats.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/metadata.h"

namespace cantle::model {

struct TableConfig {
  TableUuid table_uuid;
  Keyspace keyspace = Keyspace::range;
  Replication replication = Replication::push;
  uint32_t replicas = 3;
  TxnId metadata_txnid;
  TxnSeq metadata_txnseq;
  std::string metadata_hash;  // SHA-256 of the root, 32 bytes
  std::vector<ServerId> metadata_servers;
  bool dropped = false;
  bool regions_behind = false;  // region nodes have still to follow a transaction that was too long for one multi
  std::string writer;           // who wrote this: token of the last compare-and-swap
  std::map<std::string, std::string> options;
  std::map<std::string, std::string> others;  // keys this version does not know

  friend bool operator==(const TableConfig&, const TableConfig&) = default;
};

std::string to_text(const TableConfig& config);
base::Result<TableConfig> parse_table_config(std::string_view text);

// What TableConfig says once `file` is current; servers, writer and the like are kept.
void set_current(TableConfig& config, const Metadata& file, std::string hash);

bool is_member(const TableConfig& config, const ServerId& server);
// n/2 + 1 of the listed, for even n too.
inline size_t majority(const TableConfig& config) { return config.metadata_servers.size() / 2 + 1; }

// --- table options ---------------------------------------------------------------------------------

struct OptionRule {
  std::string_view name, fallback, says;
  std::span<const std::string_view> values;
};
std::span<const OptionRule> option_rules();
// invalid for an option that does not exist or a value that it cannot have.
base::Status validate_option(std::string_view name, std::string_view value);
std::string default_option(std::string_view name);  // "" for one that does not exist
// The value in force.
std::string option(const Metadata& metadata, std::string_view name);

std::string_view to_string(Keyspace keyspace);
std::string_view to_string(Replication replication);

}  // namespace cantle::model

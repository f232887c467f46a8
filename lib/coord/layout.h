// Layout: where everything stands in the coordination service, and how the values are written.
//
// Use
//   Layout at("cantle");
//   at.active(id);                               // "/cantle/nodes/active/p1"
//   at.config(distribution(Keyspace::range, "orders"));
//   parse_active(node.value)->incarnation;
//
// Paths are absolute within the chroot of the URL. Values are plain text, `key: value` lines that any
// ZooKeeper shell shows; a reader ignores keys that it does not know, so fields can be added.
// Pure strings: nothing here talks to anybody. man/cantle-coordination.7 describes the same for people.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/metadata.h"
#include "lib/model/quorum.h"

namespace cantle::coord {

constexpr uint32_t kLayoutVersion = 1;

// "<epoch>-<lsn>": where the votes of one log position stand.
std::string token_text(const model::LogToken& token);
base::Result<model::LogToken> parse_token(std::string_view name);
// "<epoch>-<lsn>:<server>": no two servers write the same one.
std::string vote_name(const model::LogToken& token, const model::ServerId& server);

// --- Paths -------------------------------------------------------------------------------------

// `<d>_<table>`: d is the number of dimensions of the keyspace: 1 for range, 0 for hash.
std::string distribution(model::Keyspace keyspace, std::string_view table);
struct Distribution {
  model::Keyspace keyspace = model::Keyspace::range;
  std::string table;
  friend bool operator==(const Distribution&, const Distribution&) = default;
};
base::Result<Distribution> parse_distribution(std::string_view name);
// Of the children of distributions(), the one that belongs to `table`: no_such_table if there is none.
// A table has one name whatever its keyspace, so there is at most one.
base::Result<std::string> find_distribution(const std::vector<std::string>& names, std::string_view table);

class Layout {
 public:
  // `cluster` as validate_cluster_name allows it.
  explicit Layout(std::string_view cluster) : root_("/" + std::string(cluster)) {}

  const std::string& root() const { return root_; }
  std::string format() const { return root_ + "/format"; }

  std::string nodes() const { return root_ + "/nodes"; }
  std::string active() const { return root_ + "/nodes/active"; }
  std::string active(const model::ServerId& id) const { return active() + "/" + id.name; }
  std::string versions() const { return root_ + "/nodes/version"; }
  std::string version(const model::ServerId& id) const { return versions() + "/" + id.name; }
  std::string infos() const { return root_ + "/nodes/info"; }
  std::string info(const model::ServerId& id) const { return infos() + "/" + id.name; }

  std::string arrivals() const { return root_ + "/arrivals"; }
  std::string arrival_prefix() const { return arrivals() + "/event-"; }

  std::string distributions() const { return root_ + "/distribution"; }
  // `d` is a name made by distribution().
  std::string table(std::string_view d) const { return distributions() + "/" + std::string(d); }
  std::string config(std::string_view d) const { return table(d) + "/config"; }
  std::string replication(std::string_view d) const { return table(d) + "/replication"; }
  std::string nameprefixqueue(std::string_view d) const { return table(d) + "/nameprefixqueue"; }
  std::string nameprefix_prefix(std::string_view d) const { return nameprefixqueue(d) + "/id-"; }
  std::string observed(std::string_view d) const { return table(d) + "/observed"; }
  std::string observed(std::string_view d, const model::ServerId& id) const { return observed(d) + "/" + id.name; }
  std::string bell(std::string_view d) const { return table(d) + "/bell"; }
  std::string ring_prefix(std::string_view d) const { return bell(d) + "/ring-"; }
  std::string regions(std::string_view d) const { return table(d) + "/regions"; }
  std::string region(std::string_view d, model::Region r) const { return regions(d) + "/" + to_string(r); }
  std::string systems(std::string_view d, model::Region r) const { return region(d, r) + "/systems"; }
  std::string system(std::string_view d, model::Region r, const model::ServerId& id) const {
    return systems(d, r) + "/" + id.name;
  }
  std::string government(std::string_view d, model::Region r) const { return region(d, r) + "/government"; }
  std::string recovered(std::string_view d, model::Region r) const { return region(d, r) + "/recovered"; }
  std::string quorums(std::string_view d, model::Region r) const { return region(d, r) + "/quorums"; }
  // Of that server, whose log had reached that position.
  std::string vote(std::string_view d, model::Region r, const model::LogToken& token, const model::ServerId& id) const {
    return quorums(d, r) + "/" + vote_name(token, id);
  }

  std::string tasks() const { return root_ + "/tasks"; }
  std::string task(std::string_view name) const { return tasks() + "/" + std::string(name); }
  std::string op_task(const model::AttemptId& attempt) const { return task("op-" + to_string(attempt)); }

  std::string dropped() const { return root_ + "/dropped"; }
  std::string dropped(const model::TableUuid& uuid) const { return dropped() + "/" + to_string(uuid); }

  // Directories every cluster has, parents first: what `zkctl init` creates besides `format`.
  std::vector<std::string> skeleton() const;
  // Directories a table has besides `config` and `replication`, parents first.
  std::vector<std::string> table_skeleton(std::string_view d) const;

 private:
  std::string root_;
};

// [a-z0-9][a-z0-9_.-]{0,62}, and not "zookeeper", which ZooKeeper keeps for itself.
base::Status validate_cluster_name(std::string_view name);

// Number at the end of a sequential znode's name: "event-0000000012" is 12. invalid without ten digits.
base::Result<uint32_t> sequence_of(std::string_view path);

// --- Values ------------------------------------------------------------------------------------

// The `key: value` lines of a znode, in order. Values hold no line break: CHECKed when written.
class Lines {
 public:
  static Lines parse(std::string_view text);
  Lines& add(std::string_view key, std::string_view value);
  Lines& add(std::string_view key, uint64_t value) { return add(key, std::to_string(value)); }
  Lines& word(std::string_view word);  // a line that is just a word
  std::string text() const;

  bool has_word(std::string_view word) const;
  const std::string* find(std::string_view key) const;  // the last one counts
  std::string get(std::string_view key, std::string_view otherwise = "") const;
  base::Result<std::string> need(std::string_view key) const;      // invalid: missing
  base::Result<uint64_t> need_number(std::string_view key) const;  // invalid: missing or no number
  base::Result<uint64_t> number_or(std::string_view key, uint64_t otherwise) const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;  // a word has an empty key
};

struct Format {
  uint32_t layout = kLayoutVersion;
  model::ClusterUuid cluster;
  friend bool operator==(const Format&, const Format&) = default;
};
std::string format_text(const Format& format);
// identity: written by a newer layout than this program knows.
base::Result<Format> parse_format(std::string_view text);

enum class Role : uint8_t { partd = 1, mdserver = 2 };
std::string_view role_name(Role role);
base::Result<Role> parse_role(std::string_view name);

// nodes/active/<id>, ephemeral: a process that lives, and how it is reached.
struct Active {
  bool readonly = false;
  Role role = Role::partd;
  std::string tcp;          // host:port, empty: none
  std::string unix_socket;  // path, empty: none
  model::Incarnation incarnation;
  std::string instance;  // identity of its data directory: two directories under one id are told apart
  friend bool operator==(const Active&, const Active&) = default;
};
std::string active_text(const Active& active);
base::Result<Active> parse_active(std::string_view text);

// nodes/version/<server>, ephemeral: what its software understands.
struct NodeVersion {
  std::string software;
  uint32_t protocol_min = 1, protocol_max = 1;
  uint32_t format_min = model::kFormatMin, format_max = model::kFormatMax;  // of METADATA files
  friend bool operator==(const NodeVersion&, const NodeVersion&) = default;
};
std::string version_text(const NodeVersion& version);
base::Result<NodeVersion> parse_version(std::string_view text);

// nodes/info/<server>, persistent: what placement must know.
struct NodeInfo {
  Role role = Role::partd;
  model::ServerNumber number;  // sequence number of its arrival event
  std::string rack, host;
  uint32_t weight = 100;
  bool drain = false, dead = false, reserve = false;
  friend bool operator==(const NodeInfo&, const NodeInfo&) = default;
};
std::string info_text(const NodeInfo& info);
base::Result<NodeInfo> parse_info(std::string_view text);

// arrivals/event-…, persistent sequential: the ordered log of what joined and left.
struct Arrival {
  enum class Kind : uint8_t { arrival = 1, departure = 2 } kind = Kind::arrival;
  model::ServerId server;
  std::string instance;  // identity of the data directory that asked: finds an event whose reply was lost
  base::WallMs at_ms = 0;
  std::string rack;
  uint32_t weight = 100;
  friend bool operator==(const Arrival&, const Arrival&) = default;
};
std::string arrival_text(const Arrival& arrival);
base::Result<Arrival> parse_arrival(std::string_view text);

enum class RegionState : uint8_t {
  creating = 1,
  active,
  splitting,
  merging,
  split,
  aborted,  // of a split or merge that was to make it
  merged
};
std::string_view region_state_name(RegionState state);
base::Result<RegionState> parse_region_state(std::string_view name);
RegionState region_state(model::PartitionState state);

// regions/<nameprefix>, persistent: a partition's place in the family tree.
struct RegionNode {
  model::PartitionId partition;
  RegionState state = RegionState::active;
  bool has_parent = false;
  model::Region parent;
  bool has_children = false;  // from SPLIT on
  model::Region left, right;
  std::string split;         // the split point, a routing key
  model::AttemptId attempt;  // of its split or merge; of the one that was to make it, while creating and once aborted
  bool has_target = false;   // from MERGE on
  model::Region into = {};
  friend bool operator==(const RegionNode&, const RegionNode&) = default;
};
std::string region_text(const RegionNode& region);
base::Result<RegionNode> parse_region(std::string_view text);

// regions/<n>/systems/<server>, persistent: a tenure, and how far its copy had come.
struct SystemNode {
  uint32_t slot = 0;
  model::AssignmentId assignment;
  model::Lsn version;
  friend bool operator==(const SystemNode&, const SystemNode&) = default;
};
std::string system_text(const SystemNode& system);
base::Result<SystemNode> parse_system(std::string_view text);

// regions/<n>/government, persistent, of a quorum table: changed by compare-and-swap alone.
// invalid: epoch 0, no voters or more than kVotersMax, one voter twice, a leader that is none of them.
std::string government_text(const model::Government& government);
base::Result<model::Government> parse_government(std::string_view text);

// regions/<n>/quorums/<epoch>-<lsn>:<server>, ephemeral: a vote.
std::string vote_text(const model::Vote& vote);
base::Result<model::Vote> parse_vote(std::string_view text);

// observed/<server>, persistent: it acts on a map of this txnseq, and its older writes have ended.
struct Observed {
  model::TxnSeq txnseq;
  model::Incarnation incarnation;
  friend bool operator==(const Observed&, const Observed&) = default;
};
std::string observed_text(const Observed& observed);
base::Result<Observed> parse_observed(std::string_view text);

// tasks/<name>, ephemeral: who drives it.
struct Task {
  std::string driver;  // a server's id, or host:pid of a tool
  std::string table;
  std::string what;  // "split", "replace", for people
  friend bool operator==(const Task&, const Task&) = default;
};
std::string task_text(const Task& task);
base::Result<Task> parse_task(std::string_view text);

// dropped/<table uuid>, persistent.
struct Dropped {
  std::string table;
  model::TxnSeq txnseq;  // the final one
  friend bool operator==(const Dropped&, const Dropped&) = default;
};
std::string dropped_text(const Dropped& dropped);
base::Result<Dropped> parse_dropped(std::string_view text);

}  // namespace cantle::coord

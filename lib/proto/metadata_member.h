// MetadataMember takes one metadata server into a table's list, or out of it (design/metadata.md, "Metadata servers
// come and go"). It runs on the server that joins, or on any member for a leave.
//
// Join: fetch the current file, then swap oneself into the list at the version read; lost the race: from the start.
// Leave: have a majority of the *remaining* servers store the current file durably, then swap the list (S30).
//
// Use: as MetadataCommit. Read, Load, Store, Swap, Reply are performed alike; Store concerns the file that Load
// brought.
//
// Invariants
//   * A leave is swapped only at the version at which a majority of the remaining had the file named there.
//   * The list never gets empty.
//   * A swap whose answer was lost is looked into: what the list says then is the answer.
#pragma once

#include <set>
#include <variant>
#include <vector>

#include "lib/proto/metadata_types.h"

namespace cantle::proto {

namespace member {

enum class Kind : uint8_t { join = 1, leave };
struct Request {
  Kind kind = Kind::join;
  model::ServerId server;  // who joins or leaves
  base::Instant deadline;
};

struct Asked {
  base::Instant now;
};
struct Tick {
  base::Instant now;
};
struct ConfigRead {
  base::Instant now;
  ConfigAnswer answer;
};
struct Loaded {
  base::Instant now;
  base::Result<MapPtr> map;
};
struct Stored {
  base::Instant now;
  model::ServerId by;
  model::TxnId txnid;
  base::Status status;
};
struct Swapped {
  base::Instant now;
  SwapResult result = SwapResult::unknown;
};
using Input = std::variant<Asked, Tick, ConfigRead, Loaded, Stored, Swapped>;

struct Read {
  bool operator==(const Read&) const = default;
};
struct Load {
  model::TxnId txnid;
  bool operator==(const Load&) const = default;
};
struct Store {
  model::ServerId at;
  model::TxnId txnid;
  bool operator==(const Store&) const = default;
};
struct Swap {
  int32_t version = 0;
  model::TableConfig to;
  bool operator==(const Swap&) const = default;
};
struct Members {
  std::vector<model::ServerId> servers;
  model::TxnSeq txnseq;
  bool operator==(const Members&) const = default;
};
struct Reply {
  base::Result<Members> outcome;
  bool operator==(const Reply&) const = default;
};
using Effect = std::variant<Read, Load, Store, Swap, Reply>;
using Effects = std::vector<Effect>;

}  // namespace member

class MetadataMember {
 public:
  explicit MetadataMember(member::Request request) : request_(std::move(request)) {}

  member::Effects step(const member::Input& input);
  bool ended() const { return phase_ == Phase::ended; }

 private:
  enum class Phase : uint8_t { idle, reading, loading, storing, swapping, ended };

  void on(const member::Asked& in, member::Effects& out);
  void on(const member::Tick& in, member::Effects& out);
  void on(const member::ConfigRead& in, member::Effects& out);
  void on(const member::Loaded& in, member::Effects& out);
  void on(const member::Stored& in, member::Effects& out);
  void on(const member::Swapped& in, member::Effects& out);

  void enter(Phase phase);
  void read(member::Effects& out);
  void store(member::Effects& out);
  void swap(member::Effects& out);
  void overdue(base::Instant now, member::Effects& out);
  void reply(base::Result<member::Members> outcome, member::Effects& out);
  bool settled() const;  // the list is as it was asked for
  std::vector<model::ServerId> wanted_list() const;

  member::Request request_;
  Phase phase_ = Phase::idle;
  Backoff backoff_;
  VersionedConfig config_;
  std::set<model::ServerId> stored_, asked_;
  bool ambiguous_ = false;
};

}  // namespace cantle::proto

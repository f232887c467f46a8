// MetadataCommit carries one change of a table from proposal to outcome (design/metadata.md, "Committing a
// transaction"). The metadata server that a requester asks, the proposer, runs one.
//
// It reads TableConfig at some version, applies the operations to the file named there, has the result stored by a
// majority of the servers listed there, and swaps TableConfig at that version. A swap refused is looked into: the
// change may be in the chain already (an own earlier try, S28), or only the version has moved (a fence, a server that
// joined); else it starts over on the new base. A swap whose answer was lost is looked into as well, never guessed
// (S27).
//
// Use
//   for (auto& e : commit.step(Proposed{now})) perform(e);
//   Read    read TableConfig, after a sync when `fresh`; answer ConfigRead
//   Load    have the file named there here, durable; fetch it if need be; answer Loaded
//   Build   apply the operations to `base` under `txnid`; answer Built
//   Store   have server `at` store the built file; answer Stored, each time
//   Swap    compare-and-swap TableConfig at `version` to `to` (kCreateVersion: create it); answer Swapped
//   Fence   write `config` as it is at `version`, so that what is under way at that version fails; answer Fenced
//   Discard the file will never be current: tell everybody
//   Alarm   an operator should look
//   Reply   the outcome; nothing comes after it
// The shell sends Tick at least every kMetadataRetryFirst while the machine is not ended.
//
// Invariants
//   * Swap comes only after a majority of the servers listed at that version stored the file durably.
//   * Reply comes exactly once; after it step() returns nothing.
//   * A swap that may happen yet is never reported as failed, and its file is not discarded: first its version is
//     seen to have passed, by itself or by a fence.
//   * At most one Read, Load, Build, Swap or Fence is out at a time; an answer for another attempt is ignored.
#pragma once

#include <set>
#include <variant>
#include <vector>

#include "lib/proto/metadata_types.h"

namespace cantle::proto {

constexpr int32_t kCreateVersion = -2;  // Swap: TableConfig must not exist

namespace commit {

struct Request {
  model::ChangeId change;
  model::TxnId base;                              // none: any
  model::TxnSeq since;                            // 0: not said
  bool creates = false;                           // CREATE_TABLE
  std::vector<model::ServerId> metadata_servers;  // creates: who will store it, not empty
  base::Instant deadline;
};

struct Proposed {
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
struct BuiltFile {
  MapPtr map;
  std::string hash;
};
struct Built {
  base::Instant now;
  base::Result<BuiltFile> file;
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
struct Fenced {
  base::Instant now;
  SwapResult result = SwapResult::unknown;
};
using Input = std::variant<Proposed, Tick, ConfigRead, Loaded, Built, Stored, Swapped, Fenced>;

struct Read {
  bool fresh = false;
  bool operator==(const Read&) const = default;
};
struct Load {
  model::TxnId txnid;
  bool operator==(const Load&) const = default;
};
struct Build {
  model::TxnId txnid;
  MapPtr base;  // null: none
  bool operator==(const Build&) const = default;
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
struct Fence {
  int32_t version = 0;
  model::TableConfig config;
  bool operator==(const Fence&) const = default;
};
struct Discard {
  model::TxnId txnid;
  std::vector<model::ServerId> at;
  bool operator==(const Discard&) const = default;
};
struct Alarm {
  std::string text;
  bool operator==(const Alarm&) const = default;
};
struct Committed {
  model::TxnId txnid;    // none: found in the chain
  model::TxnSeq txnseq;  // current, at or past the change
  bool already = false;
  bool operator==(const Committed&) const = default;
};
struct Reply {
  base::Result<Committed> outcome;
  bool operator==(const Reply&) const = default;
};
using Effect = std::variant<Read, Load, Build, Store, Swap, Fence, Discard, Alarm, Reply>;
using Effects = std::vector<Effect>;

}  // namespace commit

class MetadataCommit {
 public:
  // `random` draws a txnid for each attempt; it must outlive the machine.
  MetadataCommit(commit::Request request, base::Random& random) : request_(std::move(request)), random_(&random) {}

  commit::Effects step(const commit::Input& input);
  bool ended() const { return phase_ == Phase::ended; }
  // For status: what it is doing.
  std::string_view doing() const;
  // The file it built, for whoever performs Store, and TableConfig as it read it. Null before.
  const commit::BuiltFile* built() const { return built_ ? &*built_ : nullptr; }
  const MapPtr& base() const { return base_; }

 private:
  enum class Phase : uint8_t {
    idle,
    reading,  // TableConfig, to begin on it
    loading,  // the file that it names
    building,
    storing,  // until a majority has it
    swapping,
    looking,    // TableConfig, after a swap that was refused or whose answer was lost
    searching,  // loading the file that it names now, to look for the change in its chain
    fencing,
    ended,
  };

  void on(const commit::Proposed& in, commit::Effects& out);
  void on(const commit::Tick& in, commit::Effects& out);
  void on(const commit::ConfigRead& in, commit::Effects& out);
  void on(const commit::Loaded& in, commit::Effects& out);
  void on(const commit::Built& in, commit::Effects& out);
  void on(const commit::Stored& in, commit::Effects& out);
  void on(const commit::Swapped& in, commit::Effects& out);
  void on(const commit::Fenced& in, commit::Effects& out);

  void enter(Phase phase);
  void start_over(commit::Effects& out);
  void look(commit::Effects& out);
  void begin_on(base::Instant now, const std::optional<VersionedConfig>& read, commit::Effects& out);
  void look_at(base::Instant now, const std::optional<VersionedConfig>& read, commit::Effects& out);
  void base_loaded(const MapPtr& map, commit::Effects& out);
  void build(commit::Effects& out);
  void store_where_missing(commit::Effects& out);
  void swap_if_majority(commit::Effects& out);
  void rebase_or_conflict(base::Instant now, commit::Effects& out);
  void give_up(base::Instant now, commit::Effects& out);
  void overdue(base::Instant now, commit::Effects& out);
  bool in_chain(const model::Metadata& map) const;
  void discard(commit::Effects& out);
  void reply(base::Result<commit::Committed> outcome, commit::Effects& out);
  void succeed(model::TxnId txnid, model::TxnSeq txnseq, bool already, commit::Effects& out);

  commit::Request request_;
  base::Random* random_;
  Phase phase_ = Phase::idle;
  Backoff backoff_;
  VersionedConfig config_;  // as read; when creating: what it shall be, version kCreateVersion
  MapPtr base_;
  model::TxnId txnid_;  // of the attempt
  std::optional<commit::BuiltFile> built_;
  std::set<model::ServerId> stored_, asked_;
  bool ambiguous_ = false;  // a swap at config_.version is out whose answer was lost
  bool out_of_time_ = false;
};

}  // namespace cantle::proto

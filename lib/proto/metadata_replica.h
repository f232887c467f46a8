// MetadataReplica is one metadata server's part in one table: which files it has durable, which one is current, what
// proposers ask it to store, and whether it may answer lookups (design/metadata.md).
//
// Use
//   for (auto& e : replica.step(ConfigSeen{asked, config})) perform(e);
//   Build    apply the request's operations to the file `base` (here, though perhaps not durable yet); answer Built
//   Fetch    bring the file here from one of `from`, in their order, and verify its hash; answer Fetched
//   Persist  make the file durable; answer Persisted
//   Answer   the md.store with this ticket
//   Current  this file, durable here, is the current one now
//   Seen     remember durably that this was current once (S36)
//   Delete   these files
//   Alarm    an operator should look
// The shell sends ConfigSeen for every read of TableConfig and every own swap, Tick once a second.
//
// Invariants
//   * A store is answered with success only once its file is durable here.
//   * A file is deleted only if the committed txnseq has reached its own and the chain does not contain it, or if it
//     is in the chain and both older than an hour and not among the last 64. Never the current one.
//   * It serves only the current file, and not at all once the coordination service showed less than it did (S36).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "lib/proto/metadata_types.h"

namespace cantle::proto {

constexpr size_t kFilesKept = 64;
constexpr base::Duration kFilesKeptFor = std::chrono::hours(1);
constexpr base::Duration kSweepEvery = std::chrono::seconds(10);
constexpr size_t kStoresAtOnce = 64;  // of one table; more are refused with `overloaded`

namespace replica {

// A METADATA file, by what is known without opening it.
struct FileInfo {
  model::TxnId txnid, prev;
  model::TxnSeq txnseq;
  std::string hash;
  base::WallMs stored_ms = 0;  // wall clock when it was stored: only for keeping
  friend bool operator==(const FileInfo&, const FileInfo&) = default;
};

// Inputs.
struct Opened {  // first of all: what is on disk
  base::Instant now;
  base::WallMs wall_ms = 0;
  std::vector<FileInfo> files;
  model::TxnId seen_txnid;  // the highest that was current; none: nothing
  model::TxnSeq seen_txnseq;
};
struct Tick {
  base::Instant now;
  base::WallMs wall_ms = 0;
};
struct ConfigSeen {
  // When the read (before its sync), or the own swap, was sent: it was current then or later. Not when the answer was
  // looked at, which may have lain there while the process stood still (S32). None: a read without a sync, which may
  // show the past: nothing is concluded from what is older than what was seen.
  std::optional<base::Instant> asked;
  VersionedConfig config;
};
struct StoreAsked {
  base::Instant now;
  uint64_t ticket = 0;
  model::TxnId base;     // none: no base, or one that is not named: the file must be fetched
  model::TxnSeq txnseq;  // of the file
  model::TxnId txnid;
  std::string hash;
  model::ServerId proposer;
};
struct Built {
  base::Instant now;
  uint64_t ticket = 0;
  base::Result<FileInfo> file;
};
struct Fetched {
  base::Instant now;
  model::TxnId txnid;
  base::Result<FileInfo> file;
};
struct Persisted {
  base::Instant now;
  base::WallMs wall_ms = 0;
  FileInfo file;
  base::Status status;
};
struct Aborted {
  base::Instant now;
  model::TxnId txnid;
};  // md.abort
using Input = std::variant<Opened, Tick, ConfigSeen, StoreAsked, Built, Fetched, Persisted, Aborted>;

// Effects.
struct Build {
  uint64_t ticket = 0;
  model::TxnId base, txnid;
  bool operator==(const Build&) const = default;
};
struct Fetch {
  model::TxnId txnid;
  std::string hash;
  std::vector<model::ServerId> from;
  bool operator==(const Fetch&) const = default;
};
struct Persist {
  model::TxnId txnid;
  bool operator==(const Persist&) const = default;
};
struct Answer {
  uint64_t ticket = 0;
  base::Status status;
  bool operator==(const Answer&) const = default;
};
struct Current {
  FileInfo file;
  bool operator==(const Current&) const = default;
};
struct Seen {
  model::TxnId txnid;
  model::TxnSeq txnseq;
  bool operator==(const Seen&) const = default;
};
struct Delete {
  std::vector<model::TxnId> files;
  bool operator==(const Delete&) const = default;
};
struct Alarm {
  std::string text;
  bool operator==(const Alarm&) const = default;
};
using Effect = std::variant<Build, Fetch, Persist, Answer, Current, Seen, Delete, Alarm>;
using Effects = std::vector<Effect>;

}  // namespace replica

class MetadataReplica {
 public:
  explicit MetadataReplica(model::ServerId self) : self_(std::move(self)) {}

  replica::Effects step(const replica::Input& input);

  // The local file is the current one as last read, and nothing is wrong.
  bool current() const;
  bool regressed() const { return !regressed_.empty(); }
  const std::string& alarm() const { return regressed_; }
  // What config() says was current then, or later; none before the first read.
  const std::optional<base::Instant>& confirmed() const { return confirmed_; }
  const std::optional<VersionedConfig>& config() const { return config_; }
  bool has(const model::TxnId& txnid) const { return files_.contains(txnid); }
  const std::map<model::TxnId, replica::FileInfo>& files() const { return files_; }
  model::TxnSeq seen() const { return seen_txnseq_; }
  // A server that is not listed follows the current file only while it needs it: to join, or to propose a change.
  void set_needed(bool needed) { needed_ = needed; }

 private:
  struct Wanted {            // a file on its way to this disk
    replica::FileInfo file;  // txnid, txnseq and hash at first
    std::vector<uint64_t> tickets;
    // waiting: for the base, which is on its way too
    enum class Step : uint8_t { waiting, building, fetching, persisting } step = Step::fetching;
    uint64_t builder = 0;  // ticket of the Build
    model::TxnId base;
    model::ServerId proposer;
  };

  void on(const replica::Opened& in, replica::Effects& out);
  void on(const replica::Tick& in, replica::Effects& out);
  void on(const replica::ConfigSeen& in, replica::Effects& out);
  void on(const replica::StoreAsked& in, replica::Effects& out);
  void on(const replica::Built& in, replica::Effects& out);
  void on(const replica::Fetched& in, replica::Effects& out);
  void on(const replica::Persisted& in, replica::Effects& out);
  void on(const replica::Aborted& in, replica::Effects& out);

  bool regression(const model::TableConfig& config);
  void follow(replica::Effects& out);
  void fetch(Wanted& wanted, replica::Effects& out);
  void build(Wanted& wanted, replica::Effects& out);
  void base_came(const model::TxnId& base, bool here, replica::Effects& out);
  void persist(Wanted& wanted, replica::Effects& out);
  void settle(model::TxnId txnid, const base::Status& status, replica::Effects& out);
  void sweep(base::WallMs wall_ms, replica::Effects& out);
  using Chain = std::map<model::TxnSeq, model::TxnId>;
  bool lost(const replica::FileInfo& file, const Chain& links) const;
  Chain chain() const;

  model::ServerId self_;
  std::map<model::TxnId, replica::FileInfo> files_;  // durable
  std::map<model::TxnId, Wanted> wanted_;
  std::optional<VersionedConfig> config_;
  std::optional<base::Instant> confirmed_;
  model::TxnId seen_txnid_, announced_;
  model::TxnSeq seen_txnseq_;
  std::string regressed_;
  bool needed_ = false;
  Backoff fetch_again_;
  base::Instant next_sweep_;
};

}  // namespace cantle::proto

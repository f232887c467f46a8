// PushServer: everything a partd decides about its push tables. One for all tables of a server.
//
// It follows the maps, decides for each copy that the server should or should not hold what is to be done,
// which assignments a write goes to and when its level is reached, what another server's message may do,
// and what the server publishes about itself (design/replication.md, reshape.md). Pure: the shell keeps the
// bytes, the clocks and the disk (lib/proto/push_types.h).
//
// Use
//   PushServer server(self);
//   for (auto& e : server.step(now, input)) std::visit([&](auto& x) { perform(x); }, e);
//   server.where(table, key, txnseq)     // hot read path: this copy, another server, or why not
//   server.admit(envelope, Purpose::…)   // may this message act on a copy here?
// Effects are performed in order. Appends, creations and divides reach the store in the order asked; the
// store takes appends to a child behind the divide at once.
//
// A write counts over replica slots, in groups: the slots of its partition and, while that is being split, the
// slots of the child that covers its key. A level is reached when it is in every group.
//
// Invariants
//   * Every WriteAsked ends with one Reply or Forward; every WriteArrived, BulkArrived and DropAsked with one Answer.
//   * ok is never replied before the own log has the write durable and the level is reached under the rules of the
//     newest installed map: a write under way when a map changes its partition is counted anew (S9, S43).
//   * Nothing was appended or sent for a write that is refused with another code than outcome_unknown.
//   * A version is stamped once, above every version this server has seen (R33).
//   * A message of an older life, to another tenure, or below min_txnseq changes nothing (S6, S25).
//   * settled() moves past a map only when every append begun under an older one has ended, and every divide
//     and creation that the map asks for is durable; observed is published only after that (S43),
//     and once the index has what ended here (S62).
//   * A copy is dropped only when the installed map says positively that it should not be here, or the table was
//     dropped (S52, S54). A copy that the map does not explain is kept, serves nothing, and is told of.
#pragma once

#include <deque>
#include <memory>
#include <set>

#include "lib/proto/hlc.h"
#include "lib/proto/push_types.h"

namespace cantle::proto {

namespace push {

constexpr size_t kBatchesInFlightMax = 4096;            // blocks not yet answered
constexpr size_t kBytesInFlightMax = size_t{64} << 20;  // their payloads
constexpr size_t kRequestsInFlightMax = 65536;
constexpr base::Duration kResendEvery = std::chrono::milliseconds(100);
constexpr base::Duration kResendMost = std::chrono::seconds(1);
constexpr base::Duration kSendTimeout = std::chrono::seconds(5);
constexpr base::Duration kBeaconEvery = std::chrono::seconds(1);
constexpr base::Duration kCatchUpMost = std::chrono::seconds(30);     // then it serves, with a warning
constexpr base::Duration kAskEvery = std::chrono::milliseconds(500);  // epochs, MARK_AVAILABLE, maps
constexpr uint32_t kRetryAfterMs = 100;
constexpr base::Duration kTickBusy = std::chrono::milliseconds(10),
                         kTickIdle = std::chrono::milliseconds(100);  // step(Tick)

// What a message wants to do to a copy.
enum class Purpose : uint8_t {
  write,     // push.write
  bulk,      // bulk.begin, bulk.block
  bulk_end,  // bulk.end
  digest,
  epochs,
  read,  // push.read: only what serves
};
struct Admission {
  enum class Kind : uint8_t { ok, refuse, fetch } kind = Kind::refuse;
  model::PartitionId log;  // ok: the copy to act on
  base::Error error;       // refuse, and fetch if the map does not come
  std::string table;       // fetch: the message acts on a newer map than ours
  model::TxnSeq at_least;
};

// Where a key is read (or a scan goes on).
struct Where {
  enum class Kind : uint8_t { here, forward, refuse, fetch } kind = Kind::refuse;
  const model::Partition* partition = nullptr;  // valid until the next MapRead of the table
  model::PartitionId log;                       // here
  model::ServerId to;                           // forward
  model::TxnSeq txnseq;                         // of the installed map
  base::Error error;
};

// Who answers a read at more than one slot. `slots` of k must answer; a slot has several servers while a replica is
// moved.
struct ReadPlan {
  struct Ask {
    uint32_t slot = 0;
    model::ServerId to;
    model::Envelope envelope;
  };
  uint32_t needed = 0;
  bool here = false;  // the own copy answers for `own_slot`
  uint32_t own_slot = 0;
  model::PartitionId log;
  std::vector<Ask> asks;
};

struct CopyStatus {
  Held copy;
  std::string table, role, state;
};
struct ServerStatus {
  bool caught_up = false;
  std::string read_only;
  std::optional<int64_t> clock_offset_ms;
  size_t batches = 0, requests = 0, bytes = 0;
};

}  // namespace push

class PushServer {
 public:
  explicit PushServer(push::Self self);
  ~PushServer();
  PushServer(const PushServer&) = delete;
  PushServer& operator=(const PushServer&) = delete;

  push::Effects step(const push::Now& now, const push::Input& input);
  void step(const push::Now& now, const push::Input& input, push::Effects* out);  // the same, appended to `out`

  // --- questions, as of the last step(); they change nothing ---
  // Where a read of this key goes. txnseq 0: the caller has no map. `one`: the own copy may answer.
  push::Where where(std::string_view table, std::string_view key, model::TxnSeq txnseq, bool hop) const;
  // The same for a scan that goes on at `start`.
  push::Where where_scan(std::string_view table, const model::ScanStart& start, model::TxnSeq txnseq, bool hop) const;
  // For a level above one. Errors: as where(); no_quorum when too few can answer.
  base::Result<push::ReadPlan> plan_read(const push::Where& where, std::string_view table, model::Level level) const;
  push::Admission admit(const model::Envelope& envelope, push::Purpose purpose) const;

  std::shared_ptr<const model::Metadata> installed(std::string_view table) const;  // null: unknown table
  // The newest map whose older writes have ended here, and whose divides and creations are durable.
  std::shared_ptr<const model::Metadata> settled(std::string_view table) const;
  std::vector<std::string> tables() const;
  // Every copy that should serve has caught up with the live replicas (or has waited long enough).
  bool caught_up() const;
  std::string read_only_reason() const;            // empty: takes clients' writes
  std::vector<model::HeldPartition> held() const;  // for mover.view
  std::vector<push::CopyStatus> copies() const;
  // For bulk.begin's answer: not 0 while records may be missing in this copy.
  uint64_t heal(const model::PartitionId& log) const;
  // For the answers to bulk.block and digest: what movers have said of their servers' stamps (DeliveryTold). Nothing
  // while records may be missing in this copy.
  std::vector<model::Delivered> delivered(const model::PartitionId& log) const;
  push::ServerStatus status() const;
  model::Incarnation peer_incarnation(const model::ServerId& server) const;
  std::optional<int64_t> clock_offset(const model::ServerId& peer) const;
  const model::Version& newest_version() const;  // for the root block: nothing above it was stamped or taken
  // Servers that share a partition with this one: whom links and beacons are for.
  std::set<model::ServerId> partners() const;
  // Per live copy the lowest LSN of its log that some target may still need: for the journal's retention.
  std::vector<std::pair<model::AssignmentId, model::Lsn>> needed() const;
  // When step(Tick) has something to do by itself.
  base::Instant next_tick() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cantle::proto

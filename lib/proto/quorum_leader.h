// Leader: what the leader of a quorum table's partition does in one epoch: takeover, pipeline, commit,
// resynchronisation of its replicas (design/replication.md).
//
// Use
//   Leader leader(self, epoch, voters, log, gatherer, pipeline);
//   leader.begin(now, out);                        // after the government was won: the epoch start
//   leader.write(now, request, bytes, deadline, out);  leader.flush(now, out);   // at the end of a turn, after a
//   Commit leader.durable(now, out);                      // after log.durable(…) leader.acked(now, ack, out) …
//   leader.feed(now, replicas, out);               // who is fed without a vote: learners, and who was replaced
//   leader.reform(now, next, out);  …  leader.vote(now, voters, out);   // the voters change
//   leader.stop(error, out);                       // resigned or deposed: every request is answered
// It lives as long as the epoch; a renewal is a new Leader.
//
// A replica's pipe: opened; where its log parts from ours is found by epochs and checked by checksum; what lies behind
// is cut; what it misses is sent from the journal, block after block (trailing), until what it misses is among the
// blocks kept in memory: then it is joined, and gets each block as it is built. chain: the leader sends to the first
// joined replica, which passes it on; star: to each. One that misses its deadline is taken out, opened anew, and what
// the others have not acknowledged is sent to them again.
//
// Invariants
//   * Committed is what is durable on a majority of the voters, the leader among them, and not before the epoch start
//   is
//     (S14); an acknowledgement counts only with the checksum of the block that was sent.
//   * A write is gathered only when the Commit before it has been performed: what it is judged by is in the store, or
//     was gathered in this epoch.
//   * Every write() ends with one Reply: ok only once committed; outcome_unknown once it is in a block; else it did not
//     happen. One that puts nothing into the log is answered when what it was judged by is committed (S24).
//   * A replica's error, silence or nonsense never fails a write that a majority has.
//   * No commit counts voters that are not in the government (`joined` is only who gets blocks at once). From reform()
//     until vote() says what came of it, it takes a majority of both sets (S61): either may be the government's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lib/proto/quorum_log.h"
#include "lib/proto/quorum_types.h"

namespace cantle::proto::quorum {

constexpr base::Duration kHopDeadline = std::chrono::milliseconds(100);
constexpr base::Duration kDeadlineMost = std::chrono::seconds(2);
constexpr base::Duration kOpenTimeout = std::chrono::milliseconds(500);  // the shell's, for opens and cuts
constexpr base::Duration kReopenFirst = std::chrono::milliseconds(50), kReopenMost = std::chrono::seconds(1);
constexpr base::Duration kOutsideAgain = std::chrono::seconds(1);  // one that needs a snapshot is opened again
// A replica that takes longer than that to acknowledge, and twice as long as the quickest, is not counted on: those
// after it sync at once, too.
constexpr base::Duration kCountedOn = std::chrono::milliseconds(5);
constexpr base::Duration kNoticeAfter = std::chrono::milliseconds(2);     // of a commit that no block told
constexpr base::Duration kNoticeAgain = std::chrono::seconds(1);          // and that no acknowledgement has confirmed
constexpr base::Duration kTrailingTick = std::chrono::milliseconds(100);  // at most between two looks
constexpr base::Duration kLevelTick = std::chrono::seconds(1);            // and while nobody is sent old blocks
constexpr size_t kBlockGather = size_t{1} << 20;  // a block is closed when it has that many bytes
// While the own disk is busy with a block, the next one would wait for it: it gathers so long, and so much.
constexpr base::Duration kHoldMost = std::chrono::milliseconds(5);
constexpr size_t kHoldBytes = size_t{64} << 10;
constexpr size_t kUncommittedMax = size_t{16} << 20;
constexpr size_t kUncommittedBlocksMax = 1024;
constexpr size_t kKeptMax = size_t{32} << 20;        // blocks kept to be sent again
constexpr size_t kKeptForComing = size_t{64} << 10;  // of them, for who is being opened
constexpr size_t kKeptForJoined = size_t{4} << 20;   // of them at the least, for who is on its way with it
constexpr size_t kKeptTogether = size_t{128} << 20;  // by all leaders of a server
// Of the journal, read and sent to a trailing replica at a time; and how many such parts it has not acknowledged.
constexpr size_t kOldBytes = size_t{1} << 20;
constexpr size_t kOldParts = 16;
constexpr size_t kWaitingMax = 16384;  // writes that wait outside the log
constexpr size_t kWaitingBytesMax = size_t{64} << 20;
constexpr uint32_t kNoQuorumRetryMs = 100;

// A write that is in a block, and a block that is not built yet.
struct InBlock {
  RequestId id = 0;
  model::Lsn last;
  base::Instant deadline;
  bool may_happen = true;  // false: it put nothing into the log, and asks for nothing that is in it
};
struct Gathered {
  BatchId id = 0;
  model::Lsn first;
  uint32_t records = 0;
  size_t bytes = 0;
  std::vector<InBlock> requests;
  base::Instant since;  // of the first of them
  model::BlockKind kind = model::BlockKind::data;
  model::AttemptId attempt{};  // of a cut or an uncut
};

// What the leaders of one server keep of blocks that they may have to send again. Once it is more than `most`, each has
// an equal share, `least` or more: who trails further behind than that is sent it from the journal. A leader goes back
// to its share when something comes to it, so that all of it may be twice `most`.
struct KeptRoom {
  size_t most = kKeptTogether, least = kKeptForComing;
  size_t bytes = 0, leaders = 0;  // that keep something
  size_t share() const { return bytes <= most ? SIZE_MAX : std::max(least, most / std::max<size_t>(leaders, 1)); }
};

class Leader {
 public:
  // `room`, if any, outlives it.
  Leader(model::Hop self, model::Epoch epoch, model::Voters voters, Log& log, Gatherer& gatherer, Pipeline pipeline,
         KeptRoom* room = nullptr);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  void begin(base::Instant now, Effects& out);
  // `bytes`: about what it puts into the log.
  void write(base::Instant now, RequestId request, size_t bytes, base::Instant deadline, Effects& out);
  // Closes the open block, unless it may yet gather; and takes what waits outside the log, if there is room now.
  void flush(base::Instant now, Effects& out);
  // What Build led to: where the block stands, or why there is none.
  struct Placed {
    model::Lsn first;
    model::LogPoint end;
    size_t bytes = 0;
  };
  void built(base::Instant now, BatchId batch, const base::Result<Placed>& placed, Effects& out);
  void next(base::Instant now, Effects& out);  // the own disk is free: what gathered meanwhile
  void durable(base::Instant now, Effects& out);
  void opened(base::Instant now, const model::Hop& peer, uint64_t generation,
              const base::Result<model::PipeOpenReply>& reply, Effects& out);
  void point_found(base::Instant now, const model::Hop& peer, uint64_t generation,
                   const base::Result<model::LogPoint>& point, Effects& out);
  // The ends of the blocks that were sent, in order.  not_found: the journal does not go back so far.
  void old_sent(base::Instant now, const model::Hop& peer, uint64_t generation,
                const base::Result<std::vector<model::LogPoint>>& sent, Effects& out);
  void acked(base::Instant now, const model::PipeAck& ack, Effects& out);
  void link_lost(base::Instant now, const model::ServerId& server, Effects& out);
  void tick(base::Instant now, Effects& out);
  void stop(const base::Error& why, Effects& out);
  // Appends the cut of a split or a merge, or takes it back with an uncut. From the call on it is parked: writes wait
  // outside the log until an uncut is in it. Not while another is being built.
  void cut(base::Instant now, model::BlockKind kind, const model::AttemptId& attempt, Effects& out);
  bool parked() const;
  bool cutting() const { return cutting_.has_value(); }
  bool has_joined(const model::ServerId& server) const;
  // The servers of the voters whose log is durable up to there, as far as is known; it is committed.
  std::vector<model::ServerId> holders(model::Lsn lsn) const;

  // The government was renewed: what is in blocks stays in the log, and is answered by the leader that comes next, once
  // its epoch start is committed. Before stop() of the one, before begin() of the other.
  std::deque<InBlock> release_requests() { return std::exchange(requests_, {}); }
  void adopt(std::deque<InBlock> requests) { requests_ = std::move(requests); }

  // Replicas that get every block, whether they vote or not; voters get them anyway.
  void feed(base::Instant now, std::vector<model::Hop> replicas, Effects& out);
  void use(base::Instant now, Pipeline pipeline, Effects& out);
  // The government may be swapped for one with these voters from now on.
  void reform(base::Instant now, model::Voters next, Effects& out);
  // These are the government's voters, and no swap for others is under way.
  void vote(base::Instant now, model::Voters voters, Effects& out);

  model::Epoch epoch() const { return epoch_; }
  const model::Hop& self() const { return self_; }
  // The epoch start is committed: it may answer.
  bool serving() const { return serving_; }
  bool stopped() const { return stopped_; }
  bool building() const { return !building_.empty(); }  // a Build is not answered yet
  // A majority of the voters can take a block now, the leader itself among them.
  bool has_majority() const { return reaches(voters_) && (!next_voters_ || reaches(*next_voters_)); }
  // It gets each block as it is built, and has everything that is committed.
  bool level(const model::Hop& replica) const;
  base::Instant next_tick() const;

  enum class PeerState : uint8_t { waiting, opening, finding, cutting, trailing, joined, outside, faulted };
  struct PeerStatus {
    model::Hop hop;
    PeerState state = PeerState::waiting;
    model::LogPoint acked;
    std::string why;
    bool votes = true;
  };
  std::vector<PeerStatus> peers() const;
  static std::string_view word(PeerState state);

 private:
  struct Flight {
    model::LogPoint end;
    base::Instant sent;
  };
  struct Peer {
    model::Hop hop;
    PeerState state = PeerState::waiting;
    uint64_t generation = 0;
    base::Instant again{};  // to open it, or to read for it
    base::Duration backoff = kReopenFirst;
    model::LogPoint end;      // as its open said
    model::LogPoint matched;  // sent from behind here
    model::LogPoint acked;    // durable there
    model::Lsn commit;
    std::deque<Flight> flight;
    std::deque<model::Lsn> parts;  // where those of the journal end that are in flight
    bool reading = false;          // SendOld is not answered yet
    bool cut = false;              // was asked of it since it was opened
    base::Duration took = std::chrono::milliseconds(1);
    base::Instant resent{};
    base::Instant notice{};
    bool noticed = false;  // of the last commit
    std::string why;
  };
  struct Kept {
    model::Lsn first;
    model::LogPoint end;
    size_t bytes = 0;
  };
  struct Waiting {
    RequestId id = 0;
    size_t bytes = 0;
    base::Instant deadline;
  };

  Peer* find(const model::Hop& hop);
  const Peer* find(const model::Hop& hop) const { return const_cast<Leader*>(this)->find(hop); }
  void arrange_peers(Effects& out);
  bool reaches(const model::Voters& voters) const;
  model::Lsn agreed(const model::Voters& voters) const;
  bool takes_writes() const;
  void gather(const Waiting& w, Effects& out);
  void answer_later(const InBlock& request, Effects& out);
  bool holds(base::Instant now) const;
  void close_batch(Effects& out);
  void take_waiting(Effects& out);
  void open(Peer& peer, Effects& out);
  void reopen(base::Instant now, Peer& peer, std::string why);
  void outside(base::Instant now, Peer& peer, const std::string& why, Effects& out);
  void start_sending(base::Instant now, Peer& peer, const model::LogPoint& from, Effects& out);
  void go_on(base::Instant now, Peer& peer, Effects& out);
  bool kept_from(const model::Lsn& first) const;
  void send_kept(base::Instant now, Peer& peer, const model::Lsn& from, Effects& out);
  void send_new(base::Instant now, const Kept& block, Effects& out);
  size_t urgent() const;
  void resend(base::Instant now, Peer& peer, Effects& out);
  void take_out(base::Instant now, Peer& peer, std::string why, Effects& out);
  base::Duration deadline_of(const Peer& peer) const;
  model::Lsn next_lsn() const;
  void commit(base::Instant now, Effects& out);
  void expire(base::Instant now, Effects& out);
  bool lacks_notice(const Peer& peer) const;
  void notices(base::Instant now, Effects& out);
  void forget(Effects& out);
  void set_kept_bytes(size_t bytes);

  model::Hop self_;
  model::Epoch epoch_;
  model::Voters voters_;
  std::optional<model::Voters> next_voters_;  // of a swap whose outcome is not known
  std::vector<model::Hop> fed_;
  Log& log_;
  Gatherer& gatherer_;
  Pipeline pipeline_;
  KeptRoom* room_;
  std::vector<Peer> peers_;    // the other voters, and who is fed
  std::vector<size_t> order_;  // joined ones, in the order of the chain
  uint64_t generation_ = 0;
  std::optional<model::Lsn> start_;  // LSN of the epoch start
  bool serving_ = false, stopped_ = false;
  model::Lsn uncut_;           // its last one: what waits is judged by a store that shows all before it
  bool take_waiting_ = false;  // there may be room for what waits outside the log
  BatchId last_batch_ = 0;
  std::optional<BatchId> starting_;  // the epoch start's batch
  std::optional<BatchId> cutting_;   // the batch of a cut or an uncut that is being built
  std::optional<Gathered> batch_;
  std::map<BatchId, Gathered> building_;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0, uncommitted_bytes_ = 0;
  std::deque<Kept> uncommitted_;
  std::deque<InBlock> requests_;  // in blocks, by LSN
  std::deque<Waiting> waiting_;   // outside the log
  size_t waiting_bytes_ = 0;
  base::Instant told_at_{};  // when a block last told the commit
  base::Instant now_{}, expire_at_{};
};

}  // namespace cantle::proto::quorum

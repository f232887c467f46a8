// QuorumReplica: one replica of a quorum table's partition: its election, its log, and what it is in the pipe
// (design/replication.md). It joins Election with Follower and Leader, so that both see one order of things.
//
// Use
//   QuorumReplica replica(self, beacons, gatherer);      // after recovery; the last two are the shell's, and outlive
//   it replica.tick(now, out);                    // at next_tick() replica.elect(now, input, out);            //
//   answers to what the election asked for replica.open(now, call, message, out) …    // messages, decoded, of peers
//   replica.write(now, request, bytes, deadline, out);  replica.flush(now, out);
//   if (auto may = replica.may_read(now); !may) refuse…;   read;   may_read(now) again, then answer (S7)
// Effects are performed in the order in which they come; what reaches the store reaches it in that order.
//
// Invariants
//   * Whoever seals or leads follows nobody; whoever obeys a leader of a higher epoch leads no more: all within one
//   call.
//   * No message below the floor of the election changes anything; it is answered with the floor.
//   * A read is allowed only while the lease holds and the epoch start is committed.
//   * A replica with a hole in its log votes, and takes no other part before the missing blocks have come from another
//     one, or a snapshot has taken the log's place. One that was not whole is so again only when it has, by the word of
//     a leader of its own new promise or a later one, all that was committed before that epoch: whatever it confirmed
//     in an earlier life is among that, or counts no more (R16).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/proto/election.h"
#include "lib/proto/quorum_borrow.h"
#include "lib/proto/quorum_cut.h"
#include "lib/proto/quorum_follower.h"
#include "lib/proto/quorum_leader.h"
#include "lib/proto/quorum_mend.h"
#include "lib/proto/quorum_rebuild.h"

namespace cantle::proto {

namespace quorum {

constexpr base::Duration kReformEvery = std::chrono::milliseconds(100);
constexpr base::Duration kDiskStill = std::chrono::seconds(1);  // something waits for the disk so long: it stands still

// As the store found it.
struct ReplicaSelf {
  election::Self who;  // `token` is that of `end`
  model::LogPoint end;
  model::Lsn commit;
  std::vector<model::EpochStart> epochs;
  std::vector<model::CutMark> cuts{};
  Pipeline pipeline = Pipeline::chain;
  // Something in the log cannot be read (who.hole): what, as far as another replica may have it.
  std::optional<model::LogGap> gap{};
  model::SnapshotPlace snapshot{};  // how far one has come that is to take the copy's place
  KeptRoom* kept_room = nullptr;    // of the server's; outlives the replica
};

using ReplicaEffect =
    std::variant<election::ReadGovernment, election::SwapGovernment, election::Seal, election::PutVote,
                 election::RemoveVote, election::ReadVotes, election::AskSuspect, election::SendRelease, Build, Take,
                 Truncate, Commit, SendOpen, SendCut, SendBlock, ForgetBlocks, SendCommit, SendOld, FindPoint,
                 AnswerOpen, SendAck, Forward, Release, SendOutside, PullSnapshot, FetchBlocks, BorrowBlocks,
                 InstallSnapshot, MarkWhole, Reply, ReadReshape, AskAbort, Faulted, Say>;
using ReplicaEffects = std::vector<ReplicaEffect>;

struct ReplicaStatus {
  std::string_view role;   // leader, follower, voter (no leader is known), learner (no voter), faulted
  std::string_view doing;  // the election's
  model::Epoch epoch;      // of the government, as far as is known
  model::ServerId leader;
  model::LogPoint end, durable;
  model::Lsn commit;
  bool serving = false;
  std::optional<model::CutMark> cut{};    // it ends in one
  base::Instant since;                    // a leader's: of its first epoch in a row
  std::vector<Leader::PeerStatus> peers;  // a leader's
  bool rebuild = false;                   // a snapshot is to take the copy's place
};

}  // namespace quorum

class QuorumReplica {
 public:
  QuorumReplica(const quorum::ReplicaSelf& self, Beacons& beacons, quorum::Gatherer& gatherer);
  ~QuorumReplica();
  QuorumReplica(const QuorumReplica&) = delete;
  QuorumReplica& operator=(const QuorumReplica&) = delete;

  using Out = quorum::ReplicaEffects;
  void tick(base::Instant now, Out& out);
  void elect(base::Instant now, const election::Input& input, Out& out);
  model::QuorumSuspectReply suspect(base::Instant now, const model::QuorumSuspect& question);

  // --- messages
  void open(base::Instant now, quorum::CallId call, const model::PipeOpen& message, Out& out);
  void cut(base::Instant now, quorum::CallId call, const model::PipeCut& message, Out& out);
  // `attempt`: of a cut and an uncut (model::attempt_of_cut).
  void block(base::Instant now, quorum::CallId call, const model::BlockHeader& header, const model::PipeBlock& message,
             Out& out, model::AttemptId attempt = {});
  void commit(base::Instant now, const model::PipeCommit& message, Out& out);
  void ack(base::Instant now, const model::PipeAck& message, Out& out);
  void outside(base::Instant now, const model::QuorumOutside& message, Out& out);
  void link_lost(base::Instant now, const model::ServerId& server, Out& out);

  // --- answers
  void built(base::Instant now, quorum::BatchId batch, model::Epoch epoch,
             const base::Result<quorum::Leader::Placed>& placed, Out& out);
  void take_failed(base::Instant now, const model::LogPoint& end, const base::Error& error, Out& out);
  // The log is durable through there: what a leader gathered meanwhile goes to the disk. Then, in the same turn,
  // durable(): what that means to anybody else.
  void synced(base::Instant now, const model::LogPoint& point, Out& out);
  void durable(base::Instant now, Out& out);
  void truncated(base::Instant now, const base::Status& status, Out& out);
  void opened(base::Instant now, const model::Hop& peer, model::Epoch epoch, uint64_t generation,
              const base::Result<model::PipeOpenReply>& reply, Out& out);
  void point_found(base::Instant now, const model::Hop& peer, model::Epoch epoch, uint64_t generation,
                   const base::Result<model::LogPoint>& point, Out& out);
  void old_sent(base::Instant now, const model::Hop& peer, model::Epoch epoch, uint64_t generation,
                const base::Result<std::vector<model::LogPoint>>& sent, Out& out);
  void snapshot_pulled(base::Instant now, uint64_t number, const base::Result<model::SnapshotPlace>& place, Out& out);
  // The log as it is then, or why it is as it was.
  struct Rebuilt {
    model::LogPoint end;
    model::Lsn commit;
    std::vector<model::EpochStart> epochs;
    std::vector<model::CutMark> cuts{};
  };
  void snapshot_installed(base::Instant now, base::Result<Rebuilt> log, Out& out);
  void marked_whole(base::Instant now, const base::Status& status, Out& out);
  // What is missing next, and the log as it is then; or why the blocks did not come.
  struct Mended {
    std::optional<model::LogGap> next;
    Rebuilt log;
  };
  void mended(base::Instant now, uint64_t number, base::Result<Mended> log, Out& out);
  void lent(base::Instant now, uint64_t number, const base::Result<quorum::Lent>& lent, Out& out);

  // --- a split or a merge (quorum_cut.h)
  // Its state in the installed map, each time that one is; and as an answer to ReadReshape.
  void reshape_seen(base::Instant now, const quorum::ReshapeSeen& seen, Out& out);
  void reshape_read(base::Instant now, uint64_t number, const base::Result<quorum::ReshapeSeen>& seen, Out& out);
  // The log ends in a cut that is committed: it answers no linearizable reads, and others only up to there.
  std::optional<model::CutMark> cut() const { return log_.committed_cut(); }
  bool parked() const { return leader_ && !leader_->stopped() && (leader_->parked() || cut()); }

  // What is behind that LSN is what the other one lacks. unavailable: no election with that promise is under way here,
  // so that the log may change.
  base::Result<model::Lsn> may_lend(const model::QuorumLend& message) const;

  // --- clients
  // not_leader (detail: the leader's server, if one is known): it did not happen.
  void write(base::Instant now, quorum::RequestId request, size_t bytes, base::Instant deadline, Out& out);
  void flush(base::Instant now, Out& out);
  // ok: what is committed here now is all there is.
  base::Status may_read(base::Instant now) const;
  // Hands over to this voter, or to whoever is elected.
  void resign(base::Instant now, const model::AssignmentId& successor, std::string why, Out& out);
  void members(base::Instant now, quorum::Members members, Out& out);

  // It leads, and its epoch start is committed.
  bool serving() const { return leader_ && !leader_->stopped() && leader_->serving(); }
  // When its leader last said how far the log is committed; of a leader with a lease: now.
  base::Instant word_at(base::Instant now) const { return may_read(now) ? now : word_at_; }
  // How far this copy shows its log, whose store shows it that far: behind a cut there are only starts of epochs, and
  // their LSNs are others in what comes of it.
  model::Lsn shown(model::Lsn visible) const;
  // To a client that need not see everything. catching_up: not here, not yet.
  base::Status may_read_any(model::Lsn shown) const;
  // `seen`: the LSN in this log, or in the one that it goes on from, up to which the client has seen it.
  base::Status may_read_session(base::Instant now, model::Lsn shown, model::Lsn seen) const;
  base::Instant next_tick() const;
  const quorum::Log& log() const { return log_; }
  const Election& election() const { return election_; }
  quorum::ReplicaStatus status() const;

 private:
  base::Error not_leader() const;
  base::Result<model::PipeOpenReply> refused() const;
  bool admit(base::Instant now, const model::Envelope& envelope, model::Epoch epoch, Out& out);
  void refuse(const model::Envelope& from, model::Epoch epoch, uint64_t generation, Out& out);
  void join(base::Instant now, election::Effects effects, Out& out);
  void pass(base::Instant now, quorum::Effects& effects, Out& out);
  void lead(base::Instant now, const election::Lead& e, Out& out);
  void stop_leading(base::Instant now, const std::string& why, Out& out);
  void watch_disk(base::Instant now);
  void tell_log(base::Instant now, Out& out);
  void heal(Out& out);
  void borrow(const election::Borrow& e, base::Instant now, Out& out);
  void log_whole(base::Instant now, Out& out);
  std::vector<model::Hop> others() const;
  bool reform_wanted() const;
  void reform_if_due(base::Instant now, Out& out);
  void leave(base::Instant now, const model::Voter& instead, const model::Voters& voters, Out& out);
  const quorum::Leader::PeerStatus* successor_of(const std::vector<quorum::Leader::PeerStatus>& peers) const;
  void think_of_cut(base::Instant now, Out& out);
  // What is for the one who leads now, at that epoch if one is named: an answer may be a former one's.
  template <class Act>
  void at_leader(base::Instant now, Out& out, Act act, std::optional<model::Epoch> epoch = std::nullopt);
  quorum::Leader* leading() { return leader_ && !leader_->stopped() ? leader_.get() : nullptr; }

  model::PartitionId partition_;
  model::Hop self_;
  model::Incarnation incarnation_;
  Beacons& beacons_;
  quorum::Gatherer& gatherer_;
  quorum::Log log_;
  quorum::Follower follower_{log_};
  quorum::Rebuild rebuild_;
  quorum::Mend mend_;
  quorum::Borrow borrow_;
  std::unique_ptr<quorum::Leader> leader_;
  std::vector<std::unique_ptr<quorum::Leader>> former_;  // whose last Build is not answered yet
  Election election_;
  quorum::Cut cut_;
  quorum::Pipeline pipeline_;
  quorum::KeptRoom* kept_room_;
  std::optional<quorum::Members> members_;
  election::LogState told_;
  bool known_ = true;  // what it promised, and where its log ended, when it started
  bool hole_ = false, marking_ = false;
  std::optional<base::Instant> busy_since_;  // the disk: it has something to do, and has done nothing since
  base::Instant elect_at_{}, led_from_{};
  base::Instant word_at_{};  // of a leader, in this life
  model::Lsn told_commit_;   // the highest that one has named
};

}  // namespace cantle::proto

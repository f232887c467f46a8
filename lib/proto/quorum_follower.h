// Follower: what a replica of a quorum table does with the messages of its leader (design/replication.md, "the write
// pipeline", "Taking over").
//
// Use
//   Follower follower(log);
//   follower.open(now, call, message, out);      // only what the promise admits (Election::admits)
//   follower.block(now, call, header, message, out);   // its checksums are right
//   follower.durable(out);                       // after log.durable(…)
// The caller owns the Log and tells it of what the store appended on its own account (a leader's blocks).
//
// Invariants
//   * It answers an open only when everything in its log is durable; until then, and while it cuts, it takes no block
//     (the leader decides on what the answer says).
//   * A block is appended only where it chains to the end of the log: epoch, LSN and checksum (S2). What the log has
//     already is compared by checksum, and acknowledged only then.
//   * It acknowledges what is durable and known to be the leader's, nothing else (S5).
//   * Its commit grows only over what is durable and known to be the leader's (S1, S16).
//   * It cuts only what the leader that it follows asks for, while its log still ends where that leader saw it end, and
//     never below its commit: then it is faulted, and an operator decides.
//   * Messages of an older epoch or generation than the last open change nothing (S25).
#pragma once

#include <map>
#include <optional>

#include "lib/proto/quorum_log.h"
#include "lib/proto/quorum_types.h"

namespace cantle::proto::quorum {

constexpr size_t kEarlyMax = 256;  // blocks that came before those in front of them
constexpr base::Duration kGapEvery = std::chrono::milliseconds(50);

class Follower {
 public:
  explicit Follower(Log& log) : log_(log) {}

  void open(base::Instant now, CallId call, const model::PipeOpen& message, Effects& out);
  void cut(base::Instant now, CallId call, const model::PipeCut& message, Effects& out);
  void block(base::Instant now, CallId call, const model::BlockHeader& header, const model::PipeBlock& message,
             Effects& out, model::AttemptId attempt = {});
  void commit(base::Instant now, const model::PipeCommit& message, Effects& out);
  // What another voter has, while nobody leads. Of a log that goes on otherwise it is cut first, and taken when it is
  // lent again.
  void lent(const Lent& what, Effects& out);

  // The store refused a Take, and has everything before `end`, no more.
  void take_failed(const model::LogPoint& end, const base::Error& error, Effects& out);
  void durable(Effects& out);  // the log's durable end moved
  void truncated(const base::Status& status, Effects& out);
  // It follows nobody any more: it leads, or it promised a higher epoch.
  void leave(Effects& out);

  const std::optional<model::Hop>& leader() const { return leader_; }
  model::Epoch epoch() const { return epoch_; }  // of the leader that it follows or followed
  bool faulted() const { return faulted_; }

 private:
  struct Early {
    CallId call = 0;
    model::BlockHeader header;
    uint64_t generation = 0;
    model::AttemptId attempt;
    bool urgent = true;
  };
  bool follows(model::Epoch epoch, uint64_t generation) const;
  void ask_to_open(const model::Envelope& from, model::Epoch epoch, uint64_t generation, Effects& out);
  void answer_when_quiet(Effects& out);
  void take(const Early& block, Effects& out);
  void take_early(Effects& out);
  void drop_early(Effects& out);
  void learn(Effects& out);
  void ack(uint64_t generation, const model::LogPoint& at, bool gap, std::string error, Effects& out);
  void gap(base::Instant now, uint64_t generation, Effects& out);

  Log& log_;
  std::optional<model::Hop> leader_;
  model::Epoch epoch_;
  uint64_t generation_ = 0;
  uint64_t latest_ = 0;     // generation of the newest block
  model::Lsn agreed_;       // up to here the log is known to be the leader's
  model::Lsn told_commit_;  // the leader's, as far as it said
  std::optional<CallId> opening_;
  bool cutting_ = false;  // a Truncate is not durable yet
  bool faulted_ = false;
  std::map<model::Lsn, Early> early_;  // by first LSN
  base::Instant gap_next_{};
};

}  // namespace cantle::proto::quorum

// Mover: what replpush does (design/replication.md, "replpush"), as one machine for one server.
//
// From the view that its partd shows (the maps whose older writes have ended, what the server holds, its peers), from
// the log ends and from what live sends had confirmed, it decides which streams there are (lib/proto/mover_plan.h),
// drives each (lib/proto/mover_stream.h), and proves what may be dropped (lib/proto/proof.h).
//
// Use
//   Mover mover(random);
//   for (auto& e : mover.step(ViewSeen{now, view})) perform(e);
// The shell answers every effect that carries a ticket exactly once, with the same ticket, in any order, an error where
// it cannot do it; it performs effects in order; it sends Tick at least every 100 ms, LogsSeen when the journal
// moved and after each Measure, LiveSeen when a live mark moved, ViewSeen after RefreshView, on every
// notification and on a slow timer, and ViewLost when the partd does not answer.
//
// Invariants: those of its parts, and
//   * What one target, one partition or one table does holds up no other: streams share only the bytes under way and
//     the number of streams that move data at once, and wait for those in turn.
//   * A stream exists exactly as long as the view has its copy and its target. Marks outlive streams, so that the
//     children of a split find those of the parent; they are forgotten when nothing can need them.
//   * Every wait can be seen: streams() and proofs() say what each waits for, and for whom.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/proto/mover_stream.h"
#include "lib/proto/proof.h"

namespace cantle::proto::mover {

struct StreamStatus {
  Target target;
  Mark mark;
  LogState log;
  std::string state, why;
  bool caught_up = false;
  uint64_t sent_bytes = 0;
  int64_t retry_in_ms = 0;  // while retrying
};
struct ProofStatus {
  model::HeldPartition held;
  std::string state, why;
  uint64_t proved = 0;
};

class Mover {
 public:
  explicit Mover(base::Random& random);
  ~Mover();

  Effects step(Input input);

  std::vector<StreamStatus> streams(base::Instant now) const;
  std::vector<StreamId> stream_ids() const;
  std::vector<ProofStatus> proofs() const;
  const Counters& counters() const { return shared_.counters; }
  size_t bytes_under_way() const { return shared_.bytes; }
  // Ticks should come every few milliseconds: somebody waits for what other movers say.
  bool hurried(base::Instant now) const { return now < shared_.hurry_until; }
  bool paused() const { return shared_.paused; }
  const std::string& paused_why() const { return shared_.paused_why; }
  // Every stream is through, nothing is to be proved: what `replpush once` waits for.
  bool all_done() const;
  // What was held: kept by the shell across restarts.
  const std::set<std::string>& holds() const { return holds_; }
  void set_holds(std::set<std::string> holds) { holds_ = std::move(holds); }

 private:
  struct Copy {
    model::HeldPartition held;
    std::vector<Target> targets;
    bool covered = false, needed = false;
    std::unique_ptr<Proof> proof;  // while it is to be unloaded
  };

  void on(Tick& in, Effects& out);
  void on(ViewSeen& in, Effects& out);
  void on(ViewLost& in, Effects& out);
  void on(LogsSeen& in, Effects& out);
  void on(MarksListed& in, Effects& out);
  void on(ProofRead& in, Effects& out);
  void on(Proved& in, Effects& out);
  void on(Dropped& in, Effects& out);
  void on(Asked& in, Effects& out);
  template <class In>
  void on(In& in, Effects& out);  // everything that belongs to one stream

  void take_identity(const View& view, base::Instant now);
  void take_peers(const View& view, base::Instant now);
  void take_held(const View& view, base::Instant now);
  void plan_streams(base::Instant now, Effects& out);
  void join(base::Instant now, Effects& out);
  bool joins(const Target& target) const;
  void measure(Effects& out);
  void turns(base::Instant now, Effects& out);
  void prove(base::Instant now, Effects& out);
  bool through(const Copy& copy, std::string* why) const;
  void take_lacking(Copy& copy, base::Instant now, Effects& out);
  void forget_marks(base::Instant now, Effects& out);
  model::TxnSeq txnseq_of(const Copy& copy) const;
  Proof* proof_of(const model::AssignmentId& own);
  bool held_back(const Target& target) const;  // an operator said so

  Shared shared_;
  std::map<model::AssignmentId, Copy> copies_;
  std::map<StreamId, std::unique_ptr<MoverStream>> streams_;
  std::map<MarkKey, base::Instant> unneeded_;  // since when
  std::set<MarkKey> known_marks_;
  std::set<std::string> holds_;
  base::Instant swept_at_;
};

// Whether an operator's word means this stream.
bool names(const std::string& which, const Target& target);

}  // namespace cantle::proto::mover

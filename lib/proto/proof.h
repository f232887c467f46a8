// Proof: that a copy which is to be dropped is elsewhere (invariant 7, S54).
//
// After its streams are through, the copy is read from the index range by range, and every server that should have
// the range is asked, now and under the tenures that METADATA names now, whether it holds every key at our version or
// a newer one, durable. Earlier confirmations count for nothing: they may be of another tenure, or of a copy that has
// rotted since. When all ranges are through, the view is read again; if nothing has changed, the targets are asked a
// last time whether they are there, and the partd is asked to drop. Anything else begins the proof anew.
//
// Invariants
//   * Drop is sent only if, in this run, every target answered for every range that it should hold and lacked nothing;
//     targets, their incarnations, our log end and the map's entries were the same at the end as at the beginning.
//   * The index is believed only where it has applied the log through `end`.
//
// A part of Mover; not used alone.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lib/proto/mover_stream.h"

namespace cantle::proto::mover {

class Proof {
 public:
  Proof(Shared& shared, model::HeldPartition held, base::Instant now);

  // `targets` as they are now; all their streams are through. Begins, goes on, or begins anew if something changed.
  void advance(const std::vector<Target>& targets, const model::LogPoint& end, model::TxnSeq txnseq, base::Instant now,
               Effects& out);
  // A view that was asked for after all ranges were proved has come.
  void viewed(const std::vector<Target>& targets, const model::LogPoint& end, model::TxnSeq txnseq, base::Instant now,
              Effects& out);
  void on(ProofRead in, Effects& out);
  void on(const Proved& in, Effects& out);
  void on(const Dropped& in, Effects& out);
  void stop(std::string why);  // the streams are not through, or a stream is held

  bool waits_for_view() const { return state_ == State::viewing; }
  bool done() const { return state_ == State::dropped; }
  // Streams whose target turned out to lack something: to be pushed again from zero. Cleared by the call.
  std::set<StreamId> take_lacking();
  std::string state() const;  // waiting, reading, asking, viewing, dropping, dropped
  std::string why() const { return why_; }
  uint64_t proved() const { return proved_; }  // keys, in this run

 private:
  enum class State : uint8_t { waiting, reading, asking, viewing, dropping, dropped };
  void start(const std::vector<Target>& targets, const model::LogPoint& end, model::TxnSeq txnseq, base::Instant now,
             Effects& out);
  void read(base::Instant now, Effects& out);
  struct Ask {
    size_t target = 0;
    model::Digest message;
    uint64_t ticket = 0;  // 0: to be sent when `again` has come
    int tries = 0;
    base::Instant again;
  };
  void ask(const std::vector<model::DigestEntry>& entries, base::Instant now, Effects& out);
  void send(Ask& ask, base::Instant now, Effects& out);
  void again(base::Instant now, std::string why);
  std::vector<model::Incarnation> incarnations(const std::vector<Target>& targets) const;
  bool same(const std::vector<Target>& targets, const model::LogPoint& end) const;

  Shared& shared_;
  model::HeldPartition held_;
  State state_ = State::waiting;
  std::string why_ = "the rest is still being pushed";
  base::Instant retry_at_;
  base::Duration backoff_{0};
  std::vector<Target> targets_;
  std::vector<model::Incarnation> incarnations_;
  model::LogPoint end_;
  model::TxnSeq txnseq_;
  uint64_t ticket_ = 0;
  std::vector<Ask> asked_;  // and not answered yet
  base::Instant asked_at_;
  std::string through_key_;
  bool last_ = false, final_ = false;
  uint64_t proved_ = 0;
  std::set<StreamId> lacking_;
};

}  // namespace cantle::proto::mover

// Judge: says of each write to a quorum table's partition what it comes to, at its leader, before it goes into the log
// (design/replication.md, "Exactly once" and "the write pipeline", point 1).
//
// Writes are judged in the order of the log, against the log's end: what is committed, as the store shows it, and over
// that what was judged before and is not committed yet, which is remembered here. The log carries what comes out:
// records with resulting values, and whose write it was; never conditions.
//
// Use
//   Judge judge({value, series, log_time});          // the store, as functions
//   auto verdict = judge.judge(write, epoch, first); // `first`: the LSN that a record would have
//     NewWrite: append its records at `first`; when the outcome's LSN is committed, answer the outcome, or `refused`
//     Repeat: answer the outcome once `after` is committed (0: now), and say that it is a repeat
//     Refusal: answer the error once `after` is committed (0: now)
//   judge.cut(first);        // what was judged from this LSN on did not get into the log
//   judge.committed(lsn);    // the store shows all up to there: it is forgotten here
//   judge.reset();           // the leadership is over
//
// Begin, in each epoch, when the leader serves. What was in the log before must be shown by the store: until
// committed() has said so, every write is refused, to be tried again.
//
// Invariants
//   * A verdict is what the same write would get if everything before it in the log had been committed.
//   * `after` is the highest LSN that is not known as committed and was judged by; a NewWrite's own LSN is above all
//   it
//     was judged by. So no answer, a refusal neither, tells of anything that may still be lost (S24).
//   * Of a client's number there is one NewWrite: a repeat gets its outcome, while it is under way and after. It is not
//     written again below the client's window (SERIES_OLD), nor when it may have been forgotten (SERIES_EXPIRED).
//   * What a Refusal says did not happen.
//   * Memory is bounded by kPendingMax and kWindowsMax; in a leader its bound on uncommitted bytes comes first.
//   * A client's window is asked for once, and followed from then on (quorum_windows.h): what it has of a number may be
//     remembered for kWindowSlackMs of log time longer than the store does, never shorter.
//
// While it judges, the store shows what committed() was told, not less, and not more. Cut or reset, what waits for an
// `after` that is gone is judged again, or, when the leadership is over, answered NOT_LEADER (a Refusal: it did not
// happen) or OUTCOME_UNKNOWN (a Repeat).
//
// Threads: one at a time. Units: bytes; milliseconds of log time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/client_messages.h"
#include "lib/model/record.h"
#include "lib/model/series.h"
#include "lib/proto/quorum_windows.h"

namespace cantle::proto::quorum {

constexpr size_t kPendingMax = size_t{64} << 20;  // bytes of what is judged and not committed
constexpr size_t kPendingCost = 256;              // that a record takes besides its key and value
constexpr uint32_t kPendingRetryMs = 20;
constexpr uint64_t kWindowSlackMs =
    1000;  // of log time between two committed(): beyond that windows are asked for again

// What is committed. Views are good until the next call.
struct HeldValue {
  model::Version version;
  std::string_view value;
};
struct CommittedState {
  std::function<base::Result<std::optional<HeldValue>>(std::string_view key)> value;  // nothing: not there, or deleted
  std::function<base::Result<model::ClientSeries>(uint64_t client)> series;
  std::function<uint64_t()> log_time;  // ms, through what is shown
};

// A request whose fields were checked (lib/wire/client_request.h).
struct Write {
  model::WriteKind kind = model::WriteKind::write;
  std::span<const model::WriteOp> ops;  // 1 or more, with different keys; of cas, append and incr 1
  model::ExpectView expect;             // cas
  int64_t by = 1;                       // incr
  uint64_t client = 0, series = 0;      // 0: it does not say whose it is
  uint64_t age_ms = 0;                  // since it was first sent
};

struct NewWrite {
  std::vector<model::RecordView> records;  // with versions; views are good until the next call
  model::WriteOutcome outcome;
  // A cas that was sent before, and whose condition does not hold now. Its one record changes nothing, and keeps what
  // was sent before from finding it true later.
  std::optional<base::Error> refused{};
};
struct Repeat {
  model::WriteOutcome outcome;
  model::Lsn after;
};
struct Refusal {
  base::Error error;
  model::Lsn after;
};
using Verdict = std::variant<NewWrite, Repeat, Refusal>;

class Judge {
 public:
  explicit Judge(CommittedState state) : state_(std::move(state)) {}

  // `first` is above all LSNs that were judged and not cut. Another epoch comes after a reset().
  Verdict judge(const Write& write, model::Epoch epoch, model::Lsn first);
  void cut(model::Lsn first);
  void committed(model::Lsn lsn);
  void reset();

  size_t pending() const { return pending_.size(); }  // records
  size_t bytes() const { return bytes_; }

 private:
  // A record that is not committed. Its place in the order of all of this Judge's is its number.
  struct Pending {
    model::Lsn lsn;
    model::Record record;
    std::optional<uint64_t> older;  // the one before of this key
    model::WriteOutcome outcome;
  };
  // A key at the end of the log.
  struct Key {
    std::optional<HeldValue> held;
    model::Lsn after;
  };
  base::Result<Key> look(std::string_view key) const;
  std::optional<Verdict> judge_series(const Write& write);
  Verdict judge_cas(const Write& write, const Key& key, model::Epoch epoch, model::Lsn first);
  Verdict refuse(const Write& write, base::Error error, model::Epoch epoch, model::Lsn first);
  Verdict judge_append(const Write& write, const Key& key, model::Epoch epoch, model::Lsn first);
  Verdict judge_incr(const Write& write, const Key& key, model::Epoch epoch, model::Lsn first);
  Verdict add(const Write& write, std::span<const model::WriteOp> ops, model::ResultKind kind, model::Epoch epoch,
              model::Lsn first);
  std::optional<Refusal> full(size_t bytes) const;
  void note(model::Record record, model::Lsn lsn);
  void forget_series(const Pending& p, uint64_t number);
  void follow(const Pending& p, uint64_t before_ms);
  const Pending& at(uint64_t number) const { return pending_[number - front_]; }

  CommittedState state_;
  std::deque<Pending> pending_;                              // by LSN
  uint64_t front_ = 0;                                       // number of the first
  std::map<std::string, uint64_t, std::less<>> newest_;      // of each key
  std::map<uint64_t, std::map<uint64_t, uint64_t>> series_;  // client → series → number
  size_t bytes_ = 0;
  model::Epoch epoch_;     // of what was judged last
  model::Lsn from_;        // the end of the log when that epoch began
  model::Lsn shown_;       // by the store
  uint64_t shown_ms_ = 0;  // log time then
  Windows windows_;
};

}  // namespace cantle::proto::quorum

// MoverStream: one target of the mover: from the log of a copy held here to one assignment elsewhere.
//
// In order: the position is loaded; the stream is opened (bulk.begin) when the target is behind; batches of the log
// are read, and sent several at a time; the position follows what is confirmed without a gap, and is recorded. What
// this server stamped is sent as it is; what others stamped is offered as (key, version) first, and only what the
// target lacks is sent; a target that live sends have reached all the time is offered everything. What a server stamped
// whose own mover pushes to the target is passed over until that mover has said, through the target, that it is there
// (model::Delivered); only when there is no news for a while is it read again and offered. A target that the
// journal does not reach back to gets a snapshot first, and then the log from where the index stood when the snapshot
// began (S22). So does one that is to be given everything (it is being filled, healed, or lacks what was to be proved)
// by a copy that was itself filled by a snapshot: its log does not have that. And so does one that lacks what stands
// behind a damaged place of the log: what stood there is in no log, and may be in the index; the snapshot waits, for a
// while, for the index to have applied the log past that place. Where the position has reached the log
// end that was measured after the map, bulk.end says so (S43).
//
// The log of a merge's target begins behind two others, of which the target may not have all. A stream of it that finds
// no position of its own begins when the streams of these two are through, where that log begins; if one of them cannot
// go on (the journal does not have it any more, or it is damaged, or the target asks for everything), with a snapshot,
// which has what is in both. Those streams bring what is in the log and nothing else: they copy nothing, and end
// nothing.
//
// Invariants
//   * The position of a log that goes on from two is none before everything in both is confirmed.
//   * The position never passes a record that the target has not confirmed durable.
//   * bulk.end is sent only for a position at or past a log end measured after the map that its envelope names, and to
//     a target that is being filled only by a copy that has itself caught up with the others.
//   * A failure, whatever it is, ends in a later attempt from the position, with jittered backoff; it touches no
//     other stream (what was under way is forgotten, late answers are dropped, S25).
//   * Snapshot chunks are sent one after the other, each after the last was confirmed.
//   * What delivered() says holds for every record of the log, read or not. While a partition is split two blocks are
//     gathered at once and stamped interleaved: then nothing is said, and never anything at or above the oldest stamps
//     of the last two blocks.
//
// A part of Mover; not used alone. `Shared` is what streams have in common; it must outlive them.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/proto/mover_plan.h"
#include "lib/proto/mover_types.h"

namespace cantle::proto::mover {

struct Counters {
  uint64_t blocks = 0, records = 0, bytes = 0;    // sent and confirmed
  uint64_t offered = 0, lacked = 0, settled = 0;  // foreign records: offered, of those lacking, passed over unoffered
  uint64_t snapshots = 0, ends = 0, failures = 0, drops = 0;
};

struct Peer {
  model::Incarnation incarnation;
  bool live = false;
  base::Instant since;  // when this incarnation was first seen
};

struct Shared {
  explicit Shared(base::Random& r) : random(r) {}
  base::Random& random;
  bool paused = true;  // no view
  std::string paused_why = "the partition server has not been asked yet";
  model::ServerId self;
  model::ServerNumber number;
  model::Incarnation incarnation;
  std::map<std::string, std::shared_ptr<const model::Metadata>> maps;
  std::map<model::ServerId, Peer> peers;
  std::map<model::ServerNumber, model::ServerId> numbers;
  std::map<model::PartitionId, LogState> logs;
  uint64_t measure = 0, measured = 0;  // asked for, answered
  uint64_t tickets = 0;
  size_t bytes = 0;  // read and not confirmed
  size_t active = 0;
  std::map<model::ServerId, size_t> active_at;
  bool freed = false;         // a slot or bytes came free: somebody may be waiting for them
  base::Instant hurry_until;  // somebody waits for what other movers say: ticks should come often
  Counters counters;
};

// The envelope of a message to one assignment.
model::Envelope envelope_to(const Shared& shared, const Target& target, model::TxnSeq txnseq);

class MoverStream {
 public:
  MoverStream(Shared& shared, Target target, base::Instant now);
  ~MoverStream();
  MoverStream(const MoverStream&) = delete;
  MoverStream& operator=(const MoverStream&) = delete;

  // Inputs. Each does what can be done next.
  void retarget(Target target, std::vector<model::SettledMark> settled, base::Instant now, Effects& out);
  void advance(base::Instant now, Effects& out);
  void on(const LiveSeen& in, Effects& out);
  void on(MarkLoaded in, Effects& out);
  void on(LogRead in, Effects& out);
  void on(const SnapshotOpened& in, Effects& out);
  void on(SnapshotRead in, Effects& out);
  void on(const Began& in, Effects& out);
  void on(const Confirmed& in, Effects& out);
  void on(const Digested& in, Effects& out);
  void on(const EndTold& in, Effects& out);
  void pause();  // the view is gone
  void peer_restarted(base::Instant now);
  void hold(bool held);
  void wake();
  void requeue(base::Instant now, Effects& out);  // from zero
  // Of a merge's target, for which no position is known: it waits until the logs that this one goes on from are
  // through.
  bool waits_for_joined() const;
  bool unjoined() const { return unjoined_; }
  void join(bool through, base::Instant now, Effects& out);  // or: by a snapshot
  bool stuck() const { return stuck_; }                      // a joined log's: it cannot go on

  // What it is doing, for people and for the proof.
  const Target& target() const { return target_; }
  const Mark& mark() const { return mark_; }
  bool held() const { return held_; }
  bool wants_turn() const { return wants_turn_; }
  // Everything in the log is confirmed, as of a measurement after the map.
  bool caught_up() const;
  std::string state() const;  // one word: loading, idle, opening, sending, copying, waiting, retrying, held, paused
  std::string why() const;    // why nothing moves, "" when something does or nothing has to
  uint64_t sent_bytes() const { return sent_bytes_; }
  base::Instant retry_at() const { return retry_at_; }

 private:
  enum class Phase : uint8_t { loading, idle, measuring_snapshot, opening, sending, copying };
  enum class Offer : uint8_t { none, wanted, asked, waiting, sent };  // of an item's foreign records
  struct Item {
    std::optional<model::LogPoint> through;  // the position once this and all before it is done
    size_t bytes = 0;
    Records own;
    uint64_t own_ticket = 0;
    base::Instant own_retry;  // after OVERLOADED
    bool own_done = true;
    std::vector<Foreign> foreign;  // what is left of them
    Offer offer = Offer::none;
    uint64_t offer_ticket = 0;
    base::Instant offer_again;
    Records lacking;
    size_t lacked_last = 0;
    int stalls = 0;
    std::vector<Awaited> awaited;  // other movers bring them
    model::LogPoint from;          // where its read began, for reading it again
    uint64_t again_ticket = 0;
    model::Version own_oldest;  // stamped in this life; none: there is none
    // Of a snapshot's chunk.
    std::string through_key;
    bool last = false;
    bool done() const { return own_done && offer == Offer::none && awaited.empty(); }
  };
  using Foreigns = std::vector<Foreign>;

  // mover_stream.cc
  void load(Effects& out);
  bool work_waits(base::Instant now) const;
  bool grace_over(base::Instant now) const;
  bool being_filled(base::Instant now) const;
  bool needs_snapshot() const;
  bool rest_owed() const;
  void begin(base::Instant now, Effects& out);
  void open_snapshot(base::Instant now, Effects& out);
  void fail(base::Instant now, const base::Error& error, Effects& out);
  void reset();
  void give_up();
  void rest();
  void heal(uint64_t number, base::Instant now, Effects& out);
  bool take_turn();
  void give_turn();
  bool overdue(base::Instant now) const;
  void sent(base::Instant now);
  void record(base::Instant now, bool at_once, Effects& out);
  const LogState* log() const;
  bool behind() const;
  void note_goal();

  // mover_send.cc
  void fill(base::Instant now, Effects& out);
  void read_more(base::Instant now, Effects& out);
  bool meets_damage(const LogBatch& batch, base::Instant now);
  void add_batch(LogBatch batch, base::Instant now, Effects& out);
  void add_foreign(Foreigns foreign, size_t at, base::Instant now, Effects& out);
  void note_own(const LogBatch& batch);
  std::optional<model::Delivered> delivered() const;
  std::vector<model::ServerNumber> to_await() const;
  bool delivered(const model::Version& oldest, const model::Version& newest) const;
  void take_delivered(const std::vector<model::Delivered>& all, base::Instant now);
  void drop_delivered(Item& item);
  bool over(const Awaited& awaited) const;
  void read_again(base::Instant now, Effects& out);
  void on_again(Item& item, LogRead in, Effects& out);
  void ask_delivered(base::Instant now, Effects& out);
  model::BulkBlock block_of(const Records& records);
  void let_go(Item& item, size_t bytes);
  bool settled(const model::Version& version) const;
  bool stamper_pushes(const model::Version& version) const;
  bool stamped_by_target(const model::Version& version) const;
  void send_own(Item& item, base::Instant now, Effects& out);
  void offer(Item& item, base::Instant now, Effects& out);
  void send_lacking(Item& item, const std::vector<uint32_t>& indexes, base::Instant now, Effects& out);
  void send_offered(Item& item, base::Instant now, Effects& out);
  void retry_items(base::Instant now, Effects& out);
  bool slow_down(const base::Error& error, base::Instant now, base::Instant* again);
  void pop(base::Instant now, Effects& out);
  bool end_owed(base::Instant now) const;
  void send_end(base::Instant now, Effects& out);
  void copy_more(base::Instant now, Effects& out);
  void copied(base::Instant now, Effects& out);

  Shared& shared_;
  Target target_;
  std::vector<model::SettledMark> settled_;
  Mark mark_, recorded_;
  Phase phase_ = Phase::loading;
  bool loaded_ = false, held_ = false, wants_turn_ = false, has_turn_ = false, open_ = false;
  bool want_snapshot_ = false;
  bool unjoined_ = true;  // until its position is known
  bool stuck_ = false;
  bool has_rest_ = false;     // what is in no log was given to the target, or is none of this stream's business
  bool verified_ = false;     // the position is in our log
  bool was_through_ = false;  // once: from then on live sends are given time
  bool in_touch_ = false;     // since it was through nothing failed: live sends have reached it
  uint64_t healing_ = 0;      // the target asked, with this number, to be offered everything; 0: it has been
  uint64_t heal_seen_ = 0;    // the last such number
  bool stepped_in_ = false;   // they had their time: until the target is through, the mover brings it there

  uint64_t ticket_ = 0;       // of LoadMark, OpenSnapshot or SendBegin: what the phase waits for
  uint64_t read_ticket_ = 0;  // of a read under way
  uint64_t end_ticket_ = 0;
  base::Instant last_sent_;  // for the deadline of answers
  size_t unanswered_ = 0;

  std::deque<Item> items_;
  size_t bytes_ = 0;
  model::LogPoint read_at_;
  std::string read_key_;  // snapshot
  bool read_last_ = false;
  size_t direct_bytes_ = 0;
  // What this server's mover says of its own stamps.
  model::Version spoken_from_, last_oldest_, before_oldest_;
  bool spoken_gap_ = false;    // something of the log was not read as it stands: what comes right behind is left out
  bool offering_own_ = false;  // the read under way
  // What the others have said of theirs.
  std::vector<model::Delivered> delivered_;
  std::optional<model::Delivered> told_delivered_;  // what was said last
  base::Instant news_at_, asked_at_;
  uint64_t ask_ticket_ = 0, again_ticket_ = 0;
  model::Lsn gap_;  // end of the last damaged place that was met since everything was offered, and when it was
  base::Instant gap_at_;
  base::Duration slow_{0};
  base::Instant slow_until_;
  std::string slow_why_;

  base::Instant progressed_at_, recorded_at_, retry_at_, copy_retry_;
  base::Duration backoff_{0};
  std::string failure_;
  uint64_t failures_ = 0;  // in a row

  model::Lsn seen_end_;  // of the log, and when it was found to have grown; since when the source is catching up
  base::Instant grew_at_, catching_up_at_;

  uint64_t goal_measure_ = 0;            // the measurement that the goal waits for
  std::optional<model::LogPoint> goal_;  // log end measured after the map at goal_txnseq_
  model::TxnSeq goal_txnseq_;
  struct Told {
    model::LogPoint through;
    model::TxnSeq txnseq;
    base::Instant at;
  };
  std::optional<Told> told_;
  model::LogPoint end_through_;
  model::TxnSeq end_txnseq_;
  uint64_t end_healed_ = 0;
  uint64_t sent_bytes_ = 0;
};

}  // namespace cantle::proto::mover

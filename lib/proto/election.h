// Election: who leads one partition of a quorum table, as one replica of it sees that (design/replication.md, "Quorum
// tables: who leads"). One for each quorum tenure of a server.
//
// A voter that misses the leader asks the others, and when a majority says the same it reads the government after a
// sync, waits until what it promised the leader is over, seals, votes, and with a majority's votes the best of them
// swaps the government. A leader renews its government when a voter has promised more, and resigns when it has lost the
// majority or its disk stands still.
//
// Use
//   Election election(self, beacons);                     // after recovery; `beacons` is the server's, and outlives it
//   for (auto& e : election.step(now, input)) std::visit([&](auto& x) { perform(x); }, e);
//   election.admits(epoch)                                // may a message of this government's epoch act here?
//   election.answer(now, question)                        // quorum.suspect
// Tick at next_look(), and at once when Beacons::take_news() says so.
//
// Effects that ask are answered with their number; an answer to another number is passed over, and one that does not
// come within kAnswerMost is asked for again.
//   ReadGovernment   sync, then read it                          -> GovernmentRead
//   SwapGovernment   write it at this version; ring              -> Swapped
//   Seal             a durable local block                       -> Sealed, with what the log had then
//   PutVote          be there with exactly this, made anew if it is of another session (S34); ring
//   RemoveVote       not there any more                          -> both VotePut
//   ReadVotes        every vote of the partition                 -> VotesRead
//   AskSuspect       quorum.suspect to that voter                -> SuspectAnswered
//   SendRelease      quorum.release; no answer is needed: beacons repeat it
//   Lead             it leads at this epoch: begin it in the log. Again, with a higher epoch, after a renewal
//   Electorate       the voters have changed, or a swap for others has come to nothing
//   Stop             it leads no more: nothing is acknowledged, answered or sent as a leader from here on
//   Follow           whom to expect pipes from
//   Borrow           get what those have and this one has not; again and again, until LogState says that it is there
//
// Invariants
//   * It leads only at epochs whose government names it and was swapped in by this very life of it, for a leadership
//     that has not been resigned since. A server that starts never goes on leading (S6, S7).
//   * A seal comes only after a synced read begun within this suspicion has been answered (S33, S35), after what was
//     promised to that government's leader has run out (S7), and is one above that government.
//   * It swaps only at the version that it read, and to an epoch above every one it has seen. A swap whose answer was
//     lost is neither made nor failed until the government was read (S27).
//   * A candidate has the votes of a majority with its own promise, and a log at least as long as those of some
//     majority (S18): everything committed is in it.
//   * Where those whose logs are long enough cannot lead, the best of those that can gets what it lacks from them, and
//     votes again: they are sealed, and nothing changes under them.
//   * While the coordination service is away nothing is sealed, so that the leader goes on (S35).
//   * While a swap for other voters may have been made, or may be made yet, a lease takes a majority of both sets, and
//     it is over only when the version that it was sent for has passed (S27, S61).
//   * From the moment that a seal is asked for, admits() and the answers to beacons keep it.
//   * A replica whose log is not whole as it starts knows neither what it promised nor where its log ended: a seal, or
//     blocks that it confirmed, may be among what is lost. It could not promise more than one above the government, as
//     that is now: it obeys nobody before it has promised just that, and whoever leads renews. It does not vote before
//     its log is whole again (R16).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/proto/beacons.h"
#include "lib/proto/metadata_types.h"

namespace cantle::proto {

namespace election {

constexpr base::Duration kTick = std::chrono::milliseconds(250);    // at most between two looks while it is not calm
constexpr base::Duration kCalmTick = std::chrono::seconds(1);       // and while it leads or follows
constexpr base::Duration kRungCalm = std::chrono::seconds(2);       // within which one that is calm looks for whom
constexpr base::Duration kTurn = std::chrono::milliseconds(300);    // between one candidate and the next
constexpr base::Duration kSealTurn = std::chrono::milliseconds(2);  // likewise, when they seal
constexpr base::Duration kTurnThere = 3 * kTurn;                    // if the one is heard: it has much to do, perhaps
constexpr base::Duration kFirstVote = kTurn / 2;  // for the vote of one that would go first, and is there
constexpr base::Duration kHeardLately = 3 * beacon::kBeaconEvery;
constexpr base::Duration kBorrowEvery = std::chrono::milliseconds(100);
// Votes are heard as they are cast (VoteHeard); they are read as well, at first this long after one's own, then ever
// less often: where a majority is away, as many partitions as a server has would ask the coordination service all the
// time.
constexpr base::Duration kVotesEvery = std::chrono::milliseconds(300);
constexpr base::Duration kVoteLinger = std::chrono::seconds(1);               // of one that nobody needs any more
constexpr base::Duration kVotingReadEvery = std::chrono::milliseconds(1000);  // of the government
constexpr base::Duration kVotesLong = std::chrono::seconds(3);  // after which the government is read less often
constexpr base::Duration kVotesMost = std::chrono::seconds(1), kVotingReadMost = std::chrono::seconds(4);
constexpr base::Duration kAskEvery = std::chrono::milliseconds(300), kAskMost = std::chrono::seconds(2);
constexpr base::Duration kFresh = std::chrono::seconds(2);        // a read before a seal
constexpr base::Duration kContactMost = std::chrono::seconds(1);  // a leader without a majority's answers
constexpr base::Duration kLeaselessMost = std::chrono::seconds(5);
constexpr base::Duration kRest = std::chrono::seconds(5);  // who resigned does not lead
constexpr base::Duration kHandOver = std::chrono::milliseconds(600);
constexpr base::Duration kUnknownMost = std::chrono::seconds(2);
constexpr base::Duration kAnswerMost = std::chrono::seconds(10);
constexpr base::Duration kReadEvery = std::chrono::seconds(10);       // of the government, in any case
constexpr base::Duration kSwapAgain = std::chrono::milliseconds(50);  // after one that failed
constexpr base::Duration kReadAgain = std::chrono::milliseconds(200), kReadAgainMost = std::chrono::seconds(1);

struct Self {
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::ServerId server;
  model::Incarnation incarnation;
  model::Epoch promised;  // the log's newest seal
  model::LogToken token;  // there was a government of its epoch: what is older is not obeyed
  bool whole = true;      // false: a seal may be lost, too
  bool hole = false;      // a block cannot be read: it votes, and does not lead before it has it
};
struct VersionedGovernment {
  model::Government government;
  int32_t version = 0;
  bool operator==(const VersionedGovernment&) const = default;
};

// --- inputs ---------------------------------------------------------------------------------------------------
struct Tick {};
struct GovernmentRead {
  uint64_t number = 0;
  base::Result<std::optional<VersionedGovernment>> answer;  // nothing: there is no such node
};
struct Swapped {
  uint64_t number = 0;
  SwapResult result = SwapResult::unknown;
  int32_t version = 0;  // done: the new one
};
struct Sealed {
  model::Epoch promised;
  base::Result<model::LogToken> log;  // its durable end when the seal was durable
};
struct VotePut {
  uint64_t number = 0;
  base::Status status;
};
struct VotesLost {};  // the session expired
struct VotesRead {
  uint64_t number = 0;
  base::Result<std::vector<model::Vote>> votes;
};
struct SuspectAnswered {
  model::AssignmentId by;
  uint64_t number = 0;
  base::Result<model::QuorumSuspectReply> answer;
};
struct Rung {          // the bell
  bool named = false;  // for this partition's government; else whatever may have changed, of any
};
struct VoteHeard {  // with the bell: it was cast, and stood then
  model::Vote vote;
};
struct LogState {
  model::LogToken token;  // durable
  bool whole = true;      // everything above the applied LSN is there
  bool moving = true;     // the disk makes progress
};
struct PromiseMet {
  model::Epoch promised;
};  // a voter refused a message of this leader
// A message of this government came and was admitted: its sender is the only leader of that epoch.
struct LeaderMet {
  model::Epoch epoch;
  model::AssignmentId assignment;
  model::ServerId server;
  model::Incarnation incarnation;
};
// The voters are to be these, by a map of that transaction; this replica stays one of them. Asked only while
// may_reform(). From here on the lease takes both sets; answered with Electorate.
struct Reform {
  model::Voters voters;
  model::TxnSeq txnseq;
};
struct ResignAsked {
  model::AssignmentId successor;  // none: whoever is elected; else it is level with us, and writes are parked
  std::string why;
  // The voters are to be these when it has gone; it is none of them, and they have what it has committed.
  std::optional<Reform> voters = {};
};
// Of a leader: what its government should say of a cut. Again with each change; forgotten when it leads no more.
struct ReportCut {
  std::optional<model::CutReport> cut;
};
using Input = std::variant<Tick, GovernmentRead, Swapped, Sealed, VotePut, VotesLost, VotesRead, SuspectAnswered, Rung,
                           VoteHeard, LogState, PromiseMet, LeaderMet, ResignAsked, Reform, ReportCut>;

// --- effects --------------------------------------------------------------------------------------------------
struct ReadGovernment {
  uint64_t number = 0;
};
struct SwapGovernment {
  uint64_t number = 0;
  int32_t version = 0;
  model::Government to;
};
struct Seal {
  model::Epoch promised;
};
struct PutVote {
  uint64_t number = 0;
  model::Vote vote;
};
struct RemoveVote {
  uint64_t number = 0;
  model::LogToken token;
};
struct ReadVotes {
  uint64_t number = 0;
};
struct AskSuspect {
  model::Voter to;
  uint64_t number = 0;
  model::Epoch epoch;
  model::AssignmentId leader;
  model::ServerId server;
};
struct SendRelease {
  model::Voter to;
  model::Epoch epoch;
  model::AssignmentId successor;
};
struct Lead {
  model::Epoch epoch;
  model::Government government;
  bool renewed = false;
};
// To one that leads at this epoch: these are its government's voters, and no swap for others is under way.
struct Electorate {
  model::Epoch epoch;
  model::Voters voters;
};
struct Stop {
  model::Epoch epoch;
  std::string why;
};
struct Follow {
  model::Epoch epoch;
  model::ServerId leader;  // empty: nobody leads
};
struct Borrow {
  model::Epoch promise;  // theirs, and this one's
  model::Voters from;    // the longest log first
};
struct Say {
  base::Level level = base::Level::info;
  std::string text;
};
using Effect = std::variant<ReadGovernment, SwapGovernment, Seal, PutVote, RemoveVote, ReadVotes, AskSuspect,
                            SendRelease, Lead, Electorate, Stop, Follow, Borrow, Say>;
using Effects = std::vector<Effect>;

// Why a voter would have another leader.
enum class Cause : uint8_t {
  none,
  silent,      // no beacon for kSilent: the others are asked
  leaderless,  // the government says so
  own,         // it names us, and we do not lead
  released,
  new_life,  // the leader's server started again
};

}  // namespace election

// Of those that voted with `promise`, who may become leader, best first: those that can lead and whose log is at least
// as long as that of every voter of some majority that they are in (S18), by token, then by slot, from `first_slot` on
// and around. Votes of assignments that are no voters do not count, and of one voter only its newest life's.
std::vector<model::Vote> candidates(const model::Voters& voters, const std::vector<model::Vote>& votes,
                                    model::Epoch promise, uint32_t first_slot = 0);
// Another one for each partition, so that where thousands elect at once each server is first in as many, and no two
// servers want the same ones.
uint32_t first_slot(const model::PartitionId& partition, const model::Voters& voters);

class Election {
 public:
  Election(election::Self self, Beacons& beacons);

  election::Effects step(base::Instant now, const election::Input& input);

  // --- questions ---
  // What is not below every promise and every government that this replica knows of.
  bool admits(model::Epoch epoch) const;
  model::Epoch floor() const { return std::max({promise_, sealing_, highest_}); }  // a refusal says it
  model::QuorumSuspectReply answer(base::Instant now, const model::QuorumSuspect& question);
  std::optional<model::Epoch> leads() const;
  // It leads, and no swap for other voters is under way.
  bool may_reform() const { return leads_ && !reform_ && read_ && read_->government.epoch == leads_->epoch; }
  // Until when a leader may answer reads; zero for anybody else.
  base::Instant lease_until() const;
  const model::Government* government() const { return read_ ? &read_->government : nullptr; }
  // What the government says of a cut, or is to say.
  std::optional<model::CutReport> cut_report() const {
    return report_ ? report_->cut : read_ ? read_->government.cut : std::nullopt;
  }
  model::ServerId leader() const { return leader_.server; }  // empty: none known
  // Of the newest leader known. A pipe's open is answered when it is the epoch of that, after LeaderMet.
  model::Epoch follows() const { return leader_.epoch; }
  model::Epoch promise() const { return promise_; }
  bool can_lead(base::Instant now) const;
  // It does not know what it promised, and obeys nobody; then: what it promised instead.
  bool in_doubt() const { return doubt_; }
  const std::optional<model::Epoch>& doubted() const { return doubted_; }
  // Where a vote of its own may stand: whoever ends it removes those.
  const std::set<model::LogToken>& standing() const { return standing_; }
  std::string_view doing() const;
  // Answers to ReadVotes are for something. Who knows of a majority waits for its turn, or for who goes before it: no
  // vote more is of use.
  bool wants_votes(base::Instant now) const {
    return phase_ == Phase::held ||
           (phase_ == Phase::voting && (!majority_since_ || *majority_since_ + election::kTurnThere <= now));
  }
  // When time alone may have something to be done, if nothing comes before.
  base::Instant next_look(base::Instant now) const;
  // It leads or follows, asks for nothing and waits for no answer: what ends that is heard of, or takes a second.
  bool calm() const {
    return phase_ == Phase::calm && read_ && !want_read_ && !reading_.out && !swap_ && !putting_.out && !wanted_ &&
           !unknown_since_ && !empties() && !reform_;
  }

 private:
  enum class Phase : uint8_t {
    calm,
    asking,    // the others, whether they miss the leader, too
    held,      // a hand-over's successor goes first
    reading,   // the government
    waiting,   // for what was promised to run out
    sealing,   // until it is durable
    voting,    // for a majority's votes, or for a government
    swapping,  // until the outcome is known
  };
  struct Known {  // the leader as far as is known
    model::Epoch epoch;
    model::AssignmentId assignment;  // none: nobody leads
    model::ServerId server;
    model::Incarnation life;  // 0: not heard of yet
    base::Instant since;
  };
  struct Leading {
    model::Epoch epoch;
    base::Instant since, leased;  // leased: it last had a lease
  };
  struct Request {  // one of a kind under way
    uint64_t number = 0;
    base::Instant sent;
    bool out = false;
    bool late(base::Instant now) const { return out && sent + election::kAnswerMost <= now; }
  };
  struct Swap {
    Request request;
    model::Government to;
  };
  struct Pending {
    int32_t version = 0;
    model::Epoch epoch;
  };
  struct Lease {
    uint64_t of = 0;  // the beacons' changes
    base::Instant until;
  };
  struct Reforming {
    election::Reform to;
    int32_t version = 0;  // that it is sent for; when another is read it has been made, or never will be
  };

  void on(base::Instant now, const election::Tick& in, election::Effects& out);
  void on(base::Instant now, const election::GovernmentRead& in, election::Effects& out);
  void on(base::Instant now, const election::Swapped& in, election::Effects& out);
  void on(base::Instant now, const election::Sealed& in, election::Effects& out);
  void on(base::Instant now, const election::VotePut& in, election::Effects& out);
  void on(base::Instant now, const election::VotesLost& in, election::Effects& out);
  void on(base::Instant now, const election::VotesRead& in, election::Effects& out);
  void on(base::Instant now, const election::SuspectAnswered& in, election::Effects& out);
  void on(base::Instant now, const election::Rung& in, election::Effects& out);
  void on(base::Instant now, const election::VoteHeard& in, election::Effects& out);
  void on(base::Instant now, const election::LogState& in, election::Effects& out);
  void on(base::Instant now, const election::PromiseMet& in, election::Effects& out);
  void on(base::Instant now, const election::LeaderMet& in, election::Effects& out);
  void on(base::Instant now, const election::ResignAsked& in, election::Effects& out);
  void on(base::Instant now, const election::Reform& in, election::Effects& out);
  void on(base::Instant now, const election::ReportCut& in, election::Effects& out);

  // What is to be done now, whatever came.
  void think(base::Instant now, election::Effects& out);
  void think_as_leader(base::Instant now, election::Effects& out);
  void think_as_voter(base::Instant now, election::Effects& out);
  void be_calm(base::Instant now, election::Cause cause, election::Effects& out);
  void ask(base::Instant now, election::Cause cause, election::Effects& out);
  void hold(base::Instant now, election::Cause cause, election::Effects& out);
  void look(base::Instant now, election::Cause cause, election::Effects& out);
  void wait_and_seal(base::Instant now, election::Cause cause, election::Effects& out);
  void vote(base::Instant now, election::Effects& out);
  void act(base::Instant now, election::Effects& out);
  base::Instant seals_from() const;
  bool heard_lately(base::Instant now, const model::ServerId& server) const;
  bool first_is_to_come(base::Instant now, const std::vector<model::Vote>& votes) const;
  void borrow(base::Instant now, const std::vector<model::Vote>& votes, election::Effects& out);
  void seal_in_doubt(base::Instant now, election::Effects& out);
  void empty_government(base::Instant now, election::Effects& out);
  void care_for_swap(base::Instant now);
  void care_for_vote(base::Instant now, election::Effects& out);
  void put_is_late();

  election::Cause cause(base::Instant now) const;
  base::Instant last_contact(base::Instant now) const;
  bool majority_suspects(base::Instant now) const;
  bool another_goes_first(base::Instant now) const;  // a hand-over's successor
  void enter(base::Instant now, Phase phase);
  void adopt(base::Instant now, const Request& by, election::VersionedGovernment read, election::Effects& out);
  void learn_leader(const Known& leader, election::Effects& out);
  void see_epoch(base::Instant now, model::Epoch epoch);
  void set_floor() { beacons_->set_floor(self_.partition, floor()); }
  void lead(base::Instant now, const model::Government& government, election::Effects& out);
  void stop(base::Instant now, std::string why, model::AssignmentId successor, election::Effects& out);
  void resign(base::Instant now, std::string why, model::AssignmentId successor, election::Effects& out);
  void want_read(base::Instant now) { want_read_ = true, next_read_ = std::min(next_read_, now); }
  void read_if_due(base::Instant now, election::Effects& out);
  void read_votes_if_due(base::Instant now, election::Effects& out);
  bool may_swap(base::Instant now) const;
  bool empties() const { return emptying_ == read_->government.epoch && read_->government.leader == self_.assignment; }
  void keep_vote(const model::Vote& vote);
  void begin_reading_votes(base::Instant first);
  bool votes_for_long(base::Instant now) const;
  void swap(base::Instant now, model::Epoch epoch, model::AssignmentId leader, election::Effects& out);
  void swap(base::Instant now, model::Government to, election::Effects& out);
  void swap_unknown(base::Instant now);
  const model::Voter* own_voter() const;
  model::Epoch never_led() const;
  model::Vote own_vote(base::Instant now) const;

  election::Self self_;
  Beacons* beacons_;
  election::LogState log_;
  bool doubt_ = false;                   // it does not know what it promised
  std::optional<model::Epoch> doubted_;  // and promised this instead
  base::Instant next_doubt_{};           // a seal has failed: the next one
  model::Epoch promise_, sealing_;       // sealing_: asked for, not durable yet
  bool seal_out_ = false;
  model::Epoch highest_;  // of a government that was read, written, or that a message came from
  base::Instant highest_at_;
  std::optional<election::VersionedGovernment> read_;
  Request read_by_;  // the read, or swap, that read_ comes from
  Known leader_;
  std::optional<Leading> leads_;
  std::optional<election::ReportCut> report_;  // leading: what the government should say
  std::optional<base::Instant> resigned_at_;
  model::Epoch met_;                         // leading: the highest promise that a voter has shown
  std::optional<election::Reform> leaving_;  // resigned: who is to vote when the leader is taken out
  model::Epoch emptying_;                    // resigned: the leader is to be taken out of the government of this epoch
  std::optional<Reforming> reform_;
  mutable std::optional<Lease> lease_;      // lease_until(), as it was computed since the last step
  std::map<std::string, Pending> pending_;  // by writer: swaps that would make this replica leader and may be made yet

  Phase phase_ = Phase::calm;
  uint64_t suspected_from_ = 0;                         // only what is read from this number on is of this suspicion
  model::Epoch ballot_;                                 // what the votes promise that count
  std::map<model::AssignmentId, base::Instant> agree_;  // who said that it misses the leader, too, and when
  uint64_t question_ = 0;
  base::Instant voting_since_, next_question_, next_read_, next_reconcile_, next_votes_, next_swap_, next_put_;
  uint64_t swap_after_ = 0;  // only on what was read from this number on
  base::Duration read_wait_{0}, ask_wait_{0};
  bool want_read_ = true;
  std::optional<base::Instant> unknown_since_;  // a swap that would make this replica leader
  Request reading_, reading_votes_, putting_;
  std::optional<Swap> swap_;
  base::Duration votes_wait_{0};
  std::vector<model::Vote> votes_;  // of a voter its newest
  struct Heard {
    uint64_t since = 0;  // reads from this number on show it
    model::Vote vote;
  };
  std::map<model::AssignmentId, Heard> heard_;
  std::optional<base::Instant> majority_since_,
      turn_at_;                                // turn_at_: when this one may swap or borrow, if it is the best left
  std::optional<base::Instant> nobody_since_;  // a majority has voted, and nobody may lead
  base::Instant next_borrow_{};
  std::optional<model::Vote> wanted_, put_;  // the vote as it should stand, and as it does
  uint64_t put_since_ = 0;                   // reads of that number and later ones show put_
  std::set<model::LogToken> standing_;       // where one of ours may stand
  std::variant<model::Vote, model::LogToken> put_asked_;
  std::map<uint64_t, model::LogToken> late_puts_;  // by number: of votes that may come to stand yet
  uint64_t next_number_ = 1;
  bool backwards_told_ = false;
};

}  // namespace cantle::proto

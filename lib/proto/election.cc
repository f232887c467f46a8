#include "lib/proto/election.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/testing.h"

namespace cantle::proto {

using namespace election;
using base::Instant;
using model::AssignmentId;
using model::Epoch;
using model::Government;
using model::Vote;
using model::Voter;

namespace {

// By voter, those that count.
std::map<AssignmentId, Vote> counted(const model::Voters& voters, const std::vector<Vote>& votes, Epoch promise) {
  std::map<AssignmentId, Vote> of;
  for (auto vote : votes) {
    const Voter* voter = model::find_voter(voters, vote.assignment);
    if (voter == nullptr || voter->server != vote.server) continue;
    if (vote.promise != promise && !MUTANT("any_promise_counts")) continue;
    vote.slot = voter->slot;
    const auto [at, first] = of.emplace(vote.assignment, vote);
    const auto newer = [](const Vote& a, const Vote& b) {
      return a.incarnation != b.incarnation ? a.incarnation > b.incarnation : a.token > b.token;
    };
    if (!first && newer(vote, at->second)) at->second = vote;
  }
  return of;
}

bool has_voted(const Voter& voter, const std::vector<Vote>& votes, Epoch promise) {
  return std::any_of(votes.begin(), votes.end(), [&](const Vote& v) {
    return v.assignment == voter.assignment && (v.promise == promise || MUTANT("any_promise_counts"));
  });
}

// Of equal voters the one with the lowest goes first.
uint32_t turn_of(uint32_t slot, uint32_t first_slot) {
  return (slot + model::kVotersMax - first_slot) % model::kVotersMax;
}

void best_first(std::vector<Vote>& votes, uint32_t first_slot) {
  std::sort(votes.begin(), votes.end(), [first_slot](const Vote& a, const Vote& b) {
    return a.token != b.token && !MUTANT("token_is_not_asked")
               ? a.token > b.token
               : turn_of(a.slot, first_slot) < turn_of(b.slot, first_slot);
  });
}

}  // namespace

uint32_t first_slot(const model::PartitionId& partition, const model::Voters& voters) {
  return voters.empty() ? 0 : partition.bytes.back() % static_cast<uint32_t>(voters.size());
}

std::vector<Vote> candidates(const model::Voters& voters, const std::vector<Vote>& votes, Epoch promise,
                             uint32_t first_slot) {
  const auto of = counted(voters, votes, promise);
  std::vector<Vote> able;
  for (const auto& [assignment, vote] : of) {
    const bool longest = model::majority_of(voters, [&of, mine = vote.token](const Voter& v) {
      const auto other = of.find(v.assignment);
      return other != of.end() && (other->second.token <= mine || MUTANT("token_is_not_asked"));
    });
    if (vote.can_lead && (longest || MUTANT("elected_before_it_borrowed"))) able.push_back(vote);
  }
  best_first(able, first_slot);
  return able;
}

Election::Election(Self self, Beacons& beacons)
    : self_(std::move(self)),
      beacons_(&beacons),
      log_{self_.token, self_.whole && !self_.hole, true},
      doubt_(!self_.whole && !MUTANT("damaged_trusts_its_promise")),
      promise_(self_.promised),
      highest_(self_.token.epoch) {
  set_floor();
}

Effects Election::step(Instant now, const Input& input) {
  Effects out;
  lease_.reset();
  std::visit([&](const auto& in) { on(now, in, out); }, input);
  think(now, out);
  lease_.reset();
  return out;
}

std::string_view Election::doing() const {
  if (leads_) return "leads";
  switch (phase_) {
    case Phase::calm: return leader_.server.name.empty() ? "waits for a government" : "follows";
    case Phase::asking: return "asks whether the others miss the leader";
    case Phase::held: return "waits for the leader's successor";
    case Phase::reading: return "reads the government";
    case Phase::waiting: return "waits until its promise has run out";
    case Phase::sealing: return "seals";
    case Phase::voting: return "votes";
    case Phase::swapping: return "swaps the government";
  }
  return "";
}

std::optional<Epoch> Election::leads() const { return leads_ ? std::optional(leads_->epoch) : std::nullopt; }

bool Election::admits(Epoch epoch) const { return (epoch >= floor() && !doubt_) || MUTANT("obey_below_promise"); }

Instant Election::lease_until() const {
  if (!leads_ || !read_) return {};
  const auto& voters = read_->government.voters;
  const auto& next = reform_ && !MUTANT("lease_by_one_set") ? reform_->to.voters : voters;
  if (!lease_ || lease_->of != beacons_->changes())
    lease_ = Lease{beacons_->changes(), beacons_->lease_until(self_.partition, leads_->epoch, {&voters, &next})};
  return lease_->until;
}

bool Election::can_lead(Instant now) const {
  if (!log_.whole || !log_.moving || !read_) return false;
  if (resigned_at_ && now < *resigned_at_ + kRest) return false;
  return beacons_->both_ways(now, read_->government.voters);
}

const Voter* Election::own_voter() const {
  return read_ ? model::find_voter(read_->government.voters, self_.assignment) : nullptr;
}

// Above what this server has said that it does not lead at.
Epoch Election::never_led() const {
  const auto* released = beacons_->released_by(self_.server, self_.partition);
  return released == nullptr ? Epoch{} : released->released.epoch.next();
}

Vote Election::own_vote(Instant now) const {
  const Voter* voter = own_voter();
  return {ballot_,       log_.token,       self_.assignment, self_.server, voter ? voter->slot : 0,
          can_lead(now), self_.incarnation};
}

// --- what came -------------------------------------------------------------------------------------------------

void Election::on(Instant, const Tick&, Effects&) {}

void Election::on(Instant now, const GovernmentRead& in, Effects& out) {
  if (!reading_.out || in.number != reading_.number) return;
  reading_.out = false;
  if (!in.answer || !*in.answer) {
    read_wait_ = std::clamp(read_wait_ * 2, kReadAgain, kReadAgainMost);
    next_read_ = now + read_wait_;
    want_read_ = true;
    return;
  }
  read_wait_ = {};
  adopt(now, reading_, **in.answer, out);
}

void Election::on(Instant now, const Swapped& in, Effects& out) {
  if (!swap_ || in.number != swap_->request.number) return;
  if (in.result == SwapResult::unknown) return swap_unknown(now);
  const auto swap = *std::exchange(swap_, std::nullopt);
  next_swap_ = now + kSwapAgain;
  if (in.result == SwapResult::done) return adopt(now, swap.request, {swap.to, in.version}, out);
  pending_.erase(swap.to.writer);
  swap_after_ = next_number_;
  want_read(now);
}

// S27: it may have been made, or be made yet. Its writer is remembered until the version that it stands on has passed.
void Election::swap_unknown(Instant now) {
  if (!swap_->to.leader.none() && !leads_) unknown_since_ = now;
  swap_.reset();
  swap_after_ = next_number_;
  next_swap_ = now + kSwapAgain;
  want_read(now);
}

void Election::on(Instant now, const Sealed& in, Effects& out) {
  if (!seal_out_ || in.promised != sealing_) return;
  seal_out_ = false;
  if (!in.log) {
    out.emplace_back(Say{base::Level::error,
                         "the seal of epoch " + to_string(in.promised) + " failed: " + to_string(in.log.error())});
    if (phase_ == Phase::sealing) enter(now, Phase::reading);
    next_read_ = now + kReadAgainMost;
    next_doubt_ = next_read_;
    return;
  }
  promise_ = std::max(promise_, in.promised);
  log_.token = *in.log;
  if (std::exchange(doubt_, false)) doubted_ = in.promised;
  if (phase_ == Phase::sealing) enter(now, Phase::voting);
}

void Election::on(Instant now, const VotePut& in, Effects&) {
  if (const auto late = late_puts_.extract(in.number); !late.empty()) standing_.insert(late.mapped());
  if (!putting_.out || in.number != putting_.number) return;
  putting_.out = false;
  if (!in.status) {
    next_put_ = now + kReadAgain;
  } else if (const auto* token = std::get_if<model::LogToken>(&put_asked_)) {
    standing_.erase(*token);
  } else {
    put_ = std::get<Vote>(put_asked_);
    put_since_ = next_number_;
  }
}

void Election::on(Instant, const VotesLost&, Effects&) {
  put_.reset();
  standing_.clear();
  put_is_late();
}

void Election::on(Instant, const VotesRead& in, Effects&) {
  if (!reading_votes_.out || in.number != reading_votes_.number) return;
  reading_votes_.out = false;
  if (!in.votes) return;
  // What was asked for on a connection that is lost may still be done: also the removal of a vote that was put again.
  if (put_ && in.number >= put_since_ && std::find(in.votes->begin(), in.votes->end(), *put_) == in.votes->end() &&
      !MUTANT("own_vote_is_not_looked_for")) {
    standing_.erase(put_->token);
    put_.reset();
  }
  votes_.clear();
  for (const auto& vote : *in.votes) keep_vote(vote);
  std::erase_if(heard_, [&](const auto& h) { return h.second.since <= in.number; });
  for (const auto& [assignment, heard] : heard_) keep_vote(heard.vote);
}

// Who votes has sealed, and its log does not change under it: that is as true as if it were read now.
void Election::on(Instant, const VoteHeard& in, Effects&) {
  const auto& by = in.vote.assignment;
  if (by == self_.assignment || (read_ && model::find_voter(read_->government.voters, by) == nullptr)) return;
  if (!heard_.contains(by) && heard_.size() >= model::kVotersMax) heard_.erase(heard_.begin());
  heard_[by] = {next_number_, in.vote};
  keep_vote(in.vote);
}

// The last that was said of a voter; an older life of it does not speak any more.
void Election::keep_vote(const Vote& vote) {
  const auto at =
      std::find_if(votes_.begin(), votes_.end(), [&](const Vote& v) { return v.assignment == vote.assignment; });
  if (at == votes_.end())
    votes_.push_back(vote);
  else if (vote.incarnation > at->incarnation || (vote.incarnation == at->incarnation && vote.promise >= at->promise))
    *at = vote;
}

void Election::on(Instant now, const SuspectAnswered& in, Effects&) {
  if (in.number != question_ || !in.answer) return;
  if (in.answer->epoch > highest_) want_read(now);
  if (in.answer->suspects)
    agree_[in.by] = now;
  else
    agree_.erase(in.by);
}

// A bell that names nobody rings for all partitions of its table: those that have nothing to ask are not all read at
// once.
void Election::on(Instant now, const Rung& in, Effects&) {
  if (!in.named && calm() && (leads_ || cause(now) == Cause::none)) {
    next_reconcile_ = std::min(next_reconcile_, now + kRungCalm);
    return;
  }
  if (!in.named) next_votes_ = now;
  want_read(now);
}

void Election::on(Instant, const LogState& in, Effects&) { log_ = in; }

void Election::on(Instant, const PromiseMet& in, Effects&) { met_ = std::max(met_, in.promised); }

void Election::on(Instant now, const LeaderMet& in, Effects& out) {
  if (leads_ && in.epoch <= leads_->epoch) return;
  if (!admits(in.epoch) || !beacons_->accept(in.server, in.incarnation, self_.partition, in.epoch)) return;
  see_epoch(now, in.epoch);
  learn_leader({in.epoch, in.assignment, in.server, in.incarnation, now}, out);
  if (!read_ || read_->government.epoch < in.epoch) want_read(now);
}

void Election::on(Instant now, const ResignAsked& in, Effects& out) {
  if (!leads_) return;
  resign(now, in.why, in.successor, out);
  leaving_ = in.voters;
}

void Election::on(Instant, const Reform& in, Effects&) {
  if (may_reform()) reform_ = Reforming{in, read_->version};
}

void Election::on(Instant, const ReportCut& in, Effects&) {
  if (leads_) report_ = in;
}

model::QuorumSuspectReply Election::answer(Instant now, const model::QuorumSuspect& question) {
  if (leads_ || question.epoch < highest_) return {false, highest_};
  if (question.epoch == leader_.epoch) {
    const bool misses = cause(now) != Cause::none;
    if (misses && phase_ == Phase::asking) next_question_ = std::min(next_question_, now);  // now there are two
    return {misses, highest_};
  }
  // A leader that is not known here yet.
  want_read(now);
  const auto heard = beacons_->heard(question.server);
  return {!heard || heard->at + beacon::kSilent < now, highest_};
}

// --- what is known ---------------------------------------------------------------------------------------------

void Election::see_epoch(Instant now, Epoch epoch) {
  if (epoch <= highest_) return;
  highest_ = epoch;
  highest_at_ = now;
  set_floor();
}

void Election::adopt(Instant now, const Request& by, VersionedGovernment read, Effects& out) {
  const auto& g = read.government;
  if (g.epoch < highest_ || g.epoch.next() < std::max(promise_, sealing_)) {
    // A read that began before the newer one was heard of, or a service that comes back from the past (S36).
    if (by.sent > highest_at_ && !std::exchange(backwards_told_, true))
      out.emplace_back(Say{base::Level::error, "the coordination service shows government " + to_string(g.epoch) +
                                                   ", after " + to_string(floor()) + ": not used"});
    want_read_ = true;
    next_read_ = now + kReadAgain;
    return;
  }
  want_read_ = false;
  next_reconcile_ = now + kReadEvery;
  unknown_since_.reset();
  see_epoch(now, g.epoch);
  beacons_->governed(self_.partition, g.epoch);
  const bool ours = pending_.contains(g.writer);
  std::erase_if(pending_, [&](const auto& p) { return p.second.version != read.version; });
  read_ = std::move(read);
  read_by_ = by;
  const auto& now_is = read_->government;
  const Voter* leader = model::find_voter(now_is.voters, now_is.leader);
  learn_leader({now_is.epoch, now_is.leader, leader ? leader->server : model::ServerId{}, {}, now}, out);
  if (now_is.leader != self_.assignment) {
    if (leads_) stop(now, "there is another government, of epoch " + to_string(now_is.epoch), {}, out);
    return;
  }
  if (leads_ && leads_->epoch == now_is.epoch) {
    if (reform_ && reform_->version == read_->version) return;  // not made, and it may be made yet
    reform_.reset();
    out.emplace_back(Electorate{now_is.epoch, now_is.voters});
    return;
  }
  if (ours || MUTANT("resume_leadership")) return lead(now, now_is, out);
  // Of a life before, or of a leadership that was resigned or given up: it is never taken up again (S6). Those who
  // hear this server's beacons would wait for it otherwise.
  if (leads_) stop(now, "a government that this server did not ask for names it", {}, out);
  beacons_->release(now, {self_.partition, now_is.epoch, {}});
}

void Election::learn_leader(const Known& leader, Effects& out) {
  if (leader.epoch < leader_.epoch) return;
  if (leader.epoch == leader_.epoch) {
    if (leader.assignment == leader_.assignment) {
      if (leader_.life.value == 0) leader_.life = leader.life;
      return;
    }
    if (!leader.assignment.none()) return;  // it was taken out since
  }
  leader_ = leader;
  if (leader.assignment != self_.assignment) out.emplace_back(Follow{leader.epoch, leader.server});
}

void Election::lead(Instant now, const Government& government, Effects& out) {
  const bool renewed = leads_.has_value();
  leads_ = {government.epoch, now, now};
  met_ = {};
  emptying_ = {};
  reform_.reset();
  pending_.clear();
  enter(now, Phase::calm);
  out.emplace_back(Lead{government.epoch, government, renewed});
}

// The lease ends here, before anything else: of every epoch that this replica may have been given.
void Election::stop(Instant now, std::string why, AssignmentId successor, Effects& out) {
  Epoch epoch = leads_->epoch;
  for (const auto& [writer, pending] : pending_) epoch = std::max(epoch, pending.epoch);
  out.emplace_back(Stop{leads_->epoch, std::move(why)});
  beacons_->release(now, {self_.partition, epoch, successor});
  beacons_->governed(self_.partition, highest_);  // who took its place is known already, perhaps
  leads_.reset();
  reform_.reset();
  report_.reset();
  pending_.clear();
  swap_.reset();
  met_ = {};
  enter(now, Phase::calm);
}

void Election::resign(Instant now, std::string why, AssignmentId successor, Effects& out) {
  emptying_ = leads_->epoch;
  leaving_.reset();
  stop(now, std::move(why), successor, out);
  resigned_at_ = now;
  next_swap_ = now;
  const auto* told = beacons_->released_by(self_.server, self_.partition);
  for (const auto& v : read_->government.voters)
    if (v.assignment != self_.assignment) out.emplace_back(SendRelease{v, told->released.epoch, successor});
}

// --- what to do ------------------------------------------------------------------------------------------------

void Election::enter(Instant now, Phase phase) {
  phase_ = phase;
  switch (phase) {
    case Phase::calm:
      agree_.clear();
      if (wanted_) next_put_ = std::max(next_put_, now + kVoteLinger);  // thousands at once have better things to do
      wanted_.reset();
      break;
    case Phase::asking:
      question_ = next_number_++;
      next_question_ = now;
      ask_wait_ = kAskEvery;
      agree_.clear();
      break;
    case Phase::held: begin_reading_votes(now); break;
    case Phase::reading: want_read(now); break;
    case Phase::voting:
      ballot_ = read_->government.epoch.next();
      std::erase_if(votes_, [&](const Vote& v) { return v.promise != ballot_ && !MUTANT("any_promise_counts"); });
      std::erase_if(heard_, [&](const auto& h) { return h.second.vote.promise != ballot_; });
      majority_since_.reset();
      nobody_since_.reset();
      voting_since_ = now;
      next_put_ = now;
      begin_reading_votes(now + kVotesEvery);
      next_read_ = now + kVotingReadEvery;
      break;
    case Phase::waiting:
    case Phase::sealing:
    case Phase::swapping: break;
  }
}

void Election::think(Instant now, Effects& out) {
  if (leader_.life.value == 0 && !leader_.server.name.empty())
    if (const auto heard = beacons_->heard(leader_.server); heard && heard->at >= leader_.since)
      leader_.life = heard->incarnation;
  care_for_swap(now);
  if (leads_) think_as_leader(now, out);
  if (!leads_) think_as_voter(now, out);
  care_for_vote(now, out);
}

// Of a leader, with a majority. Who stood still heard nobody, and finds out now whether it is heard.
Instant Election::last_contact(Instant now) const {
  return std::max({beacons_->contact_at(now, read_->government.voters), leads_->since, beacons_->gap_at()});
}

void Election::think_as_leader(Instant now, Effects& out) {
  if (highest_ > leads_->epoch) return stop(now, "epoch " + to_string(highest_) + " has another leader", {}, out);
  if (!log_.moving) return resign(now, "its disk makes no progress", {}, out);                            // S26
  if (now - last_contact(now) > kContactMost) return resign(now, "a majority does not answer", {}, out);  // S21
  if (lease_until() > now) leads_->leased = now;
  if (now - std::max(leads_->leased, beacons_->gap_at()) > kLeaselessMost)
    return resign(now, "a majority does not follow it", {}, out);
  const auto met = std::max(met_, beacons_->refused_at(self_.partition));
  if (met > leads_->epoch && may_swap(now)) swap(now, std::max(met, never_led()), self_.assignment, out);
  if (reform_ && may_swap(now)) {
    Government to = read_->government;
    to.voters = reform_->to.voters;
    to.txnseq = reform_->to.txnseq;
    swap(now, std::move(to), out);
  }
  if (!reform_ && report_ && report_->cut != read_->government.cut && may_swap(now)) {
    Government to = read_->government;
    to.cut = report_->cut;
    swap(now, std::move(to), out);
  }
  read_if_due(now, out);
}

void Election::think_as_voter(Instant now, Effects& out) {
  // Nobody would be led by what this replica does not know of: it says that it does not lead there.
  if (unknown_since_ && *unknown_since_ + kUnknownMost <= now) {
    unknown_since_.reset();
    Epoch given_up;
    for (const auto& [writer, pending] : pending_) given_up = std::max(given_up, pending.epoch);
    pending_.clear();
    if (given_up.value != 0) beacons_->release(now, {self_.partition, given_up, {}});
  }
  if (doubt_) return seal_in_doubt(now, out);
  if (own_voter() == nullptr) {
    if (phase_ != Phase::calm) enter(now, Phase::calm);
    // It may have a vote by now, and be needed.
    if (cause(now) != Cause::none) want_read_ = true;
    return read_if_due(now, out);
  }
  empty_government(now, out);
  const auto why = cause(now);
  // R16. One whose log was whole when it started knows what it has confirmed since.
  if (!self_.whole && !log_.whole && !MUTANT("damaged_votes")) {
    if (phase_ != Phase::calm) enter(now, Phase::calm);
    if (why != Cause::none) want_read_ = true;
    return read_if_due(now, out);
  }
  if (phase_ == Phase::calm) be_calm(now, why, out);
  if (phase_ == Phase::asking) ask(now, why, out);
  if (phase_ == Phase::held) hold(now, why, out);
  if (phase_ == Phase::reading) look(now, why, out);
  if (phase_ == Phase::waiting) wait_and_seal(now, why, out);
  if (phase_ == Phase::sealing && highest_ >= sealing_ && !seal_out_) enter(now, Phase::calm);
  if (phase_ == Phase::swapping && !swap_) phase_ = Phase::voting;
  if (phase_ == Phase::voting) vote(now, out);
}

Cause Election::cause(Instant now) const {
  if (leader_.epoch.value == 0 || leads_) return Cause::none;
  if (leader_.assignment.none()) return Cause::leaderless;
  if (leader_.assignment == self_.assignment) return Cause::own;
  const auto* released = beacons_->released_by(leader_.server, self_.partition);
  if (released != nullptr && released->released.epoch >= leader_.epoch) return Cause::released;
  const auto heard = beacons_->heard(leader_.server);
  if (heard && leader_.life.value != 0 && heard->incarnation > leader_.life) return Cause::new_life;
  auto last = std::max({leader_.since, beacons_->gap_at(), heard ? heard->at : Instant{}});
  if (MUTANT("restart_forgets_promise") && (!heard || heard->at == Instant{})) last = {};
  const auto most = MUTANT("seal_within_promise") ? beacon::kSilent / 3 : beacon::kSilent;
  return now - last > most ? Cause::silent : Cause::none;
}

void Election::be_calm(Instant now, Cause why, Effects& out) {
  if (why == Cause::none) return read_if_due(now, out);
  suspected_from_ = next_number_;
  if (why == Cause::silent)
    enter(now, Phase::asking);
  else
    enter(now, another_goes_first(now) ? Phase::held : Phase::reading);
}

bool Election::majority_suspects(Instant now) const {
  return model::majority_of(read_->government.voters, [&](const Voter& v) {
    if (v.assignment == self_.assignment || MUTANT("ask_nobody")) return true;
    const auto said = agree_.find(v.assignment);
    return said != agree_.end() && said->second + beacon::kSilent >= now;
  });
}

// S21: one that is badly connected disturbs nobody.
void Election::ask(Instant now, Cause why, Effects& out) {
  if (why == Cause::none) return enter(now, Phase::calm);
  if (why != Cause::silent || majority_suspects(now)) return enter(now, Phase::reading);
  read_if_due(now, out);
  if (now < next_question_) return;
  next_question_ = now + ask_wait_;
  ask_wait_ = std::min(ask_wait_ * 2, kAskMost);
  for (const auto& v : read_->government.voters)
    if (v.assignment != self_.assignment)
      out.emplace_back(AskSuspect{v, question_, leader_.epoch, leader_.assignment, leader_.server});
}

bool Election::another_goes_first(Instant now) const {
  const auto* told = beacons_->hand_over(self_.partition, leader_.epoch);
  if (told == nullptr || told->released.successor == self_.assignment || told->at + kHandOver <= now) return false;
  return std::none_of(votes_.begin(), votes_.end(), [&](const Vote& v) {
    return v.assignment == told->released.successor && v.promise > leader_.epoch;
  });
}

void Election::hold(Instant now, Cause why, Effects& out) {
  if (why == Cause::none) return enter(now, Phase::calm);
  if (!another_goes_first(now)) return enter(now, Phase::reading);
  read_votes_if_due(now, out);
}

// S33, S35: without an answer of the coordination service, begun within this suspicion, nothing is sealed.
void Election::look(Instant now, Cause why, Effects& out) {
  if (why == Cause::none) return enter(now, Phase::calm);
  const bool newest = read_->government.epoch >= leader_.epoch;
  if ((newest && read_by_.number >= suspected_from_ && read_by_.sent + kFresh > now) || MUTANT("seal_without_read"))
    return enter(now, Phase::waiting);
  if (reading_.out && reading_.number < suspected_from_) reading_.out = false;  // it began too early
  want_read_ = true;
  read_if_due(now, out);
}

void Election::wait_and_seal(Instant now, Cause why, Effects& out) {
  if (why == Cause::none) return enter(now, Phase::calm);
  const auto& government = read_->government;
  if ((read_by_.sent + kFresh <= now || government.epoch < leader_.epoch) && !MUTANT("seal_without_read"))
    return enter(now, Phase::reading);
  if (now < next_doubt_) return;  // a store that takes no more writes says so at once, and would be asked as often
  // S7: while the leader may rely on it.
  if (now < seals_from()) return;
  const auto epoch = government.epoch.next();
  if (promise_ >= epoch || MUTANT("skip_seal")) return enter(now, Phase::voting);
  sealing_ = epoch;
  set_floor();
  seal_out_ = true;
  phase_ = Phase::sealing;
  out.emplace_back(Seal{epoch});
}

// Who would go first seals, and votes, a little before the others: of thousands of partitions a server votes for those
// first that it may lead itself, and the others have heard that before they count to a majority without it.
Instant Election::seals_from() const {
  const auto& government = read_->government;
  auto from = beacons_->may_seal_from();
  const Voter* leader = model::find_voter(government.voters, government.leader);
  if (leader != nullptr && !MUTANT("seal_within_promise"))
    from = std::max(from, beacons_->promised_until(leader->server, self_.partition));
  const auto turn = turn_of(own_voter()->slot, first_slot(self_.partition, government.voters));
  return from + turn * kSealTurn;
}

// R16. By a government that was read in this life, and not while somebody may rely on what the life before promised.
// To nobody has this one promised anything that counts: it has accepted no leader yet.
void Election::seal_in_doubt(Instant now, Effects& out) {
  if (!read_) want_read_ = true;
  read_if_due(now, out);
  if (!read_ || seal_out_ || now < next_doubt_ || now < beacons_->may_seal_from()) return;
  sealing_ = std::max(promise_, read_->government.epoch.next());
  set_floor();
  seal_out_ = true;
  out.emplace_back(Seal{sealing_});
}

void Election::vote(Instant now, Effects& out) {
  if (highest_ >= ballot_) return enter(now, Phase::calm);
  wanted_ = own_vote(now);
  if (wants_votes(now)) read_votes_if_due(now, out);
  if (now >= next_read_) want_read_ = true;
  read_if_due(now, out);
  act(now, out);
}

void Election::act(Instant now, Effects& out) {
  auto votes = votes_;
  std::erase_if(votes, [&](const Vote& v) { return v.assignment == self_.assignment; });
  votes.push_back(own_vote(now));
  const auto& voters = read_->government.voters;
  const bool enough = model::majority_of(voters, [&](const Voter& v) { return has_voted(v, votes, ballot_); });
  turn_at_.reset();
  if (!enough) {
    nobody_since_.reset();
    return majority_since_.reset();
  }
  if (!majority_since_) majority_since_ = now;
  auto able = candidates(voters, votes, ballot_, first_slot(self_.partition, voters));
  if (able.empty()) return borrow(now, votes, out);
  nobody_since_.reset();
  // Who was chosen by the one before goes first.
  const auto* told = beacons_->hand_over(self_.partition, read_->government.epoch);
  if (told != nullptr)
    std::stable_partition(able.begin(), able.end(),
                          [&](const Vote& v) { return v.assignment == told->released.successor; });
  const auto own =
      std::find_if(able.begin(), able.end(), [&](const Vote& v) { return v.assignment == self_.assignment; });
  if (own == able.end()) return;
  base::Duration others{};
  for (auto it = able.begin(); it != own; ++it) others += heard_lately(now, it->server) ? kTurnThere : kTurn;
  const bool waits = others.count() == 0 && told == nullptr && first_is_to_come(now, votes);
  turn_at_ = std::max(*majority_since_ + (waits ? kFirstVote : others), next_swap_);
  if (now < *turn_at_ || !may_swap(now)) return;
  phase_ = Phase::swapping;
  swap(now, std::max(ballot_, never_led()), self_.assignment, out);
}

bool Election::heard_lately(Instant now, const model::ServerId& server) const {
  const auto heard = beacons_->heard(server);
  return heard && heard->at + kHeardLately >= now;
}

// One that would go before this one is there, and its vote is not: it comes in a moment, mostly. When all servers start
// at once, all voters of thousands of partitions would swap their governments otherwise, and refuse each other.
bool Election::first_is_to_come(Instant now, const std::vector<Vote>& votes) const {
  const auto& voters = read_->government.voters;
  const auto first = first_slot(self_.partition, voters);
  const auto own = turn_of(own_voter()->slot, first);
  return std::any_of(voters.begin(), voters.end(), [&](const Voter& v) {
    return turn_of(v.slot, first) < own && heard_lately(now, v.server) && !has_voted(v, votes, ballot_);
  });
}

// What is due already and was not done waits for something that comes, or for what is looked at now and then.
Instant Election::next_look(Instant now) const {
  Instant next = now + (calm() ? kCalmTick : kTick);
  const auto at = [&](Instant due) {
    if (due > now) next = std::min(next, due);
  };
  if (want_read_ && !reading_.out) at(next_read_);
  // That one who was heard falls silent is news.
  const auto from = std::max(leader_.since, beacons_->gap_at());
  if (const auto heard = beacons_->heard(leader_.server); !heard || heard->at < from)
    at(from + beacon::kSilent + std::chrono::milliseconds(1));
  if (leads_ && read_) at(last_contact(now) + kContactMost + std::chrono::milliseconds(1));
  if (!reading_votes_.out && wants_votes(now)) at(next_votes_);
  if (!putting_.out) at(next_put_);
  if (!swap_) at(next_swap_);
  at(next_doubt_);
  if (doubt_) at(beacons_->may_seal_from());
  if (phase_ == Phase::waiting && own_voter() != nullptr) at(seals_from());
  if (phase_ == Phase::asking) at(next_question_);
  if (phase_ == Phase::voting && turn_at_) at(*turn_at_);
  return next;
}

// Those whose logs are long enough cannot lead, and those that could have too little. Each of these in its turn gets
// what it lacks.
void Election::borrow(Instant now, const std::vector<Vote>& votes, Effects& out) {
  if (!nobody_since_) nobody_since_ = now;
  std::vector<Vote> able, longer;
  for (const auto& [assignment, vote] : counted(read_->government.voters, votes, ballot_)) {
    if (vote.can_lead) able.push_back(vote);
    if (vote.token > log_.token) longer.push_back(vote);
  }
  const auto first = first_slot(self_.partition, read_->government.voters);
  best_first(able, first);
  const auto own =
      std::find_if(able.begin(), able.end(), [&](const Vote& v) { return v.assignment == self_.assignment; });
  if (own == able.end()) return;
  turn_at_ = std::max(*nobody_since_ + (own - able.begin() + 1) * kTurn, next_borrow_);
  if (now < *turn_at_) return;
  next_borrow_ = now + kBorrowEvery;
  best_first(longer, first);
  Borrow from{ballot_, {}};
  for (const auto& v : longer) from.from.push_back({v.slot, v.server, v.assignment});
  out.emplace_back(std::move(from));
}

// So that those who heard nothing of it need not wait.
void Election::empty_government(Instant now, Effects& out) {
  if (!empties() || phase_ == Phase::swapping || !may_swap(now)) return;
  Government to = read_->government;
  to.leader = {};
  if (leaving_) {
    to.voters = leaving_->voters;
    to.txnseq = leaving_->txnseq;
  }
  swap(now, std::move(to), out);
}

// --- the coordination service ----------------------------------------------------------------------------------

void Election::read_if_due(Instant now, Effects& out) {
  if (!want_read_ && now < next_reconcile_) return;
  if (now < next_read_ || (reading_.out && !reading_.late(now))) return;
  reading_ = {next_number_++, now, true};
  next_read_ = now + (votes_for_long(now) ? kVotingReadMost : kVotingReadEvery);
  out.emplace_back(ReadGovernment{reading_.number});
}

void Election::read_votes_if_due(Instant now, Effects& out) {
  if (now < next_votes_ || (reading_votes_.out && !reading_votes_.late(now))) return;
  reading_votes_ = {next_number_++, now, true};
  next_votes_ = now + votes_wait_;
  votes_wait_ = std::min(votes_wait_ * 2, kVotesMost);
  out.emplace_back(ReadVotes{reading_votes_.number});
}

void Election::begin_reading_votes(Instant first) {
  next_votes_ = first;
  votes_wait_ = kVotesEvery;
}

bool Election::votes_for_long(Instant now) const { return phase_ == Phase::voting && voting_since_ + kVotesLong < now; }

bool Election::may_swap(Instant now) const {
  return !swap_ && now >= next_swap_ && read_ && read_by_.number >= swap_after_;
}

void Election::swap(Instant now, Epoch epoch, AssignmentId leader, Effects& out) {
  Government to = read_->government;
  to.epoch = epoch;
  to.leader = leader;
  swap(now, std::move(to), out);
}

void Election::swap(Instant now, Government to, Effects& out) {
  const uint64_t number = next_number_++;
  to.writer = self_.server.name + "/" + to_string(self_.incarnation) + "/" + std::to_string(number);
  const int32_t version = MUTANT("swap_without_version") ? -1 : read_->version;
  const bool leads_it = leads_ && leads_->epoch == to.epoch;
  if (!to.leader.none() && !leads_it) pending_[to.writer] = {version, to.epoch};
  swap_ = {{number, now, true}, to};
  out.emplace_back(SwapGovernment{number, version, to});
}

void Election::care_for_swap(Instant now) {
  if (swap_ && swap_->request.late(now)) swap_unknown(now);
}

// What it led to is not waited for any more, and may be done yet.
void Election::put_is_late() {
  if (!std::exchange(putting_.out, false)) return;
  if (const auto* vote = std::get_if<Vote>(&put_asked_)) late_puts_[putting_.number] = vote->token;
}

// The vote stands as it should, at one place.
void Election::care_for_vote(Instant now, Effects& out) {
  if ((putting_.out && !putting_.late(now)) || now < next_put_) return;
  const auto old = std::find_if(standing_.begin(), standing_.end(),
                                [&](const auto& token) { return !wanted_ || wanted_->token != token; });
  if (old == standing_.end() && (!wanted_ || put_ == wanted_)) return;
  put_is_late();
  putting_ = {next_number_++, now, true};
  if (old != standing_.end()) {
    put_asked_ = *old;
    put_.reset();
    out.emplace_back(RemoveVote{putting_.number, *old});
  } else {
    put_asked_ = *wanted_;
    standing_.insert(wanted_->token);
    out.emplace_back(PutVote{putting_.number, *wanted_});
  }
}

}  // namespace cantle::proto

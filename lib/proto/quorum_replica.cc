#include "lib/proto/quorum_replica.h"

#include <algorithm>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto {

using namespace quorum;
using base::Code;
using base::Instant;
using model::Epoch;
using model::Hop;
using model::LogPoint;

namespace {
model::PipeOpenReply refusal(Epoch promised) {
  model::PipeOpenReply reply;
  reply.refused = promised;
  return reply;
}
base::Result<model::PipeOpenReply> damaged() {
  return base::fail(Code::unavailable, "its log is damaged: it needs a snapshot");
}
}  // namespace

QuorumReplica::QuorumReplica(const ReplicaSelf& self, Beacons& beacons, Gatherer& gatherer)
    : partition_(self.who.partition),
      self_{self.who.server, self.who.assignment},
      incarnation_(self.who.incarnation),
      beacons_(beacons),
      gatherer_(gatherer),
      log_(self.end, self.commit, self.epochs, self.cuts),
      rebuild_(self.snapshot),
      mend_(self.gap),
      election_(self.who, beacons),
      pipeline_(self.pipeline),
      kept_room_(self.kept_room),
      told_{self.who.token, self.who.whole && !self.who.hole, true},
      known_(self.who.whole),
      hole_(self.who.hole) {}

QuorumReplica::~QuorumReplica() = default;

// --- the election ----------------------------------------------------------------------------------

void QuorumReplica::elect(Instant now, const election::Input& input, Out& out) {
  join(now, election_.step(now, input), out);
  if (log_.open_cut()) think_of_cut(now, out);
}

model::QuorumSuspectReply QuorumReplica::suspect(Instant now, const model::QuorumSuspect& question) {
  return election_.answer(now, question);
}

void QuorumReplica::resign(Instant now, const model::AssignmentId& successor, std::string why, Out& out) {
  elect(now, election::ResignAsked{successor, std::move(why)}, out);
}

// What the election decided, in its order.
void QuorumReplica::join(Instant now, election::Effects effects, Out& out) {
  for (auto& effect : effects) {
    if (auto* leads = std::get_if<election::Lead>(&effect)) {
      lead(now, *leads, out);
    } else if (auto* votes = std::get_if<election::Electorate>(&effect)) {
      at_leader(
          now, out,
          [&](Leader& leader, Effects& effects_of) { leader.vote(now, std::move(votes->voters), effects_of); },
          votes->epoch);
    } else if (auto* stops = std::get_if<election::Stop>(&effect)) {
      stop_leading(now, stops->why, out);
    } else if (auto* seal = std::get_if<election::Seal>(&effect)) {
      stop_leading(now, "it promises a higher epoch", out);
      Effects rest;
      if (follower_.epoch() < seal->promised) follower_.leave(rest);  // else it follows who was elected meanwhile
      pass(now, rest, out);
      out.emplace_back(std::move(*seal));
    } else if (const auto* borrows = std::get_if<election::Borrow>(&effect)) {
      borrow(*borrows, now, out);
    } else if (auto* say = std::get_if<election::Say>(&effect)) {
      out.emplace_back(Say{say->level, "election", std::move(say->text)});
    } else if (const auto* follows = std::get_if<election::Follow>(&effect)) {
      out.emplace_back(Say{base::Level::info, "follow",
                           "epoch " + to_string(follows->epoch) + ", " +
                               (follows->leader.name.empty() ? "nobody leads" : follows->leader.name + " leads")});
    } else {
      std::visit(
          [&out](auto& x) {
            if constexpr (std::is_constructible_v<ReplicaEffect, decltype(std::move(x))>)
              out.emplace_back(std::move(x));
          },
          effect);
    }
  }
  elect_at_ = std::min(elect_at_, election_.next_look(now));
}

void QuorumReplica::lead(Instant now, const election::Lead& e, Out& out) {
  std::deque<InBlock> under_way;
  if (!e.renewed || leading() == nullptr)
    led_from_ = now;
  else
    under_way = leader_->release_requests();
  stop_leading(now, "its government has a new epoch", out);
  out.emplace_back(Say{base::Level::notice, "lead", "epoch " + to_string(e.epoch) + (e.renewed ? ", renewed" : "")});
  Effects effects;
  follower_.leave(effects);
  rebuild_.stop();
  leader_ = std::make_unique<Leader>(self_, e.epoch, e.government.voters, log_, gatherer_, pipeline_, kept_room_);
  leader_->adopt(std::move(under_way));
  if (members_) leader_->feed(now, members_->fed, effects);
  leader_->begin(now, effects);
  pass(now, effects, out);
}

void QuorumReplica::stop_leading(Instant now, const std::string& why, Out& out) {
  if (!leader_) return;
  out.emplace_back(Say{base::Level::notice, "stop", "epoch " + to_string(leader_->epoch()) + ": " + why});
  Effects effects;
  leader_->stop(base::Error(Code::not_leader, "the leader stopped: " + why), effects);
  if (leader_->building())
    former_.push_back(std::move(leader_));
  else
    leader_.reset();
  pass(now, effects, out);
}

// What the pipe's machines ask for; what concerns the election goes there.
void QuorumReplica::pass(Instant now, Effects& effects, Out& out) {
  std::vector<election::Input> told;
  for (auto& effect : effects) {
    if (auto* met = std::get_if<MetPromise>(&effect)) {
      told.emplace_back(election::PromiseMet{met->promise});
    } else if (auto* cannot = std::get_if<CannotLead>(&effect)) {
      told.emplace_back(election::ResignAsked{{}, "its store refuses: " + cannot->why});
    } else if (auto* answer = std::get_if<AnswerOpen>(&effect)) {
      if (answer->reply) answer->reply->incarnation = incarnation_;
      out.emplace_back(std::move(*answer));
    } else {
      std::visit(
          [&out](auto& x) {
            if constexpr (std::is_constructible_v<ReplicaEffect, decltype(std::move(x))>)
              out.emplace_back(std::move(x));
          },
          effect);
    }
  }
  watch_disk(now);
  for (const auto& in : told) join(now, election_.step(now, in), out);
}

// --- time ------------------------------------------------------------------------------------------

void QuorumReplica::tick(Instant now, Out& out) {
  tell_log(now, out);
  join(now, election_.step(now, election::Tick{}), out);
  elect_at_ = election_.next_look(now);
  at_leader(now, out, [&](Leader& leader, Effects& effects) { leader.tick(now, effects); });
  reform_if_due(now, out);
  if (reform_wanted()) elect_at_ = std::min(elect_at_, now + kReformEvery);
  think_of_cut(now, out);
  heal(out);
  Effects effects;
  rebuild_.tick(now, effects);
  if (hole_) mend_.tick(now, others(), effects);
  pass(now, effects, out);
}

// R16. What was committed with this replica's word, in whatever life of it, is in the log of every leader that is
// elected after that, before the start of its epoch.
void QuorumReplica::heal(Out& out) {
  if (told_.whole || hole_ || marking_ || !election_.doubted()) return;
  for (const auto& e : log_.epochs())
    if ((e.epoch >= *election_.doubted() && log_.commit() >= e.first) || MUTANT("whole_too_early")) {
      marking_ = true;
      out.emplace_back(MarkWhole{});
      return;
    }
}

void QuorumReplica::marked_whole(Instant now, const base::Status& status, Out& out) {
  marking_ = false;
  if (!status) return;
  known_ = true;
  log_whole(now, out);
}

void QuorumReplica::log_whole(Instant now, Out& out) {
  if (!known_ || hole_ || told_.whole) return;
  out.emplace_back(Say{base::Level::notice, "whole", "nothing is missing from the log any more"});
  told_.whole = true;
  join(now, election_.step(now, told_), out);
}

// Whoever has, or is to have, this log.
std::vector<model::Hop> QuorumReplica::others() const {
  std::vector<model::Hop> all;
  if (members_) all = members_->fed;
  std::erase(all, self_);
  return all;
}

// The pipe is opened for the log as it is now: while it had a hole none was.
void QuorumReplica::mended(Instant now, uint64_t number, base::Result<Mended> log, Out& out) {
  Effects effects;
  base::Result<std::optional<model::LogGap>> next = std::optional<model::LogGap>();
  if (log)
    next = log->next;
  else
    next = base::fail(log.error());
  const bool ours = mend_.fetched(now, number, next, others(), effects);
  if (ours && log && hole_ && !rebuild_.installing()) {
    follower_.leave(effects);
    log_ = Log(log->log.end, log->log.commit, std::move(log->log.epochs), std::move(log->log.cuts));
    hole_ = log->next.has_value();
    if (!hole_) rebuild_.stop();
  }
  pass(now, effects, out);
  tell_log(now, out);
  log_whole(now, out);
}

// --- what only one has that cannot lead --------------------------------------------------------------

void QuorumReplica::borrow(const election::Borrow& e, Instant now, Out& out) {
  if (hole_ || !log_.quiet() || rebuild_.installing()) return;
  std::vector<Hop> sources;
  for (const auto& v : e.from) sources.push_back({v.server, v.assignment});
  Effects effects;
  borrow_.due(sources, e.promise, log_, effects);
  pass(now, effects, out);
}

base::Result<model::Lsn> QuorumReplica::may_lend(const model::QuorumLend& m) const {
  if (election_.in_doubt() || election_.promise() != m.promise || log_.end().epoch >= m.promise || leader_ ||
      follower_.leader() || MUTANT("nobody_lends"))
    return base::fail(Code::unavailable, "no election with the promise of epoch " + to_string(m.promise) + " here");
  return last_common(m.end, m.epochs, log_.end(), log_.epochs());
}

void QuorumReplica::lent(Instant now, uint64_t number, const base::Result<Lent>& lent, Out& out) {
  const auto asked = borrow_.answered(number, lent && (!lent->blocks.empty() || lent->keep != log_.end()));
  Effects effects;
  const bool as_it_was = asked && !leader_ && !hole_ && !rebuild_.installing() && log_.end() == asked->end &&
                         election_.promise() == asked->promise && !election_.in_doubt();
  if (lent && as_it_was) {
    out.emplace_back(Say{base::Level::notice, "borrow",
                         std::to_string(lent->blocks.size()) + " blocks behind LSN " + to_string(lent->keep.lsn) +
                             " come from " + asked->from.server.name + ", which has more and cannot lead"});
    follower_.lent(*lent, effects);
  } else if (lent) {
    for (const auto& b : lent->blocks) effects.emplace_back(Release{b.call});
  } else if (asked) {
    out.emplace_back(Say{base::Level::info, "borrow", asked->from.server.name + ": " + to_string(lent.error())});
  }
  pass(now, effects, out);
}

// --- who votes -------------------------------------------------------------------------------------

void QuorumReplica::members(Instant now, Members members, Out& out) {
  members_ = std::move(members);
  pipeline_ = members_->pipeline;
  at_leader(now, out, [&](Leader& leader, Effects& effects) {
    leader.use(now, pipeline_, effects);
    leader.feed(now, members_->fed, effects);
  });
  reform_if_due(now, out);
}

// Of those that stay, the one with most of the log.
const Leader::PeerStatus* QuorumReplica::successor_of(const std::vector<Leader::PeerStatus>& peers) const {
  const Leader::PeerStatus* best = nullptr;
  for (const auto& peer : peers)
    if (peer.votes && peer.state == Leader::PeerState::joined &&
        model::find_voter(members_->voters, peer.hop.assignment) != nullptr &&
        (best == nullptr || peer.acked.lsn > best->acked.lsn))
      best = &peer;
  return best;
}

// By the map, as far as this leader may act on it: whoever is to have a vote may be level at any time.
bool QuorumReplica::reform_wanted() const {
  if (!leader_ || leader_->stopped() || !members_ || !election_.government()) return false;
  const auto& government = *election_.government();
  if (members_->txnseq < government.txnseq) return false;
  return government.txnseq < members_->acknowledge ||
         std::any_of(members_->voters.begin(), members_->voters.end(), [&](const auto& wanted) {
           return model::find_voter(government.voters, wanted.assignment) == nullptr;
         });
}

// One voter at a time, and only one that has everything that is committed: from the moment of reform() on nothing is
// committed, and no read answered, without a majority of either set (S61).
void QuorumReplica::reform_if_due(Instant now, Out& out) {
  auto* leader = leading();
  if (leader == nullptr || !leader->serving() || !members_ || !election_.may_reform()) return;
  const auto& government = *election_.government();
  // It does not know why they are who they are: they may have been swapped by a newer map, and swapped back by this one
  // once what is swapped out has been dropped.
  if (members_->txnseq < government.txnseq && !MUTANT("reform_by_an_older_map")) return;
  auto next = government.voters;
  bool due = government.txnseq < members_->acknowledge;
  for (const auto& wanted : members_->voters) {
    if (model::find_voter(next, wanted.assignment) != nullptr) continue;
    const auto at = std::find_if(next.begin(), next.end(), [&](const auto& v) { return v.slot == wanted.slot; });
    if (!leader->level({wanted.server, wanted.assignment}) && !MUTANT("voter_not_level")) {
      due = false;  // nothing is settled before it is who it should be
      continue;
    }
    if (at == next.end()) {  // nobody votes for that slot since a recovery without a majority (quorum_recovery.h)
      next.insert(std::find_if(next.begin(), next.end(), [&](const auto& v) { return v.slot > wanted.slot; }), wanted);
      due = true;
      break;
    }
    if (at->assignment == self_.assignment) return leave(now, wanted, next, out);
    *at = wanted;
    due = true;
    break;
  }
  if (!due) return;
  Effects effects;
  if (!MUTANT("reform_without_both")) leader->reform(now, next, effects);
  pass(now, effects, out);
  elect(now, election::Reform{next, members_->txnseq}, out);
}

// It is the one that is replaced: another leads first, and sees to it. The only voter there is stops, and is swapped
// for one that has everything it had committed by then.
void QuorumReplica::leave(Instant now, const model::Voter& instead, const model::Voters& voters, Out& out) {
  const std::string why = "another replica takes its place";
  if (voters.size() == 1)
    return elect(now, election::ResignAsked{instead.assignment, why, election::Reform{{instead}, members_->txnseq}},
                 out);
  const auto peers = leader_->peers();
  if (const auto* best = successor_of(peers)) elect(now, election::ResignAsked{best->hop.assignment, why}, out);
}

Instant QuorumReplica::next_tick() const {
  const bool leads = leader_ && !leader_->stopped();
  const auto at = busy_since_ && told_.moving ? std::min(elect_at_, *busy_since_ + kDiskStill) : elect_at_;
  return leads ? std::min({at, leader_->next_tick(), cut_.next_tick()}) : at;
}

// At every step, as looks may be far apart: what was quiet at the last one says nothing of how long it has been busy.
void QuorumReplica::watch_disk(Instant now) {
  if (!log_.quiet() || MUTANT("disk_watched_at_looks_alone"))
    busy_since_ = busy_since_.value_or(now);
  else
    busy_since_.reset();
}

void QuorumReplica::tell_log(Instant now, Out& out) {
  watch_disk(now);
  if (MUTANT("disk_watched_at_looks_alone") && log_.quiet()) busy_since_ = now;
  const bool moving = !busy_since_ || now - *busy_since_ < kDiskStill;
  election::LogState state{model::token_of(log_.durable()), told_.whole, moving};
  if (state.token == told_.token && state.moving == told_.moving) return;
  told_ = state;
  join(now, election_.step(now, state), out);
}

template <class Act>
void QuorumReplica::at_leader(Instant now, Out& out, Act act, std::optional<Epoch> epoch) {
  auto* leader = leading();
  if (leader == nullptr || (epoch && leader->epoch() != *epoch)) return;
  Effects effects;
  act(*leader, effects);
  pass(now, effects, out);
}

// --- messages --------------------------------------------------------------------------------------

bool QuorumReplica::admit(Instant now, const model::Envelope& envelope, Epoch epoch, Out& out) {
  if (!election_.admits(epoch)) return false;
  const auto& followed = follower_.leader();
  if (followed && followed->assignment == envelope.from_assignment && follower_.epoch() == epoch) return true;
  join(now,
       election_.step(now, election::LeaderMet{epoch, envelope.from_assignment, envelope.from, envelope.incarnation}),
       out);
  // One that leads at that epoch or above obeys nobody of it.
  return election_.admits(epoch) && !election_.leads();
}

// In doubt there is nothing to name yet; a refusal that names epoch 0 would be none.
base::Result<model::PipeOpenReply> QuorumReplica::refused() const {
  if (election_.in_doubt()) return base::fail(Code::unavailable, "it does not know yet what it promised");
  return refusal(election_.floor());
}

void QuorumReplica::open(Instant now, CallId call, const model::PipeOpen& m, Out& out) {
  if (!admit(now, m.envelope, m.epoch, out)) {
    out.emplace_back(AnswerOpen{call, refused()});
    return;
  }
  Effects effects;
  if (hole_) {
    if (!mend_.hopeful(now, others())) rebuild_.told(now, {m.envelope.from, m.envelope.from_assignment}, effects);
    pass(now, effects, out);
    out.emplace_back(AnswerOpen{call, damaged()});
    return;
  }
  word_at_ = now;
  told_commit_ = std::max(told_commit_, m.commit);
  follower_.open(now, call, m, effects);
  pass(now, effects, out);
}

void QuorumReplica::cut(Instant now, CallId call, const model::PipeCut& m, Out& out) {
  if (!admit(now, m.envelope, m.epoch, out)) {
    out.emplace_back(AnswerOpen{call, refused()});
    return;
  }
  Effects effects;
  follower_.cut(now, call, m, effects);
  pass(now, effects, out);
}

void QuorumReplica::block(Instant now, CallId call, const model::BlockHeader& header, const model::PipeBlock& m,
                          Out& out, model::AttemptId attempt) {
  if (!admit(now, m.envelope, m.epoch, out)) {
    refuse(m.envelope, m.epoch, m.generation, out);
    out.emplace_back(Release{call});
    return;
  }
  word_at_ = now;
  told_commit_ = std::max(told_commit_, m.commit);
  Effects effects;
  follower_.block(now, call, header, m, effects, attempt);
  pass(now, effects, out);
}

void QuorumReplica::refuse(const model::Envelope& from, Epoch epoch, uint64_t generation, Out& out) {
  out.emplace_back(SendAck{.to = {from.from, from.from_assignment},
                           .epoch = epoch,
                           .generation = generation,
                           .refused = election_.floor(),
                           .gap = false,
                           .error = {},
                           .durable = {},
                           .commit = {}});
}

void QuorumReplica::commit(Instant now, const model::PipeCommit& m, Out& out) {
  if (!admit(now, m.envelope, m.epoch, out)) return refuse(m.envelope, m.epoch, m.generation, out);
  word_at_ = now;
  told_commit_ = std::max(told_commit_, m.commit);
  Effects effects;
  follower_.commit(now, m, effects);
  pass(now, effects, out);
}

void QuorumReplica::ack(Instant now, const model::PipeAck& m, Out& out) {
  at_leader(now, out, [&](Leader& leader, Effects& effects) { leader.acked(now, m, effects); });
  if (log_.open_cut()) think_of_cut(now, out);
}

void QuorumReplica::outside(Instant now, const model::QuorumOutside& m, Out& out) {
  if (!admit(now, m.envelope, m.epoch, out)) return;
  Effects effects;
  rebuild_.told(now, {m.envelope.from, m.envelope.from_assignment}, effects);
  pass(now, effects, out);
}

void QuorumReplica::link_lost(Instant now, const model::ServerId& server, Out& out) {
  at_leader(now, out, [&](Leader& leader, Effects& effects) { leader.link_lost(now, server, effects); });
}

// --- answers ---------------------------------------------------------------------------------------

void QuorumReplica::built(Instant now, BatchId batch, Epoch epoch, const base::Result<Leader::Placed>& placed,
                          Out& out) {
  Effects effects;
  if (leader_ && leader_->epoch() == epoch) {
    leader_->built(now, batch, placed, effects);
  } else {
    const auto it =
        std::find_if(former_.begin(), former_.end(), [&](const auto& former) { return former->epoch() == epoch; });
    if (it == former_.end()) return;
    (*it)->built(now, batch, placed, effects);
    if (!(*it)->building()) former_.erase(it);
  }
  pass(now, effects, out);
}

void QuorumReplica::take_failed(Instant now, const LogPoint& end, const base::Error& error, Out& out) {
  Effects effects;
  follower_.take_failed(end, error, effects);
  pass(now, effects, out);
}

void QuorumReplica::synced(Instant now, const LogPoint& point, Out& out) {
  log_.durable(point);
  busy_since_.reset();
  watch_disk(now);
  at_leader(now, out, [&](Leader& leader, Effects& effects) { leader.next(now, effects); });
}

void QuorumReplica::durable(Instant now, Out& out) {
  Effects effects;
  if (auto* leader = leading())
    leader->durable(now, effects);
  else
    follower_.durable(effects);
  pass(now, effects, out);
  if (log_.open_cut()) think_of_cut(now, out);
}

void QuorumReplica::truncated(Instant now, const base::Status& status, Out& out) {
  Effects effects;
  follower_.truncated(status, effects);
  pass(now, effects, out);
}

void QuorumReplica::opened(Instant now, const Hop& peer, Epoch epoch, uint64_t generation,
                           const base::Result<model::PipeOpenReply>& reply, Out& out) {
  at_leader(
      now, out,
      [&](Leader& leader, Effects& effects) {
        // It obeys: what it answers to beacons counts for this epoch from now on.
        if (reply && reply->refused.value == 0)
          beacons_.accepted_by(peer.server, reply->incarnation, partition_, epoch);
        leader.opened(now, peer, generation, reply, effects);
      },
      epoch);
}

void QuorumReplica::point_found(Instant now, const Hop& peer, Epoch epoch, uint64_t generation,
                                const base::Result<LogPoint>& point, Out& out) {
  at_leader(
      now, out, [&](Leader& leader, Effects& effects) { leader.point_found(now, peer, generation, point, effects); },
      epoch);
}

void QuorumReplica::old_sent(Instant now, const Hop& peer, Epoch epoch, uint64_t generation,
                             const base::Result<std::vector<LogPoint>>& sent, Out& out) {
  at_leader(
      now, out, [&](Leader& leader, Effects& effects) { leader.old_sent(now, peer, generation, sent, effects); },
      epoch);
}

// --- a split or a merge ----------------------------------------------------------------------------

void QuorumReplica::reshape_seen(Instant now, const ReshapeSeen& seen, Out& out) {
  cut_.seen(seen);
  think_of_cut(now, out);
}

void QuorumReplica::reshape_read(Instant now, uint64_t number, const base::Result<ReshapeSeen>& seen, Out& out) {
  cut_.read(now, number, seen);
  think_of_cut(now, out);
}

void QuorumReplica::think_of_cut(Instant now, Out& out) {
  const auto* g = election_.government();
  auto* leader = leading();
  Effects effects;
  const auto report = cut_.think(now, leader, log_, g != nullptr ? g->cut : std::nullopt, effects);
  // First what is to be in the log: a vote may come of the other, and it says how long the log is.
  pass(now, effects, out);
  if (leading() != nullptr && report && *report != election_.cut_report())
    join(now, election_.step(now, election::ReportCut{*report}), out);
}

void QuorumReplica::snapshot_pulled(Instant now, uint64_t number, const base::Result<model::SnapshotPlace>& place,
                                    Out& out) {
  Effects effects;
  rebuild_.pulled(now, number, place, effects);
  pass(now, effects, out);
}

// Another log is in the place of the one that the pipe was opened for: it has to be opened anew.
void QuorumReplica::snapshot_installed(Instant now, base::Result<Rebuilt> log, Out& out) {
  Effects effects;
  base::Status status = base::ok();
  if (log) {
    follower_.leave(effects);
    log_ = Log(log->end, log->commit, std::move(log->epochs), std::move(log->cuts));
    hole_ = false;
    mend_.stop();
  } else {
    status = base::fail(log.error());
  }
  rebuild_.installed(now, status, effects);
  pass(now, effects, out);
  tell_log(now, out);
  log_whole(now, out);
}

// --- clients ---------------------------------------------------------------------------------------

base::Error QuorumReplica::not_leader() const {
  base::Error e(Code::not_leader, election_.leader().name.empty() || election_.leader() == self_.server
                                      ? "no leader is known"
                                      : election_.leader().name + " leads");
  if (election_.leader() != self_.server) e.detail = election_.leader().name;
  return e;
}

void QuorumReplica::write(Instant now, RequestId request, size_t bytes, Instant deadline, Out& out) {
  auto* leader = leading();
  if (leader == nullptr) {
    out.emplace_back(Reply{request, base::fail(not_leader())});
    return;
  }
  Effects effects;
  leader->write(now, request, bytes, deadline, effects);
  pass(now, effects, out);
}

void QuorumReplica::flush(Instant now, Out& out) {
  at_leader(now, out, [&](Leader& leader, Effects& effects) { leader.flush(now, effects); });
}

base::Status QuorumReplica::may_read(Instant now) const {
  if (!leader_ || leader_->stopped()) return base::fail(not_leader());
  if (!leader_->serving()) return base::fail(Code::unavailable, "the leader is taking over");
  if (log_.committed_cut() && !MUTANT("reads_not_parked"))
    return base::fail(Code::unavailable, "the partition is being split or merged");
  if (election_.lease_until() <= now && !MUTANT("read_without_lease"))
    return base::fail(Code::unavailable, "the leader's lease is over: a majority of the replicas has not answered it");
  return base::ok();
}

model::Lsn QuorumReplica::shown(model::Lsn visible) const {
  const auto cut = this->cut();
  return cut ? std::min(visible, cut->at.lsn) : visible;
}

// Not even the start of an epoch: it is new, or what it came of is elsewhere, and it is not filled yet. That there is
// no such key in it says nothing.
base::Status QuorumReplica::may_read_any(model::Lsn shown) const {
  if (shown.value == 0) return base::fail(Code::catching_up, "this replica has nothing yet");
  return base::ok();
}

// It leads, with a lease, or a leader has spoken to it in this life and it shows all that it was told of as committed.
base::Status QuorumReplica::may_read_session(Instant now, model::Lsn shown, model::Lsn seen) const {
  TRY(may_read_any(shown));
  const bool current = may_read(now).has_value() || (word_at_ != Instant{} && shown >= told_commit_);
  if ((shown >= seen || MUTANT("session_token_not_asked")) && current) return base::ok();
  return base::fail(Code::catching_up, "this replica has not all that the client saw, or that its leader told it");
}

ReplicaStatus QuorumReplica::status() const {
  ReplicaStatus s;
  const bool leads = leader_ && !leader_->stopped();
  const auto* government = election_.government();
  const bool votes = government == nullptr || model::find_voter(government->voters, self_.assignment) != nullptr;
  s.role = follower_.faulted()  ? "faulted"
           : leads              ? "leader"
           : !votes             ? "learner"
           : follower_.leader() ? "follower"
                                : "voter";
  s.doing = election_.doing();
  s.epoch = leads ? leader_->epoch() : election_.government() != nullptr ? election_.government()->epoch : Epoch{};
  s.leader = election_.leader();
  s.end = log_.end();
  s.durable = log_.durable();
  s.commit = log_.commit();
  s.serving = leads && leader_->serving();
  s.cut = log_.open_cut();
  s.rebuild = rebuild_.busy();
  s.since = led_from_;
  if (leads) s.peers = leader_->peers();
  return s;
}

}  // namespace cantle::proto

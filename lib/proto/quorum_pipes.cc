// Leader: the pipes to the other replicas: opening, the last common block, what they miss, the chain.
#include <algorithm>
#include <utility>

#include "lib/base/testing.h"
#include "lib/proto/quorum_leader.h"

namespace cantle::proto::quorum {

using base::Code;
using base::Duration;
using base::Instant;
using model::LogPoint;
using model::Lsn;

namespace {
constexpr Duration kResendEvery = std::chrono::milliseconds(50);

// What cannot be sent, now or later: the log does not go back so far, or is damaged there (R16). A snapshot has it.
bool lost(const base::Error& e) { return e.code == Code::not_found || e.code == Code::corrupt; }
}  // namespace

Leader::Peer* Leader::find(const model::Hop& hop) {
  for (auto& peer : peers_)
    if (peer.hop == hop) return &peer;
  return nullptr;
}

bool Leader::reaches(const model::Voters& voters) const {
  if (next_voters_ && &voters == &voters_ && MUTANT("commit_by_new_set")) return true;
  return model::majority_of(voters, [&](const model::Voter& v) {
    const auto* peer = find({v.server, v.assignment});
    return v.assignment == self_.assignment ||
           (peer != nullptr && (peer->state == PeerState::joined || peer->state == PeerState::trailing));
  });
}

bool Leader::level(const model::Hop& replica) const {
  const auto* peer = find(replica);
  return peer != nullptr && peer->state == PeerState::joined && peer->acked.lsn >= log_.commit();
}

std::vector<Leader::PeerStatus> Leader::peers() const {
  std::vector<PeerStatus> out;
  out.reserve(peers_.size());
  for (const auto& p : peers_)
    out.push_back({p.hop, p.state, p.acked, p.why, model::find_voter(voters_, p.hop.assignment) != nullptr});
  return out;
}

// --- who there is ----------------------------------------------------------------------------------

void Leader::feed(Instant now, std::vector<model::Hop> replicas, Effects& out) {
  now_ = now;
  fed_ = std::move(replicas);
  if (!stopped_ && starting_) arrange_peers(out);
}

void Leader::use(Instant now, Pipeline pipeline, Effects& out) {
  now_ = now;
  if (std::exchange(pipeline_, pipeline) == pipeline || stopped_) return;
  // What is on its way in the old one stops where one of them fails, and nobody would look behind it.
  for (const size_t at : order_) {
    peers_[at].resent = {};
    resend(now, peers_[at], out);
  }
}

void Leader::reform(Instant now, model::Voters next, Effects& out) {
  now_ = now;
  next_voters_ = std::move(next);
  if (!stopped_) arrange_peers(out);
}

void Leader::vote(Instant now, model::Voters voters, Effects& out) {
  now_ = now;
  voters_ = std::move(voters);
  next_voters_.reset();
  if (stopped_) return;
  arrange_peers(out);
  commit(now, out);
  take_waiting_ = take_waiting_ || !waiting_.empty();  // a majority may be there now
}

// A pipe for each of them; the others' go.
void Leader::arrange_peers(Effects& out) {
  std::vector<model::Hop> hops;
  const auto add = [&](const model::Hop& hop) {
    if (hop.assignment != self_.assignment && std::find(hops.begin(), hops.end(), hop) == hops.end())
      hops.push_back(hop);
  };
  for (const auto& v : voters_) add({v.server, v.assignment});
  for (const auto& v : next_voters_.value_or(model::Voters())) add({v.server, v.assignment});
  for (const auto& hop : fed_) add(hop);
  std::vector<model::Hop> chain;
  for (const size_t at : order_) chain.push_back(peers_[at].hop);
  std::vector<Peer> former = std::exchange(peers_, {});
  for (const auto& hop : hops) {
    const auto it = std::find_if(former.begin(), former.end(), [&](const Peer& p) { return p.hop == hop; });
    if (it != former.end()) {
      peers_.push_back(std::move(*it));
      continue;
    }
    Peer peer;
    peer.hop = hop;
    peers_.push_back(std::move(peer));
    open(peers_.back(), out);
  }
  order_.clear();
  bool behind = false;  // what went through one that is gone may not have reached those behind it
  for (const auto& hop : chain) {
    auto* peer = find(hop);
    if (peer == nullptr) {
      behind = pipeline_ == Pipeline::chain;
      continue;
    }
    order_.push_back(static_cast<size_t>(peer - peers_.data()));
    if (behind) peer->resent = {};
  }
  for (const auto& hop : behind ? chain : std::vector<model::Hop>())
    if (auto* peer = find(hop); peer != nullptr && peer->state == PeerState::joined) resend(now_, *peer, out);
}

// --- where the logs part ---------------------------------------------------------------------------

void Leader::open(Peer& peer, Effects& out) {
  peer.state = PeerState::opening;
  peer.generation = ++generation_;
  peer.flight.clear();
  peer.parts.clear();
  peer.reading = peer.cut = false;
  out.emplace_back(SendOpen{peer.hop, epoch_, peer.generation, log_.commit()});
}

void Leader::reopen(Instant now, Peer& peer, std::string why) {
  std::erase(order_, static_cast<size_t>(&peer - peers_.data()));
  peer.state = PeerState::waiting;
  peer.why = std::move(why);
  peer.flight.clear();
  peer.parts.clear();
  peer.reading = false;
  peer.again = now + peer.backoff;
  peer.backoff = std::min(peer.backoff * 2, kReopenMost);
}

// What it would have to be sent is not kept: it needs a snapshot, and is told so each time that this is found.
void Leader::outside(Instant now, Peer& peer, const std::string& why, Effects& out) {
  if (peer.why != why)
    out.emplace_back(Say{base::Level::warn, "outside the session", peer.hop.server.name + " needs a snapshot: " + why});
  peer.state = PeerState::outside;
  peer.why = why;
  peer.again = now + kOutsideAgain;
  out.emplace_back(SendOutside{peer.hop, epoch_});
}

void Leader::opened(Instant now, const model::Hop& hop, uint64_t generation,
                    const base::Result<model::PipeOpenReply>& reply, Effects& out) {
  now_ = now;
  Peer* peer = find(hop);
  if (stopped_ || peer == nullptr || peer->generation != generation) return;
  if (peer->state != PeerState::opening && peer->state != PeerState::cutting) return;
  if (!reply) return reopen(now, *peer, reply.error().text);
  if (reply->refused.value != 0) {
    out.emplace_back(MetPromise{reply->refused});
    return reopen(now, *peer, "it promised epoch " + std::to_string(reply->refused.value));
  }
  if (reply->faulted) {
    peer->why = "it wants an operator";
    peer->state = PeerState::faulted;
    return;
  }
  peer->end = reply->end;
  peer->commit = reply->commit;
  const Lsn common = last_common(log_.end(), log_.epochs(), reply->end, reply->epochs);
  if (common.value == 0) {
    point_found(now, hop, generation, LogPoint{}, out);
    return;
  }
  peer->state = PeerState::finding;
  if (const auto ours = log_.recent(common))
    point_found(now, hop, generation, *ours, out);
  else
    out.emplace_back(FindPoint{hop, epoch_, generation, common});
}

void Leader::point_found(Instant now, const model::Hop& hop, uint64_t generation, const base::Result<LogPoint>& point,
                         Effects& out) {
  now_ = now;
  Peer* peer = find(hop);
  if (stopped_ || peer == nullptr || peer->generation != generation) return;
  if (peer->state != PeerState::finding && peer->state != PeerState::opening && peer->state != PeerState::cutting)
    return;
  if (!point) {
    if (!lost(point.error())) return reopen(now, *peer, point.error().text);
    return outside(now, *peer, point.error().text, out);
  }
  if (peer->end == *point) return start_sending(now, *peer, *point, out);
  if (peer->end.lsn == point->lsn) {
    // One leader appended in an epoch, so this is not the work of a fault that we know.
    peer->state = PeerState::faulted;
    peer->why = "its block at LSN " + std::to_string(point->lsn.value) + " has another checksum than ours";
    out.emplace_back(Faulted{peer->hop.server.name + ": " + peer->why});
    return;
  }
  if (std::exchange(peer->cut, true)) return reopen(now, *peer, "its log was not cut where we asked");
  peer->state = PeerState::cutting;
  out.emplace_back(SendCut{peer->hop, epoch_, peer->generation, peer->end, *point});
}

// --- what it misses ------------------------------------------------------------------------------

void Leader::start_sending(Instant now, Peer& peer, const LogPoint& from, Effects& out) {
  peer.state = PeerState::trailing;
  peer.why.clear();
  peer.backoff = kReopenFirst;
  peer.matched = peer.acked = from;
  peer.again = now;
  peer.notice = now + kNoticeAfter;
  peer.noticed = false;
  commit(now, out);
  go_on(now, peer, out);
  take_waiting_ = !waiting_.empty();  // a majority may be back
}

bool Leader::kept_from(const Lsn& first) const {
  if (kept_.empty()) return first == log_.end().lsn.next();
  return first >= kept_.front().first;
}

void Leader::go_on(Instant now, Peer& peer, Effects& out) {
  if (peer.state != PeerState::trailing || peer.reading) return;
  const Lsn next = peer.matched.lsn.next();
  if (kept_from(next)) {
    peer.state = PeerState::joined;
    order_.push_back(static_cast<size_t>(&peer - peers_.data()));
    return send_kept(now, peer, next, out);
  }
  if (peer.parts.size() >= kOldParts || next > log_.durable().lsn || now < peer.again) return;
  peer.reading = true;
  out.emplace_back(SendOld{peer.hop, epoch_, peer.generation, log_.commit(), next, kOldBytes});
}

void Leader::old_sent(Instant now, const model::Hop& hop, uint64_t generation,
                      const base::Result<std::vector<LogPoint>>& sent, Effects& out) {
  now_ = now;
  Peer* peer = find(hop);
  if (stopped_ || peer == nullptr || peer->generation != generation || !peer->reading) return;
  peer->reading = false;
  if (!sent && lost(sent.error())) return outside(now, *peer, sent.error().text, out);
  if (!sent) return reopen(now, *peer, sent.error().text);
  for (const auto& end : *sent) peer->flight.push_back({end, now});
  if (sent->empty())
    peer->again = now + kReopenFirst;
  else
    peer->parts.push_back((peer->matched = sent->back()).lsn);
  go_on(now, *peer, out);
}

void Leader::send_kept(Instant now, Peer& peer, const Lsn& from, Effects& out) {
  for (const auto& block : kept_) {
    if (block.first < from) continue;
    out.emplace_back(SendBlock{peer.hop, {}, epoch_, peer.generation, log_.commit(), block.end.lsn});
    peer.flight.push_back({block.end, now});
    peer.matched = block.end;
  }
}

// --- the pipeline ----------------------------------------------------------------------------------

// How many of the order, from its first on, make the majority with the leader. What the others sync at once is in the
// way of the next block where replicas share a disk, and is a sync more a block wherever they are.
size_t Leader::urgent() const {
  Duration limit = Duration::max();
  for (const size_t at : order_) limit = std::min(limit, 2 * peers_[at].took);
  limit = std::max<Duration>(limit, kCountedOn);
  const auto made = [&](size_t n, const model::Voters& voters) {
    return model::majority_of(voters, [&](const model::Voter& v) {
      return v.assignment == self_.assignment || std::any_of(order_.begin(), order_.begin() + n, [&](size_t at) {
               return peers_[at].hop.assignment == v.assignment && peers_[at].took <= limit;
             });
    });
  };
  size_t n = 0;
  while (n < order_.size() && !(made(n, voters_) && (!next_voters_ || made(n, *next_voters_)))) ++n;
  return n;
}

void Leader::send_new(Instant now, const Kept& block, Effects& out) {
  if (order_.empty()) return;
  std::vector<model::Hop> route;
  for (const size_t at : order_) {
    auto& peer = peers_[at];
    route.push_back(peer.hop);
    peer.flight.push_back({block.end, now});
    peer.matched = block.end;
  }
  told_at_ = now;
  size_t urgent = this->urgent();
  if (pipeline_ == Pipeline::chain) {
    const auto first = route.front();
    route.erase(route.begin());
    out.emplace_back(SendBlock{first, std::move(route), epoch_, generation_, log_.commit(), block.end.lsn, urgent});
    return;
  }
  for (const auto& hop : route) {
    out.emplace_back(SendBlock{hop, {}, epoch_, generation_, log_.commit(), block.end.lsn, urgent > 0 ? 1U : 0U});
    if (urgent > 0) --urgent;
  }
}

Duration Leader::deadline_of(const Peer& peer) const {
  if (peer.state == PeerState::trailing || !peer.parts.empty()) return kDeadlineMost;
  const size_t hops = pipeline_ == Pipeline::star ? 1 : std::max<size_t>(1, order_.size());
  return std::min<Duration>(kHopDeadline * static_cast<int>(hops) + 4 * peer.took, kDeadlineMost);
}

void Leader::acked(Instant now, const model::PipeAck& ack, Effects& out) {
  now_ = now;
  Peer* peer = find({ack.envelope.from, ack.envelope.from_assignment});
  if (stopped_ || peer == nullptr || ack.epoch != epoch_) return;
  if (ack.refused.value != 0) {
    out.emplace_back(MetPromise{ack.refused});
    if (peer->state == PeerState::joined || peer->state == PeerState::trailing)
      take_out(now, *peer, "it promised epoch " + std::to_string(ack.refused.value), out);
    return;
  }
  if (peer->state != PeerState::joined && peer->state != PeerState::trailing) return;
  if (ack.generation < peer->generation) return;
  if (!ack.error.empty()) return take_out(now, *peer, ack.error, out);
  peer->commit = std::max(peer->commit, ack.commit);
  // Only a block that was sent, with its checksum.
  const auto it =
      std::find_if(peer->flight.begin(), peer->flight.end(), [&](const Flight& f) { return f.end == ack.durable; });
  if (it != peer->flight.end()) {
    const auto took = now - it->sent;
    peer->took = (peer->took * 7 + took) / 8;
    peer->acked = ack.durable;
    peer->flight.erase(peer->flight.begin(), it + 1);
    while (!peer->parts.empty() && peer->parts.front() <= ack.durable.lsn) peer->parts.pop_front();
    commit(now, out);
    go_on(now, *peer, out);
    forget(out);
  } else if (ack.durable.lsn > peer->acked.lsn) {
    return take_out(now, *peer, "it acknowledged a block that it was not sent", out);
  }
  if (ack.gap) resend(now, *peer, out);
}

// What it has not acknowledged, straight to it.
void Leader::resend(Instant now, Peer& peer, Effects& out) {
  if (now < peer.resent + kResendEvery || peer.flight.empty()) return;
  peer.resent = now;
  if (peer.state != PeerState::joined || kept_.empty() || kept_.front().end.lsn > peer.flight.front().end.lsn)
    return take_out(now, peer, "it misses blocks", out);
  auto flight = peer.flight.begin();
  for (const auto& block : kept_) {
    if (flight == peer.flight.end()) break;
    if (block.end != flight->end) continue;
    flight->sent = now;
    ++flight;
    out.emplace_back(SendBlock{peer.hop, {}, epoch_, generation_, log_.commit(), block.end.lsn});
  }
}

void Leader::take_out(Instant now, Peer& peer, std::string why, Effects& out) {
  const auto at = std::find(order_.begin(), order_.end(), static_cast<size_t>(&peer - peers_.data()));
  std::vector<size_t> behind;
  if (pipeline_ == Pipeline::chain && at != order_.end()) behind.assign(at + 1, order_.end());
  reopen(now, peer, std::move(why));
  // What went through it may not have reached those behind it.
  for (const size_t i : behind) {
    peers_[i].resent = {};
    resend(now, peers_[i], out);
  }
}

void Leader::link_lost(Instant now, const model::ServerId& server, Effects& out) {
  now_ = now;
  if (stopped_) return;
  for (auto& peer : peers_)
    if (peer.hop.server == server && (peer.state == PeerState::joined || peer.state == PeerState::trailing))
      take_out(now, peer, "the connection was lost", out);
}

// Of what it was not sent yet it would say that it misses it; each block that it is sent tells a commit, too.
bool Leader::lacks_notice(const Peer& peer) const {
  const bool open = peer.state == PeerState::joined || peer.state == PeerState::trailing;
  return open && peer.commit < log_.commit() && peer.matched.lsn >= log_.commit();
}

// The next block's acknowledgement confirms it: where there are thousands of partitions each of them has a block now
// and then, and answers to notices would be a quarter of all messages.
void Leader::notices(Instant now, Effects& out) {
  if (now < told_at_ + kNoticeAfter) return;
  for (auto& peer : peers_) {
    if (!lacks_notice(peer) || now < peer.notice) continue;
    out.emplace_back(SendCommit{peer.hop, epoch_, generation_, log_.commit(), peer.acked, !peer.noticed});
    peer.notice = now + kNoticeAgain;
    peer.noticed = true;
  }
}

void Leader::forget(Effects& out) {
  Lsn through;
  const auto any = [&](auto... states) {
    return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return ((p.state == states) || ...); });
  };
  const bool trailing = any(PeerState::trailing);
  // In a new epoch that is the epoch start: from the journal, thousands of leaders would read it for each replica.
  const bool coming = any(PeerState::opening, PeerState::finding, PeerState::cutting);
  const size_t share = room_ == nullptr ? SIZE_MAX : room_->share();
  while (!kept_.empty()) {
    const auto& block = kept_.front();
    if (block.end.lsn > log_.durable().lsn) break;
    const auto behind =
        std::find_if(order_.begin(), order_.end(), [&](size_t at) { return peers_[at].acked.lsn < block.end.lsn; });
    if (behind != order_.end()) {
      if (kept_bytes_ <= std::min(kKeptMax, std::max(share, kKeptForJoined))) break;
      take_out(now_, peers_[*behind], "it is too far behind", out);
      continue;
    }
    if (kept_bytes_ <= std::min(share, trailing ? kKeptMax / 2 : coming ? kKeptForComing : 0)) break;
    through = block.end.lsn;
    set_kept_bytes(kept_bytes_ - block.bytes);
    kept_.pop_front();
  }
  if (through.value != 0) out.emplace_back(ForgetBlocks{through});
}

}  // namespace cantle::proto::quorum

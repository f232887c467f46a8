#include "lib/proto/beacons.h"

#include <algorithm>

#include "lib/base/testing.h"

namespace cantle::proto {

using namespace beacon;
using base::Instant;
using model::Epoch;
using model::Incarnation;
using model::PartitionId;
using model::ServerId;

namespace {
constexpr Instant kForever{base::Duration::max()};

// Whether that is news.
template <class Map>
bool raise(Map& map, const PartitionId& partition, Epoch epoch) {
  const auto [at, made] = map.try_emplace(partition, epoch);
  if (!made && epoch <= at->second) return false;
  at->second = epoch;
  return true;
}
}  // namespace

Beacons::Beacons(ServerId self, Incarnation incarnation, Instant recovered)
    : self_(std::move(self)), life_(incarnation), may_seal_from_(recovered + kPromise + drift(kPromise)) {
  if (MUTANT("restart_forgets_promise")) may_seal_from_ = recovered;
}

// S8: while this process stood still its leases may have run out, whatever the clocks say.
void Beacons::begin(const Now& now) {
  changes_++;
  const auto went = now.at - last_turn_;
  const bool clock_stood =
      now.wall > last_wall_ && std::chrono::milliseconds(now.wall - last_wall_) > went + kGapMost && last_wall_ != 0;
  if (last_turn_ != Instant{} && (went > kGapMost || clock_stood)) {
    gap_at_ = now.at;
    sent_.clear();
    for (auto& [server, peer] : known_) {
      peer.granted_until = {};
      for (auto& [partition, refusal] : peer.refused) refusal.until = {};
    }
  }
  last_turn_ = std::max(last_turn_, now.at);
  last_wall_ = now.wall;
}

const Beacons::Peer* Beacons::find(const ServerId& server) const {
  const auto it = known_.find(server);
  return it == known_.end() ? nullptr : &it->second;
}

// Null: an older life speaks. A new life knows nothing of what the one before accepted or granted.
Beacons::Peer* Beacons::meet(const ServerId& server, Incarnation life) {
  changes_++;
  auto& peer = known_[server];
  if (life < peer.life) return nullptr;
  if (life == peer.life) return &peer;
  Peer anew;
  anew.life = life;
  if (peer.life.value != 0) anew.told_from = stamp_ + 1;  // to one that was not known all was said
  anew.promised_before = std::max(peer.promised_before, peer.promised_until);
  anew.clock_offset_ms = peer.clock_offset_ms;
  peer = std::move(anew);
  news_ = true;
  return &peer;
}

void Beacons::set_peers(std::set<ServerId> peers) {
  peers.erase(self_);
  peers_ = std::move(peers);
}

std::vector<Send> Beacons::turn(const Now& now) {
  begin(now);
  for (auto& [server, peer] : known_)
    if (peer.heard_at != Instant{} && now.at - peer.heard_at > kSilent && !std::exchange(peer.silence_told, true))
      news_ = true;
  std::vector<Send> out;
  // A turn that comes a little early counts, so that two make not three.
  if (now.at + kBeaconEvery / 10 < next_beacon_) return out;
  next_beacon_ = std::max(next_beacon_ + kBeaconEvery, now.at + kBeaconEvery / 2);
  ++stamp_;
  sent_.push_back({stamp_, now.at});
  while (sent_.front().at + 2 * kPromise < now.at) sent_.pop_front();
  for (const auto& to : peers_) {
    out.push_back({to, {self_, life_, stamp_, now.wall, {}}});
    const Peer* peer = find(to);
    for (const auto& [partition, telling] : telling_) {
      const auto heard = telling.heard.find(to);
      if (heard == telling.heard.end() || peer == nullptr || heard->second != peer->life)
        out.back().beacon.released.push_back(telling.released);
    }
  }
  return out;
}

std::optional<model::QuorumBeaconReply> Beacons::heard(const Now& now, const model::QuorumBeacon& beacon) {
  begin(now);
  Peer* peer = meet(beacon.from, beacon.incarnation);
  if (peer == nullptr) return std::nullopt;
  if (beacon.stamp > peer->heard_stamp) {
    peer->heard_stamp = beacon.stamp;
    peer->heard_at = now.at;
    peer->silence_told = false;
  }
  for (const auto& r : beacon.released) note_release(now.at, beacon.from, r);
  // The promise: from now on, whenever the beacon was sent.
  peer->promised_until = std::max(peer->promised_until, now.at + kPromise);
  model::QuorumBeaconReply reply{self_, life_, beacon.incarnation, beacon.stamp, now.wall, {}};
  if (MUTANT("answer_names_nothing")) return reply;
  for (const auto& partition : peer->outgrown) reply.refused.push_back({partition, floor_.at(partition)});
  return reply;
}

void Beacons::answered(const Now& now, const model::QuorumBeaconReply& reply) {
  begin(now);
  Peer* peer = reply.asker == life_ ? meet(reply.from, reply.incarnation) : nullptr;
  if (peer == nullptr || reply.stamp <= peer->answered_stamp) return;
  peer->answered_stamp = reply.stamp;
  peer->answered_at = now.at;
  peer->clock_offset_ms = static_cast<int64_t>(reply.wall_ms) - static_cast<int64_t>(now.wall);
  std::unordered_map<PartitionId, Refusal> refused;
  for (const auto& r : reply.refused) {
    const auto before = peer->refused.find(r.partition);
    const auto until = before == peer->refused.end() ? peer->granted_until : before->second.until;
    refused[r.partition] = {r.epoch, until};
    if (before == peer->refused.end() || before->second.promised != r.epoch) news_ = true;
  }
  peer->refused = std::move(refused);
  const auto sent = std::find_if(sent_.begin(), sent_.end(), [&](const Sent& s) { return s.stamp == reply.stamp; });
  if (sent != sent_.end()) {
    const auto from = MUTANT("lease_from_answer") ? now.at : sent->at;
    peer->granted_until = std::max(peer->granted_until, from + kPromise - drift(kPromise));
  }
  // A beacon that was sent when an earlier life of it was known says nothing that that one had heard.
  for (auto& [partition, telling] : telling_)
    if (reply.stamp >= std::max(telling.since, peer->told_from)) telling.heard[reply.from] = reply.incarnation;
}

void Beacons::accepted_by(const ServerId& server, Incarnation life, const PartitionId& partition, Epoch epoch) {
  if (Peer* peer = meet(server, life)) raise(peer->accepted_us, partition, epoch);
}

void Beacons::released(const Now& now, const ServerId& by, Incarnation life, const model::Released& released) {
  begin(now);
  if (meet(by, life) != nullptr) note_release(now.at, by, released);
}

// What a leader released it serves no more, so nothing that was promised to it there holds anybody back.
void Beacons::note_release(Instant now, const ServerId& by, const model::Released& released) {
  changes_++;
  auto& last = releases_[released.partition][by];
  if (released.epoch <= last.released.epoch) return;
  last = {released, now};
  news_ = true;
  const auto peer = known_.find(by);
  if (peer == known_.end()) return;
  const auto accepted = peer->second.accepted.find(released.partition);
  if (accepted == peer->second.accepted.end() || accepted->second > released.epoch) return;
  peer->second.accepted.erase(accepted);
  peer->second.outgrown.erase(released.partition);
}

bool Beacons::accept(const ServerId& leader, Incarnation life, const PartitionId& partition, Epoch epoch) {
  Peer* peer = meet(leader, life);
  if (peer == nullptr) return false;
  if (raise(peer->accepted, partition, epoch)) review(*peer, partition);
  return true;
}

void Beacons::set_floor(const PartitionId& partition, Epoch epoch) {
  if (!raise(floor_, partition, epoch)) return;
  for (auto& [server, peer] : known_) review(peer, partition);
}

// Answers name what is refused; of thousands of partitions few are.
void Beacons::review(Peer& peer, const PartitionId& partition) const {
  const auto accepted = peer.accepted.find(partition);
  const auto floor = floor_.find(partition);
  if (accepted != peer.accepted.end() && floor != floor_.end() && floor->second > accepted->second)
    peer.outgrown.insert(partition);
  else
    peer.outgrown.erase(partition);
}

void Beacons::governed(const PartitionId& partition, Epoch epoch) {
  const auto telling = telling_.find(partition);
  if (telling != telling_.end() && telling->second.released.epoch < epoch) telling_.erase(telling);
}

void Beacons::release(Instant now, const model::Released& released) {
  const auto* last = released_by(self_, released.partition);
  if (last != nullptr && last->released.epoch >= released.epoch) return;
  note_release(now, self_, released);
  telling_[released.partition] = {released, stamp_ + 1, {}};
}

// What this server has promised others it goes on promising: one who led before that, and has not heard of anything
// since, must not take its answers for grants (S7, S61).
void Beacons::forget(const PartitionId& partition) {
  changes_++;
  telling_.erase(partition);
  if (MUTANT("forgets_promises_of_a_copy_that_is_gone")) {
    floor_.erase(partition);
    for (auto& [server, peer] : known_) peer.outgrown.erase(partition);
  }
  releases_.erase(partition);
  for (auto& [server, peer] : known_) {
    peer.accepted_us.erase(partition);
    peer.refused.erase(partition);
  }
}

// A promise holds for the partitions in which this server has accepted the other, in this life of it: nowhere else does
// it count for a lease. What was promised to an earlier life holds anyway.
Instant Beacons::promised_until(const ServerId& leader, const PartitionId& partition) const {
  const Peer* peer = find(leader);
  if (peer == nullptr) return {};
  return peer->accepted.contains(partition) ? std::max(peer->promised_until, peer->promised_before)
                                            : peer->promised_before;
}

Instant Beacons::granted(const model::Voter& voter, const PartitionId& partition, Epoch epoch) const {
  if (voter.server == self_) return kForever;
  const Peer* peer = find(voter.server);
  if (peer == nullptr) return {};
  const auto accepted = peer->accepted_us.find(partition);
  if ((accepted == peer->accepted_us.end() || accepted->second != epoch) && !MUTANT("grant_without_acceptance"))
    return {};
  const auto refusal = peer->refused.find(partition);
  return refusal == peer->refused.end() ? peer->granted_until : refusal->second.until;
}

Instant Beacons::lease_until(const PartitionId& partition, Epoch epoch,
                             std::initializer_list<const model::Voters*> sets) const {
  const auto* released = released_by(self_, partition);
  if (released != nullptr && released->released.epoch >= epoch) return {};
  Instant until = sets.size() == 0 ? Instant{} : kForever;
  for (const auto* voters : sets)
    until = std::min(
        until, model::majority_until(*voters, [&](const model::Voter& v) { return granted(v, partition, epoch); }));
  return until;
}

std::optional<Heard> Beacons::heard(const ServerId& server) const {
  const Peer* peer = find(server);
  if (peer == nullptr) return std::nullopt;
  return Heard{peer->heard_at, peer->life};
}

Instant Beacons::contact_at(Instant now, const model::Voters& voters) const {
  return model::majority_until(voters, [&](const model::Voter& v) {
    if (v.server == self_) return now;
    const Peer* peer = find(v.server);
    return peer == nullptr ? Instant{} : peer->answered_at;
  });
}

bool Beacons::both_ways(Instant now, const model::Voters& voters) const {
  return model::majority_of(voters, [&](const model::Voter& v) {
    if (v.server == self_) return true;
    const Peer* peer = find(v.server);
    return peer != nullptr && peer->heard_at + kSilent >= now && peer->answered_at + kSilent >= now;
  });
}

const ReleaseHeard* Beacons::released_by(const ServerId& server, const PartitionId& partition) const {
  const auto of = releases_.find(partition);
  if (of == releases_.end()) return nullptr;
  const auto it = of->second.find(server);
  return it == of->second.end() ? nullptr : &it->second;
}

const ReleaseHeard* Beacons::hand_over(const PartitionId& partition, Epoch epoch) const {
  const auto of = releases_.find(partition);
  if (of == releases_.end()) return nullptr;
  for (const auto& [server, heard] : of->second)
    if (heard.released.epoch == epoch && !heard.released.successor.none()) return &heard;
  return nullptr;
}

Epoch Beacons::refused_at(const PartitionId& partition) const {
  Epoch highest;
  for (const auto& [server, peer] : known_) {
    const auto it = peer.refused.find(partition);
    if (it != peer.refused.end()) highest = std::max(highest, it->second.promised);
  }
  return highest;
}

std::optional<int64_t> Beacons::clock_offset_ms(const ServerId& server) const {
  const Peer* peer = find(server);
  return peer == nullptr ? std::nullopt : peer->clock_offset_ms;
}

bool Beacons::take_news() { return std::exchange(news_, false); }

}  // namespace cantle::proto

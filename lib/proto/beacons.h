// Beacons: what the servers that share quorum partitions tell each other ten times a second, and what follows from it:
// who is heard, what this server has promised, and until when it holds a lease as a leader (design/replication.md,
// "Quorum tables: reads"). One a server, for all its partitions.
//
// To answer a beacon is to promise not to seal against the asker, as a leader, for kPromise from then. The asker counts
// that from the *sending* of the beacon that was answered, less drift. What a peer grants counts for a partition at an
// epoch only if the peer, in this life of it, accepted this server as the partition's leader at that epoch (it answered
// the pipe's open), and does not name the partition in its answer. It names the partitions that it accepted the asker
// in and where it has promised, or knows, a higher epoch since: it may have promised on a government that the asker
// never saw.
//
// Use
//   for (auto& b : beacons.turn(now)) send(b.to, b.beacon);       // every kBeaconEvery or more often
//   if (auto reply = beacons.heard(now, beacon)) answer(*reply);
//   beacons.answered(now, reply);
//   beacons.accepted_by(peer, its_life, partition, epoch);        // a pipe's open was answered
//   ... read ... ; if (beacons.lease_until(partition, epoch, {&voters}) > clock.now()) answer the client
// The elections of this server (lib/proto/election.h) do accept, set_floor, governed and release.
//
// Invariants
//   * While lease_until() of a leader lies in the future, no majority of its voters has sealed a higher epoch and is
//     through with what it promised: the voters that made the lease and those that elect share one (S7).
//   * A server that has just started cannot know what it promised: may_seal_from() is kPromise and drift away. It must
//     not hear() beacons before recovery is done.
//   * A long gap between two turns, or a wall clock that ran ahead of the steady one meanwhile, ends every lease, and
//     answers to what was sent before it grant nothing (S8).
//   * Answers older than one already taken, and those to another life, grant nothing. What an older life says is not
//     heard.
//
// Units: Instant CLOCK_BOOTTIME. Threads: one.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "lib/base/time.h"
#include "lib/model/quorum.h"

namespace cantle::proto {

namespace beacon {

constexpr base::Duration kBeaconEvery = std::chrono::milliseconds(100);
constexpr base::Duration kPromise = std::chrono::milliseconds(500);
constexpr base::Duration kSilent = std::chrono::milliseconds(600);   // nothing heard: suspicion
constexpr base::Duration kGapMost = std::chrono::milliseconds(300);  // between two turns
// Two clocks that run apart by 0.1 % each way, and what a timer may be late.
constexpr base::Duration drift(base::Duration d) { return d / 1000 + std::chrono::milliseconds(1); }

struct Now {
  base::Instant at;
  base::WallMs wall = 0;
};
struct Send {
  model::ServerId to;
  model::QuorumBeacon beacon;
  bool operator==(const Send&) const = default;
};
struct Heard {
  base::Instant at;  // of its last beacon; zero: none in this life
  model::Incarnation incarnation;
};
struct ReleaseHeard {
  model::Released released;
  base::Instant at;
};

}  // namespace beacon

class Beacons {
 public:
  // `recovered`: what was promised in an earlier life was promised before.
  Beacons(model::ServerId self, model::Incarnation incarnation, base::Instant recovered);

  // --- what happens ---
  void set_peers(std::set<model::ServerId> peers);  // whom beacons are sent to
  std::vector<beacon::Send> turn(const beacon::Now& now);
  // Nothing: from an older life, no answer.
  std::optional<model::QuorumBeaconReply> heard(const beacon::Now& now, const model::QuorumBeacon& beacon);
  void answered(const beacon::Now& now, const model::QuorumBeaconReply& reply);
  // `peer` accepted this server as the leader at `epoch`, in that life of it.
  void accepted_by(const model::ServerId& peer, model::Incarnation life, const model::PartitionId& partition,
                   model::Epoch epoch);
  // quorum.release arrived.
  void released(const beacon::Now& now, const model::ServerId& by, model::Incarnation life,
                const model::Released& released);

  // --- from the elections of this server ---
  // This server obeys `leader`, in that life of it, at `epoch`. False: an older life.
  bool accept(const model::ServerId& leader, model::Incarnation life, const model::PartitionId& partition,
              model::Epoch epoch);
  // Messages of the partition below `epoch` are refused from now on: it was promised, or a government of it was seen.
  void set_floor(const model::PartitionId& partition, model::Epoch epoch);
  // This server does not lead the partition at this epoch or below, never again. Told in beacons until a later
  // government is there: each peer answers it once a life, as a new one has not heard of it.
  void release(base::Instant now, const model::Released& released);
  void governed(const model::PartitionId& partition, model::Epoch epoch);  // there is a government of that epoch
  void forget(const model::PartitionId& partition);  // its copy here is gone; what was promised with it stands

  // --- questions ---
  // What this server promised to `leader` of this partition, to earlier lives too.
  base::Instant promised_until(const model::ServerId& leader, const model::PartitionId& partition) const;
  base::Instant may_seal_from() const { return may_seal_from_; }
  // Until when a majority of each of the voter sets has granted; self is one of them.
  base::Instant lease_until(const model::PartitionId& partition, model::Epoch epoch,
                            std::initializer_list<const model::Voters*> sets) const;
  // Another number whenever what lease_until() says may have changed: each read asks it, and it changes a few dozen
  // times a second.
  uint64_t changes() const { return changes_; }
  std::optional<beacon::Heard> heard(const model::ServerId& server) const;  // nothing: no life of it is known
  // When a majority last answered; `now` for self.
  base::Instant contact_at(base::Instant now, const model::Voters& voters) const;
  // A majority was heard and answered within kSilent.
  bool both_ways(base::Instant now, const model::Voters& voters) const;
  // The last release of the partition that `server` told, self too.
  const beacon::ReleaseHeard* released_by(const model::ServerId& server, const model::PartitionId& partition) const;
  // Of a hand-over at this epoch, by whomever: nothing was said of one.
  const beacon::ReleaseHeard* hand_over(const model::PartitionId& partition, model::Epoch epoch) const;
  // The highest epoch for which a peer's last answer refused the partition; 0: none does.
  model::Epoch refused_at(const model::PartitionId& partition) const;
  base::Instant gap_at() const { return gap_at_; }  // the last long gap ended then
  std::optional<int64_t> clock_offset_ms(const model::ServerId& peer) const;
  // True once after something that an election acts upon at once: a new life, a release, a refusal.
  bool take_news();

 private:
  struct Refusal {
    model::Epoch promised;
    base::Instant until;  // what was granted before
  };
  struct Peer {
    model::Incarnation life;
    uint64_t told_from = 0;  // the first stamp whose beacon was sent to this life
    // what it grants this server
    uint64_t answered_stamp = 0;
    base::Instant granted_until, answered_at;
    std::unordered_map<model::PartitionId, model::Epoch> accepted_us;
    std::unordered_map<model::PartitionId, Refusal> refused;
    std::optional<int64_t> clock_offset_ms;
    // what this server grants it
    uint64_t heard_stamp = 0;
    base::Instant heard_at, promised_until, promised_before;  // before: to earlier lives
    bool silence_told = false;                                // that it has not been heard for kSilent is news once
    std::unordered_map<model::PartitionId, model::Epoch> accepted;
    std::set<model::PartitionId> outgrown;  // of those, with a floor above it
  };
  struct Sent {
    uint64_t stamp = 0;
    base::Instant at;
  };
  struct Telling {
    model::Released released;
    uint64_t since = 0;                                   // the first stamp that says it
    std::map<model::ServerId, model::Incarnation> heard;  // who answered that, in which life
  };

  void begin(const beacon::Now& now);
  Peer* meet(const model::ServerId& server, model::Incarnation life);
  const Peer* find(const model::ServerId& server) const;
  void review(Peer& peer, const model::PartitionId& partition) const;
  void note_release(base::Instant now, const model::ServerId& by, const model::Released& released);
  base::Instant granted(const model::Voter& voter, const model::PartitionId& partition, model::Epoch epoch) const;

  model::ServerId self_;
  model::Incarnation life_;
  base::Instant may_seal_from_, last_turn_, next_beacon_, gap_at_;
  base::WallMs last_wall_ = 0;
  uint64_t stamp_ = 0, changes_ = 0;
  std::deque<Sent> sent_;
  std::set<model::ServerId> peers_;
  std::map<model::ServerId, Peer> known_;
  std::unordered_map<model::PartitionId, model::Epoch> floor_;
  std::unordered_map<model::PartitionId, std::map<model::ServerId, beacon::ReleaseHeard>> releases_;
  std::map<model::PartitionId, Telling> telling_;
  bool news_ = false;
};

}  // namespace cantle::proto

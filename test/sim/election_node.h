// ElectionNode: one life of a server of ElectionWorld: what performs the effects of its elections, and the toy log.
#pragma once

#include <deque>

#include "lib/coord/governments.h"
#include "test/sim/election_world.h"

namespace cantle::sim {

// A leader opens its way to a voter, and sends its whole log.
struct ToyOpen {
  size_t partition = 0;
  model::Epoch epoch;
  model::AssignmentId leader;
  model::ServerId server;
  model::Incarnation life;
};
struct ToyAppend {
  ToyOpen from;
  std::shared_ptr<const ToyLog> log;
};
struct ToyReply {
  bool taken = false;
  model::Epoch promised;  // not taken: what is refused with
  model::Incarnation life;
  size_t length = 0;  // durable
};

class ElectionNode {
 public:
  ElectionNode(ElectionWorld& world, ElectionHost& host, Network& network, CoordService& coord);
  ~ElectionNode();

  proto::Election& election(size_t partition) { return *replicas_[partition]->election; }
  proto::Beacons& beacons() { return beacons_; }
  const ToyLog& log(size_t partition) const { return replicas_[partition]->log; }
  // Its epoch start is committed.
  bool serves(size_t partition) const { return replicas_[partition]->commit != 0; }
  // The voter has, durable, what the leader of this node has.
  bool level(size_t partition, const model::AssignmentId& voter) const;
  void resign(size_t partition, model::AssignmentId successor);

 private:
  struct Follower {
    model::Incarnation opened;  // in that life of it; 0: not
    size_t acked = 0;
    bool sending = false, opening = false;
  };
  struct Replica {
    size_t partition = 0;
    model::AssignmentId assignment;
    std::unique_ptr<proto::Election> election;
    ToyLog log;
    std::shared_ptr<const ToyLog> shared;  // of `log`, while it is the same
    size_t durable = 0;                    // leading: of the log as it is now
    model::Epoch pipe;                     // following: opened in this life
    model::Epoch leads;                    // 0: does not
    size_t commit = 0;
    std::map<model::AssignmentId, Follower> followers;
    std::deque<Instant> disk;  // operations that are not durable yet
  };

  proto::beacon::Now now() { return {host_.process.now(), host_.process.wall_ms()}; }
  void turn();
  void think();
  void step(Replica& r, const proto::election::Input& input);
  void serve(const std::any& request, Network::Reply reply);
  ToyReply open(const ToyOpen& request);
  void append(const ToyAppend& request, Network::Reply reply);

  void perform(Replica& r, const proto::election::ReadGovernment& e);
  void perform(Replica& r, const proto::election::SwapGovernment& e);
  void perform(Replica& r, const proto::election::Seal& e);
  void perform(Replica& r, const proto::election::PutVote& e);
  void perform(Replica& r, const proto::election::RemoveVote& e);
  void perform(Replica& r, const proto::election::ReadVotes& e);
  void perform(Replica& r, const proto::election::AskSuspect& e);
  void perform(Replica& r, const proto::election::SendRelease& e);
  void perform(Replica& r, const proto::election::Lead& e);
  void perform(Replica& r, const proto::election::Stop& e);
  void perform(Replica& r, const proto::election::Follow& e);
  void perform(Replica&, const proto::election::Electorate&) {}  // nobody asks for other voters here
  void perform(Replica&, const proto::election::Borrow&) {}      // the simulations with a real log do that
  void perform(Replica& r, const proto::election::Say& e);

  void write(Replica& r, std::function<void(ElectionHost::Copy&)> change, Fn then);
  void append_own(Replica& r);
  void push(Replica& r);
  void commit(Replica& r);
  model::LogToken durable_token(const Replica& r) const;

  ElectionWorld& world_;
  ElectionHost& host_;
  Network& network_;
  proto::Beacons beacons_;
  std::unique_ptr<coord::Session> session_;
  std::unique_ptr<coord::Governments> governments_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  Instant disk_free_, next_write_;
};

inline std::string election_address(const model::ServerId& server) { return server.name + "/partd"; }

}  // namespace cantle::sim

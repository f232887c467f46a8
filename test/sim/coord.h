// CoordService and CoordSession: the coordination service of the simulated world.
//
// One leader with the tree, and followers with copies of it that lag; a session talks to one follower,
// as with ZooKeeper: its reads come from that copy, its changes go to the leader, and after a sync (or
// its own change) the copy has caught up that far. Ephemerals live as long as their session; a session
// that the service has not heard of for its timeout expires.
//
// Use
//   sim::CoordService service(scheduler);
//   auto session = service.open(process);       // a coord::Session for that process's life
//   service.faults().lose_reply = 0.05; service.outage(3s); service.expire("m1");
//
// Invariants
//   * Changes are atomic and totally ordered; zxids grow. A lost reply says nothing about the change.
//   * A session never reads older than what it has read, except from a service restored from the past.
//   * A callback runs from the scheduler, never inside the call, once, and only in the process's life.
//
// Faults: see Faults; outage() (nothing is answered), cut() (one host), expire(), lag(), restore() to a
// remembered state (S36).
// Threads: one. Ownership: the service outlives its sessions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "test/sim/process.h"

namespace cantle::sim {

// The tree: a value that can be copied cheaply, because znodes are shared and never changed in place.
struct Znode {
  std::string value;
  coord::Stat stat;
  uint64_t next_sequence = 0;  // of sequential children
};
using ZnodePtr = std::shared_ptr<const Znode>;
using Tree = std::map<std::string, ZnodePtr, std::less<>>;

// What one transaction did: paths and what they are now (null: removed).
struct TreeChange {
  std::string path;
  ZnodePtr now;
  bool made = false;     // created here
  bool touched = false;  // only its children changed
};
struct TreeTxn {
  int64_t zxid = 0;
  std::vector<TreeChange> changes;
};
std::vector<std::string> children_of(const Tree& tree, const std::string& path);
void apply_txn(Tree& tree, const TreeTxn& txn);
// All or nothing; `ephemeral_owner` for ephemeral creates.
base::Result<std::vector<coord::OpResult>> perform(Tree& tree, const std::vector<coord::Op>& ops,
                                                   uint64_t ephemeral_owner, int64_t zxid, TreeTxn* txn);

class CoordSession;

class CoordService {
 public:
  struct Faults {
    Duration delay_min = 100us, delay_max = 1ms;
    double lose_request = 0;  // of a change: connection lost before it arrived
    double lose_reply = 0;    // of a change: applied, and connection lost
    double late_change = 0;   // of a change: connection lost, applied up to late_max afterwards
    Duration late_max = 2s;
    double lose_read = 0;                   // a read ends `unavailable`, connection lost
    double lose_watch = 0;                  // a watch does not fire
    double delay_watch = 0;                 // … or up to late_max late
    Duration lag_min = 0us, lag_max = 1ms;  // of a follower behind the leader
    double lag_spike = 0;                   // a change reaches a follower up to late_max late
    Duration session_timeout = 2s;
    bool close_at_death = false;  // as the embedded backend: a dead process's session ends at once
  };

  explicit CoordService(Scheduler& scheduler);
  CoordService(const CoordService&) = delete;
  ~CoordService();

  Faults& faults() { return faults_; }
  // Observes the tree as committed, for tests and invariants.
  const Tree& tree() const { return leader_; }
  const std::string* value(const std::string& path) const;
  int64_t zxid() const { return zxid_; }  // of the newest change of the tree
  // Writes without a session, for the set-up of a world: parents are made too.
  void put(const std::string& path, std::string value);
  // The same as any other change: followers see it when they see it.
  void set_now(const std::string& path, std::string value);
  void change_now(const std::vector<coord::Op>& ops);  // together
  // Called after each committed transaction.
  void on_commit(std::function<void(const TreeTxn&)> fn) { on_commit_ = std::move(fn); }

  std::unique_ptr<coord::Session> open(Process& process);

  void outage(Duration d);
  void cut(const std::string& host);  // until heal(): this host does not reach the service
  void heal();
  void expire(const std::string& host);           // all sessions of that host
  bool reachable(const std::string& host) const;  // neither outage nor cut
  int remember();                                 // the state now, for
  void restore(int remembered);                   // the service comes back with that older state (S36)

 private:
  friend class CoordSession;
  struct Follower {
    Tree tree;
    int64_t zxid = 0;         // applied up to here
    std::deque<TreeTxn> log;  // committed, not yet applied here
    Instant last_ready{};
  };
  struct SessionState {
    std::string host;
    bool live = true;
    CoordSession* client = nullptr;  // null: its process is gone
    Instant heard{};
  };

  uint64_t make_session(CoordSession* client);
  bool live(uint64_t id) const;
  base::Result<std::vector<coord::OpResult>> change(const std::vector<coord::Op>& ops, uint64_t session);
  void commit(TreeTxn txn);
  void apply_next(size_t follower);
  void catch_up(size_t follower, int64_t zxid);
  void end_session(uint64_t id);
  void check_session(uint64_t id);
  void apply_at(size_t follower, const TreeTxn& txn);

  static constexpr size_t kFollowers = 2;
  Scheduler& scheduler_;
  Faults faults_;
  Tree leader_;
  int64_t zxid_ = 1;
  Follower followers_[kFollowers];
  std::map<uint64_t, SessionState> sessions_;
  std::set<std::string> cut_;
  std::vector<Tree> remembered_;
  Instant outage_until_{};
  uint64_t next_session_ = 1;
  std::function<void(const TreeTxn&)> on_commit_;
};

class CoordSession final : public coord::Session {
 public:
  CoordSession(CoordService& service, Process& process);
  ~CoordSession() override;

  void get(std::string path, coord::Watch watch, coord::Done<coord::Node> done) override;
  void exists(std::string path, coord::Watch watch, coord::Done<coord::Stat> done) override;
  void children(std::string path, coord::Watch watch, coord::Done<coord::Children> done) override;
  void create(std::string path, std::string value, coord::CreateMode mode, coord::Done<std::string> done) override;
  void set(std::string path, std::string value, int32_t version, coord::Done<coord::Stat> done) override;
  void remove(std::string path, int32_t version, coord::Done<base::Nothing> done) override;
  void multi(std::vector<coord::Op> ops, coord::Done<std::vector<coord::OpResult>> done) override;
  void sync(std::string path, coord::Done<base::Nothing> done) override;
  void on_event(std::function<void(coord::Event)> handler) override { handler_ = std::move(handler); }
  bool connected() const override { return connected_; }
  uint64_t session_id() const override { return id_; }
  Instant last_confirmed() const override { return last_confirmed_; }
  Duration timeout() const override { return service_.faults_.session_timeout; }

 private:
  friend class CoordService;
  enum class WatchKind : uint8_t { data, children };
  using ChangeDone = std::function<void(base::Result<std::vector<coord::OpResult>>)>;

  struct WatchEntry {
    coord::Watch fn;
    ZnodePtr seen;  // what the read that set it saw
  };
  using WatchKey = std::pair<WatchKind, std::string>;
  using Failed = std::function<void(base::Error)>;

  // A request's way there and back. `at_service` runs when it arrives and returns what to do at the
  // client when the answer is there; `failed` runs at the client when the connection breaks first.
  void request(std::function<Fn()> at_service, Failed failed);
  void reply(uint64_t number, uint64_t connection, Instant sent, Fn fn);
  template <class T>
  void read(std::string path, coord::Watch watch, WatchKind kind, coord::Done<T> done,
            std::function<T(const Tree&, const std::string&, const Znode&)> value);
  void change(std::vector<coord::Op> ops, ChangeDone done);
  void lose_connection();
  void try_connect();
  void connect();
  void ping();
  void emit(coord::Event event);
  void applied(const TreeTxn& txn);  // by this session's follower
  void fire(const WatchKey& key);
  void fire_changed();  // after a reconnect: whatever changed meanwhile
  void fire_all();
  static bool changed(WatchKind kind, const ZnodePtr& then, const ZnodePtr& now);
  Duration delay();

  CoordService& service_;
  Process& process_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // false once destroyed: late events find no owner
  uint64_t id_ = 0;
  uint64_t connection_ = 0;  // +1 at each connection and each loss
  bool connected_ = false;
  size_t follower_ = 0;
  int64_t seen_ = 0;  // zxid of the newest state it has read
  Instant last_confirmed_{}, last_arrival_{}, last_reply_{};
  std::map<uint64_t, Failed> waiting_;  // requests under way
  uint64_t next_request_ = 1;
  std::map<WatchKey, std::vector<WatchEntry>> watches_;
  std::function<void(coord::Event)> handler_;
};

}  // namespace cantle::sim

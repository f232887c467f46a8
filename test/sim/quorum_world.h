// QuorumWorld: quorum tables as a whole under faults, from one seed: partition servers with the real machines and the
// real store, a coordination service, clients.
//
// Clients put, delete, swap, increment, append and write batches, each write with its series; whose answer was lost, or
// says that it may be tried again, sends the same again, to whatever server. Copies of requests come out later, too:
// at other servers, long after, also when the client has its answer and has moved on (S25).
//
// Keys: k… every value is written once; v few values, so that one comes back (no swap by version there); n… counters;
// s… what is appended to.
//
// Each partition is a table of its own, whose METADATA is the world's: servers hear of a new map when it comes to them.
// It may be split, and its children, at any time, by the real operations and the real driver; neighbours may be merged;
// and that aborted.
// Replicas are replaced by the real operations and the real driver, of which there is always one, and now and then
// another. Servers without a replica stand by for that.
// A server may lose its disk for good: it is replaced everywhere, as an operator does, and then comes back with
// nothing. What a majority of a partition's voters has may be recovered onto the best of them alone, as an operator
// does who has lost the others; these come back nevertheless. What ended is forgotten once every server has said that
// it may be.
//
// A run: set up; for a while clients work and faults strike; then the faults stop, and within a bound every partition
// has a leader that takes writes; then all replicas hold the same.
//
// Checked all the time
//   * no two servers hold a valid lease for a partition at one instant of the world (S7)
//   * an assignment that votes is one that METADATA names (S61)
//   * what two replicas call committed is one history (S1, S2, S14)
//   * a request has one outcome, whoever is told, and however often (S23)
//   * nothing is acknowledged to a leader of an epoch below what the replica has sealed, in this life or another (S11)
//   * no snapshot takes the place of a log that went further (S5)
//   * a copy is dropped for another, or is one that METADATA names
//   * nothing behind its cut is acknowledged by a partition that was split or merged (S43)
// and at the end
//   * no server has a copy that METADATA does not name, and every partition has all of its voters
//   * each key's history is linearizable; what was acknowledged is there (S16, S18)
//   * no session went back, whatever replica answered it (quorum_sessions.h)
//   * logs and contents of all replicas are the same; children go on from what their parent had at the cut, and what
//     two were merged into from what both had
//   * the log is what the requests ask for, one after the other, each once at most (quorum_ledger.h)
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/coord/layout.h"
#include "lib/model/metadata.h"
#include "lib/model/quorum.h"
#include "lib/proto/drivers.h"
#include "lib/proto/quorum_leader.h"
#include "lib/store/engine.h"
#include "lib/store/mem_index.h"
#include "test/sim/coord.h"
#include "test/sim/disk.h"
#include "test/sim/executor.h"
#include "test/sim/network.h"
#include "test/sim/quorum_ledger.h"
#include "test/sim/quorum_sessions.h"
#include "test/sim/seeds.h"
#include "test/support/linear.h"

namespace cantle::sim {

struct QuorumChaos {
  bool kill = false, power = false, crash_at_effect = false, pause = false, cut = false, lossy = false;
  bool coord_faults = false, coord_outage = false, fail_sync = false, slow_disk = false, resign = false;
  bool small_store = false;   // of little room: its overlay is full now and then
  bool refuse_block = false;  // the store takes a block of the leader's not, now and then, as when it is full
  bool copies = true;         // of requests
  bool moves = false;         // replicas are replaced, and that is cancelled
  bool splits = false;        // partitions are split, and that is aborted
  bool merges = false;        // neighbours are merged, and that is aborted
  bool recoveries = false;    // one voter goes on alone
  bool losses = false;        // of disks, and with them of voters, one at a time
  bool late_maps = false;     // servers hear of them up to 1.5 s late
  size_t spares = 0;          // servers that have no replica at first
  bool flip = false;          // bits in journals
  bool forgets = false;       // little of the log is kept: who was away needs a snapshot
  size_t servers = 3, partitions = 1, clients = 3, keys = 5;
  std::vector<std::string> points;  // at which each table is split from the beginning
  proto::quorum::Pipeline pipeline = proto::quorum::Pipeline::chain;
  Duration lasts = 6s;

  static QuorumChaos draw(base::Random& random);
  static QuorumChaos draw_splits(base::Random& random);
  static QuorumChaos draw_merges(base::Random& random);
  static QuorumChaos draw_splits_and_moves(base::Random& random);
  static QuorumChaos draw_everything(base::Random& random);
};

class QuorumNode;

// What survives a server's lives.
struct QuorumHost {
  QuorumHost(Scheduler& scheduler, const std::string& name);
  ~QuorumHost();

  model::ServerId id;
  std::shared_ptr<HostClock> clock;
  Medium medium;
  store::MemIndexFiles index;
  Process process;
  uint64_t starts = 0;
  bool hears_maps = true;
  std::map<model::AssignmentId, model::Epoch> promised;  // by its seals, durably, in whatever life
  uint32_t wipes = 0;                                    // how often its disk was lost
  size_t rebuilt = 0;                                    // copies whose place a snapshot took
  size_t borrowed = 0;                                   // answers of voters that have more and cannot lead
  size_t mended = 0;                                     // gaps of logs that were filled
  std::map<model::TableUuid, model::TxnSeq> seen;        // in its state file
  std::unique_ptr<QuorumNode> node;
};

// Of a QuorumWrite, and of a read.
struct QuorumWritten {
  model::WriteOutcome outcome;
  bool repeat = false;
  model::PartitionId by = {};
};
struct QuorumGet {
  struct Session {
    model::PartitionId of;
    model::Lsn seen;
  };
  size_t partition = 0;
  std::string key;
  std::optional<Session> session = {};
  bool any = false;  // neither: linearizable
};
struct QuorumValue {
  std::optional<std::string> value;
  model::Version version{};
  model::PartitionId by = {};
  model::Lsn lsn = {};  // as of there, or later
};

class QuorumWorld {
 public:
  QuorumWorld(uint64_t seed, const QuorumChaos& chaos);
  ~QuorumWorld();
  QuorumWorld(const QuorumWorld&) = delete;

  Verdict run();

  // For scenarios.
  void set_up();
  void start_clients();
  void stop_faults();
  void finish();
  Verdict verdict() { return {scheduler.trace_hash(), scheduler.events(), violation_}; }
  bool wait(const std::function<bool()>& done, Duration limit) {
    return scheduler.run_until(done, scheduler.now() + limit);
  }
  void start(QuorumHost& host);
  void kill(QuorumHost& host) { host.process.kill(); }
  void power_cut(QuorumHost& host);
  void wipe(QuorumHost& host);  // its disk is lost: it comes back with an empty one, under its name (S6)
  // One that serves under a valid lease. By number: of a table that has one partition.
  QuorumHost* leader(const model::PartitionId& partition);
  QuorumHost* leader(size_t partition) { return leader(partition_id(partition)); }
  void violation(const std::string& text);
  const std::string& violated() const { return violation_; }
  std::string describe() const;

  // From the nodes.
  static std::string table_name(size_t partition) { return "q" + std::to_string(partition); }
  static std::string distribution(size_t partition) {
    return coord::distribution(model::Keyspace::range, table_name(partition));
  }
  using MapPtr = std::shared_ptr<const model::Metadata>;
  const MapPtr& map(size_t partition) const { return maps_[partition]; }
  const model::Partition& partition(size_t at) const { return maps_[at]->partitions.front(); }
  const model::PartitionId& partition_id(size_t at) const { return partition(at).id; }
  model::Voters voters(size_t partition) const;  // as METADATA would have it
  std::optional<size_t> find(const model::TableUuid& table) const;
  bool holds(const QuorumHost& host, size_t at) const { return find_assignment(partition(at), host.id) != nullptr; }
  base::Status commit(size_t partition, const model::Operation& operation);
  model::AttemptId replace(size_t partition, const model::ServerId& from, const model::ServerId& to, bool dead) {
    return replace(partition, partition_id(partition), from, to, dead);
  }
  model::AttemptId replace(size_t partition, const model::PartitionId& which, const model::ServerId& from,
                           const model::ServerId& to, bool dead);
  // "zkctl quorum recover" onto the best of those that are up, which alone stays up. False: a majority of the voters is
  // not there, or not whole, so that something might be lost.
  bool recover(size_t partition, const model::PartitionId& which);
  void cancel(const model::AttemptId& attempt) { cancelled_.insert(attempt); }
  void split(size_t partition, const model::PartitionId& which, const std::string& point);
  void merge(size_t partition, const model::PartitionId& low, const model::PartitionId& high);
  void hold_drivers(bool on) { drivers_held_ = on; }
  void ask_abort(const QuorumHost& from, size_t partition, const model::Operation& abort);
  bool aborts_are_heard = true;
  void committed(const QuorumHost& host, size_t partition, const model::PartitionId& id, const model::LogPoint& point);
  // A write in that partition's log: not behind the cut by which it ended.
  void acknowledged(const QuorumHost& host, size_t partition, const model::PartitionId& id, model::Lsn lsn);
  bool at_rest(size_t partition);  // nothing of it is reshaped, and each of its partitions is led
  // It sends a swap of the government; `on_swap` hears of it before it is sent.
  std::function<void(const QuorumHost& host, const model::Government& to)> on_swap;
  void swapping(const QuorumHost& host, size_t partition, const model::Region& region, const model::Government& to);
  void observed(const QuorumHost& host, const std::string& table, model::TxnSeq txnseq);
  bool refuses_block() { return striking_ && chaos_.refuse_block && random_.chance(0.03); }
  const QuorumChaos& chaos() const { return chaos_; }

  Scheduler scheduler;
  Network network;
  CoordService coord;
  SimExecutor::Times times;
  store::EngineConfig engine;
  coord::Layout layout{"c"};
  model::ClusterUuid cluster;
  QuorumLedger ledger;
  std::vector<std::unique_ptr<QuorumHost>> hosts;

 private:
  // A write under way: sent until there is an answer to it.
  struct Writing {
    QuorumWrite write;
    Instant begun{}, sent{};
    bool maybe = false;           // one that was sent before, or a copy, may yet take effect
    std::vector<size_t> history;  // its places in operations_, one a key
  };
  struct Client {
    Client(Scheduler& s, const std::string& name) : process(s, name, "client") {}
    Process process;
    std::string at;  // the server that it asks
    uint64_t number = 0, values = 0, series = 0;
    Writing writing;
    std::map<std::string, QuorumValue> seen;
    std::map<model::PartitionId, model::Lsn> tokens;
  };
  void plan(Client& client);
  void act(Client& client);
  void read(Client& client, size_t partition);
  void read_session(Client& client, size_t partition, const std::string& key);
  std::string draw_key();
  static void saw(Client& client, const model::PartitionId& by, model::Lsn lsn) {
    client.tokens[by] = std::max(client.tokens[by], lsn);
  }
  model::Lsn token(const Client& client, size_t partition, const model::PartitionId& of) const;
  void got(Client& client, size_t operation, const Network::Answer& answer);
  QuorumWrite draw_write(Client& client, size_t partition);
  void draw_swap(Client& client, QuorumWrite& write);
  void note_begin(Client& client);
  void send(Client& client);
  void send_copies(Client& client);
  void ended(Client& client, const Network::Answer& answer);
  void done(Client& client, const QuorumWritten& written);
  void refused(Client& client);
  void given_up(Client& client);
  std::string fresh_value(Client& client);
  std::string any_server() { return hosts[random_.below(hosts.size())]->id.name; }
  void check_history();
  void check();
  void check_electorate(size_t partition);
  static bool leased(QuorumHost& host, const model::PartitionId& partition);
  void tell(QuorumHost& host, size_t partition);
  QuorumHost* find_host(const std::string& name);
  void plan_move();
  void move();
  void lose();
  void replace_lost();
  bool replace_lost_in(size_t partition);
  void plan_drive();
  void drive(size_t partition);
  using DriverPtr = std::shared_ptr<proto::DriverBase>;
  void drive_one(size_t partition, const model::AttemptId& attempt, const DriverPtr& driver);
  void drive_on(size_t partition, const model::AttemptId& attempt, const DriverPtr& driver,
                const proto::driver::Effects& effects);
  void look(size_t partition, const model::AttemptId& attempt, const DriverPtr& driver, uint64_t number);
  void plan_split();
  void split_somewhere();
  void plan_merge();
  void merge_somewhere();
  void note_merge(size_t partition, const model::Metadata& before, const model::Operation& operation);
  void sweep_ended(size_t partition);
  std::optional<std::string> left_behind() const;
  bool all_vote() const;
  std::optional<model::Government> government(size_t partition, const model::Region& region) const;
  base::Status check_governments(size_t partition, const model::Operation& operation) const;
  void make_governments(size_t partition, const model::Metadata& before);
  void plan_strike();
  void strike();
  void flip();
  void compare(size_t partition, const model::Partition& leaf, std::vector<QuorumLedger::Leaf>& leaves);
  Duration some(Duration most) {
    return Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(most.count()))));
  }

  QuorumChaos chaos_;
  base::SeededRandom random_;
  std::vector<MapPtr> maps_;
  std::vector<model::Metadata> past_;  // of each table: all that ever ended, swept or not
  std::map<std::pair<model::TableUuid, model::ServerId>, model::TxnSeq> observed_;
  std::set<model::PartitionId> recovered_;
  std::pair<int64_t, uint64_t> electorates_at_;                   // by a change of the tree, or of the maps
  std::map<model::PartitionId, std::string> electorate_checked_;  // the government, as it was looked at
  bool driven_ = false, drivers_held_ = false;
  Process operator_;  // whoever drives what METADATA says is under way
  std::unique_ptr<coord::Session> operator_session_;
  std::set<model::AttemptId> cancelled_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<linear::Operation> operations_;
  QuorumSessions sessions_;
  const QuorumHost* damaged_ = nullptr;  // the last that a bit flipped on
  QuorumHost* lost_ = nullptr;           // its disk is gone, and it is named somewhere still
  bool striking_ = false, asking_ = false;
  std::string violation_;
};

Verdict run_quorum_world(uint64_t seed);
Verdict run_quorum_splits(uint64_t seed);
Verdict run_quorum_merges(uint64_t seed);
Verdict run_quorum_splits_and_moves(uint64_t seed);
Verdict run_quorum_everything(uint64_t seed);

}  // namespace cantle::sim

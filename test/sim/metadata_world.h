// MdWorld: metadata servers, requesters, operators and partition servers that only watch, under every fault, with
// the invariants of METADATA checked at every step.
//
// Use
//   MdWorld w(seed, {…});
//   w.run(20s);                 // faults and requests
//   w.finish();                 // the faults stop; everything has to come to rest
//   w.verdict()
//
// Checked
//   * one chain: each TableConfig names the same file as the one before, or one that follows it (README.md, 3)
//   * the current file is durable on a majority of the listed servers, always (S27, S30)
//   * every committed file covers the keyspace, passes the validator, and has the hash that TableConfig says (S41)
//   * a change that was said to be made is in the chain, one that was said not to be is not, none is in twice (S27,
//   S28)
//   * an answer that is not stale shows what was current its age before the question, or later (S32)
//   * at rest: every member has the current file, operations have ended and nobody holds a task, region nodes agree
//     with the map, and in a quorum table each has its first government, which nobody here has reason to change
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "test/sim/metadata_node.h"
#include "test/sim/seeds.h"

namespace cantle::sim {

struct MdOptions {
  size_t servers = 4;  // m1 …; the first `members` store the table at first
  size_t members = 3;
  size_t requesters = 3;
  Duration think_max = 400ms;
  double splits = 0.3;  // of the requests; merges among them
  double strict = 0.2;  // name the base they know
  model::Replication replication = model::Replication::push;
  size_t partitions = 1;   // at creation
  bool membership = true;  // joins and leaves
  bool crashes = true;
  bool faults = true;    // of network and coordination service, drawn
  bool sessions = true;  // expiries and outages
};

// One who asks for changes and remembers what it was told.
struct Told {
  enum class What : uint8_t { made, refused, unknown } what = What::unknown;
  model::ChangeId change;
  std::string text;
};

class MdWorld {
 public:
  explicit MdWorld(uint64_t seed, MdOptions options = {});
  ~MdWorld();
  MdWorld(const MdWorld&) = delete;

  void set_up();  // the table "t", at rest
  void run(Duration span);
  void calm();  // nobody asks for anything any more, the faults stop, and what is under way ends
  void finish();
  Verdict verdict();

  Scheduler& scheduler() { return scheduler_; }
  Network& network() { return network_; }
  CoordService& coord() { return coord_; }
  MdHost& host(size_t i) { return *hosts_.at(i); }
  MdHost& host(const std::string& name);
  void start(MdHost& host);
  void kill(MdHost& host) { host.process.kill(); }
  bool wait(const std::function<bool()>& done, Duration limit) {
    return scheduler_.run_until(done, scheduler_.now() + limit);
  }
  void violation(const std::string& text);
  const std::string& violated() const { return violation_; }

  // From the process of requester 0. The request is sent once; `tries` more times to other servers when no answer
  // comes.
  void change(std::vector<model::Operation> ops, int tries, std::function<void(const Told&)> done,
              model::TxnId base = {});
  void send(const std::string& to, std::any request, Duration timeout, Network::Reply done);
  base::Result<std::any> ask(const std::string& to, std::any request, Duration timeout = 3s);
  // Asks `to` for the map, and holds what comes against S32. From the process of requester 0.
  void look_up(const std::string& to) { look_up(*requesters_.front(), to); }
  // The committed file, and TableConfig.
  const std::shared_ptr<const model::Metadata>& current() const { return chain_.back(); }
  const std::vector<std::shared_ptr<const model::Metadata>>& chain() const { return chain_; }
  const model::TableConfig& config() const { return config_; }
  const coord::Layout& layout() const { return layout_; }
  void stop_faults();
  // Servers p1 … p5 observe maps as they come, and fill what they are assigned; off: they stand still.
  void set_partds(bool on) { partds_on_ = on; }
  bool no_fork() const { return violation_.empty(); }
  void expect_regression() { regression_expected_ = true; }

 private:
  struct Requester {
    Requester(Scheduler& scheduler, const std::string& name) : process(scheduler, name, "tool") {}
    Process process;
    bool busy = false;
  };
  struct Asked {  // one change under way
    model::MdChange request;
    int tries = 0;
    std::set<std::string> unsure;
    std::function<void(const Told&)> done;
  };

  void on_commit(const TreeTxn& txn);
  void committed(const std::string& text);
  std::shared_ptr<const model::Metadata> file_of(const model::TableConfig& config);
  void check_majority();
  void check_told();
  void check_rest();
  void check_nodes();
  std::vector<std::string> tasks() const;
  void request_now(Requester& requester);
  void ask_round(Requester& requester, std::shared_ptr<Asked> asked);
  void settle(Requester& requester, std::shared_ptr<Asked> asked, base::Error refusal);
  void tell(const Asked& asked, Told::What what, std::string text);
  std::vector<model::Operation> draw_operations();
  void look_up(Requester& requester, const std::string& to);
  void disturb();
  void partd_turn();
  void lead(const model::Partition& partition);
  std::string any_server();

  Scheduler scheduler_;
  Network network_;
  CoordService coord_;
  coord::Layout layout_{"c"};
  MdCluster cluster_;
  MdOptions options_;
  base::SeededRandom random_;  // of those who ask and disturb
  std::vector<std::unique_ptr<MdHost>> hosts_;
  std::vector<std::unique_ptr<Requester>> requesters_;
  std::unique_ptr<Process> partds_;
  std::unique_ptr<coord::Session> partd_session_;
  std::map<model::AssignmentId, Instant> marking_;
  bool partds_on_ = true;

  std::vector<std::shared_ptr<const model::Metadata>> chain_;
  std::vector<Instant> chain_at_;
  std::map<model::TxnId, wire::MetadataFile> files_;  // committed ones, decoded
  model::TableConfig config_;
  std::set<model::ChangeId> changes_;
  std::vector<Told> told_;
  std::string violation_;
  uint64_t checked_at_ = 0;  // commits of all disks when the majority was last looked at
  bool disturbing_ = false, asking_ = false, regression_expected_ = false;
  std::map<model::AttemptId, model::Split> splits_seen_;
  std::map<model::AttemptId, model::Merge> merges_seen_;
};

}  // namespace cantle::sim

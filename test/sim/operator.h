// Operator: who splits and merges partitions, replaces servers and drives what was begun, through the same machines as
// the tools (lib/proto/drivers.h).
//
// Any operator resumes any operation: it looks at the maps, and for each operation in progress that nobody
// holds /tasks/op-<attempt> of, it takes the task and drives. Killed, its ephemerals go with its session and
// another one goes on.
//
// Use
//   Operator o(cluster, "o1");
//   o.start();
//   o.split("t", region, "m", {}, {});         // the requests of a tool, sent once; the outcome is not assumed
//   o.merge("t", region);                         // with the one behind it
//   o.replace("t", region, "p2", "p4", dead);  o.abort(attempt);
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/proto/drivers.h"
#include "test/sim/cluster.h"

namespace cantle::sim {

class Operator {
 public:
  Operator(Cluster& cluster, const std::string& host);
  ~Operator();
  void start();  // begins a life
  void kill();
  bool alive() const { return process_.alive(); }
  Process& process() { return process_; }
  size_t driving() const { return drives_.size(); }

  // As of the map that is committed now.  False: nothing to do it to.
  bool split(const std::string& table, model::Region region, const std::string& point,
             const std::vector<model::ServerId>& low, const std::vector<model::ServerId>& high);
  bool merge(const std::string& table, model::Region region);
  bool replace(const std::string& table, model::Region region, const std::string& from, const std::string& to,
               bool from_dead);
  void abort(const model::AttemptId& attempt);
  void submit(const std::string& table, std::vector<model::Operation> ops);

 private:
  struct Drive {
    std::string table;
    model::AttemptId attempt;
    std::unique_ptr<proto::DriverBase> driver;
    std::vector<proto::driver::Input> inputs;
    bool stepping = false;
  };
  void look_around();
  void take(const std::string& table, const model::AttemptId& attempt, proto::OpKind kind);
  void drive(const std::string& table, const model::AttemptId& attempt, proto::OpKind kind);
  void tick(const model::AttemptId& attempt);
  void input(const model::AttemptId& attempt, proto::driver::Input in);
  void perform(Drive& drive, const proto::driver::Look& e);
  void perform(Drive& drive, const proto::driver::Submit& e);
  void perform(Drive& drive, const proto::driver::Waiting& e);
  void perform(Drive& drive, const proto::driver::Ended& e);
  void look(const std::string& table, std::function<void(base::Result<proto::World>)> done);

  Cluster& cluster_;
  Process process_;
  std::unique_ptr<coord::Session> session_;
  std::shared_ptr<bool> here_;
  std::map<model::AttemptId, Drive> drives_;
  std::set<model::AttemptId> taking_;
};

}  // namespace cantle::sim

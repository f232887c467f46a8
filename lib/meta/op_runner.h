// OpRunner: drives one split, merge or replacement that nobody else drives (design/reshape.md, "Driver"): holds the
// ephemeral /tasks/op-<attempt> and performs what the operation's machine decides (lib/proto/drivers.h).
//
// Use
//   OpRunner runner(host, agent, attempt, kind);
//   runner.start();
//   runner.tick();                      // often
//   if (runner.ended()) …               // it has let go of the task, or never got it
//
// Threads: the loop's. Ownership: host and agent outlive it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "lib/meta/table_agent.h"
#include "lib/proto/drivers.h"

namespace cantle::meta {

// Reads observed/* of a table.
void read_observed(Host& host, const std::string& distribution,
                   std::function<void(base::Result<std::map<model::ServerId, model::TxnSeq>>)> done);

class OpRunner {
 public:
  OpRunner(Host& host, TableAgent& agent, model::AttemptId attempt, proto::OpKind kind);
  ~OpRunner();
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;

  void start();
  void tick();
  // Lets go of the task, for another to take.
  void stop();
  bool ended() const { return phase_ == Phase::ended; }
  // What it waits for, for people.
  std::string waiting() const;

 private:
  enum class Phase : uint8_t { idle, taking, driving, ended };
  void feed(proto::driver::Input input);
  void perform(const proto::driver::Look& e);
  void perform(const proto::driver::Submit& e);
  void perform(const proto::driver::Waiting& e);
  void perform(const proto::driver::Ended& e);
  void look_further(uint64_t number);
  void look_at_governments(uint64_t number, proto::World world);
  void let_go();
  base::Instant now() { return host_.timers().now(); }

  Host& host_;
  TableAgent& agent_;
  model::AttemptId attempt_;
  proto::OpKind kind_;
  Phase phase_ = Phase::idle;
  uint64_t session_ = 0;  // whose ephemeral the task is
  std::unique_ptr<proto::DriverBase> driver_;
  std::deque<proto::driver::Input> inputs_;
  bool stepping_ = false;
  std::string waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta

// SimExecutor: the store's lanes in simulated time. A task runs some time after it was given, its `done`
// some time after that; a crash in between loses either.
#pragma once

#include <array>

#include "lib/store/executor.h"
#include "test/sim/process.h"

namespace cantle::sim {

class SimExecutor final : public store::Executor {
 public:
  struct Times {
    Duration task_min = 30us, task_max = 300us;
    Duration done_min = 5us, done_max = 30us;
    double slow = 0;  // a task takes up to slow_max: a disk that hesitates
    Duration slow_max = 200ms;
  };
  SimExecutor(Process& process, const Times& times) : process_(process), times_(times) {}
  ~SimExecutor() override { *here_ = false; }

  void run(store::Lane lane, Fn task, Fn done) override;
  void defer(Fn fn) override;
  void after(base::Duration delay, Fn fn) override;

 private:
  Process& process_;
  const Times& times_;  // of the world, which changes them
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::array<Instant, 4> free_at_{};  // when the lane's last task ends
};

}  // namespace cantle::sim

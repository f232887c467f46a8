// OpDriver: drives a split, a merge or a replacement from a tool (design/reshape.md, "Driver"): holds the ephemeral
// /tasks/op-<attempt> and performs what the operation's machine decides (lib/proto/drivers.h).
//
// Use
//   OpDriver driver(loop, md, "orders", attempt, std::make_unique<proto::SplitDriver>(attempt),
//                   {.what = "split", .who = "host:4711"},
//                   {.on_waiting = [](const proto::driver::Waiting& w) { … },
//                    .on_ended = [](const proto::driver::Ended& e) { … }});
//   driver.start();
// Where somebody else holds the task, it drives nothing, tells what it sees all the same, and takes the task when it is
// free. Destroying it detaches: the operation goes on in the hands of a metadata server.
//
// Invariants
//   * Unless told otherwise, a change is sent only while this session's ephemeral stands (two drivers would do no harm,
//     only noise: every operation names what it expects).
//   * on_ended is called once, after it the driver does nothing.
// Threads: the loop's. Ownership: loop and md outlive it; may be destroyed in on_waiting, not in on_ended.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lib/client/md_client.h"
#include "lib/proto/driver.h"

namespace cantle::client {

struct OpDriverOptions {
  std::string what;           // "split", "merge", "replace": for people
  std::string who;            // host:pid of the tool
  bool drive = true;          // false: only look
  bool without_task = false;  // changes are sent whoever holds the task: an abort must not wait for the driver
  base::Duration change_timeout = std::chrono::seconds(12);
};
struct OpDriverEvents {
  std::function<void(const proto::driver::Waiting&)> on_waiting;
  std::function<void(const proto::driver::Ended&)> on_ended;
  std::function<void(const proto::World&)> on_world;  // each time it looked
};

class OpDriver {
 public:
  OpDriver(io::Loop& loop, MdClient& md, std::string table, model::AttemptId attempt,
           std::unique_ptr<proto::DriverBase> driver, OpDriverOptions options, OpDriverEvents events);
  ~OpDriver();
  OpDriver(const OpDriver&) = delete;
  OpDriver& operator=(const OpDriver&) = delete;

  void start();
  void abort(const std::string& reason);  // asks; on_ended tells what came of it

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

// "host:pid" of this process, for OpDriverOptions::who.
std::string this_process();

}  // namespace cantle::client

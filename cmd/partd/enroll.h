// Enrollment: how a partd becomes known to its cluster: at its very first start it appends its arrival event, whose
// sequence number is its server number, and writes nodes/info (coordination.md, "Start of a server").
//
// Use
//   Enrollment enrollment(loop, session, layout, {…}, [](base::Result<Enrollment::Answer> r) { … });
//   enrollment.begin();            // when connected; goes on by itself, with retries, until it is done
//
// Invariants
//   * A lost reply makes no second event: the event carries the data directory's instance and is looked for first.
//   * `done` is called once; identity errors end it, everything else is tried again.
// Threads: the loop's. Ownership: owns neither session nor loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lib/base/result.h"
#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/io/timer.h"

namespace cantle::partd {

struct EnrollSpec {
  model::ServerId server;
  std::string instance, rack, host;
  uint32_t weight = 100;
  bool first_start = false;  // the data directory is new
  // Asked before a new directory takes the name of another: has it lost what METADATA says is here (S6)?
  std::function<void(std::function<void(base::Status)> answer)> may_take_name;
};

class Enrollment {
 public:
  struct Answer {
    model::ServerNumber number;
    bool known_name = false;  // another data directory has lived under this name
  };
  using Done = std::function<void(base::Result<Answer>)>;

  Enrollment(io::Loop& loop, coord::Session& session, coord::Layout layout, EnrollSpec spec, Done done);
  ~Enrollment();
  void begin();

 private:
  void find_event();
  void look_at(std::vector<std::string> names, size_t i);
  void ask_for_name();
  void arrive();
  void write_info();
  void again();
  void finish(base::Result<Answer> answer);
  template <class F>
  auto guarded(F fn);

  coord::Session& session_;
  coord::Layout layout_;
  EnrollSpec spec_;
  Done done_;
  std::optional<coord::NodeInfo> before_;  // nodes/info as it stands
  int32_t before_version_ = 0;
  Answer found_;
  io::Timer retry_;
  bool running_ = false, over_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::partd

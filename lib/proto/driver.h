// Driver: what the drivers of reshaping operations have in common (design/reshape.md, "Driver").
//
// An operation (a split, the replacement of a replica) is recorded in METADATA before anything happens.
// A driver looks at METADATA and at the coordination service, decides the one next step, has it committed,
// and looks again. It keeps nothing that METADATA does not know: whoever holds the ephemeral
// /tasks/op-<attempt> may make a fresh one at any moment and go on (S38, S39, S40, S42).
//
// Use, the same for every driver
//   for (auto& e : driver.step(Begin{now})) perform(e);      // => Look
//   Look    read, after a sync: the map, `observed`, the live partition servers; answer with Looked
//   Submit  have the operation committed (`md.change` with base: latest); answer with Changed
//   Waiting tell whoever asks why nothing moves, and for whom; sent when the answer differs from the last
//   Ended   let go of the task; nothing comes after it
// The shell calls step(Tick) now and then, and step(Hint) when a watch fires.
//
// Invariants
//   * At most one Look or Submit is out at a time; each is answered at most once, by its number; what
//     comes late, or for another number, is dropped (S25).
//   * Every decision comes from a World read after the last change was answered, never from memory.
//   * The outcome of a change is never assumed: whatever the answer, METADATA is read again (S38).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/metadata.h"
#include "lib/model/operation.h"
#include "lib/model/quorum.h"

namespace cantle::proto {

// The government of a quorum table's partition, and the version that its node has.
struct GovernmentSeen {
  model::Government government;
  int32_t version = 0;
};

// What a driver decides from. All of it was read after the same sync.
struct World {
  std::shared_ptr<const model::Metadata> map;
  std::map<model::ServerId, model::TxnSeq> observed;  // observed/<server> of this table
  std::set<model::ServerId> live;                     // partition servers under nodes/active
  // Of a quorum table's partition that the driver's attempt is about, read after the map: no older than it.
  std::map<model::PartitionId, GovernmentSeen> governments = {};
};

namespace driver {
// Inputs.
struct Begin {
  base::Instant now;
};
struct Tick {
  base::Instant now;
};
struct Hint {
  base::Instant now;
};  // something may have changed: a watch, a notification
struct Looked {
  base::Instant now;
  uint64_t number = 0;
  base::Result<World> world;
};
struct Changed {
  base::Instant now;
  uint64_t number = 0;
  base::Status status;
};  // ok: committed
struct AbortAsked {
  base::Instant now;
  std::string reason;
};
using Input = std::variant<Begin, Tick, Hint, Looked, Changed, AbortAsked>;

// Effects.
struct Look {
  uint64_t number = 0;
  bool operator==(const Look&) const = default;
};
struct Submit {
  uint64_t number = 0;
  model::Operation operation;
  bool operator==(const Submit&) const = default;
};
struct Waiting {
  std::string why;
  std::vector<model::ServerId> for_whom;
  bool operator==(const Waiting&) const = default;
};
enum class Outcome : uint8_t { done = 1, aborted, failed };
struct Ended {
  Outcome outcome = Outcome::done;
  std::string reason;  // empty for done
  bool operator==(const Ended&) const = default;
};
using Effect = std::variant<Look, Submit, Waiting, Ended>;
using Effects = std::vector<Effect>;
}  // namespace driver

constexpr base::Duration kDriverLookEvery = std::chrono::milliseconds(500);  // the slow timer behind the hints
constexpr base::Duration kDriverLookSoon = std::chrono::milliseconds(50);    // … where clients wait for what comes
constexpr base::Duration kDriverAnswerWithin = std::chrono::seconds(15);     // then the question is asked again
constexpr base::Duration kDriverRetryFirst = std::chrono::milliseconds(100);
constexpr base::Duration kDriverRetryMost = std::chrono::seconds(5);

// DriverBase: the loop that every driver is; a subclass decides. One per operation.
class DriverBase {
 public:
  virtual ~DriverBase() = default;
  driver::Effects step(const driver::Input& input);
  bool ended() const { return phase_ == Phase::ended; }
  const driver::Waiting& waiting() const { return waiting_; }

 protected:
  struct Decision {
    enum class Kind : uint8_t { wait, submit, end } kind = Kind::wait;
    driver::Submit submit;
    driver::Waiting waiting;
    base::Duration look_in = kDriverLookEvery;
    driver::Ended end;
  };
  static Decision wait(std::string why, std::vector<model::ServerId> for_whom = {});
  static Decision wait_briefly(std::string why, std::vector<model::ServerId> for_whom = {});  // clients wait, too
  static Decision submit(model::Operation operation);
  static Decision end(driver::Outcome outcome, std::string reason = {});

  // `world.map` is there and not dropped.
  virtual Decision decide(const World& world) = 0;
  const std::string* abort_reason() const { return abort_asked_ ? &abort_reason_ : nullptr; }

 private:
  enum class Phase : uint8_t { idle, looking, changing, ended };
  void on(const driver::Begin& in, driver::Effects& out);
  void on(const driver::Tick& in, driver::Effects& out);
  void on(const driver::Hint& in, driver::Effects& out);
  void on(const driver::Looked& in, driver::Effects& out);
  void on(const driver::Changed& in, driver::Effects& out);
  void on(const driver::AbortAsked& in, driver::Effects& out);
  void look(base::Instant now, driver::Effects& out);
  void act(base::Instant now, Decision decision, driver::Effects& out);
  void say(driver::Waiting waiting, driver::Effects& out);
  void retry_later(base::Instant now);

  Phase phase_ = Phase::idle;
  uint64_t number_ = 0;  // of the last Look or Submit
  base::Instant next_look_, asked_at_;
  base::Duration backoff_{0};
  bool hinted_ = false;  // while a question was out
  bool abort_asked_ = false;
  std::string abort_reason_, refusal_;
  std::optional<model::Operation> submitted_, made_;  // the last, and the last that was committed
  driver::Waiting waiting_;
};

// Of n slots.
constexpr size_t majority_of(size_t n) { return n / 2 + 1; }

}  // namespace cantle::proto

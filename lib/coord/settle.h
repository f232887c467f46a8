// Settler: carries a conditional change to a definite answer, whatever happens to its reply.
//
// A change that ends with outcome_unknown may have been applied, may still be under way, or may be lost.
// The settler waits for the session, syncs, reads the znode again and looks for its own token in it: its
// own success is never reported as a conflict (S28, R24) and a lost request is made again, which is safe,
// since both are conditional on the same version and carry the same value (S27).
//
//   Settler settle(session, timers);
//   settle.set(path, value_with_token, version, recognise_value(value_with_token), [](Result<Stat> r) { … });
//
// Answers: the result; or conflict, exists, not_found …: it did not happen and never will; or
// outcome_unknown: the service did not come back within the patience, or the trace of the change was
// written over by others; unavailable: it was certainly never made.
// Ownership: session and timers outlive it; its destructor drops the callbacks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/timers.h"

namespace cantle::coord {

// Does this znode show that the change made at version `expected` took effect? A value that keeps the
// tokens of its last writers (TableConfig's chain of change ids) can say yes or no after others wrote.
enum class Mine : uint8_t { yes, no, cannot_tell };
using Recognise = std::function<Mine(const Node& now, int32_t expected)>;
// By the whole value, which must be unique to the attempt: it holds a random token.
Recognise recognise_value(std::string value);

class Settler {
 public:
  Settler(Session& session, Timers& timers, base::Duration patience = std::chrono::seconds(30));
  ~Settler();
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;

  // `version` is a real one: kAnyVersion cannot be settled and is refused as invalid.
  void set(std::string path, std::string value, int32_t version, Recognise mine, Done<Stat> done);
  // Persistent or ephemeral; an ephemeral is ours only under the session of now. Not sequential: see append().
  void create(std::string path, std::string value, CreateMode mode, Done<std::string> done);
  void remove(std::string path, int32_t version, Done<base::Nothing> done);
  // All or nothing; `witness` is the index of an OpSet at a real version or of a plain OpCreate, whose
  // znode tells whether it happened. After a lost reply the results are those of the ops themselves;
  // names of sequential znodes are then empty.
  void multi(std::vector<Op> ops, size_t witness, Recognise mine, Done<std::vector<OpResult>> done);
  // A persistent sequential znode whose value is unique to the attempt: after a lost reply it is looked
  // for among the children. For logs that are not long (arrivals).
  void append(std::string prefix, std::string value, Done<std::string> done);

 private:
  struct Parts;
  template <class T>
  struct Attempt;
  template <class T>
  void start(std::shared_ptr<Attempt<T>> attempt);
  std::shared_ptr<Parts> parts_;
};

}  // namespace cantle::coord

// Mend: how a replica of a quorum table gets blocks of its log that it cannot read (design/store.md, R16).
//
// Use
//   Mend mend(gap);                            // as the store found it; nothing: nothing is missing
//   mend.tick(now, others, out);               // often, while something is
//   mend.fetched(now, number, next, others, out);   // the gap was filled, and this is missing next; or why it was not
//   if (!mend.hopeful(now, others)) …          // a snapshot has to take the log's place
//
// The other replicas are asked one after the other, whoever leads, if anybody does: what is missing is named by the
// checksums of its neighbours, so that nothing else can come in its place. Who was asked in vain is asked again, as it
// may be mended itself by then. There is no hope for a gap that each of them has answered that it does not have, or
// that was open for kMendMost.
//
// Invariants
//   * One thing is asked for at a time; an answer to an older question changes nothing.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "lib/model/quorum_snapshot.h"
#include "lib/proto/quorum_types.h"

namespace cantle::proto::quorum {

constexpr base::Duration kMendMost = std::chrono::seconds(10);
constexpr base::Duration kGapTimeout = std::chrono::seconds(1);  // the shell's, for one answer
constexpr base::Duration kMendAgain = std::chrono::milliseconds(50), kMendAgainMost = std::chrono::seconds(2);

class Mend {
 public:
  explicit Mend(std::optional<model::LogGap> gap) : gap_(std::move(gap)) {}

  using Others = std::vector<model::Hop>;
  void tick(base::Instant now, const Others& others, Effects& out);
  // False: it answers an older question.
  bool fetched(base::Instant now, uint64_t number, const base::Result<std::optional<model::LogGap>>& next,
               const Others& others, Effects& out);
  bool hopeful(base::Instant now, const Others& others) const;
  void stop() { gap_.reset(); }

 private:
  void ask(base::Instant now, const Others& others, Effects& out);

  std::optional<model::LogGap> gap_;
  std::optional<base::Instant> since_;  // it was open, and somebody could be asked
  std::set<model::AssignmentId> vain_;  // who do not have it
  size_t turn_ = 0;
  std::optional<uint64_t> asked_;
  model::Hop asked_of_;
  uint64_t number_ = 0;
  base::Instant again_{};
  base::Duration backoff_ = kMendAgain;
};

}  // namespace cantle::proto::quorum

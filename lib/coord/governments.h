// Governments: governments and votes of quorum tables, as a partition server reads and changes them
// (design/coordination.md, "Layout").
//
// Use
//   Governments governments(session, layout);
//   governments.read(d, region, [](Result<optional<Read>> r) { … });          // after a sync
//   governments.swap(d, region, read.version, next, [](Result<int32_t> version) { … });
//   governments.listen(d, [] { … });   // the bell of a table: a vote or a government may have changed
// `d` is the table's distribution().
//
// A swap and a vote ring the table's bell in the same multi, so that one watch a table tells of all its partitions. The
// watch is a hint (S33). A swap whose connection was lost ends outcome_unknown: read, and compare `writer` (S27).
//
// Ownership: session outlives it; callbacks are not made after its end. Threads: the session's loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/model/quorum.h"

namespace cantle::coord {

class Governments {
 public:
  struct Read {
    model::Government government;
    int32_t version = 0;
  };

  Governments(Session& session, Layout layout) : session_(session), layout_(std::move(layout)) {}
  ~Governments() { *alive_ = false; }
  Governments(const Governments&) = delete;
  Governments& operator=(const Governments&) = delete;

  // Nothing: there is no such node.
  void read(const std::string& d, model::Region region, Done<std::optional<Read>> done);
  // The new version. conflict: it has another version by now, or is gone.
  void swap(const std::string& d, model::Region region, int32_t version, const model::Government& to,
            Done<int32_t> done);
  // It stands there with exactly this afterwards, as of this session: an own one of another session, or with another
  // text, is made anew (S34). The directory of its token may be swept while it is empty: then that is made again, too.
  void put_vote(const std::string& d, model::Region region, const model::Vote& vote, Done<base::Nothing> done);
  // It does not stand there afterwards.
  void remove_vote(const std::string& d, model::Region region, const model::LogToken& token,
                   const model::ServerId& server, Done<base::Nothing> done);
  void read_votes(const std::string& d, model::Region region, Done<std::vector<model::Vote>> done);

  // From now on `rung` is called whenever the bell may have been rung. Say connected() at each new connection: the
  // watches of a lost one may have gone with it.
  void listen(const std::string& d, std::function<void()> rung);
  void connected();

 private:
  struct Bell {
    std::function<void()> rung;
    uint64_t watch = 0;  // the one that counts: an older one that fires late is nobody's
  };
  void make_vote(const std::string& d, model::Region region, const model::Vote& vote, int tries,
                 Done<base::Nothing> done);
  void create_vote(const std::string& d, model::Region region, const model::Vote& vote, bool instead, int tries,
                   Done<base::Nothing> done);
  void arm(const std::string& d);
  Op ring(const std::string& d) const {
    return OpCreate{layout_.ring_prefix(d), "", CreateMode::persistent_sequential};
  }

  Session& session_;
  Layout layout_;
  std::map<std::string, Bell> bells_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// As the service shows it now, without a sync of its own. Nothing: there is no such node.
void read_government(Session& session, const std::string& path, Done<std::optional<Governments::Read>> done);
// Those of some partitions, each as of its own moment; what there is none of is left out.
using PartitionRegions = std::vector<std::pair<model::PartitionId, model::Region>>;
using GovernmentsRead = std::map<model::PartitionId, Governments::Read>;
void read_governments(Session& session, const Layout& layout, const std::string& d, const PartitionRegions& wanted,
                      Done<GovernmentsRead> done);

}  // namespace cantle::coord

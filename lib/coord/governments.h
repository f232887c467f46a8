// Governments: governments and votes of quorum tables, as a partition server reads and changes them
// (design/coordination.md, "Layout").
//
// Use
//   Governments governments(session, layout);
//   governments.read(d, region, [](Result<optional<Read>> r) { … });          // after a sync
//   governments.swap(d, region, read.version, next, [](Result<int32_t> version) { … });
//   governments.listen(d, [](const Ring& of) { … });   // the bell of a table: these votes, governments may have
//   changed
// `d` is the table's distribution().
//
// Swaps and votes of many regions go together, in few multis (multis.h), each with a ring of the table's bell that
// names its regions: one watch a table tells of all its partitions, and a server reads only what was named. A conflict
// in one does not fail the others. Reads of governments share a sync: those that come while one is under way wait for
// the next. Few reads are under way at a time, and the rest wait here, so that votes and swaps do not wait behind
// thousands of them. The watch is a hint (S33). A swap whose connection was lost ends outcome_unknown: read, and
// compare `writer` (S27).
//
// Ownership: session outlives it; callbacks are not made after its end. Threads: the session's loop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/coord/multis.h"
#include "lib/coord/ring.h"
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

  // Nothing: there is no such node. cancelled: it was asked for again before it was this one's turn.
  void read(const std::string& d, model::Region region, Done<std::optional<Read>> done);
  // The new version. conflict: it has another version by now, or is gone.
  void swap(const std::string& d, model::Region region, int32_t version, const model::Government& to,
            Done<int32_t> done);
  // It stands there with exactly this afterwards, as of this session: an own one of another session, or with another
  // text, is made anew (S34).
  // After the removals of that path that were asked for before; cancelled: it waited for one, and another vote or
  // removal was asked for there.
  void put_vote(const std::string& d, model::Region region, const model::Vote& vote, Done<base::Nothing> done);
  // It does not stand there afterwards.
  void remove_vote(const std::string& d, model::Region region, const model::LogToken& token,
                   const model::ServerId& server, Done<base::Nothing> done);
  // The same, of one whose tenure is over: nobody waits for it, and it is tried again at each new connection.
  void forget_vote(const std::string& d, model::Region region, const model::LogToken& token,
                   const model::ServerId& server);
  // cancelled: as read(), or nobody wanted them any more when it was their turn.
  void read_votes(const std::string& d, model::Region region, std::function<bool()> wanted,
                  Done<std::vector<model::Vote>> done);

  // From now on `rung` is called when the bell was rung, or may have been, by others: ring.any() if it is not known for
  // whom. Say connected() at each new connection: the watches of a lost one may have gone with it.
  void listen(const std::string& d, std::function<void(const Ring&)> rung);
  void connected();

 private:
  static constexpr uint64_t kRingsRead = 64;  // of those that came at once; of more it is not asked for whom they were
  static constexpr size_t kReadsOut = 512;    // governments
  static constexpr size_t kVotesOut = 16;     // partitions whose votes are read, some four requests each

  // What is changed of a table.
  struct Changes {
    Changes(Session& session, const std::string& ring)
        : votes(session, ring), governments(session, ring), removals(session, "") {}
    Multis votes, governments, removals;
  };
  struct Bell {
    std::function<void(const Ring&)> rung;
    uint64_t watch = 0;            // the one that counts: an older one that fires late is nobody's
    std::optional<uint64_t> next;  // the number of the first ring that was not heard; nothing: it is not known
    std::set<std::string> own;     // that are not heard yet
  };
  Changes& changes(const std::string& d);
  void arm(const std::string& d);
  void hear(const std::string& d, const std::vector<std::string>& rings);
  void read_rings(const std::string& d, const std::vector<std::string>& paths);
  // Questions by path: so many are under way, the others wait for their turn. A newer one takes the place of one that
  // waits.
  template <class Answer>
  struct Line {
    explicit Line(size_t at_once) : most(at_once) {}
    const size_t most;
    struct Question {
      std::function<bool()> wanted;
      Done<Answer> done;
    };
    std::map<std::string, Question> waiting;
    std::deque<std::string> order;
    size_t out = 0;
  };
  template <class Answer>
  void ask(Line<Answer>& line, const std::string& path, typename Line<Answer>::Question question);
  template <class Answer>
  void ask_more(Line<Answer>& line);
  void start(const std::string& path, Done<std::optional<Read>> done);
  void start(const std::string& path, Done<std::vector<model::Vote>> done);
  void sync_reads();
  void forget(const std::string& path);
  void give_up_waiting(const std::string& path);
  void removed(const std::string& path);

  Session& session_;
  Layout layout_;
  std::map<std::string, Bell> bells_;
  std::map<std::string, std::unique_ptr<Changes>> changes_;
  std::map<std::string, Done<std::optional<Read>>> reads_;  // that wait for a sync
  bool syncing_ = false;
  Line<std::optional<Read>> reading_{kReadsOut};
  Line<std::vector<model::Vote>> reading_votes_{kVotesOut};
  std::set<std::string> forgotten_;  // votes that may stand yet
  // A removal that is refused with others looks anew, and would find a vote that was put meanwhile.
  struct Removing {
    size_t left = 0;  // under way
    std::function<void()> put;
    Done<base::Nothing> put_done;  // null: none waits
  };
  std::map<std::string, Removing> removing_;  // by the path of the vote
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

// QuorumTables: the quorum tables of a partition server: their maps, which copies are to be here, and where a request
// goes. One for all quorum tables of a server; who leads a partition is its replica's business (quorum_replica.h).
//
// Use
//   QuorumTables tables(self);
//   for (auto& e : tables.map_read(now, "orders", map)) std::visit(perform, e);
//   tables.where("orders", key, txnseq)     // the copy here, another server, or why not
// Effects are performed in order.
//
// Invariants
//   * A copy is made only for an assignment that the map names and that cannot have held data: one that came with the
//     table, on a server that never acted on that table. Else this server is not the one that METADATA knows, and a
//     voter without its log would lose what it acknowledged (S6).
//   * A replica is begun once, when its copy is durable and the map is here; it ends when the map no longer names its
//     assignment, or the table is dropped.
//   * A map older than one that was acted on is refused (S36).
//   * That a table was dropped is said to have been observed when its copies here are in the trash: it can be
//     forgotten.
//   * A partition that was split ends here when the map says so, and its copy is divided at the cut, where every
//     replica's log ends: in order of the splits, so that a server that was away divides step by step (S42, S45). One
//     whose log does not have the cut is set aside, and its children are begun without a log: who has nothing of a
//     child has acknowledged nothing in it, and a majority of the child's voters has the parent's log through the cut.
//     It is kept until both children are filled, or this server should have them no more.
//   * One that may be among that majority, and is damaged, is set aside, too, and what it begins without a log does not
//     vote before it is filled (R16): its word, that it has nothing, would take the place of what it counted for.
//   * Two that were merged end the same way, together: both logs have their cuts, and the copies become the target's,
//     or both are set aside, and the target is begun without a log. While a copy that may become a part of the target
//     is here, no other of the target is made, so that nobody votes without a log who has one.
//   * That a split or a merge was observed is said once the index has what came of it. In the journal that is one
//     block; should it be damaged, it is done again, for as long as METADATA knows what ended (R16;
//     QuorumJournalSplitScenario.r16_a_divide_that_is_damaged_once_nobody_knows_the_parent).
//   * Copies go with their table (S52), and when the map has their partition without their assignment: that was taken
//     out only after the government had said that it does not vote. What the map does not explain is kept, takes no
//     part, and is told of.
// Units: Instant CLOCK_BOOTTIME. Threads: one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/client_messages.h"
#include "lib/model/ids.h"
#include "lib/model/interval.h"
#include "lib/model/messages.h"
#include "lib/model/metadata.h"
#include "lib/proto/quorum_cut.h"
#include "lib/proto/quorum_types.h"

namespace cantle::proto {

namespace quorum_tables {

constexpr base::Duration kAgainEvery = std::chrono::milliseconds(500);  // what the store could not do
constexpr base::Duration kDivideAgain = std::chrono::milliseconds(10);  // what stands behind the cut is on its way
constexpr uint32_t kRetryAfterMs = 100;

// A copy as the store found or made it.
struct Held {
  model::PartitionId partition;
  model::AssignmentId assignment;
  model::Region region;
  model::TableUuid table;
  model::Interval interval;
  bool aside = false;
  bool blank = false;  // its log has nothing at all
  // false: more may have been here than there is. One that is aside may have had the cut by which it ended; one that is
  // made does not vote before it is filled.
  bool whole = true;
};

struct Self {
  model::ServerId server;
  bool fresh_under_known_name = false;  // this data directory is new, the cluster knows the server's name (S6)
  std::vector<Held> held;
  std::map<model::TableUuid, model::TxnSeq> seen;  // as Remember had it written
};

// --- effects ---------------------------------------------------------------------------------------
struct Create {
  Held copy;
  std::string table;
};  // answered with created(), once durable
struct Begin {
  Held copy;
  std::string table;
  model::Keyspace keyspace = model::Keyspace::range;
};
// To a replica that was begun: who there is in its partition, now.
struct Tell {
  model::PartitionId partition;
  quorum::Members members;
};
struct End {
  model::PartitionId partition;
  model::TxnSeq into{};  // not 0: it was split or merged at that transaction; requests go on with a map as new as that
};                       // the replica takes no further part
struct ShowReshape {
  model::PartitionId partition;
  quorum::ReshapeSeen seen;
};  // to a replica that was begun: what the map says of its split or merge
struct Child {
  model::PartitionId partition;
  model::Region region;
  model::AssignmentId assignment;  // none: it is not here any more
};
struct Divide {
  model::PartitionId parent;
  model::AttemptId attempt;
  std::string point;
  model::LogPoint cut;
  Child low, high;
};  // of a copy whose replica has ended; answered with divided()
struct Merge {
  model::PartitionId low, high;
  model::AttemptId attempt;
  model::LogPoint low_cut, high_cut;
  Child target;
};  // of two copies whose replicas have ended; answered with merged()
struct SetAside {
  model::PartitionId partition;
  model::AssignmentId assignment;
  bool whole = true;  // of Held: it is durable with the rest
};
struct Drop {
  model::PartitionId partition;
  model::AssignmentId assignment;
  std::string why;
};  // to the trash; answered with dropped()
struct Settle {
  model::TableUuid table;
  model::TxnSeq txnseq;
};  // answered with settled(), once the index has all that was called back before
struct PublishObserved {
  std::string table;
  model::TxnSeq txnseq;
};  // observed/<server>: what this map asked of this server is done and durable
struct Remember {
  std::map<model::TableUuid, model::TxnSeq> seen;
};
struct Say {
  base::Level level = base::Level::warn;
  std::string what, text;
};
struct Exit {
  std::string text;
};  // wrong identity: exit status 78
using Effect = std::variant<Create, Begin, Tell, ShowReshape, End, Divide, Merge, SetAside, Drop, Settle,
                            PublishObserved, Remember, Say, Exit>;
using Effects = std::vector<Effect>;

// Where a key's requests go.
struct Where {
  enum class Kind : uint8_t { here, elsewhere, refuse, fetch } kind = Kind::refuse;
  const model::Partition* partition = nullptr;  // valid until the table's next map
  model::TxnSeq txnseq;                         // of the installed map
  base::Error error;                            // refuse; fetch, if the map does not come
};

struct CopyStatus {
  Held held;
  std::string table;
  std::string role;   // as of the map: available, leaving …; kept, unknown
  std::string state;  // serving (its replica takes part), creating, dropping, kept
};

}  // namespace quorum_tables

class QuorumTables {
 public:
  using Out = quorum_tables::Effects;
  explicit QuorumTables(quorum_tables::Self self);
  QuorumTables(const QuorumTables&) = delete;
  QuorumTables& operator=(const QuorumTables&) = delete;
  ~QuorumTables();

  Out map_read(base::Instant now, const std::string& name, std::shared_ptr<const model::Metadata> map);
  Out table_dropped(const model::TableUuid& table);  // it stands under /dropped/
  Out created(base::Instant now, const model::AssignmentId& assignment, const base::Status& status);
  Out dropped(base::Instant now, const model::AssignmentId& assignment, const base::Status& status);
  // ok: durable. not_found: its log does not have the cut, and never had. corrupt: it may have had it, and is damaged.
  // unavailable: not yet, ask again.
  Out divided(base::Instant now, const model::PartitionId& parent, const base::Status& status);
  Out merged(base::Instant now, const model::PartitionId& low, const base::Status& status);  // the same
  Out settled(const model::TableUuid& table, model::TxnSeq txnseq);
  // The copy has all that its replica's leader had committed. Asked of those in lagging() now and then.
  Out filled(const model::PartitionId& partition);
  std::vector<model::PartitionId> lagging() const;
  Out tick(base::Instant now);

  // --- questions ---
  // txnseq 0: the caller has no map.
  quorum_tables::Where where(std::string_view table, std::string_view key, model::TxnSeq txnseq) const;
  quorum_tables::Where where_scan(std::string_view table, const model::ScanStart& start, model::TxnSeq txnseq) const;
  // Is this for a copy that is here, from a tenure of its partition? unavailable: another tenure; stale_route.
  base::Status admit(const model::Envelope& envelope) const;
  std::shared_ptr<const model::Metadata> installed(std::string_view table) const;  // null: no such quorum table
  std::vector<std::string> tables() const;
  bool begun() const;  // every copy of every map is here and takes part
  std::vector<quorum_tables::CopyStatus> copies() const;
  std::set<model::TableUuid> uuids() const;  // of the copies here
  bool idle() const;                         // there are none
  size_t held() const { return copies_.size(); }
  const std::set<model::ServerId>& partners() const;  // servers that share a partition with this one

 private:
  struct Table {
    std::string name;
    std::shared_ptr<const model::Metadata> map;
    bool dropped = false, remembered = false, observed = false;
    size_t creating = 0;  // copies
    model::TxnSeq observed_at{}, settling{}, settled{};
  };
  struct Copy {
    quorum_tables::Held held;
    bool creating = false, begun = false, dropping = false, told = false;
    bool ending = false;   // its partition was split or merged
    bool merging = false;  // the lower one of two, with its neighbour here, too
    bool empty = false;    // a child that was begun without its parent's log, and is not filled yet
    // What the store was last asked to make of it: the children, low and high, or the target. A newer map may not have
    // them here any more.
    std::vector<quorum_tables::Child> asked{};
    std::optional<quorum::ReshapeSeen> reshape{};  // as it was shown
    base::Instant again{};                         // creating, dropping: the store could not; not before then
    bool failed = false;
    std::string why;                         // of dropping
    std::optional<quorum::Members> members;  // as it was told
  };
  Copy* live(const model::PartitionId& partition);
  const Copy* live(const model::PartitionId& partition) const;
  const Table* table(std::string_view name) const;
  void arrange(Table& table, bool first, Out& out);
  bool lost(const Table& table, const model::Partition& partition, const model::Assignment& a, bool first) const;
  void set_aside(Copy& copy, bool whole, Out& out);
  void drop(Copy& copy, std::string why, Out& out);
  void drop_table(const model::TableUuid& table, Out& out);
  void begin(Copy& copy, Out& out);
  void tell(Copy& copy, const model::Metadata& map, const model::Partition& partition, Out& out);
  void show_reshape(Copy& copy, const model::Metadata& map, Out& out);
  void follow_ended(Table& table, Out& out);
  void divide(Table& table, Copy& parent, const model::EndedPartition& ended, Out& out);
  void ask_divide(const Table& table, Copy& parent, const model::EndedPartition& ended, Out& out);
  void merge(Table& table, const model::PartitionId& target, Out& out);
  bool failed_to_end(base::Instant now, Table& table, const std::vector<Copy*>& parents, const base::Status& status,
                     Out& out);
  void inherit(const quorum_tables::Child& child, const Copy& parent, model::Interval interval);
  void end(const model::EndedPartition& ended, Copy& copy, Out& out);
  quorum_tables::Child child_here(const model::Metadata& map, const model::PartitionId& child,
                                  const model::AssignmentId& parent) const;
  bool has_children(const model::Metadata& map, const model::EndedPartition& ended,
                    const model::AssignmentId& own) const;
  const model::EndedPartition* ended_of(const Copy& parent) const;
  quorum_tables::Child target_here(const model::Metadata& map, const model::PartitionId& target) const;
  // What a partition was made of: the one that was split, or the two that were merged, as far as that is remembered.
  static std::vector<const model::EndedPartition*> parents_of(const model::Metadata& map,
                                                              const model::PartitionId& partition);
  // A partition, and its assignment to this server.
  struct Tenure {
    model::PartitionId partition;
    const model::Assignment* own = nullptr;
  };
  // What it goes on from, one for each of parents_of(); no assignment: that was not here.
  std::vector<Tenure> sources_of(const model::Metadata& map, const Tenure& of) const;
  void fall_behind(Table& table, const std::vector<Copy*>& parents, const base::Error& why, Out& out);
  void mark_empty(Table& table);
  bool comes_of(const model::Metadata& map, const model::PartitionId& partition) const;
  std::vector<const Copy*> aside_of(const Table& table, const model::PartitionId& partition,
                                    const model::Assignment& a) const;
  bool was_parents(const Table& table, const model::PartitionId& partition, const model::Assignment& a) const {
    return !aside_of(table, partition, a).empty();
  }
  bool came_with_table(const Table& table, const model::PartitionId& partition, const model::Assignment& a) const;
  void drop_filled(Out& out);
  void remember(Out& out);
  void observe(Table& table, Out& out);
  void locate(quorum_tables::Where& w, const Table& t, const model::Partition* p, model::TxnSeq txnseq) const;
  bool find_table(quorum_tables::Where& w, std::string_view name, model::TxnSeq txnseq, const Table** t) const;

  quorum_tables::Self self_;
  std::map<model::TableUuid, Table> tables_;
  std::map<std::string, model::TableUuid, std::less<>> by_name_;
  std::map<model::AssignmentId, Copy> copies_;
  std::unordered_map<model::PartitionId, Copy*> live_;  // into copies_
  bool any_failed_ = false;
  // Asked at each turn, found anew after something came.
  void changed() { partners_.reset(), lagging_.reset(); }
  mutable std::optional<std::set<model::ServerId>> partners_;
  mutable std::optional<std::vector<model::PartitionId>> lagging_;
};

}  // namespace cantle::proto

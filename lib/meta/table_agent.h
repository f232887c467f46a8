// TableAgent: a metadata server's work for one table name: changes it proposes, files it stores for others, lookups it
// answers, members that join and leave. What decides is in lib/proto (metadata_commit, metadata_replica,
// metadata_member); this performs what they decide, through a Host.
//
// Use
//   TableAgent agent(host, "orders");
//   agent.change(request, [](base::Result<model::MdChangeReply> r) { … });
//   agent.tick();                               // every kAgentTick
//
// Invariants
//   * One change is carried at a time; the others wait in order, at most kChangesWaiting.
//   * A change id that is being carried here is not carried a second time: both requesters get the one answer.
//   * Nothing is answered from a file that is not the current one, unless the asker said stale_ok.
//
// Threads: the loop's. Ownership: the host outlives it. Callbacks may come from inside the call.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/meta/config_reader.h"
#include "lib/meta/table_replica.h"
#include "lib/proto/metadata_commit.h"
#include "lib/proto/metadata_member.h"

namespace cantle::meta {

constexpr base::Duration kAgentTick = std::chrono::milliseconds(50);
constexpr size_t kChangesWaiting = 256;
constexpr size_t kGivenUpMax = 4096;                                   // change ids that will be refused, the newest
constexpr size_t kGatherMax = 500;                                     // operations
constexpr base::Duration kGatherFor = std::chrono::milliseconds(100);  // MARK_AVAILABLEs wait so long for company
constexpr base::Duration kCachedConfigFor = std::chrono::seconds(2);
constexpr base::Duration kForgetUnborn = std::chrono::hours(1);  // files of a creation that never was committed

class TableAgent {
 public:
  template <class T>
  using Done = std::function<void(base::Result<T>)>;

  TableAgent(Host& host, std::string name);
  ~TableAgent();
  TableAgent(const TableAgent&) = delete;
  TableAgent& operator=(const TableAgent&) = delete;

  void change(const model::MdChange& request, Done<model::MdChangeReply> done);
  void store(const model::MdStore& request, Done<model::MdStoreReply> done);
  void abort(const model::MdAbort& request);
  void outcome(const model::MdOutcome& request, Done<model::MdOutcomeReply> done);
  void join(Done<model::MdMembersReply> done);
  void leave(const model::ServerId& server, Done<model::MdMembersReply> done);
  base::Result<model::MdFindReply> find(const model::MdFind& request);
  base::Result<model::MdGetReply> get(const model::MdGet& request);
  base::Result<model::MdDiscoverReply> discover(const model::MdDiscover& request);
  model::MdTableStatus status() const;

  void tick();
  void session_lost() { reader_.session_lost(); }
  // Looks at TableConfig now.
  void hint();

  const std::string& name() const { return name_; }
  const std::string& distribution() const { return distribution_; }
  // The table that TableConfig names; null: none known.
  const TableReplica* live() const { return live_; }
  // As last read, and the map if it is here; null otherwise.
  const model::TableConfig* config() const;
  const wire::MetadataFile* current() const { return live_ != nullptr ? live_->current() : nullptr; }
  bool first_live_member() const;  // this server, of those listed and alive
  bool gone() const { return seen_none_ && replicas_.empty() && changes_.empty(); }
  void read_config(ConfigReader::Done done) { reader_.read(std::move(done)); }
  // Writes TableConfig as it is but for `edit`, at the version last read. For chores; the outcome is not assumed.
  void edit_config(const std::function<void(model::TableConfig&)>& edit, std::function<void(base::Status)> done);
  std::string writer_token();  // another one each time (S27)

 private:
  struct Change {
    model::MdChange request;
    std::vector<model::Operation> operations;
    std::string encoded;  // of the operations
    base::Instant deadline;
    std::vector<Done<model::MdChangeReply>> done;
    std::unique_ptr<proto::MetadataCommit> machine;
    std::map<model::Region, bool> regions_present;  // learnt from a swap that was refused
  };
  using ChangePtr = std::shared_ptr<Change>;
  struct Member {
    proto::member::Request request;
    Done<model::MdMembersReply> done;
    std::unique_ptr<proto::MetadataMember> machine;
  };
  struct Gathered {
    model::ops::MarkAvailable op;
    base::Instant deadline;
    Done<model::MdChangeReply> done;
  };
  struct Age {
    uint64_t ms = 0;
    bool stale = false;
  };

  // table_agent.cc
  void act(std::function<void()> fn);
  void on_config(const proto::ConfigAnswer& answer, ConfigReader::Asked asked);
  TableReplica& replica(const model::TableUuid& uuid);
  base::Instant now() const { return host_.timers().now(); }
  std::weak_ptr<bool> weak() const { return alive_; }

  // table_changes.cc
  void enqueue(ChangePtr change);
  void give_up(const model::ChangeId& change);
  void start_next();
  void feed(const ChangePtr& change, proto::commit::Input input);
  void perform(const ChangePtr& change, const proto::commit::Read& e);
  void perform(const ChangePtr& change, const proto::commit::Load& e);
  void perform(const ChangePtr& change, const proto::commit::Build& e);
  void perform(const ChangePtr& change, const proto::commit::Store& e);
  void perform(const ChangePtr& change, const proto::commit::Swap& e);
  void perform(const ChangePtr& change, const proto::commit::Fence& e);
  void perform(const ChangePtr& change, const proto::commit::Discard& e);
  void perform(const ChangePtr& change, const proto::commit::Alarm& e);
  void perform(const ChangePtr& change, const proto::commit::Reply& e);
  base::Result<proto::commit::BuiltFile> build(const Change& change, const model::TxnId& txnid,
                                               const proto::MapPtr& base);
  void store_at(const model::ServerId& at, const model::MdStore& request, std::function<void(base::Status)> done);
  void swap_multi(const ChangePtr& change, model::TableConfig to, int32_t version, int tries);
  void make_skeleton(size_t next, std::function<void(base::Status)> done);
  void regions_refused(const ChangePtr& change, model::TableConfig to, int32_t version, int tries);
  void swapped(const model::TableConfig& to, int32_t version, base::Instant asked);
  void gather(const model::MdChange& request, const model::ops::MarkAvailable& op, Done<model::MdChangeReply> done);
  void flush_gathered();

  // table_members.cc
  void start_member(proto::member::Kind kind, const model::ServerId& server, Done<model::MdMembersReply> done);
  void feed_member(const std::shared_ptr<Member>& member, proto::member::Input input);
  void perform(const std::shared_ptr<Member>& member, const proto::member::Read& e);
  void perform(const std::shared_ptr<Member>& member, const proto::member::Load& e);
  void perform(const std::shared_ptr<Member>& member, const proto::member::Store& e);
  void perform(const std::shared_ptr<Member>& member, const proto::member::Swap& e);
  void perform(const std::shared_ptr<Member>& member, const proto::member::Reply& e);

  // table_lookups.cc
  Age age() const;
  base::Result<const wire::MetadataFile*> serve(bool stale_ok, model::TxnSeq min_txnseq, Age* age);

  Host& host_;
  std::string name_, distribution_;
  ConfigReader reader_;
  std::map<model::TableUuid, std::unique_ptr<TableReplica>> replicas_;
  TableReplica* live_ = nullptr;
  bool seen_none_ = false;  // the last read found no TableConfig
  base::Instant none_at_;   // … when it was sent
  base::Instant next_poll_;
  bool reading_ = false;

  std::deque<ChangePtr> changes_;  // the front one is being carried
  std::set<model::ChangeId> given_up_;
  std::deque<model::ChangeId> given_up_order_;
  std::vector<std::shared_ptr<Member>> members_;
  std::vector<Gathered> gathered_;
  base::Instant gather_until_;
  uint64_t writes_ = 0;

  std::deque<std::function<void()>> todo_;
  bool acting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta

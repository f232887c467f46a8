#include "lib/proto/quorum_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/base/random.h"
#include "lib/model/operation.h"

namespace cantle::proto {
namespace {

using namespace quorum_tables;
using namespace std::chrono_literals;
using base::Code;
using base::Instant;
using model::AssignmentId;
using model::Metadata;

// One table of two partitions on p1, p2, p3; the machine is p1's.
struct Rig {
  explicit Rig(Self self = {}) {
    map.table = model::TableUuid::draw(random);
    map.replication = model::Replication::quorum;
    map.name = "t";
    map.txnseq = {1};
    map.next_region = {3};
    std::vector<model::Partition> partitions;
    for (uint32_t i = 0; i < 2; ++i) {
      model::Partition p;
      p.id = model::PartitionId::draw(random);
      p.region.value = i + 1;
      p.interval = i == 0 ? model::Interval{"", "m"} : model::Interval{"m", ""};
      p.min_txnseq = {1};
      for (uint32_t slot = 0; slot < 3; ++slot) {
        model::Assignment a;
        a.server = {"p" + std::to_string(slot + 1)};
        a.id = AssignmentId::draw(random);
        a.slot = slot;
        a.state = model::AssignmentState::available;
        a.since = {1};
        p.assignments.push_back(a);
      }
      partitions.push_back(std::move(p));
    }
    set(std::move(partitions));
    self.server = {"p1"};
    restart(std::move(self));
  }
  void restart(Self self = {}) {
    self.server = {"p1"};
    tables.emplace(std::move(self));
  }
  void set(std::vector<model::Partition> partitions) { map.partitions = model::Partitions(std::move(partitions)); }
  std::vector<model::Partition> partitions() const {
    std::vector<model::Partition> all;
    for (const auto& p : map.partitions) all.push_back(p);
    return all;
  }
  const model::Partition& p(size_t i) const { return *map.find(i == 0 ? "a" : "z"); }
  Held held(size_t i) const { return {p(i).id, p(i).assignments[0].id, p(i).region, map.table, p(i).interval, false}; }
  void take(Effects effects) {
    for (auto& e : effects) {
      const auto* settle = std::get_if<Settle>(&e);
      if (settle != nullptr && indexed)
        take(tables->settled(settle->table, settle->txnseq));
      else
        out.push_back(std::move(e));
    }
  }
  void install() { take(tables->map_read(now, "t", std::make_shared<const Metadata>(map))); }
  void create_all() {
    for (const auto& c : of<Create>()) take(tables->created(now, c.copy.assignment, base::ok()));
  }
  // The only copy of that partition that is not aside.
  void created(const model::PartitionId& partition, const base::Status& status) {
    for (const auto& c : tables->copies())
      if (c.held.partition == partition && !c.held.aside) return take(tables->created(now, c.held.assignment, status));
    FAIL() << "no such copy";
  }
  template <class E>
  std::vector<E> of() {
    std::vector<E> found;
    std::erase_if(out, [&](Effect& e) {
      auto* is = std::get_if<E>(&e);
      if (is != nullptr) found.push_back(std::move(*is));
      return is != nullptr;
    });
    return found;
  }

  base::SeededRandom random{7};
  Metadata map;
  Instant now{1000s};
  std::optional<QuorumTables> tables;
  Effects out;
  bool indexed = true;  // whatever is durable
};

TEST(QuorumTables, a_new_tables_copies_are_made_and_take_part_once_durable) {
  Rig rig;
  rig.install();
  EXPECT_TRUE(rig.of<Begin>().empty());
  EXPECT_EQ(rig.tables->where("t", "a", {1}).kind, Where::Kind::elsewhere);  // being made
  EXPECT_FALSE(rig.tables->begun());
  rig.create_all();
  const auto begun = rig.of<Begin>();
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0].table, "t");
  EXPECT_TRUE(rig.tables->begun());
  EXPECT_EQ(rig.tables->where("t", "a", {1}).kind, Where::Kind::here);
  EXPECT_EQ(rig.tables->partners(), (std::set<model::ServerId>{{"p2"}, {"p3"}}));
  // All of it is durable: from now on a copy that is not there is lost.
  const auto remembered = rig.of<Remember>();
  ASSERT_EQ(remembered.size(), 1u);
  EXPECT_EQ(remembered[0].seen.at(rig.map.table).value, 1u);
}

TEST(QuorumTables, a_table_is_not_remembered_before_all_of_its_copies_are_durable) {
  Rig rig;
  rig.install();
  rig.created(rig.p(0).id, base::ok());
  EXPECT_TRUE(rig.of<Remember>().empty());
  rig.created(rig.p(1).id, base::ok());
  EXPECT_EQ(rig.of<Remember>().size(), 1u);
}

TEST(QuorumTables, what_the_store_could_not_make_is_asked_for_again) {
  Rig rig;
  rig.install();
  rig.of<Create>();
  rig.created(rig.p(0).id, base::fail(Code::no_space, "full"));
  EXPECT_TRUE(rig.tables->tick(rig.now).empty());
  rig.now = rig.now + kAgainEvery;
  rig.take(rig.tables->tick(rig.now));
  ASSERT_EQ(rig.of<Create>().size(), 1u);
  rig.created(rig.p(0).id, base::ok());
  EXPECT_EQ(rig.of<Begin>().size(), 1u);
}

// Seed 989 of quorum_splits_and_moves: a cancelled move's copy, in the way of all that came of its partition.
TEST(QuorumTables, what_the_store_could_not_make_and_is_wanted_no_more_is_given_up) {
  Rig rig;
  rig.install();
  rig.of<Create>();
  rig.created(rig.p(0).id, base::fail(Code::unavailable, "another change is under way"));
  const auto own = rig.held(0).assignment;
  auto all = rig.partitions();
  ++rig.map.txnseq.value;
  std::erase_if(all.front().assignments, [](const auto& a) { return a.slot == 0; });
  rig.set(std::move(all));
  rig.install();
  EXPECT_TRUE(rig.of<Drop>().empty());
  rig.now = rig.now + kAgainEvery;
  rig.take(rig.tables->tick(rig.now));
  EXPECT_TRUE(rig.of<Create>().empty());
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].assignment, own);
  rig.take(rig.tables->dropped(rig.now, own, base::ok()));
  for (const auto& c : rig.tables->copies()) EXPECT_NE(c.held.assignment, own);
  // The other one is as it was: remembered once it is there.
  rig.created(rig.p(1).id, base::ok());
  EXPECT_EQ(rig.of<Remember>().size(), 1u);
}

// Seed 1284 of quorum, damaged: a move was cancelled, and the next one came to the same server, while the first one's
// copy was being made. What the store said of the one was taken for the other's, which then stood on the wrong log.
TEST(QuorumTables, another_of_the_partition_is_made_after_one_that_is_being_made_and_is_wanted_no_more) {
  Rig rig;
  rig.install();
  rig.of<Create>();
  const auto first = rig.held(0).assignment;
  auto all = rig.partitions();
  ++rig.map.txnseq.value;
  for (auto& a : all.front().assignments)
    if (a.id == first) a.id = model::AssignmentId::draw(rig.random);
  rig.set(std::move(all));
  rig.install();
  const auto second = rig.held(0).assignment;
  ASSERT_NE(first, second);
  EXPECT_TRUE(rig.of<Create>().empty());
  EXPECT_TRUE(rig.of<Drop>().empty());
  rig.take(rig.tables->created(rig.now, first, base::ok()));
  EXPECT_TRUE(rig.of<Begin>().empty());
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].assignment, first);
  const auto made = rig.of<Create>();
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].copy.assignment, second);
  rig.take(rig.tables->dropped(rig.now, first, base::ok()));
  rig.take(rig.tables->created(rig.now, second, base::ok()));
  EXPECT_EQ(rig.of<Begin>().size(), 1u);
}

TEST(QuorumTables, after_a_start_the_copies_that_are_there_take_part_as_soon_as_the_map_is) {
  Rig rig;
  Self self;
  self.held = {rig.held(0), rig.held(1)};
  self.seen[rig.map.table] = {1};
  rig.restart(self);
  EXPECT_EQ(rig.tables->where("t", "a", {1}).error.code, Code::no_such_table);
  rig.install();
  EXPECT_EQ(rig.of<Begin>().size(), 2u);
  EXPECT_TRUE(rig.of<Create>().empty());
}

// A voter whose log is gone would help to elect a leader that lacks what it acknowledged.
TEST(QuorumTables, s06_a_copy_that_was_there_and_is_not_any_more_is_not_made_anew) {
  Rig rig;
  Self self;
  self.held = {rig.held(0)};
  self.seen[rig.map.table] = {1};
  rig.restart(self);
  rig.install();
  EXPECT_EQ(rig.of<Exit>().size(), 1u);
  EXPECT_TRUE(rig.of<Create>().empty());
}

TEST(QuorumTables, s06_a_new_directory_under_a_known_name_votes_for_nothing) {
  Rig rig;
  Self self;
  self.fresh_under_known_name = true;
  rig.restart(self);
  rig.install();
  EXPECT_EQ(rig.of<Exit>().size(), 1u);
  EXPECT_TRUE(rig.of<Create>().empty());
}

TEST(QuorumTables, s06_an_assignment_that_came_later_is_made_only_while_it_is_to_be_filled) {
  Rig rig;
  auto all = rig.partitions();
  all[0].assignments[0].since = {5};
  rig.map.txnseq = {5};
  rig.set(all);
  Self self;
  self.held = {rig.held(1)};
  self.seen[rig.map.table] = {4};
  rig.restart(self);
  rig.install();
  EXPECT_EQ(rig.of<Exit>().size(), 1u);

  all[0].assignments[0].state = model::AssignmentState::proposed;
  rig.set(all);
  rig.restart(self);
  rig.install();
  EXPECT_TRUE(rig.of<Exit>().empty());
  EXPECT_EQ(rig.of<Create>().size(), 1u);
}

TEST(QuorumTables, s36_a_map_from_the_past_is_refused) {
  Rig rig;
  Self self;
  self.held = {rig.held(0), rig.held(1)};
  self.seen[rig.map.table] = {2};
  rig.restart(self);
  rig.install();
  EXPECT_TRUE(rig.of<Begin>().empty());
  const auto said = rig.of<Say>();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].what, "map-regressed");
}

TEST(QuorumTables, where_names_the_copy_the_map_that_is_missing_or_why_not) {
  Rig rig;
  rig.install();
  rig.create_all();
  EXPECT_EQ(rig.tables->where("nobody", "a", {0}).error.code, Code::no_such_table);
  EXPECT_EQ(rig.tables->where("t", "a", {2}).kind, Where::Kind::fetch);
  EXPECT_EQ(rig.tables->where("t", "a", {0}).partition->id, rig.p(0).id);
  auto all = rig.partitions();
  all[0].min_txnseq = {7};
  rig.map.txnseq = {7};
  rig.set(all);
  rig.install();
  const auto stale = rig.tables->where("t", "a", {1});
  EXPECT_EQ(stale.error.code, Code::stale_route);
  EXPECT_EQ(stale.error.txnseq, 7u);
  EXPECT_EQ(rig.tables->where("t", "z", {1}).kind, Where::Kind::here);
}

TEST(QuorumTables, messages_are_admitted_to_the_tenure_that_takes_part_alone) {
  Rig rig;
  rig.install();
  model::Envelope e;
  e.partition = rig.p(0).id;
  e.table_uuid = rig.map.table;
  e.to_assignment = rig.p(0).assignments[0].id;
  EXPECT_EQ(rig.tables->admit(e).error().code, Code::unavailable);  // it is being made
  rig.create_all();
  EXPECT_TRUE(rig.tables->admit(e));
  e.to_assignment = rig.p(1).assignments[0].id;
  EXPECT_EQ(rig.tables->admit(e).error().code, Code::unavailable);
  e.to_assignment = rig.p(0).assignments[0].id;
  e.table_uuid = model::TableUuid::draw(rig.random);
  EXPECT_EQ(rig.tables->admit(e).error().code, Code::invalid);
}

TEST(QuorumTables, a_dropped_tables_copies_go_and_are_forgotten) {
  Rig rig;
  rig.install();
  rig.create_all();
  rig.out.clear();
  rig.map.txnseq = {2};
  rig.map.dropped = true;
  rig.install();
  EXPECT_EQ(rig.of<End>().size(), 2u);
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 2u);
  EXPECT_EQ(rig.tables->where("t", "a", {0}).error.code, Code::no_such_table);
  rig.of<Remember>();
  rig.take(rig.tables->dropped(rig.now, drops[0].assignment, base::ok()));
  EXPECT_TRUE(rig.of<Remember>().empty());
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  rig.take(rig.tables->dropped(rig.now, drops[1].assignment, base::fail(Code::io_error, "later")));
  rig.now = rig.now + kAgainEvery;
  rig.take(rig.tables->tick(rig.now));
  ASSERT_EQ(rig.of<Drop>().size(), 1u);
  rig.take(rig.tables->dropped(rig.now, drops[1].assignment, base::ok()));
  const auto last = rig.of<Remember>();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_FALSE(last[0].seen.contains(rig.map.table));
  const auto observed = rig.of<PublishObserved>();
  ASSERT_EQ(observed.size(), 1u);
  EXPECT_EQ(observed[0].txnseq.value, 2u);
  EXPECT_TRUE(rig.tables->copies().empty());
}

// The server was away when the table was dropped: it has no map of it.
TEST(QuorumTables, a_table_under_dropped_goes_without_a_map) {
  Rig rig;
  Self self;
  self.held = {rig.held(0)};
  rig.restart(self);
  EXPECT_EQ(rig.tables->uuids().size(), 1u);
  EXPECT_FALSE(rig.tables->idle());
  rig.take(rig.tables->table_dropped(rig.map.table));
  EXPECT_EQ(rig.of<Drop>().size(), 1u);
  EXPECT_TRUE(rig.tables->uuids().empty());
  EXPECT_TRUE(rig.tables->idle());
}

TEST(QuorumTables, a_copy_that_is_being_made_is_dropped_when_it_is_there) {
  Rig rig;
  rig.install();
  rig.map.txnseq = {2};
  rig.map.dropped = true;
  rig.install();
  EXPECT_TRUE(rig.of<Drop>().empty());
  rig.create_all();
  EXPECT_EQ(rig.of<Drop>().size(), 2u);
  EXPECT_TRUE(rig.of<Begin>().empty());
}

TEST(QuorumTables, s52_a_copy_in_no_map_is_kept_and_takes_no_part) {
  Rig rig;
  Self self;
  auto stray = rig.held(0);
  stray.partition = model::PartitionId::draw(rig.random);
  stray.assignment = AssignmentId::draw(rig.random);
  self.held = {rig.held(0), rig.held(1), stray};
  rig.restart(self);
  rig.install();
  EXPECT_EQ(rig.of<Begin>().size(), 2u);
  EXPECT_TRUE(rig.of<Drop>().empty());
  EXPECT_EQ(rig.of<Say>().size(), 1u);
  const auto copies = rig.tables->copies();
  EXPECT_EQ(std::count_if(copies.begin(), copies.end(), [](const auto& c) { return c.role == "unknown"; }), 1);
}

// Its partition goes on without it: whoever took it out had seen that it does not vote.
TEST(QuorumTables, what_was_replaced_ends_and_goes_to_the_trash) {
  Rig rig;
  rig.install();
  rig.create_all();
  rig.out.clear();
  auto all = rig.partitions();
  all[0].assignments.erase(all[0].assignments.begin());
  all[0].min_txnseq = rig.map.txnseq = {2};
  rig.set(all);
  rig.install();
  EXPECT_EQ(rig.of<End>().size(), 1u);
  EXPECT_EQ(rig.of<Drop>().size(), 1u);
  EXPECT_EQ(rig.tables->where("t", "a", {2}).kind, Where::Kind::elsewhere);
}

TEST(QuorumTables, a_copy_that_was_aside_when_the_server_ended_goes_when_the_map_is_read) {
  Rig rig;
  auto all = rig.partitions();
  const auto gone = all[0].assignments.front();
  all[0].assignments.erase(all[0].assignments.begin());
  all[0].min_txnseq = rig.map.txnseq = {2};
  Self self;
  self.held = {rig.held(0), rig.held(1)};
  self.held[0].aside = true;
  rig.set(all);
  rig.restart(self);
  rig.install();
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].assignment, gone.id);
}

// p4 takes the place of p2, and then does not.
TEST(QuorumTables, a_replica_is_told_who_should_vote_and_who_is_fed) {
  Rig rig;
  rig.install();
  rig.create_all();
  const auto first = rig.of<Tell>();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].members.voters.size(), 3u);
  EXPECT_EQ(first[0].members.txnseq, model::TxnSeq{1});
  const auto change = [&](model::AssignmentState to, model::TxnSeq cancelled) {
    auto all = rig.partitions();
    auto& p = all[0];
    rig.map.txnseq = p.min_txnseq = rig.map.txnseq.next();
    if (p.moves.empty()) {
      model::Assignment a;
      a.server = {"p4"};
      a.id = AssignmentId::draw(rig.random);
      a.slot = 1;
      p.assignments.insert(p.assignments.begin() + 2, a);
      p.moves.push_back({model::AttemptId::draw(rig.random), p.assignments[1].id, a.id, false, p.min_txnseq});
    }
    p.assignments[2].state = to;
    p.moves[0].cancelled = cancelled;
    rig.set(all);
    rig.install();
    const auto told = rig.of<Tell>();
    EXPECT_EQ(told.size(), 1u);  // the other partition's is as it was
    return told.empty() ? quorum::Members() : told[0].members;
  };
  const auto voter = [](const quorum::Members& m) { return m.voters.at(1).server.name; };
  auto m = change(model::AssignmentState::proposed, {0});
  EXPECT_EQ(voter(m), "p2");
  EXPECT_EQ(m.fed.size(), 3u);
  m = change(model::AssignmentState::initializing, {0});
  EXPECT_EQ(voter(m), "p4");
  EXPECT_EQ(m.fed.size(), 4u);
  EXPECT_EQ(m.acknowledge, model::TxnSeq{0});
  m = change(model::AssignmentState::initializing, rig.map.txnseq.next());
  EXPECT_EQ(m.pipeline, quorum::Pipeline::chain);
  EXPECT_EQ(voter(m), "p2");
  EXPECT_EQ(m.fed.size(), 4u);
  EXPECT_EQ(m.acknowledge, m.txnseq);
  rig.map.txnseq = rig.map.txnseq.next();
  rig.map.options["pipeline"] = "star";
  rig.install();
  const auto told = rig.of<Tell>();
  ASSERT_EQ(told.size(), 2u);
  for (const auto& t : told) EXPECT_EQ(t.members.pipeline, quorum::Pipeline::star);
}

TEST(QuorumTables, a_table_dropped_and_made_again_is_another_table) {
  Rig rig;
  rig.install();
  rig.create_all();
  rig.map.txnseq = {2};
  rig.map.dropped = true;
  rig.install();
  rig.out.clear();
  Rig other;
  other.map.table = model::TableUuid::draw(rig.random);
  auto all = other.partitions();
  for (auto& p : all) {
    p.id = model::PartitionId::draw(rig.random);
    for (auto& a : p.assignments) a.id = AssignmentId::draw(rig.random);
  }
  other.set(all);
  rig.map = other.map;
  rig.install();
  EXPECT_EQ(rig.of<Create>().size(), 2u);
  EXPECT_EQ(rig.tables->tables(), std::vector<std::string>{"t"});
}

// --- splits ----------------------------------------------------------------------------------------

// The table of the Rig, changed by real operations from here on.
struct SplitRig : Rig {
  SplitRig() {
    map.replicas = 3;
    map.txnid = model::TxnId::draw(random);
    map.changes = {model::ChangeId::draw(random)};
    install();
    create_all();
    out.clear();
  }
  void must(const model::Operation& op) {
    const std::vector<model::Operation> ops{op};
    auto next =
        model::apply(&map, ops, {model::TxnId::draw(random), model::ChangeId::draw(random), std::string(32, 'h')});
    ASSERT_TRUE(next) << base::to_string(next.error());
    map = std::move(*next);
    install();
  }
  void begin_split(const std::string& key, const std::string& point) {
    parent = *map.find(key);
    split = model::draw_split(parent, point, {}, {}, random);
    must(split);
  }
  void finalize() {
    model::ops::FinalizeSplit op{parent.id, split.attempt, {}, model::ops::FinalCut{cut, {5}, 2}};
    for (const auto* child : {&split.low, &split.high})
      for (const auto& a : child->assignments) op.ready.push_back(a.id);
    must(op);
  }
  void split_all(const std::string& key, const std::string& point) {
    begin_split(key, point);
    must(model::ops::Initialize{parent.id, split.attempt});
    finalize();
  }
  // Of that partition, whose replica went to another server.
  void take_out(const model::PartitionId& partition) {
    auto all = partitions();
    ++map.txnseq.value;
    for (auto& p : all) {
      if (p.id != partition) continue;
      p.min_txnseq = map.txnseq;
      auto& a = p.assignments.front();
      a.server = {"p4"};
      a.id = AssignmentId::draw(random);
      a.source = {};
      a.since = map.txnseq;
    }
    set(std::move(all));
    install();
  }
  // As after a start, with these copies.
  void start_with(std::vector<Held> held, model::TxnSeq seen) {
    Self self;
    self.held = std::move(held);
    self.seen[map.table] = seen;
    restart(std::move(self));
    out.clear();
  }
  Held copy_of(const model::Partition& p, bool aside = false) const {
    return {p.id, model::find_assignment(p, model::ServerId{"p1"})->id, p.region, map.table, p.interval, aside};
  }

  model::Partition parent;
  model::ops::SplitPartition split;
  model::LogPoint cut{{4}, {100}, 9};
};

TEST(QuorumTables, a_replica_is_shown_what_the_map_says_of_its_split) {
  SplitRig rig;
  rig.begin_split("a", "f");
  auto shown = rig.of<ShowReshape>();
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].partition, rig.parent.id);
  EXPECT_EQ(shown[0].seen.attempt, rig.split.attempt);
  EXPECT_FALSE(shown[0].seen.may_cut);
  rig.must(model::ops::Initialize{rig.parent.id, rig.split.attempt});
  shown = rig.of<ShowReshape>();
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_TRUE(shown[0].seen.may_cut);
  EXPECT_EQ(shown[0].seen.children.size(), 2u);
  rig.must(model::ops::AbortSplit{rig.parent.id, rig.split.attempt});
  shown = rig.of<ShowReshape>();
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_TRUE(shown[0].seen.there && shown[0].seen.attempt.none());
}

TEST(QuorumTables, a_finished_split_ends_the_replica_and_divides_its_copy) {
  SplitRig rig;
  rig.split_all("a", "f");
  const auto ended = rig.of<End>();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].into, rig.map.txnseq);
  auto divides = rig.of<Divide>();
  ASSERT_EQ(divides.size(), 1u);
  EXPECT_EQ(divides[0].cut, rig.cut);
  EXPECT_EQ(divides[0].point, "f");
  EXPECT_TRUE(rig.of<Create>().empty());
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  // Not yet; then it is durable.
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::fail(Code::unavailable, "later")));
  EXPECT_TRUE(rig.of<Say>().empty());
  rig.now = rig.now + kDivideAgain;
  rig.take(rig.tables->tick(rig.now));
  EXPECT_EQ(rig.of<Divide>().size(), 1u);
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::ok()));
  const auto begun = rig.of<Begin>();
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(rig.tables->where("t", "a", {}).partition->id, rig.split.low.id);
  EXPECT_EQ(rig.tables->where("t", "g", {}).kind, Where::Kind::here);
  const auto observed = rig.of<PublishObserved>();
  ASSERT_EQ(observed.size(), 1u);
  EXPECT_EQ(observed[0].txnseq, rig.map.txnseq);
  const auto remembered = rig.of<Remember>();
  ASSERT_FALSE(remembered.empty());
  EXPECT_EQ(remembered.back().seen.at(rig.map.table), rig.map.txnseq);
}

// Until then the journal alone says of which log the children were made (R16).
TEST(QuorumTables, a_split_is_observed_when_the_index_has_it_in_each_life_anew) {
  SplitRig rig;
  rig.indexed = false;
  rig.split_all("a", "f");
  EXPECT_TRUE(rig.of<Settle>().empty());
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::ok()));
  const auto first = rig.of<Settle>();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].txnseq, rig.map.txnseq);
  // Another one meanwhile: the answer to the first says nothing of it.
  rig.split_all("z", "t");
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::ok()));
  const auto second = rig.of<Settle>();
  ASSERT_EQ(second.size(), 1u);
  rig.take(rig.tables->settled(rig.map.table, first[0].txnseq));
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  rig.take(rig.tables->settled(rig.map.table, second[0].txnseq));
  EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
  EXPECT_TRUE(rig.of<Settle>().empty());

  std::vector<Held> held;
  for (const auto& p : rig.map.partitions) held.push_back(rig.copy_of(p));
  rig.start_with(held, rig.map.txnseq);
  rig.install();
  EXPECT_EQ(rig.of<Settle>().size(), 1u);
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
}

// S42, S45: a server that was away through two splits of the same keys.
TEST(QuorumTables, a_server_that_was_away_divides_step_by_step) {
  SplitRig rig;
  const auto first = rig.copy_of(*rig.map.find("a"));
  const auto other = rig.copy_of(*rig.map.find("z"));
  const auto seen = rig.map.txnseq;
  rig.split_all("a", "f");
  const auto root = rig.parent.id;
  rig.split_all("a", "c");
  rig.start_with({first, other}, seen);
  rig.install();
  auto divides = rig.of<Divide>();
  ASSERT_EQ(divides.size(), 1u);
  EXPECT_EQ(divides[0].parent, root);
  EXPECT_TRUE(rig.of<Create>().empty());
  rig.take(rig.tables->divided(rig.now, root, base::ok()));
  divides = rig.of<Divide>();
  ASSERT_EQ(divides.size(), 1u);
  EXPECT_EQ(divides[0].parent, rig.parent.id);
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::ok()));
  EXPECT_TRUE(rig.tables->begun());
  EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
  EXPECT_TRUE(rig.of<Say>().empty());
}

// Its log ends before the cut: it keeps the parent, and takes part in the children as one that has nothing yet.
TEST(QuorumTables, a_replica_without_the_cut_begins_its_children_anew_and_keeps_the_parent_until_they_are_filled) {
  SplitRig rig;
  rig.split_all("a", "f");
  rig.out.clear();
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::fail(Code::not_found, "no such block")));
  EXPECT_EQ(rig.of<SetAside>().size(), 1u);
  EXPECT_EQ(rig.of<Create>().size(), 2u);
  rig.created(rig.split.low.id, base::ok());
  rig.created(rig.split.high.id, base::ok());
  EXPECT_EQ(rig.of<Begin>().size(), 2u);
  EXPECT_EQ(rig.tables->lagging().size(), 2u);
  rig.take(rig.tables->filled(rig.split.low.id));
  EXPECT_TRUE(rig.of<Drop>().empty());
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  // Started again meanwhile: it knows what it still lacks.
  const auto* low = rig.map.find(rig.split.low.id);
  const auto* high = rig.map.find(rig.split.high.id);
  rig.start_with(
      {rig.copy_of(rig.parent, true), rig.copy_of(*low), rig.copy_of(*high), rig.copy_of(*rig.map.find("z"))},
      rig.map.txnseq);
  rig.install();
  EXPECT_EQ(rig.of<Begin>().size(), 3u);
  EXPECT_EQ(rig.tables->lagging().size(), 2u);
  rig.take(rig.tables->filled(low->id));
  rig.take(rig.tables->filled(high->id));
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].partition, rig.parent.id);
  rig.take(rig.tables->dropped(rig.now, drops[0].assignment, base::ok()));
  EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
}

// R16: who may have had the cut, and is damaged, is not taken for one that never had it; in no later life either.
TEST(QuorumTables, what_a_damaged_replica_begins_anew_is_not_whole) {
  for (const auto& [code, whole] :
       {std::pair(Code::not_found, true), std::pair(Code::corrupt, false), std::pair(Code::exists, false)}) {
    SplitRig rig;
    rig.split_all("a", "f");
    rig.out.clear();
    rig.take(rig.tables->divided(rig.now, rig.parent.id, base::fail(code, "")));
    const auto aside = rig.of<SetAside>();
    ASSERT_EQ(aside.size(), 1u);
    EXPECT_EQ(aside[0].whole, whole);
    auto made = rig.of<Create>();
    ASSERT_EQ(made.size(), 2u);
    for (const auto& m : made) EXPECT_EQ(m.copy.whole, whole);
    // One of them was not durable when it died, and was split since.
    auto parent = rig.copy_of(rig.parent, true);
    parent.whole = whole;
    const auto other = rig.copy_of(*rig.map.find("z"));
    const auto low = rig.copy_of(*rig.map.find("a"));
    rig.split_all("g", "h");
    rig.start_with({parent, low, other}, rig.map.txnseq);
    rig.install();
    made = rig.of<Create>();
    ASSERT_EQ(made.size(), 2u);
    for (const auto& m : made) EXPECT_EQ(m.copy.whole, whole);
  }
}

// Invariant 7: METADATA has taken it out of a child, whose other replicas have all of it.
TEST(QuorumTables, a_parent_aside_waits_for_no_child_that_went_elsewhere) {
  for (const bool other_filled_first : {true, false}) {
    SplitRig rig;
    rig.split_all("a", "f");
    rig.take(rig.tables->divided(rig.now, rig.parent.id, base::fail(Code::not_found, "no such block")));
    rig.create_all();
    if (other_filled_first) rig.take(rig.tables->filled(rig.split.high.id));
    rig.out.clear();
    rig.take_out(rig.split.low.id);
    auto drops = rig.of<Drop>();
    ASSERT_EQ(drops.size(), other_filled_first ? 2u : 1u);
    EXPECT_EQ(drops[0].partition, rig.split.low.id);
    if (!other_filled_first) {
      rig.take(rig.tables->filled(rig.split.high.id));
      drops = rig.of<Drop>();
      ASSERT_EQ(drops.size(), 1u);
    }
    EXPECT_EQ(drops.back().partition, rig.parent.id);
    rig.take(rig.tables->dropped(rig.now, drops.back().assignment, base::ok()));
    EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
  }
}

// The store is at it when the map comes that has one of the children elsewhere.
TEST(QuorumTables, a_child_that_goes_elsewhere_while_it_is_made_is_dropped_when_it_is_there) {
  SplitRig rig;
  rig.split_all("a", "f");
  const auto asked = rig.of<Divide>();
  ASSERT_EQ(asked.size(), 1u);
  rig.take_out(rig.split.low.id);
  rig.out.clear();
  rig.take(rig.tables->divided(rig.now, rig.parent.id, base::ok()));
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].assignment, asked[0].low.assignment);
  const auto begun = rig.of<Begin>();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].copy.partition, rig.split.high.id);
}

// It was away when it was replaced, and what it had a copy of has been split since.
TEST(QuorumTables, a_copy_that_was_replaced_before_its_partition_was_split_is_dropped) {
  SplitRig rig;
  const auto first = rig.copy_of(*rig.map.find("a")), other = rig.copy_of(*rig.map.find("z"));
  rig.take_out(first.partition);
  rig.split_all("a", "f");
  rig.start_with({first, other}, {1});
  rig.install();
  const auto drops = rig.of<Drop>();
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].assignment, first.assignment);
  EXPECT_TRUE(rig.of<Say>().empty());
}

// S6: a child whose parent's copy was never here has lost its log.
TEST(QuorumTables, a_child_of_which_nothing_is_here_is_lost) {
  SplitRig rig;
  const auto other = rig.copy_of(*rig.map.find("z"));
  const auto seen = rig.map.txnseq;
  rig.split_all("a", "f");
  rig.start_with({other}, seen);
  rig.install();
  EXPECT_EQ(rig.of<Exit>().size(), 1u);
  EXPECT_TRUE(rig.of<Create>().empty());
}

// --- merges ----------------------------------------------------------------------------------------

struct MergeRig : SplitRig {
  void begin_merge(const std::string& low_key, const std::string& high_key) {
    low = *map.find(low_key);
    high = *map.find(high_key);
    merge_op = model::draw_merge(low, high, random);
    must(merge_op);
  }
  void finalize_merge() {
    model::ops::FinalizeMerge op{
        merge_op.attempt, low.id, high.id, {}, model::ops::FinalCuts{{cut, {5}, 2}, {high_cut, {6}, 3}}};
    for (const auto& a : merge_op.target.assignments) op.ready.push_back(a.id);
    must(op);
  }
  void merge_all(const std::string& low_key, const std::string& high_key) {
    begin_merge(low_key, high_key);
    finalize_merge();
  }
  const model::PartitionId& target() const { return merge_op.target.id; }

  model::Partition low, high;
  model::ops::MergePartitions merge_op;
  model::LogPoint high_cut{{7}, {50}, 11};
};

TEST(QuorumTables, both_replicas_are_shown_what_the_map_says_of_their_merge) {
  MergeRig rig;
  rig.begin_merge("a", "z");
  auto shown = rig.of<ShowReshape>();
  ASSERT_EQ(shown.size(), 2u);
  for (const auto& s : shown) {
    EXPECT_EQ(s.seen.attempt, rig.merge_op.attempt);
    EXPECT_TRUE(s.seen.may_cut);
    ASSERT_TRUE(s.seen.merge);
    EXPECT_EQ(s.seen.merge->low, rig.low.id);
    EXPECT_EQ(s.seen.merge->high, rig.high.id);
    ASSERT_EQ(s.seen.children.size(), 1u);
    EXPECT_EQ(s.seen.children[0].size(), 3u);
  }
  rig.must(model::ops::AbortMerge{rig.merge_op.attempt, rig.low.id, rig.high.id});
  shown = rig.of<ShowReshape>();
  ASSERT_EQ(shown.size(), 2u);
  for (const auto& s : shown) EXPECT_TRUE(s.seen.there && s.seen.attempt.none() && !s.seen.merge);
  EXPECT_TRUE(rig.of<End>().empty());
}

TEST(QuorumTables, a_finished_merge_ends_both_replicas_and_joins_their_copies) {
  MergeRig rig;
  rig.merge_all("a", "z");
  const auto ended = rig.of<End>();
  ASSERT_EQ(ended.size(), 2u);
  for (const auto& e : ended) EXPECT_EQ(e.into, rig.map.txnseq);
  auto merges = rig.of<Merge>();
  ASSERT_EQ(merges.size(), 1u);
  EXPECT_EQ(merges[0].low, rig.low.id);
  EXPECT_EQ(merges[0].high, rig.high.id);
  EXPECT_EQ(merges[0].low_cut, rig.cut);
  EXPECT_EQ(merges[0].high_cut, rig.high_cut);
  EXPECT_EQ(merges[0].target.partition, rig.target());
  EXPECT_EQ(merges[0].target.assignment, rig.merge_op.target.assignments[0].id);
  EXPECT_TRUE(rig.of<Create>().empty()) << "nobody votes without a log who has one";
  EXPECT_TRUE(rig.of<Begin>().empty());
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  // Another map comes meanwhile, and the store is not ready yet.
  rig.must(model::ops::SetOption{"pipeline", "star"});
  EXPECT_TRUE(rig.of<Merge>().empty());
  EXPECT_TRUE(rig.of<Create>().empty());
  rig.take(rig.tables->merged(rig.now, rig.low.id, base::fail(Code::unavailable, "later")));
  EXPECT_TRUE(rig.of<Say>().empty());
  rig.now = rig.now + kDivideAgain;
  rig.take(rig.tables->tick(rig.now));
  EXPECT_EQ(rig.of<Merge>().size(), 1u);
  rig.take(rig.tables->merged(rig.now, rig.low.id, base::ok()));
  const auto begun = rig.of<Begin>();
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].copy.partition, rig.target());
  EXPECT_EQ(begun[0].copy.interval, (model::Interval{"", ""}));
  EXPECT_EQ(rig.tables->where("t", "a", {}).kind, Where::Kind::here);
  EXPECT_EQ(rig.tables->where("t", "z", {}).partition->id, rig.target());
  EXPECT_TRUE(rig.tables->lagging().empty());
  EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
  const auto remembered = rig.of<Remember>();
  ASSERT_FALSE(remembered.empty());
  EXPECT_EQ(remembered.back().seen.at(rig.map.table), rig.map.txnseq);
}

// S42, S45: a server that was away while one was split, a half merged with the neighbour, and that split again.
TEST(QuorumTables, a_server_that_was_away_divides_and_merges_step_by_step) {
  MergeRig rig;
  const auto first = rig.copy_of(*rig.map.find("a")), other = rig.copy_of(*rig.map.find("z"));
  const auto seen = rig.map.txnseq;
  rig.split_all("a", "f");
  const auto root = rig.parent.id;
  const auto middle = rig.split.high.id;
  rig.merge_all("g", "z");
  rig.split_all("z", "p");
  rig.start_with({first, other}, seen);
  rig.install();
  ASSERT_EQ(rig.of<Divide>().size(), 1u);
  EXPECT_TRUE(rig.of<Merge>().empty()) << "the low one is still to come";
  EXPECT_TRUE(rig.of<Create>().empty());
  EXPECT_TRUE(rig.of<Begin>().empty());
  rig.take(rig.tables->divided(rig.now, root, base::ok()));
  EXPECT_EQ(rig.of<Begin>().size(), 1u);  // the low child of the first
  const auto merges = rig.of<Merge>();
  ASSERT_EQ(merges.size(), 1u);
  EXPECT_EQ(merges[0].low, middle);
  EXPECT_EQ(merges[0].high, other.partition);
  EXPECT_TRUE(rig.of<Create>().empty());
  EXPECT_TRUE(rig.of<Divide>().empty());
  rig.take(rig.tables->merged(rig.now, middle, base::ok()));
  const auto divides = rig.of<Divide>();
  ASSERT_EQ(divides.size(), 1u);
  EXPECT_EQ(divides[0].parent, rig.target());
  EXPECT_TRUE(rig.of<PublishObserved>().empty());
  rig.take(rig.tables->divided(rig.now, rig.target(), base::ok()));
  EXPECT_TRUE(rig.tables->begun());
  EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
  EXPECT_TRUE(rig.of<Say>().empty());
  EXPECT_TRUE(rig.of<Drop>().empty());
}

// Each round has two ways back: what comes of what is looked up once for each, not once for each way.
TEST(QuorumTables, a_server_that_was_away_follows_forty_splits_and_merges) {
  constexpr int kRounds = 40;
  MergeRig rig;
  const auto first = rig.copy_of(*rig.map.find("a")), other = rig.copy_of(*rig.map.find("z"));
  const auto seen = rig.map.txnseq;
  for (int i = 0; i < kRounds; ++i) {
    rig.split_all("a", "f");
    rig.merge_all("a", "g");
  }
  rig.start_with({first, other}, seen);
  rig.install();
  for (int i = 0; i < kRounds; ++i) {
    const auto divides = rig.of<Divide>();
    ASSERT_EQ(divides.size(), 1u) << i;
    rig.take(rig.tables->divided(rig.now, divides[0].parent, base::ok()));
    const auto merges = rig.of<Merge>();
    ASSERT_EQ(merges.size(), 1u) << i;
    rig.take(rig.tables->merged(rig.now, merges[0].low, base::ok()));
  }
  EXPECT_TRUE(rig.tables->begun());
  EXPECT_TRUE(rig.of<Create>().empty());
  // And one that cannot follow from the start.
  rig.start_with({first, other}, seen);
  rig.install();
  rig.of<Create>();
  rig.take(rig.tables->divided(rig.now, first.partition, base::fail(Code::not_found, "no such block")));
  const auto made = rig.of<Create>();
  ASSERT_EQ(made.size(), 1u);
  rig.created(made[0].copy.partition, base::ok());
  EXPECT_EQ(rig.tables->lagging().size(), 1u);
  rig.take(rig.tables->filled(made[0].copy.partition));
  EXPECT_EQ(rig.of<Drop>().size(), 1u);
}

// S27: one of the two cuts is not here. Nothing is made of half of it; both are kept until the target is filled.
TEST(QuorumTables, a_replica_without_both_cuts_begins_the_target_anew_and_keeps_both_until_it_is_filled) {
  for (const Code code : {Code::not_found, Code::corrupt, Code::exists}) {
    MergeRig rig;
    rig.merge_all("a", "z");
    rig.out.clear();
    rig.take(rig.tables->merged(rig.now, rig.low.id, base::fail(code, "no such block")));
    EXPECT_EQ(rig.of<SetAside>().size(), 2u);
    auto made = rig.of<Create>();
    ASSERT_EQ(made.size(), 1u);
    EXPECT_EQ(made[0].copy.partition, rig.target());
    rig.created(rig.target(), base::ok());
    EXPECT_EQ(rig.of<Begin>().size(), 1u);
    EXPECT_EQ(rig.tables->lagging().size(), 1u);
    EXPECT_TRUE(rig.of<Drop>().empty());
    // Started again meanwhile: it knows what it still lacks.
    rig.start_with({rig.copy_of(rig.low, true), rig.copy_of(rig.high, true), rig.copy_of(*rig.map.find(rig.target()))},
                   rig.map.txnseq);
    rig.install();
    EXPECT_EQ(rig.of<Begin>().size(), 1u);
    EXPECT_EQ(rig.tables->lagging().size(), 1u);
    EXPECT_TRUE(rig.of<PublishObserved>().empty());
    rig.take(rig.tables->filled(rig.target()));
    const auto drops = rig.of<Drop>();
    ASSERT_EQ(drops.size(), 2u);
    for (const auto& d : drops) rig.take(rig.tables->dropped(rig.now, d.assignment, base::ok()));
    EXPECT_EQ(rig.of<PublishObserved>().size(), 1u);
  }
}

// It died while it set them aside: one of them was durable.
TEST(QuorumTables, one_that_is_left_alone_of_a_merge_is_set_aside_too) {
  for (const bool low_is_left : {true, false}) {
    MergeRig rig;
    rig.merge_all("a", "z");
    rig.start_with({rig.copy_of(rig.low, !low_is_left), rig.copy_of(rig.high, low_is_left)}, rig.map.txnseq);
    rig.install();
    const auto aside = rig.of<SetAside>();
    ASSERT_EQ(aside.size(), 1u);
    EXPECT_EQ(aside[0].partition, low_is_left ? rig.low.id : rig.high.id);
    EXPECT_TRUE(rig.of<Merge>().empty());
    EXPECT_TRUE(rig.of<Exit>().empty());
    EXPECT_EQ(rig.of<Create>().size(), 1u);
  }
}

// One half never came here, because its parent's cut did not: what there is of the other is no half of the target.
TEST(QuorumTables, who_fell_behind_a_split_falls_behind_the_merge_of_what_came_of_it) {
  MergeRig rig;
  const auto first = rig.copy_of(*rig.map.find("a")), other = rig.copy_of(*rig.map.find("z"));
  const auto seen = rig.map.txnseq;
  rig.split_all("a", "f");
  const auto root = rig.parent.id;
  const auto low_child = rig.split.low.id;
  rig.merge_all("g", "z");
  rig.start_with({first, other}, seen);
  rig.install();
  EXPECT_EQ(rig.of<Divide>().size(), 1u);
  rig.take(rig.tables->divided(rig.now, root, base::fail(Code::not_found, "no such block")));
  EXPECT_EQ(rig.of<SetAside>().size(), 2u);  // the parent, and the neighbour
  const auto made = rig.of<Create>();
  ASSERT_EQ(made.size(), 2u);
  for (const auto& c : made) rig.created(c.copy.partition, base::ok());
  EXPECT_EQ(rig.tables->lagging().size(), 2u);
  rig.take(rig.tables->filled(low_child));
  EXPECT_TRUE(rig.of<Drop>().empty());
  rig.take(rig.tables->filled(rig.target()));
  EXPECT_EQ(rig.of<Drop>().size(), 2u);
}

// S6: a target of which nothing is here is lost, unless this server was never there.
TEST(QuorumTables, a_merges_target_of_which_nothing_is_here_is_lost) {
  MergeRig rig;
  const auto seen = rig.map.txnseq;
  rig.merge_all("a", "z");
  rig.start_with({}, seen);
  rig.install();
  EXPECT_EQ(rig.of<Exit>().size(), 1u);
  EXPECT_TRUE(rig.of<Create>().empty());
  rig.restart();
  rig.install();
  EXPECT_TRUE(rig.of<Exit>().empty());
  EXPECT_EQ(rig.of<Create>().size(), 1u);
}

}  // namespace
}  // namespace cantle::proto

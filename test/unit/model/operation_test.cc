#include "lib/model/operation.h"

#include <gtest/gtest.h>

#include "lib/model/table_config.h"
#include "lib/model/validate.h"
#include "test/support/random_table.h"

namespace cantle::model {
namespace {

using base::Code;
using test::RandomTable;

// A table of one partition on p1, p2, p3 of five servers, changed step by step.
class Story : public testing::Test {
 protected:
  Story() : random(7) {
    RandomTable seed(11);
    now = seed.current();
  }
  const Partition& only() const { return now.partitions.front(); }
  base::Status change(std::vector<Operation> ops) {
    ApplyContext ctx{TxnId::draw(random), ChangeId::draw(random), std::string(32, 'h')};
    auto next = apply(&now, ops, ctx);
    if (!next) return base::fail(std::move(next).error());
    EXPECT_TRUE(validate(*next)) << to_string(validate(*next).error());
    now = std::move(*next);
    return base::ok();
  }
  void must(Operation op) {
    auto status = change({op});
    ASSERT_TRUE(status) << to_string(op) << ": " << to_string(status.error());
  }
  void refuses(Operation op, Code code, std::string_view rule) {
    const auto before = now;
    auto status = change({op});
    ASSERT_FALSE(status) << to_string(op);
    EXPECT_EQ(status.error().code, code) << to_string(status.error());
    EXPECT_EQ(status.error().detail, rule) << to_string(status.error());
    EXPECT_EQ(now, before);
  }
  ops::SplitPartition split(std::vector<ServerId> low = {}, std::vector<ServerId> high = {}) {
    return draw_split(only(), "m", low, high, random);
  }
  static std::vector<AssignmentId> ids(const Child& child) {
    std::vector<AssignmentId> out;
    for (const auto& a : child.assignments) out.push_back(a.id);
    return out;
  }
  ops::FinalizeSplit finalize() const { return RandomTable::finalize(only()); }

  base::SeededRandom random;
  Metadata now;
};

TEST_F(Story, a_split_where_the_parent_is_needs_no_copy) {
  const auto op = split();
  must(op);
  const auto& s = *only().split;
  EXPECT_EQ(only().state, PartitionState::splitting);
  EXPECT_EQ(s.attempt, op.attempt);
  EXPECT_EQ(s.low.id, op.low.id);
  EXPECT_EQ(s.low.region.value, 2U);
  EXPECT_EQ(s.high.region.value, 3U);
  for (const auto& a : s.low.assignments) EXPECT_EQ(a.source, find_assignment(only(), a.server)->id);
  must(ops::Initialize{only().id, op.attempt});
  const auto parent = only();
  must(finalize());
  ASSERT_EQ(now.partitions.size(), 2U);
  EXPECT_EQ(now.partitions[0].interval, (Interval{"", "m"}));
  EXPECT_EQ(now.partitions[1].interval, (Interval{"m", ""}));
  for (const auto& p : now.partitions) {
    EXPECT_EQ(p.min_txnseq, now.txnseq);
    EXPECT_EQ(p.parent, parent.id);
    for (const auto& a : p.assignments) EXPECT_EQ(a.state, AssignmentState::available);
  }
  ASSERT_EQ(now.ended.size(), 1U);
  EXPECT_EQ(now.ended[0].parent_assignments, parent.assignments);
  EXPECT_EQ(now.ended[0].low, op.low.id);
  must(ops::SweepEnded{parent.id, op.attempt});
  EXPECT_TRUE(now.ended.empty());
}

TEST_F(Story, a_split_onto_others_waits_until_a_majority_of_each_child_is_filled) {
  const auto op = split({{"p3"}, {"p4"}, {"p5"}}, {});
  must(op);
  refuses(ops::MarkAvailable{op.low.assignments[1].id, {"p4"}}, Code::conflict, "state");
  must(ops::Initialize{only().id, op.attempt});
  refuses(ops::Initialize{only().id, op.attempt}, Code::conflict, "phase");
  refuses(ops::FinalizeSplit{only().id, op.attempt, ids(only().split->high)}, Code::conflict, "ready");
  auto both = ids(only().split->high);
  both.push_back(op.low.assignments[0].id);
  both.push_back(op.low.assignments[1].id);
  refuses(ops::FinalizeSplit{only().id, op.attempt, both}, Code::conflict, "ready");  // p4 says nothing yet
  refuses(ops::MarkAvailable{op.low.assignments[1].id, {"p5"}}, Code::invalid, "assignment");
  must(ops::MarkAvailable{op.low.assignments[1].id, {"p4"}});
  must(ops::MarkAvailable{op.low.assignments[1].id, {"p4"}});  // asked again because the answer was lost
  must(ops::FinalizeSplit{only().id, op.attempt, both});
  const auto low = now.partitions[0];
  EXPECT_EQ(low.assignments[0].state, AssignmentState::available);
  EXPECT_EQ(low.assignments[1].state, AssignmentState::available);
  EXPECT_EQ(low.assignments[2].state, AssignmentState::initializing);
  // What it is filled with stays, and is remembered, until it is.
  refuses(ops::SweepEnded{now.ended[0].id, op.attempt}, Code::conflict, "needed");
  refuses(draw_replace(low, low.assignments[0], {"p1"}, false, random), Code::conflict, "filling");
  const auto instead = draw_replace(low, low.assignments[2], {"p1"}, false, random);
  must(instead);
  must(ops::CancelMove{low.id, instead.attempt});
  const auto of_dead = draw_replace(low, low.assignments[0], {"p1"}, true, random);
  must(of_dead);
  must(ops::CancelMove{low.id, of_dead.attempt});
  must(ops::MarkAvailable{low.assignments[2].id, {"p5"}});
  must(ops::SweepEnded{now.ended[0].id, op.attempt});
  EXPECT_EQ(now.partitions[0].assignments[2].state, AssignmentState::available);
}

TEST_F(Story, a_source_that_was_still_being_filled_does_not_make_its_child_ready) {
  const auto first = split({{"p4"}, {"p1"}, {"p2"}}, {});
  must(first);
  must(ops::Initialize{only().id, first.attempt});
  must(finalize());  // p4 enters INITIALIZING
  ASSERT_EQ(only().assignments[0].state, AssignmentState::initializing);
  const auto second = draw_split(only(), "c", {}, {}, random);
  must(second);
  must(ops::Initialize{only().id, second.attempt});
  auto all = ids(only().split->low);
  for (const auto& id : ids(only().split->high)) all.push_back(id);
  refuses(ops::FinalizeSplit{only().id, second.attempt, all}, Code::conflict, "ready");
  must(finalize());
  EXPECT_EQ(only().assignments[0].state, AssignmentState::initializing);
  EXPECT_EQ(only().assignments[1].state, AssignmentState::available);
}

TEST_F(Story, an_aborted_split_leaves_the_parent_and_uses_up_its_numbers) {
  const auto before = only();
  const auto op = split();
  must(op);
  refuses(ops::AbortSplit{only().id, AttemptId::draw(random)}, Code::conflict, "attempt");
  must(ops::AbortSplit{only().id, op.attempt});
  auto after = only();
  after.min_txnseq = before.min_txnseq;
  EXPECT_EQ(after, before);
  EXPECT_EQ(now.next_region.value, 4U);
  refuses(ops::FinalizeSplit{only().id, op.attempt, {}}, Code::conflict, "attempt");
}

TEST_F(Story, a_dead_server_is_replaced) {
  const auto dead = only().assignments[1];
  const auto op = draw_replace(only(), dead, {"p5"}, true, random);
  must(op);
  ASSERT_EQ(only().assignments.size(), 4U);
  EXPECT_EQ(only().assignments[2].server.name, "p5");
  EXPECT_EQ(only().assignments[2].slot, dead.slot);
  EXPECT_EQ(only().assignments[2].source, dead.id);
  refuses(ops::FinalizeMove{only().id, op.attempt}, Code::conflict, "ready");
  refuses(ops::RemoveDead{dead.server}, Code::conflict, "assigned");
  must(ops::Initialize{only().id, op.attempt});
  must(ops::MarkAvailable{op.to.id, {"p5"}});
  EXPECT_EQ(only().assignments[1].state, AssignmentState::leaving);
  must(ops::FinalizeMove{only().id, op.attempt});
  ASSERT_EQ(only().assignments.size(), 3U);
  EXPECT_EQ(only().assignments[1].server.name, "p5");
  must(ops::RemoveDead{dead.server});
}

TEST_F(Story, a_cancelled_move_goes_back_to_exactly_what_was) {
  for (const int steps : {0, 1, 2}) {
    const auto before = only();
    const auto op = draw_replace(only(), only().assignments[0], {"p4"}, false, random);
    must(op);
    if (steps >= 1) must(ops::Initialize{only().id, op.attempt});
    if (steps >= 2) must(ops::MarkAvailable{op.to.id, {"p4"}});
    must(ops::CancelMove{only().id, op.attempt});
    auto after = only();
    after.min_txnseq = before.min_txnseq;
    for (auto& a : after.assignments) a.since = find_assignment(before, a.id)->since;
    EXPECT_EQ(after, before);
  }
}

// Writes do not wait for one that was called dead once what takes its place counts: it is not taken back after that.
TEST_F(Story, one_that_was_given_up_does_not_come_back) {
  const auto op = draw_replace(only(), only().assignments[0], {"p4"}, true, random);
  must(op);
  must(ops::Initialize{only().id, op.attempt});
  EXPECT_FALSE(given_up(only(), op.from));
  must(ops::MarkAvailable{op.to.id, {"p4"}});
  EXPECT_TRUE(given_up(only(), op.from));
  EXPECT_FALSE(given_up(only(), op.to.id));
  refuses(ops::CancelMove{only().id, op.attempt}, Code::conflict, "taken-over");
  must(ops::FinalizeMove{only().id, op.attempt});
}

TEST_F(Story, what_cannot_be_is_refused) {
  const auto unknown = PartitionId::draw(random);
  refuses(ops::Initialize{unknown, AttemptId::draw(random)}, Code::conflict, "partition");
  refuses(ops::Initialize{only().id, AttemptId::draw(random)}, Code::conflict, "attempt");
  refuses(ops::MarkAvailable{AssignmentId::draw(random), {"p1"}}, Code::conflict, "assignment");
  refuses(ops::CancelMove{only().id, AttemptId::draw(random)}, Code::conflict, "attempt");
  refuses(ops::SweepEnded{unknown, AttemptId::draw(random)}, Code::conflict, "ended");
  refuses(ops::DropTable{}, Code::invalid, "accept-loss");
  refuses(ops::SetOption{"colour", "red"}, Code::invalid, "options");
  refuses(ops::SetOption{"write_level", "most"}, Code::invalid, "options");
  refuses(ops::SetOption{"colour", std::nullopt}, Code::invalid, "options");

  auto bad = split();
  bad.point = "";
  refuses(bad, Code::invalid, "split");
  bad = split({{"p1"}, {"p1"}, {"p2"}}, {});
  refuses(bad, Code::invalid, "server-twice");
  bad = split({{"p1"}, {"p2"}}, {});
  refuses(bad, Code::invalid, "slot");
  bad = split();
  bad.high.id = bad.low.id;
  refuses(bad, Code::invalid, "ids");
  bad = split();
  bad.high.id = {};
  refuses(bad, Code::invalid, "ids");
  bad = split();
  bad.low.assignments[0].id = only().assignments[0].id;
  refuses(bad, Code::invalid, "ids");
  bad = split();
  bad.point = std::string(481, 'k');
  refuses(bad, Code::invalid, "limits");
  bad = split({{"p1"}, {"P 2"}, {"p3"}}, {});
  refuses(bad, Code::invalid, "limits");

  refuses(draw_replace(only(), only().assignments[0], {"p2"}, false, random), Code::invalid, "server-twice");
  Assignment none = only().assignments[0];
  none.id = AssignmentId::draw(random);
  refuses(draw_replace(only(), none, {"p4"}, false, random), Code::conflict, "assignment");

  must(split());
  refuses(split(), Code::conflict, "reshaping");
  refuses(draw_replace(only(), only().assignments[0], {"p4"}, false, random), Code::conflict, "reshaping");
  refuses(finalize(), Code::conflict, "phase");
}

TEST_F(Story, a_transaction_is_all_or_nothing) {
  const auto before = now;
  const auto good = split();
  EXPECT_FALSE(change({good, ops::Initialize{only().id, AttemptId::draw(random)}}));
  EXPECT_EQ(now, before);
  ASSERT_TRUE(change({good, ops::Initialize{only().id, good.attempt}}));
  EXPECT_EQ(now.txnseq, before.txnseq.next());
  EXPECT_EQ(only().split->phase, SplitPhase::filling);
}

TEST_F(Story, a_dropped_table_takes_nothing_more) {
  must(ops::DropTable{true});
  EXPECT_TRUE(now.dropped);
  auto status = change({ops::DropTable{true}});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::no_such_table);
}

TEST_F(Story, a_table_is_created_once_and_whole) {
  RandomTable other(3);
  const auto create = std::get<ops::CreateTable>(other.create()[0]);
  const auto attempt = [&](const ops::CreateTable& op, const Metadata* base) {
    const std::vector<Operation> list{op};
    return apply(base, list, {TxnId::draw(random), ChangeId::draw(random), {}});
  };
  EXPECT_TRUE(attempt(create, nullptr));
  EXPECT_EQ(attempt(create, &now).error().code, Code::exists);
  const std::vector<Operation> set{ops::SetOption{"read_level", "one"}};
  EXPECT_EQ(apply(nullptr, set, {TxnId::draw(random), ChangeId::draw(random), {}}).error().code, Code::no_such_table);
  auto bad = create;
  bad.partitions[0].interval.begin = "a";
  EXPECT_EQ(attempt(bad, nullptr).error().detail, "cover");
  bad = create;
  bad.partitions[0].assignments.pop_back();
  EXPECT_EQ(attempt(bad, nullptr).error().detail, "slot");
  bad = create;
  bad.name = "Wrong";
  EXPECT_EQ(attempt(bad, nullptr).error().detail, "name");
  bad = create;
  bad.replicas = 0;
  EXPECT_FALSE(attempt(bad, nullptr));
  bad = create;
  bad.keyspace = Keyspace::hash;
  EXPECT_EQ(attempt(bad, nullptr).error().detail, "supported");
}

// --- quorum tables -----------------------------------------------------------------------------------

base::Result<Metadata> create_quorum(uint32_t replicas, base::Random& random) {
  ops::CreateTable op;
  op.name = "q";
  op.table = TableUuid::draw(random);
  op.replication = Replication::quorum;
  op.replicas = replicas;
  ops::NewPartition whole;
  whole.id = PartitionId::draw(random);
  for (uint32_t i = 0; i < replicas; i++)
    whole.assignments.push_back({{"p" + std::to_string(i + 1)}, AssignmentId::draw(random)});
  op.partitions = {whole};
  const std::vector<Operation> list{op};
  return apply(nullptr, list, {TxnId::draw(random), ChangeId::draw(random), ""});
}

TEST_F(Story, a_quorum_table_has_an_odd_number_of_replicas_that_all_vote_at_once) {
  for (uint32_t k = 1; k <= kReplicasMax; k++) {
    const auto made = create_quorum(k, random);
    const bool may = k == 1 || k == 3 || k == 5 || k == 7;
    ASSERT_EQ(made.has_value(), may) << k;
    if (!may) {
      EXPECT_EQ(made.error().code, Code::invalid);
      EXPECT_EQ(made.error().detail, "quorum");
      EXPECT_NE(made.error().text.find("1, 3, 5 or 7 replicas, not " + std::to_string(k)), std::string::npos);
      continue;
    }
    EXPECT_EQ(made->replication, Replication::quorum);
    for (const auto& a : made->partitions.front().assignments) EXPECT_EQ(a.state, AssignmentState::available);
  }
}

// By its cut: what the government reported, and nothing else, ends the parent.
TEST_F(Story, a_quorum_tables_split_ends_at_the_cut) {
  now = *create_quorum(3, random);
  refuses(split({{"p1"}, {"p2"}, {"p4"}}, {}), Code::invalid, "servers");  // to be moved there first
  const auto op = split({{"p3"}, {"p1"}, {"p2"}}, {});
  must(op);
  must(ops::Initialize{only().id, op.attempt});
  std::vector<AssignmentId> all;
  for (const auto* child : {&only().split->low, &only().split->high})
    for (const auto& a : child->assignments) all.push_back(a.id);
  const auto parent = only().id;
  refuses(ops::FinalizeSplit{parent, op.attempt, all}, Code::invalid, "cut");
  refuses(ops::FinalizeSplit{parent, op.attempt, all, ops::FinalCut{}}, Code::invalid, "cut");
  const LogPoint at{{4}, {1000}, 77};
  must(ops::FinalizeSplit{parent, op.attempt, all, ops::FinalCut{at, {5}, 12}});
  ASSERT_EQ(now.ended.size(), 1U);
  EXPECT_EQ(now.ended[0].cut, (CutEnd{at, {5}}));
  ASSERT_EQ(now.partitions.size(), 2U);
  for (const auto& p : now.partitions)
    for (const auto& a : p.assignments) EXPECT_EQ(a.state, AssignmentState::available);
}

TEST_F(Story, a_push_tables_split_has_no_cut) {
  const auto op = split();
  must(op);
  must(ops::Initialize{only().id, op.attempt});
  auto with = finalize();
  with.cut = ops::FinalCut{{{1}, {5}, 7}, {1}, 0};
  refuses(with, Code::invalid, "cut");
}

// Who should vote, as "p1 p2 p4".
std::string electorate(const Partition& p) {
  std::string text;
  for (const auto* a : should_vote(p)) text += (text.empty() ? "" : " ") + a->server.name;
  return text;
}

// A table of two partitions, [, m) and [m, ), on the same servers.
class Neighbours : public Story {
 protected:
  void SetUp() override {
    must(split());
    must(ops::Initialize{only().id, only().split->attempt});
    must(finalize());
    must(ops::SweepEnded{now.ended[0].id, now.ended[0].attempt});
    now.replication = Replication::quorum;
  }
  const Partition& low() const { return now.partitions[0]; }
  const Partition& high() const { return now.partitions[1]; }
  ops::MergePartitions merge() { return draw_merge(low(), high(), random); }
  ops::FinalizeMerge finalize_merge(size_t ready) const {
    const auto& m = *low().merge;
    ops::FinalizeMerge op{m.attempt, m.low, m.high, {}, cuts()};
    for (size_t i = 0; i < ready; i++) op.ready.push_back(m.target.assignments[i].id);
    return op;
  }
  static ops::FinalCuts cuts() { return {{{{3}, {17}, 9}, {4}, 2}, {{{6}, {11}, 8}, {7}, 1}}; }
};

TEST_F(Neighbours, are_merged_where_both_stand) {
  const auto op = merge();
  must(op);
  EXPECT_EQ(low().state, PartitionState::merging);
  EXPECT_EQ(high().state, PartitionState::merging);
  ASSERT_TRUE(low().merge);
  EXPECT_EQ(low().merge, high().merge);
  EXPECT_EQ(low().merge->target.region.value, 4U);
  for (const auto& a : low().merge->target.assignments) EXPECT_EQ(a.source, find_assignment(low(), a.server)->id);
  EXPECT_EQ(now.partitions.by_attempt(op.attempt), &low());
  EXPECT_EQ(now.partitions.by_assignment(op.target.assignments[1].id), &low());
  EXPECT_EQ(find_neighbour(now, low()), &high());
  EXPECT_EQ(find_neighbour(now, high()), &low());
  EXPECT_EQ(servers_of_change(nullptr, now).size(), 3U);

  const auto before = now;
  must(finalize_merge(2));
  ASSERT_EQ(now.partitions.size(), 1U);
  EXPECT_EQ(only().id, op.target.id);
  EXPECT_EQ(only().interval, (Interval{"", ""}));
  EXPECT_EQ(only().state, PartitionState::active);
  EXPECT_EQ(only().min_txnseq, now.txnseq);
  EXPECT_EQ(only().parent, before.partitions[0].id);
  for (const auto& a : only().assignments) EXPECT_EQ(a.state, AssignmentState::available);
  const auto merged = find_merged(now, only().id);
  ASSERT_EQ(merged.size(), 2U);
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(merged[i]->id, before.partitions[i].id);
    EXPECT_EQ(merged[i]->interval, before.partitions[i].interval);
    EXPECT_EQ(merged[i]->parent_assignments, before.partitions[i].assignments);
    EXPECT_EQ(merged[i]->attempt, op.attempt);
    EXPECT_EQ(merged[i]->at, now.txnseq);
    const auto cut = i == 0 ? cuts().low : cuts().high;
    EXPECT_EQ(merged[i]->cut, (CutEnd{cut.at, cut.epoch}));
    EXPECT_EQ(find_parent(now, only().id), nullptr);
  }
  for (const auto& p : before.partitions) must(ops::SweepEnded{p.id, op.attempt});
  EXPECT_TRUE(now.ended.empty());
  must(split());
}

TEST_F(Neighbours, are_merged_at_both_cuts_when_a_majority_has_both) {
  must(merge());
  auto without = finalize_merge(2);
  without.cuts.reset();
  refuses(without, Code::invalid, "cut");
  auto one_is_nowhere = finalize_merge(2);
  one_is_nowhere.cuts->high.at.lsn = {0};
  refuses(one_is_nowhere, Code::invalid, "cut");
  // Both cuts are on a majority each, but only one server has both.
  refuses(finalize_merge(1), Code::conflict, "ready");
  auto stranger = finalize_merge(2);
  stranger.ready.push_back(AssignmentId::draw(random));
  refuses(stranger, Code::conflict, "ready");
  auto twice = finalize_merge(1);
  twice.ready.push_back(twice.ready[0]);
  refuses(twice, Code::conflict, "ready");
  must(finalize_merge(2));
}

TEST_F(Neighbours, of_a_push_table_are_merged_without_cuts) {
  now.replication = Replication::push;
  const auto op = merge();
  must(op);
  ops::FinalizeMerge end{op.attempt, op.low, op.high, {op.target.assignments[0].id}, {}};
  refuses(end, Code::conflict, "ready");
  end.ready.push_back(op.target.assignments[1].id);
  auto with_cuts = end;
  with_cuts.cuts = ops::FinalCuts{{{{4}, {9}, 1}, {4}, 1}, {{{4}, {9}, 1}, {4}, 1}};
  refuses(with_cuts, Code::invalid, "cut");
  must(end);
  const auto* target = now.find(op.target.id);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(target->parent, op.low);
  EXPECT_EQ(target->parent_high, op.high);
  EXPECT_EQ(find_merged(now, op.target.id).size(), 2U);
  for (const auto* e : find_merged(now, op.target.id)) EXPECT_FALSE(e->cut);
}

TEST_F(Neighbours, whose_merge_is_aborted_are_what_they_were) {
  const auto before = now;
  const auto op = merge();
  must(op);
  refuses(ops::AbortMerge{AttemptId::draw(random), op.low, op.high}, Code::conflict, "attempt");
  refuses(ops::AbortMerge{op.attempt, op.high, op.low}, Code::conflict, "attempt");
  must(ops::AbortMerge{op.attempt, op.low, op.high});
  for (size_t i = 0; i < 2; i++) {
    auto p = now.partitions[i];
    EXPECT_EQ(p.min_txnseq, now.txnseq);
    p.min_txnseq = before.partitions[i].min_txnseq;
    EXPECT_EQ(p, before.partitions[i]);
  }
  EXPECT_EQ(now.next_region.value, 5U);
  refuses(ops::AbortMerge{op.attempt, op.low, op.high}, Code::conflict, "attempt");
  auto late = ops::FinalizeMerge{op.attempt, op.low, op.high, {}};
  for (const auto& a : op.target.assignments) late.ready.push_back(a.id);
  refuses(late, Code::conflict, "attempt");
}

TEST_F(Neighbours, are_not_merged_unless_all_of_both_is_there) {
  auto wrong_way = draw_merge(high(), low(), random);
  refuses(wrong_way, Code::invalid, "merge");
  refuses(draw_merge(low(), low(), random), Code::invalid, "merge");
  auto gone = merge();
  gone.high = PartitionId::draw(random);
  refuses(gone, Code::conflict, "partition");
  auto elsewhere = merge();
  elsewhere.target.assignments[2].server = {"p5"};
  refuses(elsewhere, Code::conflict, "servers");
  auto few = merge();
  few.target.assignments.pop_back();
  refuses(few, Code::invalid, "slot");
  auto twice = merge();
  twice.target.assignments[1].server = twice.target.assignments[0].server;
  refuses(twice, Code::invalid, "server-twice");
  auto unnamed = merge();
  unnamed.attempt = {};
  refuses(unnamed, Code::invalid, "ids");

  const auto whole = now;
  must(draw_split(high(), "x", {}, {}, random));
  refuses(merge(), Code::conflict, "reshaping");
  now = whole;
  const auto move = draw_replace(high(), high().assignments[0], {"p5"}, true, random);
  must(move);
  refuses(merge(), Code::conflict, "reshaping");
  must(ops::Initialize{high().id, move.attempt});
  must(ops::MarkAvailable{move.to.id, {"p5"}});
  must(ops::FinalizeMove{high().id, move.attempt});
  refuses(merge(), Code::conflict, "servers");
  now = whole;
  auto p = high();
  p.assignments[2].state = AssignmentState::initializing;
  now.partitions.put(p);
  refuses(merge(), Code::conflict, "filling");
}

TEST_F(Neighbours, that_are_merging_are_not_reshaped_otherwise) {
  must(merge());
  for (const auto& p : {low(), high()}) {
    refuses(draw_split(p, p.interval.begin + "b", {}, {}, random), Code::conflict, "reshaping");
    refuses(draw_replace(p, p.assignments[0], {"p5"}, false, random), Code::conflict, "reshaping");
  }
  refuses(merge(), Code::conflict, "reshaping");
  refuses(ops::Initialize{low().id, low().merge->attempt}, Code::conflict, "attempt");
}

TEST_F(Neighbours, a_merge_that_only_one_of_them_knows_is_not_valid) {
  must(merge());
  const auto good = now;
  const auto broken = [&](const Partition& p, std::string_view rule) {
    auto bad = good;
    bad.partitions.put(p);
    const auto status = validate(bad);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().detail, rule) << to_string(status.error());
  };
  auto p = good.partitions[1];
  p.merge.reset();
  p.state = PartitionState::active;
  broken(p, "merge");
  p = good.partitions[1];
  p.merge->since = {1};
  broken(p, "merge");
  p = good.partitions[0];
  p.merge->target.id = good.partitions[1].id;
  broken(p, "merge");
  p = good.partitions[0];
  p.state = PartitionState::active;
  broken(p, "state");
  p = good.partitions[1];
  p.assignments[0].server = {"p5"};
  broken(p, "merge");
}

TEST_F(Story, in_a_quorum_table_the_new_replica_should_vote_from_initializing_on) {
  now = *create_quorum(3, random);
  const auto move = draw_replace(only(), only().assignments[1], {"p5"}, false, random);
  must(move);
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  must(ops::Initialize{only().id, move.attempt});
  EXPECT_EQ(electorate(only()), "p1 p5 p3");
  must(ops::MarkAvailable{move.to.id, {"p5"}});
  EXPECT_EQ(electorate(only()), "p1 p5 p3");
  must(ops::FinalizeMove{only().id, move.attempt});
  EXPECT_EQ(electorate(only()), "p1 p5 p3");
  EXPECT_EQ(only().assignments.size(), 3u);
}

TEST_F(Story, a_move_in_a_quorum_table_is_cancelled_in_two_steps) {
  now = *create_quorum(3, random);
  const auto before = only().assignments;
  auto move = draw_replace(only(), only().assignments[1], {"p5"}, false, random);
  must(move);
  must(ops::CancelMove{only().id, move.attempt});  // nobody votes while PROPOSED: at once
  EXPECT_EQ(only().assignments, before);
  move = draw_replace(only(), only().assignments[1], {"p5"}, false, random);
  must(move);
  must(ops::Initialize{only().id, move.attempt});
  refuses(ops::CancelMove{only().id, move.attempt, true}, Code::conflict, "cancelled");
  must(ops::CancelMove{only().id, move.attempt});
  EXPECT_EQ(only().moves.front().cancelled, now.txnseq);
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  must(ops::CancelMove{only().id, move.attempt});  // asked again
  must(ops::MarkAvailable{move.to.id, {"p5"}});    // it was on its way
  refuses(ops::FinalizeMove{only().id, move.attempt}, Code::conflict, "cancelled");
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  must(ops::CancelMove{only().id, move.attempt, true});
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  ASSERT_EQ(only().assignments.size(), 3u);
  EXPECT_EQ(only().assignments[1].state, AssignmentState::available);
}

TEST_F(Story, a_cancelled_move_of_one_taken_for_dead_is_undone_though_it_became_available) {
  now = *create_quorum(3, random);
  const auto before = only().assignments;
  const auto move = draw_replace(only(), only().assignments[1], {"p5"}, true, random);
  must(move);
  must(ops::Initialize{only().id, move.attempt});
  must(ops::CancelMove{only().id, move.attempt});
  must(ops::MarkAvailable{move.to.id, {"p5"}});  // it was on its way
  refuses(ops::FinalizeMove{only().id, move.attempt}, Code::conflict, "cancelled");
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  must(ops::CancelMove{only().id, move.attempt, true});
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  ASSERT_EQ(only().assignments.size(), 3U);
  EXPECT_EQ(only().assignments[1].id, before[1].id);
  EXPECT_EQ(only().assignments[1].state, AssignmentState::available);
  EXPECT_TRUE(only().moves.empty());
}

TEST_F(Story, s60_a_cancelled_move_whose_source_is_gone_goes_on) {
  now = *create_quorum(3, random);
  const auto old = only().assignments[1];
  auto move = draw_replace(only(), old, {"p5"}, false, random);
  must(move);
  must(ops::Initialize{only().id, move.attempt});
  refuses(draw_replace(only(), only().moves.front(), random), Code::conflict, "reshaping");  // nothing is cancelled
  must(ops::CancelMove{only().id, move.attempt});
  must(ops::MarkAvailable{move.to.id, {"p5"}});  // it was on its way
  refuses(draw_replace(only(), old, {"p6"}, true, random), Code::conflict, "cancelled");
  refuses(draw_replace(only(), old, {"p6"}, false, random), Code::conflict, "reshaping");
  const auto again = draw_replace(only(), only().moves.front(), random);
  must(again);
  EXPECT_EQ(electorate(only()), "p1 p5 p3");
  EXPECT_TRUE(taken_up_again(only(), only().moves.front()));
  EXPECT_EQ(only().assignments[1].state, AssignmentState::available);
  // Who saw the one before decides nothing any more.
  refuses(ops::CancelMove{only().id, move.attempt, true}, Code::conflict, "attempt");
  refuses(ops::FinalizeMove{only().id, move.attempt}, Code::conflict, "attempt");
  refuses(ops::FinalizeMove{only().id, again.attempt}, Code::conflict, "ready");
  // And it can be cancelled like any other, as its target may be gone next.
  must(ops::CancelMove{only().id, again.attempt});
  EXPECT_EQ(electorate(only()), "p1 p2 p3");
  const auto third = draw_replace(only(), only().moves.front(), random);
  must(third);
  must(ops::MarkAvailable{move.to.id, {"p5"}});
  EXPECT_FALSE(taken_up_again(only(), only().moves.front()));
  must(ops::FinalizeMove{only().id, third.attempt});
  EXPECT_EQ(electorate(only()), "p1 p5 p3");
  EXPECT_EQ(only().assignments.size(), 3u);
}

TEST_F(Story, the_last_256_changes_are_remembered) {
  for (int i = 0; i < 300; i++) must(ops::SetOption{"read_level", i % 2 == 0 ? "one" : "majority"});
  EXPECT_EQ(now.changes.size(), kChangeIdsMax);
}

TEST_F(Story, those_whose_work_changes_are_told) {
  const auto before = now;
  must(split({{"p3"}, {"p4"}, {"p5"}}, {}));
  EXPECT_EQ(servers_of_change(&before, now), (std::vector<ServerId>{{"p1"}, {"p2"}, {"p3"}, {"p4"}, {"p5"}}));
  const auto after = now;
  must(ops::SetOption{"read_level", "majority"});
  EXPECT_TRUE(servers_of_change(&after, now).empty());
  const auto last = now;
  must(ops::DropTable{true});
  EXPECT_EQ(servers_of_change(&last, now).size(), 5U);
}

// --- properties ------------------------------------------------------------------------------------

// Reference: what the cover must be, found without looking at Partitions' order.
void expect_exact_cover(const Metadata& m) {
  std::map<std::string, std::string> spans;
  for (const auto& p : m.partitions) ASSERT_TRUE(spans.emplace(p.interval.begin, p.interval.end).second);
  std::string at;
  for (size_t i = 0; i < spans.size(); i++) {
    const auto it = spans.find(at);
    ASSERT_NE(it, spans.end()) << "hole at " << at;
    at = it->second;
    ASSERT_EQ(at.empty(), i + 1 == spans.size());
  }
}

Replication kind_of(uint64_t seed) { return seed % 2 == 0 ? Replication::quorum : Replication::push; }

TEST(Operations, random_sequences_keep_every_invariant) {
  size_t accepted = 0, splits = 0, merges = 0;
  for (uint64_t seed = 1; seed <= 30; seed++) {
    RandomTable t(seed, {.servers = 3 + static_cast<uint32_t>(seed % 4),
                         .replicas = seed % 3 == 0 ? 1U : 3U,
                         .partitions = 1,
                         .replication = kind_of(seed)});
    for (int i = 0; i < 200; i++) {
      const auto before = t.current();
      if (!t.step()) {
        ASSERT_EQ(t.current(), before);
        continue;
      }
      accepted++;
      const auto& now = t.current();
      ASSERT_TRUE(validate(now)) << "seed " << seed << ": " << to_string(validate(now).error());
      expect_exact_cover(now);
      ASSERT_EQ(now.txnseq, before.txnseq.next());
      for (const auto region : Partitions::changed(before.partitions, now.partitions)) {
        const auto* p = now.partitions.get(region);
        ASSERT_TRUE(p == nullptr || p->min_txnseq == now.txnseq);
      }
      for (const auto& p : now.partitions) {
        ASSERT_EQ(now.find(p.id), &p);
        ASSERT_EQ(now.find(p.interval.begin), &p);
        ASSERT_EQ(now.partitions.get(p.region), &p);
        for (const auto& a : p.assignments) ASSERT_EQ(now.partitions.by_assignment(a.id), &p);
      }
      splits += before.partitions.size() < now.partitions.size() ? 1 : 0;
      merges += before.partitions.size() > now.partitions.size() ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 2000U);
  EXPECT_GT(splits, 100U);
  EXPECT_GT(merges, 30U);
}

TEST(Operations, the_same_operations_make_the_same_file) {
  RandomTable a(5), b(5);
  for (int i = 0; i < 300; i++) {
    ASSERT_EQ(a.step(), b.step());
    ASSERT_EQ(a.current(), b.current());
  }
}

// Files that are wrong in one place: the quick check of a change must refuse what the full one refuses.
TEST(Operations, the_check_of_a_change_finds_what_the_full_check_finds) {
  size_t refused = 0;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    RandomTable t(seed, {.replication = kind_of(seed)});
    for (int i = 0; i < 40; i++) t.step();
    const auto base = t.current();
    while (!t.step()) {
    }
    auto next = t.current();
    auto& r = t.random();
    for (uint64_t n = 1 + r.below(2); n > 0 && !next.partitions.empty(); n--) {
      auto p = next.partitions[r.below(next.partitions.size())];
      switch (r.below(10)) {
        case 9:
          if (p.merge) p.merge->since = {1};
          p.interval.end += "x";
          break;
        case 0: p.interval.begin += "x"; break;
        case 1: p.interval.end += "x"; break;
        case 2: p.assignments[0].server = p.assignments.back().server; break;
        case 3:
          p.assignments[0].id =
              next.partitions.front().id.none() ? AssignmentId{} : next.partitions.front().assignments[0].id;
          break;
        case 4: next.partitions.erase(p.region); continue;
        case 5: p.state = p.split ? PartitionState::active : PartitionState::splitting; break;
        case 6: p.assignments[r.below(p.assignments.size())].state = AssignmentState::leaving; break;
        case 7: p.region = next.next_region; break;
        default: p.min_txnseq = next.txnseq.next(); break;
      }
      next.partitions.put(std::move(p));
    }
    const auto full = validate(next), quick = validate_change(base, next);
    ASSERT_EQ(full.has_value(), quick.has_value()) << "seed " << seed << " full: " << (full ? "ok" : full.error().text)
                                                   << " quick: " << (quick ? "ok" : quick.error().text);
    refused += full ? 0 : 1;
  }
  EXPECT_GT(refused, 300U);
}

TEST(Racks, replicas_are_kept_apart_as_long_as_there_are_enough) {
  RandomTable t(1, {.servers = 3, .replicas = 3, .partitions = 1});
  Racks racks{{{"p1"}, "a"}, {{"p2"}, "b"}, {{"p3"}, "b"}};
  EXPECT_TRUE(validate_racks(nullptr, t.current(), racks));  // two racks for three replicas: not enough
  racks[{"p4"}] = "c";
  EXPECT_EQ(validate_racks(nullptr, t.current(), racks).error().detail, "racks");
  racks[{"p3"}] = "d";
  EXPECT_TRUE(validate_racks(nullptr, t.current(), racks));

  const auto& p = t.current().partitions.front();
  racks[{"p4"}] = "b";
  racks[{"p5"}] = "e";
  const auto replaced = [&](const ServerId& by) {
    const std::vector<Operation> ops{draw_replace(p, p.assignments[0], by, true, t.random())};
    return *apply(&t.current(), ops, t.context());
  };
  EXPECT_FALSE(validate_racks(&t.current(), replaced({"p4"}), racks));  // p2 is in rack b
  EXPECT_TRUE(validate_racks(&t.current(), replaced({"p5"}), racks));
}

TEST(TableConfig, survives_its_text) {
  RandomTable t(2);
  TableConfig c;
  set_current(c, t.current(), std::string(32, '\x5a'));
  c.metadata_servers = {{"m1"}, {"m2"}};
  c.options["read_level"] = "majority";
  c.writer = "m1/3-17";
  c.others["later"] = "some: thing";
  c.regions_behind = true;
  const auto parsed = parse_table_config(to_text(c));
  ASSERT_TRUE(parsed) << to_string(parsed.error());
  EXPECT_EQ(*parsed, c);
  EXPECT_EQ(majority(c), 2U);
  EXPECT_TRUE(is_member(c, {"m2"}));
}

TEST(TableConfig, refuses_what_is_not_one) {
  RandomTable t(2);
  TableConfig c;
  set_current(c, t.current(), std::string(32, '\x5a'));
  c.metadata_servers = {{"m1"}};
  const auto text = to_text(c);
  const auto with = [&](std::string_view from, std::string_view to) {
    auto s = text;
    s.replace(s.find(from), from.size(), to);
    return parse_table_config(s);
  };
  EXPECT_FALSE(with("metadata_servers: m1", "metadata_servers: m1 m1"));
  EXPECT_FALSE(with("metadata_servers: m1", "metadata_servers:"));
  EXPECT_FALSE(with("metadata_txnseq: 1", "metadata_txnseq: one"));
  EXPECT_FALSE(with("replicas: 3", "replicas: 3\nreplicas: 3"));
  EXPECT_FALSE(with("state: active", "state: lost"));
  EXPECT_FALSE(with("keyspace: range\n", ""));
  EXPECT_FALSE(with("metadata_hash: 5a", "metadata_hash: "));
  EXPECT_FALSE(parse_table_config("nonsense"));
}

TEST(Operation, reads_as_a_line) {
  EXPECT_EQ(to_string(Operation(ops::SetOption{"read_level", "one"})), "SET_OPTION name=read_level value=one");
  EXPECT_EQ(to_string(Operation(ops::RemoveDead{{"p1"}})), "REMOVE_DEAD server=p1");
  EXPECT_EQ(operation_name(Operation(ops::SweepEnded{})), "SWEEP_ENDED");
  EXPECT_EQ(operation_name(Operation(ops::SplitPartition{})), "SPLIT");
}

}  // namespace
}  // namespace cantle::model

#include "lib/proto/quorum_recovery.h"

#include <gtest/gtest.h>

namespace cantle::proto {
namespace {

using base::Code;
using model::CopyReport;
using model::LossKind;
using model::ServerId;

template <class Id>
Id id(uint8_t n) {
  Id out;
  out.bytes[15] = n;
  return out;
}
model::AssignmentId a(uint8_t n) { return id<model::AssignmentId>(n); }
model::AttemptId plan_id() { return id<model::AttemptId>(77); }

// Partition of three on p1, p2, p3; p2 led epoch 4.
struct Rig {
  explicit Rig(uint8_t count = 3) {
    view.cluster = id<model::ClusterUuid>(1);
    view.table = "q";
    view.table_uuid = id<model::TableUuid>(2);
    view.partition = id<model::PartitionId>(3);
    view.region = {1};
    view.version = 7;
    view.txnseq = {12};
    for (uint8_t i = 1; i <= count; i++) view.assigned.push_back({i - 1u, {"p" + std::to_string(i)}, a(i)});
    view.government = {{4}, a(2), view.assigned, "p2/9/1"};
  }
  // With blocks of epoch 2 from LSN 1 on, and of epoch 4 from 101 on.
  CopyReport& copy(uint8_t n, uint64_t lsn, uint64_t commit, std::string state = "voter") {
    CopyReport c;
    c.server = {"p" + std::to_string(n)};
    c.table = view.table_uuid;
    c.partition = view.partition;
    c.region = view.region;
    c.assignment = a(n);
    c.state = std::move(state);
    c.epochs = {{{2}, {1}}};
    if (lsn > 100) c.epochs.push_back({{4}, {101}});
    c.end = {c.epochs.back().epoch, {lsn}, static_cast<uint32_t>(lsn)};
    c.commit = {commit};
    c.highest = c.end.epoch;
    view.copies.push_back(std::move(c));
    return view.copies.back();
  }
  base::Result<model::RecoveryPlan> plan(const std::vector<ServerId>& stay = {}) {
    return plan_recovery(view, stay, plan_id());
  }
  RecoveryView view;
};

TEST(QuorumRecovery, is_refused_while_a_majority_can_elect) {
  Rig rig;
  rig.copy(1, 120, 120);
  rig.copy(3, 120, 120);
  EXPECT_TRUE(assess(rig.view).majority());
  ASSERT_FALSE(rig.plan());
  EXPECT_EQ(rig.plan().error().code, Code::conflict);
  // One that cannot lead is none of them.
  rig.view.copies[1].whole = false;
  EXPECT_FALSE(assess(rig.view).majority());
  EXPECT_TRUE(rig.plan().has_value());
}

TEST(QuorumRecovery, a_server_that_is_registered_and_silent_may_lead) {
  Rig rig;
  rig.copy(1, 120, 110);
  rig.view.silent = {{"p2"}};
  ASSERT_FALSE(rig.plan());
  EXPECT_EQ(rig.plan().error().code, Code::conflict);
  EXPECT_NE(rig.plan().error().text.find("p2"), std::string::npos);
  rig.view.silent = {{"p9"}};  // of another partition
  EXPECT_TRUE(rig.plan().has_value());
}

// It names assignments that METADATA no longer has, and no such plan would ever be found to hold.
TEST(QuorumRecovery, a_map_older_than_the_governments_is_no_base_of_a_plan) {
  Rig rig;
  rig.copy(1, 120, 110);
  rig.view.government.txnseq = {13};
  ASSERT_FALSE(rig.plan());
  EXPECT_EQ(rig.plan().error().code, Code::conflict);
  rig.view.txnseq = {13};
  const auto plan = rig.plan();
  ASSERT_TRUE(plan);
  EXPECT_TRUE(still_holds(*plan, rig.view));
}

TEST(QuorumRecovery, a_copy_that_another_server_reports_is_nobodys) {
  Rig rig;
  rig.copy(1, 120, 110);
  rig.copy(2, 130, 130).server = {"p9"};
  const auto state = assess(rig.view);
  EXPECT_EQ(state.missing, (std::vector<ServerId>{{"p2"}, {"p3"}}));
  const auto plan = rig.plan();
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->voters.size(), 1U);
  EXPECT_EQ(plan->voters[0].server.name, "p1");
  EXPECT_TRUE(still_holds(*plan, rig.view));
}

TEST(QuorumRecovery, there_is_no_epoch_above_the_last_one) {
  Rig rig;
  rig.copy(1, 120, 110).promised = {UINT64_MAX - 1};
  ASSERT_TRUE(rig.plan());
  EXPECT_EQ(rig.plan()->epoch.value, UINT64_MAX);
  rig.view.copies[0].promised = {UINT64_MAX};
  EXPECT_EQ(rig.plan().error().code, Code::invalid);
}

TEST(QuorumRecovery, the_new_epoch_is_above_every_promise_that_anybody_can_have_made) {
  Rig rig;
  rig.copy(1, 120, 110);
  EXPECT_EQ(rig.plan()->epoch.value, 6u);  // those who are gone may have promised 5
  rig.view.copies[0].promised = {9};
  EXPECT_EQ(rig.plan()->epoch.value, 10u);
  rig.view.copies[0].promised = {};
  rig.view.copies[0].highest = {12};
  EXPECT_EQ(rig.plan()->epoch.value, 13u);
  const auto to = government_of(*rig.plan());
  EXPECT_TRUE(to.leader.none());
  ASSERT_EQ(to.voters.size(), 1u);
  EXPECT_EQ(to.voters[0].assignment, a(1));
  EXPECT_EQ(to.txnseq.value, 12u);  // so that a leader with an older map does not change them
}

TEST(QuorumRecovery, what_one_of_three_has_may_lack_anything_that_the_others_acknowledged) {
  Rig rig;
  rig.copy(1, 120, 110);
  const auto plan = *rig.plan();
  EXPECT_EQ(plan.loss.kind, LossKind::possible);
  EXPECT_EQ(plan.loss.end.lsn.value, 120u);
  EXPECT_EQ(plan.gone, (std::vector<ServerId>{{"p2"}, {"p3"}}));
}

TEST(QuorumRecovery, nothing_is_lost_where_the_copies_seen_share_one_with_every_majority) {
  Rig rig;
  rig.copy(1, 120, 110);
  rig.copy(2, 120, 110, "offline");
  EXPECT_EQ(rig.plan()->loss.kind, LossKind::none);
  rig.view.copies[1].whole = false;  // it may lack what it once acknowledged
  EXPECT_EQ(rig.plan()->loss.kind, LossKind::possible);
  // One that is not a voter shares nothing with a majority.
  Rig other;
  other.copy(1, 120, 110);
  other.copy(9, 120, 110, "offline");
  EXPECT_EQ(other.plan()->loss.kind, LossKind::possible);
}

TEST(QuorumRecovery, what_lies_in_a_data_directory_and_does_not_stay_is_counted) {
  Rig rig;
  rig.copy(1, 120, 110);
  rig.copy(2, 150, 140, "offline");
  auto loss = rig.plan()->loss;
  EXPECT_EQ(loss.kind, LossKind::certain);
  EXPECT_EQ(loss.committed, 20u);     // 121 to 140
  EXPECT_EQ(loss.unknown_fate, 10u);  // 141 to 150
  // The survivor never saw epoch 4: it parts from the other at LSN 90.
  rig.view.copies[0].epochs = {{{2}, {1}}};
  rig.view.copies[0].end = {{2}, {90}, 1};
  rig.view.copies[0].commit = {90};
  loss = rig.plan()->loss;
  EXPECT_EQ(loss.committed, 50u);
}

TEST(QuorumRecovery, two_logs_agree_up_to_the_shorter_end_of_the_last_epoch_they_share) {
  CopyReport x, y;
  x.epochs = {{{1}, {1}}, {{3}, {11}}, {{5}, {21}}};
  x.end = {{5}, {30}, 0};
  y.epochs = {{{1}, {1}}, {{3}, {11}}, {{4}, {16}}};
  y.end = {{4}, {40}, 0};
  EXPECT_EQ(last_common(x, y).value, 15u);
  EXPECT_EQ(last_common(y, x).value, 15u);
  EXPECT_EQ(last_common(x, x).value, 30u);
  y.epochs = {{{2}, {1}}};
  EXPECT_EQ(last_common(x, y).value, 0u);
}

TEST(QuorumRecovery, the_operator_chooses_who_stays_among_those_that_can) {
  Rig rig(5);
  rig.copy(1, 120, 110);
  rig.copy(4, 130, 110);
  auto plan = rig.plan();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->voters.size(), 2u);  // all that can
  EXPECT_EQ(plan->loss.end.lsn.value, 130u);
  plan = rig.plan({{"p1"}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->voters.size(), 1u);
  EXPECT_EQ(plan->loss.end.lsn.value, 120u);
  EXPECT_EQ(plan->loss.unknown_fate, 10u);  // p4's
  EXPECT_EQ(rig.plan({{"p2"}}).error().code, Code::not_found);
  rig.copy(3, 140, 110, "offline");
  EXPECT_EQ(rig.plan({{"p3"}}).error().code, Code::unavailable);
  rig.copy(5, 100, 100, "aside").assignment = a(50);
  EXPECT_EQ(rig.plan({{"p5"}}).error().code, Code::invalid);
  rig.view.copies[0].whole = false;
  EXPECT_EQ(rig.plan({{"p1"}}).error().code, Code::invalid);
  // Nobody is left at all.
  rig.view.copies.clear();
  EXPECT_EQ(rig.plan().error().code, Code::not_found);
}

TEST(QuorumRecovery, a_learner_may_stay_though_it_never_voted) {
  Rig rig;
  rig.view.assigned[2] = {2, {"p7"}, a(7)};  // p3 is being replaced by p7, and p3 still votes
  rig.copy(7, 118, 110, "follower");
  const auto plan = rig.plan();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->voters[0].server.name, "p7");
  EXPECT_EQ(plan->loss.kind, LossKind::possible);
}

TEST(QuorumRecovery, a_plan_holds_only_for_what_it_was_made_of) {
  Rig rig;
  rig.copy(1, 120, 110);
  const auto plan = *rig.plan();
  EXPECT_TRUE(still_holds(plan, rig.view).has_value());
  const auto refused = [&](auto change) {
    Rig other = rig;
    change(other);
    const auto held = still_holds(plan, other.view);
    EXPECT_FALSE(held.has_value());
    return held ? Code::identity : held.error().code;
  };
  EXPECT_EQ(refused([](Rig& r) { r.view.version++; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.government.epoch = {5}; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.copies[0].end = {{4}, {121}, 121}; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.copies[0].end.crc++; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.copies[0].promised = {6}; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.assigned[0].assignment = a(9); }), Code::invalid);
  EXPECT_EQ(refused([](Rig& r) { r.view.txnseq = {11}; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.silent = {{"p3"}}; }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.copy(2, 150, 150); }), Code::conflict);             // a majority is back
  EXPECT_EQ(refused([](Rig& r) { r.copy(2, 150, 150, "offline"); }), Code::conflict);  // more would be lost
  EXPECT_EQ(refused([](Rig& r) { r.view.cluster = id<model::ClusterUuid>(8); }), Code::conflict);
  EXPECT_EQ(refused([](Rig& r) { r.view.copies.clear(); }), Code::not_found);
}

TEST(QuorumRecovery, it_is_over_when_a_leader_of_the_new_lineage_has_committed_behind_the_old_log) {
  Rig rig;
  auto& c = rig.copy(1, 120, 110);
  const auto plan = *rig.plan();
  auto g = government_of(plan);
  EXPECT_EQ(recovery_verdict(plan, g, rig.view.copies), RecoveryVerdict::waiting);
  g.epoch = g.epoch.next();
  g.leader = a(1);
  EXPECT_EQ(recovery_verdict(plan, g, rig.view.copies), RecoveryVerdict::waiting);
  c.state = "leader";
  c.epochs.push_back({g.epoch, {121}});
  c.end = {g.epoch, {121}, 5};
  EXPECT_EQ(recovery_verdict(plan, g, rig.view.copies), RecoveryVerdict::waiting);  // its epoch start is not committed
  c.commit = {121};
  EXPECT_EQ(recovery_verdict(plan, g, rig.view.copies), RecoveryVerdict::serving);
  c.epochs.back().first = {119};  // it lost what was to stay
  EXPECT_EQ(recovery_verdict(plan, g, rig.view.copies), RecoveryVerdict::elsewhere);
  EXPECT_EQ(recovery_verdict(plan, rig.view.government, rig.view.copies), RecoveryVerdict::elsewhere);
}

// A table goes on changing elsewhere. A leader goes by the map that last changed its partition (Members::txnseq): by a
// government of a later one it would never give the others their votes back.
TEST(QuorumRecovery, a_government_is_of_the_map_that_last_changed_its_partition) {
  model::Metadata map;
  map.name = "q";
  map.table = id<model::TableUuid>(2);
  map.txnseq = {40};
  model::Partition p;
  p.id = id<model::PartitionId>(3);
  p.region = {1};
  p.min_txnseq = {12};
  for (uint8_t i = 1; i <= 3; i++) {
    model::Assignment one;
    one.server = {"p" + std::to_string(i)};
    one.id = a(i);
    one.slot = i - 1u;
    p.assignments.push_back(one);
  }
  Rig rig;
  const auto seen = view_of(map, p);
  EXPECT_EQ(seen.table, rig.view.table);
  EXPECT_EQ(seen.table_uuid, rig.view.table_uuid);
  EXPECT_EQ(seen.partition, rig.view.partition);
  EXPECT_EQ(seen.region, rig.view.region);
  EXPECT_EQ(seen.assigned, rig.view.assigned);
  rig.view.txnseq = seen.txnseq;
  rig.copy(1, 120, 120);
  const auto plan = rig.plan();
  ASSERT_TRUE(plan) << base::to_string(plan.error());
  EXPECT_EQ(government_of(*plan).txnseq, p.min_txnseq);
}

TEST(QuorumRecovery, the_loss_is_named) {
  Rig rig;
  rig.copy(1, 90, 80);
  const auto all = [](const model::RecoveryPlan& plan) {
    std::string text;
    for (const auto& s : in_words(plan)) text += s + "\n";
    return text;
  };
  const auto text = all(*rig.plan());
  EXPECT_NE(text.find("p1 alone votes from epoch 6 on, with the log up to LSN 90"), std::string::npos) << text;
  EXPECT_NE(text.find("Gone for good: p2, p3"), std::string::npos) << text;
  EXPECT_NE(text.find("behind LSN 90 is LOST"), std::string::npos) << text;
  EXPECT_NE(text.find("had reached epoch 4, this log has nothing behind epoch 2"), std::string::npos) << text;
}

}  // namespace
}  // namespace cantle::proto

// The mover around a split, a replacement and an unload: who gets what, which positions go on, what is proved.
#include <gtest/gtest.h>

#include "lib/proto/mover.h"
#include "lib/proto/split_driver.h"
#include "test/unit/proto/mover_rig.h"

namespace cantle::proto {
namespace {

using namespace mover;
using model::AssignmentId;
using model::ServerId;
using test::Copy;
using test::MoverRig;
using test::point;

const ServerId p1{"p1"}, p2{"p2"}, p3{"p3"}, p4{"p4"}, p5{"p5"};

struct Rig : MoverRig {
  explicit Rig(uint64_t seed = 1) : MoverRig(seed) { hold_own(); }
  void load(int n, uint32_t stamper = 1) {
    for (int i = 0; i < n; ++i, ++clock) append((clock % 2 ? "a" : "x") + std::to_string(1000 + clock), stamper);
  }
  const model::Split& split_now() { return *world.only().split; }
  void initialize() { world.must(model::ops::Initialize{world.only().id, split_now().attempt}); }
  void finalize() {
    const auto& s = split_now();
    std::vector<AssignmentId> ready = ready_of(world.only(), s.low, world.world());
    for (const auto& id : ready_of(world.only(), s.high, world.world())) ready.push_back(id);
    world.must(model::ops::FinalizeSplit{world.only().id, s.attempt, ready});
  }
  Copy& child(const model::Child& c, const ServerId& server) {
    for (const auto& a : c.assignments)
      if (a.server == server) return copies[a.id];
    ADD_FAILURE();
    return copies[{}];
  }
  int clock = 0;
};

TEST(MoverSplit, children_where_the_parent_is_are_not_pushed_to_others_get_their_interval) {
  Rig r;
  r.load(20);
  r.world.split({p1, p2, p3}, {p2, p4, p5});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.mover->streams(r.now).size(), 2u);  // p2 and p3 of the parent: before the barrier nobody else
  r.world.servers_act();
  r.initialize();
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.mover->streams(r.now).size(), 4u);
  const auto high = r.truth({"m", ""});
  EXPECT_EQ(r.child(r.split_now().high, p4).holds, high);
  EXPECT_EQ(r.child(r.split_now().high, p5).holds, high);
  const auto& end = r.child(r.split_now().high, p4).ends.back();
  EXPECT_EQ(end.through, point(20));
  EXPECT_EQ(end.envelope.partition, r.split_now().high.id);
  EXPECT_EQ(end.envelope.from_assignment, r.on("p1").id);
  EXPECT_GE(end.envelope.txnseq, r.split_now().since);
}

TEST(MoverSplit, positions_of_the_parent_go_on_for_the_children_and_nothing_is_sent_again) {
  Rig r;
  r.load(20);
  r.world.split({p1, p2, p3}, {p1, p4, p5});
  r.world.servers_act();
  r.initialize();
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  r.world.servers_act();  // p4 and p5 are filled
  const auto parent = r.world.only();
  r.finalize();
  // The partd has divided: p1 holds both children; their logs go on in the parent's.
  const auto& low = r.world.map->partitions[0];
  const auto& high = r.world.map->partitions[1];
  // What a target holds of a child it held of the parent.
  for (const auto& s : {p2, p3})
    r.copies[find_assignment(low, s)->id].holds = r.copies[find_assignment(parent, s)->id].holds;
  auto settle_children = [&] {
    r.held.clear();
    r.hold(low, find_assignment(low, p1)->id, false);
    r.hold(high, find_assignment(high, p1)->id, false);
    r.view();
  };
  const auto blocks = r.mover->counters().blocks;
  const auto offered = r.mover->counters().offered;
  settle_children();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.mover->streams(r.now).size(), 4u);
  EXPECT_EQ(r.mover->counters().blocks, blocks);
  EXPECT_EQ(r.mover->counters().offered, offered);
  for (const auto& s : r.mover->streams(r.now)) EXPECT_EQ(s.mark.at, point(20)) << s.target.server.name;
  r.restart();  // and stand under the children's own names now
  r.marks.erase({find_assignment(parent, p1)->id, p2, find_assignment(parent, p2)->id});
  settle_children();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.mover->counters().blocks, 0u);
}

TEST(MoverSplit, a_replacement_inherits_no_position_of_the_replaced_one) {
  Rig r;
  r.load(20);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  const auto attempt = r.world.replace(p3, p4, true);
  r.world.must(model::ops::Initialize{r.world.only().id, attempt});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.copy("p4").holds, r.truth());
}

TEST(MoverSplit, an_aborted_split_ends_the_streams_to_its_children) {
  Rig r;
  r.load(20);
  r.world.split({}, {p4, p5, p1});
  r.world.servers_act();
  r.initialize();
  r.down = {p4};
  r.view();
  r.run(std::chrono::seconds(1));
  r.world.must(model::ops::AbortSplit{r.world.only().id, r.split_now().attempt});
  r.view();
  EXPECT_EQ(r.mover->streams(r.now).size(), 2u);
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
}

// p1 holds the parent alone: both children went elsewhere. It pushes the rest, proves, drops.
struct Unload : Rig {
  Unload() {
    load(20);
    world.split({p2, p3, p4}, {p3, p4, p5});
    world.servers_act();
    initialize();
    view();
    EXPECT_TRUE(run_until([&] { return mover->all_done(); }));
    world.servers_act();
    parent = world.only();
    load(3);  // the last of its log, pushed to nobody yet
    logs_seen();
    finalize();
    low = world.map->partitions[0];
    high = world.map->partitions[1];
    for (const auto& p : {low, high})
      for (const auto& a : p.assignments)
        if (const auto* was = find_assignment(parent, a.server)) copies[a.id].holds = copies[was->id].holds;
    held.clear();
    hold(parent, find_assignment(parent, p1)->id, true);
  }
  Copy& at(const model::Partition& p, const ServerId& s) { return copies[find_assignment(p, s)->id]; }
  bool everybody_has_all() {
    for (const auto& p : {low, high})
      for (const auto& a : p.assignments)
        if (!holds_all(copies[a.id], truth(p.interval))) return false;
    return true;
  }
  model::Partition parent, low, high;
};

TEST(MoverUnload, pushes_the_rest_proves_and_drops) {
  Unload r;
  r.view();
  EXPECT_TRUE(r.drops.empty());
  ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
  EXPECT_TRUE(r.everybody_has_all());
  EXPECT_EQ(r.drops[0].end, point(23));
  EXPECT_EQ(r.drops[0].partition, r.parent.id);
  EXPECT_EQ(r.drops[0].own, find_assignment(r.parent, p1)->id);
  ASSERT_TRUE(r.run_until([&] { return r.mover->streams(r.now).empty(); }));
  EXPECT_EQ(r.drops.size(), 1u);
}

TEST(MoverUnload, one_server_that_should_have_it_and_does_not_answer_holds_up_the_drop) {  // S54
  Unload r;
  r.down = {p5};
  r.view();
  r.run(std::chrono::minutes(1));
  EXPECT_TRUE(r.drops.empty());
  const auto proofs = r.mover->proofs();
  ASSERT_EQ(proofs.size(), 1u);
  EXPECT_NE(proofs[0].why.find("p5"), std::string::npos) << proofs[0].why;  // and says for whom it waits
  r.down.clear();
  r.view();
  EXPECT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
}

TEST(MoverUnload, what_was_confirmed_and_has_rotted_is_pushed_again_before_the_drop) {  // S54
  Unload r;
  r.swallow = [](const Effect& e) { return std::holds_alternative<ReadProof>(e); };
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.everybody_has_all(); }));
  r.run(std::chrono::seconds(2));
  r.at(r.low, p4).holds.clear();
  r.swallow = nullptr;
  r.run(std::chrono::minutes(1));
  ASSERT_FALSE(r.drops.empty());
  EXPECT_TRUE(r.everybody_has_all());
  EXPECT_NE(std::find(r.notes.begin(), r.notes.end(), "proof"), r.notes.end());
}

TEST(MoverUnload, a_target_that_starts_again_during_the_proof_begins_it_anew) {
  Unload r;
  int reads = 0;
  bool restarted = false;
  r.swallow = [&](const Effect& e) {
    if (const auto* read = std::get_if<ReadProof>(&e)) {
      reads += read->after_key.empty() ? 1 : 0;
      if (!read->after_key.empty() && !restarted) {
        restarted = true;
        r.incarnations[p3] = {2};
        r.pending.emplace_back(ViewSeen{r.now, r.make_view()});
      }
    }
    return false;
  };
  r.view();
  ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
  EXPECT_GE(reads, 2);
}

TEST(MoverUnload, a_map_that_changes_during_the_proof_begins_it_anew) {
  Unload r;
  bool changed = false;
  r.swallow = [&](const Effect& e) {
    if (std::holds_alternative<RefreshView>(e) && !changed && !r.mover->proofs().empty() &&
        r.mover->proofs()[0].state == "viewing") {
      changed = true;
      auto op = model::draw_replace(r.low, *find_assignment(r.low, p2), p5, true, r.world.random);
      r.world.must(op);
      r.world.must(model::ops::Initialize{r.low.id, op.attempt});
      r.low = *r.world.map->find(r.low.id);
    }
    return false;
  };
  r.view();
  r.run(std::chrono::seconds(20));
  EXPECT_TRUE(changed);
  EXPECT_TRUE(r.drops.empty());  // it may be needed for the new one
  EXPECT_EQ(r.mover->proofs()[0].why, "a replica of what took over is still being filled");
  r.world.must(model::ops::MarkAvailable{find_assignment(r.low, p5)->id, p5});
  r.low = *r.world.map->find(r.low.id);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
  EXPECT_TRUE(r.everybody_has_all());  // the new one, too
  EXPECT_EQ(r.drops[0].txnseq, r.world.map->txnseq);
}

TEST(MoverUnload, waits_for_the_index_to_have_applied_the_log) {
  Unload r;
  r.applied = 10;
  r.view();
  r.run(std::chrono::seconds(20));
  EXPECT_TRUE(r.drops.empty());
  EXPECT_EQ(r.mover->proofs()[0].why, "the index has not applied the log yet");
  r.applied = UINT64_MAX;
  EXPECT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
}

TEST(MoverUnload, a_refused_drop_is_proved_again) {
  Unload r;
  r.drop_answer = base::fail(base::Code::conflict, "the map has changed");
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.drops.size() == 1; }));
  r.drop_answer = base::ok();
  ASSERT_TRUE(r.run_until([&] { return r.drops.size() == 2; }));
}

TEST(MoverUnload, nothing_is_dropped_that_nobody_said_to_unload) {  // S52
  Unload r;
  r.held[0].unload = false;
  r.view();
  r.run(std::chrono::minutes(1));
  EXPECT_TRUE(r.drops.empty());
  EXPECT_TRUE(r.mover->streams(r.now).empty());  // the map does not name it: kept, and told of by the partd
}

// A table of one replica whose only assignment is on this very server, and an old copy of it that should go.
struct Alone : Rig {
  Alone() {
    world.map = test::DriverWorld(9, 1, 2).map;
    load(5);
    held.clear();
    hold(world.only(), AssignmentId::draw(random), true);
  }
};

TEST(MoverUnload, nothing_is_dropped_for_which_no_other_tenure_is_responsible) {  // invariant 7
  for (const auto state : {model::AssignmentState::proposed, model::AssignmentState::initializing}) {
    Alone r;
    auto map = std::make_shared<model::Metadata>(*r.world.map);
    model::Partition p = r.world.only();
    p.assignments[0].state = state;
    map->partitions.put(std::move(p));
    r.world.map = map;
    r.view();
    r.run(std::chrono::minutes(1));
    EXPECT_TRUE(r.drops.empty());
    EXPECT_FALSE(r.mover->all_done());
  }
}

TEST(MoverUnload, a_copy_is_never_proved_against_itself) {  // invariant 7
  Alone r;
  r.held[0].assignment = r.on("p1").id;  // the map names it again
  r.copy("p1").holds = r.truth();        // it would be found to hold everything
  r.view();
  r.run(std::chrono::minutes(1));
  EXPECT_TRUE(r.drops.empty());
  EXPECT_TRUE(r.mover->streams(r.now).empty());
  EXPECT_EQ(r.copy("p1").digests, 0);
}

// With one replica nobody else may have what a server should give up under an old tenure and keep under a new one.
TEST(MoverUnload, an_old_tenure_is_pushed_to_and_proved_against_the_servers_own_later_one) {
  Alone r;
  const auto old = r.held[0].assignment;
  r.view();
  EXPECT_TRUE(r.drops.empty());
  ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
  EXPECT_EQ(r.copy("p1").holds, r.truth());
  EXPECT_EQ(r.drops[0].own, old);
}

TEST(MoverUnload, what_the_servers_own_later_tenure_has_lost_is_pushed_again_before_the_drop) {  // S54
  Alone r;
  bool lost = false;
  r.rotten = true;
  r.swallow = [&](const Effect& e) {
    if (std::holds_alternative<AskProof>(e) && !std::exchange(lost, true)) r.copy("p1").holds.clear();
    return false;
  };
  r.view();
  ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
  EXPECT_TRUE(lost);
  EXPECT_EQ(r.copy("p1").holds, r.truth());
}

TEST(MoverUnload, an_old_tenure_is_pushed_to_those_who_have_the_partition_now) {
  Rig r;
  r.load(12);
  const auto old = r.on("p1").id;
  auto op = model::draw_replace(r.world.only(), r.on("p1"), p4, true, r.world.random);
  r.world.must(op);
  r.world.must(model::ops::Initialize{r.world.only().id, op.attempt});
  r.world.must(model::ops::MarkAvailable{op.to.id, p4});
  r.world.must(model::ops::FinalizeMove{r.world.only().id, op.attempt});
  r.held.clear();
  r.hold(r.world.only(), old, true);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }));
  for (const auto* s : {"p2", "p3", "p4"}) EXPECT_EQ(r.copy(s).holds, r.truth()) << s;
}

TEST(MoverUnload, faults_in_between_never_drop_what_is_not_everywhere) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Unload r;
    r.random = base::SeededRandom(seed);
    r.lose = 0.2;
    int rot = 0;
    r.swallow = [&](const Effect& e) {
      if (const auto* ask = std::get_if<AskProof>(&e); ask != nullptr && r.random.chance(0.02)) {
        r.copies[ask->message.envelope.to_assignment].holds.clear();
        r.rotten = true;
        ++rot;
      }
      if (std::holds_alternative<Drop>(e)) {
        EXPECT_TRUE(rot > 0 || r.everybody_has_all()) << "seed " << seed;
      }
      return false;
    };
    r.view();
    ASSERT_TRUE(r.run_until([&] { return !r.drops.empty(); }, std::chrono::minutes(30))) << "seed " << seed;
  }
}

TEST(MoverPlan, a_leaving_replica_is_pushed_to_until_the_move_is_final_and_pushes_itself) {
  Rig r;
  auto op = model::draw_replace(r.world.only(), r.on("p3"), p4, false, r.world.random);
  r.world.must(op);
  r.world.must(model::ops::Initialize{r.world.only().id, op.attempt});
  r.world.must(model::ops::MarkAvailable{op.to.id, p4});
  const auto targets = targets_of(r.held[0], *r.world.map, p1);
  EXPECT_EQ(targets.size(), 3u);
  auto held = r.held[0];
  held.assignment = r.on("p3").id;
  EXPECT_EQ(targets_of(held, *r.world.map, p3).size(), 3u);
}

TEST(MoverPlan, a_copy_of_another_table_of_the_same_name_is_pushed_to_nobody) {
  Rig r;
  auto held = r.held[0];
  held.table_uuid = model::TableUuid::draw(r.random);
  EXPECT_TRUE(targets_of(held, *r.world.map, p1).empty());
  held.unload = true;
  EXPECT_FALSE(covered(held, *r.world.map));
}

TEST(MoverPlan, an_old_copy_is_pushed_to_the_servers_own_later_tenure_and_one_that_is_kept_is_not) {
  Rig r;
  auto held = r.held[0];
  const auto to_p1 = [&] {
    const auto targets = targets_of(held, *r.world.map, p1);
    return std::count_if(targets.begin(), targets.end(), [](const auto& t) { return t.server == p1; });
  };
  EXPECT_EQ(to_p1(), 0);
  held.unload = true;
  EXPECT_EQ(to_p1(), 0);  // the map names it: not to itself
  EXPECT_FALSE(covered(held, *r.world.map));
  held.assignment = model::AssignmentId::draw(r.random);
  EXPECT_EQ(to_p1(), 1);
  EXPECT_TRUE(covered(held, *r.world.map));
}

TEST(Mover, marks_that_nothing_needs_are_forgotten_in_the_end) {
  Rig r;
  const MarkKey stray{AssignmentId::draw(r.random), p2, AssignmentId::draw(r.random)};
  r.marks[stray] = {point(3), 0, {}};
  r.load(3);
  r.restart();
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.marks.contains(stray));
  r.run(kForgetAfter + std::chrono::minutes(1));
  EXPECT_FALSE(r.marks.contains(stray));
  EXPECT_TRUE((r.marks.contains({r.on("p1").id, p2, r.on("p2").id})));
}

}  // namespace
}  // namespace cantle::proto

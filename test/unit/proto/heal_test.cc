// A copy that may lack records it had confirmed (a damaged block of its journal, S62): every replica offers it
// everything once more, and it answers for nothing before that.
#include <gtest/gtest.h>

#include "test/unit/proto/mover_rig.h"
#include "test/unit/proto/push_rig.h"

namespace cantle::proto {
namespace {

using namespace std::chrono_literals;

// --- the mover: who offers ---------------------------------------------------------------------------------

// p1 pushes to p2 and p3; p2 asks to be healed, with the number in `heal`.
struct HealingMover : test::MoverRig {
  explicit HealingMover(uint64_t seed = 1) : MoverRig(seed) {
    hold_own();
    rotten = true;
    swallow = [this](const mover::Effect& e) {
      if (const auto* end = std::get_if<mover::SendEnd>(&e); end != nullptr && end->message.healed != 0) {
        ended_with = end->message.healed;
        complete = complete && holds_all(copy("p2"), due);
      }
      const auto* begin = std::get_if<mover::SendBegin>(&e);
      if (begin == nullptr || begin->to.name != "p2" || begin->message.kind != model::BulkKind::log) return false;
      ++copy("p2").begins;
      if (lose > 0 && random.chance(lose)) {
        pending.emplace_back(mover::Began{now, begin->stream, begin->ticket,
                                          base::fail(base::Code::outcome_unknown, "the connection broke")});
        return true;
      }
      pending.emplace_back(mover::Began{now, begin->stream, begin->ticket,
                                        model::BulkBeginReply{incarnations[begin->to], "", false, heal}});
      return true;
    };
  }
  // Records stamped by the mover's own server, by the target, by a third replica, and by one that is gone.
  void load(int n) {
    for (int i = 0; i < n; ++i) append("k" + std::to_string(1000 + log.size()), 1 + static_cast<uint32_t>(i % 4));
  }
  bool at_rest() {
    return run_until([this] { return mover->all_done(); });
  }
  // p2 starts again without these records, and says so.
  void damage(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) copy("p2").holds.erase(log[i].key);
    heal = ++incarnations[model::ServerId{"p2"}].value;
    due = truth();
    view();
  }
  bool healed() {
    return run_until([this] { return ended_with == heal; });
  }
  mover::Mark mark() {
    for (const auto& s : mover->streams(now))
      if (s.target.server.name == "p2") return s.mark;
    return {};
  }
  int notes_of(const std::string& event) const {
    return static_cast<int>(std::count(notes.begin(), notes.end(), event));
  }

  uint64_t heal = 0, ended_with = 0;
  std::map<std::string, test::Version> due;  // what there was when it was damaged
  bool complete = true;                      // whenever a bulk.end said so, everything was there
};

TEST(HealMover, a_target_that_lost_what_it_confirmed_is_offered_everything_once_more) {
  HealingMover r;
  r.load(24);
  r.view();
  ASSERT_TRUE(r.at_rest());
  const auto p3 = r.copy("p3").digests;
  r.damage(3, 17);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_TRUE(r.holds_all(r.copy("p2"), r.truth()));
  ASSERT_TRUE(r.at_rest());
  EXPECT_EQ(r.mark().at, test::point(24));
  EXPECT_EQ(r.notes_of("heal"), 1);
  EXPECT_EQ(r.copy("p3").digests, p3);  // nobody else is troubled
}

// That the target has started again is heard of late, or our own server starts again: it is still told.
TEST(HealMover, news_of_a_restart_does_not_make_it_forget_whom_it_heals) {
  for (const bool own : {false, true}) {
    HealingMover r;
    r.load(24);
    r.view();
    ASSERT_TRUE(r.at_rest());
    for (size_t i = 3; i < 17; ++i) r.copy("p2").holds.erase(r.log[i].key);
    r.due = r.truth();
    r.heal = 7;
    r.down = {model::ServerId{"p2"}};
    r.load(1);
    r.logs_seen();
    r.run(3s);
    r.down.clear();  // opened again; the view does not show the new life yet
    ASSERT_TRUE(r.run_until([&] { return r.notes_of("heal") == 1; }));
    ++(own ? r.incarnation : r.incarnations[model::ServerId{"p2"}]).value;
    r.view();
    ASSERT_TRUE(r.healed()) << own;
    EXPECT_TRUE(r.complete);
  }
}

TEST(HealMover, what_others_stamped_and_every_replica_had_is_offered_too) {
  HealingMover r;
  r.load(24);
  for (const uint32_t stamper : {2, 3, 4}) {
    test::Version top;
    for (const auto& rec : r.log)
      if (rec.version.server().value == stamper) top = std::max(top, rec.version);
    r.held[0].settled.push_back({top, r.world.map->txnseq});
  }
  for (const char* s : {"p2", "p3"}) r.copy(s).take(r.log);
  r.view();
  ASSERT_TRUE(r.at_rest());
  EXPECT_GT(r.mover->counters().settled, 0u);  // passed over, as long as nothing is lost
  r.damage(0, 24);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_TRUE(r.holds_all(r.copy("p2"), r.truth()));
}

TEST(HealMover, only_what_is_missing_is_sent) {
  HealingMover r;
  r.load(40);
  r.view();
  ASSERT_TRUE(r.at_rest());
  const auto records = r.mover->counters().records;
  r.damage(8, 11);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(r.mover->counters().records - records, 3u);
}

// The end that a bulk.end needs was measured when the map came; a heal must reach the end of the log as it is now.
TEST(HealMover, what_the_log_got_since_the_map_is_offered_before_it_says_so) {
  HealingMover r;
  r.load(8);
  r.view();
  ASSERT_TRUE(r.at_rest());
  r.load(40);
  r.logs_seen();
  ASSERT_TRUE(r.at_rest());
  r.damage(30, 48);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_TRUE(r.holds_all(r.copy("p2"), r.truth()));
}

TEST(HealMover, live_sends_do_not_move_the_position_past_what_is_still_to_be_offered) {
  HealingMover r;
  r.load(24);
  r.view();
  ASSERT_TRUE(r.at_rest());
  const auto inner = r.swallow;
  r.swallow = [&](const mover::Effect& e) { return inner(e) || std::holds_alternative<mover::ReadLog>(e); };
  r.damage(0, 24);
  r.run(1s);
  EXPECT_EQ(r.mark().at, test::point(0));
  r.feed(mover::LiveSeen{r.now, {r.on("p1").id, r.on("p2").id}, test::point(24)});
  EXPECT_EQ(r.mark().at, test::point(0));
  EXPECT_EQ(r.ended_with, 0u);
}

TEST(HealMover, a_stream_that_breaks_goes_on_and_does_not_begin_the_heal_anew) {
  HealingMover r;
  r.load(60);
  r.view();
  ASSERT_TRUE(r.at_rest());
  int blocks = 0;
  const auto inner = r.swallow;
  r.swallow = [&](const mover::Effect& e) {
    const auto* digest = std::get_if<mover::SendDigest>(&e);
    if (digest != nullptr && digest->to.name == "p2" && ++blocks == 6) {
      r.pending.emplace_back(mover::Digested{r.now, digest->stream, digest->ticket,
                                             base::fail(base::Code::outcome_unknown, "the connection broke")});
      return true;
    }
    return inner(e);
  };
  r.damage(0, 60);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_GT(blocks, 6);
  EXPECT_EQ(r.notes_of("heal"), 1);
}

TEST(HealMover, the_next_life_of_the_target_is_healed_anew) {
  HealingMover r;
  r.load(24);
  r.view();
  ASSERT_TRUE(r.at_rest());
  r.damage(0, 9);
  ASSERT_TRUE(r.healed());
  r.damage(9, 24);  // it had not been compared with everybody before it died
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_EQ(r.notes_of("heal"), 2);
}

TEST(HealMover, a_target_that_dies_in_the_middle_is_healed_from_the_beginning) {
  HealingMover r;
  r.load(60);
  r.view();
  ASSERT_TRUE(r.at_rest());
  int digests = 0;
  const auto inner = r.swallow;
  r.swallow = [&](const mover::Effect& e) {
    const auto* digest = std::get_if<mover::SendDigest>(&e);
    if (digest != nullptr && digest->to.name == "p2") ++digests;
    return (digests > 5 && digest != nullptr) || inner(e);
  };
  r.damage(0, 40);
  r.run(2s);
  EXPECT_EQ(r.ended_with, 0u);
  r.swallow = inner;
  r.damage(0, 60);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
}

TEST(HealMover, a_journal_that_does_not_reach_back_heals_by_a_snapshot_and_the_log) {
  HealingMover r;
  r.load(40);
  r.view();
  ASSERT_TRUE(r.at_rest());
  r.oldest = 20;
  r.logs_seen();
  r.damage(0, 40);
  ASSERT_TRUE(r.healed());
  EXPECT_TRUE(r.complete);
  EXPECT_GT(r.copy("p2").ingests, 0);
}

TEST(HealMover, a_copy_that_was_filled_by_a_snapshot_heals_by_one) {
  HealingMover r;
  r.held[0].hollow = true;
  const test::Rec old{"a0", "v", test::stamp(1, 3)};  // in the index of p1, in no log of it
  r.load(20);
  r.view();
  ASSERT_TRUE(r.at_rest());
  r.log.insert(r.log.begin(), old);
  r.damage(0, 21);
  ASSERT_TRUE(r.healed());
  EXPECT_GT(r.copy("p2").ingests, 0);
  EXPECT_TRUE(r.complete);
}

TEST(HealMover, whatever_breaks_and_whenever_replpush_dies_no_end_is_told_too_early) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    HealingMover r(seed);
    r.load(16);
    r.view();
    ASSERT_TRUE(r.at_rest()) << seed;
    r.load(40);
    r.logs_seen();
    r.lose = 0.2;
    r.crash_in = static_cast<int>(seed % 40);
    r.damage(seed % 20, 20 + seed % 36);
    r.run(3s);
    r.load(4);
    r.logs_seen();
    r.run(5s);
    r.lose = 0;
    ASSERT_TRUE(r.healed()) << seed;
    ASSERT_TRUE(r.at_rest()) << seed;
    EXPECT_TRUE(r.complete) << seed;
    EXPECT_TRUE(r.holds_all(r.copy("p2"), r.truth())) << seed;
  }
}

// --- the damaged server ------------------------------------------------------------------------------------

struct Damaged : testing::Test {
  test::DriverWorld w;
  static constexpr uint64_t kLife = 4;
  push::Held held(const model::Partition& p, bool whole = false) {
    const auto* own = model::find_assignment(p, model::ServerId{"p1"});
    return {p.id, own->id, p.region, w.map->table, p.interval, false, {10}, whole};
  }
  push::Self self(bool whole = false) {
    push::Self s;
    s.incarnation = {kLife};
    s.held = {held(w.only(), whole)};
    s.seen[w.map->table] = {1};
    return s;
  }
  // bulk.end of a replica; `healed`: the number it had been asked with.
  void end(test::PushRig& r, const model::PartitionId& p, const model::Assignment& from, const model::Assignment& to,
           uint64_t healed) {
    model::BulkEnd m{r.envelope(p, from, to), {{3}, {20}, 0}, healed};
    push::BulkEndArrived in;
    in.message = &m;
    r.feed(in);
  }
  void end(test::PushRig& r, const char* from, uint64_t healed) { end(r, w.only().id, r.of(from), r.of("p1"), healed); }
  void epochs(test::PushRig& r, const char* of, uint64_t last) {
    r.feed(push::EpochsAnswered{w.only().id, r.of(of).id, model::EpochsReply{{3}, {{3}, {last}, 0}}});
  }
  void live(test::PushRig& r, std::set<model::ServerId> servers) {
    w.live = std::move(servers);
    r.feed(push::LiveRead{r.live()});
  }
};

TEST_F(Damaged, answers_nothing_before_every_live_replica_has_offered_everything) {
  test::PushRig r(w, "p1", self());
  r.install();
  r.pass(100ms);
  EXPECT_EQ(r.server.heal(w.only().id), kLife);
  EXPECT_EQ(r.server.where("t", "a", {}, false).error.code, base::Code::catching_up);
  end(r, "p2", kLife);
  r.pass(100ms);
  EXPECT_FALSE(r.server.caught_up());
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
  end(r, "p3", kLife);
  epochs(r, "p2", 20);
  epochs(r, "p3", 20);
  r.pass(100ms);
  EXPECT_TRUE(r.server.caught_up());
  EXPECT_EQ(r.server.where("t", "a", {}, false).kind, push::Where::Kind::here);
  ASSERT_EQ(r.take<push::MarkWhole>().size(), 1u);
  EXPECT_EQ(r.server.heal(w.only().id), 0u);
  r.pass(1s);
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);  // once
}

TEST_F(Damaged, an_end_that_was_not_asked_for_in_this_life_does_not_count) {
  test::PushRig r(w, "p1", self());
  r.install();
  epochs(r, "p2", 0);  // they have nothing of their own to deliver; what they hold is another matter
  epochs(r, "p3", 0);
  for (const uint64_t number : {uint64_t{0}, kLife - 1, kLife + 1}) {
    end(r, "p2", number);
    end(r, "p3", number);
    r.pass(100ms);
    EXPECT_FALSE(r.server.caught_up()) << number;
  }
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
}

TEST_F(Damaged, no_time_makes_it_answer) {
  test::PushRig r(w, "p1", self());
  r.install();
  end(r, "p2", kLife);
  for (int i = 0; i < 100; ++i) r.pass(1s);
  EXPECT_FALSE(r.server.caught_up());
  EXPECT_EQ(r.server.where("t", "a", {}, false).error.code, base::Code::catching_up);
}

TEST_F(Damaged, a_dead_replica_is_not_waited_for_but_the_copy_is_not_whole_before_it_came_back) {
  test::PushRig r(w, "p1", self());
  live(r, {model::ServerId{"p1"}, model::ServerId{"p2"}});
  r.install();
  end(r, "p2", kLife);
  epochs(r, "p2", 20);
  r.pass(100ms);
  EXPECT_TRUE(r.server.caught_up());
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
  EXPECT_EQ(r.server.heal(w.only().id), kLife);
  live(r, {model::ServerId{"p1"}, model::ServerId{"p2"}, model::ServerId{"p3"}});
  r.pass(100ms);
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
  end(r, "p3", kLife);
  EXPECT_EQ(r.count<push::MarkWhole>(), 1u);
}

TEST_F(Damaged, who_replaces_a_replica_that_never_came_back_has_to_be_compared_with_as_well) {
  test::PushRig r(w, "p1", self());
  live(r, {model::ServerId{"p1"}, model::ServerId{"p2"}, model::ServerId{"p4"}});
  r.install();
  end(r, "p2", kLife);
  const auto attempt = w.replace(model::ServerId{"p3"}, model::ServerId{"p4"}, true);
  w.must(model::ops::Initialize{w.only().id, attempt});
  w.must(model::ops::MarkAvailable{r.of("p4").id, model::ServerId{"p4"}});
  w.must(model::ops::FinalizeMove{w.only().id, attempt});
  r.install();
  r.pass(100ms);
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
  end(r, "p4", kLife);
  EXPECT_EQ(r.count<push::MarkWhole>(), 1u);
}

TEST_F(Damaged, the_only_replica_is_told_whole_at_once) {
  w = test::DriverWorld(3, 1);
  test::PushRig r(w, "p1", self());
  r.install();
  r.pass(100ms);
  EXPECT_EQ(r.take<push::MarkWhole>().size(), 1u);
  EXPECT_TRUE(r.server.caught_up());
}

TEST_F(Damaged, a_copy_that_is_whole_asks_for_nothing) {
  test::PushRig r(w, "p1", self(true));
  r.install();
  EXPECT_EQ(r.server.heal(w.only().id), 0u);
  r.pass(100ms);
  EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
}

TEST_F(Damaged, children_of_a_damaged_copy_are_compared_with_their_own_replicas) {
  test::PushRig r(w, "p1", self());
  r.install();
  end(r, "p2", kLife);  // for the parent: no word about the child's log
  const auto attempt = w.split();
  w.must(model::ops::Initialize{w.only().id, attempt});
  const auto parent = w.only();
  std::vector<model::AssignmentId> ready;
  for (const auto* c : {&parent.split->low, &parent.split->high})
    for (const auto& a : c->assignments) ready.push_back(a.id);
  w.must(model::ops::FinalizeSplit{parent.id, attempt, ready});
  r.install();
  const auto low = w.map->partitions.front();
  EXPECT_EQ(r.server.heal(low.id), kLife);
  const auto* own = model::find_assignment(low, model::ServerId{"p1"});
  for (const char* s : {"p2", "p3"}) {
    EXPECT_EQ(r.count<push::MarkWhole>(), 0u);
    end(r, low.id, *model::find_assignment(low, model::ServerId{s}), *own, kLife);
  }
  const auto whole = r.take<push::MarkWhole>();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].partition, low.id);
  EXPECT_EQ(r.server.heal(w.map->partitions.get(parent.split->high.region)->id), kLife);
}

// Nor does what it may have lost count for anybody else: its mover says to nobody that it has filled it.
TEST_F(Damaged, a_copy_vouches_for_nothing_before_it_was_compared_and_never_once_it_is_aside) {
  test::PushRig r(w, "p1", self());
  r.install();
  EXPECT_TRUE(r.server.held().at(0).catching_up);
  for (const char* s : {"p2", "p3"}) end(r, s, kLife), epochs(r, s, 20);
  r.pass(100ms);
  EXPECT_FALSE(r.server.held().at(0).catching_up);
  const auto replace = [&](test::PushRig& rig) {
    const auto attempt = w.replace(model::ServerId{"p1"}, model::ServerId{"p4"}, true);
    w.must(model::ops::Initialize{w.only().id, attempt});
    w.must(model::ops::MarkAvailable{rig.of("p4").id, model::ServerId{"p4"}});
    w.must(model::ops::FinalizeMove{w.only().id, attempt});
  };
  const auto before = self();
  replace(r);
  r.install();
  ASSERT_TRUE(r.server.held().at(0).unload);
  EXPECT_FALSE(r.server.held().at(0).catching_up);  // it was whole again
  test::PushRig damaged(w, "p1", before);
  damaged.install();
  ASSERT_TRUE(damaged.server.held().at(0).unload);
  EXPECT_TRUE(damaged.server.held().at(0).catching_up);
}

// A split has ended, p4 is still being filled, and what it had confirmed is lost to damage: it does not count as one
// that was there from the beginning any more, and is compared with both others.
TEST_F(Damaged, a_copy_that_is_being_filled_is_as_one_that_joins_now) {
  const auto attempt = w.split({}, {model::ServerId{"p1"}, model::ServerId{"p2"}, model::ServerId{"p4"}});
  w.must(model::ops::Initialize{w.only().id, attempt});
  const auto parent = w.only();
  std::vector<model::AssignmentId> ready;
  for (const auto* c : {&parent.split->low, &parent.split->high})
    for (const auto& a : c->assignments)
      if (a.server.name != "p4") ready.push_back(a.id);
  w.must(model::ops::FinalizeSplit{parent.id, attempt, ready});
  const auto high = *w.map->find("x");
  const auto* own = model::find_assignment(high, model::ServerId{"p4"});
  for (const bool whole : {true, false}) {
    push::Self s;
    s.incarnation = {kLife};
    s.held = {{high.id, own->id, high.region, w.map->table, high.interval, false, {10}, whole}};
    s.seen[w.map->table] = {1};
    test::PushRig r(w, "p4", s);
    r.install();
    EXPECT_EQ(r.server.held().at(0).catching_up, !whole);
    const auto from = [&](const char* name) { return *model::find_assignment(high, model::ServerId{name}); };
    end(r, high.id, from("p1"), *own, kLife);
    end(r, high.id, *model::find_assignment(parent, model::ServerId{"p3"}), *own, kLife);  // its old copy
    r.pass(5s);
    EXPECT_EQ(r.count<push::MarkAvailable>() > 0, whole);
    end(r, high.id, from("p2"), *own, kLife);
    r.pass(5s);
    EXPECT_GT(r.count<push::MarkAvailable>(), 0u);
  }
}

// A bulk.end of a stream that was opened in the life before says nothing about what was lost since.
TEST_F(Damaged, a_copy_that_is_being_filled_is_not_filled_by_whom_has_not_offered_everything_in_this_life) {
  const auto attempt = w.replace(model::ServerId{"p3"}, model::ServerId{"p4"}, true);
  w.must(model::ops::Initialize{w.only().id, attempt});
  const auto* own = model::find_assignment(w.only(), model::ServerId{"p4"});
  push::Self s;
  s.incarnation = {kLife};
  s.held = {{w.only().id, own->id, w.only().region, w.map->table, w.only().interval, false, {10}, false}};
  s.seen[w.map->table] = {1};
  test::PushRig r(w, "p4", s);
  r.install();
  for (const char* from : {"p1", "p2"}) end(r, w.only().id, r.of(from), *own, 0);
  r.pass(5s);
  EXPECT_EQ(r.count<push::MarkAvailable>(), 0u);
  for (const char* from : {"p1", "p2"}) end(r, w.only().id, r.of(from), *own, kLife);
  r.pass(5s);
  EXPECT_GT(r.count<push::MarkAvailable>(), 0u);
}

}  // namespace
}  // namespace cantle::proto

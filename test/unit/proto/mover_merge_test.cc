// The mover around a merge of a push table: the target's log goes on from two others.
#include <gtest/gtest.h>

#include "lib/proto/merge_driver.h"
#include "lib/proto/mover.h"
#include "test/unit/proto/mover_rig.h"

namespace cantle::proto {
namespace {

using namespace mover;
using model::AssignmentId;
using model::ServerId;
using test::DriverWorld;
using test::point;

const ServerId p1{"p1"}, p2{"p2"}, p3{"p3"};

// A table whose only partition was split at m and merged again, as p1 sees it: the logs of the two ended at LSN 8 and
// 5, the target's begins behind 8.
struct Merged {
  Merged() {
    auto attempt = w.split();
    w.servers_act();
    w.must(model::ops::Initialize{w.only().id, attempt});
    const auto parent = w.only();
    model::ops::FinalizeSplit op{parent.id, attempt, {}};
    for (const auto* child : {&parent.split->low, &parent.split->high})
      for (const auto& a : child->assignments) op.ready.push_back(a.id);
    w.must(op);
    w.must(model::ops::SweepEnded{parent.id, attempt});
    low = w.map->partitions[0];
    high = w.map->partitions[1];
    attempt = w.merge();
    w.servers_act();
    w.must(model::ops::FinalizeMerge{attempt, low.id, high.id, observed_merge(*w.only().merge, w.world()), {}});
    hold();
  }

  const AssignmentId& on(const model::Partition& p, const ServerId& s) const { return find_assignment(p, s)->id; }
  StreamId stream(const model::Partition& of, const ServerId& to) const { return {on(of, p1), on(w.only(), to)}; }
  void hold() {
    model::HeldPartition h;
    h.table = "t";
    h.table_uuid = w.map->table;
    h.partition = w.only().id;
    h.assignment = on(w.only(), p1);
    h.interval = w.only().interval;
    held = {h};
  }
  ViewSeen view() const {
    ViewSeen in{now, {p1, {1}, {1}, {{"t", w.map}}, held, {}}};
    for (uint32_t i = 1; i <= 3; i++) in.view.peers.push_back({ServerId{"p" + std::to_string(i)}, "", {1}, {i}, true});
    return in;
  }
  LogsSeen logs(uint64_t measure) const {
    LogsSeen in{now, measure, {}};
    in.logs[w.only().id] = {point(10), {9}, {{low.id, on(low, p1)}, {high.id, on(high, p1)}}, point(8)};
    in.logs[low.id] = {point(8), {oldest}, {}, {}};
    in.logs[high.id] = {point(5), {oldest}, {}, {}};
    return in;
  }
  // Everything is answered but reads of logs and of the index, which are kept; for a second.
  void run(const ServerId& to = p2) {
    feed(view());
    for (int i = 0; i < 20; i++) {
      now = now + std::chrono::milliseconds(100);
      feed(Tick{now});
    }
    std::erase_if(reads, [&](const ReadLog& r) { return r.stream.target != on(w.only(), to); });
  }
  void feed(Input in) {
    for (auto& e : mover.step(std::move(in))) std::visit([&](auto& x) { perform(x); }, e);
  }
  template <class E>
  void perform(E&) {}
  void perform(LoadMark& e) {
    MarkLoaded in{now, e.stream, e.ticket, {}};
    for (const auto& key : e.keys)
      if (const auto it = marks.find(key); it != marks.end()) in.found.push_back(*it);
    feed(std::move(in));
  }
  void perform(RecordMark& e) { marks[e.key] = e.mark; }
  void perform(Measure& e) { feed(logs(e.number)); }
  void perform(SendBegin& e) {
    begun.insert(e.stream);
    model::BulkBeginReply reply;
    reply.heal = heal;
    feed(Began{now, e.stream, e.ticket, reply});
  }
  void perform(ReadLog& e) { reads.push_back(e); }
  void perform(OpenSnapshot& e) { snapshots.push_back(e); }
  void perform(SendEnd& e) { ends.insert(e.stream); }

  // What was confirmed by p2's tenure of that partition.
  void confirmed(const model::Partition& p, uint64_t lsn, const ServerId& by = p2) {
    marks[{on(p, p1), by, on(p, by)}] = {point(lsn), 0, {}};
  }
  uint64_t position(const ServerId& at) { return marks[{on(w.only(), p1), at, on(w.only(), at)}].at.lsn.value; }
  std::vector<std::string> read_of() const {
    std::vector<std::string> out;
    for (const auto& r : reads)
      out.push_back((r.partition == low.id    ? "low"
                     : r.partition == high.id ? "high"
                                              : "target") +
                    std::string(" ") + to_string(r.after.lsn));
    return out;
  }

  DriverWorld w;
  model::Partition low, high;
  base::SeededRandom random{7};
  Mover mover{random};
  base::Instant now{std::chrono::seconds(100)};
  std::vector<model::HeldPartition> held;
  std::map<MarkKey, Mark> marks;
  uint64_t oldest = 1, heal = 0;
  std::vector<ReadLog> reads;
  std::vector<OpenSnapshot> snapshots;
  std::set<StreamId> begun, ends;
};

using Reads = std::vector<std::string>;

TEST(MoverMerge, who_has_all_of_both_goes_on_where_the_targets_log_begins) {
  Merged m;
  m.confirmed(m.low, 8);
  m.confirmed(m.high, 5);
  m.run();
  EXPECT_EQ(m.position(p2), 8U);
  EXPECT_EQ(m.read_of(), (Reads{"target 8"}));
}

TEST(MoverMerge, what_is_missing_of_either_is_sent_first_and_ends_nothing) {
  Merged m;
  m.confirmed(m.low, 8);
  m.confirmed(m.high, 3);
  m.run();
  EXPECT_EQ(m.read_of(), (Reads{"high 3"}));
  EXPECT_EQ(m.reads[0].interval, (model::Interval{"m", ""}));
  EXPECT_EQ(m.position(p2), 0U);
  LogRead read{m.now, m.reads[0].stream, m.reads[0].ticket, ReadEnd::batch, {}, {}, {}};
  read.batch.through = point(5);
  read.batch.own = {std::make_shared<const std::string>(), 0};
  m.feed(std::move(read));
  m.run();
  EXPECT_EQ(m.position(p2), 8U);
  EXPECT_EQ(m.read_of().back(), "target 8");
  EXPECT_FALSE(m.ends.contains(m.stream(m.high, p2)) || m.ends.contains(m.stream(m.low, p2)));
  EXPECT_TRUE(m.snapshots.empty());
}

// A position says how far one log was confirmed by one tenure; of another log it says nothing.
TEST(MoverMerge, no_position_of_the_one_is_taken_for_one_of_the_other_or_of_the_target) {
  Merged m;
  m.confirmed(m.low, 8);
  m.marks[{m.on(m.high, p1), p2, m.on(m.low, p2)}] = {point(5), 0, {}};
  m.marks[{m.on(m.low, p1), p2, m.on(m.high, p2)}] = {point(8), 0, {}};
  m.run();
  EXPECT_EQ(m.read_of(), (Reads{"high 0"}));
  EXPECT_EQ(m.position(p2), 0U);
}

TEST(MoverMerge, what_the_journal_has_no_more_comes_in_a_snapshot_of_the_target) {
  Merged m;
  m.confirmed(m.low, 2);
  m.confirmed(m.high, 5);
  m.oldest = 5;
  m.run();
  EXPECT_TRUE(m.read_of().empty());
  ASSERT_FALSE(m.snapshots.empty());
  for (const auto& s : m.snapshots) EXPECT_EQ(s.partition, m.w.only().id);
  EXPECT_EQ(m.position(p2), 0U);
}

TEST(MoverMerge, who_asks_for_everything_gets_the_target) {
  Merged m;
  m.confirmed(m.low, 2);
  m.confirmed(m.high, 5);
  m.heal = 9;
  m.run();
  EXPECT_TRUE(m.read_of().empty());
  ASSERT_FALSE(m.snapshots.empty());
  EXPECT_EQ(m.snapshots[0].partition, m.w.only().id);
}

// Recorded for the target once, also as nothing: that is where it goes on, whatever was known of the two.
TEST(MoverMerge, a_position_of_the_target_is_believed) {
  Merged m;
  m.confirmed(m.low, 3);
  m.confirmed(m.high, 5);
  m.marks[{m.on(m.w.only(), p1), p2, m.on(m.w.only(), p2)}] = {point(9), 0, {}};
  m.run();
  EXPECT_EQ(m.read_of(), (Reads{"target 9"}));
}

// METADATA has forgotten the two: only what was recorded under the target's tenure counts.
TEST(MoverMerge, when_the_two_are_forgotten_they_are_sent_from_the_beginning_or_copied) {
  Merged m;
  m.confirmed(m.low, 8);
  m.confirmed(m.high, 5);
  for (const auto& e : std::vector(m.w.map->ended)) m.w.must(model::ops::SweepEnded{e.id, e.attempt});
  m.run();
  EXPECT_EQ(m.position(p2), 0U);
  auto reads = m.read_of();
  std::sort(reads.begin(), reads.end());
  EXPECT_EQ(reads, (Reads{"high 0", "low 0"}));
}

}  // namespace
}  // namespace cantle::proto

// Snapshots of quorum tables' copies: read from one store, put into another's in the place of what was there.
#include <gtest/gtest.h>

#include "lib/store/rows.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::QuorumSnapshotPart;
using model::SnapshotPlace;

constexpr uint64_t kClient = 77;

class SnapshotStore : public QuorumStore {
 public:
  SnapshotStore() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
  }
  void begin() {
    ASSERT_TRUE(begin_epoch(1));
    run();
    ASSERT_TRUE(commit(1));
  }
  void write_as(uint64_t client, uint64_t number, const std::string& key, const std::string& value = "v") {
    const auto first = log().end.lsn.next();
    clock.at = clock.at + std::chrono::milliseconds(10);
    ASSERT_TRUE(engine->build(partition(1), {model::BlockKind::data, log().end.epoch, log().commit},
                              quorum_payload(log().end.epoch, first, {{key, value}}, {client, number}), nullptr));
    run();
    ASSERT_TRUE(commit(log().end.lsn.value));
  }
  base::Result<QuorumSnapshotPart> read(const SnapshotPlace& place, uint32_t bytes = 400) {
    base::Result<QuorumSnapshotPart> got = base::fail(Code::cancelled, "no answer");
    engine->read_snapshot(partition(1), place, bytes, [&](base::Result<QuorumSnapshotPart> p) { got = std::move(p); });
    run();
    return got;
  }
  base::Status refill(const QuorumSnapshotPart& part) {
    return wait([&](auto done) { return engine->refill(partition(1), part, done); });
  }
  base::Status install() {
    return wait([&](auto done) { return engine->install(partition(1), done); });
  }
  // All of one, from another store; the parts it took.
  size_t pull(SnapshotStore& from, uint32_t bytes = 400, size_t most = SIZE_MAX) {
    size_t parts = 0;
    for (SnapshotPlace place = engine->refilled(partition(1)); !place.all && parts < most; parts++) {
      const auto part = from.read(place, bytes);
      EXPECT_TRUE(part) << base::to_string(part.error());
      if (!part) return parts;
      const auto filled = refill(*part);
      EXPECT_TRUE(filled) << base::to_string(filled.error());
      if (!filled) return parts;
      place = engine->refilled(partition(1));
      EXPECT_EQ(place, part->place);
    }
    return parts;
  }
  void copy_log_from(SnapshotStore& from) {
    const auto blocks = from.read_log(log().end.lsn.value + 1);
    ASSERT_TRUE(blocks) << base::to_string(blocks.error());
    for (const auto& b : *blocks) ASSERT_TRUE(take(b));
    run();
    ASSERT_TRUE(commit(from.log().commit.value));
  }
};

void expect_same(SnapshotStore& a, SnapshotStore& b) {
  EXPECT_EQ(a.log().end, b.log().end);
  EXPECT_EQ(a.log().epochs, b.log().epochs);
  EXPECT_EQ(a.log().log_time_ms, b.log().log_time_ms);
  EXPECT_EQ(a.all(1), b.all(1));
  EXPECT_EQ(a.hash(1).hash, b.hash(1).hash);
  for (uint64_t client = kClient; client < kClient + 5; client++) {
    const auto x = a.series(client), y = b.series(client);
    EXPECT_EQ(x.window, y.window) << client;
    EXPECT_EQ(x.now_ms, y.now_ms);
    EXPECT_TRUE(x.whole && y.whole);
  }
}

// A source with records, deletes, series in the index and above it, two epochs.
void fill(SnapshotStore& s) {
  s.begin();
  for (uint64_t n = 1; n <= 60; n++)
    s.write_as(kClient + n % 5, n, "k" + std::to_string(n % 23), std::string(n * 7, 'a'));
  ASSERT_TRUE(s.begin_epoch(4));
  s.run();
  ASSERT_TRUE(s.commit(s.log().end.lsn.value));
  s.settle();
  for (uint64_t n = 61; n <= 80; n++) s.write_as(kClient + n % 5, n, "k" + std::to_string(n % 23), "b");
}

TEST(QuorumSnapshot, brings_records_series_epochs_and_log_time_and_the_log_goes_on_from_there) {
  SnapshotStore from, to;
  fill(from);
  EXPECT_GT(to.pull(from), 5U);
  EXPECT_EQ(to.log().end, model::LogPoint{}) << "the old copy stays until it is told";
  ASSERT_TRUE(to.install());
  EXPECT_EQ(to.log().end, from.engine->find(partition(1))->applied);
  EXPECT_TRUE(to.engine->find(partition(1))->hollow);
  to.copy_log_from(from);
  expect_same(from, to);
  for (int life = 0; life < 2; life++) {
    to.lose_power();
    ASSERT_TRUE(to.commit(from.log().commit.value));
    expect_same(from, to);
    to.settle();
  }
  // And what it has, others may get from it.
  SnapshotStore third;
  third.pull(to);
  ASSERT_TRUE(third.install());
  third.copy_log_from(from);
  expect_same(from, third);
}

TEST(QuorumSnapshot, is_of_one_instant_whatever_is_written_meanwhile) {
  SnapshotStore from, to;
  fill(from);
  from.settle();
  const auto before = from.all(1);
  const auto at = from.log().end;
  auto part = from.read({}, 100);
  ASSERT_TRUE(part && to.refill(*part));
  for (uint64_t n = 81; n <= 140; n++) from.write_as(kClient, n, "k" + std::to_string(n % 23), "later");
  for (int i = 0; i < 4; i++) from.pass(std::chrono::milliseconds(1100));
  to.pull(from);
  ASSERT_TRUE(to.install());
  EXPECT_EQ(to.log().end, at);
  EXPECT_EQ(to.all(1), before);
  to.copy_log_from(from);
  expect_same(from, to);
}

// The old copy, its log and its promise are there until the new one takes their place, whenever it dies.
TEST(QuorumSnapshot, replaces_a_copy_in_one_step_and_what_was_promised_stays_promised) {
  SnapshotStore from;
  fill(from);
  for (const size_t parts : {0U, 1U, 5U, 100U}) {
    for (const bool installed : {false, true}) {
      if (installed && parts < 100) continue;
      SCOPED_TRACE(parts);
      SnapshotStore to;
      to.begin();
      to.write_as(kClient, 9, "mine", "old");
      ASSERT_TRUE(to.build(1, "mine", "uncommitted"));
      ASSERT_TRUE(to.seal(9));
      const auto end = to.log().end;
      to.pull(from, 400, parts);
      if (installed) {
        ASSERT_TRUE(to.install());
        ASSERT_TRUE(to.seal(11));
      }
      for (int life = 0; life < 2; life++) {
        EXPECT_EQ(to.log().promised.value, installed ? 11U : 9U);
        EXPECT_EQ(to.log().end, installed ? from.engine->find(partition(1))->applied : end);
        EXPECT_EQ(to.get(1, "mine"), installed ? "none" : "old");
        EXPECT_EQ(to.get(1, "k1") != "none", installed);
        to.lose_power();
        EXPECT_TRUE(to.log().whole);
      }
      to.pull(from);  // it goes on where it was
      if (!installed) {
        ASSERT_TRUE(to.install());
      }
      to.copy_log_from(from);
      expect_same(from, to);
      to.settle();
      EXPECT_EQ(to.engine->status().freeing_extents, 0U) << "the old copy is freed";
    }
  }
}

TEST(QuorumSnapshot, never_takes_the_place_of_a_log_that_goes_further) {
  SnapshotStore from;
  fill(from);
  SnapshotStore later_epoch;
  ASSERT_TRUE(later_epoch.begin_epoch(5));
  later_epoch.run();
  later_epoch.pull(from);
  EXPECT_EQ(later_epoch.install().error().code, Code::conflict);
  SnapshotStore to;
  to.copy_log_from(from);
  ASSERT_TRUE(to.build(4, "k", "more"));
  to.run();
  to.pull(from);
  EXPECT_EQ(to.install().error().code, Code::conflict);
  EXPECT_EQ(to.log().end.lsn.value, from.log().end.lsn.value + 1);
}

// A cut of the old log that nobody committed would park whoever leads with the new one, and end the parent at a block
// that no log has.
TEST(QuorumSnapshot, takes_the_place_of_a_log_that_ends_in_a_cut_and_ends_in_none) {
  SnapshotStore from, to;
  fill(from);
  to.begin();
  const auto payload = model::cut_payload(id_of<model::AttemptId>(9));
  ASSERT_TRUE(to.engine->build(partition(1), {model::BlockKind::cut, {1}, to.log().commit}, payload, nullptr));
  to.run();
  ASSERT_TRUE(model::CutTable(to.log().cuts).open());
  to.pull(from);
  ASSERT_TRUE(to.install());
  for (int life = 0; life < 2; life++) {
    EXPECT_TRUE(to.log().cuts.empty());
    to.lose_power();
  }
  to.copy_log_from(from);
  expect_same(from, to);
  EXPECT_TRUE(to.log().cuts.empty());
}

TEST(QuorumSnapshot, parts_that_do_not_belong_together_are_refused) {
  SnapshotStore from, to;
  fill(from);
  const auto first = from.read({});
  ASSERT_TRUE(first);
  const auto second = from.read(first->place);
  ASSERT_TRUE(second);
  EXPECT_EQ(to.refill(*second).error().code, Code::invalid) << "it has not begun";
  EXPECT_EQ(to.install().error().code, Code::invalid);
  ASSERT_GT(first->epochs.size(), 1U);
  for (const auto& epochs : {std::vector<model::EpochStart>{},
                             {first->epochs.back(), first->epochs.front()},
                             {first->epochs.front()},
                             {{first->epochs.back().epoch, {first->at.lsn.value + 1}}},
                             {{{1}, {0}}, first->epochs.back()}}) {
    auto other = *first;
    other.epochs = epochs;
    EXPECT_EQ(to.refill(other).error().code, Code::invalid);
  }
  ASSERT_TRUE(to.refill(*first));
  auto wrong = *second;
  wrong.at.lsn.value++;
  EXPECT_EQ(to.refill(wrong).error().code, Code::invalid);
  wrong = *second;
  wrong.series = {{1, "no row"}};
  EXPECT_FALSE(to.refill(wrong));
  wrong = *second;
  wrong.records = "no records";
  EXPECT_FALSE(to.refill(wrong));
  ASSERT_TRUE(to.refill(*second));
  EXPECT_EQ(to.install().error().code, Code::invalid) << "it is not complete";
  // Another one begins anew.
  const auto other = from.read({});
  ASSERT_TRUE(other && to.refill(*other));
  EXPECT_EQ(to.engine->refilled(partition(1)), other->place);
  to.pull(from);
  ASSERT_TRUE(to.install());
  to.copy_log_from(from);
  expect_same(from, to);
  to.settle();
  EXPECT_EQ(to.engine->status().freeing_extents, 0U);
}

TEST(QuorumSnapshot, is_kept_for_a_while_and_so_is_the_log_behind_it) {
  SnapshotStore from;
  from.config.segment_bytes = 16 << 10;
  from.config.retention_bytes = 1;
  ASSERT_TRUE(from.open());
  fill(from);
  from.settle();
  const auto first = from.read({});
  ASSERT_TRUE(first);
  for (uint64_t n = 200; n < 260; n++) {
    from.write_as(kClient, n, "k", std::string(1000, 'x'));
    from.pass(std::chrono::milliseconds(200));
  }
  from.pass(kSnapshotIdle);
  EXPECT_EQ(from.engine->status().snapshots, 0U);
  EXPECT_EQ(from.read(first->place).error().code, Code::not_found);
  EXPECT_TRUE(from.read_log(first->at.lsn.value + 1)) << "whoever has it can go on";
  for (int i = 0; i < 100; i++) from.pass(std::chrono::seconds(1));
  from.write_as(kClient, 300, "k", std::string(15000, 'x'));
  for (int i = 0; i < 30; i++) from.pass(std::chrono::seconds(1));
  EXPECT_EQ(from.read_log(first->at.lsn.value + 1).error().code, Code::not_found);
}

TEST(QuorumSnapshot, only_so_many_are_open_at_once) {
  SnapshotStore from;
  fill(from);
  for (size_t i = 0; i < kSnapshotsMax; i++) ASSERT_TRUE(from.read({}));
  const auto more = from.read({});
  ASSERT_EQ(more.error().code, Code::overloaded);
  EXPECT_GT(more.error().retry_after_ms, 0U);
  from.pass(kSnapshotIdle);
  EXPECT_TRUE(from.read({}));
}

// One that was read to its end is none of them any more, and its last part is given again to whoever missed it.
TEST(QuorumSnapshot, the_last_part_may_be_asked_for_again) {
  SnapshotStore from;
  fill(from);
  for (size_t i = 0; i < 2 * kSnapshotsMax; i++) {
    SnapshotPlace before;
    SnapshotPlace place;
    while (!place.all) {
      before = place;
      const auto part = from.read(place);
      ASSERT_TRUE(part) << base::to_string(part.error());
      place = part->place;
    }
    EXPECT_EQ(from.engine->status().snapshots, 0U);
    const auto again = from.read(before);
    ASSERT_TRUE(again) << base::to_string(again.error());
    EXPECT_EQ(again->place, place);
    EXPECT_EQ(from.read(place).error().code, Code::not_found);
  }
}

TEST(QuorumSnapshot, of_a_divided_copy_brings_its_ancestors_series) {
  SnapshotStore from, to;
  fill(from);
  const auto attempt = id_of<model::AttemptId>(9);
  ASSERT_TRUE(from.engine->build(partition(1), {model::BlockKind::cut, {4}, from.log().commit},
                                 model::cut_payload(attempt), nullptr));
  from.run();
  const auto cut = from.log().end;
  ASSERT_TRUE(from.commit(cut.lsn.value));
  ASSERT_TRUE(from.engine->divide_at(partition(1), cut, attempt, "k2", {partition(2), {2}, assignment(2)},
                                     {partition(3), {3}, assignment(3)}, nullptr));
  from.run();
  from.settle();
  ASSERT_TRUE(to.create_quorum(2, 5, {"", "k2"}));
  SnapshotPlace place;
  while (!place.all) {
    base::Result<QuorumSnapshotPart> got = base::fail(Code::cancelled, "no answer");
    from.engine->read_snapshot(partition(2), place, 400, [&](auto p) { got = std::move(p); });
    from.run();
    ASSERT_TRUE(got) << base::to_string(got.error());
    ASSERT_TRUE(to.wait([&](auto done) { return to.engine->refill(partition(2), *got, done); }));
    place = got->place;
  }
  ASSERT_TRUE(to.wait([&](auto done) { return to.engine->install(partition(2), done); }));
  EXPECT_EQ(to.all(2), from.all(2));
  for (uint64_t client = kClient; client < kClient + 5; client++) {
    EXPECT_FALSE(to.series(client, 2).window.empty());
    EXPECT_EQ(to.series(client, 2).window, from.series(client, 2).window);
  }
}

}  // namespace
}  // namespace cantle::store

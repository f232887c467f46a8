// Two neighbours of a quorum table merged at their cuts.
#include <gtest/gtest.h>

#include "lib/model/cut.h"
#include "lib/store/direct_reader.h"
#include "lib/store/journal_format.h"
#include "lib/store/merge.h"
#include "lib/store/rows.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::kSeriesExpiryMs;
using model::LogPoint;

constexpr uint64_t kClient = 77;
constexpr uint64_t kMinute = 60000;

// Partition 1 up to "m", partition 2 from there on; they become 3.
class MergedStore : public QuorumStore {
 public:
  explicit MergedStore(uint64_t low_epoch = 1, uint64_t high_epoch = 4) {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1, {"", "m"}));
    EXPECT_TRUE(create_quorum(2, 2, {"m", ""}));
    lead(low_epoch, 1);
    lead(high_epoch, 2);
  }
  void lead(uint64_t epoch, uint8_t p) {
    ASSERT_TRUE(begin_epoch(epoch, p));
    run();
    ASSERT_TRUE(commit(log(p).end.lsn.value, p));
  }
  void write(const std::string& key, const std::string& value, uint8_t p) {
    ASSERT_TRUE(build(log(p).end.epoch.value, key, value, nullptr, p));
    run();
    ASSERT_TRUE(commit(log(p).end.lsn.value, p));
  }
  void write_as(uint64_t number, const std::string& key, uint8_t p, uint64_t client = kClient) {
    const auto epoch = log(p).end.epoch;
    ASSERT_TRUE(engine->build(partition(p), {model::BlockKind::data, epoch, log(p).commit},
                              quorum_payload(epoch, log(p).end.lsn.next(), {{key, "v"}}, {client, number}), nullptr));
    run();
    ASSERT_TRUE(commit(log(p).end.lsn.value, p));
  }
  // Log time goes on, by blocks of a minute at most.
  void age(uint64_t left, uint8_t p, const std::string& key) {
    for (; left > 0; left -= std::min<uint64_t>(left, model::kElapsedMaxMs)) {
      clock.at = clock.at + std::chrono::milliseconds(std::min<uint64_t>(left, model::kElapsedMaxMs));
      write(key, "x", p);
    }
  }
  LogPoint cut(uint8_t p, bool committed = true) {
    EXPECT_TRUE(engine->build(partition(p), {model::BlockKind::cut, log(p).end.epoch, log(p).commit},
                              std::string(16, 'a'), nullptr));
    run();
    if (committed) {
      EXPECT_TRUE(commit(log(p).end.lsn.value, p));
    }
    return log(p).end;
  }
  MergeSpec spec(const LogPoint& low, const LogPoint& high, uint8_t attempt = 9) const {
    return {
        partition(1), low, partition(2), high, id_of<model::AttemptId>(attempt), {partition(3), {3}, assignment(3)}};
  }
  base::Result<LogPoint> merge_in_the_end(const MergeSpec& what) {
    auto got = engine->merge_at(what, nullptr);
    for (int i = 0; i < 20 && !got && got.error().code == Code::unavailable; i++) {
      EXPECT_GT(got.error().retry_after_ms, 0U);
      run();
      got = engine->merge_at(what, nullptr);
    }
    run();
    return got;
  }
  void merge() {
    const auto low = cut(1), high = cut(2);
    const auto got = merge_in_the_end(spec(low, high));
    ASSERT_TRUE(got) << base::to_string(got.error());
    ASSERT_EQ(*got, model::merged_point(low, high));
  }
  // As the split of a parent that is led in `epoch`.
  void divide(uint8_t parent, const std::string& point, uint8_t low, uint8_t high) {
    const auto at = cut(parent);
    ASSERT_TRUE(engine->divide_at(partition(parent), at, id_of<model::AttemptId>(static_cast<uint8_t>(parent + 100)),
                                  point, {partition(low), {low}, assignment(low)},
                                  {partition(high), {high}, assignment(high)}, nullptr));
    run();
  }
  std::optional<TenureRow> row(uint8_t p) {
    auto reader = engine->index().reader();
    EXPECT_TRUE(reader->renew());
    auto found = read_live(*reader, partition(p));
    return found ? *found : std::nullopt;
  }
  ExtentRow extent(model::ExtentId id) {
    auto reader = engine->index().reader();
    EXPECT_TRUE(reader->renew());
    return *read_extent(*reader, id);
  }
  size_t series_rows() {
    auto reader = engine->index().reader();
    EXPECT_TRUE(reader->renew());
    auto cursor = reader->cursor(Db::series);
    size_t n = 0;
    for (auto at = (*cursor)->seek(""); at && *at; at = (*cursor)->next()) n++;
    return n;
  }
  void sweep() {
    pass(std::chrono::minutes(11));
    for (int i = 0; i < 20; i++) pass(std::chrono::seconds(1));
  }
  std::vector<uint64_t> numbers(uint8_t p, uint64_t client = kClient) {
    auto got = series(client, p);
    EXPECT_TRUE(got.whole);
    got.window.expire(got.now_ms);
    std::vector<uint64_t> out;
    for (const auto& e : got.window.entries()) out.push_back(e.number);
    return out;
  }
};
using Numbers = std::vector<uint64_t>;

TEST(QuorumMerge, the_target_begins_behind_both_cuts_and_is_read_and_written_at_once) {
  MergedStore s;
  s.write("a", "1", 1);
  for (int i = 0; i < 5; i++) s.write("z", std::to_string(i), 2);
  ASSERT_TRUE(s.seal(9, 1));
  const auto low = s.cut(1), high = s.cut(2);
  ASSERT_LT(low.lsn, high.lsn);
  const auto start = s.engine->merge_at(s.spec(low, high), nullptr);
  ASSERT_TRUE(start) << base::to_string(start.error());
  EXPECT_EQ(*start, model::merged_point(low, high));
  EXPECT_EQ(start->lsn, high.lsn);
  EXPECT_EQ(start->epoch, high.epoch);
  EXPECT_NE(*start, model::merged_point(high, low));
  EXPECT_FALSE(s.engine->quorum_log(partition(1)) || s.engine->quorum_log(partition(2)));
  const auto log = s.log(3);
  EXPECT_EQ(log.end, *start);
  EXPECT_EQ(log.durable, *start);
  EXPECT_EQ(log.commit, start->lsn);
  EXPECT_EQ(log.visible, start->lsn);
  EXPECT_EQ(log.epochs, (std::vector<model::EpochStart>{{start->epoch, start->lsn}}));
  EXPECT_TRUE(log.cuts.empty());
  EXPECT_EQ(log.promised.value, 0U) << "nobody promised anything about the target";
  EXPECT_EQ(log.highest, start->epoch);
  EXPECT_TRUE(log.whole);
  const auto tenure = s.engine->find(partition(3));
  EXPECT_EQ(tenure->log_start, *start);
  EXPECT_TRUE(tenure->interval.begin.empty() && tenure->interval.end.empty());
  EXPECT_EQ(s.all(3), (Rows{{"a", "1"}, {"z", "4"}}));
  // The next block follows both, by its leader or by a follower.
  ASSERT_TRUE(s.take(block_after(*start, 3, 7, start->lsn.value, {})));
  s.run();
  s.write("b", "2", 3);
  s.write("z", "new", 3);
  EXPECT_EQ(s.all(3), (Rows{{"a", "1"}, {"b", "2"}, {"z", "new"}}));
  EXPECT_EQ(s.read_log(start->lsn.value + 1, 1 << 20, 3)->front().header.prev_crc, start->crc);
  EXPECT_EQ(s.engine->point_at(partition(3), start->lsn), *start);
  EXPECT_FALSE(s.read_log(start->lsn.value, 1 << 20, 3)) << "what lies before is another log's";
  EXPECT_FALSE(s.take(block_after(low, 1, 7, low.lsn.value, {})));
  EXPECT_FALSE(s.take(block_after(high, 2, 7, high.lsn.value, {})));
}

TEST(QuorumMerge, is_found_again_by_every_start) {
  for (const int rounds : {0, 2, 60}) {  // of applying, before it dies
    SCOPED_TRACE(rounds);
    MergedStore s(5, 2);
    s.write("a", "1", 1);
    s.write("z", "2", 2);
    const auto low = s.cut(1), high = s.cut(2);
    ASSERT_TRUE(s.engine->merge_at(s.spec(low, high), nullptr));
    s.run();
    s.lead(7, 3);
    s.write("b", "3", 3);
    s.write("y", "4", 3);
    ASSERT_TRUE(s.seal(8, 3));
    for (int i = 0; i < rounds; i++) s.pass(std::chrono::milliseconds(700));
    for (int life = 0; life < 3; life++) {
      const auto before = s.log(3);
      s.lose_power();
      EXPECT_TRUE(s.engine->report().damaged.empty());
      EXPECT_EQ(s.log(3).end, before.end);
      EXPECT_EQ(s.log(3).epochs, before.epochs);
      EXPECT_EQ(s.log(3).promised.value, 8U);
      ASSERT_TRUE(s.commit(s.log(3).end.lsn.value, 3));
      EXPECT_EQ(s.log(3).log_time_ms, before.log_time_ms);
      EXPECT_TRUE(s.log(3).whole);
      EXPECT_EQ(s.all(3), (Rows{{"a", "1"}, {"b", "3"}, {"y", "4"}, {"z", "2"}}));
      EXPECT_FALSE(s.engine->quorum_log(partition(1)) || s.engine->quorum_log(partition(2)));
      EXPECT_EQ(s.engine->merge_at(s.spec(low, high), nullptr).value(), model::merged_point(low, high))
          << "once more, and nothing happens";
      s.run();
      s.pass(std::chrono::seconds(2));
    }
  }
}

TEST(QuorumMerge, what_is_not_visible_yet_of_either_is_waited_for) {
  MergedStore s;
  s.write("a", "1", 1);
  ASSERT_TRUE(s.build(4, "z", "2", nullptr, 2));
  const auto low = s.cut(1);
  ASSERT_TRUE(
      s.engine->build(partition(2), {model::BlockKind::cut, {4}, s.log(2).commit}, std::string(16, 'x'), nullptr));
  const auto high = s.log(2).end;
  bool durable = false;
  const auto told = [&](const base::Status& d) { durable = d.has_value(); };
  EXPECT_EQ(s.engine->merge_at(s.spec(low, high), told).error().code, Code::unavailable) << "it is not on the disk";
  EXPECT_TRUE(s.engine->quorum_log(partition(1)).has_value()) << "both or none";
  s.run();
  EXPECT_EQ(s.log(2).commit, high.lsn) << "that it is committed was said";
  ASSERT_TRUE(s.engine->merge_at(s.spec(low, high), told));
  EXPECT_FALSE(durable);
  s.run();
  EXPECT_TRUE(durable);
  EXPECT_EQ(s.all(3), (Rows{{"a", "1"}, {"z", "2"}}));
}

TEST(QuorumMerge, what_stands_behind_the_cuts_is_not_the_targets_nor_is_its_time) {
  for (const bool applied : {false, true}) {
    SCOPED_TRACE(applied);
    MergedStore s;
    s.write("a", "1", 1);
    s.clock.at = s.clock.at + std::chrono::seconds(7);
    const auto low = s.cut(1), high = s.cut(2);
    const auto time = std::max(s.log(1).log_time_ms, s.log(2).log_time_ms);
    for (const uint64_t epoch : {6, 7}) {  // epochs that began behind the cut, and were committed
      s.clock.at = s.clock.at + std::chrono::seconds(5);
      s.lead(epoch, 1);
    }
    ASSERT_TRUE(s.begin_epoch(9, 2));
    ASSERT_TRUE(s.build(9, "z", "never", nullptr, 2));
    s.run();
    if (applied) {
      s.settle();
      ASSERT_GT(s.engine->applied(partition(1))->lsn, low.lsn);
    }
    const auto start = s.merge_in_the_end(s.spec(low, high));
    ASSERT_TRUE(start) << base::to_string(start.error());
    for (int life = 0; life < 3; life++) {
      EXPECT_EQ(s.log(3).end, *start);
      EXPECT_EQ(s.log(3).log_time_ms, time);
      EXPECT_EQ(s.all(3), (Rows{{"a", "1"}}));
      s.lose_power();
      s.pass(std::chrono::seconds(2));
    }
  }
}

TEST(QuorumMerge, is_refused_where_it_would_lose_or_repeat_something) {
  MergedStore s;
  s.write("a", "1", 1);
  const auto low = s.cut(1), high = s.cut(2);
  auto other = low;
  other.crc++;
  const auto code = [&](const MergeSpec& what) {  // of the error
    const auto got = s.engine->merge_at(what, nullptr);
    return got ? std::optional<Code>() : got.error().code;
  };
  EXPECT_EQ(code(s.spec(other, high)), Code::not_found);
  EXPECT_EQ(code(s.spec(low, other)), Code::not_found);
  auto swapped = s.spec(high, low);
  std::swap(swapped.low, swapped.high);
  EXPECT_EQ(code(swapped), Code::invalid);
  auto stranger = s.spec(low, high);
  stranger.high = partition(8);
  EXPECT_EQ(code(stranger), Code::not_found);
  auto nowhere = s.spec(low, high);
  nowhere.target.assignment = {};
  EXPECT_EQ(code(nowhere), Code::invalid);
  EXPECT_EQ(
      s.engine->merge_ends(partition(1), partition(2), id_of<model::AttemptId>(9), s.spec(low, high).target, nullptr)
          .error()
          .code,
      Code::invalid);
  ASSERT_TRUE(s.create_quorum(3, 4));
  EXPECT_EQ(code(s.spec(low, high)), Code::exists);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(3, 4), true, done); }));
  ASSERT_EQ(code(s.spec(low, high)), std::nullopt);
  EXPECT_EQ(code(s.spec(low, high, 8)), Code::conflict);
  EXPECT_EQ(code(s.spec(other, high)), Code::conflict);
  s.run();
  MergedStore t;
  const auto passed = t.cut(1);
  t.write("a", "acknowledged", 1);
  EXPECT_EQ(t.merge_in_the_end(t.spec(passed, t.cut(2))).error().code, Code::faulted)
      << "what is committed behind a cut is never given up";
  EXPECT_EQ(t.all(1), (Rows{{"a", "acknowledged"}}));
}

// --- series ---------------------------------------------------------------------------------------

TEST(QuorumMerge, series_of_both_are_one_window) {
  MergedStore s;
  for (const uint64_t n : {1, 3, 5}) s.write_as(n, "a", 1);
  s.settle();
  for (const uint64_t n : {2, 6}) s.write_as(n, "z", 2);
  s.write_as(4, "z", 2, kClient + 1);
  s.merge();
  s.lead(7, 3);
  s.write_as(7, "b", 3);
  for (int life = 0; life < 3; life++) {
    EXPECT_EQ(s.numbers(3), (Numbers{1, 2, 3, 5, 6, 7}));
    EXPECT_EQ(s.numbers(3, kClient + 1), (Numbers{4}));
    s.settle();
    s.sweep();
    s.lose_power();
    ASSERT_TRUE(s.commit(s.log(3).end.lsn.value, 3));
  }
}

// The log that is ahead gives the time: what the other has is as old in it as it was before.
TEST(QuorumMerge, nothing_of_either_expires_too_early_or_too_late) {
  for (const bool low_is_ahead : {true, false}) {
    SCOPED_TRACE(low_is_ahead);
    MergedStore s;
    const uint8_t ahead = low_is_ahead ? 1 : 2, behind = low_is_ahead ? 2 : 1;
    const std::string key = low_is_ahead ? "a" : "z", other_key = low_is_ahead ? "z" : "a";
    s.age(200 * kMinute, ahead, key);
    s.write_as(1, key, ahead);
    s.write_as(2, other_key, behind);
    s.age(30 * kMinute, behind, other_key);
    s.write_as(3, other_key, behind);
    ASSERT_LT(s.log(behind).log_time_ms + 100 * kMinute, s.log(ahead).log_time_ms);
    const auto time = s.log(ahead).log_time_ms;
    s.merge();
    s.settle();
    s.lead(7, 3);
    EXPECT_GE(s.log(3).log_time_ms, time);
    EXPECT_EQ(s.numbers(3), (Numbers{1, 2, 3}));
    // The older one of the log that is behind has half an hour left, the others an hour.
    s.age(27 * kMinute, 3, "k");
    s.settle();
    s.sweep();
    EXPECT_EQ(s.numbers(3), (Numbers{1, 2, 3}));
    s.age(4 * kMinute, 3, "k");
    EXPECT_EQ(s.numbers(3), (Numbers{1, 3}));
    s.age(25 * kMinute, 3, "k");
    s.settle();
    s.sweep();
    s.lose_power();
    ASSERT_TRUE(s.commit(s.log(3).end.lsn.value, 3));
    EXPECT_EQ(s.numbers(3), (Numbers{1, 3}));
    EXPECT_EQ(s.series_rows(), 2U);
    s.age(6 * kMinute, 3, "k");
    EXPECT_EQ(s.numbers(3), (Numbers{}));
    s.settle();
    s.sweep();
    EXPECT_EQ(s.series_rows(), 0U) << "nobody needs them any more";
  }
}

// A copy that lacks series says so until what it lacks is old, by its own time, not by that of its neighbour.
TEST(QuorumMerge, a_copy_without_its_series_leaves_a_target_that_knows_it) {
  MergedStore s;
  Engine::Chunk chunk;
  chunk.snapshot = 5;
  chunk.last = true;
  wire::append_record(chunk.records, {model::Op::put, "b", "filled", model::quorum_version({1}, {1}), 0, 0, 0});
  chunk.through_key = "b";
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->ingest(tenure(1, 1), chunk, done); }));
  EXPECT_FALSE(s.series(kClient, 1).whole);
  s.age(300 * kMinute, 2, "z");
  EXPECT_TRUE(s.series(kClient, 2).whole);
  s.merge();
  s.lead(7, 3);
  EXPECT_FALSE(s.series(kClient, 3).whole);
  s.age(58 * kMinute, 3, "k");
  EXPECT_FALSE(s.series(kClient, 3).whole);
  s.age(3 * kMinute, 3, "k");
  EXPECT_TRUE(s.series(kClient, 3).whole);
}

// --- extents --------------------------------------------------------------------------------------

TEST(QuorumMerge, no_record_moves_and_what_was_one_extent_is_one_again) {
  MergedStore s;
  for (int i = 10; i < 60; i++) s.write("a" + std::to_string(i), std::to_string(i), 1);
  for (int i = 10; i < 60; i++) s.write("z" + std::to_string(i), std::to_string(i), 2);
  s.settle();
  const auto low = s.hash(1).hash, high = s.hash(2).hash;
  s.merge();
  s.settle();
  auto both = low;
  both.records += high.records;
  both.record_count += high.record_count;
  both.bytes += high.bytes;
  EXPECT_EQ(s.hash(3).hash, both);
  const auto merged = s.row(3);
  ASSERT_TRUE(merged);
  ASSERT_EQ(merged->parts.size(), 2U);
  EXPECT_EQ(merged->parts[0].interval, (model::Interval{"", "m"}));
  EXPECT_EQ(merged->parts[1].interval, (model::Interval{"m", ""}));
  EXPECT_TRUE(s.engine->size(partition(3)).exact);
  EXPECT_EQ(s.engine->size(partition(3)).records, 100U);
  // Split in the first extent, and merged again: the parts of that one are one part again.
  const auto rows = s.all(3);
  s.divide(3, "a3", 4, 5);
  EXPECT_EQ(s.all(4).size() + s.all(5).size(), rows.size());
  s.settle();
  EXPECT_EQ(s.row(4)->parts.size(), 1U);
  EXPECT_EQ(s.row(5)->parts.size(), 2U);
  s.lead(9, 4);
  s.lead(9, 5);
  s.write("a10", "again", 4);
  const auto low_cut = s.cut(4), high_cut = s.cut(5);
  ASSERT_TRUE(s.engine->merge_at(
      {partition(4), low_cut, partition(5), high_cut, id_of<model::AttemptId>(50), {partition(6), {6}, assignment(6)}},
      nullptr));
  s.run();
  s.settle();
  for (int life = 0; life < 2; life++) {
    ASSERT_EQ(s.row(6)->parts.size(), 2U);
    EXPECT_EQ(s.row(6)->parts[0].interval, (model::Interval{"", "m"}));
    EXPECT_EQ(s.extent(s.row(6)->parts[0].extent).pieces.size(), 1U);
    auto want = rows;
    want["a10"] = "again";
    EXPECT_EQ(s.all(6), want);
    EXPECT_EQ(s.hash(6).hash.record_count, 100U);
    EXPECT_TRUE(s.engine->size(partition(6)).exact);
    s.lose_power();
  }
  // Dropped, all of it goes.
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(6, 6), done); }));
  s.pass(std::chrono::hours(25));
  s.settle();
  auto reader = s.engine->index().reader();
  ASSERT_TRUE(reader->renew());
  EXPECT_TRUE(read_extents(*reader)->empty());
}

TEST(QuorumMerge, scans_and_direct_readers_go_over_both_extents) {
  MergedStore s;
  for (const auto* key : {"a", "c", "l"}) s.write(key, "1", 1);
  for (const auto* key : {"m", "p", "z"}) s.write(key, "2", 2);
  s.settle();
  s.write("d", "1", 1);
  s.write("n", "2", 2);
  s.merge();
  const auto keys = [&](bool reverse, const std::string& from, const std::string& to) {
    std::string got;
    ScanRange range;
    range.from = from;
    range.to = to;
    range.reverse = reverse;
    range.records_max = 2;
    for (bool more = true; more;) {
      const auto end = s.engine->scan(partition(3), range, [&](std::string_view key, const Found&) {
        got += key;
        return true;
      });
      EXPECT_TRUE(end);
      more = end && end->more;
      if (more) (reverse ? range.to : range.from) = end->resume;
      s.run();
    }
    return got;
  };
  EXPECT_EQ(keys(false, "", ""), "acdlmnpz");
  EXPECT_EQ(keys(true, "", ""), "zpnmldca");
  EXPECT_EQ(keys(false, "d", "n"), "dlm");
  EXPECT_EQ(s.get(3, "l") + s.get(3, "m"), "12");
  s.settle();
  DirectReader direct(s.engine->index());
  ASSERT_TRUE(direct.refresh());
  const auto there = direct.find(id_of<model::TableUuid>(7), "l");
  ASSERT_TRUE(there && *there);
  EXPECT_EQ((*there)->id, tenure(3, 3));
  SnapshotReader snapshot(direct, tenure(3, 3), {}, "");
  const auto chunk = snapshot.next(1 << 20);
  ASSERT_TRUE(chunk) << base::to_string(chunk.error());
  EXPECT_EQ(chunk->count, 8U);
  EXPECT_TRUE(chunk->last);
}

TEST(QuorumMerge, a_snapshot_of_it_brings_the_records_and_the_series_of_both) {
  MergedStore from, to;
  from.age(100 * kMinute, 2, "z");
  for (uint64_t n = 1; n <= 20; n++) {
    from.write_as(2 * n, "a" + std::to_string(n), 1, kClient + n % 3);
    from.write_as(2 * n + 1, "z" + std::to_string(n), 2, kClient + n % 3);
  }
  from.merge();
  from.lead(7, 3);
  from.write_as(60, "b", 3);
  from.settle();
  ASSERT_TRUE(to.create_quorum(3, 9));
  for (model::SnapshotPlace place; !place.all;) {
    base::Result<model::QuorumSnapshotPart> got = base::fail(Code::cancelled, "no answer");
    from.engine->read_snapshot(partition(3), place, 300, [&](auto p) { got = std::move(p); });
    from.run();
    ASSERT_TRUE(got) << base::to_string(got.error());
    ASSERT_TRUE(to.wait([&](auto done) { return to.engine->refill(partition(3), *got, done); }));
    place = got->place;
  }
  ASSERT_TRUE(to.wait([&](auto done) { return to.engine->install(partition(3), done); }));
  for (int life = 0; life < 2; life++) {
    EXPECT_EQ(to.log(3).end, from.log(3).end);
    EXPECT_EQ(to.log(3).epochs, from.log(3).epochs);
    EXPECT_EQ(to.all(3), from.all(3));
    EXPECT_EQ(to.hash(3).hash, from.hash(3).hash);
    for (uint64_t client = kClient; client < kClient + 3; client++) {
      auto want = from.series(client, 3);
      want.window.expire(want.now_ms);
      EXPECT_EQ(to.series(client, 3).window, want.window);
      EXPECT_EQ(to.series(client, 3).now_ms, want.now_ms);
      EXPECT_FALSE(want.window.empty());
    }
    to.lose_power();
  }
}

TEST(QuorumMerge, the_new_copy_of_one_that_was_being_filled_anew_is_freed) {
  MergedStore from, s;
  from.write("b", "other", 1);
  from.settle();
  base::Result<model::QuorumSnapshotPart> got = base::fail(Code::cancelled, "no answer");
  from.engine->read_snapshot(partition(1), {}, 300, [&](auto p) { got = std::move(p); });
  from.run();
  ASSERT_TRUE(got);
  s.write("a", "1", 1);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->refill(partition(1), *got, done); }));
  s.merge();
  s.settle();
  EXPECT_EQ(s.all(3), (Rows{{"a", "1"}}));
  auto reader = s.engine->index().reader();
  ASSERT_TRUE(reader->renew());
  EXPECT_EQ(read_extents(*reader)->size(), 2U);
}

TEST(QuorumMerge, the_target_of_a_lost_index_knows_that_it_is_not_whole) {
  MergedStore s;
  s.write("a", "1", 1);
  const auto low = s.cut(1), high = s.cut(2);
  ASSERT_TRUE(s.engine->merge_at(s.spec(low, high), nullptr));
  s.run();
  s.lead(7, 3);
  ASSERT_TRUE(s.seal(9, 3));
  for (int i = 0; i < 10; i++) s.pass(std::chrono::seconds(6));  // the list of tenures is written
  const auto before = s.log(3);
  s.kill();
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.log(3).end, before.end);
  EXPECT_EQ(s.log(3).epochs, before.epochs);
  EXPECT_EQ(s.log(3).promised.value, 9U);
  for (int life = 0; life < 2; life++) {  // and does not forget it
    EXPECT_FALSE(s.log(3).whole);
    EXPECT_TRUE(s.log(3).hole);
    s.settle();
    s.lose_power();
  }
}

// Damage that recovery finds before a merge which the index does not have is not forgotten when it has it.
TEST(QuorumMerge, a_doubt_goes_through_a_split_and_a_merge_that_are_not_applied_yet) {
  MergedStore s;
  s.write("a", "1", 1);
  s.settle();
  s.gate.shut.insert(Lane::apply);
  s.write("b", "2", 1);
  const auto damaged = s.engine->status().head;
  s.write("c", "3", 1);
  s.divide(1, "g", 4, 5);
  s.lead(6, 5);
  const auto low = s.cut(5), high = s.cut(2);
  ASSERT_TRUE(s.engine->merge_at(
      {partition(5), low, partition(2), high, id_of<model::AttemptId>(50), {partition(3), {3}, assignment(3)}},
      nullptr));
  s.run();
  s.kill();
  s.disk.flip(segment_path(damaged.segment), damaged.offset + kFrameAndHeader + 3);
  ASSERT_TRUE(s.open());
  ASSERT_FALSE(s.engine->report().damaged.empty());
  EXPECT_FALSE(s.engine->find(partition(3))->whole);
  EXPECT_TRUE(s.log(3).hole) << "what the target lacks, no other replica can mend block by block";
  s.gate.open();
  s.settle();
  EXPECT_FALSE(s.row(3)->whole);
  s.lose_power();
  EXPECT_FALSE(s.engine->find(partition(3))->whole);
  EXPECT_TRUE(s.log(3).hole);
}

// With a right checksum, so that only we can have written it: nothing is made of it, and the store says so.
TEST(QuorumMerge, a_note_that_no_merge_writes_is_refused_by_recovery) {
  const std::vector<std::pair<const char*, std::function<void(MergeNote&)>>> twists = {
      {"", [](MergeNote&) {}},
      {"the wrong way round", [](MergeNote& n) { std::swap(n.low, n.high); }},
      {"with itself", [](MergeNote& n) { n.high = n.low; }},
      {"into one of the two", [](MergeNote& n) { n.target.partition = n.high.partition; }},
      {"into nothing", [](MergeNote& n) { n.target.assignment = {}; }},
      {"with a push table's", [](MergeNote& n) {
         n.high = {partition(7), assignment(7), {}, 0};
       }}};
  for (const auto& [what, twist] : twists) {
    SCOPED_TRACE(what);
    MergedStore s;
    ASSERT_TRUE(s.create(7, 7, {"m", ""}));
    MergeNote note;
    note.attempt = id_of<model::AttemptId>(9);
    note.low = {partition(1), assignment(1), s.cut(1), 0};
    note.high = {partition(2), assignment(2), s.cut(2), 0};
    note.target = {partition(3), {3}, assignment(3)};
    note.begins = 1;
    twist(note);
    const auto head = s.engine->status().head;
    s.kill();
    s.disk.crash();
    Frame frame;
    frame.at = head;
    frame.group = head.sequence;
    frame.header.kind = model::BlockKind::merge;
    frame.header.partition = note.low.partition;
    frame.header.region = {1};
    const auto payload = encode_note(note);
    wire::seal_block(frame.header, payload);
    std::string start(kFrameAndHeader, '\0');
    encode_frame(frame, start.data());
    s.disk.bytes(segment_path(head.segment)).replace(head.offset, start.size() + payload.size(), start + payload);
    const auto opened = s.open();
    if (*what == '\0') {
      ASSERT_TRUE(opened) << base::to_string(opened.error());
      EXPECT_TRUE(s.engine->find(partition(3)));
    } else {
      ASSERT_FALSE(opened);
      EXPECT_EQ(opened.error().code, Code::corrupt);
    }
  }
}

}  // namespace
}  // namespace cantle::store

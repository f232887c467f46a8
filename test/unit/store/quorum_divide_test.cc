// A quorum table's partition divided at the cut.
#include <gtest/gtest.h>

#include "lib/store/divide.h"
#include "lib/store/journal_format.h"
#include "lib/store/rows.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::kSeriesExpiryMs;
using model::LogPoint;
using model::ResultKind;

constexpr uint64_t kClient = 77;
constexpr uint8_t kChildren[] = {2, 3};

class DividedStore : public QuorumStore {
 public:
  DividedStore() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
    EXPECT_TRUE(begin_epoch(1));
    run();
  }
  void write(const std::string& key, const std::string& value, uint8_t p = 1) {
    ASSERT_TRUE(build(log(p).end.epoch.value, key, value, nullptr, p));
    run();
    ASSERT_TRUE(commit(log(p).end.lsn.value, p));
  }
  void write_as(uint64_t number, const std::string& key, uint8_t p = 1) {
    const auto first = log(p).end.lsn.next();
    ASSERT_TRUE(engine->build(partition(p), {model::BlockKind::data, {1}, log(p).commit},
                              quorum_payload({1}, first, {{key, "v"}}, {kClient, number}), nullptr));
    run();
    ASSERT_TRUE(commit(log(p).end.lsn.value, p));
  }
  // Log time goes on, by blocks of a minute at most.
  void age(uint64_t left, uint8_t p) {
    for (; left > 0; left -= std::min<uint64_t>(left, model::kElapsedMaxMs)) {
      clock.at = clock.at + std::chrono::milliseconds(std::min<uint64_t>(left, model::kElapsedMaxMs));
      write(p == 3 ? "z" : "a", "x", p);
    }
  }
  // A cut block, committed unless it is said otherwise.
  LogPoint cut(bool committed = true) {
    EXPECT_TRUE(engine->build(partition(1), {model::BlockKind::cut, log().end.epoch, log().commit},
                              std::string(16, 'a'), nullptr));
    run();
    if (committed) {
      EXPECT_TRUE(commit(log().end.lsn.value));
    }
    return log().end;
  }
  base::Result<LogPoint> divide(const LogPoint& at, uint8_t attempt = 9, bool with_high = true,
                                Engine::Done done = nullptr) {
    return engine->divide_at(partition(1), at, id_of<model::AttemptId>(attempt), "m",
                             {partition(2), {2}, assignment(2)},
                             {partition(3), {3}, with_high ? assignment(3) : model::AssignmentId{}}, std::move(done));
  }
  // As those ask who are told to ask again.
  base::Result<LogPoint> divide_in_the_end(const LogPoint& at) {
    auto got = divide(at);
    for (int i = 0; i < 20 && !got && got.error().code == Code::unavailable; i++) {
      EXPECT_GT(got.error().retry_after_ms, 0U);
      run();
      got = divide(at);
    }
    run();
    return got;
  }
  std::vector<std::string> cut_files() {
    std::vector<std::string> found;
    if (const auto names = disk.list("trash"))
      for (const auto& name : *names)
        if (name.starts_with("cut-")) found.push_back(name);
    return found;
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
};

TEST(QuorumDivide, children_begin_at_the_cut_and_are_read_and_written_at_once) {
  DividedStore s;
  s.write("a", "1");
  s.write("z", "2");
  ASSERT_TRUE(s.begin_epoch(4));
  s.run();
  ASSERT_TRUE(s.commit(s.log().end.lsn.value));
  ASSERT_TRUE(s.seal(9));
  const auto at = s.cut();
  const auto before = s.log();
  ASSERT_TRUE(s.divide(at));
  EXPECT_FALSE(s.engine->quorum_log(partition(1)));
  for (const auto p : kChildren) {
    const auto log = s.log(p);
    EXPECT_EQ(log.end, at);
    EXPECT_EQ(log.durable, at);
    EXPECT_EQ(log.commit, at.lsn);
    EXPECT_EQ(log.visible, at.lsn);
    EXPECT_EQ(log.epochs, before.epochs);
    EXPECT_EQ(log.log_time_ms, before.log_time_ms);
    EXPECT_EQ(log.promised.value, 0U) << "nobody promised anything about a child";
    EXPECT_EQ(log.highest, at.epoch);
    EXPECT_TRUE(log.whole);
    EXPECT_EQ(s.engine->find(partition(p))->log_start, at);
  }
  EXPECT_EQ(s.all(2), (Rows{{"a", "1"}}));
  EXPECT_EQ(s.all(3), (Rows{{"z", "2"}}));
  // The next block follows the cut, by its leader and by a follower.
  ASSERT_TRUE(s.begin_epoch(5, 2));
  ASSERT_TRUE(s.take(block_after(at, 3, 5, at.lsn.value, {})));
  s.run();
  s.write("b", "3", 2);
  s.write("y", "4", 3);
  EXPECT_EQ(s.all(2), (Rows{{"a", "1"}, {"b", "3"}}));
  EXPECT_EQ(s.all(3), (Rows{{"y", "4"}, {"z", "2"}}));
  EXPECT_EQ(s.read_log(at.lsn.value + 1, 1 << 20, 2)->front().header.prev_crc, at.crc);
  EXPECT_EQ(s.engine->point_at(partition(2), at.lsn), at);
  EXPECT_FALSE(s.read_log(at.lsn.value, 1 << 20, 2)) << "the parent's log is no child's";
  EXPECT_FALSE(s.take(block_after(at, 1, 5, at.lsn.value, {})));
}

// The coordination service was away for long, say: the cut stood, others went on with its epochs behind it, and what
// was written elsewhere took the journal past all of it. Who has the cut divides: it counted for it, and to begin empty
// would be to vote with nothing.
TEST(QuorumDivide, at_a_cut_whose_segment_is_not_kept_any_more) {
  for (const bool later_life : {false, true}) {
    SCOPED_TRACE(later_life);
    DividedStore s;
    s.config.segment_bytes = 16 << 10;
    s.config.retention_bytes = 1;
    s.lose_power();
    s.write("a", "1");
    s.write("z", "2");
    const auto at = s.cut();
    ASSERT_TRUE(s.begin_epoch(4));
    s.run();
    ASSERT_TRUE(s.commit(s.log().end.lsn.value));
    ASSERT_TRUE(s.create_quorum(5, 5));
    ASSERT_TRUE(s.begin_epoch(1, 5));
    s.run();
    for (int i = 0; i < 30; i++) {
      s.write("k", std::string(8000, 'x'), 5);
      s.pass(std::chrono::seconds(1));
    }
    ASSERT_EQ(s.read_log(at.lsn.value).error().code, Code::not_found) << "its segment is gone";
    if (later_life) s.lose_power();
    EXPECT_EQ(s.engine->point_at(partition(1), at.lsn), at);
    const auto divided = s.divide_in_the_end(at);
    ASSERT_TRUE(divided) << base::to_string(divided.error());
    EXPECT_EQ(s.all(2), (Rows{{"a", "1"}}));
    EXPECT_EQ(s.all(3), (Rows{{"z", "2"}}));
    EXPECT_EQ(s.log(2).end, at);
    s.lose_power();
    EXPECT_EQ(s.all(2), (Rows{{"a", "1"}}));
    EXPECT_EQ(s.log(3).end, at);
    EXPECT_TRUE(s.log(3).whole);
  }
}

TEST(QuorumDivide, is_found_again_by_every_start) {
  for (const int rounds : {0, 2, 60}) {  // of applying, before it dies
    SCOPED_TRACE(rounds);
    DividedStore s;
    s.write("a", "1");
    s.write("z", "2");
    const auto at = s.cut();
    ASSERT_TRUE(s.divide(at));
    s.run();
    ASSERT_TRUE(s.begin_epoch(7, 2));
    s.run();
    s.write("b", "3", 2);
    ASSERT_TRUE(s.seal(8, 3));
    for (int i = 0; i < rounds; i++) s.pass(std::chrono::milliseconds(700));
    for (int life = 0; life < 3; life++) {
      const auto low = s.log(2), high = s.log(3);
      s.lose_power();
      EXPECT_TRUE(s.engine->report().damaged.empty());
      EXPECT_EQ(s.log(2).end, low.end);
      EXPECT_EQ(s.log(2).epochs, low.epochs);
      EXPECT_EQ(s.log(3).end, high.end);
      EXPECT_EQ(s.log(3).promised.value, 8U);
      EXPECT_EQ(s.log(3).log_time_ms, high.log_time_ms);
      EXPECT_TRUE(s.log(2).whole && s.log(3).whole);
      ASSERT_TRUE(s.commit(s.log(2).end.lsn.value, 2));
      EXPECT_EQ(s.all(2), (Rows{{"a", "1"}, {"b", "3"}}));
      EXPECT_EQ(s.all(3), (Rows{{"z", "2"}}));
      EXPECT_FALSE(s.engine->quorum_log(partition(1)));
      EXPECT_EQ(s.divide(at).value(), at) << "once more, and nothing happens";
      s.run();
      s.pass(std::chrono::seconds(2));
    }
  }
}

TEST(QuorumDivide, what_is_not_visible_yet_is_waited_for) {
  DividedStore s;
  s.write("a", "1");
  bool durable = false;
  ASSERT_TRUE(s.build(1, "z", "2"));
  ASSERT_TRUE(
      s.engine->build(partition(1), {model::BlockKind::cut, {1}, s.log().commit}, std::string(16, 'x'), nullptr));
  const auto at = s.log().end;
  EXPECT_EQ(s.divide(at).error().code, Code::unavailable) << "nothing of it is on the disk";
  s.run();
  EXPECT_EQ(s.log().commit, at.lsn) << "that it is committed was said";
  ASSERT_TRUE(s.divide(at, 9, true, [&](const base::Status& d) { durable = d.has_value(); }));
  EXPECT_FALSE(durable);
  s.run();
  EXPECT_TRUE(durable);
  EXPECT_EQ(s.all(3), (Rows{{"z", "2"}}));
}

TEST(QuorumDivide, what_nobody_committed_behind_the_cut_goes_to_the_trash) {
  DividedStore s;
  s.write("a", "1");
  const auto at = s.cut();
  ASSERT_TRUE(s.begin_epoch(3));
  ASSERT_TRUE(s.build(3, "a", "never"));
  s.run();
  const auto behind = s.log().end;
  EXPECT_EQ(s.divide(at).error().code, Code::unavailable);
  s.run();
  EXPECT_EQ(s.log().end, at);
  EXPECT_EQ(s.cut_files().size(), 1U);
  ASSERT_TRUE(s.divide(at));
  EXPECT_EQ(s.all(2), (Rows{{"a", "1"}}));
  EXPECT_EQ(s.log(2).epochs.back().epoch.value, 1U);
  s.run();
  s.lose_power();
  EXPECT_EQ(s.log(2).end, at);
  EXPECT_NE(s.log(2).end, behind);
  EXPECT_EQ(s.cut_files().size(), 1U);
}

TEST(QuorumDivide, epochs_that_began_behind_the_cut_are_not_the_childrens_nor_is_their_time) {
  for (const bool applied : {false, true}) {
    SCOPED_TRACE(applied);
    DividedStore s;
    s.write_as(1, "a");
    s.clock.at = s.clock.at + std::chrono::seconds(7);
    const auto at = s.cut();
    const auto time = s.log().log_time_ms;
    for (const uint64_t epoch : {3, 4}) {
      s.clock.at = s.clock.at + std::chrono::seconds(5);
      ASSERT_TRUE(s.begin_epoch(epoch));
      s.run();
      ASSERT_TRUE(s.commit(s.log().end.lsn.value));
    }
    EXPECT_EQ(s.log().log_time_ms, time + 10000);
    if (applied) {
      s.settle();
      ASSERT_GT(s.engine->applied(partition(1))->lsn, at.lsn);
    }
    ASSERT_TRUE(s.divide_in_the_end(at));
    for (int life = 0; life < 3; life++) {
      EXPECT_EQ(s.log(2).end, at);
      EXPECT_EQ(s.log(2).log_time_ms, time);
      EXPECT_EQ(s.log(3).epochs, (std::vector<model::EpochStart>{{{1}, {1}}}));
      EXPECT_EQ(s.engine->applied(partition(3))->lsn <= at.lsn, true);
      EXPECT_EQ(s.series(kClient, 2).now_ms, time);
      EXPECT_NE(s.series(kClient, 3).window.find(1), nullptr);
      s.lose_power();
      s.pass(std::chrono::seconds(2));
    }
  }
}

TEST(QuorumDivide, is_refused_where_it_would_lose_or_repeat_something) {
  DividedStore s;
  s.write("a", "1");
  const auto at = s.cut();
  auto other = at;
  other.crc++;
  EXPECT_EQ(s.divide(other).error().code, Code::not_found);
  EXPECT_EQ(s.divide({{1}, {at.lsn.value + 5}, 0}).error().code, Code::not_found);
  const ChildSpec low{partition(2), {2}, assignment(2)}, high{partition(3), {3}, assignment(3)};
  const auto attempt = id_of<model::AttemptId>(9);
  EXPECT_EQ(s.engine->divide_at(partition(1), at, attempt, "", low, high, nullptr).error().code, Code::invalid);
  EXPECT_EQ(s.engine->divide_at(partition(8), at, attempt, "m", low, high, nullptr).error().code, Code::not_found);
  EXPECT_EQ(s.engine->divide(partition(1), attempt, "m", low, high, nullptr).error().code, Code::invalid);
  ASSERT_TRUE(s.create(5, 5));
  EXPECT_EQ(s.engine->divide_at(partition(5), {}, attempt, "m", low, high, nullptr).error().code, Code::invalid);
  ASSERT_TRUE(s.create_quorum(3, 4, {"m", ""}));
  EXPECT_EQ(s.divide(at).error().code, Code::exists);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(3, 4), true, done); }));
  ASSERT_TRUE(s.divide(at));
  EXPECT_EQ(s.divide(at, 8).error().code, Code::conflict);
  EXPECT_EQ(s.divide(other).error().code, Code::conflict);
}

TEST(QuorumDivide, never_gives_up_what_is_committed_behind_the_cut) {
  DividedStore s;
  const auto at = s.cut();
  s.write("a", "acknowledged");
  EXPECT_EQ(s.divide_in_the_end(at).error().code, Code::faulted);
  DividedStore t;
  const auto aborted = t.cut();
  ASSERT_TRUE(
      t.engine->build(partition(1), {model::BlockKind::uncut, {1}, t.log().commit}, std::string(16, 'x'), nullptr));
  t.run();
  ASSERT_TRUE(t.commit(t.log().end.lsn.value));
  EXPECT_EQ(t.divide_in_the_end(aborted).error().code, Code::faulted);
}

TEST(QuorumDivide, a_child_that_is_not_here_leaves_its_part_with_the_parent_that_is_aside) {
  DividedStore s;
  s.write("a", "1");
  s.write("z", "2");
  const auto at = s.cut();
  ASSERT_TRUE(s.divide(at, 9, false));
  s.settle();
  EXPECT_EQ(s.all(2), (Rows{{"a", "1"}}));
  EXPECT_FALSE(s.engine->find(partition(3)));
  const auto parent = s.engine->find(tenure(1, 1));
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->state, TenureState::aside);
  EXPECT_EQ(parent->mode, LogMode::quorum);
  EXPECT_EQ(parent->interval, (model::Interval{"m", ""}));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  s.lose_power();
  EXPECT_EQ(s.all(2), (Rows{{"a", "1"}}));
  EXPECT_EQ(s.divide(at, 9, false).value(), at);
}

// --- series ---------------------------------------------------------------------------------------

TEST(QuorumDivide, the_parents_series_are_both_childrens_and_those_childrens) {
  DividedStore s;
  s.write_as(1, "a");
  s.settle();
  s.write_as(2, "z");
  const auto at = s.cut();
  ASSERT_TRUE(s.divide(at));
  s.run();
  ASSERT_TRUE(s.begin_epoch(2, 2));
  s.run();
  ASSERT_TRUE(s.commit(s.log(2).end.lsn.value, 2));
  s.write("b", "x", 2);
  const auto both = [&](uint8_t p) {
    const auto got = s.series(kClient, p);
    EXPECT_TRUE(got.whole);
    return got.window.find(1) != nullptr && got.window.find(2) != nullptr;
  };
  EXPECT_TRUE(both(2) && both(3));
  // The high child is divided once more.
  ASSERT_TRUE(
      s.engine->build(partition(3), {model::BlockKind::cut, {2}, s.log(3).commit}, std::string(16, 'x'), nullptr));
  s.run();
  ASSERT_TRUE(s.engine->divide_at(partition(3), s.log(3).end, id_of<model::AttemptId>(8), "t",
                                  {partition(4), {4}, assignment(4)}, {partition(5), {5}, assignment(5)}, nullptr));
  s.run();
  for (int life = 0; life < 3; life++) {
    EXPECT_TRUE(both(2) && both(4) && both(5));
    s.settle();
    s.sweep();
    EXPECT_TRUE(both(2));
    s.lose_power();
  }
}

TEST(QuorumDivide, the_parents_series_stay_until_no_child_needs_them) {
  DividedStore s;
  s.write_as(1, "a");
  ASSERT_TRUE(s.divide(s.cut()));
  s.run();
  s.settle();
  s.sweep();
  ASSERT_EQ(s.series_rows(), 1U);
  for (const auto p : kChildren) {
    ASSERT_TRUE(s.begin_epoch(2, p));
    s.run();
    ASSERT_TRUE(s.commit(s.log(p).end.lsn.value, p));
  }
  // In the low child an hour passes, in the high one it does not.
  s.age(kSeriesExpiryMs + model::kElapsedMaxMs, 2);
  s.settle();
  s.sweep();
  auto low = s.series(kClient, 2);
  low.window.expire(low.now_ms);
  EXPECT_TRUE(low.window.empty());
  EXPECT_NE(s.series(kClient, 3).window.find(1), nullptr);
  EXPECT_EQ(s.series_rows(), 1U);
  s.age(kSeriesExpiryMs + model::kElapsedMaxMs, 3);
  s.settle();
  s.sweep();
  EXPECT_EQ(s.series_rows(), 0U);
}

// A child that goes on with a number finds what it wrote itself and what the parent wrote in one window.
TEST(QuorumDivide, a_childs_own_series_join_the_parents) {
  DividedStore s;
  for (uint64_t n = 1; n <= 10; n++) s.write_as(n, "a");
  ASSERT_TRUE(s.divide(s.cut()));
  s.run();
  for (uint64_t n = 11; n <= 70; n++) s.write_as(n, "b", 2);
  const auto got = s.series(kClient, 2).window;
  EXPECT_EQ(got.entries().size(), model::kSeriesWindow);
  EXPECT_EQ(got.entries().front().number, 7U);
  EXPECT_EQ(got.high(), 70U);
  EXPECT_EQ(s.series(kClient, 3).window.high(), 10U);
}

// A block before the cut cannot be read any more when the divide is replayed: the children's logs begin behind it, so
// that nobody can mend them block by block. They say so in this life and in every later one, until a snapshot has come.
TEST(QuorumDivide, children_of_a_damaged_log_lack_records_until_a_snapshot_brings_them) {
  for (const bool applied : {false, true}) {
    SCOPED_TRACE(applied);
    DividedStore s;
    s.settle();
    const auto damaged = s.engine->status().head;
    s.write("a", "1");
    s.write("z", "2");
    const auto at = s.cut();
    s.gate.shut.insert(Lane::apply);
    ASSERT_TRUE(s.divide(at));
    s.run();
    EXPECT_FALSE(s.log(2).hole);
    s.kill();
    s.disk.flip(segment_path(damaged.segment), damaged.offset + kFrameAndHeader + 3);
    s.gate.open();
    ASSERT_TRUE(s.open());
    ASSERT_EQ(s.engine->report().damaged.size(), 1U);
    for (int life = 0; life < 3; life++) {
      for (const auto p : kChildren) {
        EXPECT_EQ(s.log(p).end, at);
        EXPECT_FALSE(s.log(p).whole);
        EXPECT_TRUE(s.log(p).hole) << "it takes no part before a snapshot has taken its place";
        base::Result<model::QuorumSnapshotPart> got = base::fail(Code::cancelled, "no answer");
        s.engine->read_snapshot(partition(p), {}, 300, [&](auto part) { got = std::move(part); });
        s.run();
        EXPECT_EQ(got.error().code, Code::corrupt);
      }
      if (applied) s.settle();
      s.lose_power();
    }
  }
}

TEST(QuorumDivide, children_of_a_lost_index_know_that_they_are_not_whole) {
  DividedStore s;
  s.write("a", "1");
  const auto at = s.cut();
  ASSERT_TRUE(s.divide(at));
  s.run();
  ASSERT_TRUE(s.begin_epoch(7, 2));
  s.run();
  ASSERT_TRUE(s.seal(9, 3));
  for (int i = 0; i < 10; i++) s.pass(std::chrono::seconds(6));  // the list of tenures is written
  const auto low = s.log(2);
  s.kill();
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.log(2).end, low.end);
  EXPECT_EQ(s.log(2).epochs, low.epochs);
  EXPECT_FALSE(s.log(2).whole);
  EXPECT_EQ(s.log(3).end, at);
  EXPECT_EQ(s.log(3).promised.value, 9U);
  for (int life = 0; life < 2; life++) {  // and they do not forget it
    for (const auto p : kChildren) {
      EXPECT_FALSE(s.log(p).whole);
      EXPECT_TRUE(s.log(p).hole);
    }
    s.settle();
    s.lose_power();
  }
}

// With a right checksum, so that only we can have written it: nothing is made of it, and the store says so.
TEST(QuorumDivide, a_note_that_no_divide_writes_is_refused_by_recovery) {
  const auto note_of = [](DividedStore& s) {
    DivideNote note;
    note.attempt = id_of<model::AttemptId>(9);
    note.parent = partition(1);
    note.assignment = assignment(1);
    note.at = s.log().end;
    note.point = "m";
    note.low = {partition(2), {2}, assignment(2)};
    note.high = {partition(3), {3}, assignment(3)};
    note.log = DivideLog{s.log().epochs, 0, 1};
    return note;
  };
  const std::vector<std::pair<const char*, std::function<void(DivideNote&)>>> twists = {
      {"", [](DivideNote&) {}},
      {"without its log", [](DivideNote& n) { n.log.reset(); }},
      {"at no point", [](DivideNote& n) { n.point.clear(); }},
      {"into itself", [](DivideNote& n) { n.low.partition = n.parent; }},
      {"into one twice", [](DivideNote& n) { n.high.partition = n.low.partition; }},
      {"epochs behind its end",
       [](DivideNote& n) {
         n.log->epochs.push_back({{5}, n.at.lsn.next()});
       }},
      {"epochs that do not ascend", [](DivideNote& n) { n.log->epochs.push_back(n.log->epochs.back()); }}};
  for (const auto& [what, twist] : twists) {
    SCOPED_TRACE(what);
    DividedStore s;
    s.write("a", "1");
    s.cut();
    auto note = note_of(s);
    twist(note);
    const auto head = s.engine->status().head;
    s.kill();
    s.disk.crash();
    Frame frame;
    frame.at = head;
    frame.group = head.sequence;
    frame.header.kind = model::BlockKind::divide;
    frame.header.partition = note.parent;
    frame.header.region = {1};
    const auto payload = encode_note(note);
    wire::seal_block(frame.header, payload);
    std::string start(kFrameAndHeader, '\0');
    encode_frame(frame, start.data());
    s.disk.bytes(segment_path(head.segment)).replace(head.offset, start.size() + payload.size(), start + payload);
    const auto opened = s.open();
    if (*what == '\0') {
      ASSERT_TRUE(opened) << base::to_string(opened.error());
      EXPECT_TRUE(s.engine->find(partition(2)) && s.engine->find(partition(3)));
    } else {
      ASSERT_FALSE(opened);
      EXPECT_EQ(opened.error().code, Code::corrupt);
    }
  }
}

}  // namespace
}  // namespace cantle::store

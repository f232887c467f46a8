// Logs of quorum tables: what is kept for how long, and what recovery makes of damage and of a lost index.
#include <gtest/gtest.h>

#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::Block;
using model::LogPoint;

// --- retention ----------------------------------------------------------------------------------

// A busy partition takes the journal on, segment after segment; the idle one's tail is found by every recovery.
TEST(QuorumKeep, an_idle_logs_uncommitted_tail_outlives_the_segments_around_it) {
  QuorumStore s;
  s.config.segment_bytes = 16 << 10;
  s.config.retention_bytes = 1;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.create(2, 2));
  for (int i = 0; i < 30; i++) ASSERT_TRUE(s.write(2, "early" + std::to_string(i), std::string(1000, 'x')));
  ASSERT_TRUE(s.begin_epoch(1));
  ASSERT_TRUE(s.build(1, "a", "1"));
  ASSERT_TRUE(s.commit(2));
  const auto keep = s.log().end;
  ASSERT_TRUE(s.build(1, "cut", "0"));
  s.run();
  ASSERT_TRUE(s.truncate(keep));
  ASSERT_TRUE(s.seal(4));
  ASSERT_TRUE(s.build(1, "b", "2"));
  s.run();
  const auto end = s.log().end;
  const auto segment = s.engine->status().head.segment;
  EXPECT_GT(segment, 2U);
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < 30; i++) {
      ASSERT_TRUE(s.write(2, "k" + std::to_string(i), std::string(1000, 'x')));
      if (i % 10 == 0) s.pass(std::chrono::seconds(6));
    }
    EXPECT_EQ(s.engine->status().oldest_segment, segment) << round;
    s.lose_power();
    ASSERT_TRUE(s.engine->report().damaged.empty());
    EXPECT_EQ(s.log().end, end);
    EXPECT_EQ(s.log().promised.value, 4U);
    EXPECT_EQ(s.log().visible.value, 2U);
    EXPECT_EQ(s.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}}));
    EXPECT_EQ(s.all(1), (Rows{{"a", "1"}}));
    EXPECT_EQ(s.all(2).size(), 60U);
    EXPECT_EQ(s.read_log(3).value().size(), 1U);
  }
  EXPECT_EQ(s.disk.list("trash").value().size(), 1U);
  ASSERT_TRUE(s.commit(3));
  for (int i = 0; i < 30; i++) {
    ASSERT_TRUE(s.write(2, "k" + std::to_string(i), std::string(1000, 'x')));
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
  }
  EXPECT_GT(s.engine->status().oldest_segment, segment + 5);
  EXPECT_EQ(s.read_log(1).error().code, Code::not_found);
  // All that is left of it is its row.
  for (int i = 0; i < 2; i++) {
    s.lose_power();
    EXPECT_EQ(s.log().end, end);
    EXPECT_EQ(s.log().commit.value, 3U);
    EXPECT_EQ(s.log().promised.value, 4U);
    EXPECT_EQ(s.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}}));
    EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"b", "2"}}));
    EXPECT_EQ(s.read_log(1).error().code, Code::not_found);
    EXPECT_TRUE(s.read_log(4).value().empty());
  }
}

// Whoever leads with a log that ends in a cut is parked: it knows that after a restart, be the cut in the index long
// since or not committed, and after what lay behind it was cut away.
TEST(QuorumKeep, whether_the_log_ends_in_the_cut_of_a_split_is_known_after_every_recovery) {
  QuorumStore s;
  s.config.segment_bytes = 16 << 10;
  s.config.retention_bytes = 1;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.create(2, 2));
  const auto attempt = id_of<model::AttemptId>(9);
  const auto mark = [&](model::BlockKind kind) {
    return s.engine->build(partition(1), {kind, {1}, s.log().commit}, model::cut_payload(attempt), nullptr);
  };
  const auto open = [&] { return model::CutTable(s.log().cuts).open(); };
  ASSERT_TRUE(s.begin_epoch(1));
  ASSERT_TRUE(s.build(1, "a", "1"));
  EXPECT_FALSE(open());
  EXPECT_FALSE(s.engine->build(partition(1), {model::BlockKind::cut, {1}, {}}, "not an id", nullptr));
  ASSERT_TRUE(mark(model::BlockKind::cut));
  const auto cut = s.log().end;
  ASSERT_TRUE(mark(model::BlockKind::uncut));
  EXPECT_FALSE(open());
  s.run();
  s.lose_power();
  EXPECT_FALSE(open());
  ASSERT_TRUE(s.truncate(cut));
  ASSERT_TRUE(open());
  s.lose_power();
  ASSERT_TRUE(open());
  EXPECT_EQ(open()->at, cut);
  EXPECT_EQ(open()->attempt, attempt);
  ASSERT_TRUE(s.commit(cut.lsn.value));
  for (int i = 0; i < 60; i++) {
    ASSERT_TRUE(s.write(2, "k" + std::to_string(i), std::string(1000, 'x')));
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
  }
  EXPECT_EQ(s.read_log(1).error().code, Code::not_found);  // its segment is gone
  s.lose_power();
  ASSERT_TRUE(open());
  EXPECT_EQ(open()->at, cut);
}

TEST(QuorumKeep, with_nothing_to_apply_segments_are_let_go_all_the_same) {
  QuorumStore s;
  s.config.segment_bytes = 16 << 10;
  s.config.retention_bytes = 1;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  for (uint64_t i = 1; i < 1000; i++) {
    ASSERT_TRUE(s.seal(i));
    if (i % 20 == 0) s.pass(std::chrono::seconds(6));
  }
  EXPECT_GT(s.engine->status().head.segment, 10U);
  EXPECT_LT(s.engine->status().segments, 5U);
  s.lose_power();
  EXPECT_EQ(s.log().promised.value, 999U);
}

TEST(QuorumKeep, blocks_from_before_the_last_start_are_found_when_they_are_asked_for) {
  QuorumStore s;
  s.config.segment_bytes = 16 << 10;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.begin_epoch(1));
  for (int i = 0; i < 60; i++) {
    ASSERT_TRUE(s.build(1, "k" + std::to_string(i), std::string(900, 'x')));
    s.run();
    if (i % 20 != 10) continue;
    // The last is cut, and comes again as another.
    const auto keep = s.engine->point_at(partition(1), {s.log().end.lsn.value - 1});
    ASSERT_TRUE(keep);
    ASSERT_TRUE(s.truncate(*keep));
    ASSERT_TRUE(s.build(1, "k" + std::to_string(i), std::string(900, 'y')));
    s.run();
    ASSERT_TRUE(s.commit(s.log().end.lsn.value));
  }
  ASSERT_TRUE(s.commit(61));
  s.settle();
  const auto before = s.read_log(1).value();
  ASSERT_EQ(before.size(), 61U);
  s.lose_power();
  EXPECT_EQ(s.engine->read_log(partition(1), {1}, 1).error().code, Code::unavailable);  // never "not there"
  EXPECT_EQ(s.engine->point_at(partition(1), {61}), point_of(before.back().header));
  s.run();
  const auto after = s.read_log(1).value();
  ASSERT_EQ(after.size(), 61U);
  for (size_t i = 0; i < 61; i++) {
    EXPECT_EQ(after[i].header, before[i].header);
    EXPECT_EQ(s.engine->point_at(partition(1), {i + 1}), point_of(before[i].header));
    EXPECT_EQ(s.read_log(i + 1, 1).value().front().header, before[i].header);
  }
}

// --- bounds -------------------------------------------------------------------------------------

TEST(QuorumBounds, payloads_that_wait_are_read_again_where_memory_has_no_room_for_them) {
  QuorumStore s;
  s.config.segment_bytes = 1 << 20;
  s.config.overlay_bytes = 4 << 20;
  s.config.tail_bytes = 10000;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  Rows rows;
  for (int i = 0; i < 300; i++) {
    const auto key = "k" + std::to_string(i % 200);
    rows[key] = std::string(1000, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(s.build(1, key, rows[key]));
    s.run();
    ASSERT_LE(s.engine->status().tail_bytes, 10000U);
  }
  EXPECT_GT(s.engine->status().tail_bytes, 5000U);
  EXPECT_TRUE(s.all(1).empty());
  ASSERT_TRUE(s.commit(300));
  EXPECT_EQ(s.engine->status().tail_bytes, 0U);
  EXPECT_EQ(s.all(1), rows);
  s.lose_power();
  ASSERT_TRUE(s.commit(300));
  EXPECT_EQ(s.all(1), rows);
}

TEST(QuorumBounds, what_is_committed_waits_for_a_full_overlay_and_comes_in_order) {
  QuorumStore leader, s;
  for (auto* x : {&leader, &s}) {
    x->config.segment_bytes = 1 << 20;
    x->config.overlay_bytes = 100 << 10;
    x->config.tail_bytes = 20000;
    ASSERT_TRUE(x->open());
    ASSERT_TRUE(x->create_quorum(1, 1));
  }
  s.gate.shut = {Lane::apply};
  LogPoint end;
  for (int i = 0; i < 300; i++) {
    const auto b = block_after(end, 1, 1, end.lsn.value,
                               {{"k" + std::to_string(i % 7), std::string(1000, 'a')}, {"n", std::to_string(i)}});
    ASSERT_TRUE(s.take(b)) << i;  // a follower takes on whatever its overlay
    s.run();
    end = point_of(b.header);
    ASSERT_TRUE(s.commit(end.lsn.value));
    ASSERT_LE(s.engine->status().overlay_bytes, 200U << 10);
    s.pass(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(s.log().commit.value, 600U);
  EXPECT_LT(s.log().visible.value, 300U);
  EXPECT_EQ(s.get(1, "n"), std::to_string(s.log().visible.value / 2 - 1));
  s.gate.open();
  s.run();
  for (int i = 0; i < 20; i++) s.pass(std::chrono::milliseconds(1100));
  EXPECT_EQ(s.log().visible.value, 600U);
  EXPECT_EQ(s.get(1, "n"), "299");
  EXPECT_EQ(s.all(1).size(), 8U);
  // A leader builds no more than it can let in.
  leader.gate.shut = {Lane::apply};
  Code code{};
  for (int i = 0; i < 300 && code == Code{}; i++) {
    const auto built = leader.build(1, "k" + std::to_string(i % 7), std::string(1000, 'a'));
    if (!built) code = built.error().code;
    leader.run();
    ASSERT_TRUE(leader.commit(leader.log().end.lsn.value));
    ASSERT_EQ(leader.log().visible, leader.log().end.lsn);
  }
  EXPECT_EQ(code, Code::overloaded);
  EXPECT_TRUE(leader.begin_epoch(2));
}

TEST(QuorumBounds, a_full_disk_takes_seals_epochs_and_cuts_but_no_records) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.build(1, "a", "1"));
  s.run();
  const auto keep = s.log().end;
  ASSERT_TRUE(s.build(1, "b", "2"));
  s.run();
  s.disk.free_space.free = 1000;
  s.pass(std::chrono::seconds(2));
  ASSERT_TRUE(s.engine->status().read_only);
  EXPECT_EQ(s.build(1, "c", "3").error().code, Code::read_only);
  EXPECT_EQ(s.take(block_after(s.log().end, 1, 1, 0, {{"c", "3"}})).error().code, Code::read_only);
  ASSERT_TRUE(s.seal(9));
  ASSERT_TRUE(s.truncate(keep));
  ASSERT_TRUE(s.begin_epoch(9));
  ASSERT_TRUE(s.take(block_after(s.log().end, 1, 10, 0, {})));
  s.run();
  ASSERT_TRUE(s.commit(3));
  EXPECT_EQ(s.log().durable.lsn.value, 3U);
  s.lose_power();
  EXPECT_EQ(s.log().promised.value, 9U);
  EXPECT_EQ(s.log().end.epoch.value, 10U);
}

// Not even another segment: the last of this one is not for records.
TEST(QuorumBounds, the_last_room_of_the_journal_is_for_seals) {
  QuorumStore s;
  s.config.segment_bytes = 16 << 10;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.create(2, 2));
  s.disk.on_write = [](std::string_view path) -> base::Status {
    if (path == "journal/next.tmp") return base::fail(Code::no_space, "full");
    return base::ok();
  };
  Code quorum{}, push{};
  for (int i = 0; i < 1000 && (quorum == Code{} || push == Code{}); i++) {
    if (const auto built = s.build(1, "k", "v"); !built) quorum = built.error().code;
    if (const auto lsn = s.append(2, {put("k", "v", s.ms++)}); !lsn) push = lsn.error().code;
    s.run();
  }
  EXPECT_EQ(quorum, Code::read_only);
  EXPECT_EQ(push, Code::read_only);
  ASSERT_TRUE(s.seal(3));
  ASSERT_TRUE(s.truncate({}));
  s.lose_power();
  EXPECT_EQ(s.log().promised.value, 3U);
  EXPECT_EQ(s.log().end.lsn.value, 0U);
}

TEST(QuorumBounds, what_was_cut_waits_for_room_in_the_trash_and_is_found_again_by_a_restart) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.create(2, 2));
  ASSERT_TRUE(s.build(1, "a", "1"));
  s.run();
  const auto keep = s.log().end;
  ASSERT_TRUE(s.build(1, "b", "2"));
  s.run();
  bool full = true;
  s.disk.on_write = [&](std::string_view path) -> base::Status {
    if (full && path.substr(0, 6) == "trash/") return base::fail(Code::no_space, "full");
    return base::ok();
  };
  ASSERT_TRUE(s.truncate(keep));
  // The log goes on, and is applied, past the place where the cut stands.
  ASSERT_TRUE(s.begin_epoch(2));
  ASSERT_TRUE(s.build(2, "c", "3"));
  s.run();
  ASSERT_TRUE(s.commit(3));
  ASSERT_TRUE(s.write(2, "k", "v"));
  s.settle();
  for (int i = 0; i < 2; i++) {
    s.lose_power();
    EXPECT_TRUE(s.log().whole);
    EXPECT_EQ(s.log().end.lsn.value, 3U);
    EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"c", "3"}}));
    s.settle();
  }
  full = false;
  s.pass(std::chrono::seconds(2));
  const auto names = s.disk.list("trash").value();
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names[0].substr(0, 4), "cut-");
  const auto header = wire::decode_header(s.disk.bytes("trash/" + names[0]));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->first.value, 2U);
  EXPECT_EQ(header->epoch.value, 1U);
  s.pass(std::chrono::hours(20));
  EXPECT_EQ(s.disk.list("trash").value().size(), 1U);
  s.pass(std::chrono::hours(5));
  EXPECT_TRUE(s.disk.list("trash").value().empty());
}

// --- damage -------------------------------------------------------------------------------------

const std::string kSegment = "journal/000000000001.seg";

// Five blocks of one record, two of them committed and applied; where each stands.
struct Damaged : QuorumStore {
  std::vector<uint64_t> at;
  std::vector<LogPoint> ends;
  Damaged() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
    for (int i = 1; i <= 5; i++) {
      at.push_back(engine->status().head.offset);
      ends.push_back(point_of(*build(1, "k" + std::to_string(i), "v")));
      run();
      if (i != 2) continue;
      EXPECT_TRUE(commit(2));
      settle();
    }
    kill();
    disk.crash();
  }
};

TEST(QuorumDamage, a_block_that_cannot_be_read_is_unknown_and_the_log_goes_on_behind_it) {
  for (const uint64_t where : {uint64_t{4}, uint64_t{60}, uint64_t{kFrameAndHeader}}) {
    Damaged s;
    s.disk.flip(kSegment, s.at[3] + where);  // the fourth
    for (int life = 0; life < 2; life++) {
      ASSERT_TRUE(s.open());
      EXPECT_TRUE(life > 0 || s.engine->report().damaged.size() == 1);  // later it is not read again
      EXPECT_FALSE(s.log().whole);
      EXPECT_EQ(s.log().end, s.ends[4]);
      ASSERT_TRUE(s.commit(5));
      EXPECT_EQ(s.log().visible.value, 3U);  // not past what is not here
      EXPECT_EQ(s.all(1), (Rows{{"k1", "v"}, {"k2", "v"}, {"k3", "v"}}));
      EXPECT_EQ(s.read_log(3, 1).value().size(), 1U);
      EXPECT_EQ(s.read_log(4).error().code, Code::corrupt);
      EXPECT_EQ(s.read_log(5).value().size(), 1U);
      s.settle();
      s.kill();
      s.disk.crash();
    }
  }
}

// What recovery finds damaged is said in the row; what it let in, and nobody applied yet, is read again by the next
// one.
TEST(QuorumDamage, what_was_let_in_in_front_of_damage_is_there_after_another_crash) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  uint64_t fourth = 0;
  for (int i = 1; i <= 5; i++) {
    if (i == 4) fourth = s.engine->status().head.offset;
    ASSERT_TRUE(s.build(1, "k" + std::to_string(i), "v"));
    s.run();
    ASSERT_TRUE(i != 4 || s.commit(3));  // the fifth says so
  }
  s.kill();
  s.disk.crash();
  s.disk.flip(kSegment, fourth + 4);
  for (int life = 0; life < 4; life++) {
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.all(1), (Rows{{"k1", "v"}, {"k2", "v"}, {"k3", "v"}})) << life;
    EXPECT_FALSE(s.log().whole);
    EXPECT_EQ(s.log().end.lsn.value, 5U);
    if (life == 2) s.settle();
    s.kill();
    s.disk.crash();
  }
}

TEST(QuorumDamage, of_the_last_block_the_header_says_where_the_log_ends) {
  Damaged s;
  s.disk.flip(kSegment, s.at[4] + kFrameAndHeader);
  ASSERT_TRUE(s.open());
  // The live page or a root knows that it was durable, or it is the torn tail: then nobody was told.
  if (s.engine->report().damaged.empty()) {
    EXPECT_EQ(s.log().end, s.ends[3]);
    EXPECT_TRUE(s.log().whole);
  } else {
    EXPECT_EQ(s.log().end, s.ends[4]);
    EXPECT_FALSE(s.log().whole);
  }
  Damaged t;
  ASSERT_TRUE(t.open());
  t.settle();
  t.kill();  // the process alone: the live page is there
  t.disk.flip(kSegment, t.at[4] + kFrameAndHeader);
  ASSERT_TRUE(t.open());
  EXPECT_FALSE(t.log().whole);
  EXPECT_EQ(t.log().end, t.ends[4]);
  EXPECT_EQ(t.read_log(5).error().code, Code::corrupt);
}

TEST(QuorumDamage, below_what_is_applied_nothing_is_missing) {
  Damaged s;
  s.disk.flip(kSegment, s.at[1] + kFrameAndHeader);
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.log().whole);
  EXPECT_EQ(s.log().end, s.ends[4]);
  EXPECT_EQ(s.read_log(2).error().code, Code::corrupt);
  EXPECT_EQ(s.read_log(3).value().size(), 3U);
}

// Replay cuts on truncate blocks and on nothing else.
TEST(QuorumDamage, a_lower_LSN_is_no_cut) {
  Damaged s;
  ASSERT_TRUE(s.open());
  const auto at = s.engine->status().head.offset;
  ASSERT_TRUE(s.truncate(s.ends[2]));
  ASSERT_TRUE(s.begin_epoch(2));
  s.run();
  ASSERT_TRUE(s.build(2, "k5", "w"));
  s.run();
  s.kill();
  s.disk.crash();
  s.disk.flip(kSegment, at + 100);  // the truncate
  ASSERT_TRUE(s.open());
  EXPECT_FALSE(s.log().whole);
  EXPECT_EQ(s.log().end, s.ends[4]);
}

// --- a lost index -------------------------------------------------------------------------------

TEST(QuorumRebuild, a_whole_log_makes_the_index_again_and_a_part_of_one_does_not) {
  for (const bool whole : {true, false}) {
    QuorumStore s;
    s.config.segment_bytes = 16 << 10;
    s.config.retention_bytes = whole ? uint64_t{1} << 30 : 1;
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create_quorum(1, 1));
    ASSERT_TRUE(s.create(2, 2));
    ASSERT_TRUE(s.begin_epoch(1));
    ASSERT_TRUE(s.build(1, "a", "1"));
    s.run();
    const auto keep = s.log().end;
    ASSERT_TRUE(s.build(1, "cut", "0"));
    s.run();
    ASSERT_TRUE(s.truncate(keep));
    ASSERT_TRUE(s.commit(2));
    ASSERT_TRUE(s.seal(3));
    for (int i = 0; i < 100; i++) {
      ASSERT_TRUE(s.write(2, "k", std::string(1000, 'x')));
      if (i % 10 == 0) s.pass(std::chrono::seconds(6));
    }
    ASSERT_TRUE(s.begin_epoch(4));
    ASSERT_TRUE(s.build(4, "b", "2"));
    ASSERT_TRUE(s.commit(3));
    s.run();
    s.settle();
    const auto end = s.log().end;
    EXPECT_EQ(s.engine->status().oldest_segment == 1, whole);
    s.kill();
    s.disk.crash();
    s.files.clear();
    for (int life = 0; life < 2; life++) {
      ASSERT_TRUE(s.open());
      EXPECT_EQ(s.log().end, end);
      EXPECT_EQ(s.log().promised.value, 3U);
      EXPECT_EQ(s.log().epochs.back(), (model::EpochStart{{4}, {3}}));
      EXPECT_EQ(s.log().whole, whole);
      if (whole) {
        EXPECT_EQ(s.get(1, "a"), "1");
        EXPECT_EQ(s.get(1, "cut"), "none");
        ASSERT_TRUE(s.commit(4));
        EXPECT_EQ(s.get(1, "b"), "2");
      }
      s.settle();
      s.kill();
      s.disk.crash();
    }
  }
}

// --- tenures ------------------------------------------------------------------------------------

// A block is committed, and let in, between the last look at what is pending and the end of its tenure. The next tenure
// of the partition is there when that is applied: it has applied nothing.
TEST(QuorumTenure, what_an_ended_tenure_let_in_last_is_not_the_next_ones) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  for (const auto* key : {"a", "b"}) {
    ASSERT_TRUE(s.build(1, key, "v"));
    s.run();
  }
  std::optional<base::Status> dropped;
  ASSERT_TRUE(s.engine->drop(tenure(1, 1), [&](base::Status status) { dropped = std::move(status); }));
  ASSERT_TRUE(s.commit(2));
  s.run();
  ASSERT_TRUE(dropped && *dropped);
  ASSERT_TRUE(s.create_quorum(1, 2));
  for (int i = 0; i < 30; i++) s.pass(std::chrono::seconds(1));
  EXPECT_EQ(s.engine->find(partition(1))->applied.lsn.value, 0U);
  s.lose_power();
  EXPECT_EQ(s.log().end.lsn.value, 0U);
  EXPECT_EQ(s.engine->find(partition(1))->applied.lsn.value, 0U);
  EXPECT_EQ(s.all(1), Rows{});
}

TEST(QuorumTenure, one_that_was_set_aside_goes_on_behind_what_was_applied) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.build(1, "a", "1"));
  ASSERT_TRUE(s.build(1, "b", "2"));
  s.run();
  ASSERT_TRUE(s.commit(1));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(1, 1), true, done); }));
  EXPECT_FALSE(s.engine->quorum_log(partition(1)));
  ASSERT_TRUE(s.create_quorum(1, 2));
  EXPECT_EQ(s.log().end.lsn.value, 1U);
  const auto next = block_after(s.log().end, 1, 2, 1, {{"b", "other"}});
  ASSERT_TRUE(s.take(next));
  s.run();
  for (int life = 0; life < 3; life++) {
    EXPECT_TRUE(s.log().whole);
    EXPECT_EQ(s.log().end, point_of(next.header));
    EXPECT_EQ(s.all(1), (Rows{{"a", "1"}}));
    if (life == 1) s.settle();
    s.lose_power();
  }
  ASSERT_TRUE(s.commit(2));
  EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"b", "other"}}));
}

TEST(QuorumTenure, one_that_a_snapshot_fills_has_a_log_from_there_on) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  const LogPoint from{{3}, {100}, 77};
  const std::vector<model::EpochStart> epochs{{{1}, {1}}, {{3}, {40}}};
  ASSERT_TRUE(s.wait([&](auto done) {
    return s.engine->create({tenure(1, 1), id_of<model::TableUuid>(7), {1}, {}, LogMode::quorum, from, epochs}, done);
  }));
  // The snapshot went on while the leader did: it may be ahead of the log.
  const auto newer = quorum_payload({3}, {101}, {{"a", "101"}}), older = quorum_payload({2}, {30}, {{"b", "30"}});
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->ingest(tenure(1, 1), {1, newer + older, "z", true}, done); }));
  const auto first = block_after(from, 1, 3, 100, {{"a", "101"}, {"b", "102"}});
  const auto second = block_after(point_of(first.header), 1, 4, 102, {});
  EXPECT_EQ(s.take(block_after({{3}, {100}, 78}, 1, 3, 100, {{"a", "1"}})).error().code, Code::diverged);
  ASSERT_TRUE(s.take(first));
  ASSERT_TRUE(s.take(second));
  s.run();
  for (int life = 0; life < 3; life++) {
    EXPECT_EQ(s.log().end, point_of(second.header));
    EXPECT_EQ(s.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}, {{3}, {40}}, {{4}, {103}}}));
    EXPECT_EQ(s.all(1), (Rows{{"a", "101"}, {"b", "102"}}));
    EXPECT_EQ(s.engine->point_at(partition(1), {100}), from);
    EXPECT_EQ(s.truncate({{3}, {99}, 1}).error().code, Code::faulted);
    EXPECT_EQ(s.read_log(100).error().code, Code::not_found);
    EXPECT_EQ(s.read_log(101).value().size(), 2U);
    if (life == 1) s.settle();
    s.lose_power();
  }
}

// Blocks of a tenure that was dropped stand in the journal still; they are not the new one's.
TEST(QuorumTenure, another_tenures_blocks_are_not_taken_for_its_own) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.build(1, "a", "1"));
  ASSERT_TRUE(s.build(1, "b", "2"));
  ASSERT_TRUE(s.seal(8));
  ASSERT_TRUE(s.commit(1));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  ASSERT_TRUE(s.create_quorum(1, 2));
  for (int life = 0; life < 2; life++) {
    EXPECT_EQ(s.log().end.lsn.value, 0U);
    EXPECT_EQ(s.log().promised.value, 0U);
    EXPECT_TRUE(s.all(1).empty());
    s.lose_power();
  }
  ASSERT_TRUE(s.build(1, "c", "3"));
  s.run();
  EXPECT_EQ(s.read_log(1).value().size(), 1U);
  s.lose_power();
  EXPECT_EQ(s.read_log(1).value().size(), 1U);
  EXPECT_EQ(s.log().end.lsn.value, 1U);
}

}  // namespace
}  // namespace cantle::store

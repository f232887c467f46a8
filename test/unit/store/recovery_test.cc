// Recovery: torn tails, damage, lost files, a lost or old index.
#include "lib/store/recovery.h"

#include <gtest/gtest.h>

#include "lib/store/divide.h"
#include "lib/store/journal_format.h"
#include "lib/store/rows.h"
#include "test/unit/store/engine_fixture.h"

namespace cantle::store {
namespace {

using Rows = std::map<std::string, std::string>;

const std::string kSegment = "journal/000000000001.seg";

struct Filled : Store {
  std::vector<JournalPosition> ends;  // after each record
  explicit Filled(int records = 10) {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create(1, 1));
    for (int i = 0; i < records; i++) {
      EXPECT_TRUE(write(1, "k" + std::to_string(i), "v"));
      ends.push_back(engine->status().head);
    }
    kill();
    disk.crash();
  }
};

TEST(Recovery, a_torn_tail_of_any_length_hides_nothing_that_comes_after) {  // R03
  Filled probe;
  const auto from = probe.ends[8].offset;
  auto to = probe.ends[9].offset;
  while (probe.disk.bytes(kSegment)[to - 1] == 0) to--;  // the last byte whose loss can be seen
  for (uint64_t n = 1; n < to - from; n++) {
    Filled s;
    auto& bytes = s.disk.bytes(kSegment);
    std::memset(bytes.data() + from + n, 0, to - from - n);  // only n bytes of the last record
    s.disk.files.find(kSegment)->second->synced = bytes;
    s.disk.crash();
    ASSERT_TRUE(s.open());
    EXPECT_GE(s.engine->report().torn_bytes, 1U) << n;
    EXPECT_LE(s.engine->report().torn_bytes, n);
    EXPECT_TRUE(s.engine->report().damaged.empty());
    for (int i = 0; i < 10; i++) ASSERT_TRUE(s.write(1, "x" + std::to_string(i), "w"));
    s.kill();
    s.disk.crash();
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.engine->report().torn_bytes, 0U);  // once
    EXPECT_EQ(s.all(1).size(), 19U);
  }
}

TEST(Recovery, a_flipped_bit_before_a_synced_group_is_damage_and_is_passed_over) {  // S62
  Filled probe;
  for (int victim = 0; victim < 9; victim++)
    for (const uint64_t where : {4U, 60U, 100U, 170U}) {
      Filled s;
      const auto from = victim == 0 ? probe.ends[0].offset - (probe.ends[1].offset - probe.ends[0].offset)
                                    : probe.ends[static_cast<size_t>(victim) - 1].offset;
      s.disk.flip(kSegment, from + where);
      ASSERT_TRUE(s.open());
      EXPECT_EQ(s.engine->report().damaged.size(), 1U) << victim;
      EXPECT_FALSE(s.engine->find(partition(1))->whole);
      EXPECT_EQ(s.all(1).size(), 9U);
      EXPECT_EQ(s.engine->log_end(partition(1))->lsn.value, 10U);
      ASSERT_TRUE(s.write(1, "more", "1"));
      ASSERT_TRUE(s.wait([&](auto done) { return s.engine->mark_whole(tenure(1, 1), done); }));
      EXPECT_TRUE(s.engine->find(partition(1))->whole);
      s.kill();
      s.disk.crash();
      ASSERT_TRUE(s.open());
      EXPECT_TRUE(s.engine->find(partition(1))->whole);
      EXPECT_EQ(s.all(1).size(), 10U);
    }
}

// What shows that a place is damage, and not the torn tail, can be a frame of the torn tail itself. It is cut, and the
// next recovery must all the same know what this one knew.
TEST(Recovery, what_was_found_behind_damage_is_not_cut_when_the_torn_tail_that_showed_it_is) {
  Filled s(12);
  auto& bytes = s.disk.bytes(kSegment);
  // Blocks 9 and 10 are one sync group, 11 and 12 another.
  for (const size_t n : {9U, 10U, 11U, 12U}) {
    const uint64_t at = s.ends[n - 2].offset;
    auto frame = decode_frame(std::string_view(bytes).substr(at, kFrameAndHeader), 1, at);
    ASSERT_TRUE(frame);
    frame->group = s.ends[n < 11 ? 7 : 9].sequence;
    encode_frame(*frame, bytes.data() + at);
  }
  std::memset(bytes.data() + s.ends[9].offset, 0, s.ends[10].offset - s.ends[9].offset);  // 11 did not get there
  s.disk.files.find(kSegment)->second->synced = bytes;
  s.disk.crash();
  s.disk.flip(kSegment, s.ends[7].offset + 4);  // in 9
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.engine->report().damaged.size(), 1U) << round;
    EXPECT_EQ(s.all(1).size(), 9U) << round;  // 1 to 8, and 10
    EXPECT_EQ(s.engine->log_end(partition(1))->lsn.value, 10U) << round;
    s.kill();
    s.disk.crash();
  }
}

TEST(Recovery, what_a_root_saw_durable_is_never_taken_for_a_torn_tail) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  const auto before = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "b", "2"));
  s.settle();  // a checkpoint
  s.kill();
  s.disk.crash();
  // Everything from b on is gone, and the index with it.
  auto& bytes = s.disk.bytes(kSegment);
  std::memset(bytes.data() + before.offset, 0, bytes.size() - before.offset);
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_FALSE(s.engine->report().damaged.empty());
  for (const auto& t : s.engine->tenures()) EXPECT_FALSE(t.whole);
}

// S62: no root knows the last block yet; journal/live does.
TEST(Recovery, a_damaged_last_block_that_was_told_durable_is_no_torn_tail) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto before = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "a", "1"));
  s.kill();
  s.disk.bytes(kSegment)[before.offset + kFrameAndHeader] ^= 1;
  ASSERT_TRUE(s.open());
  EXPECT_FALSE(s.engine->report().damaged.empty());
  for (const auto& t : s.engine->tenures()) EXPECT_FALSE(t.whole);
}

// It is passed over, as one in the middle is: what it was can still be looked at, and what comes next goes on behind
// it.
TEST(Recovery, a_damaged_last_block_whose_header_is_readable_stays_where_it_is) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto before = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "a", "1"));
  const auto after = s.engine->status().head;
  s.kill();
  s.disk.bytes(kSegment)[before.offset + kFrameAndHeader] ^= 1;
  s.disk.files.find(kSegment)->second->synced = s.disk.bytes(kSegment);
  const auto lies = s.disk.bytes(kSegment).substr(before.offset, after.offset - before.offset);
  for (int round = 0; round < 3; round++) {
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.engine->report().damaged.size(), 1U) << round;
    EXPECT_EQ(s.engine->report().torn_bytes, 0U);
    EXPECT_FALSE(s.engine->find(partition(1))->whole);
    if (round == 0) {
      EXPECT_EQ(s.engine->status().head.offset, after.offset);
    }
    EXPECT_EQ(s.engine->log_end(partition(1))->lsn.value, 1U + static_cast<uint64_t>(round));
    EXPECT_EQ(s.disk.bytes(kSegment).substr(before.offset, lies.size()), lies) << round;
    EXPECT_EQ(s.all(1).size(), static_cast<size_t>(round));
    ASSERT_TRUE(s.write(1, "b" + std::to_string(round), "2"));
    s.kill();
    s.disk.crash();
  }
}

// Of the last block not even the header can be read: how far it went nobody knows, and the journal goes on over it.
TEST(Recovery, a_damaged_end_is_in_the_trash_before_anything_is_written_over_it) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto before = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "a", "the only copy"));
  const auto after = s.engine->status().head;
  s.kill();
  s.disk.bytes(kSegment)[before.offset + 4] ^= 1;
  s.disk.files.find(kSegment)->second->synced = s.disk.bytes(kSegment);
  auto lies = s.disk.bytes(kSegment).substr(before.offset, after.offset - before.offset);
  while (lies.back() == 0) lies.pop_back();
  for (int round = 0; round < 2; round++) {
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.engine->report().damaged.size(), 1U);
    EXPECT_FALSE(s.engine->find(partition(1))->whole);
    EXPECT_EQ(s.disk.bytes(kSegment)[before.offset + 4], 0);
    const auto kept = s.disk.list(kTrashDir);
    ASSERT_TRUE(kept);
    ASSERT_EQ(kept->size(), 1U) << round;
    EXPECT_TRUE(kept->front().starts_with(kLostPrefix) && kept->front().ends_with(kLostEnd)) << kept->front();
    EXPECT_EQ(s.disk.bytes(std::string(kTrashDir) + "/" + kept->front()), lies);
    s.kill();
    s.disk.crash();
  }
}

// S65: no room for the trash is no reason not to start, nor to write over what is in no other place. The journal goes
// on behind it, and once there is room, it may lie there like any other damage, or go to the trash.
TEST(Recovery, s65_a_damaged_end_that_the_trash_has_no_room_for_stays_and_the_journal_goes_on_behind_it) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "before", "the damage"));
  const auto before = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "a", "the only copy"));
  const auto after = s.engine->status().head;
  s.kill();
  s.disk.bytes(kSegment)[before.offset + 4] ^= 1;
  s.disk.files.find(kSegment)->second->synced = s.disk.bytes(kSegment);
  const auto lies = s.disk.bytes(kSegment).substr(before.offset, after.offset - before.offset);
  const auto there = [&] { return s.disk.bytes(kSegment).substr(before.offset, lies.size()) == lies; };
  s.disk.on_write = [](std::string_view path) {
    return path.starts_with(kTrashDir) ? base::Status(base::fail(base::Code::no_space, "full")) : base::ok();
  };
  Rows expected{{"before", "the damage"}};
  for (int round = 0; round < 4; round++) {
    ASSERT_TRUE(s.open()) << round;
    EXPECT_EQ(s.engine->report().damaged.size(), 1U);
    EXPECT_EQ(s.engine->report().left_bytes, round < 2 ? after.offset - before.offset : 0U)
        << "an end, and then a place";
    EXPECT_FALSE(s.engine->find(partition(1))->whole);
    EXPECT_TRUE(there());
    EXPECT_EQ(s.all(1), expected);
    EXPECT_TRUE(s.disk.list(kTrashDir)->empty()) << s.disk.list(kTrashDir)->front();
    if (round > 0) {
      expected["round"] = std::to_string(round);
      ASSERT_TRUE(s.write(1, "round", expected["round"]));
      EXPECT_GT(s.engine->status().head.offset, after.offset);
    }
    s.kill();
    s.disk.crash();
  }
  s.disk.on_write = [](std::string_view) { return base::ok(); };
  ASSERT_TRUE(s.open());
  EXPECT_EQ(s.all(1), expected);
  EXPECT_TRUE(there());
}

// The same without a write behind it: when there is room, it goes to the trash after all.
TEST(Recovery, s65_a_damaged_end_that_was_left_goes_to_the_trash_at_the_next_start_with_room) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  const auto before = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "a", "the only copy"));
  s.kill();
  s.disk.bytes(kSegment)[before.offset + 4] ^= 1;
  s.disk.files.find(kSegment)->second->synced = s.disk.bytes(kSegment);
  for (const bool room : {false, true}) {
    s.disk.on_write = [room](std::string_view path) {
      const bool full = !room && path.starts_with(kTrashDir);
      return full ? base::Status(base::fail(base::Code::no_space, "full")) : base::ok();
    };
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.engine->report().left_bytes == 0, room);
    EXPECT_EQ(s.disk.list(kTrashDir)->size(), room ? 1U : 0U);
    EXPECT_EQ(s.disk.bytes(kSegment)[before.offset] == 0, room) << "the first byte of a frame is never zero";
    s.kill();
    s.disk.crash();
  }
}

// What one group can reach is looked through and made zeros, and no more; unless it is known that more was durable.
TEST(Recovery, behind_the_end_it_reads_as_far_as_one_group_goes_unless_something_is_missing) {
  constexpr uint64_t kReach = (64 << 10) + framed_size(model::kBlockMax);
  Store s;
  s.config.segment_bytes = 16 << 20;
  s.config.overlay_bytes = 64 << 20;
  s.config.group_bytes_max = 64 << 10;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  const auto end = s.engine->status().head;
  s.kill();
  s.disk.crash();
  for (const uint64_t behind : {uint64_t{100}, kReach + 100}) {
    s.disk.bytes(kSegment)[end.offset + behind] = 'x';
    s.disk.files.find(kSegment)->second->synced = s.disk.bytes(kSegment);
  }
  ASSERT_TRUE(s.open());
  EXPECT_EQ(s.engine->report().torn_bytes, 101U);
  EXPECT_EQ(s.disk.bytes(kSegment)[end.offset + 100], 0);
  EXPECT_EQ(s.disk.bytes(kSegment)[end.offset + kReach + 100], 'x');
  for (int i = 0; i < 6; i++) ASSERT_TRUE(s.write(1, "large" + std::to_string(i), std::string(900 << 10, 'v')));
  const auto last = s.engine->status().head;
  ASSERT_TRUE(s.write(1, "b", "2"));
  s.kill();
  std::memset(s.disk.bytes(kSegment).data() + end.offset, 0, last.offset - end.offset);
  s.disk.files.find(kSegment)->second->synced = s.disk.bytes(kSegment);
  ASSERT_TRUE(s.open());
  EXPECT_EQ(s.engine->report().damaged.size(), 1U);
  EXPECT_EQ(s.all(1).size(), 2U);  // a, and b behind the hole
}

TEST(Recovery, segments_are_switched_and_recycled_without_loss) {
  Store s;
  s.config.retention_bytes = 1;  // nothing is kept for others
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  Rows expected;
  for (int i = 0; i < 600; i++) {
    const auto key = "k" + std::to_string(i % 50);
    expected[key] = std::string(1000 + static_cast<size_t>(i), 'x');
    ASSERT_TRUE(s.write(1, key, expected[key])) << i;
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
    if (i % 97 == 0) {
      s.kill();
      s.disk.crash();
      ASSERT_TRUE(s.open());
      ASSERT_TRUE(s.engine->report().damaged.empty());
    }
  }
  EXPECT_EQ(s.all(1), expected);
  EXPECT_GT(s.engine->status().head.segment, 8U);
  const auto names = s.disk.list("journal").value();
  EXPECT_LT(names.size(), 10U);  // old ones were used again or removed
}

TEST(Recovery, a_newest_segment_that_is_empty_or_short_does_not_stop_a_start) {  // R05
  for (const size_t size : {0, 30, 100}) {
    Filled s;
    s.disk.files.erase("journal/000000000002.seg");
    auto node = std::make_shared<MemDisk::Node>();
    node->now = node->synced = std::string(size, 'h');
    s.disk.files["journal/000000000002.seg"] = node;
    ASSERT_TRUE(s.open());
    EXPECT_TRUE(s.engine->report().damaged.empty());
    EXPECT_EQ(s.all(1).size(), 10U);
    ASSERT_TRUE(s.write(1, "more", "1"));
  }
}

TEST(Recovery, a_segment_missing_in_the_middle_is_damage_loudly) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.files.before_commit = [] { return base::fail(base::Code::no_space, "keep it all in the journal"); };
  s.config.overlay_bytes = 10 << 20;
  s.kill();
  s.files.before_commit = nullptr;
  ASSERT_TRUE(s.open());
  for (int i = 0; i < 60; i++) ASSERT_TRUE(s.write(1, std::to_string(i), std::string(3000, 'x')));
  ASSERT_GE(s.engine->status().head.segment, 3U);
  s.kill();
  s.disk.crash();
  s.disk.files.erase("journal/000000000002.seg");
  ASSERT_TRUE(s.open());
  EXPECT_EQ(s.engine->report().damaged.size(), 1U);
  EXPECT_FALSE(s.engine->find(partition(1))->whole);
  EXPECT_GT(s.all(1).size(), 10U);
  EXPECT_TRUE(s.write(1, "more", "1"));
}

TEST(Recovery, a_lost_index_is_rebuilt_from_the_journal) {  // R08
  for (const bool damaged : {false, true}) {
    Store s;
    s.config.overlay_bytes = 4 << 20;
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create(1, 1));
    for (int i = 0; i < 40; i++) ASSERT_TRUE(s.write(1, std::to_string(i + 100), std::string(3000, 'x')));
    s.settle();
    ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "120", {partition(2), {2}, assignment(2)},
                                 {partition(3), {3}, assignment(3)}, nullptr));
    ASSERT_TRUE(s.write(2, "105", "changed"));
    s.settle();
    ASSERT_TRUE(s.write(3, "130", "changed"));
    const auto low = s.all(2), high = s.all(3);
    const auto hash = s.hash(2);
    s.kill();
    s.disk.crash();
    if (damaged)
      s.files.damaged = "a page is missing";
    else
      s.files.clear();
    ASSERT_TRUE(s.open());
    EXPECT_TRUE(s.engine->report().index_rebuilt);
    EXPECT_EQ(s.all(2), low);
    EXPECT_EQ(s.all(3), high);
    EXPECT_EQ(s.hash(2).hash, hash.hash);
    EXPECT_TRUE(s.engine->find(partition(2))->whole);  // the journal had it all
    EXPECT_EQ(s.engine->log_end(partition(2))->lsn.value, 41U);
    s.kill();
    s.disk.crash();
    ASSERT_TRUE(s.open());
    EXPECT_FALSE(s.engine->report().index_rebuilt);
    EXPECT_EQ(s.all(2), low);
  }
}

// What came in a snapshot is in no journal: a copy made again from the journal must know that it lacks it.
TEST(Recovery, a_copy_filled_by_a_snapshot_is_not_whole_when_its_index_is_lost) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "log"));
  EXPECT_FALSE(s.engine->find(partition(1))->hollow);
  ASSERT_TRUE(s.wait([&](auto done) {
    return s.engine->ingest(tenure(1, 1), {1, payload_of({put("b", "snapshot", 5)}), "b", true}, done);
  }));
  EXPECT_TRUE(s.engine->find(partition(1))->hollow);
  EXPECT_TRUE(s.engine->find(partition(1))->whole);
  s.kill();
  s.disk.crash();
  const auto files = s.files;
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->find(partition(1))->hollow);
  ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "b", {partition(2), {2}, assignment(2)},
                               {partition(3), {3}, assignment(3)}, nullptr));
  EXPECT_TRUE(s.engine->find(partition(2))->hollow);
  s.kill();
  s.disk.crash();
  s.files = files;
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  ASSERT_TRUE(s.engine->find(partition(1)));
  EXPECT_FALSE(s.engine->find(partition(1))->whole);
  EXPECT_EQ(s.get(1, "a"), "log");
}

TEST(Recovery, an_index_lost_before_the_first_checkpoint_is_rebuilt_too) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (int i = 0; i < 40; i++) ASSERT_TRUE(s.write(1, std::to_string(i), "v"));
  s.kill();
  s.disk.crash();
  ASSERT_FALSE(s.disk.files.contains("journal/root"));
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.all(1).size(), 40U);
  EXPECT_TRUE(s.engine->find(partition(1))->whole);
}

TEST(Recovery, a_rebuild_that_was_cut_short_begins_again) {
  for (int commits = 0;; commits++) {
    Store s;
    s.config.overlay_bytes = 64 << 10;
    ASSERT_TRUE(s.open());
    ASSERT_TRUE(s.create(1, 1));
    for (int i = 0; i < 60; i++) ASSERT_TRUE(s.write(1, std::to_string(i + 100), std::string(3000, 'x')));
    ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "130", {partition(2), {2}, assignment(2)},
                                 {partition(3), {3}, assignment(3)}, nullptr));
    ASSERT_TRUE(s.write(2, "105", "changed"));
    s.settle();
    const auto low = s.all(2), high = s.all(3);
    s.kill();
    s.disk.crash();
    s.files.clear();
    int left = commits;
    bool cut = false;
    s.files.before_commit = [&]() -> base::Status {
      if (left-- > 0) return base::ok();
      cut = true;
      return base::fail(base::Code::io_error, "the process ends here");
    };
    const auto opened = s.open();
    ASSERT_EQ(opened.has_value(), !cut);
    s.kill();
    s.disk.crash();
    s.files.before_commit = nullptr;
    ASSERT_TRUE(s.open());
    EXPECT_EQ(s.engine->report().index_rebuilt, cut) << commits;
    EXPECT_EQ(s.all(2), low) << commits;
    EXPECT_EQ(s.all(3), high) << commits;
    ASSERT_TRUE(s.engine->find(partition(3)));
    EXPECT_TRUE(s.engine->find(partition(3))->whole) << commits;
    if (!cut) {
      EXPECT_GT(commits, 3);  // it took several transactions
      break;
    }
  }
}

TEST(Recovery, an_old_index_is_rolled_forward) {
  Store s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  ASSERT_TRUE(s.write(1, "a", "1"));
  s.settle();
  const auto old = s.files;
  for (int i = 0; i < 20; i++) ASSERT_TRUE(s.write(1, "k" + std::to_string(i), "v"));
  s.settle();
  const auto rows = s.all(1);
  s.kill();
  s.disk.crash();
  s.files = old;
  ASSERT_TRUE(s.open());
  EXPECT_EQ(s.all(1), rows);
  EXPECT_TRUE(s.engine->find(partition(1))->whole);
}

TEST(Recovery, a_foreign_index_is_not_served) {
  Store other;
  other.identity.server.name = "p2";
  ASSERT_TRUE(other.open());
  ASSERT_TRUE(other.create(1, 1));
  ASSERT_TRUE(other.write(1, "theirs", "1"));
  other.settle();
  other.kill();
  Filled s;
  s.files = other.files;
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.get(1, "theirs"), "none");
  EXPECT_EQ(s.all(1).size(), 10U);
}

TEST(Recovery, a_log_that_no_longer_reaches_back_is_not_whole_after_a_rebuild) {
  Store s;
  s.config.retention_bytes = 1;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (int i = 0; i < 200; i++) {
    ASSERT_TRUE(s.write(1, std::to_string(i), std::string(2000, 'x')));
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
  }
  ASSERT_GT(s.engine->status().oldest_segment, 1U);
  s.kill();
  s.disk.crash();
  s.files.clear();
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.engine->find(partition(1)));
  EXPECT_FALSE(s.engine->find(partition(1))->whole);
  EXPECT_EQ(s.engine->log_end(partition(1))->lsn.value, 200U);
}

// A server of many quorum partitions with many epochs each: one block would not hold the list.
TEST(Recovery, a_list_of_tenures_with_long_rows_comes_in_as_many_parts_as_it_takes) {
  constexpr uint8_t kTenures = 60;
  Store s;
  s.config.segment_bytes = 8 << 20;
  s.config.overlay_bytes = 16 << 20;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  for (uint8_t p = 2; p < 2 + kTenures; p++) {
    TenureSpec spec{tenure(p, p), id_of<model::TableUuid>(7), {p}, {}, LogMode::quorum, {{4001}, {4001}, 1}, {}};
    for (uint64_t e = 1; e <= 4000; e++) spec.epochs.push_back({{e}, {e}});
    ASSERT_TRUE(s.engine->create(spec, nullptr));
    s.run();
  }
  s.pass(std::chrono::seconds(6));
  s.kill();
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  for (uint8_t p = 1; p < 2 + kTenures; p++) EXPECT_TRUE(s.engine->find(partition(p))) << int{p};
}

// A list of tenures that spans two segments: the first of its parts is needed as long as the last is.
TEST(Recovery, a_list_of_tenures_in_parts_is_kept_whole) {
  constexpr uint32_t kTenures = kImageTenures + 100;
  Store s;
  s.config.segment_bytes = 2 << 20;
  s.config.overlay_bytes = 16 << 20;
  s.config.retention_bytes = 1;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create(1, 1));
  s.kill();
  {
    auto index = std::move(*s.factory.open());
    auto txn = std::move(*index->begin());
    auto meta = *read_meta(*txn).value();
    for (uint32_t i = 0; i < kTenures; i++) {
      TenureRow row;
      row.partition.bytes = {0xff, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
      row.assignment = assignment(1);
      row.parts = {{{meta.next_extent++}, {}}};
      ExtentRow pieces;
      pieces.pieces.push_back({{}, row.partition, row.assignment, "", {}});
      ASSERT_TRUE(write_extent(*txn, row.parts[0].extent, pieces));
      ASSERT_TRUE(write_tenure(*txn, row));
    }
    ASSERT_TRUE(write_meta(*txn, meta));
    ASSERT_TRUE(txn->commit());
  }
  ASSERT_TRUE(s.open());
  const auto head = [&] { return s.engine->status().head; };
  const auto fill = [&](size_t bytes) { ASSERT_TRUE(s.write(1, "fill", std::string(bytes, 'x'))); };
  ASSERT_TRUE(s.write(1, "first", "1"));
  const auto before = head().offset;
  s.pass(std::chrono::seconds(6));
  const auto image = head().offset - before;
  ASSERT_GT(image, 200U << 10);
  // The next is written at a place in the next segment where the first part finds room and the second does not.
  while (head().segment == 1) fill(100 << 10);
  while (head().offset + image - image / 60 < s.config.segment_bytes) fill(1000);
  ASSERT_EQ(head().segment, 2U);
  s.pass(std::chrono::seconds(6));
  ASSERT_EQ(head().segment, 3U);
  for (int i = 0; i < 10; i++) {
    fill(1000);
    s.pass(std::chrono::seconds(6));
  }
  while (head().segment < 6) fill(100 << 10);  // faster than the next checkpoint: what was let go is used again
  s.kill();
  s.disk.crash();
  s.files.clear();
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.engine->tenures().size(), kTenures + 1);
}

}  // namespace
}  // namespace cantle::store

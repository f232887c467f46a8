#include "lib/store/quorum_log.h"

#include <gtest/gtest.h>

namespace cantle::store {
namespace {

using model::EpochStart;
using model::Lsn;

constexpr uint64_t kKiB = 1024;

JournalPosition at(uint64_t segment, uint64_t offset, uint64_t sequence) { return {segment, offset, sequence}; }

TEST(LogIndex, has_one_mark_every_256_KiB_and_one_at_the_start_of_each_segment) {
  LogIndex index;
  EXPECT_FALSE(index.find({1}));
  for (uint64_t i = 0; i < 1000; i++) index.add({1 + i}, at(1, i * kKiB, 10 + i));
  for (uint64_t i = 0; i < 10; i++) index.add({1001 + i}, at(2, i * kKiB, 1010 + i));
  EXPECT_EQ(index.marks(), 5U);
  EXPECT_EQ(index.find({1})->offset, 0U);
  EXPECT_EQ(index.find({256})->offset, 0U);
  EXPECT_EQ(index.find({257})->offset, 256 * kKiB);
  EXPECT_EQ(index.find({1000})->offset, 768 * kKiB);
  EXPECT_EQ(index.find({5000}), at(2, 0, 1010));
  index.add({1001}, at(3, 0, 2000));  // the same block once more
  EXPECT_EQ(index.marks(), 5U);
  index.forget_below(2);
  EXPECT_EQ(index.oldest(), Lsn{1001});
  EXPECT_FALSE(index.find({1000}));
  index.forget_below(3);
  EXPECT_FALSE(index.oldest());
}

// Thousands of logs share the journal: the last block of one may have a quarter of a MiB of others' before it.
TEST(LogIndex, the_last_blocks_that_lie_far_apart_are_found_one_by_one) {
  LogIndex index;
  for (uint64_t i = 0; i < 100; i++) index.add({1 + i}, at(1, i * 8 * kKiB, 10 + i));
  EXPECT_EQ(index.marks(), 4 + kAloneMost);
  EXPECT_EQ(index.find({100})->offset, 99 * 8 * kKiB);
  EXPECT_EQ(index.find({98})->offset, 97 * 8 * kKiB);
  EXPECT_EQ(index.find({50})->offset, 32 * 8 * kKiB);  // as ever
  EXPECT_EQ(index.find({33})->offset, 32 * 8 * kKiB);
  EXPECT_TRUE(index.lies_far({99}, at(1, 97 * 8 * kKiB, 107), 100));
  EXPECT_FALSE(index.lies_far({99}, at(1, 97 * 8 * kKiB, 107), 6 * kKiB));  // right behind it
  EXPECT_FALSE(index.lies_far({50}, at(1, 48 * 8 * kKiB, 58), 100));        // it is not known where
  EXPECT_EQ(index.ahead({98}).marks(), 3U);
  EXPECT_EQ(index.ahead({98}).find({99})->offset, 98 * 8 * kKiB);
  index.cut({97}, at(1, 900 * kKiB, 200));
  EXPECT_EQ(index.find({99})->offset, 96 * 8 * kKiB);
}

TEST(LogIndex, a_block_that_was_cut_is_not_taken_for_the_one_that_came_after) {
  LogIndex index;
  for (uint64_t i = 0; i < 10; i++) index.add({1 + i}, at(1 + i, 0, 10 + i));
  index.cut({7}, at(11, 0, 20));
  EXPECT_EQ(index.find({9})->segment, 7U);
  index.add({8}, at(12, 0, 21));
  EXPECT_EQ(index.find({9})->segment, 12U);
  EXPECT_TRUE(index.lives({7}, 16));
  EXPECT_FALSE(index.lives({8}, 17));
  EXPECT_TRUE(index.lives({8}, 21));
  index.forget_below(12);  // the cut is gone, and all that it cut
  EXPECT_TRUE(index.lives({8}, 21));
}

TEST(LogIndex, what_is_learned_later_goes_in_front) {
  LogIndex older;
  for (uint64_t i = 0; i < 10; i++) older.add({1 + i}, at(1 + i, 0, 10 + i));
  older.cut({8}, at(10, 500, 21));
  LogIndex index;
  index.cut({6}, at(11, 0, 30));
  index.add({7}, at(11, 100, 31));
  index.put_before(older);
  EXPECT_EQ(index.oldest(), Lsn{1});
  EXPECT_EQ(index.find({6})->segment, 6U);
  EXPECT_EQ(index.find({7}), at(11, 100, 31));
  EXPECT_FALSE(index.lives({7}, 16));
  EXPECT_FALSE(index.lives({9}, 18));
  LogIndex empty;
  empty.put_before(index);
  EXPECT_EQ(empty.find({7}), at(11, 100, 31));
}

TEST(EpochTable, has_an_entry_for_each_epoch_that_has_a_block) {
  EpochTable table;
  table.note({1}, {1});
  table.note({1}, {2});
  table.note({4}, {7});
  table.note({4}, {9});
  EXPECT_EQ(table.starts(), (std::vector<EpochStart>{{{1}, {1}}, {{4}, {7}}}));
  table.cut({7});
  EXPECT_EQ(table.starts().size(), 2U);
  table.cut({6});
  EXPECT_EQ(table.starts(), (std::vector<EpochStart>{{{1}, {1}}}));
  table.note({5}, {7});
  EXPECT_EQ(table.starts().back(), (EpochStart{{5}, {7}}));
}

}  // namespace
}  // namespace cantle::store

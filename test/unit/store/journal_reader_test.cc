#include "lib/store/journal_reader.h"

#include <gtest/gtest.h>

#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

// The keys of a partition's log from an LSN on, read in small steps.
std::vector<std::string> keys(JournalReader& reader, uint8_t p, uint64_t from, size_t step = 1) {
  std::vector<std::string> out;
  for (model::Lsn next{from};;) {
    auto part = reader.read(partition(p), next, step);
    EXPECT_TRUE(part);
    if (part->gone) out.push_back("(gone)");
    if (part->gap) out.push_back("(gap)");
    for (const auto& block : part->blocks) {
      wire::RecordReader in(block.payload);
      for (model::RecordView r; in.next(r);) out.emplace_back(r.key);
    }
    if (part->gone || part->next == next || (part->blocks.empty() && !part->gap)) return out;
    next = part->next;
  }
}

struct Read : Store {
  std::unique_ptr<JournalReader> reader;
  Read() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create(1, 1));
    reader = std::move(*JournalReader::open(disk));
  }
  void advance() { ASSERT_TRUE(reader->advance(engine->status().head)); }
};

TEST(JournalReader, gives_a_partitions_blocks_in_order_and_follows) {
  Read s;
  ASSERT_TRUE(s.create(2, 2));
  s.advance();
  EXPECT_FALSE(s.reader->end(partition(1)));
  for (int i = 0; i < 5; i++) {
    ASSERT_TRUE(s.write(1, "a" + std::to_string(i), "v"));
    ASSERT_TRUE(s.write(2, "b" + std::to_string(i), "v"));
  }
  s.advance();
  EXPECT_EQ(keys(*s.reader, 1, 1), (std::vector<std::string>{"a0", "a1", "a2", "a3", "a4"}));
  EXPECT_EQ(keys(*s.reader, 2, 3), (std::vector<std::string>{"b2", "b3", "b4"}));
  EXPECT_EQ(*s.reader->end(partition(1)), *s.engine->durable(partition(1)));
  EXPECT_EQ(s.reader->oldest(partition(2))->value, 1U);
  ASSERT_TRUE(s.append(1, {put("a5", "v", 9), put("a6", "v", 9), put("a7", "v", 9)}));
  s.run();
  EXPECT_EQ(keys(*s.reader, 1, 6).size(), 0U);  // not past what it was told is durable
  s.advance();
  EXPECT_EQ(keys(*s.reader, 1, 7), (std::vector<std::string>{"a5", "a6", "a7"}));  // the block that holds LSN 7
}

// A walk goes on where the last one stopped, if that is on its way.
TEST(JournalReader, reads_forth_and_back) {
  Read s;
  ASSERT_TRUE(s.create(2, 2));
  for (int i = 0; i < 9; i++) {
    ASSERT_TRUE(s.write(1, "a" + std::to_string(i), "v"));
    ASSERT_TRUE(s.write(2, "b" + std::to_string(i), "v"));
  }
  s.advance();
  for (const uint64_t from : {1, 5, 9, 2, 7, 1, 3}) {
    std::vector<std::string> wanted;
    for (uint64_t i = from; i <= 9; i++) wanted.push_back("a" + std::to_string(i - 1));
    const auto part = s.reader->read(partition(1), {from}, 1);
    ASSERT_TRUE(part && part->blocks.size() == 1) << from;
    EXPECT_EQ(part->blocks[0].header.first.value, from);
    EXPECT_EQ(keys(*s.reader, 1, from), wanted);
  }
}

TEST(JournalReader, says_whether_a_point_is_in_the_log) {
  Read s;
  std::vector<model::LogPoint> points;
  for (int i = 0; i < 4; i++) {
    ASSERT_TRUE(s.append(1, {put("x", "1", s.ms++), put("y", "1", s.ms++)}));
    s.run();
    points.push_back(*s.engine->durable(partition(1)));
  }
  s.advance();
  for (auto p : points) {
    EXPECT_EQ(s.reader->contains(partition(1), p).value(), Contains::yes);
    p.crc++;
    EXPECT_EQ(s.reader->contains(partition(1), p).value(), Contains::no);
    p.crc--;
    p.lsn.value--;  // inside a block
    EXPECT_EQ(s.reader->contains(partition(1), p).value(), Contains::no);
  }
  EXPECT_EQ(s.reader->contains(partition(1), {{1}, {100}, 1}).value(), Contains::no);
  EXPECT_EQ(s.reader->contains(partition(1), {}).value(), Contains::yes);
}

TEST(JournalReader, leads_a_childs_reader_into_the_parents_log) {
  Read s;
  for (const char* k : {"a", "m", "b"}) ASSERT_TRUE(s.write(1, k, "v"));
  const auto middle = *s.engine->durable(partition(1));
  ASSERT_TRUE(s.write(1, "n", "v"));
  ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "m", {partition(2), {2}, assignment(2)},
                               {partition(3), {3}, {}}, nullptr));
  s.run();
  s.advance();
  EXPECT_EQ(s.reader->end(partition(2))->lsn.value, 4U);
  EXPECT_EQ(keys(*s.reader, 2, 1), (std::vector<std::string>{"a", "m", "b", "n"}));
  ASSERT_TRUE(s.write(2, "c", "v"));
  ASSERT_TRUE(s.write(2, "d", "v"));
  s.advance();
  EXPECT_EQ(keys(*s.reader, 2, 1), (std::vector<std::string>{"a", "m", "b", "n", "c", "d"}));
  EXPECT_EQ(keys(*s.reader, 2, 1, 1 << 20), (std::vector<std::string>{"a", "m", "b", "n", "c", "d"}));
  EXPECT_EQ(keys(*s.reader, 1, 1), (std::vector<std::string>{"a", "m", "b", "n"}));
  EXPECT_EQ(s.reader->contains(partition(2), middle).value(), Contains::yes);
  EXPECT_EQ(s.reader->oldest(partition(2))->value, 1U);
  ASSERT_EQ(s.reader->divides().size(), 1U);
  EXPECT_EQ(s.reader->divides()[0].point, "m");
  EXPECT_TRUE(s.reader->divides()[0].has_low);
  EXPECT_FALSE(s.reader->divides()[0].has_high);
}

// A copy that was dropped and made again: until its new log has a block, nothing of the old one may stand for it.
TEST(JournalReader, the_log_of_a_dropped_copy_has_ended) {
  Read s;
  for (int i = 0; i < 5; i++) ASSERT_TRUE(s.write(1, std::to_string(i), "old"));
  s.advance();
  EXPECT_EQ(s.reader->end(partition(1))->lsn.value, 5U);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  s.advance();
  EXPECT_FALSE(s.reader->end(partition(1)));
  ASSERT_TRUE(s.create(1, 2));
  s.advance();
  EXPECT_FALSE(s.reader->end(partition(1)));
  ASSERT_TRUE(s.write(1, "a", "new"));
  s.advance();
  for (const bool fresh : {false, true}) {  // one that followed, and one that reads it all at once
    if (fresh) s.reader = std::move(*JournalReader::open(s.disk));
    s.advance();
    EXPECT_EQ(s.reader->end(partition(1))->lsn.value, 1U);
    EXPECT_EQ(s.reader->oldest(partition(1))->value, 1U);
    EXPECT_EQ(keys(*s.reader, 1, 1), std::vector<std::string>{"a"});
  }
}

TEST(JournalReader, reports_a_gap_where_a_block_is_damaged) {
  Read s;
  std::vector<uint64_t> at;
  for (int i = 0; i < 6; i++) {
    at.push_back(s.engine->status().head.offset);
    ASSERT_TRUE(s.write(1, "k" + std::to_string(i), "v"));
  }
  for (const size_t where : {size_t{10}, size_t{170}}) {  // the frame; the payload
    s.disk.flip("journal/000000000001.seg", at[2] + where);
    s.reader = std::move(*JournalReader::open(s.disk));
    s.advance();
    EXPECT_EQ(keys(*s.reader, 1, 1), (std::vector<std::string>{"k0", "k1", "(gap)", "k3", "k4", "k5"}));
    s.disk.flip("journal/000000000001.seg", at[2] + where);
  }
  s.disk.flip("journal/000000000001.seg", at[5] + 170);
  s.reader = std::move(*JournalReader::open(s.disk));
  s.advance();
  EXPECT_EQ(keys(*s.reader, 1, 5), (std::vector<std::string>{"k4", "(gap)"}));
}

// The header of the parent's last block is what is damaged: that there was one only the divide tells.
TEST(JournalReader, a_parents_last_block_that_is_damaged_is_a_gap_in_the_childs_log) {
  Read s;
  std::vector<uint64_t> at;
  for (const char* k : {"a", "b", "c"}) {
    at.push_back(s.engine->status().head.offset);
    ASSERT_TRUE(s.write(1, k, "v"));
  }
  ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "m", {partition(2), {2}, assignment(2)},
                               {partition(3), {3}, {}}, nullptr));
  s.run();
  s.disk.flip("journal/000000000001.seg", at[1] + 10);
  s.disk.flip("journal/000000000001.seg", at[2] + 10);
  s.advance();
  EXPECT_EQ(s.reader->end(partition(2))->lsn.value, 3U);
  EXPECT_EQ(keys(*s.reader, 2, 1), (std::vector<std::string>{"a", "(gap)"}));
  ASSERT_TRUE(s.write(2, "d", "v"));
  s.advance();
  EXPECT_EQ(keys(*s.reader, 2, 1), (std::vector<std::string>{"a", "(gap)", "d"}));
}

struct Neighbours : Read {
  Neighbours() {
    kill();
    disk = {};
    files.clear();
    EXPECT_TRUE(open());
    EXPECT_TRUE(create(1, 1, {"", "m"}));
    EXPECT_TRUE(create(2, 2, {"m", ""}));
    reader = std::move(*JournalReader::open(disk));
  }
  model::LogPoint merge() {
    const auto at = engine->merge_ends(partition(1), partition(2), id_of<model::AttemptId>(1),
                                       {partition(3), {3}, assignment(3)}, nullptr);
    EXPECT_TRUE(at);
    run();
    return *at;
  }
};

TEST(JournalReader, a_merges_target_has_a_log_of_its_own_and_the_two_are_read_under_their_names) {
  Neighbours s;
  for (const char* k : {"a", "b", "c"}) ASSERT_TRUE(s.write(1, k, "v"));
  for (const char* k : {"m", "n"}) ASSERT_TRUE(s.write(2, k, "v"));
  const auto low = *s.engine->durable(partition(1)), high = *s.engine->durable(partition(2));
  const auto start = s.merge();
  for (int life = 0; life < 2; life++) {
    s.advance();
    const auto* merge = s.reader->merge_into(partition(3));
    ASSERT_NE(merge, nullptr);
    EXPECT_EQ(merge->low.partition, partition(1));
    EXPECT_EQ(merge->low.assignment, assignment(1));
    EXPECT_EQ(merge->low.at, low);
    EXPECT_EQ(merge->high.at, high);
    EXPECT_EQ(merge->start, start);
    EXPECT_EQ(s.reader->merge_into(partition(1)), nullptr);
    EXPECT_EQ(s.reader->contains(partition(3), start).value(), Contains::yes);
    EXPECT_NE(s.reader->contains(partition(3), low).value(), Contains::yes);
    EXPECT_EQ(s.reader->end(partition(1)).value(), low);
    EXPECT_EQ(keys(*s.reader, 1, 2), (std::vector<std::string>{"b", "c"}));
    EXPECT_EQ(keys(*s.reader, 2, 1), (std::vector<std::string>{"m", "n"}));
    if (life == 0) {
      EXPECT_EQ(s.reader->end(partition(3)).value(), start);
      EXPECT_FALSE(s.reader->oldest(partition(3)));
      ASSERT_TRUE(s.write(3, "x", "v"));
      for (int i = 0; i < 10; i++) s.pass(std::chrono::seconds(6));  // a list of tenures, without the two
    } else {
      EXPECT_EQ(s.reader->oldest(partition(3))->value, start.lsn.value + 1);
      EXPECT_EQ(keys(*s.reader, 3, start.lsn.value + 1), (std::vector<std::string>{"x"}));
      EXPECT_EQ(keys(*s.reader, 3, 1), (std::vector<std::string>{"(gone)"}));
    }
  }
}

// The header of its last block is what is damaged: that there was one only the merge tells.
TEST(JournalReader, the_damaged_end_of_a_merged_log_is_a_gap_in_it) {
  Neighbours s;
  std::vector<uint64_t> at;
  for (const char* k : {"a", "b", "c"}) {
    at.push_back(s.engine->status().head.offset);
    ASSERT_TRUE(s.write(1, k, "v"));
  }
  const auto end = *s.engine->durable(partition(1));
  s.merge();
  s.disk.flip("journal/000000000001.seg", at[1] + 10);
  s.disk.flip("journal/000000000001.seg", at[2] + 10);
  s.advance();
  EXPECT_EQ(s.reader->end(partition(1)).value(), end);
  EXPECT_EQ(keys(*s.reader, 1, 1), (std::vector<std::string>{"a", "(gap)"}));
}

TEST(JournalReader, a_merge_whose_segment_is_gone_is_known_no_more) {
  Neighbours s;
  s.config.retention_bytes = 1;
  s.kill();
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.write(1, "a", "v"));
  s.merge();
  s.advance();
  EXPECT_NE(s.reader->merge_into(partition(3)), nullptr);
  for (int i = 0; i < 200; i++) {
    ASSERT_TRUE(s.write(3, std::to_string(i), std::string(2000, 'x')));
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
  }
  s.advance();
  EXPECT_EQ(s.reader->merge_into(partition(3)), nullptr);
  EXPECT_FALSE(s.reader->end(partition(1)));
  EXPECT_GT(s.reader->oldest(partition(3))->value, 2U);
}

TEST(JournalReader, what_was_retired_is_gone_and_not_an_error) {
  Read s;
  s.config.retention_bytes = 1;
  s.kill();
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.write(1, "first", "v"));
  const auto first = *s.engine->durable(partition(1));
  s.advance();
  for (int i = 0; i < 200; i++) {
    ASSERT_TRUE(s.write(1, std::to_string(i), std::string(2000, 'x')));
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
  }
  EXPECT_EQ(keys(*s.reader, 1, 1), (std::vector<std::string>{"(gone)"}));
  s.advance();
  EXPECT_EQ(keys(*s.reader, 1, 1), (std::vector<std::string>{"(gone)"}));
  EXPECT_EQ(s.reader->contains(partition(1), first).value(), Contains::gone);
  EXPECT_GT(s.reader->oldest(partition(1))->value, 1U);
  const auto rest = keys(*s.reader, 1, s.reader->oldest(partition(1))->value);
  EXPECT_EQ(rest.back(), "199");
  auto fresh = std::move(*JournalReader::open(s.disk));
  ASSERT_TRUE(fresh->advance(s.engine->status().head));
  EXPECT_EQ(keys(*fresh, 1, 201).back(), "199");
}

// The log of a child whose own blocks are gone does not end at the divide: where it ends the index knows.
TEST(JournalReader, what_came_after_a_divide_and_was_retired_is_not_taken_for_nothing) {
  Read s;
  s.config.retention_bytes = 1;
  s.kill();
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.write(1, "a", "v"));
  ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "m", {partition(2), {2}, assignment(2)},
                               {partition(3), {3}, assignment(3)}, nullptr));
  s.run();
  s.advance();
  auto late = std::move(*JournalReader::open(s.disk));
  ASSERT_TRUE(late->advance(s.engine->status().head));
  EXPECT_EQ(s.reader->end(partition(2))->lsn.value, 1U);
  ASSERT_TRUE(s.write(2, "c", "v"));
  s.advance();
  EXPECT_EQ(s.reader->end(partition(2))->lsn.value, 2U);
  for (int i = 0; i < 200; i++) {
    ASSERT_TRUE(s.write(3, "n" + std::to_string(i), std::string(2000, 'x')));
    if (i % 10 == 0) s.pass(std::chrono::seconds(6));
  }
  s.advance();
  EXPECT_FALSE(s.reader->end(partition(2)));
  EXPECT_GT(s.reader->end(partition(3))->lsn.value, 200U);
  ASSERT_TRUE(late->advance(s.engine->status().head));  // which never saw that block
  EXPECT_FALSE(late->end(partition(2)));
}

// A server had the child of a split, gave it up, and has it again: the new log is not the parent's.
TEST(JournalReader, a_new_tenure_of_a_child_goes_on_from_no_parent) {
  Read s;
  for (const char* k : {"a", "m", "b"}) ASSERT_TRUE(s.write(1, k, "v"));
  ASSERT_TRUE(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "m", {partition(2), {2}, assignment(2)},
                               {partition(3), {3}, assignment(3)}, nullptr));
  s.run();
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(2, 2), done); }));
  ASSERT_TRUE(s.create(2, 7));
  ASSERT_TRUE(s.write(2, "c", "v"));
  s.advance();
  EXPECT_EQ(s.reader->end(partition(2))->lsn.value, 1U);
  EXPECT_EQ(s.reader->oldest(partition(2))->value, 1U);
  EXPECT_EQ(keys(*s.reader, 2, 1), std::vector<std::string>{"c"});
  EXPECT_EQ(keys(*s.reader, 3, 1), (std::vector<std::string>{"a", "m", "b"}));
}

TEST(JournalReader, goes_on_over_restarts_of_the_writer) {
  Read s;
  std::vector<std::string> expected;
  base::SeededRandom random(5);
  for (int life = 0; life < 10; life++) {
    for (int i = 0; i < 7; i++) {
      expected.push_back(std::to_string(life) + "-" + std::to_string(i));
      ASSERT_TRUE(s.write(1, expected.back(), std::string(random.below(4000), 'x')));
    }
    s.advance();
    (void)s.append(1, {put("never written", "v", s.ms++)});
    s.kill();  // the writer alone; the host and its reader go on
    ASSERT_TRUE(s.open());
  }
  s.advance();
  EXPECT_EQ(keys(*s.reader, 1, 1), expected);
  EXPECT_EQ(s.reader->damaged_places(), 0U);
}

TEST(JournalReader, gives_a_quorum_tables_log_as_it_is_and_not_what_was_cut) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  auto reader = std::move(*JournalReader::open(s.disk));
  const auto same = [&] {
    ASSERT_TRUE(reader->advance(s.engine->status().head));
    const auto wanted = s.read_log(1).value();
    const auto part = reader->read(partition(1), {1}, 1 << 20).value();
    ASSERT_FALSE(part.gap || part.gone);
    ASSERT_EQ(part.blocks.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); i++) EXPECT_EQ(part.blocks[i].header, wanted[i].header);
    EXPECT_EQ(reader->end(partition(1)), s.log().durable);
  };
  ASSERT_TRUE(s.begin_epoch(1));
  for (int i = 0; i < 5; i++) ASSERT_TRUE(s.build(1, "k", std::to_string(i)));
  s.run();
  same();
  const auto keep = s.engine->point_at(partition(1), {3});
  const auto cut = s.log().end;
  ASSERT_TRUE(s.truncate(*keep));
  same();
  EXPECT_EQ(reader->contains(partition(1), cut).value(), Contains::no);
  ASSERT_TRUE(s.begin_epoch(2));
  for (int i = 0; i < 3; i++) ASSERT_TRUE(s.build(2, "k", std::to_string(i)));
  s.run();
  same();
  EXPECT_EQ(reader->contains(partition(1), cut).value(), Contains::no);
  EXPECT_EQ(reader->contains(partition(1), *keep).value(), Contains::yes);
  ASSERT_TRUE(s.truncate({}));
  ASSERT_TRUE(s.begin_epoch(3));
  s.run();
  same();
  auto anew = std::move(*JournalReader::open(s.disk));
  ASSERT_TRUE(anew->advance(s.engine->status().head));
  EXPECT_EQ(anew->end(partition(1)), s.log().durable);
}

}  // namespace
}  // namespace cantle::store

// A log with a gap, and its blocks from a log that is whole (R16).
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::LogGap;
using model::LogPoint;

const std::string kSegment = "journal/000000000001.seg";
const Rows kAll{{"k1", "v1"}, {"k2", "v2"}, {"k3", "v3"}, {"k4", "v4"}, {"k5", "v5"}};

// The same log twice, of epoch 1 and, from the fourth block on, 2: block 4 begins the epoch. Two are committed.
struct Mended {
  QuorumStore here, there;
  std::vector<uint64_t> at;
  std::vector<LogPoint> ends;
  Mended() {
    EXPECT_TRUE(here.open());
    EXPECT_TRUE(there.open());
    EXPECT_TRUE(here.create_quorum(1, 1));
    EXPECT_TRUE(there.create_quorum(1, 2));
    for (int i = 1; i <= 6; i++) {
      at.push_back(here.engine->status().head.offset);
      const int key = i < 4 ? i : i - 1;
      const auto built = i == 4 ? here.begin_epoch(2)
                                : here.build(i < 4 ? 1 : 2, "k" + std::to_string(key), "v" + std::to_string(key));
      ends.push_back(point_of(*built));
      here.run();
      EXPECT_TRUE(there.take(here.read_log(static_cast<uint64_t>(i)).value().at(0)));
      there.run();
      if (i != 2) continue;
      EXPECT_TRUE(here.commit(2));
      here.settle();
    }
    die();
  }
  void die() {
    here.kill();
    here.disk.crash();
  }
  void flip(int block, uint64_t where) { here.disk.flip(kSegment, at[static_cast<size_t>(block - 1)] + where); }
  std::optional<LogGap> gap() { return here.engine->gap(partition(1)); }
  base::Status mend() {
    auto blocks = there.engine->read_gap(partition(1), *gap());
    if (!blocks) return base::fail(blocks.error());
    std::optional<base::Status> done;
    TRY(here.engine->mend(partition(1), *gap(), std::move(*blocks), [&](base::Status s) { done = std::move(s); }));
    EXPECT_FALSE(done);
    EXPECT_TRUE(here.log().hole);  // it is not durable yet
    here.run();
    EXPECT_TRUE(done);
    return done ? *done : base::Status(base::fail(Code::unavailable, "it is not done"));
  }
};

TEST(QuorumMend, of_a_damaged_payload_it_is_known_where_the_log_ends_and_what_was_promised) {
  Mended m;
  m.flip(5, kFrameAndHeader + 10);
  for (int life = 0; life < 3; life++) {
    ASSERT_TRUE(m.here.open());
    EXPECT_TRUE(m.here.log().known) << life;
    EXPECT_TRUE(m.here.log().hole);
    EXPECT_FALSE(m.here.log().whole);
    EXPECT_EQ(m.here.log().end, m.ends[5]);
    EXPECT_EQ(m.gap(), (LogGap{m.ends[3], m.ends[4]}));
    ASSERT_TRUE(m.here.commit(4));
    m.here.settle();
    m.die();
  }
}

TEST(QuorumMend, the_last_block_of_all_is_not_forgotten_when_it_is_damaged) {
  Mended m;
  ASSERT_TRUE(m.here.open());
  m.here.settle();
  m.here.kill();  // the process alone: it is known that the block was durable
  m.flip(6, kFrameAndHeader + 10);
  for (int life = 0; life < 3; life++) {
    ASSERT_TRUE(m.here.open());
    EXPECT_EQ(m.here.log().end, m.ends[5]) << life;
    EXPECT_TRUE(m.here.log().known);
    EXPECT_EQ(m.gap(), (LogGap{m.ends[4], m.ends[5]}));
    m.here.settle();
    m.here.kill();
  }
}

TEST(QuorumMend, what_is_damaged_comes_from_a_log_that_is_whole) {
  // In the payload; in the header, of one and of two; the epoch's start, too.
  const std::vector<std::vector<std::pair<int, uint64_t>>> cases = {
      {{5, kFrameAndHeader + 10}},
      {{5, 60}},
      {{4, 60}, {5, 60}},
      {{4, 60}},
      {{3, kFrameAndHeader + 10}, {5, kFrameAndHeader + 10}},
      {{3, 4}, {5, kFrameAndHeader + 10}},
      {{3, 60}, {4, 60}, {5, 60}}};
  for (const auto& flips : cases) {
    Mended m;
    for (const auto& [block, where] : flips) m.flip(block, where);
    ASSERT_TRUE(m.here.open());
    EXPECT_EQ(m.here.log().end, m.ends[5]);
    ASSERT_TRUE(m.gap());
    size_t gaps = 0;
    for (; m.gap(); gaps++) ASSERT_TRUE(m.mend());
    EXPECT_EQ(m.here.engine->status().mended_blocks, flips.size());
    EXPECT_FALSE(m.here.log().hole);
    EXPECT_EQ(m.here.log().whole, m.here.log().known);
    EXPECT_EQ(m.here.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}, {{2}, {4}}}));
    ASSERT_TRUE(m.here.commit(6));
    EXPECT_EQ(m.here.all(1), kAll);
    m.here.settle();
    m.die();
    ASSERT_TRUE(m.here.open());
    EXPECT_FALSE(m.here.log().hole);
    EXPECT_EQ(m.here.log().end, m.ends[5]);
    EXPECT_EQ(m.here.all(1), kAll);
  }
}

// It may lead by now, and is asked for that block by all who miss it. It is in no file, and in no snapshot.
TEST(QuorumMend, what_was_mended_and_is_not_committed_is_given_to_others) {
  for (const auto& flips : std::vector<std::vector<int>>{{5}, {4}, {4, 5}, {3, 5}}) {
    Mended m;
    for (const int block : flips) m.flip(block, kFrameAndHeader + 10);
    ASSERT_TRUE(m.here.open());
    while (m.gap()) ASSERT_TRUE(m.mend());
    for (const uint64_t from : {4, 5, 6}) {
      std::vector<std::string> read, streamed;
      const auto blocks = m.here.read_log(from);
      ASSERT_TRUE(blocks) << from;
      for (const auto& b : *blocks) read.push_back(b.payload);
      uint64_t next = from;
      while (next <= 6) {
        std::optional<base::Status> done;
        m.here.engine->stream_log(
            partition(1), {next}, size_t{1} << 20,
            [&](const model::BlockHeader& h, std::string_view all) {
              EXPECT_EQ(h.first.value, next);
              next = h.last().value + 1;
              streamed.emplace_back(all.substr(wire::kBlockHeaderSize));
            },
            [&](base::Status s) { done = std::move(s); });
        m.here.run();
        ASSERT_TRUE(done && *done) << from;
      }
      std::vector<std::string> there;
      const auto whole = m.there.read_log(from);
      for (const auto& b : *whole) there.push_back(b.payload);
      EXPECT_EQ(read, there) << from;
      EXPECT_EQ(streamed, there) << from;
    }
  }
}

// Seed 17995 of quorum_everything: it had confirmed what it lacked again when it had died, and two of three lacked it.
TEST(QuorumMend, what_was_mended_is_there_after_each_death) {
  for (const auto& flips : std::vector<std::vector<std::pair<int, uint64_t>>>{
           {{5, kFrameAndHeader + 10}}, {{4, 60}, {5, 60}}, {{4, 60}}, {{3, kFrameAndHeader + 10}, {5, 60}}}) {
    Mended m;
    for (const auto& [block, where] : flips) m.flip(block, where);
    ASSERT_TRUE(m.here.open());
    const bool known = m.here.log().known;
    while (m.gap()) ASSERT_TRUE(m.mend());
    for (int life = 0; life < 3; life++) {
      if (life < 2)
        m.die();
      else
        m.here.kill();
      ASSERT_TRUE(m.here.open());
      EXPECT_FALSE(m.gap()) << life;
      EXPECT_FALSE(m.here.log().hole);
      EXPECT_EQ(m.here.log().known, known) << life;
      EXPECT_EQ(m.here.log().end, m.ends[5]);
      EXPECT_EQ(m.here.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}, {{2}, {4}}}));
      const auto whole = m.there.read_log(3);
      std::vector<std::string> here, there;
      for (const auto& b : *whole) there.push_back(b.payload);
      const auto blocks = m.here.read_log(3);
      ASSERT_TRUE(blocks) << life;
      for (const auto& b : *blocks) here.push_back(b.payload);
      EXPECT_EQ(here, there) << life;
    }
    ASSERT_TRUE(m.here.commit(6));
    EXPECT_EQ(m.here.all(1), kAll);
  }
}

TEST(QuorumMend, what_mended_a_place_may_be_damaged_too_and_is_mended_again) {
  Mended m;
  m.flip(5, kFrameAndHeader + 10);
  ASSERT_TRUE(m.here.open());
  m.at.push_back(m.here.engine->status().head.offset);
  ASSERT_TRUE(m.mend());
  ASSERT_TRUE(m.here.seal(3));  // what comes later shows that it was durable
  m.die();
  m.flip(7, kFrameAndHeader + 10);
  ASSERT_TRUE(m.here.open());
  EXPECT_TRUE(m.here.log().known);
  EXPECT_EQ(m.here.log().end, m.ends[5]);
  EXPECT_EQ(m.gap(), (LogGap{m.ends[3], m.ends[4]}));
  ASSERT_TRUE(m.mend());
  ASSERT_TRUE(m.here.commit(6));
  EXPECT_EQ(m.here.all(1), kAll);
}

// What was written to mend one place says nothing of another, and a log that was cut meanwhile goes its own way.
TEST(QuorumMend, what_mended_a_place_is_nothing_without_it) {
  Mended m;
  m.flip(5, kFrameAndHeader + 10);
  ASSERT_TRUE(m.here.open());
  ASSERT_TRUE(m.mend());
  ASSERT_TRUE(m.here.truncate(m.ends[3]));
  m.here.run();
  ASSERT_TRUE(m.here.build(2, "k9", "v9"));
  m.here.run();
  const auto end = m.here.log().end;
  m.die();
  ASSERT_TRUE(m.here.open());
  EXPECT_FALSE(m.gap());
  EXPECT_EQ(m.here.log().end, end);
  ASSERT_TRUE(m.here.commit(5));
  EXPECT_EQ(m.here.all(1), (Rows{{"k1", "v1"}, {"k2", "v2"}, {"k3", "v3"}, {"k9", "v9"}}));
}

TEST(QuorumMend, nothing_else_comes_in_the_place_of_what_is_missing) {
  Mended m;
  m.flip(5, kFrameAndHeader + 10);
  ASSERT_TRUE(m.here.open());
  const auto gap = *m.gap();
  const auto good = m.there.engine->read_gap(partition(1), gap).value();
  const auto refused = [&](const LogGap& of, Blocks blocks) {
    const auto s = m.here.engine->mend(partition(1), of, std::move(blocks), nullptr);
    EXPECT_TRUE(m.here.log().hole);
    return s ? Code{} : s.error().code;
  };
  EXPECT_EQ(refused(gap, {}), Code::diverged);
  EXPECT_EQ(refused(gap, {block_after(m.ends[3], 1, 2, 2, {{"k4", "other"}})}), Code::diverged);
  auto bad = good;
  bad[0].payload.back() ^= 1;
  EXPECT_EQ(refused(gap, bad), Code::malformed);
  EXPECT_EQ(refused({m.ends[2], m.ends[4]}, good), Code::conflict);
  // Nor does a log give what it has not.
  EXPECT_EQ(m.there.engine->read_gap(partition(1), {m.ends[3], {{2}, {5}, 12345}}).error().code, Code::not_found);
  EXPECT_EQ(m.there.engine->read_gap(partition(1), {m.ends[5], {{2}, {7}, 12345}}).error().code, Code::not_found);
  EXPECT_EQ(m.here.engine->read_gap(partition(1), gap).error().code, Code::corrupt);
  // Asked for twice it is there twice, and counts once.
  ASSERT_TRUE(m.here.engine->mend(partition(1), gap, good, nullptr));
  ASSERT_TRUE(m.here.engine->mend(partition(1), gap, good, nullptr));
  m.here.run();
  EXPECT_FALSE(m.here.log().hole);
  EXPECT_EQ(m.here.engine->mend(partition(1), gap, good, nullptr).error().code, Code::conflict);
  EXPECT_EQ(m.here.read_log(4)->size(), 3U);
}

TEST(QuorumMend, a_cut_that_was_damaged_is_one_again) {
  QuorumStore here, there;
  ASSERT_TRUE(here.open());
  ASSERT_TRUE(there.open());
  ASSERT_TRUE(here.create_quorum(1, 1));
  ASSERT_TRUE(there.create_quorum(1, 2));
  const auto attempt = id_of<model::AttemptId>(9);
  ASSERT_TRUE(here.build(1, "k", "v"));
  here.run();
  const auto at = here.engine->status().head.offset;
  ASSERT_TRUE(here.engine->build(partition(1), {model::BlockKind::cut, {1}, {}}, model::cut_payload(attempt), nullptr));
  here.run();
  for (uint64_t lsn : {1, 2}) ASSERT_TRUE(there.take(here.read_log(lsn).value().at(0)));
  there.run();
  here.settle();
  here.kill();
  here.disk.flip(kSegment, at + kFrameAndHeader + 3);
  ASSERT_TRUE(here.open());
  const auto gap = here.engine->gap(partition(1));
  ASSERT_TRUE(gap);
  ASSERT_TRUE(here.engine->mend(partition(1), *gap, there.engine->read_gap(partition(1), *gap).value(), nullptr));
  here.run();
  ASSERT_EQ(here.log().cuts.size(), 1U);
  EXPECT_EQ(here.log().cuts[0].attempt, attempt);
}

}  // namespace
}  // namespace cantle::store

// What a replica misses, read on a thread (Engine::stream_log).
#include <gtest/gtest.h>

#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;

struct Streamed {
  std::optional<base::Status> status;
  Blocks blocks;
};

class Streams : public QuorumStore {
 public:
  explicit Streams(uint64_t segment_bytes = 64 << 10) {
    config.segment_bytes = segment_bytes;
    config.overlay_bytes = 4 * segment_bytes;
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
  }
  // `blocks` of a record each, durable.
  void fill(int blocks) {
    for (int i = 0; i < blocks; i++) {
      EXPECT_TRUE(build(1, "k" + std::to_string(i), std::string(100, 'v')));
      if (i % 3 == 0) run();
    }
    run();
  }
  std::shared_ptr<Streamed> begin(uint64_t from, size_t bytes = size_t{1} << 30) {
    auto out = std::make_shared<Streamed>();
    engine->stream_log(
        partition(1), {from}, bytes,
        [out](const model::BlockHeader& h, std::string_view all) {
          char header[wire::kBlockHeaderSize];
          wire::encode_header(h, header);
          EXPECT_EQ(all.substr(0, sizeof header), std::string_view(header, sizeof header));
          out->blocks.push_back({h, std::string(all.substr(sizeof header))});
        },
        [out](base::Status s) {
          EXPECT_FALSE(out->status);
          out->status = std::move(s);
        });
    EXPECT_FALSE(out->status) << "told in the call itself";
    return out;
  }
  std::shared_ptr<Streamed> stream(uint64_t from, size_t bytes = size_t{1} << 30) {
    auto out = begin(from, bytes);
    run();
    EXPECT_TRUE(out->status.has_value());
    return out;
  }
};

TEST(QuorumStream, gives_what_read_log_gives) {
  Streams s;
  s.fill(20);
  for (const uint64_t from : {1, 2, 7, 20})
    for (const size_t bytes : {size_t{1}, size_t{500}, size_t{1} << 20}) {
      const auto got = s.stream(from, bytes);
      EXPECT_TRUE(*got->status);
      const auto wanted = s.read_log(from, bytes).value();
      ASSERT_EQ(got->blocks.size(), wanted.size()) << from << " " << bytes;
      for (size_t i = 0; i < wanted.size(); i++) {
        EXPECT_EQ(got->blocks[i].header, wanted[i].header);
        EXPECT_EQ(got->blocks[i].payload, wanted[i].payload);
      }
    }
}

// Where thousands of logs lie in one journal, thousands of replicas are sent a block or two.
TEST(QuorumStream, for_one_block_little_is_read) {
  Streams s(uint64_t{8} << 20);
  s.fill(6000);
  const auto read = [&](uint64_t from, size_t bytes) {
    const uint64_t before = s.disk.read_bytes;
    EXPECT_FALSE(s.stream(from, bytes)->blocks.empty());
    return s.disk.read_bytes - before;
  };
  EXPECT_LE(read(1, 1), uint64_t{32} << 10);
  EXPECT_LE(read(1, size_t{1} << 20), uint64_t{4} << 20);
}

TEST(QuorumStream, gives_nothing_behind_the_end_and_what_is_not_durable_yet) {
  Streams s;
  s.fill(3);
  EXPECT_TRUE(s.build(1, "later", "v"));
  const auto flying = s.begin(4);
  s.run();
  EXPECT_TRUE(*flying->status);
  EXPECT_TRUE(flying->blocks.empty());
  EXPECT_EQ(s.stream(4)->blocks.size(), 1U);
  EXPECT_TRUE(s.stream(5)->blocks.empty());
}

TEST(QuorumStream, passes_over_what_was_cut_and_gives_what_took_its_place) {
  Streams s;
  s.fill(4);
  const auto keep = point_of(s.read_log(2, 1).value().front().header);
  ASSERT_TRUE(s.truncate(keep));
  EXPECT_EQ(s.stream(1)->blocks.size(), 2U);
  EXPECT_TRUE(s.begin_epoch(2));
  s.run();
  const auto got = s.stream(2);
  ASSERT_EQ(got->blocks.size(), 2U);
  EXPECT_EQ(got->blocks[1].header.epoch.value, 2U);
}

// The frame of the truncate cannot be read any more when the log is looked up anew: what was cut lies there as if it
// were of the log, and in front of what took its place.
TEST(QuorumStream, what_was_cut_is_known_by_its_epoch_when_the_cut_cannot_be_read) {
  Streams s;
  ASSERT_TRUE(s.begin_epoch(1));
  s.run();
  s.fill(3);
  ASSERT_TRUE(s.commit(3));
  const auto keep = point_of(s.read_log(3, 1).value().front().header);
  const auto at = s.engine->status().head;
  ASSERT_TRUE(s.truncate(keep));
  ASSERT_TRUE(s.begin_epoch(2));
  s.run();
  ASSERT_TRUE(s.build(2, "new", "v"));
  s.run();
  ASSERT_TRUE(s.commit(5));
  const auto log = s.read_log(1).value();
  for (int i = 0; i < 60; i++) s.pass(std::chrono::seconds(1));
  s.disk.flip(segment_path(at.segment), at.offset + kFrameSize + 4);
  s.kill();
  ASSERT_TRUE(s.open());
  ASSERT_EQ(s.read_log(1).value().size(), log.size());
  const auto got = s.stream(1);
  ASSERT_EQ(got->blocks.size(), log.size());
  for (size_t i = 0; i < log.size(); i++) EXPECT_EQ(got->blocks[i].header, log[i].header) << i;
  EXPECT_EQ(s.engine->point_at(partition(1), {4}), point_of(log[3].header));
}

TEST(QuorumStream, what_is_damaged_is_said_to_be_and_what_lies_around_it_is_given) {
  Streams s;
  s.fill(2);
  const auto at = s.engine->status().head.offset;
  s.fill(3);
  s.disk.flip(segment_path(1), at + kFrameAndHeader + 8);
  EXPECT_EQ(s.stream(1)->blocks.size(), 2U);
  const auto third = s.stream(3);
  EXPECT_EQ(third->status->error().code, Code::corrupt);
  EXPECT_TRUE(third->blocks.empty());
  EXPECT_EQ(s.stream(4)->blocks.size(), 2U);
}

TEST(QuorumStream, of_no_log_here_there_is_nothing) {
  Streams s;
  const auto got = std::make_shared<Streamed>();
  s.engine->stream_log(
      partition(9), {1}, 1, [](const model::BlockHeader&, std::string_view) { FAIL(); },
      [got](base::Status status) { got->status = std::move(status); });
  s.run();
  EXPECT_EQ(got->status->error().code, Code::not_found);
}

}  // namespace
}  // namespace cantle::store

#include "lib/client/verify.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "lib/client/input_feed.h"
#include "lib/client/json.h"
#include "lib/daemon/json.h"
#include "lib/io/loop.h"

namespace cantle::client {
namespace {

using namespace std::chrono_literals;
using Kind = Expected::Difference::Kind;

Entry entry(std::string key, std::string value, uint64_t line) {
  Entry e;
  e.key = std::move(key);
  e.value = std::move(value);
  e.line = line;
  return e;
}

TEST(Expected, the_last_record_of_a_key_counts_and_a_deleted_one_is_not_expected) {
  Expected expected;
  expected.add(entry("a", "1", 1));
  expected.add(entry("b", "1", 2));
  expected.add(entry("a", "2", 3));
  Entry gone = entry("b", "", 4);
  gone.deleted = true;
  expected.add(gone);
  EXPECT_EQ(expected.size(), 1u);
  EXPECT_FALSE(expected.check("a", "2"));
  EXPECT_EQ(expected.check("a", "1")->kind, Kind::value);
  EXPECT_EQ(expected.check("b", "1")->kind, Kind::extra);
}

TEST(Expected, what_was_not_seen_is_missing_in_the_order_of_the_input) {
  Expected expected;
  for (uint64_t i = 1; i <= 5; ++i) expected.add(entry("k" + std::to_string(6 - i), "v", i));
  EXPECT_FALSE(expected.check("k3", "v"));
  std::string lines;
  for (const auto& d : expected.missing()) lines += std::to_string(d.line) + d.key + " ";
  EXPECT_EQ(lines, "1k5 2k4 4k2 5k1 ");
}

ReplicaHash replica(const std::string& server, const std::string& hash, uint64_t records, uint64_t tombstones = 0) {
  ReplicaHash r;
  r.assignment.server = {server};
  r.assignment.state = model::AssignmentState::available;
  model::HashPartition held;
  held.serving = true;
  held.hash = hash;
  held.records = records;
  held.tombstones = tombstones;
  r.held = held;
  return r;
}

ReplicaHash of_log(const std::string& server, const std::string& hash, uint64_t lsn, bool leads = false) {
  auto r = replica(server, hash, lsn);
  r.held->applied = {lsn};
  r.held->leads = leads;
  return r;
}

TEST(PartitionReplicas, replicas_of_one_log_are_compared_at_one_place_and_with_the_leader) {
  PartitionReplicas p;
  p.replicas = {of_log("p1", "a", 7, true), of_log("p2", "a", 7), of_log("p3", "a", 7)};
  EXPECT_TRUE(p.agree());
  p.replicas[0].held->leads = false;  // nobody knows what is committed
  EXPECT_FALSE(p.agree() || p.differ());
  p.replicas = {of_log("p1", "b", 9, true), of_log("p2", "a", 7), of_log("p3", "b", 9)};
  EXPECT_FALSE(p.agree() || p.differ());  // p2 is behind
  p.replicas = {of_log("p1", "b", 9, true), of_log("p2", "a", 7), of_log("p3", "c", 9)};
  EXPECT_TRUE(p.differ());
}

TEST(PartitionReplicas, agree_when_all_answered_and_hold_the_same) {
  PartitionReplicas p;
  EXPECT_FALSE(p.agree());  // nobody was asked
  p.replicas = {replica("p1", "h", 3), replica("p2", "h", 3)};
  EXPECT_TRUE(p.agree());
  p.replicas.push_back(replica("p3", "h", 3, 1));
  EXPECT_FALSE(p.agree());
  p.replicas.back() = replica("p3", "other", 3);
  EXPECT_FALSE(p.agree());
  p.replicas.back().held = base::fail(base::Code::unavailable, "down");
  EXPECT_FALSE(p.agree());
  EXPECT_NE(disagreement(p).find("p3: UNAVAILABLE: down"), std::string::npos) << disagreement(p);
}

class NoServers final : public Servers {
 public:
  const ServerEntry* find(const model::ServerId&) const override { return nullptr; }
  std::vector<ServerEntry> all() const override { return {}; }
  void refresh(std::function<void()> done) override { done(); }
};

TEST(PartitionReplicas, who_did_not_answer_or_is_not_filled_is_no_difference) {
  const NoServers servers;
  PartitionReplicas p;
  p.replicas = {replica("p1", "h", 3), replica("p2", "h", 3), replica("p3", "other", 1)};
  EXPECT_TRUE(p.differ());
  EXPECT_EQ(not_compared(p, servers), "");
  p.replicas.back().held->serving = false;  // it catches up
  EXPECT_FALSE(p.differ());
  EXPECT_FALSE(p.agree());
  EXPECT_EQ(not_compared(p, servers), "p3: it catches up");
  p.replicas.back() = replica("p3", "other", 1);
  p.replicas.back().assignment.state = model::AssignmentState::initializing;
  EXPECT_FALSE(p.differ());
  p.replicas.back().held = base::fail(base::Code::unavailable, "refused");
  EXPECT_FALSE(p.differ());
  EXPECT_EQ(not_compared(p, servers), "p3: it is down");
  EXPECT_EQ(p.records(), 3u);
}

TEST(PartitionReplicas, one_that_should_hold_the_partition_and_does_not_is_a_difference) {
  PartitionReplicas p;
  p.replicas = {replica("p1", "h", 3), replica("p2", "h", 3)};
  p.replicas.back().held = base::fail(base::Code::not_found, "does not hold the partition yet");
  EXPECT_TRUE(p.differ());
  p.replicas.back().assignment.state = model::AssignmentState::initializing;
  EXPECT_FALSE(p.differ());
}

TEST(Base64, reads_what_is_written_and_nothing_else) {
  for (const auto& bytes :
       {std::string(), std::string("f"), std::string("fo"), std::string("foo"), std::string("\0\xff\x80", 3)})
    EXPECT_EQ(*from_base64(daemon::to_base64(bytes)), bytes);
  for (const char* bad : {"A", "AB=", "AB", "====", "A===", "AB==CD==", "AB=A", "A B=", "AB==\n", "AC=="})
    EXPECT_FALSE(from_base64(bad)) << bad;
}

// --- the feed -----------------------------------------------------------------------------------------

class InputFeedTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cantle-feed-XXXXXX";
    const int fd = ::mkstemp(name);
    ASSERT_GE(fd, 0);
    ::close(fd);
    path = name;
  }
  void TearDown() override { ::unlink(path.c_str()); }
  void write(const std::string& text) {
    FILE* f = std::fopen(path.c_str(), "w");
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), f), text.size());
    std::fclose(f);
  }

  io::Loop loop;
  std::string path;
};

TEST_F(InputFeedTest, gives_all_records_in_order_portion_by_portion) {
  std::string text;
  const size_t count = 200000;
  for (size_t i = 0; i < count; ++i) text += std::to_string(i) + "\tsome value\n" + (i == 7 ? "rejected\n" : "");
  write(text);
  size_t entries = 0, rejected = 0, portions = 0;
  bool last = false, in_order = true;
  std::unique_ptr<InputFeed> feed;
  auto opened = InputFeed::open(loop, path, Format::tsv, {}, [&](InputFeed::Portion&& p) {
    ++portions;
    for (const auto& e : p.entries) in_order = in_order && e.key == std::to_string(entries++);
    rejected += p.rejected.size();
    last = p.last;
    EXPECT_FALSE(p.error);
    if (!last) feed->more();
  });
  ASSERT_TRUE(opened);
  feed = std::move(*opened);
  EXPECT_EQ(feed->size(), text.size());
  feed->more();
  ASSERT_TRUE(loop.run_for(20s, [&] { return last; }));
  EXPECT_TRUE(in_order);
  EXPECT_EQ(entries, count);
  EXPECT_EQ(rejected, 1u);
  EXPECT_GT(portions, 2u);
}

TEST_F(InputFeedTest, can_be_dropped_while_it_waits_for_input) {
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int writer = ::open(path.c_str(), O_RDWR);  // keeps it open: the feed would wait for ever
  auto feed = InputFeed::open(loop, path, Format::tsv, {}, [](InputFeed::Portion&&) {});
  ASSERT_TRUE(feed);
  (*feed)->more();
  feed->reset();
  ::close(writer);
}

TEST_F(InputFeedTest, a_file_that_is_not_there_is_not_found) {
  EXPECT_EQ(InputFeed::open(loop, path + ".not", Format::tsv, {}, [](InputFeed::Portion&&) {}).error().code,
            base::Code::not_found);
}

}  // namespace
}  // namespace cantle::client

// Logs of quorum tables through the engine.
#include <gtest/gtest.h>

#include "lib/store/journal.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::Block;
using model::LogPoint;

struct Leader : QuorumStore {
  Leader() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
    EXPECT_TRUE(begin_epoch(1));
    run();
  }
};

TEST(Quorum, what_is_durable_of_a_quorum_table_wakes_no_replpush) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  ASSERT_TRUE(s.create(2, 2));
  s.settle();
  const auto before = s.live->read();
  ASSERT_TRUE(s.build(1, "k", "v"));
  s.run();
  const auto after = s.live->read();
  EXPECT_GT(after.durable, before.durable);
  EXPECT_EQ(after.changes, before.changes);
  ASSERT_TRUE(s.write(2, "k", "v"));
  EXPECT_NE(s.live->read().changes, before.changes);
}

TEST(Quorum, what_is_built_is_seen_when_it_is_committed_and_not_before) {
  Leader s;
  base::Result<LogPoint> told = base::fail(Code::cancelled, "");
  const auto header = s.build(1, "k", "v", [&](auto p) { told = std::move(p); });
  ASSERT_TRUE(header);
  EXPECT_EQ(header->first.value, 2U);
  EXPECT_EQ(header->prev_lsn.value, 1U);
  EXPECT_EQ(s.log().end, point_of(*header));
  EXPECT_EQ(s.log().durable.lsn.value, 1U);
  EXPECT_FALSE(told);
  ASSERT_TRUE(s.commit(2));  // before it is durable: takes effect when it is
  EXPECT_EQ(s.get(1, "k"), "none");
  s.run();
  ASSERT_TRUE(told);
  EXPECT_EQ(*told, point_of(*header));
  EXPECT_EQ(s.get(1, "k"), "v");
  ASSERT_TRUE(s.build(1, "k", "w"));
  s.run();
  EXPECT_EQ(s.get(1, "k"), "v");
  EXPECT_EQ(s.log().visible.value, 2U);
  EXPECT_EQ(s.log().durable.lsn.value, 3U);
  ASSERT_TRUE(s.commit(3));
  EXPECT_EQ(s.get(1, "k"), "w");
  EXPECT_EQ(s.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}}));
}

TEST(Quorum, what_is_not_committed_is_in_no_index_before_and_after_a_restart) {
  Leader s;
  ASSERT_TRUE(s.build(1, "a", "1"));
  ASSERT_TRUE(s.build(1, "b", "2"));
  s.run();
  ASSERT_TRUE(s.commit(2));
  for (int life = 0; life < 3; life++) {
    s.settle();
    EXPECT_EQ(s.files.dbs[static_cast<size_t>(Db::records)].size(), 1U);
    EXPECT_EQ(s.all(1), (Rows{{"a", "1"}})) << life;
    EXPECT_EQ(s.log().end.lsn.value, 3U);
    EXPECT_EQ(s.log().durable.lsn.value, 3U);
    EXPECT_EQ(s.log().visible.value, 2U);
    EXPECT_TRUE(s.log().whole);
    s.lose_power();
  }
  ASSERT_TRUE(s.commit(3));
  EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"b", "2"}}));
  s.settle();
  s.lose_power();
  EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"b", "2"}}));
  EXPECT_EQ(s.log().commit.value, 3U);
}

TEST(Quorum, a_follower_takes_what_its_leader_built_byte_for_byte) {
  Leader leader;
  ASSERT_TRUE(leader.build(1, "a", "1"));
  ASSERT_TRUE(leader.build(1, "b", "2"));
  leader.run();
  ASSERT_TRUE(leader.commit(3));
  ASSERT_TRUE(leader.build(1, "c", "3"));
  leader.run();
  const auto blocks = leader.read_log(1).value();
  ASSERT_EQ(blocks.size(), 4U);
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 2));
  std::vector<uint64_t> order;
  for (const auto& b : blocks) ASSERT_TRUE(s.take(b, [&](auto p) { order.push_back(p ? p->lsn.value : 0); }));
  s.run();
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(s.log().end, leader.log().end);
  EXPECT_EQ(s.all(1), (Rows{{"a", "1"}, {"b", "2"}}));  // the commit LSN rides on the next block
  const auto there = s.read_log(1).value();
  ASSERT_EQ(there.size(), 4U);
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(there[i].header, blocks[i].header);
    EXPECT_EQ(there[i].payload, blocks[i].payload);
  }
  ASSERT_TRUE(s.commit(4));
  ASSERT_TRUE(leader.commit(4));
  EXPECT_EQ(s.hash(1).hash, leader.hash(1).hash);
}

TEST(Quorum, a_block_that_may_wait_is_synced_with_the_next_one_or_soon) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1));
  model::LogPoint end;
  std::vector<uint64_t> durable;
  const auto take = [&](Sync sync, size_t bytes = 1) {
    const auto b = block_after(end, 1, 1, 0, {{"k", std::string(bytes, 'v')}});
    end = point_of(b.header);
    ASSERT_TRUE(s.take(
        b, [&](auto p) { durable.push_back(p ? p->lsn.value : 0); }, sync));
    s.run();
  };
  const auto syncs = [&, before = s.engine->status().syncs] { return s.engine->status().syncs - before; };
  s.gate.still = true;
  take(Sync::soon);
  take(Sync::soon);
  EXPECT_EQ(durable, (std::vector<uint64_t>{}));
  take(Sync::now);
  EXPECT_EQ(durable, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(syncs(), 1U);
  take(Sync::soon);
  EXPECT_EQ(durable.size(), 3U);
  s.gate.pass();
  s.run();
  EXPECT_EQ(durable.size(), 4U) << "nothing else came";
  s.gate.pass();
  take(Sync::soon);
  EXPECT_EQ(durable.size(), 4U) << "that nothing waited is no reason for hurry";
  for (size_t bytes = 0; bytes < kSoonMax; bytes += 30000) take(Sync::soon, 30000);
  EXPECT_GT(durable.size(), 4U) << "nor is much held back";
}

TEST(Quorum, a_block_that_does_not_follow_is_refused_and_says_why) {
  QuorumStore s;
  ASSERT_TRUE(s.open());
  ASSERT_TRUE(s.create_quorum(1, 1, {"", "t"}));
  const auto first = block_after({}, 1, 1, 0, {});
  const auto second = block_after(point_of(first.header), 1, 1, 0, {{"a", "1"}, {"b", "2"}});
  const auto third = block_after(point_of(second.header), 1, 1, 1, {{"c", "3"}});
  EXPECT_EQ(s.take(second).error().code, Code::catching_up);
  ASSERT_TRUE(s.take(first));
  ASSERT_TRUE(s.take(second));
  s.run();
  const auto code = [&](const Block& b) { return s.take(b).error().code; };
  // The same again is confirmed again, whether it is durable or on its way.
  std::vector<LogPoint> told;
  const auto tell = [&](auto p) {
    ASSERT_TRUE(p);
    told.push_back(*p);
  };
  ASSERT_TRUE(s.take(first, tell));
  ASSERT_TRUE(s.take(third, tell));
  ASSERT_TRUE(s.take(third, tell));
  s.run();
  EXPECT_EQ(told.size(), 3U);
  // Another one in its place.
  EXPECT_EQ(code(block_after(point_of(first.header), 1, 2, 0, {{"a", "1"}, {"b", "9"}})), Code::diverged);
  EXPECT_EQ(code(block_after(point_of(first.header), 1, 2, 0, {{"a", "1"}, {"b", "9"}, {"c", "1"}, {"d", "1"}})),
            Code::diverged);
  auto other = point_of(third.header);
  other.crc++;
  EXPECT_EQ(code(block_after(other, 1, 2, 0, {{"d", "4"}})), Code::diverged);
  // Not as a leader builds them.
  const auto good = block_after(point_of(third.header), 1, 2, 1, {{"d", "4"}});
  auto bad = good;
  bad.payload.back() = static_cast<char>(bad.payload.back() ^ 1);
  EXPECT_EQ(code(bad), Code::malformed);
  bad = good;
  bad.header.commit = {2};
  EXPECT_EQ(code(bad), Code::malformed);  // its checksum
  bad = good;
  bad.header.commit = {5};  // itself
  wire::seal_block(bad.header, bad.payload);
  EXPECT_EQ(code(bad), Code::malformed);
  EXPECT_EQ(code(block_after(point_of(third.header), 1, 0, 0, {{"d", "4"}})), Code::malformed);
  bad = good;
  bad.payload = quorum_payload({2}, {7}, {{"d", "4"}});  // versions of another place
  wire::seal_block(bad.header, bad.payload);
  EXPECT_EQ(code(bad), Code::malformed);
  bad = good;
  bad.header.records = 2;
  wire::seal_block(bad.header, bad.payload);
  EXPECT_EQ(code(bad), Code::malformed);
  EXPECT_EQ(code(block_after(point_of(third.header), 1, 2, 0, {{"z", "4"}})), Code::malformed);  // outside
  bad = good;
  bad.header.kind = model::BlockKind::seal;
  wire::seal_block(bad.header, bad.payload);
  EXPECT_EQ(code(bad), Code::malformed);
  EXPECT_TRUE(s.take(good));
  s.run();
  EXPECT_EQ(s.log().end, point_of(good.header));
  EXPECT_EQ(s.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}, {{2}, {5}}}));
}

TEST(Quorum, push_calls_and_quorum_calls_do_not_mix) {
  Leader s;
  ASSERT_TRUE(s.create(2, 2));
  EXPECT_EQ(s.append(1, {put("k", "v", 1)}).error().code, Code::invalid);
  EXPECT_EQ(s.engine->commit(partition(2), {1}).error().code, Code::invalid);
  EXPECT_EQ(s.engine->commit(partition(3), {1}).error().code, Code::not_found);
  EXPECT_FALSE(s.engine->quorum_log(partition(2)));
  EXPECT_EQ(s.engine->find(partition(1))->mode, LogMode::quorum);
  EXPECT_EQ(s.engine->find(partition(2))->mode, LogMode::push);
  const ChildSpec low{partition(4), {4}, assignment(4)}, high{partition(5), {5}, assignment(5)};
  EXPECT_EQ(s.engine->divide(partition(1), id_of<model::AttemptId>(1), "m", low, high, nullptr).error().code,
            Code::invalid);
}

TEST(Quorum, a_promise_is_there_after_a_restart_and_only_grows) {
  Leader s;
  ASSERT_TRUE(s.seal(5));
  EXPECT_EQ(s.log().promised.value, 5U);
  ASSERT_TRUE(s.seal(3));
  EXPECT_EQ(s.log().promised.value, 5U);
  s.lose_power();
  EXPECT_EQ(s.log().promised.value, 5U);
  EXPECT_EQ(s.log().highest.value, 5U);
  EXPECT_EQ(s.log().end.epoch.value, 1U);  // a seal is no block of the log
  bool early = false;
  ASSERT_TRUE(s.engine->seal(partition(1), {7}, nullptr));
  ASSERT_TRUE(s.engine->seal(partition(1), {6}, [&](const base::Status&) { early = true; }));
  s.lose_power();
  EXPECT_FALSE(early);
  EXPECT_EQ(s.log().promised.value, 5U);
}

// --- cut ----------------------------------------------------------------------------------------

TEST(Quorum, a_cut_ends_the_log_where_it_says_and_what_was_cut_lies_in_the_trash) {
  Leader s;
  std::vector<LogPoint> ends{s.log().end};
  for (int i = 0; i < 5; i++) ends.push_back(point_of(*s.build(1, "k" + std::to_string(i), "old")));
  s.run();
  ASSERT_TRUE(s.commit(3));
  const auto cut = s.read_log(5).value();
  EXPECT_EQ(s.truncate(ends[1]).error().code, Code::faulted);  // 2: below the commit LSN
  EXPECT_EQ(s.truncate({{1}, {4}, 77}).error().code, Code::not_found);
  EXPECT_EQ(s.truncate({{1}, {9}, 77}).error().code, Code::not_found);
  ASSERT_TRUE(s.truncate(ends[3]));
  EXPECT_EQ(s.log().end, ends[3]);
  EXPECT_EQ(s.log().durable, ends[3]);
  EXPECT_EQ(s.engine->status().cut_blocks, 2U);
  const auto names = s.disk.list("trash").value();
  ASSERT_EQ(names.size(), 1U);
  std::string there = s.disk.bytes("trash/" + names[0]);
  for (const auto& b : cut) {
    const auto header = wire::decode_header(there).value();
    EXPECT_EQ(header, b.header);
    EXPECT_EQ(there.substr(wire::kBlockHeaderSize, header.length), b.payload);
    there = there.substr(wire::kBlockHeaderSize + header.length);
  }
  EXPECT_TRUE(there.empty());
  // The same LSNs once more, with other bytes, of another epoch.
  ASSERT_TRUE(s.begin_epoch(2));
  ASSERT_TRUE(s.build(2, "k4", "new"));
  s.run();
  for (int life = 0; life < 3; life++) {
    EXPECT_EQ(s.log().end.lsn.value, 6U);
    EXPECT_EQ(s.log().end.epoch.value, 2U);
    EXPECT_EQ(s.log().epochs, (std::vector<model::EpochStart>{{{1}, {1}}, {{2}, {5}}}));
    EXPECT_EQ(s.all(1), (Rows{{"k0", "old"}, {"k1", "old"}}));
    const auto blocks = s.read_log(1).value();
    ASSERT_EQ(blocks.size(), 6U) << life;
    for (size_t i = 0; i < blocks.size(); i++) EXPECT_EQ(blocks[i].header.first.value, i + 1);
    EXPECT_EQ(blocks[5].header.epoch.value, 2U);
    EXPECT_EQ(s.engine->point_at(partition(1), {5}), point_of(blocks[4].header));
    if (life == 1) s.settle();
    s.lose_power();
  }
  ASSERT_TRUE(s.commit(6));
  EXPECT_EQ(s.get(1, "k4"), "new");
  EXPECT_EQ(s.get(1, "k3"), "none");
}

TEST(Quorum, a_cut_that_races_the_sync_of_what_it_cuts_confirms_none_of_it) {
  for (const bool under_way : {false, true}) {
    Leader s;
    ASSERT_TRUE(s.build(1, "kept", "1"));
    ASSERT_TRUE(s.commit(2));
    s.run();
    const auto keep = s.log().end;
    base::Result<LogPoint> told = LogPoint{};
    std::vector<std::string> order;
    ASSERT_TRUE(s.build(1, "cut", "2", [&](auto p) {
      told = std::move(p);
      order.emplace_back("cut block");
    }));
    if (under_way) s.lanes->step();  // the group is with the journal's lane, not synced
    bool cut = false;
    ASSERT_TRUE(s.engine->truncate(partition(1), keep, [&](const base::Status& d) {
      cut = d.has_value();
      order.emplace_back("truncate");
    }));
    EXPECT_EQ(s.log().end, keep);
    const auto next = block_after(keep, 1, 2, 2, {{"cut", "3"}});
    ASSERT_TRUE(s.take(next, [&](auto p) {
      EXPECT_TRUE(p);
      order.emplace_back("next block");
    }));
    ASSERT_TRUE(s.commit(3));
    EXPECT_EQ(s.all(1), (Rows{{"kept", "1"}}));  // ran the lanes
    EXPECT_EQ(s.get(1, "cut"), "3");
    EXPECT_TRUE(cut);
    EXPECT_EQ(told.error().code, Code::cancelled);
    EXPECT_EQ(order, (std::vector<std::string>{"cut block", "truncate", "next block"}));
    EXPECT_EQ(s.all(1), (Rows{{"kept", "1"}, {"cut", "3"}}));
    s.lose_power();
    EXPECT_EQ(s.log().end, point_of(next.header));
    ASSERT_TRUE(s.commit(3));
    EXPECT_EQ(s.all(1), (Rows{{"kept", "1"}, {"cut", "3"}}));
  }
}

}  // namespace
}  // namespace cantle::store

// Series of quorum tables' clients in the store.
#include <gtest/gtest.h>

#include "lib/store/rows.h"
#include "lib/wire/codec.h"
#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::kSeriesExpiryMs;
using model::kSeriesWindow;
using model::ResultKind;

constexpr uint64_t kClient = 77;

class SeriesStore : public QuorumStore {
 public:
  SeriesStore() {
    EXPECT_TRUE(open());
    EXPECT_TRUE(create_quorum(1, 1));
    EXPECT_TRUE(begin_epoch(1));
    run();
  }
  // A write of the client, committed.
  void write_as(uint64_t number, ResultKind kind = ResultKind::place, const std::string& value = "5",
                uint64_t client = kClient) {
    ASSERT_TRUE(build_as({client, number, kind}, "k" + std::to_string(number), value));
    run();
    ASSERT_TRUE(commit(log().end.lsn.value));
  }
  size_t rows() {  // in the index
    auto reader = engine->index().reader();
    EXPECT_TRUE(reader->renew());
    auto cursor = reader->cursor(Db::series);
    size_t n = 0;
    for (auto at = (*cursor)->seek(""); at && *at; at = (*cursor)->next()) n++;
    return n;
  }
  // Log time goes on, by blocks of a minute at most.
  void age(uint64_t left) {
    while (left > 0) {
      const auto step = std::min<uint64_t>(left, model::kElapsedMaxMs);
      clock.at = clock.at + std::chrono::milliseconds(step);
      ASSERT_TRUE(build(1, "age", "x"));
      run();
      ASSERT_TRUE(commit(log().end.lsn.value));
      left -= step;
    }
  }
};

TEST(QuorumSeries, a_record_is_in_its_clients_series_when_it_is_committed_and_not_before) {
  SeriesStore s;
  ASSERT_TRUE(s.build_as({kClient, 9, ResultKind::number}, "k", "-12"));
  s.run();
  EXPECT_TRUE(s.series(kClient).window.empty());
  ASSERT_TRUE(s.commit(2));
  const auto got = s.series(kClient);
  ASSERT_EQ(got.window.entries().size(), 1U);
  EXPECT_EQ(*got.window.find(9), (model::SeriesEntry{9, {{1}, {2}, ResultKind::number, -12}, s.log().log_time_ms}));
  EXPECT_TRUE(got.whole);
  EXPECT_TRUE(s.series(kClient + 1).window.empty());
  EXPECT_EQ(s.rows(), 0U);  // from memory
}

TEST(QuorumSeries, a_batch_is_one_entry_with_its_last_lsn) {
  SeriesStore s;
  const auto payload = quorum_payload({1}, {2}, {{"a", "1"}, {"b", "2"}, {"c", "3"}}, {kClient, 4});
  ASSERT_TRUE(s.engine->build(partition(1), {model::BlockKind::data, {1}, {1}}, payload, nullptr));
  s.run();
  ASSERT_TRUE(s.commit(4));
  EXPECT_EQ(s.series(kClient).window.find(4)->outcome.lsn.value, 4U);
}

TEST(QuorumSeries, is_the_same_after_a_clean_end_a_kill_and_a_loss_of_power) {
  SeriesStore s;
  for (uint64_t n = 1; n <= 5; n++) s.write_as(n, ResultKind::length, std::string(n, 'x'));
  s.clock.at = s.clock.at + std::chrono::seconds(3);
  s.write_as(6);
  const auto before = s.series(kClient);
  EXPECT_EQ(before.now_ms, 3000U);
  EXPECT_EQ(before.window.find(6)->time_ms, 3000U);
  EXPECT_EQ(before.window.find(5)->outcome.value, 5);
  const auto same = [&](const char* when) {
    const auto after = s.series(kClient);
    EXPECT_EQ(after.window, before.window) << when;
    EXPECT_EQ(after.now_ms, before.now_ms) << when;
  };
  s.lose_power();  // nothing was applied; what told the commit is lost
  ASSERT_TRUE(s.commit(s.log().end.lsn.value));
  same("not applied");
  s.settle();
  EXPECT_EQ(s.rows(), 1U);
  same("applied");
  s.lose_power();
  same("applied, then power lost");
  ASSERT_TRUE(s.wait([&](auto done) {
    s.engine->shutdown(done);
    return base::ok();
  }));
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().clean);
  same("closed");
}

// A crash in the middle of an apply: some slices are in the index, the applied position is not, and all comes again.
TEST(QuorumSeries, what_was_applied_already_is_applied_again_without_harm) {
  SeriesStore s;
  s.config.slice_records = 2;
  s.lose_power();
  for (uint64_t client = 1; client <= 5; client++)
    for (uint64_t n = 1; n <= 3; n++) s.write_as(n, ResultKind::number, std::to_string(client * 10 + n), client);
  std::map<uint64_t, model::ClientSeries> before;
  for (uint64_t client = 1; client <= 5; client++) before[client] = s.series(client);
  const auto lsn = s.log().end.lsn.value;
  size_t partial = 0;
  for (int after = 0; after < 30; after++) {
    int left = after;
    s.files.before_commit = [&left]() -> base::Status {
      return left-- > 0 ? base::ok() : base::fail(Code::io_error, "the power is gone");
    };
    for (int i = 0; i < 20 && s.fatal.empty(); i++) s.pass(std::chrono::milliseconds(1100));
    s.files.before_commit = nullptr;
    const bool died = !s.fatal.empty();
    s.fatal.clear();
    s.lose_power();
    partial += s.rows() > 0 && s.engine->applied(partition(1))->lsn.value < lsn ? 1 : 0;
    ASSERT_TRUE(s.commit(lsn));
    for (uint64_t client = 1; client <= 5; client++) {
      EXPECT_EQ(s.series(client).window, before[client].window) << after;
      EXPECT_EQ(s.series(client).now_ms, before[client].now_ms) << after;
    }
    if (!died) break;
  }
  EXPECT_GT(partial, 1U);
  EXPECT_EQ(s.rows(), 5U);
}

TEST(QuorumSeries, what_is_cut_never_was) {
  SeriesStore s;
  s.write_as(1);
  const auto keep = s.log().end;
  ASSERT_TRUE(s.build_as({kClient, 2}, "k", "v"));
  s.run();
  ASSERT_TRUE(s.truncate(keep));
  ASSERT_TRUE(s.build_as({kClient, 3}, "k", "v"));
  s.run();
  ASSERT_TRUE(s.commit(s.log().end.lsn.value));
  EXPECT_EQ(s.series(kClient).window.find(2), nullptr);
  EXPECT_NE(s.series(kClient).window.find(3), nullptr);
}

TEST(QuorumSeries, sixty_four_numbers_are_remembered_in_memory_and_in_the_index) {
  SeriesStore s;
  for (uint64_t n = 1; n <= 40; n++) s.write_as(n);
  s.settle();
  for (uint64_t n = 41; n <= 100; n++) s.write_as(n);
  for (int i = 0; i < 2; i++) {
    const auto w = s.series(kClient).window;
    EXPECT_EQ(w.entries().size(), kSeriesWindow) << i;
    EXPECT_EQ(w.entries().front().number, 37U) << i;
    EXPECT_EQ(w.high(), 100U) << i;
    s.settle();
  }
  EXPECT_EQ(s.rows(), 1U);
}

TEST(QuorumSeries, log_time_is_what_the_blocks_say_and_a_jump_counts_for_a_minute) {
  SeriesStore s;
  s.clock.at = s.clock.at + std::chrono::hours(5);
  s.write_as(1);
  EXPECT_EQ(s.log().log_time_ms, 60000U);
  s.clock.at = s.clock.at + std::chrono::milliseconds(70);
  ASSERT_TRUE(s.build(1, "a", "1"));
  s.run();
  EXPECT_EQ(s.log().log_time_ms, 60000U);  // not committed
  ASSERT_TRUE(s.commit(s.log().end.lsn.value));
  EXPECT_EQ(s.log().log_time_ms, 60070U);
  auto b = block_after(s.log().end, 1, 1, 0, {{"b", "2"}}, {}, 60001);
  EXPECT_EQ(s.take(b).error().code, Code::malformed);
  b = block_after(s.log().end, 1, 1, 0, {{"b", "2"}}, {}, 60000);
  EXPECT_TRUE(s.take(b));
}

TEST(QuorumSeries, rows_go_when_all_of_them_has_expired_and_before_that_at_the_clients_next_write) {
  SeriesStore s;
  s.write_as(1);
  s.write_as(1, ResultKind::place, "5", kClient + 1);
  s.age(kSeriesExpiryMs / 2);
  s.write_as(2);
  s.settle();
  EXPECT_EQ(s.rows(), 2U);
  s.age(kSeriesExpiryMs / 2);
  s.settle();
  for (int i = 0; i < 8; i++) s.settle();  // a sweep is due
  EXPECT_EQ(s.rows(), 1U);
  auto w = s.series(kClient);
  w.window.expire(w.now_ms);
  EXPECT_EQ(w.window.find(1), nullptr);
  ASSERT_NE(w.window.find(2), nullptr);
  s.write_as(3);
  s.settle();
  EXPECT_EQ(s.series(kClient).window.entries().size(), 2U);
  s.age(kSeriesExpiryMs);
  for (int i = 0; i < 8; i++) s.settle();
  EXPECT_EQ(s.rows(), 0U);
  EXPECT_TRUE(s.series(kClient).window.empty());
}

TEST(QuorumSeries, a_sweep_goes_on_over_many_rows) {
  SeriesStore s;
  for (uint64_t client = 1; client <= 1300; client++) {
    ASSERT_TRUE(s.build_as({client, 1}, "k", "v"));
    if (client % 100 != 0) continue;
    s.run();
    ASSERT_TRUE(s.commit(s.log().end.lsn.value));
    s.pass(std::chrono::seconds(2));
  }
  s.settle();
  EXPECT_EQ(s.rows(), 1300U);
  s.age(kSeriesExpiryMs);
  for (int i = 0; i < 8; i++) s.settle();
  EXPECT_EQ(s.rows(), 0U);
}

TEST(QuorumSeries, a_dropped_tenures_rows_go_and_those_of_the_next_one_stay) {
  SeriesStore s;
  s.write_as(1);
  s.settle();
  // Another tenure of the same partition, filled from elsewhere: nothing of the old one shows through.
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(1, 1), true, done); }));
  ASSERT_TRUE(s.wait([&](auto done) {
    return s.engine->create({tenure(1, 2), id_of<model::TableUuid>(7), {1}, {}, LogMode::quorum, {{1}, {50}, 9}, {}},
                            done);
  }));
  EXPECT_TRUE(s.series(kClient).window.empty());
  s.write_as(8);
  s.settle();
  EXPECT_EQ(s.rows(), 2U);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  s.settle();
  EXPECT_EQ(s.rows(), 2U);  // it can be restored
  for (int i = 0; i < 3; i++) s.pass(std::chrono::hours(30));
  s.settle();
  EXPECT_EQ(s.rows(), 1U);
  EXPECT_NE(s.series(kClient).window.find(8), nullptr);
}

// The last quorum table's tenure of a server goes, and the server dies before the sweep.
TEST(QuorumSeries, rows_of_a_tenure_that_went_in_the_life_before_go) {
  SeriesStore s;
  s.write_as(1);
  s.settle();
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  s.pass(std::chrono::hours(30));
  EXPECT_EQ(s.engine->status().trash_tenures, 0U);
  EXPECT_EQ(s.rows(), 1U);
  s.lose_power();
  s.settle();
  EXPECT_EQ(s.rows(), 0U);
}

TEST(QuorumSeries, a_sweep_that_finds_no_room_is_made_again) {
  SeriesStore s;
  s.write_as(1);
  s.settle();
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->drop(tenure(1, 1), done); }));
  s.pass(std::chrono::hours(30));
  while (s.engine->status().freeing_extents > 0) s.pass(std::chrono::milliseconds(10));  // it comes first
  const auto commits = s.files.commits;
  s.files.before_commit = []() -> base::Status { return base::fail(Code::no_space, "full"); };
  for (int i = 0; i < 5; i++) s.pass(std::chrono::milliseconds(1100));
  EXPECT_EQ(s.rows(), 1U);
  EXPECT_EQ(s.files.commits, commits);
  EXPECT_TRUE(s.engine->status().read_only);  // it was tried
  s.files.before_commit = nullptr;
  s.settle();
  EXPECT_EQ(s.rows(), 0U);
}

TEST(QuorumSeries, a_tenure_that_goes_on_under_another_assignment_keeps_its_own) {
  SeriesStore s;
  s.write_as(1);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->retag(tenure(1, 1), assignment(2), done); }));
  EXPECT_NE(s.series(kClient).window.find(1), nullptr);
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->set_aside(tenure(1, 2), true, done); }));
  ASSERT_TRUE(s.create_quorum(1, 3));  // adopts it
  EXPECT_NE(s.series(kClient).window.find(1), nullptr);
  s.lose_power();
  EXPECT_NE(s.series(kClient).window.find(1), nullptr);
}

// A snapshot does not bring series: what a copy does not have may be there all the same, until it would have expired.
TEST(QuorumSeries, of_a_copy_that_was_filled_the_series_are_not_whole_for_as_long_as_it_takes) {
  SeriesStore s;
  ASSERT_TRUE(s.wait([&](auto done) {
    return s.engine->create({tenure(2, 1), id_of<model::TableUuid>(7), {2}, {}, LogMode::quorum, {{1}, {50}, 9}, {}},
                            done);
  }));
  ASSERT_TRUE(s.wait([&](auto done) { return s.engine->ingest(tenure(2, 1), {1, "", "", true}, done); }));
  EXPECT_FALSE(s.series(kClient, 2).whole);
  EXPECT_TRUE(s.series(kClient, 1).whole);
  for (uint64_t ms = 0; ms < kSeriesExpiryMs; ms += model::kElapsedMaxMs) {
    EXPECT_FALSE(s.series(kClient, 2).whole);
    ASSERT_TRUE(s.take(block_after(s.log(2).end, 2, 1, 0, {{"k", "v"}}, {}, model::kElapsedMaxMs)));
    s.run();
    ASSERT_TRUE(s.commit(s.log(2).end.lsn.value, 2));
  }
  EXPECT_TRUE(s.series(kClient, 2).whole);
}

TEST(QuorumSeries, only_quorum_tables_have_any) {
  SeriesStore s;
  ASSERT_TRUE(s.create(3, 3));
  EXPECT_EQ(s.engine->series(partition(3), kClient).error().code, Code::invalid);
  EXPECT_EQ(s.engine->series(partition(9), kClient).error().code, Code::not_found);
}

TEST(QuorumSeries, a_lost_index_is_made_again_with_the_series) {
  SeriesStore s;
  for (uint64_t n = 1; n <= 3; n++) s.write_as(n);
  s.clock.at = s.clock.at + std::chrono::seconds(2);
  s.write_as(4);
  ASSERT_TRUE(s.build(1, "last", "tells the commit of the one before"));
  s.settle();
  const auto before = s.series(kClient);
  s.kill();
  s.files.damaged = "a page is gone";
  ASSERT_TRUE(s.open());
  EXPECT_TRUE(s.engine->report().index_rebuilt);
  EXPECT_EQ(s.series(kClient).window, before.window);
  EXPECT_EQ(s.series(kClient).now_ms, before.now_ms);
}

TEST(QuorumSeries, blocks_that_say_what_no_record_bears_out_are_malformed) {
  SeriesStore s;
  const auto end = s.log().end;
  const auto taken = [&](const Whose& whose, const std::string& value) {
    const auto r = s.take(block_after(end, 1, 1, 0, {{"k", value}}, whose));
    return r ? Code{} : r.error().code;
  };
  EXPECT_EQ(taken({kClient, 1, ResultKind::number}, "eleven"), Code::malformed);
  EXPECT_EQ(taken({kClient, 1, static_cast<ResultKind>(3)}, "v"), Code::malformed);
  EXPECT_EQ(taken({kClient, 0}, "v"), Code::malformed);
  EXPECT_EQ(taken({kClient, 1, ResultKind::number}, "11"), Code{});
}

// The row of a quorum table's tenure, from before it had a log time.
struct OldQuorum {
  model::Epoch promised;
  uint64_t begins = 0;
  CANTLE_FIELDS(promised, begins)
};
struct OldTenure {
  model::PartitionId partition;
  std::optional<OldQuorum> quorum;
  CANTLE_FIELDS(partition, quorum)
};

TEST(SeriesRows, a_tenures_row_from_before_has_log_time_nought) {
  const auto body = wire::encode(OldTenure{partition(1), OldQuorum{{5}, 7}});
  std::string bytes;
  base::put_u32_be(bytes, base::crc32c(body));
  const auto row = decode_tenure_row(bytes + body);
  ASSERT_TRUE(row && row->quorum);
  EXPECT_EQ(row->quorum->promised.value, 5U);
  EXPECT_EQ(row->quorum->begins, 7U);
  EXPECT_EQ(row->quorum->log_time_ms, 0U);
}

// Rows and keys as bytes.
TEST(SeriesRows, round_trip_and_refuse_what_is_damaged) {
  model::SeriesWindow w;
  for (uint64_t n = 1; n <= 64; n++)
    w.add({(uint64_t{1} << 40) + n, {{3}, {uint64_t{1} << 50}, ResultKind::number, n % 2 == 0 ? INT64_MIN : 7}, n});
  const auto bytes = encode_row(w);
  EXPECT_EQ(decode_series_row(bytes).value(), w);
  EXPECT_LT(bytes.size(), 64U * 41U);
  for (size_t i = 0; i < bytes.size(); i++) {
    auto bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_EQ(decode_series_row(bad).error().code, Code::corrupt);
  }
  const SeriesKey key{partition(3), {7}, 0x0102030405060708};
  EXPECT_EQ(decode_series_key(encode_key(key)).value(), key);
  EXPECT_EQ(decode_series_key("short").error().code, Code::corrupt);
  EXPECT_LT(encode_key(key), encode_key({partition(3), {7}, 0x0102030405060709}));
  EXPECT_LT(encode_key({partition(3), {7}, UINT64_MAX}), encode_key({partition(3), {8}, 0}));
}

}  // namespace
}  // namespace cantle::store

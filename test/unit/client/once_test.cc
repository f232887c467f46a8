// Writes to quorum tables, each of which takes effect once: which number is sent when.
#include <algorithm>
#include <set>

#include "test/unit/client/fake_cluster.h"

namespace cantle::client {
namespace {

using base::Code;
using base::Error;

class OnceTest : public testing::Test {
 protected:
  OnceTest() { cluster.maps = {quorum_map_of(1, {""})}; }

  io::Loop loop;
  FakeCluster cluster{loop};
  ClientOptions options{.identity = {}, .retry = {.deadline = 3s, .repeat_unknown = false}, .attempt = 200ms};
  std::unique_ptr<Client> made;

  Client& client() {
    if (!made) made = std::make_unique<Client>(loop, cluster, cluster, options);
    return *made;
  }
  base::Result<model::WriteReply> put(const std::string& key, const std::string& value, WriteOptions w = {}) {
    return await<model::WriteReply>(loop, 20s,
                                    [&](Done<model::WriteReply> done) { client().put("t", key, value, w, done); });
  }
  base::Result<model::WriteReply> batch(const std::vector<std::string>& keys) {
    std::vector<model::BatchOp> ops;
    for (const auto& k : keys) ops.push_back({.op = model::Op::put, .key = k, .value = "v" + k});
    return await<model::WriteReply>(
        loop, 20s, [&](Done<model::WriteReply> done) { client().batch("t", ops, {.may_divide = true}, done); });
  }
  base::Result<model::WriteReply> incr(const std::string& key, int64_t by = 1, UpdateOptions u = {}) {
    return await<model::WriteReply>(loop, 20s,
                                    [&](Done<model::WriteReply> done) { client().incr("t", key, by, u, done); });
  }
  base::Result<model::WriteReply> append(const std::string& key, const std::string& bytes) {
    return await<model::WriteReply>(loop, 20s,
                                    [&](Done<model::WriteReply> done) { client().append("t", key, bytes, {}, done); });
  }
  base::Result<model::WriteReply> cas(const std::string& key, const model::Expect& expect,
                                      const std::optional<std::string>& value) {
    return await<model::WriteReply>(
        loop, 20s, [&](Done<model::WriteReply> done) { client().cas("t", key, expect, value, {}, done); });
  }
  // The next answers, whatever was done: an error each, empty for none.
  void answer(std::vector<std::optional<Error>> errors) {
    cluster.lost = [errors = std::move(errors), i = size_t{0}](const std::string&) mutable {
      return i < errors.size() ? errors[i++] : std::nullopt;
    };
  }
  void refuse(std::vector<std::optional<Error>> errors) {
    cluster.before = [errors = std::move(errors), i = size_t{0}](const std::string&, std::string_view) mutable {
      return i < errors.size() ? errors[i++] : std::nullopt;
    };
  }
  std::vector<uint64_t> series() const {
    std::vector<uint64_t> all;
    for (const auto& n : cluster.numbers) all.push_back(*n.series);
    return all;
  }
};

TEST_F(OnceTest, each_write_has_a_number_of_its_own_and_says_what_is_waited_for) {
  EXPECT_TRUE(put("a", "1"));
  EXPECT_TRUE(put("a", "1"));
  EXPECT_TRUE(batch({"a", "b"}));
  EXPECT_TRUE(await<model::WriteReply>(loop, 5s, [&](Done<model::WriteReply> d) { client().remove("t", "a", {}, d); }));
  EXPECT_EQ(series(), (std::vector<uint64_t>{1, 2, 3, 4}));
  for (const auto& n : cluster.numbers) {
    EXPECT_EQ(n.client, cluster.numbers[0].client);
    EXPECT_EQ(n.series_low, n.series);  // the ones before have ended
    EXPECT_EQ(n.age_ms, 0u);
  }
  Client other(loop, cluster, cluster, options);
  EXPECT_TRUE(await<model::WriteReply>(loop, 5s, [&](Done<model::WriteReply> d) { other.put("t", "a", "1", {}, d); }));
  EXPECT_NE(cluster.numbers.back().client, cluster.numbers[0].client);
}

TEST_F(OnceTest, a_write_whose_answer_is_lost_is_sent_again_under_its_number_and_done_once) {
  int puts = 0;
  cluster.after = [&](const std::string&) { ++puts; };
  answer({Error(Code::outcome_unknown, "x"), Error(Code::outcome_unknown, "x")});
  const auto reply = put("a", "1");
  ASSERT_TRUE(reply) << to_string(reply.error());
  EXPECT_EQ(reply->repeat, true);
  EXPECT_EQ(puts, 3);
  EXPECT_EQ(cluster.versions.size(), 1u);  // applied once
  EXPECT_EQ(series(), (std::vector<uint64_t>{1, 1, 1}));
  EXPECT_EQ(cluster.numbers[0].client, cluster.numbers[2].client);
  EXPECT_TRUE(put("a", "2"));
  EXPECT_EQ(series().back(), 2u);
}

TEST_F(OnceTest, a_refusal_does_not_change_the_number_nor_make_it_older) {
  Error elsewhere(Code::not_leader, "p2 leads");
  elsewhere.detail = "p2";
  Error soon(Code::no_quorum, "not now");
  soon.retry_after_ms = 30;
  refuse({elsewhere, soon, Error(Code::unavailable, "x")});
  EXPECT_TRUE(put("a", "1"));
  EXPECT_EQ(series(), (std::vector<uint64_t>{1}));
  EXPECT_EQ(cluster.numbers[0].age_ms, 0u);
  EXPECT_EQ(client().counts().retries, 3u);
}

TEST_F(OnceTest, its_age_counts_from_the_first_attempt_that_may_have_happened) {
  Error late(Code::outcome_unknown, "x");
  late.retry_after_ms = 60;
  answer({late, late});
  cluster.maps = {quorum_map_of(1, {""}, {"p2"})};  // who has nobody else to ask waits as long as it is told
  EXPECT_TRUE(put("a", "1"));
  ASSERT_EQ(cluster.numbers.size(), 3u);
  EXPECT_EQ(cluster.numbers[0].age_ms, 0u);
  EXPECT_GE(*cluster.numbers[2].age_ms, 60u);
  EXPECT_GE(*cluster.numbers[2].age_ms, *cluster.numbers[1].age_ms);
}

TEST_F(OnceTest, too_late_ends_as_what_is_known) {
  refuse({Error(Code::series_expired, "x")});
  EXPECT_EQ(put("a", "1").error().code, Code::series_expired);
  refuse({Error(Code::outcome_unknown, "x"), Error(Code::series_old, "x")});
  EXPECT_EQ(put("a", "1").error().code, Code::outcome_unknown);
}

TEST_F(OnceTest, a_silent_leader_is_asked_again_until_the_deadline) {
  cluster.silent = true;
  const auto begun = loop.refresh_now();
  EXPECT_EQ(put("a", "1", {.timeout = 1500ms}).error().code, Code::outcome_unknown);
  EXPECT_GE(loop.refresh_now() - begun, 1s);
  EXPECT_GT(cluster.log.size(), 2u);
  cluster.silent = false;
  EXPECT_TRUE(put("a", "1"));
  ASSERT_EQ(cluster.numbers.size(), 1u);
  EXPECT_EQ(cluster.numbers[0].series, 2u);
  EXPECT_EQ(cluster.numbers[0].series_low, 2u);  // what ended is not waited for, whatever came of it
}

TEST_F(OnceTest, any_number_of_writes_may_be_under_way_and_each_client_id_keeps_its_window) {
  constexpr size_t kWrites = 1000;
  size_t ended = 0;
  cluster.after = [&](const std::string&) {
    const auto& n = cluster.numbers.back();
    EXPECT_LT(*n.series - *n.series_low, model::kSeriesWindow);
  };
  for (size_t i = 0; i < kWrites; ++i)
    client().put("t", "k" + std::to_string(i), "1", {}, [&](const base::Result<model::WriteReply>& r) {
      EXPECT_TRUE(r);
      ++ended;
    });
  ASSERT_TRUE(loop.run_for(20s, [&] { return ended == kWrites; }));
  std::set<std::pair<uint64_t, uint64_t>> distinct;
  std::map<uint64_t, size_t> lanes;
  for (const auto& n : cluster.numbers) {
    distinct.insert({*n.client, *n.series});
    ++lanes[*n.client];
  }
  EXPECT_EQ(distinct.size(), kWrites);
  EXPECT_EQ(lanes.size(), (kWrites + model::kSeriesWindow - 1) / model::kSeriesWindow);
  EXPECT_EQ(client().counts().requests, client().counts().attempts);  // nothing waited, nothing was refused
  // Afterwards the first one is enough.
  const auto first = cluster.numbers.front().client;
  EXPECT_TRUE(put("a", "1"));
  EXPECT_EQ(cluster.numbers.back().client, first);
}

TEST_F(OnceTest, the_parts_of_a_divided_batch_have_numbers_of_their_own) {
  EXPECT_TRUE(put("a", "1"));
  cluster.maps.push_back(quorum_map_of(3, {"", "g", "m"}));
  cluster.served_txnseq = 3;
  cluster.numbers.clear();
  EXPECT_TRUE(batch({"b", "c", "h", "x", "y"}));
  EXPECT_EQ(cluster.records.size(), 6u);
  // 2 was that of the whole, which no partition takes any more.
  auto got = series();
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, (std::vector<uint64_t>{3, 4, 5}));
  for (const auto& n : cluster.numbers) EXPECT_GE(*n.series_low, 3u);
}

TEST_F(OnceTest, a_batch_that_may_have_happened_is_not_written_again_in_parts_unless_that_is_allowed) {
  for (const bool repeat : {false, true}) {
    options.retry.repeat_unknown = repeat;
    made.reset();
    cluster.maps = {quorum_map_of(1, {""})};
    cluster.served_txnseq = 0;
    cluster.lost = [&](const std::string&) -> std::optional<Error> {
      if (cluster.served_txnseq != 0) return std::nullopt;
      cluster.maps.push_back(quorum_map_of(3, {"", "g", "m"}));
      cluster.served_txnseq = 3;
      return Error(Code::outcome_unknown, "x");
    };
    const auto reply = batch({"b", "h"});
    EXPECT_EQ(reply.has_value(), repeat);
    if (!reply) {
      EXPECT_EQ(reply.error().code, Code::outcome_unknown) << to_string(reply.error());
    }
  }
}

TEST_F(OnceTest, an_increment_and_an_append_whose_answers_are_lost_happen_once) {
  answer({Error(Code::outcome_unknown, "x"), Error(Code::outcome_unknown, "x"), std::nullopt,
          Error(Code::outcome_unknown, "x")});
  const auto first = incr("n", 5);
  ASSERT_TRUE(first) << to_string(first.error());
  EXPECT_EQ(first->result, 5);
  EXPECT_EQ(first->repeat, true);
  const auto long_now = append("s", "abc");
  ASSERT_TRUE(long_now) << to_string(long_now.error());
  EXPECT_EQ(long_now->result, 3);
  EXPECT_EQ(cluster.records["n"], "5");
  EXPECT_EQ(cluster.records["s"], "abc");
  EXPECT_EQ(series(), (std::vector<uint64_t>{1, 1, 1, 2, 2}));
  const auto second = incr("n", -7);
  EXPECT_EQ(second->result, -2);
  EXPECT_FALSE(second->repeat);
  EXPECT_EQ(series().back(), 3u);
  EXPECT_EQ(cluster.numbers.back().series_low, 3u);
}

TEST_F(OnceTest, a_cas_puts_or_deletes_what_is_as_expected_and_nothing_else) {
  EXPECT_TRUE(cas("a", {.version = {}, .value = {}, .absent = true}, "1"));
  EXPECT_EQ(cas("a", {.version = {}, .value = {}, .absent = true}, "2").error().code, Code::condition_failed);
  EXPECT_TRUE(cas("a", {.version = {}, .value = "1"}, "2"));
  EXPECT_EQ(cas("a", {.version = {}, .value = "1"}, std::nullopt).error().code, Code::condition_failed);
  EXPECT_EQ(cluster.records["a"], "2");
  EXPECT_TRUE(cas("a", {.version = {}, .value = "2"}, std::nullopt));
  EXPECT_FALSE(cluster.records.contains("a"));
  EXPECT_EQ(series(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(OnceTest, a_cas_that_won_and_lost_its_answer_has_won) {
  answer({Error(Code::outcome_unknown, "x")});
  const auto reply = cas("lock", {.version = {}, .value = {}, .absent = true}, "me");
  ASSERT_TRUE(reply) << to_string(reply.error());
  EXPECT_EQ(reply->repeat, true);
  EXPECT_EQ(cluster.records["lock"], "me");
}

// Its server remembers with the number that it has lost: whatever is under way still loses, too (S23).
TEST_F(OnceTest, a_cas_that_may_have_won_has_lost_when_a_later_attempt_says_so) {
  cluster.records["lock"] = "other";
  refuse({Error(Code::outcome_unknown, "x")});  // this attempt may be under way still
  const auto reply = cas("lock", {.version = {}, .value = {}, .absent = true}, "me");
  EXPECT_EQ(reply.error().code, Code::condition_failed);
  EXPECT_GT(cluster.numbers.back().age_ms, 0U) << "it does not say that it was sent before";
}

TEST_F(OnceTest, another_leader_is_asked_under_the_same_number) {
  std::string leader = "p2";
  bool died = false;
  cluster.before = [&](const std::string& server, std::string_view) -> std::optional<Error> {
    if (server == leader) return std::nullopt;
    Error e(Code::not_leader, leader + " leads");
    e.detail = leader;
    return e;
  };
  cluster.lost = [&](const std::string&) -> std::optional<Error> {
    if (std::exchange(died, true)) return std::nullopt;
    leader = "p3";  // has it, and takes over
    return Error(Code::outcome_unknown, "x");
  };
  const auto reply = incr("n");
  ASSERT_TRUE(reply) << to_string(reply.error());
  EXPECT_EQ(reply->result, 1);
  EXPECT_EQ(cluster.records["n"], "1");
  EXPECT_EQ(series(), (std::vector<uint64_t>{1, 1}));
}

TEST_F(OnceTest, thousands_of_increments_through_lost_answers_and_refusals_add_up) {
  base::SeededRandom random(11);
  options.retry.deadline = 20s;
  cluster.before = [&](const std::string&, std::string_view) -> std::optional<Error> {
    return random.chance(0.1) ? std::optional(Error(Code::overloaded, "x")) : std::nullopt;
  };
  cluster.lost = [&](const std::string&) -> std::optional<Error> {
    return random.chance(0.2) ? std::optional(Error(Code::outcome_unknown, "x")) : std::nullopt;
  };
  constexpr int kCount = 3000, kUnderWay = 200;
  int begun = 0, ended = 0;
  std::set<int64_t> results;
  std::function<void()> next = [&] {
    ++begun;
    client().incr("t", "n", 1, {}, [&](const base::Result<model::WriteReply>& r) {
      ASSERT_TRUE(r) << to_string(r.error());
      EXPECT_TRUE(results.insert(*r->result).second) << *r->result;  // no number is given twice
      ++ended;
      if (begun < kCount) next();
    });
  };
  while (begun < kUnderWay) next();
  ASSERT_TRUE(loop.run_for(30s, [&] { return ended == kCount; }));
  EXPECT_EQ(cluster.records["n"], std::to_string(kCount));
  for (const auto& n : cluster.numbers) ASSERT_LT(*n.series - *n.series_low, model::kSeriesWindow);
}

TEST_F(OnceTest, conditions_on_a_push_table_are_refused_in_words_and_not_sent) {
  cluster.maps = {map_of(1, {""})};
  for (const auto& reply : {incr("n"), append("s", "x"), cas("a", {.version = {}, .value = "1"}, "2")}) {
    EXPECT_EQ(reply.error().code, Code::invalid);
    EXPECT_NE(reply.error().text.find("cas, append and incr are for quorum tables"), std::string::npos);
  }
  EXPECT_TRUE(cluster.log.empty());
}

TEST_F(OnceTest, a_read_whose_answer_is_lost_is_read_again) {
  for (const bool quorum : {false, true}) {
    cluster.maps = {quorum ? quorum_map_of(1, {""}) : map_of(1, {""})};
    made.reset();
    EXPECT_TRUE(put("a", "1"));
    answer({Error(Code::outcome_unknown, "x"), Error(Code::outcome_unknown, "x")});
    const auto got =
        await<model::GetReply>(loop, 20s, [&](Done<model::GetReply> done) { client().get("t", "a", {}, done); });
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->value, "1");
  }
}

TEST_F(OnceTest, a_push_table_is_told_no_numbers) {
  cluster.maps = {map_of(1, {""})};
  EXPECT_TRUE(put("a", "1"));
  EXPECT_TRUE(batch({"a", "b"}));
  EXPECT_TRUE(cluster.numbers.empty());
  answer({Error(Code::outcome_unknown, "x")});
  EXPECT_EQ(put("a", "1").error().code, Code::outcome_unknown);  // to repeat it would be another write
}

TEST_F(OnceTest, a_number_once_drawn_stays_whatever_the_map_says_then) {
  cluster.maps = {map_of(1, {""}), quorum_map_of(2, {""}), map_of(3, {""})};
  cluster.served_txnseq = 2;  // push at first: it is refused there, and has no number
  cluster.lost = [&](const std::string&) -> std::optional<Error> {
    if (cluster.served_txnseq == 3) return std::nullopt;
    cluster.served_txnseq = 3;
    return Error(Code::outcome_unknown, "x");
  };
  EXPECT_TRUE(put("a", "1"));
  EXPECT_EQ(series(), (std::vector<uint64_t>{1, 1}));
}

}  // namespace
}  // namespace cantle::client

#include "lib/client/client.h"

#include "lib/client/load.h"
#include "lib/client/pages.h"
#include "test/unit/client/fake_cluster.h"

namespace cantle::client {
namespace {

using base::Code;
using base::Error;

class ClientTest : public testing::Test {
 protected:
  io::Loop loop;
  FakeCluster cluster{loop};
  ClientOptions options{.identity = {}, .retry = {.deadline = 3s}, .attempt = 200ms};
  std::unique_ptr<Client> made;

  Client& client() {
    if (!made) made = std::make_unique<Client>(loop, cluster, cluster, options);
    return *made;
  }
  base::Result<model::WriteReply> put(const std::string& key, const std::string& value, WriteOptions w = {}) {
    return await<model::WriteReply>(loop, 20s,
                                    [&](Done<model::WriteReply> done) { client().put("t", key, value, w, done); });
  }
  base::Result<model::GetReply> get(const std::string& key) {
    return await<model::GetReply>(loop, 20s, [&](Done<model::GetReply> done) { client().get("t", key, {}, done); });
  }
  base::Result<model::WriteReply> batch(std::vector<std::string> keys, bool may_divide) {
    std::vector<model::BatchOp> ops;
    for (auto& k : keys) ops.push_back({.op = model::Op::put, .key = k, .value = "v" + k});
    return await<model::WriteReply>(
        loop, 20s, [&](Done<model::WriteReply> done) { client().batch("t", ops, {.may_divide = may_divide}, done); });
  }
};

TEST_F(ClientTest, what_was_put_is_got_and_what_was_deleted_is_not) {
  EXPECT_TRUE(put("a", "1"));
  EXPECT_EQ(get("a")->value, "1");
  EXPECT_TRUE(await<model::WriteReply>(loop, 5s, [&](Done<model::WriteReply> d) { client().remove("t", "a", {}, d); }));
  EXPECT_EQ(get("a").error().code, Code::not_found);
  EXPECT_EQ(cluster.fetches, 1u);  // the map is kept
  EXPECT_EQ(client().counts().retries, 0u);
}

TEST_F(ClientTest, requests_of_one_key_stay_with_one_server) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(put("a", "1"));
  for (const auto& line : cluster.log) EXPECT_EQ(line, cluster.log.front());
}

MapPtr quorum_map() { return quorum_map_of(1, {""}); }

TEST_F(ClientTest, the_leader_that_another_server_names_is_asked_and_remembered) {
  cluster.maps = {quorum_map()};
  std::string leader = "p2";
  cluster.before = [&](const std::string& server, std::string_view) -> std::optional<Error> {
    if (server == leader) return std::nullopt;
    Error e(Code::not_leader, leader + " leads");
    e.detail = leader;
    return e;
  };
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(put("k" + std::to_string(i), "1"));
  EXPECT_LE(cluster.log.size(), 6u);
  cluster.log.clear();
  leader = "p3";
  EXPECT_TRUE(put("a", "1"));
  EXPECT_EQ(get("a")->value, "1");
  EXPECT_EQ(cluster.log, (std::vector<std::string>{"p2 put a", "p3 put a", "p3 get a"}));
}

TEST_F(ClientTest, a_leader_that_is_gone_is_forgotten_and_the_others_are_asked) {
  cluster.maps = {quorum_map()};
  std::string leader = "p2";
  cluster.before = [&](const std::string& server, std::string_view) -> std::optional<Error> {
    if (server == leader) return std::nullopt;
    Error e(Code::not_leader, leader + " leads");
    e.detail = leader;
    return e;
  };
  EXPECT_TRUE(put("a", "1"));
  cluster.stop("p2");
  loop.run_for(1s, [&] { return client().map_in_hand("t") == nullptr; });
  leader = "p1";
  EXPECT_TRUE(put("a", "2"));
  cluster.log.clear();
  EXPECT_EQ(get("a")->value, "2");
  EXPECT_EQ(cluster.log, (std::vector<std::string>{"p1 get a"}));
}

TEST_F(ClientTest, a_read_of_any_replica_needs_no_leader) {
  cluster.maps = {quorum_map()};
  EXPECT_TRUE(put("a", "1"));
  cluster.log.clear();
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(await<model::GetReply>(
        loop, 20s, [&](Done<model::GetReply> d) { client().get("t", "a", {.level = model::Level::one}, d); }));
  EXPECT_EQ(cluster.log.size(), 20u);
}

TEST_F(ClientTest, a_session_tells_what_it_was_told_and_a_key_that_was_not_there_counts) {
  cluster.maps = {quorum_map()};
  std::vector<std::optional<uint64_t>> tokens;
  const auto session_get = [&](const std::string& key) {
    return await<model::GetReply>(
        loop, 20s, [&](Done<model::GetReply> d) { client().get("t", key, {.level = model::Level::session}, d); });
  };
  cluster.on_get = [&](const model::GetRequest& r) { tokens.push_back(r.session); };
  cluster.lsn = 7;
  EXPECT_TRUE(put("a", "1"));
  EXPECT_TRUE(session_get("a"));
  cluster.lsn = 9;
  EXPECT_TRUE(session_get("a"));
  cluster.lsn = 8;  // another replica's answer does not take it back
  EXPECT_TRUE(session_get("a"));
  cluster.before = [&](const std::string&, std::string_view) -> std::optional<Error> {
    Error none(Code::not_found, "no such key");
    none.detail = "12";
    return none;
  };
  EXPECT_EQ(session_get("b").error().code, Code::not_found);
  cluster.before = nullptr;
  EXPECT_TRUE(session_get("a"));
  EXPECT_EQ(tokens, (std::vector<std::optional<uint64_t>>{7, 7, 9, 12}));
}

// Its log begins behind both: the larger one says it.
TEST_F(ClientTest, a_session_token_of_either_of_two_that_were_merged_is_one_of_what_they_became) {
  const auto id = [](uint8_t n) { return *model::PartitionId::from_bytes(std::string(16, static_cast<char>(n))); };
  const auto quorum = [&](uint64_t txnseq, const std::vector<std::string>& borders, uint8_t first, auto change) {
    auto map = std::make_shared<model::Metadata>(*quorum_map_of(txnseq, borders));
    std::vector<model::Partition> all(map->partitions.begin(), map->partitions.end());
    for (auto& p : all) {
      p.id = id(first++);
      change(p);
    }
    map->partitions = model::Partitions(std::move(all));
    return map;
  };
  const auto serve = [&](const MapPtr& map) {
    cluster.maps.push_back(map);
    cluster.served_txnseq = map->txnseq.value;
  };
  std::vector<std::optional<uint64_t>> tokens;
  cluster.on_get = [&](const model::GetRequest& r) { tokens.push_back(r.session); };
  const auto session_get = [&](const std::string& key) {
    return await<model::GetReply>(
        loop, 20s, [&](Done<model::GetReply> d) { client().get("t", key, {.level = model::Level::session}, d); });
  };
  cluster.maps = {quorum(5, {"", "m"}, 1, [](auto&) {})};
  cluster.lsn = 7;
  EXPECT_TRUE(put("a", "1"));
  cluster.lsn = 12;
  EXPECT_TRUE(put("x", "1"));
  cluster.lsn = 13;
  const auto merged = [&](model::Partition& p) { p.parent = id(1), p.parent_high = id(2); };
  serve(quorum(7, {""}, 3, merged));
  EXPECT_TRUE(session_get("a"));
  EXPECT_TRUE(session_get("x"));
  EXPECT_EQ(tokens, (std::vector<std::optional<uint64_t>>{12, 13}));
}

TEST_F(ClientTest, an_old_map_is_replaced_when_a_server_says_so) {
  EXPECT_TRUE(put("a", "1"));
  cluster.maps.push_back(map_of(7, {"", "m"}));
  cluster.served_txnseq = 7;
  EXPECT_TRUE(put("z", "2"));
  EXPECT_EQ(client().map_in_hand("t")->txnseq.value, 7u);
  EXPECT_EQ(client().counts().errors.at("STALE_ROUTE"), 1u);
}

TEST_F(ClientTest, a_dead_server_is_passed_over) {
  cluster.stop("p1");
  cluster.stop("p3");
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_TRUE(put(key, "1")) << key;
  for (const auto& line : cluster.log) EXPECT_TRUE(line.starts_with("p2 ")) << line;
}

TEST_F(ClientTest, nobody_there_is_unavailable_at_the_deadline_and_not_later) {
  for (const char* name : {"p1", "p2", "p3"}) cluster.stop(name);
  const auto begun = loop.refresh_now();
  const auto result = put("a", "1", {.timeout = 500ms});
  EXPECT_EQ(result.error().code, Code::unavailable);
  EXPECT_LT(loop.refresh_now() - begun, 2s);
}

TEST_F(ClientTest, a_silent_server_is_unknown_in_the_end_and_not_a_failure) {
  cluster.silent = true;
  const auto result = put("a", "1", {.timeout = 500ms});
  EXPECT_EQ(result.error().code, Code::outcome_unknown);
}

TEST_F(ClientTest, a_write_whose_server_dies_on_it_is_repeated_elsewhere) {
  int deaths = 0;
  cluster.after = [&](const std::string& server) {
    if (deaths++ == 0) loop.next_turn([&, server] { cluster.stop(server); });
  };
  int calls = 0;
  cluster.before = [&](const std::string&, std::string_view) -> std::optional<Error> {
    if (calls++ > 0) return std::nullopt;
    Error unknown(Code::outcome_unknown, "not confirmed in time");
    unknown.detail = to_string(model::Version::make(5, 0, {1}, {1}));
    return unknown;
  };
  EXPECT_TRUE(put("a", "1"));
  ASSERT_FALSE(cluster.versions.empty());
  EXPECT_EQ(cluster.versions.back(), model::Version::make(5, 0, {1}, {1}));  // the same write, not another
  EXPECT_EQ(cluster.records["a"], "1");
}

TEST_F(ClientTest, a_write_says_what_it_comes_after) {
  const auto first = model::Version::make(5, 0, {1}, {1}), second = model::Version::make(6, 0, {1}, {1});
  cluster.stamp = second;
  EXPECT_TRUE(put("a", "1"));
  cluster.stamp = first;  // another server, whose clock is behind
  EXPECT_TRUE(put("b", "1"));
  EXPECT_TRUE(get("a"));
  EXPECT_TRUE(batch({"a", "b"}, true));
  EXPECT_EQ(cluster.afters, (std::vector<std::optional<model::Version>>{std::nullopt, second, second}));
}

TEST_F(ClientTest, refusals_that_will_pass_are_waited_for) {
  int calls = 0;
  cluster.before = [&](const std::string&, std::string_view) -> std::optional<Error> {
    static constexpr Code kCodes[] = {Code::no_quorum, Code::overloaded, Code::read_only, Code::catching_up,
                                      Code::unavailable};
    if (calls == 5) return std::nullopt;
    Error e(kCodes[calls++], "not now");
    e.retry_after_ms = 5;
    return e;
  };
  EXPECT_TRUE(put("a", "1"));
  EXPECT_EQ(client().counts().retries, 5u);
}

TEST_F(ClientTest, refusals_that_will_not_are_told) {
  cluster.before = [&](const std::string&, std::string_view) -> std::optional<Error> {
    return Error(Code::too_large, "no");
  };
  EXPECT_EQ(put("a", "1").error().code, Code::too_large);
  EXPECT_EQ(cluster.log.size(), 1u);
  const auto other =
      await<model::GetReply>(loop, 5s, [&](Done<model::GetReply> d) { client().get("other", "a", {}, d); });
  EXPECT_EQ(other.error().code, Code::no_such_table);
}

TEST_F(ClientTest, a_batch_across_a_border_is_refused_or_divided) {
  cluster.maps = {map_of(2, {"", "m"})};
  EXPECT_EQ(batch({"a", "z"}, false).error().code, Code::invalid);
  EXPECT_TRUE(cluster.records.empty());
  EXPECT_TRUE(batch({"a", "z", "b"}, true));
  EXPECT_EQ(cluster.records.size(), 3u);
}

TEST_F(ClientTest, a_split_under_way_divides_a_batch_that_was_sent_back) {
  EXPECT_TRUE(put("a", "1"));
  cluster.maps.push_back(map_of(3, {"", "g", "m"}));
  cluster.served_txnseq = 3;
  EXPECT_TRUE(batch({"b", "c", "h", "x", "y"}, true));
  EXPECT_EQ(cluster.records.size(), 6u);
}

TEST_F(ClientTest, a_scan_goes_through_all_partitions_and_survives_a_split) {
  for (const char* key : {"a", "b", "c", "g", "h", "m", "x", "y", "z"}) cluster.records[key] = key;
  std::string seen;
  const auto each = [&](const model::ScanRecord& r) -> base::Result<bool> {
    seen += r.key;
    if (r.key == "c") {
      cluster.maps.push_back(map_of(3, {"", "g", "m"}));
      cluster.served_txnseq = 3;
    }
    return true;
  };
  model::ScanRequest request;
  request.table = "t";
  EXPECT_TRUE(walk(pages_of(client(), 5s), request, 0, each));
  EXPECT_EQ(seen, "abcghmxyz");
}

TEST_F(ClientTest, a_load_ends_with_the_last_record_of_each_key_whatever_the_servers_do) {
  base::SeededRandom random(3);
  cluster.before = [&](const std::string&, std::string_view) -> std::optional<Error> {
    switch (random.below(12)) {
      case 0: return Error(Code::unavailable, "x");
      case 1: return Error(Code::overloaded, "x");
      case 2: return Error(Code::outcome_unknown, "x");
      default: return std::nullopt;
    }
  };
  std::map<std::string, std::string> want;
  InputFeed::Portion portion;
  for (uint64_t i = 0; i < 3000; ++i) {
    Entry e{.key = std::string(1, static_cast<char>('a' + random.below(26))) + std::to_string(random.below(10)),
            .value = std::to_string(i),
            .deleted = random.chance(0.1),
            .line = i + 1};
    if (e.deleted)
      want.erase(e.key);
    else
      want[e.key] = e.value;
    portion.entries.push_back(std::move(e));
  }
  portion.last = true;
  options.retry.deadline = 20s;
  std::optional<base::Status> finished;
  uint64_t acknowledged = 0;
  LoadHooks hooks{.rejected = [](const Rejected& r) { ADD_FAILURE() << r.why; },
                  .gap =
                      [&](base::Instant, base::Duration) {
                        // A split in the middle of it.
                        if (++acknowledged != 40) return;
                        cluster.maps.push_back(map_of(9, {"", "f", "q"}));
                        cluster.served_txnseq = 9;
                      },
                  .finished = [&](base::Status s) { finished = std::move(s); },
                  .hungry = [] {}};
  Loader loader(client(), {.table = "t", .window = 64, .group = {.records = 8}}, hooks);
  loader.add(std::move(portion));
  ASSERT_TRUE(loop.run_for(30s, [&] { return finished.has_value(); }));
  EXPECT_TRUE(*finished) << to_string(finished->error());
  EXPECT_EQ(cluster.records, want);
  EXPECT_EQ(loader.figures().acknowledged, 3000u);
  EXPECT_GT(client().counts().retries, 0u);
}

TEST_F(ClientTest, a_load_counts_the_records_that_are_refused_and_goes_on) {
  cluster.before = [&](const std::string&, std::string_view method) -> std::optional<Error> {
    // A batch is refused for one of its records; alone, only that record is.
    const bool bad = method == "batch" || cluster.log.back().ends_with(" bad");
    return bad ? std::optional(Error(Code::invalid, "refused")) : std::nullopt;
  };
  InputFeed::Portion portion;
  for (const char* key : {"a", "bad", "c"})
    portion.entries.push_back({.key = key, .value = "1", .line = portion.entries.size() + 1});
  portion.last = true;
  std::vector<Rejected> rejected;
  std::optional<base::Status> finished;
  Loader loader(client(), {.table = "t", .group = {}},
                {.rejected = [&](const Rejected& r) { rejected.push_back(r); },
                 .gap = {},
                 .finished = [&](base::Status s) { finished = std::move(s); },
                 .hungry = [] {}});
  loader.add(std::move(portion));
  ASSERT_TRUE(loop.run_for(10s, [&] { return finished.has_value(); }));
  EXPECT_TRUE(*finished);
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].line, 2u);
  EXPECT_EQ(cluster.records.size(), 2u);
}

TEST_F(ClientTest, a_load_that_cannot_go_on_says_where_it_stopped) {
  for (const char* name : {"p1", "p2", "p3"}) cluster.stop(name);
  InputFeed::Portion portion;
  portion.entries.push_back({.key = "a", .value = "1", .line = 17});
  portion.last = true;
  std::optional<base::Status> finished;
  Loader loader(client(), {.table = "t", .timeout = 300ms, .group = {}},
                {.rejected = [](const Rejected&) {},
                 .gap = {},
                 .finished = [&](base::Status s) { finished = std::move(s); },
                 .hungry = [] {}});
  loader.add(std::move(portion));
  ASSERT_TRUE(loop.run_for(10s, [&] { return finished.has_value(); }));
  ASSERT_FALSE(*finished);
  EXPECT_NE(finished->error().text.find("line 17"), std::string::npos) << finished->error().text;
}

}  // namespace
}  // namespace cantle::client

#include "lib/coord/governments.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "test/unit/coord/fake_session.h"

namespace cantle::coord {
namespace {

using base::Code;
using base::Result;
using model::Region;

constexpr const char* kTable = "1_t";

model::AssignmentId assignment(uint32_t n) {
  model::AssignmentId id;
  id.bytes[14] = static_cast<uint8_t>(n >> 8);
  id.bytes[15] = static_cast<uint8_t>(n);
  return id;
}

struct World {
  Layout layout{"c"};
  FakeSession session;
  Governments governments{session, layout};
  uint32_t regions;

  explicit World(uint32_t n) : regions(n) {
    session.put("/");
    for (const std::string path : {"/c", "/c/distribution", "/c/distribution/1_t"}) session.put(path);
    session.put(layout.bell(kTable));
    session.put(layout.regions(kTable));
    for (uint32_t i = 0; i < n; ++i) {
      session.put(layout.region(kTable, {i}));
      session.put(layout.government(kTable, {i}), government_text(government(i, 1)));
      session.put(layout.quorums(kTable, {i}));
    }
  }
  static model::Government government(uint32_t i, uint64_t epoch) {
    return {{epoch}, {}, {{0, {"p1"}, assignment(i + 1)}}, "w"};
  }
  static model::Vote vote(uint32_t i, const std::string& server, uint64_t promise = 2) {
    return {{promise}, {{1}, {7}}, assignment(i + 1), {server}, 0, true, {5}};
  }
  uint64_t epoch_of(uint32_t i) {
    return parse_government(session.tree.at(layout.government(kTable, {i})).value)->epoch.value;
  }
  size_t votes_of(uint32_t i) {
    Result<std::vector<model::Vote>> votes = base::fail(Code::unavailable, "");
    governments.read_votes(kTable, {i}, nullptr, [&](auto read) { votes = std::move(read); });
    session.run();
    return votes.value().size();
  }
};

TEST(Governments, swaps_of_many_regions_are_few_multis_and_a_ring_each) {
  World w(1000);
  size_t done = 0;
  for (uint32_t i = 0; i < w.regions; ++i)
    w.governments.swap(kTable, {i}, 0, World::government(i, 2), [&](Result<int32_t> r) { done += r.value() == 1; });
  w.session.run();
  EXPECT_EQ(done, 1000u);
  EXPECT_EQ(w.session.multis.size(), 3u);  // the first went by itself
  EXPECT_EQ(w.session.multis[0], 2u);
  for (const auto n : w.session.multis) EXPECT_LE(n, Multis::kOpsMost + 1);
  for (uint32_t i = 0; i < w.regions; ++i) ASSERT_EQ(w.epoch_of(i), 2u);
}

// So that what is written in the same instant does not wait behind them.
TEST(Governments, thousands_of_reads_are_few_at_a_time) {
  World w(2000);
  size_t most = 0, read = 0, cancelled = 0;
  const auto answer = [&](const auto& r) {
    if (r)
      ++read;
    else if (r.error().code == Code::cancelled)
      ++cancelled;
  };
  const auto run = [&] {
    for (; !w.session.idle(); w.session.step()) most = std::max(most, w.session.under_way());
  };
  for (uint32_t i = 0; i < w.regions; ++i) w.governments.read(kTable, {i}, answer);
  w.governments.read(kTable, {7}, answer);  // asked for twice: the second is answered
  run();
  EXPECT_EQ(w.session.syncs, 2U);  // the first went alone
  EXPECT_EQ(read, w.regions);
  EXPECT_EQ(cancelled, 1U);
  EXPECT_LE(most, 600U);

  read = cancelled = most = w.session.reads = 0;
  for (uint32_t i = 0; i < w.regions; ++i)
    w.governments.read_votes(
        kTable, {i}, [i] { return i % 2 == 0; }, answer);
  w.governments.read_votes(kTable, {998}, nullptr, answer);
  run();
  EXPECT_EQ(read, w.regions / 2);
  EXPECT_EQ(cancelled, w.regions / 2 + 1);
  EXPECT_LE(most, 20U);
  EXPECT_EQ(w.session.reads, w.regions / 2);
}

TEST(Governments, a_conflict_in_one_region_costs_that_region_alone) {
  World w(300);
  const std::set<uint32_t> stale{0, 17, 18, 120, 299};
  std::map<uint32_t, Result<int32_t>> answers;
  for (uint32_t i = 0; i < w.regions; ++i)
    w.governments.swap(kTable, {i}, stale.contains(i) ? 3 : 0, World::government(i, 2),
                       [&, i](Result<int32_t> r) { EXPECT_TRUE(answers.emplace(i, std::move(r)).second) << i; });
  w.session.run();
  ASSERT_EQ(answers.size(), 300u);
  for (auto& [i, answer] : answers) {
    EXPECT_EQ(w.epoch_of(i), stale.contains(i) ? 1u : 2u);
    if (stale.contains(i))
      EXPECT_EQ(answer.error().code, Code::conflict);
    else
      EXPECT_EQ(answer.value(), 1);
  }
  EXPECT_EQ(w.session.multis.size(), 3u);  // the first goes alone
}

TEST(Governments, a_region_that_is_gone_is_a_conflict_of_its_own) {
  World w(3);
  w.session.tree.erase(w.layout.government(kTable, {1}));
  std::vector<std::optional<Code>> answers(3);
  for (uint32_t i = 0; i < 3; ++i)
    w.governments.swap(kTable, {i}, 0, World::government(i, 2),
                       [&, i](Result<int32_t> r) { answers[i] = r ? std::nullopt : std::optional(r.error().code); });
  w.session.run();
  EXPECT_EQ(answers, (std::vector<std::optional<Code>>{{}, Code::conflict, {}}));
}

// S27.
TEST(Governments, a_lost_answer_leaves_every_swap_of_that_multi_unknown_and_sends_none_again) {
  World w(10);
  size_t made = 0, unknown = 0;
  for (uint32_t i = 0; i < 10; ++i)
    w.governments.swap(kTable, {i}, 0, World::government(i, 2), [&](Result<int32_t> r) {
      made += r.has_value();
      unknown += !r && r.error().code == Code::outcome_unknown;
    });
  w.session.step();  // the first
  w.session.lose_next_multi = true;
  w.session.run();
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(unknown, 9u);
  EXPECT_EQ(w.session.multis.size(), 2u);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(w.epoch_of(i), 2u);
}

TEST(Governments, votes_of_two_servers_for_the_same_regions_all_stand) {
  World w(600);
  Governments other(w.session, w.layout);
  size_t done = 0;
  const auto count = [&](const base::Status& s) { done += s.has_value(); };
  for (uint32_t i = 0; i < w.regions; ++i) {
    w.governments.put_vote(kTable, {i}, World::vote(i, "p1"), count);
    other.put_vote(kTable, {i}, World::vote(i, "p2"), count);
  }
  w.session.run();
  EXPECT_EQ(done, 1200u);
  EXPECT_EQ(w.session.multis.size(), 6u);  // of each two and the first: none is refused
  for (uint32_t i = 0; i < w.regions; ++i) ASSERT_EQ(w.votes_of(i), 2u) << i;
}

// S34.
TEST(Governments, a_vote_that_stands_there_is_made_anew) {
  World w(2);
  const auto put = [&](uint32_t i, uint64_t promise) {
    bool done = false;
    w.governments.put_vote(kTable, {i}, World::vote(i, "p1", promise),
                           [&](const base::Status& s) { done = s.has_value(); });
    w.session.run();
    return done;
  };
  EXPECT_TRUE(put(0, 2));
  EXPECT_TRUE(put(0, 3));
  EXPECT_EQ(parse_vote(w.session.tree.at(w.layout.vote(kTable, {0}, {{1}, {7}}, {"p1"})).value)->promise.value, 3u);
}

TEST(Governments, a_vote_that_is_removed_is_not_there_whether_it_was_or_not) {
  World w(400);
  Governments other(w.session, w.layout);
  size_t done = 0;
  const auto count = [&](const base::Status& s) { done += s.has_value(); };
  for (uint32_t i = 0; i < w.regions; ++i) {
    if (i % 3 != 0) w.governments.put_vote(kTable, {i}, World::vote(i, "p1"), count);
    other.put_vote(kTable, {i}, World::vote(i, "p2"), count);
  }
  w.session.run();
  done = 0;
  for (uint32_t i = 0; i < w.regions; ++i) w.governments.remove_vote(kTable, {i}, {{1}, {7}}, {"p1"}, count);
  w.session.run();
  EXPECT_EQ(done, 400u);
  for (uint32_t i = 0; i < w.regions; ++i) ASSERT_EQ(w.votes_of(i), 1u) << i;
}

// A removal that is refused with those of other regions looks anew: it would take away the vote that was put meanwhile,
// and its owner would wait for ever for an election that needs it.
TEST(Governments, a_vote_that_is_put_while_it_is_being_removed_stands) {
  World w(3);
  std::map<std::string, base::Status> done;
  const auto put = [&](uint64_t promise, const std::string& what) {
    w.governments.put_vote(kTable, {1}, World::vote(1, "p1", promise), [&done, what](auto s) { done[what] = s; });
  };
  const auto remove = [&](uint32_t i) {
    w.governments.remove_vote(kTable, {i}, {{1}, {7}}, {"p1"}, [](const base::Status&) {});
  };
  const auto promise = [&] {
    return parse_vote(w.session.tree.at(w.layout.vote(kTable, {1}, {{1}, {7}}, {"p1"})).value)->promise.value;
  };
  put(2, "first");
  w.session.run();
  remove(0);  // goes alone
  remove(1);
  remove(2);  // is not there, so that both are refused
  put(3, "second");
  w.session.run();
  ASSERT_EQ(w.votes_of(1), 1u);
  EXPECT_EQ(promise(), 3u);
  EXPECT_TRUE(done.at("second"));
  remove(1);
  put(4, "third");
  put(5, "fourth");
  w.session.run();
  ASSERT_EQ(w.votes_of(1), 1u);
  EXPECT_EQ(promise(), 5u);
  EXPECT_EQ(done.at("third").error().code, Code::cancelled) << "the fourth has taken its place";
  EXPECT_TRUE(done.at("fourth"));
  remove(1);
  put(6, "fifth");
  remove(1);
  w.session.run();
  EXPECT_EQ(w.votes_of(1), 0u) << "what was asked for last";
}

TEST(Governments, a_vote_of_a_tenure_that_is_over_is_taken_away_whenever_that_is_possible) {
  World w(2);
  const auto put = [&](uint32_t i) {
    w.governments.put_vote(kTable, {i}, World::vote(i, "p1"), [](const base::Status&) {});
    w.session.run();
  };
  const auto forget = [&](uint32_t i) { w.governments.forget_vote(kTable, {i}, {{1}, {7}}, {"p1"}); };
  put(0);
  w.session.refuse_next_multi = true;  // there is no connection
  forget(0);
  w.session.run();
  EXPECT_EQ(w.votes_of(0), 1u);
  w.governments.connected();
  w.session.run();
  EXPECT_EQ(w.votes_of(0), 0u);
  put(0);
  w.governments.connected();  // the next tenure's is not taken for it
  w.session.run();
  EXPECT_EQ(w.votes_of(0), 1u);
  put(1);
  w.session.refuse_next_multi = true;
  forget(1);
  put(1);
  w.governments.connected();
  w.session.run();
  EXPECT_EQ(w.votes_of(1), 1u);
}

TEST(Governments, reads_that_come_together_share_a_sync) {
  World w(500);
  size_t read = 0;
  for (uint32_t i = 0; i < w.regions; ++i)
    w.governments.read(kTable, {i}, [&](auto r) { read += r && *r && (*r)->government.epoch.value == 1; });
  w.session.run();
  EXPECT_EQ(read, 500u);
  EXPECT_EQ(w.session.syncs, 2u);  // the first had none to wait with
}

TEST(Governments, a_ring_names_those_it_is_for_and_its_maker_hears_nothing) {
  World w(5);
  Governments other(w.session, w.layout);
  std::vector<Ring> own, heard;
  w.governments.listen(kTable, [&](const Ring& r) { own.push_back(r); });
  other.listen(kTable, [&](const Ring& r) { heard.push_back(r); });
  w.session.run();
  ASSERT_EQ(own.size(), 1u);  // what was before
  EXPECT_TRUE(own[0].any());
  EXPECT_TRUE(heard.at(0).any());
  w.governments.swap(kTable, {3}, 0, World::government(3, 2), [](const Result<int32_t>&) {});
  w.session.run();
  EXPECT_EQ(own.size(), 1u);
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(heard[1], (Ring{{}, {{3}}}));
  other.put_vote(kTable, {4}, World::vote(4, "p2"), [](const base::Status&) {});
  w.session.run();
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[1], (Ring{{{{4}, World::vote(4, "p2")}}, {}}));
}

TEST(Governments, a_ring_that_was_missed_may_have_been_for_anybody) {
  World w(5);
  std::vector<Ring> heard;
  w.governments.listen(kTable, [&](const Ring& r) { heard.push_back(r); });
  w.session.run();
  const auto prefix = w.layout.ring_prefix(kTable);
  w.session.create(prefix, ring_line({1}), CreateMode::persistent_sequential, [](const auto&) {});
  w.session.run();
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_FALSE(heard[1].any());
  // Two, of which one is swept before anybody looks.
  w.session.multi({OpCreate{prefix, ring_line({2}), CreateMode::persistent_sequential}, OpRemove{prefix + "0000000001"},
                   OpCreate{prefix, ring_line({3}), CreateMode::persistent_sequential}},
                  [](const auto&) {});
  w.session.run();
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_TRUE(heard[2].any());
  // One that says nothing, as zkctl rings.
  w.session.create(prefix, "", CreateMode::persistent_sequential, [](const auto&) {});
  w.session.run();
  ASSERT_EQ(heard.size(), 4u);
  EXPECT_TRUE(heard[3].any());
}

}  // namespace
}  // namespace cantle::coord

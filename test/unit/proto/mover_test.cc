#include "lib/proto/mover.h"

#include <gtest/gtest.h>

#include "test/unit/proto/mover_rig.h"

namespace cantle::proto {
namespace {

using namespace mover;
using test::MoverRig;
using test::point;

// p1 with a table of one partition on p1, p2, p3.
struct Rig : MoverRig {
  explicit Rig(uint64_t seed = 1) : MoverRig(seed) { hold_own(); }
  void load(int n, uint32_t stamper = 1) {
    for (int i = 0; i < n; ++i) append("k" + std::to_string(1000 + clock++), stamper);
  }
  bool all_have_all() { return holds_all(copy("p2"), truth()) && holds_all(copy("p3"), truth()); }
  const StreamStatus stream(const std::string& server) {
    for (const auto& s : mover->streams(now))
      if (s.target.server.name == server) return s;
    ADD_FAILURE() << "no stream to " << server;
    return {};
  }
  Mark mark(const std::string& server) { return marks[{on("p1").id, model::ServerId{server}, on(server).id}]; }
  int clock = 0;
};

template <class E>
int count(const std::deque<Effect>& effects) {
  int n = 0;
  for (const auto& e : effects) n += std::holds_alternative<E>(e) ? 1 : 0;
  return n;
}

TEST(Mover, brings_every_target_what_it_lacks_and_records_the_position) {
  Rig r;
  r.load(23);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_EQ(r.mark("p2").at, point(23));
  EXPECT_EQ(r.mark("p3").at, point(23));
}

TEST(Mover, what_it_stamped_is_sent_unasked_what_others_stamped_is_offered_first) {
  Rig r;
  r.down.insert(model::ServerId{"p3"});
  r.load(4, 1);
  r.load(4, 2);  // stamped by p2
  r.copy("p2").take({r.log[4], r.log[5], r.log[6], r.log[7]});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }));
  EXPECT_EQ(r.copy("p2").blocks, 1);
  EXPECT_EQ(r.copy("p2").digests, 1);
  EXPECT_EQ(r.mover->counters().lacked, 0u);
}

TEST(Mover, only_what_the_target_lacks_is_sent) {
  Rig r;
  r.load(8, 4);  // p4 holds nothing of this table, so nobody else will bring it
  r.copy("p2").take({r.log[0], r.log[2], r.log[3]});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_EQ(r.mover->counters().records, 5u + 8u);
}

TEST(Mover, several_blocks_are_under_way_and_the_position_follows_the_confirmed_prefix) {
  Rig r;
  r.load(20);
  std::vector<SendBlock> blocks;
  r.swallow = [&](const Effect& e) {
    if (const auto* b = std::get_if<SendBlock>(&e); b != nullptr && b->to.name == "p2") {
      blocks.push_back(*b);
      return true;
    }
    return false;
  };
  r.view();
  r.run(std::chrono::seconds(1));
  ASSERT_EQ(blocks.size(), 5u);
  auto confirm = [&](size_t i) {
    r.copy("p2").take(test::lines(*blocks[i].records));
    r.feed(Confirmed{r.now, blocks[i].stream, blocks[i].ticket, base::ok()});
    r.run(std::chrono::milliseconds(500));
  };
  confirm(1);
  confirm(2);
  EXPECT_EQ(r.stream("p2").mark.at, point(0));  // the first is not confirmed
  confirm(0);
  EXPECT_EQ(r.stream("p2").mark.at, point(12));
  confirm(4);
  EXPECT_EQ(r.stream("p2").mark.at, point(12));
  confirm(3);
  EXPECT_EQ(r.mark("p2").at, point(20));
}

TEST(Mover, no_more_than_the_window_is_read_before_it_is_confirmed) {
  Rig r;
  r.block = 1000;
  for (int i = 0; i < 40000; ++i) r.append("k" + std::to_string(i), 1, std::string(1000, 'x'));
  r.swallow = [](const Effect& e) { return std::holds_alternative<SendBlock>(e); };
  r.view();
  r.run(std::chrono::seconds(2));
  EXPECT_GT(r.mover->bytes_under_way(), kStreamBytesMax);  // two streams
  EXPECT_LE(r.mover->bytes_under_way(), 2 * (kStreamBytesMax + kReadBytes));
}

TEST(Mover, goes_on_from_the_recorded_position_after_a_restart) {
  Rig r;
  r.load(16);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  const int blocks = r.copy("p2").blocks;
  r.restart();
  r.load(4);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.copy("p2").blocks, blocks + 1);
  EXPECT_TRUE(r.all_have_all());
}

TEST(Mover, a_position_that_the_log_does_not_contain_starts_again_from_the_last_one_it_does) {
  Rig r;
  r.load(8);
  r.copy("p2").take(r.log);
  // The position is of a life of the log that lost its tail: LSN 12 of epoch 9; eight are left.
  r.marks[{r.on("p1").id, model::ServerId{"p2"}, r.on("p2").id}] = {model::LogPoint{{9}, {12}, 1}, 0, {}};
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.mark("p2").at, point(8));
  r.load(8);
  r.logs_seen();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_EQ(r.copy("p2").blocks, 2);
  EXPECT_NE(std::find(r.notes.begin(), r.notes.end(), "position"), r.notes.end());
}

TEST(Mover, a_position_as_long_as_the_log_but_of_another_one_is_noticed) {
  Rig r;
  r.load(8);
  r.marks[{r.on("p1").id, model::ServerId{"p2"}, r.on("p2").id}] = {model::LogPoint{{1}, {8}, 12345}, 0, {}};
  r.copy("p2").take({r.log.begin(), r.log.begin() + 7});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_EQ(r.mark("p2").at, point(8));
}

TEST(Mover, another_tenure_starts_from_zero) {  // S6
  Rig r;
  r.load(10);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  const auto attempt = r.world.replace(model::ServerId{"p3"}, model::ServerId{"p4"}, true);
  r.view();
  r.run(std::chrono::seconds(2));
  EXPECT_EQ(r.copies[find_assignment(r.world.only(), model::ServerId{"p4"})->id].begins,
            0);  // PROPOSED: not before the barrier
  r.world.must(model::ops::Initialize{r.world.only().id, attempt});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p4").caught_up; }));
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p4"), r.truth()));
  EXPECT_EQ(r.copy("p4").blocks, 3);  // ten records, four a block: from the beginning
}

TEST(Mover, live_sends_are_given_time_before_the_mover_steps_in) {
  Rig r;
  r.load(4);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  const int blocks = r.copy("p2").blocks;
  for (int i = 0; i < 20; ++i) {
    r.load(1);
    r.logs_seen();
    r.run(std::chrono::milliseconds(100));
    r.copy("p2").take({r.log.back()});
    r.copy("p3").take({r.log.back()});
    for (const auto* s : {"p2", "p3"}) r.feed(LiveSeen{r.now, {r.on("p1").id, r.on(s).id}, point(r.log.size())});
  }
  r.run(std::chrono::seconds(3));
  EXPECT_EQ(r.copy("p2").blocks, blocks);
  EXPECT_EQ(r.mark("p2").at, point(r.log.size()));  // and the position followed
  r.load(1);                                        // a live send that got lost
  r.logs_seen();
  r.run(kGrace + std::chrono::seconds(1));
  EXPECT_EQ(r.copy("p2").blocks, blocks + 1);
}

TEST(Mover, a_target_that_live_sends_reached_is_offered_what_they_may_have_brought) {
  Rig r;
  r.load(4);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  r.run(std::chrono::seconds(1));
  const auto records = r.mover->counters().records;
  r.load(40);  // live sends brought it all, but their mark stood still before a record of somebody else's
  r.copy("p2").take(r.log);
  r.copy("p3").take(r.log);
  r.logs_seen();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.mover->counters().records, records);
  r.load(4000);  // and what they did not bring is sent, soon without asking
  r.logs_seen();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_LT(r.copy("p2").digests, 30);
}

// --- Trouble -----------------------------------------------------------------------------------------

TEST(Mover, a_target_that_fails_is_tried_again_and_holds_up_nobody) {
  Rig r;
  r.down.insert(model::ServerId{"p2"});
  r.load(40);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p3").caught_up; }));
  EXPECT_EQ(r.stream("p2").state, "retrying");
  EXPECT_NE(r.stream("p2").why.find("p2"), std::string::npos);
  r.run(std::chrono::minutes(2));
  EXPECT_LT(r.mover->counters().failures, 25u);  // backs off
  r.down.clear();
  r.view();  // p2 is registered again: at once, not when its backoff ends
  r.run(std::chrono::milliseconds(200));
  EXPECT_TRUE(r.all_have_all());
}

TEST(Mover, an_overloaded_target_gets_the_same_block_again_without_losing_the_others) {
  Rig r;
  r.load(40);
  r.overloaded[model::ServerId{"p2"}] = 6;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_EQ(r.copy("p2").begins, 1);
  EXPECT_EQ(r.mover->counters().failures, 0u);
}

TEST(Mover, blocks_that_are_refused_together_are_one_refusal) {
  Rig r;
  r.load(40);
  r.overloaded[model::ServerId{"p2"}] = 10;  // all that were under way
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::milliseconds(400)));
}

TEST(Mover, late_answers_of_an_attempt_that_failed_are_dropped) {  // S25
  Rig r;
  r.load(8);
  std::vector<SendBlock> blocks;
  r.swallow = [&](const Effect& e) {
    if (const auto* b = std::get_if<SendBlock>(&e); b != nullptr && b->to.name == "p2")
      return blocks.push_back(*b), true;
    return false;
  };
  r.view();
  r.run(std::chrono::seconds(1));
  ASSERT_EQ(blocks.size(), 2u);
  r.feed(Confirmed{r.now, blocks[0].stream, blocks[0].ticket, base::fail(base::Code::outcome_unknown, "broke")});
  r.feed(Confirmed{r.now, blocks[1].stream, blocks[1].ticket, base::ok()});
  r.feed(Confirmed{r.now, blocks[0].stream, blocks[0].ticket, base::ok()});
  EXPECT_EQ(r.stream("p2").mark.at, point(0));
}

TEST(Mover, a_stale_map_is_asked_for_anew) {
  Rig r;
  r.load(4);
  r.swallow = [&](const Effect& e) {
    const auto* b = std::get_if<SendBegin>(&e);
    if (b == nullptr || b->to.name != "p2") return false;
    r.pending.emplace_back(Began{r.now, b->stream, b->ticket, base::fail(base::Code::stale_route, "newer")});
    return true;
  };
  r.view();
  r.settle();
  EXPECT_GT(r.views_asked, 0);
}

TEST(Mover, pauses_without_a_view_and_goes_on_with_the_next) {
  Rig r;
  r.load(8);
  r.view();
  r.settle();
  r.feed(ViewLost{r.now, "the partition server is not running"});
  r.load(8);
  r.logs_seen();
  r.run(std::chrono::seconds(5));
  EXPECT_TRUE(r.mover->paused());
  EXPECT_EQ(r.stream("p2").why, "the partition server is not running");
  r.incarnation = {2};
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
}

// --- bulk.end ----------------------------------------------------------------------------------------

TEST(Mover, the_end_is_told_only_for_a_position_past_the_end_measured_after_the_map) {  // S43
  Rig r;
  r.load(4);
  std::vector<Measure> measures;
  r.swallow = [&](const Effect& e) {
    const auto* m = std::get_if<Measure>(&e);
    return m != nullptr ? (measures.push_back(*m), true) : false;
  };
  r.view();
  r.feed(LogsSeen{r.now, 0, r.log_states()});  // an end that was measured before the map
  r.run(std::chrono::seconds(3));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_TRUE(r.copy("p2").ends.empty());
  r.load(4);  // written under an older map, ended before the map was shown
  ASSERT_FALSE(measures.empty());
  r.feed(LogsSeen{r.now, measures.back().number, r.log_states()});
  r.run(std::chrono::seconds(3));
  ASSERT_FALSE(r.copy("p2").ends.empty());
  EXPECT_EQ(r.copy("p2").ends.front().through, point(8));
  EXPECT_EQ(r.copy("p2").ends.front().envelope.txnseq, r.world.map->txnseq);
}

TEST(Mover, a_new_map_of_the_partition_needs_a_new_end) {
  Rig r;
  r.load(4);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return !r.copy("p2").ends.empty(); }));
  const auto attempt = r.world.split({}, {});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.copy("p2").ends.back().envelope.txnseq == r.world.map->txnseq; }));
  (void)attempt;
}

TEST(Mover, a_target_that_started_again_is_told_the_end_again) {
  Rig r;
  r.load(4);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done() && r.copy("p2").ends.size() == 1; }));
  r.run(std::chrono::minutes(1));
  EXPECT_EQ(r.copy("p2").ends.size(), 1u);  // nothing new: once is enough
  r.incarnations[model::ServerId{"p2"}] = {2};
  r.view();
  r.run(std::chrono::seconds(1));
  EXPECT_EQ(r.copy("p2").ends.size(), 2u);
  r.load(1);  // it may be waiting for exactly this one
  r.logs_seen();
  r.run(std::chrono::seconds(2));
  EXPECT_EQ(r.copy("p2").ends.back().through, point(5));
}

TEST(Mover, one_that_is_being_filled_is_told_again_and_again) {
  Rig r;
  r.load(4);
  const auto attempt = r.world.replace(model::ServerId{"p3"}, model::ServerId{"p4"}, true);
  r.world.must(model::ops::Initialize{r.world.only().id, attempt});
  r.view();
  r.run(std::chrono::seconds(20));
  EXPECT_GE(r.copy("p4").ends.size(), 5u);  // it may have lost count by a restart
}

// --- Foreign records ---------------------------------------------------------------------------------

TEST(Mover, what_its_living_stamper_will_push_is_left_to_it) {
  Rig r;
  r.load(8, 3);  // stamped by p3, which lives and pushes to p2 too
  r.view();
  r.run(std::chrono::milliseconds(150));
  EXPECT_EQ(r.copy("p2").blocks, 0);
  EXPECT_EQ(r.stream("p2").why, "waits for another server to push what it stamped");
  r.copy("p2").take(r.log);  // p3 did
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }));
  EXPECT_EQ(r.copy("p2").blocks, 0);
}

TEST(Mover, what_its_stamper_does_not_bring_is_sent_after_all) {
  Rig r;
  r.load(8, 3);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::seconds(30)));
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p2"), r.truth()));
}

TEST(Mover, what_another_mover_says_is_there_is_neither_offered_nor_read_again) {
  Rig r;
  r.load(8, 3);
  r.load(4, 1);
  r.copy("p2").take({r.log.begin(), r.log.begin() + 8});
  r.delivered = {{r.log[0].version, r.log[8].version, true}};
  r.delivered[0].before = test::stamp(5000, 3);
  r.down.insert(model::ServerId{"p3"});  // its stream is not what this is about
  auto view = r.make_view();
  for (auto& p : view.peers) p.live = true;
  r.feed(ViewSeen{r.now, view});
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::seconds(2)));
  EXPECT_EQ(r.copy("p2").digests, 0);
  EXPECT_GE(r.copy("p2").questions, 1);
  EXPECT_EQ(r.copy("p2").blocks, 1);
  EXPECT_EQ(r.mover->counters().settled, 8u);
  EXPECT_EQ(r.mark("p2").at, point(12));
}

TEST(Mover, what_the_other_mover_does_not_speak_for_is_read_again_and_offered) {
  Rig r;
  r.load(8, 3);
  r.copy("p2").take({r.log.begin(), r.log.begin() + 7});
  r.delivered = {{r.log[0].version, r.log[6].version, true}};  // the seventh is there, but it does not say so
  r.down.insert(model::ServerId{"p3"});
  auto view = r.make_view();
  for (auto& p : view.peers) p.live = true;
  r.feed(ViewSeen{r.now, view});
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::seconds(30)));
  EXPECT_EQ(r.mover->counters().settled, 4u);
  EXPECT_EQ(r.mover->counters().lacked, 1u);
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p2"), r.truth()));
}

// The other mover speaks up while what was passed over is read again, and the stream comes to rest before that read
// answers: what is passed over later is read again all the same.
TEST(Mover, reads_again_after_an_earlier_such_read_answered_too_late) {
  Rig r;
  r.load(4, 3);
  r.copy("p2").take(r.log);
  r.down.insert(model::ServerId{"p3"});
  auto view = r.make_view();
  for (auto& p : view.peers) p.live = true;
  std::optional<ReadLog> late;
  r.swallow = [&](const Effect& e) {
    const auto* read = std::get_if<ReadLog>(&e);
    if (late || read == nullptr || read->until.value == 0 || read->stream.target != r.on("p2").id) return false;
    late = *read;
    return true;
  };
  r.feed(ViewSeen{r.now, view});
  ASSERT_TRUE(r.run_until([&] { return late.has_value(); }, std::chrono::seconds(2)));
  r.delivered = {{r.log[0].version, test::stamp(1100, 3), true}};
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::seconds(2)));
  ASSERT_EQ(r.stream("p2").state, "idle");
  LogRead answer;
  answer.now = r.now;
  answer.stream = late->stream;
  answer.ticket = late->ticket;
  answer.batch.through = point(4);
  for (const auto& rec : r.log) answer.batch.foreign.push_back({{rec.key, rec.version}, test::line(rec)});
  r.feed(answer);

  // It lacks all it is offered: from then on what p3 stamped is left to p3, whose mover does not come.
  r.load(200, 1);
  r.load(4, 3);
  ASSERT_LT(r.log[203].version, test::stamp(1300, 3));
  r.logs_seen();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::seconds(60))) << r.stream("p2").why;
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p2"), r.truth()));
}

// What was passed over stands in front of more than a stream may have under way, all of it offered and found to be
// there: it is read again all the same.
TEST(Mover, what_was_found_to_be_there_is_not_under_way_any_more) {
  Rig r;
  const std::string large(600000, 'x');
  for (const uint32_t there : {0u, 4u}) {  // of each eight: the others lack
    SCOPED_TRACE(there);
    r.load(4, 3);
    for (int i = 0; i < 64; ++i) r.append("large" + std::to_string(r.clock++), 2, large);
    for (size_t i = r.log.size() - 64; i < r.log.size(); ++i)
      if (i % 8 >= there) r.copy("p2").take({r.log[i]});
    r.down.insert(model::ServerId{"p3"});
    auto view = r.make_view();
    for (auto& p : view.peers) p.live = true;
    r.feed(ViewSeen{r.now, view});
    r.logs_seen();
    ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }, std::chrono::seconds(60))) << r.stream("p2").why;
    EXPECT_TRUE(MoverRig::holds_all(r.copy("p2"), r.truth()));
  }
}

// What it says of its own stamps is answered only after a snapshot was begun: nothing is waited for any more.
TEST(Mover, a_question_answered_after_a_snapshot_began_is_an_answer_like_others) {
  Rig r;
  r.load(8);
  std::optional<SendDigest> late;
  r.swallow = [&](const Effect& e) {
    const auto* question = std::get_if<SendDigest>(&e);
    if (late || question == nullptr || !question->message.entries.empty() || question->to.name != "p2") return false;
    late = *question;
    return true;
  };
  r.view();
  ASSERT_TRUE(r.run_until([&] { return late && r.mover->all_done(); }, std::chrono::seconds(5)));
  r.load(8);
  r.oldest = 15;
  r.logs_seen();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }, std::chrono::seconds(5)));
  r.feed(Digested{r.now, late->stream, late->ticket, model::DigestReply{}});
  r.run(2 * kAnswerWithin);
  EXPECT_EQ(r.mover->counters().failures, 0u) << r.stream("p2").why;
  EXPECT_GE(r.copy("p2").ingests, 1);
}

TEST(Mover, says_of_its_own_stamps_only_what_is_confirmed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rig r(seed);
    for (int i = 0; i < 12; ++i) r.load(1 + static_cast<int>(r.random.below(8)), i % 4 == 3 ? 3 : 1);
    r.lose = 0.03;
    r.view();
    ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }))
        << seed << ": " << r.stream("p2").state << ": " << r.stream("p2").why << "; " << r.stream("p3").state << ": "
        << r.stream("p3").why;
    EXPECT_TRUE(r.all_have_all()) << seed;
    EXPECT_GT(r.delivered_said, 0u) << seed;
  }
}

TEST(Mover, does_not_speak_for_what_lay_in_a_damaged_place) {
  Rig r;
  r.load(24);
  r.damaged = 10;
  r.applied = 9;
  r.rotten = true;  // in the log, and not in the index: the partition server has it compared
  bool spoke = false;
  r.swallow = [&](const Effect& e) {
    std::optional<model::Delivered> said;
    if (const auto* b = std::get_if<SendBlock>(&e)) said = b->message.delivered;
    if (const auto* d = std::get_if<SendDigest>(&e)) said = d->message.delivered;
    spoke = spoke || said;
    const auto& lost = r.log[9].version;
    EXPECT_FALSE(said && said->from <= lost && lost < said->before);
    return false;
  };
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(spoke);
}

// The rig sees to it that no position passes what the target does not have.
TEST(Mover, what_stood_in_a_damaged_place_of_the_log_comes_in_a_snapshot) {  // S62
  Rig r;
  r.load(24);
  r.damaged = 10;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  r.load(8);
  r.logs_seen();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_EQ(std::count(r.notes.begin(), r.notes.end(), "snapshot"), 2) << "one for each target";
}

TEST(Mover, the_snapshot_waits_until_the_index_is_past_the_damaged_place) {  // S62
  Rig r;
  r.load(24);
  r.damaged = 10;
  r.applied = 9;
  r.view();
  r.run(std::chrono::seconds(10));
  EXPECT_EQ(std::count(r.notes.begin(), r.notes.end(), "snapshot"), 0);
  EXPECT_FALSE(r.mover->all_done());
  r.applied = 10;
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
}

TEST(Mover, what_is_neither_in_the_log_nor_in_the_index_holds_up_nothing_for_long) {  // S62
  Rig r;
  r.load(24);
  r.damaged = 10;
  r.applied = 9;  // a server that started again applies no damaged place
  r.rotten = true;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }, 2 * kGapWaitMost));
  EXPECT_EQ(r.mark("p2").at, point(24));
}

TEST(Mover, from_zero_again_means_the_damaged_place_again) {  // S54, S62
  Rig r;
  r.load(24);
  r.damaged = 10;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  r.rotten = true;
  r.copy("p2").holds.erase(r.log[9].key);
  r.feed(Asked{r.now, Verb::requeue, ""});
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
}

TEST(Mover, a_server_that_is_brought_what_it_missed_does_not_offer_it_back_meanwhile) {
  Rig r;
  r.held[0].catching_up = true;
  r.view();
  for (int i = 0; i < 10; ++i) {
    r.load(4, 2);
    r.logs_seen();
    r.run(std::chrono::milliseconds(200));
  }
  EXPECT_EQ(r.copy("p2").digests + r.copy("p3").digests + r.copy("p3").blocks, 0);
  ASSERT_TRUE(r.run_until([&] { return r.all_have_all(); }));  // it is not forgotten
  r.held[0].catching_up = true;
  for (int i = 0; i < 60; ++i) {  // and what never ends is not waited for
    r.load(4, 2);
    r.logs_seen();
    r.run(std::chrono::milliseconds(200));
  }
  EXPECT_GT(r.mark("p3").at.lsn.value, 60u);
}

TEST(Mover, settled_records_are_not_even_offered_but_a_new_replica_gets_them) {
  Rig r;
  r.load(8, 3);
  r.held[0].settled.push_back({r.log.back().version, r.world.map->txnseq});
  r.copy("p2").take(r.log);
  r.copy("p3").take(r.log);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.copy("p2").digests, 0);
  EXPECT_EQ(r.mover->counters().settled, 16u);
  const auto attempt = r.world.replace(model::ServerId{"p2"}, model::ServerId{"p4"}, true);
  r.world.must(model::ops::Initialize{r.world.only().id, attempt});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p4").caught_up; }));
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p4"), r.truth()));  // p4 was not meant by that promise
}

TEST(Mover, a_target_that_lacks_all_it_is_offered_gets_the_rest_unasked) {
  Rig r;
  r.load(400, 5);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_LT(r.copy("p2").digests, 10);
}

// --- Snapshots ---------------------------------------------------------------------------------------

TEST(Mover, outside_the_retention_a_snapshot_goes_first_and_then_the_log_from_its_beginning) {  // S22
  Rig r;
  r.load(30);
  r.oldest = 21;
  r.applied = 25;
  bool grown = false;
  r.swallow = [&](const Effect& e) {
    const auto* b = std::get_if<SendBlock>(&e);
    if (b != nullptr && b->message.kind == model::BulkKind::snapshot && !grown) {
      grown = true;  // writes go on while the snapshot is copied
      r.append("k1002", 1, "new");
      r.append("zz", 1);
    }
    return false;
  };
  r.view();
  ASSERT_TRUE(r.run_until([&] {
    r.logs_seen();
    return r.mover->all_done();
  }));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_GT(r.copy("p2").ingests, 0);
  EXPECT_GT(r.copy("p2").blocks, 0);
  EXPECT_EQ(r.mark("p2").snapshot, 0u);
}

TEST(Mover, a_snapshot_resumes_behind_the_last_key_after_a_restart) {  // R18
  Rig r;
  r.load(40);
  r.oldest = 41;
  r.down.insert(model::ServerId{"p3"});
  int chunks = 0;
  r.swallow = [&](const Effect& e) {
    const auto* b = std::get_if<SendBlock>(&e);
    return b != nullptr && b->message.kind == model::BulkKind::snapshot && ++chunks > 5;
  };
  r.view();
  r.run(std::chrono::seconds(1));
  const uint64_t number = r.copy("p2").snapshot;
  const int ingests = r.copy("p2").ingests;
  ASSERT_EQ(ingests, 5);
  r.swallow = nullptr;
  r.restart();
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }));
  EXPECT_EQ(r.copy("p2").snapshot, number);
  EXPECT_EQ(r.copy("p2").ingests, 10);  // forty keys, four a chunk, none twice
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p2"), r.truth()));
}

TEST(Mover, a_snapshot_whose_log_was_retired_meanwhile_begins_anew) {
  Rig r;
  r.load(40);
  r.oldest = 41;
  r.marks[{r.on("p1").id, model::ServerId{"p2"}, r.on("p2").id}] = {{}, 77, point(10)};
  r.copy("p2").snapshot = 77;
  r.copy("p2").filled_all = true;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_NE(r.copy("p2").snapshot, 77u);
  EXPECT_TRUE(r.all_have_all());
}

TEST(Mover, an_empty_copy_outside_the_retention_is_complete_at_once) {
  Rig r;
  r.load(3);
  r.held[0].interval = {"x", "y"};  // nothing of the log lies in what is held
  r.oldest = 4;
  r.view();
  r.run(std::chrono::seconds(1));
  EXPECT_TRUE(r.copy("p2").filled_all);
}

// --- Operators ---------------------------------------------------------------------------------------

TEST(Mover, what_is_held_waits_and_what_is_released_goes_on) {
  Rig r;
  r.load(8);
  r.feed(Asked{r.now, Verb::hold, "p2"});
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.stream("p3").caught_up; }));
  EXPECT_EQ(r.copy("p2").begins, 0);
  EXPECT_EQ(r.stream("p2").state, "held");
  EXPECT_EQ(r.mover->holds(), std::set<std::string>{"p2"});
  r.feed(Asked{r.now, Verb::release, "p2"});
  ASSERT_TRUE(r.run_until([&] { return r.stream("p2").caught_up; }));
  EXPECT_TRUE(r.all_have_all());
}

TEST(Mover, requeue_begins_from_zero) {
  Rig r;
  r.load(8);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  r.copy("p2").holds.clear();  // rotten
  r.feed(Asked{r.now, Verb::requeue, to_string(r.on("p2").id).substr(0, 8)});
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done() && r.all_have_all(); }));
}

TEST(Mover, wake_ends_a_backoff) {
  Rig r;
  r.load(8);
  r.down.insert(model::ServerId{"p2"});
  r.view();
  r.run(std::chrono::minutes(2));
  r.down.clear();
  r.feed(Asked{r.now, Verb::wake, "p2"});
  r.settle();
  EXPECT_TRUE(MoverRig::holds_all(r.copy("p2"), r.truth()));
}

// --- Every fault at once -------------------------------------------------------------------------------

TEST(Mover, whatever_fails_in_between_the_targets_have_everything_in_the_end) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Rig r(seed);
    r.lose = 0.15;
    if (seed % 3 == 0) r.oldest = 20, r.load(25, 1);
    r.view();
    for (int round = 0; round < 8; ++round) {
      r.load(static_cast<int>(r.random.below(20)), 1 + static_cast<uint32_t>(r.random.below(5)));
      r.logs_seen();
      r.run(std::chrono::milliseconds(r.random.below(3000)));
      if (r.random.chance(0.2)) r.restart(), r.view();
      if (r.random.chance(0.2)) ++r.incarnations[model::ServerId{"p2"}].value, r.view();
      if (r.random.chance(0.2)) r.down = {model::ServerId{r.random.chance(0.5) ? "p2" : "p3"}}, r.view();
      if (r.random.chance(0.3)) r.oldest = std::max<uint64_t>(r.oldest, r.log.size() / 2);
      if (r.random.chance(0.3)) r.down.clear(), r.view();
    }
    r.lose = 0;
    r.down.clear();
    r.view();
    r.logs_seen();
    ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }))
        << "seed " << seed << " " << r.stream("p2").why << r.stream("p3").why;
    ASSERT_TRUE(r.all_have_all()) << "seed " << seed;
    EXPECT_EQ(r.mover->bytes_under_way(), 0u);
  }
}

TEST(Mover, a_crash_before_any_effect_ends_the_same) {
  for (int at = 0; at < 120; ++at) {
    Rig r;
    r.load(12, 1);
    r.load(6, 5);
    r.oldest = at % 2 == 0 ? 1 : 10;
    r.crash_in = at;
    r.view();
    ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); })) << at;
    ASSERT_TRUE(r.all_have_all()) << at;
  }
}

// --- a copy that was itself filled by a snapshot: its log does not have that -------------------------------------

// p3 is replaced by p4, which is being filled; p1 was filled by a snapshot once. What came with it is in no log: the
// rig's log has it in front, where the journal no longer reaches.
struct Hollow : Rig {
  explicit Hollow(model::AssignmentState to) {
    const auto attempt = world.replace(model::ServerId{"p3"}, model::ServerId{"p4"}, true);
    world.must(model::ops::Initialize{world.only().id, attempt});
    if (to == model::AssignmentState::available)
      world.must(model::ops::MarkAvailable{on("p4").id, model::ServerId{"p4"}});
    hold_own();
    held[0].hollow = true;
    rotten = true;
    load(20);
  }
  int snapshots() { return static_cast<int>(std::count(notes.begin(), notes.end(), "snapshot")); }
};

TEST(Mover, a_target_to_be_filled_gets_a_snapshot_from_a_copy_that_was_filled_by_one) {
  Hollow r(model::AssignmentState::initializing);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_GT(r.copy("p4").ingests, 0);
  EXPECT_EQ(r.copy("p2").ingests, 0);  // it counts already, so it has what was there before p1
  EXPECT_EQ(r.snapshots(), 1);
  ASSERT_FALSE(r.copy("p4").ends.empty());
  r.restart();
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.snapshots(), 1);
}

// Its own damage may have taken what the target has to have (S62); the others know it first.
TEST(Mover, a_copy_that_has_not_caught_up_says_to_nobody_that_it_has_filled_it) {
  Hollow r(model::AssignmentState::initializing);
  r.held[0].catching_up = true;
  r.view();
  r.run(std::chrono::seconds(20));
  EXPECT_TRUE(r.all_have_all());
  EXPECT_TRUE(r.copy("p4").ends.empty());
  EXPECT_FALSE(r.copy("p2").ends.empty());
  r.held[0].catching_up = false;
  r.view();
  EXPECT_TRUE(r.run_until([&] { return !r.copy("p4").ends.empty(); }));
}

TEST(Mover, one_that_was_filled_meanwhile_is_not_sent_one) {
  Hollow r(model::AssignmentState::available);
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.snapshots(), 0);
}

TEST(Mover, live_sends_alone_do_not_fill) {
  Hollow r(model::AssignmentState::initializing);
  const StreamId stream{r.on("p1").id, r.on("p4").id};
  bool copied = false, early = false;
  r.swallow = [&](const Effect& e) {
    const auto* b = std::get_if<SendBlock>(&e);
    copied = copied || (b != nullptr && b->stream == stream && b->message.last);
    const auto* end = std::get_if<SendEnd>(&e);
    early = early || (end != nullptr && end->stream == stream && !copied);
    if (std::holds_alternative<OpenSnapshot>(e)) r.feed(LiveSeen{r.now, stream, point(20)});
    return false;
  };
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_TRUE(copied);
  EXPECT_FALSE(early);
  EXPECT_EQ(r.mark("p4").at, point(20));
}

TEST(Mover, a_copy_whose_log_is_empty_gives_its_snapshot_once) {
  Hollow r(model::AssignmentState::initializing);
  r.log.clear();
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  r.run(std::chrono::seconds(20));
  EXPECT_EQ(r.snapshots(), 1);
  EXPECT_FALSE(r.copy("p4").ends.empty());
}

TEST(Mover, what_became_hollow_while_the_log_was_sent_is_copied_too) {
  Hollow r(model::AssignmentState::initializing);
  r.held[0].hollow = false;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.mover->all_done(); }));
  EXPECT_EQ(r.snapshots(), 0);
  r.held[0].hollow = true;
  r.view();
  ASSERT_TRUE(r.run_until([&] { return r.snapshots() == 1 && r.mover->all_done(); }));
  EXPECT_GT(r.copy("p4").ingests, 0);
}

}  // namespace
}  // namespace cantle::proto

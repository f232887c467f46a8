// The cut of a split at the parent's leader (lib/proto/quorum_cut.h), alone with a voter that it is itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lib/base/random.h"
#include "lib/proto/quorum_cut.h"

namespace cantle::proto::quorum {
namespace {

using namespace std::chrono_literals;
using base::Code;
using model::BlockKind;
using model::CutReport;
using model::Lsn;

class CutRig : public testing::Test, public Gatherer {
 protected:
  CutRig() { self.server.name = "p1"; }

  Judged gather(RequestId, BatchId, model::Epoch, Lsn) override { return {1, 10, {}, true}; }

  // What the store would do: append, sync.
  void perform() {
    Effects effects;
    effects.swap(out);
    for (auto& e : effects) {
      if (const auto* b = std::get_if<Build>(&e)) {
        const model::LogPoint end{b->epoch, b->first, ++crc};
        kinds.push_back(b->kind);
        leader->built(now, b->batch, Leader::Placed{b->first, end, 0}, out);
        if (!synced) continue;
        log.durable(end);
        leader->durable(now, out);
      } else if (const auto* read = std::get_if<ReadReshape>(&e)) {
        asked = read->number;
      } else if (const auto* a = std::get_if<AskAbort>(&e)) {
        aborts.push_back(a->attempt);
        abort_pair = a->merge;
      } else if (const auto* open = std::get_if<SendOpen>(&e)) {
        opens.push_back(*open);
      } else if (const auto* reply = std::get_if<Reply>(&e)) {
        replies.push_back(*reply);
      }
    }
    if (!out.empty()) perform();
  }
  void lead(uint64_t epoch) {
    leader = std::make_unique<Leader>(self, model::Epoch{epoch}, model::Voters{{0, self.server, self.assignment}}, log,
                                      *this, Pipeline::star);
    leader->begin(now, out);
    perform();
  }
  void think() {
    const auto report = cut.think(now, leader.get(), log, government, out);
    if (report) said = *report;
    perform();
  }
  // The coordination service answers that METADATA says this.
  void answer(const ReshapeSeen& state) {
    ASSERT_TRUE(asked);
    cut.read(now, *std::exchange(asked, std::nullopt), state);
    think();
  }
  void pass(base::Duration d) {
    now = now + d;
    think();
  }
  ReshapeSeen under_way() const { return {true, attempt, true, {{self.server}, {self.server}}}; }
  static ReshapeSeen none() { return {true, {}, false, {}}; }
  void make_cut() {
    cut.seen(under_way());
    think();
    answer(under_way());
    think();
  }

  base::SeededRandom random{1};
  model::AttemptId attempt = model::AttemptId::draw(random);
  model::Hop self{{}, model::AssignmentId::draw(random)};
  base::Instant now{10s};
  Log log{{}, {}, {}};
  Effects out;
  std::unique_ptr<Leader> leader;
  Cut cut;
  std::optional<CutReport> government, said;
  std::optional<uint64_t> asked;
  std::vector<model::AttemptId> aborts;
  std::optional<MergePair> abort_pair;
  std::vector<BlockKind> kinds;
  std::vector<Reply> replies;
  std::vector<SendOpen> opens;
  uint32_t crc = 0;
  bool synced = true;
};

TEST_F(CutRig, cuts_when_the_coordination_service_has_just_said_so) {
  lead(1);
  cut.seen(under_way());
  think();
  EXPECT_FALSE(log.open_cut());
  now = now + 250ms;  // the answer took too long
  answer(under_way());
  EXPECT_FALSE(log.open_cut());
  now = now + 100ms;
  think();
  answer(under_way());
  ASSERT_TRUE(log.open_cut());
  EXPECT_EQ(log.open_cut()->attempt, attempt);
  EXPECT_EQ(kinds.back(), BlockKind::cut);
  EXPECT_TRUE(leader->parked());
}

TEST_F(CutRig, cuts_nothing_that_is_over_or_may_not_be_cut_yet) {
  lead(1);
  cut.seen(under_way());
  think();
  answer(none());
  pass(150ms);
  auto early = under_way();
  early.may_cut = false;
  answer(early);
  EXPECT_FALSE(log.open_cut());
}

TEST_F(CutRig, reports_a_cut_when_it_is_committed) {
  lead(1);
  synced = false;
  make_cut();
  ASSERT_TRUE(log.open_cut());
  EXPECT_FALSE(said);
  log.durable(log.end());
  leader->durable(now, out);
  think();
  ASSERT_TRUE(said);
  EXPECT_EQ(*said, (CutReport{attempt, log.end(), {self.server}}));
}

TEST_F(CutRig, writes_wait_behind_a_cut_and_go_on_behind_the_uncut) {
  lead(1);
  make_cut();
  leader->write(now, 7, 10, now + 60s, out);
  leader->flush(now, out);
  perform();
  EXPECT_TRUE(replies.empty());
  answer(none());
  EXPECT_FALSE(log.open_cut());
  EXPECT_EQ(kinds.back(), BlockKind::uncut);
  leader->tick(now, out);
  perform();
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_TRUE(replies[0].result.has_value());
}

// S27: the report first, so that nobody can finish what is taken back.
TEST_F(CutRig, takes_the_report_back_before_the_cut) {
  lead(1);
  make_cut();
  government = said;
  ASSERT_TRUE(government);
  pass(100ms);
  answer(none());
  EXPECT_FALSE(said);
  EXPECT_TRUE(log.open_cut());
  government.reset();
  think();
  EXPECT_FALSE(log.open_cut());
}

TEST_F(CutRig, neither_time_nor_silence_takes_a_cut_back) {
  lead(1);
  make_cut();
  for (int i = 0; i < 100; ++i) pass(1s);
  EXPECT_TRUE(log.open_cut());
  EXPECT_GE(aborts.size(), 90U);
  EXPECT_EQ(aborts.front(), attempt);
  // Nor what was asked before the log ended in it, nor that the partition is no more.
  cut.read(now, 1, none());
  think();
  EXPECT_TRUE(log.open_cut());
  answer(ReshapeSeen{});
  EXPECT_TRUE(log.open_cut());
}

TEST_F(CutRig, who_leads_with_a_cut_in_its_log_is_parked_from_its_first_moment) {
  lead(1);
  make_cut();
  leader->stop({Code::not_leader, "another"}, out);
  lead(2);
  EXPECT_TRUE(leader->parked());
  leader->write(now, 8, 10, now + 60s, out);
  perform();
  EXPECT_TRUE(replies.empty());
  EXPECT_EQ(kinds.back(), BlockKind::epoch_start);
  think();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->at.epoch.value, 1U);
}

// A merge's leader says who has the cut: itself, and each voter once that has confirmed it. Whoever has it keeps it, so
// that a leader that comes later takes nothing back.
class MergeCutRig : public CutRig {
 protected:
  MergeCutRig() {
    for (auto* hop : {&second, &third}) hop->assignment = model::AssignmentId::draw(random);
    second.server.name = "p2";
    third.server.name = "p3";
    pair = {model::PartitionId::draw(random), model::PartitionId::draw(random)};
  }
  model::Voters three() const {
    return {
        {0, self.server, self.assignment}, {1, second.server, second.assignment}, {2, third.server, third.assignment}};
  }
  void lead_three(uint64_t epoch) {
    leader = std::make_unique<Leader>(self, model::Epoch{epoch}, three(), log, *this, Pipeline::star);
    leader->begin(now, out);
    perform();
    ASSERT_NO_FATAL_FAILURE(join(second));
  }
  // Its pipe is opened, and its log is what the leader's is now.
  void join(const model::Hop& peer) {
    const auto open = std::find_if(opens.rbegin(), opens.rend(), [&](const SendOpen& o) { return o.to == peer; });
    ASSERT_NE(open, opens.rend());
    model::PipeOpenReply reply;
    reply.end = log.durable();
    reply.commit = log.commit();
    reply.epochs = log.epochs();
    generations[peer.server] = open->generation;
    leader->opened(now, peer, open->generation, reply, out);
    perform();
    think();
    perform();
  }
  void acknowledge(const model::Hop& peer) {
    model::PipeAck ack;
    ack.envelope.from = peer.server;
    ack.envelope.from_assignment = peer.assignment;
    ack.epoch = leader->epoch();
    ack.generation = generations[peer.server];
    ack.durable = log.durable();
    ack.commit = log.commit();
    leader->acked(now, ack, out);
    perform();
    think();
  }
  using Servers = std::vector<model::ServerId>;
  Servers all() const { return {self.server, second.server, third.server}; }
  ReshapeSeen merging() const { return {true, attempt, true, {all()}, pair}; }
  ReshapeSeen splitting() const { return {true, attempt, true, {all(), all()}}; }

  model::Hop second, third;
  MergePair pair;
  std::map<model::ServerId, uint64_t> generations;
};

TEST_F(MergeCutRig, says_who_has_the_cut_of_a_merge) {
  lead_three(1);
  ASSERT_TRUE(leader->serving());
  cut.seen(merging());
  think();
  answer(merging());
  ASSERT_TRUE(log.open_cut());
  EXPECT_FALSE(said) << "it is not committed";
  acknowledge(second);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->holders, (Servers{self.server, second.server}));
  government = said;
  pass(100ms);
  EXPECT_EQ(said->holders, (Servers{self.server, second.server}));
  join(third);
  EXPECT_EQ(said->holders, (Servers{self.server, second.server, third.server}));
  government = said;
  // A leader that has only heard of itself yet.
  leader->stop({Code::not_leader, "another"}, out);
  opens.clear();
  lead_three(2);
  think();
  EXPECT_EQ(said->holders, (Servers{self.server, second.server, third.server}));
}

// After a recovery without a majority one voter commits alone; the children's voters are three.
TEST_F(MergeCutRig, reports_a_cut_of_a_split_once_a_majority_of_each_childs_servers_has_it) {
  lead(1);
  leader->feed(now, {self, second, third}, out);
  perform();
  ASSERT_NO_FATAL_FAILURE(join(second));
  cut.seen(splitting());
  think();
  answer(splitting());
  ASSERT_TRUE(log.committed_cut());
  EXPECT_FALSE(said);
  leader->vote(now, three(), out);
  perform();
  pass(100ms);
  EXPECT_FALSE(said);
  acknowledge(second);
  ASSERT_TRUE(said);
  EXPECT_EQ(*said, (CutReport{attempt, log.end(), {self.server, second.server}}));
  // Whoever finalizes names the version of the government: it is not written again for one more, or by another leader.
  government = said;
  join(third);
  acknowledge(third);
  EXPECT_EQ(said, government);
  leader->stop({Code::not_leader, "another"}, out);
  opens.clear();
  lead_three(2);
  think();
  EXPECT_EQ(said, government);
}

TEST_F(MergeCutRig, asks_for_the_end_of_the_merge_and_takes_it_back_only_when_that_is_said) {
  lead_three(1);
  cut.seen(merging());
  think();
  answer(merging());
  acknowledge(second);
  government = said;
  for (int i = 0; i < 5; ++i) pass(1s);
  EXPECT_GE(aborts.size(), 4U);
  ASSERT_TRUE(abort_pair);
  EXPECT_EQ(*abort_pair, pair);
  EXPECT_TRUE(log.open_cut());
  answer(none());
  EXPECT_FALSE(said);
  government.reset();
  think();
  EXPECT_FALSE(log.open_cut());
  EXPECT_EQ(kinds.back(), BlockKind::uncut);
}

TEST(CutTable, knows_what_the_log_ends_in_whatever_is_cut_away) {
  base::SeededRandom random(3);
  const auto one = model::AttemptId::draw(random), two = model::AttemptId::draw(random);
  const auto at = [](uint64_t lsn) { return model::LogPoint{{1}, {lsn}, static_cast<uint32_t>(lsn)}; };
  model::CutTable table;
  EXPECT_FALSE(table.open());
  table.note({at(5), one, true}, {3});
  table.note({at(7), one, false}, {5});
  EXPECT_FALSE(table.open());
  table.truncate({6});
  ASSERT_TRUE(table.open());
  EXPECT_EQ(table.open()->at.lsn.value, 5U);
  table.note({at(8), one, false}, {7});
  table.note({at(12), two, true}, {11});
  EXPECT_EQ(table.open()->attempt, two);
  EXPECT_EQ(table.marks().size(), 2U);  // of what is committed, the last
}

}  // namespace
}  // namespace cantle::proto::quorum

// The write pipeline of a quorum table: Log, Follower and Leader, alone and on a few nodes under faults.
#include <gtest/gtest.h>

#include "test/unit/proto/pipeline_world.h"

namespace cantle::proto::quorum {
namespace {

using model::Epoch;
using model::EpochStart;
using model::LogPoint;
using model::Lsn;

LogPoint at(uint64_t epoch, uint64_t lsn) { return {Epoch{epoch}, Lsn{lsn}, static_cast<uint32_t>(epoch * 100 + lsn)}; }
std::vector<EpochStart> table(std::initializer_list<std::pair<uint64_t, uint64_t>> starts) {
  std::vector<EpochStart> out;
  for (const auto& [epoch, first] : starts) out.push_back({Epoch{epoch}, Lsn{first}});
  return out;
}

TEST(LastCommon, IsWhereTheNewestCommonEpochEndsInTheShorterLog) {
  const auto a = table({{1, 1}, {3, 10}}), b = table({{1, 1}, {2, 6}});
  EXPECT_EQ(last_common(at(3, 20), a, at(2, 8), b).value, 5U);  // b left epoch 1 at 5
  EXPECT_EQ(last_common(at(3, 20), a, at(1, 7), table({{1, 1}})).value, 7U);
  EXPECT_EQ(last_common(at(3, 20), a, at(3, 15), a).value, 15U);
  EXPECT_EQ(last_common(at(3, 12), a, at(3, 15), a).value, 12U);
  EXPECT_EQ(last_common(at(3, 12), a, LogPoint{}, {}).value, 0U);
  EXPECT_EQ(last_common(at(4, 3), table({{4, 1}}), at(5, 2), table({{5, 1}})).value, 0U);
  // A child's log begins behind its parent's cut.
  EXPECT_EQ(last_common(at(7, 120), table({{7, 101}}), at(6, 110), table({{6, 101}})).value, 100U);
}

TEST(QuorumLog, KeepsEpochsAndForgetsThemWhenTheyAreCut) {
  Log log({}, {}, {});
  log.append(Lsn{1}, at(1, 4));
  log.append(Lsn{5}, at(2, 5));
  log.append(Lsn{6}, at(2, 9));
  EXPECT_EQ(log.epochs(), table({{1, 1}, {2, 5}}));
  log.durable(at(2, 9));
  EXPECT_TRUE(log.commit(Lsn{4}));
  EXPECT_FALSE(log.commit(Lsn{3}));
  EXPECT_EQ(log.recent(Lsn{5}), at(2, 5));
  log.truncate(at(1, 4));
  EXPECT_EQ(log.epochs(), table({{1, 1}}));
  EXPECT_EQ(log.end(), at(1, 4));
  EXPECT_FALSE(log.recent(Lsn{5}));
}

// One follower, by hand.
struct FollowerRig {
  FollowerRig(LogPoint end, Lsn commit, std::vector<EpochStart> epochs) : log(end, commit, std::move(epochs)) {}
  Log log;
  Follower follower{log};
  Effects out;
  base::Instant now{1s};
  model::Hop from{{"p1"}, {}};

  model::Envelope envelope() const {
    model::Envelope e;
    e.from = from.server;
    e.from_assignment = from.assignment;
    return e;
  }
  void open(uint64_t epoch, uint64_t generation, uint64_t commit) {
    out.clear();
    follower.open(now, ++calls, {envelope(), Epoch{epoch}, generation, Lsn{commit}}, out);
  }
  void cut(uint64_t epoch, uint64_t generation, LogPoint end, LogPoint keep) {
    out.clear();
    follower.cut(now, ++calls, {envelope(), Epoch{epoch}, generation, end, keep}, out);
  }
  // One record behind `before`.
  void block(uint64_t epoch, uint64_t generation, LogPoint before, LogPoint end, uint64_t commit = 0) {
    out.clear();
    model::BlockHeader h;
    h.epoch = end.epoch;
    h.first = end.lsn;
    h.records = 1;
    h.prev_epoch = before.epoch;
    h.prev_lsn = before.lsn;
    h.prev_crc = before.crc;
    h.header_crc = end.crc;
    follower.block(now, ++calls, h, {envelope(), Epoch{epoch}, generation, Lsn{commit}, route, urgent, ""}, out);
  }
  void durable() {
    out.clear();
    log.durable(log.end());
    follower.durable(out);
  }
  template <class E>
  const E* got() const {
    for (const auto& e : out)
      if (const auto* x = std::get_if<E>(&e)) return x;
    return nullptr;
  }
  CallId calls = 0;
  std::vector<model::Hop> route;  // of what it is sent
  uint64_t urgent = 1;
};

TEST(Follower, NeverCutsBelowItsCommit) {  // S1
  FollowerRig r(at(2, 9), Lsn{7}, table({{1, 1}, {2, 6}}));
  r.open(3, 1, 7);
  ASSERT_NE(r.got<AnswerOpen>(), nullptr);
  r.cut(3, 1, at(2, 9), at(1, 5));
  EXPECT_EQ(r.got<Truncate>(), nullptr);
  EXPECT_NE(r.got<Faulted>(), nullptr);
  EXPECT_TRUE(r.got<AnswerOpen>()->reply->faulted);
  r.block(3, 1, at(2, 9), at(3, 10));
  EXPECT_EQ(r.got<Take>(), nullptr);
}

TEST(Follower, ACutThatIsLateCutsNothing) {  // S25
  FollowerRig r(at(1, 9), Lsn{5}, table({{1, 1}}));
  r.open(2, 1, 5);
  r.block(2, 1, at(1, 9), at(2, 10));
  EXPECT_NE(r.got<Take>(), nullptr);
  r.durable();
  r.cut(2, 1, at(1, 9), at(1, 7));  // the log ends elsewhere by now
  EXPECT_EQ(r.got<Truncate>(), nullptr);
  EXPECT_FALSE(r.got<AnswerOpen>()->reply.has_value());
  r.open(2, 2, 5);
  r.cut(2, 1, at(2, 10), at(1, 7));  // of a former pipe
  EXPECT_EQ(r.got<Truncate>(), nullptr);
  r.cut(2, 2, at(2, 10), at(1, 7));
  EXPECT_EQ(r.got<Truncate>()->keep, at(1, 7));
}

TEST(Follower, ACutIsThereAtOnceAndAnsweredWhenDurable) {
  // A replica that is elected while its cut is on the way to the disk begins its epoch behind what it kept.
  FollowerRig r(at(1, 9), Lsn{5}, table({{1, 1}}));
  r.open(2, 1, 5);
  r.cut(2, 1, at(1, 9), at(1, 7));
  EXPECT_EQ(r.log.end(), at(1, 7));
  EXPECT_EQ(r.got<AnswerOpen>(), nullptr);
  r.block(2, 1, at(1, 7), at(2, 8));
  EXPECT_EQ(r.got<Take>(), nullptr);
  r.out.clear();
  r.follower.truncated(base::ok(), r.out);
  EXPECT_EQ(r.got<AnswerOpen>()->reply->end, at(1, 7));
}

TEST(Follower, TakesOnlyWhatChains) {  // S2
  FollowerRig r(at(1, 9), Lsn{5}, table({{1, 1}}));
  r.block(2, 1, at(1, 9), at(2, 10));
  EXPECT_EQ(r.got<Take>(), nullptr) << "the pipe is not open";
  EXPECT_TRUE(r.got<SendAck>()->gap);
  r.open(2, 1, 5);
  LogPoint other = at(1, 9);
  other.crc++;
  r.block(2, 1, other, at(2, 10), 9);
  EXPECT_EQ(r.got<Take>(), nullptr);
  EXPECT_TRUE(r.got<SendAck>()->gap);
  EXPECT_EQ(r.got<Commit>(), nullptr) << "what is behind the commit is not known to be the leader's";
  r.block(2, 1, at(1, 9), at(2, 10), 9);
  EXPECT_NE(r.got<Take>(), nullptr);
  EXPECT_EQ(r.got<Commit>()->lsn.value, 9U);
  EXPECT_EQ(r.got<SendAck>(), nullptr) << "not durable yet";  // S5
  r.durable();
  EXPECT_EQ(r.got<SendAck>()->durable, at(2, 10));
}

TEST(Follower, AnswersAnOpenWhenAllIsDurable) {  // S5
  FollowerRig r(at(1, 9), Lsn{9}, table({{1, 1}}));
  r.open(2, 1, 9);
  r.block(2, 1, at(1, 9), at(2, 10));
  r.open(3, 1, 9);
  EXPECT_EQ(r.got<AnswerOpen>(), nullptr);
  r.block(3, 1, at(2, 10), at(3, 11));
  EXPECT_EQ(r.got<Take>(), nullptr) << "the leader has not seen this log yet";
  r.durable();
  EXPECT_EQ(r.got<AnswerOpen>()->reply->end, at(2, 10));
}

TEST(Follower, WhoHasNoPipeAsksForOne) {
  // It left, and nothing is written: the leader's commit notice is all that comes.
  FollowerRig r(at(1, 9), Lsn{9}, table({{1, 1}}));
  r.open(2, 1, 9);
  r.follower.leave(r.out);
  r.out.clear();
  r.follower.commit(r.now, {r.envelope(), Epoch{2}, 1, Lsn{9}, at(1, 9)}, r.out);
  ASSERT_NE(r.got<SendAck>(), nullptr);
  EXPECT_FALSE(r.got<SendAck>()->error.empty());
}

TEST(Follower, AQuietNoticeIsAnsweredOnlyIfSomethingIsMissing) {
  FollowerRig r(at(1, 9), Lsn{9}, table({{1, 1}}));
  r.open(2, 1, 9);
  r.block(2, 1, at(1, 9), at(2, 10));
  r.durable();
  const auto notice = [&](uint64_t commit, bool quiet) {
    r.out.clear();
    r.follower.commit(r.now, {r.envelope(), Epoch{2}, 1, Lsn{commit}, at(2, 10), quiet}, r.out);
  };
  notice(10, true);
  EXPECT_NE(r.got<Commit>(), nullptr);
  EXPECT_EQ(r.got<SendAck>(), nullptr);
  notice(10, false);
  ASSERT_NE(r.got<SendAck>(), nullptr);
  EXPECT_EQ(r.got<SendAck>()->commit, Lsn{10});
  notice(11, true);
  ASSERT_NE(r.got<SendAck>(), nullptr);
  EXPECT_TRUE(r.got<SendAck>()->gap);
}

TEST(Follower, WhatCameTooEarlyIsTakenInItsTurn) {
  FollowerRig r(at(1, 9), Lsn{9}, table({{1, 1}}));
  r.open(2, 1, 9);
  r.block(2, 1, at(2, 10), at(2, 11));
  EXPECT_EQ(r.got<Take>(), nullptr);
  r.block(2, 1, at(1, 9), at(2, 10));
  EXPECT_EQ(std::count_if(r.out.begin(), r.out.end(), [](const Effect& e) { return std::holds_alternative<Take>(e); }),
            2);
}

// A leader that is its own majority; every write becomes one record.
struct AloneRig final : Gatherer {
  Judged gather(RequestId, BatchId, Epoch, Lsn) override { return {1, bytes, {}, true}; }

  base::Instant now{100s};
  size_t bytes = 100;
  Log log{at(1, 9), Lsn{9}, table({{1, 1}})};
  Leader leader{{model::ServerId{"p1"}, {}}, Epoch{2}, {{0, model::ServerId{"p1"}, {}}}, log, *this, Pipeline::chain};
  Effects out;
  RequestId requests = 0;

  void write() {
    leader.write(now, ++requests, bytes, now + 5s, out);
    leader.flush(now, out);
  }
  // Blocks that it asks for since the last call; they are appended.
  size_t built() {
    size_t n = 0;
    for (const auto& e : std::exchange(out, {}))
      if (const auto* b = std::get_if<Build>(&e)) {
        leader.built(now, b->batch, Leader::Placed{b->first, LogPoint{Epoch{2}, b->first, 7}, bytes}, out);
        ++n;
      }
    return n;
  }
  void begin() {
    leader.begin(now, out);
    built();
    log.durable(log.end());
    leader.durable(now, out);
    out.clear();
  }
};

// Who is behind those that make the majority with the leader: a sync at once would only be in the way of the next ones.
TEST(Follower, whom_the_majority_does_not_need_may_wait_with_its_sync) {
  FollowerRig r(at(1, 9), Lsn{9}, table({{1, 1}}));
  r.open(2, 1, 9);
  const auto urgent = [&](uint64_t lsn, uint64_t count) {
    r.route = {{{"p3"}, {}}, {{"p4"}, {}}};
    r.urgent = count;
    r.block(2, 1, lsn == 10 ? at(1, 9) : at(2, lsn - 1), at(2, lsn));
    return std::pair(r.got<Take>()->urgent, r.got<Forward>()->urgent);
  };
  EXPECT_EQ(urgent(10, 2), std::pair(true, uint64_t{1}));
  EXPECT_EQ(urgent(11, 1), std::pair(true, uint64_t{0}));
  EXPECT_EQ(urgent(12, 0), std::pair(false, uint64_t{0}));
}

// A leader of some, all of whom have what it has; every write becomes one record.
struct ChainRig final : Gatherer {
  explicit ChainRig(size_t others, Pipeline pipeline = Pipeline::chain, KeptRoom* room = nullptr) {
    model::Voters voters{{0, model::ServerId{"p1"}, {}}};
    for (uint8_t i = 1; i <= others; i++) {
      hops.push_back({model::ServerId{"p" + std::to_string(i + 1)}, model::AssignmentId::draw(random)});
      voters.push_back({i, hops.back().server, hops.back().assignment});
    }
    leader.emplace(model::Hop{model::ServerId{"p1"}, {}}, Epoch{2}, voters, log, *this, pipeline, room);
    leader->begin(now, out);
    const auto begun = std::exchange(out, {});
    for (const auto& e : begun)
      if (const auto* b = std::get_if<Build>(&e)) place(*b);
    for (const auto& e : begun) {
      const auto* o = std::get_if<SendOpen>(&e);
      if (o == nullptr) continue;
      model::PipeOpenReply reply;
      reply.end = at(1, 9);
      reply.epochs = table({{1, 1}});
      leader->opened(now, o->to, o->generation, reply, out);
    }
    for (const auto& hop : hops) acked(hop, 10);
  }
  Judged gather(RequestId, BatchId, Epoch, Lsn) override { return {1, 100, {}, true}; }
  void place(const Build& b) {
    end = b.first;
    leader->built(now, b.batch, Leader::Placed{b.first, at(2, b.first.value), 100}, out);
    log.durable(log.end());
    leader->durable(now, out);
  }
  void acked(const model::Hop& hop, uint64_t lsn) {
    model::PipeAck ack;
    ack.envelope.from = hop.server;
    ack.envelope.from_assignment = hop.assignment;
    ack.epoch = Epoch{2};
    ack.generation = 100;
    ack.durable = at(2, lsn);
    leader->acked(now, ack, out);
  }
  // A block; who is sent it, and how many of them and of those behind are to sync at once. All acknowledge it after
  // `others`, but for one.
  std::vector<std::pair<std::string, size_t>> write(size_t slow = 100, base::Duration after = 1ms,
                                                    base::Duration others = 1ms) {
    out.clear();
    leader->write(now, ++requests, 100, now + 5s, out);
    leader->flush(now, out);
    for (const auto& e : std::exchange(out, {}))
      if (const auto* b = std::get_if<Build>(&e)) place(*b);
    std::vector<std::pair<std::string, size_t>> sent;
    for (const auto& e : out)
      if (const auto* s = std::get_if<SendBlock>(&e)) sent.emplace_back(s->to.server.name, s->urgent);
    now = now + others;
    for (size_t i = 0; i < hops.size(); i++)
      if (i != slow) acked(hops[i], end.value);
    now = now + (after - std::min(after, others));
    if (slow < hops.size()) acked(hops[slow], end.value);
    return sent;
  }

  base::Instant now{100s};
  base::SeededRandom random{1};
  Log log{at(1, 9), Lsn{9}, table({{1, 1}})};
  std::vector<model::Hop> hops;
  std::optional<Leader> leader;
  Effects out;
  Lsn end;
  RequestId requests = 0;
};

TEST(Leader, as_many_sync_at_once_as_make_a_majority_with_it) {
  using Sent = std::vector<std::pair<std::string, size_t>>;
  EXPECT_EQ(ChainRig(2).write(), (Sent{{"p2", 1}}));
  EXPECT_EQ(ChainRig(4).write(), (Sent{{"p2", 2}}));
  EXPECT_EQ(ChainRig(2, Pipeline::star).write(), (Sent{{"p2", 1}, {"p3", 0}}));
  EXPECT_EQ(ChainRig(4, Pipeline::star).write(), (Sent{{"p2", 1}, {"p3", 1}, {"p4", 0}, {"p5", 0}}));
  EXPECT_EQ(ChainRig(1).write(), (Sent{{"p2", 1}}));
}

// Or a write would wait for the slow one and then for the patience of the others.
TEST(Leader, who_is_slow_is_not_counted_on) {
  using Sent = std::vector<std::pair<std::string, size_t>>;
  ChainRig r(2);
  for (int i = 0; i < 20; i++) r.write(0, 20ms);
  EXPECT_EQ(r.write(), (Sent{{"p2", 2}}));
  for (int i = 0; i < 20; i++) r.write();
  EXPECT_EQ(r.write(), (Sent{{"p2", 1}}));
  for (int i = 0; i < 20; i++) r.write(1, 20ms);
  EXPECT_EQ(r.write(), (Sent{{"p2", 1}})) << "the last one may be as slow as it is";
  ChainRig busy(2);
  for (int i = 0; i < 20; i++) busy.write(0, 20ms, 15ms);
  EXPECT_EQ(busy.write(), (Sent{{"p2", 1}})) << "nor is one slow where all have much to do";
}

// One trails, and what is written meanwhile is kept for it: of many partitions no more than they have together.
TEST(Leader, keeps_for_who_trails_what_its_server_has_room_for) {
  KeptRoom room{1000, 250};
  ChainRig r(2, Pipeline::star, &room);
  EXPECT_EQ(room.bytes, 0U);
  r.leader->link_lost(r.now, r.hops[1].server, r.out);
  const auto write = [&] {
    r.write(1, 0ms, 0ms);
    return room.bytes;
  };
  for (int i = 0; i < 3; i++) EXPECT_EQ(write(), 0U);
  r.now = r.now + 1s;
  r.out.clear();
  r.leader->tick(r.now, r.out);
  uint64_t generation = 0;
  for (const auto& e : std::exchange(r.out, {}))
    if (const auto* o = std::get_if<SendOpen>(&e)) generation = o->generation;
  ASSERT_NE(generation, 0U);
  model::PipeOpenReply reply;
  reply.end = at(1, 5);
  reply.epochs = table({{1, 1}});
  r.leader->opened(r.now, r.hops[1], generation, reply, r.out);
  r.leader->point_found(r.now, r.hops[1], generation, at(1, 5), r.out);
  const auto trails = [&] {
    r.out.clear();
    r.leader->write(r.now, ++r.requests, 100, r.now + 5s, r.out);
    r.leader->flush(r.now, r.out);
    for (const auto& e : std::exchange(r.out, {}))
      if (const auto* b = std::get_if<Build>(&e)) r.place(*b);
    r.acked(r.hops[0], r.end.value);
    return room.bytes;
  };
  for (size_t n = 1; n <= 10; n++) EXPECT_EQ(trails(), n * 100) << "there is room";
  EXPECT_EQ(room.leaders, 1U);
  EXPECT_EQ(trails(), 1000U);  // all of it is its share
  room.bytes += 5000;
  room.leaders++;
  EXPECT_EQ(trails(), 5000 + 500U) << "half of what they may have";
  room.leaders += 8;
  EXPECT_EQ(trails(), 5000 + 200U) << "no less than the least: two blocks of a hundred";
  room.bytes -= 5000;
  EXPECT_EQ(trails(), 300U);
  r.leader->stop(base::Error(base::Code::not_leader, ""), r.out);
  EXPECT_EQ(room.bytes, 0U);
  EXPECT_EQ(room.leaders, 9U);
}

TEST(Leader, gathers_while_its_disk_is_busy_and_no_longer) {
  AloneRig r;
  r.begin();
  r.write();
  EXPECT_EQ(r.built(), 1U) << "an idle disk waits for nobody";
  r.write();
  r.write();
  EXPECT_EQ(r.built(), 0U);
  r.log.durable(r.log.end());
  r.leader.next(r.now, r.out);
  EXPECT_EQ(r.log.commit(), Lsn{10}) << "what is durable is told behind that";
  EXPECT_EQ(r.built(), 1U);
  // A disk that is slow holds up nothing.
  r.write();
  EXPECT_EQ(r.built(), 0U);
  EXPECT_LE(r.leader.next_tick(), r.now + kHoldMost);
  r.now = r.now + kHoldMost;
  r.leader.tick(r.now, r.out);
  EXPECT_EQ(r.built(), 1U);
  // Nor does one that has much to write.
  r.bytes = kHoldBytes;
  r.write();
  EXPECT_EQ(r.built(), 1U);
}

// Of two, the other of which misses most of the log.
struct TrailingRig final : Gatherer {
  Judged gather(RequestId, BatchId, Epoch, Lsn first) override { return {1, 100, first}; }
  base::Instant now{1s};
  Log log{at(1, 1000), Lsn{1000}, table({{1, 1}})};
  base::SeededRandom random{1};
  model::Hop other{model::ServerId{"p2"}, model::AssignmentId::draw(random)};
  Leader leader{{model::ServerId{"p1"}, {}},
                Epoch{2},
                {{0, model::ServerId{"p1"}, {}}, {1, other.server, other.assignment}},
                log,
                *this,
                Pipeline::chain};
  Effects out;
  uint64_t generation = 0;

  void begin(uint64_t end) {
    leader.begin(now, out);
    for (const auto& e : std::exchange(out, {})) {
      if (const auto* b = std::get_if<Build>(&e))
        leader.built(now, b->batch, Leader::Placed{b->first, at(2, b->first.value), 100}, out);
      if (const auto* o = std::get_if<SendOpen>(&e)) generation = o->generation;
    }
    log.durable(log.end());
    leader.durable(now, out);
    model::PipeOpenReply reply;
    reply.end = at(1, end);
    reply.epochs = table({{1, 1}});
    leader.opened(now, other, generation, reply, out);
    leader.point_found(now, other, generation, at(1, end), out);
  }
  // Where it would read on, if it would.
  std::optional<uint64_t> reads() {
    std::optional<uint64_t> from;
    for (const auto& e : std::exchange(out, {}))
      if (const auto* old = std::get_if<SendOld>(&e)) from = old->from.value;
    return from;
  }
  // A part of ten blocks.
  void sent(uint64_t from, uint64_t blocks = 10) {
    std::vector<LogPoint> ends;
    for (uint64_t lsn = from; lsn < from + blocks; lsn++) ends.push_back(at(1, lsn));
    leader.old_sent(now, other, generation, ends, out);
  }
  void acked(uint64_t lsn, uint64_t commit = 0, uint64_t epoch = 1) {
    model::PipeAck ack;
    ack.commit = Lsn{commit};
    ack.envelope.from = other.server;
    ack.envelope.from_assignment = other.assignment;
    ack.epoch = Epoch{2};
    ack.generation = generation;
    ack.durable = at(epoch, lsn);
    leader.acked(now, ack, out);
  }
};

TEST(Leader, has_some_parts_of_what_is_missed_under_way_and_no_more) {
  TrailingRig r;
  r.begin(9);
  uint64_t next = 10;
  for (size_t i = 0; i < kOldParts; i++, next += 10) {
    EXPECT_EQ(r.reads(), next) << "one after the other, no answer in between";
    r.sent(next);
  }
  EXPECT_EQ(r.reads(), std::nullopt);
  r.acked(15);
  EXPECT_EQ(r.reads(), std::nullopt) << "the first part is not all there";
  r.acked(19);
  EXPECT_EQ(r.reads(), next);
  r.sent(next);
  EXPECT_EQ(r.reads(), std::nullopt);
  r.acked(next + 9);
  EXPECT_EQ(r.reads(), next + 10);
}

TEST(Leader, a_read_that_ends_after_its_pipe_did_counts_for_nothing) {
  TrailingRig r;
  r.begin(9);
  EXPECT_EQ(r.reads(), 10U);
  r.leader.link_lost(r.now, r.other.server, r.out);
  r.sent(10);
  EXPECT_EQ(r.reads(), std::nullopt);
}

// A notice of a commit that is further than what it was sent would have it say that it misses blocks, and its pipe
// opened again: each time 50 ms in which nothing is sent.
TEST(Leader, who_is_sent_what_it_missed_hears_of_commits_with_that_and_by_a_notice_once_it_has_all) {
  TrailingRig r;
  r.begin(9);
  const auto notices = [&] {
    r.now = r.now + 10ms;
    r.leader.tick(r.now, r.out);
    return std::count_if(r.out.begin(), r.out.end(),
                         [](const auto& e) { return std::holds_alternative<SendCommit>(e); });
  };
  for (uint64_t next = 10; next < 1000; next += 99) {
    EXPECT_EQ(notices(), 0) << next;
    EXPECT_GT(r.leader.next_tick(), r.now) << "nor is it waited for";
    EXPECT_EQ(r.reads(), next);
    r.sent(next, std::min<uint64_t>(99, 1001 - next));
    EXPECT_EQ(notices(), next + 98 >= 1000 ? 1 : 0) << next;
    r.acked(std::min<uint64_t>(next + 98, 1000));
  }
}

// Answers would be a quarter of all messages where each of thousands of partitions has a block now and then.
TEST(Leader, a_notice_asks_for_an_answer_only_when_no_acknowledgement_confirmed_it_for_a_while) {
  TrailingRig r;
  r.begin(900);
  EXPECT_EQ(r.reads(), 901U);
  r.sent(901, 100);
  r.acked(1001, 0, 2);                                                    // the epoch start
  const auto notice = [&](base::Duration later) -> std::optional<bool> {  // was it quiet?
    r.out.clear();
    r.now = r.now + later;
    r.leader.tick(r.now, r.out);
    for (const auto& e : r.out)
      if (const auto* n = std::get_if<SendCommit>(&e)) return n->quiet;
    return std::nullopt;
  };
  EXPECT_EQ(notice(kNoticeAfter), true);
  EXPECT_EQ(notice(kNoticeAgain / 2), std::nullopt);
  EXPECT_EQ(notice(kNoticeAgain / 2), false);
  r.acked(1001, 1001, 2);
  EXPECT_EQ(notice(kNoticeAgain), std::nullopt);
}

struct Case {
  const char* name;
  PipelineWorld::Options options;
};

void run(const Case& c, uint64_t seeds) {
  size_t acknowledged = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    PipelineWorld world(seed, c.options);
    ASSERT_TRUE(world.elect());
    world.storm(3s);
    const auto broken = world.violation().empty() ? world.settle() : world.violation();
    ASSERT_EQ(broken, "") << c.name << ", seed " << seed;
    acknowledged += world.acknowledged();
  }
  EXPECT_GT(acknowledged, seeds * 5) << c.name;
}

TEST(Pipeline, OfThreeInAChain) { run({"chain", {}}, 20); }
TEST(Pipeline, OfThreeInAStar) { run({"star", {.pipeline = Pipeline::star}}, 20); }
TEST(Pipeline, OfOne) { run({"one", {.nodes = 1}}, 10); }
TEST(Pipeline, OfSevenThatCrash) { run({"seven", {.nodes = 7, .crashes = true}}, 10); }
TEST(Pipeline, LosesAndDoublesMessages) { run({"loss", {.lose = 0.05, .twice = 0.05, .slow = 0.02}}, 40); }
TEST(Pipeline, GoesOnWhenFollowersCrash) { run({"crashes", {.slow = 0.01, .crashes = true}}, 40); }
TEST(Pipeline, TakesOver) { run({"elections", {.slow = 0.02, .elections = true}}, 60); }
TEST(Pipeline, TakesOverWithEverythingGoingWrong) {  // S1 S2 S14 S15 S25
  for (const auto pipeline : {Pipeline::chain, Pipeline::star})
    for (const size_t nodes : {3U, 5U})
      run({"all",
           {.nodes = nodes,
            .pipeline = pipeline,
            .lose = 0.03,
            .twice = 0.03,
            .slow = 0.03,
            .crashes = true,
            .elections = true,
            .store_refuses = true,
            .short_journal = true}},
          60);
}

}  // namespace
}  // namespace cantle::proto::quorum

// QuorumScenario: a small quiet world in which a test forces one schedule (design/scenarios.md).
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "test/sim/quorum_node.h"
#include "test/sim/quorum_world.h"

namespace cantle::sim {

// p1, p2, p3 with one partition, and a client that a test speaks for.
class QuorumScenario : public testing::Test {
 protected:
  using Answer = std::optional<base::Result<QuorumWritten>>;

  void SetUp() override {
    world.set_up();
    ASSERT_EQ(world.violated(), "");
    leader = world.leader(0);
    ASSERT_NE(leader, nullptr);
  }
  void TearDown() override {
    world.start_clients();  // theirs is the last word on whether writes go through
    world.finish();
    EXPECT_EQ(world.violated(), "");
  }
  static QuorumChaos quiet() {
    QuorumChaos c;
    c.copies = false;
    return c;
  }

  QuorumWrite incr(const std::string& key, int64_t by) {
    auto w = write(key, "");
    w.kind = model::WriteKind::incr;
    w.by = by;
    world.ledger.asked(w);
    return w;
  }
  QuorumWrite put(const std::string& key, const std::string& value) {
    auto w = write(key, value);
    world.ledger.asked(w);
    return w;
  }
  // If the key is not there.
  QuorumWrite add(const std::string& key, const std::string& value) {
    auto w = write(key, value);
    w.kind = model::WriteKind::cas;
    w.expect.absent = true;
    world.ledger.asked(w);
    return w;
  }

  // Sends it; its answer comes into the slot.
  void send(const QuorumHost& to, const QuorumWrite& write, Answer* answer) {
    world.network.call(client, to.id.name + "/partd", write, 3s, [answer](const Network::Answer& a) {
      if (a)
        *answer = std::any_cast<const QuorumWritten&>(*a);
      else
        *answer = base::fail(a.error());
    });
  }
  base::Result<QuorumWritten> sent(const QuorumHost& to, const QuorumWrite& write) {
    Answer answer;
    send(to, write, &answer);
    EXPECT_TRUE(world.wait([&] { return answer.has_value(); }, 5s));
    return answer ? *answer : base::fail(base::Code::cancelled, "never answered");
  }
  std::optional<std::string> read(const QuorumHost& from, const std::string& key) {
    const auto found = from.node->engine().get(world.partition_id(0), key);
    EXPECT_TRUE(found.has_value());
    if (!found || !*found || (*found)->deleted) return std::nullopt;
    return std::string((*found)->value);
  }
  QuorumHost* new_leader() {
    QuorumHost* now = nullptr;
    EXPECT_TRUE(world.wait(
        [&] {
          now = world.leader(0);
          return now != nullptr && now != leader;
        },
        15s))
        << world.describe();
    return now;
  }
  // The two that do not lead.
  std::pair<QuorumHost*, QuorumHost*> followers() {
    std::vector<QuorumHost*> others;
    for (const auto& host : world.hosts)
      if (host.get() != leader) others.push_back(host.get());
    return {others[0], others[1]};
  }
  base::Result<QuorumValue> get(const QuorumHost& from, const std::string& key, bool any = false) {
    std::optional<base::Result<QuorumValue>> answer;
    world.network.call(
        client, from.id.name + "/partd", QuorumGet{0, key, {}, any}, 3s, [&answer](const Network::Answer& a) {
          answer.emplace(a ? base::Result<QuorumValue>(std::any_cast<const QuorumValue&>(*a)) : base::fail(a.error()));
        });
    EXPECT_TRUE(world.wait([&] { return answer.has_value(); }, 5s));
    return answer ? *answer : base::fail(base::Code::cancelled, "never answered");
  }
  void cut_off(const QuorumHost& host) {
    for (const auto& other : world.hosts)
      if (other.get() != &host) world.network.cut_both(host.id.name, other->id.name);
  }
  model::Lsn end_of(const QuorumHost& host) { return host.node->engine().quorum_log(world.partition_id(0))->end.lsn; }

  explicit QuorumScenario(const QuorumChaos& chaos = quiet()) : world(1, chaos) {}

  QuorumWorld world;
  Process client{world.scheduler, "c0", "client"};
  QuorumHost* leader = nullptr;

 private:
  QuorumWrite write(const std::string& key, const std::string& value) {
    QuorumWrite w;
    w.ops.push_back({model::Op::put, key, value});
    w.client = 77;
    w.series = w.series_low = ++series_;
    w.within_ms = 900;
    return w;
  }
  uint64_t series_ = 0;
};

}  // namespace cantle::sim

// QuorumScenario: a small quiet world in which a test forces one schedule (design/scenarios.md).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string_view>

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
    here.reset();
    world.start_clients();  // theirs is the last word on whether writes go through
    world.finish();
    EXPECT_EQ(world.violated(), "");
  }
  static QuorumChaos quiet() {
    QuorumChaos c;
    c.copies = false;
    return c;
  }

  static QuorumChaos forgetful() {
    auto c = quiet();
    c.forgets = true;
    return c;
  }
  // By another client, until what comes behind `lsn` cannot be read from the log any more.
  void write_until_forgotten(model::Lsn lsn) {
    for (int i = 0; i < 300; ++i) {
      auto filler = put("k8", std::string(2000, 'x'));
      filler.client = 78;
      world.ledger.asked(filler);
      ASSERT_TRUE(sent(*world.leader(0), filler).has_value());
      world.scheduler.run_for(50ms);
      const auto blocks = world.leader(0)->node->engine().read_log(world.partition_id(0), lsn.next(), 1);
      if (!blocks && blocks.error().code == base::Code::not_found) return;
    }
    FAIL() << "all of the log is kept";
  }

  // One that has all that the leader has dies, and starts again with a bit of `text` in its journal flipped.
  void restart_damaged(QuorumHost& host, std::string_view text) {
    ASSERT_TRUE(world.wait([&] { return end_of(host) == end_of(*leader); }, 2s));
    world.kill(host);
    world.scheduler.run_for(1ms);
    ASSERT_TRUE(host.medium.flip_text("journal/0", text));
    world.start(host);
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
  QuorumWrite del(const std::string& key) {
    auto w = write(key, "");
    w.ops[0].op = model::Op::del;
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

  // Sends it; its answer comes into the slot, unless the test is over by then.
  void send(const QuorumHost& to, const QuorumWrite& write, Answer* answer) {
    world.network.call(client, to.id.name + "/partd", write, 3s,
                       [answer, test = std::weak_ptr(here)](const Network::Answer& a) {
                         if (test.expired()) return;
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
  // Not by wait(): a read has the store end its view with the turn, which is an event at the same time, and with a read
  // after each event time would stand still.
  bool shows(const QuorumHost& host, const std::string& key, const std::string& value, Duration within) {
    for (const auto end = world.scheduler.now() + within; read(host, key) != value;) {
      if (world.scheduler.now() >= end) return false;
      world.scheduler.run_for(1ms);
    }
    return true;
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
  QuorumHost* any_leader(Duration limit = 15s) {
    QuorumHost* now = nullptr;
    EXPECT_TRUE(world.wait([&] { return (now = world.leader(0)) != nullptr; }, limit))
        << world.violated() << world.describe();
    return now;
  }
  void all(const std::function<void(QuorumHost&)>& fn) {
    for (const auto& host : world.hosts) fn(*host);
  }
  void all_lose_power() {
    all([&](QuorumHost& h) { world.power_cut(h); });
    world.scheduler.run_for(10ms);
  }
  bool ready(const QuorumHost& host) { return host.process.alive() && host.node && host.node->replica(0) != nullptr; }
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
  // The leader is cut off, and then has this in its log, where nobody else has it.
  void has_alone(const QuorumWrite& write, Answer* answer) {
    cut_off(*leader);
    const auto before = end_of(*leader);
    send(*leader, write, answer);
    ASSERT_TRUE(world.wait([&] { return end_of(*leader) > before; }, 100ms));
  }

  // All that the leader has in its log is seen there. By what the log says: a read plans something itself.
  bool shows_all(const QuorumHost& host) {
    const auto log = host.node ? host.node->engine().quorum_log(world.partition_id(0)) : std::nullopt;
    return log && log->visible == end_of(*leader);
  }
  bool told_yes(const Answer& answer) const { return answer && answer->has_value(); }
  static bool elected(const QuorumHost& host) {
    return host.process.alive() && host.node && host.node->replica(0) != nullptr &&
           host.node->replica(0)->election().leads().has_value();
  }
  void cut_pair(const QuorumHost& a, const QuorumHost& b) { world.network.cut_both(a.id.name, b.id.name); }
  // Another byte stands there on the platter.
  void spoil(QuorumHost& host, const std::string& path, uint64_t at) {
    SimDisk disk(host.medium, client);
    const auto file = disk.open(path, store::OpenMode::write);
    ASSERT_TRUE(file.has_value());
    auto byte = (*file)->read(at, 1);
    ASSERT_TRUE(byte && byte->size() == 1);
    byte->front() ^= 1;
    ASSERT_TRUE((*file)->write(at, *byte) && (*file)->sync());
  }
  model::Assignment assignment_of(const QuorumHost& host) {
    const auto* found = model::find_assignment(world.partition(0), host.id);
    return found != nullptr ? *found : model::Assignment{};
  }
  // In the government, as it is written now.
  bool votes(const QuorumHost& host) {
    const auto* text =
        world.coord.value(world.layout.government(QuorumWorld::distribution(0), world.partition(0).region));
    const auto government = coord::parse_government(text == nullptr ? "" : *text);
    EXPECT_TRUE(government.has_value());
    return government && std::any_of(government->voters.begin(), government->voters.end(),
                                     [&](const model::Voter& v) { return v.server == host.id; });
  }

  explicit QuorumScenario(const QuorumChaos& chaos = quiet()) : world(1, chaos) {}

  QuorumWorld world;
  Process client{world.scheduler, "c0", "client"};
  QuorumHost* leader = nullptr;
  std::shared_ptr<bool> here = std::make_shared<bool>(true);

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

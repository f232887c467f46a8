// Scenario: a small quiet cluster in which a test forces one situation after the other.
//
//   Scenario s(43);                                  // p1 … p4, table t on p1 p2 p3, everything at rest
//   auto v = s.write("p1", "k");                     // waits for the answer
//   s.split("m", {"p4", "p2", "p3"}, {});            // the whole keyspace at m
//   s.settle();                                      // rests, and every promise is checked
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "test/sim/partd.h"
#include "test/sim/push_world.h"
#include "test/sim/pusher.h"

namespace cantle::sim {

class Scenario {
 public:
  explicit Scenario(uint64_t seed, size_t servers = 4, uint32_t replicas = 3)
      : Scenario(seed, quiet(servers, replicas)) {}
  Scenario(uint64_t seed, const Chaos& chaos) : world(seed, chaos, Load{}) {
    world.set_up();
    EXPECT_TRUE(world.come_to_rest(40s)) << world.restless() << " " << world.checks().violation();
  }
  static Chaos quiet(size_t servers, uint32_t replicas) {
    Chaos c;
    c.split = false;
    c.servers = servers;
    c.replicas = replicas;
    c.clients = 1;
    return c;
  }

  base::Result<model::WriteReply> write(const std::string& to, const std::string& key,
                                        model::Level level = model::Level::majority, size_t padding = 10) {
    std::optional<base::Result<model::WriteReply>> got;
    world.client().put(
        to, "t", key, level, [&](const auto& r) { got = r; }, padding);
    world.wait([&] { return got.has_value(); }, 20s);
    return got ? *got : base::fail(base::Code::cancelled, "never answered");
  }
  base::Result<model::GetReply> read(const std::string& from, const std::string& key,
                                     model::Level level = model::Level::majority) {
    std::optional<base::Result<model::GetReply>> got;
    world.client().get(from, "t", key, level, [&](const auto& r) { got = r; });
    world.wait([&] { return got.has_value(); }, 20s);
    return got ? *got : base::fail(base::Code::cancelled, "never answered");
  }
  // Keys k000 … spread by `client` through any server.
  void fill(size_t count, size_t padding = 10) {
    for (size_t i = 0; i < count; ++i)
      EXPECT_TRUE(write("p" + std::to_string(1 + i % 3), name(i), model::Level::majority, padding).has_value());
  }
  static std::string name(size_t i) {
    std::string digits = std::to_string(i);
    return "k" + std::string(3 - digits.size(), '0') + digits;
  }

  MapPtr map() { return world.cluster().maps.current("t"); }
  void split(const std::string& point, std::vector<std::string> low = {}, std::vector<std::string> high = {},
             size_t partition = 0) {
    const auto ids = [](const std::vector<std::string>& names) {
      std::vector<model::ServerId> out;
      for (const auto& n : names) out.push_back({n});
      return out;
    };
    world.oper().split("t", map()->partitions[partition].region, point, ids(low), ids(high));
    EXPECT_TRUE(world.wait([&] { return splitting() || map()->partitions.size() > 1; }, 5s))
        << "SPLIT is not committed";
  }
  bool splitting() {
    for (const auto& p : map()->partitions)
      if (p.split) return true;
    return false;
  }
  void kill(const std::string& name) {
    world.cluster().kill_partd(world.host(name));
    world.cluster().kill_push(world.host(name));
    run(10ms);
  }
  void start(const std::string& name) {
    world.cluster().start_partd(world.host(name));
    world.cluster().start_push(world.host(name));
  }
  void run(Duration d) { world.cluster().scheduler.run_for(d); }
  model::Version held(const std::string& host, const std::string& key) {
    return world.checks().held(world.host(host), "t", key);
  }
  proto::PushServer& machine(const std::string& host) { return *world.host(host).partd_node->machine(); }
  store::Engine& engine(const std::string& host) { return *world.host(host).partd_node->engine(); }

  // The faults stop, everything comes to rest, and all promises hold.
  void settle() {
    world.stop_faults();
    world.finish();
    EXPECT_EQ(world.checks().violation(), "");
  }
  void no_violation() { EXPECT_EQ(world.checks().violation(), ""); }

  PushWorld world;
};

}  // namespace cantle::sim

#include "lib/meta/config_ops.h"

#include <gtest/gtest.h>

#include "test/support/random_table.h"

namespace cantle::meta {
namespace {

using coord::RegionState;
using test::RandomTable;

TEST(RegionNodes, what_changed_is_what_differs_between_the_two_files) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    RandomTable t(seed);
    auto nodes = region_nodes(t.current());
    for (int i = 0; i < 100; i++) {
      const auto before = t.current();
      if (!t.step()) continue;
      for (const auto& [region, node] : changed_region_nodes(&before, t.current())) {
        const auto it = nodes.find(region);
        ASSERT_TRUE(it == nodes.end() || !(it->second == node))
            << "seed " << seed << ": written though it was so already";
        nodes[region] = node;
      }
      for (const auto& [region, node] : region_nodes(t.current())) {
        auto expected = node;
        const auto it = nodes.find(region);
        ASSERT_NE(it, nodes.end()) << "seed " << seed << " region " << region.value;
        // The parent of an ended partition, and children whose own end was swept, are remembered by the node alone.
        if (expected.state == RegionState::split) continue;
        ASSERT_EQ(it->second, expected) << "seed " << seed << " region " << region.value;
      }
    }
    for (const auto& [region, node] : nodes) {
      const bool living = region_nodes(t.current()).contains(region);
      ASSERT_TRUE(living || node.state == RegionState::aborted || node.state == RegionState::split);
    }
  }
}

TEST(RegionNodes, a_split_leaves_a_family) {
  RandomTable t(1);
  const auto parent = t.current().partitions.front();
  auto m = t.current();
  const auto run = [&](model::Operation op) {
    const std::vector<model::Operation> ops{op};
    const auto next = model::apply(
        &m, ops, {model::TxnId::draw(t.random()), model::ChangeId::draw(t.random()), std::string(32, 'h')});
    EXPECT_TRUE(next);
    auto changed = changed_region_nodes(&m, *next);
    m = *next;
    return changed;
  };
  const auto split = model::draw_split(parent, "m", {}, {}, t.random());
  auto nodes = run(split);
  EXPECT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[{1}].state, RegionState::splitting);
  EXPECT_EQ(nodes[{1}].left.value, 2U);
  EXPECT_EQ(nodes[{1}].split, "m");
  EXPECT_EQ(nodes[{2}].state, RegionState::creating);
  EXPECT_EQ(nodes[{2}].parent.value, 1U);
  EXPECT_TRUE(run(model::ops::Initialize{parent.id, split.attempt}).empty());
  nodes = run(RandomTable::finalize(m.partitions.front()));
  EXPECT_EQ(nodes[{1}].state, RegionState::split);
  EXPECT_EQ(nodes[{3}].state, RegionState::active);
  EXPECT_EQ(nodes[{3}].parent.value, 1U);

  const auto again = model::draw_split(m.partitions.front(), "c", {}, {}, t.random());
  run(again);
  nodes = run(model::ops::AbortSplit{m.partitions.front().id, again.attempt});
  EXPECT_EQ(nodes[{2}].state, RegionState::active);
  EXPECT_EQ(nodes[{2}].parent.value, 1U);
  EXPECT_EQ(nodes[{4}].state, RegionState::aborted);
  EXPECT_EQ(nodes[{5}].state, RegionState::aborted);
}

TEST(SwapOps, table_config_comes_first_and_regions_follow_in_the_same_multi) {
  RandomTable t(1);
  const coord::Layout at("c");
  model::TableConfig config;
  config.metadata_servers = {{"m1"}};
  model::set_current(config, t.current(), std::string(32, 'h'));
  auto swap = swap_ops(at, "1_random", config, -2, nullptr, t.current(), {});
  ASSERT_EQ(swap.ops.size(), 3U);
  EXPECT_EQ(swap.ops[0].path, "/c/distribution/1_random/config");
  EXPECT_EQ(swap.ops[0].kind, coord::Op::Kind::create);
  EXPECT_EQ(swap.ops[2].path, "/c/distribution/1_random/regions/1");
  EXPECT_EQ(swap.ops[2].kind, coord::Op::Kind::create);
  swap = swap_ops(at, "1_random", config, -2, nullptr, t.current(), {{model::Region{1}, true}});
  EXPECT_EQ(swap.ops[2].kind, coord::Op::Kind::set);

  RandomTable many(1, {.servers = 5, .replicas = 3, .partitions = 500});
  swap = swap_ops(at, "1_random", config, -2, nullptr, many.current(), {});
  EXPECT_TRUE(swap.regions_behind);
  EXPECT_EQ(swap.ops.size(), 2U);
  EXPECT_NE(swap.ops[0].value.find("regions_behind: yes"), std::string::npos);
}

}  // namespace
}  // namespace cantle::meta

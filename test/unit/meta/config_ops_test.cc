#include "lib/meta/config_ops.h"

#include <gtest/gtest.h>

#include "test/support/random_table.h"

namespace cantle::meta {
namespace {

using coord::RegionState;
using test::RandomTable;

TEST(RegionNodes, what_changed_is_what_differs_between_the_two_files) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    RandomTable t(seed, {.replication = seed % 2 == 0 ? model::Replication::quorum : model::Replication::push});
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
        if (expected.state == RegionState::split || expected.state == RegionState::merged) continue;
        ASSERT_EQ(it->second, expected) << "seed " << seed << " region " << region.value;
      }
    }
    for (const auto& [region, node] : nodes) {
      const bool living = region_nodes(t.current()).contains(region);
      ASSERT_TRUE(living || node.state == RegionState::aborted || node.state == RegionState::split ||
                  node.state == RegionState::merged);
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

// --- quorum tables -----------------------------------------------------------------------------------

model::Metadata quorum_table(base::Random& random, size_t partitions) {
  RandomTable t(3, {.servers = 5, .replicas = 3, .partitions = partitions});
  auto create = std::get<model::ops::CreateTable>(t.create().front());
  create.replication = model::Replication::quorum;
  const std::vector<model::Operation> ops{create};
  return *model::apply(nullptr, ops, {model::TxnId::draw(random), model::ChangeId::draw(random), ""});
}

TEST(SwapOps, a_region_of_a_quorum_table_comes_with_its_first_government_and_a_place_for_votes) {
  base::SeededRandom random(5);
  const auto map = quorum_table(random, 2);
  const coord::Layout at("c");
  model::TableConfig config;
  config.metadata_servers = {{"m1"}};
  config.writer = "m1/7-3";
  model::set_current(config, map, std::string(32, 'h'));
  const auto swap = swap_ops(at, "1_random", config, -2, nullptr, map, {});
  ASSERT_EQ(swap.ops.size(), 8U);  // TableConfig, the next number, three for each region
  for (const uint32_t n : {1U, 2U}) {
    const auto* op = &swap.ops[2 + 3 * (n - 1)];
    const auto region = "/c/distribution/1_random/regions/" + std::to_string(n);
    for (size_t i = 0; i < 3; i++) EXPECT_EQ(op[i].kind, coord::Op::Kind::create);
    for (size_t i = 0; i < 3; i++) EXPECT_EQ(op[i].mode, coord::CreateMode::persistent);
    EXPECT_EQ(op[0].path, region);
    EXPECT_EQ(op[1].path, region + "/government");
    EXPECT_EQ(op[2].path, region + "/quorums");
    EXPECT_EQ(op[2].value, "");
    const auto government = coord::parse_government(op[1].value);
    ASSERT_TRUE(government) << to_string(government.error());
    EXPECT_EQ(government->epoch.value, 1U);
    EXPECT_TRUE(government->leader.none());
    EXPECT_EQ(government->writer, "m1/7-3");
    ASSERT_EQ(government->voters.size(), 3U);
    for (uint32_t slot = 0; slot < 3; slot++) {
      const auto& a = map.partitions.get({n})->assignments[slot];
      EXPECT_EQ(government->voters[slot], (model::Voter{slot, a.server, a.id}));
    }
  }
}

TEST(SwapOps, a_new_quorum_table_takes_over_no_region_that_is_there) {
  base::SeededRandom random(5);
  const auto map = quorum_table(random, 1);
  model::TableConfig config;
  config.metadata_servers = {{"m1"}};
  model::set_current(config, map, std::string(32, 'h'));
  const auto swap = swap_ops(coord::Layout("c"), "1_random", config, -2, nullptr, map, {{model::Region{1}, true}});
  ASSERT_EQ(swap.ops.size(), 5U);
  EXPECT_EQ(swap.ops[2].kind, coord::Op::Kind::create) << "it fails, and nothing is created";
}

// An epoch that was must not come again (S36): what changes later leaves the government alone.
TEST(SwapOps, a_region_that_is_there_keeps_its_government) {
  base::SeededRandom random(5);
  const auto map = quorum_table(random, 1);
  std::vector<coord::Op> ops;
  const auto nodes = region_nodes(map);
  append_region(ops, coord::Layout("c"), "1_random", map, {1}, nodes.at({1}), true, "m1/1-1");
  ASSERT_EQ(ops.size(), 1U);
  EXPECT_EQ(ops[0].kind, coord::Op::Kind::set);
  EXPECT_FALSE(first_government(map, {2}, "m1/1-1"));
  const RandomTable push(1);
  EXPECT_FALSE(first_government(push.current(), {1}, "m1/1-1"));
}

// The children of a split have regions from SPLIT on, and governments from FINALIZE_SPLIT on: above the parent's, which
// must be the one that it names.
TEST(SwapOps, the_children_of_a_split_get_governments_above_their_parents) {
  base::SeededRandom random(5);
  auto map = quorum_table(random, 1);
  const coord::Layout at("c");
  model::TableConfig config;
  config.metadata_servers = {{"m1"}};
  const auto next = [&](const model::Operation& op) {
    const std::vector<model::Operation> ops{op};
    const auto after =
        model::apply(&map, ops, {model::TxnId::draw(random), model::ChangeId::draw(random), std::string(32, 'h')});
    EXPECT_TRUE(after) << base::to_string(after.error());
    auto to = config;
    model::set_current(to, *after, std::string(32, 'h'));
    auto swap = swap_ops(at, "1_random", to, 3, &map, *after, {});
    EXPECT_EQ(government_checks(at, "1_random", map, ops).size(),
              std::holds_alternative<model::ops::FinalizeSplit>(op) ? 1U : 0U);
    map = *after;
    return swap.ops;
  };
  const auto parent = map.partitions.front();
  const auto split = model::draw_split(parent, "m", {}, {}, random);
  const auto governments = [](const std::vector<coord::Op>& ops) {
    std::map<std::string, model::Government> found;
    for (const auto& op : ops)
      if (op.path.ends_with("/government")) found[op.path] = *coord::parse_government(op.value);
    return found;
  };
  EXPECT_TRUE(governments(next(split)).empty());
  EXPECT_TRUE(governments(next(model::ops::Initialize{parent.id, split.attempt})).empty());
  model::ops::FinalizeSplit finalize{parent.id, split.attempt, {}, model::ops::FinalCut{{{6}, {50}, 1}, {7}, 21}};
  for (const auto* child : {&split.low, &split.high})
    for (const auto& a : child->assignments) finalize.ready.push_back(a.id);
  const std::vector<model::Operation> ops{finalize};
  const auto checks = government_checks(at, "1_random", map, ops);
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].kind, coord::Op::Kind::check);
  EXPECT_EQ(checks[0].path, at.government("1_random", parent.region));
  EXPECT_EQ(checks[0].version, 21);
  const auto made = governments(next(finalize));
  ASSERT_EQ(made.size(), 2U);
  for (const auto& p : map.partitions) {
    const auto& g = made.at(at.government("1_random", p.region));
    EXPECT_EQ(g.epoch.value, 8U);
    EXPECT_TRUE(g.leader.none());
    EXPECT_EQ(g.voters.size(), 3U);
  }
}

// What two are merged into has a region from MERGE on, and a government from FINALIZE_MERGE on: above both of theirs,
// which must be the ones that it names. Their regions remember what became of them.
TEST(SwapOps, the_target_of_a_merge_gets_a_government_above_both) {
  base::SeededRandom random(5);
  auto map = quorum_table(random, 2);
  for (size_t i = 0; i < 2; i++) {  // on the same servers
    auto p = map.partitions[i];
    for (uint32_t slot = 0; slot < 3; slot++) p.assignments[slot].server = map.partitions[0].assignments[slot].server;
    map.partitions.put(p);
  }
  const coord::Layout at("c");
  const auto next = [&](const model::Operation& op) {
    const std::vector<model::Operation> ops{op};
    const auto after =
        model::apply(&map, ops, {model::TxnId::draw(random), model::ChangeId::draw(random), std::string(32, 'h')});
    EXPECT_TRUE(after) << base::to_string(after.error());
    model::TableConfig to;
    to.metadata_servers = {{"m1"}};
    model::set_current(to, *after, std::string(32, 'h'));
    auto swap = swap_ops(at, "1_random", to, 3, &map, *after, {});
    map = *after;
    return swap.ops;
  };
  const auto written = [](const std::vector<coord::Op>& ops, const std::string& path) {
    for (const auto& op : ops)
      if (op.path == path) return coord::parse_region(op.value).value_or(coord::RegionNode{});
    return coord::RegionNode{};
  };
  const auto low = map.partitions[0], high = map.partitions[1];
  const auto given_up = model::draw_merge(low, high, random);
  next(given_up);
  const auto back = next(model::ops::AbortMerge{given_up.attempt, low.id, high.id});
  EXPECT_EQ(written(back, at.region("1_random", {3})).state, coord::RegionState::aborted);
  EXPECT_EQ(written(back, at.region("1_random", low.region)).state, coord::RegionState::active);

  const auto merge = model::draw_merge(low, high, random);
  const auto begun = next(merge);
  for (const auto* p : {&low, &high}) {
    const auto node = written(begun, at.region("1_random", p->region));
    EXPECT_EQ(node.state, coord::RegionState::merging);
    EXPECT_TRUE(node.has_target);
    EXPECT_EQ(node.into.value, 4U);
    EXPECT_EQ(node.attempt, merge.attempt);
  }
  const auto target = written(begun, at.region("1_random", {4}));
  EXPECT_EQ(target.state, coord::RegionState::creating);
  EXPECT_EQ(target.partition, merge.target.id);
  EXPECT_EQ(target.parent, low.region);
  for (const auto& op : begun) EXPECT_FALSE(op.path.ends_with("/government"));
  EXPECT_EQ(region_nodes(map).at({4}), target);

  model::ops::FinalizeMerge finalize{merge.attempt, low.id, high.id, {}};
  for (const auto& a : merge.target.assignments) finalize.ready.push_back(a.id);
  finalize.cuts = model::ops::FinalCuts{{{{6}, {50}, 1}, {7}, 21}, {{{9}, {12}, 3}, {11}, 4}};
  const std::vector<model::Operation> ops{finalize};
  const auto checks = government_checks(at, "1_random", map, ops);
  ASSERT_EQ(checks.size(), 2U);
  EXPECT_EQ(checks[0].path, at.government("1_random", low.region));
  EXPECT_EQ(checks[0].version, 21);
  EXPECT_EQ(checks[1].path, at.government("1_random", high.region));
  EXPECT_EQ(checks[1].version, 4);
  const auto done = next(finalize);
  size_t governments = 0;
  for (const auto& op : done) {
    if (!op.path.ends_with("/government")) continue;
    governments++;
    EXPECT_EQ(op.path, at.government("1_random", {4}));
    const auto g = coord::parse_government(op.value);
    ASSERT_TRUE(g);
    EXPECT_EQ(g->epoch.value, 12U);
    EXPECT_TRUE(g->leader.none());
    EXPECT_EQ(g->voters.size(), 3U);
  }
  EXPECT_EQ(governments, 1U);
  const auto nodes = region_nodes(map);
  for (const auto* p : {&low, &high}) {
    const auto node = written(done, at.region("1_random", p->region));
    EXPECT_EQ(node.state, coord::RegionState::merged);
    EXPECT_EQ(node.into.value, 4U);
    EXPECT_EQ(node.attempt, merge.attempt);
    EXPECT_EQ(nodes.at(p->region), node);
  }
  EXPECT_EQ(written(done, at.region("1_random", {4})).state, coord::RegionState::active);
}

// What a multi may hold: 1,000 operations and 1,000,000 bytes.
TEST(SwapOps, the_largest_multi_of_a_quorum_table_is_one_that_the_service_takes) {
  base::SeededRandom random(5);
  auto map = quorum_table(random, kRegionsAtOnce);
  model::TableConfig config;
  config.metadata_servers = {{"m1"}};
  model::set_current(config, map, std::string(32, 'h'));
  const auto swap = swap_ops(coord::Layout(std::string(63, 'c')), "1_random", config, -2, nullptr, map, {});
  EXPECT_FALSE(swap.regions_behind);
  EXPECT_LT(swap.ops.size(), 1000U);
  size_t bytes = 0;
  const size_t seven_for_three = 3;  // longer names, more voters
  for (const auto& op : swap.ops) bytes += 100 + op.path.size() + seven_for_three * op.value.size();
  EXPECT_LT(bytes, 1'000'000U);
}

}  // namespace
}  // namespace cantle::meta

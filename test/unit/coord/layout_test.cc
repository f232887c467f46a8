#include "lib/coord/layout.h"

#include <gtest/gtest.h>

namespace cantle::coord {
namespace {

using base::Code;
using model::Keyspace;
using model::Region;
using model::ServerId;

model::AttemptId attempt_id(uint8_t n) {
  model::AttemptId id;
  id.bytes[15] = n;
  return id;
}
model::PartitionId partition_id(uint8_t n) {
  model::PartitionId id;
  id.bytes[15] = n;
  return id;
}

TEST(Layout, paths_are_those_of_the_manual) {
  const Layout at("cantle");
  const auto d = distribution(Keyspace::range, "orders");
  EXPECT_EQ(at.format(), "/cantle/format");
  EXPECT_EQ(at.active(ServerId{"p1"}), "/cantle/nodes/active/p1");
  EXPECT_EQ(at.version(ServerId{"p1"}), "/cantle/nodes/version/p1");
  EXPECT_EQ(at.info(ServerId{"p1"}), "/cantle/nodes/info/p1");
  EXPECT_EQ(at.arrival_prefix(), "/cantle/arrivals/event-");
  EXPECT_EQ(at.config(d), "/cantle/distribution/1_orders/config");
  EXPECT_EQ(at.observed(d, ServerId{"p1"}), "/cantle/distribution/1_orders/observed/p1");
  EXPECT_EQ(at.system(d, Region{7}, ServerId{"p1"}), "/cantle/distribution/1_orders/regions/7/systems/p1");
  EXPECT_EQ(at.government(d, Region{7}), "/cantle/distribution/1_orders/regions/7/government");
  EXPECT_EQ(at.vote(d, Region{7}, {{3}, {120}}, ServerId{"p1"}),
            "/cantle/distribution/1_orders/regions/7/quorums/3-120:p1");
  EXPECT_EQ(at.ring_prefix(d), "/cantle/distribution/1_orders/bell/ring-");
  EXPECT_EQ(at.op_task(model::AttemptId{}), "/cantle/tasks/op-00000000000000000000000000000000");
  EXPECT_EQ(at.dropped(model::TableUuid{}), "/cantle/dropped/00000000000000000000000000000000");
}

TEST(Layout, skeletons_name_parents_first) {
  const Layout at("c");
  for (const auto& list : {at.skeleton(), at.table_skeleton("1_t")}) {
    std::vector<std::string> seen{"", at.distributions()};
    for (const auto& path : list) {
      EXPECT_NE(std::find(seen.begin(), seen.end(), path.substr(0, path.rfind('/'))), seen.end()) << path;
      seen.push_back(path);
    }
  }
}

TEST(Layout, distribution_names_round_trip_and_bad_ones_are_refused) {
  EXPECT_EQ(distribution(Keyspace::hash, "h"), "0_h");
  EXPECT_EQ(parse_distribution("1_orders").value(), (Distribution{Keyspace::range, "orders"}));
  EXPECT_EQ(parse_distribution("0_h").value(), (Distribution{Keyspace::hash, "h"}));
  for (const char* bad : {"", "1_", "orders", "2_orders", "1_Orders", "1_a/b"})
    EXPECT_FALSE(parse_distribution(bad)) << bad;
}

TEST(Layout, a_table_is_found_whatever_its_keyspace) {
  const std::vector<std::string> names{"0_h", "1_orders", "junk"};
  EXPECT_EQ(find_distribution(names, "h").value(), "0_h");
  EXPECT_EQ(find_distribution(names, "orders").value(), "1_orders");
  EXPECT_EQ(find_distribution(names, "rders").error().code, Code::no_such_table);
}

TEST(Layout, cluster_names) {
  EXPECT_TRUE(validate_cluster_name("cantle"));
  EXPECT_TRUE(validate_cluster_name("eu-1.prod"));
  for (const char* bad : {"", "/", "a/b", "Upper", "zookeeper", "-a"}) EXPECT_FALSE(validate_cluster_name(bad)) << bad;
}

TEST(Layout, sequence_numbers) {
  EXPECT_EQ(sequence_of("/c/arrivals/event-0000000012").value(), 12u);
  EXPECT_FALSE(sequence_of("event-12"));
  EXPECT_FALSE(sequence_of("event-00000x0012"));
}

TEST(Lines, ignores_what_it_does_not_know_and_the_last_value_counts) {
  const auto lines = Lines::parse("readwrite\n  role :  partd \r\n\nnew_field: x: y\nrole: mdserver");
  EXPECT_TRUE(lines.has_word("readwrite"));
  EXPECT_FALSE(lines.has_word("readonly"));
  EXPECT_EQ(lines.get("role"), "mdserver");
  EXPECT_EQ(lines.get("new_field"), "x: y");
  EXPECT_EQ(lines.need("absent").error().code, Code::invalid);
  EXPECT_EQ(Lines::parse("n: 12a").need_number("n").error().code, Code::invalid);
  EXPECT_EQ(Lines::parse("n: -1").need_number("n").error().code, Code::invalid);
}

TEST(LayoutValues, active_round_trips) {
  const Active a{true, Role::mdserver, "127.0.0.1:7400", "/run/m.sock", model::Incarnation{9}, "abc"};
  EXPECT_EQ(parse_active(active_text(a)).value(), a);
  EXPECT_EQ(active_text({.readonly = false, .tcp = "h:1", .unix_socket = "", .incarnation = {3}, .instance = ""}),
            "readwrite\nrole: partd\ntcp: h:1\nincarnation: 3\n");
  EXPECT_FALSE(parse_active("readwrite\nrole: partd\n"));  // without an incarnation nobody can tell its lives apart
  EXPECT_FALSE(parse_active("readwrite\nrole: king\nincarnation: 1\n"));
}

TEST(LayoutValues, info_round_trips_with_flags) {
  const NodeInfo i{Role::partd, model::ServerNumber{4}, "r1", "host a", 50, true, false, true};
  EXPECT_EQ(parse_info(info_text(i)).value(), i);
  EXPECT_NE(info_text(i).find("flags: drain, reserve\n"), std::string::npos);
  EXPECT_EQ(parse_info("").value(), NodeInfo{});
}

TEST(LayoutValues, the_rest_round_trips) {
  const NodeVersion v{"0.1.0", 1, 2, 1, 3};
  EXPECT_EQ(parse_version(version_text(v)).value(), v);
  const Arrival a{Arrival::Kind::departure, ServerId{"p1"}, "abc", 17, "r1", 50};
  EXPECT_EQ(parse_arrival(arrival_text(a)).value(), a);
  const RegionNode leaf{partition_id(1), RegionState::active, false, {}, false, {}, {}, "", {}};
  EXPECT_EQ(parse_region(region_text(leaf)).value(), leaf);
  const RegionNode inner{partition_id(2), RegionState::splitting,   true,         Region{3}, true, Region{4},
                         Region{5},       std::string("a\n\0z", 4), attempt_id(9)};
  EXPECT_EQ(parse_region(region_text(inner)).value(), inner);
  RegionNode merging = leaf;
  merging.state = RegionState::merged;
  merging.attempt = attempt_id(9);
  merging.has_target = true;
  merging.into = {8};
  EXPECT_EQ(parse_region(region_text(merging)).value(), merging);
  model::AssignmentId assignment;
  assignment.bytes[0] = 7;
  const SystemNode s{2, assignment, model::Lsn{99}};
  EXPECT_EQ(parse_system(system_text(s)).value(), s);
  const Observed o{model::TxnSeq{5}, model::Incarnation{2}};
  EXPECT_EQ(parse_observed(observed_text(o)).value(), o);
  const Task t{"m1", "orders", "split"};
  EXPECT_EQ(parse_task(task_text(t)).value(), t);
  const Dropped d{"orders", model::TxnSeq{8}};
  EXPECT_EQ(parse_dropped(dropped_text(d)).value(), d);
}

model::AssignmentId assignment_id(uint8_t n) {
  model::AssignmentId id;
  id.bytes[15] = n;
  return id;
}

TEST(LayoutValues, governments_and_votes_round_trip) {
  model::Government g{
      {7}, assignment_id(2), {{0, {"p1"}, assignment_id(1)}, {1, {"p-2.x"}, assignment_id(2)}}, "p1/3/9", {12}};
  EXPECT_EQ(parse_government(government_text(g)).value(), g);
  g.cut = model::CutReport{{}, {{6}, {1234}, 4000000000U}};
  g.cut->attempt.bytes[3] = 7;
  EXPECT_EQ(parse_government(government_text(g)).value(), g);
  g.cut->holders = {{"p-2.x"}, {"p1"}};
  EXPECT_EQ(parse_government(government_text(g)).value(), g);
  EXPECT_NE(government_text(g).find("cut_on: p-2.x p1\n"), std::string::npos);
  EXPECT_FALSE(parse_government(government_text({{1}, {}, g.voters, "m1", {}, g.cut}) + "cut_on: no/server\n"));
  for (const char* bad : {"x", "00000000000000000000000000000001", "00000000000000000000000000000001 1:2"})
    EXPECT_FALSE(parse_government(government_text({{1}, {}, g.voters, "m1"}) + "cut: " + bad + "\n")) << bad;
  g.leader = {};  // nobody leads
  EXPECT_EQ(parse_government(government_text(g)).value(), g);
  EXPECT_EQ(government_text({{1}, {}, {{0, {"p1"}, assignment_id(1)}}, "m1"}),
            "epoch: 1\nleader:\nvoters: 0/p1/00000000000000000000000000000001\nwriter: m1\ntxnseq: 0\n");
  const model::Vote v{{8}, {{7}, {1234}}, assignment_id(1), {"p1"}, 2, true, {12000000003}};
  EXPECT_EQ(parse_vote(vote_text(v)).value(), v);
  EXPECT_EQ(parse_token("7-1234").value(), v.token);
  for (const char* bad : {"", "7", "7-", "-7", "7-12x", "7-1-2"}) EXPECT_FALSE(parse_token(bad)) << bad;
}

TEST(LayoutValues, a_government_that_cannot_be_is_refused) {
  const std::string one = "0/p1/00000000000000000000000000000001", two = "1/p2/00000000000000000000000000000002";
  const auto text = [](const std::string& epoch, const std::string& leader, const std::string& voters) {
    return "epoch: " + epoch + "\nleader: " + leader + "\nvoters: " + voters + "\n";
  };
  const std::string first = one.substr(5);
  EXPECT_TRUE(parse_government(text("1", first, one + "  " + two)));
  EXPECT_FALSE(parse_government(text("0", "", one)));
  EXPECT_FALSE(parse_government(text("1", "", "")));
  EXPECT_FALSE(parse_government(text("1", "", one + " " + one)));
  EXPECT_FALSE(parse_government(text("1", std::string(31, '0') + "3", one)));
  EXPECT_FALSE(parse_government(text("1", "", "0/p1")));
  EXPECT_FALSE(parse_government(text("1", "", "0//00000000000000000000000000000001")));
  EXPECT_FALSE(parse_government(text("1", "", "x/p1/00000000000000000000000000000001")));
  EXPECT_FALSE(parse_government(text("1", "", "0/p1/00000000000000000000000000000000")));
}

TEST(LayoutValues, a_newer_layout_is_refused_as_an_identity_error) {
  const Format f{1, {}};
  EXPECT_EQ(parse_format(format_text(f)).value(), f);
  EXPECT_EQ(parse_format("layout: 2\ncluster: 00000000000000000000000000000000\n").error().code, Code::identity);
  EXPECT_EQ(parse_format("").error().code, Code::invalid);
}

TEST(LayoutValues, region_states_are_the_partitions_states) {
  EXPECT_EQ(region_state(model::PartitionState::splitting), RegionState::splitting);
  for (const auto s :
       {RegionState::creating, RegionState::active, RegionState::splitting, RegionState::merging, RegionState::split})
    EXPECT_EQ(parse_region_state(region_state_name(s)).value(), s);
}

}  // namespace
}  // namespace cantle::coord

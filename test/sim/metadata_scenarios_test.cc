// The scenarios of design/scenarios.md, section B, one by one: each forces its schedule and looks for the wrong result.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "lib/coord/governments.h"
#include "lib/meta/chores.h"
#include "lib/meta/config_ops.h"
#include "test/sim/metadata_world.h"

namespace cantle::sim {
namespace {

using base::Code;

MdOptions quiet(size_t servers = 3, size_t members = 3) {
  MdOptions o;
  o.servers = servers;
  o.members = members;
  o.requesters = 1;
  o.membership = o.crashes = o.faults = o.sessions = false;
  return o;
}
std::vector<model::Operation> option(const char* value) { return {model::ops::SetOption{"read_level", value}}; }

model::MdChange change_request(MdWorld& w, const std::vector<model::Operation>& ops) {
  model::MdChange request;
  request.table = "t";
  request.change = model::ChangeId::draw(w.scheduler().random());
  request.ops = wire::encode_operations(ops);
  return request;
}

// Asks, and waits for what is told.
Told told(MdWorld& w, std::vector<model::Operation> ops, int tries = 0) {
  std::optional<Told> got;
  w.change(std::move(ops), tries, [&](const Told& t) { got = t; });
  w.wait([&] { return got.has_value(); }, 60s);
  EXPECT_TRUE(got.has_value());
  return got ? *got : Told{};
}

TEST(SimMetadata, sim_s27_a_swap_whose_answer_was_lost_destroys_nothing) {
  run_seeds("metadata s27", 60, [](uint64_t seed) {
    auto o = quiet();
    o.requesters = 3;
    MdWorld w(seed, o);
    w.set_up();
    w.coord().faults().lose_reply = 0.4;
    w.coord().faults().late_change = 0.3;
    w.run(15s);
    w.finish();
    return w.verdict();
  });
}

TEST(SimMetadata, sim_s28_an_own_retry_is_no_conflict_and_is_made_once) {
  run_seeds("metadata s28", narrow(60), [](uint64_t seed) {
    MdWorld w(seed, quiet());
    w.set_up();
    w.network().faults().lose_answer = 0.5;
    for (int i = 0; i < 8; ++i) {
      const auto t = told(w, option(i % 2 ? "one" : "majority"), 6);
      if (t.what == Told::What::refused) w.violation("a retry was refused: " + t.text);
    }
    w.finish();
    return w.verdict();
  });
}

TEST(SimMetadata, sim_s30_the_last_holders_of_the_current_file_do_not_leave) {
  run_seeds("metadata s30", narrow(40), [](uint64_t seed) {
    MdWorld w(seed, quiet(4, 4));
    w.set_up();
    // m3 and m4 miss a change; then everybody is told to leave, while they come back.
    w.network().cut_both("m3", "*");
    w.network().cut_both("m4", "*");
    w.kill(w.host("m4"));
    told(w, option("majority"), 6);
    w.start(w.host("m4"));
    for (const char* name : {"m1", "m2", "m3", "m4"})
      w.send(name == std::string("m1") ? "m2" : "m1", model::MdLeave{"t", {name}}, 12s, [](Network::Answer) {});
    w.scheduler().run_for(3s);
    w.network().heal();
    w.scheduler().run_for(15s);
    if (w.config().metadata_servers.empty()) w.violation("nobody is left");
    w.finish();
    return w.verdict();
  });
}

TEST(SimMetadata, sim_s32_a_server_that_is_cut_off_says_so) {
  MdWorld w(1, quiet());
  w.set_up();
  // Cut off before it has read TableConfig of the new table: what it knows then is not that there is none.
  w.coord().cut("m3");
  w.scheduler().run_for(5s);
  const auto early = w.ask("m3", model::MdGet{"t", {}, {}, false});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::unavailable);
  w.coord().heal();
  told(w, option("majority"), 3);
  w.scheduler().run_for(5s);
  w.coord().cut("m3");
  const auto old = w.current()->txnseq;
  w.scheduler().run_for(5s);  // longer than its session
  const auto plain = w.ask("m3", model::MdGet{"t", {}, {}, false});
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().code, Code::unavailable);
  EXPECT_NE(plain.error().detail.find("age_ms="), std::string::npos);
  const auto taken = w.ask("m3", model::MdGet{"t", {}, {}, true});
  ASSERT_TRUE(taken) << to_string(taken.error());
  const auto& reply = std::any_cast<const model::MdGetReply&>(*taken);
  EXPECT_TRUE(reply.stale);
  EXPECT_GE(reply.age_ms, 3000U);
  EXPECT_EQ(reply.txnseq, old);
  w.coord().heal();
  EXPECT_TRUE(w.wait([&] { return w.ask("m3", model::MdGet{"t", {}, {}, false}).has_value(); }, 20s));
  EXPECT_EQ(w.violated(), "");
}

// m3 stands still (a stopped process, a stalled host) with the answer to a read of TableConfig, or to its own swap, in
// its socket, and goes on to answer lookups: what it learns so is as old as the question.
void show_what_lay_unread(const std::function<void(MdWorld&)>& make_it_ask) {
  size_t shown = 0;
  for (int step = 0; step < 50; ++step) {
    MdWorld w(1, quiet());
    w.set_up();
    told(w, option("majority"), 3);
    w.scheduler().run_for(3s);
    make_it_ask(w);
    w.scheduler().run_for(step * 100us);
    w.host("m3").process.pause(1200ms);  // within its session
    EXPECT_TRUE(w.ask("m1", change_request(w, {model::ops::SetOption{"write_level", "all"}})));
    w.scheduler().run_for(100ms);
    w.look_up("m3");
    const auto got = w.ask("m3", model::MdGet{"t", {}, {}, false});
    EXPECT_EQ(w.violated(), "") << "paused after " << step << " steps";
    if (!got) continue;
    const auto& reply = std::any_cast<const model::MdGetReply&>(*got);
    if (reply.txnseq == w.current()->txnseq) continue;
    ++shown;
    EXPECT_GE(reply.age_ms, 1000U) << "paused after " << step << " steps";
  }
  EXPECT_GT(shown, 0U) << "m3 never showed an old map: the test has lost its case";
}

TEST(SimMetadata, sim_s32_a_read_whose_answer_lay_unread_does_not_make_the_map_young) {
  show_what_lay_unread([](MdWorld& w) {
    w.send("m3", model::MdGet{"t", {}, w.current()->txnseq.next(), false}, 3s, [](Network::Answer) {});
  });
}

TEST(SimMetadata, sim_s32_a_swap_whose_answer_lay_unread_does_not_make_the_map_young) {
  show_what_lay_unread([](MdWorld& w) { w.send("m3", change_request(w, option("one")), 3s, [](Network::Answer) {}); });
}

TEST(SimMetadata, sim_s36_a_service_restored_from_the_past_is_refused) {
  MdWorld w(1, quiet());
  w.set_up();
  const int then = w.coord().remember();
  for (int i = 0; i < 3; ++i) told(w, option(i % 2 ? "one" : "majority"), 3);
  w.scheduler().run_for(3s);
  w.expect_regression();
  w.coord().restore(then);
  w.scheduler().run_for(5s);
  for (const char* name : {"m1", "m2", "m3"}) {
    const auto got = w.ask(name, model::MdGet{"t", {}, {}, true});
    ASSERT_FALSE(got) << name;
    EXPECT_EQ(got.error().code, Code::regressed) << name;
  }
  // And it stays refused after a restart: what was seen is on the disk.
  auto& m1 = w.host("m1");
  w.kill(m1);
  w.scheduler().run_for(100ms);
  w.start(m1);
  w.scheduler().run_for(4s);
  const auto got = w.ask("m1", model::MdGet{"t", {}, {}, true});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::regressed);
}

TEST(SimMetadata, sim_s38_a_proposer_that_dies_at_any_effect_leaves_a_change_that_is_made_or_not) {
  for (uint64_t effects = 1; effects <= 12; ++effects) {
    MdWorld w(effects, quiet());
    w.set_up();
    w.host("m1").process.arm_crash(effects);
    w.host("m2").process.arm_crash(effects + 5);
    const auto& p = w.current()->partitions.front();
    base::SeededRandom random(effects);
    const auto t = told(w, {model::draw_split(p, "m", {{"p3"}, {"p4"}, {"p5"}}, {}, random)}, 8);
    EXPECT_NE(t.what, Told::What::refused) << t.text;
    w.finish();  // whoever died comes back, and what was begun is driven to its end
    EXPECT_EQ(w.violated(), "") << "effects " << effects;
  }
}

TEST(SimMetadata, sim_s39_a_split_that_nobody_drives_ends_with_the_point_it_began_with) {
  MdWorld w(3, quiet());
  w.set_up();
  base::SeededRandom random(3);
  const auto op = model::draw_split(w.current()->partitions.front(), "m", {{"p3"}, {"p4"}, {"p5"}}, {}, random);
  ASSERT_EQ(told(w, {op}, 3).what, Told::What::made);
  // The driver dies again and again, at another step each time.
  for (int i = 0; i < 3; ++i) {
    w.scheduler().run_for(6s + i * 300ms);
    auto& driver = w.host("m" + std::to_string(i % 3 + 1));
    w.kill(driver);
    w.scheduler().run_for(3s);
    w.start(driver);
  }
  w.finish();
  ASSERT_EQ(w.violated(), "");
  ASSERT_EQ(w.current()->partitions.size(), 2U);
  EXPECT_EQ(w.current()->partitions[1].interval.begin, "m");
  EXPECT_EQ(w.current()->partitions[0].id, op.low.id);
  EXPECT_EQ(w.current()->partitions[1].id, op.high.id);
}

// The creation of m2's task comes late: after m2 has looked in vain, and when m1 is back and is the one to drive.
TEST(SimMetadata, sim_s39_a_task_that_comes_late_keeps_nobody_from_driving) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MdWorld w(seed, quiet());
    w.set_up();
    w.kill(w.host("m1"));
    w.scheduler().run_for(4s);  // m1's session is over: m2 is the first that lives
    base::SeededRandom random(seed);
    const auto op = model::draw_split(w.current()->partitions.front(), "m", {{"p3"}, {"p4"}, {"p5"}}, {}, random);
    ASSERT_EQ(told(w, {op}, 9).what, Told::What::made);  // m1 is dead
    w.set_partds(false);
    w.scheduler().run_for(4s);
    w.coord().faults().late_change = 1;
    w.scheduler().run_for(std::chrono::milliseconds(800 + 100 * seed));
    w.coord().faults().late_change = 0;
    w.start(w.host("m1"));
    w.scheduler().run_for(3s);
    w.set_partds(true);
    w.finish();
    EXPECT_EQ(w.violated(), "") << "seed " << seed;
    EXPECT_EQ(w.current()->partitions.size(), 2U);
  }
}

// The creation of m1's task comes late: m1 has left the list by then, and follows the map no longer.
TEST(SimMetadata, sim_s39_a_task_that_comes_to_one_who_has_left_keeps_nobody_from_driving) {
  size_t late = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MdWorld w(seed, quiet());
    w.set_up();
    base::SeededRandom random(seed);
    const auto op = model::draw_split(w.current()->partitions.front(), "m", {{"p3"}, {"p4"}, {"p5"}}, {}, random);
    ASSERT_EQ(told(w, {op}, 3).what, Told::What::made);
    w.set_partds(false);
    w.scheduler().run_for(4s);
    w.coord().faults().late_change = 1;
    w.scheduler().run_for(std::chrono::milliseconds(800 + 100 * seed));
    w.coord().faults().late_change = 0;
    EXPECT_TRUE(w.wait([&] { return w.ask("m2", model::MdLeave{"t", {"m1"}}).has_value(); }, 5s));
    EXPECT_TRUE(w.ask("m2", change_request(w, option("one"))));
    const auto task = w.layout().op_task(op.attempt);
    late += w.wait([&] { return w.coord().value(task) && w.coord().value(task)->find("m1") != std::string::npos; }, 3s);
    w.set_partds(true);
    w.finish();
    EXPECT_EQ(w.violated(), "") << "seed " << seed;
    EXPECT_EQ(w.config().metadata_servers.size(), 2U);
    EXPECT_EQ(w.current()->partitions.size(), 2U);
  }
  EXPECT_GT(late, 0U) << "no task came late: the test has lost its case";
}

TEST(SimMetadata, sim_s39_a_table_that_is_dropped_while_it_splits_leaves_no_task) {
  MdWorld w(1, quiet());
  w.set_up();
  base::SeededRandom random(1);
  const auto op = model::draw_split(w.current()->partitions.front(), "m", {{"p3"}, {"p4"}, {"p5"}}, {}, random);
  ASSERT_EQ(told(w, {op}, 3).what, Told::What::made);
  w.set_partds(false);
  const auto task = w.layout().op_task(op.attempt);
  ASSERT_TRUE(w.wait([&] { return w.coord().value(task) != nullptr; }, 20s)) << "nobody drives the split";
  ASSERT_EQ(told(w, {model::ops::DropTable{true}}, 3).what, Told::What::made);
  w.set_partds(true);
  EXPECT_TRUE(w.wait([&] { return w.coord().value(w.layout().config("1_t")) == nullptr; }, 60s));
  EXPECT_TRUE(w.wait([&] { return w.coord().value(task) == nullptr; }, 60s));
}

// Servers die while they remove it.
void drop(MdWorld& w) {
  if (told(w, {model::ops::DropTable{true}}, 6).what != Told::What::made) return w.violation("it could not be dropped");
  for (const char* name : {"m1", "m2", "m3", "m4"})
    w.host(name).process.arm_crash(1 + w.scheduler().random().below(60));
  w.coord().faults().lose_reply = w.coord().faults().lose_request = 0.1;
  w.scheduler().run_for(8s);
  w.stop_faults();
  if (!w.wait([&] { return w.coord().value(w.layout().table("1_t")) == nullptr; }, 60s))
    return w.violation("something of a dropped table stays");
  for (const auto& [path, node] : w.coord().tree())
    if (path.find("/1_t") != std::string::npos) w.violation("of a dropped table there is still " + path);
}

TEST(SimMetadata, a_dropped_table_goes_though_servers_die_while_they_remove_it) {
  run_seeds("metadata of dropped tables", narrow(60), [](uint64_t seed) {
    MdWorld w(seed, quiet(4, 4));
    w.set_up();
    w.scheduler().run_for(3s);
    drop(w);
    return w.verdict();
  });
}

// --- nodes of quorum tables ------------------------------------------------------------------------------------------

// One who votes in a region of the table, with a session of its own.
struct Voting {
  Voting(MdWorld& w, const std::string& name, model::Region in = {1})
      : region(in), process(w.scheduler(), name, "partd") {
    process.restart();
    session = w.coord().open(process);
    governments = std::make_unique<coord::Governments>(*session, w.layout());
    w.wait([&] { return session->connected(); }, 5s);
  }
  model::Vote vote(uint64_t lsn) const { return {{2}, {{1}, {lsn}}, {}, {process.host()}, 0, true, {1}}; }
  base::Status put(MdWorld& w, uint64_t lsn) {
    std::optional<base::Status> done;
    governments->put_vote("1_t", region, vote(lsn), [&](base::Status s) { done = std::move(s); });
    w.wait([&] { return done.has_value(); }, 5s);
    return done ? *done : base::fail(Code::cancelled, "never answered");
  }
  model::Region region;
  Process process;
  std::unique_ptr<coord::Session> session;
  std::unique_ptr<coord::Governments> governments;
};

size_t count_below(MdWorld& w, const std::string& path) { return children_of(w.coord().tree(), path).size(); }

// Votes end with their sessions, and leave the rings of the bell behind. The voters are the caller's: the world has
// plans of their processes for as long as it runs.
using Voters = std::pair<std::optional<Voting>, std::optional<Voting>>;
void leave_votes_behind(MdWorld& w, Voters& voters) {
  const auto region = w.chain().back()->partitions.begin()->region;
  const auto quorums = w.layout().quorums("1_t", region), bell = w.layout().bell("1_t");
  auto& stays = voters.first.emplace(w, "p1", region);
  auto& goes = voters.second.emplace(w, "p2", region);
  for (uint64_t lsn : {5, 6, 7})
    if (!goes.put(w, lsn)) return w.violation("no vote could be put");
  if (!stays.put(w, 7)) return w.violation("no vote could be put");
  goes.governments.reset();
  goes.session.reset();
  goes.process.kill();
  w.coord().expire("p2");
  w.scheduler().run_for(1s);
  if (count_below(w, bell) < 4) return w.violation("nothing was left behind");
  w.scheduler().run_for(3 * meta::kRingsKept);
  if (children_of(w.coord().tree(), quorums) != std::vector<std::string>{"1-7:p1"})
    return w.violation("votes are there whose session has ended, or one whose has not is gone");
  if (count_below(w, bell) != 0) w.violation("rings that everybody has heard are still there");
}

TEST(SimMetadata, a_quorum_table_has_its_governments_whatever_goes_wrong_and_leaves_nothing) {
  run_seeds("metadata of quorum tables", narrow(60), [](uint64_t seed) {
    MdOptions o;
    o.replication = model::Replication::quorum;
    o.partitions = seed % 4 == 0 ? meta::kRegionsAtOnce + 20 : 1 + seed % 3;
    MdWorld w(seed, o);
    Voters voters;
    w.set_up();
    w.run(10s);
    w.finish();
    if (w.violated().empty() && seed % 4 == 1) leave_votes_behind(w, voters);  // long
    if (w.violated().empty()) drop(w);
    return w.verdict();
  });
}

TEST(SimMetadata, sim_s41_no_committed_map_has_a_hole_or_an_overlap) {
  run_seeds("metadata s41", 40, [](uint64_t seed) {
    MdOptions o;
    o.splits = 0.9;
    MdWorld w(seed, o);  // every committed file is held against the rules
    w.set_up();
    w.run(20s);
    w.finish();
    return w.verdict();
  });
}

}  // namespace
}  // namespace cantle::sim

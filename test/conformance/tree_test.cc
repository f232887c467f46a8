// Znodes: values, versions, counters, sequences, multis, limits.
#include "test/conformance/backend.h"

namespace cantle::conformance {
namespace {

using coord::Op;
using coord::OpCheck;
using coord::OpCreate;
using coord::OpRemove;
using coord::OpSet;

class Tree : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    coord_ = open();
    ASSERT_NE(coord_, nullptr);
  }
  std::unique_ptr<SyncSession> coord_;
};

TEST_P(Tree, what_was_written_is_read_back_with_its_counters) {
  EXPECT_EQ(coord_->create("/a", "one").value(), "/a");
  EXPECT_EQ(coord_->create("/a/b", "").value(), "/a/b");
  EXPECT_EQ(coord_->get("/a/b")->value, "");
  EXPECT_EQ(coord_->set("/a", std::string("t\0wo", 4), 0)->version, 1);
  const auto node = coord_->get("/a").value();
  EXPECT_EQ(node.value, std::string("t\0wo", 4));
  EXPECT_EQ(node.stat.version, 1);
  EXPECT_EQ(node.stat.cversion, 1);
  EXPECT_GT(node.stat.mzxid, node.stat.czxid);
  EXPECT_EQ(node.stat.ephemeral_owner, 0u);
  EXPECT_GT(coord_->exists("/a/b")->czxid, node.stat.czxid);
  EXPECT_TRUE(coord_->remove("/a/b", 0));
  EXPECT_EQ(coord_->exists("/a")->cversion, 2);
  EXPECT_EQ(coord_->exists("/a/b").error().code, Code::not_found);
}

TEST_P(Tree, a_znode_made_anew_begins_anew) {
  coord_->create("/a", "").value();
  const auto first = coord_->set("/a", "x", kAnyVersion).value();
  EXPECT_TRUE(coord_->remove("/a", 1));
  coord_->create("/a", "").value();
  const auto second = coord_->exists("/a").value();
  EXPECT_EQ(second.version, 0);
  EXPECT_GT(second.czxid, first.mzxid);
}

TEST_P(Tree, refusals_have_their_codes_and_change_nothing) {
  coord_->create("/a", "x").value();
  coord_->create("/a/b", "").value();
  EXPECT_EQ(coord_->get("/none").error().code, Code::not_found);
  EXPECT_EQ(coord_->children("/none").error().code, Code::not_found);
  EXPECT_EQ(coord_->set("/none", "", kAnyVersion).error().code, Code::not_found);
  EXPECT_EQ(coord_->remove("/none").error().code, Code::not_found);
  EXPECT_EQ(coord_->create("/none/child", "").error().code, Code::not_found);
  EXPECT_EQ(coord_->create("/a", "").error().code, Code::exists);
  EXPECT_EQ(coord_->create("/", "").error().code, Code::exists);
  EXPECT_EQ(coord_->set("/a", "", 3).error().code, Code::conflict);
  EXPECT_EQ(coord_->remove("/a", 3).error().code, Code::conflict);
  EXPECT_EQ(coord_->remove("/a").error().code, Code::not_empty);
  EXPECT_EQ(coord_->remove("/").error().code, Code::invalid);
  for (const char* bad : {"", "a", "/a/", "/a//b", "/./a"})
    EXPECT_EQ(coord_->create(bad, "").error().code, Code::invalid) << bad;
  EXPECT_EQ(coord_->get("/a")->value, "x");
  EXPECT_EQ(coord_->get("/a")->stat.version, 0);
}

TEST_P(Tree, children_are_named_in_order) {
  coord_->create("/a", "").value();
  for (const char* name : {"c", "a", "b", "a-1"}) coord_->create(std::string("/a/") + name, "").value();
  coord_->create("/ab", "").value();
  EXPECT_EQ(coord_->children("/a").value(), (std::vector<std::string>{"a", "a-1", "b", "c"}));
  EXPECT_EQ(coord_->children("/a/b").value(), std::vector<std::string>{});
}

TEST_P(Tree, sequential_names_are_given_once_whoever_asks) {
  const auto other = open();
  coord_->create("/q", "").value();
  std::vector<std::string> made;
  size_t answered = 0;
  constexpr size_t kEach = 50;
  for (size_t i = 0; i < kEach; i++)
    for (auto* who : {coord_.get(), other.get()})
      who->session().create("/q/id-", "", CreateMode::persistent_sequential, [&](base::Result<std::string> path) {
        answered++;
        if (path) made.push_back(*path);
      });
  EVENTUALLY(answered == 2 * kEach);
  std::sort(made.begin(), made.end());
  ASSERT_EQ(made.size(), 2 * kEach);
  EXPECT_EQ(std::unique(made.begin(), made.end()), made.end());
  EXPECT_EQ(made.front(), "/q/id-0000000000");
  EXPECT_EQ(made.back(), "/q/id-0000000099");
  EXPECT_TRUE(coord_->remove("/q/id-0000000099"));
  EXPECT_EQ(coord_->create("/q/id-", "", CreateMode::persistent_sequential).value(), "/q/id-0000000100");
}

TEST_P(Tree, a_multi_happens_whole_and_says_what_it_made) {
  coord_->create("/q", "").value();
  const auto done =
      coord_->multi({OpCreate{"/m", "1"}, OpCreate{"/m/a", "2"}, OpSet{"/m", "3", 0}, OpCheck{"/m", 1},
                     OpCreate{"/q/s-", "", CreateMode::persistent_sequential}, OpRemove{"/m/a"}, OpCheck{"/q"}});
  ASSERT_TRUE(done) << base::to_string(done.error());
  EXPECT_EQ((*done)[0].path, "/m");
  EXPECT_EQ((*done)[2].stat.version, 1);
  EXPECT_EQ((*done)[4].path, "/q/s-0000000000");
  EXPECT_EQ(coord_->get("/m")->value, "3");
  EXPECT_EQ(coord_->exists("/m/a").error().code, Code::not_found);
  EXPECT_EQ(coord_->exists("/m")->czxid, coord_->exists("/q/s-0000000000")->czxid);
}

TEST_P(Tree, a_multi_that_is_refused_does_nothing_and_says_why) {
  coord_->create("/a", "x").value();
  const auto refused = coord_->multi({OpSet{"/a", "y", 0}, OpCreate{"/b", ""}, OpCheck{"/a", 7}, OpRemove{"/none"}});
  EXPECT_EQ(refused.error().code, Code::conflict);
  EXPECT_EQ(refused.error().detail, "2");
  EXPECT_EQ(coord_->multi({OpCreate{"/b", ""}, OpRemove{"/none"}}).error().code, Code::not_found);
  EXPECT_EQ(coord_->multi({OpCreate{"/a", ""}}).error().code, Code::exists);
  EXPECT_EQ(coord_->multi({OpCreate{"/a/c", ""}, OpRemove{"/a"}}).error().code, Code::not_empty);
  EXPECT_EQ(coord_->get("/a")->value, "x");
  EXPECT_EQ(coord_->get("/a")->stat.cversion, 0);
  EXPECT_FALSE(coord_->exists("/b"));
}

TEST_P(Tree, requests_of_one_session_take_effect_in_their_order) {
  coord_->create("/n", "").value();
  std::vector<std::string> seen;
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; i++) {
    coord_->session().set("/n", std::to_string(i), i, [](auto r) { EXPECT_TRUE(r); });
    coord_->session().get("/n", nullptr, [&](base::Result<coord::Node> r) { seen.push_back(r ? r->value : "?"); });
  }
  EVENTUALLY(seen.size() == kRounds);
  for (int i = 0; i < kRounds; i++) EXPECT_EQ(seen[static_cast<size_t>(i)], std::to_string(i));
}

TEST_P(Tree, what_one_session_wrote_another_reads_after_a_sync) {
  const auto other = open();
  coord_->create("/n", "0").value();
  for (int i = 1; i <= 20; i++) {
    coord_->set("/n", std::to_string(i), kAnyVersion).value();
    EXPECT_TRUE(other->sync("/n"));
    EXPECT_EQ(other->get("/n")->value, std::to_string(i));
  }
}

TEST_P(Tree, of_two_who_change_one_version_one_wins) {
  const auto other = open();
  coord_->create("/n", "").value();
  int won = 0, lost = 0;
  constexpr int kRounds = 30;
  for (int version = 0; version < kRounds; version++) {
    int answers = 0;
    for (auto* who : {coord_.get(), other.get()})
      who->session().set("/n", "", version, [&](base::Result<coord::Stat> r) {
        answers++;
        if (r)
          won++;
        else
          lost += r.error().code == Code::conflict;
      });
    EVENTUALLY(answers == 2);
  }
  EXPECT_EQ(won, kRounds);
  EXPECT_EQ(lost, kRounds);
}

// An oversized request looks like a lost connection to a ZooKeeper client: it must not leave us.
TEST_P(Tree, a_million_bytes_pass_and_one_more_is_refused_here) {
  const std::string big(coord::kValueMax, 'x');
  coord_->create("/big", big).value();
  EXPECT_EQ(coord_->get("/big")->value, big);
  EXPECT_EQ(coord_->set("/big", std::string(coord::kValueMax, 'y'), 0)->version, 1);
  EXPECT_EQ(coord_->set("/big", big + "x", kAnyVersion).error().code, Code::invalid);
  EXPECT_EQ(coord_->create("/big2", big + "x").error().code, Code::invalid);
  EXPECT_EQ(coord_->multi({OpSet{"/big", big, 1}})->size(), 1u);
  const std::string half(coord::kMultiBytesMax / 2, 'z');
  EXPECT_EQ(coord_->multi({OpSet{"/big", half}, OpSet{"/big", half}}).error().code, Code::invalid);
  EXPECT_EQ(coord_->multi(std::vector<Op>(coord::kMultiOpsMax + 1, OpCheck{"/big"})).error().code, Code::invalid);
  EXPECT_EQ(coord_->multi(std::vector<Op>(coord::kMultiOpsMax, OpCheck{"/big"}))->size(), coord::kMultiOpsMax);
  EXPECT_TRUE(coord_->session().connected());
  EXPECT_EQ(coord_->create("/" + std::string(600, 'p'), "").error().code, Code::invalid);
}

TEST_P(Tree, callbacks_come_later_and_once_and_not_after_the_end) {
  auto session = open();
  int calls = 0;
  session->session().exists("/", nullptr, [&](auto) { calls++; });
  EXPECT_EQ(calls, 0);
  EVENTUALLY(calls == 1);
  session->session().create("/late", "", CreateMode::persistent, [&](auto) { calls++; });
  session->session().get("bad", nullptr, [&](auto) { calls++; });
  session.reset();
  coord_->sync("/").value();
  EXPECT_EQ(calls, 1);
}

INSTANTIATE_TEST_SUITE_P(Coord, Tree, testing::Values(Kind::file, Kind::standalone, Kind::ensemble),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace cantle::conformance

// Watches: hints that come once, also through a lost connection (R29).
#include "test/conformance/backend.h"

namespace cantle::conformance {
namespace {

class Watching : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    coord_ = open();
    other_ = open();
    ASSERT_TRUE(coord_ && other_);
    other_->create("/n", "0").value();
    ASSERT_TRUE(coord_->sync("/n"));  // in an ensemble the two are with different servers
  }
  coord::Watch count(int* fired) {
    return [fired] { ++*fired; };
  }
  // Sets a watch; returns when the read has answered.
  void watch_value(const std::string& path, int* fired) {
    bool answered = false;
    coord_->session().get(path, count(fired), [&](auto) { answered = true; });
    ASSERT_TRUE(eventually([&] { return answered; }));
  }
  void watch_existence(const std::string& path, int* fired) {
    bool answered = false;
    coord_->session().exists(path, count(fired), [&](auto) { answered = true; });
    ASSERT_TRUE(eventually([&] { return answered; }));
  }
  void watch_children(const std::string& path, int* fired) {
    bool answered = false;
    coord_->session().children(path, count(fired), [&](auto) { answered = true; });
    ASSERT_TRUE(eventually([&] { return answered; }));
  }
  // Everything that happened has been heard of: a watch set later fired.
  void settle() {
    int fired = 0;
    static int number = 0;
    const auto path = "/settle-" + std::to_string(number++);
    watch_existence(path, &fired);
    other_->create(path, "").value();
    ASSERT_TRUE(eventually([&] { return fired == 1; }));
  }
  std::unique_ptr<SyncSession> coord_, other_;
};

TEST_P(Watching, a_change_of_the_value_is_told_once) {
  int fired = 0;
  watch_value("/n", &fired);
  other_->set("/n", "1", kAnyVersion).value();
  EVENTUALLY(fired == 1);
  other_->set("/n", "2", kAnyVersion).value();
  settle();
  EXPECT_EQ(fired, 1);
  watch_value("/n", &fired);
  other_->set("/n", "2", kAnyVersion).value();  // the same value is a change too
  EVENTUALLY(fired == 2);
}

TEST_P(Watching, ones_own_change_is_told_as_well) {
  int fired = 0;
  watch_value("/n", &fired);
  coord_->set("/n", "1", kAnyVersion).value();
  EVENTUALLY(fired == 1);
}

TEST_P(Watching, creation_and_removal_are_told) {
  int born = 0, gone = 0;
  watch_existence("/new", &born);
  watch_existence("/n", &gone);
  other_->create("/new", "").value();
  EVENTUALLY(born == 1);
  EXPECT_TRUE(other_->remove("/n"));
  EVENTUALLY(gone == 1);
  EXPECT_EQ(born, 1);
}

TEST_P(Watching, children_are_told_of_but_not_what_happens_inside_them) {
  int fired = 0;
  watch_children("/n", &fired);
  other_->set("/n", "1", kAnyVersion).value();
  settle();
  EXPECT_EQ(fired, 0);
  other_->create("/n/a", "").value();
  EVENTUALLY(fired == 1);
  watch_children("/n", &fired);
  other_->set("/n/a", "x", kAnyVersion).value();
  other_->create("/n/a/deep", "").value();
  settle();
  EXPECT_EQ(fired, 1);
  EXPECT_TRUE(other_->remove("/n/a/deep"));
  EXPECT_TRUE(other_->remove("/n/a"));
  EVENTUALLY(fired == 2);
  watch_children("/n", &fired);
  EXPECT_TRUE(other_->remove("/n"));
  EVENTUALLY(fired == 3);
}

TEST_P(Watching, a_value_watch_does_not_hear_of_children) {
  int fired = 0;
  watch_value("/n", &fired);
  other_->create("/n/a", "").value();
  settle();
  EXPECT_EQ(fired, 0);
}

TEST_P(Watching, only_exists_waits_for_what_is_not_there) {
  int fired = 0;
  watch_value("/none", &fired);
  watch_children("/none", &fired);
  other_->create("/none", "").value();
  settle();
  EXPECT_EQ(fired, 0);
}

TEST_P(Watching, a_removed_and_made_anew_znode_is_a_change) {
  int fired = 0;
  watch_value("/n", &fired);
  EXPECT_TRUE(other_->remove("/n"));
  other_->create("/n", "0").value();
  EVENTUALLY(fired == 1);
}

TEST_P(Watching, several_watches_on_one_znode_all_fire) {
  int a = 0, b = 0, c = 0;
  watch_value("/n", &a);
  watch_value("/n", &b);
  watch_existence("/n", &c);
  other_->set("/n", "1", kAnyVersion).value();
  EVENTUALLY(a == 1 && b == 1 && c == 1);
}

TEST_P(Watching, a_loop_of_watch_and_read_sees_the_last_value) {
  std::string seen;
  int reads = 0;
  std::function<void()> look = [&] {
    coord_->session().get("/n", look, [&](base::Result<coord::Node> r) {
      reads++;
      if (r) seen = r->value;
    });
  };
  look();
  for (int i = 1; i <= 100; i++) other_->set("/n", std::to_string(i), kAnyVersion).value();
  EVENTUALLY(seen == "100");
  EXPECT_LE(reads, 102);
}

TEST_P(Watching, too_many_are_refused_here_and_not_by_an_endless_reconnection) {
  const std::string long_name = "/n/" + std::string(400, 'x');
  size_t set = 0, refused = 0, asked = 0;
  for (; asked < 2000; asked++)
    coord_->session().exists(
        long_name + std::to_string(asked), [] {},
        [&](base::Result<coord::Stat> r) { (r.error().code == Code::not_found ? set : refused)++; });
  EVENTUALLY(set + refused == asked);
  if (set == asked) {  // all were asked before the first was set: the next one finds them
    base::Result<coord::Stat> last = base::fail(Code::faulted, "");
    bool answered = false;
    coord_->session().exists(
        "/n/x", [] {}, [&](auto r) { last = r, answered = true; });
    EVENTUALLY(answered);
    EXPECT_EQ(last.error().code, Code::invalid);
  } else {
    EXPECT_GT(refused, 0u);
  }
  EXPECT_TRUE(coord_->session().connected());
}

INSTANTIATE_TEST_SUITE_P(Coord, Watching, testing::Values(Kind::file, Kind::standalone, Kind::ensemble),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace cantle::conformance

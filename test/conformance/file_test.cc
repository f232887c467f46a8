// What only the embedded backend has: processes that die and are noticed at once, and the writer lock.
#include <signal.h>

#include "lib/coord/file_env.h"
#include "test/conformance/backend.h"

namespace cantle::conformance {
namespace {

class Embedded : public testing::Test {
 protected:
  Embedded() : dir_(fresh_dir()), url_("file://" + dir_) {}
  std::unique_ptr<SyncSession> open(base::Duration timeout = 2s, base::Duration operation = 0s) {
    return SyncSession::open(loop_, {.url = url_, .session_timeout = timeout, .operation_timeout = operation}).value();
  }
  bool eventually(const std::function<bool()>& so, base::Duration limit = 10s) { return turn_until(loop_, so, limit); }
  std::string dir_, url_;
  io::Loop loop_;
};

TEST_F(Embedded, a_killed_process_loses_its_session_at_once) {
  const auto watcher = open(10s);
  const std::string value = "readwrite\nincarnation: 1\n";
  Child child(self({"--child", "register", url_.c_str(), "10000", "/e", value, "1"}));
  ASSERT_TRUE(watcher->exists("/e"));
  bool gone = false;
  watcher->session().get(
      "/e", [&] { gone = true; }, [](auto) {});
  loop_.run_for(50ms, [] { return false; });
  child.kill();
  EXPECT_TRUE(eventually([&] { return gone; }, 1s));  // not after its ten seconds
  EXPECT_FALSE(watcher->exists("/e"));
}

TEST_F(Embedded, a_writer_that_was_stopped_in_a_commit_blocks_changes_but_not_reads_and_is_named) {
  const auto coord = open(2s, 700ms);
  coord->create("/n", "0").value();
  Child holder(self({"--child", "hold-writer", dir_}));
  ASSERT_EQ(holder.greeting(), "holding");
  holder.signal(SIGSTOP);
  EXPECT_EQ(coord->set("/n", "1", 0).error().code, Code::unavailable);  // withdrawn: known not to have happened
  EXPECT_EQ(coord->get("/n")->value, "0");
  const auto env = coord::file::Env::open(dir_).value();
  const auto who = coord::file::describe_writer(env->writer_fd());
  EXPECT_NE(who.find("pid " + std::to_string(holder.pid())), std::string::npos) << who;
  EXPECT_NE(who.find("stopped"), std::string::npos) << who;
  EXPECT_TRUE(coord->session().connected());
  holder.kill();  // the kernel lets go of its locks
  EXPECT_EQ(coord->set("/n", "2", 0)->version, 1);
  EXPECT_EQ(coord::file::describe_writer(env->writer_fd()), "");
}

TEST_F(Embedded, what_was_withdrawn_is_not_made_later) {
  const auto coord = open(2s, 300ms);
  coord->create("/n", "0").value();
  {
    Child holder(self({"--child", "hold-writer", dir_}));
    EXPECT_EQ(coord->set("/n", "late", 0).error().code, Code::unavailable);
  }
  EXPECT_EQ(coord->set("/n", "next", 0)->version, 1);
  EXPECT_EQ(coord->get("/n")->value, "next");
}

TEST_F(Embedded, a_tree_survives_everybody) {
  open()->create("/kept", "x").value();
  EXPECT_EQ(open()->get("/kept")->value, "x");
  const auto coord = open();
  EXPECT_TRUE(coord->children("/").value() == std::vector<std::string>{"kept"});
}

TEST_F(Embedded, urls_that_cannot_be_used_are_invalid) {
  for (const char* url : {"", "file://", "file://relative/dir", "http://x", "zk://", "zk://:1", "zk://h:0",
                          "zk://h:99999", "zk://h:1/a//b"})
    EXPECT_EQ(coord::open(loop_, {.url = url}).error().code, Code::invalid) << url;
}

TEST_F(Embedded, a_missing_parent_directory_is_made_and_an_unusable_one_is_told) {
  url_ += "/not/there/yet";
  EXPECT_TRUE(open()->create("/a", ""));
  const auto unusable = coord::open(loop_, {.url = "file:///proc/self/coord"});
  EXPECT_FALSE(unusable);
}

}  // namespace
}  // namespace cantle::conformance

#include "lib/coord/file_tree.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>

#include "lib/coord/file_env.h"
#include "lib/coord/file_writer.h"

namespace cantle::coord::file {
namespace {

using base::Code;

class FileTree : public testing::Test {
 protected:
  FileTree() {
    std::string name = testing::TempDir() + "/cantle-tree-XXXXXX";
    dir_ = mkdtemp(name.data());
    env_ = Env::open(dir_).value();
  }
  ~FileTree() override {
    env_.reset();
    std::filesystem::remove_all(dir_);
  }
  // One commit, as a session's changes would be.
  void edit(const std::function<void(Editor&)>& change) {
    ASSERT_TRUE(env_->writer().run_now([&](MDB_txn* txn) -> base::Status {
      Editor editor(*env_, txn);
      change(editor);
      return editor.seal();
    }));
  }
  void look(const std::function<void(const Reader&)>& see) {
    auto txn = ReadTxn::begin(env_);
    ASSERT_TRUE(txn);
    see(Reader(*env_, txn->raw()));
  }
  std::string dir_;
  std::shared_ptr<Env> env_;
};

TEST_F(FileTree, counts_as_zookeeper_counts) {
  edit([](Editor& e) {
    EXPECT_EQ(e.create("/a", "x", CreateMode::persistent, 0).value(), "/a");
    EXPECT_EQ(e.create("/a/b", "", CreateMode::persistent, 0).value(), "/a/b");
    EXPECT_EQ(e.set("/a", "y", 0)->version, 1);
    EXPECT_EQ(e.set("/a", "z", kAnyVersion)->version, 2);
    EXPECT_TRUE(e.remove("/a/b", 0));
    EXPECT_EQ(e.create("/a/c", "", CreateMode::persistent, 0).value(), "/a/c");
  });
  look([](const Reader& r) {
    const auto node = r.get("/a").value();
    EXPECT_EQ(node.value, "z");
    EXPECT_EQ(node.stat.version, 2);
    EXPECT_EQ(node.stat.cversion, 3);  // two creations, one deletion
    EXPECT_GT(node.stat.mzxid, node.stat.czxid);
    EXPECT_GT(r.exists("/a/c")->czxid, node.stat.mzxid);
    EXPECT_EQ(r.children("/a")->names, std::vector<std::string>{"c"});
  });
}

TEST_F(FileTree, sequential_names_never_come_twice) {
  edit([](Editor& e) {
    EXPECT_TRUE(e.create("/q", "", CreateMode::persistent, 0));
    EXPECT_EQ(e.create("/q/id-", "", CreateMode::persistent_sequential, 0).value(), "/q/id-0000000000");
    EXPECT_TRUE(e.remove("/q/id-0000000000", kAnyVersion));
    EXPECT_EQ(e.create("/q/id-", "", CreateMode::persistent_sequential, 0).value(), "/q/id-0000000001");
  });
}

TEST_F(FileTree, refusals_leave_nothing_behind_and_take_no_zxid) {
  uint64_t before = 0;
  edit([&](Editor& e) {
    EXPECT_TRUE(e.create("/a", "", CreateMode::persistent, 0));
    EXPECT_TRUE(e.create("/a/b", "", CreateMode::persistent, 0));
    before = static_cast<uint64_t>(e.exists("/a/b")->czxid);
    EXPECT_EQ(e.create("/a", "", CreateMode::persistent, 0).error().code, Code::exists);
    EXPECT_EQ(e.create("/x/y", "", CreateMode::persistent, 0).error().code, Code::not_found);
    EXPECT_EQ(e.set("/a", "", 7).error().code, Code::conflict);
    EXPECT_EQ(e.set("/x", "", kAnyVersion).error().code, Code::not_found);
    EXPECT_EQ(e.remove("/a", kAnyVersion).error().code, Code::not_empty);
    EXPECT_EQ(e.remove("/a/b", 7).error().code, Code::conflict);
    EXPECT_EQ(e.remove("/", kAnyVersion).error().code, Code::invalid);
  });
  look([&](const Reader& r) { EXPECT_EQ(r.zxid(), before); });
}

TEST_F(FileTree, a_multi_happens_whole_or_not_at_all) {
  edit([](Editor& e) {
    const std::vector<Op> good{OpCreate{"/m", "1"}, OpCreate{"/m/a", "2"}, OpSet{"/m", "3", 0}, OpCheck{"/m", 1}};
    const auto done = e.multi(good, 0).value();
    EXPECT_EQ(done[1].path, "/m/a");
    EXPECT_EQ(done[2].stat.version, 1);
    EXPECT_EQ(e.exists("/m")->czxid, e.exists("/m/a")->czxid);  // one change, one zxid
    const auto refused = e.multi({OpCreate{"/n", ""}, OpRemove{"/m/a"}, OpCheck{"/m", 9}}, 0);
    EXPECT_EQ(refused.error().code, Code::conflict);
    EXPECT_EQ(refused.error().detail, "2");
  });
  look([](const Reader& r) {
    EXPECT_FALSE(r.exists("/n"));
    EXPECT_EQ(r.children("/m")->names, std::vector<std::string>{"a"});
  });
}

TEST_F(FileTree, the_end_of_a_session_takes_its_ephemerals_and_no_others) {
  edit([](Editor& e) {
    for (const uint64_t id : {5, 6}) EXPECT_TRUE(e.add_session({id, 1000}));
    EXPECT_TRUE(e.create("/a", "", CreateMode::ephemeral, 5));
    EXPECT_TRUE(e.create("/b", "", CreateMode::ephemeral, 6));
    EXPECT_TRUE(e.create("/c", "", CreateMode::ephemeral, 5));
    EXPECT_TRUE(e.remove("/c", kAnyVersion));
    EXPECT_TRUE(e.create("/c", "", CreateMode::ephemeral, 6));  // another's now
    EXPECT_EQ(e.create("/b/x", "", CreateMode::persistent, 0).error().code, Code::invalid);
    EXPECT_TRUE(e.end_session(5));
  });
  look([](const Reader& r) {
    EXPECT_EQ(r.children("/")->names, (std::vector<std::string>{"b", "c"}));
    EXPECT_EQ(r.exists("/b")->ephemeral_owner, 6u);
    EXPECT_FALSE(r.has_session(5));
    EXPECT_TRUE(r.has_session(6));
    EXPECT_EQ(r.ephemerals(6), (std::vector<std::string>{"/b", "/c"}));
  });
}

TEST_F(FileTree, children_are_not_mixed_with_those_of_names_that_begin_alike) {
  edit([](Editor& e) {
    for (const char* path : {"/a", "/ab", "/a/x", "/ab/y", "/a/x/deep", "/a-b"})
      EXPECT_TRUE(e.create(path, "", CreateMode::persistent, 0)) << path;
  });
  look([](const Reader& r) {
    EXPECT_EQ(r.children("/a")->names, std::vector<std::string>{"x"});
    EXPECT_EQ(r.children("/")->names, (std::vector<std::string>{"a", "a-b", "ab"}));
  });
}

TEST_F(FileTree, is_opened_once_a_process_and_again_after_it_was_closed) {
  EXPECT_EQ(Env::open(dir_).value(), env_);
  edit([](Editor& e) { EXPECT_TRUE(e.create("/kept", "", CreateMode::persistent, 0)); });
  env_.reset();
  env_ = Env::open(dir_).value();
  look([](const Reader& r) { EXPECT_TRUE(r.exists("/kept")); });
}

TEST(FileEnv, network_file_systems_are_known_and_local_ones_are_not_among_them) {
  for (const unsigned long type : {0x6969UL, 0x517bUL, 0xff534d42UL, 0xfe534d42UL, 0x01021997UL, 0x65735546UL})
    EXPECT_NE(network_file_system(type), "");
  for (const unsigned long type : {0xef53UL, 0x01021994UL, 0x58465342UL, 0x9123683eUL, 0x794c7630UL})
    EXPECT_EQ(network_file_system(type), "");
  EXPECT_FALSE(Env::open("/proc/self/coord"));
}

}  // namespace
}  // namespace cantle::coord::file

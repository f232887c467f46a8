#include "lib/meta/file_store.h"

#include <gtest/gtest.h>

#include "lib/store/mem_index.h"
#include "test/support/random_table.h"

namespace cantle::meta {
namespace {

using base::Code;
using test::RandomTable;

class FileStoreTest : public testing::Test {
 protected:
  FileStoreTest() : table_(3, {.servers = 5, .replicas = 3, .partitions = 200}) {
    current_ = wire::encode_next(nullptr, std::make_shared<const model::Metadata>(table_.current()));
    reopen();
  }
  void reopen() {
    files_.reset();
    executor_ = std::make_unique<store::InlineExecutor>();
    index_ = std::move(*store::MemIndexFactory(disk_).open());
    auto opened = FileStore::open(*index_, *executor_);
    ASSERT_TRUE(opened) << to_string(opened.error());
    files_ = std::move(*opened);
  }
  static FileStore::FileInfo info(const wire::EncodedFile& f) {
    return {f.file.map->txnid, f.file.map->prev_txnid, f.file.map->txnseq, f.file.hash(), 1};
  }
  // The next file of the table.
  wire::EncodedFile step() {
    while (!table_.step()) {
    }
    return wire::encode_next(&current_.file, std::make_shared<const model::Metadata>(table_.current()));
  }
  const model::TableUuid& uuid() const { return table_.current().table; }
  base::Status put(const wire::EncodedFile& f) {
    std::optional<base::Status> result;
    files_->put(uuid(), "random", info(f), f.fresh, [&](base::Status s) { result = std::move(s); });
    EXPECT_FALSE(result);
    executor_->run_all();
    return *result;
  }
  size_t nodes_on_disk() {
    auto reader = index_->reader();
    EXPECT_TRUE(reader->renew());
    size_t n = 0;
    auto cursor = *reader->cursor(store::Db::records);
    for (auto e = *cursor->seek(""); e; e = *cursor->next()) n++;
    return n;
  }

  RandomTable table_;
  store::MemIndexFiles disk_;
  std::unique_ptr<store::InlineExecutor> executor_;
  std::unique_ptr<store::Index> index_;
  std::unique_ptr<FileStore> files_;
  wire::EncodedFile current_;
};

TEST_F(FileStoreTest, a_file_that_was_put_is_there_after_a_restart) {
  ASSERT_TRUE(put(current_));
  files_->seen(uuid(), "random", current_.file.map->txnid, current_.file.map->txnseq);
  files_->flush();
  executor_->run_all();
  reopen();
  ASSERT_EQ(files_->tables().size(), 1U);
  const auto& t = files_->tables().begin()->second;
  EXPECT_EQ(t.name, "random");
  EXPECT_EQ(t.seen_txnid, current_.file.map->txnid);
  ASSERT_EQ(t.files.size(), 1U);
  const auto loaded = files_->load(t.files.begin()->second);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  EXPECT_EQ(*loaded->map, *current_.file.map);
}

TEST_F(FileStoreTest, what_was_not_committed_is_not_there_after_a_restart) {
  files_->put(uuid(), "random", info(current_), current_.fresh, [](base::Status) { FAIL() << "it was not durable"; });
  EXPECT_TRUE(files_->has_node(current_.file.tree->root));  // known at once, for others to fetch
  reopen();
  EXPECT_TRUE(files_->tables().empty());
}

TEST_F(FileStoreTest, a_file_without_all_its_nodes_is_refused) {
  auto broken = current_;
  broken.fresh.erase(broken.fresh.begin());
  const auto status = put(broken);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::not_found);
  EXPECT_TRUE(files_->tables().empty());
  EXPECT_FALSE(files_->has_node(current_.file.tree->root));
}

TEST_F(FileStoreTest, nodes_go_with_the_last_file_that_has_them) {
  ASSERT_TRUE(put(current_));
  const auto first = info(current_);
  const auto before = nodes_on_disk();
  const auto next = step();
  ASSERT_TRUE(put(next));
  EXPECT_EQ(nodes_on_disk(), before + next.fresh.size());
  files_->remove(uuid(), {first.txnid});
  files_->flush();
  executor_->run_all();
  EXPECT_EQ(nodes_on_disk(), wire::nodes_not_in(*next.file.tree, nullptr).size());
  reopen();
  EXPECT_EQ(*files_->load(info(next))->map, *next.file.map);
  files_->forget(uuid());
  executor_->run_all();
  EXPECT_EQ(nodes_on_disk(), 0U);
}

TEST_F(FileStoreTest, a_file_may_share_nodes_with_one_whose_removal_was_asked_for) {
  ASSERT_TRUE(put(current_));
  const auto next = step();
  files_->remove(uuid(), {info(current_).txnid});
  // All nodes of the first are to go, and the second was made on top of it.
  auto all = current_.fresh;
  all.insert(all.end(), next.fresh.begin(), next.fresh.end());
  auto whole = next;
  whole.fresh = all;
  ASSERT_TRUE(put(whole));
  reopen();
  EXPECT_EQ(*files_->load(info(next))->map, *next.file.map);
}

TEST_F(FileStoreTest, a_full_disk_leaves_nothing_and_is_tried_again_when_there_is_room) {
  ASSERT_TRUE(put(current_));
  const auto before = nodes_on_disk();
  bool full = true;
  disk_.before_commit = [&]() -> base::Status {
    if (full) return base::fail(Code::no_space, "full");
    return base::ok();
  };
  const auto next = step();
  const auto status = put(next);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::no_space);
  EXPECT_EQ(files_->tables().begin()->second.files.size(), 1U);
  full = false;
  files_->flush();
  executor_->run_all();
  EXPECT_EQ(nodes_on_disk(), before);
  ASSERT_TRUE(put(next));

  full = true;
  files_->on_no_space([&] {
    full = false;
    return true;
  });
  current_ = next;
  EXPECT_TRUE(put(step()));
}

TEST_F(FileStoreTest, random_files_come_and_go_and_nothing_else_stays) {
  auto& r = table_.random();
  std::map<model::TxnId, wire::EncodedFile> kept;
  ASSERT_TRUE(put(current_));
  kept[current_.file.map->txnid] = current_;
  for (int i = 0; i < 120; i++) {
    auto next = step();
    std::vector<wire::Node> nodes;
    for (const auto& h : wire::nodes_not_in(*next.file.tree, nullptr))
      if (!files_->has_node(h)) {
        for (const auto& n : wire::encode_next(nullptr, next.file.map).fresh)
          if (n.hash == h) nodes.push_back(n);
      }
    bool failed = false;
    if (r.chance(0.2))
      disk_.before_commit = [&] {
        return failed ? base::ok() : (failed = true, base::Status(base::fail(Code::no_space, "full")));
      };
    auto with = next;
    with.fresh = nodes;
    const auto status = put(with);
    disk_.before_commit = nullptr;
    if (status) kept[next.file.map->txnid] = next;
    current_ = next;
    if (!status) {
      // The chain goes on from what is stored.
      auto whole = next;
      whole.fresh = wire::encode_next(nullptr, next.file.map).fresh;
      ASSERT_TRUE(put(whole));
      kept[next.file.map->txnid] = next;
    }
    if (kept.size() > 3 && r.chance(0.6)) {
      auto it = kept.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(r.below(kept.size())));
      if (it->first != current_.file.map->txnid) {
        files_->remove(uuid(), {it->first});
        kept.erase(it);
      }
    }
    if (r.chance(0.1)) {
      files_->flush();
      executor_->run_all();
      reopen();
      for (const auto& [txnid, f] : kept) ASSERT_EQ(*files_->load(info(f))->map, *f.file.map);
    }
  }
  files_->flush();
  executor_->run_all();
  std::set<wire::NodeHash> expected;
  for (const auto& [txnid, f] : kept)
    for (const auto& h : wire::nodes_not_in(*f.file.tree, nullptr)) expected.insert(h);
  EXPECT_EQ(nodes_on_disk(), expected.size());
}

}  // namespace
}  // namespace cantle::meta

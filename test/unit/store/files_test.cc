// The small files of a data directory, on a real disk: id, live page, root blocks, positions; and LMDB.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "lib/store/data_dir.h"
#include "lib/store/live_page.h"
#include "lib/store/lmdb_index.h"
#include "lib/store/mem_index.h"
#include "lib/store/position_store.h"
#include "lib/store/root.h"
#include "test/unit/store/engine_fixture.h"

namespace cantle::store {
namespace {

using base::Code;

class Dir {
 public:
  Dir() {
    char name[] = "/tmp/cantle-store-XXXXXX";
    path = mkdtemp(name);
  }
  ~Dir() { std::filesystem::remove_all(path); }
  std::string path;
};

const Expected kExpected{{"p1"}, id_of<model::ClusterUuid>(4)};

TEST(DataDir, who_holds_the_lock_is_named) {
  Dir dir;
  RealDisk disk(dir.path);
  const auto lock = disk.lock("id.lock");
  ASSERT_TRUE(lock);
  const auto second = disk.lock("id.lock");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::conflict);
  EXPECT_NE(second.error().text.find("process " + std::to_string(::getpid()) + " uses this directory"),
            std::string::npos)
      << second.error().text;
}

TEST(DataDir, each_start_has_an_incarnation_of_its_own) {
  Dir dir;
  RealDisk disk(dir.path);
  EXPECT_EQ(DataDir::read(disk).error().code, Code::not_found);
  for (uint64_t i = 1; i <= 3; i++) {  // without a number, as metadata servers are
    auto data = DataDir::open(disk, kExpected);
    ASSERT_TRUE(data);
    EXPECT_EQ((*data)->identity().incarnation.value, i);
    EXPECT_EQ((*data)->first_start(), i == 1);
    EXPECT_EQ(DataDir::open(disk, kExpected).error().code, Code::conflict);  // one process at a time
  }
}

// Whoever knows the server by its name compares incarnations: those of a new directory must not be behind.
TEST(DataDir, every_life_of_a_newer_directory_is_later_than_any_of_an_older_one) {
  model::Incarnation last;
  for (const uint32_t number : {1U, 2U, 17U, UINT32_MAX}) {
    Dir dir;
    RealDisk disk(dir.path);
    for (uint64_t i = 1; i <= 3; i++) {
      auto data = DataDir::open(disk, kExpected);
      ASSERT_TRUE(data);
      if (i == 1) {
        ASSERT_TRUE((*data)->set_number({number}));
        EXPECT_EQ(DataDir::read(disk)->incarnation, (*data)->identity().incarnation);  // durable
      }
      EXPECT_EQ((*data)->identity().incarnation.value, number * uint64_t{1'000'000'000} + i);
      EXPECT_GT((*data)->identity().incarnation, last);
      last = (*data)->identity().incarnation;
    }
    EXPECT_EQ(DataDir::read(disk)->number.value, number);
  }
}

TEST(DataDir, a_start_that_ended_before_it_had_a_number_is_no_life_that_anybody_saw) {
  Dir dir;
  RealDisk disk(dir.path);
  for (int i = 0; i < 2; i++) ASSERT_TRUE(DataDir::open(disk, kExpected));
  auto data = DataDir::open(disk, kExpected);
  ASSERT_TRUE((*data)->set_number({5}));
  EXPECT_EQ((*data)->identity().incarnation.value, 5'000'000'001U);
}

TEST(DataDir, somebody_elses_directory_and_a_lost_id_are_refused) {
  Dir dir;
  RealDisk disk(dir.path);
  ASSERT_TRUE(DataDir::open(disk, kExpected));
  EXPECT_EQ(DataDir::open(disk, {{"p2"}, kExpected.cluster}).error().code, Code::identity);
  EXPECT_EQ(DataDir::open(disk, {{"p1"}, id_of<model::ClusterUuid>(5)}).error().code, Code::identity);
  ASSERT_TRUE(disk.make_dir("journal"));
  ASSERT_TRUE(disk.write_whole("journal/root", "x"));
  ASSERT_TRUE(disk.remove("id"));
  const auto refused = DataDir::open(disk, kExpected);
  EXPECT_EQ(refused.error().code, Code::identity);
  EXPECT_NE(refused.error().text.find("node replace"), std::string::npos);
  ASSERT_TRUE(disk.write_whole("id", "cantle-id 1\nserver=p1\n"));
  EXPECT_EQ(DataDir::open(disk, kExpected).error().code, Code::identity);
}

TEST(Root, slots_round_trip_and_the_newest_good_one_counts) {
  Dir dir;
  RealDisk disk(dir.path);
  ASSERT_TRUE(disk.make_dir("journal"));
  EXPECT_EQ(Roots::read(disk)->newest(), nullptr);
  Root root;
  root.server = "p1";
  root.head = {3, 4096, 99};
  root.applied = {2, 64, 50};
  root.highest = version(77);
  root.clean = true;
  for (root.generation = 1; root.generation <= 5; root.generation++) ASSERT_TRUE(write_root(disk, root));
  auto roots = Roots::read(disk).value();
  ASSERT_NE(roots.newest(), nullptr);
  EXPECT_EQ(roots.newest()->generation, 5U);
  EXPECT_EQ(roots.older()->generation, 4U);
  EXPECT_EQ(encode_root(*roots.newest()), [&] {
    root.generation = 5;
    return encode_root(root);
  }());
  auto file = disk.open("journal/root", OpenMode::write);
  ASSERT_TRUE((*file)->write(kRootSlot + 20, "damage"));
  roots = Roots::read(disk).value();
  EXPECT_EQ(roots.newest()->generation, 4U);
  EXPECT_EQ(roots.older()->generation, 4U);
}

TEST(LivePage, tells_what_was_written_and_to_whom_it_belongs) {
  Dir dir;
  RealDisk disk(dir.path);
  EXPECT_EQ(LivePage::attach(disk).error().code, Code::not_found);
  auto writer = LivePage::create(disk, {7});
  ASSERT_TRUE(writer);
  auto reader = LivePage::attach(disk);
  ASSERT_TRUE(reader);
  EXPECT_FALSE((*reader)->read().valid);
  (*writer)->set_durable({2, 512, 40});
  const auto state = (*reader)->read();
  EXPECT_TRUE(state.valid);
  EXPECT_EQ(state.incarnation.value, 7U);
  EXPECT_EQ(state.durable, (JournalPosition{2, 512, 40}));
  const LivePair a{assignment(1), assignment(2)}, b{assignment(1), assignment(3)};
  ASSERT_TRUE((*writer)->set_confirmed(a, {{1}, {10}, 5}));
  ASSERT_TRUE((*writer)->set_confirmed(b, {{1}, {20}, 6}));
  EXPECT_EQ((*reader)->confirmed(a)->lsn.value, 10U);
  EXPECT_EQ((*reader)->confirmed(b)->lsn.value, 20U);
  (*writer)->forget(a);
  EXPECT_FALSE((*reader)->confirmed(a));
  ASSERT_TRUE((*writer)->set_confirmed({assignment(4), assignment(5)}, {{1}, {30}, 6}));
  EXPECT_FALSE((*reader)->confirmed(a));
  EXPECT_EQ((*reader)->confirmed(b)->lsn.value, 20U);
  EXPECT_EQ((*writer)->durable_before(), 0U);
  auto next = LivePage::create(disk, {8});
  EXPECT_EQ((*next)->durable_before(), 40U);
  EXPECT_FALSE((*reader)->read().valid);
  EXPECT_FALSE((*reader)->confirmed(b));
}

TEST(LivePage, is_never_seen_half_written_and_wakes_who_waits) {
  Dir dir;
  RealDisk disk(dir.path);
  auto writer = LivePage::create(disk, {1});
  auto reader = LivePage::attach(disk);
  ASSERT_TRUE(writer && reader);
  constexpr uint64_t kLast = 20000;
  std::thread other([&] {
    uint64_t seen = 0;
    while (seen < kLast) {
      const auto state = (*reader)->read();
      if (!state.valid) continue;
      ASSERT_EQ(state.durable.offset, state.durable.sequence * 8);
      ASSERT_EQ(state.durable.segment, state.durable.sequence % 5);
      ASSERT_GE(state.durable.sequence, seen);
      seen = state.durable.sequence;
      if (seen < kLast) (*reader)->wait(state.changes, 1000);
    }
  });
  for (uint64_t i = 1; i <= kLast; i++) {
    (*writer)->set_durable({i % 5, i * 8, i});
    (*writer)->tell();
  }
  other.join();
}

TEST(PositionStore, keeps_what_was_put) {
  Dir dir;
  EXPECT_EQ(PositionStore::open(dir.path, false).error().code, Code::not_found);
  Position p;
  p.partition = partition(1);
  p.server = {"p2"};
  p.confirmed = {{3}, {44}, 5};
  p.filled_to = std::string("a\0b", 3);
  {
    auto store = PositionStore::open(dir.path, true);
    ASSERT_TRUE(store);
    ASSERT_TRUE((*store)->put({assignment(1), assignment(2)}, p));
    ASSERT_TRUE((*store)->put({assignment(1), assignment(3)}, p));
    ASSERT_TRUE((*store)->remove({assignment(1), assignment(3)}));
  }
  auto store = PositionStore::open(dir.path, false);
  ASSERT_TRUE(store);
  const auto all = (*store)->all().value();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.begin()->second.confirmed, p.confirmed);
  EXPECT_EQ((*store)->get({assignment(1), assignment(2)}).value()->filled_to, p.filled_to);
  EXPECT_FALSE((*store)->get({assignment(2), assignment(1)}).value());
}

// --- both indexes do the same ------------------------------------------------------------------

struct Indexes : testing::TestWithParam<bool> {
  Dir dir;
  MemIndexFiles files;
  std::unique_ptr<Index> open() {
    if (GetParam()) return std::move(*LmdbIndexFactory(dir.path + "/index").open());
    return std::move(*MemIndexFactory(files).open());
  }
};
INSTANTIATE_TEST_SUITE_P(Index, Indexes, testing::Bool(), [](const auto& i) { return i.param ? "lmdb" : "memory"; });

TEST_P(Indexes, a_transaction_is_all_or_nothing_and_readers_keep_their_snapshot) {
  auto index = open();
  auto reader = index->reader();
  {
    auto txn = std::move(*index->begin());
    ASSERT_TRUE(txn->put(Db::records, "a", "1"));
    ASSERT_TRUE(txn->put(Db::records, "c", "3"));
    EXPECT_EQ(txn->get(Db::records, "a").value(), "1");
    ASSERT_TRUE(txn->commit());
  }
  ASSERT_TRUE(reader->renew());
  {
    auto txn = std::move(*index->begin());
    ASSERT_TRUE(txn->put(Db::records, "a", "2"));
    ASSERT_TRUE(txn->del(Db::records, "c"));
    ASSERT_TRUE(txn->del(Db::records, "not there"));
  }  // not committed
  {
    auto txn = std::move(*index->begin());
    EXPECT_EQ(txn->get(Db::records, "a").value(), "1");
    ASSERT_TRUE(txn->put(Db::records, "b", "2"));
    ASSERT_TRUE(txn->del(Db::records, "a"));
    ASSERT_TRUE(txn->commit());
  }
  EXPECT_EQ(reader->get(Db::records, "a").value(), "1");
  EXPECT_FALSE(reader->get(Db::records, "b").value());
  EXPECT_FALSE(reader->get(Db::samples, "a").value());
  ASSERT_TRUE(reader->renew());
  EXPECT_FALSE(reader->get(Db::records, "a").value());
  EXPECT_EQ(reader->get(Db::records, "b").value(), "2");
  reader.reset();
  index.reset();
  index = open();
  reader = index->reader();
  ASSERT_TRUE(reader->renew());
  EXPECT_EQ(reader->get(Db::records, "b").value(), "2");
}

TEST_P(Indexes, cursors_go_both_ways) {
  auto index = open();
  auto txn = std::move(*index->begin());
  for (const char* k : {"b", "d", "f"}) ASSERT_TRUE(txn->put(Db::records, k, k));
  ASSERT_TRUE(txn->commit());
  auto reader = index->reader();
  ASSERT_TRUE(reader->renew());
  auto cursor = std::move(*reader->cursor(Db::records));
  const auto key = [](const auto& at) { return *at ? std::string((*at)->key) : std::string("-"); };
  EXPECT_EQ(key(cursor->seek("")), "b");
  EXPECT_EQ(key(cursor->next()), "d");
  EXPECT_EQ(key(cursor->seek("c")), "d");
  EXPECT_EQ(key(cursor->seek("d")), "d");
  EXPECT_EQ(key(cursor->prev()), "b");
  EXPECT_EQ(key(cursor->prev()), "-");
  EXPECT_EQ(key(cursor->seek("g")), "-");
  EXPECT_EQ(key(cursor->seek_before("")), "f");
  EXPECT_EQ(key(cursor->seek_before("f")), "d");
  EXPECT_EQ(key(cursor->seek_before("e")), "d");
  EXPECT_EQ(key(cursor->seek_before("b")), "-");
  EXPECT_EQ(key(cursor->seek_before("z")), "f");
}

// --- LMDB alone -------------------------------------------------------------------------------

void fill(const std::string& dir) {
  auto index = std::move(*LmdbIndexFactory(dir).open());
  auto txn = std::move(*index->begin());
  for (int i = 0; i < 1000; i++) ASSERT_TRUE(txn->put(Db::records, std::to_string(i), std::string(100, 'x')));
  ASSERT_TRUE(txn->commit());
}

TEST(LmdbIndex, a_damaged_file_is_noticed_and_set_aside) {  // R08
  const auto damage = [](const std::string& data, auto how) {
    const int fd = ::open(data.c_str(), O_RDWR);
    how(fd);
    ::close(fd);
  };
  const std::string zeros(4096, '\0');
  for (int way = 0; way < 4; way++) {
    Dir dir;
    const auto path = dir.path + "/index";
    fill(path);
    damage(path + "/data.mdb", [&](int fd) {
      if (way == 0) {
        ASSERT_EQ(::ftruncate(fd, 4096 * 20), 0);
      }
      if (way == 1) {
        ASSERT_EQ(::pwrite(fd, zeros.data(), 4096, 0), 4096);
      }
      if (way == 2) {
        ASSERT_EQ(::pwrite(fd, zeros.data(), 4096, 0), 4096);
        ASSERT_EQ(::pwrite(fd, zeros.data(), 4096, 4096), 4096);
      }
      if (way == 3) {
        ASSERT_EQ(::close(::open((path + "/suspect").c_str(), O_CREAT | O_WRONLY, 0640)), 0);
      }
    });
    LmdbIndexFactory factory(path);
    auto opened = factory.open();
    ASSERT_FALSE(opened) << way;
    EXPECT_EQ(opened.error().code, Code::corrupt) << way;
    ASSERT_TRUE(factory.set_aside("test"));
    auto fresh = factory.open();
    ASSERT_TRUE(fresh) << way;
    auto reader = (*fresh)->reader();
    ASSERT_TRUE(reader->renew());
    EXPECT_FALSE(reader->get(Db::records, "1").value());
  }
}

TEST(LmdbIndex, one_environment_a_process_however_many_ask) {
  Dir dir;
  auto writer = LmdbIndexFactory(dir.path + "/index").open();
  ASSERT_TRUE(writer);
  auto again = open_lmdb(dir.path + "/index", {.write = false});
  ASSERT_TRUE(again);
  auto txn = std::move(*(*writer)->begin());
  ASSERT_TRUE(txn->put(Db::records, "a", "1"));
  ASSERT_TRUE(txn->commit());
  auto reader = (*again)->reader();
  ASSERT_TRUE(reader->renew());
  EXPECT_EQ(reader->get(Db::records, "a").value(), "1");
}

int mappings_of(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) n += line.ends_with(path) ? 1 : 0;
  return n;
}

// With its files, an environment that is closed loses the locks that keep other processes from taking this one's slots
// for those of a dead reader.
TEST(LmdbIndex, one_that_is_being_closed_by_another_thread_is_not_opened_beside) {
  Dir dir;
  fill(dir.path + "/index");
  const auto lock_file = std::filesystem::canonical(dir.path + "/index/lock.mdb").string();
  const auto open = [&] { return open_lmdb(dir.path + "/index", {.write = false, .map_bytes = 64 << 20}); };
  std::atomic<bool> stop{false};
  std::atomic<int> most{0}, failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&] {
      while (!stop) failed += open() ? 0 : 1;
    });
  for (int i = 0; i < 5000; i++) most = std::max(most.load(), mappings_of(lock_file));
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(most, 1);
}

TEST(LmdbIndex, slots_of_dead_readers_are_taken_back) {  // R10
  Dir dir;
  fill(dir.path + "/index");
  for (int i = 0; i < 40; i++) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto index = open_lmdb(dir.path + "/index", {.write = false, .readers = 8});
      if (!index) ::_exit(1);
      auto reader = (*index)->reader();
      if (!reader->renew()) ::_exit(2);
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << i << " exit " << WEXITSTATUS(status);
  }
}

}  // namespace
}  // namespace cantle::store

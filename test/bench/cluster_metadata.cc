// A metadata commit with three metadata servers on a three-server ZooKeeper ensemble (forceSync on), beside what it
// cannot do without: one setData there, and one synced LMDB transaction on three files at once. With 10 partitions,
// and with 10,000.
#include <lmdb.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "lib/base/bytes.h"
#include "lib/client/md_client.h"
#include "lib/client/servers.h"
#include "lib/coord/layout.h"
#include "lib/coord/sync_session.h"
#include "lib/io/loop.h"
#include "test/bench/bench.h"
#include "test/bench/local_cluster.h"

namespace cantle::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kCommits = 60;  // a round

template <class T>
T must(base::Result<T> result, const char* what) {
  if (!result) {
    std::fprintf(stderr, "bench: %s: %s\n", what, to_string(result.error()).c_str());
    give_up();
  }
  return std::move(*result);
}

// One LMDB file, in whose thread a transaction of one value is committed, synced.
class OneFile {
 public:
  explicit OneFile(std::string path) : path_(std::move(path)) {
    mdb_env_create(&env_);
    mdb_env_set_mapsize(env_, size_t{64} << 20);
    mdb_env_open(env_, path_.c_str(), MDB_NOSUBDIR, 0600);
    MDB_txn* txn = nullptr;
    mdb_txn_begin(env_, nullptr, 0, &txn);
    mdb_dbi_open(txn, nullptr, 0, &dbi_);
    mdb_txn_commit(txn);
  }
  ~OneFile() {
    mdb_env_close(env_);
    ::unlink(path_.c_str());
    ::unlink((path_ + "-lock").c_str());
  }
  void commit(int i) {
    MDB_txn* txn = nullptr;
    std::string key = std::to_string(i % 64), value(2048, 'x');
    MDB_val k{key.size(), key.data()}, v{value.size(), value.data()};
    mdb_txn_begin(env_, nullptr, 0, &txn);
    mdb_put(txn, dbi_, &k, &v, 0);
    mdb_txn_commit(txn);
  }

 private:
  std::string path_;
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
};

double three_files_us(const std::string& dir) {
  OneFile a(dir + "/lmdb-a"), b(dir + "/lmdb-b"), c(dir + "/lmdb-c");
  Samples us;
  for (int i = 0; i < kCommits; ++i) {
    const double begun = now_s();
    std::thread second([&] { b.commit(i); }), third([&] { c.commit(i); });
    a.commit(i);
    second.join();
    third.join();
    us.add((now_s() - begun) * 1e6);
  }
  return us.median();
}

// What a tool stands on, for this bench.
struct Operator {
  io::Loop loop;
  std::unique_ptr<coord::SyncSession> coord;
  coord::Layout layout{"cantle"};
  std::unique_ptr<client::CoordServers> servers;
  std::unique_ptr<client::MdClient> md;

  explicit Operator(const std::string& url) {
    coord = must(coord::SyncSession::open(loop, {.url = url}), "coordination service");
    servers = std::make_unique<client::CoordServers>(loop, coord->session(), layout);
    md = std::make_unique<client::MdClient>(loop, coord->session(), layout, *servers, rpc::Identity{});
  }

  void change(const std::string& table, model::Operation operation) {
    client::ChangeSpec spec;
    spec.table = table;
    spec.operations = {std::move(operation)};
    must(client::wait_for<model::MdChangeReply>(loop, 60s,
                                                [&](auto done) { md->change(std::move(spec), 50s, std::move(done)); }),
         "metadata change");
  }

  // A table whose partitions are on servers that do not exist: nobody loads them, the map is all there is.
  void create(const std::string& table, size_t partitions) {
    base::SystemRandom random;
    model::ops::CreateTable op;
    op.name = table;
    op.table = model::TableUuid::draw(random);
    const auto border = [](size_t i) {
      std::string key;
      base::put_u32_be(key, static_cast<uint32_t>(i));
      return key;
    };
    for (size_t i = 0; i < partitions; ++i) {
      model::ops::NewPartition p;
      p.id = model::PartitionId::draw(random);
      p.interval = {i == 0 ? "" : border(i), i + 1 == partitions ? "" : border(i + 1)};
      for (const char* name : {"x1", "x2", "x3"}) p.assignments.push_back({{name}, model::AssignmentId::draw(random)});
      op.partitions.push_back(std::move(p));
    }
    change(table, std::move(op));
  }

  double commit_us(const std::string& table) {
    Samples us;
    for (int i = 0; i < kCommits; ++i) {
      const double begun = now_s();
      change(table, model::ops::SetOption{.name = "write_level", .value = i % 2 ? "one" : "majority"});
      us.add((now_s() - begun) * 1e6);
    }
    return us.median();
  }

  double set_data_us() {
    const std::string path = layout.root() + "/bench";
    static_cast<void>(coord->create(path, ""));
    const std::string value(600, 'x');  // about a TableConfig
    Samples us;
    for (int i = 0; i < kCommits; ++i) {
      const double begun = now_s();
      must(coord->set(path, value, coord::kAnyVersion), "setData");
      us.add((now_s() - begun) * 1e6);
    }
    return us.median();
  }
};

void commits(Bench& bench) {
  const LocalCluster cluster(bench.dir() + "/c", "--servers 1 --mdservers 3 --coord zk");
  MemoryWatch memory(cluster);
  Operator op(cluster.url());
  op.create("few", 10);
  op.create("many", 10000);
  op.commit_us("few");  // warm
  Samples few, many, set, files, needed;
  for (int round = 0; round < bench.rounds(); ++round) {
    const double f = three_files_us(bench.dir()), s = op.set_data_us();
    few.add(op.commit_us("few"));
    many.add(op.commit_us("many"));
    set.add(s);
    files.add(f);
    needed.add(s + f);
  }
  std::printf("%-44s setData %.0f us, three LMDB files %.0f us\n", "  (bare parts)", set.median(), files.median());
  bench.report({"metadata commit, 3 mdservers: p50", "us", few.median(), "setData + 3 LMDB at once", needed.median(),
                1.5, Bar::at_most});
  bench.report(
      {"metadata commit with 10,000 partitions", "us", many.median(), "with 10", few.median(), 1.5, Bar::at_most});
  memory.print("metadata");
}
const Register commits_bench("cluster.metadata", commits);

}  // namespace
}  // namespace cantle::bench

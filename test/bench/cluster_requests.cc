// Requests against one partition server, as a client sees them, beside a bare libuv echo, a bare fdatasync and bare
// LMDB: point reads, direct reads, and single durable writes.
#include <fcntl.h>
#include <lmdb.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "lib/base/random.h"
#include "lib/model/client_messages.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"
#include "test/bench/bench.h"
#include "test/bench/local_cluster.h"
#include "test/bench/raw_load.h"

namespace cantle::bench {
namespace {

constexpr uint32_t kMsgid = 100000;  // always five bytes
constexpr uint64_t kRecords = 1000000;
constexpr size_t kKey = 16, kValue = 100;

std::string key_of(uint64_t i) {
  char text[kKey + 1];
  std::snprintf(text, sizeof text, "k%015llu", static_cast<unsigned long long>(i));
  return text;
}

std::string get_frame(const std::string& table, uint64_t i) {
  model::GetRequest request;
  request.table = table;
  request.key = key_of(i);
  request.level = model::Level::one;
  request.hop = false;
  std::string frame;
  wire::append_request(frame, kMsgid, "get", wire::encode(request));
  return frame;
}

std::string put_frame(const std::string& table, uint64_t i) {
  model::PutRequest request;
  request.table = table;
  request.key = key_of(i);
  request.value = std::string(kValue, 'v');
  request.level = model::Level::one;
  request.hop = false;
  std::string frame;
  wire::append_request(frame, kMsgid, "put", wire::encode(request));
  return frame;
}

// p50 in µs of one pwrite and fdatasync of a block of 4 KiB in a file that was filled with zeros before.
double bare_sync_us(const std::string& dir, int count) {
  const std::string path = dir + "/bare-sync";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::string zeros(size_t{1} << 20, '\0'), block(4096, 'x');
  for (int i = 0; i < 16; ++i) static_cast<void>(!::write(fd, zeros.data(), zeros.size()));
  ::fsync(fd);
  Samples us;
  for (int i = 0; i < count; ++i) {
    const double begun = now_s();
    static_cast<void>(!::pwrite(fd, block.data(), block.size(), (i % 4096) * 4096));
    ::fdatasync(fd);
    us.add((now_s() - begun) * 1e6);
  }
  ::close(fd);
  ::unlink(path.c_str());
  return us.median();
}

// A bare LMDB environment with the same records, and random gets of it in one thread and one transaction.
class BareLmdb {
 public:
  explicit BareLmdb(const std::string& path) : path_(path) {
    mdb_env_create(&env_);
    mdb_env_set_mapsize(env_, size_t{4} << 30);
    mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR | MDB_NOSYNC, 0600);
    MDB_txn* txn = nullptr;
    mdb_txn_begin(env_, nullptr, 0, &txn);
    mdb_dbi_open(txn, nullptr, 0, &dbi_);
    const std::string value(kValue, 'v');
    for (uint64_t i = 0; i < kRecords; ++i) {
      std::string key = key_of(i);
      MDB_val k{key.size(), key.data()}, v{value.size(), const_cast<char*>(value.data())};
      mdb_put(txn, dbi_, &k, &v, MDB_APPEND);
    }
    mdb_txn_commit(txn);
  }
  ~BareLmdb() {
    mdb_env_close(env_);
    ::unlink(path_.c_str());
    ::unlink((path_ + "-lock").c_str());
  }
  double gets_per_second(double seconds) {
    base::SeededRandom random(7);
    MDB_txn* txn = nullptr;
    mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn);
    uint64_t count = 0, sum = 0;
    const double begun = now_s();
    while (count % 1024 != 0 || now_s() < begun + seconds) {
      std::string key = key_of(random.below(kRecords));
      MDB_val k{key.size(), key.data()}, v{};
      if (mdb_get(txn, dbi_, &k, &v) == 0) sum += v.mv_size;
      ++count;
    }
    mdb_txn_abort(txn);
    return sum == count * kValue ? static_cast<double>(count) / (now_s() - begun) : 0;
  }

 private:
  std::string path_;
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
};

double raw_rate(const RawPlan& plan, const char* what) {
  const auto result = raw_load(plan);
  if (!result.error.empty()) {
    std::fprintf(stderr, "bench: %s: %s\n", what, result.error.c_str());
    give_up();
  }
  return result.per_second;
}

void puts(Bench& bench) {
  const LocalCluster cluster(bench.dir() + "/c", "--servers 1 --mdservers 1");
  cluster.tool("zkctl table create t --keyspace range --replication push --replicas 1 >&2");
  cluster.tool("partc put t warm up");
  MemoryWatch memory(cluster);
  uint64_t next = 0;
  RawPlan ours{.socket = cluster.socket("p1"), .seconds = 2};
  ours.request = [&](std::string* out) { *out += put_frame("t", next++); };
  const size_t request = put_frame("t", 0).size();
  const std::string echo_path = bench.dir() + "/echo";
  Samples put_us, bare_us, sync_us, trip_us;
  for (int round = 0; round < bench.rounds(); ++round) {
    const double sync = bare_sync_us(bench.dir(), 2000);
    const EchoServer echo(echo_path, request, 120);
    RawPlan bare{.socket = echo_path, .seconds = 1};
    bare.request = [&](std::string* out) { *out += put_frame("t", 0); };
    bare.reply = 120;
    const double trip = raw_load(bare).latency_us.median();
    const auto result = raw_load(ours);
    put_us.add(result.latency_us.median());
    sync_us.add(sync);
    trip_us.add(trip);
    bare_us.add(sync + trip);
  }
  std::printf("%-44s fdatasync %.0f us, round trip %.0f us\n", "  (bare parts)", sync_us.median(), trip_us.median());
  bench.report({"put, k=1, level one, 1 connection: p50", "us", put_us.median(), "fdatasync + libuv round trip",
                bare_us.median(), 1.5, Bar::at_most});
  memory.print("put");
}
const Register puts_bench("cluster.put", puts);

void gets(Bench& bench) {
  const LocalCluster cluster(bench.dir() + "/c", "--servers 1 --mdservers 1");
  cluster.tool("zkctl table create t --keyspace range --replication push --replicas 1 >&2");
  MemoryWatch memory(cluster);
  cluster.tool(
      "partc bench put t --records 1000000 --count 1000000 --key-size 16 --value-size 100 --connections 4 "
      "--in-flight 256 --level one >&2");
  // Drained: what a direct reader sees is all there is.
  const double deadline = now_s() + 60;
  const std::string last =
      "[ -n \"$(partc get t " + key_of(kRecords - 1) + " --direct " + cluster.data_dir("p1") + ")\" ]";
  while (cluster.try_tool(last).status != 0 && now_s() < deadline) ::usleep(200000);

  base::SeededRandom random(5);
  const std::string answer = raw_call(cluster.socket("p1"), get_frame("t", 17));
  const size_t request = get_frame("t", 0).size();
  RawPlan ours{.socket = cluster.socket("p1"), .connections = 64, .seconds = 2};
  ours.reply = answer.size();
  ours.request = [&](std::string* out) { *out += get_frame("t", random.below(kRecords)); };
  const std::string echo_path = bench.dir() + "/echo";
  BareLmdb lmdb(bench.dir() + "/bare-lmdb");
  Samples one, sixteen, direct, echo_rate, lmdb_rate;
  for (int round = 0; round < bench.rounds(); ++round) {
    ours.in_flight = 1;
    one.add(raw_rate(ours, "get"));
    {
      const EchoServer echo(echo_path, request, answer.size());
      RawPlan bare = ours;
      bare.socket = echo_path;
      echo_rate.add(raw_rate(bare, "echo"));
    }
    ours.in_flight = 16;
    sixteen.add(raw_rate(ours, "get"));
    lmdb_rate.add(lmdb.gets_per_second(1));
    direct.add(
        json_number(cluster.tool("partc bench get t --records 1000000 --key-size 16 --duration 1s --json --direct " +
                                 cluster.data_dir("p1")),
                    "operations_per_second"));
  }
  bench.report({"get, 64 connections, 1 in flight each", "1/s", one.median(), "libuv echo", echo_rate.median(), 0.6,
                Bar::at_least});
  bench.report({"get, 64 connections, 16 in flight each", "1/s", sixteen.median(), "mdb_get, one thread",
                lmdb_rate.median(), 0.4, Bar::at_least});
  bench.report({"get --direct", "1/s", direct.median(), "mdb_get, one thread", lmdb_rate.median(), 0.5, Bar::at_least});
  memory.print("get");
}
const Register gets_bench("cluster.get", gets);

}  // namespace
}  // namespace cantle::bench

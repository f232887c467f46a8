// Point reads over 1,000,000 records in memory: the engine's and the direct reader's beside a bare mdb_get.
#include <lmdb.h>
#include <sys/stat.h>

#include "lib/base/check.h"
#include "lib/store/direct_reader.h"
#include "test/bench/bench.h"
#include "test/bench/store_fixture.h"

namespace cantle::bench {
namespace {

constexpr uint64_t kRecords = 1000000;
constexpr size_t kValue = 100;
constexpr uint64_t kReads = 1000000;
constexpr uint64_t kTurn = 64;  // reads in a turn of the loop, or between two refreshes

std::vector<std::string> wanted() {
  base::SeededRandom random(3);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kReads; i++) keys.push_back(bench_key(random.below(kRecords), 7));
  return keys;
}

template <class F>
double rate(const std::vector<std::string>& keys, F&& get) {
  const double start = now_s();
  for (const auto& key : keys) get(key);
  return static_cast<double>(keys.size()) / (now_s() - start);
}

struct Bare {
  MDB_env* env = nullptr;
  MDB_dbi dbi = 0;
  MDB_txn* txn = nullptr;
  explicit Bare(const std::string& dir) {
    CHECK(::mkdir(dir.c_str(), 0700) == 0);
    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_mapsize(env, size_t{1} << 40) == 0);
    CHECK(mdb_env_open(env, dir.c_str(), MDB_NOSYNC, 0600) == 0);
    const std::string value(kValue, 'v');
    CHECK(mdb_txn_begin(env, nullptr, 0, &txn) == 0 && mdb_dbi_open(txn, nullptr, 0, &dbi) == 0);
    for (uint64_t i = 0; i < kRecords; i++) {
      std::string key = bench_key(i, 7);
      MDB_val k{key.size(), key.data()}, v{value.size(), const_cast<char*>(value.data())};
      CHECK(mdb_put(txn, dbi, &k, &v, 0) == 0);
    }
    CHECK(mdb_txn_commit(txn) == 0);
    CHECK(mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn) == 0);
  }
  ~Bare() {
    mdb_txn_abort(txn);
    mdb_env_close(env);
  }
  void get(const std::string& key) const {
    MDB_val k{key.size(), const_cast<char*>(key.data())}, v{};
    CHECK(mdb_get(txn, dbi, &k, &v) == 0 && v.mv_size == kValue);
  }
};

void get(Bench& bench) {
  StoreUnderTest s(bench.dir() + "/store");
  s.open();
  s.append(kRecords, kValue, 100, 7);
  s.drain();
  const Bare bare(bench.dir() + "/bare");
  auto direct = store::DirectReader::open(s.dir());
  CHECK(direct);
  const auto keys = wanted();
  Samples engine, reader, plain;
  for (int round = 0; round < bench.rounds(); round++) {
    plain.add(rate(keys, [&](const auto& key) { bare.get(key); }));
    uint64_t n = 0;
    engine.add(rate(keys, [&](const auto& key) {
      const auto found = s.engine().get(s.tenure().partition, key);
      CHECK(found && *found && (*found)->value.size() == kValue);
      if (++n % kTurn == 0) s.until([] { return true; });
    }));
    reader.add(rate(keys, [&](const auto& key) {
      if (++n % kTurn == 0) CHECK((*direct)->refresh());
      const auto found = (*direct)->get(s.tenure(), key);
      CHECK(found && *found && (*found)->value.size() == kValue);
    }));
  }
  bench.report({"get, engine, 64 a turn", "reads/s", engine.median(), "mdb_get", plain.median(), 0, Bar::shown});
  bench.report({"get, direct reader", "reads/s", reader.median(), "mdb_get", plain.median(), 0.5, Bar::at_least});
}

const Register get_bench("store.get", get);

}  // namespace
}  // namespace cantle::bench

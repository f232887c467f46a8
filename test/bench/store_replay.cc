// Restart after a kill: replay of a journal's tail.
#include <lmdb.h>
#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "test/bench/bench.h"
#include "test/bench/store_fixture.h"

namespace cantle::bench {
namespace {

constexpr size_t kValue = 100;
constexpr uint64_t kFits = 300000;  // records that fit the default overlay
constexpr uint64_t kBeyond = 2000000;
constexpr uint64_t kBatch = 8192;

// A journal with that many records in front of an empty index, opened with the default overlay.
double replay(const std::string& dir, uint64_t records, uint32_t per_block) {
  StoreUnderTest s(dir);
  s.config.overlay_bytes = uint64_t{8} << 30;
  s.config.overlay_age = std::chrono::hours(1);
  s.config.retention_bytes = uint64_t{8} << 30;
  s.open();
  s.append(records, kValue, per_block, 7);
  s.kill();
  s.config = {};
  s.open();
  CHECK(s.engine().report().records == records);
  return static_cast<double>(records) / (static_cast<double>(s.engine().report().took.count()) * 1e-9);
}

double bare_put(const std::string& dir, uint64_t records) {
  CHECK(::mkdir(dir.c_str(), 0700) == 0);
  MDB_env* env = nullptr;
  CHECK(mdb_env_create(&env) == 0 && mdb_env_set_mapsize(env, size_t{1} << 40) == 0);
  CHECK(mdb_env_open(env, dir.c_str(), 0, 0600) == 0);
  const std::string value(kValue, 'v');
  const double start = now_s();
  for (uint64_t at = 0; at < records;) {
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    CHECK(mdb_txn_begin(env, nullptr, 0, &txn) == 0 && mdb_dbi_open(txn, nullptr, 0, &dbi) == 0);
    for (const uint64_t end = std::min(records, at + kBatch); at < end; at++) {
      std::string key = bench_key(at, 7);
      MDB_val k{key.size(), key.data()}, v{value.size(), const_cast<char*>(value.data())};
      CHECK(mdb_put(txn, dbi, &k, &v, 0) == 0);
    }
    CHECK(mdb_txn_commit(txn) == 0);
  }
  const double rate = static_cast<double>(records) / (now_s() - start);
  mdb_env_close(env);
  return rate;
}

void fits(Bench& bench) {
  for (const uint32_t per_block : {1U, 100U}) {
    Samples a;
    for (int round = 0; round < bench.rounds(); round++)
      a.add(replay(bench.dir() + "/fits" + std::to_string(per_block) + "-" + std::to_string(round), kFits, per_block));
    bench.report({"replay, fits the overlay, " + std::to_string(per_block) + " a block", "records/s", a.median(),
                  "the bar", 500000, 1.0, Bar::at_least});
  }
}

void beyond(Bench& bench) {
  Samples a, b;
  for (int round = 0; round < std::max(1, bench.rounds() / 3); round++) {
    a.add(replay(bench.dir() + "/beyond" + std::to_string(round), kBeyond, 100));
    b.add(bare_put(bench.dir() + "/bare" + std::to_string(round), kBeyond));
  }
  bench.report(
      {"replay, beyond the overlay", "records/s", a.median(), "mdb_put in batches", b.median(), 0.7, Bar::at_least});
}

const Register fits_bench("store.replay", fits);
const Register beyond_bench("store.replay_beyond", beyond);

}  // namespace
}  // namespace cantle::bench

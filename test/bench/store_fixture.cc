#include "test/bench/store_fixture.h"

#include <cstring>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/wire/block.h"

namespace cantle::bench {

std::string bench_key(uint64_t n, uint64_t seed) {
  const uint64_t words[2] = {n, seed};
  const auto h = base::hash128({reinterpret_cast<const char*>(words), sizeof words});
  std::string key;
  base::put_u64_be(key, h.high);
  base::put_u64_be(key, h.low);
  return key;
}

StoreUnderTest::StoreUnderTest(std::string dir) : dir_(std::move(dir)) {
  disk_ = std::make_unique<store::RealDisk>(dir_);
  CHECK(disk_->make_dir(""));
  factory_ = std::make_unique<store::LmdbIndexFactory>(dir_ + "/index");
  base::SeededRandom random(1);
  identity_.server.name = "bench";
  identity_.cluster = model::ClusterUuid::draw(random);
  tenure_ = {model::PartitionId::draw(random), model::AssignmentId::draw(random)};
}

StoreUnderTest::~StoreUnderTest() { kill(); }

void StoreUnderTest::kill() {
  engine_.reset();
  lanes_.reset();
  loop_.clear();
}

void StoreUnderTest::open() {
  kill();
  identity_.incarnation = identity_.incarnation.next();
  lanes_ = std::make_unique<store::ThreadExecutor>(loop_.poster(), loop_.deferrer());
  auto opened = store::Engine::open({*disk_, *factory_, *lanes_, clock_, nullptr}, config, identity_);
  CHECK(opened);
  engine_ = std::move(*opened);
  if (engine_->find(tenure_)) return;
  bool made = false;
  CHECK(engine_->create({tenure_, {}, {1}, {}}, [&](const base::Status& s) { made = s.has_value(); }));
  until([&] { return made; });
}

void StoreUnderTest::until(const std::function<bool()>& done) {
  CHECK(loop_.until(
      [&] {
        if (const auto now = clock_.now(); now - ticked_ > std::chrono::milliseconds(50)) {
          ticked_ = now;
          engine_->tick();
        }
        return done();
      },
      std::chrono::seconds(600)));
}

void StoreUnderTest::drain() {
  bool drained = false;
  engine_->drain([&](const base::Status& s) {
    CHECK(s);
    drained = true;
  });
  until([&] { return drained; });
}

void StoreUnderTest::append(uint64_t n, size_t value, uint32_t per_block, uint64_t seed) {
  uint64_t at = 0, durable = 0;
  const std::string bytes(value, 'v');
  until([&] {
    while (at < n) {
      std::string payload;
      const uint64_t end = std::min<uint64_t>(n, at + per_block);
      for (uint64_t i = at; i < end; i++)
        wire::append_record(
            payload, {model::Op::put, bench_key(i, seed), bytes, model::Version::make(1000 + i, 0, {1}, {1}), 0, 0, 0});
      auto taken = engine_->append(tenure_.partition, std::move(payload), [&durable, k = end - at](const auto& lsn) {
        CHECK(lsn);
        durable += k;
      });
      if (!taken) break;
      at = end;
    }
    return durable == n;
  });
}

}  // namespace cantle::bench

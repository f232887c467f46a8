// A store with real threads and files, in process, for the benches of lib/store.
#pragma once

#include <memory>
#include <string>

#include "lib/store/engine.h"
#include "lib/store/lmdb_index.h"
#include "test/unit/store/mini_loop.h"

namespace cantle::bench {

class StoreUnderTest {
 public:
  explicit StoreUnderTest(std::string dir);
  ~StoreUnderTest();
  store::EngineConfig config;
  // Opens, or opens again as after a SIGKILL; makes the one partition if it is not there.
  void open();
  void kill();
  store::Engine& engine() { return *engine_; }
  const store::TenureId& tenure() const { return tenure_; }
  const std::string& dir() const { return dir_; }
  void until(const std::function<bool()>& done);
  void drain();
  // n records with random 16-byte keys and values of `value` bytes, in blocks of `per_block`, durable but not applied.
  void append(uint64_t n, size_t value, uint32_t per_block, uint64_t seed);

 private:
  std::string dir_;
  base::SystemClock clock_;
  store::MiniLoop loop_;
  std::unique_ptr<store::RealDisk> disk_;
  std::unique_ptr<store::LmdbIndexFactory> factory_;
  std::unique_ptr<store::ThreadExecutor> lanes_;
  std::unique_ptr<store::Engine> engine_;
  store::Identity identity_;
  store::TenureId tenure_;
  base::Instant ticked_{};
};

// 16 bytes that look random; the same n, the same key.
std::string bench_key(uint64_t n, uint64_t seed);

}  // namespace cantle::bench

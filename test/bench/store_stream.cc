// A stream of 4 KiB values into the store, as a mover sends them: journal and index, durable and applied, beside a
// plain copy of the same bytes to a synced file.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "lib/base/check.h"
#include "test/bench/bench.h"
#include "test/bench/store_fixture.h"

namespace cantle::bench {
namespace {

constexpr size_t kValue = 4096;
constexpr uint64_t kRecords = 32768;  // 128 MiB

double rss_anon_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  return 0;
}

double copy(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  CHECK(fd >= 0);
  const std::string bytes(1 << 20, 'v');
  const double start = now_s();
  for (uint64_t n = 0; n < kRecords * kValue; n += bytes.size())
    CHECK(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  CHECK(::fdatasync(fd) == 0);
  const double rate = static_cast<double>(kRecords * kValue) / (now_s() - start) / 1e6;
  ::close(fd);
  return rate;
}

void stream(Bench& bench) {
  Samples durable, applied, plain, memory;
  StoreUnderTest s(bench.dir() + "/store");
  s.open();
  for (int round = 0; round < bench.rounds(); round++) {
    const double start = now_s();
    s.append(kRecords, kValue, 250, static_cast<uint64_t>(100 + round));
    durable.add(static_cast<double>(kRecords * kValue) / (now_s() - start) / 1e6);
    memory.add(rss_anon_mib());
    s.drain();
    applied.add(static_cast<double>(kRecords * kValue) / (now_s() - start) / 1e6);
    plain.add(copy(bench.dir() + "/plain"));
  }
  bench.report(
      {"stream of 4 KiB values, durable", "MB/s", durable.median(), "copy, synced", plain.median(), 0, Bar::shown});
  bench.report(
      {"stream of 4 KiB values, applied", "MB/s", applied.median(), "copy, synced", plain.median(), 0, Bar::shown});
  bench.report({"RssAnon during the stream", "MiB", memory.quantile(1), "the bar", 200, 1.0, Bar::at_most});
}

const Register stream_bench("store.stream", stream);

}  // namespace
}  // namespace cantle::bench

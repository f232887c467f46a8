// Group-committed appends beside a bare pwrite and fdatasync of the same bytes a sync.
#include <fcntl.h>
#include <unistd.h>

#include "lib/base/check.h"
#include "lib/wire/block.h"
#include "test/bench/bench.h"
#include "test/bench/store_fixture.h"

namespace cantle::bench {
namespace {

constexpr double kSeconds = 1.0;
constexpr uint64_t kMade = 600000;  // records, more than are appended in that time
constexpr uint64_t kFile = uint64_t{64} << 20;

struct Rate {
  double appends = 0, per_sync = 0, bytes_per_sync = 0;
};

// `writers` of which each appends a record of its own once the last one is durable. They stand for other processes, so
// that the making of their records is not measured.
Rate ours(StoreUnderTest& s, int writers) {
  auto& engine = s.engine();
  const auto before = engine.status();
  const std::string value(100, 'v');
  std::vector<std::string> payloads(kMade);
  for (uint64_t i = 0; i < kMade; i++)
    wire::append_record(payloads[i],
                        {model::Op::put, bench_key(i, 1), value, model::Version::make(i + 1, 0, {1}, {1}), 0, 0, 0});
  const double start = now_s();
  uint64_t n = 0, next = 0;
  int under_way = 0;
  bool stop = false;
  const std::function<void()> one = [&] {
    under_way++;
    const auto taken = engine.append(s.tenure().partition, std::move(payloads[next++]), [&](const auto& lsn) {
      CHECK(lsn);
      n++;
      under_way--;
      if (!stop) one();
    });
    CHECK(taken);
  };
  for (int i = 0; i < writers; i++) one();
  s.until([&] {
    stop = stop || now_s() - start > kSeconds || next + static_cast<uint64_t>(writers) > kMade;
    return stop && under_way == 0;
  });
  const double seconds = now_s() - start;
  const auto after = engine.status();
  const double syncs = static_cast<double>(after.syncs - before.syncs);
  const double bytes = static_cast<double>(after.head.offset) - static_cast<double>(before.head.offset) +
                       static_cast<double>((after.head.segment - before.head.segment) * s.config.segment_bytes);
  return {static_cast<double>(n) / seconds, static_cast<double>(n) / syncs, bytes / syncs};
}

// Appends a second if each sync of that many bytes carried that many appends.
double bare(int fd, uint64_t& offset, const Rate& like) {
  const std::string bytes(static_cast<size_t>(like.bytes_per_sync), 'b');
  const double start = now_s();
  uint64_t syncs = 0;
  while (now_s() - start < kSeconds) {
    if (offset + bytes.size() > kFile) offset = 0;
    CHECK(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes.size()));
    CHECK(::fdatasync(fd) == 0);
    offset += bytes.size();
    syncs++;
  }
  return static_cast<double>(syncs) / (now_s() - start) * like.per_sync;
}

void append(Bench& bench) {
  StoreUnderTest s(bench.dir() + "/store");
  s.open();
  const int fd = ::open((bench.dir() + "/bare").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  const std::string zeros(1 << 20, '\0');
  for (uint64_t at = 0; at < kFile; at += zeros.size())
    CHECK(::pwrite(fd, zeros.data(), zeros.size(), static_cast<off_t>(at)) > 0);
  CHECK(::fsync(fd) == 0);
  uint64_t offset = 0;
  for (const int writers : {1, 16, 64}) {
    Samples a, b;
    for (int round = 0; round < bench.rounds(); round++) {
      s.drain();
      const auto rate = ours(s, writers);
      a.add(rate.appends);
      b.add(bare(fd, offset, rate));
    }
    bench.report({"append, " + std::to_string(writers) + " writers", "appends/s", a.median(), "pwrite+fdatasync",
                  b.median(), 0.8, Bar::at_least});
  }
  ::close(fd);
}

const Register append_bench("store.append", append);

}  // namespace
}  // namespace cantle::bench

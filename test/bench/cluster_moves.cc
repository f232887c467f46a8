// What moves data between servers, and what must not: splits in place, splits to other servers, a server that comes
// back; beside a plain copy over loopback into a synced file.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "test/bench/bench.h"
#include "test/bench/local_cluster.h"

namespace cantle::bench {
namespace {

constexpr size_t kValue = 4096;

// MB/s of `bytes` over a TCP connection of this host, written to a file and synced at the end.
double plain_copy_mb_s(const std::string& dir, size_t bytes) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::perror("bench: plain copy");
    std::exit(1);
  }
  const double begun = now_s();
  std::thread sender([&] {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      const std::string block(size_t{256} << 10, 'x');
      for (size_t sent = 0; sent < bytes;) {
        const ssize_t n = ::write(fd, block.data(), std::min(block.size(), bytes - sent));
        if (n <= 0) break;
        sent += static_cast<size_t>(n);
      }
    }
    ::close(fd);
  });
  const int from = ::accept(listener, nullptr, nullptr);
  const std::string path = dir + "/plain-copy";
  const int to = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  std::string buffer(size_t{256} << 10, '\0');
  size_t got = 0;
  for (ssize_t n = 0; (n = ::read(from, buffer.data(), buffer.size())) > 0; got += static_cast<size_t>(n))
    if (::write(to, buffer.data(), static_cast<size_t>(n)) != n) break;
  ::fdatasync(to);
  const double seconds = now_s() - begun;
  sender.join();
  for (const int fd : {to, from, listener}) ::close(fd);
  ::unlink(path.c_str());
  if (got != bytes) std::fprintf(stderr, "bench: the plain copy broke off\n");
  return static_cast<double>(bytes) / 1e6 / seconds;
}

// A hypervisor takes back the pages that a guest has freed, and gives them anew at the first touch: that touch costs
// ten times what a copy into a page that is there does (0.07 s and 0.73 s for 400 MB were seen in a row). Which of two
// measurements pays for it would be chance; so all pages that either needs are there before both.
void have_pages(const std::string& dir, size_t bytes) {
  const std::string path = dir + "/pages";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::string block(size_t{1} << 20, 'x');
  for (size_t n = 0; n < bytes; n += block.size())
    if (::write(fd, block.data(), block.size()) < 0) break;
  ::close(fd);
  ::unlink(path.c_str());
}

// Records of 4 KiB values, `mib` of them.
void fill(const LocalCluster& cluster, const std::string& table, size_t mib) {
  const std::string records = std::to_string(mib * 1024 * 1024 / kValue);
  cluster.tool("partc bench put " + table + " --records " + records + " --count " + records +
               " --value-size 4096 --connections 4 --in-flight 32 --timeout 60s >&2");
}

// Waits until these servers have everything in their indexes: what they still had to do would be measured too.
void settle(const LocalCluster& cluster, const std::vector<std::string>& servers) {
  const double deadline = now_s() + 60;
  const std::string field = "\"backlog_bytes\",\"value\":";
  for (const auto& server : servers)
    for (;;) {
      const std::string status = cluster.tool("partc status --server " + server + " --json");
      const size_t at = status.find(field);
      if (at == std::string::npos || now_s() > deadline) {
        std::fprintf(stderr, "bench: %s does not come to rest\n", server.c_str());
        cluster.local("down");  // exit() ends no cluster
        std::exit(1);
      }
      if (std::stoull(status.substr(at + field.size())) < (1U << 20)) break;
      ::usleep(50000);
    }
}

std::string first_partition(const LocalCluster& cluster, const std::string& table) {
  std::istringstream lines(cluster.tool("partc route " + table + " -o name"));
  std::string region;
  std::getline(lines, region);
  return region;
}

struct Gap {
  double end_us, length_us;
};
std::vector<Gap> read_gaps(const std::string& path) {
  std::ifstream in(path);
  std::vector<Gap> gaps;
  for (Gap g{}; in >> g.end_us >> g.length_us;) gaps.push_back(g);
  return gaps;
}
double longest_ms(const std::vector<Gap>& gaps, double from_us, double to_us) {
  double longest = 0;
  for (const auto& g : gaps)
    if (g.end_us >= from_us && g.end_us - g.length_us <= to_us) longest = std::max(longest, g.length_us);
  return longest / 1000;
}
double wall_us() {
  timespec ts{};
  clock_gettime(CLOCK_REALTIME, &ts);
  return static_cast<double>(ts.tv_sec) * 1e6 + static_cast<double>(ts.tv_nsec) / 1e3;
}

struct Window {
  double begin_us, end_us;
  double seconds() const { return (end_us - begin_us) / 1e6; }
};

// Splits the first partition of `table`, which stays where it is.
Window split_first(const LocalCluster& cluster, const std::string& table) {
  const std::string region = first_partition(cluster, table);
  const double begin = wall_us();
  cluster.tool("splitter split " + table + " " + region + " >&2");
  return {begin, wall_us()};
}

// Five splits of the partition that a closed-loop writer writes to, each half as large as the one before.
void splits(Bench& bench) {
  const LocalCluster cluster(bench.dir() + "/c", "--servers 3 --mdservers 3");
  MemoryWatch memory(cluster);
  for (const char* table : {"small", "large"})
    cluster.tool("zkctl table create " + std::string(table) + " --keyspace range --replication push --replicas 3 >&2");
  fill(cluster, "small", 100);
  fill(cluster, "large", 1024);
  settle(cluster, {"p1", "p2", "p3"});

  const std::string gap_log = bench.dir() + "/gaps";
  std::string writer;
  std::thread writing([&] {
    // Keys at the very beginning of the first partition, whatever is split off behind them.
    writer = cluster.tool(
        "partc bench put large --records 100 --key-size 16 --value-size 100 --duration 45s --json --gap-log " +
        gap_log);
  });
  ::sleep(3);
  std::vector<Window> windows;
  for (int i = 0; i < 5; ++i) {
    windows.push_back(split_first(cluster, "large"));
    ::sleep(4);
  }
  const Window small = split_first(cluster, "small");  // while the load goes on, as for the large one
  writing.join();

  const auto gaps = read_gaps(gap_log);
  Samples added;
  for (const auto& w : windows) {
    const double before = longest_ms(gaps, w.begin_us - (w.end_us - w.begin_us), w.begin_us);
    const double during = longest_ms(gaps, w.begin_us, w.end_us);
    added.add(during - before);
    std::printf("  split in %.3f s: longest gap %.1f ms, in as long a time before %.1f ms\n", w.seconds(), during,
                before);
  }
  bench.report({"split of 1 GiB in place", "s", windows.front().seconds(), "bar", 2, 1, Bar::at_most});
  bench.report({"split of 1 GiB in place", "s", windows.front().seconds(), "split of 100 MiB", small.seconds(), 1.5,
                Bar::at_most});
  bench.report({"gap added by a split, median of 5", "ms", added.median(), "bar", 50, 1, Bar::at_most});
  memory.print("split");
}
const Register splits_bench("cluster.split", splits);

// k = 1, children on the two servers that do not have the parent.
void split_away(Bench& bench) {
  constexpr size_t kMib = 1024;
  const LocalCluster cluster(bench.dir() + "/c", "--servers 3 --mdservers 3");
  MemoryWatch memory(cluster);
  Samples ours, copy;
  for (int round = 0; round < std::max(1, bench.rounds() / 3); ++round) {
    const std::string table = "t" + std::to_string(round);
    cluster.tool("zkctl table create " + table + " --keyspace range --replication push --replicas 1 >&2");
    fill(cluster, table, kMib);
    settle(cluster, {"p1", "p2", "p3"});
    const std::string on = cluster.tool("partc route " + table + " --json");
    std::string others;
    for (const char* p : {"p1", "p2", "p3"})
      if (on.find("\"server\":\"" + std::string(p) + "\"") == std::string::npos)
        others += std::string(others.empty() ? "--low " : " --high ") + p;
    const std::string region = first_partition(cluster, table);
    have_pages(bench.dir(), kMib << 22);
    copy.add(plain_copy_mb_s(bench.dir(), kMib << 20));
    have_pages(bench.dir(), kMib << 22);
    const double begun = now_s();
    cluster.tool("splitter split " + table + " " + region + " " + others + " >&2");
    ours.add(static_cast<double>(kMib << 20) / 1e6 / (now_s() - begun));
  }
  bench.report({"split to two other servers, k=1, 4 KiB", "MB/s", ours.median(), "plain copy", copy.median(), 0.5,
                Bar::at_least});
  memory.print("split to other servers");
}
const Register split_away_bench("cluster.split_away", split_away);

// A server that missed 500 MiB has all of it durable again.
void catch_up(Bench& bench) {
  constexpr size_t kMib = 500;
  const LocalCluster cluster(bench.dir() + "/c", "--servers 3 --mdservers 3 --partd-arg --retention-mib=2048");
  MemoryWatch memory(cluster);
  Samples ours, copy;
  for (int round = 0; round < bench.rounds(); ++round) {
    // A table for each, so that p3 has nothing of what it missed in any.
    const std::string table = "t" + std::to_string(round);
    cluster.tool("zkctl table create " + table + " --keyspace range --replication push --replicas 3 >&2");
    cluster.tool("partc put " + table + " first record");
    cluster.local("kill p3");
    fill(cluster, table, kMib);
    settle(cluster, {"p1", "p2"});
    have_pages(bench.dir(), kMib << 22);
    copy.add(plain_copy_mb_s(bench.dir(), kMib << 20));
    have_pages(bench.dir(), kMib << 22);
    cluster.local("start p3");
    const double seconds = cluster.running_s("p3");  // the script that starts it is not what is measured
    ours.add(static_cast<double>(kMib << 20) / 1e6 / seconds);
    std::printf("  caught up in %.2f s\n", seconds);
    cluster.tool("partc verify " + table + " --timeout 120s >&2");
    settle(cluster, {"p3"});
  }
  bench.report({"catching up on 500 MiB of 4 KiB values", "MB/s", ours.median(), "plain copy", copy.median(), 0.5,
                Bar::at_least});
  memory.print("catching up");
}
const Register catch_up_bench("cluster.catch_up", catch_up);

}  // namespace
}  // namespace cantle::bench

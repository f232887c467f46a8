// Many partitions in one quorum table on three servers, with either coordination service: how long they take to be led
// after their table was made, after all servers were killed and started again, and after the one that led the partition
// that is written next; how long `zkctl status` takes; and what writes over all of them come to beside a table of one
// partition.
#include <cstdio>
#include <fstream>
#include <string>

#include "test/bench/bench.h"
#include "test/bench/local_cluster.h"

namespace cantle::bench {
namespace {

constexpr uint64_t kKeys = 100000;
constexpr uint64_t kMany = 4096, kSome = 1000;
constexpr int kKills = 10;

// partc bench's keys: "k" and digits, 16 bytes.
std::string key_of(uint64_t i) {
  char text[24];
  std::snprintf(text, sizeof text, "k%015llu", static_cast<unsigned long long>(i));
  return text;
}
std::string key_in(uint64_t partition, uint64_t partitions) { return key_of(partition * kKeys / partitions + 1); }

class Many {
 public:
  Many(const Bench& bench, const std::string& coord)
      : dir_(bench.dir()), cluster_(dir_ + "/" + coord, "--servers 3 --mdservers 1 --coord " + coord) {}

  const LocalCluster& cluster() const { return cluster_; }
  void create(const std::string& table, uint64_t partitions) {
    const std::string points = dir_ + "/points";
    {
      std::ofstream out(points);
      for (uint64_t i = 1; i < partitions; ++i) out << key_of(i * kKeys / partitions) << "\n";
    }
    cluster_.tool("zkctl table create " + table + " --keyspace range --replication quorum --replicas 3 --timeout 90s" +
                  " --points " + points + " >&2");
  }
  // A write into each of them is acknowledged.
  void write_everywhere(const std::string& table, uint64_t partitions) {
    const std::string keys = dir_ + "/keys";
    {
      std::ofstream out(keys);
      for (uint64_t i = 0; i < partitions; ++i) out << key_in(i, partitions) << "\tv\n";
    }
    cluster_.tool("partc load " + table + " " + keys + " --format tsv >&2");
  }
  std::string leader_of(const std::string& table, const std::string& key) {
    const auto text = cluster_.tool("zkctl explain " + table + " " + key);
    const std::string before = "Reads and writes work, ", after = " leads";
    const size_t from = text.find(before), to = text.find(after, from);
    if (from == std::string::npos || to == std::string::npos) {
      std::fprintf(stderr, "bench: nobody leads %s: %s\n", key.c_str(), text.c_str());
      give_up();
    }
    return text.substr(from + before.size(), to - from - before.size());
  }
  void put(const std::string& table, const std::string& key) {
    cluster_.tool("partc put " + table + " " + key + " v --timeout 30s");
  }
  double put_rate(const std::string& table) {
    return json_number(cluster_.tool("partc bench put " + table + " --records 100000 --key-size 16 --value-size 100" +
                                     " --connections 16 --in-flight 64 --duration 3s --json"),
                       "operations_per_second");
  }

 private:
  std::string dir_;
  LocalCluster cluster_;
};

class Clock {
 public:
  double s() const { return now_s() - begun_; }

 private:
  double begun_ = now_s();
};

// The servers that are killed come back in turns, so that each has led some of the partitions.
void failovers(Bench& bench, Many& many, const std::string& coord, const std::string& table, uint64_t partitions,
               int kills, double first_bar, double all_bar) {
  Samples first, all;
  for (int kill = 0; kill < kills; ++kill) {
    const auto key = key_in(static_cast<uint64_t>(kill) * partitions / static_cast<uint64_t>(kills), partitions);
    const auto victim = many.leader_of(table, key);
    const Clock clock;
    many.cluster().local("kill " + victim);
    many.put(table, key);
    first.add(clock.s());
    many.write_everywhere(table, partitions);
    all.add(clock.s());
    many.cluster().local("start " + victim);
    many.write_everywhere(table, partitions);
  }
  const std::string what = coord + ", " + std::to_string(partitions) + " partitions, a leader dies: ";
  bench.report({what + "a write", "s", first.median(), "bar, s", first_bar, 1, Bar::at_most});
  bench.report({what + "all written", "s", all.median(), "bar, s", all_bar, 1, Bar::at_most});
}

void some_of(Bench& bench, const std::string& coord) {
  Many many(bench, coord);
  many.create("some", kSome);
  many.write_everywhere("some", kSome);
  failovers(bench, many, coord, "some", kSome, kKills, 1.2, 3);
}

void many_of(Bench& bench, const std::string& coord) {
  Many many(bench, coord);
  MemoryWatch memory(many.cluster());
  many.create("one", 1);
  many.put("one", "warm");
  const Clock made;
  many.create("many", kMany);
  many.write_everywhere("many", kMany);
  const std::string what = coord + ", " + std::to_string(kMany) + " partitions, ";
  bench.report({what + "made, and all written", "s", made.s(), "", 0, 0, Bar::shown});
  Samples one, all, status;
  for (int round = 0; round < 3; ++round) {
    one.add(many.put_rate("one"));
    all.add(many.put_rate("many"));
    const Clock clock;
    many.cluster().tool("zkctl status >&2");
    status.add(clock.s());
  }
  bench.report({what + "writes over all", "1/s", all.median(), "over one", one.median(), 0.5, Bar::at_least});
  bench.report({what + "zkctl status", "s", status.median(), "bar, s", 3, 1, Bar::at_most});
  failovers(bench, many, coord, "many", kMany, 3, 3, 3);
  many.cluster().local("kill p1 p2 p3");
  const Clock started;
  many.cluster().local("start p1 p2 p3");
  bench.report({what + "started: ready", "s", started.s(), "bar, s", 3, 1, Bar::at_most});
  many.write_everywhere("many", kMany);
  bench.report({what + "started: all written", "s", started.s(), "bar, s", 3, 1, Bar::at_most});
  memory.print(coord + ", 4,096 partitions");
}
const Register some_file("cluster.many_1000_file", [](Bench& bench) { some_of(bench, "file"); });
const Register some_zk("cluster.many_1000_zk", [](Bench& bench) { some_of(bench, "zk"); });
const Register many_file("cluster.many_4096_file", [](Bench& bench) { many_of(bench, "file"); });
const Register many_zk("cluster.many_4096_zk", [](Bench& bench) { many_of(bench, "zk"); });

}  // namespace
}  // namespace cantle::bench

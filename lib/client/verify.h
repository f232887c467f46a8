// Verify: do all replicas of a table hold the same, and is it what it should be?
//
// compare_replicas asks every assigned server for the content hashes of its partitions (keys, versions and values,
// tombstones included). While replpush still brings one up to date they differ; wait_for_replicas asks again until
// they agree or the time is over.
//
// Expected is what a table should hold after an input was loaded: the last record of each key. It keeps a
// hash of each value, so that an input larger than memory's values can be checked.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/base/bytes.h"
#include "lib/client/client.h"
#include "lib/client/format.h"

namespace cantle::client {

struct ReplicaHash {
  model::Assignment assignment;
  base::Result<model::HashPartition> held = base::fail(base::Code::unavailable, "not asked");
};
struct PartitionReplicas {
  model::PartitionId id;
  model::Region region;
  model::Interval interval;
  std::vector<ReplicaHash> replicas;
  // All answered, and hash, records and tombstones are the same.
  bool agree() const;
  // Two that should hold the same do not, or one that is said to have everything does not hold the partition. A replica
  // that did not answer, or is still brought up to date, is no difference: it could not be compared.
  bool differ() const;
  // The records of those that were compared.
  uint64_t records() const;
};

// Told in the middle of a round which servers have not answered.
using Silent = std::function<void(const std::vector<model::ServerId>&)>;
// One round. An error is one of the map; a server's is in its ReplicaHash.
base::Result<std::vector<PartitionReplicas>> compare_replicas(Client& client, const std::string& table,
                                                              base::Duration timeout, const Silent& silent = {});
struct ReplicaWait {
  base::Duration limit = std::chrono::seconds(30);
  std::function<void(const std::vector<PartitionReplicas>&)> waiting;  // after a round that did not do
  Silent silent;                                                       // kSilentAfter into a round
};
constexpr base::Duration kSilentAfter = std::chrono::seconds(3);

// The last round: agreed, or what it looked like when the time was over.
base::Result<std::vector<PartitionReplicas>> wait_for_replicas(Client& client, const std::string& table,
                                                               const ReplicaWait& wait);

// "p1 holds 3 records (hash …), p2 does not answer: …": for people.
std::string disagreement(const PartitionReplicas& partition);
// "p2: it is down; p3: it catches up": those that could not be compared, and why; empty: none.
std::string not_compared(const PartitionReplicas& partition, const Servers& servers);

class Expected {
 public:
  void add(const Entry& entry);  // in the order of the input
  size_t size() const { return keys_.size(); }

  struct Difference {
    enum class Kind : uint8_t { missing, extra, value } kind = Kind::missing;
    std::string key;
    uint64_t line = 0;  // of the input; 0 for extra
  };
  // A record of the table; each key once.
  std::optional<Difference> check(const std::string& key, std::string_view value);
  // What check() has not seen, in the order of the input.
  std::vector<Difference> missing() const;

 private:
  struct Value {
    base::Hash128 hash;
    uint64_t line = 0;
    bool seen = false;
  };
  std::unordered_map<std::string, Value> keys_;
};

}  // namespace cantle::client

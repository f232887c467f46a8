// WriteQueue: which records of a long load may be sent now, and together with which others. Pure.
//
// Use
//   queue.add(std::move(entry));                            // in the order of the input
//   while (auto group = queue.next(limits, partition_of)) … send group->writes as one request, then
//   queue.done(std::move(*group));                          // or queue.apart(std::move(*group)): one by one
//   queue.reroute(partition_of);                            // the map has changed
//
// Invariants
//   * Of one key at most one record is out at a time, and its records go out in the order of add(): so the last one
//     of the input wins, whatever is retried and however the partitions are split meanwhile.
//   * A group lies in one partition as `partition_of` saw it, and holds no key twice.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/client/format.h"

namespace cantle::client {

class WriteQueue {
 public:
  // A number that stays the same as long as the map does; any function of the key will do.
  using PartitionOf = std::function<uint64_t(std::string_view key)>;
  struct Limits {
    size_t records = 64;
    size_t bytes = size_t{256} << 10;  // of keys and values; one record always fits
  };
  struct Group {
    std::vector<Entry> writes;
    size_t bytes = 0;
  };

  void add(Entry&& entry, const PartitionOf& partition_of);
  std::optional<Group> next(const Limits& limits);
  void done(Group&& group, const PartitionOf& partition_of);
  // The group is to be sent again, each record by itself: to find the one that is refused.
  void apart(Group&& group);
  void reroute(const PartitionOf& partition_of);

  size_t waiting() const { return waiting_; }  // records added and not yet out
  size_t out() const { return out_; }          // records out
  bool ready() const { return !alone_.empty() || !ready_.empty(); }

 private:
  struct Key {
    std::deque<Entry> later;  // behind the one that is ready or out
  };
  void make_ready(Entry&& entry, const PartitionOf& partition_of);

  std::unordered_map<std::string, Key> keys_;    // those ready or out
  std::map<uint64_t, std::deque<Entry>> ready_;  // by partition; no empty deques
  uint64_t turn_ = 0;                            // partitions take turns
  std::deque<Entry> alone_;
  size_t waiting_ = 0, out_ = 0;
};

}  // namespace cantle::client

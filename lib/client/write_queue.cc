#include "lib/client/write_queue.h"

namespace cantle::client {

void WriteQueue::add(Entry&& entry, const PartitionOf& partition_of) {
  ++waiting_;
  const auto [it, fresh] = keys_.try_emplace(entry.key);
  if (fresh)
    make_ready(std::move(entry), partition_of);
  else
    it->second.later.push_back(std::move(entry));
}

void WriteQueue::make_ready(Entry&& entry, const PartitionOf& partition_of) {
  const uint64_t partition = partition_of(entry.key);
  ready_[partition].push_back(std::move(entry));
}

std::optional<WriteQueue::Group> WriteQueue::next(const Limits& limits) {
  Group group;
  const auto take = [&](std::deque<Entry>& from) {
    group.bytes += from.front().key.size() + from.front().value.size();
    group.writes.push_back(std::move(from.front()));
    from.pop_front();
    --waiting_;
    ++out_;
  };
  if (!alone_.empty()) {
    take(alone_);
    return group;
  }
  if (ready_.empty()) return std::nullopt;
  auto it = ready_.upper_bound(turn_);
  if (it == ready_.end()) it = ready_.begin();
  turn_ = it->first;
  auto& from = it->second;
  do take(from);
  while (!from.empty() && group.writes.size() < limits.records &&
         group.bytes + from.front().key.size() + from.front().value.size() <= limits.bytes);
  if (from.empty()) ready_.erase(it);
  return group;
}

void WriteQueue::done(Group&& group, const PartitionOf& partition_of) {
  out_ -= group.writes.size();
  for (auto& entry : group.writes) {
    const auto it = keys_.find(entry.key);
    if (it->second.later.empty()) {
      keys_.erase(it);
      continue;
    }
    make_ready(std::move(it->second.later.front()), partition_of);
    it->second.later.pop_front();
  }
}

void WriteQueue::apart(Group&& group) {
  out_ -= group.writes.size();
  waiting_ += group.writes.size();
  for (auto& entry : group.writes) alone_.push_back(std::move(entry));
}

void WriteQueue::reroute(const PartitionOf& partition_of) {
  auto old = std::move(ready_);
  ready_.clear();
  for (auto& [partition, entries] : old)
    for (auto& entry : entries) make_ready(std::move(entry), partition_of);
}

}  // namespace cantle::client

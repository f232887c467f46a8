#include "lib/store/record_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "lib/base/check.h"

namespace cantle::store {
namespace {

constexpr size_t kFirstSets = 16;
constexpr uint64_t kMix = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio: a number that spreads

uint64_t hash_of(model::ExtentId extent, std::string_view key) {
  return (std::hash<std::string_view>()(key) ^ extent.value * kMix) * kMix;
}
uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32) | 1; }  // 0: nothing is there

}  // namespace

// Behind it, the key and the value.
struct RecordCache::Record {
  uint64_t hash = 0;
  model::ExtentId extent;
  model::Version version;
  uint32_t value_size = 0;
  uint16_t key_size = 0;
  uint8_t flags = 0;
  bool asked = false;  // since the hand went over it

  char* bytes() { return reinterpret_cast<char*>(this + 1); }
  std::string_view key() { return {bytes(), key_size}; }
  std::string_view value() { return {bytes() + key_size, value_size}; }
  uint64_t size() const { return sizeof(Record) + key_size + value_size; }
};

RecordCache::RecordCache(uint64_t bytes_max, size_t sets_max) : bytes_max_(bytes_max), sets_max_(sets_max) {
  CHECK((sets_max & (sets_max - 1)) == 0);
}

RecordCache::~RecordCache() {
  clear();
  let_go();
}

RecordCache::Record** RecordCache::look(model::ExtentId extent, std::string_view key, uint64_t hash) {
  auto& set = set_of(hash);
  const auto tag = tag_of(hash);
  for (size_t i = 0; i < kWays; i++)
    if (set.tags[i] == tag && set.records[i]->extent == extent && set.records[i]->key() == key) return &set.records[i];
  return nullptr;
}

std::optional<Found> RecordCache::find(model::ExtentId extent, std::string_view key) {
  auto* at = count_ == 0 ? nullptr : look(extent, key, hash_of(extent, key));
  if (at == nullptr) {
    misses_++;
    return std::nullopt;
  }
  hits_++;
  viewed_ = true;
  auto& record = **at;
  record.asked = true;
  return Found{false, record.version, record.value(), record.flags};
}

void RecordCache::free(Record*& record) {
  bytes_ -= record->size();
  if (viewed_)
    out_.push_back(record);
  else
    std::free(record);
  record = nullptr;
}

// In the path of each write: one look at a set, and none at the record, which is somewhere else in memory. Another one
// with the same tag goes with it, which costs it a read of the index.
void RecordCache::take_out(model::ExtentId extent, std::string_view key) {
  const auto hash = hash_of(extent, key);
  auto& set = set_of(hash);
  const auto tag = tag_of(hash);
  for (auto& there : set.tags) {
    if (there != tag) continue;
    there = 0;
    count_--;
  }
}

void RecordCache::vacate(Set& set, size_t way) {
  if (set.tags[way] != 0) {
    set.tags[way] = 0;
    count_--;
  }
  if (set.records[way] != nullptr) free(set.records[way]);
}

void RecordCache::clear() {
  for (auto& set : sets_)
    for (size_t i = 0; i < kWays; i++) vacate(set, i);
  sets_ = {};
  hand_ = 0;
}

void RecordCache::let_go() {
  for (auto* record : out_) std::free(record);
  out_.clear();
  viewed_ = false;
}

// Twice as many sets, once they are half full: sets fill unevenly.
void RecordCache::grow() {
  if (!sets_.empty() && (count_ < sets_.size() * kWays / 2 || sets_.size() >= sets_max_)) return;
  auto old = std::exchange(sets_, std::vector<Set>(sets_.empty() ? std::min(kFirstSets, sets_max_) : 2 * sets_.size()));
  hand_ = 0;
  for (auto& set : old)
    for (size_t i = 0; i < kWays; i++) {
      if (set.tags[i] == 0) {
        vacate(set, i);
        continue;
      }
      // What of a set goes to one of the two that it becomes has room there.
      auto& to = set_of(set.records[i]->hash);
      size_t free_way = 0;
      while (to.tags[free_way] != 0) free_way++;
      to.tags[free_way] = set.tags[i];
      to.records[free_way] = set.records[i];
    }
}

RecordCache::Record** RecordCache::place(Set& set) {
  for (size_t i = 0; i < kWays; i++)
    if (set.tags[i] == 0) {
      vacate(set, i);
      return &set.records[i];
    }
  if (++asked_ % kAdmitOneIn != 0) return nullptr;
  size_t victim = (asked_ / kAdmitOneIn) % kWays;
  for (size_t n = 0; n < kWays && set.records[victim]->asked; n++) {
    set.records[victim]->asked = false;
    victim = (victim + 1) % kWays;
  }
  vacate(set, victim);
  return &set.records[victim];
}

// Set after set, until there is: whatever was not asked for since the last time around, and in the second round all.
void RecordCache::make_room(uint64_t bytes) {
  while (bytes_ + bytes > bytes_max_ && bytes_ != 0) {
    auto& set = sets_[hand_];
    hand_ = (hand_ + 1) & (sets_.size() - 1);
    for (size_t i = 0; i < kWays; i++) {
      if (set.tags[i] != 0 && std::exchange(set.records[i]->asked, false)) continue;
      vacate(set, i);
    }
  }
}

void RecordCache::add(model::ExtentId extent, std::string_view key, const Found& found) {
  const uint64_t size = sizeof(Record) + key.size() + found.value.size();
  if (found.deleted || key.size() + found.value.size() > kCachedMost || size > bytes_max_) return;
  grow();
  const auto hash = hash_of(extent, key);
  if (look(extent, key, hash) != nullptr) return;
  auto& set = set_of(hash);
  auto* at = place(set);
  if (at == nullptr) return;
  make_room(size);  // which may empty places of this set, and fills none
  void* memory = std::malloc(size);
  CHECK(memory != nullptr);
  auto* record = new (memory) Record;
  record->hash = hash;
  record->extent = extent;
  record->version = found.version;
  record->value_size = static_cast<uint32_t>(found.value.size());
  record->key_size = static_cast<uint16_t>(key.size());
  record->flags = found.flags;
  std::memcpy(record->bytes(), key.data(), key.size());
  if (!found.value.empty()) std::memcpy(record->bytes() + key.size(), found.value.data(), found.value.size());
  *at = record;
  set.tags[static_cast<size_t>(at - set.records.data())] = tag_of(hash);
  bytes_ += size;
  count_++;
}

}  // namespace cantle::store

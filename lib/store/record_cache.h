// RecordCache: records that were read from the index, by extent and key, in memory: a point read of one that is asked
// for again is one look at a table and one at the record, where the index's tree is a dozen places that are not in the
// processor's cache.
//
// It has no truth of its own: find() may be believed only for a key that the overlay does not hold, and whoever changes
// what the index says of a key, or is about to, calls erase() or clear() first. Where the index may change behind the
// caller's back (a snapshot being filled in), it is neither asked nor given anything.
//
// Use
//   if (const auto found = cache.find(extent, key)) …      // loop
//   cache.add(extent, key, found);                          // as the index has just said it, tombstones not
//   cache.erase(extent, key);                               // a newer version goes into the overlay
//   cache.let_go();                                         // at the end of the turn: views that were given end
//
// Records of up to kCachedMost bytes, kRecordCacheBytes together, in sets of four; a record that comes to a full set
// takes the place of one that was not asked for lately, and only one in kAdmitOneIn is let in, so that reads all over a
// large partition do not cost what they cannot win. The table begins with nothing and doubles: a server that nobody
// reads from has none.
//
// Threads: the loop's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lib/model/ids.h"
#include "lib/store/tenure.h"

namespace cantle::store {

constexpr uint64_t kRecordCacheBytes = uint64_t{64} << 20;  // what the records take, headers with them
constexpr size_t kRecordCacheSets = size_t{1} << 16;        // 64 bytes each
constexpr size_t kCachedMost = 4096;                        // of key and value
constexpr uint32_t kAdmitOneIn = 4;

class RecordCache {
 public:
  explicit RecordCache(uint64_t bytes_max = kRecordCacheBytes, size_t sets_max = kRecordCacheSets);
  ~RecordCache();
  RecordCache(const RecordCache&) = delete;
  RecordCache& operator=(const RecordCache&) = delete;

  // A view that holds until let_go().
  std::optional<Found> find(model::ExtentId extent, std::string_view key);
  void add(model::ExtentId extent, std::string_view key, const Found& found);
  void erase(model::ExtentId extent, std::string_view key) {
    if (count_ != 0) take_out(extent, key);
  }
  void clear();
  // Frees what left the table since views were given.
  void let_go();
  // A view was given that let_go() has not ended: it is to be called at the end of the turn.
  bool viewed() const { return viewed_; }

  uint64_t bytes() const { return bytes_; }  // of what was erased, too, until its place is wanted
  uint64_t records() const { return count_; }
  uint64_t hits() const { return hits_; }
  uint64_t misses() const { return misses_; }

 private:
  static constexpr size_t kWays = 4;
  struct Record;
  struct alignas(64) Set {
    std::array<uint32_t, kWays> tags{};  // 0: nothing is there, or what was erased and is to be freed
    std::array<Record*, kWays> records{};
  };

  Set& set_of(uint64_t hash) { return sets_[hash & (sets_.size() - 1)]; }
  Record** look(model::ExtentId extent, std::string_view key, uint64_t hash);
  void take_out(model::ExtentId extent, std::string_view key);
  void free(Record*& record);
  void vacate(Set& set, size_t way);
  void grow();
  // A place in the set: a free one, or of what was not asked for lately; null: nothing is let in this time.
  Record** place(Set& set);
  void make_room(uint64_t bytes);

  const uint64_t bytes_max_;
  const size_t sets_max_;
  std::vector<Set> sets_;  // none, or a power of two
  uint64_t bytes_ = 0, count_ = 0, hits_ = 0, misses_ = 0;
  uint32_t asked_ = 0;  // for a place in a full set
  size_t hand_ = 0;     // where room is looked for next
  bool viewed_ = false;
  std::vector<Record*> out_;  // left the table while views may show them
};

}  // namespace cantle::store

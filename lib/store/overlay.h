// Overlay: the durable records that are not in the index yet, in memory, sorted by extent and key.
//
// It has two halves: `active` takes what becomes durable; `sealed`, when there is one, is being applied and does
// not change. Keyed by extent and not by partition, so that a divide moves nothing.
//
// Use
//   overlay.put(extent, record, newest, place);  // loop; with a place, a large value stays in the journal
//   overlay.settle_many();                       // loop, when nothing waits for it: sorts in what was put, if it is
//   much auto half = overlay.seal();               // loop: shared with the apply lane, which only reads it
//   overlay.drop_sealed();                    // loop: once readers see the commit that holds it
//   overlay.find(extent, key)                 // the newest of both halves, or null
//
// Invariants
//   * What is put is sorted in later, many at once: who waits for an answer to a write does not wait for that. Whoever
//     looks has it done first.
//   * Of one key each half holds the newest version it was given; find() and Merge give the newest of both.
//   * An entry's bytes live in arenas of its half and stay where they are until the half is dropped; arenas go
//     back to the system then.
//   * A value that was left in the journal has a checksum here: it is read as it was, or not at all. The half keeps
//     the file open; who takes segments away asks whether anybody does.
//   * `newest` of an entry means: nothing newer was anywhere when it came; then the index need not be asked.
//
// Threads: the loop's; a sealed half may be read by the apply lane meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/ids.h"
#include "lib/model/record.h"

namespace cantle::store {

class File;

constexpr size_t kSettleFrom = 256;  // records; sorted in within some 0.2 ms

// Where the payload of a durable block lies.
struct PayloadPlace {
  std::shared_ptr<File> file;
  uint64_t offset = 0;
  const char* bytes = nullptr;  // the same payload in memory; a value's own place follows from its distance
};

// One record in an arena: this, then key, then value, or where the value lies.
struct Entry {
  uint32_t value_size = 0;
  uint16_t key_size = 0;
  bool deleted = false;
  bool newest = false;
  uint8_t flags = 0;
  bool left = false;  // the value is in the journal
  model::Version version;

  const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
  std::string_view key() const { return {bytes(), key_size}; }
  // `buffer` is filled only where the value is read from the journal. corrupt, io_error: it cannot be had.
  base::Result<std::string_view> value(std::string& buffer) const;
};

// Memory that only grows, from the system in large pieces.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();
  void* take(size_t size);  // aligned to 8
  uint64_t used() const { return full_ + used_; }

 private:
  struct Slab {
    char* data;
    size_t size;
  };
  std::vector<Slab> slabs_;
  size_t used_ = 0;    // of the last
  uint64_t full_ = 0;  // bytes used in the others
};

class Half {
 public:
  Half();
  ~Half();
  // `left`: the value stays there. Not to be found before settle().
  void put(model::ExtentId extent, const model::RecordView& record, bool newest, const PayloadPlace* left = nullptr);
  // Sorts in what was put, but for what `older` holds at that version or a newer one. Nobody else reads meanwhile.
  void settle(const Half* older = nullptr);
  const Entry* find(model::ExtentId extent, std::string_view key) const;
  uint64_t bytes() const;  // arenas and trees
  // Something newer may have reached the index past the overlay: its entries' `newest` says nothing any more.
  void distrust() { trusted_ = false; }
  bool trusted() const { return trusted_; }
  uint64_t records() const { return records_; }
  size_t unsorted() const;
  bool empty() const { return records_ == 0 && unsorted() == 0; }

  // Entries of an extent in key order. seek(): first at or after; seek_before(): last before ("" = the end).
  class Walk {
   public:
    Walk(const Half& half, model::ExtentId extent);
    ~Walk();
    Walk(Walk&&) noexcept;
    const Entry* seek(std::string_view key);
    const Entry* seek_before(std::string_view key);
    const Entry* next();
    const Entry* prev();

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };
  std::vector<model::ExtentId> extents() const;  // ascending

 private:
  Entry* make(const model::RecordView& record, bool newest, const PayloadPlace* left);
  struct Trees;
  std::unique_ptr<Trees> trees_;
  Arena arena_;
  std::vector<std::shared_ptr<File>> files_;  // that hold values of ours
  uint64_t records_ = 0;
  bool trusted_ = true;
};

// What the overlay holds of one key.
struct Held {
  const Entry* entry = nullptr;  // null: nothing
  bool newest = false;           // the index has nothing newer
};

class Overlay {
 public:
  Overlay() : active_(std::make_shared<Half>()) {}
  void put(model::ExtentId extent, const model::RecordView& record, bool newest, const PayloadPlace* left = nullptr) {
    active_->put(extent, record, newest, left);
  }
  void settle() const { active_->settle(sealed_.get()); }
  // In the order of their keys neighbours find the way to their place in the cache: a few at a time would not.
  void settle_many() const {
    if (active_->unsorted() >= kSettleFrom) settle();
  }
  Held find(model::ExtentId extent, std::string_view key) const;
  void distrust();
  uint64_t bytes() const { return active_->bytes() + (sealed_ ? sealed_->bytes() : 0); }
  uint64_t records() const { return active_->records() + (sealed_ ? sealed_->records() : 0); }
  const std::shared_ptr<Half>& active() const { return active_; }
  const std::shared_ptr<Half>& sealed() const { return sealed_; }
  std::shared_ptr<Half> seal();  // only when there is no sealed half
  void drop_sealed() { sealed_.reset(); }

 private:
  std::shared_ptr<Half> active_, sealed_;
};

}  // namespace cantle::store

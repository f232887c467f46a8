// Partitions: the partitions of one METADATA file, in key order, found by key, region and id.
//
// A copy shares everything with the original, and a change copies the few parts that it touches, so
// that a transaction over a table of 10,000 partitions costs about what it costs over one of ten. It
// reads like a vector; elements are changed by putting a new one under the same region number.
//
//   for (const Partition& p : metadata.partitions) …
//   Partition p = *metadata.partitions.get(region);  p.state = …;  metadata.partitions.put(p);
//
// The parts follow the leaves of the file (design/metadata.md): leaf n holds the regions 64n to 64n+63,
// 64 leaves stand under one inner part.
//
// Invariants
//   * Iteration is in order of (begin, region); every element's region is below kRegionMax.
//   * References and pointers stay valid as long as some copy holds that element unchanged.
// Threads: different objects may share parts and be used on different threads.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "lib/model/partition.h"

namespace cantle::model {

constexpr uint32_t kLeafRegions = 64, kInnerLeaves = 64;
constexpr uint32_t kRegionMax = uint32_t{1} << 26;  // regions a table can use up in its life

class Partitions {
 public:
  using Ptr = std::shared_ptr<const Partition>;
  using Chunk = std::vector<Ptr>;  // some partitions that follow each other
  using ChunkPtr = std::shared_ptr<const Chunk>;
  using Leaf = std::array<Ptr, kLeafRegions>;
  using LeafPtr = std::shared_ptr<const Leaf>;
  using Inner = std::array<LeafPtr, kInnerLeaves>;
  using InnerPtr = std::shared_ptr<const Inner>;

  class const_iterator {
   public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = Partition;
    using difference_type = std::ptrdiff_t;
    using pointer = const Partition*;
    using reference = const Partition&;

    const_iterator() = default;
    reference operator*() const { return *(*(*chunks_)[chunk_])[at_]; }
    pointer operator->() const { return &**this; }
    const_iterator& operator++() {
      if (++at_ == (*chunks_)[chunk_]->size()) ++chunk_, at_ = 0;
      return *this;
    }
    const_iterator& operator--() {
      if (at_ == 0) at_ = (*chunks_)[--chunk_]->size();
      --at_;
      return *this;
    }
    const_iterator operator++(int) {
      auto old = *this;
      return ++*this, old;
    }
    const_iterator operator--(int) {
      auto old = *this;
      return --*this, old;
    }
    bool operator==(const const_iterator& o) const { return chunk_ == o.chunk_ && at_ == o.at_; }

   private:
    friend class Partitions;
    const_iterator(const std::vector<ChunkPtr>* chunks, size_t chunk, size_t at)
        : chunks_(chunks), chunk_(chunk), at_(at) {}
    const std::vector<ChunkPtr>* chunks_ = nullptr;
    size_t chunk_ = 0, at_ = 0;
  };
  using iterator = const_iterator;
  using value_type = Partition;

  Partitions() = default;
  explicit Partitions(std::vector<Partition> partitions);  // in any order; quicker than one by one
  Partitions(std::initializer_list<Partition> partitions) : Partitions(std::vector<Partition>(partitions)) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const_iterator begin() const { return {&chunks_, 0, 0}; }
  const_iterator end() const { return {&chunks_, chunks_.size(), 0}; }
  const Partition& front() const { return *chunks_.front()->front(); }
  const Partition& back() const { return *chunks_.back()->back(); }
  const Partition& operator[](size_t i) const;  // walks the chunks: for tests and tools

  // The last partition that begins at or before `key`; end() when there is none.
  const_iterator at_or_before(std::string_view key) const;
  // Null when there is none such.
  const Partition* get(Region region) const;
  const Partition* find(const PartitionId& id) const;
  // The partition that has this assignment among its own or among the children of its split; by_attempt:
  // that is being split or moved under this attempt. Of a merge's attempt and its target's assignments: the lower one.
  const Partition* by_assignment(const AssignmentId& id) const;
  const Partition* by_attempt(const AttemptId& id) const;
  // How often these bytes stand in the map as an id of any kind; a valid map has none above 1.
  size_t count_id(std::string_view raw_id) const;

  // Replaces the element with the same region number, or adds one.
  void put(Partition partition);
  void push_back(Partition partition) { put(std::move(partition)); }
  void erase(Region region);

  size_t inner_count() const { return inners_.size(); }
  const InnerPtr& inner(size_t n) const { return inners_[n]; }  // null: nothing in it

  // Region numbers under which `a` and `b` hold different elements, ascending. Parts that are shared
  // are skipped unseen.
  static std::vector<Region> changed(const Partitions& a, const Partitions& b);
  friend bool operator==(const Partitions& a, const Partitions& b);

 private:
  struct IdEntry {
    std::array<uint8_t, 16> id;
    Region region;
    auto operator<=>(const IdEntry&) const = default;
  };
  static constexpr size_t kFan = 64;
  using Bucket = std::vector<IdEntry>;  // sorted
  using Shelf = std::array<std::shared_ptr<const Bucket>, kFan>;

  void order_in(const Ptr& partition);
  void order_out(const Partition& partition);
  void set_leaf(Region region, Ptr partition);
  void index(const Partition* before, const Partition* after);
  const Bucket* bucket(std::string_view raw_id) const;
  Region region_of(std::string_view raw_id, bool* found) const;

  std::vector<ChunkPtr> chunks_;
  std::vector<InnerPtr> inners_;
  std::array<std::shared_ptr<const Shelf>, kFan> ids_;
  size_t size_ = 0;
};

}  // namespace cantle::model

#include "lib/model/partitions.h"

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"

namespace cantle::model {
namespace {

constexpr size_t kChunkMax = 128;

bool ordered(const Partition& a, const Partition& b) {
  const int c = a.interval.begin.compare(b.interval.begin);
  return c != 0 ? c < 0 : a.region < b.region;
}

using RawId = std::array<uint8_t, 16>;

void ids_of(const Partition& p, std::vector<RawId>* out) {
  const auto add = [&](const auto& id) {
    if (!id.none()) out->push_back(id.bytes);
  };
  add(p.id);
  for (const auto& a : p.assignments) add(a.id);
  for (const auto& m : p.moves) add(m.attempt);
  if (p.split) {
    add(p.split->attempt);
    for (const auto* child : {&p.split->low, &p.split->high}) {
      add(child->id);
      for (const auto& a : child->assignments) add(a.id);
    }
  }
  // Both of a merge have it; the lower one answers for it.
  if (p.merge && p.merge->low == p.id) {
    add(p.merge->attempt);
    add(p.merge->target.id);
    for (const auto& a : p.merge->target.assignments) add(a.id);
  }
}

// Ids are random, but not those of tests: fold all of it.
size_t spread(std::string_view raw) {
  uint64_t a = 0, b = 0;
  std::memcpy(&a, raw.data(), 8);
  std::memcpy(&b, raw.data() + 8, 8);
  return static_cast<size_t>(((a ^ (b * 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd) >> 52);
}

std::string_view view(const RawId& id) { return {reinterpret_cast<const char*>(id.data()), id.size()}; }

}  // namespace

Partitions::Partitions(std::vector<Partition> partitions) {
  Chunk all;
  all.reserve(partitions.size());
  for (auto& p : partitions) {
    CHECK(p.region.value < kRegionMax);
    all.push_back(std::make_shared<const Partition>(std::move(p)));
  }
  std::stable_sort(all.begin(), all.end(), [](const Ptr& a, const Ptr& b) { return ordered(*a, *b); });
  for (size_t i = 0; i < all.size(); i += kChunkMax / 2) {
    const auto end = std::min(all.size(), i + kChunkMax / 2);
    chunks_.push_back(std::make_shared<const Chunk>(all.begin() + static_cast<std::ptrdiff_t>(i),
                                                    all.begin() + static_cast<std::ptrdiff_t>(end)));
  }
  size_ = all.size();

  uint32_t top = 0;
  for (const auto& p : all) top = std::max(top, p->region.value / (kLeafRegions * kInnerLeaves) + 1);
  std::vector<std::shared_ptr<Inner>> inners(top);
  std::vector<IdEntry> ids;
  std::vector<RawId> own;
  for (const auto& p : all) {
    const auto leaf_number = p->region.value / kLeafRegions;
    auto& inner = inners[leaf_number / kInnerLeaves];
    if (!inner) inner = std::make_shared<Inner>();
    auto& leaf = (*inner)[leaf_number % kInnerLeaves];
    // Made here a moment ago and not shared yet.
    if (!leaf) leaf = std::make_shared<Leaf>();
    const_cast<Leaf&>(*leaf)[p->region.value % kLeafRegions] = p;
    own.clear();
    ids_of(*p, &own);
    for (const auto& id : own) ids.push_back({id, p->region});
  }
  inners_.assign(inners.begin(), inners.end());
  std::sort(ids.begin(), ids.end());
  std::array<std::array<Bucket, kFan>, kFan> buckets;
  for (const auto& e : ids) {
    const auto s = spread(view(e.id));
    buckets[s / kFan][s % kFan].push_back(e);
  }
  for (size_t i = 0; i < kFan; i++) {
    Shelf shelf;
    for (size_t j = 0; j < kFan; j++)
      if (!buckets[i][j].empty()) shelf[j] = std::make_shared<const Bucket>(std::move(buckets[i][j]));
    ids_[i] = std::make_shared<const Shelf>(std::move(shelf));
  }
}

const Partition& Partitions::operator[](size_t i) const {
  for (const auto& chunk : chunks_) {
    if (i < chunk->size()) return *(*chunk)[i];
    i -= chunk->size();
  }
  CHECK(!"index past the end");
  return back();
}

Partitions::const_iterator Partitions::at_or_before(std::string_view key) const {
  auto chunk = std::upper_bound(chunks_.begin(), chunks_.end(), key,
                                [](std::string_view k, const ChunkPtr& c) { return k < c->front()->interval.begin; });
  if (chunk == chunks_.begin()) return end();
  --chunk;
  auto it = std::upper_bound((*chunk)->begin(), (*chunk)->end(), key,
                             [](std::string_view k, const Ptr& p) { return k < p->interval.begin; });
  return {&chunks_, static_cast<size_t>(chunk - chunks_.begin()), static_cast<size_t>(it - (*chunk)->begin()) - 1};
}

const Partition* Partitions::get(Region region) const {
  const auto leaf_number = region.value / kLeafRegions;
  if (leaf_number / kInnerLeaves >= inners_.size()) return nullptr;
  const auto& inner = inners_[leaf_number / kInnerLeaves];
  if (!inner) return nullptr;
  const auto& leaf = (*inner)[leaf_number % kInnerLeaves];
  return leaf ? (*leaf)[region.value % kLeafRegions].get() : nullptr;
}

const Partitions::Bucket* Partitions::bucket(std::string_view raw_id) const {
  const auto s = spread(raw_id);
  const auto& shelf = ids_[s / kFan];
  return shelf ? (*shelf)[s % kFan].get() : nullptr;
}

Region Partitions::region_of(std::string_view raw_id, bool* found) const {
  *found = false;
  const auto* b = bucket(raw_id);
  if (b == nullptr) return {};
  IdEntry key{{}, {}};
  std::memcpy(key.id.data(), raw_id.data(), 16);
  const auto it = std::lower_bound(b->begin(), b->end(), key);
  if (it == b->end() || it->id != key.id) return {};
  *found = true;
  return it->region;
}

const Partition* Partitions::find(const PartitionId& id) const {
  bool found = false;
  const auto region = region_of(id.view(), &found);
  const auto* p = found ? get(region) : nullptr;
  return p != nullptr && p->id == id ? p : nullptr;  // it may be the id of a child
}

const Partition* Partitions::by_assignment(const AssignmentId& id) const {
  bool found = false;
  const auto region = region_of(id.view(), &found);
  return found ? get(region) : nullptr;
}

const Partition* Partitions::by_attempt(const AttemptId& id) const {
  bool found = false;
  const auto region = region_of(id.view(), &found);
  return found ? get(region) : nullptr;
}

size_t Partitions::count_id(std::string_view raw_id) const {
  const auto* b = bucket(raw_id);
  if (b == nullptr) return 0;
  size_t n = 0;
  for (const auto& e : *b) n += std::memcmp(e.id.data(), raw_id.data(), 16) == 0 ? 1 : 0;
  return n;
}

void Partitions::put(Partition partition) {
  CHECK(partition.region.value < kRegionMax);
  const auto next = std::make_shared<const Partition>(std::move(partition));
  const auto* before = get(next->region);
  index(before, next.get());
  if (before != nullptr) order_out(*before);
  order_in(next);
  set_leaf(next->region, next);
}

void Partitions::erase(Region region) {
  const auto* before = get(region);
  if (before == nullptr) return;
  index(before, nullptr);
  order_out(*before);
  set_leaf(region, nullptr);
}

void Partitions::order_in(const Ptr& partition) {
  size_++;
  if (chunks_.empty()) {
    chunks_.push_back(std::make_shared<const Chunk>(Chunk{partition}));
    return;
  }
  auto it = std::upper_bound(chunks_.begin(), chunks_.end(), partition,
                             [](const Ptr& p, const ChunkPtr& c) { return ordered(*p, *c->front()); });
  if (it != chunks_.begin()) --it;
  Chunk chunk = **it;
  chunk.insert(std::upper_bound(chunk.begin(), chunk.end(), partition,
                                [](const Ptr& a, const Ptr& b) { return ordered(*a, *b); }),
               partition);
  if (chunk.size() > kChunkMax) {
    const auto middle = chunk.begin() + kChunkMax / 2;
    auto upper = std::make_shared<const Chunk>(middle, chunk.end());
    chunk.erase(middle, chunk.end());
    it = chunks_.insert(it + 1, std::move(upper)) - 1;
  }
  *it = std::make_shared<const Chunk>(std::move(chunk));
}

void Partitions::order_out(const Partition& partition) {
  auto it = std::upper_bound(chunks_.begin(), chunks_.end(), partition,
                             [](const Partition& p, const ChunkPtr& c) { return ordered(p, *c->front()); });
  CHECK(it != chunks_.begin());
  --it;
  Chunk chunk = **it;
  const auto at = std::find_if(chunk.begin(), chunk.end(), [&](const Ptr& p) { return p.get() == &partition; });
  CHECK(at != chunk.end());
  chunk.erase(at);
  size_--;
  if (chunk.empty())
    chunks_.erase(it);
  else
    *it = std::make_shared<const Chunk>(std::move(chunk));
}

void Partitions::set_leaf(Region region, Ptr partition) {
  const auto leaf_number = region.value / kLeafRegions;
  const size_t n = leaf_number / kInnerLeaves;
  if (n >= inners_.size()) inners_.resize(n + 1);
  auto inner = inners_[n] ? std::make_shared<Inner>(*inners_[n]) : std::make_shared<Inner>();
  auto& slot = (*inner)[leaf_number % kInnerLeaves];
  auto leaf = slot ? std::make_shared<Leaf>(*slot) : std::make_shared<Leaf>();
  (*leaf)[region.value % kLeafRegions] = std::move(partition);
  // A part with nothing in it is none, so that equal maps have equal parts whatever their history.
  const bool leaf_empty = std::none_of(leaf->begin(), leaf->end(), [](const Ptr& p) { return p != nullptr; });
  slot = leaf_empty ? nullptr : std::move(leaf);
  const bool inner_empty = std::none_of(inner->begin(), inner->end(), [](const LeafPtr& l) { return l != nullptr; });
  inners_[n] = inner_empty ? nullptr : std::move(inner);
  while (!inners_.empty() && !inners_.back()) inners_.pop_back();
}

void Partitions::index(const Partition* before, const Partition* after) {
  std::vector<RawId> out, in;
  if (before != nullptr) ids_of(*before, &out);
  if (after != nullptr) ids_of(*after, &in);
  const auto region = before != nullptr ? before->region : after->region;
  std::sort(out.begin(), out.end());
  std::sort(in.begin(), in.end());
  std::vector<RawId> gone, come;
  std::set_difference(out.begin(), out.end(), in.begin(), in.end(), std::back_inserter(gone));
  std::set_difference(in.begin(), in.end(), out.begin(), out.end(), std::back_inserter(come));
  const auto edit = [&](const RawId& id, bool add) {
    const auto s = spread(view(id));
    auto& shelf_ptr = ids_[s / kFan];
    auto shelf = shelf_ptr ? std::make_shared<Shelf>(*shelf_ptr) : std::make_shared<Shelf>();
    auto& bucket_ptr = (*shelf)[s % kFan];
    Bucket b = bucket_ptr ? *bucket_ptr : Bucket{};
    const IdEntry entry{id, region};
    const auto at = std::lower_bound(b.begin(), b.end(), entry);
    if (add) {
      b.insert(at, entry);
    } else {
      CHECK(at != b.end() && *at == entry);
      b.erase(at);
    }
    bucket_ptr = b.empty() ? nullptr : std::make_shared<const Bucket>(std::move(b));
    shelf_ptr = std::move(shelf);
  };
  for (const auto& id : gone) edit(id, false);
  for (const auto& id : come) edit(id, true);
}

std::vector<Region> Partitions::changed(const Partitions& a, const Partitions& b) {
  static const Inner kNoInner;
  static const Leaf kNoLeaf;
  std::vector<Region> out;
  for (size_t n = 0; n < std::max(a.inners_.size(), b.inners_.size()); n++) {
    const auto& ai = n < a.inners_.size() && a.inners_[n] ? *a.inners_[n] : kNoInner;
    const auto& bi = n < b.inners_.size() && b.inners_[n] ? *b.inners_[n] : kNoInner;
    if (&ai == &bi) continue;
    for (uint32_t l = 0; l < kInnerLeaves; l++) {
      const auto& al = ai[l] ? *ai[l] : kNoLeaf;
      const auto& bl = bi[l] ? *bi[l] : kNoLeaf;
      if (&al == &bl) continue;
      for (uint32_t i = 0; i < kLeafRegions; i++) {
        if (al[i] == bl[i]) continue;
        if (al[i] && bl[i] && *al[i] == *bl[i]) continue;
        out.push_back({static_cast<uint32_t>((n * kInnerLeaves + l) * kLeafRegions + i)});
      }
    }
  }
  return out;
}

bool operator==(const Partitions& a, const Partitions& b) {
  return a.size_ == b.size_ && Partitions::changed(a, b).empty();
}

}  // namespace cantle::model

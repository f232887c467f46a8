#include "lib/store/overlay.h"
#include "lib/base/testing.h"

#include <sys/mman.h>

#include <absl/container/btree_set.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/store/disk.h"

namespace cantle::store {
namespace {

constexpr size_t kFirstSlab = size_t{16} << 10;  // each is twice the one before …
constexpr size_t kSlab = size_t{1} << 20;        // … up to this
constexpr size_t kKeepUnsorted = 4096;           // room for that many is kept
constexpr size_t kNodeBytes = 24;                // of a tree, an entry, about

// Eight bytes as a number that orders as they do.
uint64_t number_of(std::string_view bytes) {
  if (bytes.size() >= 8) return base::get_u64_be(bytes.data());
  char padded[8] = {};
  std::memcpy(padded, bytes.data(), bytes.size());
  return base::get_u64_be(padded);
}

size_t shared(std::string_view a, std::string_view b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

// What a tree holds. The record of a key may be replaced by a newer one in place: its key is the same.
struct Slot {
  mutable uint64_t prefix;
  mutable const Entry* entry;
};
struct Wanted {
  uint64_t prefix;
  std::string_view key;
};

// An entry is looked at only where the prefixes are equal.
struct Less {
  using is_transparent = void;
  bool operator()(const Slot& a, const Slot& b) const {
    return a.prefix != b.prefix ? a.prefix < b.prefix : a.entry->key() < b.entry->key();
  }
  bool operator()(const Slot& a, const Wanted& b) const {
    return a.prefix != b.prefix ? a.prefix < b.prefix : a.entry->key() < b.key;
  }
  bool operator()(const Wanted& a, const Slot& b) const {
    return a.prefix != b.prefix ? a.prefix < b.prefix : a.key < b.entry->key();
  }
};

// What stands behind the key of an entry whose value was left in the journal.
struct Left {
  File* file;
  uint64_t offset;
  uint32_t crc;
};

// Keys mostly begin alike. What tells one from another without a look at itself, which is elsewhere in memory, are the
// bytes behind that.
struct Tree : absl::btree_set<Slot, Less> {
  std::optional<std::string> common;  // all keys begin with it; none: there are no keys

  // Of a key that begins otherwise: one that is no wrong answer, as the keys themselves are asked where two are equal.
  uint64_t prefix_of(std::string_view key) const {
    if (!common) return 0;
    if (key.starts_with(*common)) return number_of(key.substr(common->size()));
    return key < *common ? 0 : UINT64_MAX;
  }
  // False: there is less that all begin with now, so that prefixes are others.
  bool note(std::string_view key) {
    if (!common) common.emplace(key);
    const auto same = shared(*common, key);
    if (same == common->size()) return true;
    common->resize(same);
    return false;
  }
};

}  // namespace

Arena::~Arena() {
  for (const auto& slab : slabs_) ::munmap(slab.data, slab.size);
}

void* Arena::take(size_t size) {
  size = (size + 7) / 8 * 8;
  if (slabs_.empty() || used_ + size > slabs_.back().size) {
    const size_t slab = std::max(size, slabs_.empty() ? kFirstSlab : std::min(2 * slabs_.back().size, kSlab));
    void* data = ::mmap(nullptr, slab, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(data != MAP_FAILED);
    slabs_.push_back({static_cast<char*>(data), slab});
    full_ += used_;
    used_ = 0;
  }
  char* at = slabs_.back().data + used_;
  used_ += size;
  return at;
}

struct Half::Trees {
  struct Put {
    model::ExtentId extent;
    Slot slot;
  };
  std::map<model::ExtentId, Tree> of;
  std::vector<Put> unsorted;

  // Prefixes for what is to be sorted in, and for what is there.
  void prepare() {
    const auto each = [&](const auto& fn) {
      std::pair<const model::ExtentId, Tree>* at = nullptr;
      for (auto& put : unsorted) {
        if (at == nullptr || at->first != put.extent) at = &*of.try_emplace(put.extent).first;
        fn(put, at->second);
      }
    };
    each([](const Put& put, Tree& tree) {
      if (tree.note(put.slot.entry->key())) return;
      for (const auto& slot : tree) slot.prefix = tree.prefix_of(slot.entry->key());
    });
    each([](const Put& put, const Tree& tree) { put.slot.prefix = tree.prefix_of(put.slot.entry->key()); });
  }
};

Half::Half() : trees_(std::make_unique<Trees>()) {}
Half::~Half() = default;

size_t Half::unsorted() const { return trees_->unsorted.size(); }
uint64_t Half::bytes() const { return arena_.used() + (records_ + unsorted()) * kNodeBytes; }

Entry* Half::make(const model::RecordView& r, bool newest, const PayloadPlace* left) {
  const size_t behind = left != nullptr ? sizeof(Left) : r.value.size();
  auto* entry = new (arena_.take(sizeof(Entry) + r.key.size() + behind)) Entry;
  entry->value_size = static_cast<uint32_t>(r.value.size());
  entry->key_size = static_cast<uint16_t>(r.key.size());
  entry->deleted = r.op == model::Op::del;
  entry->newest = newest;
  entry->flags = r.flags;
  entry->version = r.version;
  char* bytes = reinterpret_cast<char*>(entry + 1);
  std::memcpy(bytes, r.key.data(), r.key.size());
  if (left != nullptr) {
    entry->left = true;
    const Left where{left->file.get(), left->offset + static_cast<uint64_t>(r.value.data() - left->bytes),
                     base::crc32c(r.value)};
    std::memcpy(bytes + r.key.size(), &where, sizeof where);
    if (files_.empty() || files_.back() != left->file) files_.push_back(left->file);
  } else if (!r.value.empty()) {
    std::memcpy(bytes + r.key.size(), r.value.data(), r.value.size());
  }
  return entry;
}

base::Result<std::string_view> Entry::value(std::string& buffer) const {
  if (!left) return std::string_view(bytes() + key_size, value_size);
  Left where{};
  std::memcpy(&where, bytes() + key_size, sizeof where);
  buffer.resize(value_size);
  TRY_ASSIGN(const size_t got, where.file->read(where.offset, buffer.data(), buffer.size()));
  buffer.resize(got);
  if (got != value_size || base::crc32c(buffer) != where.crc)
    return base::fail(base::Code::corrupt, "journal: a value at offset " + std::to_string(where.offset) +
                                               " of its segment is not what was written there");
  return std::string_view(buffer);
}

void Half::put(model::ExtentId extent, const model::RecordView& r, bool newest, const PayloadPlace* left) {
  trees_->unsorted.push_back({extent, {0, make(r, newest, left)}});
}

void Half::settle(const Half* older) {
  auto& puts = trees_->unsorted;
  if (puts.empty()) return;
  trees_->prepare();
  // Of one key the newest version first.
  std::sort(puts.begin(), puts.end(), [](const Trees::Put& a, const Trees::Put& b) {
    if (a.extent != b.extent) return a.extent < b.extent;
    if (a.slot.prefix != b.slot.prefix) return a.slot.prefix < b.slot.prefix;
    const int order = a.slot.entry->key().compare(b.slot.entry->key());
    return order != 0 ? order < 0 : a.slot.entry->version > b.slot.entry->version;
  });
  Tree* tree = nullptr;
  const Trees::Put* last = nullptr;
  for (const auto& put : puts) {
    const auto& slot = put.slot;
    const bool same_extent = last != nullptr && last->extent == put.extent;
    if (same_extent && last->slot.prefix == slot.prefix && last->slot.entry->key() == slot.entry->key()) continue;
    if (!same_extent) tree = &trees_->of[put.extent];
    last = &put;
    if (older != nullptr && !slot.entry->newest) {
      const Entry* held = older->find(put.extent, slot.entry->key());
      if (held != nullptr && held->version >= slot.entry->version) continue;
    }
    const auto it = tree->empty() || Less()(*tree->rbegin(), slot) ? tree->end() : tree->lower_bound(slot);
    if (it != tree->end() && !Less()(slot, *it)) {
      if (it->entry->version < slot.entry->version || MUTANT("apply_older_version")) it->entry = slot.entry;
      continue;
    }
    tree->insert(it, slot);
    records_++;
  }
  puts.clear();
  if (puts.capacity() > kKeepUnsorted) puts.shrink_to_fit();
}

const Entry* Half::find(model::ExtentId extent, std::string_view key) const {
  const auto tree = trees_->of.find(extent);
  if (tree == trees_->of.end()) return nullptr;
  const auto it = tree->second.find(Wanted{tree->second.prefix_of(key), key});
  return it == tree->second.end() ? nullptr : it->entry;
}

std::vector<model::ExtentId> Half::extents() const {
  std::vector<model::ExtentId> out;
  for (const auto& [extent, tree] : trees_->of) out.push_back(extent);
  return out;
}

struct Half::Walk::Impl {
  const Tree* tree = nullptr;
  Tree::const_iterator at;
  const Entry* here() const { return at == tree->end() ? nullptr : at->entry; }
};

Half::Walk::Walk(const Half& half, model::ExtentId extent) : impl_(std::make_unique<Impl>()) {
  const auto it = half.trees_->of.find(extent);
  if (it == half.trees_->of.end()) return;
  impl_->tree = &it->second;
  impl_->at = it->second.end();
}
Half::Walk::~Walk() = default;
Half::Walk::Walk(Walk&&) noexcept = default;

const Entry* Half::Walk::seek(std::string_view key) {
  if (impl_->tree == nullptr) return nullptr;
  impl_->at = impl_->tree->lower_bound(Wanted{impl_->tree->prefix_of(key), key});
  return impl_->here();
}

const Entry* Half::Walk::seek_before(std::string_view key) {
  if (impl_->tree == nullptr) return nullptr;
  impl_->at = key.empty() ? impl_->tree->end() : impl_->tree->lower_bound(Wanted{impl_->tree->prefix_of(key), key});
  return prev();
}

const Entry* Half::Walk::next() {
  if (impl_->tree == nullptr || impl_->at == impl_->tree->end()) return nullptr;
  ++impl_->at;
  return impl_->here();
}

const Entry* Half::Walk::prev() {
  if (impl_->tree == nullptr) return nullptr;
  if (impl_->at == impl_->tree->begin()) {
    impl_->at = impl_->tree->end();
    return nullptr;
  }
  --impl_->at;
  return impl_->at->entry;
}

Held Overlay::find(model::ExtentId extent, std::string_view key) const {
  settle();
  // The active half never holds an older version than the sealed one: settle() saw to it.
  if (const Entry* entry = active_->find(extent, key)) return {entry, entry->newest && active_->trusted()};
  if (!sealed_) return {};
  const Entry* entry = sealed_->find(extent, key);
  return {entry, entry != nullptr && entry->newest && sealed_->trusted()};
}

void Overlay::distrust() {
  active_->distrust();
  if (sealed_) sealed_->distrust();
}

std::shared_ptr<Half> Overlay::seal() {
  CHECK(!sealed_);
  settle();
  sealed_ = std::exchange(active_, std::make_shared<Half>());
  return sealed_;
}

}  // namespace cantle::store

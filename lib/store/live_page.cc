#include "lib/store/live_page.h"

#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "lib/base/check.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;

constexpr uint64_t kLiveMagic = 0x3145564954434e43;
constexpr int kTries = 1000;  // of reading something that is being written

// The page. Every word is an atomic, so that a reader in another process races with nothing. `version` is a sequence
// lock: odd while its part is being written.
struct Entry {
  std::atomic<uint32_t> version, used;
  std::atomic<uint64_t> own[2], target[2];
  std::atomic<uint64_t> epoch, lsn, crc;
};
struct Page {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> version, changes;
  std::atomic<uint64_t> valid, incarnation, segment, offset, sequence, entries;
  Entry entry[kLiveEntriesMax];
};
static_assert(sizeof(Page) <= kLivePageSize);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

constexpr auto kRelaxed = std::memory_order_relaxed;
// Inside a sequence lock: a store of data is not seen before the odd version is, nor is the second look at the version
// done before the data was read. On the processors we know it costs nothing, and it needs no fences.
constexpr auto kIn = std::memory_order_release, kOut = std::memory_order_acquire;

template <class F>
void write_locked(std::atomic<uint32_t>& version, F&& write) {
  const uint32_t before = version.load(kRelaxed) & ~1U;
  version.store(before + 1, kRelaxed);
  write();
  version.store(before + 2, std::memory_order_release);
}

// False: it was being written all the time, or its writer died in the middle.
template <class F>
bool read_locked(const std::atomic<uint32_t>& version, F&& read) {
  for (int i = 0; i < kTries; i++) {
    const uint32_t before = version.load(std::memory_order_acquire);
    if ((before & 1) != 0) continue;
    read();
    if (version.load(kRelaxed) == before) return true;
  }
  return false;
}

void store_id(std::atomic<uint64_t> (&to)[2], const model::AssignmentId& id) {
  uint64_t half[2];
  std::memcpy(half, id.bytes.data(), 16);
  for (int i = 0; i < 2; i++) to[i].store(half[i], kIn);
}
model::AssignmentId load_id(const std::atomic<uint64_t> (&from)[2]) {
  const uint64_t half[2] = {from[0].load(kOut), from[1].load(kOut)};
  model::AssignmentId id;
  std::memcpy(id.bytes.data(), half, 16);
  return id;
}

}  // namespace

struct LivePage::Impl {
  std::unique_ptr<Mapping> mapping;
  std::map<LivePair, size_t> slots;  // writer
  std::vector<size_t> free;
  uint64_t durable_before = 0;
  mutable std::map<LivePair, size_t> seen;  // reader: where a pair was last

  Page& page() const { return *reinterpret_cast<Page*>(mapping->data()); }
  const uint32_t* word() const { return reinterpret_cast<const uint32_t*>(&page().changes); }
  void changed() const {
    page().changes.fetch_add(1, std::memory_order_release);
    mapping->wake(word());
  }
  std::optional<model::LogPoint> read_entry(size_t slot, const LivePair& pair, bool* mine) const;
};

LivePage::LivePage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LivePage::~LivePage() = default;

base::Result<std::unique_ptr<LivePage>> LivePage::create(Disk& disk, model::Incarnation incarnation) {
  TRY(disk.make_dir(kJournalDir));
  auto impl = std::make_unique<Impl>();
  TRY_ASSIGN(impl->mapping, disk.map(kLivePath, kLivePageSize, true));
  Page& page = impl->page();
  if (page.magic.load(kRelaxed) == kLiveMagic) impl->durable_before = page.sequence.load(kRelaxed);
  write_locked(page.version, [&] {
    page.valid.store(0, kIn);
    page.incarnation.store(incarnation.value, kIn);
    // Those of the life before; nobody looks at the others.
    const uint64_t used = std::min<uint64_t>(page.entries.exchange(0), kLiveEntriesMax);
    for (uint64_t i = 0; i < used; i++) write_locked(page.entry[i].version, [&] { page.entry[i].used.store(0, kIn); });
    page.magic.store(kLiveMagic, kIn);
  });
  impl->changed();
  return std::unique_ptr<LivePage>(new LivePage(std::move(impl)));
}

base::Result<std::unique_ptr<LivePage>> LivePage::attach(Disk& disk) {
  auto impl = std::make_unique<Impl>();
  TRY_ASSIGN(impl->mapping, disk.map(kLivePath, kLivePageSize, false));
  if (impl->page().magic.load(kRelaxed) != kLiveMagic) return fail(Code::not_found, "journal/live: not written yet");
  return std::unique_ptr<LivePage>(new LivePage(std::move(impl)));
}

uint64_t LivePage::durable_before() const { return impl_->durable_before; }

void LivePage::set_durable(const JournalPosition& durable) {
  Page& page = impl_->page();
  write_locked(page.version, [&] {
    page.segment.store(durable.segment, kIn);
    page.offset.store(durable.offset, kIn);
    page.sequence.store(durable.sequence, kIn);
    page.valid.store(1, kIn);
  });
}

void LivePage::tell() { impl_->changed(); }

bool LivePage::set_confirmed(const LivePair& pair, const model::LogPoint& point) {
  Page& page = impl_->page();
  auto it = impl_->slots.find(pair);
  if (it == impl_->slots.end()) {
    size_t slot = impl_->slots.size();
    if (!impl_->free.empty()) {
      slot = impl_->free.back();
      impl_->free.pop_back();
    }
    if (slot >= kLiveEntriesMax) return false;
    it = impl_->slots.emplace(pair, slot).first;
  }
  Entry& e = page.entry[it->second];
  write_locked(e.version, [&] {
    store_id(e.own, pair.own);
    store_id(e.target, pair.target);
    e.epoch.store(point.epoch.value, kIn);
    e.lsn.store(point.lsn.value, kIn);
    e.crc.store(point.crc, kIn);
    e.used.store(1, kIn);
  });
  if (it->second >= page.entries.load(kOut)) page.entries.store(it->second + 1, std::memory_order_release);
  return true;
}

void LivePage::forget(const LivePair& pair) {
  const auto it = impl_->slots.find(pair);
  if (it == impl_->slots.end()) return;
  Entry& e = impl_->page().entry[it->second];
  write_locked(e.version, [&] { e.used.store(0, kIn); });
  impl_->free.push_back(it->second);
  impl_->slots.erase(it);
}

LiveState LivePage::read() const {
  const Page& page = impl_->page();
  LiveState state;
  state.changes = page.changes.load(std::memory_order_acquire);
  const bool whole = read_locked(page.version, [&] {
    state.valid = page.valid.load(kOut) == 1;
    state.incarnation = {page.incarnation.load(kOut)};
    state.durable = {page.segment.load(kOut), page.offset.load(kOut), page.sequence.load(kOut)};
  });
  if (!whole) state.valid = false;
  return state;
}

std::optional<model::LogPoint> LivePage::Impl::read_entry(size_t slot, const LivePair& pair, bool* mine) const {
  const Entry& e = page().entry[slot];
  model::LogPoint point;
  *mine = false;
  const bool whole = read_locked(e.version, [&] {
    *mine = e.used.load(kOut) == 1 && load_id(e.own) == pair.own && load_id(e.target) == pair.target;
    point.epoch = {e.epoch.load(kOut)};
    point.lsn = {e.lsn.load(kOut)};
    point.crc = static_cast<uint32_t>(e.crc.load(kOut));
  });
  if (!whole || !*mine) return std::nullopt;
  return point;
}

std::optional<model::LogPoint> LivePage::confirmed(const LivePair& pair) const {
  bool mine = false;
  if (const auto it = impl_->seen.find(pair); it != impl_->seen.end()) {
    if (const auto point = impl_->read_entry(it->second, pair, &mine)) return point;
    impl_->seen.erase(it);
  }
  const size_t entries = std::min<size_t>(impl_->page().entries.load(std::memory_order_acquire), kLiveEntriesMax);
  for (size_t slot = 0; slot < entries; slot++) {
    const auto point = impl_->read_entry(slot, pair, &mine);
    if (mine) {
      impl_->seen[pair] = slot;
      return point;
    }
  }
  return std::nullopt;
}

void LivePage::wait(uint32_t changes_seen, int timeout_ms) const {
  impl_->mapping->wait(impl_->word(), changes_seen, timeout_ms);
}

}  // namespace cantle::store

#include "test/sim/disk.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"

namespace cantle::sim {

using base::Code;
using base::Result;
using base::Status;

namespace {

Status dead() { return base::fail(Code::io_error, "the process is dead"); }

const Page kZeros{};
// A page that was written with zeros is there, unlike a hole: writing it later needs no room.
const PagePtr& zero_page() {
  static const PagePtr page = std::make_shared<Page>();
  return page;
}
// Pages of the system, so that nothing is touched before somebody writes there: most of a mapping is never used.
std::unique_ptr<char, Unmap> zeros(size_t size) {
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  return {static_cast<char*>(at), Unmap{size}};
}
const Page& bytes_of(const PagePtr& page) { return page ? *page : kZeros; }

}  // namespace

void Unmap::operator()(char* p) const { ::munmap(p, size); }

// --- files -----------------------------------------------------------------------------------------

class SimFile final : public store::File {
 public:
  SimFile(Medium& medium, Process& process, InodePtr inode, std::string path)
      : medium_(medium), process_(process), inode_(std::move(inode)), path_(std::move(path)), life_(process.life()) {}

  Status write(uint64_t offset, const std::vector<std::string_view>& parts) override {
    size_t total = 0;
    for (auto part : parts) total += part.size();
    if (!alive()) return dead();
    if (const auto& full = medium_.faults_.full_below; !full.empty() && path_.starts_with(full))
      return base::fail(Code::no_space, "simulated disk full");
    size_t allowed = total;
    const bool last = !process_.effect();
    if (last) allowed = medium_.scheduler_.random().below(total + 1);
    for (auto part : parts) {
      const size_t n = std::min(allowed, part.size());
      if (!put(offset, part.substr(0, n))) return base::fail(Code::no_space, "simulated disk full");
      offset += n;
      allowed -= n;
    }
    if (last) return dead();
    return base::ok();
  }

  Result<size_t> read(uint64_t offset, char* to, size_t size) override {
    // No matter whether the process lives: the dead do not run, and what they knew is looked at (Checks::dying).
    if (offset >= inode_->size) return size_t{0};
    const size_t n = std::min<uint64_t>(size, inode_->size - offset);
    for (size_t done = 0; done < n;) {
      const size_t page = (offset + done) / kPage, at = (offset + done) % kPage;
      const size_t chunk = std::min(n - done, kPage - at);
      if (page < inode_->cache.size() && inode_->cache[page])
        std::memcpy(to + done, inode_->cache[page]->data() + at, chunk);
      else
        std::memset(to + done, 0, chunk);
      done += chunk;
    }
    return n;
  }

  Status sync() override {
    if (!alive() || !process_.effect()) return dead();
    ++medium_.syncs_;
    auto& faults = medium_.faults_;
    if (faults.power_at_sync > 0 && !inode_->dirty.empty() &&
        medium_.scheduler_.random().chance(faults.power_at_sync)) {
      faults.power_at_sync = 0;
      process_.kill();
      medium_.on_power_loss_();
      return dead();
    }
    const bool fails =
        faults.fail_sync > 0 && !inode_->dirty.empty() && medium_.scheduler_.random().chance(faults.fail_sync);
    if (fails) {
      medium_.scheduler_.note("sync_failed", medium_.host_, path_);
      lose_dirty();
      return base::fail(Code::io_error, "simulated fdatasync failure");
    }
    inode_->platter.resize(inode_->cache.size());
    for (const uint32_t page : inode_->dirty) inode_->platter[page] = inode_->cache[page];
    inode_->dirty.clear();
    inode_->platter_size = inode_->size;
    return base::ok();
  }

  Result<uint64_t> size() override { return inode_->size; }

  Status truncate(uint64_t size) override {
    if (!alive() || !process_.effect()) return dead();
    const size_t pages = (size + kPage - 1) / kPage;
    if (size < inode_->size && size % kPage != 0 && pages <= inode_->cache.size() && inode_->cache[pages - 1]) {
      Page& page = page_for_write(static_cast<uint32_t>(pages - 1));
      std::fill(page.begin() + static_cast<std::ptrdiff_t>(size % kPage), page.end(), char{0});
    }
    inode_->cache.resize(pages);
    for (auto it = inode_->dirty.lower_bound(static_cast<uint32_t>(pages)); it != inode_->dirty.end();)
      it = inode_->dirty.erase(it);
    inode_->size = size;
    return base::ok();
  }

  void drop_cache() override {
    for (size_t i = 0; i < inode_->cache.size(); ++i)
      if (!inode_->dirty.contains(static_cast<uint32_t>(i)))
        inode_->cache[i] = i < inode_->platter.size() ? inode_->platter[i] : nullptr;
  }

 private:
  bool alive() const { return process_.alive() && process_.life() == life_; }

  // After a failed sync pages count as clean whatever became of them; some file systems drop them at once.
  void lose_dirty() {
    for (const uint32_t page : inode_->dirty) {
      if (medium_.scheduler_.random().below(2) == 0) continue;
      auto& cached = inode_->cache[page];
      const PagePtr kept = page < inode_->platter.size() ? inode_->platter[page] : nullptr;
      if (cached && !kept) --medium_.pages_;
      cached = kept;
    }
    inode_->dirty.clear();
  }

  // The page, for changing it: a copy if the platter has it, too.
  Page& page_for_write(uint32_t page) {
    PagePtr& cached = inode_->cache[page];
    if (!cached) ++medium_.pages_;
    if (!cached || cached.use_count() > 1) cached = std::make_shared<Page>(bytes_of(cached));
    inode_->dirty.insert(page);
    return *cached;
  }

  bool put(uint64_t offset, std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t page = offset / kPage, at = offset % kPage;
      const size_t chunk = std::min(bytes.size(), kPage - at);
      if (page >= inode_->cache.size()) inode_->cache.resize(page + 1);
      if (!inode_->cache[page] && (medium_.pages_ + 1) * kPage > medium_.faults_.bytes_max) return false;
      if (at == 0 && chunk == kPage && std::memcmp(bytes.data(), kZeros.data(), kPage) == 0) {
        if (!inode_->cache[page]) ++medium_.pages_;
        inode_->cache[page] = zero_page();
        inode_->dirty.insert(static_cast<uint32_t>(page));
      } else {
        std::memcpy(page_for_write(static_cast<uint32_t>(page)).data() + at, bytes.data(), chunk);
      }
      offset += chunk;
      bytes.remove_prefix(chunk);
      inode_->size = std::max(inode_->size, offset);
    }
    return true;
  }

  Medium& medium_;
  Process& process_;
  InodePtr inode_;
  std::string path_;
  uint64_t life_;
};

class SimMapping final : public store::Mapping {
 public:
  SimMapping(Medium& medium, Process& process, InodePtr inode)
      : medium_(medium), process_(process), inode_(std::move(inode)) {}
  char* data() override { return inode_->mapped.get(); }
  size_t size() const override { return inode_->mapped_size; }
  void wait(const uint32_t*, uint32_t, int) override {}  // nobody can block here: Medium::on_wake
  void wake(const uint32_t*) override {
    if (process_.alive() && medium_.on_wake_) medium_.on_wake_();
  }

 private:
  Medium& medium_;
  Process& process_;
  InodePtr inode_;
};

class SimLock final : public store::FileLock {
 public:
  SimLock(Medium& medium, Process& process, std::string path)
      : medium_(medium), path_(std::move(path)), holder_(&process, process.life()) {
    medium_.locks_[path_] = holder_;
  }
  ~SimLock() override {
    if (auto it = medium_.locks_.find(path_); it != medium_.locks_.end() && it->second == holder_)
      medium_.locks_.erase(it);
  }

 private:
  Medium& medium_;
  std::string path_;
  std::pair<const Process*, uint64_t> holder_;
};

// --- the disk as a process sees it -------------------------------------------------------------------

Result<std::unique_ptr<store::File>> SimDisk::open(std::string_view path, store::OpenMode mode) {
  if (!process_.alive()) return base::fail(dead().error());
  const std::string name(path);
  auto it = medium_.names_.find(name);
  if (it == medium_.names_.end()) {
    if (mode != store::OpenMode::create) return base::fail(Code::not_found, name);
    if (!process_.effect()) return base::fail(dead().error());
    medium_.name(name, std::make_shared<Inode>());
    it = medium_.names_.find(name);
  }
  return std::make_unique<SimFile>(medium_, process_, it->second, name);
}

Status SimDisk::rename(std::string_view from, std::string_view to) {
  if (!process_.effect()) return dead();
  auto it = medium_.names_.find(std::string(from));
  if (it == medium_.names_.end()) return base::fail(Code::not_found, std::string(from));
  const InodePtr inode = it->second;
  medium_.name(std::string(to), inode);
  medium_.name(std::string(from), nullptr);
  return base::ok();
}

Status SimDisk::remove(std::string_view path) {
  if (!process_.effect()) return dead();
  if (!medium_.names_.contains(std::string(path))) return base::fail(Code::not_found, std::string(path));
  medium_.name(std::string(path), nullptr);
  return base::ok();
}

Status SimDisk::make_dir(std::string_view) {
  // Directories are there as soon as somebody names one.
  return process_.effect() ? base::ok() : dead();
}

Status SimDisk::sync_dir(std::string_view path) {
  if (!process_.effect()) return dead();
  auto it = medium_.unsynced_names_.find(std::string(path));
  if (it == medium_.unsynced_names_.end()) return base::ok();
  for (auto& change : it->second) {
    if (change.now)
      medium_.platter_names_[change.path] = change.now;
    else
      medium_.platter_names_.erase(change.path);
  }
  medium_.unsynced_names_.erase(it);
  return base::ok();
}

Result<std::vector<std::string>> SimDisk::list(std::string_view path) {
  if (!process_.alive()) return base::fail(dead().error());
  std::vector<std::string> names;
  const std::string prefix = path.empty() ? "" : std::string(path) + "/";
  for (auto it = medium_.names_.lower_bound(prefix); it != medium_.names_.end() && it->first.starts_with(prefix);
       ++it) {
    std::string name = it->first.substr(prefix.size());
    name.resize(std::min(name.size(), name.find('/')));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

Result<bool> SimDisk::exists(std::string_view path) {
  if (!process_.alive()) return base::fail(dead().error());
  const std::string name(path), prefix = name + "/";
  if (medium_.names_.contains(name)) return true;
  const auto it = medium_.names_.lower_bound(prefix);
  return it != medium_.names_.end() && it->first.starts_with(prefix);
}

Result<store::Space> SimDisk::space() {
  if (!process_.alive()) return base::fail(dead().error());
  const uint64_t used = medium_.pages_ * kPage, total = medium_.faults_.bytes_max;
  return store::Space{total, total > used ? total - used : 0};
}

Result<std::unique_ptr<store::Mapping>> SimDisk::map(std::string_view path, size_t size, bool create) {
  if (!process_.alive()) return base::fail(dead().error());
  const std::string name(path);
  auto it = medium_.names_.find(name);
  if (it == medium_.names_.end()) {
    if (!create) return base::fail(Code::not_found, name);
    medium_.name(name, std::make_shared<Inode>());
    it = medium_.names_.find(name);
  }
  auto& mapped = it->second->mapped;
  if (!mapped) {
    if (!create) return base::fail(Code::invalid, name + " is too small to map");
    it->second->mapped_size = size;
    mapped = zeros(size);
  }
  if (it->second->mapped_size < size) return base::fail(Code::invalid, name + " is too small to map");
  it->second->size = std::max<uint64_t>(it->second->size, size);
  return std::make_unique<SimMapping>(medium_, process_, it->second);
}

Result<std::unique_ptr<store::FileLock>> SimDisk::lock(std::string_view path) {
  if (!process_.alive()) return base::fail(dead().error());
  const std::string name(path);
  if (auto it = medium_.locks_.find(name); it != medium_.locks_.end()) {
    const auto [holder, life] = it->second;
    if (holder->alive() && holder->life() == life) return base::fail(Code::conflict, name + " is locked");
  }
  return std::make_unique<SimLock>(medium_, process_, name);
}

// --- the medium --------------------------------------------------------------------------------------

std::string Medium::dir_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

void Medium::name(const std::string& path, InodePtr inode) {
  unsynced_names_[dir_of(path)].push_back({path, inode});
  if (inode) {
    names_[path] = std::move(inode);
    return;
  }
  auto it = names_.find(path);
  if (it == names_.end()) return;
  const auto used = static_cast<uint64_t>(
      std::count_if(it->second->cache.begin(), it->second->cache.end(), [](auto& p) { return p != nullptr; }));
  const bool elsewhere =
      std::any_of(names_.begin(), names_.end(), [&](auto& n) { return n.first != path && n.second == it->second; });
  if (!elsewhere) pages_ -= std::min(pages_, used);
  names_.erase(it);
}

// What a power cut leaves of pages that were not synced: the old one, the new one, or some sectors of each.
void Medium::tear(Inode& inode) {
  auto& random = scheduler_.random();
  inode.platter.resize(std::max(inode.platter.size(), inode.cache.size()));
  bool grown = false;
  for (const uint32_t page : inode.dirty) {
    const uint64_t fate = random.below(4);
    if (fate == 0) continue;
    grown = true;
    if (fate == 1) {
      inode.platter[page] = inode.cache[page];
      continue;
    }
    Page mixed = bytes_of(inode.platter[page]);
    const Page& now = bytes_of(inode.cache[page]);
    for (size_t at = 0; at < kPage; at += kSector)
      if (random.below(2) == 0) std::memcpy(mixed.data() + at, now.data() + at, kSector);
    inode.platter[page] = std::make_shared<Page>(mixed);
  }
  inode.dirty.clear();
  if (grown) inode.platter_size = std::max(inode.platter_size, inode.size);
  if (inode.platter.size() * kPage > inode.platter_size) inode.platter.resize((inode.platter_size + kPage - 1) / kPage);
  inode.cache = inode.platter;
  inode.size = inode.platter_size;
  // A mapping was written back just before, or never.
  if (inode.mapped && random.below(2) == 0) inode.mapped = zeros(inode.mapped_size);
}

void Medium::power_cut() {
  scheduler_.note("power_cut", host_);
  for (auto& [dir, changes] : unsynced_names_) {
    const size_t kept = scheduler_.random().below(changes.size() + 1);
    for (size_t i = 0; i < kept; ++i) {
      if (changes[i].now)
        platter_names_[changes[i].path] = changes[i].now;
      else
        platter_names_.erase(changes[i].path);
    }
  }
  unsynced_names_.clear();
  names_ = platter_names_;
  locks_.clear();
  std::set<Inode*> seen;
  pages_ = 0;
  for (auto& [path, inode] : names_) {
    if (!seen.insert(inode.get()).second) continue;
    tear(*inode);
    pages_ += static_cast<uint64_t>(
        std::count_if(inode->cache.begin(), inode->cache.end(), [](auto& p) { return p != nullptr; }));
  }
}

std::vector<std::pair<Inode*, uint32_t>> Medium::written_pages(const std::string& prefix) {
  std::vector<std::pair<Inode*, uint32_t>> pages;
  for (auto it = names_.lower_bound(prefix); it != names_.end() && it->first.starts_with(prefix); ++it)
    for (size_t i = 0; i < it->second->platter.size(); ++i)
      if (it->second->platter[i] && it->second->platter[i] != zero_page() &&
          !it->second->dirty.contains(static_cast<uint32_t>(i)))
        pages.emplace_back(it->second.get(), static_cast<uint32_t>(i));
  return pages;
}

void Medium::flip(Inode& inode, uint32_t page, size_t at) {
  Page next = *inode.platter[page];
  next[at] ^= static_cast<char>(1 << scheduler_.random().below(8));
  inode.platter[page] = inode.cache[page] = std::make_shared<Page>(next);
  scheduler_.note("flip_bit", host_, page);
}

bool Medium::flip_bit(const std::string& prefix) {
  auto pages = written_pages(prefix);
  if (pages.empty()) return false;
  auto& random = scheduler_.random();
  const auto [inode, page] = pages[random.below(pages.size())];
  std::vector<size_t> used;
  for (size_t i = 0; i < kPage; ++i)
    if ((*inode->platter[page])[i] != 0) used.push_back(i);
  if (used.empty()) return false;
  flip(*inode, page, used[random.below(used.size())]);
  return true;
}

bool Medium::flip_text(const std::string& prefix, std::string_view text) {
  auto pages = written_pages(prefix);
  for (; !pages.empty(); pages.pop_back()) {
    const auto [inode, page] = pages.back();
    const auto at = std::string_view(inode->platter[page]->data(), kPage).rfind(text);
    if (at == std::string_view::npos) continue;
    flip(*inode, page, at);
    return true;
  }
  return false;
}

void Medium::wipe() {
  names_.clear();
  platter_names_.clear();
  unsynced_names_.clear();
  locks_.clear();
  pages_ = 0;
}

std::vector<std::string> Medium::paths() const {
  std::vector<std::string> out;
  for (auto& [path, inode] : names_) out.push_back(path);
  return out;
}

}  // namespace cantle::sim

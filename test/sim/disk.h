// Medium and SimDisk: a disk that loses, tears, flips, fails and fills up.
//
// A Medium is what a host has: files with what is on the platter and what is in the kernel's cache. A
// SimDisk is one process's store::Disk on it. A killed process leaves the cache alone; power_cut() loses
// what was not synced: each dirty page is old, new or a mixture of the two by sectors, and each
// directory keeps some beginning of the changes of names made since it was synced (S64).
//
// Use
//   Medium medium(scheduler);
//   SimDisk disk(medium, process);             // pass it to the store's code
//   medium.power_cut(); medium.flip_bit("journal/"); medium.faults().fail_sync = 0.01;
//
// Invariants
//   * What a sync that returned ok covered survives power_cut(), under a name that was synced.
//   * A sync that failed leaves its pages clean and old: the next one says ok and writes nothing (S61).
//   * drop_cache() makes the platter visible: what a failed sync lost, and flipped bits.
//   * A write that the process dies in is done in part.
//
// Threads: one. Ownership: the medium outlives its disks; files outlive neither.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/store/disk.h"
#include "test/sim/process.h"

namespace cantle::sim {

constexpr size_t kPage = 4096, kSector = 512;
using Page = std::array<char, kPage>;
using PagePtr = std::shared_ptr<Page>;  // null: zeros. One that somebody else has, too, is not changed

struct Unmap {
  size_t size = 0;
  void operator()(char* p) const;
};
struct Inode {
  std::vector<PagePtr> cache, platter;
  uint64_t size = 0, platter_size = 0;
  std::set<uint32_t> dirty;  // pages of `cache` that the platter does not have
  std::unique_ptr<char, Unmap> mapped;
  size_t mapped_size = 0;
};
using InodePtr = std::shared_ptr<Inode>;

class Medium {
 public:
  struct Faults {
    double fail_sync = 0;           // fdatasync returns EIO
    double power_at_sync = 0;       // the power fails in the middle of a sync, once: what was to be synced is torn
    uint64_t bytes_max = 64 << 20;  // pages that files may have; past it no_space
    std::string full_below = {};    // no_space for files whose path begins so
  };
  explicit Medium(Scheduler& scheduler, std::string host) : scheduler_(scheduler), host_(std::move(host)) {}
  Medium(const Medium&) = delete;

  Faults& faults() { return faults_; }
  void power_cut();
  // Flips one bit of a page that is not all zeros in a file whose path begins with `prefix`. False: there is none.
  bool flip_bit(const std::string& prefix);
  // The same in the last place where `text` stands, on one page.
  bool flip_text(const std::string& prefix, std::string_view text);
  void wipe();  // an empty disk under the old name
  bool remove(const std::string& path) { return names_.erase(path) + platter_names_.erase(path) > 0; }
  std::vector<std::string> paths() const;
  void on_power_loss(Fn fn) { on_power_loss_ = std::move(fn); }
  // Where Mapping::wake() leads.
  void on_wake(Fn fn) { on_wake_ = std::move(fn); }
  uint64_t syncs() const { return syncs_; }

 private:
  friend class SimDisk;
  friend class SimFile;
  friend class SimMapping;
  friend class SimLock;
  struct NameChange {
    std::string path;
    InodePtr now;  // null: gone
  };
  static std::string dir_of(std::string_view path);
  void name(const std::string& path, InodePtr inode);
  std::vector<std::pair<Inode*, uint32_t>> written_pages(const std::string& prefix);
  void flip(Inode& inode, uint32_t page, size_t at);
  void tear(Inode& inode);
  uint64_t pages() const { return pages_; }

  Scheduler& scheduler_;
  std::string host_;
  Faults faults_;
  std::map<std::string, InodePtr> names_, platter_names_;
  std::map<std::string, std::vector<NameChange>> unsynced_names_;  // by directory
  std::map<std::string, std::pair<const Process*, uint64_t>> locks_;
  Fn on_wake_, on_power_loss_;
  uint64_t pages_ = 0, syncs_ = 0;
};

class SimDisk final : public store::Disk {
 public:
  SimDisk(Medium& medium, Process& process) : medium_(medium), process_(process) {}

  base::Result<std::unique_ptr<store::File>> open(std::string_view path, store::OpenMode mode) override;
  base::Status rename(std::string_view from, std::string_view to) override;
  base::Status remove(std::string_view path) override;
  base::Status make_dir(std::string_view path) override;
  base::Status sync_dir(std::string_view path) override;
  base::Result<std::vector<std::string>> list(std::string_view path) override;
  base::Result<bool> exists(std::string_view path) override;
  base::Result<store::Space> space() override;
  base::Result<std::unique_ptr<store::Mapping>> map(std::string_view path, size_t size, bool create) override;
  base::Result<std::unique_ptr<store::FileLock>> lock(std::string_view path) override;

 private:
  Medium& medium_;
  Process& process_;
};

}  // namespace cantle::sim

// MemDisk: a disk in memory for the unit tests: what was not synced is lost in a crash, in whole or in part.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "lib/base/check.h"
#include "lib/base/random.h"
#include "lib/store/disk.h"

namespace cantle::store {

class MemDisk final : public Disk {
 public:
  struct Node {
    std::string now, synced, name;
  };
  std::map<std::string, std::shared_ptr<Node>, std::less<>> files;
  std::map<std::string, std::shared_ptr<Node>, std::less<>> durable_names;
  std::set<std::string, std::less<>> locks;
  std::function<base::Status(std::string_view path)> on_sync = [](std::string_view) { return base::ok(); };
  std::function<base::Status(std::string_view path)> on_write = [](std::string_view) { return base::ok(); };
  Space free_space{uint64_t{100} << 30, uint64_t{50} << 30};
  uint64_t syncs = 0, read_bytes = 0;

  // Power goes: of each file the synced bytes stay, and of what was written since, a random part of its 512-byte
  // sectors if `random` is given, else nothing.
  void crash(base::Random* random = nullptr) {
    files = durable_names;
    maps_.clear();
    for (auto& [name, node] : files) {
      std::string after = node->synced;
      if (random != nullptr) {
        after.resize(std::max(after.size(), node->now.size()), '\0');
        for (size_t at = 0; at < node->now.size(); at += 512)
          if (random->chance(0.5)) {
            const size_t n = std::min<size_t>(512, node->now.size() - at);
            std::memcpy(after.data() + at, node->now.data() + at, n);
          }
      }
      auto fresh = std::make_shared<Node>();
      fresh->now = fresh->synced = after;
      fresh->name = name;
      node = fresh;
    }
    durable_names = files;
    locks.clear();
  }
  std::string& bytes(std::string_view path) { return files.find(path)->second->now; }
  void flip(std::string_view path, size_t at) {
    auto& node = *files.find(path)->second;
    node.now[at] = static_cast<char>(node.now[at] ^ 1);
    if (at < node.synced.size()) node.synced[at] = node.now[at];
  }

  base::Result<std::unique_ptr<File>> open(std::string_view path, OpenMode mode) override {
    auto it = files.find(path);
    if (it == files.end()) {
      if (mode != OpenMode::create) return base::fail(base::Code::not_found, std::string(path));
      it = files.emplace(std::string(path), std::make_shared<Node>()).first;
      it->second->name = path;
    }
    return std::make_unique<MemFile>(*this, it->second);
  }
  base::Status rename(std::string_view from, std::string_view to) override {
    const auto it = files.find(from);
    if (it == files.end()) return base::fail(base::Code::not_found, std::string(from));
    it->second->name = to;
    files[std::string(to)] = it->second;
    files.erase(it);
    return base::ok();
  }
  base::Status remove(std::string_view path) override {
    const auto it = files.find(path);
    if (it == files.end()) return base::fail(base::Code::not_found, std::string(path));
    files.erase(it);
    return base::ok();
  }
  base::Status make_dir(std::string_view) override { return base::ok(); }
  base::Status sync_dir(std::string_view path) override {
    const auto inside = [&](const std::string& name) {
      const auto slash = name.rfind('/');
      return (slash == std::string::npos ? std::string() : name.substr(0, slash)) == path;
    };
    std::erase_if(durable_names, [&](const auto& f) { return inside(f.first); });
    for (const auto& [name, node] : files)
      if (inside(name)) durable_names[name] = node;
    return base::ok();
  }
  base::Result<std::vector<std::string>> list(std::string_view path) override {
    std::vector<std::string> names;
    const auto prefix = path.empty() ? std::string() : std::string(path) + "/";
    for (const auto& [name, node] : files)
      if (name.substr(0, prefix.size()) == prefix && name.find('/', prefix.size()) == std::string::npos)
        names.push_back(name.substr(prefix.size()));
    return names;
  }
  base::Result<bool> exists(std::string_view path) override { return files.find(path) != files.end(); }
  base::Result<Space> space() override { return free_space; }
  base::Result<std::unique_ptr<Mapping>> map(std::string_view path, size_t size, bool create) override {
    auto it = maps_.find(path);
    if (it == maps_.end()) {
      if (!create) return base::fail(base::Code::not_found, std::string(path));
      it = maps_.emplace(std::string(path), std::make_shared<std::string>(size, '\0')).first;
    }
    return std::make_unique<MemMapping>(it->second);
  }
  base::Result<std::unique_ptr<FileLock>> lock(std::string_view path) override {
    if (!locks.insert(std::string(path)).second) return base::fail(base::Code::conflict, "locked");
    return std::make_unique<MemLock>(*this, std::string(path));
  }

 private:
  struct MemFile final : File {
    MemFile(MemDisk& d, std::shared_ptr<Node> n) : disk(d), node(std::move(n)) {}
    MemDisk& disk;
    std::shared_ptr<Node> node;
    base::Status write(uint64_t offset, const std::vector<std::string_view>& parts) override {
      TRY(disk.on_write(node->name));
      size_t at = static_cast<size_t>(offset);
      for (const auto part : parts) {
        if (node->now.size() < at + part.size()) node->now.resize(at + part.size(), '\0');
        if (!part.empty()) std::memcpy(node->now.data() + at, part.data(), part.size());
        at += part.size();
      }
      return base::ok();
    }
    base::Result<size_t> read(uint64_t offset, char* to, size_t size) override {
      if (offset >= node->now.size()) return size_t{0};
      const size_t n = std::min<size_t>(size, node->now.size() - static_cast<size_t>(offset));
      std::memcpy(to, node->now.data() + offset, n);
      disk.read_bytes += n;
      return n;
    }
    base::Status sync() override {
      TRY(disk.on_sync(node->name));
      disk.syncs++;
      node->synced = node->now;
      return base::ok();
    }
    base::Result<uint64_t> size() override { return node->now.size(); }
    base::Status truncate(uint64_t size) override {
      node->now.resize(static_cast<size_t>(size), '\0');
      return base::ok();
    }
    void drop_cache() override {}
  };
  struct MemMapping final : Mapping {
    explicit MemMapping(std::shared_ptr<std::string> b) : bytes(std::move(b)) {}
    std::shared_ptr<std::string> bytes;
    char* data() override { return bytes->data(); }
    size_t size() const override { return bytes->size(); }
    void wait(const uint32_t*, uint32_t, int) override {}
    void wake(const uint32_t*) override {}
  };
  struct MemLock final : FileLock {
    MemLock(MemDisk& d, std::string p) : disk(d), path(std::move(p)) {}
    ~MemLock() override { disk.locks.erase(path); }
    MemDisk& disk;
    std::string path;
  };
  std::map<std::string, std::shared_ptr<std::string>, std::less<>> maps_;
};

}  // namespace cantle::store

#include "lib/store/mem_index.h"

#include <algorithm>

#include "lib/base/check.h"

namespace cantle::store {
namespace {

using base::Code;
using base::fail;
using base::ok;
using Map = std::map<std::string, std::vector<MemIndexFiles::Version>, std::less<>>;
using MaybeKeyValue = std::optional<KeyValue>;

// The newest value at or before a commit; null: none, or deleted.
const std::string* visible(const std::vector<MemIndexFiles::Version>& versions, uint64_t commit) {
  for (auto it = versions.rbegin(); it != versions.rend(); ++it)
    if (it->commit <= commit) return it->value ? &*it->value : nullptr;
  return nullptr;
}

class MemCursor final : public Cursor {
 public:
  MemCursor(const Map& map, uint64_t commit) : map_(map), commit_(commit), at_(map.end()) {}

  base::Result<MaybeKeyValue> seek(std::string_view key) override { return forward(map_.lower_bound(key)); }
  base::Result<MaybeKeyValue> seek_before(std::string_view key) override {
    return backward(key.empty() ? map_.end() : map_.lower_bound(key));
  }
  base::Result<MaybeKeyValue> next() override { return at_ == map_.end() ? forward(at_) : forward(std::next(at_)); }
  base::Result<MaybeKeyValue> prev() override { return backward(at_); }

 private:
  base::Result<MaybeKeyValue> forward(Map::const_iterator it) {
    for (; it != map_.end(); ++it)
      if (const auto* value = visible(it->second, commit_)) {
        at_ = it;
        return KeyValue{it->first, *value};
      }
    at_ = it;
    return std::nullopt;
  }
  base::Result<MaybeKeyValue> backward(Map::const_iterator it) {
    while (it != map_.begin()) {
      --it;
      if (const auto* value = visible(it->second, commit_)) {
        at_ = it;
        return KeyValue{it->first, *value};
      }
    }
    at_ = map_.end();
    return std::nullopt;
  }
  const Map& map_;
  uint64_t commit_;
  Map::const_iterator at_;
};

class MemReader final : public Reader {
 public:
  MemReader(MemIndexFiles& files, std::multiset<uint64_t>& snapshots) : files_(files), snapshots_(snapshots) {}
  ~MemReader() override { reset(); }

  base::Status renew() override {
    reset();
    commit_ = files_.committed;
    snapshots_.insert(*commit_);
    return ok();
  }
  void reset() override {
    if (commit_) snapshots_.erase(snapshots_.find(*commit_));
    commit_.reset();
  }
  bool active() const override { return commit_.has_value(); }
  base::Result<std::optional<std::string_view>> get(Db db, std::string_view key) override {
    CHECK(commit_);
    const auto& map = files_.dbs[static_cast<size_t>(db)];
    const auto it = map.find(key);
    const auto* value = it == map.end() ? nullptr : visible(it->second, *commit_);
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  base::Result<std::unique_ptr<Cursor>> cursor(Db db) override {
    CHECK(commit_);
    return std::make_unique<MemCursor>(files_.dbs[static_cast<size_t>(db)], *commit_);
  }

 private:
  MemIndexFiles& files_;
  std::multiset<uint64_t>& snapshots_;
  std::optional<uint64_t> commit_;
};

class MemTxn final : public WriteTxn {
 public:
  MemTxn(MemIndexFiles& files, const std::multiset<uint64_t>& snapshots, bool& open)
      : files_(files), snapshots_(snapshots), open_(open), commit_(files.committed + 1) {
    CHECK(!open_);
    open_ = true;
  }
  ~MemTxn() override { finish(false); }

  base::Result<std::optional<std::string_view>> get(Db db, std::string_view key) override {
    const auto& map = files_.dbs[static_cast<size_t>(db)];
    const auto it = map.find(key);
    const auto* value = it == map.end() ? nullptr : visible(it->second, commit_);
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  base::Status put(Db db, std::string_view key, std::string_view value) override {
    return set(db, key, std::string(value));
  }
  base::Status del(Db db, std::string_view key) override {
    const auto& map = files_.dbs[static_cast<size_t>(db)];
    return map.find(key) == map.end() ? ok() : set(db, key, std::nullopt);
  }
  base::Result<std::unique_ptr<Cursor>> cursor(Db db) override {
    return std::make_unique<MemCursor>(files_.dbs[static_cast<size_t>(db)], commit_);
  }
  base::Status commit() override {
    CHECK(!done_);
    if (files_.before_commit) {
      if (auto s = files_.before_commit(); !s) {
        finish(false);
        return s;
      }
    }
    files_.committed = commit_;
    files_.commits++;
    finish(true);
    return ok();
  }

 private:
  base::Status set(Db db, std::string_view key, std::optional<std::string> value) {
    CHECK(!done_ && !key.empty() && key.size() <= 511);
    auto& map = files_.dbs[static_cast<size_t>(db)];
    auto it = map.find(key);
    if (it == map.end()) it = map.emplace(std::string(key), std::vector<MemIndexFiles::Version>()).first;
    auto& versions = it->second;
    if (versions.empty() || versions.back().commit != commit_) {
      versions.push_back({commit_, std::move(value)});
      touched_.push_back({static_cast<size_t>(db), it});
    } else {
      versions.back().value = std::move(value);
    }
    return ok();
  }

  void finish(bool committed) {
    if (done_) return;
    done_ = true;
    open_ = false;
    const uint64_t oldest = snapshots_.empty() ? files_.committed : *snapshots_.begin();
    for (auto& [db, it] : touched_) {
      auto& versions = it->second;
      if (!committed) versions.pop_back();
      // What no snapshot can see any more goes.
      while (versions.size() > 1 && versions[1].commit <= oldest) versions.erase(versions.begin());
      if (versions.empty() || (versions.size() == 1 && !versions[0].value && versions[0].commit <= oldest))
        files_.dbs[db].erase(it);
    }
  }

  MemIndexFiles& files_;
  const std::multiset<uint64_t>& snapshots_;
  bool& open_;
  uint64_t commit_;
  bool done_ = false;
  std::vector<std::pair<size_t, Map::iterator>> touched_;
};

class MemIndex final : public Index {
 public:
  explicit MemIndex(MemIndexFiles& files) : files_(files) {}
  base::Result<std::unique_ptr<WriteTxn>> begin() override {
    return std::make_unique<MemTxn>(files_, snapshots_, open_);
  }
  std::unique_ptr<Reader> reader() override { return std::make_unique<MemReader>(files_, snapshots_); }
  base::Result<IndexSpace> space(bool) override {
    IndexSpace space{uint64_t{1} << 40, 0, 0};
    for (const auto& db : files_.dbs) space.file_bytes += db.size() * 256;
    return space;
  }
  int check_readers() override { return 0; }
  std::vector<ReaderInfo> readers() override {
    std::vector<ReaderInfo> out;
    for (const uint64_t snapshot : snapshots_) out.push_back({0, snapshot, files_.committed - snapshot});
    return out;
  }
  bool evict(int) override { return false; }

 private:
  MemIndexFiles& files_;
  std::multiset<uint64_t> snapshots_;
  bool open_ = false;
};

// What a crash left of a transaction that was not committed.
void undo_uncommitted(MemIndexFiles& files) {
  for (auto& map : files.dbs)
    for (auto it = map.begin(); it != map.end();) {
      auto& versions = it->second;
      while (!versions.empty() && versions.back().commit > files.committed) versions.pop_back();
      if (versions.size() > 1) versions.erase(versions.begin(), std::prev(versions.end()));
      const bool gone = versions.empty() || !versions.back().value;
      it = gone ? map.erase(it) : std::next(it);
    }
}

}  // namespace

void MemIndexFiles::clear() {
  for (auto& db : dbs) db.clear();
  committed = 0;
  damaged.clear();
}

base::Result<std::unique_ptr<Index>> MemIndexFactory::open() {
  if (!files_.damaged.empty()) return fail(Code::corrupt, files_.damaged);
  undo_uncommitted(files_);
  return std::make_unique<MemIndex>(files_);
}

base::Status MemIndexFactory::set_aside(std::string_view) {
  files_.clear();
  return ok();
}

}  // namespace cantle::store

// SeriesTable: what became visible of the clients' series (lib/model/series.h) and is not in the index yet. It goes
// with a half of the overlay: what the half's records say of their clients.
//
// Invariants
//   * One window a client and tenure, in the order of the index's keys. A window is a join, so that it does not matter
//     how much of it the index has already.
//
// Threads: one at a time; once the half is sealed it does not change, and more may read it.
// Units: bytes() is what it takes in memory, about.
#pragma once

#include <cstdint>
#include <map>

#include "lib/model/series.h"
#include "lib/store/rows.h"

namespace cantle::store {

class SeriesTable {
 public:
  void add(const SeriesKey& key, const model::SeriesEntry& entry) {
    const auto [it, fresh] = rows_.try_emplace(key);
    const size_t before = it->second.entries().size();
    it->second.add(entry);
    bytes_ += (fresh ? kRowBytes : 0) + sizeof(entry) * it->second.entries().size() - sizeof(entry) * before;
  }
  const model::SeriesWindow* find(const SeriesKey& key) const {
    const auto it = rows_.find(key);
    return it == rows_.end() ? nullptr : &it->second;
  }
  const std::map<SeriesKey, model::SeriesWindow>& rows() const { return rows_; }
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr uint64_t kRowBytes = 128;  // of a window without entries
  std::map<SeriesKey, model::SeriesWindow> rows_;
  uint64_t bytes_ = 0;
};

}  // namespace cantle::store

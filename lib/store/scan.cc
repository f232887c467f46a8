#include "lib/store/scan.h"

#include <algorithm>

namespace cantle::store {
namespace {

using base::ok;

// Is `a` before `b` in the order of the scan?
bool before(std::string_view a, std::string_view b, bool reverse) { return reverse ? a > b : a < b; }

// The newer half's and the older half's entries of one part, merged.
OverlayRows take(const Overlay& overlay, const Part& part, const ScanRange& range) {
  OverlayRows out;
  std::vector<Half::Walk> walks;
  walks.emplace_back(*overlay.active(), part.extent);
  if (overlay.sealed()) walks.emplace_back(*overlay.sealed(), part.extent);
  const Entry* at[2] = {};
  for (size_t i = 0; i < walks.size(); i++)
    at[i] = range.reverse ? walks[i].seek_before(part.interval.end) : walks[i].seek(part.interval.begin);
  uint32_t live = 0;
  size_t bytes = 0;
  for (;;) {
    for (auto*& e : at)
      if (e != nullptr && !part.interval.contains(e->key())) e = nullptr;
    if (at[0] == nullptr && at[1] == nullptr) return out;
    // Of an equal key the active half's is the newer.
    const bool second = at[0] == nullptr || (at[1] != nullptr && before(at[1]->key(), at[0]->key(), range.reverse));
    const Entry* entry = at[second ? 1 : 0];
    if (live >= range.records_max || bytes >= range.bytes_max) {
      out.bound = std::string(out.entries.back()->key());
      return out;
    }
    out.entries.push_back(entry);
    if (!entry->deleted || range.tombstones) live++;
    bytes += entry->key().size() + entry->value_size;
    for (size_t i = 0; i < walks.size(); i++)
      while (at[i] != nullptr && at[i]->key() == entry->key())
        at[i] = range.reverse ? walks[i].prev() : walks[i].next();
  }
}

class Merge {
 public:
  Merge(Source& source, const ScanPlan& plan, const EachFound& each)
      : source_(source), plan_(plan), range_(plan.range), each_(each) {}

  base::Result<ScanEnd> run() {
    static const OverlayRows kNone;
    for (size_t i = 0; i < plan_.parts.size() && !end_.more; i++)
      TRY(one(plan_.parts[i], plan_.overlay.empty() ? kNone : plan_.overlay[i]));
    return std::move(end_);
  }

 private:
  base::Status one(const Part& part, const OverlayRows& overlay) {
    RecordKey keys(part.extent);
    size_t next = 0;
    TRY(each_row(source_, part, range_.reverse, [&](const RowAt& row) -> base::Result<bool> {
      while (next < overlay.entries.size() && before(overlay.entries[next]->key(), row.key, range_.reverse))
        if (!give(*overlay.entries[next++])) return false;
      if (overlay.bound && before(*overlay.bound, row.key, range_.reverse)) return false;
      const Entry* same =
          next < overlay.entries.size() && overlay.entries[next]->key() == row.key ? overlay.entries[next++] : nullptr;
      if (same != nullptr && same->version >= row.row.version) return give(*same);
      return give(keys, row);
    }));
    while (next < overlay.entries.size() && !end_.more)
      if (!give(*overlay.entries[next++])) break;
    if (overlay.bound && !end_.more) stop_behind(*overlay.bound);
    return failed_ ? base::Status(base::fail(std::move(*failed_))) : ok();
  }

  bool give(const Entry& e) {
    return emit(e.key(), e.deleted, e.value_size, [&] {
      auto value = e.value(buffer_);
      if (value) return Found{e.deleted, e.version, *value, e.flags};
      failed_ = std::move(value).error();
      return Found{e.deleted, e.version, {}, e.flags};
    });
  }
  bool give(RecordKey& keys, const RowAt& at) {
    return emit(at.key, at.row.deleted, at.row.length, [&] {
      auto value = value_of(source_, keys, at, buffer_);
      if (value) return Found{at.row.deleted, at.row.version, *value, at.row.flags};
      failed_ = std::move(value).error();
      return Found{at.row.deleted, at.row.version, {}, at.row.flags};
    });
  }

  template <class MakeFound>
  bool emit(std::string_view key, bool deleted, size_t value_size, MakeFound&& found) {
    if (deleted && !range_.tombstones) return true;
    const size_t size = key.size() + value_size;
    if (given_ > 0 && (given_ >= range_.records_max || bytes_ + size > range_.bytes_max)) {
      end_.more = true;
      end_.resume = range_.reverse ? last_ : std::string(key);
      return false;
    }
    const Found f = found();
    if (failed_) return false;
    given_++;
    bytes_ += size;
    last_ = key;
    if (each_(key, f)) return true;
    stop_behind(key);
    return false;
  }

  void stop_behind(std::string_view key) {
    end_.more = true;
    end_.resume = std::string(key);
    if (!range_.reverse) end_.resume += '\0';
  }

  Source& source_;
  const ScanPlan& plan_;
  const ScanRange& range_;
  const EachFound& each_;
  ScanEnd end_;
  uint32_t given_ = 0;
  size_t bytes_ = 0;
  std::string last_, buffer_;
  std::optional<base::Error> failed_;
};

}  // namespace

ScanPlan plan_scan(const std::vector<Part>& parts, const ScanRange& range) {
  ScanPlan plan;
  plan.range = range;
  plan.range.records_max = std::max<uint32_t>(range.records_max, 1);
  for (const auto& part : parts) {
    Part clipped{part.extent, part.interval.intersect({range.from, range.to})};
    if (!clipped.interval.empty()) plan.parts.push_back(std::move(clipped));
  }
  if (range.reverse) std::reverse(plan.parts.begin(), plan.parts.end());
  return plan;
}

void collect(ScanPlan& plan, const Overlay& overlay) {
  overlay.settle();
  for (const auto& part : plan.parts) plan.overlay.push_back(take(overlay, part, plan.range));
  plan.held.push_back(overlay.active());
  if (overlay.sealed()) plan.held.push_back(overlay.sealed());
}

base::Result<ScanEnd> merge(Source& source, const ScanPlan& plan, const EachFound& each) {
  return Merge(source, plan, each).run();
}

}  // namespace cantle::store

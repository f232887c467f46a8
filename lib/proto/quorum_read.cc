#include "lib/proto/quorum_read.h"

#include <map>
#include <string_view>

namespace cantle::proto {

void QuorumGet::answered(uint32_t slot, const model::PushReadReply& reply) {
  slots_.insert(slot);
  if (reply.found && (!newest_.found || reply.version > newest_.version)) newest_ = reply;
}

base::Result<model::GetReply> QuorumGet::result() const {
  if (!newest_.found || newest_.deleted) return base::fail(base::Code::not_found, "no such key");
  model::GetReply reply;
  reply.value = newest_.value;
  reply.version = newest_.version;
  return reply;
}

void QuorumScan::answered(uint32_t slot, model::PushScanReply page) {
  slots_.insert(slot);
  pages_.push_back(std::move(page));
}

namespace {
// Of two points that a scan has come to, the one that it comes to first. Going down, "" is the lowest of all.
bool sooner(bool reverse, std::string_view a, std::string_view b) { return reverse ? a > b : a < b; }
}  // namespace

QuorumScan::Page QuorumScan::result() const {
  Page out;
  for (const auto& page : pages_) {
    if (!page.more || (out.more && !sooner(reverse_, page.resume, out.resume))) continue;
    out.more = true;
    out.resume = page.resume;
  }
  const auto complete = [&](std::string_view key) {
    return !out.more || (reverse_ ? key >= out.resume : key < out.resume);
  };
  std::map<std::string_view, const model::PushScanEntry*> newest;
  for (const auto& page : pages_)
    for (const auto& e : page.entries) {
      if (!complete(e.key)) continue;
      auto [it, fresh] = newest.emplace(e.key, &e);
      if (!fresh && e.version > it->second->version) it->second = &e;
    }
  size_t bytes = 0;
  const auto take = [&](const model::PushScanEntry& e) {
    if (e.deleted) return true;
    bytes += e.key.size() + e.value.size();
    if (!out.records.empty() && (out.records.size() >= limit_ || bytes > bytes_)) {
      out.more = true;
      // Forward: this key is the next. Reverse: everything from the last one taken on is in.
      out.resume = reverse_ ? out.records.back().key : e.key;
      return false;
    }
    out.records.push_back({e.key, e.value, e.version});
    return true;
  };
  if (reverse_) {
    for (auto it = newest.rbegin(); it != newest.rend() && take(*it->second); ++it) {
    }
  } else {
    for (auto it = newest.begin(); it != newest.end() && take(*it->second); ++it) {
    }
  }
  return out;
}

}  // namespace cantle::proto

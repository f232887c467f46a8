#include "lib/client/pages.h"

#include <algorithm>

#include "lib/client/await.h"

namespace cantle::client {

PageSource pages_of(Client& client, base::Duration timeout) {
  return [&client, timeout](const model::ScanRequest& request) {
    return await<model::ScanReply>(client.loop(), timeout + std::chrono::seconds(5), [&](Done<model::ScanReply> done) {
      client.scan(request, timeout, std::move(done));
    });
  };
}

base::Status walk(const PageSource& pages, model::ScanRequest request, uint64_t limit, const EachRecord& each) {
  uint64_t given = 0;
  while (true) {
    if (limit > 0) request.limit = static_cast<uint32_t>(std::min<uint64_t>(limit - given, model::kScanRecordsMax));
    TRY_ASSIGN(const auto page, pages(request));
    for (const auto& record : page.records) {
      TRY_ASSIGN(const bool more, each(record));
      if (!more || ++given == limit) return base::ok();
    }
    if (page.cursor.empty()) return base::ok();
    request.cursor = page.cursor;
  }
}

std::string after_prefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

}  // namespace cantle::client

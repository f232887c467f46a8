// Pages: a scan from its first page to its last, record by record. For tools: turns the client's loop.
//
//   TRY(walk(pages_of(client, 10s), request, 0, [&](const model::ScanRecord& r) -> base::Result<bool> { …; return true;
//   }));
//
// The cursor names a key, never a partition, so splits and moves on the way do no harm (S47).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lib/client/client.h"

namespace cantle::client {

using PageSource = std::function<base::Result<model::ScanReply>(const model::ScanRequest&)>;
PageSource pages_of(Client& client, base::Duration timeout);

using EachRecord = std::function<base::Result<bool>(const model::ScanRecord&)>;  // false: enough
// `limit` records at most; 0: all.
base::Status walk(const PageSource& pages, model::ScanRequest request, uint64_t limit, const EachRecord& each);

// The first key behind all that begin with `prefix`; empty when there is none.
std::string after_prefix(std::string_view prefix);

}  // namespace cantle::client

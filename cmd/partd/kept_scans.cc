#include "cmd/partd/kept_scans.h"

#include "lib/base/log.h"

namespace cantle::partd {

uint64_t KeptScans::keep(Kept kept) {
  uint64_t number = 0;
  while (number == 0 || kept_.contains(number)) number = random_.u64();
  kept_.emplace(number, std::move(kept));
  return number;
}

base::Result<KeptScans::Kept*> KeptScans::find(uint64_t number, const std::string& table, base::Instant now) {
  const auto it = kept_.find(number);
  if (it == kept_.end() || it->second.table != table)
    return base::fail(base::Code::snapshot_too_old,
                      "the state that the scan began in is not kept any more: begin it again, in smaller ranges");
  it->second.used = now;
  return &it->second;
}

void KeptScans::expire(base::Instant now, uint64_t index_bytes) {
  std::erase_if(kept_, [&](const auto& entry) {
    const auto& k = entry.second;
    const bool grown = index_bytes > k.index_bytes + kGrowthMost;
    if (grown)
      base::log(base::Level::warn, "scan-cut-off",
                {{"table", k.table}, {"lsn", k.pin.at().value}, {"index_bytes", index_bytes}});
    return grown || now - k.used >= model::kScanKeptIdle || now - k.since >= model::kScanKeptMost;
  });
}

}  // namespace cantle::partd

#include "lib/client/route.h"

#include <algorithm>

namespace cantle::client {

void Health::failed(const model::ServerId& server, base::Instant now) {
  auto& bad = bad_[server];
  bad.span = std::clamp(bad.span * 2, kAvoidMin, kAvoidMax);
  bad.until = now + bad.span;
}

void Health::answered(const model::ServerId& server) { bad_.erase(server); }

bool Health::avoided(const model::ServerId& server, base::Instant now) const {
  const auto it = bad_.find(server);
  return it != bad_.end() && now < it->second.until;
}

std::vector<model::ServerId> candidates(const model::Partition& partition, Purpose purpose, uint64_t spread,
                                        const Health& health, base::Instant now) {
  std::vector<model::ServerId> good, filling;
  for (const auto& a : partition.assignments) {
    if (model::answers_reads(a.state))
      good.push_back(a.server);
    else if (purpose == Purpose::write)
      filling.push_back(a.server);
  }
  if (!good.empty()) std::rotate(good.begin(), good.begin() + static_cast<long>(spread % good.size()), good.end());
  good.insert(good.end(), filling.begin(), filling.end());
  std::stable_partition(good.begin(), good.end(), [&](const auto& s) { return !health.avoided(s, now); });
  return good;
}

}  // namespace cantle::client

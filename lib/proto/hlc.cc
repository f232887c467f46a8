#include "lib/proto/hlc.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace cantle::proto {

model::Version Hlc::stamp(base::WallMs wall) {
  base::WallMs ms = wall;
  uint16_t counter = 0;
  if (last_.ms() >= wall) {
    ms = last_.ms();
    counter = static_cast<uint16_t>(last_.counter() + 1);
    if (counter == 0) ms++;  // 65536 stamps in one millisecond: borrow the next
  }
  last_ = model::Version::make(ms, counter, number_, incarnation_);
  return last_;
}

void PeerClocks::tick(base::Instant now, base::WallMs wall) {
  const int64_t base_ms = static_cast<int64_t>(wall) - base::to_ms(now.since_boot);
  if (base_ms_ && std::llabs(base_ms - *base_ms_) > static_cast<int64_t>(kSkewMaxMs)) {
    samples_.clear();
    jumped_ = true;
  }
  base_ms_ = base_ms;
}

void PeerClocks::heard(const model::ServerId& peer, base::WallMs peer_wall, base::Instant now, base::WallMs wall) {
  samples_[peer] = {static_cast<int64_t>(peer_wall) - static_cast<int64_t>(wall), now};
  jumped_ = false;
}

std::optional<int64_t> PeerClocks::median(base::Instant now) const {
  std::vector<int64_t> offsets;
  for (const auto& [peer, sample] : samples_)
    if (now - sample.at <= kClockSampleAge) offsets.push_back(sample.offset_ms);
  if (offsets.empty()) return std::nullopt;
  std::sort(offsets.begin(), offsets.end());
  const int64_t high = offsets[offsets.size() / 2], low = offsets[(offsets.size() - 1) / 2];
  // One of two peers that is off must not stop the other two.
  return std::llabs(low) <= std::llabs(high) ? low : high;
}

std::optional<int64_t> PeerClocks::offset(const model::ServerId& peer, base::Instant now) const {
  auto it = samples_.find(peer);
  if (it == samples_.end() || now - it->second.at > kClockSampleAge) return std::nullopt;
  return it->second.offset_ms;
}

bool PeerClocks::distrusted(base::Instant now, bool has_peers) const {
  if (jumped_) return has_peers;
  const auto off = median(now);
  return off && std::llabs(*off) > static_cast<int64_t>(kSkewMaxMs);
}

}  // namespace cantle::proto

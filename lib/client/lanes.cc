#include "lib/client/lanes.h"

#include <bit>

#include "lib/base/check.h"

namespace cantle::client {

static_assert(model::kSeriesWindow == 64, "what is waited for in a lane is a bit each");

size_t Lanes::open_lane() {
  if (!open_.empty()) return *open_.begin();
  Lane lane;
  while (lane.client == 0) lane.client = random_.u64();  // 0 is nobody
  lanes_.push_back(std::move(lane));
  open_.insert(lanes_.size() - 1);
  return lanes_.size() - 1;
}

Lanes::Number Lanes::draw() {
  const size_t i = open_lane();
  auto& lane = lanes_[i];
  const Number number{lane.client, lane.next++, i};
  lane.waited |= uint64_t{1} << (number.series - lane.low);
  if (!lane.may_go_on()) open_.erase(i);
  return number;
}

void Lanes::ended(const Number& number) {
  auto& lane = lanes_[number.lane];
  CHECK(number.series >= lane.low && number.series < lane.next);
  const auto bit = uint64_t{1} << (number.series - lane.low);
  CHECK((lane.waited & bit) != 0);
  lane.waited &= ~bit;
  const auto gone = lane.waited == 0 ? lane.next - lane.low : static_cast<uint64_t>(std::countr_zero(lane.waited));
  lane.waited = lane.waited == 0 ? 0 : lane.waited >> gone;
  lane.low += gone;
  if (lane.may_go_on()) open_.insert(number.lane);
}

}  // namespace cantle::client

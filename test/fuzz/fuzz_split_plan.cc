// The text of a split plan, which a person may have edited.
//
// What holds whatever comes: it is refused, or it is a plan within all limits that is written and read again the same.
#include <cstdint>
#include <string_view>

#include "lib/base/check.h"
#include "lib/client/split_plan.h"
#include "lib/model/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cantle;
  const auto plan = client::parse_plan({reinterpret_cast<const char*>(data), size});
  if (!plan) return 0;
  CHECK(!plan->split.point.empty() && plan->split.point.size() <= model::kKeyMax);
  CHECK(plan->split.low.assignments.size() <= model::kReplicasMax &&
        plan->split.high.assignments.size() <= model::kReplicasMax);
  const auto text = client::format_plan(*plan);
  const auto again = client::parse_plan(text);
  CHECK(again && *again == *plan);
  CHECK(client::format_plan(*again) == text);
  return 0;
}

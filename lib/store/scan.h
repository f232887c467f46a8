// Scan: the records of a tenure in key order, the overlay's and the index's merged; shared by Engine,
// its read threads and DirectReader.
//
// The overlay's part is taken first, as pointers: entries never change, and the halves that hold them are
// kept. So a read thread can merge it with a snapshot of the index that was taken at the same time.
//
// Threads: collect() the loop; merge() any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/store/content.h"
#include "lib/store/overlay.h"
#include "lib/store/tenure.h"

namespace cantle::store {

struct OverlayRows {
  std::vector<const Entry*> entries;  // in the order of the scan, one a key
  // Where taking stopped, because the scan will not get further: nothing is known of the overlay behind this key.
  std::optional<std::string> bound;
};

// What a scan goes over.
struct ScanPlan {
  ScanRange range;
  std::vector<Part> parts;           // clipped to the range, in the order of the scan
  std::vector<OverlayRows> overlay;  // one a part; empty: no overlay
  std::vector<std::shared_ptr<Half>> held;
};

ScanPlan plan_scan(const std::vector<Part>& parts, const ScanRange& range);
void collect(ScanPlan& plan, const Overlay& overlay);

using EachFound = std::function<bool(std::string_view key, const Found& found)>;
// Views given to `each` are valid during the call.
base::Result<ScanEnd> merge(Source& source, const ScanPlan& plan, const EachFound& each);

}  // namespace cantle::store

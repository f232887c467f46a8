// A watch as a hint (S33): one at a time.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "lib/coord/coord.h"

namespace cantle::meta {

// None if one is armed. `armed` belongs to whoever lives as long as `alive` does; it is false again when `fired` runs.
inline coord::Watch hint_watch(bool& armed, const std::shared_ptr<bool>& alive, std::function<void()> fired) {
  if (std::exchange(armed, true)) return nullptr;
  return [&armed, weak = std::weak_ptr(alive), fired = std::move(fired)] {
    if (!weak.lock()) return;
    armed = false;
    fired();
  };
}

}  // namespace cantle::meta

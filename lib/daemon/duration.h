// A duration as people write it on a command line.
#pragma once

#include <string>

#include "lib/base/result.h"
#include "lib/base/time.h"

namespace cantle::daemon {

// 250ms, 5s, 2m, 1h; a bare number is seconds. usage: anything else, or more than some hundred days.
base::Result<base::Duration> parse_duration(const std::string& text);

}  // namespace cantle::daemon

#include "lib/daemon/duration.h"

#include <charconv>

namespace cantle::daemon {

base::Result<base::Duration> parse_duration(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const double seconds = unit == "ms"                  ? 1e-3
                         : unit.empty() || unit == "s" ? 1
                         : unit == "m"                 ? 60
                         : unit == "h"                 ? 3600
                                                       : -1;
  if (error != std::errc{} || seconds < 0 || !(number >= 0) || number * seconds > 1e7)
    return base::fail(base::Code::usage, "'" + text + "' is no duration (250ms, 5s, 2m, 1h)");
  return base::Duration(static_cast<int64_t>(number * seconds * 1e9));
}

}  // namespace cantle::daemon

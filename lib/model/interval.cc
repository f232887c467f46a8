#include "lib/model/interval.h"

#include "lib/base/bytes.h"

namespace cantle::model {

std::string to_string(const Interval& interval) {
  return "[" + base::escape(interval.begin) + ", " + base::escape(interval.end) + ")";
}

}  // namespace cantle::model

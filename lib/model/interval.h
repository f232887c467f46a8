// Interval: half-open [begin, end) of routing keys, compared as bytes. An empty begin is the first
// key of all; an empty end is unbounded.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "lib/model/fields.h"

namespace cantle::model {

struct Interval {
  std::string begin, end;

  auto operator<=>(const Interval&) const = default;
  CANTLE_FIELDS(begin, end)
  bool contains(std::string_view key) const { return key >= begin && (end.empty() || key < end); }
  bool empty() const { return !end.empty() && begin >= end; }
  bool contains(const Interval& other) const {
    return other.begin >= begin && (end.empty() || (!other.end.empty() && other.end <= end));
  }
  Interval intersect(const Interval& other) const {
    Interval r{std::max(begin, other.begin), end};
    if (end.empty() || (!other.end.empty() && other.end < end)) r.end = other.end;
    return r;
  }
};
// "[a, b)" with escaped keys; "-∞" and "+∞" are written as "" : "[, b)".
std::string to_string(const Interval& interval);

}  // namespace cantle::model

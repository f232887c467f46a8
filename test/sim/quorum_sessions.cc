#include "test/sim/quorum_sessions.h"

#include <algorithm>

namespace cantle::sim {

namespace {

using Timeline = QuorumLedger::Timeline;

// The place, counted from 1, at or behind `from`; 0 is before the first write.
std::optional<size_t> place(const Timeline& line, const std::optional<model::Version>& seen, size_t from) {
  if (!seen && from == 0) return 0;
  for (size_t i = std::max<size_t>(from, 1); i <= line.size(); ++i) {
    const auto& then = line[i - 1];
    if (seen ? then.version == *seen : then.deleted) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> QuorumSessions::check(size_t table, const QuorumLedger::Timelines& timelines) const {
  const auto of = seen_.find(table);
  if (of == seen_.end()) return std::nullopt;
  for (const auto& [who, all] : of->second) {
    const auto line = timelines.find(who.second);
    size_t from = 0, nth = 0;
    for (const auto& seen : all) {
      ++nth;
      const auto at = place(line == timelines.end() ? Timeline{} : line->second, seen, from);
      if (!at)
        return "client " + std::to_string(who.first) + " saw " + (seen ? model::to_string(*seen) : "nothing") + " of " +
               who.second + ", the " + std::to_string(nth) + "th that it saw of it, and was at " +
               std::to_string(from) + " of its writes before: its session went back, or nobody wrote that";
      from = *at;
    }
  }
  return std::nullopt;
}

}  // namespace cantle::sim

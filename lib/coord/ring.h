// Ring: what a ring of a table's bell says (design/coordination.md, "Layout"): bell/ring-<n>, persistent sequential,
// made in the multi that changes what it names.
//
// A line a change: `vote: REGION …` with the vote itself, so that whoever hears it need not look for each in a
// directory of its own; `government: REGION`. An empty text: anything may have changed.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/ids.h"
#include "lib/model/quorum.h"

namespace cantle::coord {

struct Ring {
  std::vector<std::pair<model::Region, model::Vote>> votes;
  std::vector<model::Region> governments;

  bool any() const { return votes.empty() && governments.empty(); }
  friend bool operator==(const Ring&, const Ring&) = default;
};
// Lines, to be put one behind the other.
std::string ring_line(model::Region region, const model::Vote& vote);
std::string ring_line(model::Region region);
base::Result<Ring> parse_ring(std::string_view text);

}  // namespace cantle::coord

// validate: invariants 1 to 3 of a METADATA file (design/README.md), each rule with a name.
//
// A refusal is Code::invalid, `detail` is the rule's name (kRules) and the text says where. All of it is
// checked at every commit; validate_change looks only at what differs from a valid base and finds the
// same, so that its cost does not grow with the table.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/metadata.h"

namespace cantle::model {

struct Rule {
  std::string_view name, says;
};
std::span<const Rule> rules();  // for the man page and for tests

base::Status validate(const Metadata& metadata);
base::Status validate_change(const Metadata& base, const Metadata& next);
// The same for any other file of the table of a valid `base`: what both share is not looked at again.
base::Status validate_against(const Metadata& base, const Metadata& other);

// Rule "racks": no two replicas of a partition in one rack, as long as there are enough racks for it. It is checked by
// whoever places (the proposer, tools), for the partitions that differ from `base`: METADATA does not know racks.
// `racks` has the rack of every live server; a server that is not in it, or has no rack, counts as one of its own.
using Racks = std::map<ServerId, std::string>;
constexpr const char* kRacksRule = "racks";
base::Status validate_racks(const Metadata* base, const Metadata& next, const Racks& racks);

}  // namespace cantle::model

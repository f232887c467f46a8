// Placement: which servers a new replica goes to (design/coordination.md: unused servers first, then by
// weight and free space, racks distinct as long as there are enough). Pure: the same input, the same answer.
//
// Racks: no two replicas of a partition in one rack while another rack has a server left; a server without
// a rack is one of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/ids.h"

namespace cantle::zkctl {

struct Candidate {
  model::ServerId id;
  std::string rack;       // empty: one of its own
  uint32_t weight = 100;  // 0: takes nothing new
  uint64_t assignments = 0;
  uint64_t free_bytes = 0;  // 0: not known
};

// `count` of them, best first: no assignments before some; then fewest per weight; then most free space;
// then by name. `racks_taken`: of replicas that stay. unavailable: there are not so many.
base::Result<std::vector<model::ServerId>> place(std::vector<Candidate> candidates, size_t count,
                                                 std::vector<std::string> racks_taken = {});

}  // namespace cantle::zkctl

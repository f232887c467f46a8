#include "cmd/zkctl/place.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace cantle::zkctl {

using base::Code;

namespace {

// a / wa < b / wb without fractions.
bool better(const Candidate& a, const Candidate& b) {
  const auto load = [](const Candidate& x, const Candidate& other) {
    return x.assignments * std::max<uint32_t>(other.weight, 1);
  };
  const auto la = load(a, b), lb = load(b, a);
  if ((a.assignments == 0) != (b.assignments == 0)) return a.assignments == 0;
  if (la != lb) return la < lb;
  if (a.weight != b.weight) return a.weight > b.weight;
  if (a.free_bytes != b.free_bytes) return a.free_bytes > b.free_bytes;
  return a.id < b.id;
}

std::string rack_of(const Candidate& c) { return c.rack.empty() ? "\x01" + c.id.name : c.rack; }

}  // namespace

base::Result<std::vector<model::ServerId>> place(std::vector<Candidate> candidates, size_t count,
                                                 std::vector<std::string> racks_taken) {
  std::erase_if(candidates, [](const Candidate& c) { return c.weight == 0; });
  if (candidates.size() < count)
    return base::fail(Code::unavailable, std::to_string(count) + " servers are needed, " +
                                             std::to_string(candidates.size()) + " can take a replica");
  std::sort(candidates.begin(), candidates.end(), better);
  std::set<std::string> used(racks_taken.begin(), racks_taken.end());
  std::vector<model::ServerId> chosen;
  // First the best of each rack not yet used; what is then still missing from whoever is left.
  for (const bool distinct : {true, false}) {
    for (auto it = candidates.begin(); it != candidates.end() && chosen.size() < count;) {
      if (distinct && !used.insert(rack_of(*it)).second) {
        ++it;
        continue;
      }
      chosen.push_back(it->id);
      it = candidates.erase(it);
    }
  }
  return chosen;
}

}  // namespace cantle::zkctl

// MemIndex: an Index in memory with LMDB's commit semantics, for the simulator and for tests.
//
// Use
//   MemIndexFiles files;                 // what is "on disk": outlives the process that is simulated
//   MemIndexFactory factory(files);
//   files.before_commit = [] { return fail(no_space, …); };   // faults, asked at each commit
//
// Invariants: as index.h. Reopening undoes what was not committed.
// Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/store/index.h"

namespace cantle::store {

struct MemIndexFiles {
  struct Version {
    uint64_t commit = 0;
    std::optional<std::string> value;  // nothing: deleted
  };
  std::array<std::map<std::string, std::vector<Version>, std::less<>>, kDbs> dbs;
  uint64_t committed = 0;
  std::string damaged;  // not empty: the next open says `corrupt` with this text
  std::function<base::Status()> before_commit;
  uint64_t commits = 0;  // since the files were made, for tests
  void clear();
};

class MemIndexFactory final : public IndexFactory {
 public:
  explicit MemIndexFactory(MemIndexFiles& files) : files_(files) {}
  base::Result<std::unique_ptr<Index>> open() override;
  base::Status set_aside(std::string_view why) override;

 private:
  MemIndexFiles& files_;
};

}  // namespace cantle::store

// The verbs of splitter; each returns its exit status.
#pragma once

#include "cmd/splitter/neighbours.h"
#include "cmd/splitter/point.h"
#include "lib/daemon/app.h"

namespace cantle::splitter {

struct AttemptFlags {
  std::string attempt;
  std::string table;  // where to look; empty: everywhere
  std::string timeout;
  bool progress = false;
};

base::Result<int> plan(const daemon::GlobalFlags& global, const SplitFlags& flags);
base::Result<int> split(const daemon::GlobalFlags& global, const SplitFlags& flags);
base::Result<int> merge(const daemon::GlobalFlags& global, const MergeFlags& flags);
base::Result<int> apply(const daemon::GlobalFlags& global, const SplitFlags& flags);
base::Result<int> status(const daemon::GlobalFlags& global, const std::string& table);
base::Result<int> wait(const daemon::GlobalFlags& global, const AttemptFlags& flags);
base::Result<int> resume(const daemon::GlobalFlags& global, const AttemptFlags& flags);
base::Result<int> abort(const daemon::GlobalFlags& global, const AttemptFlags& flags);

}  // namespace cantle::splitter

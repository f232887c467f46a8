// The verbs of replpush that talk to a running one, and `once`.
#pragma once

#include <string>
#include <vector>

#include "cmd/replpush/service.h"
#include "lib/base/result.h"
#include "lib/daemon/app.h"

namespace cantle::replpush {

struct ToolFlags {
  std::string socket;    // of the running replpush
  std::string which;     // "" : all
  bool waiting = false;  // list: only what is not through
  std::string timeout = "60s";
};

base::Result<int> list(const daemon::GlobalFlags& global, const ToolFlags& flags);
base::Result<int> ask(const daemon::GlobalFlags& global, const ToolFlags& flags, const std::string& verb);
// Pushes until every target has everything, or asks the one that runs to, and waits for it.
base::Result<int> once(const daemon::GlobalFlags& global, const Config& config, const ToolFlags& flags);

}  // namespace cantle::replpush

// Offline: the verbs of partd that work on a data directory, without a cluster: hash, verify, dump-journal, snapshot
// beside a running server too, restore and report on a stopped one only.
//
// Each returns the exit status: 2 where verify finds something, 3 where report has nothing to say.
#pragma once

#include <string>

#include "lib/base/result.h"
#include "lib/daemon/output.h"

namespace cantle::partd {

struct Offline {
  std::string data_dir, index_dir;
  std::string partition;  // digits that its id begins with; empty: all
  std::string after;      // snapshot: resume behind this key, escaped
  bool records = false;   // dump-journal
  daemon::Format format = daemon::Format::table;
};

base::Result<int> hash(const Offline& what);
base::Result<int> verify(const Offline& what);
base::Result<int> dump_journal(const Offline& what);
base::Result<int> report(const Offline& what);
base::Result<int> snapshot(const Offline& what);
base::Result<int> restore(const Offline& what);

}  // namespace cantle::partd

// Config: what a partd is told on its command line or in its file (man page partd.8).
#pragma once

#include <cstdint>
#include <string>

#include "lib/daemon/app.h"

namespace cantle::partd {

struct Config {
  daemon::DaemonFlags own;
  std::string coord;    // URL
  std::string cluster;  // name
  std::string token;    // the cluster's shared secret; empty: none
  std::string rack;
  uint32_t weight = 100;
  uint32_t overlay_mib = 64;
  uint32_t retention_hours = 24;
  uint32_t retention_mib = 0;  // 0: a tenth of the disk, 64 GiB at most
  std::string index_dir;       // empty: DATA-DIR/index
  std::string pusher;          // Unix socket of the replpush beside it; empty: it has to come by itself
  uint32_t session_ms = 4000;  // of the coordination service
  uint32_t read_threads = 2;
};

}  // namespace cantle::partd

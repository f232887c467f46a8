// Config: what a mdserver is told on its command line or in its file (man page mdserver.8).
#pragma once

#include <cstdint>
#include <string>

#include "lib/daemon/app.h"

namespace cantle::mdserver {

struct Config {
  daemon::DaemonFlags own;
  std::string coord;    // URL
  std::string cluster;  // name
  std::string token;    // the cluster's shared secret; empty: none
  std::string rack;
  uint32_t session_ms = 4000;  // of the coordination service
};

}  // namespace cantle::mdserver

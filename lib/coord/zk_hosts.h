// Hosts: the servers of a zk:// URL, as addresses the ZooKeeper client can be given.
//
// Names are resolved here, on the loop: the client would block in it. The list handed over has an odd
// number of addresses: with an even one the client may never find the one server that answers
// (ZOOKEEPER-2466), so an entry stands twice then.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/result.h"

namespace cantle::io {
class Loop;
}

namespace cantle::coord::zk {

struct Target {
  std::vector<std::pair<std::string, std::string>> servers;  // host, port
  std::string chroot;                                        // "" or "/a/b"
};
// "h1:2181,h2:2181/chroot"; the port may be missing: 2181. invalid: no host, a bad port or chroot.
base::Result<Target> parse_target(std::string_view text);

// "a:1,b:2" with an odd number of entries, duplicates removed first.
std::string odd_list(std::vector<std::string> addresses);

// Calls `done` once, from the loop, with a list for the client; unavailable if no name has an address.
// Dropping the returned handle drops the callback.
std::shared_ptr<void> resolve(io::Loop& loop, const Target& target,
                              std::function<void(base::Result<std::string>)> done);

}  // namespace cantle::coord::zk

// MdMaps: maps for a Client from the table's metadata servers. A client asks with stale_ok: partition servers check
// every request anyway, so an outage of the coordination service stops no reads or writes.
#pragma once

#include "lib/client/client.h"
#include "lib/client/md_client.h"

namespace cantle::client {

class MdMaps final : public MapSource {
 public:
  explicit MdMaps(MdClient& md) : md_(md) {}
  void fetch(const std::string& table, MapPtr, model::TxnSeq at_least, base::Duration timeout,
             Done<MapPtr> done) override {
    md_.get(
        table, at_least, timeout,
        [table, done = std::move(done)](base::Result<MapPtr> map) {
          if (map && (*map)->dropped)
            return done(base::fail(base::Code::no_such_table, "table " + table + " was dropped"));
          done(std::move(map));
        },
        true);
  }

 private:
  MdClient& md_;
};

}  // namespace cantle::client

// RouteMaps: maps from any partition server (`route`, full), one after the other: what is left when no metadata
// server answers.
//
// Invariants
//   * A map below `at_least` is not an answer. no_such_table only when a server said so and none had the table.
// Ownership: attach() the client before the first fetch; dies before or with it.
#pragma once

#include "lib/client/client.h"

namespace cantle::client {

class RouteMaps final : public MapSource {
 public:
  void attach(Client& client) { client_ = &client; }
  void fetch(const std::string& table, MapPtr have, model::TxnSeq at_least, base::Duration timeout,
             Done<MapPtr> done) override;

 private:
  struct Search;
  void ask_next(const std::shared_ptr<Search>& search);
  Client* client_ = nullptr;
};

// Asks `first`, and `second` when the first is unavailable or has not learnt of `at_least`.
class FallbackMaps final : public MapSource {
 public:
  FallbackMaps(MapSource& first, MapSource& second) : first_(first), second_(second) {}
  void fetch(const std::string& table, MapPtr have, model::TxnSeq at_least, base::Duration timeout,
             Done<MapPtr> done) override;

 private:
  MapSource& first_;
  MapSource& second_;
};

}  // namespace cantle::client

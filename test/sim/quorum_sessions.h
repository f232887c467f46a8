// QuorumSessions: what each client of QuorumWorld has seen, key by key, and whether it ever went back
// (design/replication.md, "Quorum tables: reads", `session`).
//
// Use
//   sessions.saw(table, client, key, version);      // it read that, or wrote it and was told so
//   sessions.saw_none(table, client, key);          // it read that there is none
//   sessions.check(table, ledger.timelines(table)); // at the end: nothing, or what is wrong
//
// A client has one request under way at a time, so that what it saw has an order. Each thing seen is a place on the
// key's timeline, at or behind the place of the one before: of a value its version's, of none the first at which there
// is none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "test/sim/quorum_ledger.h"

namespace cantle::sim {

class QuorumSessions {
 public:
  void saw(size_t table, uint64_t client, const std::string& key, const model::Version& version) {
    seen_[table][{client, key}].push_back(version);
  }
  void saw_none(size_t table, uint64_t client, const std::string& key) {
    seen_[table][{client, key}].push_back(std::nullopt);
  }
  std::optional<std::string> check(size_t table, const QuorumLedger::Timelines& timelines) const;

 private:
  using Seen = std::vector<std::optional<model::Version>>;
  std::map<size_t, std::map<std::pair<uint64_t, std::string>, Seen>> seen_;
};

}  // namespace cantle::sim

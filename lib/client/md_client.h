// MdClient: what a program says to a table's metadata servers. MapFollower: keeps a table's current map.
//
// Use
//   MdClient md(loop, *session, layout, servers, identity);
//   md.get("orders", {}, 3s, [](base::Result<MapPtr> map) { … });
//   md.change({.table = "orders", .operations = {op}}, 15s, [](base::Result<model::MdChangeReply> r) { … });
//   MapFollower follower(md, "orders", {.on_map = [](MapPtr map) { … }});
//   auto reply = wait_for<model::MdChangeReply>(loop, 20s, [&](auto done) { md.change(…, done); });  // tools
//
// The servers are those of the table's TableConfig, in its order, first the one that answered last; their
// addresses come from nodes/active. What can be tried elsewhere is tried elsewhere, until the deadline.
//
// Invariants
//   * A map is handed out only if its root has the hash that it was asked for by, every node its own hash, and
//     it passed the validator. `get` without stale_ok: it is the one in a TableConfig read after a sync.
//   * A map never goes back: a lower txnseq of the same table than was handed out before is `regressed` (S36).
//   * change: one change id, whatever happens; `conflict` and `invalid` mean that it has not happened and will
//     not; outcome_unknown that nobody could tell before the deadline (S27, S28).
//   * done is called once, from the loop, never inside the call; not at all once the client is destroyed.
// Threads: the loop's. Ownership: session, servers and loop outlive it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/client/servers.h"
#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/model/md_messages.h"
#include "lib/model/metadata.h"
#include "lib/model/operation.h"
#include "lib/model/table_config.h"
#include "lib/rpc/identity.h"

namespace cantle::client {

constexpr base::Duration kMdAttempt = std::chrono::seconds(5);  // one server has this long to answer
constexpr base::Duration kMdRetryFirst = std::chrono::milliseconds(50);
constexpr base::Duration kMdRetryMost = std::chrono::seconds(1);

struct ChangeSpec {
  std::string table;
  std::vector<model::Operation> operations;
  model::TxnId base;                              // none: on whatever is current
  model::ChangeId change;                         // none: one is drawn
  std::vector<model::ServerId> metadata_servers;  // CREATE_TABLE: empty for all live ones
  bool gather = false;                            // MARK_AVAILABLE: may wait 100 ms for company
};

class MdClient {
 public:
  template <class T>
  using Done = std::function<void(base::Result<T>)>;
  using MapPtr = std::shared_ptr<const model::Metadata>;

  MdClient(io::Loop& loop, coord::Session& session, coord::Layout layout, Servers& servers, rpc::Identity identity);
  ~MdClient();
  MdClient(const MdClient&) = delete;
  MdClient& operator=(const MdClient&) = delete;

  // TableConfig, after a sync. no_such_table.
  void config(const std::string& table, base::Duration timeout, Done<model::TableConfig> done);
  // The current map, at or past `at_least`. With stale_ok it is enough that a metadata server says so, even one
  // cut off from the coordination service, as long as it is not older than what was handed out before.
  // A dropped table has a map too, with `dropped` set.
  void get(const std::string& table, model::TxnSeq at_least, base::Duration timeout, Done<MapPtr> done,
           bool stale_ok = false);
  // The newest map handed out; null: none.
  MapPtr map_in_hand(const std::string& table) const;

  void find(model::MdFind request, base::Duration timeout, Done<model::MdFindReply> done);
  void discover(model::MdDiscover request, base::Duration timeout, Done<model::MdDiscoverReply> done);

  void change(ChangeSpec spec, base::Duration timeout, Done<model::MdChangeReply> done);
  // What became of a change of which `since` was the requester's txnseq.
  void outcome(const std::string& table, model::ChangeId change, model::TxnSeq since, base::Duration timeout,
               Done<model::MdOutcomeReply> done);

  // join is asked of the server that shall join, leave of any server of the table.
  void join(const std::string& table, const model::ServerId& server, base::Duration timeout,
            Done<model::MdMembersReply> done);
  void leave(const std::string& table, const model::ServerId& server, base::Duration timeout,
             Done<model::MdMembersReply> done);
  void status(const model::ServerId& server, base::Duration timeout, Done<model::MdStatusReply> done);

  io::Loop& loop();
  coord::Session& session();
  const coord::Layout& layout() const;

  struct Core;  // md_client_core.h

 private:
  std::shared_ptr<Core> core_;
};

// Keeps the current map of one table: a watch on TableConfig as a hint, and a slow timer behind it (S33, R29).
struct FollowerEvents {
  std::function<void(MdClient::MapPtr)> on_map;  // each map newer than the one before, and the first
  std::function<void()> on_gone;                 // TableConfig is not there (any more); may come back as another table
  std::function<void(const base::Error&)> on_alarm;  // the coordination service went backwards (S36): the map stays
};
struct FollowerOptions {
  base::Duration poll = std::chrono::seconds(2);  // jittered by a quarter
  model::TableUuid uuid;  // of the table whose txnseq was seen in an earlier life; none: nothing seen
  model::TxnSeq seen;     // … and that txnseq: less is a regression
};

class MapFollower {
 public:
  MapFollower(MdClient& client, std::string table, FollowerEvents events, FollowerOptions options = {});
  ~MapFollower();
  MapFollower(const MapFollower&) = delete;
  MapFollower& operator=(const MapFollower&) = delete;

  const MdClient::MapPtr& map() const;  // null before the first
  // Something may have changed: a `map.changed`, a request with a higher txnseq. Looks now.
  void hint(model::TxnSeq at_least = {});

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

// For tools: starts something and turns the loop until it is done. outcome_unknown when even the limit has passed.
base::Status turn_until(io::Loop& loop, base::Duration limit, const std::function<bool()>& done);
template <class T, class Start>
base::Result<T> wait_for(io::Loop& loop, base::Duration limit, Start start) {
  auto answer = std::make_shared<std::optional<base::Result<T>>>();
  start([answer](base::Result<T> r) { answer->emplace(std::move(r)); });
  TRY(turn_until(loop, limit, [&] { return answer->has_value(); }));
  return std::move(**answer);
}

}  // namespace cantle::client

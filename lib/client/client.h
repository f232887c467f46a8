// Client: what a program says to a cluster: put, get, delete, batch, cas, append, incr, scan, from one loop, any number
// at a time.
//
// Use
//   Client client(loop, servers, maps, {});
//   client.put("orders", key, value, {.level = Level::majority}, [](base::Result<model::WriteReply> r) { … });
//
// It keeps the map of each table and a connection to each server, sends a request straight to a server of its
// partition, and retries what the table of error codes says is worth it, until the request's deadline:
// lib/client/retry.h has the rules, lib/client/route.h the choice of the server.
//
// Invariants
//   * done is called exactly once, from the loop, never from inside the call; not at all once the client is gone.
//   * outcome_unknown means that the write may have happened, and any other error that it did not.
//   * A write to a quorum table happens at most once, however often it is sent (lib/client/lanes.h).
//   * Without retries in between, requests of one key go to one server over one connection, in the order of the calls.
// Threads: the loop's. Ownership: owns the connections; servers and maps outlive it.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/client/lanes.h"
#include "lib/client/retry.h"
#include "lib/client/route.h"
#include "lib/client/servers.h"
#include "lib/model/client_messages.h"
#include "lib/model/metadata.h"
#include "lib/rpc/identity.h"

namespace cantle::rpc {
class Peer;
}

namespace cantle::client {

template <class T>
using Done = std::function<void(base::Result<T>)>;
using MapPtr = std::shared_ptr<const model::Metadata>;

// Where maps come from: the table's metadata servers (lib/client/maps.h), or a test.
class MapSource {
 public:
  virtual ~MapSource() = default;
  // The newest map that can be had, at or past `at_least`; `have` may be null. no_such_table; unavailable.
  virtual void fetch(const std::string& table, MapPtr have, model::TxnSeq at_least, base::Duration timeout,
                     Done<MapPtr> done) = 0;
};

constexpr base::Duration kMapTimeout = std::chrono::seconds(3);
constexpr base::Duration kMapRefreshMin = std::chrono::milliseconds(50);
constexpr base::Duration kAnswerGrace = std::chrono::milliseconds(250);  // for an answer sent at its deadline

struct ClientOptions {
  rpc::Identity identity;
  RetryOptions retry;
  base::Duration attempt = std::chrono::seconds(2);  // one server has this long, then another is asked
};

struct WriteOptions {
  model::Level level = model::Level::majority;
  base::Duration timeout{0};  // 0: ClientOptions::retry.deadline
  bool may_divide = false;    // batch: a batch that spans partitions goes in parts, each atomic by itself
};
struct UpdateOptions {
  base::Duration timeout{0};
};
struct ReadOptions {
  model::Level level = model::Level::majority;
  base::Duration timeout{0};
};

struct ClientCounts {
  uint64_t requests = 0, attempts = 0, retries = 0, maps = 0;
  std::map<std::string, uint64_t> errors;  // of attempts, by code
};

class Client {
 public:
  Client(io::Loop& loop, Servers& servers, MapSource& maps, ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void get(const std::string& table, std::string key, const ReadOptions& options, Done<model::GetReply> done);
  void put(const std::string& table, std::string key, std::string value, const WriteOptions& options,
           Done<model::WriteReply> done);
  void remove(const std::string& table, std::string key, const WriteOptions& options, Done<model::WriteReply> done);
  // All or nothing within a partition; invalid when it spans partitions, unless may_divide. The reply of a divided
  // one is that of a part; its error the first.
  void batch(const std::string& table, std::vector<model::BatchOp> ops, const WriteOptions& options,
             Done<model::WriteReply> done);
  // Of quorum tables only; of others invalid. Repeated until the deadline as the same write, so it happens once; the
  // reply to a repeat is that to the write (`repeat` says so).
  // Puts the value, or without one deletes the key, if that is as expected: one member of `expect`. condition_failed:
  // it is not, and `detail` is the version that it has, in hex; empty: it is not there.
  void cas(const std::string& table, std::string key, model::Expect expect, std::optional<std::string> value,
           const UpdateOptions& options, Done<model::WriteReply> done);
  // The reply's `result` is the new length. too_large: it would be over kValueMax.
  void append(const std::string& table, std::string key, std::string bytes, const UpdateOptions& options,
              Done<model::WriteReply> done);
  // The reply's `result` is the new value. invalid: what is there is no number, or it would not fit.
  void incr(const std::string& table, std::string key, int64_t by, const UpdateOptions& options,
            Done<model::WriteReply> done);
  // One page; go on with its cursor until that is empty.
  void scan(model::ScanRequest request, base::Duration timeout, Done<model::ScanReply> done);

  // The map in hand if it is at or past `at_least`, else a new one.
  void with_map(const std::string& table, model::TxnSeq at_least, Done<MapPtr> done);
  MapPtr map_in_hand(const std::string& table) const;  // may be null
  // One call to one server, no retries.
  void call(const model::ServerId& server, std::string method, std::string params, base::Duration timeout,
            Done<std::string_view> done);

  // The next write is to come after this version. What this client itself wrote or got counts without it.
  void saw(const model::Version& version) {
    if (!version.none()) newest_ = std::max(newest_.value_or(version), version);
  }

  const ClientCounts& counts() const { return counts_; }
  Servers& servers() { return servers_; }
  io::Loop& loop() { return loop_; }

 private:
  friend class Flow;
  friend class WriteFlow;
  struct Table {
    MapPtr map;
    bool fetching = false;
    base::Instant fetched;
    struct Waiter {
      model::TxnSeq at_least;
      Done<MapPtr> done;
    };
    std::vector<Waiter> waiting;
  };
  void fetch_map(const std::string& table, model::TxnSeq at_least);
  void got_map(const std::string& table, base::Result<MapPtr> map);
  void refresh_in_background(const std::string& table);
  base::Result<rpc::Peer*> peer(const model::ServerId& server);
  void after(base::Duration delay, std::function<void()> fn);

  io::Loop& loop_;
  Servers& servers_;
  MapSource& maps_;
  ClientOptions options_;
  base::SystemRandom random_;
  Lanes lanes_{random_};
  Health health_;
  ClientCounts counts_;
  std::optional<model::Version> newest_;  // that it wrote or read: the next write comes after it
  std::map<std::string, Table> tables_;
  std::map<model::PartitionId, model::ServerId> leaders_;  // of quorum tables, as somebody said last
  std::map<model::PartitionId, uint64_t> seen_;            // likewise: the highest LSN that it was told
  std::map<model::ServerId, std::unique_ptr<rpc::Peer>> peers_;
  std::list<std::unique_ptr<io::Timer>> timers_;
};

}  // namespace cantle::client

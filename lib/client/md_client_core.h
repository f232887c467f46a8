// The inside of MdClient; for md_client.cc, md_changes.cc and map_follower.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/client/md_client.h"
#include "lib/io/loop.h"
#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::client {

struct MdClient::Core : std::enable_shared_from_this<MdClient::Core> {
  template <class T>
  using Done = MdClient::Done<T>;

  Core(io::Loop& l, coord::Session& s, coord::Layout at, Servers& known, rpc::Identity who)
      : loop(l), session(s), layout(std::move(at)), servers(known), identity(std::move(who)) {}

  io::Loop& loop;
  coord::Session& session;
  coord::Layout layout;
  Servers& servers;
  rpc::Identity identity;
  base::SystemRandom random;
  std::map<model::ServerId, std::unique_ptr<rpc::Peer>> peers;
  std::map<std::string, wire::MetadataFile> maps;     // newest handed out, by table
  std::map<std::string, model::TableConfig> configs;  // as last read: who to ask when the service is away
  std::map<std::string, model::ServerId> answered;    // who answered last

  base::Instant now() { return loop.now(); }
  // `fn` later, unless the client is gone by then.
  void after(base::Duration delay, std::function<void()> fn);

  void read_config(const std::string& table, base::Instant deadline, Done<model::TableConfig> done);
  // Those to ask, best first. From a fresh TableConfig, or the last one when the service is away.
  // `known`: the list as last read is good enough, since whoever is asked knows better.
  void members(const std::string& table, bool known, base::Instant deadline, Done<std::vector<model::ServerId>> done);
  std::vector<model::ServerId> order(const std::string& table, std::vector<model::ServerId> list) const;
  // One request to one server.
  void call(const model::ServerId& to, std::string_view method, std::string_view params, base::Duration timeout,
            Done<std::string_view> done);
  // The address of a server, looked up anew when it is not known.
  void with_peer(const model::ServerId& to, base::Duration timeout, std::function<void(base::Result<rpc::Peer*>)> done);

  // A question that any member can answer: asked around until the deadline.
  void ask(const std::string& table, std::string method, std::string params, base::Instant deadline,
           Done<std::string_view> done);
  template <class Reply>
  void ask_for(const std::string& table, std::string method, std::string params, base::Instant deadline,
               Done<Reply> done) {
    ask(table, std::move(method), std::move(params), deadline,
        [done = std::move(done)](base::Result<std::string_view> bytes) {
          if (!bytes) return done(base::fail(std::move(bytes).error()));
          done(wire::decode<Reply>(*bytes));
        });
  }
  template <class Reply>
  void call_for(const model::ServerId& to, std::string_view method, std::string_view params, base::Duration timeout,
                Done<Reply> done) {
    call(to, method, params, timeout, [done = std::move(done)](base::Result<std::string_view> bytes) {
      if (!bytes) return done(base::fail(std::move(bytes).error()));
      done(wire::decode<Reply>(*bytes));
    });
  }
};

// Waits between rounds, doubled and jittered.
class MdBackoff {
 public:
  base::Duration next(base::Random& random) {
    wait_ = wait_.count() == 0 ? kMdRetryFirst : std::min<base::Duration>(wait_ * 2, kMdRetryMost);
    return wait_ / 2 + base::Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(wait_.count() / 2 + 1))));
  }

 private:
  base::Duration wait_{0};
};

// Whether another server may answer better.
bool worth_asking_another(base::Code code);

}  // namespace cantle::client

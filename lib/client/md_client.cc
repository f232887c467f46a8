#include "lib/client/md_client.h"

#include <algorithm>

#include "lib/client/md_client_core.h"
#include "lib/io/timer.h"

namespace cantle::client {

using base::Code;

bool worth_asking_another(Code code) {
  switch (code) {
    case Code::unavailable:
    case Code::outcome_unknown:  // of a question: the answer was lost
    case Code::overloaded:
    case Code::catching_up:
    case Code::regressed:
    case Code::faulted:
    case Code::stale_route: return true;
    default: return false;
  }
}

// --- the core -------------------------------------------------------------------------------------------------

void MdClient::Core::after(base::Duration delay, std::function<void()> fn) {
  auto timer = std::make_shared<std::unique_ptr<io::Timer>>();
  *timer = std::make_unique<io::Timer>(loop, [weak = weak_from_this(), timer, fn = std::move(fn)] {
    const auto keep = std::move(*timer);
    if (weak.lock()) fn();
  });
  (*timer)->start(delay);
}

void MdClient::Core::read_config(const std::string& table, base::Instant deadline, Done<model::TableConfig> done) {
  const auto d = coord::distribution(model::Keyspace::range, table);
  const auto path = layout.config(d);
  auto retry = [weak = weak_from_this(), table, deadline](base::Error error, Done<model::TableConfig> then) {
    const auto self = weak.lock();
    if (!self) return;
    if (self->now() + kMdRetryFirst >= deadline) return then(base::fail(std::move(error)));
    self->after(kMdRetryFirst, [self_weak = weak, table, deadline, then = std::move(then)] {
      if (const auto s = self_weak.lock()) s->read_config(table, deadline, then);
    });
  };
  session.sync(path, [weak = weak_from_this(), path, table, retry,
                      done = std::move(done)](base::Result<base::Nothing> synced) mutable {
    const auto self = weak.lock();
    if (!self) return;
    if (!synced) return retry(std::move(synced).error(), std::move(done));
    self->session.get(path, nullptr,
                      [weak, table, retry, done = std::move(done)](base::Result<coord::Node> node) mutable {
                        const auto s = weak.lock();
                        if (!s) return;
                        if (!node && node.error().code == Code::not_found)
                          return done(base::fail(Code::no_such_table, "there is no table " + table));
                        if (!node) return retry(std::move(node).error(), std::move(done));
                        auto config = model::parse_table_config(node->value);
                        if (!config) return done(base::fail(std::move(config).error()));
                        s->configs[table] = *config;
                        done(std::move(*config));
                      });
  });
}

std::vector<model::ServerId> MdClient::Core::order(const std::string& table, std::vector<model::ServerId> list) const {
  if (const auto it = answered.find(table); it != answered.end()) {
    const auto at = std::find(list.begin(), list.end(), it->second);
    if (at != list.end()) std::rotate(list.begin(), at, at + 1);
  }
  return list;
}

void MdClient::Core::members(const std::string& table, bool known, base::Instant deadline,
                             Done<std::vector<model::ServerId>> done) {
  const auto before = configs.find(table);
  // While the service is away, those it named last are asked: they may answer what is stale.
  if (before != configs.end() && (known || !session.connected()))
    return done(order(table, before->second.metadata_servers));
  read_config(table, std::min(deadline, now() + kMdAttempt),
              [weak = weak_from_this(), table, done = std::move(done)](base::Result<model::TableConfig> config) {
                const auto self = weak.lock();
                if (!self) return;
                if (config) return done(self->order(table, config->metadata_servers));
                const auto last = self->configs.find(table);
                if (config.error().code == Code::unavailable && last != self->configs.end())
                  return done(self->order(table, last->second.metadata_servers));
                done(base::fail(std::move(config).error()));
              });
}

void MdClient::Core::with_peer(const model::ServerId& to, base::Duration,
                               std::function<void(base::Result<rpc::Peer*>)> done) {
  const auto there = peers.find(to);
  if (there != peers.end() && there->second->connected()) return done(there->second.get());
  servers.refresh([weak = weak_from_this(), to, done = std::move(done)] {
    const auto self = weak.lock();
    if (!self) return;
    const auto* entry = self->servers.find(to);
    if (entry == nullptr)
      return done(base::fail(Code::unavailable, "metadata server " + to.name + " is not registered"));
    auto address = entry->address();
    if (!address) return done(base::fail(Code::unavailable, to.name + ": " + address.error().text));
    auto& peer = self->peers[to];
    if (!peer)
      peer = std::make_unique<rpc::Peer>(self->loop, *address, rpc::PeerOptions{.identity = self->identity});
    else if (!(peer->address() == *address))
      peer->move_to(*address);
    done(peer.get());
  });
}

void MdClient::Core::call(const model::ServerId& to, std::string_view method, std::string_view params,
                          base::Duration timeout, Done<std::string_view> done) {
  with_peer(to, timeout,
            [method = std::string(method), params = std::string(params), timeout,
             done = std::move(done)](base::Result<rpc::Peer*> peer) {
              if (!peer) return done(base::fail(std::move(peer).error()));
              (*peer)->call(method, params, timeout, done);
            });
}

namespace {

// Asks one member after the other, round after round.
struct Round : std::enable_shared_from_this<Round> {
  std::weak_ptr<MdClient::Core> core;
  std::string table, method, params;
  base::Instant deadline;
  MdClient::Done<std::string_view> done;
  std::vector<model::ServerId> list;
  size_t at = 0;
  MdBackoff backoff;
  base::Error last{Code::unavailable, "nobody answered"};
  bool known = true;  // in the first round

  void begin() {
    const auto c = core.lock();
    if (!c) return;
    c->members(table, std::exchange(known, false), deadline,
               [self = shared_from_this()](base::Result<std::vector<model::ServerId>> members) {
                 if (members) {
                   self->list = std::move(*members);
                   self->at = 0;
                   return self->next();
                 }
                 if (!worth_asking_another(members.error().code))
                   return self->done(base::fail(std::move(members).error()));
                 self->last = std::move(members).error();
                 self->wait();
               });
  }
  void next() {
    const auto c = core.lock();
    if (!c) return;
    if (at >= list.size()) return wait();
    const auto to = list[at++];
    const auto left = deadline - c->now();
    if (left <= base::Duration::zero()) return done(base::fail(last));
    c->call(to, method, params, std::min<base::Duration>(left, kMdAttempt),
            [self = shared_from_this(), to](base::Result<std::string_view> reply) {
              const auto again = self->core.lock();
              if (!again) return;
              if (reply) {
                again->answered[self->table] = to;
                return self->done(reply);
              }
              if (!worth_asking_another(reply.error().code)) return self->done(base::fail(std::move(reply).error()));
              self->last = std::move(reply).error().wrap(to.name);
              // A question that may have been heard was not answered: that is all there is to know of it.
              if (self->last.code == Code::outcome_unknown) self->last.code = Code::unavailable;
              self->next();
            });
  }
  void wait() {
    const auto c = core.lock();
    if (!c) return;
    const auto pause = backoff.next(c->random);
    if (c->now() + pause >= deadline) return done(base::fail(last));
    c->after(pause, [self = shared_from_this()] { self->begin(); });
  }
};

}  // namespace

void MdClient::Core::ask(const std::string& table, std::string method, std::string params, base::Instant deadline,
                         Done<std::string_view> done) {
  auto round = std::make_shared<Round>();
  round->core = weak_from_this();
  round->table = table;
  round->method = std::move(method);
  round->params = std::move(params);
  round->deadline = deadline;
  round->done = std::move(done);
  round->begin();
}

// --- the doors ------------------------------------------------------------------------------------------------

MdClient::MdClient(io::Loop& loop, coord::Session& session, coord::Layout layout, Servers& servers,
                   rpc::Identity identity)
    : core_(std::make_shared<Core>(loop, session, std::move(layout), servers, std::move(identity))) {}
MdClient::~MdClient() = default;

io::Loop& MdClient::loop() { return core_->loop; }
coord::Session& MdClient::session() { return core_->session; }
const coord::Layout& MdClient::layout() const { return core_->layout; }

void MdClient::config(const std::string& table, base::Duration timeout, Done<model::TableConfig> done) {
  core_->read_config(table, core_->now() + timeout, std::move(done));
}

MdClient::MapPtr MdClient::map_in_hand(const std::string& table) const {
  const auto it = core_->maps.find(table);
  return it != core_->maps.end() ? it->second.map : nullptr;
}

void MdClient::find(model::MdFind request, base::Duration timeout, Done<model::MdFindReply> done) {
  const auto params = wire::encode(request);
  core_->ask_for<model::MdFindReply>(request.table, "md.find", params, core_->now() + timeout, std::move(done));
}

void MdClient::discover(model::MdDiscover request, base::Duration timeout, Done<model::MdDiscoverReply> done) {
  const auto params = wire::encode(request);
  core_->ask_for<model::MdDiscoverReply>(request.table, "md.discover", params, core_->now() + timeout, std::move(done));
}

void MdClient::outcome(const std::string& table, model::ChangeId change, model::TxnSeq since, base::Duration timeout,
                       Done<model::MdOutcomeReply> done) {
  core_->ask_for<model::MdOutcomeReply>(table, "md.outcome",
                                        wire::encode(model::MdOutcome{table, change, since, false}),
                                        core_->now() + timeout, std::move(done));
}

void MdClient::join(const std::string& table, const model::ServerId& server, base::Duration timeout,
                    Done<model::MdMembersReply> done) {
  core_->call_for<model::MdMembersReply>(server, "md.join", wire::encode(model::MdJoin{table}), timeout,
                                         std::move(done));
}

void MdClient::leave(const std::string& table, const model::ServerId& server, base::Duration timeout,
                     Done<model::MdMembersReply> done) {
  core_->ask_for<model::MdMembersReply>(table, "md.leave", wire::encode(model::MdLeave{table, server}),
                                        core_->now() + timeout, std::move(done));
}

void MdClient::status(const model::ServerId& server, base::Duration timeout, Done<model::MdStatusReply> done) {
  core_->call_for<model::MdStatusReply>(server, "status", {}, timeout, std::move(done));
}

base::Status turn_until(io::Loop& loop, base::Duration limit, const std::function<bool()>& done) {
  if (loop.run_for(limit, done)) return base::ok();
  return base::fail(Code::outcome_unknown, "no answer in " + std::to_string(base::to_ms(limit)) + " ms");
}

}  // namespace cantle::client

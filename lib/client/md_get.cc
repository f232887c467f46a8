// MdClient::get: brings the current map here, verified.
#include <algorithm>

#include "lib/client/md_client_core.h"

namespace cantle::client {
namespace {

using base::Code;

// Rounds of: read TableConfig (unless stale_ok and the service is away), md.get, md.fetch for what is missing.
struct Get : std::enable_shared_from_this<Get> {
  std::weak_ptr<MdClient::Core> core;
  std::string table;
  model::TxnSeq at_least;
  base::Instant deadline;
  bool stale_ok = false;
  MdClient::Done<MdClient::MapPtr> done;

  std::optional<model::TableConfig> config;
  std::vector<model::ServerId> list;
  size_t at = 0;
  MdBackoff backoff;
  base::Error last{Code::unavailable, "nobody answered"};
  model::MdGetReply reply;
  wire::NodeHash root{};
  std::map<wire::NodeHash, std::string> nodes;

  void fail(base::Error error) { done(base::fail(std::move(error))); }

  void begin() {
    const auto c = core.lock();
    if (!c) return;
    nodes.clear();
    config.reset();
    const auto known = c->configs.find(table);
    if (stale_ok && !c->session.connected() && known != c->configs.end()) {
      list = c->order(table, known->second.metadata_servers);
      at = 0;
      return next();
    }
    c->read_config(
        table, std::min(deadline, c->now() + kMdAttempt),
        [self = shared_from_this()](base::Result<model::TableConfig> read) {
          const auto again = self->core.lock();
          if (!again) return;
          if (!read) {
            const auto last_known = again->configs.find(self->table);
            if (self->stale_ok && read.error().code == Code::unavailable && last_known != again->configs.end()) {
              self->list = again->order(self->table, last_known->second.metadata_servers);
              self->at = 0;
              return self->next();
            }
            if (read.error().code != Code::unavailable) return self->fail(std::move(read).error());
            self->last = std::move(read).error();
            return self->wait();
          }
          self->got_config(*again, std::move(*read));
        });
  }

  void got_config(MdClient::Core& c, model::TableConfig read) {
    const auto in_hand = c.maps.find(table);
    if (in_hand != c.maps.end() && in_hand->second.map->table == read.table_uuid) {
      const auto& map = *in_hand->second.map;
      const bool behind =
          read.metadata_txnseq < map.txnseq || (read.metadata_txnseq == map.txnseq && read.metadata_txnid != map.txnid);
      if (behind)  // S36
        return fail(base::Error(Code::regressed, "the coordination service shows txnseq " +
                                                     to_string(read.metadata_txnseq) + " of " + table + ", after " +
                                                     to_string(map.txnseq)));
      if (read.metadata_txnid == map.txnid && map.txnseq >= at_least) return done(in_hand->second.map);
    }
    list = c.order(table, read.metadata_servers);
    at = 0;
    config = std::move(read);
    next();
  }

  void next() {
    const auto c = core.lock();
    if (!c) return;
    if (at >= list.size()) return wait();
    model::MdGet request;
    request.table = table;
    request.stale_ok = stale_ok;
    request.min_txnseq = config ? std::max(at_least, config->metadata_txnseq) : at_least;
    if (const auto it = c->maps.find(table); it != c->maps.end()) request.have_txnid = it->second.map->txnid;
    const auto to = list[at++];
    c->call_for<model::MdGetReply>(to, "md.get", wire::encode(request), left(*c),
                                   [self = shared_from_this(), to](base::Result<model::MdGetReply> r) {
                                     if (!self->core.lock()) return;
                                     if (!r) {
                                       self->last = std::move(r).error().wrap(to.name);
                                       return self->next();
                                     }
                                     self->got(to, std::move(*r));
                                   });
  }
  base::Duration left(MdClient::Core& c) const {
    return std::clamp<base::Duration>(deadline - c.now(), std::chrono::milliseconds(1), kMdAttempt);
  }

  void got(const model::ServerId& from, model::MdGetReply r) {
    const auto c = core.lock();
    const auto hash = wire::node_hash(r.hash);
    if (!hash) return reject(from, "a hash of another length");
    // What TableConfig names is the only valid file with that txnseq; one that is newer is looked up again.
    if (config && r.txnseq == config->metadata_txnseq &&
        (r.txnid != config->metadata_txnid || r.hash != config->metadata_hash))
      return reject(from, "another file than TableConfig names");
    if (config && r.txnseq > config->metadata_txnseq) return wait();
    const auto in_hand = c->maps.find(table);
    if (in_hand != c->maps.end() && in_hand->second.map->table == r.table_uuid &&
        r.txnseq < in_hand->second.map->txnseq)
      return reject(from, "an older map than the one in hand");
    if (r.unchanged && in_hand != c->maps.end() && in_hand->second.map->txnid == r.txnid)
      return answer(*c, in_hand->second);
    root = *hash;
    for (auto& n : r.nodes) nodes.emplace(wire::hash_of_node(n), std::move(n));
    r.nodes.clear();
    reply = std::move(r);
    fetch(from);
  }

  void reject(const model::ServerId& from, const std::string& why) {
    last = base::Error(Code::unavailable, from.name + " answered with " + why);
    next();
  }

  const wire::MetadataFile* base(MdClient::Core& c) const {
    const auto it = c.maps.find(table);
    return it != c.maps.end() && it->second.map->table == reply.table_uuid ? &it->second : nullptr;
  }

  // The nodes that are missing: neither delivered nor in the map in hand.
  void fetch(const model::ServerId& from) {
    const auto c = core.lock();
    if (!c) return;
    const auto lookup = [this](const wire::NodeHash& h) -> const std::string* {
      const auto it = nodes.find(h);
      return it != nodes.end() ? &it->second : nullptr;
    };
    auto file = wire::decode_metadata(root, lookup, base(*c));
    if (file) return verified(*c, std::move(*file));
    if (file.error().code != Code::not_found) return reject(from, file.error().text);
    auto missing = wire::missing_nodes(root, lookup);
    if (!missing) return reject(from, missing.error().text);
    if (const auto* b = base(*c)) {
      // What the map in hand shares needs not be fetched.
      std::set<wire::NodeHash> shared;
      for (const auto& inner : b->tree->inners)
        if (inner) shared.insert(inner->leaves.begin(), inner->leaves.end()), shared.insert(inner->hash);
      std::erase_if(*missing, [&](const auto& h) { return shared.contains(h); });
      if (missing->empty()) return reject(from, "nodes that do not fit");
    }
    if (missing->size() > model::kMdFetchNodes) missing->resize(model::kMdFetchNodes);
    model::MdFetch request{table, reply.table_uuid, {}};
    for (const auto& h : *missing) request.hashes.emplace_back(wire::view(h));
    c->call_for<model::MdFetchReply>(from, "md.fetch", wire::encode(request), left(*c),
                                     [self = shared_from_this(), from](base::Result<model::MdFetchReply> r) {
                                       if (!self->core.lock()) return;
                                       const auto before = self->nodes.size();
                                       if (r)
                                         for (auto& n : r->nodes)
                                           if (!n.empty()) self->nodes.emplace(wire::hash_of_node(n), std::move(n));
                                       if (self->nodes.size() == before)
                                         return self->reject(from, r ? "nothing that was asked for" : r.error().text);
                                       self->fetch(from);
                                     });
  }

  void verified(MdClient::Core& c, wire::MetadataFile file) {
    if (file.map->txnid != reply.txnid || file.map->txnseq != reply.txnseq || file.map->name != table) return wait();
    auto& slot = c.maps[table];
    slot = std::move(file);
    answer(c, slot);
  }

  void answer(MdClient::Core& c, const wire::MetadataFile& file) {
    if (at > 0 && at <= list.size()) c.answered[table] = list[at - 1];
    if (file.map->txnseq < at_least) return wait();
    done(file.map);
  }

  void wait() {
    const auto c = core.lock();
    if (!c) return;
    const auto pause = backoff.next(c->random);
    if (c->now() + pause >= deadline) return fail(last);
    c->after(pause, [self = shared_from_this()] { self->begin(); });
  }
};

}  // namespace

void MdClient::get(const std::string& table, model::TxnSeq at_least, base::Duration timeout, Done<MapPtr> done,
                   bool stale_ok) {
  auto get = std::make_shared<Get>();
  get->core = core_;
  get->table = table;
  get->at_least = at_least;
  get->deadline = core_->now() + timeout;
  get->stale_ok = stale_ok;
  get->done = std::move(done);
  get->begin();
}

}  // namespace cantle::client

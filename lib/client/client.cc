#include "lib/client/client.h"

#include <algorithm>
#include <charconv>

#include "lib/base/bytes.h"
#include "lib/client/flow.h"
#include "lib/io/loop.h"
#include "lib/rpc/peer.h"
#include "lib/wire/codec.h"

namespace cantle::client {

using base::Code;

Client::Client(io::Loop& loop, Servers& servers, MapSource& maps, ClientOptions options)
    : loop_(loop), servers_(servers), maps_(maps), options_(std::move(options)) {}
Client::~Client() = default;

// --- maps -----------------------------------------------------------------------------------------

MapPtr Client::map_in_hand(const std::string& table) const {
  const auto it = tables_.find(table);
  return it == tables_.end() ? nullptr : it->second.map;
}

void Client::with_map(const std::string& table, model::TxnSeq at_least, Done<MapPtr> done) {
  auto& t = tables_[table];
  if (t.map && t.map->txnseq >= at_least) return loop_.defer([done = std::move(done), map = t.map] { done(map); });
  t.waiting.push_back({at_least, std::move(done)});
  if (!t.fetching) fetch_map(table, at_least);
}

void Client::refresh_in_background(const std::string& table) {
  auto& t = tables_[table];
  if (!t.fetching && loop_.now() >= t.fetched + kMapRefreshMin) fetch_map(table, {});
}

void Client::fetch_map(const std::string& table, model::TxnSeq at_least) {
  auto& t = tables_[table];
  t.fetching = true;
  ++counts_.maps;
  maps_.fetch(table, t.map, at_least, kMapTimeout,
              [this, table](base::Result<MapPtr> map) { got_map(table, std::move(map)); });
}

void Client::got_map(const std::string& table, base::Result<MapPtr> map) {
  auto& t = tables_[table];
  t.fetching = false;
  t.fetched = loop_.now();
  // A table that was dropped and created again counts from 1.
  if (map && (!t.map || (*map)->txnseq > t.map->txnseq || (*map)->table != t.map->table)) t.map = *map;
  std::vector<Table::Waiter> ready, later;
  for (auto& w : t.waiting) {
    const bool served = t.map && t.map->txnseq >= w.at_least;
    (served || !map ? ready : later).push_back(std::move(w));
  }
  t.waiting = std::move(later);
  if (!t.waiting.empty()) {
    model::TxnSeq at_least;
    for (const auto& w : t.waiting) at_least = std::max(at_least, w.at_least);
    fetch_map(table, at_least);
  }
  const MapPtr in_hand = t.map;
  for (auto& w : ready) {
    if (in_hand && in_hand->txnseq >= w.at_least)
      w.done(in_hand);
    else
      w.done(base::fail(map.error()));
  }
}

// --- servers ----------------------------------------------------------------------------------------

base::Result<rpc::Peer*> Client::peer(const model::ServerId& server) {
  const ServerEntry* entry = servers_.find(server);
  if (!entry) return base::fail(Code::unavailable, "nothing is known of server " + server.name);
  auto& peer = peers_[server];
  if (peer && peer->connected()) return peer.get();
  TRY_ASSIGN(const auto address, entry->address());  // looks whether its socket is there
  if (!peer)
    peer = std::make_unique<rpc::Peer>(loop_, address, rpc::PeerOptions{.identity = options_.identity});
  else if (!(peer->address() == address))
    peer->move_to(address);
  return peer.get();
}

void Client::call(const model::ServerId& server, std::string method, std::string params, base::Duration timeout,
                  Done<std::string_view> done) {
  auto known = peer(server);
  if (known) return (*known)->call(method, params, timeout, std::move(done));
  // Never heard of: it may have registered since the last look.
  servers_.refresh([this, server, method = std::move(method), params = std::move(params), timeout,
                    done = std::move(done)]() mutable {
    auto found = peer(server);
    if (!found) return done(base::fail(found.error()));
    (*found)->call(method, params, timeout, std::move(done));
  });
}

void Client::after(base::Duration delay, std::function<void()> fn) {
  auto& slot = timers_.emplace_back();
  auto at = std::prev(timers_.end());
  slot = std::make_unique<io::Timer>(loop_, [this, at, fn = std::move(fn)]() mutable {
    const auto run = std::move(fn);  // the timer, and this function with it, ends first
    timers_.erase(at);
    run();
  });
  slot->start(delay);
}

// --- reads --------------------------------------------------------------------------------------------

namespace {

class GetFlow final : public Flow {
 public:
  GetFlow(Client& client, const std::string& table, std::string key, const ReadOptions& options,
          Done<model::GetReply> done)
      : Flow(client, table, Purpose::read, options.timeout), done_(std::move(done)) {
    request_.table = table;
    request_.key = std::move(key);
    request_.level = options.level;
    request_.hop = false;
  }

 private:
  const model::Partition* locate(const model::Metadata& map) override {
    const auto* partition = map.find(request_.key);
    if (!partition) give_up({Code::corrupt, "the map has no partition for the key"});
    return partition;
  }
  uint64_t spread() const override { return base::hash128(request_.key).low; }
  bool needs_leader() const override { return model::is_linearizable(request_.level); }
  std::string_view method() const override { return "get"; }
  std::string encode(model::TxnSeq txnseq, uint32_t deadline_ms) override {
    request_.txnseq = txnseq;
    request_.deadline_ms = deadline_ms;
    if (request_.level == model::Level::session) request_.session = session_token();
    return wire::encode(request_);
  }
  base::Status succeeded(std::string_view result) override {
    TRY_ASSIGN(auto reply, wire::decode<model::GetReply>(result));
    if (reply.lsn) saw_lsn(*reply.lsn);
    client_.saw(reply.version);
    done_(std::move(reply));
    return base::ok();
  }
  void failed(const base::Error& error) override {
    // That it was not there is something that was seen, too.
    uint64_t lsn = 0;
    const auto* end = error.detail.data() + error.detail.size();
    if (error.code == Code::not_found && std::from_chars(error.detail.data(), end, lsn).ec == std::errc()) saw_lsn(lsn);
    done_(base::fail(error));
  }

  model::GetRequest request_;
  Done<model::GetReply> done_;
};

class ScanFlow final : public Flow {
 public:
  ScanFlow(Client& client, model::ScanRequest request, base::Duration timeout, Done<model::ScanReply> done)
      : Flow(client, request.table, Purpose::read, timeout), request_(std::move(request)), done_(std::move(done)) {
    // The state that a consistent scan goes on in is at one server, whoever leads by now.
    const auto cursor = model::decode_cursor(request_.cursor);
    request_.hop = cursor && cursor->kept != 0;
  }

 private:
  const model::Partition* locate(const model::Metadata& map) override {
    const auto start = model::scan_start(request_);
    if (!start) {
      give_up(start.error());
      return nullptr;
    }
    const auto* partition = model::scan_partition(map, *start);
    if (!partition) give_up({Code::corrupt, "the map has no partition where the scan goes on"});
    return partition;
  }
  // Scans of one range stay with one server, so that pages follow each other.
  uint64_t spread() const override { return base::hash128(request_.begin).low; }
  bool needs_leader() const override { return model::is_linearizable(request_.level); }
  std::string_view method() const override { return "scan"; }
  std::string encode(model::TxnSeq txnseq, uint32_t deadline_ms) override {
    request_.txnseq = txnseq;
    request_.deadline_ms = deadline_ms;
    if (request_.level == model::Level::session) request_.session = session_token();
    return wire::encode(request_);
  }
  base::Status succeeded(std::string_view result) override {
    TRY_ASSIGN(auto reply, wire::decode<model::ScanReply>(result));
    saw_lsn(reply.lsn.value);
    done_(std::move(reply));
    return base::ok();
  }
  void failed(const base::Error& error) override { done_(base::fail(error)); }

  model::ScanRequest request_;
  Done<model::ScanReply> done_;
};

}  // namespace

void Client::get(const std::string& table, std::string key, const ReadOptions& options, Done<model::GetReply> done) {
  std::make_shared<GetFlow>(*this, table, std::move(key), options, std::move(done))->begin();
}

void Client::scan(model::ScanRequest request, base::Duration timeout, Done<model::ScanReply> done) {
  std::make_shared<ScanFlow>(*this, std::move(request), timeout, std::move(done))->begin();
}

}  // namespace cantle::client

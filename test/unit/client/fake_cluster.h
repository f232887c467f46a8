// FakeCluster: partition servers that answer from one map in memory, over real sockets on one loop, and do what a
// test tells them: refuse, stay silent, break the connection.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "lib/client/await.h"
#include "lib/client/client.h"
#include "lib/io/loop.h"
#include "lib/rpc/server.h"
#include "lib/wire/codec.h"

namespace cantle::client {

using namespace std::chrono_literals;

inline model::Assignment assignment(const std::string& server, uint32_t slot) {
  static base::SeededRandom random(4);
  model::Assignment a;
  a.server = {server};
  a.id = model::AssignmentId::draw(random);
  a.slot = slot;
  a.state = model::AssignmentState::available;
  return a;
}

// A map of range partitions that begin at `borders` ("" first), each on all servers.
inline MapPtr map_of(uint64_t txnseq, const std::vector<std::string>& borders,
                     const std::vector<std::string>& servers = {"p1", "p2", "p3"}) {
  auto map = std::make_shared<model::Metadata>();
  map->name = "t";
  map->txnseq.value = txnseq;
  std::vector<model::Partition> partitions;
  for (size_t i = 0; i < borders.size(); ++i) {
    model::Partition p;
    p.region.value = static_cast<uint32_t>(txnseq * 10 + i);
    p.interval = {borders[i], i + 1 < borders.size() ? borders[i + 1] : ""};
    p.min_txnseq.value = txnseq;
    for (const auto& server : servers)
      p.assignments.push_back(assignment(server, static_cast<uint32_t>(p.assignments.size())));
    partitions.push_back(std::move(p));
  }
  map->partitions = model::Partitions(std::move(partitions));
  return map;
}

// The same, of a quorum table.
inline MapPtr quorum_map_of(uint64_t txnseq, const std::vector<std::string>& borders,
                            const std::vector<std::string>& servers = {"p1", "p2", "p3"}) {
  auto map = std::make_shared<model::Metadata>(*map_of(txnseq, borders, servers));
  map->replication = model::Replication::quorum;
  return map;
}

// What every request says, and what a numbered write does.
struct AnyRequest {
  std::string key;
  model::TxnSeq txnseq;
  std::optional<uint64_t> client, series, series_low, age_ms;
  CANTLE_FIELDS(key, txnseq, client, series, series_low, age_ms)
};

class FakeCluster : public Servers, public MapSource {
 public:
  explicit FakeCluster(io::Loop& loop) : loop_(loop) {
    char dir[] = "/tmp/cantle-client-XXXXXX";
    dir_ = ::mkdtemp(dir);
    for (const char* name : {"p1", "p2", "p3"}) start(name);
    maps = {map_of(1, {""})};
  }
  ~FakeCluster() override {
    nodes_.clear();
    for (const char* name : {"p1", "p2", "p3"}) ::unlink((dir_ + "/" + name).c_str());
    ::rmdir(dir_.c_str());
  }

  void start(const std::string& name) {
    auto& node = nodes_[{name}];
    node = std::make_unique<rpc::Server>(loop_, rpc::Identity{});
    EXPECT_TRUE(node->listen(*io::parse_address("unix:" + dir_ + "/" + name)));
    for (const char* method : {"get", "put", "delete", "batch", "cas", "append", "incr", "scan"})
      node->handle(method,
                   [this, name](const rpc::Call& call, rpc::Responder responder) { serve(name, call, responder); });
    auto& entry = entries_[{name}];
    entry.id = {name};
    entry.active.unix_socket = dir_ + "/" + name;
  }
  void stop(const std::string& name) { nodes_[{name}].reset(); }

  // --- what a test sets
  std::vector<MapPtr> maps;    // maps.front() is what a client gets until it asks for a later one
  uint64_t served_txnseq = 0;  // below it: STALE_ROUTE
  // Called before a request is served: an error is answered instead; `silent` answers nothing.
  std::function<std::optional<base::Error>(const std::string& server, std::string_view method)> before;
  std::function<void(const std::string& server)> after;  // applied, and not yet answered
  // Called behind that: an error is answered instead.
  std::function<std::optional<base::Error>(const std::string& server)> lost;
  bool silent = false;
  // --- what it sees
  std::map<std::string, std::string> records;
  std::vector<std::string> log;                         // "p1 put a"
  std::vector<std::optional<model::Version>> versions;  // of writes
  std::vector<std::optional<model::Version>> afters;    // of writes
  std::vector<AnyRequest> numbers;                      // of writes that have one, repeats too
  model::Version stamp;                                 // of every answer
  uint64_t lsn = 0;                                     // likewise
  std::function<void(const model::GetRequest&)> on_get;
  uint64_t fetches = 0;

  const ServerEntry* find(const model::ServerId& id) const override {
    const auto it = entries_.find(id);
    return it == entries_.end() ? nullptr : &it->second;
  }
  std::vector<ServerEntry> all() const override {
    std::vector<ServerEntry> list;
    for (const auto& [id, e] : entries_) list.push_back(e);
    return list;
  }
  void refresh(std::function<void()> done) override { loop_.defer(std::move(done)); }
  void fetch(const std::string& table, MapPtr, model::TxnSeq at_least, base::Duration, Done<MapPtr> done) override {
    ++fetches;
    base::Result<MapPtr> result = base::fail(base::Code::no_such_table, "there is no table " + table);
    if (table == "t") {
      result = maps.front();
      for (const auto& m : maps)
        if ((*result)->txnseq < at_least) result = m;
    }
    loop_.defer([done = std::move(done), result] { done(result); });
  }

 private:
  void serve(const std::string& name, const rpc::Call& call, const rpc::Responder& responder) {
    const auto any = wire::decode<AnyRequest>(call.params);
    log.push_back(name + " " + std::string(call.method) + " " + any->key);
    if (silent) {
      kept_.push_back(responder);
      return;
    }
    if (before)
      if (auto error = before(name, call.method)) return responder.fail(*error);
    if (any->txnseq.value < served_txnseq) {
      base::Error stale(base::Code::stale_route, "the map is old");
      stale.txnseq = served_txnseq;
      return responder.fail(stale);
    }
    const auto answer = once(*any, call);
    if (after) after(name);
    if (lost)
      if (auto error = lost(name)) return responder.fail(*error);
    if (!answer) return responder.fail(answer.error());
    responder.ok(*answer);
  }

  // A numbered write takes effect once, whichever server is asked.
  base::Result<std::string> once(const AnyRequest& any, const rpc::Call& call) {
    if (!any.series) return apply(call);
    numbers.push_back(any);
    const auto it = remembered_.find({*any.client, *any.series});
    if (it == remembered_.end()) {
      auto answer = apply(call);
      if (answer) remembered_[{*any.client, *any.series}] = *answer;  // a refusal is not remembered
      return answer;
    }
    auto reply = *wire::decode<model::WriteReply>(it->second);
    reply.repeat = true;
    return wire::encode(reply);
  }

  base::Result<std::string> apply(const rpc::Call& call) {
    model::WriteReply reply;
    reply.version = stamp;
    reply.lsn.value = lsn;
    if (call.method == "get") {
      const auto request = *wire::decode<model::GetRequest>(call.params);
      if (on_get) on_get(request);
      if (!records.contains(request.key)) return base::fail(base::Code::not_found, "no such key");
      model::GetReply got;
      got.value = records[request.key];
      got.version = stamp;
      got.lsn = lsn;
      return wire::encode(got);
    }
    if (call.method == "put") {
      const auto r = wire::decode<model::PutRequest>(call.params);
      records[r->key] = r->value;
      versions.push_back(r->version);
      afters.push_back(r->after);
    } else if (call.method == "delete") {
      records.erase(wire::decode<model::DeleteRequest>(call.params)->key);
    } else if (call.method == "batch") {
      const auto r = wire::decode<model::BatchRequest>(call.params);
      versions.push_back(r->version);
      afters.push_back(r->after);
      for (const auto& op : r->ops) {
        if (op.op == model::Op::put)
          records[op.key] = op.value;
        else
          records.erase(op.key);
      }
    } else if (call.method == "cas") {
      const auto r = wire::decode<model::CasRequest>(call.params);
      const auto it = records.find(r->key);
      const bool as_expected =
          r->expect.absent ? it == records.end() : it != records.end() && it->second == r->expect.value;
      if (!as_expected) return base::fail(base::Code::condition_failed, "not as expected");
      if (r->op == model::Op::put)
        records[r->key] = r->value;
      else
        records.erase(r->key);
    } else if (call.method == "append") {
      const auto r = wire::decode<model::AppendRequest>(call.params);
      reply.result = static_cast<int64_t>((records[r->key] += r->value).size());
    } else if (call.method == "incr") {
      const auto r = wire::decode<model::IncrRequest>(call.params);
      auto& value = records[r->key];
      reply.result = (value.empty() ? 0 : std::stoll(value)) + r->by;
      value = std::to_string(*reply.result);
    } else {
      return scan(*wire::decode<model::ScanRequest>(call.params));
    }
    return wire::encode(reply);
  }

  std::string scan(const model::ScanRequest& request) {
    const auto start = model::scan_start(request);
    const auto& map = *maps.back();
    const auto* partition = model::scan_partition(map, *start);
    model::ScanReply reply;
    std::string next = partition->interval.end;
    for (auto it = records.lower_bound(start->bound); it != records.end(); ++it) {
      if (!partition->interval.contains(it->first)) break;
      if (reply.records.size() == 2) {  // small pages
        next = it->first;
        break;
      }
      reply.records.push_back({.key = it->first, .value = it->second, .version = {}});
    }
    if (!next.empty()) reply.cursor = model::encode_cursor({.reverse = false, .bound = next, .lsn = {}});
    return wire::encode(reply);
  }

  io::Loop& loop_;
  std::string dir_;
  std::map<model::ServerId, std::unique_ptr<rpc::Server>> nodes_;
  std::map<model::ServerId, ServerEntry> entries_;
  std::vector<rpc::Responder> kept_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> remembered_;  // (client, series) → answer
};

}  // namespace cantle::client

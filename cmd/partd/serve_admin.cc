// What tools, clients that look for their way, and replpush ask.
#include "cmd/partd/service.h"
#include "lib/wire/codec.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::partd {

using base::Code;

void Service::add_handlers() {
  const auto on = [this](const char* method, void (Service::*serve)(const rpc::Call&, rpc::Responder)) {
    server_.handle(method, [this, serve](const rpc::Call& call, rpc::Responder responder) {
      (this->*serve)(call, std::move(responder));
    });
  };
  on("get", &Service::serve_get);
  on("put", &Service::serve_put);
  on("delete", &Service::serve_delete);
  on("batch", &Service::serve_batch);
  on("cas", &Service::serve_cas);
  on("append", &Service::serve_append);
  on("incr", &Service::serve_incr);
  on("scan", &Service::serve_scan);
  on("route", &Service::serve_route);
  on("status", &Service::serve_status);
  on("hash", &Service::serve_hash);
  on("sample", &Service::serve_sample);
  on("drop", &Service::serve_drop);
  on("drain", &Service::serve_drain);
  on("quorum.report", &Service::serve_quorum_report);
  on("mover.view", &Service::serve_view);
  on("push.write", &Service::serve_push_write);
  on("push.read", &Service::serve_push_read);
  on("push.scan", &Service::serve_push_scan);
  on("bulk.begin", &Service::serve_bulk_begin);
  on("bulk.block", &Service::serve_bulk_block);
  on("bulk.end", &Service::serve_bulk_end);
  on("digest", &Service::serve_digest);
  on("epochs", &Service::serve_epochs);
  server_.handle_notify("beacon", [this](const rpc::Call& call) { serve_beacon(call); });
  server_.handle_notify("map.changed", [this](const rpc::Call& call) { serve_map_changed(call); });
  server_.on_gone([this](uint64_t connection) { pusher_connections_.erase(connection); });
}

void Service::serve_map_changed(const rpc::Call& call) {
  const auto changed = wire::decode<model::MapChanged>(call.params);
  if (changed && machine_) hint(changed->table, changed->txnseq);
}

// --- route ----------------------------------------------------------------------------------------------------

model::RoutePartition Service::route_of(const model::Partition& p) const {
  model::RoutePartition r{p.id, p.region, p.interval, p.state, p.min_txnseq, {}};
  for (const auto& a : p.assignments) {
    model::RouteServer s{
        .server = a.server, .slot = a.slot, .state = a.state, .tcp = {}, .unix_path = {}, .live = false};
    if (const auto* entry = servers_->find(a.server)) {
      s.tcp = entry->active.tcp;
      s.unix_path = entry->active.unix_socket;
      s.live = entry->live;
    }
    r.servers.push_back(std::move(s));
  }
  return r;
}

// False: the table is not known here (yet); the request comes again when it is, or is refused.
bool Service::know(const std::string& table, const rpc::Call& call, const rpc::Responder& responder,
                   void (Service::*serve)(const rpc::Call&, rpc::Responder)) {
  const auto map = installed(table);
  if (map && !map->dropped) return true;
  const auto refuse = [responder, table] { responder.fail({Code::no_such_table, "no table '" + table + "'"}); };
  if (call.caller.connection == 0) return refuse(), false;  // it has waited already
  auto kept = std::make_shared<std::pair<Raw, Raw>>(call.method, call.params);
  park_unknown(
      table, loop_.now() + kUnknownWait, kept->second.size(),
      [this, kept, responder, serve] {
        const rpc::Caller nobody;
        (this->*serve)({kept->first, kept->second, nobody}, responder);
      },
      refuse);
  return false;
}

void Service::serve_route(const rpc::Call& call, rpc::Responder responder) {
  auto request = wire::decode<model::RouteRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  if (!know(request->table, call, responder, &Service::serve_route)) return;
  const auto newest = installed(request->table);
  const bool push = newest && newest->replication == model::Replication::push;
  const auto map = request->full && push ? machine_->settled(request->table) : newest;
  if (!map || map->dropped) {
    if (newest && !map) return responder.fail({Code::unavailable, "the map is not shown yet"});
    return responder.fail({Code::no_such_table, "no table '" + request->table + "'"});
  }
  if (request->txnseq > map->txnseq) hint(request->table, request->txnseq);
  model::RouteReply reply{request->table, map->table, map->txnseq, {}, {}};
  if (request->full) {
    reply.map = wire::encode_whole_map(*map);
  } else if (request->key) {
    const auto* p = map->find(*request->key);
    if (p == nullptr) return responder.fail({Code::faulted, "no partition covers the key"});
    reply.partitions.push_back(route_of(*p));
  } else {
    for (const auto& p : map->partitions) reply.partitions.push_back(route_of(p));
  }
  responder.ok(wire::encode(reply));
}

// --- status -----------------------------------------------------------------------------------------------------

void Service::serve_status(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::StatusRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  responder.ok(wire::encode(status(request->table)));
}

model::ServerNumber Service::number_of(const model::ServerId& server) const {
  const auto it = numbers_.find(server);
  return it == numbers_.end() ? model::ServerNumber{} : it->second.number;
}

void Service::tell_of_pusher(model::StatusReply& r) const {
  const auto silent = loop_.now() - pusher_asked_.value_or(began_);
  const bool missing = silent >= kPusherLate || (pusher_connections_.empty() && silent >= kPusherGone);
  r.pusher = missing ? "missing" : pusher_asked_ ? "attached" : "awaited";
  r.pusher_ms = static_cast<uint64_t>(base::to_ms(silent));
}

// Of a quorum table: role as its replica sees it, where that takes part.
std::vector<push::CopyStatus> Service::copies() const {
  auto all = machine_->copies();
  for (const auto& r : quorum_->replicas()) {
    const auto& h = r.copy.held;
    push::CopyStatus c;
    c.copy = {h.partition, h.assignment, h.region, h.table, h.interval, h.aside, {}, true};
    c.table = r.copy.table;
    c.role = r.replica ? std::string(r.replica->role) : r.copy.role;
    c.state = !r.replica                      ? r.copy.state
              : r.replica->rebuild            ? "rebuilding"
              : r.replica->role == "leader"   ? (r.replica->serving ? "serving" : "taking_over")
              : r.replica->role == "follower" ? "serving"
              : r.replica->role == "faulted"  ? "faulted"
                                              : "seeking";
    all.push_back(std::move(c));
  }
  return all;
}

model::StatusReply Service::status(const std::string& table) {
  const auto machine = machine_->status();
  const auto store = engine_->status();
  const auto rpc = server_.counters();
  model::StatusReply r;
  r.server = self_;
  r.software = CANTLE_VERSION;
  r.cluster = config_.cluster;
  r.cluster_uuid = cluster_;
  r.incarnation = dir_->identity().incarnation;
  r.number = dir_->identity().number;
  r.ready = ready_;
  r.read_only = machine.read_only;
  r.coord = session_->connected() ? "connected" : "disconnected";
  tell_of_pusher(r);
  r.uptime_ms = static_cast<uint64_t>(base::to_ms(loop_.now() - began_));
  r.clock_offset_ms = machine.clock_offset_ms;
  std::map<std::string, model::StatusTable> tables;
  for (const auto& name : machine_->tables()) {
    const auto map = machine_->installed(name), settled = machine_->settled(name);
    tables[name] = {name, map->table, map->txnseq, settled ? settled->txnseq : model::TxnSeq{}, {}};
  }
  for (const auto& name : quorum_->tables().tables()) {
    const auto map = quorum_->tables().installed(name);
    tables[name] = {name, map->table, map->txnseq, map->txnseq, {}};
  }
  for (const auto& c : copies()) {
    auto& t = tables[c.table];
    const auto end = c.copy.aside ? std::nullopt : engine_->durable(c.copy.partition);
    const auto applied = c.copy.aside ? std::nullopt : engine_->applied(c.copy.partition);
    t.partitions.push_back({c.copy.partition, c.copy.region, c.copy.assignment, c.copy.interval, c.role, c.state,
                            end.value_or(model::LogPoint{}), applied ? applied->lsn : model::Lsn{},
                            c.copy.aside ? std::nullopt : quorum_->status_of(c.copy.partition)});
  }
  for (auto& [name, t] : tables)
    if (table.empty() || name == table) r.tables.push_back(std::move(t));
  for (const auto& server : partners()) {
    const auto* entry = servers_->find(server);
    r.peers.push_back({server, entry != nullptr && entry->live, links_->up(server), machine_->peer_incarnation(server),
                       machine_->clock_offset(server)});
  }
  r.counts = {{"gets", counts_.gets},
              {"scans", counts_.scans},
              {"writes", counts_.writes},
              {"received", counts_.received},
              {"forwarded", counts_.forwarded},
              {"async_reads", counts_.async_reads},
              {"requests_waiting", requests_.size()},
              {"requests_parked", parked_count_},
              {"batches_waiting", machine.batches},
              {"connections", server_.connections()},
              {"requests", rpc.requests},
              {"malformed", rpc.malformed},
              {"unknown_methods", rpc.unknown_methods},
              {"journal_bytes", store.journal_bytes},
              {"journal_segments", store.segments},
              {"journal_blocks", store.appended_blocks},
              {"journal_syncs", store.syncs},
              {"overlay_bytes", store.overlay_bytes},
              {"overlay_records", store.overlay_records},
              {"record_cache_bytes", store.cache_bytes},
              {"record_cache_records", store.cache_records},
              {"record_cache_hits", store.cache_hits},
              {"record_cache_misses", store.cache_misses},
              {"backlog_bytes", store.backlog_bytes},
              {"index_bytes", store.index.file_bytes},
              {"index_free_bytes", store.index.free_bytes},
              {"applied_records", store.applied_records},
              {"lost_places", store.lost_places},
              {"journal_end_left_bytes", engine_->report().left_bytes},
              {"mended_blocks", store.mended_blocks},
              {"tail_bytes", store.tail_bytes},
              {"cut_blocks", store.cut_blocks},
              {"kept_bytes", quorum_->kept_bytes()},
              {"scans_kept", kept_scans_.count()},
              {"freeing_extents", store.freeing_extents},
              {"trash_copies", store.trash_tenures},
              {"reader_lag", store.reader_lag},
              {"disk_free_bytes", store.disk.free}};
  return r;
}

// --- hash, sample -------------------------------------------------------------------------------------------------

namespace {

struct Hashing {
  model::HashReply reply;
  rpc::Responder responder;
  size_t left = 0;
  bool failed = false;
};

}  // namespace

void Service::serve_hash(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::HashRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  if (!know(request->table, call, responder, &Service::serve_hash)) return;
  const auto map = installed(request->table);
  auto state = std::make_shared<Hashing>();
  state->reply.txnseq = map->txnseq;
  state->responder = std::move(responder);
  std::vector<push::CopyStatus> copies;
  for (auto& c : this->copies())
    if (c.table == request->table && !c.copy.aside && c.state != "creating" &&
        (request->partition.none() || request->partition == c.copy.partition))
      copies.push_back(std::move(c));
  state->left = copies.size();
  if (copies.empty()) {
    if (!request->partition.none()) return state->responder.fail({Code::not_found, "the partition is not held here"});
    return state->responder.ok(wire::encode(state->reply));
  }
  for (const auto& c : copies)
    engine_->hash(c.copy.partition, [this, alive = alive_, state, c](base::Result<store::Engine::HashAt> at) {
      if (!*alive) return;
      state->left--;
      if (state->failed) return;
      if (!at) {
        state->failed = true;
        return state->responder.fail(at.error());
      }
      auto sum = at->hash.records;
      sum += at->hash.tombstones;
      std::string raw;
      base::put_u64_be(raw, sum.high);
      base::put_u64_be(raw, sum.low);
      state->reply.partitions.push_back({c.copy.partition, c.copy.region, c.copy.assignment, c.copy.interval,
                                         at->hash.record_count, at->hash.tombstone_count, at->hash.bytes, raw,
                                         at->at.lsn, c.state == "serving", quorum_->leads(c.copy.partition)});
      if (state->left > 0) return;
      std::sort(state->reply.partitions.begin(), state->reply.partitions.end(),
                [](const auto& a, const auto& b) { return a.interval.begin < b.interval.begin; });
      state->responder.ok(wire::encode(state->reply));
    });
}

void Service::serve_sample(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::SampleRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (request->points == 0 || request->points > model::kSamplePointsMax)
    return responder.fail({Code::invalid, "points is 1 to " + std::to_string(model::kSamplePointsMax)});
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  if (!know(request->table, call, responder, &Service::serve_sample)) return;
  const auto partition = request->partition;
  if (!engine_->find(partition)) return responder.fail({Code::not_found, "the partition is not held here"});
  // What is still in memory alone is sampled too.
  engine_->drain([this, alive = alive_, partition, points = request->points, responder](base::Status drained) {
    if (!*alive) return;
    if (!drained) return responder.fail(drained.error());
    engine_->sample(partition, points + 1,
                    [this, alive, partition, points, responder](base::Result<std::vector<std::string>> keys) {
                      if (!*alive) return;
                      if (!keys) return responder.fail(keys.error());
                      auto reply = sampled(partition, points, *keys);
                      reply ? responder.ok(wire::encode(*reply)) : responder.fail(reply.error());
                    });
  });
}

base::Result<model::SampleReply> Service::sampled(const model::PartitionId& partition, uint32_t points,
                                                  const std::vector<std::string>& keys) {
  model::SampleReply reply;
  const auto size = engine_->size(partition);
  reply.bytes = size.bytes;
  reply.records = size.records;
  for (const bool reverse : {false, true}) {
    store::ScanRange one;
    one.reverse = reverse;
    one.records_max = 1;
    TRY(engine_->scan(partition, one, [&](std::string_view key, const store::Found&) {
      (reverse ? reply.last : reply.first) = std::string(key);
      return true;
    }));
  }
  for (size_t i = 0; i < keys.size(); i++) {
    if (keys[i] <= reply.first || keys[i] >= reply.last ||
        (!reply.points.empty() && keys[i] <= reply.points.back().key))
      continue;
    reply.points.push_back({keys[i], size.bytes * (i + 1) / (points + 1)});
  }
  return reply;
}

// --- drop, drain, mover.view
// ------------------------------------------------------------------------------------------

void Service::serve_drop(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::DropRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  const auto id = ++last_id_;
  calls_.emplace(id, Call{std::move(responder), Call::Kind::drop, {}, {}});
  push::DropAsked in;
  in.call = id;
  in.message = &*request;
  // A copy that was set aside takes no more appends: what was proved of it stays proved.
  const auto live = engine_->find(request->partition);
  if (live && live->id.assignment == request->assignment) in.end = engine_->log_end(request->partition);
  input(in);
}

void Service::serve_drain(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::DrainRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  input(push::DrainAsked{request->on});
  draining_ = request->on;
  update_active();
  responder.ok(wire::encode(model::DrainReply{requests_.size()}));
}

void Service::serve_view(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::MoverViewRequest>(call.params);
  if (!request) return responder.fail(request.error());
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  if (!live_known_) return responder.fail({Code::unavailable, "starting: who is alive is not known yet"});
  if (call.caller.local) pusher_connections_.insert(call.caller.connection);
  pusher_asked_ = loop_.now();
  model::MoverView view;
  view.self = self_;
  view.cluster = cluster_;
  view.number = dir_->identity().number;
  view.incarnation = dir_->identity().incarnation;
  for (const auto& name : machine_->tables()) {
    const auto map = machine_->settled(name);
    if (!map) continue;
    const auto have = request->have.find(name);
    const bool same = have != request->have.end() && have->second == map->txnseq.value;
    view.tables.push_back({name, map->table, map->txnseq, same ? "" : wire::encode_whole_map(*map)});
  }
  view.held = machine_->held();
  for (auto& h : view.held)
    if (const auto tenure = engine_->find(store::TenureId{h.partition, h.assignment})) h.hollow = tenure->hollow;
  for (const auto& entry : servers_->all()) {
    if (entry.active.role != coord::Role::partd) continue;
    // This server itself among them: what it should give up under an old tenure may be its own under a new one.
    const auto incarnation = entry.id == self_ ? view.incarnation : entry.active.incarnation;
    view.peers.push_back({entry.id, entry.active.tcp, incarnation, number_of(entry.id), entry.live});
  }
  responder.ok(wire::encode(view));
}

}  // namespace cantle::partd

// What others ask of a PartdNode.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/wire/block.h"
#include "test/sim/partd.h"

namespace cantle::sim {

using base::Code;
namespace push = proto::push;

namespace {

constexpr int kMapTries = 3;

push::RecordsSeen look_at(std::string_view records) {
  push::RecordsSeen seen;
  wire::RecordReader in(records);
  model::RecordView r;
  model::Version first;
  while (in.next(r)) {
    if (seen.count++ == 0) {
      first = r.version;
      seen.first_key = seen.last_key = r.key;
    }
    seen.newest = std::max(seen.newest, r.version);
    seen.first_key = std::min(seen.first_key, r.key);
    seen.last_key = std::max(seen.last_key, r.key);
    if (r.version.server() != first.server() || r.version.incarnation() != first.incarnation())
      seen.one_stamper = false;
  }
  CHECK(in.status().has_value());
  return seen;
}

}  // namespace

void PartdNode::serve(const std::string&, const std::any& request, Network::Reply reply) {
  using namespace model;
  const auto is = [&]<class T>(const T*& to) { return (to = std::any_cast<T>(&request)) != nullptr; };
  const PutRequest* put = nullptr;
  const DeleteRequest* del = nullptr;
  const BatchRequest* batch = nullptr;
  const GetRequest* get_request = nullptr;
  const ScanRequest* scan_request = nullptr;
  const PushWrite* write = nullptr;
  const PushRead* read = nullptr;
  const BulkBegin* bulk = nullptr;
  const BulkBlock* block = nullptr;
  const BulkEnd* end = nullptr;
  const Digest* offers = nullptr;
  const Epochs* epochs = nullptr;
  const Beacon* beacon = nullptr;
  const DropRequest* drop = nullptr;
  if (is(put))
    return client_write(*put, put->table, {put->key}, put->key.size() + put->value.size() + 64, put->txnseq, put->level,
                        put->hop, put->deadline_ms, put->version, std::move(reply));
  if (is(del))
    return client_write(*del, del->table, {del->key}, del->key.size() + 64, del->txnseq, del->level, del->hop,
                        del->deadline_ms, del->version, std::move(reply));
  if (is(batch)) {
    std::vector<std::string_view> keys;
    size_t bytes = 0;
    for (const auto& op : batch->ops) {
      keys.push_back(op.key);
      bytes += op.key.size() + op.value.size() + 64;
    }
    return client_write(*batch, batch->table, std::move(keys), bytes, batch->txnseq, batch->level, batch->hop,
                        batch->deadline_ms, batch->version, std::move(reply));
  }
  if (is(get_request)) return get(*get_request, std::move(reply), 0);
  if (is(scan_request)) return scan(*scan_request, std::move(reply), 0);
  if (is(write)) {
    const uint64_t id = next_id_++;
    calls_[id] = {request, std::move(reply)};
    return input(push::WriteArrived{id, std::any_cast<PushWrite>(&calls_[id].message), look_at(write->records)});
  }
  if (is(read)) return push_read(*read, std::move(reply));
  if (is(bulk)) return bulk_begin(*bulk, std::move(reply));
  if (is(block)) return bulk_block(*block, std::move(reply));
  if (is(end))
    return admitted(end->envelope, push::Purpose::bulk_end, reply, [this, m = *end, reply](const PartitionId&) {
      input(push::BulkEndArrived{&m});
      reply(std::any(base::Nothing{}));
    });
  if (is(offers)) return digest(*offers, std::move(reply));
  if (is(epochs))
    return admitted(epochs->envelope, push::Purpose::epochs, reply, [this, reply](const PartitionId& log) {
      reply(std::any(EpochsReply{incarnation(), engine_->durable(log).value_or(LogPoint{})}));
    });
  if (is(beacon)) return input(push::BeaconArrived{*beacon});
  if (is(drop)) {
    const uint64_t id = next_id_++;
    calls_[id] = {request, std::move(reply)};
    push::DropAsked in;
    in.call = id;
    in.message = std::any_cast<DropRequest>(&calls_[id].message);
    // A copy that was set aside takes no more appends: what was proved of it stays proved.
    const auto live = engine_->find(drop->partition);
    if (live && live->id.assignment == drop->assignment) in.end = engine_->log_end(drop->partition);
    return input(in);
  }
  if (std::any_cast<ViewAsk>(&request)) return reply(std::any(view()));
  if (std::any_cast<Ping>(&request)) return reply(std::any(base::Nothing{}));
  if (const auto* changed = std::any_cast<MapChanged>(&request)) return fetch_map(changed->table);
  reply(base::fail(Code::invalid, "unknown method"));
}

void PartdNode::client_write(std::any message, const std::string& table, std::vector<std::string_view> keys,
                             size_t bytes, model::TxnSeq txnseq, model::Level level, bool hop, uint32_t deadline_ms,
                             std::optional<model::Version> version, Network::Reply reply) {
  const uint64_t id = next_id_++;
  requests_[id] = {std::move(message), std::move(reply)};
  push::WriteAsked asked;
  asked.request = id;
  asked.table = table;
  asked.keys = keys;
  asked.bytes = bytes;
  asked.txnseq = txnseq;
  asked.level = level;
  asked.hop = hop;
  asked.version = version;
  asked.deadline = process_.now() + std::chrono::milliseconds(deadline_ms ? deadline_ms : model::kDeadlineDefaultMs);
  CHECK(!pumping_);
  input(asked);
  if (flush_planned_) return;
  flush_planned_ = true;
  executor_.defer([this] {
    flush_planned_ = false;
    input(push::Flush{});
  });
}

void PartdNode::get(const model::GetRequest& m, Network::Reply reply, int tries) {
  const auto where = machine_->where(m.table, m.key, m.txnseq, m.hop);
  switch (where.kind) {
    case push::Where::Kind::refuse: return reply(base::fail(where.error));
    case push::Where::Kind::fetch:
      if (tries >= kMapTries) return reply(base::fail(where.error));
      return wait_for_map(m.table, [this, m, reply, tries](bool) { get(m, reply, tries + 1); });
    case push::Where::Kind::forward: {
      auto passed = m;
      passed.hop = false;
      passed.txnseq = where.txnseq;
      cluster_.network.call(process_, where.to.name + "/partd", passed, 3s,
                            [reply](Network::Answer r) { reply(std::move(r)); });
      return;
    }
    case push::Where::Kind::here: break;
  }
  if (m.level != model::Level::one) {
    const auto plan = machine_->plan_read(where, m.table, m.level);
    if (!plan) return reply(base::fail(plan.error()));
    return get_many(m, *plan, std::move(reply));
  }
  const auto found = engine_->get(where.log, m.key);
  if (!found) return reply(base::fail(found.error()));
  if (!*found || (*found)->deleted) return reply(base::fail(Code::not_found, m.key));
  reply(std::any(model::GetReply{std::string((*found)->value), (*found)->version}));
}

void PartdNode::get_many(const model::GetRequest& m, const push::ReadPlan& plan, Network::Reply reply) {
  struct Gathering {
    std::set<uint32_t> slots;
    model::PushReadReply newest;
    size_t left = 0;
    bool replied = false;
  };
  auto state = std::make_shared<Gathering>();
  const auto take = [state, reply, needed = plan.needed](uint32_t slot, const model::PushReadReply& r) {
    state->slots.insert(slot);
    if (r.found && r.version > state->newest.version) state->newest = r;
    if (state->replied || state->slots.size() < needed) return;
    state->replied = true;
    if (!state->newest.found || state->newest.deleted) {
      base::Error none(Code::not_found, "no such key");
      none.detail = base::to_hex(state->newest.version.view());
      return reply(base::fail(std::move(none)));
    }
    reply(std::any(model::GetReply{state->newest.value, state->newest.version}));
  };
  if (plan.here) {
    const auto found = engine_->get(plan.log, m.key);
    if (!found) return reply(base::fail(found.error()));
    model::PushReadReply own;
    if (*found) own = {true, (*found)->deleted, (*found)->version, std::string((*found)->value)};
    take(plan.own_slot, own);
  }
  state->left = plan.asks.size();
  for (const auto& ask : plan.asks)
    cluster_.network.call(process_, ask.to.name + "/partd", model::PushRead{ask.envelope, m.key}, 2s,
                          [this, state, take, slot = ask.slot, reply](Network::Answer r) {
                            if (!*here_) return;
                            if (r) take(slot, std::any_cast<model::PushReadReply>(*r));
                            if (--state->left > 0 || state->replied) return;
                            state->replied = true;
                            reply(base::fail(Code::no_quorum, "too few answered"));
                          });
  if (plan.asks.empty() && !state->replied) reply(base::fail(Code::no_quorum, "too few answered"));
}

void PartdNode::scan(const model::ScanRequest& m, Network::Reply reply, int tries) {
  const auto start = model::scan_start(m);
  if (!start) return reply(base::fail(start.error()));
  const auto where = machine_->where_scan(m.table, *start, m.txnseq, m.hop);
  if (where.kind == push::Where::Kind::refuse) return reply(base::fail(where.error));
  if (where.kind == push::Where::Kind::fetch) {
    if (tries >= kMapTries) return reply(base::fail(where.error));
    return wait_for_map(m.table, [this, m, reply, tries](bool) { scan(m, reply, tries + 1); });
  }
  if (where.kind == push::Where::Kind::forward) {
    auto passed = m;
    passed.hop = false;
    passed.txnseq = where.txnseq;
    cluster_.network.call(process_, where.to.name + "/partd", passed, 3s,
                          [reply](Network::Answer r) { reply(std::move(r)); });
    return;
  }
  const auto tenure = engine_->find(where.log);
  if (!tenure || !where.partition) return reply(base::fail(Code::unavailable, "no such copy"));
  const model::Interval serve = tenure->interval.intersect(where.partition->interval);
  const auto clipped =
      model::Interval{m.reverse ? m.begin : start->bound, m.reverse ? start->bound : m.end}.intersect(serve);
  store::ScanRange range;
  range.from = clipped.begin;
  range.to = clipped.end;
  range.reverse = m.reverse;
  range.records_max = m.limit ? m.limit : model::kScanRecordsMax;
  range.bytes_max = m.bytes ? m.bytes : model::kScanBytesMax;
  model::ScanReply answer;
  const auto end = engine_->scan(where.log, range, [&](std::string_view key, const store::Found& found) {
    answer.records.push_back({std::string(key), std::string(found.value), found.version});
    return true;
  });
  if (!end) return reply(base::fail(end.error()));
  answer.lsn = end->at;
  answer.txnseq = where.txnseq;
  std::string bound;
  if (end->more)
    bound = end->resume;
  else if (!m.reverse && !serve.end.empty() && (m.end.empty() || serve.end < m.end))
    bound = serve.end;
  else if (m.reverse && m.begin < serve.begin)
    bound = serve.begin;
  if (!bound.empty()) answer.cursor = model::encode_cursor({m.reverse, bound, end->at});
  reply(std::any(std::move(answer)));
}

void PartdNode::admitted(const model::Envelope& envelope, push::Purpose purpose, Network::Reply reply,
                         std::function<void(const model::PartitionId&)> act, int tries) {
  const auto admission = machine_->admit(envelope, purpose);
  if (admission.kind == push::Admission::Kind::ok) return act(admission.log);
  if (admission.kind == push::Admission::Kind::refuse || tries >= kMapTries) return reply(base::fail(admission.error));
  wait_for_map(admission.table, [this, envelope, purpose, reply, act, tries](bool) {
    admitted(envelope, purpose, reply, act, tries + 1);
  });
}

void PartdNode::push_read(const model::PushRead& m, Network::Reply reply) {
  admitted(m.envelope, push::Purpose::read, reply, [this, m, reply](const model::PartitionId& log) {
    const auto found = engine_->get(log, m.key);
    if (!found) return reply(base::fail(found.error()));
    model::PushReadReply answer;
    if (*found) answer = {true, (*found)->deleted, (*found)->version, std::string((*found)->value)};
    reply(std::any(std::move(answer)));
  });
}

void PartdNode::bulk_begin(const model::BulkBegin& m, Network::Reply reply) {
  admitted(m.envelope, push::Purpose::bulk, reply, [this, m, reply](const model::PartitionId& log) {
    model::BulkBeginReply answer;
    answer.incarnation = incarnation();
    answer.heal = machine_->heal(log);
    if (m.kind == model::BulkKind::snapshot) {
      const auto tenure = engine_->find(log);
      if (tenure && tenure->fill.snapshot == m.snapshot) {
        answer.filled_to = tenure->fill.to;
        answer.filled_all = tenure->fill.all;
      }
    }
    reply(std::any(std::move(answer)));
  });
}

void PartdNode::bulk_block(const model::BulkBlock& m, Network::Reply reply) {
  if (m.kind == model::BulkKind::log) {
    const uint64_t id = next_id_++;
    calls_[id] = {m, std::move(reply)};
    const auto& kept = std::any_cast<const model::BulkBlock&>(calls_[id].message);
    if (kept.delivered) input(push::DeliveryTold{kept.envelope, *kept.delivered});
    return input(push::BulkArrived{id, &kept, look_at(kept.records)});
  }
  admitted(m.envelope, push::Purpose::bulk, reply, [this, m, reply](const model::PartitionId& log) {
    const auto tenure = engine_->find(log);
    if (!tenure) return reply(base::fail(Code::unavailable, "no such copy"));
    const auto done = [reply](base::Status s) {
      if (!s) return reply(base::fail(s.error()));
      reply(std::any(model::BulkBlockReply{}));
    };
    if (auto begun = engine_->ingest(tenure->id, {m.snapshot, m.records, m.through_key, m.last}, done); !begun)
      reply(base::fail(begun.error()));
  });
}

void PartdNode::digest(const model::Digest& m, Network::Reply reply) {
  admitted(m.envelope, push::Purpose::digest, reply, [this, m, reply](const model::PartitionId& log) {
    std::vector<store::Engine::Offer> offers;
    for (const auto& entry : m.entries) offers.push_back({entry.key, entry.version});
    auto lacking = engine_->lacking(log, offers);
    if (!lacking) return reply(base::fail(lacking.error()));
    if (m.delivered) input(push::DeliveryTold{m.envelope, *m.delivered});
    reply(std::any(model::DigestReply{std::move(*lacking), machine_->delivered(log)}));
  });
}

ViewAnswer PartdNode::view() {
  ViewAnswer answer;
  auto& v = answer.view;
  v.self = host_.id;
  v.cluster = cluster_.uuid;
  v.number = dir_->identity().number;
  v.incarnation = incarnation();
  v.held = machine_->held();
  for (auto& h : v.held)
    if (const auto tenure = engine_->find(store::TenureId{h.partition, h.assignment})) h.hollow = tenure->hollow;
  for (const auto& table : machine_->tables())
    if (const MapPtr map = machine_->settled(table)) {
      v.tables.push_back({table, map->table, map->txnseq, ""});
      answer.maps[table] = map;
    }
  std::set<model::ServerId> peers = machine_->partners();
  for (const auto& [name, host] : cluster_.hosts) peers.insert({name});
  for (const auto& server : peers) {
    model::PeerView peer;
    peer.server = server;
    peer.tcp = server.name + ":1";
    const auto it = live_.find(server);
    peer.live = it != live_.end();
    peer.incarnation = server == host_.id ? incarnation() : peer.live ? it->second : machine_->peer_incarnation(server);
    if (const Host* host = cluster_.find(server)) peer.number = host->number;
    v.peers.push_back(std::move(peer));
  }
  return answer;
}

}  // namespace cantle::sim

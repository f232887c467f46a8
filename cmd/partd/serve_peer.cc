// What other servers and movers ask.
#include "cmd/partd/service.h"
#include "lib/proto/hlc.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;

namespace {

constexpr base::Duration kMapWait = std::chrono::seconds(2);

base::Result<push::RecordsSeen> look_at(std::string_view records, uint32_t count) {
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
  TRY(in.status());
  if (seen.count != count)
    return base::fail(Code::malformed,
                      "the message says " + std::to_string(count) + " records and has " + std::to_string(seen.count));
  return seen;
}

template <class Message>
std::shared_ptr<Message> decode(const rpc::Call& call, const rpc::Responder& responder) {
  auto message = wire::decode<Message>(call.params);
  if (message) return std::make_shared<Message>(std::move(*message));
  responder.fail(message.error());
  return nullptr;
}

// Takes out of a mover's records what the copy holds already, at that version or a newer one and durable: movers send
// some things twice, and each would be one more entry of this log, to be offered to others in turn.
void leave_out_known(store::Engine& engine, const model::PartitionId& log, model::BulkBlock& message) {
  std::vector<store::Engine::Offer> offers;
  std::vector<size_t> ends;  // in the payload, of each record
  wire::RecordReader in(message.records);
  model::RecordView r;
  while (in.next(r)) {
    offers.push_back({r.key, r.version});
    ends.push_back(in.offset());
  }
  if (!in.status() || offers.size() != message.count) return;  // refused later
  const auto lacking = engine.lacking(log, offers);
  if (!lacking || lacking->size() == offers.size()) return;
  std::string rest;
  for (const uint32_t i : *lacking) {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    rest.append(message.records, begin, ends[i] - begin);
  }
  message.records = std::move(rest);
  message.count = static_cast<uint32_t>(lacking->size());
}

}  // namespace

template <class Message>
void Service::admitted(std::shared_ptr<Message> message, push::Purpose purpose, rpc::Responder responder,
                       std::function<void(const model::PartitionId&)> act, bool parked) {
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  const auto admission = machine_->admit(message->envelope, purpose);
  if (admission.kind == push::Admission::Kind::ok) return act(admission.log);
  // A server that has just started is asked before it has read its maps.
  const bool unknown = admission.error.code == Code::no_such_table;
  if ((admission.kind == push::Admission::Kind::refuse && !unknown) || parked) return responder.fail(admission.error);
  const auto deadline = loop_.now() + kMapWait;
  const auto again = [this, message, purpose, responder, act] { admitted(message, purpose, responder, act, true); };
  const auto give_up = [responder, error = admission.error] { responder.fail(error); };
  if (unknown) return park_unknown(message->envelope.table, deadline, sizeof(Message), again, give_up);
  park(admission.table, admission.at_least, deadline, sizeof(Message), again, give_up);
}

template <class Message, class Feed>
void Service::received(std::shared_ptr<Message> message, push::Purpose purpose, rpc::Responder responder, Feed feed,
                       bool parked) {
  if (!machine_) return responder.fail({Code::unavailable, "starting"});
  const auto admission = machine_->admit(message->envelope, purpose);
  if (admission.kind != push::Admission::Kind::fetch || parked) return feed();
  park(
      admission.table, admission.at_least, loop_.now() + kMapWait, message->records.size(),
      [this, message, purpose, responder, feed] { received(message, purpose, responder, feed, true); },
      [responder, error = admission.error] { responder.fail(error); });
}

void Service::serve_push_write(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::PushWrite>(call, responder);
  if (!message) return;
  received(message, push::Purpose::write, responder, [this, message, responder] {
    const auto id = ++last_id_;
    auto& kept = calls_.emplace(id, Call{responder, Call::Kind::write, std::move(message->records), {}}).first->second;
    auto seen = look_at(kept.records, message->count);
    if (!seen) {
      responder.fail(seen.error());
      calls_.erase(id);
      return;
    }
    counts_.received++;
    push::WriteArrived in;
    in.call = id;
    in.message = message.get();
    in.seen = *seen;
    input(in);
  });
}

void Service::serve_bulk_block(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::BulkBlock>(call, responder);
  if (!message) return;
  if (message->kind == model::BulkKind::snapshot) return serve_snapshot(message, std::move(responder));
  if (message->kind != model::BulkKind::log) return responder.fail({Code::invalid, "kind is 1 (log) or 2 (snapshot)"});
  received(message, push::Purpose::bulk, responder, [this, message, responder] {
    if (const auto admission = machine_->admit(message->envelope, push::Purpose::bulk);
        message->count > 0 && admission.kind == push::Admission::Kind::ok) {
      if (message->delivered) input(push::DeliveryTold{message->envelope, *message->delivered});
      leave_out_known(*engine_, admission.log, *message);
      if (message->count == 0)
        return responder.ok(bulk_reply(admission.log, engine_->durable(admission.log).value_or(model::LogPoint{}).lsn));
    }
    const auto id = ++last_id_;
    auto& kept =
        calls_.emplace(id, Call{responder, Call::Kind::bulk, std::move(message->records), message->envelope.partition})
            .first->second;
    auto seen = look_at(kept.records, message->count);
    if (!seen) {
      responder.fail(seen.error());
      calls_.erase(id);
      return;
    }
    push::BulkArrived in;
    in.call = id;
    in.message = message.get();
    in.seen = *seen;
    input(in);
  });
}

std::string Service::bulk_reply(const model::PartitionId& log, model::Lsn lsn) const {
  return wire::encode(model::BulkBlockReply{lsn, machine_->delivered(log)});
}

// A snapshot's chunk goes past the journal, so the rules for records are applied here.
void Service::serve_snapshot(std::shared_ptr<model::BulkBlock> message, rpc::Responder responder) {
  admitted(message, push::Purpose::bulk, responder, [this, message, responder](const model::PartitionId& log) {
    const auto seen = look_at(message->records, message->count);
    if (!seen) return responder.fail(seen.error());
    const auto tenure = engine_->find(log);
    if (!tenure) return responder.fail({Code::unavailable, "no such copy"});
    if (seen->count > 0 && (!tenure->interval.contains(seen->first_key) || !tenure->interval.contains(seen->last_key)))
      return responder.fail({Code::invalid, "a key is outside the partition"});
    if (proto::too_far_ahead(seen->newest, loop_.wall_ms()))
      return responder.fail({Code::invalid, "a version is ahead of this server's clock"});
    input(push::VersionSeen{seen->newest});
    const auto done = [alive = alive_, responder](base::Status s) {
      if (!*alive) return;
      s ? responder.ok(wire::encode(model::BulkBlockReply{})) : responder.fail(s.error());
    };
    store::Engine::Chunk chunk{message->snapshot, std::move(message->records), std::move(message->through_key),
                               message->last};
    if (auto begun = engine_->ingest(tenure->id, std::move(chunk), done); !begun) responder.fail(begun.error());
  });
}

void Service::serve_bulk_begin(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::BulkBegin>(call, responder);
  if (!message) return;
  admitted(message, push::Purpose::bulk, responder, [this, message, responder](const model::PartitionId& log) {
    model::BulkBeginReply reply;
    reply.incarnation = dir_->identity().incarnation;
    reply.heal = machine_->heal(log);
    const auto tenure = engine_->find(log);
    if (message->kind == model::BulkKind::snapshot && tenure && tenure->fill.snapshot == message->snapshot) {
      reply.filled_to = tenure->fill.to;
      reply.filled_all = tenure->fill.all;
    }
    responder.ok(wire::encode(reply));
  });
}

void Service::serve_bulk_end(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::BulkEnd>(call, responder);
  if (!message) return;
  admitted(message, push::Purpose::bulk_end, responder, [this, message, responder](const model::PartitionId&) {
    push::BulkEndArrived in;
    in.message = message.get();
    input(in);
    responder.ok();
    maybe_ready();  // that was perhaps the last that it waited for
  });
}

void Service::serve_digest(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::Digest>(call, responder);
  if (!message) return;
  if (message->entries.size() > model::kDigestEntriesMax)
    return responder.fail({Code::too_large, "more than " + std::to_string(model::kDigestEntriesMax) + " entries"});
  admitted(message, push::Purpose::digest, responder, [this, message, responder](const model::PartitionId& log) {
    std::vector<store::Engine::Offer> offers;
    for (const auto& entry : message->entries) offers.push_back({entry.key, entry.version});
    auto lacking = engine_->lacking(log, offers);
    if (!lacking) return responder.fail(lacking.error());
    if (message->delivered) input(push::DeliveryTold{message->envelope, *message->delivered});
    responder.ok(wire::encode(model::DigestReply{std::move(*lacking), machine_->delivered(log)}));
  });
}

void Service::serve_epochs(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::Epochs>(call, responder);
  if (!message) return;
  admitted(message, push::Purpose::epochs, responder, [this, responder](const model::PartitionId& log) {
    responder.ok(wire::encode(
        model::EpochsReply{dir_->identity().incarnation, engine_->durable(log).value_or(model::LogPoint{})}));
  });
}

void Service::serve_push_read(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::PushRead>(call, responder);
  if (!message) return;
  if (auto ok = wire::check_key(message->key); !ok) return responder.fail(ok.error());
  admitted(message, push::Purpose::read, responder, [this, message, responder](const model::PartitionId& log) {
    const auto found = engine_->get(log, message->key);
    if (!found) return responder.fail(found.error());
    model::PushReadReply reply;
    if (*found) reply = {true, (*found)->deleted, (*found)->version, std::string((*found)->value)};
    responder.ok(wire::encode(reply));
  });
}

void Service::serve_push_scan(const rpc::Call& call, rpc::Responder responder) {
  auto message = decode<model::PushScan>(call, responder);
  if (!message) return;
  admitted(message, push::Purpose::read, responder, [this, message, responder](const model::PartitionId& log) {
    store::ScanRange range;
    range.from = message->range.begin;
    range.to = message->range.end;
    range.reverse = message->reverse;
    range.records_max = std::min(message->limit == 0 ? model::kScanRecordsMax : message->limit, model::kScanRecordsMax);
    range.bytes_max = std::min(message->bytes == 0 ? model::kScanBytesMax : message->bytes, model::kScanBytesMax);
    read_page(log, range, [responder](base::Result<model::PushScanReply> page) {
      page ? responder.ok(wire::encode(*page)) : responder.fail(page.error());
    });
  });
}

void Service::serve_beacon(const rpc::Call& call) {
  const auto beacon = wire::decode<model::Beacon>(call.params);
  if (beacon && machine_) input(push::BeaconArrived{*beacon});
}

}  // namespace cantle::partd

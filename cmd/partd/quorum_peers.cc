// Messages of other servers about quorum tables.
#include "cmd/partd/quorum.h"
#include "lib/base/log.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"
#include "lib/wire/pipe_block.h"

namespace cantle::partd {

using base::Code;
namespace election = proto::election;

namespace {
std::vector<model::LogBlock> encoded(std::vector<model::Block> blocks) {
  std::vector<model::LogBlock> all;
  for (auto& b : blocks) {
    auto& one = all.emplace_back();
    one.header.resize(wire::kBlockHeaderSize);
    wire::encode_header(b.header, one.header.data());
    one.payload = std::move(b.payload);
  }
  return all;
}
}  // namespace

void Quorum::add_handlers(rpc::Server& server) {
  const auto on = [&](const char* method, void (Quorum::*serve)(const rpc::Call&, rpc::Responder)) {
    server.handle(method, [this, serve](const rpc::Call& call, rpc::Responder responder) {
      (this->*serve)(call, std::move(responder));
    });
  };
  const auto told = [&](const char* method, void (Quorum::*serve)(const rpc::Call&)) {
    server.handle_notify(method, [this, serve](const rpc::Call& call) { (this->*serve)(call); });
  };
  on("quorum.beacon", &Quorum::serve_beacon);
  on("quorum.suspect", &Quorum::serve_suspect);
  on("pipe.open", &Quorum::serve_open);
  on("pipe.cut", &Quorum::serve_cut);
  told("quorum.release", &Quorum::serve_release);
  told("pipe.block", &Quorum::serve_block);
  told("pipe.commit", &Quorum::serve_commit);
  told("pipe.ack", &Quorum::serve_ack);
  told("quorum.outside", &Quorum::serve_outside);
  on("quorum.snapshot", &Quorum::serve_snapshot);
  on("quorum.blocks", &Quorum::serve_blocks);
  on("quorum.lend", &Quorum::serve_lend);
}

template <class Message>
std::shared_ptr<Message> Quorum::decode(const rpc::Call& call, const rpc::Responder* responder) {
  auto message = wire::decode<Message>(call.params);
  if (message) return std::make_shared<Message>(std::move(*message));
  if (responder != nullptr) responder->fail(message.error());
  return nullptr;
}

// Null: it is not for a copy here; that was answered.
Quorum::Replica* Quorum::admit(const model::Envelope& envelope, const rpc::Responder* responder) {
  const auto admitted = tables_.admit(envelope);
  auto* r = admitted ? find(envelope.partition) : nullptr;
  if (r == nullptr && responder != nullptr)
    responder->fail(admitted ? base::Error(Code::unavailable, "the replica is not there yet") : admitted.error());
  return r;
}

// A replica whose map is not here yet has accepted no leader in this life: this answer grants nothing for it.
void Quorum::serve_beacon(const rpc::Call& call, rpc::Responder responder) {
  const auto beacon = decode<model::QuorumBeacon>(call, &responder);
  if (!beacon) return;
  if (const auto reply = beacons_.heard(now(), *beacon))
    responder.ok(wire::encode(*reply));
  else
    responder.fail({Code::unavailable, "it is of an older life of " + beacon->from.name});
  news();
}

void Quorum::serve_suspect(const rpc::Call& call, rpc::Responder responder) {
  const auto question = decode<model::QuorumSuspect>(call, &responder);
  if (!question) return;
  if (auto* r = admit(question->envelope, &responder)) responder.ok(wire::encode(r->machine->suspect(at(), *question)));
}

void Quorum::serve_release(const rpc::Call& call) {
  const auto released = decode<model::QuorumRelease>(call, nullptr);
  if (!released) return;
  const auto& from = released->envelope;
  beacons_.released(now(), from.from, from.incarnation, {from.partition, released->epoch, released->successor});
  // Whom it concerns is told at once.
  if (auto* r = find(from.partition)) run(*r, [&](Out& out) { r->machine->elect(at(), election::Tick{}, out); });
  news();
}

void Quorum::serve_open(const rpc::Call& call, rpc::Responder responder) {
  const auto message = decode<model::PipeOpen>(call, &responder);
  if (!message) return;
  auto* r = admit(message->envelope, &responder);
  if (r == nullptr) return;
  const auto id = ++last_id_;
  opens_.emplace(id, std::move(responder));
  run(*r, [&](Out& out) { r->machine->open(at(), id, *message, out); });
}

void Quorum::serve_cut(const rpc::Call& call, rpc::Responder responder) {
  const auto message = decode<model::PipeCut>(call, &responder);
  if (!message) return;
  auto* r = admit(message->envelope, &responder);
  if (r == nullptr) return;
  const auto id = ++last_id_;
  opens_.emplace(id, std::move(responder));
  run(*r, [&](Out& out) { r->machine->cut(at(), id, *message, out); });
}

// What is malformed is dropped: the leader hears no acknowledgement, and takes this replica out.
void Quorum::serve_block(const rpc::Call& call) {
  auto in = wire::decode_pipe_block(call.params);
  if (!in) return;
  auto* r = admit(in->message.envelope, nullptr);
  if (r == nullptr || in->header.partition != r->partition) return;
  const auto id = ++last_id_;
  auto& block = blocks_[id];
  block.message = std::move(in->message);
  block.header = in->header;
  block.payload = std::string(in->payload);
  model::AttemptId attempt;
  if (model::is_cut_mark(in->header.kind)) attempt = model::attempt_of_cut(in->payload).value_or(model::AttemptId{});
  run(*r, [&](Out& out) { r->machine->block(at(), id, block.header, block.message, out, attempt); });
}

void Quorum::serve_commit(const rpc::Call& call) {
  const auto message = decode<model::PipeCommit>(call, nullptr);
  if (!message) return;
  if (auto* r = admit(message->envelope, nullptr)) run(*r, [&](Out& out) { r->machine->commit(at(), *message, out); });
}

void Quorum::serve_ack(const rpc::Call& call) {
  const auto message = decode<model::PipeAck>(call, nullptr);
  if (!message) return;
  if (auto* r = admit(message->envelope, nullptr)) run(*r, [&](Out& out) { r->machine->ack(at(), *message, out); });
}

void Quorum::serve_outside(const rpc::Call& call) {
  const auto message = decode<model::QuorumOutside>(call, nullptr);
  if (!message) return;
  if (auto* r = admit(message->envelope, nullptr)) run(*r, [&](Out& out) { r->machine->outside(at(), *message, out); });
}

// What is in the log, be it committed or not: whoever asks has had it, too.
void Quorum::serve_blocks(const rpc::Call& call, rpc::Responder responder) {
  const auto message = decode<model::QuorumBlocks>(call, &responder);
  if (!message) return;
  const auto* r = admit(message->envelope, &responder);
  if (r == nullptr) return;
  auto blocks = engine_.read_gap(r->partition, message->gap);
  if (!blocks) return responder.fail(blocks.error());
  base::log(base::Level::notice, "blocks",
            {{"partition", to_string(r->partition)},
             {"for", message->envelope.from.name},
             {"after_lsn", message->gap.after.lsn.value},
             {"lsn", message->gap.upto.lsn.value}});
  responder.ok(wire::encode(model::QuorumBlocksReply{encoded(std::move(*blocks))}));
}

// It has promised what the sender has, and nobody leads: nothing changes here meanwhile.
void Quorum::serve_lend(const rpc::Call& call, rpc::Responder responder) {
  const auto message = decode<model::QuorumLend>(call, &responder);
  if (!message) return;
  const auto* r = admit(message->envelope, &responder);
  if (r == nullptr) return;
  const auto after = r->machine->may_lend(*message);
  if (!after) return responder.fail(after.error());
  auto behind = engine_.read_behind(r->partition, *after, model::kLendBytes);
  if (!behind) return responder.fail(behind.error());
  base::log(base::Level::notice, "lend",
            {{"partition", to_string(r->partition)},
             {"to", message->envelope.from.name},
             {"after_lsn", after->value},
             {"blocks", behind->blocks.size()}});
  responder.ok(wire::encode(model::QuorumLendReply{behind->end, behind->after, encoded(std::move(behind->blocks))}));
}

// Whoever has the copy may give it: there is nothing in it but what is committed.
void Quorum::serve_snapshot(const rpc::Call& call, rpc::Responder responder) {
  const auto message = decode<model::QuorumSnapshot>(call, &responder);
  if (!message) return;
  const auto* r = admit(message->envelope, &responder);
  if (r == nullptr) return;
  if (message->place.snapshot == 0)
    base::log(base::Level::notice, "snapshot",
              {{"partition", to_string(r->partition)}, {"for", message->envelope.from.name}});
  engine_.read_snapshot(r->partition, message->place, message->bytes,
                        [responder](base::Result<model::QuorumSnapshotPart> part) mutable {
                          if (part)
                            responder.ok(wire::encode(*part));
                          else
                            responder.fail(part.error());
                        });
}

}  // namespace cantle::partd

// The service's hands: every effect of the mover, and its answer.
#include <utility>

#include "cmd/replpush/service.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/model/client_messages.h"
#include "lib/wire/codec.h"

namespace cantle::replpush {

using base::Level;

namespace {

constexpr base::Duration kShort = std::chrono::seconds(10);
constexpr base::Duration kLong = std::chrono::seconds(25);  // below what the mover waits

// The head of a byte string whose bytes are not here.
struct BytesBehind {
  size_t size = 0;
};
void put(wire::Writer& w, const BytesBehind& v) { w.bin_head(v.size); }

// BulkBlock without its records: they stand last, and are sent from where they lie.
struct BlockOut {
  model::Envelope envelope;
  model::BulkKind kind = model::BulkKind::log;
  uint32_t count = 0;
  uint64_t snapshot = 0;
  std::string through_key;
  bool last = false;
  std::optional<model::Delivered> delivered;
  BytesBehind records;
  CANTLE_FIELDS(envelope, kind, count, snapshot, through_key, last, delivered, records)
};

template <class T>
base::Result<T> as(const base::Result<std::string_view>& r) {
  if (!r) return base::fail(r.error());
  return wire::decode<T>(*r);
}
base::Status status_of(const base::Result<std::string_view>& r) {
  if (!r) return base::fail(r.error());
  return base::ok();
}

}  // namespace

// Effects are performed in order; what they bring about at once waits until they are through.
void Service::feed(mv::Input input) {
  inputs_.push_back(std::move(input));
  if (std::exchange(stepping_, true)) return;
  while (!inputs_.empty()) {
    mv::Input next = std::move(inputs_.front());
    inputs_.pop_front();
    auto effects = mover_.step(std::move(next));
    for (auto& effect : effects) std::visit([this](auto& e) { perform(e); }, effect);
  }
  stepping_ = false;
}

// --- Reading and keeping -------------------------------------------------------------------------------

void Service::perform(mv::LoadMark& e) {
  source_.load_mark(std::move(e), [this](mv::MarkLoaded in) {
    in.now = loop_.now();
    feed(std::move(in));
  });
}
void Service::perform(mv::RecordMark& e) { source_.record_mark(std::move(e)); }
void Service::perform(mv::ForgetMark& e) { source_.forget_mark(e.key); }
void Service::perform(mv::Measure& e) {
  measure_ = e.number;
  moved();
}
void Service::perform(mv::RefreshView&) { refresh_view(); }

void Service::perform(mv::ReadLog& e) {
  source_.read_log(std::move(e), view_.number, [this](mv::LogRead in) {
    in.now = loop_.now();
    feed(std::move(in));
  });
}
void Service::perform(mv::OpenSnapshot& e) {
  source_.open_snapshot(std::move(e), [this](mv::SnapshotOpened in) {
    in.now = loop_.now();
    feed(std::move(in));
  });
}
void Service::perform(mv::ReadSnapshot& e) {
  source_.read_snapshot(std::move(e), [this](mv::SnapshotRead in) {
    in.now = loop_.now();
    feed(std::move(in));
  });
}
void Service::perform(mv::ReadProof& e) {
  source_.read_proof(std::move(e), [this](mv::ProofRead in) {
    in.now = loop_.now();
    feed(std::move(in));
  });
}

// --- Sending -------------------------------------------------------------------------------------------

void Service::perform(mv::SendBegin& e) {
  targets_.call(e.to, "bulk.begin", wire::encode(e.message), kShort,
                [this, stream = e.stream, ticket = e.ticket](auto r) {
                  feed(mv::Began{loop_.now(), stream, ticket, as<model::BulkBeginReply>(r)});
                });
}
void Service::perform(mv::SendBlock& e) {
  CRASH_POINT("replpush.before_block");
  const BlockOut out{std::move(e.message.envelope),    e.message.kind, e.message.count,     e.message.snapshot,
                     std::move(e.message.through_key), e.message.last, e.message.delivered, {e.records->size()}};
  const auto answered = [this, stream = e.stream, ticket = e.ticket](const base::Result<std::string_view>& r) {
    CRASH_POINT("replpush.block_answered");
    auto reply = as<model::BulkBlockReply>(r);
    mv::Confirmed in{loop_.now(), stream, ticket, base::ok()};
    if (reply)
      in.delivered = std::move(reply->delivered);
    else
      in.status = base::fail(std::move(reply).error());
    feed(std::move(in));
  };
  targets_.call(e.to, "bulk.block", wire::encode(out), kLong, answered, e.records);
}
void Service::perform(mv::SendDigest& e) {
  targets_.call(e.to, "digest", wire::encode(e.message), kLong, [this, stream = e.stream, ticket = e.ticket](auto r) {
    feed(mv::Digested{loop_.now(), stream, ticket, as<model::DigestReply>(r)});
  });
}
void Service::perform(mv::SendEnd& e) {
  CRASH_POINT("replpush.before_end");
  targets_.call(e.to, "bulk.end", wire::encode(e.message), kShort,
                [this, stream = e.stream, ticket = e.ticket](auto r) {
                  feed(mv::EndTold{loop_.now(), stream, ticket, status_of(r)});
                });
}
void Service::perform(mv::AskProof& e) {
  targets_.call(e.to, "digest", wire::encode(e.message), kLong, [this, own = e.own, ticket = e.ticket](auto r) {
    feed(mv::Proved{loop_.now(), own, ticket, as<model::DigestReply>(r)});
  });
}
void Service::perform(mv::Drop& e) {
  CRASH_POINT("replpush.before_drop");
  model::DropRequest m;
  m.table = e.table;
  m.table_uuid = e.table_uuid;
  m.partition = e.partition;
  m.assignment = e.own;
  m.txnseq = e.txnseq;
  m.proved_to = e.end;
  partd_.call("drop", wire::encode(m), kLong, [this, own = e.own, ticket = e.ticket](auto r) {
    feed(mv::Dropped{loop_.now(), own, ticket, status_of(r)});
  });
}

void Service::perform(mv::Note& e) {
  base::log(e.warn ? Level::warn : Level::notice, e.event,
            {{"partition", e.partition}, {"to", e.server}, {"text", e.text}});
}

}  // namespace cantle::replpush

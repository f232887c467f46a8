// What the machine asked for, done.
#include "cmd/partd/service.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/store/live_page.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;

namespace {

constexpr size_t kWaitingBlockBytesMax = size_t{24} << 20;
constexpr base::Duration kRoomWait = std::chrono::milliseconds(500);
constexpr base::Duration kRoomLook = std::chrono::milliseconds(3);

// What fails after it was taken may have happened.
base::Error later(base::Error error) {
  if (error.code != Code::outcome_unknown) error = base::Error(Code::outcome_unknown, to_string(error));
  return error;
}

std::string encode_push_write(const push::Send& e, std::string_view records, uint32_t count, base::WallMs wall) {
  std::string out;
  out.reserve(records.size() + 512);
  wire::Writer w(out);
  w.map(5);
  w.str("envelope");
  w.raw(wire::encode(e.envelope));
  w.str("records");
  w.bin(records);
  w.str("count");
  w.uint(count);
  w.str("wall_ms");
  w.uint(wall);
  w.str("settled");
  w.bin(e.settled.view());
  return out;
}

}  // namespace

// --- a client's write ---------------------------------------------------------------------------------------

void Service::perform(push::Gather& e) {
  CHECK(current_ != nullptr);
  auto& batch = batches_[e.batch];
  model::RecordView record;
  record.version = e.version;
  for (const auto& op : current_->ops) {
    record.op = op.op;
    record.key = op.key;
    record.value = op.value;
    wire::append_record(batch.payload, record);
  }
  batch.count += static_cast<uint32_t>(current_->ops.size());
}

void Service::perform(push::Append& e) {
  auto& batch = batches_[e.batch];
  auto point = std::make_shared<model::LogPoint>();
  const auto done = [this, id = e.batch, point](base::Result<model::Lsn> durable) {
    CRASH_POINT("partd.durable");
    if (durable)
      input(push::Appended{id, *point});
    else
      input(push::Appended{id, base::fail(later(durable.error()))});
  };
  auto lsn = engine_->append(e.log, batch.payload, done);
  if (!lsn) {
    batch.refused = true;
    return input(push::Appended{e.batch, base::fail(std::move(lsn).error())});
  }
  *point = *engine_->log_end(e.log);
}

void Service::perform(push::Send& e) {
  auto it = batches_.find(e.batch);
  if (it == batches_.end() || it->second.refused) return;
  std::string filtered;
  std::string_view records = it->second.payload;
  uint32_t count = it->second.count;
  CRASH_POINT("partd.before_send");
  if (e.only) records = filtered = wire::filter_records(records, *e.only, &count);
  const auto to = e.envelope.to_assignment;
  links_->call(e.to, "push.write", encode_push_write(e, records, count, loop_.wall_ms()), e.timeout,
               [this, batch = e.batch, to](base::Result<std::string_view> answer) {
                 if (!answer) return input(push::SendAnswered{batch, to, base::fail(answer.error())});
                 input(push::SendAnswered{batch, to, wire::decode<model::PushWriteReply>(*answer)});
               });
}

void Service::perform(push::Forget& e) { batches_.erase(e.batch); }

void Service::perform(push::Reply& e) {
  auto node = requests_.extract(e.request);
  if (node.empty()) return;
  CRASH_POINT("partd.reply");
  if (!e.result) return node.mapped().responder.fail(e.result.error());
  answer_.clear();
  wire::Writer w(answer_);
  w.map(4);
  w.str("version");
  w.bin(e.result->version.view());
  w.str("lsn");
  w.uint(e.result->lsn.value);
  w.str("epoch");
  w.uint(e.result->epoch.value);
  w.str("txnseq");
  w.uint(e.result->txnseq.value);
  node.mapped().responder.ok(answer_);
}

void Service::perform(push::Forward& e) {
  auto node = requests_.extract(e.request);
  CHECK(!node.empty() && current_ != nullptr);
  forward(e.to, current_method_, current_->params, e.txnseq, current_->deadline(), std::move(node.mapped().responder));
}

// --- messages of other servers ------------------------------------------------------------------------------

// A mover's block can wait for a while, and would come again: the store's pace is the mover's.
void Service::perform(push::AppendReceived& e) {
  const auto& call = calls_.at(e.call);
  const size_t bytes = call.records.size();
  const bool may_wait = call.kind == Call::Kind::bulk && waiting_block_bytes_ + bytes <= kWaitingBlockBytesMax;
  if (!may_wait || (waiting_blocks_.empty() && engine_->has_room(bytes))) return append_received(e.call, e.log);
  waiting_blocks_.push_back({e.call, e.log, loop_.now() + kRoomWait, bytes});
  waiting_block_bytes_ += bytes;
  if (!room_timer_.active()) room_timer_.start(kRoomLook, kRoomLook);
}

void Service::append_waiting() {
  const auto now = loop_.now();
  while (!waiting_blocks_.empty()) {
    const auto next = waiting_blocks_.front();
    if (now < next.until && !engine_->has_room(next.bytes)) return;
    waiting_blocks_.pop_front();
    waiting_block_bytes_ -= next.bytes;
    append_received(next.call, next.log);
  }
  room_timer_.stop();
}

void Service::append_received(push::CallId id, const model::PartitionId& log) {
  auto& call = calls_.at(id);
  auto point = std::make_shared<model::LogPoint>();
  const auto done = [this, id, point](base::Result<model::Lsn> durable) {
    CRASH_POINT("partd.received");
    if (durable)
      input(push::ReceivedAppended{id, *point});
    else
      input(push::ReceivedAppended{id, base::fail(later(durable.error()))});
  };
  auto lsn = engine_->append(log, std::exchange(call.records, {}), done);
  if (!lsn) return input(push::ReceivedAppended{id, base::fail(std::move(lsn).error())});
  *point = *engine_->log_end(log);
}

void Service::perform(push::Answer& e) {
  auto node = calls_.extract(e.call);
  if (node.empty()) return;
  auto& call = node.mapped();
  if (!e.result) return call.responder.fail(e.result.error());
  switch (call.kind) {
    case Call::Kind::write: return call.responder.ok(wire::encode(model::PushWriteReply{*e.result, loop_.wall_ms()}));
    case Call::Kind::bulk: return call.responder.ok(bulk_reply(call.log, *e.result));
    case Call::Kind::drop: return call.responder.ok(wire::encode(model::DropReply{e.result->value == 1}));
  }
}

void Service::perform(push::AskEpochs& e) {
  const auto partition = e.envelope.partition;
  const auto of = e.envelope.to_assignment;
  links_->call(e.to, "epochs", wire::encode(model::Epochs{e.envelope}), kReadTimeout,
               [this, partition, of](base::Result<std::string_view> answer) {
                 if (!answer) return input(push::EpochsAnswered{partition, of, base::fail(answer.error())});
                 input(push::EpochsAnswered{partition, of, wire::decode<model::EpochsReply>(*answer)});
               });
}

void Service::perform(push::SendBeacon& e) {
  links_->notify(e.to, "beacon", wire::encode(model::Beacon{self_, dir_->identity().incarnation, loop_.wall_ms()}));
}

// --- copies -----------------------------------------------------------------------------------------------------

void Service::perform(push::Create& e) {
  // A copy whose split nobody remembers would be one that METADATA does not explain, once the split is aborted.
  if (unremembered_) remember();
  if (unremembered_)
    return input(
        push::Created{e.copy.partition, base::fail(Code::no_space, "what it is a copy of cannot be remembered")});
  base::log(base::Level::notice, "begin",
            {{"table", e.table},
             {"partition", to_string(e.copy.partition)},
             {"assignment", to_string(e.copy.assignment)},
             {"interval", to_string(e.copy.interval)}});
  const auto partition = e.copy.partition;
  const auto done = [this, partition](base::Status s) {
    CRASH_POINT("partd.created");
    input(push::Created{partition, std::move(s)});
  };
  const auto begun =
      engine_->create({{partition, e.copy.assignment}, e.copy.table, e.copy.region, e.copy.interval}, done);
  if (begun) return;
  if (begun.error().code == Code::exists) return input(push::Created{partition, base::ok()});
  input(push::Created{partition, base::fail(begun.error())});
}

void Service::perform(push::Divide& e) {
  base::log(base::Level::notice, "divide",
            {{"parent", to_string(e.parent)}, {"at", base::escape(e.point)}, {"attempt", to_string(e.attempt)}});
  const auto child = [](const push::Child& c) { return store::ChildSpec{c.partition, c.region, c.assignment}; };
  const auto done = [this, parent = e.parent](base::Status s) {
    CRASH_POINT("partd.divided");
    input(push::Divided{parent, std::move(s)});
  };
  const auto point = engine_->divide(e.parent, e.attempt, e.point, child(e.low), child(e.high), done);
  if (!point) fail(base::Error(point.error()).wrap("dividing partition " + to_string(e.parent)));
}

void Service::perform(push::SetAside& e) {
  base::log(base::Level::notice, "set-aside",
            {{"partition", to_string(e.partition)}, {"assignment", to_string(e.assignment)}});
  const auto done = [this, assignment = e.assignment](base::Status s) {
    CRASH_POINT("partd.set_aside");
    input(push::SetAsideDone{assignment, std::move(s)});
  };
  if (const auto begun = engine_->set_aside({e.partition, e.assignment}, true, done); !begun)
    input(push::SetAsideDone{e.assignment, base::fail(begun.error())});
}

void Service::perform(push::Drop& e) {
  base::log(base::Level::notice, "drop",
            {{"partition", to_string(e.partition)}, {"assignment", to_string(e.assignment)}, {"why", e.why}});
  const auto done = [this, assignment = e.assignment](base::Status s) {
    CRASH_POINT("partd.dropped");
    input(push::Dropped{assignment, std::move(s)});
  };
  if (const auto begun = engine_->drop({e.partition, e.assignment}, done); !begun)
    input(push::Dropped{e.assignment, base::fail(begun.error())});
}

void Service::perform(push::Remember& e) {
  state_.seen = e.seen;
  state_.children = e.children;
  remember();
}
void Service::remember() {
  auto saved = state_.save(disk_);
  unremembered_ = !saved;
  if (saved) return;
  // Full disk: what is remembered makes the next start stricter, and explains copies that are to be made, which wait.
  // Any other error is final.
  if (saved.error().code == Code::no_space)
    return base::log(base::Level::warn, "remember", {{"error", to_string(saved.error())}});
  fail(std::move(saved).error());
}

void Service::perform(push::SetLive& e) { page_->set_confirmed({e.own, e.target}, e.point); }
void Service::perform(push::MarkWhole& e) {
  auto done = [](const base::Status& s) {
    if (!s)
      base::log(base::Level::warn, "mark-whole", {{"error", to_string(s.error())}});  // the next start heals again
  };
  if (auto begun = engine_->mark_whole({e.partition, e.assignment}, done); !begun) done(begun);
}
void Service::perform(push::ForgetLive& e) { page_->forget({e.own, e.target}); }
void Service::perform(push::Say& e) { base::log(e.level, e.what, {{"text", e.text}}); }
void Service::perform(push::Exit& e) { fail({Code::identity, e.text}); }

}  // namespace cantle::partd

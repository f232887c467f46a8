// What a PartdNode does for its machine.
#include <algorithm>

#include "lib/base/check.h"
#include "lib/coord/layout.h"
#include "lib/wire/block.h"
#include "test/sim/partd.h"

namespace cantle::sim {

using base::Code;
namespace push = proto::push;

namespace {

bool from_link(const base::Error& error) { return error.detail == kLinkError; }

template <class T>
base::Result<T> as(const Network::Answer& answer) {
  if (!answer) return base::fail(answer.error());
  return std::any_cast<T>(*answer);
}

void encode(std::string& payload, const std::any& message, const model::Version& version) {
  const auto add = [&](model::Op op, std::string_view key, std::string_view value) {
    model::RecordView r;
    r.op = op;
    r.key = key;
    r.value = value;
    r.version = version;
    wire::append_record(payload, r);
  };
  if (const auto* put = std::any_cast<model::PutRequest>(&message)) return add(model::Op::put, put->key, put->value);
  if (const auto* del = std::any_cast<model::DeleteRequest>(&message)) return add(model::Op::del, del->key, "");
  for (const auto& op : std::any_cast<const model::BatchRequest&>(message).ops) add(op.op, op.key, op.value);
}

// What fails after it was taken may have happened.
base::Error later(base::Error error) {
  if (error.code != Code::outcome_unknown) error = base::Error(Code::outcome_unknown, to_string(error));
  return error;
}

template <class T>
std::any passed_on(T message, model::TxnSeq txnseq) {
  message.hop = false;
  message.txnseq = txnseq;
  return message;
}

}  // namespace

void PartdNode::perform(push::Gather& e) {
  auto& batch = batches_[e.batch];
  if (!batch) batch = std::make_shared<std::string>();
  encode(*batch, requests_.at(e.request).message, e.version);
}

void PartdNode::perform(push::Append& e) {
  auto point = std::make_shared<model::LogPoint>();
  auto lsn =
      engine_->append(e.log, *batches_.at(e.batch), [this, batch = e.batch, point](base::Result<model::Lsn> durable) {
        if (durable)
          input(push::Appended{batch, *point});
        else
          input(push::Appended{batch, base::fail(later(durable.error()))});
      });
  if (!lsn) {
    // Nothing has happened then: none of its sends may be done.
    refused_.insert(e.batch);
    return input(push::Appended{e.batch, base::fail(lsn.error())});
  }
  *point = *engine_->log_end(e.log);
}

void PartdNode::perform(push::Send& e) {
  if (refused_.contains(e.batch)) return;
  model::PushWrite message;
  message.envelope = e.envelope;
  message.settled = e.settled;
  message.wall_ms = process_.wall_ms();
  const auto& payload = *batches_.at(e.batch);
  if (e.only) {
    message.records = wire::filter_records(payload, *e.only, &message.count);
  } else {
    message.records = payload;
    message.count = wire::check_records(payload)->records;
  }
  const auto to = e.envelope.to_assignment;
  cluster_.network.call(process_, e.to.name + "/partd", message, e.timeout,
                        [this, batch = e.batch, to, server = e.to](Network::Answer r) {
                          if (!*here_) return;
                          if (!r && from_link(r.error())) link_result(server, false);
                          input(push::SendAnswered{batch, to, as<model::PushWriteReply>(r)});
                        });
}

void PartdNode::perform(push::Forget& e) {
  batches_.erase(e.batch);
  refused_.erase(e.batch);
}

void PartdNode::perform(push::Reply& e) {
  auto it = requests_.find(e.request);
  CHECK(it != requests_.end());
  const auto reply = std::move(it->second.reply);
  requests_.erase(it);
  if (e.result)
    reply(std::any(*e.result));
  else
    reply(base::fail(e.result.error()));
}

void PartdNode::perform(push::Forward& e) {
  auto it = requests_.find(e.request);
  CHECK(it != requests_.end());
  auto request = std::move(it->second);
  requests_.erase(it);
  std::any message;
  if (const auto* put = std::any_cast<model::PutRequest>(&request.message)) message = passed_on(*put, e.txnseq);
  if (const auto* del = std::any_cast<model::DeleteRequest>(&request.message)) message = passed_on(*del, e.txnseq);
  if (const auto* batch = std::any_cast<model::BatchRequest>(&request.message)) message = passed_on(*batch, e.txnseq);
  cluster_.network.call(process_, e.to.name + "/partd", std::move(message), 5s,
                        [reply = request.reply](Network::Answer r) { reply(std::move(r)); });
}

void PartdNode::perform(push::FetchMap& e) { fetch_map(e.table); }

void PartdNode::perform(push::AppendReceived& e) {
  const auto& message = calls_.at(e.call).message;
  const auto* write = std::any_cast<model::PushWrite>(&message);
  const std::string& records = write ? write->records : std::any_cast<const model::BulkBlock&>(message).records;
  auto point = std::make_shared<model::LogPoint>();
  auto lsn = engine_->append(e.log, records, [this, call = e.call, point](base::Result<model::Lsn> durable) {
    if (durable)
      input(push::ReceivedAppended{call, *point});
    else
      input(push::ReceivedAppended{call, base::fail(later(durable.error()))});
  });
  if (!lsn) return input(push::ReceivedAppended{e.call, base::fail(lsn.error())});
  *point = *engine_->log_end(e.log);
}

void PartdNode::perform(push::Answer& e) {
  auto it = calls_.find(e.call);
  CHECK(it != calls_.end());
  const auto call = std::move(it->second);
  calls_.erase(it);
  if (!e.result) return call.reply(base::fail(e.result.error()));
  if (call.message.type() == typeid(model::PushWrite))
    return call.reply(std::any(model::PushWriteReply{*e.result, process_.wall_ms()}));
  if (const auto* block = std::any_cast<model::BulkBlock>(&call.message))
    return call.reply(std::any(model::BulkBlockReply{*e.result, machine_->delivered(block->envelope.partition)}));
  call.reply(std::any(model::DropReply{e.result->value == 1}));
}

void PartdNode::perform(push::Create& e) {
  if (unremembered_) remember();
  if (unremembered_)
    return input(push::Created{e.copy.partition, base::fail(base::Code::no_space, "cannot be remembered")});
  cluster_.scheduler.note("create", host_.id.name, to_string(e.copy.partition), to_string(e.copy.assignment));
  const auto done = [this, partition = e.copy.partition](base::Status s) {
    input(push::Created{partition, std::move(s)});
  };
  const auto begun =
      engine_->create({{e.copy.partition, e.copy.assignment}, e.copy.table, e.copy.region, e.copy.interval}, done);
  if (!begun)
    input(push::Created{e.copy.partition,
                        begun.error().code == Code::exists ? base::ok() : base::Status(base::fail(begun.error()))});
}

void PartdNode::perform(push::Divide& e) {
  cluster_.scheduler.note("divide", host_.id.name, to_string(e.parent), to_string(e.low.assignment),
                          to_string(e.high.assignment));
  const auto child = [](const push::Child& c) { return store::ChildSpec{c.partition, c.region, c.assignment}; };
  const auto done = [this, parent = e.parent](base::Status s) { input(push::Divided{parent, std::move(s)}); };
  const auto point = engine_->divide(e.parent, e.attempt, e.point, child(e.low), child(e.high), done);
  if (!point) fatal("divide: " + to_string(point.error()));
}

void PartdNode::perform(push::Merge& e) {
  cluster_.scheduler.note("merge", host_.id.name, to_string(e.low), to_string(e.high), to_string(e.target.assignment));
  const auto done = [this, target = e.target.partition](base::Status s) { input(push::Merged{target, std::move(s)}); };
  const auto point =
      engine_->merge_ends(e.low, e.high, e.attempt, {e.target.partition, e.target.region, e.target.assignment}, done);
  if (!point) fatal("merge: " + to_string(point.error()));
}

void PartdNode::perform(push::SetAside& e) {
  cluster_.scheduler.note("set_aside", host_.id.name, to_string(e.partition), to_string(e.assignment));
  const auto done = [this, assignment = e.assignment](base::Status s) {
    input(push::SetAsideDone{assignment, std::move(s)});
  };
  if (const auto begun = engine_->set_aside({e.partition, e.assignment}, true, done); !begun)
    input(push::SetAsideDone{e.assignment, base::fail(begun.error())});
}

void PartdNode::perform(push::Drop& e) {
  cluster_.scheduler.note("drop", host_.id.name, to_string(e.assignment), e.why);
  const store::TenureId id{e.partition, e.assignment};
  if (cluster_.watchers.dropping) cluster_.watchers.dropping(host_, id, e.why);
  const auto done = [this, assignment = e.assignment](base::Status s) {
    input(push::Dropped{assignment, std::move(s)});
  };
  if (const auto begun = engine_->drop(id, done); !begun) input(push::Dropped{e.assignment, base::fail(begun.error())});
}

void PartdNode::perform(push::MarkAvailable& e) {
  ChangeAsk ask{e.table, model::ChangeId::draw(process_.random()), {model::ops::MarkAvailable{e.assignment, host_.id}}};
  cluster_.network.call(process_, cluster_.maps.address(process_), std::move(ask), 2s,
                        [this, table = e.table](Network::Answer) {
                          if (*here_) fetch_map(table);
                        });
}

void PartdNode::perform(push::Index& e) {
  engine_->drain([this, table = e.table, txnseq = e.txnseq](const base::Status& s) {
    if (s) input(push::Indexed{table, txnseq});
  });
}

void PartdNode::perform(push::PublishObserved& e) {
  observed_[e.table] = e.txnseq;
  publish_observed(e.table);
}

// Conditional on what was read: a late write of an old value never takes the place of a newer one.
void PartdNode::publish_observed(const std::string& table) {
  if (!publishing_.insert(table).second) return;
  const auto d = coord::distribution(model::Keyspace::range, table);
  const auto path = cluster_.maps.layout().observed(d, host_.id);
  const auto over = [this, table](bool again) {
    publishing_.erase(table);
    if (again)
      process_.after(100ms, [this, here = here_, table] {
        if (*here) publish_observed(table);
      });
  };
  session_->get(path, nullptr, [this, table, path, over](base::Result<coord::Node> r) {
    const auto text = coord::observed_text({observed_[table], incarnation()});
    const auto done = [this, table, over, wrote = observed_[table]](bool good) {
      over(!good || observed_[table] != wrote);
    };
    if (r && r->value == text) return done(true);
    if (r) return session_->set(path, text, r->stat.version, [done](auto s) { done(s.has_value()); });
    if (r.error().code != Code::not_found) return over(true);
    session_->create(path, text, coord::CreateMode::persistent, [done](auto s) { done(s.has_value()); });
  });
}

void PartdNode::perform(push::MapShown& e) {
  cluster_.network.notify(process_, host_.id.name + "/push", model::MapChanged{e.table, e.txnseq});
}

void PartdNode::perform(push::AskEpochs& e) {
  cluster_.network.call(
      process_, e.to.name + "/partd", model::Epochs{e.envelope}, 1s,
      [this, partition = e.envelope.partition, of = e.envelope.to_assignment, server = e.to](Network::Answer r) {
        if (!*here_) return;
        if (!r && from_link(r.error())) link_result(server, false);
        input(push::EpochsAnswered{partition, of, as<model::EpochsReply>(r)});
      });
}

void PartdNode::perform(push::SendBeacon& e) {
  cluster_.network.notify(process_, e.to.name + "/partd", model::Beacon{host_.id, incarnation(), process_.wall_ms()});
}

void PartdNode::perform(push::SetLive& e) { page_->set_confirmed({e.own, e.target}, e.point); }
void PartdNode::perform(push::MarkWhole& e) {
  (void)engine_->mark_whole({e.partition, e.assignment}, [](const base::Status&) {});
}
void PartdNode::perform(push::ForgetLive& e) { page_->forget({e.own, e.target}); }
void PartdNode::perform(push::Say& e) { cluster_.scheduler.note("say", host_.id.name, e.what, e.text); }

void PartdNode::perform(push::Exit& e) {
  host_.exit_text = e.text;
  fatal("exit 78: " + e.text);
}

}  // namespace cantle::sim

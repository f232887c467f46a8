#include "lib/meta/op_runner.h"

#include "lib/base/log.h"
#include "lib/coord/governments.h"

namespace cantle::meta {

using namespace proto::driver;

namespace {
constexpr uint32_t kSubmitMs = 10000;
}

void read_observed(Host& host, const std::string& d,
                   std::function<void(base::Result<std::map<model::ServerId, model::TxnSeq>>)> done) {
  struct Round {
    std::map<model::ServerId, model::TxnSeq> found;
    size_t left = 0;
    base::Status status = base::ok();
  };
  auto& session = host.session();
  session.children(host.layout().observed(d), nullptr,
                   [&session, &host, d, done = std::move(done)](base::Result<coord::Children> names) {
                     if (!names) return done(base::fail(std::move(names).error()));
                     auto round = std::make_shared<Round>();
                     round->left = names->names.size();
                     if (round->left == 0) return done(round->found);
                     for (const auto& name : names->names)
                       session.get(host.layout().observed(d, model::ServerId{name}), nullptr,
                                   [round, name, done](base::Result<coord::Node> node) {
                                     if (node) {
                                       if (const auto parsed = coord::parse_observed(node->value))
                                         round->found[model::ServerId{name}] = parsed->txnseq;
                                     } else if (node.error().code != base::Code::not_found) {
                                       round->status = base::fail(std::move(node).error());
                                     }
                                     if (--round->left != 0) return;
                                     if (round->status)
                                       done(round->found);
                                     else
                                       done(base::fail(round->status.error()));
                                   });
                   });
}

OpRunner::OpRunner(Host& host, TableAgent& agent, model::AttemptId attempt, proto::OpKind kind)
    : host_(host), agent_(agent), attempt_(attempt), kind_(kind), driver_(proto::make_driver(kind, attempt)) {}

OpRunner::~OpRunner() { *alive_ = false; }

void OpRunner::start() {
  phase_ = Phase::taking;
  session_ = host_.session().session_id();
  const coord::Task task{host_.self().name, agent_.name(), std::string(proto::op_name(kind_))};
  host_.session().create(
      host_.layout().op_task(attempt_), task_text(task), coord::CreateMode::ephemeral,
      [this, alive = std::weak_ptr<bool>(alive_)](base::Result<std::string> made) {
        if (!alive.lock()) return;
        if (!made) {
          // Somebody else has it, or it is not known whether it is ours: then a later look tells, and an
          // ephemeral of this session that nobody drives is taken over with its name (Chores).
          phase_ = Phase::ended;
          return;
        }
        phase_ = Phase::driving;
        base::log(base::Level::notice, "driving", {{"table", agent_.name()}, {"attempt", to_string(attempt_)}});
        feed(Begin{now()});
      });
}

void OpRunner::tick() {
  if (phase_ != Phase::driving) return;
  if (host_.session().session_id() != session_) {  // the task went with the session: whoever takes it now drives
    phase_ = Phase::ended;
    return;
  }
  feed(Tick{now()});
}

std::string OpRunner::waiting() const {
  if (phase_ == Phase::taking) return "taking the task";
  std::string text = driver_->waiting().why;
  for (const auto& server : driver_->waiting().for_whom) text += " " + server.name;
  return text;
}

void OpRunner::feed(Input input) {
  inputs_.push_back(std::move(input));
  if (stepping_) return;
  stepping_ = true;
  while (!inputs_.empty() && phase_ == Phase::driving) {
    const auto in = std::move(inputs_.front());
    inputs_.pop_front();
    for (const auto& e : driver_->step(in)) std::visit([&](const auto& x) { perform(x); }, e);
  }
  stepping_ = false;
}

// Everything after a sync: who lives, TableConfig, what the servers observed.
void OpRunner::perform(const Look& e) {
  const std::weak_ptr<bool> alive = alive_;
  const auto failed = [this, number = e.number](base::Error error) {
    feed(Looked{now(), number, base::fail(std::move(error))});
  };
  host_.refresh_nodes([this, alive, number = e.number, failed](bool read) {
    if (!alive.lock()) return;
    if (!read) return failed(base::Error(base::Code::unavailable, "nodes/active could not be read"));
    agent_.read_config([this, alive, number, failed](const proto::ConfigAnswer& answer) {
      if (!alive.lock()) return;
      if (!answer) return failed(answer.error());
      if (!*answer) return failed(base::Error(base::Code::no_such_table, "the table is gone"));
      look_further(number);
    });
  });
}

void OpRunner::look_further(uint64_t number) {
  const std::weak_ptr<bool> alive = alive_;
  read_observed(
      host_, agent_.distribution(),
      [this, alive, number](base::Result<std::map<model::ServerId, model::TxnSeq>> observed) {
        if (!alive.lock()) return;
        const auto* file = agent_.current();
        if (!observed) return feed(Looked{now(), number, base::fail(std::move(observed).error())});
        if (file == nullptr)
          return feed(
              Looked{now(), number, base::fail(base::Code::unavailable, "the current file has not been fetched yet")});
        look_at_governments(number, proto::World{file->map, std::move(*observed), host_.nodes().partds});
      });
}

// Where the attempt is about partitions of a quorum table.
void OpRunner::look_at_governments(uint64_t number, proto::World world) {
  auto wanted = proto::governed_by(*world.map, attempt_);
  coord::read_governments(host_.session(), host_.layout(), agent_.distribution(), wanted,
                          [this, alive = std::weak_ptr<bool>(alive_), number,
                           world = std::move(world)](base::Result<coord::GovernmentsRead> read) mutable {
                            if (!alive.lock()) return;
                            if (!read) return feed(Looked{now(), number, base::fail(std::move(read).error())});
                            for (auto& [id, r] : *read) world.governments[id] = {std::move(r.government), r.version};
                            feed(Looked{now(), number, std::move(world)});
                          });
}

void OpRunner::perform(const Submit& e) {
  model::MdChange request;
  request.table = agent_.name();
  request.change = model::ChangeId::draw(host_.random());
  const std::vector<model::Operation> list{e.operation};
  request.ops = wire::encode_operations(list);
  request.deadline_ms = kSubmitMs;
  agent_.change(request, [this, alive = std::weak_ptr<bool>(alive_),
                          number = e.number](base::Result<model::MdChangeReply> reply) {
    if (!alive.lock()) return;
    feed(Changed{now(), number, reply ? base::ok() : base::Status(base::fail(std::move(reply).error()))});
  });
}

void OpRunner::perform(const Waiting&) {}

void OpRunner::perform(const Ended& e) {
  base::log(base::Level::notice, "driven",
            {{"table", agent_.name()},
             {"attempt", to_string(attempt_)},
             {"outcome", static_cast<int>(e.outcome)},
             {"reason", e.reason}});
  let_go();
}

void OpRunner::stop() {
  if (phase_ == Phase::driving) let_go();
}

void OpRunner::let_go() {
  phase_ = Phase::ended;
  host_.session().remove(host_.layout().op_task(attempt_), coord::kAnyVersion, [](base::Result<base::Nothing>) {});
}

}  // namespace cantle::meta

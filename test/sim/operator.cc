#include "test/sim/operator.h"

#include "lib/coord/layout.h"
#include "lib/model/table_config.h"

namespace cantle::sim {

using base::Code;
namespace driver = proto::driver;

namespace {
constexpr Duration kLookAroundEvery = 400ms;
constexpr Duration kDriveTick = 100ms;
constexpr Duration kAnswerTimeout = 2s;
}  // namespace

Operator::Operator(Cluster& cluster, const std::string& host)
    : cluster_(cluster), process_(cluster.scheduler, host, "operator") {}

Operator::~Operator() {
  if (here_) *here_ = false;
}

void Operator::start() {
  if (here_) *here_ = false;
  here_ = std::make_shared<bool>(true);
  drives_.clear();
  taking_.clear();
  session_.reset();
  if (process_.life() > 1 || !process_.alive()) process_.restart();
  session_ = cluster_.coord.open(process_);
  session_->on_event([this](coord::Event event) {
    // The tasks are gone with the old session: whoever takes them next drives.
    if (event == coord::Event::expired) drives_.clear();
  });
  look_around();
}

void Operator::kill() {
  process_.kill();
  *here_ = false;
  drives_.clear();
  taking_.clear();
  session_.reset();
}

void Operator::look_around() {
  process_.after(kLookAroundEvery, [this] { look_around(); });
  for (const auto& table : cluster_.maps.tables()) {
    // What an operator knows of the maps may be old; here it is not, but what it does is checked by the change itself.
    const MapPtr map = cluster_.maps.current(table);
    for (const auto& p : map->partitions) {
      if (p.split) take(table, p.split->attempt, proto::OpKind::split);
      if (p.merge && p.merge->low == p.id) take(table, p.merge->attempt, proto::OpKind::merge);
      for (const auto& move : p.moves) take(table, move.attempt, proto::OpKind::replace);
    }
  }
}

void Operator::take(const std::string& table, const model::AttemptId& attempt, proto::OpKind kind) {
  if (drives_.contains(attempt) || taking_.contains(attempt) || !session_->connected()) return;
  taking_.insert(attempt);
  const coord::Task task{process_.host(), table, std::string(proto::op_name(kind))};
  const auto path = cluster_.maps.layout().op_task(attempt);
  session_->create(path, coord::task_text(task), coord::CreateMode::ephemeral,
                   [this, path, table, attempt, kind](base::Result<std::string> r) {
                     taking_.erase(attempt);
                     if (r) return drive(table, attempt, kind);
                     if (r.error().code != Code::exists) return;  // looked at again on the next round
                     // Perhaps our own, from a try whose answer was lost.
                     session_->exists(path, nullptr, [this, table, attempt, kind](base::Result<coord::Stat> stat) {
                       if (stat && stat->ephemeral_owner == session_->session_id() && !drives_.contains(attempt))
                         drive(table, attempt, kind);
                     });
                   });
}

void Operator::drive(const std::string& table, const model::AttemptId& attempt, proto::OpKind kind) {
  Drive begun;
  begun.table = table;
  begun.attempt = attempt;
  begun.driver = proto::make_driver(kind, attempt);
  drives_[attempt] = std::move(begun);
  input(attempt, driver::Begin{process_.now()});
  tick(attempt);
}

void Operator::tick(const model::AttemptId& attempt) {
  process_.after(kDriveTick, [this, here = here_, attempt] {
    if (!*here || !drives_.contains(attempt)) return;
    input(attempt, driver::Tick{process_.now()});
    tick(attempt);
  });
}

void Operator::input(const model::AttemptId& attempt, driver::Input in) {
  auto it = drives_.find(attempt);
  if (it == drives_.end() || !process_.alive()) return;
  it->second.inputs.push_back(std::move(in));
  if (it->second.stepping) return;
  it->second.stepping = true;
  while (!it->second.inputs.empty()) {
    const driver::Input next = std::move(it->second.inputs.front());
    it->second.inputs.erase(it->second.inputs.begin());
    for (const auto& effect : it->second.driver->step(next))
      std::visit([&](const auto& e) { perform(it->second, e); }, effect);
  }
  it->second.stepping = false;
  if (it->second.driver->ended()) {
    session_->remove(cluster_.maps.layout().op_task(attempt), coord::kAnyVersion, [](auto) {});
    drives_.erase(it);
  }
}

void Operator::perform(Drive& drive, const driver::Look& e) {
  look(drive.table, [this, here = here_, attempt = drive.attempt, number = e.number](base::Result<proto::World> world) {
    if (*here) input(attempt, driver::Looked{process_.now(), number, std::move(world)});
  });
}

void Operator::perform(Drive& drive, const driver::Submit& e) {
  ChangeAsk ask{drive.table, model::ChangeId::draw(process_.random()), {e.operation}};
  cluster_.network.call(
      process_, cluster_.maps.address(process_), std::move(ask), kAnswerTimeout,
      [this, here = here_, attempt = drive.attempt, number = e.number](Network::Answer r) {
        if (!*here) return;
        input(attempt, driver::Changed{process_.now(), number, r ? base::ok() : base::Status(base::fail(r.error()))});
      });
}

void Operator::perform(Drive& drive, const driver::Waiting& e) {
  cluster_.scheduler.note("waiting", process_.host(), drive.table, e.why);
}

void Operator::perform(Drive& drive, const driver::Ended& e) {
  cluster_.scheduler.note("ended", process_.host(), drive.table, e.outcome, e.reason);
}

// After one sync: TableConfig's map, observed, nodes/active.
void Operator::look(const std::string& table, std::function<void(base::Result<proto::World>)> done) {
  const auto& layout = cluster_.maps.layout();
  const auto d = coord::distribution(model::Keyspace::range, table);
  auto world = std::make_shared<proto::World>();
  const auto fail = [done](const base::Error& error) { done(base::fail(error)); };
  session_->sync(layout.root(), [=, this, this_layout = &layout](auto synced) {
    if (!synced) return fail(synced.error());
    session_->children(this_layout->active(), nullptr, [=, this](base::Result<coord::Children> active) {
      if (!active) return fail(active.error());
      for (const auto& name : active->names) world->live.insert({name});
      session_->children(this_layout->observed(d), nullptr, [=, this](base::Result<coord::Children> servers) {
        if (!servers) return fail(servers.error());
        auto left = std::make_shared<size_t>(servers->names.size() + 1);
        auto bad = std::make_shared<bool>(false);
        const auto finish = [=, this] {
          if (--*left > 0) return;
          if (*bad) return fail({Code::unavailable, "could not read observed"});
          session_->get(this_layout->config(d), nullptr, [=, this](base::Result<coord::Node> config) {
            if (!config) return fail(config.error());
            cluster_.network.call(process_, cluster_.maps.address(process_), MapAsk{table}, kAnswerTimeout,
                                  [=](Network::Answer r) {
                                    if (!r) return fail(r.error());
                                    world->map = std::any_cast<MapAnswer>(*r).map;
                                    // A newer map than the one `observed` was read beside is no basis for a decision.
                                    const auto parsed = model::parse_table_config(config->value);
                                    if (!parsed || parsed->metadata_hash != MapService::hash_of(*world->map))
                                      return fail({Code::unavailable, "the map changed meanwhile"});
                                    done(*world);
                                  });
          });
        };
        for (const auto& name : servers->names)
          session_->get(this_layout->observed(d, {name}), nullptr, [=](base::Result<coord::Node> node) {
            const auto observed = node ? coord::parse_observed(node->value) : base::fail(node.error());
            if (observed)
              world->observed[{name}] = observed->txnseq;
            else if (node || node.error().code != Code::not_found)
              *bad = true;
            finish();
          });
        finish();
      });
    });
  });
}

bool Operator::split(const std::string& table, model::Region region, const std::string& point,
                     const std::vector<model::ServerId>& low, const std::vector<model::ServerId>& high) {
  const MapPtr map = cluster_.maps.current(table);
  const model::Partition* p = map ? map->partitions.get(region) : nullptr;
  if (!p) return false;
  submit(table, {model::draw_split(*p, point, low, high, process_.random())});
  return true;
}

bool Operator::merge(const std::string& table, model::Region region) {
  const MapPtr map = cluster_.maps.current(table);
  const model::Partition* p = map ? map->partitions.get(region) : nullptr;
  if (!p || p->interval.end.empty()) return false;
  submit(table, {model::draw_merge(*p, *map->find(p->interval.end), process_.random())});
  return true;
}

bool Operator::replace(const std::string& table, model::Region region, const std::string& from, const std::string& to,
                       bool from_dead) {
  const MapPtr map = cluster_.maps.current(table);
  const model::Partition* p = map ? map->partitions.get(region) : nullptr;
  const model::Assignment* a = p ? model::find_assignment(*p, model::ServerId{from}) : nullptr;
  if (!a) return false;
  submit(table, {model::draw_replace(*p, *a, {to}, from_dead, process_.random())});
  return true;
}

void Operator::submit(const std::string& table, std::vector<model::Operation> ops) {
  if (!process_.alive()) return;
  cluster_.network.call(process_, cluster_.maps.address(process_),
                        ChangeAsk{table, model::ChangeId::draw(process_.random()), std::move(ops)}, kAnswerTimeout,
                        [](Network::Answer) {});
}

void Operator::abort(const model::AttemptId& attempt) {
  input(attempt, driver::AbortAsked{process_.now(), "an operator said so"});
}

}  // namespace cantle::sim

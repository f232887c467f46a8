#include "test/sim/partd.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/coord/layout.h"
#include "lib/model/table_config.h"
#include "lib/store/position_store.h"
#include "lib/wire/codec.h"

namespace cantle::sim {

using base::Code;
using proto::push::Now;
namespace push = proto::push;

namespace {

constexpr Duration kTickEvery = 50ms;
constexpr Duration kReconcileEvery = 2s;
constexpr Duration kRetry = 200ms;
constexpr Duration kPositionsEvery = 500ms;
constexpr Duration kMapTimeout = 600ms;
constexpr const char* kRememberPath = "remember";

struct RememberFile {
  std::map<model::TableUuid, model::TxnSeq> seen;
  std::vector<model::PartitionId> children, parents;
  std::vector<model::AttemptId> attempts;
  CANTLE_FIELDS(seen, children, parents, attempts)
};

}  // namespace

PartdNode::PartdNode(Cluster& cluster, Host& host)
    : cluster_(cluster),
      host_(host),
      process_(host.partd),
      disk_(host.medium, host.partd),
      executor_(host.partd, cluster.times),
      indexes_(host.index) {
  open_dir();
}

PartdNode::~PartdNode() { *here_ = false; }

void PartdNode::fatal(const std::string& why) {
  cluster_.scheduler.note("fatal", host_.id.name, why);
  process_.kill();
}

void PartdNode::open_dir() {
  auto dir = store::DataDir::open(disk_, {host_.id, cluster_.uuid});
  if (!dir) {
    if (dir.error().code == Code::identity) host_.exit_text = dir.error().text;
    return fatal("data dir: " + to_string(dir.error()));
  }
  dir_ = std::move(*dir);
  if (dir_->identity().number.value != 0) open_store();
  if (!process_.alive()) return;
  session_ = cluster_.coord.open(process_);
  session_->on_event([this](coord::Event event) { on_coord(event); });
}

// At the first start the incarnation is known only when the directory has its number.
void PartdNode::open_store() {
  auto page = store::LivePage::create(disk_, dir_->identity().incarnation);
  if (!page) return fatal("live page: " + to_string(page.error()));
  page_ = std::move(*page);
  auto engine =
      store::Engine::open({disk_, indexes_, executor_, process_, page_.get()}, cluster_.engine, dir_->identity());
  if (!engine) return fatal("engine: " + to_string(engine.error()));
  engine_ = std::move(*engine);
  for (const auto& t : engine_->tenures())
    if (const auto end = engine_->log_end(t.id.partition))
      cluster_.scheduler.note("back_with", host_.id.name, to_string(t.id.assignment), t.applied.lsn.value,
                              end->lsn.value, engine_->size(t.id.partition).records);
  const auto& report = engine_->report();
  if (cluster_.watchers.recovered) cluster_.watchers.recovered(host_, report);
  cluster_.scheduler.note("recovered", host_.id.name, report.frames, report.torn_bytes, report.damaged.size(),
                          report.index_rebuilt);
  engine_->on_fatal([this](const base::Error& error) { fatal("store: " + to_string(error)); });
  engine_->on_read_only([this](bool read_only, const std::string& reason) {
    read_only_ = read_only;
    cluster_.scheduler.note("read_only", host_.id.name, read_only, reason);
    if (machine_) tell_store_state();
  });
}

void PartdNode::on_coord(coord::Event event) {
  if (event != coord::Event::connected) return;
  if (!machine_) return learn_self();
  register_active();
  read_live();
  read_tables();
}

// As cmd/partd/enroll.h: a data directory that has no number yet makes an arrival event and gets one, unless METADATA
// says that what it should have is lost (S6).
void PartdNode::learn_self() {
  if (learning_) return;
  learning_ = true;
  const auto path = cluster_.maps.layout().info(host_.id);
  session_->sync(path, [this, path](auto synced) {
    if (!synced) return learn_again();
    session_->get(path, nullptr, [this](base::Result<coord::Node> r) {
      if (r) return arrive(coord::parse_info(r->value).value(), r->stat.version);
      r.error().code == Code::not_found ? arrive({}, std::nullopt) : learn_again();
    });
  });
}

void PartdNode::learn_again() {
  learning_ = false;
  process_.after(kRetry, [this, here = here_] {
    if (*here && session_->connected() && !machine_) learn_self();
  });
}

void PartdNode::arrive(coord::NodeInfo info, std::optional<int32_t> version) {
  const bool known_name = info.number.value != 0 && info.number != host_.number;
  if (host_.number.value == 0) {
    if (known_name && named_in_maps()) {
      host_.exit_text = "METADATA says that " + host_.id.name + " holds something, and this data directory is new";
      return fatal(host_.exit_text);
    }
    host_.number = cluster_.arrive();
    host_.wiped = false;
  }
  const auto done = [this, known_name](bool written) {
    if (!written) return learn_again();
    learning_ = false;
    begin(host_.number, known_name);
  };
  if (version && info.number == host_.number) return done(true);
  info.number = host_.number;
  info.host = host_.id.name;
  const auto path = cluster_.maps.layout().info(host_.id);
  if (version)
    session_->set(path, coord::info_text(info), *version, [done](auto set) { done(set.has_value()); });
  else
    session_->create(path, coord::info_text(info), coord::CreateMode::persistent,
                     [done](auto made) { done(made.has_value()); });
}

bool PartdNode::named_in_maps() const {
  const auto named = [&](const std::vector<model::Assignment>& assignments) {
    return std::any_of(assignments.begin(), assignments.end(), [&](const auto& a) { return a.server == host_.id; });
  };
  for (const auto& table : cluster_.maps.tables()) {
    const MapPtr map = cluster_.maps.current(table);
    if (map->dropped) continue;
    for (const auto& p : map->partitions)
      if (named(p.assignments) || (p.split && (named(p.split->low.assignments) || named(p.split->high.assignments))))
        return true;
  }
  return false;
}

void PartdNode::begin(model::ServerNumber number, bool known_name) {
  if (machine_) return;
  if (dir_->identity().number != number) {
    if (!dir_->set_number(number)) return fatal("cannot write the id file");
    open_store();
    if (!process_.alive()) return;
  }
  push::Self self;
  self.server = host_.id;
  self.number = number;
  self.incarnation = dir_->identity().incarnation;
  self.newest = engine_->highest_version();
  self.fresh_under_known_name = known_name && dir_->first_start();
  for (const auto& t : engine_->tenures())
    self.held.push_back(
        {t.id.partition, t.id.assignment, t.region, t.table, t.interval, t.state == store::TenureState::aside,
         t.state == store::TenureState::live ? engine_->durable(t.id.partition).value_or(model::LogPoint{}).lsn
                                             : model::Lsn{},
         t.whole});
  if (auto bytes = disk_.read_whole(kRememberPath, 1 << 20)) {
    const auto file = wire::decode<RememberFile>(*bytes);
    CHECK(file.has_value());
    self.seen = file->seen;
    for (size_t i = 0; i < file->children.size(); ++i)
      self.children.push_back({file->children[i], file->parents[i], file->attempts[i]});
  }
  machine_ = std::make_unique<proto::PushServer>(std::move(self));
  cluster_.scheduler.note("serving", host_.id.name, incarnation().value);
  cluster_.network.listen(process_,
                          [this, here = here_](const std::string& from, const std::any& request, Network::Reply reply) {
                            if (*here) serve(from, request, std::move(reply));
                          });
  tell_store_state();
  register_active();
  read_live();
  read_tables();
  tick();
  process_.after(kReconcileEvery, [this, here = here_] {
    if (*here) reconcile();
  });
}

void PartdNode::reconcile() {
  if (session_->connected()) {
    read_live();
    read_tables();
  }
  process_.after(kReconcileEvery, [this, here = here_] {
    if (*here) reconcile();
  });
}

void PartdNode::register_active() {
  const auto path = cluster_.maps.layout().active(host_.id);
  coord::Active active;
  active.tcp = host_.id.name + ":1";
  active.incarnation = incarnation();
  active.instance = host_.id.name;
  const auto again = [this] {
    process_.after(kRetry, [this, here = here_] {
      if (*here && session_->connected()) register_active();
    });
  };
  session_->create(path, coord::active_text(active), coord::CreateMode::ephemeral,
                   [this, path, again](base::Result<std::string> r) {
                     if (r) return;
                     if (r.error().code != Code::exists) return again();
                     // Ours of this session, from a try whose answer was lost; or of an older one, to be made anew
                     // (S34).
                     session_->get(path, nullptr, [this, path, again](base::Result<coord::Node> n) {
                       if (!n) return again();
                       if (n->stat.ephemeral_owner == session_->session_id()) return;
                       session_->remove(path, n->stat.version, [again](auto) { again(); });
                     });
                   });
}

void PartdNode::read_live() {
  const auto path = cluster_.maps.layout().active();
  session_->sync(path, [this, path](auto synced) {
    if (!synced) return;
    session_->children(
        path, [this] { read_live(); },
        [this](base::Result<coord::Children> r) {
          if (!r) return;
          auto found = std::make_shared<std::map<model::ServerId, model::Incarnation>>();
          auto left = std::make_shared<size_t>(r->names.size());
          if (r->names.empty()) return input(push::LiveRead{});
          for (const auto& name : r->names)
            session_->get(cluster_.maps.layout().active({name}), nullptr,
                          [this, name, found, left](base::Result<coord::Node> n) {
                            if (n)
                              if (const auto active = coord::parse_active(n->value))
                                (*found)[{name}] = active->incarnation;
                            if (--*left > 0) return;
                            live_ = *found;
                            input(push::LiveRead{*found});
                          });
        });
  });
}

void PartdNode::read_tables() {
  session_->children(
      cluster_.maps.layout().distributions(), [this] { read_tables(); },
      [this](base::Result<coord::Children> r) {
        if (!r) return;
        for (const auto& name : r->names)
          if (const auto d = coord::parse_distribution(name)) {
            tables_.insert(d->table);
            read_config(d->table);
          }
      });
}

// The watch of a table's config leads here.
void PartdNode::read_config(const std::string& table) {
  const auto path = MapService::config_path(cluster_.maps.layout(), table);
  session_->get(
      path, [this, table] { fetch_map(table); },
      [this, table](base::Result<coord::Node> r) {
        if (!r) return;
        const auto config = model::parse_table_config(r->value);
        CHECK(config.has_value());
        const MapPtr installed = machine_->installed(table);
        if (!installed || installed->txnid != config->metadata_txnid) fetch_map(table);
      });
}

void PartdNode::fetch_map(const std::string& table) {
  if (!fetching_.insert(table).second) {
    again_.insert(table);
    return;
  }
  const auto over = [this, table](bool retry) {
    fetching_.erase(table);
    if (again_.erase(table) > 0 || retry)
      process_.after(retry ? kRetry : Duration{0}, [this, here = here_, table] {
        if (*here) fetch_map(table);
      });
  };
  cluster_.network.call(process_, cluster_.maps.address(process_), MapAsk{table}, kMapTimeout,
                        [this, table, over](Network::Answer answer) {
                          if (!*here_) return;
                          if (!answer) return over(false);
                          const MapPtr map = std::any_cast<MapAnswer>(*answer).map;
                          const auto path = MapService::config_path(cluster_.maps.layout(), table);
                          session_->sync(path, [this, table, over, map, path](auto synced) {
                            if (!synced) return over(false);
                            session_->get(
                                path, [this, table] { fetch_map(table); },
                                [this, table, over, map](base::Result<coord::Node> r) {
                                  if (!r) return over(false);
                                  const auto config = model::parse_table_config(r->value);
                                  CHECK(config.has_value());
                                  const bool same = config->metadata_hash == MapService::hash_of(*map);
                                  over(!same);
                                  if (same) map_came(table, map);
                                });
                          });
                        });
}

void PartdNode::map_came(const std::string& table, MapPtr map) {
  tables_.insert(table);
  input(push::MapRead{table, std::move(map)});
  auto waiting = std::move(waiting_[table]);
  waiting_.erase(table);
  for (auto& then : waiting) then(true);
}

void PartdNode::wait_for_map(const std::string& table, std::function<void(bool)> then) {
  waiting_[table].push_back(std::move(then));
  fetch_map(table);
  process_.after(kMapTimeout, [this, here = here_, table] {
    if (!*here) return;
    auto it = waiting_.find(table);
    if (it == waiting_.end()) return;
    auto waiting = std::move(it->second);
    waiting_.erase(it);
    for (auto& w : waiting) w(false);
  });
}

void PartdNode::tick() {
  engine_->tick();
  tell_store_state();
  input(push::Tick{});
  check_links();
  read_positions();
  process_.after(kTickEvery, [this, here = here_] {
    if (*here) tick();
  });
}

void PartdNode::tell_store_state() {
  push::StoreState state;
  if (read_only_) state.read_only = engine_->status().read_only_reason;
  // One that can be asked: all share the overlay.
  if (!engine_->find(asked_)) {
    asked_ = {};
    for (const auto& t : engine_->tenures())
      if (t.state == store::TenureState::live) asked_ = t.id.partition;
  }
  if (!asked_.none()) {
    const auto can = engine_->can_append(asked_);
    state.overloaded = !can && can.error().code == Code::overloaded;
  }
  if (state.read_only == told_read_only_ && state.overloaded == told_overloaded_) return;
  told_read_only_ = state.read_only;
  told_overloaded_ = state.overloaded;
  input(std::move(state));
}

// What replpush has recorded, for the live marks and for the journal's retention.
void PartdNode::read_positions() {
  if (process_.now() < read_positions_at_) return;
  read_positions_at_ = process_.now() + kPositionsEvery;
  store::MemIndexFactory factory(host_.positions);
  const auto index = factory.open();
  if (!index) return;
  const auto all = store::PositionStore(**index).all();
  if (!all) return;
  for (const auto& [key, position] : *all) input(push::PushedTo{key.own, key.target, position.confirmed.lsn});
  std::map<model::AssignmentId, store::TenureId> ids;
  for (const auto& t : engine_->tenures()) ids[t.id.assignment] = t.id;
  for (const auto& [own, lsn] : machine_->needed())
    if (const auto it = ids.find(own); it != ids.end()) engine_->set_needed(it->second, lsn);
}

void PartdNode::check_links() {
  if (!machine_) return;
  for (const auto& server : machine_->partners()) {
    if (server == host_.id || links_[server] || !pinging_.insert(server).second) continue;
    cluster_.network.call(process_, server.name + "/partd", Ping{}, 300ms, [this, server](Network::Answer r) {
      if (!*here_) return;
      // Not pinged again at once: a transport backs off.
      process_.after(r ? 0ms : 200ms, [this, here = here_, server] {
        if (*here) pinging_.erase(server);
      });
      if (r) link_result(server, true);
    });
  }
}

void PartdNode::link_result(const model::ServerId& server, bool up) {
  if (links_[server] == up) return;
  links_[server] = up;
  input(push::LinkChanged{server, up});
}

Now PartdNode::now() { return {process_.now(), process_.wall_ms()}; }

void PartdNode::input(push::Input in) {
  if (!process_.alive()) return;
  inputs_.push_back(std::move(in));
  pump();
}

void PartdNode::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (!inputs_.empty() && process_.alive()) {
    const push::Input in = std::move(inputs_.front());
    inputs_.pop_front();
    auto effects = machine_->step(now(), in);
    for (auto& effect : effects) {
      if (!process_.alive()) break;
      std::visit([this](auto& e) { perform(e); }, effect);
    }
  }
  pumping_ = false;
}

// Written here because its file's format is the shell's own affair.
void PartdNode::perform(push::Remember& e) {
  remember_ = e;
  remember();
}
void PartdNode::remember() {
  const auto& e = remember_;
  RememberFile file;
  file.seen = e.seen;
  for (const auto& child : e.children) {
    file.children.push_back(child.child);
    file.parents.push_back(child.parent);
    file.attempts.push_back(child.attempt);
  }
  auto written = disk_.write_whole(kRememberPath, wire::encode(file));
  unremembered_ = !written;
  if (!written && process_.alive() && written.error().code != Code::no_space)
    fatal("remember: " + to_string(written.error()));
}

}  // namespace cantle::sim
